//! Tests that at every moment all commands agree on which donor may go, and on how safe files are.

use super::content::{arg, file};
use super::give_back::Owner;
use super::lab::{Lab, Lending};
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;

/// The answers of all commands that say whether a donor may go.
#[derive(Debug)]
struct Told {
    removal: Value,
    drain: Value,
    owner: Value,
    /// The give-back in the status of the donor, while there is one.
    status: Option<Value>,
}

impl Told {
    fn ask(lab: &Lab, donor: &str) -> Self {
        let asked = |verb: &[&str]| lab.cli.run(&[&["--json"], verb, &[donor, "-n"]].concat());
        let owner = Owner::of(lab, donor).drain(&["--json", "-n"]);
        let (removal, drain) = (asked(&["nodes", "rm"]), asked(&["drain"]));
        let codes = [drain.code, owner.code];
        let [removal, drain, owner] = [removal, drain, owner].map(|told| told.json());
        let owner = owner["directories"][0].clone();
        // Each dry run exits with the code that the command itself would.
        let ends = |told: &Value| if told["may_go"]["verdict"] == "stuck" { 4 } else { 0 };
        assert_eq!(codes, [ends(&drain), ends(&owner)], "{drain:#}, {owner:#}");
        let status = lab.cli.donor(donor)["giving_back"].clone();
        let status = status.is_object().then_some(status);
        Self { removal, drain, owner, status }
    }

    fn verdicts(&self) -> Vec<&Value> {
        let status = self.status.iter();
        let all = [&self.removal, &self.drain, &self.owner].into_iter().chain(status);
        all.map(|told| &told["may_go"]["verdict"]).collect()
    }
}

/// Asks every command about a donor, fails unless all say `verdict`, and returns the reason that `nodes rm` gives.
#[track_caller]
fn assert_all_say(lab: &Lab, stage: &str, donor: &str, verdict: &str) -> String {
    let mut told = Told::ask(lab, donor);
    // The commands run one after the other, so a change between two answers is not a disagreement.
    for _ in 0..3 {
        if told.verdicts().iter().all(|said| **said == verdict) {
            break;
        }
        told = Told::ask(lab, donor);
    }
    let why = told.removal["may_go"]["why"].as_str().expect("a reason").to_owned();
    let said = told.verdicts();
    assert!(said.iter().all(|said| **said == verdict), "{stage}: {donor}: {told:#?}");
    if let Some(status) = &told.status {
        assert_eq!(status["safe_to_remove"], verdict == "now", "{stage}: {status:#}");
    }
    why
}

fn store(lab: &Lab, name: &str, seed: u64, options: &[&str]) {
    let (input, _) = file(lab.dir(), name, seed, 1 << 20);
    let to = format!("pot://lab/{name}");
    lab.cli.ok(&[&["cp", arg(&input), &to], options].concat());
}

fn wait_scanned(lab: &Lab) {
    wait_until("a first look at everything", DEADLINE, || {
        lab.cli.repair()["scanned_seconds"].is_u64()
    });
}

fn lab(donors: usize) -> Lab {
    let lab = Lab::with_options(donors, &["--gc-delay", "1s", "--repair-grace", "2s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--width", "8"]);
    wait_scanned(&lab);
    lab
}

#[test]
fn commands_agree_on_removability_during_a_drain() {
    let mut lab = lab(3);
    assert_all_say(&lab, "with nothing stored", "donor-1", "now");
    store(&lab, "once", 1, &[]);
    assert_all_say(&lab, "right after a commit", "donor-1", "after_moving");
    store(&lab, "thrice", 2, &["--copies", "3"]);
    let why = assert_all_say(&lab, "three copies on three donors", "donor-1", "stuck");
    assert!(why.contains("3 copies need 3 donors and 2 are available"), "{why}");
    let owner = Owner::of(&lab, "donor-1");
    let begun = owner.drain(&["--no-wait"]).ok();
    assert!(begun.text().contains("3 copies need 3 donors"), "at once: {}", begun.text());
    let why = assert_all_say(&lab, "giving back, stuck", "donor-1", "stuck");
    assert!(why.contains("3 copies need 3 donors"), "{why}");
    assert_all_say(&lab, "another while one leaves", "donor-2", "stuck");

    lab.lend("donor-4", Lending::default());
    lab.wait_live();
    wait_until("room for it to move", DEADLINE, || {
        lab.cli.donor("donor-1")["giving_back"]["may_go"]["verdict"] != "stuck"
    });
    wait_until("all to have left", DEADLINE, || {
        let told = Told::ask(&lab, "donor-1");
        let safe = told.status.as_ref().is_some_and(|back| back["safe_to_remove"] == true);
        assert!(!safe || lab.cli.is_safe("pot://lab/thrice"), "{told:#?}");
        safe
    });
    assert_all_say(&lab, "emptied", "donor-1", "now");
    lab.cli.ok(&["nodes", "rm", "donor-1", "-y"]);
    assert!(lab.cli.is_safe("pot://lab/once") && lab.cli.is_safe("pot://lab/thrice"));
}

