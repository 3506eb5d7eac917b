//! Tests who belongs to a pool: identities are never replaced, and members and invitations are listed and removed.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Cli, Lab};
use super::member::Member;
use super::program::{Complaint, code_of};
use super::waiting::{DEADLINE, wait_until};
use super::writer::Writer;
use potluck_core::entropy::SystemEntropy;
use potluck_core::ids::MemberId;
use potluck_core::policy::Override;
use potluck_wire::control::{Condition, DonorAccess, Open, Reserve, Revoke};
use potluck_wire::upgrade;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Returns all files of an identity's directory, with what is in them.
fn content_of(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = super::lent::all_contents(dir);
    files.sort();
    files
}

fn members(lab: &Lab, more: &[&str]) -> Vec<Value> {
    let said = lab.cli.json(&[&["members", "ls"], more].concat());
    said["members"].as_array().expect("members").clone()
}

fn invitations(lab: &Lab) -> Vec<Value> {
    let said = lab.cli.json(&["invite", "ls"]);
    said["invitations"].as_array().expect("invitations").clone()
}

fn open_invitations(lab: &Lab) -> usize {
    let open = |token: &&Value| token["used_by"].is_null() && token["left_seconds"] != 0;
    invitations(lab).iter().filter(open).count()
}

fn invite(lab: &Lab, role: &str) -> (String, String) {
    let said = lab.cli.json(&["invite", "--role", role]);
    (said["token"].as_str().expect("a token").into(), said["invitation"].to_string())
}

/// Asserts that a join was refused because an identity is there.
#[track_caller]
fn taken(complaint: &Complaint) {
    assert_eq!(complaint.code, "POT-E064", "{complaint:?}");
    assert!(complaint.hint.contains("the token is not used"), "{complaint:?}");
    assert!(complaint.hint.contains("--state"), "{complaint:?}");
}

#[test]
fn join_over_a_donor_explains_how_to_keep_its_store() {
    let lab = Lab::with_donors(1);
    let (state, token) = (lab.donor_state("donor-1"), lab.token("donor"));
    let refused = lab.cli.fails(10, &["join", &token, "--state", arg(&state)]);
    taken(&refused);
    let store = lab.lent("donor-1");
    let adopt = format!("potluck lend {} --adopt-store", store.0.display());
    assert!(refused.hint.contains(&adopt), "{refused:?}");
}

#[test]
fn join_never_replaces_an_identity_and_its_token_stays_good() {
    let lab = Lab::manager_only(&[]);
    let donor = lab.dir().join("donor");
    let user = lab.cli.at_home(&lab.dir().join("a home"));
    user.ok(&["join", &lab.token("donor"), "--state", arg(&donor), "--name", "desk"]);
    let before = content_of(&donor);

    let second = lab.token("donor");
    let refused = user.fails(10, &["join", &second, "--state", arg(&donor)]);
    taken(&refused);
    let said = &refused.message;
    assert!(said.contains("member 2 of pool pool, the donor “desk”"), "{said}");
    assert_eq!(content_of(&donor), before, "nothing there was touched");
    // An invitation for another role is refused as well.
    taken(&user.fails(10, &["join", &lab.token("user"), "--state", arg(&donor)]));
    assert_eq!(open_invitations(&lab), 2);
    user.ok(&["join", &second, "--state", arg(&lab.dir().join("another"))]);
    assert_eq!(open_invitations(&lab), 1);
}

#[test]
fn join_does_not_replace_an_existing_identity() {
    let lab = Lab::manager_only(&[]);
    let home = lab.dir().join("ada");
    let ada = lab.cli.at_home(&home);
    let joined = ada.json(&["join", &lab.token("user"), "--name", "ada"]);
    assert_eq!(joined["dir"], arg(&home.join("config/potluck/pools/pool")));
    let token = lab.token("admin");
    taken(&ada.fails(10, &["join", &token]));
    ada.ok(&["space", "ls"]);
    // With a place of its own, a second identity is made.
    ada.ok(&["join", &token, "--state", arg(&home.join("as admin"))]);
    ada.ok(&["--pool", arg(&home.join("as admin")), "members", "ls"]);
    let pools: Vec<_> = super::lent::files_of(&home.join("config/potluck/pools"));
    assert_eq!(pools.len(), 1, "nothing half made stays: {pools:?}");
}

