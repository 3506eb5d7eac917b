//! Tests that a scan which follows donors finds what a walk over all files finds.

use super::Scan;
use crate::handles::Handles;
use crate::scan_state::{Priority, ScanScope};
use crate::tasks::repair::tests::still;
use potluck_catalog::fixture::{arrives, file, in_parts, new_space};
use potluck_catalog::{Batch, CommitOutcome, PreparedFile, StoredFile, StoredSession, When};
use potluck_core::chunk::DEFAULT_CHUNK;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::placement::Plan;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror, Policy};
use potluck_pool::redundancy::Findings;
use potluck_wire::control::SpaceHealth;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SESSION: SessionId = SessionId([7; 16]);

/// Makes a plain space, whose policy asks for so many copies.
async fn made(manager: &Handles, name: &str, copies: u32) -> SpaceId {
    let policy = Policy { sealed: false, copies, ..Policy::default() };
    let made = manager.catalog.create_space(new_space(name, policy, None), None, 0).await;
    made.expect("a space");
    let roots = manager.catalog.roots().await.expect("spaces");
    roots.iter().find(|root| root.name == name).expect("there").space
}

/// Has files become visible in a space, by a session of their own.
async fn put(manager: &Handles, session: SessionId, space: SpaceId, files: Vec<PreparedFile>) {
    let opened = StoredSession {
        id: session,
        member: MemberId(1),
        space,
        policy: Policy { sealed: false, ..Policy::default() },
        asked: AskedPolicy::default(),
        plan: Plan { sections: Vec::new(), copies: 1, chunk_size: DEFAULT_CHUNK },
        bytes: 0,
        ended: false,
        room: None,
        draws_on: None,
        counted: 0,
    };
    manager.catalog.open_session(opened).await.expect("a session");
    for (number, file) in (1..).zip(files) {
        let batch = Batch {
            session,
            space,
            number: number.into(),
            mirror: Mirror::ClientSync,
            ack: AckLevel::Memory,
            asked: AskedPolicy::default(),
            reserved: Vec::new(),
            files: vec![Ok(file)],
            atomic: false,
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

/// A space with files of two copies at six donors that are there, whose policy asks for so many.
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

/// Returns the findings of a scan that are about how safe files are.
fn told(findings: &Findings) -> (Vec<SpaceHealth>, Vec<u64>, BTreeSet<(u64, u32)>) {
    let mut spaces: Vec<_> = findings.spaces.iter().map(|space| space.health.clone()).collect();
    spaces.sort_by(|a, b| a.name.cmp(&b.name));
    let jobs = findings.queue.values().map(|job| (job.unit.0.0, job.unit.1)).collect();
    (spaces, findings.lacking.clone(), jobs)
}

#[tokio::test]
async fn a_scan_that_follows_donors_finds_what_a_walk_over_all_files_finds() {
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
        // Where nothing happens it stays so.
        found = since(&mut found).await;
        assert_eq!(told(&found), told(&walk().await), "again in step {step}");
        lacking.insert(step, found.lacking.iter().sum::<u64>());
        last = found;
    }
    assert!(lacking[&3] >= 2000, "of the large file nothing is where it should be: {lacking:?}");
    assert_eq!(lacking[&5], 0, "all is as it was: {lacking:?}");
}

#[tokio::test]
async fn the_first_file_of_a_space_has_that_space_looked_at_and_no_other() {
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
