//! Tests what a member finds out about the sessions and chunks of others, and what it can spoil of them.

use crate::granting::{make_space, path};
use crate::lab::{Lab, commit, file, offer, refused, reserve};
use potluck_core::ids::SessionId;
use potluck_wire::control::{Commit, Condition, CopyFiles, List, Outcome};
use potluck_wire::error::code;
use potluck_wire::token::Role;

#[tokio::test]
async fn no_member_makes_the_upload_of_another_succeed_without_storing_it() {
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

    let of = |session| Commit { session, batch: 0, files: files(), done: true };
    let ended = refused(&eve, &of(session)).await;
    let unknown = refused(&eve, &of(SessionId([9; 16]))).await;
    assert_eq!(ended.code, code::NO_SESSION);
    assert_eq!((ended.message, ended.hint), (unknown.message, unknown.hint));
}
