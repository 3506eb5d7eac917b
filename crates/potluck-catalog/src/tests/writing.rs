use crate::fixture::Fixture;
use crate::{Catalog, Durability, Error, schema};
use potluck_wire::env::Offload;
use rusqlite::Connection;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn saved(db: &Connection) -> Result<Option<u64>, Error> {
    schema::saved_pool_time(db)
}

#[test]
fn a_job_is_all_or_nothing_and_leaves_the_others_alone() {
    for offload in [Offload::Inline, Offload::Threads] {
        let fixture = Fixture::new();
        let catalog = Catalog::open(&fixture.file(), offload).expect("opened");
        runtime().block_on(async {
            let save = |ms| move |db: &Connection| schema::save_pool_time(db, ms);
            let fails = catalog.write(Durability::Disk, |db| {
                schema::save_pool_time(db, 999)?;
                Err::<(), _>(Error::LastAdmin(1))
            });
            let panics = catalog.write(Durability::Disk, |db| -> Result<(), Error> {
                schema::save_pool_time(db, 998)?;
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

#[test]
fn d1_queued_jobs_are_finished_before_the_writer_closes() {
    let fixture = Fixture::new();
    let catalog = Catalog::open(&fixture.file(), Offload::Threads).expect("opened");
    runtime().block_on(async {
        let jobs: Vec<_> = (1..=50)
            .map(|ms| {
                let catalog = catalog.clone();
                tokio::spawn(async move {
                    let save = move |db: &Connection| schema::save_pool_time(db, ms);
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
