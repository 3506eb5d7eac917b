//! Tokens, and the members that they make.

use crate::stage::Stage;
use potluck_catalog::{Certified, Error, Moment, NewToken};
use potluck_catalog::{DonorNote, fixture::file};
use potluck_catalog::{Upkeep, fixture::path};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, Epoch, MemberId};
use potluck_wire::token::Role;

const DAY: u64 = 24 * 3600 * 1000;
const ISSUED: Moment = Moment { epoch: Epoch(1), pool_ms: 1000, wall_ms: 5_000_000 };
const DONOR: NewToken = NewToken { role: Role::Donor, by: MemberId(1), ttl_ms: DAY, name: None };

fn secret(n: u8) -> Digest {
    Digest([n; 32])
}

fn key(n: u8) -> Digest {
    Digest([100 + n; 32])
}

async fn join_as(stage: &Stage, n: u8, key: Digest, now: Moment) -> Result<Certified, Error> {
    let certify = |id: MemberId, _| Ok((Digest([id.0 as u8; 32]), vec![id.0 as u8]));
    stage.catalog.join(secret(n), key, "somebody".into(), now, certify).await
}

async fn join(stage: &Stage, n: u8, now: Moment) -> Result<Certified, Error> {
    join_as(stage, n, key(0), now).await
}

async fn with_token() -> Stage {
    let stage = Stage::new().await;
    stage.catalog.add_token(secret(1), DONOR, ISSUED).await.expect("issued");
    stage
}

#[tokio::test]
async fn a_token_gives_its_role_once_x5() {
    let stage = with_token().await;
    let Certified { member, .. } = join(&stage, 1, ISSUED).await.expect("joined");
    assert_eq!((member.role, member.revoked), (Role::Donor, false));
    assert_eq!((member.invited_by, member.joined_wall_ms), (Some(MemberId(1)), 5_000_000));
    assert_eq!(join_as(&stage, 1, key(1), ISSUED).await, Err(Error::UsedToken));
    assert_eq!(join(&stage, 2, ISSUED).await, Err(Error::UnknownToken));
}

#[tokio::test]
async fn join_is_repeatable_until_its_token_expires() {
    let stage = with_token().await;
    let first = join(&stage, 1, ISSUED).await.expect("joined");
    let again = join(&stage, 1, ISSUED).await;
    assert_eq!(again, Ok(first.clone()), "the same member and certificate");
    let late = Moment { pool_ms: 1000 + DAY, ..ISSUED };
    assert_eq!(join(&stage, 1, late).await, Err(Error::UsedToken));
    stage.catalog.revoke(first.member.id).await.expect("revoked");
    assert_eq!(join(&stage, 1, ISSUED).await, Err(Error::UsedToken), "no way back in");
}

#[tokio::test]
async fn removed_donor_copies_are_forgotten_in_bounded_steps() {
    let mut stage = with_token().await;
    let Certified { member, .. } = join(&stage, 1, ISSUED).await.expect("joined");
    let (gone, other) = (member.id.0, member.id.0 + 1);
    let many: Vec<u64> = (0..250).collect();
    stage.put(file("pot://lab/a", &many, &[gone, other])).await;
    let lies = DonorNote::Quarantined(Some("it lies".into()));
    stage.catalog.note_donor(DonorId(gone), lies).await.expect("noted");
    assert_eq!(
        stage.catalog.upkeep(Upkeep::RemovedDonors { copies: 100 }, 5).await,
        Ok(false),
        "nobody is removed"
    );
    assert_eq!(stage.counted(gone).await, (250, 0));

    stage.catalog.revoke(member.id).await.expect("revoked");
    let known = stage.catalog.donors().await.expect("read");
    assert!(!known.iter().any(|known| known.donor == DonorId(gone)), "{known:?}");
    let mut steps = 0;
    while stage.catalog.upkeep(Upkeep::RemovedDonors { copies: 100 }, 5).await.expect("a step") {
        steps += 1;
    }
    assert_eq!(steps, 2, "hundred at a time");
    assert_eq!((stage.counted(gone).await, stage.counted(other).await), ((0, 0), (250, 0)));
    let page = stage.catalog.open_files(path("pot://lab/a"), false, None).await.expect("opened");
    assert!(page.files[0].holders.iter().all(|holders| *holders == [DonorId(other)]));
}

