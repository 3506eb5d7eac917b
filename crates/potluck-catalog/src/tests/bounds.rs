//! Tests of the bounds on records that members make without writing files.

use crate::Error;
use crate::checkpoints::checkpoint_rows;
use crate::fixture::{Fixture, new_space, path};
use crate::members::quotas;
use crate::operations::{
    self,
    checkpoints::{self, CheckpointOutcome, NewCheckpoint},
    members::NewMember,
    names::directories,
    spaces::policy_changes,
};
use crate::pool_records::spaces::Sums;
use crate::sql::params;
use crate::tests::NO_CONDITIONS;
use crate::when::When;
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::chunk::Digest;
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::policy::{Override, Policy};
use potluck_core::quota::{Quota, QuotaOf};
use potluck_wire::token::Role;

#[test]
fn ended_checkpoints_kept_per_member_are_bounded() {
    let fixture = Fixture::new();
    let db = fixture.db.begin().expect("a transaction");
    let drawn = |number: u16| {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        CheckpointId(id)
    };
    let commit = |number: u16, pool_ms: u64| {
        let when = When { pool_ms, ..When::default() };
        checkpoints::commit(&db, ("lab", &drawn(number)), NO_CONDITIONS, when)
    };
    for number in 0..1026 {
        let (id, target) = (drawn(number), path("pot://lab/step"));
        let (style, made_by) = (CommitStyle::Replace, MemberId(1 + u32::from(number == 0)));
        let new = NewCheckpoint { id, target, style, made_by, idle_ms: 1000 };
        checkpoints::begin(&db, &new, When::default()).expect("begun");
        commit(number, number.into()).expect("committed");
    }
    assert_eq!(checkpoint_rows::all(&db).expect("read").committed.len(), 1024 + 1);
    let before = Ok(CheckpointOutcome::Before("pot://lab/step".into()));
    assert_eq!(commit(0, 2000), before, "of another member");
    assert_eq!(commit(1, 2000), Err(Error::NoCheckpoint(drawn(1))), "it ended before others");
    assert_eq!(commit(2, 2000), before);
}

#[test]
fn so_many_directories_of_a_space_have_a_policy_of_their_own() {
    let fixture = Fixture::new();
    let db = fixture.db.begin().expect("a transaction");
    let set = |at: &str| {
        directories::make_dir(&db, &path(at), true, EntryAttributes::of_dir(1)).expect("made");
        let over = Override { copies: Some(1), ..Override::default() };
        policy_changes::set(&db, &path(at), &over)
    };
    for number in 0..4096 {
        set(&format!("pot://lab/{number}")).expect("set");
    }
    let more = Error::TooManyPolicies { space: "lab".into(), most: 4096 };
    assert_eq!(set("pot://lab/more"), Err(more));
    assert_eq!(set("pot://lab/7"), Ok(()), "it has one already");
    let policy = Policy { sealed: false, ..Policy::default() };
    operations::spaces::create(&db, &new_space("other", policy, None), 0).expect("made");
    assert_eq!(set("pot://other/d"), Ok(()), "of another space");
}

#[test]
fn catalog_use_per_member_is_bounded() {
    let fixture = Fixture::new();
    let db = fixture.db.begin().expect("a transaction");
    let joins = |role, name: &str| {
        let new = NewMember { role, name, joined_wall_ms: 0, invited_by: None };
        let print = Digest::of(name.as_bytes());
        operations::members::add(&db, new, |_| Ok(print)).expect("a member").id
    };
    let (ada, admin) = (joins(Role::User, "ada"), joins(Role::Admin, "root"));
    let one_more = Sums { files: 1, ..Sums::default() };
    let made_by = |maker: MemberId, files: i64| {
        db.execute("UPDATE spaces SET made_by = ?1, files = ?2", params![maker.0, files])
            .expect("set");
        quotas::admit(&db, SpaceId(1), one_more)
    };
    assert_eq!(made_by(ada, 4_999_999), Ok(()));
    assert!(matches!(made_by(ada, 5_000_000), Err(Error::OverQuota { .. })));
    assert_eq!(made_by(admin, 5_000_000), Ok(()), "admins look after the disk");
    let more = Quota { files: Some(6_000_000), bytes: None };
    quotas::put(&db, &QuotaOf::Member(ada), more).expect("set");
    assert_eq!(made_by(ada, 5_000_000), Ok(()));
}
