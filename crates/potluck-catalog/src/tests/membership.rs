use crate::Error;
use crate::fixture::Fixture;
use crate::members::{self, Member, NewMember};
use crate::tokens::{self, Certified, Moment, NewToken};
use potluck_core::chunk::Digest;
use potluck_core::ids::{Epoch, MemberId};
use potluck_wire::token::Role;

const DAY: u64 = 24 * 3600 * 1000;
const ISSUED: Moment = Moment { epoch: Epoch(1), pool_ms: 1000, wall_ms: 5_000_000 };
const DONOR: NewToken = NewToken { role: Role::Donor, by: MemberId(1), ttl_ms: DAY };

fn secret(n: u8) -> Digest {
    Digest([n; 32])
}

fn key(n: u8) -> Digest {
    Digest([100 + n; 32])
}

fn member(fixture: &Fixture, role: Role, name: &str) -> Member {
    let new = NewMember { role, name, joined_wall_ms: 7, invited_by: Some(MemberId(1)) };
    members::add(&fixture.db, new, |id| Ok(Digest([id.0 as u8; 32]))).expect("added")
}

fn join_as(fixture: &Fixture, n: u8, key: &Digest, now: Moment) -> Result<Certified, Error> {
    tokens::use_up(&fixture.db, &secret(n), key, now, |invited| {
        let (role, invited_by) = (invited.role, Some(invited.by));
        let new = NewMember { role, name: "somebody", joined_wall_ms: now.wall_ms, invited_by };
        let member = members::add(&fixture.db, new, |id| Ok(Digest([id.0 as u8; 32])))?;
        Ok(Certified { certificate: vec![member.id.0 as u8], member })
    })
}

fn join(fixture: &Fixture, n: u8, now: Moment) -> Result<Certified, Error> {
    join_as(fixture, n, &key(0), now)
}

fn with_token() -> Fixture {
    let fixture = Fixture::new();
    tokens::add(&fixture.db, &secret(1), DONOR, ISSUED).expect("issued");
    fixture
}

#[test]
fn x5_a_token_gives_its_role_once() {
    let fixture = with_token();
    let Certified { member, .. } = join(&fixture, 1, ISSUED).expect("joined");
    assert_eq!((member.role, member.revoked), (Role::Donor, false));
    assert_eq!((member.invited_by, member.joined_wall_ms), (Some(MemberId(1)), 5_000_000));
    assert_eq!(join_as(&fixture, 1, &key(1), ISSUED), Err(Error::UsedToken));
    assert_eq!(join(&fixture, 2, ISSUED), Err(Error::UnknownToken));
    assert_eq!(members::all(&fixture.db).expect("read"), [member]);
}

#[test]
fn a_join_whose_answer_was_lost_is_answered_again_until_its_token_expires() {
    let fixture = with_token();
    let first = join(&fixture, 1, ISSUED).expect("joined");
    assert_eq!(join(&fixture, 1, ISSUED), Ok(first.clone()), "the same member and certificate");
    assert_eq!(members::all(&fixture.db).expect("read").len(), 1);
    let late = Moment { pool_ms: 1000 + DAY, ..ISSUED };
    assert_eq!(join(&fixture, 1, late), Err(Error::UsedToken));
    members::revoke(&fixture.db, first.member.id).expect("revoked");
    assert_eq!(join(&fixture, 1, ISSUED), Err(Error::UsedToken), "no way back in");
}

#[test]
fn x5_a_join_that_fails_leaves_its_token_good() {
    let fixture = with_token();
    let tx = fixture.db.unchecked_transaction().expect("a transaction");
    let failed = tokens::use_up(&tx, &secret(1), &key(0), ISSUED, |_| Err(Error::Bug("no".into())));
    assert!(failed.is_err());
    drop(tx);
    join(&fixture, 1, ISSUED).expect("still good");
}

#[test]
fn c1_a_token_expires_by_the_pools_time_and_not_by_a_clock_that_jumps() {
    let year = 365 * DAY as i64;
    let late = |pool_ms, wall_ms| Moment { pool_ms, wall_ms, ..ISSUED };
    let fixture = with_token();
    assert_eq!(join(&fixture, 1, late(1000 + DAY, 5_000_000)), Err(Error::ExpiredToken));
    join(&fixture, 1, late(1000 + DAY - 1, 5_000_000 + year)).expect("the wall clock jumped");
}

#[test]
fn x5_a_token_does_not_outlive_its_day_while_no_manager_runs() {
    let restarted = |wall_ms| Moment { epoch: Epoch(2), pool_ms: 2000, wall_ms };
    let fixture = with_token();
    let year = 365 * DAY as i64;
    assert_eq!(join(&fixture, 1, restarted(5_000_000 + year)), Err(Error::ExpiredToken));
    join(&fixture, 1, restarted(5_000_000 + 1000)).expect("an hour's restart ends nothing");
}

#[test]
fn x5_a_token_that_was_removed_lets_nobody_in() {
    let fixture = with_token();
    let [token] = &tokens::all(&fixture.db).expect("read")[..] else { panic!("one token") };
    assert_eq!((token.made_by, token.used_by, token.left_ms(ISSUED)), (MemberId(1), None, DAY));
    tokens::remove(&fixture.db, token.id).expect("removed");
    assert_eq!(join(&fixture, 1, ISSUED), Err(Error::UnknownToken));
    assert_eq!(tokens::remove(&fixture.db, token.id), Err(Error::NoToken(token.id)));

    let second = tokens::add(&fixture.db, &secret(2), DONOR, ISSUED).expect("issued");
    assert!(second > token.id, "numbers are never given twice");
    let joined = join(&fixture, 2, ISSUED).expect("joined").member.id.0;
    let used = Error::TokenOfMember { token: second, member: joined };
    assert_eq!(tokens::remove(&fixture.db, second), Err(used));
}

#[test]
fn the_last_admin_cannot_be_revoked() {
    let fixture = Fixture::new();
    let first = member(&fixture, Role::Admin, "admin");
    assert_eq!(members::revoke(&fixture.db, first.id), Err(Error::LastAdmin(first.id.0)));
    let second = member(&fixture, Role::Admin, "admin");
    for time in ["first", "second"] {
        assert!(members::revoke(&fixture.db, first.id).expect(time).revoked);
    }
    assert_eq!(members::revoke(&fixture.db, second.id), Err(Error::LastAdmin(second.id.0)));
    assert_eq!(members::revoke(&fixture.db, MemberId(99)), Err(Error::NoMember(99)));
}

#[test]
fn when_a_member_was_seen_outlives_a_restart() {
    let fixture = Fixture::new();
    let ada = member(&fixture, Role::User, "ada");
    assert_eq!(ada.seen_wall_ms, None);
    members::seen(&fixture.db, &[(ada.id, 77)]).expect("saved");
    let again = members::get(&fixture.db, ada.id).expect("read").expect("a member");
    assert_eq!(again, Member { seen_wall_ms: Some(77), ..ada });
}
