//! Write sessions that the small files of a directory share, so that such a file costs one call to the manager instead
//! of three: the call that makes it visible. Files that are closed at about the same time share that call, too.

use crate::write_behind::Turn;
use potluck_client::{Attributes, Pool, PutOptions, Session, VisibleFile};
use potluck_core::clock::Tick;
use potluck_core::path::PoolPath;
use potluck_core::policy::AckLevel;
use potluck_wire::control::Condition;
use potluck_wire::env;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// The size in bytes of the largest small file. A small file is in memory until it is closed, so that it can be written
/// in a session of its own if the shared one fails.
const MOST: u64 = 256 << 10;
/// The time for which files begin in one session, which keeps the policy that its directory had when it was opened.
const BEGINS_FILES_FOR: Duration = Duration::from_secs(1);
/// The time that a program which closes a file waits for the policy of its directory.
const POLICY_TIMEOUT: Duration = Duration::from_secs(1);
/// The most sessions in which files may begin at a time. The pool keeps room free for each, so a program that goes
/// through many directories must not open more.
const SESSIONS: usize = 8;

/// The shared sessions of a mount's directories.
pub struct SmallFiles {
    pool: Pool,
    /// The options of the sessions.
    options: PutOptions,
    open: Mutex<BTreeMap<PoolPath, Opened>>,
}

/// A write session that the small files of a directory share.
struct Opened {
    session: Arc<Session>,
    at: Tick,
}

