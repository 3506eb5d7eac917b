//! Write sessions: files that are stored under one reservation and one policy. The session reads them itself, or
//! programs write them piece by piece.

use crate::attributes::Attributes;
use crate::pool::Pool;
use crate::progress::{Progress, Quiet};
use crate::source::{Item, Items};
use crate::write::need::{self, NeededRoom, Offering};
use crate::write::options::PutOptions;
use crate::write::pushes::{Push, SessionHandle, ended};
use crate::write::report::PutReport;
use crate::write::reservation::Reservation;
use crate::write::sliding_window;
use crate::writer::Writer;
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_core::traffic::Direction;
use potluck_wire::control::{Interrupted, Reserve};
use potluck_wire::env;
use potluck_wire::error::{Failure, code};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// The time within which donors tell of what they stored.
const TELLING: Duration = Duration::from_secs(2);

/// A write session: files written under one reservation and one policy. Files that are finished at about the same time
/// become visible by one commit.
pub struct Session {
    handle: Arc<SessionHandle>,
    report: oneshot::Receiver<Result<PutReport, Failure>>,
}

/// Opens a session for files below `root`. Returns the writers' side of it, and the future that sends their chunks,
/// which completes when that side is gone and all is stored. Dropping the future early ends the session.
async fn open(
    client: &Pool,
    root: &PoolPath,
    options: &PutOptions,
    progress: Arc<dyn Progress>,
) -> Result<(SessionHandle, impl Future<Output = Result<PutReport, Failure>> + Send + use<>), Failure>
{
    let session = Reservation::open(client, &request(client, root, options)).await?;
    Ok(opened(client, session, options, progress))
}

/// Returns the request for the session of files below `root`.
fn request(client: &Pool, root: &PoolPath, options: &PutOptions) -> Reserve {
    let PutOptions { bytes, policy, condition, .. } = *options;
    let (interrupted, link) = (Interrupted::GiveWay, client.traffic.link(Direction::Write));
    Reserve { path: root.clone(), bytes, policy, condition, interrupted, link }
}

/// Begins to write in a session that the manager granted.
fn opened(
    client: &Pool,
    session: Reservation,
    options: &PutOptions,
    progress: Arc<dyn Progress>,
) -> (SessionHandle, impl Future<Output = Result<PutReport, Failure>> + Send + use<>) {
    let (policy, donors) = (session.reserved.policy.clone(), session.reserved.donors.len());
    let client = client.for_writing(&policy, donors);
    let key = session.reserved.space_key.clone();
    let (handle, pushes) = SessionHandle::new(policy, key, client.clone(), donors);
    let options = *options;
    let window =
        async move { sliding_window::write(&client, session, pushes, &options, progress).await };
    (handle, window)
}

/// Opens a session for files whose size is known, of which the pool may have some bytes already: where they do not fit
/// as a whole, room is asked for what the pool lacks. No interrupted upload gives way before it is known whether this one
/// goes on with it. Returns the session with those that keep what is there meanwhile, and the items.
async fn open_as_needed(
    client: &Pool,
    reserve: &Reserve,
    items: Items,
) -> Result<(Reservation, Option<Offering>, Items), Failure> {
    let Some(all) = reserve.bytes else {
        return Ok((Reservation::open(client, reserve).await?, None, items));
    };
    let beside = Reserve { interrupted: Interrupted::Stay, ..reserve.clone() };
    match Reservation::open(client, &beside).await {
        Err(failure) if failure.code == code::FULL => {}
        opened => return Ok((opened?, None, items)),
    }
    let items = match client.env.offload.run(move || all_repeatable(items)).await {
        Ok(items) => items,
        Err(items) => return Ok((Reservation::open(client, reserve).await?, None, items)),
    };
    let mut tried = false;
    loop {
        let again: Vec<Item> = items.iter().filter_map(Item::again).collect();
        let NeededRoom { bytes, offering } =
            need::of_files(client, reserve, Box::new(again.into_iter())).await?;
        let interrupted = Interrupted::GoOn(offering.ids());
        let needed = Reserve { bytes: Some(bytes.min(all)), interrupted, ..reserve.clone() };
        let failure = match Reservation::open(client, &needed).await {
            Ok(mut session) => {
                // The rest is there, and needs no promise.
                session.promised = all;
                session.bytes = Some(all);
                return Ok((session, Some(offering), Box::new(items.into_iter())));
            }
            Err(failure) => failure,
        };
        offering.end().await;
        if failure.code != code::FULL || bytes >= all || std::mem::replace(&mut tried, true) {
            return Err(failure);
        }
        // Donors may not have told yet of the last that a killed upload sent, which takes room twice then.
        tokio::time::sleep(TELLING).await;
    }
}

