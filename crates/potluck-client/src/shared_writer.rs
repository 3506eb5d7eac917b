//! Files that several writers write at once, each other bytes (docs/notes/0016-shared-writers.md; CEFT-PVFS, section 4).
//!
//! What a writer brings is stored as its *contribution*, a file that is staged out of sight. Whole chunks of the file are
//! whole chunks of the contribution, so that the version that is made of all of them takes these over by their names.

use crate::contribution::{Index, MOST_EXTENTS, WrittenExtent};
use crate::pool::Pool;
use crate::shared_version::{self, SharedPlace};
use crate::write::options::PutOptions;
use crate::writer::{Attributes, Writer, unit};
use potluck_core::byte_ranges::ByteRanges;
use potluck_core::ids::{SharedWriterId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Cutting};
use potluck_wire::control::{
    CLAIM_LEASE, Condition, LONGEST_WRITER_NAME, OnlyIf, Remove, SharedClaim, SharedClaimed,
    SharedLeave,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Bytes of rows that a writer has not written all of, unless two rows are more.
const ROWS_MEMORY: usize = 32 << 20;
/// How often in a lease a writer says that it is there: who finishes waits until it has heard so of another.
const SIGNS_OF_LIFE: u32 = 10;
/// How often in the time that a file stays shared unused it is said that it is used.
const RENEWALS: u32 = 4;
/// The pause before something is claimed again that nobody could have yet.
const PAUSE: Duration = Duration::from_millis(200);

/// What became of a shared file when a writer had done its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedOutcome {
    /// It has a new version, of what all wrote.
    Published,
    /// Others are writing: the last of them makes the version, or has just made it. Or somebody began the sharing and is to
    /// end it.
    Waiting,
    /// Nobody wrote anything since the last version.
    Nothing,
}

/// Writes its bytes of a file that others write at the same time. None of it is visible before all have finished.
///
/// One that is dropped before it has finished keeps the file from getting a version, until somebody leaves it out
/// ([`Pool::publish_shared`]).
pub struct SharedWriter {
    client: Pool,
    place: SharedPlace,
    claims: Arc<Claims>,
    presence: Presence,
    writer: Writer,
    unit: u64,
    /// Rows of which a part was written, by their numbers.
    rows: BTreeMap<u64, Row>,
    /// Parts of rows that are to be stored together, and where each belongs.
    pack: Vec<u8>,
    packed: Vec<(u64, WrittenExtent)>,
    /// What is stored, by the order in which it was written.
    stored: Vec<(u64, WrittenExtent)>,
    /// Counts what is stored and packed.
    order: u64,
    /// The least size of the file.
    size: u64,
}

/// That a writer is there, which the manager is told now and then, and when it is not any more.
struct Presence {
    claims: Arc<Claims>,
    signs: JoinSet<()>,
    has_left: bool,
}

impl Presence {
    /// The writer says itself that it leaves.
    fn end(&mut self) {
        self.signs.abort_all();
        self.has_left = true;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        let Claims { client, path, writer, .. } = &*self.claims;
        let (path, has_finished) = (path.clone(), false);
        let leave = SharedLeave { path, writer: *writer, has_finished, waited_ms: 0 };
        let caller = client.clone();
        client.in_background(async move {
            if let Err(failure) = caller.call(&leave).await {
                tracing::debug!(%failure, "what a writer claimed is free when its lease is over");
            }
        });
    }
}

/// A row of chunks of the file of which not all is written.
struct Row {
    bytes: Vec<u8>,
    written: ByteRanges<()>,
    /// When it was written to last.
    touched: u64,
}

/// What a writer has claimed.
struct Claims {
    client: Pool,
    path: PoolPath,
    writer: SharedWriterId,
    name: String,
    /// Held while the manager is told of more or of all of them, so that it is never told of fewer.
    ranges: Mutex<ByteRanges<()>>,
    /// Where the mark of the writer is staged, and its version.
    mark: OnceLock<(PoolPath, VersionId)>,
    /// Why the writer has them no more.
    lost: OnceLock<Failure>,
}

impl Claims {
    fn call(&self, ranges: Vec<Range<u64>>) -> SharedClaim {
        let (path, name) = (self.path.clone(), self.name.clone());
        SharedClaim { path, writer: self.writer, name, ranges, is_first: false, is_all: false }
    }

