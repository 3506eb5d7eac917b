//! Tests that transfers go on where they were after a link was away, for as long as the user lets them wait.

use super::content::{arg, assert_same, bytes, file};
use super::lab::Lab;
use super::machines::{Machine, Machines, Naming};
use super::program::code_of;
use super::tap::Tap;
use super::waiting::{DEADLINE, pause, wait_until};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// The length of an outage, which is longer than anybody waits for one answer of a donor.
const DOWN: Duration = Duration::from_secs(12);

/// Makes a pool of which every client's link to the donors can be cut. The donors' own link to the manager stays, so
/// that the manager counts them as live.
fn pool(donors: usize) -> (Lab, Vec<Tap>) {
    let mut lab = Lab::manager_only(&["--lease", "10s", "--resume-window", "10m"]);
    let mut taps = Vec::new();
    for number in 1..=donors {
        taps.push(lab.lend_behind(&format!("donor-{number}"), Tap::listening()));
    }
    lab.wait_live();
    (lab, taps)
}

fn cut(taps: &[Tap], cut: bool) {
    taps.iter().for_each(|tap| tap.cut(cut));
}

fn put_through_an_outage(donors: usize, create: &[&str]) {
    let (lab, taps) = pool(donors);
    lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "64KiB"], create].concat());
    let content = bytes(1, 12 << 20);
    let (first, rest) = content.split_at(8 << 20);
    let mut writer = lab.cli.start(&["cp", "-", "pot://lab/f"]);
    let mut input = writer.child().stdin.take().expect("a pipe");
    input.write_all(first).expect("a writer that reads");
    wait_until("the first part to be stored", DEADLINE, || lab.chunk_names().len() >= 8 * 16);
    cut(&taps, true);
    input.write_all(rest).expect("a writer that reads");
    drop(input);
    pause(DOWN);
    assert!(writer.ended().is_none(), "it waits");
    cut(&taps, false);
    assert_eq!(code_of(writer.end_within("the writer", 3 * DEADLINE)), 0);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    assert_eq!(lab.cli.json(&["stat", "pot://lab/f"])["entry"]["version"], 1);
}

#[test]
fn a_put_goes_on_after_the_link_to_the_donors_was_down() {
    put_through_an_outage(2, &["--copies", "2"]);
}

#[test]
fn coded_put_resumes_after_a_link_outage() {
    put_through_an_outage(3, &["--ec", "2+1"]);
}

fn get_through_an_outage(donors: usize, create: &[&str]) {
    let (lab, taps) = pool(donors);
    lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "64KiB"], create].concat());
    let (input, content) = file(lab.dir(), "input", 2, 32 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let mut reader = lab.cli.start(&["cat", "pot://lab/f"]);
    let mut out = reader.child().stdout.take().expect("a pipe");
    let mut read = vec![0; 2 << 20];
    out.read_exact(&mut read).expect("the first part");
    cut(&taps, true);
    // The rest of the file is asked for only as it is read.
    let rest = std::thread::spawn(move || {
        out.read_to_end(&mut read).expect("the rest");
        read
    });
    pause(DOWN);
    assert!(reader.ended().is_none(), "it waits");
    cut(&taps, false);
    assert_eq!(code_of(reader.end_within("the reader", 3 * DEADLINE)), 0);
    assert_same(&rest.join().expect("a reader"), &content, "the file");
}

#[test]
fn a_get_goes_on_after_the_link_to_the_donors_was_down() {
    get_through_an_outage(2, &["--copies", "2"]);
}

#[test]
fn coded_get_resumes_after_a_link_outage() {
    get_through_an_outage(3, &["--ec", "2+1"]);
}

