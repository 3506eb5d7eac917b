//! A slow line between two network namespaces: frames that enter one tap device leave the other at a given rate, after
//! a given delay, and some not at all. Tests and the laboratory have lines of 100 kb/s and 100 ms by it on kernels
//! that have no `netem`. It takes root and `/dev/net/tun`.
// The line delays real frames by the real clock: there is nothing here to simulate.
#![allow(clippy::disallowed_methods)]

mod queue;
mod tap;

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use queue::FrameQueue;
pub use tap::missing;

/// The bytes that a line carries at most in one frame: an Ethernet header and the usual 1500 bytes.
const FRAME: usize = 14 + 1500;

/// What a line does with the frames of each of its two directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowLine {
    /// The rate in bits a second, Ethernet headers included.
    pub rate: u64,
    /// The time between a frame's last bit going in and its coming out.
    pub delay: Duration,
    /// The share of frames that is lost, between 0 and 1, besides those for which the queue has no room.
    pub loss: f64,
}

/// One end of a line: a tap device that the line makes.
#[derive(Clone, Copy, Debug)]
pub struct LineEnd<'a> {
    /// A process in whose network namespace the device is.
    pub pid: u32,
    /// The name of the device.
    pub device: &'a str,
}

/// A line that carries frames until this is dropped, when its two devices go away.
pub struct RunningLine {
    /// The end of a pipe that nobody writes to: its going tells the threads to end.
    _stop: PipeWriter,
}

impl SlowLine {
    /// Makes the two devices of a line and lets it carry frames. Their addresses, and `ip link set up`, are the
    /// caller's.
    ///
    /// Errors: this process may not make devices there, or there is one of that name.
    pub fn run(self, ends: [LineEnd<'_>; 2]) -> io::Result<RunningLine> {
        let [left, right] = ends.map(|end| {
            tap::make(Path::new(&format!("/proc/{}/ns/net", end.pid)), end.device).map(Arc::new)
        });
        let (left, right) = (left?, right?);
        let (listening, stop) = io::pipe()?;
        let listening = Arc::new(listening);
        for (seed, (from, to)) in [(&left, &right), (&right, &left)].into_iter().enumerate() {
            let (sender, receiver) = channel();
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            let queue = FrameQueue::new(self, seed as u64);
            let stop = Arc::clone(&listening);
            thread::spawn(move || take_in(&from, &stop, queue, &sender));
            thread::spawn(move || let_out(&to, &receiver));
        }
        Ok(RunningLine { _stop: stop })
    }
}

/// A frame that is on the line.
struct Frame {
    /// The time at which it comes out.
    out_at: Instant,
    bytes: Vec<u8>,
}

/// Takes frames from a device and says when each comes out, until it is told to stop or the device is gone.
fn take_in(tap: &OwnedFd, stop: &PipeReader, mut queue: FrameQueue, line: &Sender<Frame>) {
    let mut bytes = [0; FRAME];
    let began = Instant::now();
    loop {
        let mut waited = [
            PollFd::new(tap, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        let polled = poll(&mut waited, None);
        if polled.is_err_and(|why| why != rustix::io::Errno::INTR)
            || !waited[1].revents().is_empty()
        {
            return;
        }
        let length = match rustix::io::read(tap, &mut bytes) {
            Ok(length) => length,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        };
        let Some(out) = queue.take(began.elapsed(), length) else { continue };
        let frame = Frame { out_at: began + out, bytes: bytes[..length].to_vec() };
        if line.send(frame).is_err() {
            return;
        }
    }
}

/// Lets frames out of the other device when it is time, in the order in which they went in.
fn let_out(tap: &OwnedFd, line: &Receiver<Frame>) {
    for frame in line {
        // Nobody unparks this thread, but the system may wake it early.
        while let Some(left) =
            frame.out_at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            thread::park_timeout(left);
        }
        // A device that is down, or whose receiver has no room, loses the frame as a cable does.
        let _ = rustix::io::write(tap, &frame.bytes);
    }
}
