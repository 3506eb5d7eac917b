//! Write sessions that the small files of a directory share, so that such a file costs one call to the manager instead
//! of three: the one that makes it visible. Files that are closed at about the same time share that call, too.

use potluck_client::{Attributes, Pool, PutOptions, Session, VisibleFile};
use potluck_core::clock::Tick;
use potluck_core::path::PoolPath;
use potluck_wire::control::Condition;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// The size in bytes of the largest small file. It is in memory until it is closed, so that it can be written anew in
/// a session of its own where one that it shares has failed.
const MOST: u64 = 256 << 10;
/// The time in which files begin in one session. It has the policy that its directory had when it was opened.
const BEGINS_FILES_FOR: Duration = Duration::from_secs(1);
/// The most sessions in which files may begin at a time, however many directories a program goes through: the pool
/// keeps room free for each.
const SESSIONS: usize = 8;

/// The shared sessions of a mount's directories.
pub struct SmallFiles {
    pool: Pool,
    open: Mutex<BTreeMap<PoolPath, Opened>>,
}

/// A write session that the small files of a directory share.
struct Opened {
    session: Arc<Session>,
    at: Tick,
}

impl SmallFiles {
    /// Makes the sessions of a mount, of which none is open yet.
    pub fn new(pool: Pool) -> Self {
        Self { pool, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<PoolPath, Opened>> {
        self.open.lock().expect("no holder panics")
    }

    /// Begins a file at `path` that may be small; `None` where it is to have a session of its own from the start:
    /// because copies are made after it is visible, of which only the report of such a session tells, or because none
    /// can be opened for its directory.
    ///
    /// Errors: whom it waited for in vain, so that another session would wait for the same.
    pub async fn begin(self: &Arc<Self>, path: &PoolPath) -> Result<Option<SmallFile>, Failure> {
        let Some(dir) = path.parent() else { return Ok(None) };
        let known = self.known(&dir);
        let session = match known {
            Some(session) => session,
            None => match self.open_session(dir.clone()).await {
                Ok(session) => session,
                Err(failure) if was_waited_for(&failure) => return Err(failure),
                Err(_) => return Ok(None),
            },
        };
        let is_stored_when_visible = !session.policy().mirror.is_async();
        Ok(is_stored_when_visible.then(|| SmallFile { session, dir, bytes: Vec::new() }))
    }

    async fn open_session(self: &Arc<Self>, dir: PoolPath) -> Result<Arc<Session>, Failure> {
        let session = Arc::new(self.pool.session(&dir, &PutOptions::default()).await?);
        let at = self.pool.now();
        let mut open = self.open();
        let oldest = open.iter().min_by_key(|(_, opened)| opened.at).map(|(dir, _)| dir.clone());
        if let Some(oldest) = oldest.filter(|_| open.len() >= SESSIONS) {
            open.remove(&oldest);
        }
        open.insert(dir, Opened { session: Arc::clone(&session), at });
        drop(open);
        tokio::spawn(end_later(Arc::downgrade(self)));
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

    /// Lets no more files begin in the sessions that are open, as a policy was changed.
    pub fn begin_anew(&self) {
        self.open().clear();
    }
}

/// Whether somebody who is away was waited for, for as long as that is done.
fn was_waited_for(failure: &Failure) -> bool {
    [code::DONORS_SILENT, code::NO_MANAGER].contains(&failure.code.as_str())
}

/// Lets go of a session when no file begins in it any more; its files go on.
async fn end_later(files: Weak<SmallFiles>) {
    tokio::time::sleep(BEGINS_FILES_FOR).await;
    if let Some(files) = files.upgrade() {
        files.known(&PoolPath::root());
    }
}

/// A small file that is being written.
pub struct SmallFile {
    session: Arc<Session>,
    /// The directory of the session.
    dir: PoolPath,
    /// The bytes that were written.
    pub bytes: Vec<u8>,
}

impl SmallFile {
    /// Whether a file of so many bytes is a small one.
    pub fn may_have(bytes: u64) -> bool {
        bytes <= MOST
    }

    /// Whether `path` is where its session writes: the file may have been renamed since.
    pub fn is_in_directory_of(&self, path: &PoolPath) -> bool {
        path.parent().as_ref() == Some(&self.dir)
    }

    /// Makes the file visible at `path`.
    ///
    /// Errors: what the pool has against it, or, if [`SmallFile::may_try_alone`], against the session.
    pub async fn make_visible(
        &self,
        path: &PoolPath,
        attributes: Attributes,
        condition: Condition,
    ) -> Result<VisibleFile, Failure> {
        let mut writer = self.session.create(path.clone(), attributes);
        writer.set_place(path.clone(), condition);
        writer.write(&self.bytes).await?;
        writer.make_visible().await
    }

    /// Whether its session has failed, of which other files may be the reason. Whoever was waited for in vain would
    /// be by another session, too, and who may not write may not in another.
    pub fn may_try_alone(&self, failure: &Failure) -> bool {
        let is_for_all = was_waited_for(failure) || failure.kind == ErrorKind::Auth;
        self.session.has_failed() && !is_for_all
    }
}
