//! Tests files that are written to a mount from their beginning: in order, and then not.

use super::{Mount, can_mount, mounted};
use crate::pool::content::{Lots, arg, assert_same, bytes};
use crate::pool::extent::cases;
use crate::pool::lab::{Cli, Lab, Lending};
use crate::pool::lent::all_files;
use crate::pool::tap::Tap;
use crate::pool::waiting::{DEADLINE, wait_until};
use rustix::process::Pid;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const CHUNK: usize = 64 << 10;

/// Asserts that the pool has this content at a path, and that it is as safe as promised as soon as each donor was
/// heard.
fn assert_stored(cli: &Cli, path: &str, content: &[u8]) {
    assert_same(&cli.cat(path), content, path);
    wait_until(&format!("{path} to be safe"), DEADLINE, || cli.run(&["verify", path]).code == 0);
    cli.ok(&["verify", "--read", path]);
}

/// Returns the bytes of the files without names that a process has open below a directory.
fn spooled_by(pid: Pid, dir: &Path) -> u64 {
    let open =
        fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("listed").flatten();
    let spooled = open.filter(|file| {
        let target = fs::read_link(file.path()).unwrap_or_default();
        target.starts_with(dir) && target.to_string_lossy().ends_with("(deleted)")
    });
    spooled.map(|file| fs::metadata(file.path()).map_or(0, |about| about.len())).sum()
}

/// Whatever order a program writes in, the file is what a local one would be, also where it was opened for writing
/// alone.
#[test]
fn a_new_file_written_at_random_is_what_a_local_one_would_be() {
    if !can_mount("a_new_file_written_at_random_is_what_a_local_one_would_be") {
        return;
    }
    let lab = Lab::with_donors(3);
    let by_content = &["--copies", "1", "--cut", "content"];
    let spaces =
        [&["--copies", "1"][..], &["--ec", "2+1"], &["--copies", "2", "--plain"], by_content];
    for (number, policy) in spaces.into_iter().enumerate() {
        let space = format!("space-{number}");
        lab.cli.ok(&[&["space", "create", &space, "--chunk-size", "64KiB"][..], policy].concat());
    }
    for (seed, options) in [
        &[][..],
        &["--write-protocol", "sliding-window", "--write-window", "200KiB"],
        &["--write-protocol", "incremental", "--temporary-size", "100KiB"],
        &["--write-protocol", "hybrid", "--write-window", "100KiB", "--temporary-size", "300KiB"],
        &["--write-protocol", "local", "--spool-max", "1MiB"],
    ]
    .into_iter()
    .enumerate()
    {
        let mount = Mount::start(&lab, "pot://", options);
        let mut lots = Lots::new("new files at random", seed as u64);
        for turn in 0..cases(4, 8) {
            let path = format!("space-{}/f-{seed}-{turn}", turn % 4);
            let (mut file, reads) = match lots.below(2) {
                0 => (File::create(mount.at(&path)).expect("made"), false),
                _ => {
                    let mut both = OpenOptions::new();
                    let both = both.read(true).write(true).create(true).truncate(true);
                    (both.open(mount.at(&path)).expect("made"), true)
                }
            };
            let mut model = Vec::new();
            for _ in 0..lots.below(12) {
                let written = bytes(lots.below(1000), lots.below(400_000) as usize);
                match lots.below(8) {
                    0 => {
                        let at = lots.below(model.len() as u64 + 100_000) as usize;
                        file.write_all_at(&written, at as u64).expect("written");
                        model.resize(model.len().max(at + written.len()), 0);
                        model[at..at + written.len()].copy_from_slice(&written);
                    }
                    1 => {
                        let size = lots.below(model.len() as u64 * 3 / 2);
                        file.set_len(size).expect("cut off or extended");
                        model.resize(size as usize, 0);
                    }
                    2 => file.sync_all().expect("donors have it"),
                    3 if reads => {
                        let mut seen = vec![0; model.len()];
                        file.read_exact_at(&mut seen, 0).expect("read");
                        assert_same(&seen, &model, &format!("{path} as it is written"));
                    }
                    _ => {
                        file.seek(std::io::SeekFrom::Start(model.len() as u64)).expect("moved");
                        file.write_all(&written).expect("written");
                        model.extend_from_slice(&written);
                    }
                }
            }
            assert_eq!(file.metadata().expect("seen").len(), model.len() as u64);
            drop(file);
            assert_same(&fs::read(mount.at(&path)).expect("read"), &model, &path);
            assert_stored(&lab.cli, &format!("pot://{path}"), &model);
        }
        lab.cli.ok(&["umount", arg(&mount.dir)]);
    }
}

