//! Tests that chunks which the pool holds are neither sent nor stored again.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Lab, Lending};
use super::monitoring::{get, value};
use super::ports::free_port;
use super::program::code_of;
use super::tap::Tap;
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[test]
fn storing_the_same_file_twice_moves_no_chunk() {
    let mut lab = Lab::manager_only(&[]);
    let taps = ["donor-1", "donor-2"].map(|name| lab.lend_behind(name, Tap::listening()));
    lab.wait_live();
    let passed = || taps.iter().map(|tap| tap.count()).sum::<usize>();
    for (space, options) in [("sealed", &[][..]), ("open", &["--plain"])] {
        lab.cli.ok(&[&["space", "create", space, "--chunk-size", "256KiB"], options].concat());
        let (input, content) = file(lab.dir(), "input", 8, 16 << 20);
        let path = |name: &str| format!("pot://{space}/{name}");
        let first = lab.cli.json(&["cp", arg(&input), &path("f")]);
        assert!(first["sent_chunks"].as_u64() >= Some(64), "{first}");
        assert_eq!(first["held_chunks"], 0, "{first}");
        // A chunk that was late at one donor, and went to the other as well, may still arrive.
        lab.wait_settled();
        assert!(passed() > 16 << 20, "the taps hear all: {}", passed());
        // The input goes to its own path again, to another path, and from standard input, cut as it is
        // read.
        for (from, name) in [(arg(&input), "f"), (arg(&input), "other/name"), ("-", "piped")] {
            // A donor that a busy machine holds up for seconds does not count, and chunks go to the other.
            let moves_nothing = (0..3).any(|_| {
                let (sent, stored) = (passed(), lab.chunk_files());
                let stdin = File::open(&input).expect("the input");
                let copy = ["--json", "cp", from, &path(name)];
                let again = lab.cli.run_with_input(&copy, stdin.into()).ok().json();
                println!("{name}: {} bytes went to donors: {again}", passed() - sent);
                again["sent_chunks"] == 0
                    && again["sent_bytes"] == 0
                    && again["held_chunks"] == 64
                    // Chunks that a slow donor was thought to lack may have been stored twice, and go again.
                    && lab.chunk_files() <= stored
                    && passed() - sent < 64 << 10
            });
            assert!(moves_nothing, "{name} was sent again, three times");
        }
        for name in ["f", "other/name", "piped"] {
            assert_same(&lab.cli.cat(&path(name)), &content, name);
        }
    }
}

