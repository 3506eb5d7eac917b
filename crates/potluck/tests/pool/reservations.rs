//! Tests room that is reserved before it is written (F4).

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Lab, Lending};
use super::mounts::{Mount, can_mount};
use super::waiting::{DEADLINE, wait_until};
use rustix::fs::{XattrFlags, getxattr, setxattr, statvfs};
use rustix::io::Errno;
use std::fs;
use std::io::Write;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Makes a pool of one donor that lends `lend`.
fn small_pool(lend: &str) -> Lab {
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    lab.lend("donor", Lending { max: lend.into(), ..Lending::default() });
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "1MiB", "--plain"]);
    lab
}

fn left(lab: &Lab) -> Vec<u64> {
    let listed = lab.cli.json(&["reserve", "ls"]);
    let all = listed["reservations"].as_array().expect("a list").iter();
    all.map(|reservation| reservation["left"].as_u64().expect("bytes")).collect()
}

#[test]
fn reservations_hold_across_a_manager_restart_f4() {
    let mut lab = small_pool("100MiB");
    let (forty, content) = file(lab.dir(), "forty", 1, 40 << 20);
    let (thirty, _) = file(lab.dir(), "thirty", 2, 30 << 20);
    let (fifty, _) = file(lab.dir(), "fifty", 3, 50 << 20);
    let reserved = lab.cli.json(&["reserve", "60MiB", "pot://lab/run", "--for", "4h"]);
    assert_eq!((&reserved["bytes"], &reserved["left"]), (&(60 * MIB).into(), &(60 * MIB).into()));
    // Nobody else gets the room, though the program that reserved it has ended, and a restart changes
    // nothing.
    let refused = |lab: &Lab| lab.cli.fails(6, &["cp", arg(&forty), "pot://lab/elsewhere"]);
    refused(&lab);
    lab.kill_manager();
    lab.start_manager();
    lab.wait_live();
    assert_eq!(left(&lab), [60 * MIB]);
    refused(&lab);
    // What is written below the path takes of the room, and what a write did not need comes back.
    lab.cli.ok(&["cp", arg(&forty), "pot://lab/run/f"]);
    assert_same(&lab.cli.cat("pot://lab/run/f"), &content, "the file");
    wait_until("what is left", DEADLINE, || left(&lab) == [20 * MIB]);
    lab.cli.fails(6, &["cp", arg(&fifty), "pot://lab/elsewhere"]);
    lab.kill_manager();
    lab.start_manager();
    lab.wait_live();
    assert_eq!(left(&lab), [20 * MIB], "and not what was used of it");
    // Once released, the room is everybody's; so it is when its time is over.
    let id = reserved["id"].as_str().expect("an identifier");
    lab.cli.ok(&["reserve", "release", id]);
    lab.cli.ok(&["reserve", "release", id]);
    assert_eq!(left(&lab), Vec::<u64>::new());
    lab.cli.ok(&["reserve", "40MiB", "pot://lab/short", "--for", "10s"]);
    lab.cli.fails(6, &["cp", arg(&thirty), "pot://lab/elsewhere"]);
    wait_until("its end", DEADLINE, || left(&lab).is_empty());
    lab.cli.ok(&["cp", arg(&thirty), "pot://lab/elsewhere"]);
}

#[test]
fn reservations_count_in_quotas_and_are_bounded() {
    let lab = small_pool("100MiB");
    lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "50MiB"]);
    lab.cli.ok(&["reserve", "40MiB", "pot://lab/run"]);
    lab.cli.fails(6, &["reserve", "20MiB", "pot://lab/other"]);
    let (twenty, _) = file(lab.dir(), "twenty", 1, 20 << 20);
    lab.cli.fails(6, &["cp", arg(&twenty), "pot://lab/other"]);
    lab.cli.ok(&["cp", arg(&twenty), "pot://lab/run/f"]);
    lab.cli.ok(&["quota", "set", "pot://lab", "--none"]);
    lab.cli.fails(2, &["reserve", "1MiB", "pot://lab/x", "--for", "31d"]);
    lab.cli.fails(6, &["reserve", "1TiB", "pot://lab/x"]);
    lab.cli.fails(3, &["reserve", "1MiB", "pot://none/x"]);
}

