//! Tests mounts as daemons: how they start and end, what they say, and who else starts them.

use super::content::{arg, assert_same, bytes};
use super::lab::Lab;
use super::machines::{Machine, Machines, Naming};
use super::mounts::{Mount, can_mount, mounted};
use super::program::{Ran, code_of};
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A daemon that a command left behind; it is killed with its test.
struct LeftDaemon(Pid);

impl LeftDaemon {
    /// Returns the daemon of which a `mount --json` told.
    fn of(said: &Value) -> Self {
        let pid = said["pid"].as_i64().expect("a process") as i32;
        Self(Pid::from_raw(pid).expect("a number"))
    }

    /// Returns the daemons that serve mounts in a machine.
    fn all_in(machine: &Machine) -> Vec<Self> {
        let found = machine.sh("cat ~root/.cache/potluck/spool/*.mount").text();
        let first = found.lines().filter_map(|line| serde_json::from_str(line).ok());
        first.filter(|said: &Value| said["pid"].is_i64()).map(|said| Self::of(&said)).collect()
    }

    fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero()));
        // A process that nobody waits for stays there as a zombie.
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for LeftDaemon {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = kill_process(self.0, Signal::KILL);
        }
    }
}

/// Returns the names of the mount records beside the spool.
fn records(lab: &Lab) -> Vec<String> {
    let files = super::lent::all_files(lab.dir());
    let names = files.iter().filter_map(|path| path.file_name()?.to_str());
    names.filter(|name| name.ends_with(".mount")).map(str::to_owned).collect()
}

#[test]
fn mount_is_ready_on_return_and_gone_after_umount() {
    if !can_mount("a_mount_serves_when_its_command_returns") {
        return;
    }
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let dir = lab.dir().join("my mount");
    fs::create_dir(&dir).expect("made");
    let said = lab.cli.json(&["mount", "pot://lab", arg(&dir)]);
    let daemon = LeftDaemon::of(&said);
    fs::write(dir.join("f"), "stored").expect("it serves");
    assert_eq!(lab.cli.cat("pot://lab/f"), b"stored");
    let log = Path::new(said["log"].as_str().expect("a log"));
    assert_eq!(fs::metadata(log).expect("there").permissions().mode() & 0o777, 0o600);
    let again = lab.cli.fails(10, &["mount", "pot://lab", arg(&dir)]);
    assert!(again.hint.contains("umount"), "{again:?}");

    let mut writer = File::create(dir.join("g")).expect("made");
    writer.write_all(b"half").expect("written");
    let busy = lab.cli.fails(5, &["umount", arg(&dir)]);
    assert!(busy.hint.contains("open in it"), "{busy:?}");
    drop(writer);
    lab.cli.ok(&["umount", arg(&dir)]);
    assert!(!daemon.is_running(), "umount waits for it");
    assert_eq!(records(&lab), [] as [&str; 0]);
    assert_eq!(lab.cli.cat("pot://lab/g"), b"half");
    let text = fs::read_to_string(log).expect("read");
    assert!(text.contains("is mounted at") && text.contains("is unmounted"), "{text}");
}

/// A mount namespace with a copy of all mounts, in which a program has a file open.
struct OtherNamespace(Child);

impl OtherNamespace {
    fn reads(file: &Path) -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "--propagation", "private", "sh", "-c"]);
        unshare.arg("exec 3< \"$0\"; echo opened; read line; cat <&3").arg(file);
        let mut child = unshare
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut said = [0; 7];
        child.stdout.as_mut().expect("piped").read_exact(&mut said).expect("said");
        assert_eq!(&said, b"opened\n");
        Self(child)
    }

    /// Has the program read on, and returns what it read, or `None` after an error.
    fn read(self) -> Option<Vec<u8>> {
        let read = self.0.wait_with_output().expect("ended");
        read.status.success().then_some(read.stdout)
    }
}

