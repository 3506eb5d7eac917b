//! The manager measures the line of a donor once, so that its rates are known before anybody has used it.

use super::content::arg;
use super::lab::{Lab, Lending, stop};
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// Returns what is known of a donor's rates in both directions.
fn rates(lab: &Lab, name: &str) -> Value {
    let nodes = lab.cli.json(&["nodes", "ls", "--rates"]);
    let mut donors = nodes["donors"].as_array().expect("donors").iter();
    let donor = donors.find(|donor| donor["name"] == name);
    donor.expect("the donor is in the pool")["rates"]["rates"].clone()
}

fn are_known(rates: &Value) -> bool {
    ["read", "written"].iter().all(|way| rates[way].as_u64().is_some_and(|rate| rate > 0))
}

#[test]
fn new_donors_are_measured_once_unless_limited() {
    let mut lab = Lab::manager_only(&["--diagnose-donors", "true"]);
    // On a busy machine a donor that yields to its owner is limited, too.
    let lending = |options: &[&str]| {
        let options = [&["--slowdown", "off"], options].concat();
        Lending { options: options.into_iter().map(String::from).collect(), ..Lending::default() }
    };
    lab.lend("limited", lending(&["--bwlimit", "20M"]));
    lab.lend("free", lending(&[]));
    wait_until("the free donor's rates", DEADLINE, || are_known(&rates(&lab, "free")));
    let limited = rates(&lab, "limited");
    assert!(limited["read"].is_null() && limited["written"].is_null(), "{limited}");
    assert_eq!(lab.chunk_files(), 0, "nothing was stored for it");

    let known = rates(&lab, "free");
    assert_eq!(stop(lab.manager(), Signal::TERM), 0);
    lab.start_manager();
    lab.wait_live();
    assert_eq!(rates(&lab, "free"), known, "a manager that is started again knows them");

    let state = lab.donor_state("limited");
    lab.cli.ok(&["set", "--state", arg(&state), "lend.bwlimit", "off"]);
    wait_until("the other donor's rates", DEADLINE, || are_known(&rates(&lab, "limited")));
}
