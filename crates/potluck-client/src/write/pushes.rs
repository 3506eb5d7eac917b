//! The messages between writers and the window that sends their chunks.

use crate::source::Cut;
use potluck_core::ids::VersionId;
use potluck_wire::error::Failure;
use tokio::sync::{mpsc, oneshot, watch};

/// A message of a writer to its session.
pub(crate) enum Push {
    /// The next chunks of a file, and maybe its end.
    Cuts(Vec<Cut>),
    /// Says so when all that came of a file is stored.
    Flush(u32, oneshot::Sender<()>),
    /// Says so when a file, whose end comes next, is visible.
    Await(u32, Finished),
    /// Nothing of a file becomes visible.
    Abort(u32),
}

/// Is told which version a file became.
pub(crate) type Finished = oneshot::Sender<Result<VersionId, Failure>>;

/// The window's side of its writers.
pub(crate) struct Pushes {
    /// The messages of the writers; ends when the session and all of them are gone.
    pub from: mpsc::UnboundedReceiver<Push>,
    /// Tells them whether they may bring more.
    pub tell: watch::Sender<bool>,
}