#[test]
fn two_pools_of_one_name_are_both_kept_and_told_apart() {
    let labs = [Lab::manager_only(&[]), Lab::manager_only(&[])];
    let ada = labs[0].cli.at_home(&labs[0].dir().join("ada"));
    for (lab, space) in labs.iter().zip(["first", "second"]) {
        lab.cli.ok(&["space", "create", space]);
        lab.cli.ok(&["space", "grant", space, "everyone", "list"]);
        ada.ok(&["join", &lab.token("user")]);
    }
    for ambiguous in [&["space", "ls"][..], &["--pool", "pool", "space", "ls"]] {
        let refused = ada.fails(2, ambiguous);
        assert!(refused.message.matches("pool-").count() == 2, "{refused:?}");
    }
    let said = ada.fails(2, &["--pool", "pool", "ls"]).message;
    let names: Vec<_> = said.split([' ', ',']).filter(|word| word.starts_with("pool-")).collect();
    let spaces = |name: &str| ada.ok(&["--pool", name, "space", "ls"]).text();
    let told: Vec<_> = names.iter().map(|name| spaces(name)).collect();
    assert_eq!(told.iter().filter(|text| text.contains("first")).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|text| text.contains("second")).count(), 1, "{told:?}");
    ada.fails(3, &["--pool", "another", "ls"]);
}

#[test]
fn a_name_of_a_pool_is_not_looked_for_in_the_current_directory() {
    let lab = Lab::manager_only(&[]);
    // Commands run in the test's directory: a stranger's archive was unpacked there.
    lab.cli.at_home(&lab.dir().join("eve")).ok(&[
        "join",
        &lab.token("user"),
        "--state",
        arg(&lab.dir().join("climate")),
    ]);
    let ada = lab.cli.at_home(&lab.dir().join("ada"));
    ada.fails(3, &["--pool", "climate", "ls"]);
    ada.ok(&["--pool", "./climate", "space", "ls"]);
}

#[test]
fn concurrent_joins_spend_one_token() {
    let lab = Lab::manager_only(&[]);
    let donor = lab.dir().join("donor");
    let tokens: Vec<_> = (0..4).map(|_| lab.token("donor")).collect();
    let start = |token: &String| lab.cli.start(&["join", token, "--state", arg(&donor)]);
    let mut running: Vec<_> = tokens.iter().map(start).collect();
    let codes: Vec<_> = running.iter_mut().map(|join| code_of(join.end("a join"))).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| [0, 10].contains(code)), "{codes:?}");
    assert_eq!((members(&lab, &[]).len(), open_invitations(&lab)), (2, 3));
    // The identity that was left is whole: the manager knows it.
    lab.cli.ok(&["away", "--end", "--state", arg(&donor)]);
}

#[test]
fn join_checks_its_directory_before_the_token() {
    let lab = Lab::manager_only(&[]);
    let (token, _) = invite(&lab, "donor");
    for dir in ["/proc/potluck", "/proc/self"] {
        let refused = lab.cli.fails(1, &["join", &token, "--state", dir]);
        assert!(refused.hint.contains("the token is not used"), "{refused:?}");
    }
    assert_eq!(open_invitations(&lab), 1);
    lab.cli.ok(&["join", &token, "--state", arg(&lab.dir().join("donor"))]);
}