#[test]
fn commands_agree_on_removability_of_dead_donors() {
    let mut lab = lab(4);
    store(&lab, "coded", 3, &["--ec", "2+1"]);
    store(&lab, "twice", 4, &["--copies", "2"]);
    for donor in lab.donor_names() {
        assert_all_say(&lab, "four donors", &donor, "after_moving");
    }
    lab.kill_donor("donor-4");
    wait_until("it to be given up", DEADLINE, || lab.cli.donor("donor-4")["state"] == "dead");
    wait_until("repair to end", DEADLINE, || {
        lab.cli.is_safe("pot://lab/coded") && lab.cli.is_safe("pot://lab/twice")
    });
    assert_all_say(&lab, "dead and made up for", "donor-4", "now");
    let why = assert_all_say(&lab, "a code on all that live", "donor-3", "stuck");
    assert!(why.contains("2+1 needs 3 donors and 2 are available"), "{why}");
    store(&lab, "once", 5, &["--width", "1"]);
    let holder = lab.cli.shares("pot://lab/once").into_keys().next().expect("a donor");
    lab.kill_donor(&holder);
    wait_until("it to be given up", DEADLINE, || lab.cli.donor(&holder)["state"] == "dead");
    wait_until("that to be seen", DEADLINE, || lab.cli.space("lab")["unreadable"] == 1);
    let why = assert_all_say(&lab, "dead with the only copy", &holder, "stuck");
    assert!(why.contains("1 file needs what only it has"), "{why}");
}

/// docs/membership.md: a donor is removed only when no file needs it.
#[test]
fn needed_live_donor_is_not_removed() {
    let lab = lab(3);
    store(&lab, "twice", 10, &["--copies", "2"]);
    let holders: Vec<String> = lab.cli.shares("pot://lab/twice").into_keys().collect();
    let one = holders[0].as_str();
    let look = lab.cli.run(&["--json", "nodes", "rm", one, "-n"]).exits(10).json();
    assert_eq!((&look["lost_files"], &look["less_safe_files"]), (&0.into(), &1.into()), "{look:#}");
    assert_eq!(look["less_safe"][0], "pot://lab/twice", "{look:#}");
    for verb in ["nodes", "members"] {
        let refused = lab.cli.fails(10, &[verb, "rm", one, "-y"]);
        assert!(refused.message.contains("pot://lab/twice"), "{refused:?}");
        assert!(refused.hint.contains("potluck drain"), "{refused:?}");
        let would = lab.cli.run(&[verb, "rm", one, "-n"]).exits(10).text();
        assert!(would.contains("may go once it is drained"), "{would}");
        assert!(would.contains("not removed without --now"), "{would}");
        assert!(would.contains("1 file would be less safe than promised"), "{would}");
    }
    // The answer about two donors counts what both take away together.
    let both = [&["members", "rm"][..], &[one, holders[1].as_str(), "-n"]].concat();
    let would = lab.cli.run(&both).exits(10).text();
    assert!(would.contains("1 file would be lost for ever"), "{would}");

    lab.cli.ok(&["drain", one]);
    lab.cli.ok(&["nodes", "rm", one, "-y"]);
    assert!(lab.cli.is_safe("pot://lab/twice"), "no file is less safe without it");
    let left = lab.cli.live_donors();
    lab.cli.ok(&["nodes", "rm", left[0].as_str(), "-y", "--now"]);
    assert!(!lab.cli.is_safe("pot://lab/twice"), "as was said");
}

