//! The sliding window (checkpoint store §IV.B): cutting, offering, sending and committing overlap,
//! and only so many bytes are under way at a time.
//!
//! ```text
//! cutter ──▶ offer (which chunks does the pool hold?) ──▶ send to donors ──▶ commit
//! bounded by the client's buffers; one offer and one commit at a time
//! ```
//! Between offer and commit chunks go one of two ways: copies of a chunk by the space's mirroring
//! protocol (`copying`, `mirroring`), or the chunks of an erasure-coded group to donors of their own
//! (`grouping`).

mod committing;
mod copying;
mod grouping;
mod mirroring;
mod offering;
mod outage;
mod pushing;
mod room;
mod sending_again;
mod settling;

pub(crate) use pushing::write_pushed;
pub use settling::Settling;

use super::copies::{Copies, ReplicaSet, Reread, There};
use super::groups::Groups;
use super::session::WriteSession;
use crate::buffer::Buffer;
use crate::donors::Donors;
use crate::link::{GetResult, PutResult};
use crate::pool::Pool;
use crate::progress::Progress;
use crate::retry_limits::Pauses;
use crate::source::{Cut, CutError, Cutter, Facts, Items};
use crate::write::options::PutOptions;
use crate::write::pushes::{Finished, Push};
use crate::write::report::PutReport;
use futures_util::stream::{FuturesUnordered, StreamExt};
use outage::Outage;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::path::PoolPath;
use potluck_core::policy::Mirror;
use potluck_core::recipe::Entry;
use potluck_wire::control::{Committed, Condition, FileCommit, Grown, Offered};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use potluck_wire::ticket::Acknowledged;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};

/// Stores `items` under an open session, until all that can become visible is; copies that an
/// asynchronous protocol makes afterwards are the second part of the result.
pub async fn write(
    client: &Pool,
    session: WriteSession,
    items: Items,
    options: &PutOptions,
    progress: Arc<dyn Progress>,
) -> Result<(PutReport, Settling), Failure> {
    let mut window = Window::new(client, session, options, progress);
    window.cut_next(Cutter::new(
        items,
        &window.session.reserved.policy,
        window.session.reserved.space_key.clone(),
    ));
    window.renew_later();
    let ended = window.run(Window::all_visible).await;
    visible(window, ended).await
}

/// The report of a window that has ended, and what is left to do for it.
async fn visible(
    window: Window,
    ended: Result<(), Failure>,
) -> Result<(PutReport, Settling), Failure> {
    if let Err(failure) = ended {
        // A write that may work later goes on from here; any other is not tried again as it is.
        let goes_on = failure.kind == ErrorKind::Retry;
        let failure = if goes_on { window.with_advice(failure) } else { failure };
        window.session.abort(goes_on).await;
        return Err(failure);
    }
    let mut report = window.report.clone();
    report.pending_copies = window.forwarded_later + window.pending_copies() + window.abandoned;
    if window.finished {
        window.session.finish();
        return Ok((report, Settling::settled()));
    }
    if window.batch == 0 {
        window.session.abort(false).await;
        return Ok((report, Settling::settled()));
    }
    Ok((report, Settling::of(window)))
}

/// The event that happened next.
enum Event {
    Cut(Box<Cutter>, Vec<Cut>),
    /// Writers brought something; `None` when all of them are gone.
    Pushed(UnboundedReceiver<Push>, Option<Push>),
    Offered(Offer, Result<Offered, Failure>),
    Put {
        name: ChunkName,
        donor: DonorId,
        result: PutResult,
    },
    Grown(u64, Result<Grown, Failure>),
    Committed(Vec<(FileCommit, Option<Finished>)>, Result<Committed, Failure>),
    /// It was asked which donors are there, for a file that was refused because some have gone.
    Heard(u32, Facts, Result<There, Failure>),
    ReadAgain(Reread, GetResult),
    Renewed(Result<(), Failure>),
    LookForLate,
    /// It was asked how donors can be reached that did not answer; `None` when that was for too long.
    Reached(Pauses, Option<Result<Grown, Failure>>),
    /// Files that are ready have waited for others for long enough.
    CommitDue,
}

/// The chunks and groups that one offer asks about.
struct Offer {
    names: Vec<ChunkName>,
    /// Groups all of whose chunks were offered with it.
    groups: Vec<u64>,
}

struct Window {
    client: Pool,
    session: WriteSession,
    donors: Donors,
    copies: Copies,
    mirror: Mirror,
    /// Copies that donors make after they answered.
    forwarded_later: u64,
    /// Copies of visible chunks that found no donor.
    abandoned: u64,
    condition: Condition,
    /// All files become visible at one moment, or none does.
    atomic: bool,
    spare_content: bool,
    progress: Arc<dyn Progress>,
    events: FuturesUnordered<BoxFuture<'static, Event>>,

    /// `None` while cutting is under way, or when it is over.
    cutter: Option<Box<Cutter>>,
    cutting: bool,
    /// Whether there are writers that may bring more.
    listening: bool,
    /// Tells them whether they may.
    writers: Option<watch::Sender<bool>>,
    /// Whether one of them waits for what was not offered yet.
    is_awaited: bool,
    chunk_room: usize,
    cut_bytes: u64,