/// A2: nothing says that donors will ever be reached which this client never reached, so retry limits are not for them.
#[test]
fn donor_reached_only_by_the_manager_is_reported_and_skipped_a2() {
    let (lab, mut taps) = pool(2);
    for (space, copies) in [("once", "1"), ("twice", "2")] {
        lab.cli.ok(&["space", "create", space, "--chunk-size", "64KiB", "--copies", copies]);
    }
    let (input, _) = file(lab.dir(), "input", 4, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://once/f"]);
    let unreached = taps.pop().expect("two").address();
    let commands: Vec<_> = [["cp", arg(&input), "pot://twice/f"], ["cp", "pot://once/f", "-"]]
        .into_iter()
        .map(|command| {
            let (cli, command) = (lab.cli.clone(), command.map(str::to_owned));
            std::thread::spawn(move || cli.run(&command.each_ref().map(String::as_str)).exits(5))
        })
        .collect();
    let ran = commands.into_iter().map(|command| command.join().expect("it ended"));
    let ran: Vec<_> = ran.collect();
    assert!(ran[0].stderr.contains("donor-2 does not answer; waiting for up to 10s"));
    for ran in ran {
        let said = &ran.stderr;
        assert!(ran.took < DEADLINE, "{}: {:?}", ran.command, ran.took);
        assert!(said.contains(&format!("donor-2 at {unreached}")), "{said}");
        assert!(said.contains("firewall"), "{said}");
    }
}

#[test]
fn a_put_that_begins_before_any_donor_is_there_waits_for_them() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.kill_donor("donor-1");
    wait_until("the dead donor to be noticed", DEADLINE, || lab.cli.live_donors().is_empty());
    let (input, content) = file(lab.dir(), "input", 5, 1 << 20);
    let mut put = lab.cli.start(&["cp", arg(&input), "pot://lab/f"]);
    wait_until("it to say that it waits", DEADLINE, || {
        assert!(put.ended().is_none(), "{}", lab.cli.said_by_the_last());
        lab.cli.said_by_the_last().contains("can be written to now; waiting for up to 10s")
    });
    lab.start_donor("donor-1");
    let code = code_of(put.end("the put"));
    assert_eq!(code, 0, "{}", lab.cli.said_by_the_last());
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn put_without_donors_ends_at_its_retry_limit() {
    let (lab, taps) = pool(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let content = bytes(3, 12 << 20);
    let mut writer = lab.cli.start(&["--retry-for", "5s", "--json", "cp", "-", "pot://lab/f"]);
    let mut input = writer.child().stdin.take().expect("a pipe");
    input.write_all(&content[..8 << 20]).expect("a writer that reads");
    wait_until("the first part to be stored", DEADLINE, || lab.chunk_names().len() >= 8 * 16);
    cut(&taps, true);
    let began = Instant::now();
    input.write_all(&content[8 << 20..]).expect("a writer that reads");
    drop(input);
    assert_eq!(code_of(writer.end_within("the writer", 3 * DEADLINE)), 5);
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    let said = lab.cli.said_by_the_last();
    assert!(said.contains("what was sent is kept") && said.contains("donor-1"), "{said}");
    cut(&taps, false);
    let input = lab.dir().join("input");
    std::fs::write(&input, &content).expect("a file");
    let report = lab.cli.json(&["cp", arg(&input), "pot://lab/f"]);
    // Donors may not have told of the last chunks.
    assert!(report["resumed_bytes"].as_u64() >= Some(6 << 20), "{report}");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

/// Makes two machines that lend, and one that only uses the pool, with a space.
fn machines(test: &str) -> Option<Machines> {
    let names = ["lab-head", "bench-2", "laptop"];
    let lab = Machines::new(test, Naming::AddressOnly, &names)?;
    let [head, bench, laptop] = names.map(|name| lab.machine(name));
    let token = |role| {
        let said = head.sh(&format!("potluck --json invite --role {role}")).ok().json();
        said["token"].as_str().expect("a token").to_owned()
    };
    head.start("potluck up --max 1GiB --keep-free 0%", "lending");
    bench.sh(&format!("potluck join {}", token("donor"))).ok();
    bench.start("potluck lend lent --max 1GiB --keep-free 0%", "lending");
    laptop.sh(&format!("potluck join {}", token("user"))).ok();
    head.sh("potluck space create lab --copies 1 --chunk-size 1MiB").ok();
    head.sh("potluck space grant lab everyone read write").ok();
    Some(lab)
}

/// Returns the bytes that a machine has sent (`tx`) or received (`rx`) so far.
fn carried(machine: &Machine, way: &str) -> u64 {
    let file = format!("/sys/class/net/eth0/statistics/{way}_bytes");
    machine.sh(&format!("cat {file}")).ok().text().trim().parse().expect("a number")
}

/// Asserts that bytes were sent once. Those on their way when the link went away, a small part, may be sent again.
fn assert_sent_once(machine: &Machine, before: u64, bytes: u64) {
    let sent = carried(machine, "tx") - before;
    assert!(sent < bytes * 5 / 4, "{sent} bytes were sent for {bytes}");
}

/// A program that feeds a file to an upload with a pause after each MiB, and says when it is under way.
const SLOWLY: &str = "
import sys, time
with open('file', 'rb') as file:
    for number, part in enumerate(iter(lambda: file.read(1 << 20), b'')):
        sys.stdout.buffer.write(part)
        sys.stdout.flush()
        if number == 9: print('under way', file=sys.stderr)
        time.sleep(0.15)
";

#[test]
fn upload_resumes_after_a_pulled_cable_without_resending() {
    let test = "upload_resumes_after_a_pulled_cable_without_resending";
    let Some(lab) = machines(test) else { return };
    let (laptop, bytes) = (lab.machine("laptop"), 40_000_000);
    laptop.sh(&format!("head -c {bytes} /dev/urandom > file")).ok();
    std::fs::write(laptop.path("/home/lab/slowly.py"), SLOWLY).expect("its file");
    let before = carried(laptop, "tx");
    let upload = "sh -c 'python3 slowly.py | potluck cp - pot://lab/file; echo ended with $?'";
    laptop.start(upload, "under way");
    laptop.unplug();
    pause(DOWN);
    let log = || laptop.log("sh -c");
    wait_until("it to say whom it waits for", DEADLINE, || log().contains("waiting for up to 10m"));
    assert!(!log().contains("ended"), "{}", log());
    laptop.plug_in();
    wait_until("the upload to end", 3 * DEADLINE, || log().contains("ended with"));
    assert!(log().contains("ended with 0"), "{}", log());
    assert_sent_once(laptop, before, bytes);
    laptop.sh("potluck cat pot://lab/file | cmp - file").ok();
}

/// While the interface is down, every address is unreachable at once, also for the call that asks for other donors.
#[test]
fn transfers_resume_after_interface_loss_without_resending() {
    let test = "transfers_resume_after_interface_loss_without_resending";
    let Some(lab) = machines(test) else { return };
    let (head, bench, laptop) =
        (lab.machine("lab-head"), lab.machine("bench-2"), lab.machine("laptop"));
    let bytes = 64_000_000;
    head.sh(&format!("head -c {bytes} /dev/urandom > there && potluck cp there pot://lab/there"))
        .ok();
    laptop.sh(&format!("head -c {bytes} /dev/urandom > here")).ok();
    for (machine, rate) in [(head, 50), (bench, 50), (laptop, 100)] {
        let slowly = format!("root tbf rate {rate}mbit burst 64kb latency 50ms");
        machine.sh(&format!("tc qdisc add dev eth0 {slowly}")).ok();
    }
    let [sent, received] = ["tx", "rx"].map(|way| carried(laptop, way));
    let copies = ["here pot://lab/here", "pot://lab/there there"];
    for copy in copies {
        laptop.start(&format!("sh -c 'potluck cp {copy}; echo ended with $?'"), "");
    }
    wait_until("both to be under way", DEADLINE, || {
        carried(laptop, "tx") - sent > bytes / 8 && carried(laptop, "rx") - received > bytes / 8
    });
    laptop.sh("ip link set eth0 down").ok();
    pause(DOWN);
    let log = |copy: &str| laptop.log(&format!("sh -c 'potluck cp {copy}"));
    for copy in copies {
        // A donor that yielded to something on this machine is given up later than another.
        wait_until("it to say whom it waits for", 3 * DEADLINE, || {
            log(copy).contains("waiting for up to 10m")
        });
        assert!(!log(copy).contains("ended"), "{}", log(copy));
    }
    laptop.sh("ip link set eth0 up").ok();
    for copy in copies {
        wait_until("a copy to end", 3 * DEADLINE, || log(copy).contains("ended with"));
        assert!(log(copy).contains("ended with 0"), "{}", log(copy));
        // None of its calls waits by the shorter limit of a command that has moved nothing.
        assert!(!log(copy).contains("waiting for up to 30s"), "{}", log(copy));
    }
    assert_sent_once(laptop, sent, bytes);
    let sum = |machine: &Machine, line: &str| machine.sh(line).ok().text();
    assert_eq!(sum(head, "potluck cat pot://lab/here | cksum"), sum(laptop, "cksum < here"));
    assert_eq!(sum(head, "cksum < there"), sum(laptop, "cksum < there"));
}
