//! Tests what a member finds out about the sessions and chunks of others, and what it can spoil of them.

use crate::garbage::remove;
use crate::granting::{make_space, path, reserve_bytes};
use crate::lab::{Lab, chunk, commit, file, offer, refused, reserve};
use potluck_core::ids::SessionId;
use potluck_core::rights::Right;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Abort, Commit, Condition, CopyFault, CopyFiles, Holding, List, Outcome, Report, Reported,
};
use potluck_wire::error::code;
use potluck_wire::token::Role;

#[tokio::test]
async fn offers_of_others_do_not_satisfy_an_upload() {
    let lab = Lab::new().await;
    let (ada, eve) = (lab.user().await, lab.caller(&lab.join(Role::User, "eve").await));
    let donor = lab.donor("d").await;
    make_space(&eve, "eves", false).await;
    eve.call(&potluck_wire::control::MakeDir {
        path: path("pot://eves/empty"),
        parents: true,
        permissions: potluck_core::attributes::Permissions::DIR,
        owner: None,
    })
    .await
    .expect("made");

    // Whoever sees a ticket on its way knows the session. A copy of nothing has a reply without files.
    let session = reserve(&ada, 1 << 20).await.expect("reserved").session;
    for page in 0..2 {
        let copy = CopyFiles {
            from: path("pot://eves/empty"),
            to: path(&format!("pot://eves/copy-{page}")),
            recursive: true,
            condition: Condition::Always,
            redundancy: None,
            copy: session,
            page,
            after: None,
        };
        eve.call(&copy).await.expect("copied");
    }
    offer(&ada, session, &[1]).await;
    let files = vec![file(&session, "pot://lab/f", &[1], &[&donor])];
    let committed = commit(&ada, session, 0, files, true).await.expect("committed").files;
    assert!(matches!(&committed[..], [Outcome::Stored { .. }]), "{committed:?}");
    let list = List { path: path("pot://lab"), recursive: true, after: None };
    let listed = ada.call(&list).await.expect("listed").entries;
    assert_eq!(listed.iter().map(|entry| &entry.path).collect::<Vec<_>>(), ["f"]);
}

#[tokio::test]
async fn the_commits_of_a_session_are_repeated_to_its_member_alone() {
    let lab = Lab::new().await;
    let (ada, eve) = (lab.user().await, lab.caller(&lab.join(Role::User, "eve").await));
    let donor = lab.donor("d").await;
    let session = reserve(&ada, 1 << 20).await.expect("reserved").session;
    offer(&ada, session, &[1]).await;
    let files = || vec![file(&session, "pot://lab/f", &[1], &[&donor])];
    let told = commit(&ada, session, 0, files(), true).await.expect("committed").files;
    let [Outcome::Stored { version, .. }] = told[..] else { panic!("{told:?}") };
    let again = commit(&ada, session, 0, files(), true).await.expect("repeated").files;
    assert!(matches!(again[..], [Outcome::Stored { version: same, .. }] if same == version));

    let of = |session| Commit {
        session,
        batch: 0,
        files: files(),
        done: true,
        soon: false,
        traffic: Vec::new(),
    };
    let ended = refused(&eve, &of(session)).await;
    let unknown = refused(&eve, &of(SessionId([9; 16]))).await;
    assert_eq!(ended.code, code::NO_SESSION);
    assert_eq!((ended.message, ended.hint), (unknown.message, unknown.hint));
}

/// Returns how many of the chunks the pool says it has, when they are offered in a new session.
async fn held(caller: &Caller, at: &str, chunks: &[u64]) -> (SessionId, usize) {
    let session = reserve_bytes(caller, at, 1 << 20).await.expect("reserved").session;
    // What is asked twice is told as little as what is asked once.
    offer(caller, session, chunks).await;
    (session, offer(caller, session, chunks).await.held.len())
}

#[tokio::test]
async fn dedup_does_not_disclose_chunks_of_unreadable_files() {
    let lab = Lab::new().await;
    let (ada, eve) = (lab.user().await, lab.caller(&lab.join(Role::User, "eve").await));
    let donor = lab.donor("d").await;
    make_space(&ada, "hers", false).await;
    make_space(&eve, "eves", false).await;
    let session = reserve_bytes(&ada, "pot://hers", 1 << 20).await.expect("reserved").session;
    offer(&ada, session, &[1]).await;
    let files = vec![file(&session, "pot://hers/f", &[1], &[&donor])];
    commit(&ada, session, 0, files, true).await.expect("committed");
    // A copy that is not in any file yet is as secret.
    let uploads = reserve_bytes(&ada, "pot://hers", 1 << 20).await.expect("reserved").session;
    offer(&ada, uploads, &[2]).await;
    let mut stored = donor.heartbeat(1);
    stored.added.0.push(Holding { name: chunk(2), len: crate::lab::LEN }.into());
    donor.send_heartbeat(stored).await;
    assert_eq!(held(&ada, "pot://hers", &[1, 2]).await.1, 2);

    let (session, told) = held(&eve, "pot://eves", &[1, 2, 3]).await;
    assert_eq!(told, 0);
    let report = Report { chunk: chunk(1), donor: donor.id, fault: CopyFault::WrongBytes };
    assert!(!eve.call(&report).await.expect("answered").counted);
    // A commit tells no more than an offer, and whoever sent the bytes has the file.
    let guessed = |n| vec![file(&session, "pot://eves/f", &[n], &[])];
    for (batch, n) in [(0, 1), (1, 2), (2, 3)] {
        // The session goes on, though the batch was to be its last, for the chunk is to be sent now.
        let told = commit(&eve, session, batch, guessed(n), n == 3).await.expect("told").files;
        let [Outcome::Refused(why)] = &told[..] else { panic!("{n}: {told:?}") };
        assert_eq!(why.code, code::NOT_ACKNOWLEDGED, "{why}");
    }
    let sent = vec![file(&session, "pot://eves/f", &[1], &[&donor])];
    let told = commit(&eve, session, 3, sent, false).await.expect("committed").files;
    assert!(matches!(&told[..], [Outcome::Stored { .. }]), "{told:?}");
    assert_eq!(held(&eve, "pot://eves", &[1, 2]).await.1, 1, "it is in a file of hers now");
    assert!(eve.call(&report).await.expect("answered").counted);
    assert!(matches!(ada.call(&report).await, Ok(Reported { counted: true })));
}