#[test]
fn a_program_reserves_by_an_attribute_and_df_tells_what_fits() {
    if !can_mount("a_program_reserves_by_an_attribute_and_df_tells_what_fits") {
        return;
    }
    let lab = small_pool("100MiB");
    lab.cli.ok(&["mkdir", "pot://lab/run"]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    let run = Mount::start_in(&lab, "of-run", "pot://lab/run", &[]);
    let set = |value: &str| {
        let name = "user.potluck.reserve";
        setxattr(mount.at("run"), name, value.as_bytes(), XattrFlags::empty())
    };
    let get = |at: &Path| {
        let mut room = [0; 100];
        let len = getxattr(at, "user.potluck.reserve", &mut room[..])?;
        Ok(String::from_utf8_lossy(&room[..len]).into_owned())
    };
    let free = |mount: &Mount| {
        let told = statvfs(&mount.dir).expect("told");
        told.f_bavail * told.f_frsize / MIB
    };
    let before = free(&mount);
    assert_eq!(get(&mount.at("run")), Err(Errno::NODATA));
    set("60MiB\n").expect("reserved");
    assert_eq!(get(&mount.at("run")), Ok((60 * MIB).to_string()));
    wait_until("df to tell", DEADLINE, || free(&mount) <= before - 60);
    assert!(free(&run) >= before - 1, "{} of {before}", free(&run));
    assert_eq!(set("many"), Err(Errno::INVAL));
    for too_much in ["1000TiB", "90MiB"] {
        assert_eq!(set(too_much), Err(Errno::NOSPC), "{too_much}");
        assert_eq!(left(&lab), [60 * MIB], "what was reserved stays");
    }
    set("50MiB").expect("no more than there was, though both do not fit");
    set("10MiB").expect("in the place of the other");
    assert_eq!(left(&lab), [10 * MIB]);
    set("0").expect("none");
    assert_eq!(get(&mount.at("run")), Err(Errno::NODATA));
    // What another member reserves there is beside that, and each sets only its own.
    let bert = lab.cli.at_home(&lab.dir().join("bert"));
    bert.ok(&["join", &lab.token("user"), "--name", "bert"]);
    lab.cli.ok(&["space", "grant", "lab", "bert", "read", "write"]);
    let his = Mount::start_as(&bert, lab.dir(), "his", "pot://lab", &[]);
    set("10MiB").expect("reserved");
    for value in ["5MiB", "6MiB"] {
        let name = "user.potluck.reserve";
        setxattr(his.at("run"), name, value.as_bytes(), XattrFlags::empty()).expect("reserved");
    }
    assert_eq!(get(&mount.at("run")), Ok((16 * MIB).to_string()));
    set("0").expect("none");
    assert_eq!(left(&lab), [6 * MIB]);
}

#[test]
fn restarts_of_the_manager_take_no_time_off_a_reservation() {
    let mut lab = small_pool("100MiB");
    lab.cli.ok(&["reserve", "10MiB", "pot://lab/run", "--for", "10m"]);
    let ends = |lab: &Lab| {
        let listed = lab.cli.json(&["reserve", "ls"]);
        listed["reservations"][0]["until_wall_ms"].as_i64().expect("a time")
    };
    let before = ends(&lab);
    for _ in 0..3 {
        lab.kill_manager();
        lab.start_manager();
        lab.wait_live();
    }
    // A manager that was killed does not know how long it ran since it last saved the time, which is less than half a
    // minute, three times.
    let moved = ends(&lab) - before;
    assert!((-1000..120_000).contains(&moved), "the end moved by {moved} ms");
}

#[test]
fn concurrent_unsized_files_fit_and_use_up_a_reservation() {
    if !can_mount("many_files_of_unknown_size_are_written_at_a_time") {
        return;
    }
    let lab = small_pool("120MiB");
    lab.cli.ok(&["mkdir", "pot://lab/run"]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    // Each file is a stream of its own that says nothing of its size.
    let small = |number: usize| fs::File::create(mount.at(&format!("s{number}"))).expect("made");
    let mut open: Vec<_> = (0..12).map(small).collect();
    for file in &mut open {
        file.write_all(&[7; 1000]).expect("written");
    }
    for file in open {
        file.sync_all().expect("room for all");
    }
    lab.cli.ok(&["reserve", "60MiB", "pot://lab/run"]);
    let (rest, _) = file(lab.dir(), "rest", 3, 50 << 20);
    lab.cli.ok(&["cp", arg(&rest), "pot://lab/rest"]);
    for (name, size) in [("one", 40), ("two", 19)] {
        let content = bytes(4, size << 20);
        fs::write(mount.at("run").join(name), &content).expect("what is reserved is used");
        assert_same(&lab.cli.cat(&format!("pot://lab/run/{name}")), &content, name);
    }
}
