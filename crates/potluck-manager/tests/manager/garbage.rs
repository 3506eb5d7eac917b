//! Garbage collection: what no file uses is deleted in two phases, and nothing that is needed (promise D5).

use crate::lab::{Donor, Lab, chunk, commit, eventually, file, offer, reserve, write};
use potluck_core::ids::{DonorId, SessionId};
use potluck_wire::control::{
    Abort, Arrived, Condition, CopyFault, Departing, Holding, Open, Outcome, Remove, Renew, Report,
    Revoke, Status,
};
use potluck_wire::error::code;
use potluck_wire::packed::Packed;
use potluck_wire::token::Role;

pub async fn remove(lab: &Lab, at: &str) {
    let remove = Remove {
        path: at.parse().expect("path"),
        recursive: true,
        forever: false,
        only_if: Default::default(),
        soon: false,
    };
    lab.admin().call(&remove).await.expect("removed");
}

async fn condemned(lab: &Lab) -> u64 {
    lab.admin().call(&Status {}).await.expect("status").condemned_chunks
}

/// Waits for a tombstone of chunk `n`, and returns its write sequence.
async fn tombstone(donor: &Donor, n: u64, write_sequence: u64) -> u64 {
    eventually("a tombstone", async || {
        let found = donor.tombstones(write_sequence).await;
        found
            .into_iter()
            .find(|(name, _)| *name == chunk(n))
            .map(|(_, write_sequence)| write_sequence)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_file_is_deleted_in_two_phases_d5() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    write(&user, "pot://lab/keep", 2, &donor).await;
    remove(&lab, "pot://lab/a").await;
    assert_eq!(tombstone(&donor, 1, 5).await, 5, "what was last counted");
    donor.removed(6, &[chunk(1)]).await;
    eventually("all is reclaimed", async || (condemned(&lab).await == 0).then_some(())).await;
    assert!(donor.tombstones(7).await.is_empty(), "the other file's chunk is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn uncommitted_chunks_are_reclaimed_d2() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[1, 2]).await;
    let mut stored = donor.heartbeat(2);
    stored.added = Packed(vec![Holding { name: chunk(1), len: crate::lab::LEN }.into()]);
    donor.send_heartbeat(stored).await;
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert_eq!(status.donors[0].unclaimed, 0, "chunks of an open session are merely early");
    user.call(&Abort { session, keep: false }).await.expect("aborted");
    tombstone(&donor, 1, 2).await;
    // The chunk arrives when its session is over.
    let mut late = donor.heartbeat(3);
    late.added = Packed(vec![Holding { name: chunk(2), len: crate::lab::LEN }.into()]);
    donor.send_heartbeat(late).await;
    tombstone(&donor, 2, 3).await;
    donor.removed(3, &[chunk(1), chunk(2)]).await;
    eventually("all is reclaimed", async || (condemned(&lab).await == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_file_chunks_are_reclaimed_d2() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 9, &donor).await;
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[1]).await;
    let mut stored = donor.heartbeat(2);
    stored.added = Packed(vec![brought(1, session)]);
    donor.send_heartbeat(stored).await;
    let mut second = file(&session, "pot://lab/a", &[1], &[&donor]);
    second.condition = Condition::IfAbsent;
    let outcome = commit(&user, session, 0, vec![second], true).await.expect("answered");
    assert!(matches!(outcome.files[0], Outcome::Refused(_)));
    tombstone(&donor, 1, 2).await;
}

/// Returns the report that a session stored chunk `n`.
fn brought(n: u64, session: SessionId) -> Arrived {
    let holding = Holding { name: chunk(n), len: crate::lab::LEN };
    Arrived { holding, session: Some(session) }
}

/// Whoever offers a chunk keeps it from being reclaimed, at no cost of their own.
#[tokio::test(flavor = "multi_thread")]
async fn session_keeping_too_many_unused_chunks_is_ended() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let storing = reserve(&user, 1 << 20).await.expect("reserved").session;
    let chunks = [1, 2, 3, 4];
    offer(&user, storing, &chunks).await;
    let mut stored = donor.heartbeat(2);
    let large = |n: u64| Arrived::from(Holding { name: chunk(n), len: 48 << 20 });
    stored.added = Packed(chunks.map(large).to_vec());
    donor.send_heartbeat(stored).await;
    let keeping = async |chunks: &[u64]| {
        let session = reserve(&user, 1 << 20).await.expect("reserved").session;
        assert_eq!(offer(&user, session, chunks).await.held.len(), chunks.len());
        session
    };
    let (little, much) = (keeping(&chunks[..1]).await, keeping(&chunks[1..]).await);
    user.call(&Abort { session: storing, keep: false }).await.expect("aborted");
    for n in &chunks[1..] {
        tombstone(&donor, *n, 3).await;
    }
    let renew = |session| Renew { session, refused: Vec::new(), traffic: Vec::new() };
    user.call(&renew(little)).await.expect("one chunk is little more than it may store");
    let over = user.call(&renew(much)).await.expect_err("it has ended");
    assert_eq!(over.code, code::NO_SESSION);
}

async fn unclaimed(lab: &Lab) -> u64 {
    lab.admin().call(&Status {}).await.expect("status").donors[0].unclaimed
}

#[tokio::test(flavor = "multi_thread")]
async fn unoffered_chunks_are_reclaimed_during_and_after_the_session() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[1]).await;
    let mut stored = donor.heartbeat(2);
    stored.added = Packed(vec![brought(1, session), brought(2, session)]);
    donor.send_heartbeat(stored).await;
    tombstone(&donor, 2, 2).await;
    user.call(&Abort { session, keep: false }).await.expect("aborted");
    let mut late = donor.heartbeat(3);
    late.added = Packed(vec![brought(3, session)]);
    donor.send_heartbeat(late).await;
    for n in [1, 3] {
        tombstone(&donor, n, 3).await;
    }
    donor.removed(3, &[chunk(1), chunk(2), chunk(3)]).await;
    eventually("all is reclaimed", async || (condemned(&lab).await == 0).then_some(())).await;
    assert_eq!(unclaimed(&lab).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_unknown_sessions_are_never_reclaimed_d5() {
    let mut lab = Lab::new().await;
    let (user, mut donor) = (lab.user().await, lab.donor("basement").await);
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    user.call(&Abort { session, keep: false }).await.expect("aborted");
    lab.stop().await;
    lab.start().await;
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[]).await;
    let mut stored = donor.heartbeat(2);
    let nobodys = Holding { name: chunk(2), len: crate::lab::LEN };
    stored.added = Packed(vec![brought(1, session), nobodys.into()]);
    donor.send_heartbeat(stored).await;
    assert_eq!(unclaimed(&lab).await, 2);
    assert_eq!(condemned(&lab).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_is_needed_again_survives_its_tombstone_d5() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    remove(&lab, "pot://lab/a").await;
    let allowed = tombstone(&donor, 1, 10).await;
    assert_eq!(allowed, 10);

    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    let offered = offer(&user, session, &[1]).await;
    assert!(offered.held.is_empty(), "it is on its way out and must be sent again");
    // Without a new receipt the put proves nothing; it has a higher write sequence than is allowed to be
    // deleted.
    let unproven = file(&session, "pot://lab/b", &[1], &[]);
    let outcome = commit(&user, session, 0, vec![unproven], false).await.expect("answered");
    assert!(matches!(outcome.files[0], Outcome::Refused(_)));
    let proven = file(&session, "pot://lab/b", &[1], &[&donor]);
    let outcome = commit(&user, session, 1, vec![proven], true).await.expect("answered");
    assert!(matches!(outcome.files[0], Outcome::Stored { .. }));
    for write_sequence in 11..16 {
        assert!(donor.tombstones(write_sequence).await.is_empty(), "the order was taken back");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn donors_of_another_catalog_lose_nothing_d5() {
    // As after a restore from an old backup, the catalog knows none of the donor's chunks.
    let lab = Lab::new().await;
    let donor = lab.donor("basement").await;
    let names: Vec<_> = (0..100).map(chunk).collect();
    donor.report(&names).await;
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert_eq!((status.donors[0].unclaimed, status.donors[0].chunks), (100, 0));
    for write_sequence in 0..8 {
        assert!(
            donor.send_heartbeat(donor.heartbeat(write_sequence)).await.chunk_orders.is_empty()
        );
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complaint_is_believed_only_after_the_donor_looked_l1() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let report = Report { chunk: chunk(1), donor: donor.id, fault: CopyFault::Missing };
    user.call(&report).await.expect("noted");
    let open = Open {
        path: "pot://lab/a".parse().expect("path"),
        recursive: false,
        after: None,
        leased: false,
    };
    // A donor reads a chunk for a report, so what a reader cannot have seen is not asked about.
    for n in 2..40 {
        let report = Report { chunk: chunk(n), donor: donor.id, fault: CopyFault::Missing };
        user.call(&report).await.expect("noted");
    }
    let holders = async || user.call(&open).await.expect("opened").files[0].holders[0].clone();
    assert_eq!(holders().await, [donor.id]);
    let orders = donor.send_heartbeat(donor.heartbeat(1)).await.chunk_orders;
    assert_eq!(orders.verify.0, [chunk(1)]);

    let mut looked = donor.heartbeat(1);
    looked.spoiled = Packed(vec![chunk(1)]);
    assert!(donor.send_heartbeat(looked).await.chunk_orders.is_empty());
    assert!(holders().await.is_empty());
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert_eq!((status.donors[0].bad, status.donors[0].chunks), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_only_on_a_removed_donor_are_forgotten() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let member = donor.identity.about.member;
    let look = Departing { donors: vec![DonorId(member.0)], over: None };
    let agreed = lab.admin().call(&look).await.expect("told").listing;
    let revoke = Revoke { agreed, ..Revoke::of(member) };
    lab.admin().call(&revoke).await.expect("revoked");
    let open = Open {
        path: "pot://lab/a".parse().expect("path"),
        recursive: false,
        after: None,
        leased: false,
    };
    assert!(user.call(&open).await.expect("opened").files[0].holders[0].is_empty());
    remove(&lab, "pot://lab/a").await;
    eventually("all is forgotten", async || (condemned(&lab).await == 0).then_some(())).await;
    let _ = lab.join(Role::Donor, "another").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_is_sent_again_counts_once() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let promised = async || lab.admin().call(&Status {}).await.expect("status").donors[0].promised;
    let before = promised().await;
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[1]).await;
    let reserved = promised().await - before;
    let stored = |n| Holding { name: chunk(n), len: crate::lab::LEN }.into();
    // One chunk is put by the session though a file uses it already, and the other is unknown to the manager.
    let mut heartbeat = donor.heartbeat(3);
    heartbeat.added = Packed(vec![stored(1), stored(9)]);
    for _ in 0..3 {
        donor.send_heartbeat(heartbeat.clone()).await;
        assert_eq!(unclaimed(&lab).await, 1);
        assert_eq!(promised().await, before + reserved - u64::from(crate::lab::LEN));
    }
    // The same chunks in another heartbeat are another put.
    heartbeat.batch = donor.heartbeat(4).batch;
    donor.send_heartbeat(heartbeat).await;
    assert_eq!(unclaimed(&lab).await, 2);
}