#[test]
fn interrupted_join_is_completed_by_repeating_it() {
    let lab = Lab::manager_only(&[]);
    let donor = lab.dir().join("donor");
    let (token, _) = invite(&lab, "donor");
    // Something is in the way of writing the certificate, once the manager has made it.
    fs::create_dir_all(donor.join("cert.pem/in the way")).expect("a directory");
    let broke = lab.cli.fails(1, &["join", &token, "--state", arg(&donor)]);
    assert!(broke.hint.contains("run the same command again"), "{broke:?}");
    assert_eq!((members(&lab, &[]).len(), open_invitations(&lab)), (2, 0));
    fs::remove_dir_all(donor.join("cert.pem")).expect("removed");
    let joined = lab.cli.json(&["join", &token, "--state", arg(&donor)]);
    assert_eq!(joined["member"], 2, "the same member");
    assert_eq!(members(&lab, &[]).len(), 2);
    assert!(!donor.join("joining.json").exists());
    lab.cli.ok(&["away", "--end", "--state", arg(&donor)]);
    // Anybody else finds the token used.
    let used = lab.cli.fails(8, &["join", &token, "--state", arg(&lab.dir().join("eve"))]);
    assert_eq!(used.code, "POT-E060");
    assert!(!lab.dir().join("eve").exists(), "a refused join leaves nothing");
}

#[test]
fn lend_does_not_go_on_as_another_pools_donor() {
    let labs = [Lab::manager_only(&[]), Lab::manager_only(&[])];
    let donor = labs[0].dir().join("donor");
    labs[0].cli.ok(&["join", &labs[0].token("donor"), "--state", arg(&donor)]);
    let token = labs[1].token_file("donor");
    let lent = labs[0].dir().join("lent");
    let args = ["lend", arg(&lent), "--state", arg(&donor), "--token-file", arg(&token)];
    taken(&labs[0].cli.fails(10, &args));
    assert_eq!(open_invitations(&labs[1]), 1);
    assert!(!lent.exists());
}

fn join(lab: &Lab, role: &str, name: &str, home: &str) -> Cli {
    let cli = lab.cli.at_home(&lab.dir().join(home));
    cli.ok(&["join", &lab.token(role), "--name", name]);
    cli
}