#[test]
fn only_what_changed_is_sent() {
    let lab = Lab::with_options(2, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    // On a busy machine a chunk that is late at one donor is sent to the other as well.
    let is_exact = (0..3).any(|again| {
        let (input, mut content) = file(lab.dir(), "input", 90 + again, 4 << 20);
        lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
        content[3 << 20] ^= 1;
        content.extend(bytes(10, 1000));
        fs::write(&input, &content).expect("the changed file");
        let report = lab.cli.json(&["cp", arg(&input), "pot://lab/f"]);
        assert_same(&lab.cli.cat("pot://lab/f"), &content, "the changed file");
        println!("{report}");
        report["sent_chunks"] == 2 && report["held_chunks"] == 63
    });
    assert!(is_exact, "more than the two chunks that changed were sent, three times");
    lab.wait_left(65);
}

#[test]
fn content_defined_cutting_dedups_after_an_insertion() {
    let mut lab = Lab::with_donors(3);
    let (input, first) = file(lab.dir(), "input", 9, 40 << 20);
    let mut content = first.clone();
    content.splice(1000..1000, bytes(10, 333));
    for (space, options) in [("sealed", &["--copies", "2"][..]), ("open", &["--plain"])] {
        let create = ["space", "create", space, "--chunk-size", "64KiB", "--cut", "content"];
        lab.cli.ok(&[&create[..], options].concat());
        // The file has several parts, for one that is cut by content has 16 MiB in a part.
        fs::write(&input, &first).expect("the file");
        let path = format!("pot://{space}/f");
        lab.cli.ok(&["cp", arg(&input), &path]);
        assert_same(&lab.cli.cat(&path), &first, "cut by content");
        let hash = lab.cli.json(&["hash", arg(&input)]);
        let stat = lab.cli.json(&["stat", &path]);
        assert_eq!(stat["entry"]["digest"], hash["digest"], "{stat}");
        fs::write(&input, &content).expect("the changed file");
        let report = lab.cli.json(&["cp", arg(&input), &path]);
        // The parts end at the same offsets as before, so the chunks at their ends are new, too.
        let sent = report["sent_bytes"].as_u64().expect("a number");
        assert!(sent < 2 << 20, "{report}");
        assert_same(&lab.cli.cat(&path), &content, "the changed file");
        let range = |from: usize, to: usize| {
            let range = format!("{from}-{}", to - 1);
            assert_same(
                &lab.cli.ok(&["cat", &path, "--range", &range]).stdout,
                &content[from..to],
                &range,
            );
        };
        range(0, 10);
        range((16 << 20) - 100_000, (16 << 20) + 100_000);
        range(content.len() - 70_001, content.len());
    }
    // The chunks of such a file are put into groups as they are.
    lab.cli.ok(&["policy", "set", "pot://open", "--ec", "2+1", "-y"]);
    wait_until("the file has its code", DEADLINE * 4, || {
        let text = lab.cli.ok(&["stat", "pot://open/f"]).text();
        text.contains("kept as    2+1") && lab.cli.is_safe("pot://open/f")
    });
    lab.kill_donor("donor-1");
    assert_same(&lab.cli.cat("pot://open/f"), &content, "without one donor");
    let range = "30000000-30000099";
    let part = lab.cli.ok(&["cat", "pot://open/f", "--range", range]).stdout;
    assert_same(&part, &content[30_000_000..30_000_100], "a part of a chunk that is rebuilt");
    let shown = lab.cli.ok(&["policy", "show", "pot://open"]).text();
    assert!(!shown.contains("by content"), "files with a code are cut evenly: {shown}");
}

#[test]
fn a_file_that_repeats_itself_is_sent_once() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let input = lab.dir().join("input");
    // On a busy machine a chunk that is late at one donor is sent to the other as well.
    let is_once = (0..3).any(|again| {
        let content = bytes(110 + again, 64 << 10).repeat(50);
        fs::write(&input, &content).expect("a file");
        let path = format!("pot://lab/{again}");
        let report = lab.cli.json(&["cp", arg(&input), &path]);
        assert_eq!(lab.chunk_names().len() as u64, again + 1);
        assert_same(&lab.cli.cat(&path), &content, "the file");
        println!("{report}");
        report["sent_chunks"] == 1 && report["held_chunks"] == 49
    });
    assert!(is_once, "a chunk was sent more than once, three times");
}

#[test]
fn chunks_that_are_deleted_are_not_counted_on() {
    let lab = Lab::with_options(2, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 12, 2 << 20);
    // The file is stored again at whatever stage of its deletion the content is.
    for round in 0..8 {
        lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
        assert_same(&lab.cli.cat("pot://lab/f"), &content, &format!("the file, round {round}"));
        lab.cli.ok(&["rm", "pot://lab/f"]);
        pause(Duration::from_millis(230 * round));
    }
    lab.wait_clean(0);
}

#[test]
fn chunk_restored_after_deletion_is_readable() {
    let lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 14, 1 << 20);
    for _ in 0..2 {
        lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
        lab.cli.ok(&["rm", "pot://lab/f"]);
        // The deletion is seen on the disk, before the donor's next heartbeat can tell of it.
        wait_until("the chunks to be deleted", DEADLINE, || lab.chunk_files() == 0);
        lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
        // The file is read over some heartbeats, which tell of the deletion and of what came after.
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
        }
        lab.cli.ok(&["rm", "pot://lab/f"]);
        lab.wait_clean(0);
    }
}

#[test]
fn sealed_spaces_share_nothing() {
    let lab = Lab::with_donors(1);
    let (input, _) = file(lab.dir(), "input", 13, 1 << 20);
    for space in ["one", "two"] {
        lab.cli.ok(&["space", "create", space, "--chunk-size", "64KiB"]);
        let report = lab.cli.json(&["cp", arg(&input), &format!("pot://{space}/f")]);
        let sent = report["sent_chunks"].as_u64();
        assert!(sent >= Some(16), "equal content in {space} must not show: {report}");
    }
    assert_eq!(lab.chunk_files(), 32);
}

