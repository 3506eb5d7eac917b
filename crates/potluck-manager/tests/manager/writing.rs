//! Write sessions, as the manager keeps them: visibility, conditions, receipts, leases, and refusals.

use crate::lab::{
    Donor, LEN, Lab, chunk, commit, donor_port, eventually, file, offer, refused, reserve, write,
};
use potluck_core::attributes::{FileTime, Permissions};
use potluck_core::chunk::Digest;
use potluck_core::ids::{Incarnation, MemberId, SessionId};
use potluck_core::policy::{Override, Width};
use potluck_core::rights::Right;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Abort, AlarmKind, Committed, Condition, DonorAccess, FileCommit, Grow, HeartbeatReply, Holding,
    Open, Outcome, Renew, Reserve, SpaceRemove, Stat, Status,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::{Ops, Receipt, TICKET_LIFE, TicketTime};
use potluck_wire::token::Role;
use std::time::Duration;

fn refusal(outcome: &Outcome) -> &Failure {
    match outcome {
        Outcome::Refused(failure) => failure,
        Outcome::Stored { version, .. } => panic!("accepted as version {version}"),
    }
}

/// Returns a file that lives in the catalog.
pub fn small(at: &str, content: &[u8]) -> FileCommit {
    FileCommit {
        metadata: None,
        path: at.parse().expect("a path"),
        size: content.len() as u64,
        digest: Digest::of(content),
        mtime: FileTime::of_ms(1),
        permissions: Permissions::DIR,
        owner: None,
        changed: FileTime::default(),
        accessed: None,
        origin: None,
        chunk_size: 4 << 20,
        copies: 1,
        inline: Some(Blob(content.to_vec())),
        pages: Vec::new(),
        ec: None,
        parity: Packed::default(),
        acknowledged: Packed::default(),
        condition: Condition::Always,
        in_parts: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_visible_after_its_commit_and_only_then() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let open = Open {
        path: "pot://lab/d/a".parse().expect("path"),
        recursive: false,
        after: None,
        leased: false,
    };

    let reserved = reserve(&user, 3000).await.expect("no donor is needed for so little");
    assert!(reserved.donors.is_empty());
    let grow = Grow {
        session: reserved.session,
        bytes: 5000,
        holders: Vec::new(),
        avoid: Vec::new(),
        whole: false,
        file: None,
    };
    let grown = user.call(&grow).await.expect("grown");
    let access = &grown.donors[0];
    let expected = format!("127.0.0.1:{}", donor_port());
    assert_eq!(access.addresses.to_string(), expected, "where it calls from");
    let ticket = access.ticket.as_ref().expect("a ticket");
    let grant =
        ticket.public.grant(&donor.key, donor.id, TicketTime::default()).expect("for this donor");
    assert!(grant.ops.allows(Ops::PUT.and(Ops::GET)) && grant.bytes > 5000);
    assert_eq!((grant.session, &grant.secret), (Some(reserved.session), &ticket.secret));

    offer(&user, reserved.session, &[1, 2]).await;
    assert_eq!(refused(&user, &open).await.code, code::NO_ENTRY);
    let batch = vec![
        file(&reserved.session, "pot://lab/d/a", &[1], &[&donor]),
        file(&reserved.session, "pot://lab/d/b", &[2], &[&donor]),
    ];
    let committed = commit(&user, reserved.session, 0, batch.clone(), true).await;
    let committed = committed.expect("committed");
    let Outcome::Stored { version, .. } = committed.files[0] else { panic!("{committed:?}") };
    let again = commit(&user, reserved.session, 0, batch, true).await.expect("repeated");
    assert!(matches!(again.files[0], Outcome::Stored { version: same, .. } if same == version));
    let over = commit(&user, reserved.session, 1, Vec::new(), true).await.expect_err("over");
    assert_eq!(over.code, code::NO_SESSION);

    let opened = user.call(&open).await.expect("opened");
    assert_eq!(opened.files[0].holders, vec![vec![donor.id]]);
    let ticket = opened.donors[0].ticket.as_ref().expect("a ticket");
    let grant =
        ticket.public.grant(&donor.key, donor.id, TicketTime::default()).expect("for this donor");
    assert!(grant.ops.allows(Ops::GET) && !grant.ops.allows(Ops::PUT));
    let stat =
        Stat { path: open.path.clone(), chunks: false, unjudged: false, room: false, after: None };
    let stated = user.call(&stat).await.expect("stat");
    assert_eq!((stated.chunks, stated.live_copies, stated.donors[0].bytes), (1, 1, 1000));
    let unjudged = user.call(&Stat { unjudged: true, ..stat }).await.expect("stat");
    assert_eq!((unjudged.chunks, unjudged.live_copies, unjudged.entry.size), (1, 0, 1000));
    assert!(stated.health.is_some() && unjudged.health.is_none() && unjudged.donors.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn stepped_commit_is_answered_and_repeated_as_one() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[1]).await;
    // No donor acknowledged the chunk of the first file, which is in the first step.
    let mut batch = vec![file(&session, "pot://lab/first", &[1], &[])];
    batch.extend((0..400).map(|n| small(&format!("pot://lab/{n}"), b"hello")));
    let committed = commit(&user, session, 0, batch.clone(), true).await.expect("committed");
    assert_eq!(committed.files.len(), batch.len());
    assert!(committed.files[0].is_sent_again(), "{:?}", committed.files[0]);
    let versions = |committed: &Committed| {
        let version = |outcome: &Outcome| match outcome {
            Outcome::Stored { version, .. } => *version,
            Outcome::Refused(why) => panic!("{why:?}"),
        };
        committed.files[1..].iter().map(version).collect::<Vec<_>>()
    };
    let stored = versions(&committed);

    // The last step has not ended the session, for the first file is to be sent again.
    let first = || vec![file(&session, "pot://lab/first", &[1], &[&donor])];
    let last = commit(&user, session, 1, first(), true).await.expect("the session goes on");
    assert!(matches!(last.files[..], [Outcome::Stored { .. }]), "{last:?}");
    let again = commit(&user, session, 0, batch, true).await.expect("repeated");
    assert_eq!(versions(&again), stored, "by all steps, though the session is over");
    assert!(again.files[0].is_sent_again());
}

#[tokio::test(flavor = "multi_thread")]
async fn session_in_a_removed_space_is_refused() {
    let lab = Lab::new().await;
    let admin = lab.admin();
    let session = reserve(&admin, 4096).await.expect("reserved").session;
    let one = |at| vec![small(at, b"hello")];
    let before = commit(&admin, session, 0, one("pot://lab/a"), false).await.expect("committed");
    assert!(matches!(before.files[0], Outcome::Stored { .. }));
    admin.call(&SpaceRemove { name: "lab".into(), recursive: true }).await.expect("removed");
    let after = commit(&admin, session, 1, one("pot://lab/b"), false).await.expect("answered");
    assert_eq!(refusal(&after.files[0]).code, code::NO_SPACE_NAMED);
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_files_need_no_donor() {
    let lab = Lab::new().await;
    let user = lab.user().await;
    let session = reserve(&user, 4096).await.expect("reserved").session;
    let mut lies = small("pot://lab/b", b"hello");
    lies.digest = Digest::of(b"other");
    let mut long = small("pot://lab/c", b"hello");
    long.size = 6;
    let batch = vec![small("pot://lab/a", b"hello"), lies, long, small("pot://lab/empty", b"")];
    let committed = commit(&user, session, 0, batch, true).await.expect("committed");
    assert!(matches!(committed.files[0], Outcome::Stored { .. }));
    assert_eq!(refusal(&committed.files[1]).code, code::BAD_REQUEST);
    assert_eq!(refusal(&committed.files[2]).code, code::BAD_REQUEST);
    assert!(matches!(committed.files[3], Outcome::Stored { .. }));
    let open = Open {
        path: "pot://lab/a".parse().expect("path"),
        recursive: false,
        after: None,
        leased: false,
    };
    let opened = user.call(&open).await.expect("opened");
    assert_eq!(opened.files[0].inline, Some(Blob(b"hello".to_vec())));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_what_to_do() {
    let lab = Lab::new().await;
    let user = lab.user().await;
    let none = reserve(&user, 1 << 20).await.expect_err("no donor");
    assert_eq!((none.kind, none.code.as_str()), (ErrorKind::NoSpace, code::NO_DONORS));
    assert!(none.hint.contains("potluck lend"), "{}", none.hint);

    let _donor = lab.donor("basement").await;
    let full = reserve(&user, 1 << 50).await.expect_err("too much");
    assert_eq!((full.kind, full.code.as_str()), (ErrorKind::NoSpace, code::FULL));
    let ask = |policy| Reserve {
        path: "pot://lab/x".parse().expect("path"),
        bytes: Some(1 << 20),
        policy,
        condition: Condition::Always,
        interrupted: Default::default(),
        link: None,
    };
    let three = Override { copies: Some(3), ..Override::default() };
    assert_eq!(refused(&user, &ask(three)).await.code, code::TOO_FEW_DONORS);
    let odd = Override { chunk_size: Some(12345), ..Override::default() };
    let odd = refused(&user, &ask(odd)).await;
    assert_eq!((odd.kind, odd.code.as_str()), (ErrorKind::Usage, code::BAD_POLICY));
    let mut elsewhere = ask(Override::default());
    elsewhere.path = "pot://none/x".parse().expect("path");
    assert_eq!(refused(&user, &elsewhere).await.code, code::NO_SPACE_NAMED);
    user.call(&ask(Override { stripe_width: Some(Width::Donors(64)), ..Override::default() }))
        .await
        .expect("a wide stripe uses what there is");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_found_before_anything_is_sent() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let reserve = Reserve {
        path: "pot://lab/a".parse().expect("path"),
        bytes: None,
        policy: Override::default(),
        condition: Condition::IfAbsent,
        interrupted: Default::default(),
        link: None,
    };
    let failure = refused(&user, &reserve).await;
    assert_eq!((failure.kind, failure.code.as_str()), (ErrorKind::Conflict, code::EXISTS));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_genuine_receipts_of_offered_chunks_are_believed_d2() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[1, 2, 3, 4]).await;

    let mut forged = file(&session, "pot://lab/forged", &[1], &[&donor]);
    forged.acknowledged.0[0].receipt = Receipt::from_bytes(&[7; Receipt::SIZE]);
    let other = file(&SessionId([9; 16]), "pot://lab/other-session", &[2], &[&donor]);
    let never = file(&session, "pot://lab/not-offered", &[99], &[&donor]);
    let mut short = file(&session, "pot://lab/short", &[3], &[&donor]);
    short.size -= 1;
    let mut digest = file(&session, "pot://lab/digest", &[3], &[&donor]);
    digest.digest = Digest::of(b"x");
    let mut page = file(&session, "pot://lab/page", &[3], &[&donor]);
    page.pages[0].0.truncate(20);
    let mut outside = file(&session, "pot://lab/outside", &[3], &[&donor]);
    outside.path = "pot://none/outside".parse().expect("path");
    let good = file(&session, "pot://lab/good", &[4], &[&donor]);
    let batch = vec![forged, other, never, short, digest, page, outside, good];
    let outcomes = commit(&user, session, 0, batch, false).await.expect("answered").files;
    let codes: Vec<_> =
        outcomes[..7].iter().map(|outcome| refusal(outcome).code.as_str()).collect();
    assert_eq!(
        codes,
        [
            code::NOT_ACKNOWLEDGED,
            code::NOT_ACKNOWLEDGED,
            code::NOT_ACKNOWLEDGED,
            code::BAD_REQUEST,
            code::BAD_REQUEST,
            code::BAD_REQUEST,
            code::NO_SPACE_NAMED,
        ]
    );
    assert!(matches!(outcomes[7], Outcome::Stored { .. }));
    assert!(outcomes[..7].iter().all(|outcome| !refusal(outcome).hint.is_empty()));
}

/// A donor that lost power after its answer still has the key of before, and may not have the chunk.
#[tokio::test(flavor = "multi_thread")]
async fn receipts_of_an_earlier_incarnation_count_for_nothing_d3() {
    let lab = Lab::new().await;
    let (user, mut donor) = (lab.user().await, lab.donor("basement").await);
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[1, 2]).await;
    let files = |donor: &Donor| {
        [("pot://lab/a", 1), ("pot://lab/b", 2)]
            .map(|(at, n)| file(&session, at, &[n], &[donor]))
            .to_vec()
    };
    let before = files(&donor);
    // The donor was started again: it has one of the two chunks, and has told all that it has.
    donor.incarnation = Incarnation(donor.incarnation.0 + 1);
    donor.report(&[chunk(1)]).await;
    let outcome = commit(&user, session, 0, before.clone(), false).await.expect("answered");
    assert!(outcome.files.iter().all(Outcome::is_sent_again), "{outcome:?}");
    // The donor is not blamed: the receipts were its own, and what is written next goes there.
    let bytes = 1 << 20;
    assert_eq!(reserve(&user, bytes).await.expect("reserved").plan.donors(), [donor.id].into());
    let reach = Grow {
        session,
        bytes: 0,
        holders: Vec::new(),
        avoid: Vec::new(),
        whole: false,
        file: None,
    };
    let reached = user.call(&reach).await.expect("answered").donors;
    let lives: Vec<_> = reached.iter().map(|it| (it.live, it.incarnation)).collect();
    assert_eq!(lives, [(true, Some(donor.incarnation))], "its client is told");

    // Each receipt is judged by itself.
    let one_again = vec![before[0].clone(), files(&donor)[1].clone()];
    let outcome = commit(&user, session, 1, one_again, false).await.expect("answered");
    assert!(outcome.files[0].is_sent_again(), "{outcome:?}");
    assert!(matches!(outcome.files[1], Outcome::Stored { .. }), "{outcome:?}");
    let outcome = commit(&user, session, 2, files(&donor)[..1].to_vec(), true).await;
    assert!(matches!(outcome.expect("answered").files[0], Outcome::Stored { .. }));
}

/// A donor that lost power lists what it had not synced as well, and may have other bytes by that name.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_upload_resends_chunks_of_a_restarted_donor_d3() {
    let mut lab = Lab::with(|config| config.resume_window = Duration::from_secs(600)).await;
    let ada = lab.join(Role::User, "ada").await;
    let (user, mut donor) = (lab.caller(&ada), lab.donor("basement").await);
    let interrupted = async |user: &Caller, n: u64| {
        let session = reserve(user, 1 << 20).await.expect("reserved").session;
        let held = offer(user, session, &[n]).await.held.len();
        user.call(&Abort { session, keep: true }).await.expect("kept");
        held
    };
    let stored = async |donor: &Donor, n: u64| {
        let mut stored = donor.heartbeat(n);
        stored.added = Packed(vec![Holding { name: chunk(n), len: LEN }.into()]);
        donor.send_heartbeat(stored).await;
    };
    for n in [1, 2] {
        assert_eq!(interrupted(&user, n).await, 0);
        stored(&donor, n).await;
    }
    // The catalog knows the first chunk from here on, and only the donor has told of the second.
    assert_eq!(interrupted(&user, 1).await, 1);
    donor.incarnation = Incarnation(donor.incarnation.0 + 1);
    donor.registered_before = false;
    donor.report(&[chunk(1), chunk(2)]).await;
    donor.registered_before = true;
    donor.report(&[chunk(1), chunk(2)]).await;
    assert_eq!((interrupted(&user, 1).await, interrupted(&user, 2).await), (0, 0));
    stored(&donor, 2).await;
    assert_eq!(interrupted(&user, 2).await, 1, "it was put once more");

    // A donor that goes on has what it had, also where the manager is another one.
    assert_eq!(interrupted(&user, 4).await, 0);
    stored(&donor, 4).await;
    lab.stop().await;
    lab.start().await;
    let user = lab.caller(&ada);
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1), chunk(2), chunk(4)]).await;
    assert_eq!(interrupted(&user, 4).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_chunks_are_not_sent_again() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    let offered = offer(&user, session, &[5, 1]).await;
    assert_eq!(offered.held.len(), 1);
    assert_eq!((offered.held[0].index, &offered.held[0].donors), (1, &vec![donor.id]));
    let copy = file(&session, "pot://lab/copy", &[1], &[]);
    let outcome = commit(&user, session, 0, vec![copy], true).await.expect("answered");
    assert!(matches!(outcome.files[0], Outcome::Stored { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_belongs_to_its_member_and_ends_with_its_lease() {
    let lab = Lab::with(|config| config.lease = Duration::from_secs(3)).await;
    let (ada, eve, _donor) = (lab.user().await, lab.user().await, lab.donor("basement").await);
    let session = reserve(&ada, 1 << 20).await.expect("reserved").session;
    assert_eq!(
        refused(&eve, &Renew { session, refused: Vec::new(), traffic: Vec::new() }).await.code,
        code::NO_SESSION
    );
    eve.call(&Abort { session, keep: false }).await.expect("says nothing");
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(800)).await;
        ada.call(&Renew { session, refused: Vec::new(), traffic: Vec::new() })
            .await
            .expect("renewed");
    }
    let promised = async || lab.admin().call(&Status {}).await.expect("status").donors[0].promised;
    assert!(promised().await > 0);
    eventually("its end", async || (promised().await == 0).then_some(())).await;
    assert_eq!(
        refused(&ada, &Renew { session, refused: Vec::new(), traffic: Vec::new() }).await.code,
        code::NO_SESSION
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_last_for_minutes_and_are_renewed_with_their_session() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let reserved = reserve(&user, 1 << 20).await.expect("reserved");
    let granted = |access: &[DonorAccess]| {
        let ticket = access[0].ticket.as_ref().expect("a ticket");
        ticket.public.grant(&donor.key, donor.id, TicketTime::default()).expect("for this donor")
    };
    let first = granted(&reserved.donors);
    assert_eq!(first.expires - first.issued, TICKET_LIFE.as_millis() as u64);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let renewed = user
        .call(&Renew { session: reserved.session, refused: Vec::new(), traffic: Vec::new() })
        .await
        .expect("renewed");
    let second = granted(&renewed.donors);
    assert!(second.issued > first.issued && second.expires > first.expires);
    assert_eq!(second.bytes, first.bytes, "for all that the session stores there, by any ticket");
}

#[tokio::test(flavor = "multi_thread")]
async fn donors_are_told_which_sessions_are_over() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let open = reserve(&user, 1 << 20).await.expect("reserved").session;
    let ended = reserve(&user, 1 << 20).await.expect("reserved").session;
    user.call(&Abort { session: ended, keep: false }).await.expect("aborted");
    let never = SessionId([9; 16]);
    let mut asks = donor.heartbeat(1);
    asks.sessions = Packed(vec![open, ended, never]);
    assert_eq!(donor.send_heartbeat(asks).await.over.0, [ended, never]);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_writer_session_ends_at_donors_with_the_next_heartbeat() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    let cut_off = reserve(&user, 1 << 20).await.expect("reserved").session;
    let over = async || donor.send_heartbeat(donor.heartbeat(1)).await.over.0;
    assert_eq!(over().await, []);
    lab.take("lab", "everyone", &Right::ALL).await;
    // The donor is told whether or not the session has stored anything there.
    assert_eq!(over().await, [cut_off]);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_member_tickets_are_void_after_the_next_heartbeat_x5() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let ada = lab.join(Role::User, "ada").await;
    let open = Open {
        path: "pot://lab/a".parse().expect("path"),
        recursive: false,
        after: None,
        leased: false,
    };
    let read = lab.caller(&ada).call(&open).await.expect("opened").donors;
    let written = reserve(&lab.caller(&ada), 1 << 20).await.expect("reserved").donors;
    let said = donor.send_heartbeat(donor.heartbeat(1)).await;
    let good = |access: &[DonorAccess], said: &HeartbeatReply| {
        let ticket = access[0].ticket.as_ref().expect("a ticket");
        let time = TicketTime { now: said.now_ms, void_before: said.void_before };
        ticket.public.grant(&donor.key, donor.id, time).is_ok()
    };
    assert!(good(&read, &said) && good(&written, &said));

    let revoke = potluck_wire::control::Revoke::of(MemberId(ada.about.member.0));
    lab.admin().call(&revoke).await.expect("revoked");
    let said = donor.send_heartbeat(donor.heartbeat(1)).await;
    assert!(!good(&read, &said) && !good(&written, &said));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let others = user.call(&open).await.expect("opened").donors;
    assert!(good(&others, &said), "others get new tickets");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_a_user_ends_what_it_was_writing_x5() {
    let lab = Lab::new().await;
    let ada = lab.join(Role::User, "ada").await;
    let session = reserve(&lab.caller(&ada), 100).await.expect("reserved").session;
    let revoke = potluck_wire::control::Revoke::of(MemberId(ada.about.member.0));
    lab.admin().call(&revoke).await.expect("revoked");
    assert_eq!(lab.admin().call(&Status {}).await.expect("status").sessions, 0);
    assert_eq!(
        refused(&lab.admin(), &Renew { session, refused: Vec::new(), traffic: Vec::new() })
            .await
            .code,
        code::NO_SESSION
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn session_avoids_a_donor_that_gave_false_receipts() {
    let lab = Lab::new().await;
    let user = lab.user().await;
    let mut donors = Vec::new();
    for name in ["attic", "basement", "cellar"] {
        let donor = lab.donor(name).await;
        donor.report(&[]).await;
        donors.push(donor);
    }
    let liar = donors[0].id;
    let two = Override { copies: Some(2), ..Override::default() };
    let open = async |user: &Caller| {
        let path = "pot://lab/a".parse().expect("a path");
        let bytes = Some(64 << 20);
        let call = Reserve {
            path,
            bytes,
            policy: two,
            condition: Condition::Always,
            interrupted: Default::default(),
            link: None,
        };
        user.call(&call).await.expect("reserved")
    };
    let fails = async |user: &Caller| {
        let session = open(user).await.session;
        offer(user, session, &[1]).await;
        let mut file = file(&session, "pot://lab/a", &[1], &[&donors[0], &donors[1]]);
        file.copies = 2;
        file.acknowledged.0[0].receipt = Receipt::from_bytes(&[7; Receipt::SIZE]);
        let committed = commit(user, session, 0, vec![file], false).await.expect("answered");
        assert!(committed.files[0].is_sent_again(), "{committed:?}");
        session
    };
    let session = fails(&user).await;
    // A session that goes on is told that the donor is not live, and a session that begins does not go there.
    let (bytes, holders, avoid, whole, file) = Default::default();
    let reach = Grow { session, bytes, holders, avoid, whole, file };
    let reached = user.call(&reach).await.expect("answered").donors;
    let live: Vec<_> = reached.iter().filter(|it| it.live).map(|it| it.donor).collect();
    assert!(reached.iter().any(|it| it.donor == liar) && !live.contains(&liar), "{live:?}");
    for _ in 0..4 {
        let reserved = open(&user).await;
        assert!(!reserved.plan.donors().contains(&liar), "{:?}", reserved.plan);
    }
    // Other members are not bound by one member's report, until two say the same.
    let other = lab.user().await;
    assert!(open(&other).await.plan.donors().contains(&liar));
    let alarmed = async || {
        let alarms = lab.admin().call(&Status {}).await.expect("status").alarms;
        alarms.iter().any(|alarm| alarm.kind == AlarmKind::DonorFalseReceipts)
    };
    assert!(!alarmed().await);
    fails(&other).await;
    assert!(alarmed().await);
}
