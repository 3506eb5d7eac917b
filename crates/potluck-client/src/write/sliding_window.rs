//! The sliding window (checkpoint store §IV.B): cutting, offering, sending and committing overlap,
//! and only so many bytes are under way at a time.
//!
//! ```text
//! cutter ──▶ offer (which chunks does the pool hold?) ──▶ send to donors ──▶ commit
//! bounded by the client's buffers; one offer and one commit at a time
//! ```

use super::copies::{Copies, Spread};
use super::session::WriteSession;
use crate::buffer::Buffer;
use crate::donors::Donors;
use crate::link::{LinkError, PutResult};
use crate::pool::Client;
use crate::progress::Progress;
use crate::put::PutReport;
use crate::source::{Cut, Cutter, Facts, Items};
use futures_util::stream::{FuturesUnordered, StreamExt};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::path::PoolPath;
use potluck_core::policy::AckLevel;
use potluck_core::recipe::{self, Entry, PAGE_ENTRIES};
use potluck_wire::bulk::Status;
use potluck_wire::control::{Committed, Condition, FileCommit, Grown, Offered, Outcome};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::{Acknowledged, Receipt};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Offer once this many bytes wait, or …
const OFFER_BYTES: usize = 32 << 20;
/// … this many chunks; sooner only when nothing else is under way.
const OFFER_CHUNKS: usize = 256;
/// Files that become visible in one transaction.
const COMMIT_FILES: usize = 512;
/// Names of sent chunks that are remembered, so that a file that repeats itself is sent once.
const REMEMBERED: usize = 1 << 16;
/// Chunks looked at for a donor with room, beyond the first that finds none.
const LOOK_AHEAD: usize = 16;
/// How often late copies are looked for once all else is sent.
const HEDGE_EVERY: Duration = Duration::from_millis(50);
/// A chunk that arrives damaged this often has a reason that trying again does not cure.
const MAX_MISMATCHES: u32 = 3;
/// Plaintext bytes a session grows by at least.
const GROW_BYTES: u64 = 256 << 20;

/// Stores `items` under an open session.
pub async fn write(
    client: &Client,
    session: WriteSession,
    items: Items,
    condition: Condition,
    progress: Arc<dyn Progress>,
) -> Result<PutReport, Failure> {
    let mut window = Window::new(client, session, condition, progress);
    window.cut_next(Cutter::new(
        items,
        &window.session.reserved.policy,
        window.session.reserved.space_key.clone(),
    ));
    window.renew_later();
    match window.run().await {
        Ok(()) if window.finished => {
            let Window { session, report, .. } = window;
            session.finish();
            Ok(report)
        }
        Ok(()) => {
            let Window { session, report, .. } = window;
            session.abort().await;
            Ok(report)
        }
        Err(failure) => {
            window.session.abort().await;
            Err(failure)
        }
    }
}

/// What happened next.
enum Event {
    Cut(Box<Cutter>, Vec<Cut>),
    Offered(Vec<ChunkName>, Result<Offered, Failure>),
    Put { name: ChunkName, donor: DonorId, result: PutResult },
    Grown(u64, Result<Grown, Failure>),
    Committed(Vec<(PoolPath, u64)>, Result<Committed, Failure>),
    Renewed(Result<(), Failure>),
    LookForLate,
}

struct Window {
    client: Client,
    session: WriteSession,
    donors: Donors,
    copies: Copies,
    condition: Condition,
    progress: Arc<dyn Progress>,
    events: FuturesUnordered<BoxFuture<'static, Event>>,

    /// `None` while cutting is under way, or when it is over.
    cutter: Option<Box<Cutter>>,
    cutting: bool,
    chunk_room: usize,
    cut_bytes: u64,

    files: BTreeMap<u32, FileState>,
    chunks: HashMap<ChunkName, ChunkState>,
    remembered: VecDeque<ChunkName>,
    unoffered: Vec<ChunkName>,
    unoffered_bytes: usize,
    offering: bool,
    /// Chunks with copies to send.
    queue: VecDeque<ChunkName>,
    under_way: BTreeMap<(ChunkName, DonorId), Tick>,
    hedging: bool,
    growing: bool,
    grow_refused: Option<Failure>,
    /// Whether a donor said that it has no lent space left.
    donor_full: bool,
    mismatches: u32,

