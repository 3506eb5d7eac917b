//! Tests of when scans are due, and of what heartbeats wait for.

use super::Repair;
use crate::applying_task_results::ApplyingTaskResults;
use crate::handles::Handles;
use crate::scan::Scan;
use crate::scan_state::{Due, Priority, RETRY, ScanMemory, ScanScope, ScanState};
use crate::{Manager, ManagerConfig, init};
use potluck_catalog::Encoded;
use potluck_catalog::{DonorNote, ToldCopies, fixture::new_space};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::Policy;
use potluck_pool::redundancy::{Findings, Purpose};
use potluck_wire::control::{Holding, TaskOutcome, TaskResult, Work};
use potluck_wire::env::Env;
use potluck_wire::tls::install_provider;
use std::cell::Cell;
use std::time::Duration;
use tempfile::TempDir;

const SETTLE: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(600);

fn at(seconds: u64) -> Tick {
    Duration::from_secs(seconds)
}

fn due(kept: &ScanMemory, now: u64) -> Option<Priority> {
    kept.due(at(now), SETTLE, EVERY, false)
}

/// Starts a manager that is not run: nothing happens in it by itself.
pub(crate) async fn still() -> (TempDir, Handles) {
    install_provider();
    let dir = tempfile::tempdir().expect("a directory");
    let config = ManagerConfig {
        listen: "127.0.0.1:0".into(),
        state: dir.path().join("state"),
        metadata_copies: 0,
        // Donors are heard once, and a busy machine takes its time over what follows.
        suspect_after: Duration::from_secs(60),
        ..ManagerConfig::default()
    };
    let env = Env::system();
    init(&config, &env).expect("a pool").keep();
    let manager = Manager::start(config, env, None).await.expect("started");
    (dir, manager.handles())
}

#[test]
fn failed_scan_is_retried_with_a_pause_a3() {
    let mut kept = ScanMemory::default();
    (kept.dirty, kept.hurry) = (Some(at(1)), true);
    assert_eq!(due(&kept, 3), Some(Priority::Urgent));
    let (taken, _) = kept.begin(at(3), Priority::Urgent, EVERY);
    assert_eq!(due(&kept, 10), None, "all there is to see is being looked at");
    kept.give_up(taken);
    kept.failed = Some("the disk that holds the catalog is full".into());
    assert_eq!((kept.dirty, kept.hurry), (Some(at(1)), true));
    assert_eq!(due(&kept, 2 + RETRY.as_secs()), None);
    assert_eq!(due(&kept, 3 + RETRY.as_secs()), Some(Priority::Urgent));
    // A scan that failed is tried again even if nobody waits for it.
    kept.give_up(Due::default());
    (kept.dirty, kept.hurry) = (None, false);
    assert_eq!(due(&kept, 3 + RETRY.as_secs()), Some(Priority::Routine));
    kept.failed = None;
    assert_eq!(due(&kept, 602), None);
    assert_eq!(due(&kept, 603), Some(Priority::Routine));
}

/// Returns whether the next scan looks only at what changed.
fn follows(kept: &mut ScanMemory, now: u64, priority: Priority) -> bool {
    let (_, scope) = kept.begin(at(now), priority, EVERY);
    let follows = matches!(scope, ScanScope::Since { .. });
    kept.take(&mut Findings::default(), at(now), (!follows).then_some(Duration::ZERO));
    follows
}

