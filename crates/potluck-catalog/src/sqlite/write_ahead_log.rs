//! Keeps the write-ahead log short while commits come without a pause.
//!
//! To move a long log into the catalog's file takes the time of many commits: all its pages are written, and synced. A
//! thread does that on a connection of its own, so that no commit waits for it. SQLite begins the log anew when
//! all of it was moved at the moment at which a transaction begins, which the thread cannot bring about while others
//! commit. So the next commit moves the rest: the few pages that came while the thread worked.

use super::file::{Database, open_reader};
use crate::Error;
use rusqlite::hooks::Wal;
use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// The number of times in a row that the thread moves the log. SQLite syncs the catalog's file only if nothing was
/// committed meanwhile, and what is not synced is left to the writer. From the second time on there is little to move,
/// so that one of them is likely to come between two commits.
const TIMES: usize = 4;
/// The multiple of the usual length that the log may reach before the writer does not wait for the thread any more.
const AT_MOST: c_int = 4;

/// The thread that moves the write-ahead log of a writer into the catalog's file.
pub(super) struct LogMover(JoinHandle<()>);

impl LogMover {
    /// Starts the thread. Each commit of `db`, the catalog at `path`, wakes it when the log has `long` pages or more.
    pub(super) fn start(path: &Path, db: &mut Database, long: c_int) -> Result<Self, Error> {
        let mover = open_reader(path)?;
        // Without room for a message: a thread that is at work is not to begin again when it is done.
        let (wake, woken) = sync_channel(0);
        let is_moved = Arc::new(AtomicBool::new(false));
        let tells_moved = Arc::clone(&is_moved);
        let after_commit = move |log: &mut Wal, pages: c_int| {
            // Also while the log is short: what was moved before it began anew says nothing of its later length.
            let is_rest = is_moved.swap(false, Ordering::Relaxed);
            if pages >= long
                && (is_rest
                    || pages / AT_MOST >= long
                    || wake.try_send(()) == Err(TrySendError::Disconnected(())))
            {
                // The commit is done, so this must not fail it. It is tried again after later commits.
                let _ = log.checkpoint();
            }
            Ok(())
        };
        db.0.connection.wal_hook(Some(after_commit))?;
        let thread = std::thread::Builder::new()
            .name("catalog-log".into())
            .spawn(move || serve(&mover, &woken, &tells_moved))
            .expect("the system can start a thread");
        Ok(Self(thread))
    }

    /// Stops the thread, which finishes what it is at. From then on nothing moves the log of `db` by itself.
    pub(super) fn stop(self, db: &mut Database) -> Result<(), Error> {
        // This drops the sender that the thread waits for.
        let none = None::<fn(&mut Wal, c_int) -> rusqlite::Result<()>>;
        db.0.connection.wal_hook(none)?;
        let _ = self.0.join();
        Ok(())
    }
}

fn serve(mover: &Database, woken: &Receiver<()>, is_moved: &AtomicBool) {
    while woken.recv().is_ok() {
        for _ in 0..TIMES {
            if let Err(why) = mover.move_some_of_log() {
                tracing::debug!(%why, "the writer moves the catalog's write-ahead log");
                break;
            }
        }
        is_moved.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