#[tokio::test]
async fn offer_answer_stays_valid_after_the_last_file_is_removed() {
    let lab = Lab::new().await;
    let (ada, eve) = (lab.user().await, lab.caller(&lab.join(Role::User, "eve").await));
    let donor = lab.donor("d").await;
    make_space(&ada, "both", false).await;
    lab.grant("both", "eve", &[Right::List, Right::Read, Right::Write]).await;
    let session = reserve_bytes(&ada, "pot://both", 1 << 20).await.expect("reserved").session;
    offer(&ada, session, &[1]).await;
    let files = vec![file(&session, "pot://both/f", &[1], &[&donor])];
    commit(&ada, session, 0, files, true).await.expect("committed");
    let (session, told) = held(&eve, "pot://both", &[1]).await;
    assert_eq!(told, 1);
    remove(&lab, "pot://both/f").await;
    let files = vec![file(&session, "pot://both/g", &[1], &[])];
    let told = commit(&eve, session, 0, files, true).await.expect("committed").files;
    assert!(matches!(&told[..], [Outcome::Stored { .. }]), "{told:?}");
}

#[tokio::test]
async fn dedup_discloses_nothing_to_write_only_members() {
    let lab = Lab::new().await;
    let (ada, eve) = (lab.user().await, lab.caller(&lab.join(Role::User, "eve").await));
    let donor = lab.donor("d").await;
    make_space(&ada, "drop", false).await;
    lab.grant("drop", "eve", &[Right::List, Right::Write]).await;
    let session = reserve_bytes(&ada, "pot://drop", 1 << 20).await.expect("reserved").session;
    offer(&ada, session, &[1]).await;
    let files = vec![file(&session, "pot://drop/f", &[1], &[&donor])];
    commit(&ada, session, 0, files, true).await.expect("committed");
    let (session, told) = held(&eve, "pot://drop", &[1, 2]).await;
    assert_eq!(told, 0);
    // What the session itself has stored may be in further files of it.
    for (batch, at, holders) in [(0, "pot://drop/g", &[&donor][..]), (1, "pot://drop/h", &[])] {
        let files = vec![file(&session, at, &[2], holders)];
        let told = commit(&eve, session, batch, files, false).await.expect("committed").files;
        assert!(matches!(&told[..], [Outcome::Stored { .. }]), "{at}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_chunks_are_disclosed_only_to_who_stored_them() {
    let mut lab = Lab::new().await;
    let (ada, eves) = (lab.user().await, lab.join(Role::User, "eve").await);
    let (eve, donor) = (lab.caller(&eves), lab.donor("d").await);
    make_space(&ada, "hers", false).await;
    make_space(&eve, "eves", false).await;
    let session = reserve_bytes(&ada, "pot://hers", 1 << 20).await.expect("reserved").session;
    offer(&ada, session, &[1, 2]).await;
    let one = |at, n| file(&session, at, &[n], &[&donor]);
    let files = vec![one("pot://hers/kept", 1), one("pot://hers/removed", 2)];
    commit(&ada, session, 0, files, true).await.expect("committed");
    remove(&lab, "pot://hers/removed").await;
    let upload = reserve_bytes(&ada, "pot://hers", 1 << 20).await.expect("reserved").session;
    offer(&ada, upload, &[3]).await;
    let mut stored = donor.heartbeat(1);
    stored.added.0.push(Holding { name: chunk(3), len: crate::lab::LEN }.into());
    donor.send_heartbeat(stored).await;
    ada.call(&Abort { session: upload, keep: false }).await.expect("given up");

    let (session, told) = held(&eve, "pot://eves", &[1, 2, 3]).await;
    assert_eq!(told, 0);
    assert_eq!(held(&eve, "pot://eves", &[1, 2, 3]).await.1, 0, "not by another session either");
    let guessed = async |eve: &Caller, batch, n| {
        let files = vec![file(&session, "pot://eves/f", &[n], &[])];
        let told = commit(eve, session, batch, files, false).await.expect("told").files;
        let [Outcome::Refused(why)] = &told[..] else { panic!("{n}: {told:?}") };
        assert_eq!(why.code, code::NOT_ACKNOWLEDGED, "{why}");
    };
    for (batch, n) in [(0, 1), (1, 2), (2, 3)] {
        guessed(&eve, batch, n).await;
    }
    // A manager that is started again does not know what the session had before.
    lab.stop().await;
    lab.start().await;
    let eve = lab.caller(&eves);
    for (batch, n) in [(3, 1), (4, 2), (5, 3)] {
        guessed(&eve, batch, n).await;
    }
}
