//! Decides which close() of a file ends the writing to it.
//!
//! Each close() of a descriptor reaches the mount, also those of child processes that inherited it, or that closed it
//! when they began another program. If these published the file, a program that starts another in the middle of writing
//! would publish half a file.
//!
//! Nor does each close() of the opener end the writing: a shell opens a file, makes it the standard output of a program
//! by a second descriptor, and closes the first. The processes that may have such a descriptor are looked up in /proc.

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most processes that are looked at one by one. If more were started, it counts as possible that one of them
/// inherited a descriptor.
const MOST_PROCESSES: usize = 4096;

/// The number and name by which descriptors of a file are found in /proc.
#[derive(Debug, Clone)]
pub struct NamedInode {
    /// The number of the file in its mount.
    pub inode: u64,
    /// The name of the file in its directory; files of other file systems may have the same number.
    pub name: String,
}

impl NamedInode {
    /// Returns whether a process has a descriptor of the file; true if that cannot be known and the process is alive.
    pub fn is_open_in(&self, process: u32) -> bool {
        match self.find_in(process) {
            Ok(found) => found,
            Err(why) if why.kind() == io::ErrorKind::NotFound => false,
            Err(_) => is_alive(process),
        }
    }

    fn find_in(&self, process: u32) -> io::Result<bool> {
        let dir = Path::new("/proc").join(process.to_string());
        for descriptor in std::fs::read_dir(dir.join("fdinfo"))? {
            let descriptor = descriptor?;
            let Ok(about) = std::fs::read_to_string(descriptor.path()) else { continue };
            let number = about.lines().find_map(|line| line.strip_prefix("ino:"));
            if number.and_then(|number| number.trim().parse().ok()) == Some(self.inode) {
                let target = std::fs::read_link(dir.join("fd").join(descriptor.file_name()));
                if target.is_ok_and(|target| self.is_named_by(&target)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns whether /proc names the file so. A name that the mount has told the kernel to look up again counts there
    /// as deleted until it is looked up.
    fn is_named_by(&self, target: &Path) -> bool {
        let name = target.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
        name.strip_suffix(b" (deleted)").unwrap_or(name) == self.name.as_bytes()
            || name == self.name.as_bytes()
    }

    /// Returns whether one of these processes may have a descriptor of the file.
    pub fn may_be_open_in(&self, processes: &Range<u32>) -> bool {
        processes.len() > MOST_PROCESSES
            || processes.clone().any(|process| self.is_open_in(process))
    }
}

/// Returns whether a process may still do something: one that has no memory any more, because it ends, has closed its
/// files or is closing them.
pub fn is_alive(process: u32) -> bool {
    let status = PathBuf::from(format!("/proc/{process}/status"));
    std::fs::read_to_string(status).is_ok_and(|status| status.contains("\nVmSize:"))
}

/// Returns the number of the process that was started last on this machine.
pub fn newest_process() -> Option<u32> {
    // Each file that is opened for writing asks, so the source is opened once.
    static LOAD: OnceLock<Option<File>> = OnceLock::new();
    let load = LOAD.get_or_init(|| File::open("/proc/loadavg").ok()).as_ref()?;
    let mut line = [0; 128];
    let read = load.read_at(&mut line, 0).ok()?;
    std::str::from_utf8(&line[..read]).ok()?.split_whitespace().next_back()?.parse().ok()
}

/// Returns the numbers of the processes that were started after `earlier`: only these can have inherited a descriptor
/// that was opened then. `None` if that is not known.
pub fn started_since(earlier: Option<u32>) -> Option<Range<u32>> {
    let (earlier, newest) = (earlier?, newest_process()?);
    (earlier <= newest).then(|| earlier + 1..newest + 1)
}

/// Returns the process that a thread belongs to; `None` if that cannot be known, as across namespaces.
pub fn process_of(thread: u32) -> Option<u32> {
    /// The process of the last thread that was not the first of its process. Its other threads often come next, and to
    /// look for one there takes less time than to read about it.
    static LAST: AtomicU32 = AtomicU32::new(0);
    if is_first_of_process(thread) {
        return Some(thread);
    }
    let last = LAST.load(Ordering::Relaxed);
    if last != 0 && is_thread_of(thread, last) {
        return Some(last);
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    let process = line.trim().parse().ok()?;
    LAST.store(process, Ordering::Relaxed);
    Some(process)
}

/// Returns whether a thread is known to belong to a process.
fn is_thread_of(thread: u32, process: u32) -> bool {
    thread == process || Path::new(&format!("/proc/{process}/task/{thread}")).exists()
}

/// Returns whether a thread is known to be the first of its process, which has the thread's number. The kernel gives
/// descriptors of such threads alone; to ask for one takes much less time than to read a file in `/proc`.
fn is_first_of_process(thread: u32) -> bool {
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| pidfd_open(pid, PidfdFlags::empty()).is_ok())
}

/// Returns whether a close() by `thread` publishes a handle that the process `opener` opened. The opener's own close()
/// does; any other does if the opener has closed it already (`None`) or is gone, or if the process of `thread` cannot
/// be known.
pub fn closes_for_good(opener: Option<u32>, thread: u32) -> bool {
    let Some(opener) = opener.filter(|opener| !is_thread_of(thread, *opener)) else { return true };
    process_of(thread).is_none() || !Path::new("/proc").join(opener.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_closes_for_good_only_when_the_opener_is_gone() {
        let own = std::process::id();
        assert_eq!(process_of(own), Some(own));
        let of_this_thread = || process_of(rustix::thread::gettid().as_raw_pid() as u32);
        assert_eq!(of_this_thread(), Some(own), "a thread of the tests");
        let another = std::thread::spawn(of_this_thread).join().expect("it ran");
        assert_eq!((another, process_of(0)), (Some(own), None));
        assert!(closes_for_good(Some(own), own));
        assert!(closes_for_good(None, own));
        assert!(closes_for_good(Some(u32::MAX), own), "nobody has that number");
        assert!(!closes_for_good(Some(1), own), "process 1 is always there");
    }

    #[test]
    fn open_descriptors_are_found_in_children() {
        use std::os::unix::fs::MetadataExt;
        let before = newest_process();
        let dir = tempfile::tempdir().expect("a directory");
        let file = File::create(dir.path().join("f")).expect("made");
        let inode = file.metadata().expect("there").ino();
        let (own, name) = (std::process::id(), "f".to_owned());
        let named = NamedInode { inode, name };
        assert!(named.is_open_in(own));
        assert!(!NamedInode { name: "g".into(), ..named.clone() }.is_open_in(own));
        assert!(!named.is_open_in(u32::MAX), "nobody has that number");
        std::fs::remove_file(dir.path().join("f")).expect("removed");
        assert!(named.is_open_in(own), "also once the name is gone");
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("60").stdout(file).spawn().expect("started");
        drop(command); // the command has the descriptor, too
        assert!(!named.is_open_in(own), "it is the child's alone");
        assert!(named.may_be_open_in(&started_since(before).expect("known")));
        child.kill().expect("killed");
        wait_for_end(child);
        assert!(!named.may_be_open_in(&started_since(before).expect("known")));
        assert!(named.may_be_open_in(&(1..10_000_000)), "too many to know");
        assert_eq!(started_since(Some(u32::MAX)), None);
    }

    fn wait_for_end(mut child: std::process::Child) {
        let id = child.id();
        while is_alive(id) {
            std::thread::yield_now();
        }
        assert!(!NamedInode { inode: 1, name: String::new() }.is_open_in(id));
        child.wait().expect("ended");
    }
}
