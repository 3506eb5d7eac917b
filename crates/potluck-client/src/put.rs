//! Storing local files.

use crate::pool::Pool;
use crate::progress::Progress;
use crate::source::Items;
pub use crate::write::options::PutOptions;
pub use crate::write::report::PutReport;
use crate::write::session::WriteSession;
use crate::write::sliding_window;
pub use crate::write::sliding_window::Settling;
use potluck_core::path::PoolPath;
use potluck_wire::control::Reserve;
use potluck_wire::error::Failure;
use std::sync::Arc;

/// Stores `items` in one write session below `root`. Each file becomes visible whole, when all
/// its chunks have as many copies as the policy asks for, or, unless it is strict, as there are donors
/// for while others are away, if one more may die then; by an asynchronous mirroring protocol when
/// they have one. This returns when the other copies are made too, as far as this client makes them.
///
/// Errors: what ended the session; files that failed alone are in the report.
pub async fn put(
    client: &Pool,
    root: &PoolPath,
    items: Items,
    options: &PutOptions,
    progress: Arc<dyn Progress>,
) -> Result<PutReport, Failure> {
    let (mut report, settling) = put_visible(client, root, items, options, progress).await?;
    report.pending_copies -= settling.pending();
    report.pending_copies += settling.wait().await;
    Ok(report)
}

/// [`put`] that returns as soon as the files are visible. The copies that are missing then are made
/// while the second part of the result is waited for.
pub async fn put_visible(
    client: &Pool,
    root: &PoolPath,
    items: Items,
    options: &PutOptions,
    progress: Arc<dyn Progress>,
) -> Result<(PutReport, Settling), Failure> {
    let reserve = Reserve {
        path: root.clone(),
        bytes: options.bytes,
        policy: options.policy,
        condition: options.condition,
    };
    let session = WriteSession::open(client, &reserve).await?;
    let client = client.for_writing(&session.reserved.policy, session.reserved.donors.len());
    sliding_window::write(&client, session, items, options, progress).await
}
