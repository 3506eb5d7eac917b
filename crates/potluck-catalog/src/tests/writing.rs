//! Tests of the catalog's writer, in which jobs share a transaction and each is done whole or not at all.

use crate::chunks::{placements, referrers, unused_chunks};
use crate::fixture::{Fixture, ReadClock, file, new_space, path};
use crate::log::{changes, records::Record};
use crate::operations;
use crate::pool_records::meta;
use crate::sql::Tx;
use crate::{Catalog, ChangeListener, CommittedChange, Durability, Error, Upkeep, When};
use potluck_core::attributes::EntryAttributes;
use potluck_core::policy::{AckLevel, Policy};
use potluck_wire::control::OnlyIf;
use potluck_wire::env::Offload;
use potluck_wire::metrics::Exposition;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn saved(db: &Tx) -> Result<Option<u64>, Error> {
    meta::saved_pool_time(db)
}

#[test]
fn a_job_is_all_or_nothing_and_leaves_the_others_alone() {
    for offload in [Offload::Inline, Offload::Threads] {
        let fixture = Fixture::new();
        let catalog = Catalog::open(&fixture.file(), offload, ReadClock::by(0)).expect("opened");
        runtime().block_on(async {
            let save = |ms| move |db: &Tx| meta::save_pool_time(db, ms);
            let fails = catalog.write(Durability::Disk, |db| {
                meta::save_pool_time(db, 999)?;
                Err::<(), _>(Error::LastAdmin(1))
            });
            let panics = catalog.write(Durability::Disk, |db| -> Result<(), Error> {
                meta::save_pool_time(db, 998)?;
                panic!("a bug in a job");
            });
            // Submitted together, so that on a thread they share a transaction.
            let (first, failed, bug, last) = tokio::join!(
                catalog.write(Durability::Process, save(1)),
                fails,
                panics,
                catalog.write(Durability::Disk, save(2)),
            );
            assert_eq!((first, last), (Ok(()), Ok(())), "{offload:?}");
            assert_eq!(failed, Err(Error::LastAdmin(1)));
            assert_eq!(bug, Err(Error::Bug("a bug in a job".into())));
            assert_eq!(catalog.read(saved).await, Ok(Some(2)), "a read sees what was written");
            catalog.close().await;
            assert_eq!(catalog.write(Durability::Disk, save(3)).await, Err(Error::Closed));
        });
    }
}

/// A listener that keeps what it is told.
#[derive(Default)]
struct HeardChanges(Mutex<Vec<CommittedChange>>);

impl ChangeListener for HeardChanges {
    fn listens(&self) -> bool {
        true
    }

    fn committed(&self, changes: Vec<CommittedChange>) {
        self.0.lock().expect("no holder panics").extend(changes);
    }
}

#[test]
fn rolled_back_changes_notify_no_watch() {
    let fixture = Fixture::new();
    let catalog =
        Catalog::open(&fixture.file(), Offload::Inline, ReadClock::by(0)).expect("opened");
    let heard = Arc::<HeardChanges>::default();
    catalog.announce_to(heard.clone());
    let remove = |db: &Tx, at: &str| changes::tell(db, Record::Removed { path: path(at) });
    let job = move |db: &Tx| {
        let undone = db.savepoint(|| {
            remove(db, "pot://lab/kept")?;
            Err::<(), _>(Error::LastAdmin(1))
        });
        assert_eq!(undone, Err(Error::LastAdmin(1)));
        remove(db, "pot://lab/gone")
    };
    runtime().block_on(catalog.write(Durability::Disk, job)).expect("written");
    let gone = CommittedChange::Entry { path: path("pot://lab/gone"), is_there: false };
    assert_eq!(*heard.0.lock().expect("no holder panics"), [gone]);
}

