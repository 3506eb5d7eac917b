//! Tests `potluck leave`: a membership ends on the machine that has it, and nothing is lost by that.

use super::content::{arg, file};
use super::lab::Lab;
use super::machines::{Machines, Naming};
use super::waiting::{DEADLINE, wait_until};
use std::fs;
use std::path::PathBuf;

/// Makes a pool with a file of so many chunks that every donor has some, and returns the file's content as well.
fn with_file(donors: usize) -> (Lab, Vec<u8>) {
    let lab = Lab::with_donors(donors);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "1"]);
    let (input, content) = file(lab.dir(), "input", 9, 16_000_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    (lab, content)
}

/// Returns the names of all members.
fn members(lab: &Lab) -> Vec<String> {
    let said = lab.cli.json(&["members", "ls"]);
    let members = said["members"].as_array().expect("members").iter();
    members.map(|member| member["name"].as_str().expect("a name").to_owned()).collect()
}

fn paths(said: &serde_json::Value) -> Vec<PathBuf> {
    let paths = said.as_array().expect("a list").iter();
    paths.map(|path| path.as_str().expect("a path").into()).collect()
}

#[test]
fn leave_moves_everything_and_cleans_up() {
    let (mut lab, content) = with_file(2);
    assert!(lab.cli.shares("pot://lab/f").contains_key("donor-1"));
    let (lent, state) = (lab.lent("donor-1").0, lab.donor_state("donor-1"));
    // Nobody is there to be asked, and nothing is announced that does not begin.
    let refused = lab.cli.run(&["leave", "--state", arg(&state)]).exits(2).stderr;
    assert!(refused.contains("leave pool") && !refused.contains("moves to them"), "{refused}");
    let plan = lab.cli.ok(&["leave", "--state", arg(&state), "-n"]).text();
    assert!(plan.contains("moves to them first") && plan.contains(arg(&lent)), "{plan}");
    let planned = lab.cli.json(&["leave", "--state", arg(&state), "-n"]);
    assert_eq!(paths(&planned["would_remove"]), [lent.clone(), state.clone()]);
    assert_eq!(members(&lab), ["admin", "donor-1", "donor-2"]);

    let left = lab.cli.json(&["leave", "--state", arg(&state), "-y"]);
    assert_eq!((&left["left"], &left["name"]), (&true.into(), &"donor-1".into()), "{left}");
    assert_eq!(paths(&left["removed"]), [lent.clone(), state.clone()]);
    lab.donor("donor-1").end("a donor that left");
    assert!(!lent.exists() && !state.exists());
    assert_eq!(members(&lab), ["admin", "donor-2"]);
    assert_eq!(lab.cli.live_donors(), ["donor-2"]);
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
    // If it leaves again, there is nothing to leave.
    lab.cli.fails(3, &["leave", "--state", arg(&state), "-y"]);
}

#[test]
fn leaving_that_was_killed_goes_on_where_it_was() {
    let (mut lab, content) = with_file(2);
    let (lent, state) = (lab.lent("donor-1").0, lab.donor_state("donor-1"));
    let leave = ["leave", "--state", arg(&state), "-y"];
    let mut killed = lab.cli.start(&leave);
    wait_until("the give-back to begin", DEADLINE, || {
        let status = lab.cli.status();
        let donors = status["donors"].as_array().expect("donors");
        donors.len() == 1 || donors.iter().any(|donor| donor["giving_back"]["active"] == true)
    });
    killed.kill_9();
    // If the donor had not given all back, it is killed as well, and started again so that it can.
    if !state.join("leaving.json").exists() && state.join("identity.json").exists() {
        lab.kill_donor("donor-1");
        lab.start_donor("donor-1");
    }
    let again = lab.cli.run(&leave);
    assert!([0, 3].contains(&again.code), "{}", again.stderr);
    assert!(!lent.exists() && !state.exists());
    assert_eq!(members(&lab), ["admin", "donor-2"]);
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
}

#[test]
fn donor_cleanup_needs_a_safe_state() {
    let (mut lab, content) = with_file(2);
    let (lent, state) = (lab.lent("donor-1").0, lab.donor_state("donor-1"));
    lab.kill_manager();
    let away = lab.cli.run(&["--retry-for", "1s", "leave", "--state", arg(&state), "-y"]);
    assert_eq!(away.code, 5, "{}", away.stderr);
    assert!(state.join("identity.json").exists() && lent.join("potluck-store.json").exists());
    lab.start_manager();
    lab.wait_live();

    lab.cli.ok(&["drain", "donor-1"]);
    lab.cli.ok(&["nodes", "rm", "donor-1", "-y"]);
    fs::write(lent.join("a file of its owner"), "42").expect("written");
    let left = lab.cli.run(&["--json", "leave", "--state", arg(&state), "-y"]).exits(4).json();
    assert_eq!(left["stays"][0]["path"], arg(&lent), "{left}");
    let stays: Vec<_> = super::lent::files_of(&lent);
    assert_eq!(stays, [lent.join("a file of its owner")]);
    assert!(!state.exists());
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
}