/// Tests promise X5.
#[test]
fn members_list_shows_inviters_and_removal_is_immediate() {
    let lab = Lab::manager_only(&[]);
    let ada = join(&lab, "user", "ada", "1");
    let bobs = [join(&lab, "user", "bob", "2"), join(&lab, "user", "bob", "3")];
    let root = join(&lab, "admin", "root", "4");
    ada.ok(&["space", "ls"]);
    ada.fails(8, &["members", "ls"]);

    let all = members(&lab, &[]);
    let names: Vec<_> = all.iter().map(|member| member["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["admin", "ada", "bob", "bob", "root"]);
    assert_eq!((&all[0]["invited_by"], &all[1]["invited_by"]), (&Value::Null, &Value::from(1)));
    assert!(all[1]["seen_wall_ms"].as_i64() > Some(1_600_000_000_000), "{}", all[1]);
    assert!(all[1]["joined_wall_ms"].as_i64() > Some(1_600_000_000_000), "{}", all[1]);
    assert!(all[2]["seen_wall_ms"].is_null(), "{}", all[2]);
    assert_eq!(members(&lab, &["--role", "admin"]).len(), 2);
    let text = lab.cli.ok(&["members", "ls"]).text();
    assert!(text.contains("admin (1)") && text.contains("never"), "{text}");

    let several = lab.cli.fails(2, &["members", "rm", "bob", "-y"]);
    assert!(several.message.contains("3 (user), 4 (user)"), "{several:?}");
    lab.cli.fails(3, &["members", "rm", "4", "nobody", "-y"]);
    bobs[1].ok(&["space", "ls"]);
    lab.cli.fails(2, &["members", "rm", "4"]); // nobody is there to be asked
    lab.cli.ok(&["members", "rm", "4", "-n"]);
    bobs[1].ok(&["space", "ls"]);
    lab.cli.ok(&["members", "rm", "4", "-y"]);
    let refused = bobs[1].fails(8, &["space", "ls"]);
    assert_eq!(refused.code, "POT-E065");
    assert!(refused.hint.contains("potluck leave"), "{refused:?}");
    bobs[0].ok(&["space", "ls"]);

    // An admin can be removed by another, and the last one by nobody.
    assert!(lab.cli.fails(10, &["members", "rm", "admin", "-y"]).hint.contains("leave"));
    // Invitations of whoever is removed let nobody in any more.
    let [(used, _), (open, number)] = [invite(&lab, "user"), invite(&lab, "admin")];
    lab.cli.at_home(&lab.dir().join("5")).ok(&["join", &used, "--name", "eve"]);
    let look = root.json(&["members", "rm", "1", "bob", "-n"]);
    let void = look["void_invitations"].as_array().expect("invitations");
    let void: Vec<_> = void.iter().map(|it| it["invitation"].to_string()).collect();
    assert_eq!(void, std::slice::from_ref(&number));
    let text = root.ok(&["members", "rm", "1", "-n"]).text();
    assert!(text.contains(&format!("invitation {number} of admin (1), for an admin")), "{text}");
    root.ok(&["members", "rm", "1", "bob", "-y"]);
    let refused = lab.cli.at_home(&lab.dir().join("late")).fails(8, &["join", &open]);
    assert_eq!(refused.code, "POT-E060", "{refused:?}");
    lab.cli.fails(8, &["members", "ls"]);
    let left = root.json(&["members", "ls"]);
    assert_eq!(left["members"].as_array().expect("members").len(), 3);
    let ever = root.json(&["members", "ls", "--revoked"]);
    let revoked = ever["members"].as_array().expect("members").iter();
    assert_eq!(revoked.filter(|member| member["revoked"] == true).count(), 3);
    root.ok(&["members", "rm", "4", "-y"]); // again, by its number: nothing happens
}

#[test]
fn an_invitation_that_was_removed_lets_nobody_in() {
    let lab = Lab::manager_only(&[]);
    let [(first, one), (second, two)] = [invite(&lab, "user"), invite(&lab, "admin")];
    let listed = invitations(&lab);
    assert_eq!((&listed[0]["role"], &listed[0]["by"]), (&Value::from("user"), &Value::from(1)));
    assert!(listed[0]["left_seconds"].as_u64() > Some(23 * 3600), "{listed:?}");
    lab.cli.ok(&["invite", "rm", &two]);
    let ada = lab.cli.at_home(&lab.dir().join("ada"));
    let refused = ada.fails(8, &["join", &second]);
    assert!(refused.message.contains("was removed"), "{refused:?}");
    ada.ok(&["join", &first, "--name", "ada"]);
    let text = lab.cli.ok(&["invite", "ls"]).text();
    assert!(text.contains("used: ada (2) joined"), "{text}");
    let used = lab.cli.fails(10, &["invite", "rm", &one]);
    assert!(used.hint.contains("potluck members rm 2"), "{used:?}");
    lab.cli.fails(3, &["invite", "rm", &two]);
}

#[test]
fn a_donor_that_files_need_is_removed_by_neither_command() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, _) = file(lab.dir(), "input", 3, 300_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    for verb in ["members", "nodes"] {
        let refused = lab.cli.fails(10, &[verb, "rm", "donor-1", "-y"]);
        assert!(refused.message.contains("pot://lab/f"), "{refused:?}");
        assert!(refused.hint.contains("potluck drain"), "{refused:?}");
    }
    lab.cli.ok(&["rm", "pot://lab/f"]);
    lab.cli.ok(&["members", "rm", "donor-1", "-y"]);
    assert!(lab.cli.status()["donors"].as_array().expect("donors").is_empty());
    lab.kill_donor("donor-1");
}

fn reserve(path: &str) -> Reserve {
    Reserve {
        path: path.parse().expect("a path"),
        bytes: Some(100_000),
        policy: Override::default(),
        condition: Condition::Always,
        interrupted: Default::default(),
        link: None,
    }
}

/// Returns whether a donor lets a member in with a ticket that it has.
pub fn is_let_in(member: &Member, access: &DonorAccess) -> bool {
    let ticket = access.ticket.as_ref().expect("a ticket");
    let opening = upgrade::open(&*member.env.net, &SystemEntropy, &access.addresses, ticket);
    member.runtime.block_on(opening).is_ok()
}

#[test]
fn revoked_tickets_are_refused_within_60_s_x5() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.cli.ok(&["space", "grant", "lab", "everyone", "read", "write"]);
    let (input, _) = file(lab.dir(), "input", 3, 100_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/x"]);
    let dir = lab.dir().join("ada");
    let joined = lab.cli.json(&["join", &lab.token("user"), "--state", arg(&dir)]);
    let number: MemberId = serde_json::from_value(joined["member"].clone()).expect("a member");
    let ada = Member::load(&dir);
    let open = Open {
        path: "pot://lab/x".parse().expect("a path"),
        recursive: false,
        after: None,
        leased: false,
    };
    let reserve = reserve("pot://lab/x");
    let read = ada.call(&open).expect("she may read").donors;
    let written = ada.call(&reserve).expect("she may write").donors;
    let is_let_in = |access| is_let_in(&ada, access);
    assert!(is_let_in(&read[0]) && is_let_in(&written[0]));
    Member::load(&lab.manager_dir().join("admin")).call(&Revoke::of(number)).expect("revoked");
    wait_until("donors to refuse her", Duration::from_secs(60), || {
        !is_let_in(&read[0]) && !is_let_in(&written[0])
    });
}

#[test]
fn revoked_reader_fails_without_waiting_x5() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "grant", "lab", "everyone", "read"]);
    let (input, _) = file(lab.dir(), "input", 3, 96 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/x"]);
    let dir = lab.dir().join("ada");
    let joined = lab.cli.json(&["join", &lab.token("user"), "--state", arg(&dir)]);
    let open = Open {
        path: "pot://lab/x".parse().expect("a path"),
        recursive: false,
        after: None,
        leased: false,
    };
    let read = Member::load(&dir).call(&open).expect("she may read").donors;
    let mut reading = lab.cli.under(&dir).start(&["--retry-for", "30s", "cat", "pot://lab/x"]);
    let mut output = reading.child().stdout.take().expect("a pipe");
    output.read_exact(&mut vec![0; 1 << 20]).expect("a beginning");
    lab.cli.ok(&["members", "rm", &joined["member"].to_string(), "-y"]);
    let ada = Member::load(&dir);
    wait_until("donors to refuse her", DEADLINE, || read.iter().all(|at| !is_let_in(&ada, at)));
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("the rest that she had");
    assert_eq!(code_of(reading.end_within("the reader", DEADLINE)), 8);
    assert!(rest.len() < 95 << 20, "she read on: {}", rest.len());
}