    ready: Vec<FileCommit>,
    batch: u32,
    committing: bool,
    finished: bool,
    report: PutReport,
}

#[derive(Default)]
struct FileState {
    entries: Vec<Entry>,
    acknowledged: Vec<Acknowledged>,
    /// Chunks without all their copies.
    open: usize,
    facts: Option<Facts>,
}

struct ChunkState {
    len: u32,
    /// Until all copies are made.
    body: Option<Arc<Buffer>>,
    spread: Spread,
    /// Files and positions that need it.
    users: Vec<(u32, u32)>,
}

impl Window {
    fn new(
        client: &Client,
        session: WriteSession,
        condition: Condition,
        progress: Arc<dyn Progress>,
    ) -> Self {
        let donors = client.donors();
        donors.learn(session.reserved.donors.clone());
        let copies = Copies::new(donors.clone(), session.reserved.plan.clone());
        let chunk_room = session.reserved.policy.chunk_size as usize;
        Self {
            client: client.clone(),
            session,
            donors,
            copies,
            condition,
            progress,
            events: FuturesUnordered::new(),
            cutter: None,
            cutting: false,
            chunk_room,
            cut_bytes: 0,
            files: BTreeMap::new(),
            chunks: HashMap::new(),
            remembered: VecDeque::new(),
            unoffered: Vec::new(),
            unoffered_bytes: 0,
            offering: false,
            queue: VecDeque::new(),
            under_way: BTreeMap::new(),
            hedging: false,
            growing: false,
            grow_refused: None,
            donor_full: false,
            mismatches: 0,
            ready: Vec::new(),
            batch: 0,
            committing: false,
            finished: false,
            report: PutReport::default(),
        }
    }

