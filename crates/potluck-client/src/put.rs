//! Storing files: what a put is asked for, and what it reports.

use crate::pool::Pool;
use crate::progress::Progress;
use crate::source::Items;
use crate::write::session::WriteSession;
use crate::write::sliding_window;
pub use crate::write::sliding_window::Settling;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::policy::Override;
use potluck_wire::control::{Condition, Reserve};
use potluck_wire::error::Failure;
use std::sync::Arc;

/// How files are stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct PutOptions {
    /// What differs from the space's policy.
    pub policy: Override,
    /// When existing files may be replaced.
    pub condition: Condition,
    /// Plaintext bytes of all files together, if known.
    pub bytes: Option<u64>,
    /// Whether a stream that brings nothing replaces no file that has content.
    pub spare_content: bool,
    /// All files become visible at one moment, or none does.
    pub atomic: bool,
}

/// What a put did.
#[derive(Debug, Clone, Default)]
pub struct PutReport {
    /// Files that became visible.
    pub stored: Vec<(PoolPath, VersionId)>,
    /// Files that did not, and why.
    pub failed: Vec<(PoolPath, Failure)>,
    /// Plaintext bytes of the stored files.
    pub bytes: u64,
    /// Chunks that went to donors, parity included, copies not counted.
    pub sent_chunks: u64,
    /// Their stored bytes, copies not counted.
    pub sent_bytes: u64,
    /// Chunks the pool held already, or that occur twice in the files.
    pub held_chunks: u64,
    /// Stored bytes of chunks that an interrupted upload had left and that were not sent again,
    /// copies not counted.
    pub resumed_bytes: u64,
    /// The same with all their copies, as `potluck status` counts what is kept.
    pub resumed_copies_bytes: u64,
    /// Copies that were not made yet when this was said: an asynchronous protocol makes them after
    /// the files became visible, and until then the loss of one donor may lose data.
    pub pending_copies: u64,
    /// Files that became visible with less redundancy than their policy asks for, because donors are
    /// away. One more donor may die; repair makes the rest when there are donors for it.
    pub below_policy: u64,
}

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
