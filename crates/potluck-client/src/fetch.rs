//! Fetches the chunks of a file. A chunk with copies comes from the copy that is expected first, or from another when
//! that one fails or hangs. Chunks of a group can stand in for each other. Both are gathered by the same code.

mod gather;
mod group;
mod memory;
mod origin;
mod outage;

pub use memory::ReadMemory;
pub use outage::{ChunkLocator, LocatedChunks};

use crate::buffer::Buffer;
use crate::chunk_cache::SegmentRun;
use crate::donors::Donors;
use crate::link::{ChunkRequest, LinkError, Seal};
use crate::pool::Pool;
use crate::recipe::Recipe;
use crate::stored_rows::StoredRows;
use gather::{Code, Shard};
use memory::{Need, read_ahead};
use outage::{Failed, Outage, holders};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::clock::{Clock, Tick};
use potluck_core::hedging::late_after;
use potluck_core::ids::DonorId;
use potluck_core::merkle::SEGMENT;
use potluck_core::rate_estimate::RateEstimate;
use potluck_core::read_plan::Piece;
use potluck_core::recipe::Entry;
use potluck_core::seal::SpaceKey;
use potluck_core::traffic::Direction;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::{CopyFault, DonorAccess, Report, Reported};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;

/// Fetches the chunks of one read.
#[derive(Clone)]
pub struct Fetcher {
    client: Pool,
    /// The donors of the read.
    pub donors: Donors,
    pub(crate) memory: ReadMemory,
    failovers: Arc<AtomicU64>,
    outage: Arc<Outage>,
    /// True once donors kept a chunk waiting that its origin has: from then on the origin is asked first.
    donors_hang: Arc<AtomicBool>,
}

/// The verified plaintext of a chunk, all of it or some segments, and its share of the memory for reading.
pub struct Fetched {
    /// The plaintext of the piece.
    pub bytes: Buffer,
    /// The offset of the piece in its chunk, in bytes.
    start: u32,
    _ahead: OwnedSemaphorePermit,
}

impl Fetched {
    /// Makes a fetched piece of `bytes`, which takes as many permits of `ahead` as it has bytes, as far as there are
    /// so many.
    fn new(bytes: Buffer, start: u32, ahead: &mut OwnedSemaphorePermit) -> Self {
        let permits = bytes.len().min(ahead.num_permits());
        let _ahead = ahead.split(permits).expect("no more than there are");
        Self { bytes, start, _ahead }
    }

    /// Returns the bytes of the piece for which this was fetched.
    pub fn of(&self, piece: &Piece) -> &[u8] {
        let at = (piece.skip - self.start) as usize;
        &self.bytes[at..at + piece.take as usize]
    }
}

/// The quotient of rates from which donors count as different: a slow one must be asked sooner for what it has.
const DIFFERENT: f64 = 1.5;

/// A request under way, which counts in its donor's rate estimate until it is answered or given up.
struct Asked<'a> {
    donors: &'a Donors,
    clock: &'a dyn Clock,
    donor: DonorId,
    bytes: u32,
    end: End,
}

/// The way in which a request ended.
enum End {
    /// The request was answered, which its donor's rate estimate knows already.
    Answered,
    /// The request was refused, or was not answered as it should be.
    Failed,
    /// The request was given up; if that was before `due`, the donor is not to blame.
    GivenUp { due: Tick },
}

/// Returns the run of segments that a piece is in.
fn segment_run(recipe: &Recipe, piece: &Piece) -> SegmentRun {
    let entry = &recipe.entries[piece.index];
    let segments = recipe.segments(piece).unwrap_or(0..entry.segments());
    SegmentRun { chunk: entry.name, chunk_len: entry.len, segments }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let now = self.clock.now();
        self.donors.rates(|rates| {
            let estimate = rates.entry(self.donor).or_default();
            match self.end {
                End::Answered => {}
                End::GivenUp { due } if now <= due => estimate.withdrawn(self.bytes),
                End::Failed | End::GivenUp { .. } => estimate.failed(self.bytes),
            }
        });
        self.donors.room.notify_waiters();
    }
}

/// Makes the request for the chunk of an entry, sealed with `key` if there is one, or for some of its segments.
fn chunk_request(entry: &Entry, key: Option<&SpaceKey>, part: Option<&Range<u32>>) -> ChunkRequest {
    let key = key.filter(|_| entry.sealed);
    let seal = key.map(|key| Seal { key: key.clone(), digest: entry.digest });
    let part = part.map(|segments| entry.bytes_of(segments));
    ChunkRequest { name: entry.name, len: entry.len, part, seal }
}

impl Fetcher {
    /// Makes a fetcher of chunks, which are received into `memory`.
    pub fn new(client: &Pool, memory: ReadMemory) -> Self {
        Self {
            client: client.clone(),
            donors: client.donors(memory.buffers.clone(), Direction::Read),
            memory,
            failovers: Arc::default(),
            outage: Arc::default(),
            donors_hang: Arc::default(),
        }
    }

