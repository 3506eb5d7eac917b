//! Syncs the write-ahead log a moment after commits that did not wait for it.

use crate::Error;
use crate::writer_state::WriterState;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time after which the log is synced: the commits of so long may be undone by a power cut.
const SOON: Duration = Duration::from_millis(100);

/// The write-ahead log of a catalog, as a file of the system.
#[derive(Debug, Clone)]
pub(super) struct LogFile(PathBuf);

impl LogFile {
    /// Returns the log of the catalog at `path`.
    pub(super) fn of(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Self(log.into())
    }

    /// Returns when no power cut undoes what was committed before.
    pub(super) fn sync(&self) -> Result<(), Error> {
        match File::open(&self.0).and_then(|log| log.sync_data()) {
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(()), // all of it was moved, and synced for that
            synced => synced.map_err(|why| Error::Disk(why.to_string())),
        }
    }
}

/// The thread that syncs the log, so that no commit waits for that.
pub(super) struct LogSyncer {
    /// The number of changes that were committed so far.
    committed: Arc<AtomicU64>,
    /// True while the thread is going to sync them.
    is_woken: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl LogSyncer {
    /// Starts the thread, which notes in `state` how many changes no power cut undoes, and what the disk did not take.
    pub(super) fn start(log: LogFile, state: WriterState) -> Self {
        let (wake, woken) = sync_channel(1);
        let (committed, is_woken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (last, is_asked) = (Arc::clone(&committed), Arc::clone(&is_woken));
        let thread = std::thread::Builder::new()
            .name("catalog-sync".into())
            .spawn(move || {
                while waited(&woken) {
                    is_asked.store(false, Ordering::Release);
                    let last = last.load(Ordering::Acquire);
                    match log.sync() {
                        Ok(()) => drop(state.changes.fetch_max(last, Ordering::AcqRel)),
                        Err(why) => state.fault.note(&why),
                    }
                }
            })
            .expect("the system can start a thread");
        Self { committed, is_woken, wake, thread }
    }

    /// Has the log synced [`SOON`], in which so many changes are committed now.
    pub(super) fn wake(&self, changes: u64) {
        self.committed.store(changes, Ordering::Release);
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            let _ = self.wake.try_send(()); // it ends with the writer
        }
    }

    /// Stops the thread, which finishes what it is at.
    pub(super) fn stop(self) {
        drop(self.wake);
        let _ = self.thread.join();
    }
}

/// Waits until the log is to be synced; returns false when the writer has ended, which syncs all by itself.
fn waited(woken: &Receiver<()>) -> bool {
    woken.recv().is_ok() && woken.recv_timeout(SOON) != Err(RecvTimeoutError::Disconnected)
}
