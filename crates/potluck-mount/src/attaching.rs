//! Attaches a file system to a directory, and takes it away again: by a call to the kernel where this process may make
//! it, otherwise by `fusermount3`, which makes it for users.
//!
//! The fuser crate (0.18) could do so, but its session unmounts the directory once more after the mount has ended, when
//! the next mount may be there already. Nor does it give the reason of a failure, by which a hint could be chosen.

use potluck_core::path::PoolPath;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The type of these file systems in /proc/self/mountinfo.
const TYPE: &str = "fuse.potluck";
const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// The words of fusermount3 for a directory in which the user may not mount.
const DIR_NOT_ALLOWED: [&str; 3] = ["no write access", "not owned by user", "Permission denied"];

/// The directory of the pool that is attached, and how it is attached.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// The source as lists of mounts show it.
    pub source: String,
    /// True if nothing can be changed.
    pub read_only: bool,
    /// True if other users may look into the mount, too.
    pub allow_other: bool,
    /// True if no program in the mount can be started.
    pub no_exec: bool,
}

/// The reasons why a directory is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel knows no FUSE.
    #[error("{DEVICE} is not there")]
    NoDevice,
    /// This user may not open the device by which the kernel is asked.
    #[error("this user may not open {DEVICE}")]
    DeviceNotAllowed,
    /// fusermount3, which users need, cannot be run.
    #[error("{HELPER} cannot be run: {0}")]
    NoHelper(io::Error),
    /// /etc/fuse.conf does not let users admit others.
    #[error("/etc/fuse.conf does not let users admit others")]
    OthersNotAllowed,
    /// This user may not mount in that directory, in the words of fusermount3.
    #[error("{0}")]
    DirNotAllowed(String),
    /// The kernel or fusermount3 refused, in these words.
    #[error("{0}")]
    Refused(String),
    /// Another process serves a mount at the directory, or is just beginning or ending one.
    #[error("a mount that was there is still ending, or another one begins")]
    Taken,
    /// Another mount of this user has files of this one.
    #[error("{path} is mounted at {}", dir.display())]
    MountedElsewhere {
        /// The directory of the pool that is mounted there.
        path: PoolPath,
        /// The directory at which it is mounted.
        dir: PathBuf,
    },
    /// A file or call of this machine failed.
    #[error("{0}")]
    Local(#[from] io::Error),
}

/// Attaches a file system to `dir`; returns the open device from which its requests are read.
pub fn attach(dir: &Path, attachment: &Attachment) -> Result<OwnedFd, AttachError> {
    match attach_by_kernel(dir, attachment)? {
        Some(device) => Ok(device),
        None => attach_by_helper(dir, attachment),
    }
}

/// Asks the kernel to attach a file system; returns `None` if this process may not.
fn attach_by_kernel(dir: &Path, attachment: &Attachment) -> Result<Option<OwnedFd>, AttachError> {
    let device = match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => OwnedFd::from(device),
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(AttachError::NoDevice),
        Err(why) => return Err(why.into()),
    };
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let mut options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    if attachment.allow_other {
        options.push_str(",allow_other");
    }
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
    flags.set(MountFlags::RDONLY, attachment.read_only);
    flags.set(MountFlags::NOEXEC, attachment.no_exec);
    let source = CString::new(attachment.source.as_str()).map_err(io::Error::from)?;
    let options = CString::new(options).expect("no zero in it");
    match rustix::mount::mount(&source, dir, TYPE, flags, options.as_c_str()) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(why) => Err(AttachError::Refused(why.to_string())),
    }
}

/// Makes `fusermount3` attach a file system, which sends the open device through a socket.
fn attach_by_helper(dir: &Path, attachment: &Attachment) -> Result<OwnedFd, AttachError> {
    // A comma ends an option, so a comma in the source is escaped.
    let source = attachment.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("fsname={source},subtype=potluck,default_permissions,nodev,nosuid");
    for (is_set, option) in [
        (attachment.read_only, ",ro"),
        (attachment.no_exec, ",noexec"),
        (attachment.allow_other, ",allow_other"),
    ] {
        if is_set {
            options.push_str(option);
        }
    }
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(HELPER);
    command.args(["-o", &options, "--"]).arg(dir);
    // The socket is passed as standard input, which a program inherits whatever else is closed when it begins.
    command.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    drop(command); // it has the other end of the socket
    let child = child.map_err(AttachError::NoHelper)?;
    let received = receive(&ours);
    let ended = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    match received? {
        Some(device) if ended.status.success() => Ok(device),
        _ if said.contains("user_allow_other") => Err(AttachError::OthersNotAllowed),
        _ if said.contains(DEVICE) => Err(AttachError::DeviceNotAllowed),
        _ if DIR_NOT_ALLOWED.iter().any(|words| said.contains(words)) => {
            Err(AttachError::DirNotAllowed(said))
        }
        _ if said.is_empty() => Err(AttachError::Refused(format!("{HELPER} {}", ended.status))),
        _ => Err(AttachError::Refused(said)),
    }
}

