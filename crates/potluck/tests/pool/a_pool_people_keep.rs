//! Tests a pool that lasts over restarts, and who is let in.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Cli, Lab, stop};
use super::member::Member;
use super::program::Running;
use super::waiting::{DEADLINE, wait_until};
use potluck_core::ids::MemberId;
use potluck_wire::control::{Revoke, Status};
use potluck_wire::identity::{Identity, fingerprint};
use potluck_wire::tls::TlsDial;
use potluck_wire::token::JoinToken;
use rustix::process::Signal;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

/// Starts `potluck up` with everything in its default places, waits until it serves, and returns its process and
/// address.
fn up(cli: &Cli, dir: &Path, listen: &str) -> (Running, String) {
    let ready = dir.join("up.ready");
    let _ = std::fs::remove_file(&ready); // an earlier run may have left one
    let mut command = cli.command();
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("logs/up.log"));
    command.args(["up", "--listen", listen, "--max", "1GiB", "--keep-free", "0%"]);
    command.arg("--ready-file").arg(&ready).stdout(Stdio::null()).stderr(log.expect("a log"));
    let mut running = Running::start(&mut command);
    wait_until("`potluck up` to serve", DEADLINE, || {
        assert!(running.ended().is_none(), "`potluck up` ended");
        ready.exists()
    });
    let text = std::fs::read(&ready).expect("a ready file");
    let said: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(said["pid"], running.pid().as_raw_nonzero().get());
    (running, said["address"].as_str().expect("an address").to_owned())
}

#[test]
fn up_restarts_and_keeps_files() {
    let lab = Lab::empty();
    let (input, content) = file(lab.dir(), "input", 3, 6 << 20);
    let (mut running, first) = up(&lab.cli, lab.dir(), "127.0.0.1:0");
    // The machine that runs the pool finds it without --pool.
    wait_until("the donor to be live", DEADLINE, || lab.cli.live_donors().len() == 1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/kept"]);
    assert_eq!(stop(&mut running, Signal::TERM), 0, "SIGTERM is a clean end");

    // Somebody may have taken the port meanwhile, and the pool must not depend on it.
    let (mut running, second) = up(&lab.cli, lab.dir(), "127.0.0.1:0");
    assert_ne!(first, second);
    wait_until("the donor to be live", DEADLINE, || lab.cli.live_donors().len() == 1);
    assert_same(&lab.cli.cat("pot://lab/kept"), &content, "the file after a clean restart");

    running.kill_9();
    let (mut running, _) = up(&lab.cli, lab.dir(), "127.0.0.1:0");
    wait_until("the donor to be live", DEADLINE, || lab.cli.live_donors().len() == 1);
    assert_same(&lab.cli.cat("pot://lab/kept"), &content, "the file after kill -9");
    assert_eq!(stop(&mut running, Signal::INT), 0, "Ctrl-C is a clean end");
    for place in ["state/potluck/manager", "state/potluck/donor", "data/potluck/lent"] {
        assert!(lab.dir().join("home").join(place).is_dir(), "nothing in {place}");
    }
}

#[test]
fn a_token_works_once_for_one_role() {
    let lab = Lab::manager_only(&[]);
    let printed = lab.cli.ok(&["invite", "--role", "user"]).text();
    assert!(printed.ends_with("| potluck join -\n"), "no process has it as an argument: {printed}");
    let file = lab.dir().join("token");
    for role in ["user", "admin", "donor"] {
        let token = lab.token(role);
        let joiner = lab.cli.at_home(&lab.dir().join(format!("joiner-{role}")));
        let ran = match role {
            "user" => {
                // The token is pasted as people do: all of the line that `invite` printed.
                std::fs::write(&file, format!("\necho {token} | potluck join -\nmore"))
                    .expect("written");
                let stdin = Stdio::from(File::open(&file).expect("open"));
                joiner.run_with_input(&["--json", "join", "-", "--name", "ann"], stdin)
            }
            "admin" => {
                std::fs::write(&file, &token).expect("written");
                let from_file = ["join", "--token-file", arg(&file)];
                joiner.run(&[&["--json"], &from_file[..], &["--name", "ann"]].concat())
            }
            _ => joiner.run(&["--json", "join", &token, "--name", "ann"]),
        };
        let joined = ran.ok().json();
        assert_eq!((&joined["role"], &joined["name"]), (&role.into(), &"ann".into()), "{joined}");
        let again = lab.cli.at_home(&lab.dir().join(format!("second-{role}")));
        let refused = again.fails(8, &["join", &token]);
        assert_eq!(refused.code, "POT-E060", "{refused:?}");
        assert!(refused.message.contains("used"), "{refused:?}");
        assert!(!refused.hint.is_empty(), "{refused:?}");
        let ran = again.run(&["join", &token]);
        assert!(ran.stderr.contains("everybody on this machine could read"), "{}", ran.stderr);
    }
    // Each role is refused calls that are not for it.
    let user = lab.cli.at_home(&lab.dir().join("joiner-user"));
    user.ok(&["ls"]);
    let admin = lab.cli.at_home(&lab.dir().join("joiner-admin"));
    admin.ok(&["space", "create", "lab"]);
    for forbidden in [&["invite"][..], &["group", "create", "mine"], &["repair", "now"]] {
        assert_eq!(user.fails(8, forbidden).code, "POT-E062", "{forbidden:?}");
    }
    // What rights decide is tested in space_rights.rs.
    assert_eq!(user.fails(3, &["space", "rm", "lab"]).code, "POT-E011");
    let donor = lab.cli.under(&lab.dir().join("joiner-donor/state/potluck/donor"));
    for forbidden in [&["ls"][..], &["status"], &["cat", "pot://lab/x"], &["invite"]] {
        assert_eq!(donor.fails(8, forbidden).code, "POT-E062", "{forbidden:?}");
    }
    // A user's token does not make a donor.
    let token = lab.token_file("user");
    let (lent, state) = (lab.dir().join("lent"), lab.dir().join("state"));
    let args = ["lend", arg(&lent), "--state", arg(&state), "--token-file", arg(&token)];
    lab.cli.at_home(&lab.dir().join("lender")).fails(8, &args);
}

#[test]
fn one_token_used_twice_at_once_lets_one_in() {
    let lab = Lab::manager_only(&[]);
    let token = lab.token("user");
    let mut joining: Vec<_> = (0..4)
        .map(|number| {
            let home = lab.dir().join(format!("racer-{number}"));
            lab.cli.at_home(&home).start(&["join", &token])
        })
        .collect();
    let codes: Vec<_> =
        joining.iter_mut().map(|join| super::program::code_of(join.end("join"))).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 8).count(), 3, "{codes:?}");
}