#[test]
fn stream_turned_edit_sends_only_changes() {
    if !can_mount("a_file_that_is_written_in_order_and_then_elsewhere") {
        return;
    }
    for policy in [&["--copies", "2"][..], &["--ec", "2+1"], &["--copies", "1", "--plain"]] {
        let mut lab = Lab::manager_only(&[]);
        let taps: Vec<Tap> = ["donor-1", "donor-2", "donor-3"]
            .map(|name| lab.lend_behind(name, Tap::listening()))
            .into();
        lab.wait_live();
        let moved = || taps.iter().map(|tap| tap.count()).sum::<usize>();
        lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "64KiB"], policy].concat());
        let mount = Mount::start(&lab, "pot://lab", &["--spool-max", "1MiB"]);
        // A donor that is silent for seconds, on a busy machine, has its chunks sent again, so a second file is
        // tried.
        let mut sent = Vec::new();
        while sent.last().is_none_or(|bytes| *bytes >= 40 * CHUNK) {
            assert!(sent.len() < 3, "{policy:?}: {sent:?} bytes were moved");
            let name = format!("f-{}", sent.len());
            // The file has more than one part.
            let mut content = bytes(sent.len() as u64, (66 << 20) + 5);
            let at_first = moved();
            let mut writer = File::create(mount.at(&name)).expect("made");
            writer.write_all(&content).expect("written");
            writer.sync_all().expect("donors have it");
            let before = moved();
            assert!(before - at_first > content.len(), "the taps hear it all");

            // A program may write a header at the end, cut off what it wrote too much, and go on.
            writer.write_all_at(b"header", 5).expect("written");
            content[5..11].copy_from_slice(b"header");
            let size = (65 << 20) + 3;
            writer.set_len(size as u64).expect("cut off");
            content.truncate(size);
            writer.write_all_at(b"more", size as u64).expect("written");
            content.extend_from_slice(b"more");
            drop(writer);
            sent.push(moved() - before);
            assert_stored(&lab.cli, &format!("pot://lab/{name}"), &content);
        }
    }
}

/// What a program writes out of order may be much more than the spool takes: it is stored before the file is closed.
#[test]
fn a_file_written_backwards_may_be_larger_than_the_spool() {
    let policy = ["--chunk-size", "64KiB", "--copies", "2"];
    let Some((lab, mount)) = mounted(
        "a_file_written_backwards_may_be_larger_than_the_spool",
        2,
        &policy,
        &["--spool-max", "1MiB"],
    ) else {
        return;
    };
    let content = bytes(4, 9 << 20);
    let writer = File::create(mount.at("f")).expect("made");
    for at in (0..content.len()).step_by(300_000).collect::<Vec<_>>().into_iter().rev() {
        let piece = &content[at..content.len().min(at + 300_000)];
        writer.write_all_at(piece, at as u64).expect("written");
        let spooled = spooled_by(mount.running.pid(), lab.dir());
        assert!(spooled > 0, "it is kept there first");
    }
    lab.cli.fails(3, &["stat", "pot://lab/f"]);
    drop(writer);
    assert_stored(&lab.cli, "pot://lab/f", &content);
}

#[test]
fn mmapped_changes_are_stored() {
    let Some((lab, mount)) =
        mounted("a_file_that_is_mapped_into_memory", 1, &["--chunk-size", "64KiB"], &[])
    else {
        return;
    };
    // The file is streamed, mapped while it is open, changed, and written on in order.
    let script = r#"
import mmap, os, sys
f = open(sys.argv[1], "w+b", buffering=0)
for n in range(40):
    f.write(bytes([n]) * 50000)
with mmap.mmap(f.fileno(), 0) as m:
    assert m[49999:50001] == b"\x00\x01", m[49999:50001]
    m[70000:70005] = b"mmap!"
    m.flush()
f.seek(0, 2)
f.write(b"end")
f.close()
"#;
    let mut python = std::process::Command::new("python3");
    let status = python.args(["-c", script]).arg(mount.at("f")).status();
    let Ok(status) = status else {
        return crate::pool::waiting::skip("a_file_that_is_mapped_into_memory", "it takes python3");
    };
    assert!(status.success());
    let mut content: Vec<u8> = (0..40).flat_map(|n| vec![n; 50_000]).collect();
    content[70_000..70_005].copy_from_slice(b"mmap!");
    content.extend_from_slice(b"end");
    assert_stored(&lab.cli, "pot://lab/f", &content);
}

