//! Types the commands of README and of the pages about members, settings, monitoring, uploads and old versions as they
//! stand, on machines with a pool that README's lines made.

use super::docs::{Typist, blocks};
use super::machines::{Machine, Machines, Naming};
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;

const MEMBERSHIP: &str = "docs/membership.md";

/// Makes machines of which alice runs the manager, she and bob lend, and `pot://lab/results` is on both.
fn lab_of(test: &str, names: &[&str]) -> Option<Machines> {
    let lab = Machines::new(test, Naming::Dns, names)?;
    lab.machine("alice").sh("mkdir results && head -c 3000000 /dev/urandom > results/run7.h5").ok();
    Typist::new(&lab).types(&blocks("README.md", "Two machines")[0], "alice");
    Some(lab)
}

/// Returns a token that alice makes.
fn token(alice: &Machine, role: &str) -> String {
    alice.sh(&format!("potluck invite -q --role {role}")).ok().text().trim().to_owned()
}

/// Waits until a line succeeds on a machine.
#[track_caller]
fn wait_for(machine: &Machine, line: &str) {
    wait_until(&format!("`{line}` to succeed"), 2 * DEADLINE, || machine.sh(line).code == 0);
}

#[test]
fn members_are_invited_removed_and_leave_as_documented() {
    let test = "members_are_invited_removed_and_leave_as_documented";
    let Some(lab) = lab_of(test, &["alice", "bob", "carol"]) else { return };
    let (alice, carol) = (lab.machine("alice"), lab.machine("carol"));
    // Invitations are numbered, and those of alice's, bob's and carol's donors come before the user's.
    let typist = Typist::new(&lab).instead_of("invite rm 7", "invite rm 4");
    for block in blocks(MEMBERSHIP, "Inviting and joining") {
        typist.types(&block, "alice");
    }
    typist.types_line(carol, "potluck lend ~/lent --max 200GiB");

    let join = |name: &str| {
        let token = token(alice, "user");
        let line = format!("potluck --json join {token} --name {name} --state /tmp/{name}");
        lab.machine("bob").sh(&line).ok().json()["member"].to_string()
    };
    join("ada");
    let typist = Typist::new(&lab);
    for block in blocks(MEMBERSHIP, "Who may do what") {
        typist.types(&block, "alice");
    }
    // On a terminal the command asks; here the answer is given on the command line.
    let number = join("bert");
    let typist = Typist::new(&lab).instead_of("rm ada 12", &format!("rm -y ada {number}"));
    for block in blocks(MEMBERSHIP, "Members") {
        typist.types(&block, "alice");
    }
    let members = alice.sh("potluck members ls --revoked").ok().text();
    assert!(members.contains("ada") && members.contains("bert"), "{members}");

    let typist = Typist::new(&lab).instead_of("potluck leave", "potluck leave -y");
    for block in blocks(MEMBERSHIP, "Leaving") {
        typist.types(&block, "carol");
    }
    carol.sh("test ! -e ~/lent && test ! -e ~/.local/state/potluck/donor/identity.json").ok();
    wait_for(alice, "potluck verify -r --read pot://lab");
}

#[test]
fn settings_are_changed_and_figures_are_told_as_documented() {
    let test = "settings_are_changed_and_figures_are_told_as_documented";
    let Some(lab) = Machines::new(test, Naming::Dns, &["alice"]) else { return };
    let alice = lab.machine("alice");
    let typist = Typist::new(&lab);
    typist.types_line(alice, "potluck up --max 200GiB --label here");
    for block in blocks("docs/settings.md", "Changing them") {
        typist.types(&block, "alice");
    }
    let set = |key: &str| {
        let said = alice.sh(&format!("potluck --json set {key}")).ok().json();
        said["settings"][0]["value"].as_str().unwrap_or("none").to_owned()
    };
    let now = ["manager.repair-grace", "lend.max", "lend.label"].map(set);
    assert_eq!(now, ["1h", "500GiB", "none"]);

    for block in blocks("docs/monitoring.md", "What is scraped") {
        typist.types(&block, "alice");
    }
    alice.stop("potluck up", Signal::INT);
    typist.types_line(alice, "potluck up");
    let get = "python3 -c 'import urllib.request as u; \
               print(u.urlopen(\"http://alice:7690/metrics\", timeout=2).read().decode())'";
    assert!(alice.sh(get).ok().text().contains("potluck_"), "the manager's figures");
    let donors = |host: &str| {
        let get = format!(
            "python3 -c 'import urllib.request as u; \
             print(u.urlopen(\"http://{host}:7701/metrics\", timeout=2).read().decode())' 2>&1 \
             || true"
        );
        alice.sh(&get).ok().text()
    };
    assert!(donors("127.0.0.1").contains("potluck_lent_max_bytes"), "its own machine is told");
    let refused = donors("alice");
    assert!(refused.contains("403"), "who comes over the network is not: {refused}");
    alice.sh("potluck set lend.metrics-open true").ok();
    wait_until("others to be shown the figures", DEADLINE, || {
        donors("alice").contains("potluck_lent_max_bytes")
    });
}