/// Chunks that were not sent because a donor held them are sent when that donor is given up before the commit.
#[test]
fn deduplicated_chunk_is_sent_when_its_donor_dies_before_commit() {
    let metrics = format!("127.0.0.1:{}", free_port());
    let mut lab =
        Lab::with_options(5, &["--repair-grace", "5s", "--metrics-listen", metrics.as_str()]);
    let offers = || {
        let text = get(&metrics, "/metrics").unwrap_or_default();
        value(&text, "potluck_call_seconds_count{op=\"offer\"}").unwrap_or_default()
    };
    let (input, content) = file(lab.dir(), "input", 21, 16 << 20);
    for (space, redundancy) in [("coded", ["--ec", "2+1"]), ("copies", ["--copies", "2"])] {
        let options = ["space", "create", space, "--plain", "--chunk-size", "64KiB"];
        lab.cli.ok(&[&options[..], &redundancy].concat());
        let path = |name: &str| format!("pot://{space}/{name}");
        lab.cli.ok(&["cp", arg(&input), &path("held")]);
        let holder = lab.cli.shares(&path("held")).into_keys().next().expect("a holder");

        let to = path("f");
        pause(Duration::from_millis(1500)); // longer than the metrics are good for
        let before = offers();
        let mut writer = lab.cli.start(&["--json", "cp", "-", &to]);
        let mut into = writer.child().stdin.take().expect("a pipe");
        let (first, rest) = content.split_at(15 << 20);
        into.write_all(first).expect("a writer that reads");
        // A writer has one offer under way at a time, so that the first was answered.
        wait_until("the second answer to an offer", DEADLINE, || offers() >= before + 2.0);
        lab.donor(&holder).signal(Signal::STOP);
        let state = |lab: &Lab| lab.cli.donor(&holder)["state"].clone();
        wait_until("the frozen donor to be given up", DEADLINE, || state(&lab) == "dead");
        into.write_all(rest).expect("a writer that reads");
        drop(into);
        let code = code_of(writer.end_within("the writer", DEADLINE));
        lab.donor(&holder).signal(Signal::CONT);
        assert_eq!(code, 0);
        lab.kill_donors(&[holder.as_str()]);
        assert_same(&lab.cli.cat(&to), &content, "what was put meanwhile");
        lab.bring_back(&[holder.as_str()]);
        lab.wait_live();
    }
}

#[test]
fn a_file_fits_where_there_is_room_for_what_it_adds() {
    let mut lab = Lab::manager_only(&[]);
    lab.lend("small", Lending { max: "32MiB".into(), ..Lending::default() });
    lab.wait_live();
    let (first, content) = file(lab.dir(), "first", 7, 14 << 20);
    for (space, options) in [("sealed", &[][..]), ("plain", &["--plain"])] {
        let create = ["space", "create", space, "--chunk-size", "256KiB"];
        lab.cli.ok(&[&create[..], options].concat());
        lab.cli.ok(&["cp", arg(&first), &format!("pot://{space}/first")]);
    }
    let (near, sparse) = (lab.dir().join("near"), lab.dir().join("sparse"));
    let mut other = content.clone();
    other[7 << 20..][..100_000].fill(1);
    fs::write(&near, &other).expect("written");
    let made = File::create(&sparse).expect("made");
    made.write_all_at(&bytes(9, 300_000), 30 << 20).expect("written");
    made.set_len(60 << 20).expect("a hole");
    let holes = fs::read(&sparse).expect("read");
    for space in ["sealed", "plain"] {
        // All of the first is there already, of the second all but a little, and holes need hardly any room.
        for (name, local, expected) in
            [("again", &first, &content), ("near", &near, &other), ("sparse", &sparse, &holes)]
        {
            let path = format!("pot://{space}/{name}");
            lab.cli.ok(&["cp", arg(local), &path]);
            assert_same(&lab.cli.cat(&path), expected, &path);
        }
        // What adds more than there is room for is refused before a byte is sent.
        let (more, _) = file(lab.dir(), "more", 8, 14 << 20);
        // Whole chunks are of files; blocks of the metadata log, which come at any time, are smaller.
        let is_whole = |chunk: &PathBuf| fs::metadata(chunk).is_ok_and(|it| it.len() >= 256 << 10);
        let stored = || lab.lent("small").chunks().iter().filter(|it| is_whole(it)).count();
        let before = stored();
        let refused = lab.cli.fails(6, &["cp", arg(&more), &format!("pot://{space}/more")]);
        assert_eq!(refused.code, "POT-E032", "{refused:?}");
        assert_eq!(stored(), before);
    }
}