/// A dead donor is removed only once its data is on others, and its chunks are not deleted without a word.
#[test]
fn dead_donor_with_last_copies_is_not_removed() {
    let mut lab = lab(2);
    store(&lab, "twice", 14, &["--copies", "2"]);
    lab.kill_donor("donor-2");
    wait_until("it to be given up", DEADLINE, || lab.cli.donor("donor-2")["state"] == "dead");
    wait_until("that to be seen", DEADLINE, || lab.cli.space("lab")["incomplete"] == 1);
    let why = assert_all_say(&lab, "dead with the second copies", "donor-2", "stuck");
    assert!(why.contains("have not been made again elsewhere"), "{why}");
    let refused = lab.cli.fails(10, &["nodes", "rm", "donor-2", "-y"]);
    assert!(refused.message.contains("pot://lab/twice"), "{refused:?}");
    assert!(
        refused.hint.contains("bring it back") && refused.hint.contains("--now"),
        "{refused:?}"
    );
    lab.cli.ok(&["nodes", "rm", "donor-2", "-y", "--now"]);
    let state = lab.donor_state("donor-2");
    let plan = lab.cli.ok(&["leave", "-n", "--state", arg(&state)]).text();
    assert!(plan.contains("chunks are here") && plan.contains("--adopt-store"), "{plan}");
}

#[test]
fn no_plan_promises_an_end_that_there_cannot_be() {
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    for donor in ["donor-1", "donor-2"] {
        lab.lend(donor, Lending { max: "16MiB".into(), ..Lending::default() });
    }
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    wait_scanned(&lab);
    let (input, _) = file(lab.dir(), "input", 11, 6 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    wait_until("its own count of what it holds", DEADLINE, || {
        lab.cli.donor("donor-1")["used"].as_u64() > Some(6 << 20)
    });
    let owner = Owner::of(&lab, "donor-1");
    let plans = |lab: &Lab| {
        [
            owner.drain(&["-n"]).exits(4).text(),
            owner.run(&["--to", "2MiB", "-n"]).exits(4).text(),
            lab.cli.run(&["drain", "donor-1", "-n"]).exits(4).text(),
        ]
    };
    for plan in plans(&lab) {
        assert!(plan.contains("it cannot come to its end: 2 copies need 2 donors"), "{plan}");
        assert!(!plan.contains("nothing is lost"), "{plan}");
    }
    // A third donor has room for a part only.
    lab.lend("donor-3", Lending { max: "4MiB".into(), ..Lending::default() });
    lab.wait_live();
    for plan in plans(&lab) {
        assert!(plan.contains("it cannot come to its end"), "{plan}");
        assert!(plan.contains("they have no room"), "{plan}");
    }
    let roomy = owner.run(&["--to", "5MiB", "-n"]).ok().text();
    assert!(roomy.contains("moves to them first; nothing is lost"), "{roomy}");
    // A donor that also leaves is named, for it stands in the way.
    Owner::of(&lab, "donor-3").drain(&["--no-wait"]).ok();
    for plan in plans(&lab) {
        assert!(plan.contains("donor-3 gives its space back"), "{plan}");
    }
}

#[test]
fn removable_donors_are_unknown_before_the_first_scan() {
    // The grace is longer than a manager that started waits for its donors before it judges.
    let mut lab = Lab::with_options(2, &["--gc-delay", "1s", "--repair-grace", "60s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--width", "8"]);
    wait_scanned(&lab);
    store(&lab, "once", 6, &[]);
    lab.kill_donor("donor-2");
    // On a busy machine the commands may take longer than the manager waits.
    let is_seen = (0..3).any(|_| {
        lab.kill_manager();
        lab.start_manager();
        let told = Told::ask(&lab, "donor-1");
        let scanned = lab.cli.repair()["scanned_seconds"].is_u64();
        let known = told.verdicts().iter().all(|said| **said != "not_known");
        assert!(scanned || told.verdicts().windows(2).all(|two| two[0] == two[1]), "{told:#?}");
        assert!(!known || scanned, "{told:#?}");
        !known
    });
    assert!(is_seen, "the manager judged at once");
    lab.start_donor("donor-2");
    lab.wait_live();
    wait_scanned(&lab);
    assert_all_say(&lab, "after it", "donor-1", "after_moving");
}

#[test]
fn donor_in_a_single_room_pool_may_leave() {
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    for donor in ["donor-1", "donor-2", "donor-3"] {
        let options = vec!["--label".into(), "room-12".into()];
        lab.lend(donor, Lending { options, ..Lending::default() });
    }
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "2"]);
    wait_scanned(&lab);
    store(&lab, "twice", 7, &[]);
    let holder = lab.cli.shares("pot://lab/twice").into_keys().next().expect("a donor");
    assert_all_say(&lab, "one room", &holder, "after_moving");
    Owner::of(&lab, &holder).drain(&[]).ok();
    assert_all_say(&lab, "emptied", &holder, "now");
    assert_eq!(lab.cli.shares("pot://lab/twice").len(), 2, "two copies, as before");
}