/// No unmounting takes a copy of the mount from a namespace with mounts of its own, which any user can make.
#[test]
fn unmount_ends_copies_in_other_namespaces() {
    if !can_mount("a_mount_ends_when_it_is_unmounted_whatever_other_namespaces_have") {
        return;
    }
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let dir = lab.dir().join("m");
    fs::create_dir(&dir).expect("made");
    let mount = || LeftDaemon::of(&lab.cli.json(&["mount", "pot://lab", arg(&dir)]));

    let daemon = mount();
    fs::write(dir.join("f"), "stored").expect("written");
    let other = OtherNamespace::reads(&dir.join("f"));
    lab.cli.ok(&["umount", arg(&dir)]);
    assert!(!daemon.is_running() && records(&lab).is_empty());
    assert_eq!(other.read(), None, "nobody answers");
    assert_eq!(lab.cli.cat("pot://lab/f"), b"stored");

    let daemon = mount();
    let other = OtherNamespace::reads(&dir.join("f"));
    let unmounted = Command::new("fusermount3").arg("-u").arg(&dir).status().expect("ran");
    assert!(unmounted.success());
    wait_until("the daemon to end", DEADLINE, || !daemon.is_running());
    assert_eq!(other.read(), None, "nobody answers");

    let daemon = mount();
    let other = OtherNamespace::reads(&dir.join("f"));
    kill_process(daemon.0, Signal::TERM).expect("runs");
    wait_until("the daemon to end", DEADLINE, || !daemon.is_running());
    assert_eq!(other.read(), None, "nobody answers");

    // What is detached goes on for the programs of its own namespace.
    let daemon = mount();
    let mut writer = File::create(dir.join("g")).expect("made");
    let detached = Command::new("fusermount3").args(["-u", "-z"]).arg(&dir).status().expect("ran");
    assert!(detached.success());
    pause(Duration::from_secs(3));
    writer.write_all(b"whole").expect("written");
    drop(writer);
    wait_until("the daemon to end", DEADLINE, || !daemon.is_running());
    assert_eq!(lab.cli.cat("pot://lab/g"), b"whole");
}

/// `mv` from one mount to the other takes a file for two, removes one, and then finds none to copy.
#[test]
fn second_mount_point_needs_an_explicit_request() {
    if !can_mount("second_mount_point_needs_an_explicit_request") {
        return;
    }
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.cli.ok(&["mkdir", "pot://lab/a"]);
    lab.cli.ok(&["mkdir", "pot://lab/b"]);
    let [first, second] = ["first", "second"].map(|name| {
        let dir = lab.dir().join(name);
        fs::create_dir(&dir).expect("made");
        dir
    });
    let mount = |path: &str, options: &[&str]| {
        LeftDaemon::of(&lab.cli.json(&[&["mount", path, arg(&second)], options].concat()))
    };
    let _daemon = LeftDaemon::of(&lab.cli.json(&["mount", "pot://lab/a", arg(&first)]));
    for path in ["pot://lab/a", "pot://lab", "pot://"] {
        let why = lab.cli.fails(10, &["mount", path, arg(&second)]);
        assert!(why.message.contains(&format!("is mounted at {}", arg(&first))), "{why:?}");
        assert!(why.hint.contains("umount") && why.hint.contains("--again"), "{why:?}");
    }
    for (path, options) in [("pot://lab/b", &[][..]), ("pot://lab", &["--again"])] {
        let _daemon = mount(path, options);
        lab.cli.ok(&["umount", arg(&second)]);
    }
    lab.cli.ok(&["umount", arg(&first)]);
    let _daemon = mount("pot://lab", &[]);
    lab.cli.ok(&["umount", arg(&second)]);
}