#[test]
fn sequential_write_through_rdwr_needs_no_spool() {
    let policy = ["--chunk-size", "64KiB"];
    let Some((lab, mount)) =
        mounted("a_file_opened_for_reading_and_writing", 1, &policy, &["--spool-max", "1MiB"])
    else {
        return;
    };
    let content = bytes(7, 12 << 20);
    let mut both = OpenOptions::new();
    both.read(true).write(true).create(true).truncate(true);
    let mut file = both.open(mount.at("f")).expect("made");
    for piece in content.chunks(1 << 20) {
        file.write_all(piece).expect("written");
        assert_eq!(spooled_by(mount.running.pid(), lab.dir()), 0);
    }
    // It is read back before it is closed.
    file.rewind().expect("moved");
    let mut seen = Vec::new();
    file.read_to_end(&mut seen).expect("read");
    assert_same(&seen, &content, "as it is written");
    drop(file);
    assert_stored(&lab.cli, "pot://lab/f", &content);
    drop(OpenOptions::new().append(true).open(mount.at("f")).expect("opened"));
    assert_stored(&lab.cli, "pot://lab/f", &content);
}

/// Incremental write keeps what a program is ahead of donors on this machine's disk, within a bound.
#[test]
fn incremental_write_keeps_a_bounded_amount_in_temporary_files() {
    if !can_mount("incremental_write_keeps_a_bounded_amount_in_temporary_files") {
        return;
    }
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let options = ["--write-protocol", "incremental", "--temporary-size", "1MiB"];
    let mount = Mount::start(&lab, "pot://lab", &options);
    let content = bytes(8, 40 << 20);
    let mut file = File::create(mount.at("f")).expect("made");
    let mut most = 0;
    for (number, piece) in content.chunks(100_000).enumerate() {
        if number == 100 {
            lab.kill_manager(); // soon nothing is pushed any more
            lab.start_manager();
        }
        file.write_all(piece).expect("written");
        most = most.max(spooled_by(mount.running.pid(), lab.dir()));
    }
    assert!(most > 0, "nothing was on the disk");
    assert!(most <= 6 << 20, "{most} bytes were on the disk");
    drop(file);
    assert_eq!(spooled_by(mount.running.pid(), lab.dir()), 0, "they are given back");
    assert_stored(&lab.cli, "pot://lab/f", &content);
    assert!(all_files(lab.dir()).iter().all(|path| !path.ends_with("spool/tmp")));
}

/// Mounts a space with one file, `f`, of which each byte that goes to its donor is counted.
fn counted(test: &str) -> Option<(Lab, Tap, Mount)> {
    if !can_mount(test) {
        return None;
    }
    let mut lab = Lab::manager_only(&[]);
    let tap = lab.lend_behind("donor-1", Tap::listening());
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "1"]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    fs::write(mount.at("f"), bytes(1, 1 << 20)).expect("written");
    Some((lab, tap, mount))
}

/// An fsync of a file that is changed in place returns when donors have what changed.
#[test]
fn fsync_of_an_edit_stores_its_changes() {
    let Some((lab, tap, mount)) = counted("fsync_of_a_changed_file_returns") else { return };
    let file = OpenOptions::new().read(true).write(true).open(mount.at("f")).expect("opened");
    file.write_all_at(&bytes(2, 10 * CHUNK), 0).expect("written");
    let before = tap.count();
    file.sync_all().expect("synced");
    assert!(tap.count() - before >= 10 * CHUNK, "donors have it");
    let before = tap.count();
    file.sync_all().expect("synced");
    drop(file);
    assert!(tap.count() - before < CHUNK, "nothing is sent twice");
    let expected = [bytes(2, 10 * CHUNK), bytes(1, 1 << 20)[10 * CHUNK..].to_vec()].concat();
    assert_stored(&lab.cli, "pot://lab/f", &expected);
}

