//! A link may be away for as long as the user likes: transfers go on where they were.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Lab, Lending};
use super::machines::{Machine, Machines, Naming};
use super::program::code_of;
use super::tap::Tap;
use super::waiting::{PATIENCE, pause, wait_until};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Longer than anybody waits for one answer of a donor.
const DOWN: Duration = Duration::from_secs(12);

/// A pool of which every client's link to the donors can be cut; the donors' own link to the manager
/// stays, so that the manager takes them for well.
fn pool(donors: usize) -> (Lab, Vec<Tap>) {
    let mut lab = Lab::manager_only(&["--lease", "2s", "--resume-window", "10m"]);
    let mut taps = Vec::new();
    for number in 1..=donors {
        let (name, tap) = (format!("donor-{number}"), Tap::listening());
        lab.lend(&name, Lending { advertise: Some(tap.address()), ..Lending::default() });
        tap.aim(lab.donor_address(&name));
        taps.push(tap);
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
    wait_until("the first part to be stored", PATIENCE, || lab.chunk_files() >= 8 * 16);
    cut(&taps, true);
    input.write_all(rest).expect("a writer that reads");
    drop(input);
    pause(DOWN);
    assert!(writer.ended().is_none(), "it waits");
    cut(&taps, false);
    assert_eq!(code_of(writer.end_within("the writer", 3 * PATIENCE)), 0);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    assert_eq!(lab.cli.json(&["stat", "pot://lab/f"])["entry"]["version"], 1);
}

#[test]
fn a_put_goes_on_after_the_link_to_the_donors_was_down() {
    put_through_an_outage(2, &["--copies", "2"]);
}

#[test]
fn an_erasure_coded_put_goes_on_after_the_link_to_the_donors_was_down() {
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
    // The rest is asked for only as it is read.
    let rest = std::thread::spawn(move || {
        out.read_to_end(&mut read).expect("the rest");
        read
    });
    pause(DOWN);
    assert!(reader.ended().is_none(), "it waits");
    cut(&taps, false);
    assert_eq!(code_of(reader.end_within("the reader", 3 * PATIENCE)), 0);
    assert_same(&rest.join().expect("a reader"), &content, "the file");
}

#[test]
fn a_get_goes_on_after_the_link_to_the_donors_was_down() {
    get_through_an_outage(2, &["--copies", "2"]);
}

#[test]
fn an_erasure_coded_get_goes_on_after_the_link_to_the_donors_was_down() {
    get_through_an_outage(3, &["--ec", "2+1"]);
}

/// A2: nothing says that they ever will be reached, so that the patience for outages is not for them.
#[test]
fn a2_a_donor_that_only_the_manager_reaches_is_named_soon_and_not_waited_for() {
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
        assert!(ran.took < PATIENCE, "{}: {:?}", ran.command, ran.took);
        assert!(said.contains(&format!("donor-2 at {unreached}")), "{said}");
        assert!(said.contains("firewall"), "{said}");
    }
}

