//! Joining a pool, and what each role may call.

use crate::lab::{Lab, refused};
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::policy::Policy;
use potluck_manager::{Manager, StateError, init};
use potluck_wire::addresses::Address;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    CopyFault, Heartbeat, InvitationList, Invite, Leave, List, MemberList, Report, Revoke,
    SpaceCreate, SpaceList, Status,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{Identity, fingerprint};
use potluck_wire::tls::TlsDial;
use potluck_wire::token::{JoinToken, Role};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_admin_finds_the_pool_where_it_listens() {
    let mut lab = Lab::new().await;
    let admin = lab.admin_identity();
    assert_eq!(admin.about.manager, lab.address.into());
    assert_eq!((admin.about.role, admin.about.pool.as_str()), (Role::Admin, "test pool"));
    init(&lab.config, &lab.env).expect_err("not while a manager runs there");

    lab.stop().await;
    init(&lab.config, &lab.env).expect("a second time is nothing").keep();
    lab.config.listen = "0.0.0.0:0".into();
    lab.start().await;
    let moved = lab.admin_identity();
    lab.address.set_ip([127, 0, 0, 1].into());
    let here = Address::of(lab.address.ip(), lab.address.port());
    assert_eq!(
        moved.about.manager.iter().last(),
        Some(&here),
        "on this machine, when all else fails"
    );
    assert_eq!(moved.certificate, admin.certificate);
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert_eq!((status.pool.as_str(), status.epoch.0), ("test pool", 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_manager_on_one_directory_is_refused() {
    let lab = Lab::new().await;
    match Manager::start(lab.config.clone(), lab.env.clone(), None).await {
        Err(StateError::InUse(dir)) => assert_eq!(dir, lab.config.state),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two managers on one catalog"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_works_once_for_its_role_and_only_while_it_is_good_x5() {
    let lab = Lab::new().await;
    let token = lab.token(Role::User).await;
    let ada = lab.join_with(&token, "ada").await.expect("joined");
    assert_eq!((ada.about.role, ada.about.pool.as_str()), (Role::User, "test pool"));
    lab.caller(&ada).call(&SpaceList {}).await.expect("a user");

    let used = lab.join_with(&token, "eve").await.expect_err("used");
    assert_eq!((used.code.as_str(), used.kind), (code::BAD_TOKEN, ErrorKind::Auth));
    assert!(used.message.contains("used"), "{used}");

    let mut wrong = token.clone();
    wrong.secret.0[0] ^= 1;
    let wrong = lab.join_with(&wrong, "eve").await.expect_err("wrong");
    assert_eq!(wrong.code, code::BAD_TOKEN);
    assert!(!wrong.hint.is_empty());

    let mut short = lab.token(Role::User).await;
    let invited = lab.admin().call(&Invite { role: Role::User, ttl_seconds: 1, name: None }).await;
    short.secret = invited.expect("invited").secret;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let expired = lab.join_with(&short, "eve").await.expect_err("expired");
    assert_eq!(expired.code, code::BAD_TOKEN);
    assert!(expired.message.contains("expired"), "{expired}");

    let mut pinned = lab.token(Role::User).await;
    pinned.ca = fingerprint(&ada.certificate);
    let other = lab.join_with(&pinned, "ada").await.expect_err("another pool");
    assert_eq!(other.code, code::WRONG_POOL);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_may_do_what_is_theirs_and_nothing_else() {
    let lab = Lab::new().await;
    let (user, admin) = (lab.user().await, lab.admin());
    let donor = lab.donor("basement").await;
    let space = SpaceCreate { name: "more".into(), policy: Policy::default() };
    for failure in [
        refused(&user, &Invite { role: Role::Admin, ttl_seconds: 60, name: None }).await,
        refused(&donor.caller, &space).await,
        refused(&user, &Revoke::of(MemberId(1))).await,
        refused::<Heartbeat>(&user, &donor.heartbeat(0)).await,
        refused::<Heartbeat>(&admin, &donor.heartbeat(0)).await,
        refused(&donor.caller, &SpaceList {}).await,
        refused(
            &donor.caller,
            &List { path: "pot://".parse().expect("path"), recursive: true, after: None },
        )
        .await,
    ] {
        assert_eq!((failure.kind, failure.code.as_str()), (ErrorKind::Auth, code::NOT_ALLOWED));
        assert!(!failure.hint.is_empty());
    }
    user.call(&space).await.expect("a user may");
    let report =
        Report { chunk: crate::lab::chunk(1), donor: DonorId(99), fault: CopyFault::Missing };
    user.call(&report).await.expect("a complaint about nobody changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_invites_others_for_its_own_machine_within_bounds() {
    let lab = Lab::new().await;
    let donor = lab.donor("bench").await;
    let invite = Invite { role: Role::Donor, ttl_seconds: 60, name: None };
    for more in [
        Invite { role: Role::User, ..invite.clone() },
        Invite { role: Role::Admin, ..invite.clone() },
        Invite { ttl_seconds: 3600, ..invite.clone() },
    ] {
        assert_eq!(refused(&donor.caller, &more).await.code, code::NOT_ALLOWED, "{more:?}");
    }
    let mut token = lab.token(Role::Donor).await;
    token.secret = donor.caller.call(&invite).await.expect("one more directory").secret;
    let further = lab.join_with(&token, "bench-2").await.expect("joined");
    let why = refused(&lab.caller(&further), &invite).await;
    assert!(why.message.contains("invited by a donor"), "{why}");
    for _ in 0..62 {
        token.secret = donor.caller.call(&invite).await.expect("not too many yet").secret;
    }
    assert!(refused(&donor.caller, &invite).await.message.contains("63 donors"));
    // Once the donor is removed, its invitations are worth nothing.
    let revoke = Revoke { now: true, ..Revoke::of(donor.identity.about.member) };
    lab.admin().call(&revoke).await.expect("removed");
    assert_eq!(lab.join_with(&token, "late").await.expect_err("void").code, code::BAD_TOKEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_certificate_one_can_only_join() {
    let lab = Lab::new().await;
    let dial = TlsDial::joining(fingerprint(&lab.admin_identity().ca));
    let stranger = Caller::new(Arc::clone(&lab.env.net), Arc::new(dial), lab.address.into());
    for failure in [refused(&stranger, &Status {}).await, refused(&stranger, &SpaceList {}).await] {
        assert_eq!(failure.code, code::NOT_A_MEMBER);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_member_is_refused_on_its_open_connections_too_x5() {
    let lab = Lab::new().await;
    let ada = lab.join(Role::User, "ada").await;
    let caller = lab.caller(&ada);
    caller.call(&SpaceList {}).await.expect("a member");
    lab.admin().call(&Revoke::of(ada.about.member)).await.expect("revoked");
    for caller in [caller, lab.caller(&ada)] {
        let failure = refused(&caller, &SpaceList {}).await;
        assert_eq!((failure.kind, failure.code.as_str()), (ErrorKind::Auth, code::REVOKED));
    }
    let donor = lab.donor("basement").await;
    let revoke = Revoke { now: true, ..Revoke::of(donor.identity.about.member) };
    lab.admin().call(&revoke).await.expect("revoked");
    assert_eq!(refused(&donor.caller, &donor.heartbeat(1)).await.code, code::REVOKED);
    assert!(lab.admin().call(&Status {}).await.expect("status").donors.is_empty());
    let last = refused(&lab.admin(), &Revoke::of(MemberId(1))).await;
    assert_eq!(last.kind, ErrorKind::Conflict);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_donor_has_the_name_of_another_or_one_that_looks_like_it() {
    let lab = Lab::new().await;
    let name = |identity: Identity| identity.about.name;
    assert_eq!(name(lab.join(Role::Donor, "bench-1").await), "bench-1");
    for (asked, gets) in
        [("bench-1", "bench-1-2"), ("BENCH-l", "BENCH-l-3"), ("bench-4", "bench-4")]
    {
        assert_eq!(name(lab.join(Role::Donor, asked).await), gets);
    }
    // A Cyrillic letter looks like an a.
    let token = lab.token(Role::Donor).await;
    let refused = lab.join_with(&token, "b\u{435}nch").await.expect_err("another script");
    assert_eq!(refused.kind, ErrorKind::Usage, "{refused}");

    let invite = |role, name: &str| Invite { role, ttl_seconds: 60, name: Some(name.into()) };
    let invited = lab.admin().call(&invite(Role::Donor, "shelf")).await.expect("invited");
    let fixed = JoinToken { secret: invited.secret, ..token };
    assert_eq!(name(lab.join_with(&fixed, "bench-1").await.expect("joined")), "shelf");
    let taken = refused_by(&lab, &invite(Role::Donor, "SHELF")).await;
    assert_eq!((taken.kind, taken.code.as_str()), (ErrorKind::Conflict, code::EXISTS), "{taken}");
    assert_eq!(refused_by(&lab, &invite(Role::User, "ada")).await.kind, ErrorKind::Usage);
}

async fn refused_by(lab: &Lab, invite: &Invite) -> Failure {
    refused(&lab.admin(), invite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn invitations_of_a_removed_admin_let_nobody_in() {
    let lab = Lab::new().await;
    let bob = lab.join(Role::Admin, "bob").await;
    let invite = Invite { role: Role::Admin, ttl_seconds: 60, name: None };
    let by_bob = lab.caller(&bob).call(&invite).await.expect("invited");
    let token = JoinToken { secret: by_bob.secret, ..lab.token(Role::Admin).await };
    lab.admin().call(&Revoke::of(bob.about.member)).await.expect("removed");
    let refused = lab.join_with(&token, "bob again").await.expect_err("void");
    assert_eq!(refused.code, code::BAD_TOKEN, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn donors_that_come_and_go_void_no_tickets_and_leave_few_rows() {
    let lab = Lab::new().await;
    let mut stays = lab.donor("stays").await;
    let told = stays.send_heartbeat(stays.heartbeat(0)).await;
    for number in 0..300 {
        let donor = lab.join(Role::Donor, &format!("passer-{number}")).await;
        lab.caller(&donor).call(&Leave { now: false, agreed: None }).await.expect("left");
    }
    stays.hear(&told);
    let after = stays.send_heartbeat(stays.heartbeat(0)).await;
    assert_eq!(after.void_before, told.void_before);
    let members = lab.admin().call(&MemberList {}).await.expect("listed").members;
    assert!(members.len() < 270, "{} members", members.len());
    let listed = lab.admin().call(&InvitationList {}).await.expect("listed").invitations;
    assert!(listed.len() < 270, "{} invitations", listed.len());
    let user = lab.join(Role::User, "ada").await;
    lab.admin().call(&Revoke::of(user.about.member)).await.expect("removed");
    let after = stays.send_heartbeat(stays.heartbeat(0)).await;
    assert_ne!(after.void_before, told.void_before, "a user had tickets");
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_donor_tickets_are_void_at_once() {
    let lab = Lab::new().await;
    let mut stays = lab.donor("stays").await;
    let removed = lab.join(Role::Donor, "removed").await;
    let before = stays.send_heartbeat(stays.heartbeat(0)).await;
    lab.admin().call(&Revoke::of(removed.about.member)).await.expect("removed");
    stays.hear(&before);
    let after = stays.send_heartbeat(stays.heartbeat(0)).await;
    assert!(after.void_before > before.void_before, "{after:?}");
}
