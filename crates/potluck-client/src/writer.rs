//! Files that a program writes piece by piece, any number of them in one session.
//!
//! Each writer cuts what it is given; what it has cut goes the same way as the chunks of local files
//! ([`crate::write::sliding_window`]), whose memory bounds all writers of a pool handle together. Beside it
//! a writer keeps what does not fill a chunk yet, or a group.

use crate::buffer::Buffers;
use crate::pool::Pool;
use crate::source::{Cut, Cutter, Input, Item};
use crate::write::options::PutOptions;
use crate::write::pushes::{Push, Pushes};
use crate::write::report::PutReport;
use crate::write::session::WriteSession;
use crate::write::sliding_window;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Policy};
use potluck_core::seal::SpaceKey;
use potluck_wire::control::Reserve;
use potluck_wire::env::Offload;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io::{self, Cursor, Read};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::{mpsc, oneshot, watch};

/// The attributes that a writer sets of its file beside the content.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes {
    /// When it was modified, milliseconds since 1970; without it, when it became visible.
    pub mtime_ms: Option<i64>,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// Files written under one reservation and one policy. Files that are finished at about the same time become
/// visible by one commit.
pub struct Session {
    shared: Arc<Shared>,
    report: oneshot::Receiver<Result<PutReport, Failure>>,
}

/// The state that the writers of a session share.
struct Shared {
    pushes: mpsc::UnboundedSender<Push>,
    policy: Policy,
    key: Option<SpaceKey>,
    buffers: Buffers,
    offload: Offload,
    next_file: AtomicU32,
    /// Whether the pool has promised room for more than was cut.
    may_cut: watch::Receiver<bool>,
    /// The failure that ended the session.
    failure: Arc<OnceLock<Failure>>,
}

impl Session {
    /// Opens a session for files below `root`.
    pub(crate) async fn open(
        client: &Pool,
        root: &PoolPath,
        options: &PutOptions,
    ) -> Result<Self, Failure> {
        let PutOptions { bytes, policy, condition, .. } = *options;
        let reserve = Reserve { path: root.clone(), bytes, policy, condition };
        let session = WriteSession::open(client, &reserve).await?;
        let policy = session.reserved.policy.clone();
        let client = client.for_writing_together(&policy, session.reserved.donors.len());
        let (pushes, from) = mpsc::unbounded_channel();
        let (tell, may_cut) = watch::channel(true);
        let failure = Arc::new(OnceLock::new());
        let shared = Arc::new(Shared {
            pushes,
            policy,
            key: session.reserved.space_key.clone(),
            buffers: client.buffers.clone(),
            offload: client.env.offload,
            next_file: AtomicU32::new(0),
            may_cut,
            failure: failure.clone(),
        });
        let (done, report) = oneshot::channel();
        let options = *options;
        // It ends with its writers, or with the runtime: nothing that settles in between ends it.
        tokio::spawn(async move {
            let pushes = Pushes { from, tell };
            let written =
                sliding_window::write_pushed(&client, session, pushes, &options, &failure);
            let written = match written.await {
                Ok((mut report, settling)) => {
                    report.pending_copies -= settling.pending();
                    report.pending_copies += settling.wait().await;
                    Ok(report)
                }
                Err(failure) => Err(failure),
            };
            let _ = done.send(written); // whoever does not wait for the end is not told
        });
        Ok(Self { shared, report })
    }

    /// A new file of the session, which becomes visible at `path` when it is finished.
    pub fn create(&self, path: PoolPath, attributes: Attributes) -> Writer {
        Writer::new(Arc::clone(&self.shared), path, attributes)
    }

    /// Waits until all writers of the session are done with, and all copies are made that this process makes.
    ///
    /// Errors: what ended the session early.
    pub async fn finish(self) -> Result<PutReport, Failure> {
        let failure = self.shared.failure.clone();
        drop(self.shared);
        self.report.await.unwrap_or_else(|_| Err(ended(&failure)))
    }
}