#[test]
fn leaving_at_once_lists_what_is_lost_and_asks() {
    let (lab, _) = with_file(1);
    let state = lab.donor_state("donor-1");
    let leave = ["leave", "--now", "--state", arg(&state)];
    // There is no other donor to give it to, and nothing begins that could not end.
    let without = ["leave", "--state", arg(&state)];
    let plan = lab.cli.run(&[&without[..], &["-n"]].concat()).exits(4).text();
    assert!(plan.contains("refused") && plan.contains("cannot all be moved"), "{plan}");
    assert!(!plan.contains("removed here") && !plan.contains("nothing is lost"), "{plan}");
    let stuck = lab.cli.fails(4, &[&without[..], &["-y"]].concat());
    assert!(stuck.hint.contains("potluck lend") && stuck.hint.contains("--now"), "{stuck:?}");
    assert!(lab.cli.donor("donor-1")["giving_back"].is_null());

    let plan = lab.cli.ok(&[&leave[..], &["-n"]].concat()).text();
    assert!(plan.contains("1 file would be lost for ever:\n  pot://lab/f"), "{plan}");
    lab.cli.fails(2, &leave);
    assert_eq!(members(&lab), ["admin", "donor-1"]);
    lab.cli.ok(&[&leave[..], &["-y"]].concat());
    assert_eq!(members(&lab), ["admin"]);
    assert!(!state.exists());
    lab.cli.ok(&["rm", "pot://lab/f"]);
}

#[test]
fn a_user_leaves_and_the_last_admin_does_not() {
    let lab = Lab::manager_only(&[]);
    let home = lab.dir().join("ada");
    let ada = lab.cli.at_home(&home);
    ada.ok(&["join", &lab.token("user"), "--name", "ada"]);
    ada.ok(&["space", "ls"]);
    ada.ok(&["leave", "-y"]);
    assert_eq!(members(&lab), ["admin"]);
    assert_eq!(ada.fails(8, &["space", "ls"]).code, "POT-E061");
    assert!(super::lent::files_of(&home.join("config/potluck/pools")).is_empty());
    // The member joins again, as a new one.
    let again = ada.json(&["join", &lab.token("user"), "--name", "ada"]);
    assert_eq!(again["member"], 3);

    let admin = lab.manager_dir().join("admin");
    for how in ["-n", "-y"] {
        let refused = lab.cli.fails(10, &["leave", "--state", arg(&admin), how]);
        assert!(refused.message.contains("last admin"), "{how}: {refused:?}");
    }
    lab.cli.ok(&["members", "ls"]);
}

#[test]
fn a_machine_with_two_identities_is_asked_which_one_leaves() {
    let lab = Lab::manager_only(&[]);
    let ada = lab.cli.at_home(&lab.dir().join("ada"));
    ada.ok(&["join", &lab.token("user"), "--name", "ada"]);
    ada.ok(&["join", &lab.token("donor"), "--name", "desk"]);
    let refused = ada.fails(2, &["leave", "-y"]);
    let donor = lab.dir().join("ada/state/potluck/donor");
    let user = lab.dir().join("ada/config/potluck/pools/pool");
    for dir in [&donor, &user] {
        assert!(refused.hint.contains(&format!("--state {}", arg(dir))), "{refused:?}");
    }
    ada.ok(&["leave", "--state", arg(&donor), "-y"]); // it never lent anything
    ada.ok(&["leave", "-y"]);
    assert_eq!(members(&lab), ["admin"]);
}

#[test]
fn a_machine_joins_once_lends_once_and_leaves_without_a_trace() {
    let test = "a_machine_joins_once_lends_once_and_leaves_without_a_trace";
    let names = ["lab-head", "bench-1", "bench-2"];
    let Some(lab) = Machines::new(test, Naming::Dns, &names) else { return };
    let (head, bench) = (lab.machine("lab-head"), lab.machine("bench-1"));
    head.start("potluck manager --advertise lab-head:7700", "manager at ");
    let invite = || head.sh("potluck -q invite --role donor").ok().text().trim().to_owned();
    for name in &names[1..] {
        let machine = lab.machine(name);
        machine.sh(&format!("potluck join {}", invite())).ok();
        machine.start(
            &format!(
                "potluck lend /data/lent --max 1GiB --keep-free 0% --listen 0.0.0.0:7701 \
                 --advertise {name}:7701"
            ),
            "lending",
        );
    }
    let both = "test $(potluck --json status | grep -o '\"state\":\"live\"' | wc -l) = 2";
    wait_until("both donors", DEADLINE, || head.sh(both).code == 0);
    head.sh("potluck space create lab --copies 1 --chunk-size 64KiB").ok();
    head.sh("head -c 4000000 /dev/urandom > /tmp/f && potluck cp /tmp/f pot://lab/f").ok();

    // A second identity of the machine gets neither the first one's place nor its directory, by
    // whatever name.
    bench.sh(&format!("potluck join {}", invite())).exits(10);
    bench.sh(&format!("potluck join {} --state /tmp/second --name second", invite())).ok();
    bench.sh("mkdir /mnt/again && mount --bind /data/lent /mnt/again").ok();
    let again = bench.sh("potluck lend /mnt/again --state /tmp/second --listen 0.0.0.0:7702");
    assert!(again.exits(10).stderr.contains("is lent already"));
    bench.sh("umount /mnt/again").ok();

    // A service that was installed goes, too; nothing that was removed is started again.
    bench.sh("potluck service install lend --user --root /").ok();
    let plan = bench.sh("potluck leave -n").ok().text();
    assert!(plan.contains("potluck-lend.service"), "{plan}");
    bench.sh("potluck leave -y").ok();
    bench.sh("test -z \"$(find ~/.config/systemd -type f)\"").ok();
    bench.sh("test ! -e /data/lent && test ! -e ~/.local/state/potluck/donor").ok();
    let stopped = || bench.log("potluck lend").contains("the donor has stopped");
    wait_until("the daemon to end", DEADLINE, stopped);
    head.sh("potluck cp pot://lab/f /tmp/g && cmp /tmp/f /tmp/g").ok();
    let left = head.sh("potluck members ls").ok().text();
    assert!(left.contains("bench-2") && !left.contains("bench-1"), "{left}");
}