    files: BTreeMap<u32, FileState>,
    chunks: HashMap<ChunkName, ChunkState>,
    remembered: VecDeque<ChunkName>,
    unoffered: Vec<ChunkName>,
    unoffered_bytes: usize,
    offering: bool,
    /// Groups of an erasure code; without one, chunks go the way of copies.
    groups: Groups,
    /// Chunks with copies to send.
    queue: VecDeque<ChunkName>,
    under_way: BTreeMap<(ChunkName, DonorId), Tick>,
    hedging: bool,
    growing: bool,
    grow_refused: Option<Failure>,
    /// Whether a donor said that it has no lent space left.
    donor_full: bool,
    mismatches: u32,
    outage: Outage,
    /// Whether it was said how much an interrupted upload had left.
    told_resumed: bool,

    /// How often files were refused because donors had gone.
    sent_again: BTreeMap<PoolPath, u32>,
    ready: Vec<(FileCommit, Option<Finished>)>,
    /// Since when the first of them has waited.
    ready_since: Option<Tick>,
    ready_bytes: u64,
    /// Chunks of all files so far.
    ready_chunks: usize,
    batch: u32,
    committing: bool,
    finished: bool,
    report: PutReport,
}

#[derive(Default)]
struct FileState {
    entries: Vec<Entry>,
    parity: Vec<ChunkName>,
    acknowledged: Vec<Acknowledged>,
    /// Of parity chunks, counted from the first of them.
    parity_acknowledged: Vec<Acknowledged>,
    /// Chunks without all their copies.
    open: usize,
    facts: Option<Facts>,
    /// Whether it was complete before, and donors of it have gone since.
    is_again: bool,
    /// Its writer waits until none is open.
    flushed: Option<oneshot::Sender<()>>,
    /// Its writer waits until it is visible.
    finished: Option<Finished>,
}

struct ChunkState {
    len: u32,
    /// Until all copies are made.
    body: Option<Arc<Buffer>>,
    replicas: ReplicaSet,
    /// Files and positions that wait for it.
    users: Vec<(u32, u32)>,
    /// Whether there are enough copies for files to become visible.
    told: bool,
    /// The donor that forwards it and has not answered, and to whom.
    forwarded: Option<(DonorId, Vec<DonorId>)>,
    /// Whether a donor may be asked to forward it; each chunk is forwarded once.
    may_forward: bool,
}

impl Window {
    fn new(
        client: &Pool,
        session: WriteSession,
        options: &PutOptions,
        progress: Arc<dyn Progress>,
    ) -> Self {
        let donors = client.donors(client.buffers.clone());
        donors.learn(session.reserved.donors.clone());
        let copies = Copies::new(donors.clone(), session.reserved.plan.clone());
        let mirror = mirroring::protocol(&session.reserved.policy);
        let chunk_room = Cutter::room(&session.reserved.policy);
        Self {
            client: client.clone(),
            session,
            donors,
            copies,
            mirror,
            forwarded_later: 0,
            abandoned: 0,
            condition: options.condition,
            spare_content: options.spare_content,
            atomic: options.atomic,
            progress,
            events: FuturesUnordered::new(),
            cutter: None,
            cutting: false,
            listening: false,
            writers: None,
            is_awaited: false,
            chunk_room,
            cut_bytes: 0,
            files: BTreeMap::new(),
            chunks: HashMap::new(),
            remembered: VecDeque::new(),
            unoffered: Vec::new(),
            unoffered_bytes: 0,
            offering: false,
            groups: Groups::default(),
            queue: VecDeque::new(),
            under_way: BTreeMap::new(),
            hedging: false,
            growing: false,
            grow_refused: None,
            donor_full: false,
            mismatches: 0,
            outage: Outage::default(),
            told_resumed: false,
            sent_again: BTreeMap::new(),
            ready: Vec::new(),
            ready_since: None,
            ready_bytes: 0,
            ready_chunks: 0,
            batch: 0,
            committing: false,
            finished: false,
            report: PutReport::default(),
        }
    }