#[test]
fn queued_jobs_are_finished_before_the_writer_closes_d1() {
    let fixture = Fixture::new();
    let catalog =
        Catalog::open(&fixture.file(), Offload::Threads, ReadClock::by(0)).expect("opened");
    runtime().block_on(async {
        let jobs: Vec<_> = (1..=50)
            .map(|ms| {
                let catalog = catalog.clone();
                tokio::spawn(async move {
                    let save = move |db: &Tx| meta::save_pool_time(db, ms);
                    catalog.write(Durability::Process, save).await
                })
            })
            .collect();
        tokio::task::yield_now().await;
        catalog.close().await;
        for job in jobs {
            job.await.expect("no panic").expect("written");
        }
    });
    assert_eq!(saved(&fixture.reopen().db), Ok(Some(50)));
}

/// A manager that is behind keeps a bounded number of jobs, and none of a caller that gave up while it waited to hand
/// its job in.
#[test]
fn jobs_beyond_the_queue_wait_with_their_callers() {
    let fixture = Fixture::new();
    let catalog =
        Catalog::open(&fixture.file(), Offload::Threads, ReadClock::by(0)).expect("opened");
    let (asked, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    runtime().block_on(async {
        let slow = catalog.clone();
        let slow = tokio::spawn(async move {
            let until_released = move |_: &Tx| {
                let _ = released.lock().expect("no holder panics").recv(); // the sender is dropped
                Ok(())
            };
            slow.write(Durability::Process, until_released).await
        });
        let callers: Vec<_> = (0..5000)
            .map(|_| {
                let (catalog, asked) = (catalog.clone(), Arc::clone(&asked));
                let runs = Arc::clone(&runs);
                let count = move |_: &Tx| Ok(runs.fetch_add(1, Ordering::Relaxed));
                tokio::spawn(async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    catalog.write(Durability::Process, count).await
                })
            })
            .collect();
        // Waits until every caller has handed its job in, or waits to.
        while asked.load(Ordering::Relaxed) < 5000 {
            tokio::task::yield_now().await;
        }
        callers.iter().for_each(tokio::task::JoinHandle::abort);
        tokio::task::yield_now().await;
        drop(release);
        slow.await.expect("no panic").expect("written");
        let after = catalog.write(Durability::Process, |db| meta::save_pool_time(db, 5)).await;
        assert_eq!(after, Ok(()), "the queue moves on");
        catalog.close().await;
    });
    let runs = runs.load(Ordering::Relaxed);
    assert!((1..2000).contains(&runs), "{runs} of 5000 jobs ran");
}

/// Another engine may fail transactions that conflict with each other, and SQLite fails one while another program locks
/// the catalog.
#[test]
fn conflicting_transaction_reruns_all_its_jobs() {
    for offload in [Offload::Inline, Offload::Threads] {
        let fixture = Fixture::new();
        let catalog = Catalog::open(&fixture.file(), offload, ReadClock::by(0)).expect("opened");
        let runs = Arc::new(AtomicU32::new(0));
        let meets = |failures: u32| {
            let runs = Arc::clone(&runs);
            move |db: &Tx| {
                meta::raise_epoch(db, meta::epoch(db)?)?;
                match runs.fetch_add(1, Ordering::Relaxed) < failures {
                    true => Err(Error::Contended),
                    false => meta::epoch(db),
                }
            }
        };
        runtime().block_on(async {
            let other = catalog.write(Durability::Disk, |db| meta::save_pool_time(db, 7));
            let (epoch, other) = tokio::join!(catalog.write(Durability::Disk, meets(2)), other);
            assert_eq!((epoch.map(|epoch| epoch.0), other), (Ok(1), Ok(())), "raised once");
            assert_eq!(runs.swap(0, Ordering::Relaxed), 3);
            assert_eq!(catalog.read(saved).await, Ok(Some(7)));
            // It does not go on for ever.
            let kept_out = catalog.write(Durability::Disk, meets(u32::MAX)).await;
            assert_eq!(kept_out, Err(Error::Contended));
            assert_eq!(catalog.read(meta::epoch).await.map(|epoch| epoch.0), Ok(1));
        });
    }
}

