//! The one writer: jobs queue up while a commit reaches the disk, and the next commit takes them
//! all.

use super::file::{Database, LONG_LOG};
use super::log_syncer::{LogFile, LogSyncer};
use super::tx::Tx;
use super::write_ahead_log::LogMover;
use crate::writer_state::WriterState;
use crate::{Durability, Error};
use potluck_wire::env::Offload;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// The most jobs in one transaction; more would make the first wait for the last.
const BATCH: usize = 256;
/// The time after which a transaction takes no further jobs, so that the callers of the first do not wait for many long
/// ones.
const TAKES_JOBS_FOR: Duration = Duration::from_millis(20);
/// The time from which on a job is named in the debug log as slow.
const LONG_JOB: Duration = Duration::from_millis(50);
/// The most jobs that wait for the next transactions. Further callers wait until they can hand their jobs in; a job
/// whose caller gives up meanwhile is never handed in.
const QUEUE: usize = 4 * BATCH;
/// The number of times that a transaction is tried while another process locks the catalog. SQLite waits for seconds
/// each time.
const TRIES: u32 = 3;

/// Runs jobs one after the other.
pub struct CatalogWriter(Mutex<Place>);

enum Place {
    /// Runs jobs on a thread of its own.
    Thread {
        jobs: Sender<Queued>,
        thread: JoinHandle<()>,
    },
    /// Runs jobs on the thread of the caller.
    Here(Box<Session>),
    Closed,
}

impl CatalogWriter {
    /// Starts a writer to `db`, the catalog at `path`, whose last change has the number `last`. It notes in `state` the
    /// number of the last change that no power cut undoes, once a commit has reached the disk; the error of a write that
    /// the disk did not take; and the time that jobs and commits took.
    pub fn start(
        path: &Path,
        (db, last): (Database, i64),
        offload: Offload,
        state: WriterState,
    ) -> Self {
        let db = db.with_leases(Arc::clone(&state.leases));
        let log = LogFile::of(path);
        let (durability, syncer, unsynced) = (Durability::Disk, None, false);
        let last = last.max(0) as u64;
        let mut session = Session { db, last, durability, state, log, syncer, unsynced };
        Self(Mutex::new(match offload {
            Offload::Inline => Place::Here(Box::new(session)),
            Offload::Threads => {
                let (jobs, queue) = channel(QUEUE);
                let syncer = LogSyncer::start(session.log.clone(), session.state.clone());
                session.syncer = Some(syncer);
                let mover = LogMover::start(path, &mut session.db, LONG_LOG)
                    .inspect_err(|why| tracing::warn!(%why, "commits move the catalog's log"))
                    .ok();
                let thread = std::thread::Builder::new()
                    .name("catalog".into())
                    .spawn(move || session.serve(queue, mover))
                    .expect("the system can start a thread");
                Place::Thread { jobs, thread }
            }
        }))
    }

    pub async fn run<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl Fn(&Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Typed { work, result: None, reply });
        self.submit(Queued { durability, job }).await;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    async fn submit(&self, queued: Queued) {
        let jobs = match &mut *self.0.lock().expect("no holder panics") {
            Place::Thread { jobs, .. } => jobs.clone(),
            Place::Here(session) => return session.commit_all(&mut VecDeque::from([queued])),
            Place::Closed => return,
        };
        // A closed queue drops the job, which its caller sees.
        let _ = jobs.send(queued).await;
    }