#[test]
fn a_mount_that_cannot_come_about_says_why_and_leaves_nothing() {
    if !can_mount("a_mount_that_cannot_come_about_says_why") {
        return;
    }
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    fs::write(lab.dir().join("file"), "x").expect("written");
    lab.cli.ok(&["cp", arg(&lab.dir().join("file")), "pot://lab/f"]);
    let (dir, full) = (lab.dir().join("empty"), lab.dir().join("full"));
    fs::create_dir(&dir).expect("made");
    fs::create_dir_all(full.join("x")).expect("made");
    let missing = lab.dir().join("missing");
    let file = lab.dir().join("file");
    for (code, path, at, hint) in [
        (3, "pot://lab/nope", &dir, "mkdir -p"),
        (2, "pot://lab/f", &dir, "directory that it is in"),
        (3, "pot://lab", &missing, "mkdir"),
        (10, "pot://lab", &full, "empty"),
        (1, "pot://lab", &file, "directory"),
    ] {
        let why = lab.cli.fails(code, &["mount", path, arg(at)]);
        assert!(why.hint.contains(hint), "{path} at {}: {why:?}", at.display());
    }
    // The command tells what goes wrong in the daemon, with its exit code.
    let ready = lab.dir().join("missing/ready");
    let why = lab.cli.fails(1, &["mount", "pot://lab", arg(&dir), "--ready-file", arg(&ready)]);
    assert!(why.message.contains("missing/ready"), "{why:?}");
    wait_until("the daemon to end", DEADLINE, || records(&lab).is_empty());
    assert_eq!(lab.cli.json(&["umount", arg(&dir)])["was_mounted"], false);
}

/// A program that still writes when the mount is asked to stop may end its file, and a second signal ends that.
#[test]
fn stopping_mount_waits_for_writers_and_names_the_rest() {
    let Some((lab, mut mount)) =
        mounted("a_mount_that_is_asked_to_stop_lets_writers_close", 1, &[], &[])
    else {
        return;
    };
    let content = bytes(4, 3 << 20);
    let mut writer = File::create(mount.at("slow")).expect("made");
    writer.write_all(&content[..1 << 20]).expect("written");
    mount.running.signal(Signal::TERM);
    let dir = mount.dir.clone();
    wait_until("the directory to be unmounted", DEADLINE, || !dir.join("slow").exists());
    pause(Duration::from_millis(200));
    assert!(mount.running.ended().is_none(), "it waits for the writer");
    writer.write_all(&content[1 << 20..]).expect("it goes on");
    drop(writer);
    assert_eq!(code_of(mount.running.end("the mount")), 0);
    assert_same(&lab.cli.cat("pot://lab/slow"), &content, "what was closed after the signal");

    let mut mount = Mount::start(&lab, "pot://lab", &[]);
    let mut writer = File::create(mount.at("slow")).expect("opened");
    writer.write_all(b"half").expect("written");
    mount.running.signal(Signal::INT);
    wait_until("the directory to be unmounted", DEADLINE, || !dir.join("slow").exists());
    mount.running.signal(Signal::INT);
    assert_eq!(code_of(mount.running.end("the mount")), 4);
    assert!(lab.cli.said_by_the_last().contains("pot://lab/slow was not closed"));
    drop(writer);
    assert_same(&lab.cli.cat("pot://lab/slow"), &content, "the old version");
    // The next mount at that directory tells it as well.
    drop(mount);
    let next = Mount::start(&lab, "pot://lab", &[]);
    assert!(lab.cli.said_by_the_last().contains("pot://lab/slow was not closed"));
    lab.cli.ok(&["umount", arg(&next.dir)]);
}

