//! Tests that owners take their space back, and that nothing is lost that need not be.

use super::content::{arg, assert_same, file};
use super::lab::{Cli, Lab, Lending};
use super::lent::Lent;
use super::program::{Ran, Running, code_of};
use super::small_disk::SmallDisk;
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// The owner of a donor's machine, who has no identity of the pool but the donor's.
pub struct Owner {
    pub cli: Cli,
    pub state: String,
}

impl Owner {
    pub fn of(lab: &Lab, donor: &str) -> Self {
        let cli = lab.cli.at_home(&lab.dir().join(format!("owner-of-{donor}")));
        Self { cli, state: arg(&lab.donor_state(donor)).to_owned() }
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.cli.run(&[&["give-back", "--state", &self.state], args].concat())
    }

    pub fn drain(&self, args: &[&str]) -> Ran {
        self.cli.run(&[&["drain", "--state", &self.state], args].concat())
    }
}

/// Returns the bytes of a donor's files that hold chunks or parts of chunks.
pub fn held(lent: &Lent) -> u64 {
    let files = [lent.chunks(), lent.temp(), lent.quarantine()].concat();
    files.iter().filter_map(|path| fs::metadata(path).ok()).map(|about| about.len()).sum()
}

fn two_copies(lab: &Lab, seed: u64, len: usize) -> Vec<u8> {
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", seed, len);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    content
}

#[test]
fn a_machine_that_gives_all_back_may_go_once_it_is_said() {
    let mut lab = Lab::with_options(3, &["--gc-delay", "1s"]);
    let content = two_copies(&lab, 1, 4 << 20);
    let owner = Owner::of(&lab, "donor-1");
    let planned = owner.drain(&["-n"]).ok().text();
    assert!(planned.contains("nothing is lost"), "{planned}");
    assert!(!lab.lent("donor-1").chunks().is_empty());

    let begun = owner.drain(&["--no-wait"]).ok().text();
    assert!(begun.contains("moved first"), "{begun}");
    wait_until("“safe to remove”", DEADLINE, || {
        let back = lab.cli.donor("donor-1")["giving_back"].clone();
        if back["safe_to_remove"] != true {
            return false;
        }
        // “Safe to remove” is true the moment it is said.
        assert!(lab.lent("donor-1").chunks().is_empty(), "{back}");
        assert!(lab.cli.is_safe("pot://lab/f"), "{}", lab.cli.health("pot://lab/f"));
        true
    });
    let done = owner.drain(&[]).ok().text();
    assert!(done.contains("safe to remove"), "{done}");
    let status = lab.cli.ok(&["status"]).text();
    assert!(status.contains("safe to remove"), "{status}");
    // Nothing new goes to that donor.
    let (other, other_content) = file(lab.dir(), "other", 2, 1 << 20);
    lab.cli.ok(&["cp", arg(&other), "pot://lab/g"]);
    assert!(!lab.cli.shares("pot://lab/g").contains_key("donor-1"));
    lab.kill_donor("donor-1");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file without it");

    // The owner lends again after all.
    lab.bring_back(&["donor-1"]);
    owner.drain(&["--cancel"]).ok();
    let (third, _) = file(lab.dir(), "third", 3, 1 << 20);
    lab.cli.ok(&["cp", arg(&third), "pot://lab/h", "--copies", "3"]);
    assert_eq!(lab.cli.shares("pot://lab/h")["donor-1"], 16);
    assert_same(&lab.cli.cat("pot://lab/g"), &other_content, "the other file");
}

