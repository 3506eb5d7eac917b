//! The socket by which commands speak to a running mount: a line of JSON asks, and a line of JSON answers.
//!
//! It is beside the mount's record, in a directory that only its user may enter, and has the life of the process that
//! serves the mount: one that a dead process left is replaced by the next mount there.

use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// The longest question in bytes.
const LONGEST_QUESTION: u64 = 4 << 10;
/// The longest answer in bytes that is believed.
const LONGEST_ANSWER: u64 = 1 << 20;
/// The time within which a question is asked and answered.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// The most commands that are answered at once; others wait.
const AT_ONCE: usize = 8;
/// The pause after a connection could not be accepted, as when too many files are open.
const PAUSE: Duration = Duration::from_secs(1);

/// The questions that a command asks a running mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountQuestion {
    /// How is the mount?
    Status,
    /// The list of lookaside trees was changed: count what was found so far, and look into those that it names now.
    LookAgain,
}

/// The state of a running mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The files that programs have open for writing.
    pub written: u64,
    /// The files that were closed and that the pool does not have yet.
    pub behind: u64,
    /// The bytes in the spool directory that donors do not have yet.
    pub spooled: u64,
    /// The bytes that programs read and that the mount had in its caches.
    pub from_cache: u64,
    /// The bytes that programs read and that were found in lookaside trees.
    pub from_lookaside: u64,
}

/// The socket of a mount that this process serves. It is removed when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    place: PathBuf,
}

/// Returns the path to a file that is short enough for an address of a socket, and the open directory that it holds for:
/// addresses have 108 bytes at most, and directories of users may have longer names.
fn short_path(place: &Path) -> io::Result<(File, PathBuf)> {
    let dir = File::open(place.parent().unwrap_or(Path::new(".")))?;
    let name = place.file_name().unwrap_or(OsStr::new("."));
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((dir, short))
}

impl ControlSocket {
    /// Makes the socket at `place`, where no other process serves a mount. Needs a runtime.
    pub fn bind(place: &Path) -> io::Result<Self> {
        match std::fs::remove_file(place) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        let (_dir, short) = short_path(place)?;
        Ok(Self { listener: UnixListener::bind(short)?, place: place.into() })
    }

    /// Answers until the future is dropped.
    pub async fn serve<A: Serialize>(
        &self,
        answer: impl Fn(MountQuestion) -> A + Send + Sync + 'static,
    ) {
        let (answer, room) = (Arc::new(answer), Arc::new(Semaphore::new(AT_ONCE)));
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let answer = Arc::clone(&answer);
                    tokio::spawn(async move {
                        // Who asks hears of a failure by the end of the connection.
                        let answered = answer_one(stream, &*answer);
                        let _ = tokio::time::timeout(ANSWERED_WITHIN, answered).await;
                        drop(permit);
                    });
                }
                Err(why) => {
                    tracing::warn!("a command could not speak to this mount: {why}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn answer_one<A: Serialize>(
    mut stream: UnixStream,
    answer: &(impl Fn(MountQuestion) -> A + Send + Sync),
) -> io::Result<()> {
    let (asking, mut answering) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(asking.take(LONGEST_QUESTION)).read_line(&mut line).await?;
    let mut text = serde_json::to_vec(&answer(serde_json::from_str(&line)?))?;
    text.push(b'\n');
    answering.write_all(&text).await
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.place);
    }
}

/// Asks the mount whose socket is at `place`. Waits at most [`ANSWERED_WITHIN`].
pub fn ask(place: &Path, question: MountQuestion) -> io::Result<MountStatus> {
    let (_dir, short) = short_path(place)?;
    let mut stream = BlockingStream::connect(short)?;
    stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
    stream.set_write_timeout(Some(ANSWERED_WITHIN))?;
    let mut line = serde_json::to_vec(&question)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut text = String::new();
    BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(written: u64) -> MountStatus {
        MountStatus { written, behind: 0, spooled: 0, from_cache: 0, from_lookaside: 0 }
    }

    async fn asks(place: &Path, question: MountQuestion) -> io::Result<MountStatus> {
        let place = place.to_owned();
        tokio::task::spawn_blocking(move || ask(&place, question)).await.expect("it ran")
    }

    #[tokio::test]
    async fn a_long_path_is_served_and_the_socket_goes_with_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = dir.path().join("d".repeat(200));
        std::fs::create_dir(&deep).expect("made");
        let place = deep.join("m.socket");
        std::fs::write(&place, "left by a dead mount").expect("written");
        let socket = ControlSocket::bind(&place).expect("bound");
        let answer = |question| match question {
            MountQuestion::Status => status(1),
            MountQuestion::LookAgain => status(2),
        };
        let serving = async { socket.serve(answer).await };
        let asking = async {
            // One that asks nonsense, and one that says nothing, keep nobody from being answered.
            let (_dir, short) = short_path(&place).expect("open");
            let _silent = BlockingStream::connect(&short).expect("connected");
            let mut wrong = BlockingStream::connect(&short).expect("connected");
            wrong.write_all(b"\"unmount\"\n").expect("written");
            assert_eq!(asks(&place, MountQuestion::Status).await.expect("answered"), status(1));
            assert_eq!(asks(&place, MountQuestion::LookAgain).await.expect("answered"), status(2));
        };
        tokio::select! {
            () = serving => panic!("it serves on"),
            () = asking => {}
        }
        drop(socket);
        assert!(!place.exists());
        assert!(asks(&place, MountQuestion::Status).await.is_err());
    }
}
