//! Write-behind: files that are published after close() has returned, in the order in which they were closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The bytes in memory that one permit stands for. A smaller file takes a whole one.
const PERMIT: usize = 128 << 10;
/// The most permits, so that 16 MiB of at most 128 files wait to be published. Further close() calls wait.
const PERMITS: usize = 128;

/// The files of a mount that programs have closed, and that are not published yet. Those of one write session are
/// published by it in order; a file of another session waits until the files before it are published.
#[derive(Debug)]
pub struct WriteBehind {
    room: Arc<Semaphore>,
    state: Mutex<State>,
    /// The channel that tells when a file is published, or has failed to be.
    ended: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The sessions of the files, by the files' numbers, which follow the order in which they were closed; `None` for a
    /// file whose close() did not wait for its turn.
    files: BTreeMap<u64, Option<usize>>,
    /// The last number that was given to a file.
    last: u64,
}

impl Default for WriteBehind {
    fn default() -> Self {
        let (room, ended) = (Arc::new(Semaphore::new(PERMITS)), watch::channel(()).0);
        Self { room, state: Mutex::default(), ended }
    }
}

impl WriteBehind {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Adds a file of so many bytes, whose session has the number `session`, until the result is dropped. Waits for
    /// room, and for the files of other sessions that came before.
    pub async fn add(self: &Arc<Self>, session: usize, bytes: usize) -> FileBehind {
        let permits = bytes.div_ceil(PERMIT).clamp(1, PERMITS) as u32;
        let room = Arc::clone(&self.room).acquire_many_owned(permits).await.expect("never closed");
        let file = self.append(Some(session), Some(room));
        let number = file.number;
        self.wait_for(|files| files.range(..number).all(|(_, of)| *of == Some(session))).await;
        file
    }

    /// Adds a file, which is published in its turn, until the result is dropped. Its bytes are where others are counted.
    pub fn add_last(self: &Arc<Self>) -> FileBehind {
        self.append(None, None)
    }

    fn append(
        self: &Arc<Self>,
        session: Option<usize>,
        room: Option<OwnedSemaphorePermit>,
    ) -> FileBehind {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.files.insert(number, session);
        FileBehind { behind: Arc::clone(self), number, _room: room }
    }

    /// Waits until all files that are there now are published, or have failed to be.
    pub async fn all_published(&self) {
        let last = self.state().last;
        self.wait_for(|files| files.range(..=last).next().is_none()).await;
    }

    async fn wait_for(&self, holds: impl Fn(&BTreeMap<u64, Option<usize>>) -> bool) {
        let mut ended = self.ended.subscribe();
        while !holds(&self.state().files) {
            let _ = ended.changed().await; // the sender is there for as long as this is borrowed
        }
    }
}

/// A closed file that is being published.
pub struct FileBehind {
    behind: Arc<WriteBehind>,
    number: u64,
    _room: Option<OwnedSemaphorePermit>,
}

/// The place of a file among those that are being published.
pub struct Turn {
    behind: Arc<WriteBehind>,
    number: u64,
}

impl Turn {
    /// Waits until the files are published, or have failed to be, that were closed before.
    pub async fn come(&self) {
        self.behind.wait_for(|files| files.range(..self.number).next().is_none()).await;
    }
}

impl FileBehind {
    /// Returns the place of the file, for the case that its session cannot publish it in its turn.
    pub fn turn(&self) -> Turn {
        Turn { behind: Arc::clone(&self.behind), number: self.number }
    }
}

impl Drop for FileBehind {
    fn drop(&mut self) {
        self.behind.state().files.remove(&self.number);
        self.behind.ended.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    fn waits<T>(work: &mut Pin<Box<impl Future<Output = T>>>) -> bool {
        work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn files_of_one_session_are_published_at_a_time() {
        let behind = Arc::new(WriteBehind::default());
        let first = behind.add(1, 0).await;
        let second = behind.add(1, 200_000).await;
        assert_eq!(behind.room.available_permits(), PERMITS - 3);
        let mut other = Box::pin(behind.add(2, 1));
        assert!(waits(&mut other));
        let mut later = Box::pin(behind.add(1, 1));
        assert!(waits(&mut later), "another has waited for longer");
        drop(first);
        assert!(waits(&mut other));
        drop(second);
        let other = other.await;
        assert!(waits(&mut later));
        drop(other);
        drop(later.await);
        behind.all_published().await;
        assert_eq!(behind.room.available_permits(), PERMITS);
    }

    #[tokio::test]
    async fn files_that_waited_for_another_session_are_published_together() {
        let behind = Arc::new(WriteBehind::default());
        let other = behind.add(1, 1).await;
        let mut waiting: Vec<_> = (0..8).map(|_| Box::pin(behind.add(2, 1))).collect();
        assert!(waiting.iter_mut().all(waits));
        drop(other);
        let mut together = Vec::new();
        for file in waiting {
            together.push(file.await);
        }
        assert_eq!(behind.state().files.len(), 8);
    }

    #[tokio::test]
    async fn the_turn_of_a_file_comes_after_those_that_were_closed_before() {
        let behind = Arc::new(WriteBehind::default());
        let (first, second) = (behind.add(1, 1).await, behind.add(1, 1).await);
        let third = behind.add(1, 1).await;
        let (turn, later) = (second.turn(), third.turn());
        let (mut turn, mut later) = (Box::pin(turn.come()), Box::pin(later.come()));
        assert!(waits(&mut turn) && waits(&mut later));
        first.turn().come().await;
        drop(first);
        turn.await;
        assert!(waits(&mut later));
        drop(second);
        later.await;
        drop(third);
        assert!(behind.state().files.is_empty());
    }

    #[tokio::test]
    async fn write_behind_barrier_ignores_later_files() {
        let behind = Arc::new(WriteBehind::default());
        let first = behind.add(1, 1).await;
        let mut all = Box::pin(behind.all_published());
        assert!(waits(&mut all));
        let later = behind.add(1, 1).await;
        drop(first);
        all.await;
        drop(later);
    }

    #[tokio::test]
    async fn write_behind_queue_is_bounded() {
        let behind = Arc::new(WriteBehind::default());
        let mut files = Vec::new();
        for _ in 0..PERMITS {
            files.push(behind.add(1, 4096).await);
        }
        let mut further = Box::pin(behind.add(1, 4096));
        assert!(waits(&mut further));
        files.pop();
        drop(further.await);
    }
}
