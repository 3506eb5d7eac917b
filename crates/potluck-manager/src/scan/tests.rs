//! Tests that a scan which follows donors finds what a walk over all files finds.

use super::Scan;
use crate::handles::Handles;
use crate::scan_state::{Priority, ScanScope, Unseen};
use crate::tasks::repair::tests::still;
use potluck_catalog::fixture::{arrives, file, in_parts, new_space};
use potluck_catalog::{Batch, CommitOutcome, PreparedFile, StoredFile, StoredSession, When};
use potluck_core::chunk::DEFAULT_CHUNK;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::path::PoolPath;
use potluck_core::placement::Plan;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror, Policy};
use potluck_pool::redundancy::Findings;
use potluck_wire::control::{Call, Fsck, HealthLevel, SpaceHealth, Stat};
use potluck_wire::serve::{Answers, CalledName, Peer};
use potluck_wire::token::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const SESSION: SessionId = SessionId([7; 16]);
/// The time from one walk over all files to the next.
const EVERY: Duration = Duration::from_secs(600);

/// Makes a space that is not encrypted, whose policy asks for `copies`.
async fn made(manager: &Handles, name: &str, copies: u32) -> SpaceId {
    let policy = Policy { sealed: false, copies, ..Policy::default() };
    let made = manager.catalog.create_space(new_space(name, policy, None), None, 0).await;
    made.expect("a space");
    let spaces = manager.catalog.spaces().await.expect("spaces");
    spaces.iter().find(|space| space.name == name).expect("there").id
}

/// Has files become visible in a space, by a session of their own.
async fn put(manager: &Handles, session: SessionId, space: SpaceId, files: Vec<PreparedFile>) {
    let opened = StoredSession {
        id: session,
        member: MemberId(1),
        space,
        policy: Policy { sealed: false, ..Policy::default() },
        asked: AskedPolicy::default(),
        plan: Plan { stripe_size: 1, sections: Vec::new(), copies: 1, chunk_size: DEFAULT_CHUNK },
        bytes: 0,
        ended: false,
        room: None,
        draws_on: None,
        key: None,
        counted: 0,
    };
    manager.catalog.open_session(opened).await.expect("a session");
    for (number, file) in (1..).zip(files) {
        let batch = Batch {
            session,
            member: MemberId(1),
            space,
            number: number.into(),
            mirror: Mirror::ClientSync,
            ack: AckLevel::Memory,
            asked: AskedPolicy::default(),
            reserved: Vec::new(),
            files: vec![Ok(file)],
            done: false,
        };
        let donors = manager.pool.lock().snapshot(manager.time.tick());
        let reply = |_: &[Result<StoredFile, _>]| Ok(String::new());
        let when = When { pool_ms: 0, wall_ms: 0, ..When::default() };
        let batch: Arc<Batch<()>> = Arc::new(batch);
        let none = Arc::from(Vec::new());
        let done = manager.catalog.commit_files(batch, false, none, donors, when, reply).await;
        match done.expect("a batch").outcome {
            CommitOutcome::Fresh { files, .. } => assert!(files.iter().all(Result::is_ok)),
            CommitOutcome::Repeated(_) => panic!("a fresh batch was taken for a repeated one"),
        }
    }
}

/// Makes a space whose policy asks for `copies`, with files of two copies at six live donors.
async fn stored(manager: &Handles, copies: u32) {
    for donor in 11..=16 {
        arrives(&mut manager.pool.lock(), donor, manager.time.tick());
    }
    let small = |n: u64| {
        let on = [11 + (n % 6) as u32, 11 + ((n + 1) % 6) as u32];
        let mut small = file(&format!("pot://lab/d{}/{n}", n % 3), &[n, n + 1000], &on);
        small.version.copies = 2;
        small
    };
    let mut files: Vec<PreparedFile> = (0..60).map(small).collect();
    files.extend(in_parts("pot://lab/large", 0, 5000..7000, &[12, 13]));
    let space = made(manager, "lab", copies).await;
    put(manager, SESSION, space, files).await;
}

/// Returns those findings of a scan that tell how safe files are.
fn told(findings: &Findings) -> (Vec<SpaceHealth>, Vec<u64>, BTreeSet<(u64, u32)>) {
    let mut spaces: Vec<_> = findings.spaces.iter().map(|space| space.health.clone()).collect();
    spaces.sort_by(|a, b| a.name.cmp(&b.name));
    let jobs = findings.queue.values().map(|job| (job.unit.0.0, job.unit.1)).collect();
    (spaces, findings.lacking.clone(), jobs)
}

#[tokio::test]
async fn incremental_scan_equals_full_scan() {
    let (_dir, manager) = still().await;
    stored(&manager, 1).await;
    let scan = Scan::from(&manager);
    let walk = async || {
        let found = scan.run(ScanScope::Everything, Priority::Urgent).await.expect("read");
        let (findings, walked) = found.expect("it is in a hurry");
        assert!(walked);
        findings
    };
    let since = async |last: &mut Findings| {
        let (donors, versions) = (BTreeSet::new(), BTreeSet::new());
        let last = last.remember().expect("few are to be remembered");
        let scope = ScanScope::Since { last, donors, versions };
        let found = scan.run(scope, Priority::Urgent).await.expect("read");
        let (findings, walked) = found.expect("it is in a hurry");
        assert!(!walked);
        findings
    };
    let mut last = walk().await;
    assert_eq!(last.spaces[0].health.files, 61);
    let mut lacking = BTreeMap::new();
    let changes = [(11, true), (12, true), (11, false), (13, true), (12, false), (13, false)];
    for (step, (donor, distrusted)) in changes.into_iter().enumerate() {
        let why = distrusted.then(|| "it lied".to_owned());
        manager.pool.lock().quarantine(DonorId(donor), why);
        let mut found = since(&mut last).await;
        assert_eq!(told(&found), told(&walk().await), "step {step}");
        // If nothing happens, the findings stay the same.
        found = since(&mut found).await;
        assert_eq!(told(&found), told(&walk().await), "again in step {step}");
        lacking.insert(step, found.lacking.iter().sum::<u64>());
        last = found;
    }
    assert!(lacking[&3] >= 2000, "of the large file nothing is where it should be: {lacking:?}");
    assert_eq!(lacking[&5], 0, "all is as it was: {lacking:?}");
}

