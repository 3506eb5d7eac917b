//! Types the commands of docs/operations.md as they stand, on three machines with a pool that README's
//! lines made.

use super::docs::{Typist, blocks};
use super::machines::{Machine, Machines, Naming};
use super::several_disks::live_on;
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;

const OPERATIONS: &str = "docs/operations.md";

/// Makes three machines that lend, and a file in `pot://lab` that is safe on any two of them.
pub fn three_machines(test: &str) -> Option<Machines> {
    let lab = Machines::new(test, Naming::Dns, &["alice", "bob", "carol"])?;
    let alice = lab.machine("alice");
    alice.sh("mkdir results && head -c 9000000 /dev/urandom > results/run7.h5").ok();
    let typist = Typist::new(&lab);
    typist.types(&blocks("README.md", "Two machines")[0], "alice");
    let carol = lab.machine("carol");
    typist.types_line(alice, "potluck invite --role donor");
    typist.types_line(carol, "echo pot1.… | potluck join -");
    typist.types_line(carol, "potluck lend ~/lent --max 200GiB");
    Some(lab)
}

/// Waits until every file is as safe as its policy says, and reads them all.
#[track_caller]
pub fn wait_until_safe(machine: &Machine) {
    wait_until("everything to be safe again", 2 * DEADLINE, || {
        machine.sh("potluck verify -r --read pot://lab").code == 0
    });
    machine.sh("potluck cat pot://lab/results/run7.h5 | cmp - results/run7.h5").ok();
}

#[test]
fn the_catalog_is_backed_up_as_documented() {
    let Some(lab) = three_machines("the_catalog_is_backed_up_as_documented") else { return };
    let typist = Typist::new(&lab);
    for block in blocks(OPERATIONS, "Backup") {
        typist.types(&block, "alice");
    }
    let alice = lab.machine("alice");
    alice.sh("test -s ~/safe/recovery.kit && test -s ~/safe/catalog.log").ok();
    wait_until_safe(alice);
}

#[test]
fn several_disks_are_lent_as_documented() {
    let Some(lab) = three_machines("several_disks_are_lent_as_documented") else { return };
    let (alice, carol) = (lab.machine("alice"), lab.machine("carol"));
    carol.sh("potluck leave -y").ok();
    let typist = Typist::new(&lab);
    let donors = |names: &[&str]| {
        wait_until(&format!("{names:?}"), DEADLINE, || {
            let live = live_on(alice);
            live.iter().filter(|name| name.starts_with("carol")).eq(names)
        });
    };
    let documented = blocks(OPERATIONS, "Several disks");
    typist.types(&documented[0], "alice");
    donors(&["carol", "carol-2"]);
    typist.types(&documented[1], "alice");
    donors(&["carol", "carol-3"]);
    carol.sh("test -e /disk1/lent && test ! -e /disk2/lent && test -e /disk3/lent").ok();
    wait_until_safe(alice);
}

#[test]
fn a_disk_is_replaced_as_documented() {
    let Some(lab) = three_machines("a_disk_is_replaced_as_documented") else { return };
    let (alice, bob) = (lab.machine("alice"), lab.machine("bob"));
    let typist = Typist::new(&lab);
    let documented = blocks(OPERATIONS, "Replacing a disk");

    // This is a disk that still works.
    typist.types(&documented[0], "alice");
    wait_until_safe(alice);

    // This is a disk that died: nothing is on the new one that has its place.
    bob.stop("potluck lend ~/new-disk", Signal::TERM);
    bob.sh("rm -r ~/new-disk").ok();
    typist.types(&documented[1], "alice");
    wait_until_safe(alice);
}

#[test]
fn a_manager_is_moved_as_documented_and_everybody_follows() {
    let test = "a_manager_is_moved_as_documented_and_everybody_follows";
    let Some(lab) = three_machines(test) else { return };
    let (alice, bob, carol) = (lab.machine("alice"), lab.machine("bob"), lab.machine("carol"));
    let typist = Typist::new(&lab);
    typist.types_line(alice, "potluck invite --role user");
    typist.types_line(bob, "echo pot1.… | potluck join -");
    alice.sh("potluck space grant lab everyone read").ok();
    bob.sh("potluck ls pot://lab/results").ok();

    alice.stop("potluck up", Signal::INT);
    let documented = blocks(OPERATIONS, "Moving the manager");
    typist.types(&documented[0], "alice");
    std::fs::copy(alice.path("/home/lab/manager.tar"), carol.path("/home/lab/manager.tar"))
        .expect("copied");
    typist.types(&documented[1], "carol");
    typist.types_line(alice, "potluck lend");
    // Nobody told bob where the manager is now, and alice's machine has another address.
    wait_until("bob to find the manager", 2 * DEADLINE, || {
        bob.sh("potluck ls pot://lab/results").code == 0
    });
    // It does no harm to tell him.
    typist.types(&documented[2], "bob");
    wait_until_safe(alice);
}