#[test]
fn a_watch_stays_from_before_repair_begins_until_it_has_ended() {
    let mut lab = lab(3);
    store(&lab, "twice", 12, &["--copies", "2"]);
    let holder = lab.cli.shares("pot://lab/twice").into_keys().next().expect("a donor");
    lab.kill_donor(&holder);
    wait_until("it to be missed", DEADLINE, || lab.cli.donor(&holder)["state"] != "live");
    let watched = lab.cli.ok(&["--json", "repair", "status", "--watch"]).json();
    assert!(watched["made"].as_u64() > Some(0), "{watched:#}");
    assert!(lab.cli.is_safe("pot://lab/twice"), "{watched:#}");
    // The next question finds the pool healthy, with nothing left to be made.
    assert_eq!(lab.cli.status()["verdict"]["state"], "healthy", "{watched:#}");
    lab.cli.ok(&["fsck"]);

    // With one donor left, second copies cannot be made, so no time of completion is told.
    let left = lab.cli.live_donors();
    lab.kill_donor(&left[0]);
    wait_until("repair to be stuck", DEADLINE, || {
        let repair = lab.cli.repair();
        let stuck = repair["stuck"].as_u64() > Some(0);
        let why = repair["stuck_why"].as_str().unwrap_or_default();
        assert!(!stuck || repair["eta_seconds"].is_null(), "{repair:#}");
        assert!(!stuck || why.contains(&left[0]) && why.contains("is given up"), "{repair:#}");
        stuck
    });
}

#[test]
fn repair_names_a_give_back_that_blocks_it() {
    let lab = lab(2);
    store(&lab, "twice", 13, &["--copies", "2"]);
    Owner::of(&lab, "donor-1").drain(&["--no-wait"]).ok();
    wait_until("it to be stuck", DEADLINE, || {
        let status = lab.cli.status();
        let why = status["repair"]["stuck_why"].as_str().unwrap_or_default();
        let advice = status["verdict"]["advice"].as_str().unwrap_or_default();
        why.contains("donor-1 gives its space back") && advice.contains("drain donor-1 --cancel")
    });
}

/// Small files are in the catalog: every command says so, and none says how many donors may die.
#[test]
fn every_command_reports_inline_files_as_safe() {
    let lab = lab(1);
    fs::write(lab.dir().join("note"), "42").expect("written");
    lab.cli.ok(&["cp", arg(&lab.dir().join("note")), "pot://lab/note", "--copies", "1"]);
    wait_until("it to be looked at", DEADLINE, || lab.cli.space("lab")["all_in_catalog"] == true);
    let space = lab.cli.space("lab");
    assert_eq!((&space["tolerates"], &space["files"]), (&Value::Null, &1.into()), "{space}");
    assert_eq!(space["in_catalog"], 1, "{space}");
    assert_eq!(lab.cli.health("pot://lab/note")["in_catalog"], true);
    for command in [
        &["status"][..],
        &["stat", "pot://lab/note"],
        &["verify", "pot://lab/note"],
        &["ls", "-l", "pot://lab/"],
    ] {
        let text = lab.cli.ok(command).text();
        assert!(text.contains("catalog"), "{command:?}: {text}");
        assert!(!text.contains("tolerates"), "{command:?}: {text}");
    }
    lab.cli.ok(&["verify", "-r", "pot://lab"]);
}

#[test]
fn joined_donor_without_store_is_not_missed() {
    let lab = lab(1);
    let token = lab.token("donor");
    let later = lab.cli.at_home(&lab.dir().join("later"));
    later.ok(&["join", &token, "--name", "later"]);
    let later = lab.cli.donor("later");
    assert_eq!(later["state"], "joined", "{later}");
    let text = lab.cli.ok(&["status"]).text();
    assert!(text.contains("lends nothing yet") && text.contains("1 of 1 donor live"), "{text}");
    lab.cli.ok(&["nodes", "rm", "later", "-y"]);
}