#[test]
fn an_expired_token_is_refused() {
    let lab = Lab::manager_only(&[]);
    let invited = lab.cli.json(&["invite", "--role", "user", "--ttl", "1s"]);
    let token = invited["token"].as_str().expect("a token");
    let mut number = 0;
    // Time is the condition here; asking does not use up a token that has expired.
    super::waiting::pause(std::time::Duration::from_millis(1100));
    wait_until("the token to expire", DEADLINE, || {
        number += 1;
        let joiner = lab.cli.at_home(&lab.dir().join(format!("late-{number}")));
        let ran = joiner.run(&["--json", "join", token]);
        assert_eq!(ran.code, 8, "a token of 1 s was taken after 1.1 s: {}", ran.stderr);
        let refused = ran.failure();
        refused.code == "POT-E060" && refused.message.contains("expired")
    });
}

#[test]
fn a_token_pins_the_pools_ca() {
    let (ours, theirs) = (Lab::manager_only(&[]), Lab::manager_only(&[]));
    let token: JoinToken = ours.token("user").parse().expect("a token");
    // The token is ours, but somebody else answers at the address, who must not get the secret.
    let hijacked =
        JoinToken { manager: theirs.address().parse().expect("an address"), ..token.clone() };
    let joiner = ours.cli.at_home(&ours.dir().join("joiner"));
    assert_eq!(joiner.fails(8, &["join", &hijacked.to_string()]).code, "POT-E063");
    // The token was not used up by that.
    joiner.ok(&["join", &token.to_string()]);
}

