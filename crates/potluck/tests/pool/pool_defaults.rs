//! Tests that spaces which were told nothing follow the pool's defaults.

use super::content::{arg, assert_same, file};
use super::lab::{Lab, Lending};
use super::waiting::{DEADLINE, wait_until};

/// Options of a manager whose defaults are those of every pool, and not of a test's.
const UNTOLD: [&str; 4] = ["--copies", "auto", "--trash", "7d"];

/// Waits until each chunk of a file is at so many donors.
fn wait_for_copies(lab: &Lab, path: &str, copies: usize) {
    wait_until(&format!("{copies} copies of {path}"), DEADLINE, || {
        let shares = lab.cli.shares(path);
        let most = shares.values().max().copied().unwrap_or_default();
        shares.len() == copies && shares.values().all(|chunks| *chunks == most)
    });
}

fn space_list(lab: &Lab) -> String {
    lab.cli.ok(&["space", "ls"]).text()
}

#[test]
fn unset_space_gains_second_copies_with_a_second_machine() {
    let mut lab = Lab::with_options(1, &UNTOLD);
    let made = lab.cli.json(&["space", "create", "lab"]);
    assert_eq!(made["policy"]["copies"], 1, "{made}");
    assert!(made["chosen"][0].as_str().expect("a reason").contains("while one machine lends"));
    lab.cli.ok(&["space", "create", "told", "--copies", "1"]);
    let (input, content) = file(lab.dir(), "input", 1, 3 << 20);
    for path in ["pot://lab/f", "pot://told/f"] {
        lab.cli.ok(&["cp", arg(&input), path]);
    }
    lab.lend("donor-2", Lending::default());
    lab.wait_live();
    wait_for_copies(&lab, "pot://lab/f", 2);
    wait_until("the change to be over", DEADLINE, || {
        lab.cli
            .ok(&["status"])
            .text()
            .contains("space lab: 2 copies now, since a second machine lends\n")
    });
    assert_eq!(lab.cli.shares("pot://told/f").len(), 1, "it was told one copy");
    let listed = space_list(&lab);
    assert!(listed.contains("2 copies (pool's default)") && listed.contains("1 copy "), "{listed}");
    let said = "space lab: 2 copies now, since a second machine lends; 1 file, 3.0 MiB, change";
    assert!(lab.logs().iter().any(|(_, log)| log.contains(said)), "the log says it");
    // What comes now is stored twice, also while the second machine is away, and nothing is lowered.
    let made = lab.cli.json(&["space", "create", "later"]);
    assert_eq!(made["policy"]["copies"], 2, "{made}");
    lab.kill_donor("donor-2");
    lab.kill_manager();
    lab.start_manager();
    wait_until("donor-1 to be back", DEADLINE, || lab.cli.live_donors() == ["donor-1"]);
    assert!(space_list(&lab).contains("2 copies (pool's default)"));
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    // What is removed can be brought back.
    lab.cli.ok(&["rm", "pot://lab/f"]);
    lab.cli.ok(&["undelete", "pot://lab/f"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file that was removed");
}

#[test]
fn spaces_follow_pool_defaults_as_donors_allow() {
    let lab = Lab::with_options(2, &UNTOLD);
    let state = lab.manager_dir();
    let set = |key: &str, value: &str| {
        lab.cli.ok(&["set", key, value, "--state", arg(&state)]);
    };
    set("pool.copies", "1");
    set("pool.trash", "none");
    let made = lab.cli.json(&["space", "create", "lab"]);
    assert_eq!(made["policy"]["copies"], 1, "{made}");
    let (input, _) = file(lab.dir(), "input", 2, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    set("pool.copies", "2");
    wait_for_copies(&lab, "pot://lab/f", 2);
    set("pool.trash", "3d");
    wait_until("the trash to follow", DEADLINE, || {
        lab.cli.ok(&["policy", "show", "pot://lab"]).text().contains("3d (the pool's default)")
    });
    set("pool.copies", "3");
    wait_until("too few donors to be said", DEADLINE, || {
        let status = lab.cli.ok(&["status"]).text();
        status.contains("space lab: 3 copies would be the pool's default, and needs 3 donors")
    });
    assert!(space_list(&lab).contains("2 copies (pool's default)"));
    // A space that is told something follows no more.
    lab.cli.ok(&["policy", "set", "pot://lab", "--copies", "2", "-y"]);
    set("pool.copies", "1");
    lab.cli.ok(&["space", "create", "other"]);
    let listed = space_list(&lab);
    assert!(listed.contains("1 copy (pool's default)"), "{listed}");
    assert!(listed.contains("2 copies ") && !listed.contains("2 copies (pool's"), "{listed}");
    lab.cli.fails(2, &["set", "pool.copies", "many", "--state", arg(&state)]);
}
