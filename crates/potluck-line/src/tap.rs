//! Makes tap devices in network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;

const DEVICE: &str = "/dev/net/tun";

/// Returns why there can be no slow lines here, or `None` if there can.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("slow lines are made of tap devices, which takes root".to_owned());
    }
    open().err().map(|error| format!("{DEVICE}: {error}"))
}

/// Makes a tap device in a network namespace. It is there until what is returned is closed.
pub fn make(namespace: &Path, name: &str) -> io::Result<OwnedFd> {
    let namespace = File::open(namespace)?;
    // A thread of its own enters the namespace and ends in it, so that no other thread is ever there.
    thread::scope(|scope| scope.spawn(|| in_namespace(&namespace, name)).join().expect("no panic"))
}

fn in_namespace(namespace: &File, name: &str) -> io::Result<OwnedFd> {
    let network = Some(LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(namespace.as_fd(), network)?;
    // The namespace of a tap device is the one in which the file is opened.
    let tap = open()?;
    // SAFETY: all zeroes is a valid ifreq, which is plain integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the name of a device is too long",
        ));
    }
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which this frame owns.
    match unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &mut request) } {
        0 => Ok(tap),
        _ => Err(io::Error::last_os_error()),
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(DEVICE, flags, Mode::empty())?)
}
