//! Tests that the pool's own metadata has as many copies as there are donors to hold them, and keeps nobody from
//! leaving.

use super::give_back::Owner;
use super::lab::{Lab, Lending};
use super::waiting::{DEADLINE, wait_until};
use serde_json::Value;

const OPTIONS: [&str; 6] =
    ["--metadata-copies", "3", "--backup-every", "500ms", "--gc-delay", "1s"];

fn with_donors(count: usize) -> Lab {
    let lab = Lab::with_options(count, &OPTIONS);
    wait_copies(&lab, Some(count as u64));
    lab
}

/// Waits until donors hold `copies` copies of all of the metadata, or nothing of it, and nothing of it is lacking.
fn wait_copies(lab: &Lab, copies: Option<u64>) {
    let mut last = Value::Null;
    wait_until(&format!("{copies:?} copies of the pool's own metadata"), 2 * DEADLINE, || {
        let status = lab.cli.status();
        let found = &status["metadata"];
        let there = found["copies"].as_u64() == copies && (found["files"] == 0) == copies.is_none();
        let whole = found["incomplete"] == 0 && found["unreadable"] == 0;
        let written = copies.is_none() || status["backup_pool_seconds"].is_u64();
        let done = there && whole && written && status["log_waiting"] == 0;
        if !done && *found != last {
            println!("{found}, {} changes wait", status["log_waiting"]);
            last = found.clone();
        }
        done || there && whole && copies.is_none()
    });
}

/// Asserts that the pool calls itself healthy while nobody has anything to worry about.
fn assert_healthy(lab: &Lab) {
    let status = lab.cli.json(&["status"]);
    assert_eq!(status["verdict"]["state"], "healthy", "{status:#}");
    assert_eq!(status["repair"]["stuck"], 0, "{status:#}");
    lab.cli.ok(&["fsck"]);
}

#[test]
fn a_donor_leaves_a_pool_of_three_and_another_takes_its_place() {
    let mut lab = with_donors(3);
    let done = Owner::of(&lab, "donor-1").drain(&[]).ok().text();
    assert!(done.contains("safe to remove"), "{done}");
    wait_until("its lent directory to be empty", DEADLINE, || {
        lab.lent("donor-1").chunks().is_empty()
    });
    wait_copies(&lab, Some(2));
    assert_healthy(&lab);
    let said = lab.cli.ok(&["status"]).text();
    assert!(said.contains("metadata: 2 copies on donors, 3 asked"), "{said}");
    lab.lend("donor-4", Lending::default());
    lab.wait_live();
    wait_copies(&lab, Some(3));
    assert!(!lab.lent("donor-4").chunks().is_empty());
    assert_healthy(&lab);
}

#[test]
fn metadata_copies_adapt_to_a_dead_donor() {
    let options = [&OPTIONS[..], &["--repair-grace", "1s"]].concat();
    let mut lab = Lab::with_options(3, &options);
    wait_copies(&lab, Some(3));
    lab.kill_donor("donor-2");
    wait_copies(&lab, Some(2));
    assert_healthy(&lab);
    lab.bring_back(&["donor-2"]);
    wait_copies(&lab, Some(3));
    assert_healthy(&lab);
}

#[test]
fn last_donor_may_leave_with_advice_on_metadata() {
    let mut lab = with_donors(1);
    let owner = Owner::of(&lab, "donor-1");
    let planned = owner.drain(&["-n"]).ok().text();
    assert!(planned.contains("on the manager's own disk only"), "{planned}");
    let done = owner.drain(&[]).ok().text();
    assert!(done.contains("safe to remove"), "{done}");
    assert!(done.contains("on the manager's own disk only"), "{done}");
    wait_copies(&lab, None);
    let said = lab.cli.ok(&["status"]).text();
    assert!(said.contains("metadata: on no donor"), "{said}");
    lab.cli.ok(&["nodes", "rm", "donor-1", "-y"]);
    // The next donor that lends holds all of it again.
    lab.lend("donor-2", Lending::default());
    wait_copies(&lab, Some(1));
    assert_healthy(&lab);
}

#[test]
fn metadata_that_went_with_its_only_donor_is_written_anew() {
    let mut lab = with_donors(1);
    lab.kill_donor("donor-1");
    lab.lend("donor-2", Lending::default());
    lab.cli.ok(&["nodes", "rm", "donor-1", "-y"]);
    wait_until("a copy on the donor that is left", DEADLINE, || {
        !lab.lent("donor-2").chunks().is_empty() && lab.cli.run(&["fsck"]).code == 0
    });
    wait_copies(&lab, Some(1));
    assert_healthy(&lab);
}
