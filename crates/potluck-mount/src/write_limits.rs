//! The protocols by which a file that is written in order goes to donors (checkpoint store, section IV.C), and the
//! limits on bytes that wait for donors.

use crate::write_behind::WriteBehind;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// The most files that are streamed at a time, because each keeps bytes that do not fill a chunk or a group of chunks
/// in memory. Other files are kept in the spool until they are closed.
const STREAMS: usize = 16;
/// The time that a program waits for the window before [`WriteProtocol::Auto`] goes on in a temporary file.
const WINDOW_TIMEOUT: Duration = Duration::from_millis(500);

/// The way in which a file that is written in order goes to donors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteProtocol {
    /// Files go from a window in memory.
    SlidingWindow,
    /// Files go by way of temporary files on this machine, each of which is pushed while the next is written.
    Incremental,
    /// Files go from the spool when they are closed.
    CompleteLocal,
    /// Files go from the window, and while that is full by way of temporary files.
    Hybrid,
    /// Files go from the window, and by way of temporary files where the pool takes nothing for a while.
    #[default]
    Auto,
}

/// All protocols, with their names in settings.
const NAMES: [(WriteProtocol, &str); 5] = [
    (WriteProtocol::SlidingWindow, "sliding-window"),
    (WriteProtocol::Incremental, "incremental"),
    (WriteProtocol::CompleteLocal, "local"),
    (WriteProtocol::Hybrid, "hybrid"),
    (WriteProtocol::Auto, "auto"),
];

impl fmt::Display for WriteProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(protocol, _)| protocol == self);
        f.write_str(name.expect("each has one").1)
    }
}

impl FromStr for WriteProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(protocol, _)| *protocol).ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
            format!("“{text}” is none of {}", names.join(", "))
        })
    }
}

/// What close() waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CloseLevel {
    /// The pool has the file, and others see it.
    #[default]
    Pool,
    /// The mount has all bytes in memory, or in temporary files.
    Memory,
    /// The disk of this machine has the file, so that it outlives the mount.
    Local,
}

/// All levels, with their names in settings.
const LEVELS: [(CloseLevel, &str); 3] =
    [(CloseLevel::Pool, "pool"), (CloseLevel::Memory, "memory"), (CloseLevel::Local, "local")];

impl FromStr for CloseLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = LEVELS.iter().find(|(_, name)| *name == text);
        found.map(|(level, _)| *level).ok_or_else(|| {
            let names: Vec<_> = LEVELS.iter().map(|(_, name)| *name).collect();
            format!("“{text}” is none of {}", names.join(", "))
        })
    }
}

/// The settings by which files of a mount are written in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// The protocol for all files.
    pub protocol: WriteProtocol,
    /// The most bytes in memory that programs have written and that donors have not been given, in all files together.
    pub window: u64,
    /// The size of a temporary file in bytes.
    pub temporary_size: u64,
    /// What close() waits for.
    pub close: CloseLevel,
}

impl Default for WriteOptions {
    fn default() -> Self {
        let protocol = WriteProtocol::default();
        Self { protocol, window: 32 << 20, temporary_size: 64 << 20, close: CloseLevel::Pool }
    }
}

/// The limits and permits that the files of a mount that are written in order share.
#[derive(Debug)]
pub struct WriteLimits {
    options: WriteOptions,
    window: Arc<Semaphore>,
    window_bytes: u32,
    streams: Arc<Semaphore>,
    /// True if the last file that could have been streamed found [`STREAMS`] others.
    is_crowd: AtomicBool,
    behind: Option<Arc<WriteBehind>>,
}

impl WriteLimits {
    /// Makes the limits that `options` set.
    pub fn new(options: WriteOptions) -> Self {
        let most = u64::from(u32::MAX).min(Semaphore::MAX_PERMITS as u64);
        let window_bytes = options.window.clamp(1, most) as u32;
        Self {
            options,
            window: Arc::new(Semaphore::new(window_bytes as usize)),
            window_bytes,
            streams: Arc::new(Semaphore::new(STREAMS)),
            is_crowd: AtomicBool::new(false),
            behind: (options.close != CloseLevel::Pool).then(Arc::default),
        }
    }