#[test]
fn patience_ends_a_put_whose_donors_stay_away_and_what_was_sent_is_kept() {
    let (lab, taps) = pool(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let content = bytes(3, 12 << 20);
    let mut writer = lab.cli.start(&["--patience", "5s", "--json", "cp", "-", "pot://lab/f"]);
    let mut input = writer.child().stdin.take().expect("a pipe");
    input.write_all(&content[..8 << 20]).expect("a writer that reads");
    wait_until("the first part to be stored", PATIENCE, || lab.chunk_files() >= 8 * 16);
    cut(&taps, true);
    let began = Instant::now();
    input.write_all(&content[8 << 20..]).expect("a writer that reads");
    drop(input);
    assert_eq!(code_of(writer.end_within("the writer", 3 * PATIENCE)), 5);
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    let said = lab.cli.said_by_the_last();
    assert!(said.contains("what was sent is kept") && said.contains("donor-1"), "{said}");
    cut(&taps, false);
    let input = lab.dir().join("input");
    std::fs::write(&input, &content).expect("a file");
    let report = lab.cli.json(&["cp", arg(&input), "pot://lab/f"]);
    assert!(report["resumed_bytes"].as_u64() >= Some(8 << 20), "{report}");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

/// Feeds a file to an upload with a pause after each megabyte, and says when it is under way.
const PACED: &str = "
import sys, time
with open('file', 'rb') as file:
    for number, part in enumerate(iter(lambda: file.read(1 << 20), b'')):
        sys.stdout.buffer.write(part)
        sys.stdout.flush()
        if number == 9: print('under way', file=sys.stderr)
        time.sleep(float(sys.argv[1]))
";

#[test]
fn an_upload_goes_on_after_its_machines_cable_was_pulled_and_sends_nothing_twice() {
    let test = "an_upload_goes_on_after_its_machines_cable_was_pulled_and_sends_nothing_twice";
    upload_through(
        test,
        (40_000_000, "0.15"),
        Duration::from_secs(15),
        |laptop, away| match away {
            true => laptop.unplug(),
            false => laptop.plug_in(),
        },
    );
}

/// Every address is unreachable at once then, and for longer than a manager is waited for by a command
/// that has moved nothing.
#[test]
fn an_upload_goes_on_after_its_machines_interface_was_down_and_sends_nothing_twice() {
    let test = "an_upload_goes_on_after_its_machines_interface_was_down_and_sends_nothing_twice";
    upload_through(test, (400_000_000, "0"), Duration::from_secs(44), |laptop, away| {
        laptop.sh(&format!("ip link set eth0 {}", if away { "down" } else { "up" })).ok();
    });
}

fn upload_through(
    test: &str,
    (bytes, pace): (u64, &str),
    away_for: Duration,
    away: impl Fn(&Machine, bool),
) {
    let names = ["lab-head", "bench-2", "laptop"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, bench, laptop] = names.map(|name| lab.machine(name));
    let token = |role| {
        let said = head.sh(&format!("potluck --json invite --role {role}")).ok().json();
        said["token"].as_str().expect("a token").to_owned()
    };
    head.start("potluck up --max 1GiB --keep-free 0%", "lending");
    bench.sh(&format!("potluck join {}", token("donor"))).ok();
    bench.start("potluck lend lent --max 1GiB --keep-free 0%", "lending");
    laptop.sh(&format!("potluck join {}", token("user"))).ok();
    head.sh("potluck space create lab --chunk-size 1MiB").ok();
    laptop.sh(&format!("head -c {bytes} /dev/urandom > file")).ok();
    std::fs::write(laptop.path("/home/lab/paced.py"), PACED).expect("its file");

    let sent = || -> u64 {
        let file = "/sys/class/net/eth0/statistics/tx_bytes";
        laptop.sh(&format!("cat {file}")).ok().text().trim().parse().expect("a number")
    };
    let before = sent();
    let upload = format!(
        "sh -c 'python3 paced.py {pace} | potluck cp - pot://lab/file; echo ended with $?'"
    );
    laptop.start(&upload, "under way");
    away(laptop, true);
    pause(away_for);
    wait_until("the upload to say whom it waits for", PATIENCE, || {
        laptop.log("sh -c").contains("waiting for up to 10")
    });
    assert!(!laptop.log("sh -c").contains("ended"), "{}", laptop.log("sh -c"));
    away(laptop, false);
    wait_until("the upload to end", 3 * PATIENCE, || laptop.log("sh -c").contains("ended with"));
    assert!(laptop.log("sh -c").contains("ended with 0"), "{}", laptop.log("sh -c"));
    laptop.sh("potluck cat pot://lab/file | cmp - file").ok();
    // What was on its way when the cable was pulled may have been sent again: a small part at this pace.
    let sent = sent() - before;
    assert!(sent < bytes * 5 / 4, "{sent} bytes were sent for {bytes}");
}