    async fn run(&mut self) -> Result<(), Failure> {
        loop {
            self.cut_more();
            self.grow_ahead();
            self.offer();
            self.send()?;
            self.commit();
            if self.is_over() {
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
            Event::Offered(names, offered) => self.take_offered(names, offered?),
            Event::Put { name, donor, result } => {
                self.under_way.remove(&(name, donor));
                self.take_put(name, donor, result)?;
            }
            Event::Grown(bytes, grown) => self.take_grown(bytes, grown),
            Event::Committed(files, committed) => self.take_committed(files, committed?),
            // Once the last commit is on its way, it may have ended the session.
            Event::Renewed(Err(failure)) if !self.finished => return Err(failure),
            Event::Renewed(_) => self.renew_later(),
            Event::LookForLate => {
                self.hedging = false;
                self.hedge();
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.all_cut()
            && self.files.is_empty()
            && self.ready.is_empty()
            && !self.committing
            && (self.finished || self.batch == 0)
    }

    fn all_cut(&self) -> bool {
        !self.cutting && self.cutter.is_none()
    }

    // ---- cutting

    fn cut_more(&mut self) {
        // A writer of unknown length waits here until its reservation is ahead of it again.
        let promised = self.cut_bytes < self.session.promised || self.session.promised == 0;
        if (promised || !self.growing)
            && let Some(cutter) = self.cutter.take()
        {
            self.cut_next(*cutter);
        }
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
        for cut in cuts {
            match cut {
                Cut::Chunk { file, entry, body } => self.take_chunk(file, entry, body),
                Cut::End { file, facts } => {
                    self.files.entry(file).or_default().facts = Some(facts);
                    self.complete(file);
                }
                Cut::Failed { file, path, error } => {
                    self.files.remove(&file);
                    self.report.failed.push((path, unreadable(&error)));
                }
            }
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
            if chunk.body.is_some() {
                chunk.users.push(user);
            } else {
                let acks = chunk.spread.acks.clone();
                self.settle(&[user], &acks);
            }
            return;
        }
        let chunk = ChunkState {
            len: entry.stored_len(),
            body: Some(Arc::new(body)),
            spread: self.copies.spread(0, Vec::new()),
            users: vec![user],
        };
        self.chunks.insert(entry.name, chunk);
        self.unoffered_bytes += entry.len as usize;
        self.unoffered.push(entry.name);
    }

    // ---- offering

    fn offer(&mut self) {
        let enough = self.unoffered.len() >= OFFER_CHUNKS || self.unoffered_bytes >= OFFER_BYTES;
        let idle = self.under_way.is_empty() && self.queue.is_empty();
        if self.offering || self.unoffered.is_empty() || !(enough || idle || self.all_cut()) {
            return;
        }
        self.offering = true;
        self.unoffered_bytes = 0;
        let names = std::mem::take(&mut self.unoffered);
        let (calls, ack) = (self.session.calls(), self.session.reserved.policy.ack);
        self.events.push(Box::pin(async move {
            let offered = calls.offer(names.clone(), ack).await;
            Event::Offered(names, offered)
        }));
    }

    fn take_offered(&mut self, names: Vec<ChunkName>, offered: Offered) {
        self.offering = false;
        let held = offered.held.into_iter().map(|held| (held.index as usize, held.donors));
        let mut held: HashMap<usize, Vec<DonorId>> = held.collect();
        let copies = self.session.reserved.policy.copies;
        for (index, name) in names.into_iter().enumerate() {
            let at = held.remove(&index).unwrap_or_default();
            let want = copies.saturating_sub(at.len() as u32);
            if let Some(chunk) = self.chunks.get_mut(&name) {
                chunk.spread.want = want;
                chunk.spread.targets = at;
                if want == 0 {
                    self.report.held_chunks += 1;
                    self.chunk_done(name);
                } else {
                    self.report.sent_chunks += 1;
                    self.report.sent_bytes += u64::from(chunk.len);
                    self.queue.push_back(name);
                }
            }
        }
    }

    // ---- sending

    fn send(&mut self) -> Result<(), Failure> {
        let mut waiting = 0;
        while waiting < self.queue.len().min(LOOK_AHEAD) {
            let name = self.queue[waiting];
            if self.send_copies(name)? {
                self.queue.remove(waiting);
            } else {
                waiting += 1;
            }
        }
        self.look_for_late();
        Ok(())
    }

    /// Sends the copies of a chunk that find a donor; whether all did.
    fn send_copies(&mut self, name: ChunkName) -> Result<bool, Failure> {
        loop {
            let Some(chunk) = self.chunks.get(&name).filter(|chunk| chunk.body.is_some()) else {
                return Ok(true);
            };
            let under_way = self.under_way.range((name, DonorId(0))..=(name, DonorId(u32::MAX)));
            let under_way = under_way.count();
            if under_way + chunk.spread.acks.len() >= chunk.spread.want as usize {
                return Ok(true);
            }
            match self.copies.pick(&chunk.spread, chunk.len) {
                Some(donor) => self.send_to(name, donor),
                None if self.copies.can_place(&chunk.spread, under_way) => return Ok(false),
                None => {
                    self.replace_donors()?;
                    return Ok(false);
                }
            }
        }
    }

    fn send_to(&mut self, name: ChunkName, donor: DonorId) {
        let Some(chunk) = self.chunks.get_mut(&name) else { return };
        let Some(body) = chunk.body.clone() else { return };
        chunk.spread.targets.push(donor);
        let (donors, clock) = (self.donors.clone(), self.client.env.clock.clone());
        let (sent_at, bytes, ack) = (clock.now(), chunk.len, self.session.reserved.policy.ack);
        self.donors.paces(|paces| paces.entry(donor).or_default().sent(bytes, sent_at));
        self.under_way.insert((name, donor), sent_at);
        self.events.push(Box::pin(async move {
            let result = match donors.link(donor).await {
                Ok(link) => link.put(name, ack, body).await,
                Err(error) => Err(error),
            };
            donors.paces(|paces| {
                let pace = paces.entry(donor).or_default();
                match &result {
                    Ok(_) => pace.acked(bytes, sent_at, clock.now()),
                    Err(_) => pace.failed(bytes),
                }
            });
            Event::Put { name, donor, result }
        }));
    }

    fn take_put(
        &mut self,
        name: ChunkName,
        donor: DonorId,
        result: PutResult,
    ) -> Result<(), Failure> {
        let wanted = self.chunks.get_mut(&name).filter(|chunk| chunk.body.is_some());
        let error = match (result, wanted) {
            (Ok((ack, receipt)), Some(chunk)) => {
                // Copies are counted by donors, never by answers (PROMISES D3).
                if chunk.spread.acks.iter().all(|(acknowledged, ..)| *acknowledged != donor) {
                    chunk.spread.acks.push((donor, ack, receipt));
                }
                if chunk.spread.acks.len() >= chunk.spread.want as usize {
                    self.chunk_done(name);
                }
                return Ok(());
            }
            (Ok(_), None) => return Ok(()), // a hedged copy that came second
            (Err(error), chunk) => {
                if let Some(chunk) = chunk {
                    chunk.spread.targets.retain(|target| *target != donor);
                    self.queue.push_front(name);
                }
                error
            }
        };
        tracing::debug!(%donor, %error, "a copy failed");
        match error {
            LinkError::Refused(Status::Mismatch) | LinkError::WrongBytes => {
                self.mismatches += 1;
                if self.mismatches > MAX_MISMATCHES {
                    let what = format!(
                        "{} keeps receiving other bytes than were sent",
                        self.donors.name(donor)
                    );
                    return Err(Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
                        .hint("check the memory of this machine and the network between the two"));
                }
            }
            LinkError::Refused(Status::Denied) => self.copies.give_up(donor, false),
            error => {
                self.donor_full |= error == LinkError::Refused(Status::Full);
                self.copies.give_up(donor, true);
            }
        }
        Ok(())
    }

    fn chunk_done(&mut self, name: ChunkName) {
        let Some(chunk) = self.chunks.get_mut(&name) else { return };
        chunk.body = None;
        let users = std::mem::take(&mut chunk.users);
        let acks = chunk.spread.acks.clone();
        self.remembered.push_back(name);
        if self.remembered.len() > REMEMBERED
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.chunks.remove(&oldest);
        }
        self.settle(&users, &acks);
    }

    fn settle(&mut self, users: &[(u32, u32)], acks: &[(DonorId, AckLevel, Receipt)]) {
        for &(file, index) in users {
            let Some(state) = self.files.get_mut(&file) else { continue };
            state.open -= 1;
            let said = acks.iter().map(|&(donor, ack, receipt)| Acknowledged {
                chunk: index,
                donor,
                ack,
                receipt,
            });
            state.acknowledged.extend(said);
            self.progress.advance(u64::from(state.entries[index as usize].len));
            self.complete(file);
        }
    }

    // ---- late copies

    /// Only the tail is hedged: before, the other donors have better to do.
    fn look_for_late(&mut self) {
        let tail = self.all_cut() && self.queue.is_empty() && self.unoffered.is_empty();
        if tail && !self.offering && !self.under_way.is_empty() && !self.hedging {
            self.hedging = true;
            self.events.push(Box::pin(async {
                tokio::time::sleep(HEDGE_EVERY).await;
                Event::LookForLate
            }));
        }
    }

    fn hedge(&mut self) {
        let now = self.client.env.clock.now();
        let under_way: Vec<_> =
            self.under_way.iter().map(|(copy, sent_at)| (*copy, *sent_at)).collect();
        for ((name, slow), sent_at) in under_way {
            let chunk = self.chunks.get(&name).filter(|chunk| chunk.body.is_some());
            // One after the other: two late copies of a chunk must not both go to the same donor.
            let to = chunk
                .and_then(|chunk| self.copies.hedge(&chunk.spread, slow, chunk.len, sent_at, now));
            if let Some(donor) = to {
                self.send_to(name, donor);
            }
        }
    }

    // ---- room

    fn grow_ahead(&mut self) {
        let policy = &self.session.reserved.policy;
        // What was said to come is promised; a stream must not have to wait at the end of its promise.
        let ahead = match self.session.size_known {
            true => 0,
            false => u64::from(policy.chunk_size) * u64::from(policy.stripe_width),
        };
        if !self.all_cut()
            && self.cut_bytes + ahead > self.session.promised
            && self.session.promised > 0
            && self.grow_refused.is_none()
        {
            self.grow(self.cut_bytes.max(GROW_BYTES));
        }
    }

    fn grow(&mut self, bytes: u64) {
        if self.growing {
            return;
        }
        self.growing = true;
        let (calls, avoid) = (self.session.calls(), self.copies.failed());
        // For a full donor no other turns up by waiting.
        let wait = !self.donor_full;
        self.events.push(Box::pin(async move {
            let grown = calls.grow(bytes, avoid, wait).await;
            Event::Grown(bytes, grown)
        }));
    }

    /// Too few donors are left for what has been read: asks for others.
    fn replace_donors(&mut self) -> Result<(), Failure> {
        if let Some(refusal) = &self.grow_refused {
            let names: Vec<_> =
                self.copies.failed().into_iter().map(|donor| self.donors.name(donor)).collect();
            let mut failure = refusal.clone();
            if self.donor_full && failure.code != code::NO_MANAGER {
                // Waiting for donors to come back, which the manager may advise, makes no room.
                failure = Failure::new(ErrorKind::NoSpace, code::FULL, "the donors' disks are full")
                    .hint("remove files, free space on the donors' disks, or lend more with `potluck lend`");
            }
            if !names.is_empty() {
                failure.message =
                    format!("{}; failed while writing: {}", failure.message, names.join(", "));
            }
            return Err(failure);
        }
        let room = u64::from(self.session.reserved.policy.chunk_size);
        self.grow(room * (self.queue.len() as u64 + 1));
        Ok(())
    }

    fn take_grown(&mut self, bytes: u64, grown: Result<Grown, Failure>) {
        self.growing = false;
        match grown {
            Ok(grown) => {
                self.session.promised += bytes;
                self.donors.learn(grown.donors);
                self.copies.extend(grown.plan);
            }
            // What was promised can still be written; the refusal matters when that is not enough.
            Err(refusal) => self.grow_refused = Some(refusal),
        }
    }

    fn renew_later(&mut self) {
        let (calls, every) = (self.session.calls(), self.session.reserved.lease_ms / 3);
        self.events.push(Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(every.max(100))).await;
            Event::Renewed(calls.renew().await)
        }));
    }

    // ---- committing

    /// Moves a file that is read and stored on to the next commit.
    fn complete(&mut self, file: u32) {
        let is_ready = |state: &FileState| state.facts.is_some() && state.open == 0;
        if !self.files.get(&file).is_some_and(is_ready) {
            return;
        }
        let Some(FileState { entries, acknowledged, facts: Some(facts), .. }) =
            self.files.remove(&file)
        else {
            return;
        };
        let policy = &self.session.reserved.policy;
        let pages = entries.chunks(PAGE_ENTRIES).map(|page| Blob(recipe::pack(page))).collect();
        if facts.inline.is_some() {
            self.progress.advance(facts.size);
        }
        self.ready.push(FileCommit {
            path: facts.path,
            size: facts.size,
            digest: facts.digest,
            mtime_ms: facts.mtime_ms.unwrap_or_else(|| self.client.env.clock.wall()),
            executable: facts.executable,
            chunk_size: policy.chunk_size,
            copies: policy.copies,
            ec: None,
            parity: Packed::default(),
            inline: match (facts.inline, facts.size) {
                (None, 0) => Some(Blob(Vec::new())),
                (inline, _) => inline.map(Blob),
            },
            pages,
            acknowledged: Packed(acknowledged),
            condition: self.condition,
        });
    }

    fn commit(&mut self) {
        let last = self.all_cut() && self.files.is_empty();
        let due = self.ready.len() >= COMMIT_FILES || (last && !self.ready.is_empty());
        if self.committing || !due {
            return;
        }
        let rest = self.ready.split_off(self.ready.len().min(COMMIT_FILES));
        let files = std::mem::replace(&mut self.ready, rest);
        let done = last && self.ready.is_empty();
        let batch = self.batch;
        self.batch += 1;
        self.committing = true;
        self.finished = done;
        let calls = self.session.calls();
        self.events.push(Box::pin(async move {
            let paths = files.iter().map(|file| (file.path.clone(), file.size)).collect();
            Event::Committed(paths, calls.commit(batch, files, done).await)
        }));
    }

    fn take_committed(&mut self, files: Vec<(PoolPath, u64)>, committed: Committed) {
        self.committing = false;
        for ((path, size), outcome) in files.into_iter().zip(committed.files) {
            match outcome {
                Outcome::Version(version) => {
                    self.report.bytes += size;
                    self.report.stored.push((path, version));
                }
                Outcome::Refused(failure) => self.report.failed.push((path, failure)),
            }
        }
    }
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("cannot read it: {error}"))
        .hint("check that the file exists and that you may read it")
}

fn stuck() -> Failure {
    Failure::new(ErrorKind::Other, code::BAD_REQUEST, "the write has nothing left to wait for")
        .hint("this is a bug in Potluck: please report it")
}