#[test]
fn full_scans_run_first_periodically_and_on_unknown_changes() {
    let state = ScanState::default();
    let next = |now, priority| follows(&mut state.kept(), now, priority);
    assert!(!next(0, Priority::Urgent), "nothing is remembered yet");
    state.changed(at(1));
    assert!(next(6, Priority::Urgent));
    assert_eq!(due(&state.kept(), EVERY.as_secs() - 1), None);
    assert_eq!(due(&state.kept(), EVERY.as_secs()), Some(Priority::Routine), "since the last walk");
    assert!(!next(600, Priority::Routine));
    state.changed_at(DonorId(1), at(601));
    assert!(next(606, Priority::Urgent));
    state.changed_anywhere(at(607));
    assert!(!next(612, Priority::Urgent));
    assert!(next(620, Priority::Urgent), "all was seen");
    // Leisurely walks that are interrupted again and again give way to one that is not.
    assert_eq!(due(&state.kept(), 612 + 2 * EVERY.as_secs()), Some(Priority::Urgent));
    assert!(!next(612 + 2 * EVERY.as_secs(), Priority::Urgent));
    // A walk that did not come to its end leaves nothing behind, and what it was to see is still to be
    // seen.
    let (taken, scope) = state.kept().begin(at(2000), Priority::Urgent, EVERY);
    assert!(matches!(scope, ScanScope::Since { .. }));
    state.kept().give_up(taken);
    assert!(!next(2005, Priority::Urgent));
}

#[tokio::test]
async fn a_leisurely_scan_gives_way_to_who_waits_s2() {
    let (_dir, manager) = still().await;
    let made =
        manager.catalog.create_space(new_space("lab", Policy::default(), None), None, 0).await;
    made.expect("a space");
    let scan = Scan::from(&manager);
    let run = || scan.run(ScanScope::Everything, Priority::Routine);
    assert!(run().await.expect("read").is_some());
    manager.scan_state.hurry(manager.time.tick());
    assert!(run().await.expect("read").is_none());
    assert!(manager.scan_state.kept().hurry, "still to be seen");
    Repair::from(&manager).look_once(Priority::Urgent).await.expect("read");
    let kept = manager.scan_state.kept();
    assert!(!kept.hurry && kept.began.is_some() && kept.failed.is_none());
}

#[tokio::test]
async fn heartbeat_waits_for_the_writer_once() {
    let (_dir, manager) = still().await;
    let (donor, count) = (DonorId(1), 400);
    let (mut results, mut unused) = (Vec::new(), Vec::new());
    for n in 0..count {
        let chunk = ChunkName::of(&[n as u8, (n >> 8) as u8]);
        unused.push(Holding { name: chunk, len: 1 });
        let unit = (VersionId(n), 0, false);
        let purpose = Purpose::Make { unit, chunk, len: 1, reads: Vec::new() };
        let mut pool = manager.pool.lock();
        pool.repairs.tasks.give(donor, manager.time.tick(), purpose, Work::Describe);
        let task = pool.repairs.tasks.last();
        results.push(TaskResult { task, outcome: TaskOutcome::Done });
    }
    // The catalog is told of these copies first, as of those that a heartbeat lists as added.
    let listed = ToldCopies { unused, ..ToldCopies::default() };
    manager.catalog.tell(donor, listed, 0).await.expect("written");
    // Another task that writes gets one turn of the writer for each of ours.
    let turns = Cell::new(0);
    let others = async {
        loop {
            manager
                .catalog
                .note_donor(DonorId(99), DonorNote::AwayUntil(None))
                .await
                .expect("written");
            turns.set(turns.get() + 1);
        }
    };
    let taking = ApplyingTaskResults::from(&manager);
    tokio::select! {
        biased;
        done = taking.take(donor, results) => done.expect("written"),
        () = others => {}
    }
    assert!(turns.get() < count / 2, "{} turns of the writer", turns.get());
    assert_eq!(manager.pool.lock().repair_state(manager.time.tick()).made, count);
}

#[test]
fn a_first_answer_whose_second_does_not_come_is_no_ones_second() {
    let ec = "2+1".parse().expect("a code");
    let encoded = |group| Encoded {
        version: VersionId(1),
        ec,
        group,
        parity: Vec::new(),
        holders: vec![DonorId(1)],
    };
    let mut kept = ScanMemory::default();
    kept.encoded.extend([0, 1].map(|group| ((VersionId(1), ec, group), encoded(group))));
    let abandoned = kept.abandoned(&[(VersionId(1), ec, 0)].into());
    assert_eq!(abandoned.iter().map(|first| first.group).collect::<Vec<_>>(), [1]);
    assert_eq!(kept.encoded.len(), 1);
}
