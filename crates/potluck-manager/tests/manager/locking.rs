//! Authorities over locks of files, as mounts call for them.

use crate::lab::Lab;
use potluck_core::ids::LockHolderId;
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_core::rights::Right;
use potluck_wire::control::{LOCK_WAIT, LockAuthority, LockKeep, LockKept, LockLevel, SpaceCreate};
use potluck_wire::error::{Failure, code};
use std::time::Duration;

#[tokio::test]
async fn a_holder_that_says_all_that_it_has_is_answered_at_once() {
    let lab = Lab::new().await;
    let admin = lab.admin();
    let answered = async |held, within: Duration| {
        let keep = LockKeep {
            holder: LockHolderId([7; 16]),
            held,
            reserved: Vec::new(),
            busy: Vec::new(),
        };
        let kept = tokio::time::timeout(within, admin.call(&keep)).await;
        kept.map(|kept| kept.expect("answered"))
    };
    let kept = answered(Some(Vec::new()), LOCK_WAIT).await.expect("nobody has to wait for it");
    assert!(!kept.unknown && kept.lost.is_empty() && kept.wanted.is_empty(), "{kept:?}");
    assert!(answered(None, LOCK_WAIT / 2).await.is_err(), "the next call waits for news");
}

#[tokio::test]
async fn reclaimed_locks_are_bounded_and_need_rights() {
    let lab = Lab::new().await;
    for name in ["readable", "hidden"] {
        let (name, policy) = (name.to_owned(), Policy { sealed: false, ..Policy::default() });
        lab.admin().call(&SpaceCreate { name, policy }).await.expect("made");
    }
    lab.grant("readable", "everyone", &[Right::List, Right::Read]).await;
    let user = lab.user().await;
    let path = |text: &str| text.parse::<PoolPath>().expect("a path");
    let keep = async |held: Vec<(String, LockLevel)>, reserved: Vec<PoolPath>| {
        let held = held.iter().map(|(at, level)| LockAuthority { path: path(at), level: *level });
        let (holder, held) = (LockHolderId([7; 16]), Some(held.collect()));
        let call = LockKeep { holder, held, reserved, busy: Vec::new() };
        user.call(&call).await.map(|LockKept { lost, lost_names, .. }| (lost, lost_names))
    };
    let held = ["pot://lab/a", "pot://readable/a", "pot://hidden/a", "pot://none/a", "pot://"];
    let all = |level| held.iter().map(|at| (at.to_string(), level)).collect();
    // A manager that was not started again believes nothing. What the rights do not allow is told before the rest.
    let lost = |refused: usize| {
        let (allowed, refused) = held.split_at(refused);
        refused.iter().chain(allowed).map(|at| path(at)).collect::<Vec<_>>()
    };
    let reserved: Vec<_> = held.iter().map(|at| path(at)).collect();
    let kept = keep(all(LockLevel::Shared), reserved.clone()).await;
    assert_eq!(kept.expect("answered"), (lost(2), lost(1)));
    let kept = keep(all(LockLevel::Exclusive), reserved).await;
    assert_eq!(kept.expect("answered"), (lost(1), lost(1)));

    let many = |count: usize| (0..count).map(|n| (format!("pot://s{n}/f"), LockLevel::Shared));
    let kept: Result<_, Failure> = keep(many(65_536).collect(), Vec::new()).await;
    assert_eq!(kept.expect("answered").0.len(), 65_536);
    let refused = keep(many(65_536).collect(), vec![path("pot://lab/a")]).await;
    assert_eq!(refused.expect_err("more than a member may have").code, code::TOO_MANY_LOCKS);
}
