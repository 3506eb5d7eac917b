//! Tests that a member who has very many calls under way takes few of the manager's threads, and little of its memory,
//! whatever it calls.

use super::content::arg;
use super::lab::Lab;
use super::member::Member;
use futures_util::future::join_all;
use potluck_core::attributes::Permissions;
use potluck_core::path::PoolPath;
use potluck_wire::call::Caller;
use potluck_wire::control::{Call, Fsck, MakeDir, Move, Stat};
use potluck_wire::net::SystemNet;
use potluck_wire::tls::TlsDial;
use rustix::process::Pid;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of calls at once.
const CALLS: usize = 540;
/// The most threads that the manager begins for them.
const THREADS: u64 = 40;
/// The most memory that it takes for them: each has a connection, and eight of a kind read at once.
const MEMORY: u64 = 128 << 20;

/// Returns the number of threads of a process, and the bytes of memory of its own that it has.
fn taken(pid: Pid) -> (u64, u64) {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = fs::read_to_string(path).expect("a process");
    let figure = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a figure");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    (figure("Threads:"), figure("RssAnon:") << 10)
}

struct ManyCalls {
    lab: Lab,
    member: Member,
    caller: Caller,
}

impl ManyCalls {
    /// Makes the calls at once, and asserts that they take little and that none fails.
    fn take_little<C: Call>(&mut self, calls: Vec<C>) {
        let pid = self.lab.manager().pid();
        let (before, is_over) = (taken(pid), AtomicBool::new(false));
        let most = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = before;
                while !is_over.load(Ordering::Relaxed) {
                    let (threads, bytes) = taken(pid);
                    most = (most.0.max(threads), most.1.max(bytes));
                }
                most
            });
            let answers = join_all(calls.iter().map(|call| self.caller.call(call)));
            let answers = self.member.runtime.block_on(answers);
            is_over.store(true, Ordering::Relaxed);
            let failed: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
            assert!(failed.is_empty(), "{} of “{}” failed: {}", failed.len(), C::NAME, failed[0]);
            watch.join().expect("it only reads")
        });
        let (threads, bytes) = (most.0 - before.0, most.1 - before.1);
        println!("{}: {threads} threads and {} MiB more at most", C::NAME, bytes >> 20);
        assert!(threads <= THREADS, "“{}”: {threads} threads beside {}", C::NAME, before.0);
        assert!(bytes <= MEMORY, "“{}”: {bytes} bytes beside {}", C::NAME, before.1);
    }
}

#[test]
fn concurrent_calls_of_a_member_use_bounded_threads_and_memory() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let from = lab.dir().join("many");
    fs::create_dir(&from).expect("a directory");
    (0..CALLS).for_each(|n| fs::write(from.join(n.to_string()), "text").expect("a file"));
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/"]);
    let member = Member::load(&lab.manager_dir().join("admin"));
    let dial = Arc::new(TlsDial::member(&member.identity).expect("a usable identity"));
    let caller = Caller::new(Arc::new(SystemNet), dial, member.identity.about.manager.clone());
    let mut many = ManyCalls { lab, member, caller };

    let at = |dir: &str, n: usize| format!("pot://lab/{dir}/{n}").parse::<PoolPath>();
    let paths = |dir: &str| (0..CALLS).map(|n| at(dir, n).expect("a path")).collect::<Vec<_>>();
    let stat = |path| Stat { path, chunks: false, unjudged: false, room: false, after: None };
    many.take_little(paths("many").into_iter().map(stat).collect());
    let moved = paths("many").into_iter().zip(paths("many"));
    let moved = moved.map(|(from, to)| {
        let to = to
            .parent()
            .expect("its directory")
            .join(&format!("{}-moved", to.file_name().expect("a name")));
        Move { from, to: to.expect("a path"), no_replace: false, replaces: None, soon: false }
    });
    many.take_little(moved.collect());
    let permissions = Permissions::DIR;
    let dir = |path| MakeDir { path, parents: true, permissions, owner: None };
    many.take_little(paths("dirs").into_iter().map(dir).collect());
    let root = "pot://lab".parse::<PoolPath>().expect("a path");
    let fsck = |_| Fsck { path: root.clone(), incomplete: false, after: None };
    many.take_little((0..CALLS).map(fsck).collect());
}