/// Writes one file. Nothing is visible before [`Writer::finish`]; a writer that is dropped before is aborted.
pub struct Writer {
    /// `None` once it is finished.
    shared: Option<Arc<Shared>>,
    file: u32,
    path: PoolPath,
    attributes: Attributes,
    /// `None` after a call that failed or was given up in the middle: the file cannot be finished then.
    cutter: Option<Box<Cutter>>,
    /// Bytes that its cutter has not taken yet, less than a unit.
    feed: Feed,
    written: u64,
    /// Bytes that a flush has promised.
    flushed: u64,
}

impl Writer {
    fn new(shared: Arc<Shared>, path: PoolPath, attributes: Attributes) -> Self {
        let feed = Feed::default();
        let input = Input::Stream(Box::new(feed.clone()));
        let item = Item { path: path.clone(), input };
        let items = Box::new(std::iter::once(item));
        let cutter = Cutter::new(items, &shared.policy, shared.key.clone());
        Self {
            file: shared.next_file.fetch_add(1, Ordering::Relaxed),
            shared: Some(shared),
            path,
            attributes,
            cutter: Some(Box::new(cutter)),
            feed,
            written: 0,
            flushed: 0,
        }
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Adds bytes at the end. Returns when they are taken: what fills chunks is on its way to donors, as far as
    /// memory and the session's reservation allow.
    ///
    /// Errors: what ended the session, such as [`ErrorKind::NoSpace`].
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        let shared = self.shared()?;
        let unit = unit(&shared.policy);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(unit - self.feed.len()));
            self.feed.push(now);
            self.written += now.len() as u64;
            bytes = later;
            if self.feed.len() == unit {
                let cuts = self.cut(&shared).await?;
                shared.push(Push::Cuts(cuts))?;
            }
        }
        Ok(())
    }

    /// Returns when donors have acknowledged all that was written, at the session's [`AckLevel`]. What does not
    /// fill a chunk is stored as it is for now, and once more with what follows: flush seldom.
    pub async fn flush(&mut self) -> Result<AckLevel, Failure> {
        let shared = self.shared()?;
        if self.flushed == self.written {
            return Ok(shared.policy.ack);
        }
        let rest = match self.feed.len() {
            0 => None,
            _ => Some(self.store_rest(&shared).await?),
        };
        for file in [Some(self.file), rest.as_ref().map(|rest| rest.0)].into_iter().flatten() {
            let (done, stored) = oneshot::channel();
            shared.push(Push::Flush(file, done))?;
            stored.await.map_err(|_| ended(&shared.failure))?;
        }
        self.flushed = self.written;
        Ok(shared.policy.ack)
    }

    /// Makes the file visible whole, in place of one that was there.
    ///
    /// Errors: [`ErrorKind::Conflict`] where the session's condition does not hold; what ended the session.
    pub async fn finish(mut self) -> Result<VersionId, Failure> {
        let shared = self.shared()?;
        let mut cuts = self.cut(&shared).await?;
        // The rest may make a whole chunk or group, without the end of the file.
        if !cuts.iter().any(|cut| matches!(cut, Cut::End { .. })) {
            cuts.extend(self.cut(&shared).await?);
        }
        let (done, visible) = oneshot::channel();
        shared.push(Push::Await(self.file, done))?;
        shared.push(Push::Cuts(cuts))?;
        self.shared = None;
        let failure = shared.failure.clone();
        drop(shared); // the last of its session closes it with the same commit
        visible.await.unwrap_or_else(|_| Err(ended(&failure)))
    }

    /// Gives the file up; nothing of it becomes visible.
    pub fn abort(self) {}

    fn shared(&self) -> Result<Arc<Shared>, Failure> {
        self.shared.clone().filter(|_| self.cutter.is_some()).ok_or_else(|| {
            let what = format!("an earlier call that wrote {} failed or was given up", self.path);
            Failure::new(ErrorKind::Other, code::BAD_REQUEST, what).hint("write the file anew")
        })
    }

    /// Cuts what is fed: a unit, or all there is with the end of the file.
    async fn cut(&mut self, shared: &Shared) -> Result<Vec<Cut>, Failure> {
        shared.room().await?;
        let Some(cutter) = self.cutter.take() else { return Err(ended(&shared.failure)) };
        let (cutter, mut cuts) = shared.cut(cutter, self.file, self.attributes).await;
        if let Some(Cut::Failed { error, .. }) =
            cuts.pop_if(|cut| matches!(cut, Cut::Failed { .. }))
        {
            return Err(sliding_window::uncut(&error));
        }
        self.cutter = Some(cutter);
        Ok(cuts)
    }

    /// Stores what is fed as the content of a file that never becomes visible.
    async fn store_rest(&mut self, shared: &Arc<Shared>) -> Result<Hidden, Failure> {
        let hidden = Hidden(shared.next_file.fetch_add(1, Ordering::Relaxed), Arc::clone(shared));
        let input = Input::Stream(Box::new(Cursor::new(self.feed.copy())));
        let items = Box::new(std::iter::once(Item { path: self.path.clone(), input }));
        let cutter = Cutter::new(items, &shared.policy, shared.key.clone()).without_inline();
        let (_, mut cuts) = shared.cut(Box::new(cutter), hidden.0, self.attributes).await;
        cuts.retain(|cut| !matches!(cut, Cut::End { .. }));
        shared.push(Push::Cuts(cuts))?;
        Ok(hidden)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            let _ = shared.push(Push::Abort(self.file)); // a session that has ended has no file
        }
    }
}