#[tokio::test]
async fn a_join_that_fails_leaves_its_token_good_x5() {
    let stage = with_token().await;
    let fails = |_, _| Err(Error::BadCertificateRequest("no".into()));
    let failed = stage.catalog.join(secret(1), key(0), "somebody".into(), ISSUED, fails).await;
    assert!(failed.is_err());
    join(&stage, 1, ISSUED).await.expect("still good");
}

#[tokio::test]
async fn token_expiry_uses_pool_time_c1() {
    let year = 365 * DAY as i64;
    let late = |pool_ms, wall_ms| Moment { pool_ms, wall_ms, ..ISSUED };
    let stage = with_token().await;
    assert_eq!(join(&stage, 1, late(1000 + DAY, 5_000_000)).await, Err(Error::ExpiredToken));
    let jumped = join(&stage, 1, late(1000 + DAY - 1, 5_000_000 + year)).await;
    jumped.expect("the wall clock jumped");
}

#[tokio::test]
async fn a_token_does_not_outlive_its_day_while_no_manager_runs_x5() {
    let restarted = |wall_ms| Moment { epoch: Epoch(2), pool_ms: 2000, wall_ms };
    let stage = with_token().await.reopen().await;
    let year = 365 * DAY as i64;
    assert_eq!(join(&stage, 1, restarted(5_000_000 + year)).await, Err(Error::ExpiredToken));
    let soon = join(&stage, 1, restarted(5_000_000 + 1000)).await;
    soon.expect("an hour's restart ends nothing");
}

#[tokio::test]
async fn a_token_that_was_removed_lets_nobody_in_x5() {
    let stage = with_token().await;
    let tokens = stage.catalog.tokens().await.expect("read");
    let [token] = &tokens[..] else { panic!("one token") };
    assert_eq!((token.made_by, token.used_by, token.left_ms(ISSUED)), (MemberId(1), None, DAY));
    stage.catalog.remove_token(token.id).await.expect("removed");
    assert_eq!(join(&stage, 1, ISSUED).await, Err(Error::UnknownToken));
    let again = stage.catalog.remove_token(token.id).await;
    assert_eq!(again, Err(Error::NoToken(token.id)));

    let second = stage.catalog.add_token(secret(2), DONOR, ISSUED).await.expect("issued");
    assert!(second > token.id, "numbers are never given twice");
    let joined = join(&stage, 2, ISSUED).await.expect("joined").member.id.0;
    let used = Error::TokenOfMember { token: second, member: joined };
    assert_eq!(stage.catalog.remove_token(second).await, Err(used));
}

#[tokio::test]
async fn the_last_admin_cannot_be_revoked() {
    let stage = Stage::new().await;
    let admin = async |n| {
        let new = NewToken { role: Role::Admin, ..DONOR };
        stage.catalog.add_token(secret(n), new, ISSUED).await.expect("issued");
        join(&stage, n, ISSUED).await.expect("joined").member.id
    };
    let first = admin(1).await;
    let last = stage.catalog.revoke(first).await.expect_err("no other admin is left");
    assert_eq!(last, Error::LastAdmin(first.0));
    let second = admin(2).await;
    for time in ["first", "second"] {
        assert!(stage.catalog.revoke(first).await.expect(time).0.revoked);
    }
    assert_eq!(stage.catalog.revoke(second).await, Err(Error::LastAdmin(second.0)));
    assert_eq!(stage.catalog.revoke(MemberId(99)).await, Err(Error::NoMember(99)));
}
