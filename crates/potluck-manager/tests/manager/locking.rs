//! Authorities over locks of files, as mounts call for them.

use crate::lab::Lab;
use potluck_core::ids::LockHolderId;
use potluck_wire::control::{LOCK_WAIT, LockKeep};
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