/// Returns the open file that comes through a socket, if one comes before it is closed.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        let into = &mut [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
    let files = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(files)
}

/// Returns the path of the directory as lists of mounts show it. This also works for a dead mount, which cannot be
/// looked at.
pub fn mount_point(dir: &Path) -> io::Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    if std::fs::read_link(&dir).is_ok() {
        return dir.canonicalize();
    }
    match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => dir.canonicalize(),
    }
}

/// Returns whether a directory of a pool is mounted at the mount point `dir`, whether it is served or not.
pub fn is_mounted(dir: &Path) -> io::Result<bool> {
    Ok(mounted_device(dir)?.is_some())
}

/// Returns the number of the device that a directory of a pool is as it is mounted at the mount point `dir`, if one is.
pub fn mounted_device(dir: &Path) -> io::Result<Option<String>> {
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let shown: Vec<u8> =
        dir.as_os_str().as_bytes().iter().flat_map(|byte| escaped(*byte)).collect();
    // If several mounts are at one place, the last hides the others.
    let last = mounts
        .split(|byte| *byte == b'\n')
        .rfind(|line| line.split(|byte| *byte == b' ').nth(4).is_some_and(|place| place == shown));
    Ok(last.and_then(|line| {
        let device = line.split(|byte| *byte == b' ').nth(2)?;
        let mut words = line.split(|byte| *byte == b' ');
        words.find(|word| *word == b"-")?;
        let is_pool = words.next() == Some(TYPE.as_bytes());
        is_pool.then(|| String::from_utf8_lossy(device).into_owned())
    }))
}

/// Returns whether the device is mounted anywhere, by a list of mounts.
pub fn is_device_mounted(device: &str, mountinfo: &Path) -> io::Result<bool> {
    let mounts = std::fs::read(mountinfo)?;
    let mut lines = mounts.split(|byte| *byte == b'\n');
    Ok(lines.any(|line| line.split(|byte| *byte == b' ').nth(2) == Some(device.as_bytes())))
}

/// Returns a byte of a name as /proc/self/mountinfo shows it (proc_pid_mountinfo(5)).
fn escaped(byte: u8) -> Vec<u8> {
    match byte {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
        _ => vec![byte],
    }
}

/// Takes away the mount at the mount point `dir`, if no process serves it; returns whether there was such a mount. This
/// must not be called for a mount that may be served: the check asks the serving process, and the mount is busy until
/// the answer comes.
pub fn detach_dead(dir: &Path) -> io::Result<bool> {
    let was_dead = is_dead(dir)?;
    while is_dead(dir)? {
        detach(dir)?;
    }
    Ok(was_dead)
}

fn is_dead(dir: &Path) -> io::Result<bool> {
    // The kernel may answer stat() from its cache; for statfs() it asks the serving process each time.
    Ok(is_mounted(dir)? && matches!(rustix::fs::statfs(dir), Err(Errno::NOTCONN)))
}

/// Unmounts the mount point `dir`.
///
/// Errors: [`io::ErrorKind::ResourceBusy`] while a program has something open in the mount.
pub fn unmount(dir: &Path) -> io::Result<()> {
    unmount_with(dir, UnmountFlags::empty(), &["-u"])
}

/// Detaches the mount from the mount point `dir`; programs keep the files that they have open in it.
pub fn detach(dir: &Path) -> io::Result<()> {
    unmount_with(dir, UnmountFlags::DETACH, &["-u", "-z"])
}

fn unmount_with(dir: &Path, by_kernel: UnmountFlags, by_helper: &[&str]) -> io::Result<()> {
    match rustix::mount::unmount(dir, by_kernel | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => {}
        Err(Errno::BUSY) => return Err(io::ErrorKind::ResourceBusy.into()),
        done => return Ok(done?),
    }
    let ran = Command::new(HELPER).args(by_helper).arg("--").arg(dir).output()?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(match said.contains("busy") {
        true => io::Error::new(io::ErrorKind::ResourceBusy, said),
        false => io::Error::other(said),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_named_as_lists_of_mounts_name_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = dir.path().canonicalize().expect("real").join("a b");
        std::fs::create_dir(&real).expect("made");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).expect("made");
        assert_eq!(mount_point(&link).expect("found"), real);
        assert_eq!(mount_point(&link.join("../link/../a b/.")).expect("found"), real);
        let shown: Vec<u8> = b"a b\\c".iter().flat_map(|byte| escaped(*byte)).collect();
        assert_eq!(shown, b"a\\040b\\134c");
        assert!(!is_mounted(&real).expect("asked"));
    }
}
