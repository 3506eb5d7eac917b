//! The messages between the writers of a session, which bring files, and the sliding window, which sends their chunks.

use crate::fetch::{ChunkLocator, LocatedChunks};
use crate::pool::Pool;
use crate::source::{Cut, Cutter, Input, Item, Items};
use potluck_core::attributes::FileTime;
use potluck_core::chunk::{ChunkName, MIN_CHUNK};
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_core::seal::SpaceKey;
use potluck_wire::env::Offload;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{mpsc, oneshot, watch};

/// The number of bytes from which they are cut on another thread. Fewer are the end of a file, which is in memory, and
/// take less time than two threads that wake each other.
const CUT_HERE: usize = MIN_CHUNK as usize;

/// A message to a session.
pub(crate) enum Push {
    /// Brings files that the session itself reads.
    Items(Items),
    /// Brings the next chunks of a file that a writer cuts, and perhaps its end.
    Cuts(Vec<Cut>),
    /// Asks to be told when all chunks of a file that were brought so far are stored.
    Flush(u32, oneshot::Sender<()>),
    /// Asks to be told when a file, whose end comes next, is visible.
    Await(u32, Finished),
    /// Gives a file up, so that nothing of it becomes visible.
    Abort(u32),
    /// Asks which donors have these chunks of the session.
    Locate(Vec<ChunkName>, oneshot::Sender<Result<LocatedChunks, Failure>>),
}

/// A writer that waits to be told what became of its file.
#[derive(Debug)]
pub(crate) struct Finished {
    pub tell: oneshot::Sender<Result<VisibleFile, Failure>>,
    /// True if a power cut must not undo the file from then on, whatever else the session has.
    pub synced: bool,
}

impl Finished {
    /// Tells the writer; returns what it was to be told if it is gone.
    pub fn send(
        self,
        outcome: Result<VisibleFile, Failure>,
    ) -> Result<(), Result<VisibleFile, Failure>> {
        self.tell.send(outcome)
    }
}

/// A file that has become visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisibleFile {
    /// The version that the file has.
    pub version: VersionId,
    /// The time at which its directory was modified because the file is new in it; `None` where the file replaced
    /// another.
    pub dir_modified: Option<FileTime>,
    /// True if the file has less redundancy than its policy asks for, because donors are away.
    pub below_policy: bool,
}

/// The sliding window's side of a session.
pub(crate) struct Pushes {
    /// The messages of the writers. The channel ends when the session and all its writers are gone.
    pub from: mpsc::UnboundedReceiver<Push>,
    /// The channel that tells writers whether they may bring more.
    pub tell: watch::Sender<bool>,
    /// The number of the next file.
    pub next_file: Arc<AtomicU32>,
    /// The failure that ended the session.
    pub failure: Arc<OnceLock<Failure>>,
}

/// The writers' side of a session.
pub(crate) struct SessionHandle {
    pushes: mpsc::UnboundedSender<Push>,
    may_cut: watch::Receiver<bool>,
    next_file: Arc<AtomicU32>,
    /// The policy of all files of the session.
    pub policy: Policy,
    /// The key that seals the files, in a sealed space.
    pub key: Option<SpaceKey>,
    /// The client of the session, with the memory of its writers.
    pub client: Pool,
    /// The number of donors that the plan named at first.
    pub donors: usize,
    /// The failure that ended the session.
    pub failure: Arc<OnceLock<Failure>>,
}

impl SessionHandle {
    /// Makes both sides of a session with this policy, whose writers have their memory from `client`.
    pub fn new(
        policy: Policy,
        key: Option<SpaceKey>,
        client: Pool,
        donors: usize,
    ) -> (Self, Pushes) {
        let (pushes, from) = mpsc::unbounded_channel();
        let (tell, may_cut) = watch::channel(true);
        let next_file = Arc::new(AtomicU32::new(0));
        let failure = Arc::default();
        let window =
            Pushes { from, tell, next_file: Arc::clone(&next_file), failure: Arc::clone(&failure) };
        (Self { pushes, may_cut, next_file, policy, key, client, donors, failure }, window)
    }

    /// Sends the window a message.
    ///
    /// Errors: the failure that ended the session.
    pub fn push(&self, push: Push) -> Result<(), Failure> {
        self.pushes.send(push).map_err(|_| self.ended())
    }

    /// Returns the number of a new file at `path`, and the cutter that cuts it.
    pub fn cutter(&self, path: PoolPath, input: Input) -> (u32, Cutter) {
        let file = self.next_file.fetch_add(1, Ordering::Relaxed);
        let item = Item { path, input };
        let number = Arc::new(AtomicU32::new(file));
        let items = Box::new(std::iter::once(item));
        (file, Cutter::new(items, &self.policy, self.key.clone(), number))
    }

    /// Waits until the window allows writers to bring more.
    ///
    /// Errors: the failure that ended the session.
    pub async fn room(&self) -> Result<(), Failure> {
        let mut may_cut = self.may_cut.clone();
        may_cut.wait_for(|may| *may).await.map(drop).map_err(|_| self.ended())
    }

    /// Runs a cutter until it needs more, or is at the end of its file. `bytes` is the number of bytes that it has.
    pub async fn cut(&self, mut cutter: Box<Cutter>, bytes: usize) -> (Box<Cutter>, Vec<Cut>) {
        let claim = self.client.buffers.claim(Cutter::room(&self.policy)).await;
        let cut = move || {
            let cuts = cutter.next(claim);
            (cutter, cuts)
        };
        let offload = match bytes < CUT_HERE {
            true => Offload::Inline,
            false => self.client.env.offload,
        };
        offload.run(cut).await
    }

    /// Returns the failure that ended the session.
    pub fn ended(&self) -> Failure {
        ended(&self.failure)
    }
}

impl ChunkLocator for SessionHandle {
    fn locate(&self, chunks: Vec<ChunkName>) -> BoxFuture<'_, Result<LocatedChunks, Failure>> {
        Box::pin(async move {
            let (done, located) = oneshot::channel();
            self.push(Push::Locate(chunks, done))?;
            located.await.unwrap_or_else(|_| Err(self.ended()))
        })
    }
}

/// Returns the failure that ended a session, or a general one if none was noted.
pub(crate) fn ended(failure: &OnceLock<Failure>) -> Failure {
    failure.get().cloned().unwrap_or_else(|| {
        Failure::new(ErrorKind::Retry, code::NO_SESSION, "the write session has ended")
            .hint("write what was not finished anew")
    })
}