/// Takes all items, if their sources can be read more than once. Whoever feeds a stream may wait until it is read, so
/// after the first one no item is taken: returns all that there are then.
fn all_repeatable(mut items: Items) -> Result<Vec<Item>, Items> {
    let mut taken = Vec::new();
    while let Some(item) = items.next() {
        let is_stream = item.again().is_none();
        taken.push(item);
        if is_stream {
            return Err(Box::new(taken.into_iter().chain(items)));
        }
    }
    Ok(taken)
}

impl Session {
    /// Opens a session for files below `root`.
    pub(crate) async fn open(
        client: &Pool,
        root: &PoolPath,
        options: &PutOptions,
    ) -> Result<Self, Failure> {
        let (handle, window) = open(client, root, options, Arc::new(Quiet)).await?;
        let (done, report) = oneshot::channel();
        // The task ends when all writers are gone, or with the runtime.
        env::spawn(async move {
            let _ = done.send(window.await); // nobody may wait for the report
        });
        Ok(Self { handle: Arc::new(handle), report })
    }

    /// Makes a writer for a new file of the session, which becomes visible at `path` when it is finished.
    pub fn create(&self, path: PoolPath, attributes: Attributes) -> Writer {
        Writer::new(Arc::clone(&self.handle), path, attributes)
    }

    /// Returns whether the session has failed, so that nothing more can be written in it.
    pub fn has_failed(&self) -> bool {
        self.handle.failure.get().is_some()
    }

    /// Returns the policy under which the files of the session are written.
    pub fn policy(&self) -> &Policy {
        &self.handle.policy
    }

    /// Stores files that the session reads itself, one after the other; the outcome of each is in the report.
    ///
    /// Errors: the failure that ended the session.
    pub fn add(&self, items: Items) -> Result<(), Failure> {
        self.handle.push(Push::Items(items))
    }

    /// Waits until all writers of the session have ended, and all copies are made that this process makes.
    ///
    /// Errors: the failure that ended the session early.
    pub async fn finish(self) -> Result<PutReport, Failure> {
        self.pending_report().wait().await
    }

    /// Ends the adding of files. The session ends when its last writer has ended, by the same commit.
    pub fn pending_report(self) -> PendingReport {
        PendingReport { failure: self.handle.failure.clone(), report: self.report }
    }
}

/// A session to which no more files are added, and whose report is still to come.
pub struct PendingReport {
    report: oneshot::Receiver<Result<PutReport, Failure>>,
    failure: Arc<OnceLock<Failure>>,
}

impl PendingReport {
    /// Waits for the report, as [`Session::finish`] does.
    ///
    /// Errors: the failure that ended the session early.
    pub async fn wait(self) -> Result<PutReport, Failure> {
        self.report.await.unwrap_or_else(|_| Err(ended(&self.failure)))
    }
}

/// Stores `items` in one write session below `root`. Each file becomes visible as a whole, when all its chunks have as
/// many copies as the policy asks for, or one copy with an asynchronous mirroring protocol. While donors are away, and
/// unless the policy is strict, fewer copies are enough if one more donor may die. This returns when the other copies
/// that this client makes are made, too.
///
/// Errors: the failure that ended the session; files that failed alone are in the report.
pub async fn put(
    client: &Pool,
    root: &PoolPath,
    items: Items,
    options: &PutOptions,
    progress: Arc<dyn Progress>,
) -> Result<PutReport, Failure> {
    let reserve = request(client, root, options);
    let (session, offering, items) = open_as_needed(client, &reserve, items).await?;
    let (handle, window) = opened(client, session, options, progress);
    handle.push(Push::Items(items))?;
    drop(handle); // no more will come
    match offering {
        Some(offering) => offering.keep_for(window).await,
        None => window.await,
    }
}