/// Returns the exit code of each command that says how safe everything is.
fn codes(lab: &Lab) -> [(&'static str, i32); 4] {
    let verify = ["verify", "-r", "pot://lab"];
    let read = ["verify", "-r", "--read", "pot://lab"];
    [
        ("fsck", lab.cli.run(&["fsck"]).code),
        ("verify", lab.cli.run(&verify).code),
        ("verify --read", lab.cli.run(&read).code),
        ("status --check", lab.cli.run(&["status", "--check"]).code),
    ]
}

/// A machine that loses its power closes no connection, so the pool merely hears nothing more of it.
#[test]
fn commands_agree_on_a_silent_machine_at_once() {
    let mut lab = Lab::with_options(3, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "2"]);
    let (input, _) = file(lab.dir(), "input", 15, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    wait_all_end(&lab, "all well", 0);
    // Each command runs once, and nothing is waited for between them.
    lab.donor("donor-3").signal(Signal::STOP);
    assert_eq!(lab.cli.run(&["status", "--check"]).code, 4, "the first to be asked");
    assert_eq!(codes(&lab).map(|(_, code)| code), [4; 4]);
    let status = lab.cli.ok(&["status"]).text();
    assert!(status.starts_with("degraded: while donor-3 cannot be reached"), "{status}");
    let row = status.lines().find(|line| line.starts_with("lab ")).expect("a row of the space");
    assert!(row.contains(" 0 ") && row.contains("1 when silent or away donors are back"), "{row}");
    let stat = lab.cli.ok(&["stat", "pot://lab/f"]).text();
    assert!(stat.contains("tolerates no further dead donor while donors it is on are"), "{stat}");
    let repair = lab.cli.ok(&["repair", "status"]).text();
    assert!(repair.contains("donor-3 is not heard"), "{repair}");

    lab.donor("donor-3").signal(Signal::CONT);
    wait_until("it to be heard", DEADLINE, || lab.cli.live_donors().len() == 3);
    wait_all_end(&lab, "heard again", 0);
}

/// Waits until every command ends with `code`, and fails if the pool is called healthy while a file is less safe than
/// promised.
#[track_caller]
fn wait_all_end(lab: &Lab, stage: &str, code: i32) {
    let mut last = codes(lab);
    wait_until(&format!("every command to end with {code}, {stage}"), 2 * DEADLINE, || {
        // The pool may become worse or better between two questions, but not both within this moment.
        let state = || lab.cli.status()["verdict"]["state"].clone();
        let before = state();
        let health = lab.cli.health("pot://lab/f");
        let states = [before, state()];
        let worse = health["tolerates_now"].as_u64() < health["promised"].as_u64();
        let is_healthy = states.iter().all(|state| state == "healthy");
        assert!(!worse || !is_healthy, "{stage}: {health} between two answers {states:?}");
        last = codes(lab);
        last.iter().all(|(_, ended)| *ended == code)
    });
    println!("{stage}: {last:?}");
}

#[test]
fn safety_commands_share_exit_codes() {
    let mut lab = Lab::with_options(3, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "2"]);
    let (input, _) = file(lab.dir(), "input", 8, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    wait_all_end(&lab, "all well", 0);
    assert_eq!(lab.cli.health("pot://lab/f")["level"], "safe", "for programs");
    assert_eq!(lab.cli.space("lab")["level"], "safe");
    let quiet = lab.cli.ok(&["status", "--check"]).text();
    assert_eq!(quiet, "", "cron sends no mail");

    lab.kill_donor("donor-3");
    wait_all_end(&lab, "one silent", 4);
    let said = lab.cli.run(&["status", "--check"]).exits(4).text();
    assert!(said.starts_with("degraded: while donor-3 cannot be reached"), "{said}");
    lab.cli.ok(&["status"]);
    lab.bring_back(&["donor-3"]);
    wait_all_end(&lab, "back again", 0);

    lab.cli.ok(&["repair", "pause"]);
    lab.cli.ok(&["nodes", "rm", "donor-3", "-y", "--now"]);
    wait_all_end(&lab, "less than promised, and repair rests", 4);
    lab.cli.ok(&["repair", "resume"]);
    wait_all_end(&lab, "made again", 0);

    lab.kill_donors(&["donor-1", "donor-2"]);
    wait_until("every command to end with 7", 2 * DEADLINE, || {
        let believed = lab.cli.live_donors().len() == 2;
        let status = lab.cli.run(&["status", "--check"]).code;
        let fsck = lab.cli.run(&["fsck"]).code;
        assert!(believed || fsck != 0 && status != 0, "{fsck} {status}");
        let verify = lab.cli.run(&["verify", "-r", "pot://lab"]).code;
        [fsck, status, verify] == [7; 3]
    });
}

#[test]
fn bad_copies_that_are_met_while_others_are_read_are_no_success() {
    let lab = Lab::with_options(2, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "2"]);
    let (input, content) = file(lab.dir(), "input", 9, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    wait_all_end(&lab, "all well", 0);
    for path in lab.lent("donor-1").chunks() {
        let chunk = fs::File::options().write(true).open(path).expect("a chunk file");
        chunk.write_all_at(b"damage", 1000).expect("damage");
    }
    let read = lab.cli.run(&["--json", "verify", "-r", "--read", "pot://lab"]).exits(4).json();
    assert!(read["read"]["bad_copies"].as_u64() > Some(0), "{read}");
    assert_eq!((&read["read"]["failed"], &read["unreadable"]), (&serde_json::json!([]), &0.into()));
    // All is well as soon as the copies that are known to be bad were made again, which may be before the question.
    let made = || lab.cli.repair()["made"].as_u64() > Some(0);
    let now = lab.cli.status()["verdict"].clone();
    assert!(now["state"] != "healthy" || made(), "{now}");
    // A later question is not answered with “all is well” before it is.
    let again = lab.cli.run(&["verify", "-r", "pot://lab"]);
    assert!(again.code != 0 || made(), "{} {}", again.code, again.stderr);
    // One read meets some of the bad chunks; a scrub finds all.
    lab.cli.ok(&["scrub", "now", "donor-1", "--rate", "100MiB"]);
    wait_until("all to be made again", 2 * DEADLINE, || {
        let ran = lab.cli.run(&["verify", "-r", "--read", "pot://lab"]);
        assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
        assert_eq!(ran.stderr, "", "what was met stands in the result");
        ran.code == 0 && !lab.lent("donor-1").quarantine().is_empty()
    });
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
}

#[test]
fn verify_reads_every_byte_also_after_one_that_is_bad() {
    let lab = Lab::with_options(2, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "1", "--plain"]);
    let (input, content) = file(lab.dir(), "input", 9, 6 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let mut bad = 0;
    for path in ["donor-1", "donor-2"].iter().flat_map(|donor| lab.lent(donor).chunks()).step_by(2)
    {
        let chunk = fs::File::options().write(true).open(path).expect("a chunk file");
        chunk.write_all_at(b"damage", 1000).expect("damage");
        bad += 1;
    }
    assert!(bad > 40, "{bad} of 96");
    let read = lab.cli.run(&["--json", "verify", "--read", "pot://lab/f"]).exits(7);
    let read: Value = serde_json::from_slice(&read.stdout).expect("a result");
    assert_eq!((&read["read"]["bad_copies"], &read["read"]["files"]), (&bad.into(), &0.into()));
    assert_eq!(read["read"]["failed"][0]["unreadable"], bad * 65_536, "{read}");
    // There are more bad chunks than a member may report at once, so donors scrub all that they have; after that,
    // storing the file once more is enough.
    for donor in ["donor-1", "donor-2"] {
        lab.cli.ok(&["scrub", "now", donor, "--rate", "100MiB"]);
    }
    wait_until("all that is bad to be known", 2 * DEADLINE, || {
        let lost = |donor: &str| lab.lent(donor).quarantine().len() as u64;
        lost("donor-1") + lost("donor-2") == bad
    });
    wait_until("the manager to know", DEADLINE, || {
        lab.cli.ok(&["stat", "pot://lab/f"]).text().contains(&format!("{bad} chunks missing"))
    });
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.cli.ok(&["verify", "--read", "pot://lab/f"]);
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
}

#[test]
fn space_safety_is_that_of_its_least_safe_file_at_once() {
    let lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    lab.cli.ok(&["space", "create", "small"]);
    let (input, _) = file(lab.dir(), "small", 1, 1000);
    lab.cli.ok(&["cp", arg(&input), "pot://small/inline"]);
    store(&lab, "twice", 2, &[]);
    wait_until("both spaces to be looked at", DEADLINE, || {
        let small = lab.cli.space("small");
        lab.cli.space("lab")["tolerates"] == 1 && small["all_in_catalog"] == true
    });

    store(&lab, "once", 3, &["--copies", "1"]);
    assert_eq!(lab.cli.space("lab")["tolerates"], 0);
    lab.cli.ok(&["cp", "pot://lab/twice", "pot://small/copy", "--copies", "1"]);
    let small = lab.cli.space("small");
    assert_eq!((&small["tolerates"], &small["all_in_catalog"]), (&0.into(), &false.into()));
    // Commands that look at everything find the same.
    lab.cli.ok(&["fsck"]);
    assert_eq!(lab.cli.space("lab")["tolerates"], 0);
}