#[test]
fn spool_limit_returns_enospc() {
    let options = ["--spool-max", "1MiB", "--write-protocol", "local"];
    let Some((lab, mount)) = mounted("the_spool_has_a_largest_size", 1, &[], &options) else {
        return;
    };
    let both = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).open(mount.at(name))
    };
    let content = bytes(5, 1 << 20);
    let file = both("f").expect("made");
    file.write_all_at(&content[..600_000], 0).expect("it fits");
    let other = both("g").expect("made");
    let full = other.write_all_at(&content[..600_000], 0).expect_err("together they do not");
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    drop(other);
    file.write_all_at(&content[600_000..], 600_000).expect("what the other had is free");
    drop(file);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "what was accepted");
    let file = both("h").expect("made");
    file.write_all_at(&content, 0).expect("it fits");
    let full = file.write_all_at(b"x", 1 << 20).expect_err("full");
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    drop(file);
    lab.cli.fails(3, &["stat", "pot://lab/h"]);
    // What a file had before takes no room in the spool.
    let mut content = bytes(6, 3 << 20);
    fs::write(lab.dir().join("large"), &content).expect("a file");
    lab.cli.ok(&["cp", arg(&lab.dir().join("large")), "pot://lab/large"]);
    let large = both("large").expect("opened");
    large.write_all_at(b"x", 2 << 20).expect("it fits");
    drop(large);
    content[2 << 20] = b'x';
    assert_same(&lab.cli.cat("pot://lab/large"), &content, "changed");
    let said = lab.cli.json(&["umount", arg(&mount.dir)]);
    assert_eq!(said["unpublished"], serde_json::json!([]), "the program was told: {said}");
}