#[test]
fn transfers_survive_revocation_of_another_member() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "grant", "lab", "everyone", "read", "write"]);
    let dir = lab.dir().join("ada");
    let joined = lab.cli.json(&["join", &lab.token("user"), "--state", arg(&dir)]);
    let number: MemberId = serde_json::from_value(joined["member"].clone()).expect("a member");
    let promised = || {
        let status = lab.cli.status();
        let donors = status["donors"].as_array().expect("donors").clone();
        donors.iter().filter_map(|donor| donor["promised"].as_u64()).sum::<u64>()
    };
    let mut writer = Writer::start(&lab.cli, "pot://lab/f", &[]);
    // By then the promise has grown so far that it covers what is fed later.
    writer.feed(&bytes(1, 11 << 20));
    wait_until("chunks to reach the donors", DEADLINE, || lab.chunk_files() >= 165);
    let before = promised();
    let ada = Member::load(&dir);
    let access = ada.call(&reserve("pot://lab/hers")).expect("she may write").donors;
    Member::load(&lab.manager_dir().join("admin")).call(&Revoke::of(number)).expect("revoked");
    wait_until("tickets to be void", DEADLINE, || access.iter().all(|at| !is_let_in(&ada, at)));
    (2..4).for_each(|part| writer.feed(&bytes(part, 1 << 20)));
    wait_until("chunks to reach the donors", DEADLINE, || lab.chunk_files() >= 195);
    assert!(promised() <= before, "nothing was reserved for what had been promised already");
    assert_eq!(writer.finish(), 0);
    let parts = [bytes(1, 11 << 20)].into_iter().chain((2..4).map(|part| bytes(part, 1 << 20)));
    let all: Vec<u8> = parts.flatten().collect();
    assert_same(&lab.cli.cat("pot://lab/f"), &all, "all of it");
}