/// A file that is forgotten when this is dropped.
struct Hidden(u32, Arc<Shared>);

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = self.1.push(Push::Abort(self.0)); // a session that has ended has no file
    }
}

impl Shared {
    fn push(&self, push: Push) -> Result<(), Failure> {
        self.pushes.send(push).map_err(|_| ended(&self.failure))
    }

    /// Waits until the pool has promised room for more.
    async fn room(&self) -> Result<(), Failure> {
        let mut may_cut = self.may_cut.clone();
        may_cut.wait_for(|may| *may).await.map(drop).map_err(|_| ended(&self.failure))
    }

    /// Runs a cutter until it needs more, or is at the end of `file`.
    async fn cut(
        &self,
        mut cutter: Box<Cutter>,
        file: u32,
        attributes: Attributes,
    ) -> (Box<Cutter>, Vec<Cut>) {
        let claim = self.buffers.claim(Cutter::room(&self.policy)).await;
        let (cutter, mut cuts) = self
            .offload
            .run(move || {
                let cuts = cutter.next(claim);
                (cutter, cuts)
            })
            .await;
        for cut in &mut cuts {
            match cut {
                Cut::Chunk { file: of, .. } | Cut::Group { file: of, .. } => *of = file,
                Cut::Failed { file: of, .. } => *of = file,
                Cut::End { file: of, facts } => {
                    *of = file;
                    facts.mtime_ms = attributes.mtime_ms;
                    facts.executable = attributes.executable;
                }
            }
        }
        (cutter, cuts)
    }
}

/// Plaintext bytes that are cut together.
fn unit(policy: &Policy) -> usize {
    policy.chunk_size as usize * policy.ec.map_or(1, |ec| ec.data())
}

fn ended(failure: &OnceLock<Failure>) -> Failure {
    failure.get().cloned().unwrap_or_else(|| {
        Failure::new(ErrorKind::Retry, code::NO_SESSION, "the write session has ended")
            .hint("write what was not finished anew")
    })
}

/// Bytes between a writer and its cutter. The cutter sees an end where there are no more, and is asked only
/// when it is not to see one too early.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<Fed>>);

#[derive(Default)]
struct Fed {
    bytes: Vec<u8>,
    read: usize,
}

impl Feed {
    fn push(&self, bytes: &[u8]) {
        let mut fed = self.0.lock().expect("no holder panics");
        if fed.read == fed.bytes.len() {
            fed.bytes.clear();
            fed.read = 0;
        }
        fed.bytes.extend_from_slice(bytes);
    }

    fn len(&self) -> usize {
        let fed = self.0.lock().expect("no holder panics");
        fed.bytes.len() - fed.read
    }

    fn copy(&self) -> Vec<u8> {
        let fed = self.0.lock().expect("no holder panics");
        fed.bytes[fed.read..].to_vec()
    }
}

impl Read for Feed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut fed = self.0.lock().expect("no holder panics");
        let read = (&fed.bytes[fed.read..]).read(buffer)?;
        fed.read += read;
        Ok(read)
    }
}