#[test]
fn the_copies_of_a_donor_are_found_by_its_index() {
    let fixture = Fixture::new();
    let others = [referrers::COPIES_AT, unused_chunks::NEXT_COPY_AND_UNUSED];
    for sql in placements::BY_DONOR.into_iter().chain(others) {
        let plan = fixture.db.plan(sql).expect("planned");
        let first = &plan[0];
        assert!(first.contains("placements_by_donor (donor=?"), "{sql}: {plan:?}");
    }
}

#[test]
fn unused_chunks_are_found_by_number_without_a_sort() {
    let fixture = Fixture::new();
    for sql in [unused_chunks::CONDEMNED, unused_chunks::NEXT_COPY_AND_UNUSED] {
        let plan = fixture.db.plan(sql).expect("planned");
        let any = |what: &str| plan.iter().any(|step| step.contains(what));
        assert!(any("unused_by_number (state=? AND id>?)"), "{sql}: {plan:?}");
        assert!(!any("TEMP B-TREE"), "{sql}: {plan:?}");
    }
}

#[test]
fn the_copies_of_all_donors_are_counted_without_sorting_them() {
    let plan = Fixture::new().db.plan(crate::chunks::stats::COPIES_BY_DONOR).expect("planned");
    assert_eq!(plan.len(), 1, "{plan:?}");
    assert!(plan[0].contains("COVERING INDEX placements_by_donor"), "{plan:?}");
}

#[test]
fn background_step_yields_the_writer_after_its_budget() {
    // A piece is of 32 entries and chunks, and each file has one chunk.
    for (step_ms, left) in [(0, 0), (15, 100 - 32), (50, 100 - 16)] {
        let mut fixture = Fixture::new();
        let files = (0..100).map(|n| file(&format!("pot://lab/tree/{n}"), &[n], &[1])).collect();
        assert!(fixture.commit(files).iter().all(Result::is_ok));
        let catalog = Catalog::open(&fixture.file(), Offload::Inline, ReadClock::by(step_ms));
        let catalog = catalog.expect("opened");
        runtime().block_on(async {
            let when = When { pool_ms: 1, wall_ms: 1, ..When::default() };
            catalog
                .remove(path("pot://lab/tree"), Default::default(), true, when)
                .await
                .expect("removed");
            let step = Upkeep::Trash { entries: 1000, kept_ms: 0 };
            let more = catalog.upkeep(step, 2).await.expect("a step");
            let spaces = catalog.spaces().await.expect("read");
            assert_eq!(
                (more, spaces[0].sums.files),
                (left > 0, left as i64),
                "{step_ms} ms a piece"
            );
        });
    }
}

#[test]
fn long_transaction_defers_further_jobs() {
    for (step_ms, expected) in [(0, 1..=2), (30, 4..=4)] {
        let fixture = Fixture::new();
        let clock = ReadClock::by(step_ms);
        let catalog = Catalog::open(&fixture.file(), Offload::Threads, clock).expect("opened");
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let until_released = move |_: &Tx| {
            let _ = released.lock().expect("no holder panics").recv(); // the sender is dropped
            Ok(())
        };
        let save = |ms| catalog.write(Durability::Process, move |db| meta::save_pool_time(db, ms));
        runtime().block_on(async {
            // All are handed in before the first of them ends.
            let first = catalog.write(Durability::Process, until_released);
            let done = tokio::join!(first, save(1), save(2), save(3), async { drop(release) });
            assert_eq!((done.0, done.1, done.2, done.3), (Ok(()), Ok(()), Ok(()), Ok(())));
            catalog.close().await;
        });
        let mut figures = Exposition::of("test");
        figures.times("commits", "Commits", &catalog.writer_times().commits);
        let text = figures.text();
        let count = text.lines().find_map(|line| line.strip_prefix("commits_count "));
        let commits: u64 = count.and_then(|count| count.parse().ok()).expect("counted");
        assert!(expected.contains(&commits), "{commits} commits at {step_ms} ms a job");
    }
}