    pub fn close(&self) {
        let place =
            std::mem::replace(&mut *self.0.lock().expect("no holder panics"), Place::Closed);
        if let Place::Thread { jobs, thread } = place {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

/// A job whose type is known to its caller only.
trait Job: Send {
    /// Returns the name of the job, to find in the debug log which one takes long.
    fn name(&self) -> &'static str;
    /// Does the work. It may be called again after the changes of the earlier call were rolled back.
    fn work(&mut self, tx: &Tx) -> Result<(), Error>;
    /// Tells the caller the outcome, once it is known whether the transaction was committed.
    fn reply(self: Box<Self>, committed: Result<(), Error>);
}

struct Typed<T, F> {
    work: F,
    result: Option<Result<T, Error>>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send, F: Fn(&Tx) -> Result<T, Error> + Send> Job for Typed<T, F> {
    fn name(&self) -> &'static str {
        std::any::type_name::<F>()
    }

    fn work(&mut self, tx: &Tx) -> Result<(), Error> {
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(tx)))
            .unwrap_or_else(|panic| Err(Error::Bug(panic_text(&*panic))));
        let done = result.as_ref().map(|_| ()).map_err(Error::clone);
        self.result = Some(result);
        done
    }

    fn reply(self: Box<Self>, committed: Result<(), Error>) {
        let result = match (committed, self.result) {
            (Ok(()), Some(result)) => result,
            // A job that was refused stays refused, whatever became of those that ran with it.
            (Err(_), Some(Err(refused))) => Err(refused),
            (Err(why), _) => Err(why),
            (Ok(()), None) => Err(Error::Bug("a job was not run".into())),
        };
        let _ = self.reply.send(result);
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

struct Queued {
    durability: Durability,
    job: Box<dyn Job>,
}

struct Session {
    db: Database,
    /// The number of the last change that was committed.
    last: u64,
    durability: Durability,
    state: WriterState,
    log: LogFile,
    /// The thread that syncs what was committed to be durable soon; without it such jobs wait for the disk.
    syncer: Option<LogSyncer>,
    /// True if changes that are to be durable soon were committed since the log was synced here.
    unsynced: bool,
}

impl Session {
    fn serve(mut self, mut queue: Receiver<Queued>, mover: Option<LogMover>) {
        let mut jobs = VecDeque::new();
        loop {
            if jobs.is_empty() {
                let Some(first) = queue.blocking_recv() else { break };
                jobs.push_back(first);
            }
            while jobs.len() < BATCH
                && let Ok(next) = queue.try_recv()
            {
                jobs.push_back(next);
            }
            self.commit_all(&mut jobs);
        }
        if let Some(syncer) = self.syncer.take() {
            syncer.stop();
        }
        let stopped = mover.map_or(Ok(()), |mover| mover.stop(&mut self.db));
        if let Err(why) = stopped.and_then(|()| self.db.move_log_into_file()) {
            tracing::debug!(%why, "the catalog's write-ahead log stays beside it");
        }
    }

    /// Commits the first of `jobs` in one transaction, as many as are done soon enough, and takes them out.
    fn commit_all(&mut self, jobs: &mut VecDeque<Queued>) {
        let (mut tries, mut done) = (1, 0);
        let committed = loop {
            match self.transaction(jobs, &mut done) {
                Err(Error::Contended) if tries < TRIES => tries += 1,
                ended => break ended,
            }
        };
        if let Err(why) = &committed {
            tracing::debug!(%why, "the catalog could not commit");
            self.state.fault.note(why);
        }
        for queued in jobs.drain(..done.max(1)) {
            queued.job.reply(committed.clone());
        }
    }

    /// Does jobs from the first on and commits their work; sets `done` to the number of jobs that were begun.
    fn transaction(&mut self, jobs: &mut VecDeque<Queued>, done: &mut usize) -> Result<(), Error> {
        *done = 0;
        let asked = jobs.iter().map(|job| job.durability).max().unwrap_or(Durability::Disk);
        let asked = match asked {
            Durability::Soon if self.syncer.is_none() => Durability::Disk,
            asked => asked,
        };
        // Where earlier commits have to reach the disk, too, the log is synced afterwards, since a commit of nothing
        // syncs nothing.
        let by_commit = match asked {
            Durability::Disk if self.unsynced => Durability::Soon,
            asked => asked,
        };
        if self.durability != by_commit {
            self.db.sync_commits(by_commit == Durability::Disk)?;
            self.durability = by_commit;
        }
        let tx = self.db.begin_to_write()?;
        // Also while nobody listens, because somebody may begin to before the commit.
        tx.begin_notes(self.state.told.get().is_some());
        let began = self.state.clock.now();
        let mut now = began;
        for queued in jobs {
            *done += 1;
            self.one(&tx, queued)?;
            let took = self.state.clock.now().saturating_sub(now);
            now += took;
            self.state.times.jobs.took(took);
            if took > LONG_JOB {
                let ms = took.as_millis() as u64;
                tracing::debug!(
                    job = queued.job.name(),
                    ms,
                    "the catalog's writer was held for long"
                );
            }
            if now.saturating_sub(began) >= TAKES_JOBS_FOR {
                break;
            }
        }
        tx.commit()?;
        let noted = self.db.take_notes();
        self.last = noted.last.map_or(self.last, |last| last as u64);
        let synced = match asked == Durability::Disk && self.unsynced {
            true => self.log.sync(),
            false => Ok(()),
        };
        self.state.times.commits.took(self.state.clock.now().saturating_sub(now));
        match (asked, &self.syncer) {
            // A commit that reaches the disk brings all commits before it there, too.
            (Durability::Disk, _) if synced.is_ok() => {
                self.unsynced = false;
                self.state.changes.fetch_max(self.last, Ordering::AcqRel);
            }
            (Durability::Soon, Some(syncer)) => {
                self.unsynced = true;
                syncer.wake(self.last);
            }
            _ => {}
        }
        // Whoever is told is asked after the commit: one that begins to listen later reads what was committed.
        if let Some(told) = self.state.told.get().filter(|_| noted.last.is_some()) {
            told(&self.db, noted.texts);
        }
        synced
    }

    /// Runs one job so that its failure leaves the others' work alone.
    fn one(&self, tx: &Tx, queued: &mut Queued) -> Result<(), Error> {
        match tx.savepoint(|| queued.job.work(tx)) {
            Ok(()) => Ok(()),
            Err(why) => {
                self.state.fault.note(&why);
                // After some failures the work of other jobs is lost, too; after `Contended` all of them are
                // tried again.
                if tx.is_over() || why == Error::Contended { Err(why) } else { Ok(()) }
            }
        }
    }
}
