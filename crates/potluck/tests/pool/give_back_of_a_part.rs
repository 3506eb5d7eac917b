//! An owner takes a part of the lent space back: less is lent from then on, and the rest stays lent.

use super::content::{arg, assert_same, file};
use super::give_back::{Owner, held};
use super::lab::{Lab, Lending};
use super::waiting::{DEADLINE, wait_until};
use std::fs;

const MIB: u64 = 1 << 20;

/// Makes a pool of donors that lend `max` each.
fn lending(donors: usize, max: &str) -> Lab {
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    for number in 1..=donors {
        lab.lend(&format!("donor-{number}"), Lending { max: max.into(), ..Lending::default() });
    }
    lab.wait_live();
    lab
}

/// Waits until the pool says how much a donor lends.
fn wait_lends(lab: &Lab, donor: &str, mib: u64) {
    wait_until(&format!("{donor} to lend {mib} MiB"), DEADLINE, || {
        lab.cli.donor(donor)["lends"] == mib * MIB
    });
}

#[test]
fn partial_give_back_lowers_the_lent_space() {
    let mut lab = lending(3, "16MiB");
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 4, 12 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let owner = Owner::of(&lab, "donor-2");
    wait_until("the donor's own count of what it holds", DEADLINE, || {
        lab.cli.donor("donor-2")["used"].as_u64() >= Some(held(&lab.lent("donor-2")))
    });
    let before = held(&lab.lent("donor-2"));
    assert!(before > 2 * MIB, "{before}");
    // The owner asks for half of what the donor holds, however files were spread.
    let left = before / MIB / 2;
    let size = format!("{}MiB", 16 - left);
    let planned = owner.run(&[&size, "-n"]).ok().text();
    let would = format!("would lend {left}.0 MiB");
    assert!(planned.contains(&would) && planned.contains("16.0 MiB"), "{planned}");
    wait_lends(&lab, "donor-2", 16);

    let less = owner.run(&["--json", &size]).ok().json();
    assert_eq!((&less["lends"], &less["done"]), (&(left * MIB).into(), &true.into()), "{less}");
    let now = held(&lab.lent("donor-2"));
    assert!(now <= left * MIB, "{now} bytes are held, and {left} MiB are lent");
    wait_lends(&lab, "donor-2", left);
    let shown = lab.cli.donor("donor-2");
    assert!(shown["giving_back"].is_null() && shown["state"] == "live", "{shown:#}");
    lab.cli.wait_safe("pot://lab/f");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    let status = lab.cli.ok(&["status"]).text();
    let held_of = format!("of {left}.0 MiB");
    assert!(status.contains(&held_of) && !status.contains("giving back"), "{status}");

    // The rest is still lent: once there is room, new files go there.
    lab.cli.ok(&["rm", "pot://lab/f"]);
    wait_until("room there", DEADLINE, || lab.lent("donor-2").chunks().is_empty());
    let (other, _) = file(lab.dir(), "other", 5, 256 << 10);
    wait_until("it to be used again", DEADLINE, || {
        // Until what was removed is reclaimed everywhere, there may be no room for three copies.
        let ran = lab.cli.run(&["cp", arg(&other), "pot://lab/g", "--copies", "3"]);
        ran.code == 0 && lab.cli.shares("pot://lab/g").contains_key("donor-2")
    });

    // The smaller cap lasts over a restart that names none.
    lab.kill_donor("donor-2");
    let state = lab.donor_state("donor-2");
    let args = ["lend", "--state", arg(&state), "--listen", "127.0.0.1:0"];
    let mut again = owner.cli.start(&args);
    wait_until("it to be back", DEADLINE, || lab.cli.donor("donor-2")["state"] == "live");
    wait_lends(&lab, "donor-2", left);
    again.kill_9();
}

#[test]
fn unused_space_is_given_back_at_once_and_repeatedly() {
    let lab = lending(1, "64MiB");
    let owner = Owner::of(&lab, "donor-1");
    let said = owner.run(&["16MiB"]).ok();
    assert!(said.text().contains("lends 48.0 MiB"), "{}", said.text());
    assert!(said.stderr.contains("instead of 64.0 MiB"), "{}", said.stderr);
    owner.run(&["16MiB"]).ok();
    wait_lends(&lab, "donor-1", 32);
    for _ in 0..2 {
        // To say it once is enough, so the second time may be refused.
        let ran = owner.run(&["--to", "24MiB"]);
        assert!(ran.code == 0 || ran.code == 2, "{}", ran.stderr);
    }
    wait_lends(&lab, "donor-1", 24);
    // Calling off what was not asked for changes nothing, and does not say that it did.
    let called_off = owner.drain(&["--cancel"]).ok().text();
    assert!(called_off.contains("lends up to 24.0 MiB as before"), "{called_off}");
    let settings = fs::read_to_string(lab.donor_state("donor-1").join("settings.toml"));
    assert!(settings.expect("written").contains("24MiB"));
}

#[test]
fn more_than_is_lent_cannot_be_given_back() {
    let lab = lending(1, "64MiB");
    let owner = Owner::of(&lab, "donor-1");
    for size in ["10TiB", "64MiB"] {
        let refused = owner.run(&[size]).exits(2);
        assert!(refused.stderr.contains("this machine lends 64.0 MiB"), "{}", refused.stderr);
        assert!(refused.stderr.contains("potluck drain"), "{}", refused.stderr);
    }
    owner.run(&["1MiB", "--now"]).exits(2);
    wait_lends(&lab, "donor-1", 64);
}
