//! Types the commands of docs/restore.md as they stand, on three machines with a pool that README's lines
//! made.

use super::docs::{Typist, blocks};
use super::machines::{Machine, Machines};
use super::operations_as_documented::{three_machines, wait_until_safe};
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;

const RESTORE: &str = "docs/restore.md";

/// Types all blocks below a heading.
fn types(typist: &Typist<'_>, heading: &str, first: &str) {
    blocks(RESTORE, heading).iter().for_each(|block| typist.types(block, first));
}

/// Makes machines that were backed up as documented, and have changed since: `pot://lab/later` was written.
fn backed_up(test: &str) -> Option<Machines> {
    let lab = three_machines(test)?;
    types(&Typist::new(&lab), "What to keep elsewhere", "alice");
    let alice = lab.machine("alice");
    alice.sh("head -c 3000000 /dev/urandom > later && potluck cp later pot://lab/later").ok();
    Some(lab)
}

/// Waits until the donors have all that the manager on `machine` knows.
fn wait_logged(machine: &Machine) {
    wait_until("all changes to be on the donors", DEADLINE, || {
        machine.sh("potluck --json status").ok().json()["log_waiting"] == 0
    });
}

fn held(machine: &Machine, pool: &str) -> bool {
    machine.sh(&format!("potluck --json {pool} gc status")).ok().json()["frozen"].is_string()
}

#[test]
fn a_lost_machine_s_pool_is_restored_on_another_as_documented() {
    let test = "a_lost_machine_s_pool_is_restored_on_another_as_documented";
    let Some(lab) = backed_up(test) else { return };
    let (alice, bob, carol) = (lab.machine("alice"), lab.machine("bob"), lab.machine("carol"));
    let typist = Typist::new(&lab);
    typist.types_line(alice, "potluck invite --role user");
    typist.types_line(bob, "echo pot1.… | potluck join -");
    alice.sh("potluck space grant lab everyone read").ok();
    bob.sh("potluck ls pot://lab/results").ok();
    for file in ["safe/recovery.kit", "later"] {
        let (from, to) = (format!("/home/lab/{file}"), file.rsplit('/').next().expect("a name"));
        std::fs::copy(alice.path(&from), carol.path(&format!("/home/lab/{to}"))).expect("carried");
    }
    wait_logged(alice);
    alice.kill_all();
    alice.unplug();

    let documented = blocks(RESTORE, "On another machine");
    // Donors that are not reached are named, each with the reason.
    let restore = "potluck manager restore --kit recovery.kit --from pool";
    let unknown = carol.sh(&format!("{restore} --donor bobb --wait 1d")).exits(5);
    assert!(unknown.stderr.contains("donor bobb:7701 is not reached: its name"), "{unknown:?}");
    let closed = carol.sh(&format!("{restore} --donor bob:1 --wait 1s")).exits(5);
    assert!(closed.stderr.contains("bob:1: Connection refused"), "{closed:?}");
    typist.types(&documented[0], "carol");
    assert!(held(carol, ""));
    typist.types(&documented[1], "carol");
    wait_until("nothing to be left to repair", 2 * DEADLINE, || {
        carol.sh("potluck verify -r --read pot://lab").code == 0
    });
    carol.sh("potluck cat pot://lab/later | cmp - later").ok();
    typist.types(&documented[2], "carol");
    wait_until("bob to find the manager", 2 * DEADLINE, || {
        bob.sh("potluck ls pot://lab/results").code == 0
    });
}

#[test]
fn every_documented_restore_works() {
    let test = "every_documented_restore_works";
    let Some(lab) = backed_up(test) else { return };
    let alice = lab.machine("alice");
    let typist = Typist::new(&lab);
    let has_later = || alice.sh("potluck cat pot://lab/later | cmp - later").code == 0;

    wait_logged(alice);
    alice.stop("potluck up", Signal::INT);
    types(&typist, "At the same address", "alice");
    wait_until("the file that was written last", DEADLINE, has_later);
    wait_until_safe(alice);

    // A restore that failed is run again, and nothing starts meanwhile.
    alice.stop("potluck up", Signal::INT);
    alice.sh("head -c 500 safe/catalog.log > damaged.log; mkdir -p spare").ok();
    let wrong =
        "potluck manager restore --kit safe/recovery.kit --from damaged.log --state spare/manager";
    assert!(alice.sh(wrong).exits(7).stderr.contains("is damaged"));
    let refused = alice.sh("potluck up --state spare").exits(10);
    assert!(refused.stderr.contains("POT-E084"), "{}", refused.stderr);
    alice.sh(&wrong.replace("damaged.log", "safe/catalog.log")).ok();

    types(&typist, "From a file", "alice");
    wait_until_safe(alice);
    assert!(!has_later(), "it was written after the file");
    types(&typist, "Afterwards", "alice");
    assert!(!held(alice, ""));
    wait_until_safe(alice);
}