#[tokio::test]
async fn first_file_of_a_space_triggers_its_scan_only() {
    let (_dir, manager) = still().await;
    stored(&manager, 2).await;
    let scan = Scan::from(&manager);
    let empty = made(&manager, "empty", 2).await;
    let walked = scan.run(ScanScope::Everything, Priority::Urgent).await.expect("read");
    let mut last = walked.expect("it is in a hurry").0;
    let mut since = async || {
        let (donors, versions) = (BTreeSet::new(), BTreeSet::new());
        let last_scan = last.remember().expect("few are to be remembered");
        let scope = ScanScope::Since { last: last_scan, donors, versions };
        let found = scan.run(scope, Priority::Urgent).await.expect("read");
        let (findings, walked) = found.expect("it is in a hurry");
        assert!(!walked);
        last = findings;
        (last.files, told(&last))
    };
    let (unsettled, _) = since().await;
    let new = made(&manager, "new", 2).await;
    for (number, (name, space)) in (8..).zip([("empty", empty), ("new", new)]) {
        let mut first = file(&format!("pot://{name}/f"), &[number], &[11, 12]);
        first.version.copies = 2;
        put(&manager, SessionId([number as u8; 16]), space, vec![first]).await;
    }
    let (looked_at, found) = since().await;
    assert_eq!(looked_at, unsettled + 2);
    let files = found.0.iter().map(|space| (space.name.as_str(), space.files));
    assert_eq!(files.collect::<Vec<_>>(), [("empty", 1), ("lab", 61), ("new", 1)]);
    let walked = scan.run(ScanScope::Everything, Priority::Urgent).await.expect("read");
    assert_eq!(found, told(&walked.expect("it is in a hurry").0));
}

/// Has the manager's admin make a call.
async fn asked<C: Call>(manager: &Handles, call: &C) -> C::Reply {
    let admins = manager.members.all().into_iter().filter(|member| member.role == Role::Admin);
    let certificate = admins.map(|admin| admin.fingerprint).next();
    let peer = Peer { certificate, address: ([127, 0, 0, 1], 1).into(), connection: 0 };
    let body = serde_json::to_vec(call).expect("JSON");
    let name = CalledName { call: C::NAME.into(), key: None };
    let answered = Arc::new(manager.clone()).answer(peer, name, body.into()).await;
    serde_json::from_slice(&answered.expect("answered")).expect("JSON")
}

/// 20,000 copies of one donor among 10^7 chunks took the processor time of a walk over all of them, because somebody
/// asked for one of its files before the scan had looked.
#[tokio::test]
async fn worse_file_triggers_a_scan_of_its_donor_only() {
    let (_dir, manager) = still().await;
    stored(&manager, 2).await;
    // The large file has one copy, and a file that is known to be less safe already is no news.
    let large = "pot://lab/large".parse().expect("a path");
    let when = When { pool_ms: 0, wall_ms: 0, ..When::default() };
    manager.catalog.remove(large, Default::default(), false, when).await.expect("removed");
    let scan = Scan::from(&manager);
    let mut at = Duration::ZERO;
    let mut look = async || {
        at += Duration::from_secs(10);
        let (_, scope) = manager.scan_state.kept().begin(at, Priority::Urgent, EVERY);
        let found = scan.run(scope, Priority::Urgent).await.expect("read");
        let (mut findings, walked) = found.expect("it is in a hurry");
        manager.scan_state.kept().take(&mut findings, at, walked.then_some(Duration::ZERO));
        (findings.files, walked)
    };
    assert!(look().await.1, "nothing is remembered yet");
    let (unsettled, walked) = look().await;
    assert!(unsettled < 10 && !walked, "{unsettled} files");
    let incomplete = || manager.scan_state.kept().spaces["lab"].incomplete;
    let before = incomplete();
    manager.pool.lock().quarantine(DonorId(11), Some("it lied".into()));
    let path = || "pot://lab/d0/0".parse().expect("a path");
    let stat = Stat { path: path(), chunks: false, unjudged: false, room: false, after: None };
    let health = asked(&manager, &stat).await.health.expect("it is on donors");
    assert_eq!(health.level, HealthLevel::Incomplete);
    let fsck = Fsck { path: PoolPath::root(), incomplete: true, after: None };
    let of_donor = 60 / 6 * 2;
    let found = asked(&manager, &fsck).await.found.len() as u64;
    assert!(found >= of_donor, "{found}");
    let doubted = manager.scan_state.unseen(&BTreeSet::new());
    assert!(matches!(doubted, Some(Unseen::Worse(_))), "until the next scan: {doubted:?}");
    assert_eq!(look().await, (of_donor + unsettled, false));
    assert_eq!(incomplete(), before + of_donor);
    // A check of a part of the pool that is well meanwhile does not have others looked at either.
    let well = Fsck { path: "pot://lab/d1/1".parse().expect("a path"), ..fsck };
    assert!(asked(&manager, &well).await.found.is_empty());
    assert_eq!(look().await, (of_donor + unsettled, false));
}