    /// Returns the rows of a recipe, from which its chunks can be read to be stored again.
    pub fn rows_of(&self, recipe: Arc<Recipe>) -> StoredRows {
        let (key, offload) = (recipe.key.clone(), self.client.env.offload);
        StoredRows { recipe, fetcher: self.clone(), key, offload, local: None }
    }

    /// Learns how to reach the holders of more files.
    pub fn learn(&self, access: Vec<DonorAccess>) {
        self.donors.learn(access);
    }

    /// Returns how often another copy stood in for one that failed or hung, plus the number of chunks that were
    /// rebuilt.
    pub fn failovers(&self) -> u64 {
        self.failovers.load(Ordering::Relaxed)
    }

    /// Fetches, verifies and opens the chunks of one unit ([`Recipe::units`]), one for each piece. If too few can be
    /// had, the manager is asked where they are now; and donors that are away in the middle of the read are waited for
    /// as long as the client's retry limits say. The unit keeps its place in the memory meanwhile, for the units after
    /// it in the file may hold all the rest until it is read.
    ///
    /// Errors: [`ErrorKind::Retry`] when too many donors are out of reach, [`ErrorKind::Integrity`] when all copies
    /// that were tried are spoiled or a rebuilt chunk is wrong, and the failure of a manager that refuses to open the
    /// file again.
    pub async fn unit(
        &self,
        recipe: &Recipe,
        pieces: &[Piece],
        mut place: OwnedSemaphorePermit,
    ) -> Result<Vec<Fetched>, Failure> {
        if let Some(cached) = self.cached(recipe, pieces, &mut place).await {
            return Ok(cached);
        }
        if let Some(found) = self.found_nearby(recipe, pieces, &mut place).await {
            return Ok(found);
        }
        let mut pauses = None;
        let mut reopened = false;
        let mut origin_failed = false;
        if self.is_only_at_origin(recipe, pieces) {
            match self.fetch_at_origin(recipe, pieces, &mut place).await {
                Ok(fetched) => return Ok(fetched),
                // Donors may have what the manager did not know when the file was opened.
                Err(failure) if failure.kind == ErrorKind::Retry => origin_failed = true,
                Err(failure) => return Err(failure),
            }
        }
        self.renew_tickets(recipe, pieces).await;
        loop {
            let began = self.client.env.clock.now();
            match self.ask_donors(recipe, pieces, &mut place, origin_failed).await {
                Err(failure) if !origin_failed && self.may_ask_origin(recipe, &failure) => {
                    match self.fetch_at_origin(recipe, pieces, &mut place).await {
                        Ok(fetched) => return Ok(fetched),
                        Err(failure) if failure.kind == ErrorKind::Retry => origin_failed = true,
                        Err(failure) => return Err(failure),
                    }
                }
                Err(failure) if failure.kind == ErrorKind::Retry => {
                    let helps = !reopened && self.reopening_helps(recipe, pieces, began).await;
                    reopened = true;
                    if !helps {
                        let failed = Failed { holders: holders(recipe, pieces), began, failure };
                        self.wait_for_donors(&mut pauses, recipe, failed).await?;
                    }
                }
                Ok(fetched) => {
                    self.outage.read_some();
                    self.keep(recipe, pieces, &fetched);
                    return Ok(fetched);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Returns the pieces from the client's cache, if it has all of them.
    async fn cached(
        &self,
        recipe: &Recipe,
        pieces: &[Piece],
        place: &mut OwnedSemaphorePermit,
    ) -> Option<Vec<Fetched>> {
        let cache = self.client.cache.as_ref()?;
        let mut found = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let run = segment_run(recipe, piece);
            let mut bytes = self.memory.buffers.claim(run.len()).await.buffer(run.len());
            if !cache.get(&run, &mut bytes).await {
                return None;
            }
            found.push((bytes, run.segments.start * SEGMENT));
        }
        let fetched = |(bytes, start)| Fetched::new(bytes, start, place);
        Some(found.into_iter().map(fetched).collect())
    }

    /// Returns the pieces from the place near the client, if it has all of them and is expected to be no slower than
    /// donors. A part of a chunk is read there with all of the chunk, since only that can be proved; the rest of it is
    /// kept in the client's cache.
    async fn found_nearby(
        &self,
        recipe: &Recipe,
        pieces: &[Piece],
        place: &mut OwnedSemaphorePermit,
    ) -> Option<Vec<Fetched>> {
        let source = self.client.lookaside.as_ref().filter(|source| !source.is_empty())?;
        let mut found = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (entry, run) = (&recipe.entries[piece.index], segment_run(recipe, piece));
            let elsewhere = source.expected(entry.len);
            if self.is_sooner_at_donors(recipe, piece, run.len() as u32, elsewhere) {
                return None;
            }
            let (source, digest, len) = (Arc::clone(source), entry.digest, entry.len);
            let is_right = move |bytes: &[u8]| Digest::of(bytes) == digest;
            let read = spawn_blocking(move || source.read(&digest, len, &is_right));
            let bytes = read.await.ok().flatten()?;
            let start = run.segments.start * SEGMENT;
            let mut buffer = self.memory.buffers.claim(run.len()).await.buffer(run.len());
            buffer.copy_from_slice(&bytes[start as usize..][..run.len()]);
            found.push((buffer, start));
            if !run.is_whole()
                && let Some(cache) = &self.client.cache
            {
                cache.put(&run.of_whole(), &bytes);
            }
        }
        let fetched = |(bytes, start)| Fetched::new(bytes, start, place);
        Some(found.into_iter().map(fetched).collect())
    }

    /// Returns whether a donor is expected to have sent `len` bytes of a piece before `elsewhere`, the time that another
    /// source takes. A source whose rate is not known is tried.
    fn is_sooner_at_donors(
        &self,
        recipe: &Recipe,
        piece: &Piece,
        len: u32,
        elsewhere: Option<Duration>,
    ) -> bool {
        let Some(elsewhere) = elsewhere else { return false };
        let soonest = self.donors.rates(|rates| {
            let known = recipe.holders(piece.index).into_iter();
            let finish = |donor: DonorId| rates.get(&donor).filter(|it| it.rate().is_some());
            known.filter_map(finish).map(|it| it.expected_finish(len)).min()
        });
        soonest.is_some_and(|soonest| soonest < elsewhere)
    }

    /// Puts pieces that were fetched into the client's cache.
    fn keep(&self, recipe: &Recipe, pieces: &[Piece], fetched: &[Fetched]) {
        let Some(cache) = &self.client.cache else { return };
        for (piece, fetched) in pieces.iter().zip(fetched) {
            let run = segment_run(recipe, piece);
            // The whole chunks of a group may have been fetched though a part was asked for.
            let before = (run.segments.start * SEGMENT).checked_sub(fetched.start);
            let bytes = before.and_then(|at| fetched.bytes.get(at as usize..)?.get(..run.len()));
            if let Some(bytes) = bytes {
                cache.put(&run, bytes);
            }
        }
    }

    async fn unit_now(
        &self,
        recipe: &Recipe,
        pieces: &[Piece],
        ahead: &mut OwnedSemaphorePermit,
    ) -> Result<Vec<Fetched>, Failure> {
        let mut fetched = Vec::with_capacity(pieces.len());
        if let (Some(ec), Some(first)) = (recipe.file.ec, pieces.first()) {
            let group = recipe.group(ec, first.index);
            let needed: Vec<usize> =
                pieces.iter().map(|piece| piece.index - group.data.start).collect();
            return self.group(&group, &needed, recipe.segments(first), ahead).await;
        }
        for piece in pieces {
            let (entry, part) = (&recipe.entries[piece.index], recipe.segments(piece));
            let request = chunk_request(entry, recipe.key.as_ref(), part.as_ref());
            let bytes = self.copy(request, &recipe.holders(piece.index)).await?;
            let start = part.map_or(0, |part| part.start * SEGMENT);
            fetched.push(Fetched::new(bytes, start, ahead));
        }
        Ok(fetched)
    }

    /// Returns the number of the unit that is to be asked for first, of units so many bytes ahead of their reader: the one
    /// whose time until the reader comes to it exceeds the time that its donors take by least, or the first of all as
    /// long as donors are not known to differ.
    pub(crate) fn most_urgent<'a>(
        &self,
        mut units: impl Iterator<Item = (usize, &'a Recipe, &'a [Piece], u64)>,
    ) -> Option<usize> {
        self.donors.rates(|rates| {
            let known = || rates.values().filter_map(RateEstimate::rate);
            let (together, slowest) = (known().sum::<f64>(), known().fold(f64::MAX, f64::min));
            let fastest = known().fold(0.0, f64::max);
            if fastest < DIFFERENT * slowest {
                return units.next().map(|(number, ..)| number);
            }
            let spare = |(number, recipe, pieces, ahead): (usize, &Recipe, &[Piece], u64)| {
                let finish = |piece: &Piece| {
                    let len = recipe.entries[piece.index].len;
                    let holders = recipe.holders(piece.index);
                    let of = |donor: &DonorId| rates.get(donor).map(|it| it.expected_finish(len));
                    holders.iter().filter_map(of).min().unwrap_or_default()
                };
                let takes = pieces.iter().map(finish).max().unwrap_or_default();
                (ahead as f64 / together - takes.as_secs_f64(), number)
            };
            units.map(spare).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, number)| number)
        })
    }

    /// Returns the most memory that a unit takes.
    pub(crate) fn need(&self, recipe: &Recipe, pieces: &[Piece]) -> Need {
        if let (Some(ec), Some(first)) = (recipe.file.ec, pieces.first()) {
            let group = recipe.group(ec, first.index);
            let bytes = self.most_of_group(&group, pieces.len(), recipe.segments(first));
            return Need { bytes, worth: usize::MAX };
        }
        let bytes = |piece: &Piece| {
            let part = recipe.segments(piece);
            let entry = &recipe.entries[piece.index];
            chunk_request(entry, recipe.key.as_ref(), part.as_ref()).bytes() as usize
        };
        let bytes: usize = pieces.iter().map(bytes).sum();
        Need { bytes, worth: bytes * read_ahead(self.donors.count()) }
    }

    /// Fetches a chunk from one of the donors that have a copy.
    async fn copy(&self, request: ChunkRequest, holders: &[DonorId]) -> Result<Buffer, Failure> {
        let name = request.name;
        let mut shards = [Shard::new(Some(request), self.donors.sources(holders))];
        self.gather(Code::COPIES, &[0], &mut shards).await;
        let [Shard { had, faults, .. }] = shards;
        had.ok_or_else(|| self.unreadable(&name, &faults))
    }

    async fn ask(
        &self,
        donor: DonorId,
        request: ChunkRequest,
    ) -> (DonorId, Result<Buffer, LinkError>) {
        let (clock, bytes) = (&*self.client.env.clock, request.bytes());
        let sent_at = clock.now();
        let due = self.donors.rates(|rates| {
            let estimate = rates.entry(donor).or_default();
            let due = sent_at + late_after(estimate, bytes);
            estimate.sent(bytes, sent_at);
            due
        });
        let end = End::GivenUp { due };
        let request_under_way = self.donors.begin(donor, bytes);
        let mut asked = Asked { donors: &self.donors, clock, donor, bytes, end };
        let answer = match self.donors.link(donor).await {
            Ok(link) => link.get(request).await,
            Err(error) => Err(error),
        };
        self.outage.answered(donor, &answer, clock.now());
        asked.end = match answer {
            Ok(_) => {
                let now = clock.now();
                self.donors
                    .rates(|rates| rates.entry(donor).or_default().acked(bytes, sent_at, now));
                request_under_way.answered();
                End::Answered
            }
            Err(_) => {
                request_under_way.failed();
                End::Failed
            }
        };
        (donor, answer)
    }

    /// Tells the manager of a copy that is gone or spoiled. The manager has the donor check its copy before it
    /// believes that, so nothing depends on this call.
    fn report(&self, donor: DonorId, chunk: ChunkName, error: &LinkError) {
        let fault = match error {
            LinkError::WrongBytes => CopyFault::WrongBytes,
            LinkError::Refused(BulkStatus::NotFound) => CopyFault::Missing,
            LinkError::Refused(BulkStatus::DiskFailed) => CopyFault::Unreadable,
            _ => return,
        };
        // The report of a read tells how many bad copies there were; only with -v does it say where.
        tracing::info!(donor = self.donors.name(donor), %chunk, %error, "bad copy");
        self.client.meet_bad_copy();
        let (client, report) = (self.client.clone(), Report { chunk, donor, fault });
        self.client.in_background(async move {
            match client.caller.call(&report).await {
                Ok(Reported { counted: true }) => {}
                Ok(Reported { counted: false }) => client.met_no_bad_copy(),
                Err(failure) => tracing::debug!(%failure, "the bad copy could not be reported"),
            }
        });
    }

    fn unreadable(&self, name: &ChunkName, faults: &[(DonorId, LinkError)]) -> Failure {
        let spoiled = |error: &LinkError| matches!(error, LinkError::WrongBytes);
        let reasons: Vec<_> =
            faults.iter().map(|(donor, error)| self.donors.fault(*donor, error)).collect();
        let chunk = &name.to_string()[..12];
        if reasons.is_empty() {
            let what = format!("no donor that is known holds chunk {chunk}…");
            return Failure::new(ErrorKind::Retry, code::UNREADABLE, what).hint(
                "`potluck fsck` tells whether what is missing is on donors that do not answer: then try \
                 again when they are back; else store the file again from its source",
            );
        }
        let what = format!("no copy of chunk {chunk}… can be read: {}", reasons.join("; "));
        if faults.iter().all(|(_, error)| spoiled(error)) {
            Failure::new(ErrorKind::Integrity, code::UNREADABLE, what)
                .hint("every copy is damaged: restore the file from its source")
        } else {
            Failure::new(ErrorKind::Retry, code::UNREADABLE, what)
                .hint("see `potluck status`, and try again when the donors are back")
        }
    }
}