#[test]
fn an_upload_goes_on_as_documented() {
    let Some(lab) = lab_of("an_upload_goes_on_as_documented", &["alice", "bob"]) else { return };
    let alice = lab.machine("alice");
    alice.sh("head -c 60000000 /dev/urandom > whole && mkfifo big.tar").ok();
    let documented = &blocks("docs/uploads.md", "The same command goes on where it was")[0];
    let [(_, first), (_, second)] = documented.commands("alice")[..] else {
        panic!("two commands");
    };
    // The file that the upload reads does not end before Ctrl-C is typed.
    let feed = "sh -c 'echo feeds; exec 3> big.tar; head -c 50000000 whole >&3; exec sleep 100'";
    alice.start(feed, "feeds");
    alice.start(first, "");
    wait_until("some of it to be stored", DEADLINE, || {
        let donors = alice.sh("potluck --json status").ok().json()["donors"].clone();
        let bytes = donors.as_array().expect("donors").iter().map(|donor| donor["used"].as_u64());
        bytes.flatten().sum::<u64>() > 60_000_000
    });
    alice.signal(first, Signal::INT);
    wait_until("what it says to Ctrl-C", DEADLINE, || {
        alice.log(first).contains("the same command goes on from there")
    });
    alice.sh("mv whole big.tar").ok();
    let said = alice.sh(second).ok().text();
    assert!(said.contains("went on from"), "{said}");
    alice.sh("potluck cat pot://lab/big.tar | cmp - big.tar").ok();

    alice.sh("potluck mkdir pot://lab/runs").ok();
    let typist = Typist::new(&lab);
    for block in blocks("docs/uploads.md", "Only what is new is sent") {
        typist.types(&block, "alice");
    }
    assert!(alice.sh("potluck policy show pot://lab/runs").ok().text().contains("cut by content"));
}

#[test]
fn a_checkpoint_is_committed_as_documented() {
    let Some(lab) = lab_of("a_checkpoint_is_committed_as_documented", &["alice", "bob"]) else {
        return;
    };
    let alice = lab.machine("alice");
    alice.sh("mkdir out && echo 1 > out/a && echo 2 > out/b").ok();
    let heading = "Checkpoints: directories that become visible at one moment";
    let documented = &blocks("docs/uploads.md", heading)[0];
    let lines: Vec<&str> = documented.commands("alice").into_iter().map(|(_, line)| line).collect();
    let said = alice.sh(&format!("set -e; {}", lines.join("; "))).ok().text();
    assert!(said.contains("pot://lab/step-5"), "{said}");
    assert_eq!(alice.sh("potluck ls pot://lab/step-5").ok().text(), "a\nb\n");
}

#[test]
fn versions_are_kept_and_brought_back_as_documented() {
    let test = "versions_are_kept_and_brought_back_as_documented";
    let Some(lab) = lab_of(test, &["alice", "bob"]) else { return };
    let typist = Typist::new(&lab);
    for block in blocks("docs/versions.md", "Keeping, restoring and undeleting") {
        typist.types(&block, "alice");
    }
    let alice = lab.machine("alice");
    assert_eq!(alice.sh("potluck cat pot://lab/notes").ok().text(), "one\n");
    let kept = alice.sh("potluck --json versions pot://lab/notes").ok().json()["kept"].clone();
    assert_eq!(kept.as_array().map(Vec::len), Some(0), "{kept}");
    for block in blocks("docs/versions.md", "Snapshots") {
        typist.types(&block, "alice");
    }
    assert_eq!(alice.sh("potluck cat pot://lab/runs/log").ok().text(), "one\n");
    for block in blocks("docs/versions.md", "Series") {
        typist.types(&block, "alice");
    }
    assert_eq!(alice.sh("potluck ls pot://lab/series").ok().text(), "step-2/\nstep-3/\n");
}

#[test]
fn a_machine_that_is_gone_is_taken_off_as_documented() {
    let test = "a_machine_that_is_gone_is_taken_off_as_documented";
    let Some(lab) = lab_of(test, &["alice", "bob", "carol"]) else { return };
    let (alice, carol) = (lab.machine("alice"), lab.machine("carol"));
    carol.sh(&format!("potluck join {}", token(alice, "donor"))).ok();
    carol.start("potluck lend ~/lent --max 200GiB", "lending up to ");
    alice.sh("potluck set manager.repair-grace 2s").ok();
    lab.machine("bob").kill_all();
    for block in blocks("docs/operations.md", "A machine is gone") {
        for (machine, line) in block.commands("alice") {
            wait_for(lab.machine(machine), line);
        }
    }
    assert!(!alice.sh("potluck nodes ls").ok().text().contains("bob"), "it is off the list");
    wait_for(alice, "potluck verify -r --read pot://lab");
}

#[test]
fn data_is_kept_safe_as_documented() {
    let names = ["alice", "bob", "carol", "dan", "eve", "fay", "gil"];
    let Some(lab) = lab_of("data_is_kept_safe_as_documented", &names) else { return };
    let alice = lab.machine("alice");
    for name in &names[2..] {
        let line = format!("potluck join {}", token(alice, "donor"));
        lab.machine(name).sh(&line).ok();
        lab.machine(name).start("potluck lend ~/lent --max 200GiB", "lending up to ");
    }
    alice.sh("potluck cp -r results pot://lab/").ok();
    // On a terminal the command asks; here the answer is given on the command line.
    let typist = Typist::new(&lab).instead_of("policy set", "policy set -y");
    for block in blocks("README.md", "Keeping data safe") {
        for (machine, line) in block.commands("alice") {
            // While files change, not all is as safe as will be promised.
            if line.starts_with("potluck verify") || line.starts_with("potluck fsck") {
                wait_for(lab.machine(machine), line);
            } else {
                typist.types_line(lab.machine(machine), line);
            }
        }
    }
    wait_for(alice, "potluck verify -r --read pot://lab");
}