/// A descriptor that only reads syncs what others wrote, and each write of one with `O_DSYNC` is synced.
#[test]
fn fsync_on_any_descriptor_and_o_dsync_flush_the_file() {
    let Some((lab, tap, mount)) = counted("what_was_written_is_synced_by_any_descriptor") else {
        return;
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = options.open(mount.at("f")).expect("opened");
    let syncing = options.custom_flags(libc::O_DSYNC).open(mount.at("f")).expect("opened");
    let reader = File::open(mount.at("f")).expect("opened");
    file.write_all_at(&bytes(2, 10 * CHUNK), 0).expect("written");
    let before = tap.count();
    reader.sync_all().expect("synced");
    assert!(tap.count() - before >= 10 * CHUNK, "donors have what others wrote");
    let before = tap.count();
    syncing.write_all_at(&bytes(3, 10 * CHUNK), 0).expect("written");
    assert!(tap.count() - before >= 10 * CHUNK, "donors have what was written");
    drop((file, syncing, reader));
    let expected = [bytes(3, 10 * CHUNK), bytes(1, 1 << 20)[10 * CHUNK..].to_vec()].concat();
    assert_stored(&lab.cli, "pot://lab/f", &expected);
}

/// A pool that takes no more says so at write(), long before all is written.
#[test]
fn a_program_that_writes_more_than_its_quota_hears_so_soon() {
    let policy = ["--chunk-size", "64KiB"];
    for protocol in ["auto", "incremental", "local"] {
        let options = ["--write-protocol", protocol, "--spool-max", "8MiB"];
        let name = "a_program_that_writes_more_than_its_quota_hears_so_soon";
        let Some((lab, mount)) = mounted(name, 1, &policy, &options) else { return };
        lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "2MiB"]);
        let mut file = File::create(mount.at("f")).expect("made");
        let mut written = 0;
        let refused = loop {
            match file.write_all(&bytes(written, 100_000)) {
                Ok(()) => written += 100_000,
                Err(why) => break why,
            }
            assert!(written < 500 << 20, "{protocol}: nobody said no");
        };
        let code = refused.raw_os_error();
        assert!([Some(libc::EDQUOT), Some(libc::ENOSPC)].contains(&code), "{protocol}: {refused}");
        drop(file);
        lab.cli.fails(3, &["stat", "pot://lab/f"]);
    }
}

/// A program whose file waits in the spool also hears at write() that it exceeds the quota, however large the spool is.
#[test]
fn spooled_file_over_quota_fails_early() {
    let name = "spooled_file_over_quota_fails_early";
    const PIECE: u64 = 1 << 20;
    for (protocol, is_in_order) in [("local", true), ("auto", false)] {
        let options = ["--write-protocol", protocol, "--spool-max", "2GiB"];
        let Some((lab, mount)) = mounted(name, 1, &[], &options) else { return };
        fs::write(mount.at("f"), "old").expect("written");
        // A file that takes the place of one as large is not refused, whatever the quota is.
        fs::write(mount.at("replaced"), bytes(1, 70 << 20)).expect("written");
        lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "50MiB"]);
        let file = OpenOptions::new().write(true).open(mount.at("replaced")).expect("opened");
        for at in (0..70).rev() {
            file.write_all_at(&bytes(2, PIECE as usize), at * PIECE).expect("no more than before");
        }
        // A file that has no name any more is not refused either.
        fs::remove_file(mount.at("replaced")).expect("removed");
        for at in 70..110 {
            file.write_all_at(&bytes(2, PIECE as usize), at * PIECE).expect("never published");
        }
        drop(file);
        lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "100MiB"]);

        let file = OpenOptions::new().write(true).open(mount.at("f")).expect("opened");
        let refused = (0..400).find_map(|number| {
            let at = if is_in_order { number } else { 399 - number };
            let written = file.write_all_at(&bytes(number, PIECE as usize), at * PIECE);
            written.err().map(|why| (number, why.raw_os_error()))
        });
        let (after, why) = refused.expect("nobody said no");
        assert_eq!(why, Some(libc::EDQUOT), "{protocol}");
        assert!(after <= 140, "{protocol}: {after} MiB");
        // SAFETY: the descriptor is this test's own, and nobody else closes it.
        let closed = unsafe { libc::close(file.into_raw_fd()) };
        let why = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((closed, why), (-1, Some(libc::EDQUOT)), "{protocol}");
        assert_eq!(lab.cli.cat("pot://lab/f"), b"old");
    }
}