    /// Returns what close() waits for.
    pub fn close(&self) -> CloseLevel {
        self.options.close
    }

    /// Returns the files that are closed and not published yet; `None` if close() waits until a file is published.
    pub fn behind(&self) -> Option<&Arc<WriteBehind>> {
        self.behind.as_ref()
    }

    /// Returns the size of a temporary file in bytes.
    pub fn temporary_size(&self) -> u64 {
        self.options.temporary_size
    }

    /// Returns a permit to stream one more file; `None` if the file is to be kept in the spool.
    pub fn stream(&self) -> Option<OwnedSemaphorePermit> {
        match (self.options.protocol, self.options.close) {
            (WriteProtocol::CompleteLocal, _) | (_, CloseLevel::Local) => None,
            _ => {
                let slot = Arc::clone(&self.streams).try_acquire_owned().ok();
                self.tell_of_crowd(slot.is_none());
                slot
            }
        }
    }

    /// Says in the log, once each time, that no more files are streamed now: what happens instead looks like a pool that is
    /// slow.
    fn tell_of_crowd(&self, is_crowd: bool) {
        if self.is_crowd.swap(is_crowd, Ordering::Relaxed) != is_crowd && is_crowd {
            tracing::info!(
                "programs write more than {STREAMS} files at once: those beyond are kept on this machine's disk, and go \
                 to the pool when they are closed"
            );
        }
    }

    /// Returns room for so many bytes in the window, and waits for it as long as the protocol says; `None` if the bytes
    /// are to be written to a temporary file.
    pub async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        match self.options.protocol {
            WriteProtocol::Incremental => None,
            WriteProtocol::Hybrid => self.try_room(bytes).ok(),
            WriteProtocol::Auto => {
                tokio::time::timeout(WINDOW_TIMEOUT, self.room_some_time(bytes)).await.ok()
            }
            WriteProtocol::SlidingWindow | WriteProtocol::CompleteLocal => {
                Some(self.room_some_time(bytes).await)
            }
        }
    }

    /// Waits for room for so many bytes in the window, whatever the protocol.
    pub async fn room_some_time(&self, bytes: usize) -> OwnedSemaphorePermit {
        let room = Arc::clone(&self.window).acquire_many_owned(self.permits(bytes));
        room.await.expect("never closed")
    }

    fn try_room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.window).try_acquire_many_owned(self.permits(bytes))
    }

    /// Returns the number of permits that so many bytes take in the window. More bytes than the window has take all of
    /// it, so that no others are in it.
    fn permits(&self, bytes: usize) -> u32 {
        bytes.min(self.window_bytes as usize) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn protocols_switch_to_temporary_files_as_documented() {
        let limits = |protocol| {
            WriteLimits::new(WriteOptions { protocol, window: 100, ..WriteOptions::default() })
        };
        for (name, first, second) in [
            ("incremental", false, false),
            ("hybrid", true, false),
            ("auto", true, false),
            ("sliding-window", true, true),
        ] {
            let limits = limits(name.parse().expect("a protocol"));
            assert_eq!(limits.options.protocol.to_string(), name);
            let room = limits.room(60).await;
            assert_eq!(room.is_some(), first, "{name}");
            let later = tokio::spawn(async move {
                tokio::time::sleep(4 * WINDOW_TIMEOUT).await;
                drop(room);
            });
            assert_eq!(limits.room(60).await.is_some(), second, "{name}");
            later.await.expect("done");
        }
        assert!(limits(WriteProtocol::CompleteLocal).stream().is_none());
        let limits = limits(WriteProtocol::SlidingWindow);
        let streams: Vec<_> = std::iter::from_fn(|| limits.stream()).collect();
        assert_eq!(streams.len(), STREAMS);
        assert!("fast".parse::<WriteProtocol>().is_err());
    }
}
