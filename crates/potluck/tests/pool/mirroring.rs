//! Tests the four mirroring protocols.

use super::content::{arg, assert_same, bytes, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, wait_until};
use super::writer::Writer;
use rustix::process::Signal;

const PROTOCOLS: [&str; 4] = ["client-sync", "client-async", "server-sync", "server-async"];

fn create(lab: &Lab, mirror: &str) {
    let create = ["space", "create", mirror, "--copies", "2", "--mirror", mirror];
    lab.cli.ok(&[&create[..], &["--chunk-size", "64KiB"]].concat());
}

#[test]
fn every_protocol_makes_all_copies_and_says_when() {
    let lab = Lab::with_donors(3);
    for (number, mirror) in PROTOCOLS.into_iter().enumerate() {
        create(&lab, mirror);
        let (input, content) = file(lab.dir(), mirror, 30 + number as u64, 4 << 20);
        let path = format!("pot://{mirror}/f");
        lab.cli.ok(&["cp", arg(&input), &path]);
        if !mirror.ends_with("async") {
            // All copies are there when the write returns.
            assert_eq!(lab.cli.json(&["stat", &path])["live_copies"], 2, "{mirror}");
            assert!(lab.cli.is_safe(&path), "{mirror}: {}", lab.cli.health(&path));
        }
        lab.cli.wait_safe(&path);
        wait_until("the end of the unsafe window to be noted", DEADLINE, || {
            lab.cli.health(&path)["safe_since_ms"].is_number()
        });
        let stated = lab.cli.json(&["stat", &path, "--chunks"]);
        assert_eq!(stated["policy"]["mirror"], mirror, "{stated}");
        let chunks = stated["chunk_list"].as_array().expect("chunks");
        assert_eq!(chunks.len(), 64);
        for chunk in chunks {
            assert_eq!(chunk["state"], "complete", "{mirror}: {chunk}");
            // If repair is quicker than a mirror, there is one copy too many for a while.
            let copies = chunk["donors"].as_array().map_or(0, Vec::len);
            assert!((2..=3).contains(&copies), "{mirror}: {chunk}");
        }
        assert_same(&lab.cli.cat(&path), &content, mirror);
        let verified = lab.cli.ok(&["verify", &path]).text();
        assert!(verified.contains("as safe as promised since"), "{mirror}: {verified}");
        let stated = lab.cli.ok(&["stat", &path]).text();
        assert!(stated.contains("kept as    2 copies\n"), "the protocol was the write's: {stated}");
    }
}

#[test]
fn async_write_returns_early_and_reports_the_unsafe_window() {
    let mut lab = Lab::with_donors(2);
    for (number, mirror) in ["client-async", "server-async"].into_iter().enumerate() {
        create(&lab, mirror);
        let (input, content) = file(lab.dir(), mirror, 40 + number as u64, 1 << 20);
        let path = format!("pot://{mirror}/f");
        lab.donor("donor-2").signal(Signal::STOP);
        let ran = lab.cli.ok(&["cp", arg(&input), &path]);
        assert!(ran.stderr.contains("unsafe window"), "{mirror}: {}", ran.stderr);
        let health = lab.cli.health(&path);
        assert!(health["incomplete"].as_u64() > Some(0), "{mirror}: {health}");
        assert!(health["safe_since_ms"].is_null(), "{mirror}: {health}");
        let pending = lab.cli.json(&["stat", &path, "--chunks"]);
        assert!(
            pending["chunk_list"]
                .as_array()
                .expect("chunks")
                .iter()
                .all(|chunk| chunk["state"] == "pending"),
            "{pending}"
        );
        let verified = lab.cli.run(&["verify", &path]).exits(4).text();
        assert!(verified.contains("in its unsafe window: not all"), "{mirror}: {verified}");
        assert_same(&lab.cli.cat(&path), &content, mirror);

        lab.donor("donor-2").signal(Signal::CONT);
        lab.cli.wait_safe(&path);
        lab.cli.ok(&["verify", &path, "--read"]);
        // The other donor alone is enough now.
        lab.kill_donor("donor-1");
        assert_same(&lab.cli.cat(&path), &content, mirror);
        lab.bring_back(&["donor-1"]);
    }
}