    async fn run(&mut self, is_over: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        loop {
            self.cut_more();
            self.grow_ahead();
            self.tell_writers();
            self.offer();
            self.send()?;
            self.send_groups()?;
            self.commit()?;
            if is_over(self) {
                return Ok(());
            }
            let Some(event) = self.events.next().await else {
                return Err(stuck());
            };
            self.take(event)?;
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Cut(cutter, cuts) => self.take_cuts(cutter, cuts),
            Event::Pushed(from, push) => self.take_pushed(from, push),
            Event::Offered(offer, offered) => self.take_offered(offer, offered?),
            Event::Put { name, donor, result } => {
                self.under_way.remove(&(name, donor));
                if result.is_ok() {
                    self.outage.answered(donor);
                }
                match self.session.reserved.policy.ec {
                    Some(_) => self.take_group_put(name, donor, result)?,
                    None => self.take_put(name, donor, result)?,
                }
            }
            Event::Grown(bytes, grown) => self.take_grown(bytes, grown),
            Event::Committed(files, Ok(committed)) => self.take_committed(files, committed),
            Event::Committed(files, Err(failure)) => {
                for finished in files.into_iter().filter_map(|(_, finished)| finished) {
                    let _ = finished.send(Err(failure.clone())); // its writer may be gone
                }
                return Err(failure);
            }
            Event::Heard(file, facts, heard) => self.take_heard(file, facts, heard?),
            Event::ReadAgain(chunk, result) => self.take_read_again(chunk, result),
            // Once the last commit is on its way, it may have ended the session.
            Event::Renewed(Err(failure)) if !self.finished => return Err(failure),
            Event::Renewed(_) => self.renew_later(),
            Event::LookForLate => {
                self.hedging = false;
                self.hedge();
            }
            Event::CommitDue => {}
            Event::Reached(pauses, reached) => self.take_reached(pauses, reached)?,
        }
        Ok(())
    }

    /// Whether nothing more can become visible.
    fn all_visible(&self) -> bool {
        self.all_cut() && self.files.is_empty() && self.ready.is_empty() && !self.committing
    }

    fn all_cut(&self) -> bool {
        !self.cutting && self.cutter.is_none() && !self.listening
    }

    // ---- cutting

    fn cut_more(&mut self) {
        if self.may_cut()
            && let Some(cutter) = self.cutter.take()
        {
            self.cut_next(*cutter);
        }
    }

    /// Whether there is room for more; a writer of unknown length waits until its reservation is ahead of it
    /// again.
    fn may_cut(&self) -> bool {
        let promised = self.cut_bytes < self.session.promised || self.session.promised == 0;
        promised || !self.growing
    }

    fn cut_next(&mut self, mut cutter: Cutter) {
        let (buffers, offload) = (self.client.buffers.clone(), self.client.env.offload);
        let room = self.chunk_room;
        self.cutting = true;
        self.events.push(Box::pin(async move {
            let claim = buffers.claim(room).await;
            let cut = move || {
                let cuts = cutter.next(claim);
                (cutter, cuts)
            };
            let (cutter, cuts) = offload.run(cut).await;
            Event::Cut(Box::new(cutter), cuts)
        }));
    }

    fn take_cuts(&mut self, cutter: Box<Cutter>, cuts: Vec<Cut>) {
        self.cutting = false;
        if !cuts.is_empty() {
            self.cutter = Some(cutter);
        }
        cuts.into_iter().for_each(|cut| self.take_cut(cut));
    }

    fn take_cut(&mut self, cut: Cut) {
        match cut {
            Cut::Chunk { file, entry, body } => self.take_chunk(file, entry, body),
            Cut::Group { file, data, parity } => self.take_group(file, data, parity),
            Cut::End { file, facts } => {
                self.files.entry(file).or_default().facts = Some(facts);
                self.complete(file);
            }
            Cut::Failed { file, path, error } => {
                let finished = self.files.remove(&file).and_then(|state| state.finished);
                self.fail(path, uncut(&error), finished);
            }
        }
    }

    /// A file does not become visible.
    fn fail(&mut self, path: PoolPath, failure: Failure, finished: Option<Finished>) {
        match finished {
            Some(finished) => drop(finished.send(Err(failure))), // its writer may be gone
            None => self.report.failed.push((path, failure)),
        }
    }

    fn take_chunk(&mut self, file: u32, entry: Entry, body: Buffer) {
        self.cut_bytes += u64::from(entry.len);
        let state = self.files.entry(file).or_default();
        let user = (file, state.entries.len() as u32);
        state.entries.push(entry);
        state.open += 1;
        if let Some(chunk) = self.chunks.get_mut(&entry.name) {
            self.report.held_chunks += 1;
            if !chunk.told {
                chunk.users.push(user);
            } else {
                let acks = chunk.replicas.acks.clone();
                self.settle(&[user], &acks);
            }
            return;
        }
        let chunk = ChunkState {
            len: entry.stored_len(),
            body: Some(Arc::new(body)),
            replicas: self.copies.replica_set(),
            users: vec![user],
            told: false,
            forwarded: None,
            may_forward: self.mirror.is_server(),
        };
        self.chunks.insert(entry.name, chunk);
        self.unoffered_bytes += entry.len as usize;
        self.unoffered.push(entry.name);
    }
}

/// Returns the failure by which people are told of a file that could not be cut.
pub(crate) fn uncut(error: &CutError) -> Failure {
    match error {
        CutError::Read(error) => {
            Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("cannot read it: {error}"))
                .hint("check that the file exists and that you may read it")
        }
        CutError::Miscoded => {
            Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, error.to_string())
                .hint("check the memory of this machine; nothing of the file was stored")
        }
    }
}

fn stuck() -> Failure {
    Failure::new(ErrorKind::Other, code::BAD_REQUEST, "the write has nothing left to wait for")
        .hint("this is a bug in Potluck: please report it")
}