    fn check(&self) -> Result<(), Failure> {
        self.lost.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    /// Has the manager keep what is claimed, and add `more` to it.
    async fn claim(&self, more: &Range<u64>, is_first: bool) -> Result<(), Failure> {
        self.check()?;
        let mut ranges = self.ranges.lock().await;
        let gaps = ranges.gaps(more);
        let call = SharedClaim { is_first, ..self.call(gaps) };
        let began = self.client.now();
        loop {
            match self.client.call_retrying(&call).await? {
                SharedClaimed::Granted => break,
                SharedClaimed::Unknown => self.tell_all(&ranges).await?,
                SharedClaimed::NotYet => {
                    let most = self.client.retry_limits().under_way.max(CLAIM_LEASE * 3);
                    if self.client.now().saturating_sub(began) > most {
                        let what = format!("a version of {} is being made for long", self.path);
                        return Err(Failure::new(ErrorKind::Retry, code::CLAIMED, what)
                            .hint("try again; `potluck shared ls` shows who writes"));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        ranges.add(more.clone(), ());
        Ok(())
    }

    /// Has the manager keep what is claimed.
    async fn say_that_it_is_there(&self) -> Result<(), Failure> {
        self.check()?;
        let said = self.client.call_retrying(&self.call(Vec::new())).await?;
        if said == SharedClaimed::Unknown {
            self.tell_all(&*self.ranges.lock().await).await?;
        }
        Ok(())
    }

    /// Tells a manager that does not know the writer all that it has.
    async fn tell_all(&self, ranges: &ByteRanges<()>) -> Result<(), Failure> {
        // What the manager does not know may be of a file that was removed, or shared anew.
        if let Some((path, version)) = self.mark.get() {
            match self.client.stat(path).await {
                Ok(stated) if stated.entry.version == Some(*version) => {}
                Err(failure) if failure.code != code::NO_ENTRY => return Err(failure),
                _ => return Err(self.lose(self.left_out())),
            }
        }
        let all = ranges.iter().map(|(range, ())| range).collect();
        let call = SharedClaim { is_all: true, ..self.call(all) };
        match self.client.call_retrying(&call).await {
            Err(failure) if failure.code == code::CLAIMED => {
                let why = format!("this writer was not heard for too long: {}", failure.message);
                Err(self.lose(Failure { message: why, ..failure }))
            }
            told => told.map(drop),
        }
    }

    fn lose(&self, why: Failure) -> Failure {
        self.lost.get_or_init(|| why).clone()
    }

    fn left_out(&self) -> Failure {
        let what = format!(
            "what the writer {} wrote is not in {}: it was left out, or another took its place",
            self.name, self.path
        );
        Failure::new(ErrorKind::Conflict, code::NOT_TOGETHER, what).hint("write it again")
    }

    /// Says that the writer is there, for as long as it is.
    async fn keep(self: Arc<Self>, place: SharedPlace) {
        let mut used = self.client.now();
        loop {
            tokio::time::sleep(CLAIM_LEASE / SIGNS_OF_LIFE).await;
            if let Err(failure) = self.say_that_it_is_there().await {
                tracing::warn!(%failure, "a shared file may be lost to this writer");
            }
            if self.client.now().saturating_sub(used) > place.idle / RENEWALS {
                used = self.client.now();
                if let Err(failure) = place.renew(&self.client).await {
                    tracing::warn!(%failure, "a file may not stay shared");
                }
            }
        }
    }
}

impl Row {
    fn new(unit: u64) -> Self {
        Self { bytes: vec![0; unit as usize], written: ByteRanges::default(), touched: 0 }
    }
}

impl SharedWriter {
    /// Joins those who write the file at `path`, under a `name` that none of them has.
    pub(crate) async fn join(
        client: &Pool,
        path: &PoolPath,
        name: Option<&str>,
        options: &PutOptions,
        attributes: Attributes,
    ) -> Result<Self, Failure> {
        let writer = SharedWriterId(client.random());
        let name = name.map_or_else(|| writer.to_string()[..8].to_owned(), str::to_owned);
        if name.is_empty() || name.len() > LONGEST_WRITER_NAME {
            let what = format!("a writer has a name of 1 to {LONGEST_WRITER_NAME} bytes");
            return Err(Failure::bad_request(what));
        }
        let place = SharedPlace::share(client, path).await?;
        let staged = place.contribution(&name)?;
        let claims = Arc::new(Claims {
            client: client.clone(),
            path: path.clone(),
            writer,
            name: name.clone(),
            ranges: Mutex::default(),
            mark: OnceLock::new(),
            lost: OnceLock::new(),
        });
        claims.claim(&(0..0), true).await?;
        let mut options = PutOptions { condition: Condition::IfEmpty, bytes: None, ..*options };
        options.policy.cut = Some(Cutting::Fixed); // so that it has the chunks of the file
        // Whoever makes a version finds who has not finished, though everybody else was started again.
        let mark = async { client.create(&staged, &options, attributes).await?.finish().await };
        let marked = mark.await.map_err(|failure| match failure.code.as_str() {
            code::EMPTY_INPUT => {
                let what = format!("the writer {name} of {path} has finished already");
                Failure::new(ErrorKind::Conflict, code::CLAIMED, what).hint("choose another name")
            }
            _ => failure,
        });
        let marker = match marked {
            Ok(marker) => marker,
            Err(failure) => {
                let (path, has_finished) = (path.clone(), false);
                let leave = SharedLeave { path, writer, has_finished, waited_ms: 0 };
                let _ = client.call(&leave).await; // it is silent soon
                return Err(failure);
            }
        };
        // What it writes is never in a file that was shared anew, nor beside that of one who took its place.
        options.condition = Condition::IfVersion(marker);
        let _ = claims.mark.set((staged.clone(), marker)); // there is one
        let writer = client.create(&staged, &options, attributes).await?;
        let unit = unit(&writer.policy()?) as u64;
        let mut signs = JoinSet::new();
        signs.spawn(Arc::clone(&claims).keep(place.clone()));
        let presence = Presence { claims: Arc::clone(&claims), signs, has_left: false };
        Ok(Self {
            client: client.clone(),
            place,
            claims,
            presence,
            writer,
            unit,
            rows: BTreeMap::new(),
            pack: Vec::new(),
            packed: Vec::new(),
            stored: Vec::new(),
            order: 0,
            size: 0,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &PoolPath {
        &self.claims.path
    }

    /// The name of this writer among those of the file.
    pub fn name(&self) -> &str {
        &self.claims.name
    }

    /// The end of what this writer wrote, or the size that it asked for.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Has the file be of `size` bytes at least. What nobody writes is zeros.
    pub fn extend(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Claims a range before anything of it is written, so that no write there costs a call.
    ///
    /// Errors: [`code::CLAIMED`] where another has claimed some of it, which the message names; nothing is claimed then.
    pub async fn claim(&mut self, range: Range<u64>) -> Result<(), Failure> {
        self.claims.claim(&range, false).await
    }

    /// Writes at `offset`. Nobody else may write there until a version was made. Returns when the bytes are taken: rows of
    /// chunks that are complete are on their way to donors.
    ///
    /// Errors: those of [`SharedWriter::claim`], and then nothing is written and the writer may go on; what ended the
    /// writing, such as [`ErrorKind::NoSpace`].
    pub async fn write_at(&mut self, offset: u64, mut bytes: &[u8]) -> Result<(), Failure> {
        let Some(end) = offset.checked_add(bytes.len() as u64) else {
            return Err(Failure::bad_request("no file has so many bytes"));
        };
        self.claims.check()?;
        let is_claimed = self.claims.ranges.lock().await.covers(&(offset..end));
        if !is_claimed {
            self.claims.claim(&(offset..end), false).await?;
        }
        let mut at = offset;
        while !bytes.is_empty() {
            let (row, skip) = (at / self.unit, (at % self.unit) as usize);
            let (now, later) = bytes.split_at(bytes.len().min(self.unit as usize - skip));
            match now.len() as u64 == self.unit {
                true => {
                    self.rows.remove(&row); // what was there is under it
                    self.store_row(row, now).await?;
                }
                false => self.write_in_row(row, skip, now).await?,
            }
            (at, bytes) = (at + now.len() as u64, later);
        }
        self.size = self.size.max(end);
        Ok(())
    }

    async fn write_in_row(
        &mut self,
        number: u64,
        skip: usize,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        self.order += 1;
        let row = self.rows.entry(number).or_insert_with(|| Row::new(self.unit));
        row.bytes[skip..skip + bytes.len()].copy_from_slice(bytes);
        row.written.add(skip as u64..(skip + bytes.len()) as u64, ());
        row.touched = self.order;
        if row.written.covers(&(0..self.unit)) {
            let row = self.rows.remove(&number).expect("it was just there");
            return self.store_row(number, &row.bytes).await;
        }
        let most = (ROWS_MEMORY / self.unit as usize).max(2);
        while self.rows.len() > most {
            let oldest = self.rows.iter().min_by_key(|(_, row)| row.touched);
            let oldest = oldest.map(|(number, _)| *number).expect("there are some");
            self.pack_row(oldest).await?;
        }
        Ok(())
    }

    /// Stores a whole row, which the version takes over as it is.
    async fn store_row(&mut self, number: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.order += 1;
        let (at, from) = (number * self.unit, self.writer.written());
        self.writer.write(bytes).await?;
        self.stored.push((self.order, WrittenExtent { at, len: self.unit, from }));
        self.check_count()
    }

    /// Puts what was written of a row together with others.
    async fn pack_row(&mut self, number: u64) -> Result<(), Failure> {
        let Some(row) = self.rows.remove(&number) else { return Ok(()) };
        self.order += 1;
        for (range, ()) in row.written.iter() {
            let mut start = range.start;
            while start < range.end {
                let room = self.unit - self.pack.len() as u64;
                let end = range.end.min(start + room);
                let (at, len) = (number * self.unit + start, end - start);
                let extent = WrittenExtent { at, len, from: self.pack.len() as u64 };
                self.pack.extend_from_slice(&row.bytes[start as usize..end as usize]);
                self.packed.push((self.order, extent));
                start = end;
                if self.pack.len() as u64 == self.unit {
                    self.store_pack().await?;
                }
            }
        }
        self.check_count()
    }

    async fn store_pack(&mut self) -> Result<(), Failure> {
        let from = self.writer.written();
        let pack = std::mem::take(&mut self.pack);
        self.writer.write(&pack).await?;
        let packed = self.packed.drain(..);
        let moved = |(order, it): (u64, WrittenExtent)| {
            (order, WrittenExtent { from: from + it.from, ..it })
        };
        self.stored.extend(packed.map(moved));
        Ok(())
    }

    fn check_count(&self) -> Result<(), Failure> {
        if self.stored.len() + self.packed.len() < MOST_EXTENTS {
            return Ok(());
        }
        let what = format!("{} was written in too many pieces", self.path());
        Err(Failure::new(ErrorKind::Other, code::BAD_REQUEST, what)
            .hint("let it be written in longer stretches, or by more writers"))
    }

    async fn store_rest(&mut self) -> Result<(), Failure> {
        let open: Vec<u64> = self.rows.keys().copied().collect();
        for number in open {
            self.pack_row(number).await?;
        }
        Ok(())
    }

    /// Returns when donors have acknowledged all that was written, at the ack level of the policy. What fills no row costs
    /// one: flush seldom.
    ///
    /// Errors: what ended the writing.
    pub async fn flush(&mut self) -> Result<AckLevel, Failure> {
        self.claims.check()?;
        self.store_rest().await?;
        if !self.pack.is_empty() {
            self.pack.resize(self.unit as usize, 0); // rows behind it stay rows
            self.store_pack().await?;
        }
        self.writer.flush().await
    }

    /// Has done its part. The last that finishes makes the version of what all wrote.
    ///
    /// Errors: what ended the writing; [`code::CLAIMED`] where this writer was not heard for so long that others wrote its
    /// bytes; [`code::NOT_TOGETHER`] where no version can be made because a writer went away without finishing: what
    /// this one wrote is stored, and [`Pool::publish_shared`] makes a version without the other.
    pub async fn finish(mut self) -> Result<SharedOutcome, Failure> {
        self.store_rest().await?;
        self.store_pack().await?;
        self.claims.say_that_it_is_there().await?;
        let mut stored = std::mem::take(&mut self.stored);
        stored.sort_by_key(|(order, _)| *order);
        let extents = stored.into_iter().map(|(_, extent)| extent).collect();
        let index = Index { extents, size: self.size };
        self.writer.write(&index.encode()).await?;
        let (claims, place) = (&self.claims, &self.place);
        let finished = self.writer.finish().await;
        if let Err(failure) = finished {
            if failure.code != code::WRONG_VERSION {
                return Err(failure);
            }
            self.presence.end();
            // Others may wait for it.
            let _ = shared_version::leave(&self.client, place, claims.writer, false).await;
            return Err(claims.left_out());
        }
        self.presence.end();
        shared_version::leave(&self.client, place, claims.writer, true).await
    }

    /// Withdraws: nothing of what this writer wrote will be in the file, and the others go on without it.
    ///
    /// Errors: those of making a version, if all others have finished.
    pub async fn abort(mut self) -> Result<SharedOutcome, Failure> {
        self.presence.end();
        self.writer.abort();
        if let Some((mark, version)) = self.claims.mark.get() {
            let (path, only_if) = (mark.clone(), OnlyIf::Version(*version));
            let remove = Remove { path, recursive: false, forever: false, only_if };
            if let Err(failure) = self.client.call(&remove).await
                // It was left out, or what is there is of another who took its place.
                && !matches!(failure.code.as_str(), code::NO_ENTRY | code::WRONG_VERSION)
            {
                return Err(failure);
            }
        }
        shared_version::leave(&self.client, &self.place, self.claims.writer, false).await
    }
}