/// The child that inherited a file writes on after its parent has closed it, and nobody hears that its close fails.
#[test]
fn umount_names_what_could_not_be_published_when_it_was_closed() {
    let Some((lab, mount)) = mounted("umount_names_what_could_not_be_published", 1, &[], &[])
    else {
        return;
    };
    lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "2MiB"]);
    let line = "exec 3<> f 4<> g; head -c 3000000 /dev/urandom >&3; echo fine >&4";
    let mut shell = Command::new("sh");
    let ended = shell.args(["-c", line]).current_dir(&mount.dir).status().expect("sh");
    assert!(ended.success(), "a shell does not look at what close() returns");
    let ran = lab.cli.run(&["umount", arg(&mount.dir)]).exits(4);
    assert!(ran.stderr.contains("pot://lab/f could not be stored"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("pot://lab/g"), "{}", ran.stderr);
    assert_eq!(lab.cli.cat("pot://lab/g"), b"fine\n");
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

fn lab_of_one(test: &str) -> Option<Machines> {
    if !can_mount(test) {
        return None;
    }
    let lab = Machines::new(test, Naming::Dns, &["alice"])?;
    let alice = lab.machine("alice");
    alice.start("potluck up --max 1GiB", "lending up to ");
    alice.sh("potluck space create lab && echo content > f && potluck cp f pot://lab/f").ok();
    Some(lab)
}

#[test]
fn a_line_of_fstab_mounts_a_pool_and_ends_like_other_mounts() {
    let Some(lab) = lab_of_one("a_line_of_fstab_mounts_a_pool") else { return };
    let alice = lab.machine("alice");
    alice.sh("ln -s /usr/local/bin/potluck /usr/sbin/mount.potluck; mkdir /mnt/lab /mnt/ro").ok();
    // mount(8) has its helpers act as root, whoever calls it: the identity is root's, or named.
    let pool = "pool=/home/lab/.local/state/potluck/manager/admin";
    let lines = format!(
        "pot://lab /mnt/lab potluck _netdev,nofail,x-systemd.automount,{pool} 0 0\n\
         pot://lab /mnt/ro potluck noauto,ro,again,retry_for=5s,{pool} 0 0\n"
    );
    fs::write(alice.path("/etc/fstab"), lines).expect("a machine's own file");
    let checked = |ran: Ran| {
        let daemons = LeftDaemon::all_in(alice);
        ran.ok();
        daemons
    };
    let mut daemons = checked(alice.sh("exec 9> /tmp/lock; mount -a -t potluck"));
    let files = format!("/proc/{}/fd", daemons[0].0.as_raw_nonzero());
    let files = fs::read_dir(files).expect("a process").flatten();
    let kept = files.filter(|file| fs::read_link(file.path()).is_ok_and(|it| it.ends_with("lock")));
    assert_eq!(kept.count(), 0, "a lock of whoever mounts does not live on in the daemon");
    assert_eq!(alice.sh("cat /mnt/lab/f").ok().text(), "content\n");
    alice.sh("echo new > /mnt/lab/g").ok();
    assert_eq!(
        alice.sh("findmnt -no FSTYPE,SOURCE /mnt/lab").ok().text(),
        "fuse.potluck pot://lab\n"
    );
    // A second `mount -a` mounts nothing twice, and mounting needs nothing of an environment.
    alice.sh("mount -a -t potluck").ok();
    daemons.extend(checked(alice.sh("env -i PATH=/usr/sbin:/usr/bin mount /mnt/ro")));
    assert_eq!(alice.sh("cat /mnt/ro/g").ok().text(), "new\n");
    let refused = alice.sh("touch /mnt/ro/h");
    assert!(refused.stderr.contains("Read-only"), "{}", refused.stderr);
    alice.sh("umount /mnt/ro").ok();
    alice.sh("HOME=/root potluck umount /mnt/lab").ok();
    wait_until("the daemons to end", DEADLINE, || daemons.iter().all(|one| !one.is_running()));

    let wrong = alice.sh("mount -t potluck -o read-only pot://lab /mnt/lab");
    assert_ne!(wrong.code, 0);
    assert!(wrong.stderr.contains("unknown option “read-only”"), "{}", wrong.stderr);
    let missing = alice.sh(&format!("mount -t potluck -o {pool} pot://lab/nope /mnt/lab"));
    assert!(missing.code != 0 && missing.stderr.contains("nothing is at"), "{}", missing.stderr);
}

#[test]
fn user_mount_supports_allow_other() {
    let Some(lab) = lab_of_one("a_user_mounts_by_fusermount3") else { return };
    let alice = lab.machine("alice");
    let token = alice.sh("potluck --quiet invite --role user").ok().text();
    alice
        .sh("potluck space grant lab everyone read && potluck space grant lab everyone write")
        .ok();
    alice.sh("install -d -o nobody /home/user /home/user/m; sed -i /user_allow_other/d /etc/fuse.conf").ok();
    let user = |line: &str| {
        alice.sh(&format!(
            "cd /home/user && setpriv --reuid nobody --regid nogroup --clear-groups env HOME=/home/user {line}"
        ))
    };
    user(&format!("potluck join {token}")).ok();
    // Whether users may open the device depends on the system, so the machine has one of its own, closed at first and
    // then open.
    alice.sh("mknod -m 600 /tmp/fuse c 10 229 && mount --bind /tmp/fuse /dev/fuse").ok();
    let refused = user("potluck --json mount pot://lab m").exits(8);
    assert!(refused.stderr.contains("chmod 666 /dev/fuse"), "{}", refused.stderr);
    alice.sh("chmod 666 /tmp/fuse").ok();
    let refused = user("potluck --json mount pot://lab m --allow-other").exits(8);
    assert!(refused.stderr.contains("a line `user_allow_other`"), "{}", refused.stderr);

    let said = user("potluck --json mount pot://lab m").ok().json();
    let daemon = LeftDaemon::of(&said);
    assert_eq!(user("cat m/f").ok().text(), "content\n");
    assert_ne!(alice.sh("cat /home/user/m/f").code, 0, "not even root looks in");
    user("cp m/f m/g").ok();
    user("potluck umount m").ok();
    assert!(!daemon.is_running());

    alice.sh("echo user_allow_other >> /etc/fuse.conf").ok();
    let said = user("potluck --json mount pot://lab m --allow-other --read-only").ok().json();
    let daemon = LeftDaemon::of(&said);
    assert_eq!(alice.sh("cat /home/user/m/g").ok().text(), "content\n");
    assert_ne!(user("touch m/h").code, 0);
    // A signal unmounts as well, by fusermount3.
    let _ = kill_process(daemon.0, Signal::TERM);
    wait_until("the daemon to end", DEADLINE, || !daemon.is_running());
    assert_eq!(alice.sh("ls -A /home/user/m").ok().text(), "");
}
