//! Tests that a pool heals its own leftovers after a restart, and lets foreign ones alone.

use super::content::{arg, assert_same, bytes, file};
use super::lab::Lab;
use super::member::Member;
use super::waiting::{DEADLINE, wait_until};
use potluck_core::attributes::{FileTime, Permissions};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::policy::{AckLevel, Override};
use potluck_core::recipe::{self, Entry};
use potluck_wire::bulk::{BulkIo, Request};
use potluck_wire::control::{
    Abort, Commit, Condition, DonorAccess, FileCommit, Offer, Outcome, Renew, Reserve,
};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::Acknowledged;
use std::fs;
use std::io::Write;

#[test]
fn leftovers_are_healed() {
    let mut lab = Lab::with_options(2, &["--lease", "10s", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 11, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    // A session is open when everything dies, with chunks that nothing refers to afterwards.
    let mut writer = lab.cli.start(&["cp", "-", "pot://lab/lost"]);
    let mut pipe = writer.child().stdin.take().expect("a pipe");
    pipe.write_all(&bytes(12, 3 << 20)).expect("a writer that reads");
    wait_until("chunks to flow", DEADLINE, || lab.chunk_files() > 16 + 20);
    lab.kill_manager();
    writer.kill_9();
    for name in lab.donor_names() {
        lab.kill_donor(&name);
        // These are the files that a donor leaves when it dies in mid-write, and those that a failing disk may make.
        let lent = lab.lent(&name);
        fs::write(lent.0.join("temp/0123456789abcdef-7"), bytes(13, 50_000)).expect("a file");
        fs::write(lent.0.join("chunks/00/not-a-chunk"), "odd").expect("a file");
        let cut = "ab".to_owned() + &"0".repeat(62);
        fs::write(lent.0.join("chunks/ab").join(&cut), "too short").expect("a file");
    }
    lab.start_manager();
    for name in lab.donor_names() {
        lab.start_donor(&name);
    }
    lab.wait_live();
    lab.wait_left(16);
    for name in lab.donor_names() {
        let quarantined = lab.lent(&name).quarantine();
        assert_eq!(quarantined.len(), 2, "quarantined, not deleted: {quarantined:?}");
    }
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the committed file");
    lab.cli.fails(3, &["stat", "pot://lab/lost"]);
    // The path and the space are free again.
    lab.cli.ok(&["cp", arg(&input), "pot://lab/lost", "--if-absent"]);
}

#[test]
fn two_processes_never_share_a_directory() {
    let lab = Lab::with_donors(1);
    let state = lab.manager_dir();
    let ran = lab.cli.run(&["manager", "--state", arg(&state), "--listen", "127.0.0.1:0"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("another manager"), "{}", ran.stderr);
    let (lent, state) = (lab.lent("donor-1").0, lab.dir().join("donor-1/state"));
    let ran = lab.cli.run(&["lend", arg(&lent), "--state", arg(&state), "--max", "1GiB"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("is lent already, by a process"), "{}", ran.stderr);
}

#[test]
fn a_donor_does_not_begin_anew_where_its_disk_is_not_mounted() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, content) = file(lab.dir(), "input", 14, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.kill_donor("donor-1");
    let (lent, unmounted) = (lab.lent("donor-1").0, lab.dir().join("unmounted"));
    fs::rename(&lent, &unmounted).expect("moved away");
    fs::create_dir(&lent).expect("a bare mount point");
    let state = lab.dir().join("donor-1/state");
    let ran = lab.cli.run(&["lend", arg(&lent), "--state", arg(&state), "--max", "1GiB"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("mount"), "{}", ran.stderr);
    assert_eq!(super::lent::files_of(&lent).len(), 0, "nothing was made there");
    // The owner's own files are not a store either.
    fs::write(lent.join("thesis.tex"), "mine").expect("a file");
    let other = lab.dir().join("other/state");
    let token = lab.token_file("donor");
    let token = arg(&token);
    let args = ["lend", arg(&lent), "--state", arg(&other), "--token-file", token, "--max", "1GiB"];
    assert_ne!(lab.cli.run(&args).code, 0);
    assert_eq!(fs::read(lent.join("thesis.tex")).expect("still there"), b"mine");
    fs::remove_dir_all(&lent).expect("removed");
    fs::rename(&unmounted, &lent).expect("mounted again");
    lab.start_donor("donor-1");
    lab.wait_back("donor-1");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

/// A copy may reach a donor whose answer does not reach the writer, or comes second after a hedge:
/// then no commit names it.
#[test]
fn a_copy_that_no_commit_named_is_reclaimed_with_its_file() {
    let lab = Lab::with_options(2, &["--lease", "2m", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--plain", "--chunk-size", "64KiB"]);
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let body = bytes(15, 50_000);
    let (name, digest) = (ChunkName::of(&body), Digest::of(&body));
    let path: potluck_core::path::PoolPath = "pot://lab/f".parse().expect("a path");
    let reserve = Reserve {
        path: path.clone(),
        bytes: Some(1 << 20),
        policy: Override::default(),
        condition: Condition::Always,
        interrupted: Default::default(),
        link: None,
    };
    let reserved = admin.call(&reserve).expect("a session");
    let session = reserved.session;
    admin
        .call(&Offer { session, chunks: Packed(vec![name]), ack: AckLevel::Memory, so_far: None })
        .expect("an offer");
    let put = |donor: usize| {
        let mut opened = admin.open(&reserved.donors[donor]);
        let reply = admin.runtime.block_on(async {
            let put = Request::put(name, AckLevel::Memory, body.len() as u32);
            let head = put.encode(0, &mut opened.lane);
            opened.io.write(&head, &body).await.expect("sent");
            opened.inbox.reply(&mut opened.io).await.expect("an answer").expect("an answer").1
        });
        let (ack, receipt) = reply.receipt.expect("a receipt");
        Acknowledged { chunk: 0, donor: reserved.donors[donor].donor, ack, receipt }
    };
    let named = put(0);
    put(1);
    // The manager hears of the second copy before it knows the chunk.
    let second = &reserved.donors[1].name;
    wait_until("the second copy to be reported", DEADLINE, || {
        lab.cli.donor(second)["used"].as_u64() > Some(50_000)
    });
    let entry = Entry { name, digest, len: body.len() as u32, sealed: false };
    let file = FileCommit {
        metadata: None,
        path,
        size: body.len() as u64,
        digest,
        mtime: FileTime::of_ms(0),
        permissions: Permissions::FILE,
        owner: None,
        changed: FileTime::default(),
        accessed: None,
        origin: None,
        chunk_size: 64 << 10,
        copies: 1,
        inline: None,
        pages: recipe::pack(&digest, &[entry][..].into()).into_iter().map(Blob).collect(),
        ec: None,
        parity: Packed::default(),
        acknowledged: Packed(vec![named]),
        condition: Condition::Always,
        in_parts: None,
    };
    let commit = Commit {
        session,
        batch: 0,
        files: vec![file],
        done: true,
        soon: false,
        traffic: Vec::new(),
    };
    let committed = admin.call(&commit).expect("a commit");
    assert!(matches!(committed.files[..], [Outcome::Stored { .. }]), "{committed:?}");
    assert_same(&lab.cli.cat("pot://lab/f"), &body, "the file");
    assert_eq!(lab.chunk_files(), 2);
    lab.cli.ok(&["rm", "pot://lab/f"]);
    lab.wait_clean(0);
}

/// A user that only wants to fill the pool offers nothing, so that no file could ever be made of it.
#[test]
fn unoffered_chunks_are_bounded_by_the_reservation_and_reclaimed() {
    const CHUNK: usize = 64 << 10;
    let lab = Lab::with_options(2, &["--lease", "2m", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--plain", "--chunk-size", "64KiB"]);
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let reserve = Reserve {
        path: "pot://lab/f".parse().expect("a path"),
        bytes: Some(1 << 20),
        policy: Override { copies: Some(1), ..Override::default() },
        condition: Condition::Always,
        interrupted: Default::default(),
        link: None,
    };
    let reserved = admin.call(&reserve).expect("a session");
    let session = reserved.session;
    let mut donors = reserved.donors;
    let mut stored = 0;
    // Chunks are put one after the other, until no ticket takes any more.
    for number in 0.. {
        let body = bytes(1000 + number, CHUNK);
        let refused: Vec<_> = donors
            .iter()
            .filter(|donor| !put_on(&admin, donor, &body))
            .map(|at| at.donor)
            .collect();
        stored += donors.len() - refused.len();
        if refused.len() < donors.len() {
            continue;
        }
        let renewed =
            admin.call(&Renew { session, refused, traffic: Vec::new() }).expect("renewed").donors;
        if renewed.iter().all(|donor| !put_on(&admin, donor, &body)) {
            break;
        }
        stored += 1;
        donors = renewed;
    }
    // The most is three times what was promised, and the 64 MiB that all sessions of a member have
    // together.
    let most = (3 + 64) * (1 << 20) / CHUNK;
    assert!((most - 2..=most).contains(&stored), "{stored} of {most}");
    admin.call(&Abort { session, keep: false }).expect("aborted");
    lab.wait_clean(0);
}

/// Puts a chunk on a donor, and returns whether the donor took it.
fn put_on(member: &Member, donor: &DonorAccess, body: &[u8]) -> bool {
    let mut opened = member.open(donor);
    member.runtime.block_on(async {
        let put = Request::put(ChunkName::of(body), AckLevel::Memory, body.len() as u32);
        let head = put.encode(0, &mut opened.lane);
        opened.io.write(&head, body).await.expect("sent");
        let (_, reply) = opened.inbox.reply(&mut opened.io).await.expect("io").expect("an answer");
        reply.receipt.is_some()
    })
}
