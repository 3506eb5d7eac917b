//! A manager that does not start leaves nothing that a restore or another command stumbles over.

use super::content::arg;
use super::lab::{Cli, Lab, start_daemon, stop};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Returns a user who has no pool, with a home of their own.
fn nobody(lab: &Lab) -> Cli {
    lab.cli.at_home(&lab.dir().join("nobody"))
}

/// Fails the test unless nothing of a pool is below `home` and commands know of no pool.
#[track_caller]
fn assert_no_pool(cli: &Cli, home: &Path, when: &str) {
    let left = |dir: &str| {
        let entries = fs::read_dir(home.join(dir)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    assert_eq!(left("state/potluck"), [] as [&Path; 0], "{when}");
    assert_eq!(left("data/potluck"), [] as [&Path; 0], "{when}");
    assert_eq!(cli.fails(8, &["ls"]).code, "POT-E061", "{when}");
}

#[test]
fn a_start_that_fails_leaves_no_empty_pool() {
    let lab = Lab::empty();
    let (cli, home) = (nobody(&lab), lab.dir().join("nobody"));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let file = lab.dir().join("a-file");
    fs::write(&file, "not a directory").expect("written");
    let free = "127.0.0.1:0";
    let (below_file, file) = (file.join("lent"), arg(&file));
    for (when, args) in [
        ("the manager's port is taken", &["manager", "--listen", &*taken][..]),
        ("it cannot be reached so", &["manager", "--listen", free, "--advertise", "a b"]),
        (
            "the port of metrics is taken",
            &["manager", "--listen", free, "--metrics-listen", &taken],
        ),
        ("the manager's port is taken", &["up", "--listen", &taken]),
        ("the donor's port is taken", &["up", "--listen", free, "--lend-listen", &taken]),
        ("what is lent is a file", &["up", "--listen", free, "--lend", file]),
        ("what is lent cannot be made", &["up", "--listen", free, "--lend", arg(&below_file)]),
    ] {
        let ran = cli.run(args);
        assert_ne!(ran.code, 0, "{when}");
        assert_no_pool(&cli, &home, when);
    }
}

#[test]
fn second_pool_on_a_machine_must_be_explicit() {
    let lab = Lab::with_donors(1);
    let (cli, home) = (nobody(&lab), lab.dir().join("nobody"));
    fs::create_dir_all(home.join("state/potluck")).expect("made");
    symlink(lab.donor_state("donor-1"), home.join("state/potluck/donor")).expect("linked");
    for verb in ["up", "manager"] {
        let why = cli.fails(10, &[verb, "--listen", "127.0.0.1:0"]);
        assert_eq!(why.code, "POT-E064", "{why:?}");
        assert!(why.message.contains("donor “donor-1” of pool"), "{why:?}");
        assert!(why.hint.contains("--new-pool") && why.hint.contains("lend"), "{why:?}");
        assert!(!home.join("state/potluck/manager").exists(), "{verb}");
    }
    let again = ["manager", "--listen", "127.0.0.1:0"];
    let first = [&again[..], &["--new-pool"]].concat();
    for args in [&first[..], &again] {
        stop(&mut start_daemon(&cli, lab.dir(), "another", args).0, Signal::TERM);
    }
}

#[test]
fn a_directory_made_before_keeps_what_its_owner_put_there() {
    let lab = Lab::empty();
    let (cli, state) = (nobody(&lab), lab.dir().join("state"));
    let before = "# for the day when it starts\n";
    fs::create_dir(&state).expect("made");
    fs::write(state.join("settings.toml"), before).expect("written");
    cli.run(&["manager", "--state", arg(&state), "--listen", "no.such.host.example:1"]).exits(1);
    assert_eq!(fs::read_to_string(state.join("settings.toml")).expect("settings"), before);
    assert!(!state.join("catalog.db").exists() && !state.join("admin").exists());
}

#[test]
fn a_catalog_beside_the_keys_of_another_pool_is_not_served() {
    let [one, other] = ["one", "other"].map(|_| Lab::manager_only(&[]));
    let dirs = [one, other].map(|mut lab| {
        stop(lab.manager(), Signal::TERM);
        (lab.manager_dir(), lab)
    });
    let [(one, lab), (other, _other)] = dirs;
    fs::copy(other.join("catalog.db"), one.join("catalog.db")).expect("mixed up");
    for _ in 0..2 {
        let args = ["manager", "--state", arg(&one), "--listen", "127.0.0.1:0"];
        let why = nobody(&lab).fails(10, &args);
        assert_eq!(why.code, "POT-E085", "{why:?}");
    }
}

#[test]
fn lost_recovery_key_is_restored_from_the_kit() {
    let mut lab = Lab::manager_only(&[]);
    let state = lab.manager_dir();
    let (key, kit) = (state.join("ca/recovery.key"), state.join("recovery.kit"));
    let read = |path: &Path| fs::read_to_string(path).expect("a file");
    let (key_before, kit_before) = (read(&key), read(&kit));
    let manager_log = |lab: &Lab| read(&lab.dir().join("logs/manager.log"));

    stop(lab.manager(), Signal::TERM);
    fs::remove_file(&key).expect("lost");
    lab.start_manager();
    assert_eq!((read(&key), read(&kit)), (key_before.clone(), kit_before));
    assert!(!manager_log(&lab).contains("recovery key"), "nothing was lost");

    stop(lab.manager(), Signal::TERM);
    fs::remove_file(&key).and_then(|()| fs::remove_file(&kit)).expect("lost");
    lab.start_manager();
    assert_ne!(read(&key), key_before);
    assert!(read(&kit).contains(read(&key).trim()), "the kit has the new one");
    let said = manager_log(&lab);
    assert!(
        said.contains("WARN") && said.contains("recovery key") && said.contains("was lost"),
        "{said}"
    );
}

#[test]
fn restart_without_advertise_keeps_address_and_kit() {
    let lab = Lab::empty();
    let (cli, state) = (nobody(&lab), lab.dir().join("manager"));
    let manager = |options: &[&str]| {
        let args = [&["manager", "--state", arg(&state)], options].concat();
        start_daemon(&cli, lab.dir(), "manager", &args).0
    };
    let admin = cli.under(&state.join("admin"));
    let addresses = || admin.json(&["invite"])["manager"].to_string();
    let kit = || fs::read_to_string(state.join("recovery.kit")).expect("a kit");

    let first = ["--listen", "127.0.0.1:0", "--advertise", "lab-head.example:7711,10.9.8.7:7711"];
    let mut running = manager(&first);
    let (told, kept) = (addresses(), kit());
    assert!(told.contains("lab-head.example:7711") && told.contains("10.9.8.7:7711"), "{told}");
    assert!(kept.contains("lab-head.example:7711") && kept.contains("10.9.8.7:7711"), "{kept}");
    for options in [&[][..], &["--lease", "5m"]] {
        stop(&mut running, Signal::TERM);
        running = manager(options);
        assert_eq!((addresses(), kit()), (told.clone(), kept.clone()), "{options:?}");
    }
    stop(&mut running, Signal::TERM);
    running = manager(&["--advertise", "new-head.example:7711"]);
    assert!(addresses().contains("new-head.example") && kit().contains("new-head.example"));
    assert!(!kit().contains("lab-head.example"), "{}", kit());
    stop(&mut running, Signal::TERM);
}