#[test]
fn every_control_connection_is_mutual_tls() {
    let (ours, theirs) = (Lab::manager_only(&[]), Lab::manager_only(&[]));
    let admin = Member::load(&ours.manager_dir().join("admin"));
    admin.call(&Status {}).expect("an admin may ask");

    // Without a certificate only joining is possible.
    let nobody = Arc::new(TlsDial::joining(fingerprint(&admin.identity.ca)));
    let refused = admin.call_through(nobody, &Status {}).expect_err("no certificate");
    assert_eq!(refused.code, "POT-E061", "{refused:?}");

    // A certificate that the authority of another pool signed is refused.
    let other = Identity::load(&theirs.manager_dir().join("admin")).expect("an identity");
    let mut mixed = other.clone();
    (mixed.ca, mixed.about.manager) =
        (admin.identity.ca.clone(), ours.address().parse().expect("one"));
    Member::new(mixed).call(&Status {}).expect_err("a foreign certificate");

    // A member of one pool does not talk to the manager of another either.
    let mut lost = admin.identity.clone();
    lost.about.manager = theirs.address().parse().expect("an address");
    let refused = Member::new(lost).call(&Status {}).expect_err("a foreign manager");
    assert_eq!(refused.code, "POT-E063", "{refused:?}");
}

#[test]
fn a_revoked_member_is_refused_everywhere() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let user = lab.cli.at_home(&lab.dir().join("user"));
    let joined = user.json(&["join", &lab.token("user")]);
    user.ok(&["ls"]);
    let member: MemberId = serde_json::from_value(joined["member"].clone()).expect("a member");
    let admin = Member::load(&lab.manager_dir().join("admin"));
    admin.call(&Revoke::of(member)).expect("an admin may revoke");
    let (input, _) = file(lab.dir(), "input", 3, 100_000);
    for command in [&["ls"][..], &["status"], &["cp", arg(&input), "pot://lab/x"]] {
        assert_eq!(user.fails(8, command).code, "POT-E065", "{command:?}");
    }
}

#[test]
fn a_restarted_manager_and_donor_find_each_other() {
    let mut lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, content) = file(lab.dir(), "input", 33, 3 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f", "--chunk-size", "256KiB"]);
    let epoch = lab.cli.status()["epoch"].as_u64().expect("an epoch");
    assert_eq!(stop(lab.manager(), Signal::TERM), 0, "SIGTERM is a clean end");
    assert_eq!(stop(lab.donor("donor-1"), Signal::TERM), 0, "SIGTERM is a clean end");
    lab.start_manager();
    lab.start_donor("donor-1");
    lab.wait_back("donor-1");
    assert!(lab.cli.status()["epoch"].as_u64() > Some(epoch), "every start has its own epoch");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file after both restarted");
    // Identities are kept: nobody joined again.
    assert_eq!(lab.cli.status()["donors"].as_array().map(Vec::len), Some(2));
    lab.cli.ok(&["cp", arg(&input), "pot://lab/g"]);
    assert_same(&lab.cli.cat("pot://lab/g"), &bytes(33, 3 << 20), "a file stored after that");
}

#[test]
fn relative_paths_are_as_good_as_absolute_ones() {
    let lab = Lab::empty();
    // Commands run in the lab's own directory.
    let serve = |args: &[&str], ready: &str| {
        let mut running = lab.cli.start(args);
        wait_until(&format!("`potluck {}` to serve", args.join(" ")), DEADLINE, || {
            assert!(running.ended().is_none(), "{args:?} ended");
            lab.dir().join(ready).exists()
        });
        running
    };
    let listen = "127.0.0.1:0";
    let _manager = serve(
        &["manager", "--state", "m", "--listen", listen, "--ready-file", "m.ready"],
        "m.ready",
    );
    let admin = lab.cli.under(Path::new("m/admin"));
    let invited = admin.run(&["--json", "invite", "--role", "donor"]).ok().json();
    std::fs::write(lab.dir().join("token"), invited["token"].as_str().expect("a token"))
        .expect("written");
    let joining = ["lend", "lent", "--state", "d", "--token-file", "token"];
    let lend = [&joining[..], &["--max", "1GiB", "--keep-free", "0%"]].concat();
    let _donor =
        serve(&[&lend[..], &["--listen", listen, "--ready-file", "d.ready"]].concat(), "d.ready");
    let live = || admin.run(&["--json", "status"]).ok().json()["donors"][0]["state"] == "live";
    wait_until("the donor to be live", DEADLINE, live);
    admin.ok(&["space", "create", "lab"]);
    let (_, content) = file(lab.dir(), "input", 3, 100_000);
    admin.ok(&["cp", "input", "pot://lab/"]);
    admin.ok(&["cp", "pot://lab/input", "output"]);
    assert_same(&std::fs::read(lab.dir().join("output")).expect("a copy"), &content, "the copy");
}
