//! The one writer: jobs queue up while a commit reaches the disk, and the next commit takes them
//! all.

use super::file::Database;
use super::tx::Tx;
use crate::fault::CatalogDiskFault;
use crate::{Durability, Error, changes};
use potluck_wire::env::Offload;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Jobs in one transaction; more would make the first wait for the last.
const BATCH: usize = 256;
/// Jobs that wait for the next transactions. Further callers wait to hand theirs in, and take it back when nobody
/// waits for them any more.
const QUEUE: usize = 4 * BATCH;
/// Times that a transaction is tried where something else has the catalog. SQLite waits for seconds each
/// time.
const TRIES: u32 = 3;

/// Runs jobs one after the other.
pub struct CatalogWriter(Mutex<Place>);

enum Place {
    /// A thread of its own.
    Thread {
        jobs: Sender<Queued>,
        thread: JoinHandle<()>,
    },
    /// Wherever the caller is.
    Here(Box<Session>),
    Closed,
}

impl CatalogWriter {
    /// Writes to `db`. Keeps in `changes` how many changes ([`changes::last`]) no
    /// power cut undoes, from the first commit that reaches the disk on; and in `fault` what the
    /// disk did not take.
    pub fn start(
        db: Database,
        offload: Offload,
        changes: Arc<AtomicU64>,
        fault: Arc<CatalogDiskFault>,
    ) -> Self {
        let session = Session { db, durability: Durability::Disk, changes, fault };
        Self(Mutex::new(match offload {
            Offload::Inline => Place::Here(Box::new(session)),
            Offload::Threads => {
                let (jobs, queue) = channel(QUEUE);
                let thread = std::thread::Builder::new()
                    .name("catalog".into())
                    .spawn(move || session.serve(queue))
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
            Place::Here(session) => return session.commit_all(vec![queued]),
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
    /// Does the work, which is to be kept unless it fails. Done again, it begins anew: what it did before was
    /// taken back.
    fn work(&mut self, tx: &Tx) -> Result<(), Error>;
    /// Tells the caller, once the fate of the transaction is known.
    fn reply(self: Box<Self>, committed: Result<(), Error>);
}

struct Typed<T, F> {
    work: F,
    result: Option<Result<T, Error>>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send, F: Fn(&Tx) -> Result<T, Error> + Send> Job for Typed<T, F> {
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
            // A refusal stands whatever became of the others' work.
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
    durability: Durability,
    changes: Arc<AtomicU64>,
    fault: Arc<CatalogDiskFault>,
}

impl Session {
    fn serve(mut self, mut queue: Receiver<Queued>) {
        while let Some(first) = queue.blocking_recv() {
            let mut jobs = vec![first];
            while jobs.len() < BATCH
                && let Ok(next) = queue.try_recv()
            {
                jobs.push(next);
            }
            self.commit_all(jobs);
        }
        if let Err(why) = self.db.move_log_into_file() {
            tracing::debug!(%why, "the catalog's write-ahead log stays beside it");
        }
    }

    fn commit_all(&mut self, mut jobs: Vec<Queued>) {
        let mut tries = 1;
        let committed = loop {
            match self.transaction(&mut jobs) {
                Err(Error::Contended) if tries < TRIES => tries += 1,
                done => break done,
            }
        };
        if let Err(why) = &committed {
            tracing::debug!(%why, "the catalog could not commit");
            self.fault.note(why);
        }
        for queued in jobs {
            queued.job.reply(committed.clone());
        }
    }

    fn transaction(&mut self, jobs: &mut [Queued]) -> Result<(), Error> {
        let asked = jobs.iter().map(|job| job.durability).max().unwrap_or(Durability::Disk);
        if self.durability != asked {
            self.db.sync_commits(asked == Durability::Disk)?;
            self.durability = asked;
        }
        let tx = self.db.begin_to_write()?;
        jobs.iter_mut().try_for_each(|queued| self.one(&tx, queued))?;
        // Everything before it reaches the disk with a commit that does.
        let changes = (asked == Durability::Disk).then(|| changes::last(&tx)).transpose()?;
        tx.commit()?;
        if let Some(changes) = changes {
            self.changes.store(changes.max(0) as u64, Ordering::Release);
        }
        Ok(())
    }

    /// Runs one job so that its failure leaves the others' work alone.
    fn one(&self, tx: &Tx, queued: &mut Queued) -> Result<(), Error> {
        match tx.savepoint(|| queued.job.work(tx)) {
            Ok(()) => Ok(()),
            Err(why) => {
                self.fault.note(&why);
                // With some failures the others' work is lost too, and with this one all is tried again.
                if tx.is_over() || why == Error::Contended { Err(why) } else { Ok(()) }
            }
        }
    }
}
