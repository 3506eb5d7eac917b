//! Tests of the work that strangers and members who leave cause.

use crate::handles::Handles;
use crate::scan_state::{Priority, ScanScope};
use crate::tasks::repair::tests::still;
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_pool::redundancy::Findings;
use potluck_wire::control::{Call, Invite, Join, Revoke};
use potluck_wire::error::{Failure, code};
use potluck_wire::identity::new_key_and_request;
use potluck_wire::metrics::Exposition;
use potluck_wire::packed::Blob;
use potluck_wire::serve::{Answers, CalledName, Peer};
use potluck_wire::token::Role;
use std::sync::Arc;
use std::time::Duration;

/// Makes a call by the admin, or by a stranger.
async fn call<C: Call>(manager: &Handles, by_admin: bool, call: &C) -> Result<C::Reply, Failure> {
    let admin = manager.members.all().into_iter().find(|member| member.role == Role::Admin);
    let certificate = admin.filter(|_| by_admin).map(|admin| admin.fingerprint);
    let peer = Peer { certificate, address: ([127, 0, 0, 1], 1).into(), connection: 0 };
    let body = serde_json::to_vec(call).expect("JSON");
    let name = CalledName { call: C::NAME.into(), key: None };
    let reply = Arc::new(manager.clone()).answer(peer, name, body.into()).await?;
    Ok(serde_json::from_slice(&reply).expect("JSON"))
}

fn join(secret: Digest) -> Join {
    let (_, request) = new_key_and_request().expect("a key");
    Join { secret, name: "u".into(), request: Blob(request), ca: None }
}

/// Returns the line of the metrics that counts the jobs of the catalog's writer.
fn jobs(manager: &Handles) -> String {
    let mut exposition = Exposition::of("manager");
    exposition.times("jobs", "Jobs", &manager.catalog.writer_times().jobs);
    let text = exposition.text();
    let count = text.lines().find(|line| line.starts_with("jobs_count"));
    count.expect("a count").to_owned()
}

#[tokio::test]
async fn a_stranger_who_guesses_tokens_takes_no_turn_of_the_writer() {
    let (_dir, manager) = still().await;
    let before = jobs(&manager);
    for guess in 0..3 {
        let refused = call(&manager, false, &join(Digest([guess; 32]))).await.expect_err("a guess");
        assert_eq!(refused.code, code::BAD_TOKEN);
    }
    assert_eq!(jobs(&manager), before);
    let invite = Invite { role: Role::User, ttl_seconds: 60, name: None };
    let token = call(&manager, true, &invite).await.expect("invited");
    call(&manager, false, &join(token.secret)).await.expect("joined");
    assert_ne!(jobs(&manager), before);
}

#[tokio::test]
async fn a_user_who_is_removed_has_no_file_looked_at() {
    let (_dir, manager) = still().await;
    let walks = || {
        let mut kept = manager.scan_state.kept();
        let (_, scope) = kept.begin(Duration::ZERO, Priority::Urgent, Duration::from_secs(600));
        kept.take(&mut Findings::default(), Duration::ZERO, None);
        matches!(scope, ScanScope::Everything)
    };
    assert!(walks() && !walks());
    for (role, has_copies) in [(Role::User, false), (Role::Donor, true)] {
        let invite = Invite { role, ttl_seconds: 60, name: None };
        let token = call(&manager, true, &invite).await.expect("invited");
        let member: MemberId =
            call(&manager, false, &join(token.secret)).await.expect("joined").member;
        let revoke = Revoke::of(member);
        call(&manager, true, &revoke).await.expect("removed");
        assert_eq!(walks(), has_copies, "{role}");
    }
}