#[test]
fn give_back_keeps_chunks_that_no_donor_takes() {
    let mut lab = Lab::with_donors(2);
    let content = two_copies(&lab, 5, 1 << 20);
    let owner = Owner::of(&lab, "donor-1");
    owner.drain(&["--no-wait"]).ok();
    wait_until("the reason to be said", DEADLINE, || {
        let back = lab.cli.donor("donor-1")["giving_back"].clone();
        assert_eq!(back["safe_to_remove"], false, "{back}");
        back["stuck"].as_u64() > Some(0) && back["stuck_why"].is_string()
    });
    // If the owner stops waiting, the give-back goes on.
    let mut waiting = owner.cli.start(&["drain", "--state", &owner.state]);
    waiting.signal(Signal::INT);
    assert!(!waiting.end("give-back after Ctrl-C").success());
    assert_eq!(lab.cli.donor("donor-1")["giving_back"]["active"], true);
    assert_eq!(lab.lent("donor-1").chunks().len(), 16);
    // Another donor lends more, and the give-back ends.
    lab.lend("donor-3", Lending::default());
    lab.wait_live();
    let done = owner.drain(&[]).ok().text();
    assert!(done.contains("safe to remove"), "{done}");
    lab.kill_donor("donor-1");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn now_lists_what_would_be_lost_and_asks_first() {
    let lab = Lab::with_options(2, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (once, once_content) = file(lab.dir(), "once", 6, 1 << 20);
    let (twice, content) = file(lab.dir(), "twice", 7, 1 << 20);
    lab.cli.ok(&["cp", arg(&once), "pot://lab/once"]);
    lab.cli.ok(&["cp", arg(&twice), "pot://lab/twice", "--copies", "2"]);
    let owner = Owner::of(&lab, "donor-1");
    let before = lab.lent("donor-1").chunks().len();

    let planned = owner.drain(&["--json", "--now", "-n"]).ok().json();
    assert_eq!(
        planned["directories"][0]["lost"],
        serde_json::json!(["pot://lab/once"]),
        "{planned}"
    );
    // There is no terminal on which somebody could be asked.
    let refused = owner.drain(&["--now"]).exits(2);
    assert!(refused.stderr.contains("pot://lab/once"), "{}", refused.stderr);
    assert!(refused.stderr.contains("-y"), "{}", refused.stderr);
    assert_eq!(lab.lent("donor-1").chunks().len(), before, "nothing was deleted");

    owner.drain(&["--now", "-y"]).ok();
    wait_until("all to be gone", DEADLINE, || lab.lent("donor-1").chunks().is_empty());
    assert_same(&lab.cli.cat("pot://lab/twice"), &content, "what had another copy");
    let ran = lab.cli.run(&["--json", "fsck"]);
    if ran.code == 4 {
        // The command does not wait for repair, which on a busy machine can be faster than the deletion.
        assert_same(&lab.cli.cat("pot://lab/once"), &once_content, "what was saved");
        return;
    }
    let found = ran.exits(7).json();
    assert_eq!(found["unreadable"], 1, "what was lost is listed (L1): {found}");
    assert!(found["found"].to_string().contains("pot://lab/once"), "{found}");
}

#[test]
fn drain_and_remove_stop_before_losses() {
    let lab = Lab::with_options(3, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 8, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let refused = lab.cli.fails(10, &["nodes", "rm", "donor-1", "-y"]);
    assert!(refused.message.contains("pot://lab/f"), "{refused:?}");
    assert!(refused.hint.contains("drain"), "{refused:?}");
    let drained = lab.cli.ok(&["drain", "donor-1"]).text();
    assert!(drained.contains("safe to remove"), "{drained}");
    lab.cli.run(&["nodes", "rm", "donor-1"]).exits(2); // there is nobody to ask
    lab.cli.ok(&["nodes", "rm", "donor-1", "-y"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    assert_eq!(lab.cli.fails(3, &["drain", "donor-1"]).code, "POT-E010");
    let listed = lab.cli.ok(&["nodes", "ls"]).text();
    assert!(listed.contains("donor-2") && !listed.contains("donor-1"), "{listed}");
}

#[test]
fn owner_filling_the_disk_loses_no_pool_file() {
    const NAME: &str = "an_owner_who_fills_the_disk";
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    let Some(disk) = SmallDisk::mount(NAME, lab.dir().join("disk"), "size=32m") else { return };
    let lending = Lending {
        dir: Some(disk.path().join("lent")),
        keep_free: "8MiB".into(),
        ..Lending::default()
    };
    lab.lend("small", lending);
    lab.lend("donor-1", Lending::default());
    lab.lend("donor-2", Lending::default());
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--copies", "3", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "create", "once", "--chunk-size", "64KiB", "--width", "3"]);
    let (input, content) = file(lab.dir(), "input", 9, 12 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let (single, single_content) = file(lab.dir(), "single", 10, 6 << 20);
    lab.cli.ok(&["cp", arg(&single), "pot://once/f"]);
    let lent = lab.lent("small");
    let before = held(&lent);
    // About 14 MiB are held; the owner leaves 2 MiB of the 8 that must stay free.
    let free = (32 << 20) - before;
    let grown = free - (2 << 20);
    fs::write(disk.path().join("owners"), vec![7; grown as usize]).expect("room for the owner");
    let took = wait_until("the space to be handed back", DEADLINE, || {
        held(&lent) + grown + (8 << 20) <= 32 << 20
    });
    println!("6 MiB were handed back after {took:?}");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "a file with more copies");
    assert_same(&lab.cli.cat("pot://once/f"), &single_content, "a file with one copy");
}

/// Writes a file at a steady rate, as an owner does who does not stop, and returns when the last byte was written.
fn write_steadily(path: &Path, bytes: u64, bytes_a_second: u64) -> Instant {
    let mut file = File::create(path).expect("the owner's file");
    let (began, piece) = (Instant::now(), vec![7; 1 << 20]);
    let mut written = 0;
    while written < bytes {
        let next = piece.len().min((bytes - written) as usize);
        file.write_all(&piece[..next]).expect("room for the owner: what is to stay free is there");
        written += next as u64;
        let due = Duration::from_secs_f64(written as f64 / bytes_a_second as f64);
        pause(due.saturating_sub(began.elapsed()));
    }
    Instant::now()
}

#[test]
fn disk_filling_owner_gets_space_back_in_ten_seconds_s2() {
    const NAME: &str = "an_owner_who_fills_a_disk_at_200_mb_a_second";
    const DISK: u64 = 768 << 20;
    /// The bytes that are to stay free for the owner: more than a second of writing.
    const RESERVE: u64 = 256 << 20;
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    let at = lab.dir().join("disk");
    let Some(disk) = SmallDisk::of_a_loop_device(NAME, at, DISK) else { return };
    let lending = Lending {
        dir: Some(disk.path().join("lent")),
        keep_free: "256MiB".into(),
        ..Lending::default()
    };
    lab.lend("small", lending);
    (1..=2).for_each(|number| lab.lend(&format!("donor-{number}"), Lending::default()));
    lab.wait_live();
    lab.cli.ok(&["space", "create", "spare", "--copies", "3", "--chunk-size", "1MiB"]);
    lab.cli.ok(&["space", "create", "once", "--chunk-size", "1MiB", "--width", "3"]);
    let (spare, spare_content) = file(lab.dir(), "spare", 11, 128 << 20);
    lab.cli.ok(&["cp", arg(&spare), "pot://spare/f"]);
    let (once, once_content) = file(lab.dir(), "once", 12, 128 << 20);
    lab.cli.ok(&["cp", arg(&once), "pot://once/f"]);
    lab.wait_settled();
    let free = || {
        let about = rustix::fs::statvfs(disk.path()).expect("the disk");
        about.f_bavail * about.f_frsize
    };
    let (before, had) = (held(&lab.lent("small")), free());
    assert!(had > RESERVE, "{had} bytes are free");
    // The owner fills all but 32 MiB of what is free, the reserve too.
    let filled = write_steadily(&disk.path().join("owners"), had - (32 << 20), 200_000_000);
    wait_until("what is to stay free", DEADLINE, || {
        free() >= RESERVE || held(&lab.lent("small")) == 0
    });
    let took = filled.elapsed();
    let given = before - held(&lab.lent("small"));
    println!("{given} of {before} bytes were handed back {took:?} after the disk was filled");
    assert!(took <= Duration::from_secs(10), "{took:?}");
    assert_same(&lab.cli.cat("pot://spare/f"), &spare_content, "a file with more copies");
    assert_same(&lab.cli.cat("pot://once/f"), &once_content, "a file with one copy");
}

#[test]
fn the_cap_holds_to_the_byte_while_files_race_the_donor() {
    const NAME: &str = "the_cap_holds_to_the_byte";
    const CAP: u64 = 8 << 20;
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    let Some(disk) = SmallDisk::mount(NAME, lab.dir().join("disk"), "size=48m") else { return };
    let lending =
        Lending { dir: Some(disk.path().join("lent")), max: "8MiB".into(), ..Lending::default() };
    lab.lend("capped", lending);
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let lent = lab.lent("capped");
    let mut racing: Vec<_> = (0..4)
        .map(|number| {
            let (input, _) = file(lab.dir(), &format!("in-{number}"), 20 + number, 3 << 20);
            lab.cli.start(&["cp", arg(&input), &format!("pot://lab/{number}")])
        })
        .collect();
    let (mut most, mut codes) = (0, Vec::new());
    wait_until("the writers to end", DEADLINE, || {
        most = most.max(held(&lent));
        // The owner's own files come and go on the same disk.
        let owners = disk.path().join("owners");
        fs::write(&owners, vec![1; (most as usize * 7 + 1) % (20 << 20)])
            .expect("the owner's file");
        assert!(most <= CAP, "{most} bytes are held, and {CAP} are lent");
        codes = racing.iter_mut().filter_map(Running::ended).map(code_of).collect();
        codes.len() == racing.len()
    });
    // They bring more than fits, so at least one is told that there is no room, and none fails for anything else.
    assert!(codes.contains(&6) && codes.iter().all(|code| [0, 6].contains(code)), "{codes:?}");
    most = most.max(held(&lent));
    println!("at most {most} of {CAP} bytes were held");
    assert!(most > CAP / 2, "the cap was never near: {most}");
}