impl SmallFiles {
    /// Makes the shared sessions of a mount, of which none is open yet. With `in_order` the files of each become visible
    /// in the order in which they were closed.
    pub fn new(pool: Pool, in_order: bool) -> Self {
        let options = PutOptions { in_order, soon: true, ..PutOptions::default() };
        Self { pool, options, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<PoolPath, Opened>> {
        self.open.lock().expect("no holder panics")
    }

    /// Begins a file at `path` that may be small. Returns `None` if it needs a session of its own from the start, as
    /// [`Self::session`] says.
    ///
    /// Errors: those of [`Self::session`].
    pub async fn begin(self: &Arc<Self>, path: &PoolPath) -> Result<Option<SmallFile>, Failure> {
        let Some(dir) = path.parent() else { return Ok(None) };
        let Some(session) = self.session(path).await? else { return Ok(None) };
        Ok(Some(SmallFile { session, dir, bytes: Vec::new(), ended: None, turn: None }))
    }

    /// Returns the session that files in the directory of `path` share. Returns `None` if these need sessions of their
    /// own: because copies are made after they are visible, of which only the report of such a session tells, or because
    /// no session can be opened for the directory.
    ///
    /// Errors: that donors or the manager were waited for in vain, as they would be for another session.
    pub async fn session(
        self: &Arc<Self>,
        path: &PoolPath,
    ) -> Result<Option<Arc<Session>>, Failure> {
        let Some(dir) = path.parent() else { return Ok(None) };
        let known = self.known(&dir);
        let session = match known {
            Some(session) => session,
            None => match self.open_session(dir).await {
                Ok(session) => session,
                Err(failure) if was_waited_for(&failure) => return Err(failure),
                Err(_) => return Ok(None),
            },
        };
        let is_stored_when_visible = !session.policy().mirror.is_async();
        Ok(is_stored_when_visible.then_some(session))
    }

    /// Returns whether what is stored at `path` must be safe from power cuts: the ack level there is `disk`, or it is not
    /// known in a second.
    pub async fn is_synced(self: &Arc<Self>, path: &PoolPath) -> bool {
        let policy = async { Some(self.session(path).await.ok()??.policy().ack) };
        let ack = tokio::time::timeout(POLICY_TIMEOUT, policy).await.ok().flatten();
        ack != Some(AckLevel::Memory)
    }

    async fn open_session(self: &Arc<Self>, dir: PoolPath) -> Result<Arc<Session>, Failure> {
        let session = Arc::new(self.pool.session(&dir, &self.options).await?);
        let at = self.pool.now();
        let mut open = self.open();
        let oldest = open.iter().min_by_key(|(_, opened)| opened.at).map(|(dir, _)| dir.clone());
        if let Some(oldest) = oldest.filter(|_| open.len() >= SESSIONS) {
            open.remove(&oldest);
        }
        open.insert(dir, Opened { session: Arc::clone(&session), at });
        drop(open);
        env::spawn(end_later(Arc::downgrade(self)));
        Ok(session)
    }

    fn known(&self, dir: &PoolPath) -> Option<Arc<Session>> {
        let now = self.pool.now();
        let mut open = self.open();
        open.retain(|_, opened| {
            now.saturating_sub(opened.at) < BEGINS_FILES_FOR && !opened.session.has_failed()
        });
        open.get(dir).map(|opened| Arc::clone(&opened.session))
    }

    /// Lets no more files begin in the open sessions, because a policy was changed.
    pub fn begin_anew(&self) {
        self.open().clear();
    }
}

/// Returns whether donors or the manager were waited for in vain.
fn was_waited_for(failure: &Failure) -> bool {
    [code::DONORS_SILENT, code::NO_MANAGER].contains(&failure.code.as_str())
}

/// Drops a session when no file may begin in it any more; its files keep it open.
async fn end_later(files: Weak<SmallFiles>) {
    tokio::time::sleep(BEGINS_FILES_FOR).await;
    if let Some(files) = files.upgrade() {
        files.known(&PoolPath::root());
    }
}

/// A small file that is being written.
pub struct SmallFile {
    session: Arc<Session>,
    /// The directory that the session was opened for.
    dir: PoolPath,
    /// The bytes that were written.
    pub bytes: Vec<u8>,
    /// The channel that tells when the file was ended, and its place among the files of the session is taken.
    ended: Option<oneshot::Sender<()>>,
    /// The place of the file among those that are published behind their close().
    turn: Option<Turn>,
}

impl SmallFile {
    /// Returns whether a file of so many bytes is a small one.
    pub fn may_have(bytes: u64) -> bool {
        bytes <= MOST
    }

    /// Returns whether `path` is in the directory of the session: the file may have been renamed.
    pub fn is_in_directory_of(&self, path: &PoolPath) -> bool {
        path.parent().as_ref() == Some(&self.dir)
    }

    /// Returns the number of the session, which no other session has at the same time.
    pub fn session_number(&self) -> usize {
        Arc::as_ptr(&self.session).addr()
    }

    /// Gives the file its place among those that are published behind their close(). Returns a channel that tells when
    /// [`Self::make_visible`] has only to wait for the manager and donors: what is ended later in the session becomes
    /// visible later.
    pub fn when_ended(&mut self, turn: Turn) -> oneshot::Receiver<()> {
        let (ended, told) = oneshot::channel();
        (self.ended, self.turn) = (Some(ended), Some(turn));
        told
    }

    /// Waits until the file may become visible outside of the shared session, because those that were closed before are
    /// published, or have failed to be.
    pub async fn has_turn(&self) {
        if let Some(turn) = &self.turn {
            turn.come().await;
        }
    }

    /// Makes the file visible at `path`, and with `synced` safe from power cuts.
    ///
    /// Errors: those of writing the file, or of its session, which may have failed because of other files
    /// ([`SmallFile::may_try_alone`]).
    pub async fn make_visible(
        &mut self,
        path: &PoolPath,
        attributes: Attributes,
        condition: Condition,
        synced: bool,
    ) -> Result<VisibleFile, Failure> {
        let mut writer = self.session.create(path.clone(), attributes);
        writer.set_synced(synced);
        writer.set_place(path.clone(), condition);
        writer.write(&self.bytes).await?;
        let file = writer.end().await?;
        if let Some(ended) = self.ended.take() {
            let _ = ended.send(()); // the program that closed the file may have been killed
        }
        file.visible().await
    }

    /// Returns whether the file is to be tried in a session of its own: the shared one has failed, perhaps because of
    /// other files. It is not if donors or the manager were waited for in vain, or if the right to write is missing,
    /// for another session would fail in the same way.
    pub fn may_try_alone(&self, failure: &Failure) -> bool {
        let is_for_all = was_waited_for(failure) || failure.kind == ErrorKind::Auth;
        self.session.has_failed() && !is_for_all
    }
}