/// Every donor is the first of some chunks and the mirror of others, so that the death of one is
/// both the death of a first donor and that of a mirror.
#[test]
fn every_protocol_survives_the_death_of_a_donor_in_mid_write() {
    let mut lab = Lab::with_options(4, &["--repair-grace", "1s"]);
    for (number, mirror) in PROTOCOLS.into_iter().enumerate() {
        create(&lab, mirror);
        let (input, content) = file(lab.dir(), mirror, 50 + number as u64, 16 << 20);
        let path = format!("pot://{mirror}/f");
        let before = lab.chunk_files();
        let mut writing = lab.cli.start(&["cp", arg(&input), &path]);
        wait_until("chunks to flow", DEADLINE, || lab.chunk_files() > before + 50);
        let victim = format!("donor-{}", number + 1);
        lab.kill_donor(&victim);
        assert!(writing.end("the writer").success(), "{mirror} without {victim}");
        // In the unsafe window of an asynchronous protocol the dead donor may have the only copy.
        if mirror.ends_with("async") {
            lab.bring_back(&[&victim]);
        }
        assert_same(&lab.cli.cat(&path), &content, &format!("{mirror} without {victim}"));
        wait_until("two copies to live", DEADLINE, || {
            lab.cli.json(&["stat", &path])["live_copies"] == 2
        });
        lab.cli.wait_safe(&path);
        if !mirror.ends_with("async") {
            lab.bring_back(&[&victim]);
        }
    }
}

/// D3: a donor may die after it has acknowledged a chunk and before it has forwarded it. What came through a pipe is
/// nowhere else then: the write is not acknowledged without that donor, and waits for it as long as it may. If the donor
/// has forwarded all that it took, the write ends without it.
#[test]
fn a_server_async_write_waits_for_what_only_a_dead_donor_has_d3() {
    let mut lab = Lab::with_options(4, &["--repair-grace", "10min"]);
    create(&lab, "server-async");
    for (seed, name, limit) in [(60, "patient", "1min"), (61, "hasty", "2s")] {
        let path = format!("pot://server-async/{name}");
        let content = bytes(seed, 16 << 20);
        let before = lab.chunk_files();
        let mut writer = Writer::start(&lab.cli, &path, &["--retry-for", limit]);
        std::thread::scope(|scope| {
            let feeding = scope.spawn(|| writer.feed(&content));
            wait_until("chunks to flow", DEADLINE, || lab.chunk_files() > before + 100);
            lab.kill_donor("donor-1");
            feeding.join().expect("a writer that reads");
        });
        writer.end_input();
        let has_ended = |writer: &mut Writer| writer.running.ended().is_some();
        wait_until("the write to end or to wait for the donor", DEADLINE, || {
            let said = lab.cli.said_by_the_last();
            has_ended(&mut writer) || said.contains("donor-1 does not answer; waiting")
        });
        let waits = !has_ended(&mut writer);
        if waits && name == "patient" {
            lab.start_donor("donor-1");
            assert_eq!(writer.finish(), 0);
            assert_same(&lab.cli.cat(&path), &content, name);
        } else {
            let code = writer.finish();
            let said = lab.cli.said_by_the_last();
            if code == 0 {
                assert_same(&lab.cli.cat(&path), &content, &format!("{name}, without the donor"));
            } else {
                assert_eq!((name, code), ("hasty", 5), "{said}");
                assert!(said.contains(&path) && said.contains("run the same command"), "{said}");
                lab.cli.fails(3, &["stat", &path]);
            }
            lab.start_donor("donor-1");
        }
        lab.wait_back("donor-1");
    }
}

/// D3: what only a dead donor took of a local file is read again from the file, and sent to another donor.
#[test]
fn chunk_lost_with_a_donor_is_reread_from_the_local_file_d3() {
    let mut lab = Lab::with_options(4, &["--repair-grace", "10min"]);
    create(&lab, "server-async");
    lab.cli.ok(&["space", "create", "single", "--copies", "1", "--chunk-size", "64KiB"]);
    for (seed, space) in [(62, "server-async"), (63, "single")] {
        let (input, content) = file(lab.dir(), space, seed, 64 << 20);
        let path = format!("pot://{space}/f");
        let before = lab.chunk_files();
        let mut writing = lab.cli.start(&["cp", arg(&input), &path]);
        wait_until("chunks to flow", DEADLINE, || lab.chunk_files() > before + 100);
        lab.kill_donor("donor-1");
        let ended = writing.end("the writer");
        assert!(ended.success(), "{space}: {}", lab.cli.said_by_the_last());
        assert_same(&lab.cli.cat(&path), &content, &format!("{space}, without the donor"));
        lab.bring_back(&["donor-1"]);
    }
}