/// A query that counts without end, until it is told to stop.
fn count_for_ever(db: &Tx) -> Result<i64, Error> {
    let numbers = "WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n)
                   SELECT count(*) FROM n";
    db.query_row(numbers, &[], |row| row.get(0))
}

#[test]
fn abandoned_query_is_interrupted() {
    let fixture = Fixture::new();
    let catalog =
        Catalog::open(&fixture.file(), Offload::Threads, ReadClock::by(0)).expect("opened");
    runtime().block_on(async {
        let (ended, hears) = channel();
        // More of them than may run at once: the others begin when these end, or not at all.
        for _ in 0..100 {
            let (catalog, ended) = (catalog.clone(), ended.clone());
            let read = async move {
                let query = move |db: &Tx| {
                    let counted = count_for_ever(db);
                    ended.send(counted.is_err()).expect("heard");
                    counted
                };
                catalog.read(query).await
            };
            let given_up = tokio::time::timeout(Duration::from_millis(1), read).await;
            assert!(given_up.is_err(), "nobody counted that far");
        }
        drop(ended);
        assert!(hears.iter().all(|was_ended| was_ended));
        let saved = catalog.read(saved).await.expect("the connections serve others");
        assert_eq!(saved, None);
    });
}

/// The changes that no power cut undoes are those that the log was synced with.
#[test]
fn deferred_durability_waits_for_no_sync_and_is_synced_soon() {
    let mut fixture = Fixture::new();
    let disk = Policy { sealed: false, ack: AckLevel::Disk, ..Policy::default() };
    operations::spaces::create(&fixture.db, &new_space("safe", disk, None), 0).expect("a space");
    let files = (0..30).map(|n| file(&format!("pot://lab/{n}"), &[n], &[1])).collect();
    assert!(fixture.commit(files).iter().all(Result::is_ok));
    let catalog = Catalog::open(&fixture.file(), Offload::Threads, ReadClock::by(0));
    let catalog = catalog.expect("opened");
    let soon = When { pool_ms: 1, wall_ms: 1, ..When::default() }.durable(true);
    runtime().block_on(async {
        let remove = async |at: &str| {
            catalog.remove(path(at), OnlyIf::Anything, false, soon).await.map(drop)
        };
        let unsynced = async || {
            let last = catalog.read(changes::last).await.expect("read");
            last as u64 - catalog.changes()
        };
        catalog.sync().await.expect("synced");
        let mut numbers = 0..30;
        let mut seen_unsynced = async || {
            for number in numbers.by_ref().take(10) {
                remove(&format!("pot://lab/{number}")).await.expect("removed");
                if unsynced().await > 0 {
                    return true;
                }
            }
            false
        };
        assert!(seen_unsynced().await, "each of ten removals was synced when it was done");
        catalog.sync().await.expect("synced");
        assert_eq!(unsynced().await, 0);

        assert!(seen_unsynced().await);
        let synced = async {
            while unsynced().await > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let synced = tokio::time::timeout(Duration::from_secs(20), synced).await;
        synced.expect("the log is synced by itself");

        assert!(seen_unsynced().await);
        let attributes = EntryAttributes::of_dir(1);
        catalog.make_directory(path("pot://lab/d"), false, attributes).await.expect("made");
        assert_eq!(unsynced().await, 0, "a change on disk brings those before it there");

        for number in 0..10 {
            let at = format!("pot://safe/{number}");
            catalog.make_directory(path(&at), false, attributes).await.expect("made");
            remove(&at).await.expect("removed");
            assert_eq!(unsynced().await, 0, "where the ack level is that of disks");
        }
        catalog.close().await;
    });
}
