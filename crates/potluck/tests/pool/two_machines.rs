//! Tests a pool of two machines that is made by typing what README says, on machines that know each other by name, by
//! multicast DNS, or by address only.

use super::docs::{Typist, blocks};
use super::machines::{Machines, Naming};
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::time::Duration;

#[test]
fn machines_have_names_addresses_and_files_of_their_own() {
    let test = "machines_have_names_addresses_and_files_of_their_own";
    let Some(lab) = Machines::new(test, Naming::Dns, &["lab-head", "bench-2"]) else { return };
    let (head, bench) = (lab.machine("lab-head"), lab.machine("bench-2"));
    assert_eq!(bench.sh("hostname").ok().text(), "bench-2\n");
    head.sh("getent hosts bench-2").ok();
    head.sh("mkdir /data && echo mine > /data/file").ok();
    bench.sh("test ! -e /data/file").ok();
    assert_eq!(std::fs::read_to_string(head.path("/data/file")).expect("its file"), "mine\n");

    head.start("python3 -u -m http.server 8000 --directory /data", "Serving");
    let get = "python3 -c 'import urllib.request as u; \
               print(u.urlopen(\"http://lab-head:8000/file\", timeout=2).read())'";
    bench.sh(get).ok();
    bench.unplug();
    assert_ne!(bench.sh(get).code, 0, "a pulled cable");
    bench.plug_in();
    wait_until("the network to be back", DEADLINE, || bench.sh(get).code == 0);
    head.stop("python3", Signal::TERM);
}

/// Types README's commands as they stand: from nothing to files that are safe on two machines.
#[track_caller]
fn readme_makes_a_pool_of_two_machines(test: &str, naming: Naming) {
    let Some(lab) = Machines::new(test, naming, &["alice", "bob"]) else { return };
    let (alice, bob) = (lab.machine("alice"), lab.machine("bob"));
    alice
        .sh("mkdir results && head -c 3000000 /dev/urandom > results/run7.h5 && date > results/log")
        .ok();
    let typist = Typist::new(&lab);
    for block in blocks("README.md", "Two machines") {
        typist.types(&block, "alice");
    }
    let status = alice.sh("potluck --json status").ok().json();
    for donor in status["donors"].as_array().expect("donors") {
        assert_eq!(donor["state"], "live", "{status}");
    }
    alice.sh("cmp -n 1024 first-kib results/run7.h5").ok();
    let verified = alice.sh("potluck verify -r pot://lab/results").ok().text();
    assert!(verified.contains("2 files, all as safe as promised"), "{verified}");
    wait_until("the pool to be healthy, and one donor not needed", DEADLINE, || {
        let status = alice.sh("potluck --json status").ok().json();
        let spaces = status["spaces"].as_array().expect("spaces");
        let may_die = spaces.iter().any(|space| space["name"] == "lab" && space["tolerates"] == 1);
        may_die && status["verdict"]["state"] == "healthy"
    });

    // The machine without the manager may die.
    bob.kill_all();
    alice.sh("potluck cat pot://lab/results/run7.h5 | cmp - results/run7.h5").ok();
    bob.start("potluck lend", "lending up to ");
    // A donor that is live again first lists what it holds; where names take long, nobody noticed its death.
    wait_until("bob to be back with all it holds", DEADLINE, || {
        alice.sh("potluck verify -r --read pot://lab").code == 0
    });
}

#[test]
fn readme_makes_a_pool_of_two_machines_that_know_names() {
    let test = "readme_makes_a_pool_of_two_machines_that_know_names";
    readme_makes_a_pool_of_two_machines(test, Naming::Dns);
}

#[test]
fn readme_makes_a_pool_of_two_machines_that_know_addresses_only() {
    let test = "readme_makes_a_pool_of_two_machines_that_know_addresses_only";
    readme_makes_a_pool_of_two_machines(test, Naming::AddressOnly);
}

#[test]
fn readme_works_with_mdns_names_only() {
    let test = "readme_works_with_mdns_names_only";
    readme_makes_a_pool_of_two_machines(test, Naming::MdnsOnly);
}

/// README's next line is typed when a daemon says that it lends: the pool counts on it by then.
#[test]
fn a_donor_says_that_it_lends_once_the_manager_has_heard_of_it() {
    let test = "a_donor_says_that_it_lends_once_the_manager_has_heard_of_it";
    let Some(lab) = Machines::new(test, Naming::Dns, &["alice", "bob"]) else { return };
    let (alice, bob) = (lab.machine("alice"), lab.machine("bob"));
    alice.start("potluck up --max 1GiB", "lending up to ");
    let token = alice.sh("potluck --quiet invite --role donor").ok().text();
    bob.sh(&format!("potluck join {token}")).ok();

    alice.signal("potluck up", Signal::STOP);
    bob.start("potluck lend ~/lent --max 1GiB", "the donor of ");
    pause(Duration::from_millis(500));
    assert!(!bob.log("potluck lend").contains("lending up to "), "{}", bob.log("potluck lend"));
    alice.signal("potluck up", Signal::CONT);
    wait_until("bob to say that it lends", DEADLINE, || {
        bob.log("potluck lend").contains("lending up to ")
    });
    if bob.log("potluck lend").contains("does not answer") {
        return; // so slow a machine shows nothing of the order
    }
    alice.sh("potluck space create lab --copies 2").ok();
    alice.sh("potluck cp /etc/hosts pot://lab/").ok();
}