/// A program whose file waits in the spool hears at write() that donors have no room for it, and not only at close().
#[test]
fn spooled_file_without_donor_room_fails_early() {
    if !can_mount("spooled_file_without_donor_room_fails_early") {
        return;
    }
    const PIECE: u64 = 1 << 20;
    let mut lab = Lab::manager_only(&[]);
    lab.lend("donor", Lending { max: "150MiB".into(), ..Lending::default() });
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "1MiB", "--copies", "1"]);
    let mount = Mount::start(&lab, "pot://lab", &["--spool-max", "2GiB"]);
    let piece = |number: u64| bytes(number, PIECE as usize);
    let file = File::create(mount.at("fits")).expect("made");
    (0..40).rev().for_each(|at| file.write_all_at(&piece(at), at * PIECE).expect("it fits"));
    drop(file);
    assert_stored(&lab.cli, "pot://lab/fits", &(0..40).flat_map(piece).collect::<Vec<u8>>());

    let file = File::create(mount.at("f")).expect("made");
    let refused = (0..400).find_map(|number| {
        let written = file.write_all_at(&piece(100 + number), (399 - number) * PIECE);
        written.err().map(|why| (number, why.raw_os_error()))
    });
    let (after, why) = refused.expect("nobody said no");
    assert_eq!(why, Some(libc::ENOSPC));
    assert!(after < 160, "{after} MiB, and donors had room for 110");
    let synced = file.sync_all().expect_err("it is not safe");
    assert_eq!(synced.raw_os_error(), Some(libc::ENOSPC));
    // SAFETY: the descriptor is this test's own, and nobody else closes it.
    let closed = unsafe { libc::close(file.into_raw_fd()) };
    let why = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((closed, why), (-1, Some(libc::ENOSPC)));
    lab.cli.fails(3, &["stat", "pot://lab/f"]);
}

/// What a program saw while it wrote, and what the pool had already, is told of each file.
#[test]
fn write_report_shows_rate_and_dedup() {
    let policy = ["--chunk-size", "64KiB", "--copies", "2"];
    let name = "a_written_file_tells_how_fast_it_was_written";
    let Some((lab, mount)) = mounted(name, 2, &policy, &[]) else { return };
    let attribute = |file: &str, name: &str| {
        let mut value = [0; 64];
        let got = rustix::fs::getxattr(mount.at(file), format!("user.potluck.{name}"), &mut value);
        got.ok().map(|len| {
            let text = std::str::from_utf8(&value[..len]).expect("text");
            text.parse::<f64>().expect("a number")
        })
    };
    let mut content = bytes(1, 100 * CHUNK);
    let stored = |file: &str| {
        wait_until("it to be stored", DEADLINE, || attribute(file, "asb").is_some());
    };
    fs::write(mount.at("a"), &content).expect("written");
    stored("a");
    assert!(attribute("a", "oab") >= attribute("a", "asb"), "stored later than closed");
    assert_eq!(attribute("a", "held"), Some(0.0));
    content[5] ^= 1;
    fs::write(mount.at("b"), &content).expect("written");
    stored("b");
    assert_eq!(attribute("b", "held"), Some(0.99), "all but one chunk was there");
    fs::write(lab.dir().join("b"), &content).expect("a file");
    let copied = lab.cli.json(&["cp", arg(&lab.dir().join("b")), "pot://lab/c"]);
    assert_eq!(
        (&copied["held_share"], &copied["held_bytes"]),
        (&1.0.into(), &content.len().into())
    );
    assert!(copied["oab_mib_s"].as_f64() >= copied["asb_mib_s"].as_f64(), "{copied}");
    assert!(copied["asb_mib_s"].as_f64() > Some(0.0), "{copied}");
    // A file that nobody wrote through this mount has no rate.
    assert_eq!(attribute("c", "oab"), None);
    // Copies that donors make later are not stored when the file is visible.
    lab.cli.ok(&["space", "create", "later", "--copies", "2", "--mirror", "server-async"]);
    let copied = lab.cli.json(&["cp", arg(&lab.dir().join("b")), "pot://later/c"]);
    assert!(copied["pending_copies"].as_u64() > Some(0), "{copied}");
    assert_eq!(copied.get("asb_mib_s"), None, "{copied}");
}
