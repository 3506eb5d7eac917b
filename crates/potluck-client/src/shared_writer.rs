//! Writers of shared files, which several write at once, each other bytes (docs/notes/0016-shared-writers.md;
//! CEFT-PVFS, section 4).
//!
//! The bytes of a writer are stored as its *contribution*, a file that is staged out of sight. Whole chunks of the
//! shared file are whole chunks of the contribution, so that the version that is made of all contributions takes them
//! over by their names.

use crate::attributes::Attributes;
use crate::contribution::{Index, MOST_EXTENTS, WrittenExtent};
use crate::pool::Pool;
use crate::shared_version::{self, SharedPlace};
use crate::source::CutError;
use crate::write::options::PutOptions;
use crate::writer::{Writer, unit};
use potluck_core::byte_ranges::ByteRanges;
use potluck_core::ids::{SharedWriterId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Cutting};
use potluck_core::recipe::{LARGEST_FILE, PART_CHUNKS};
use potluck_wire::control::{
    CLAIM_LEASE, Condition, LONGEST_WRITER_NAME, OnlyIf, Remove, SharedClaim, SharedClaimed,
    SharedLeave,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// The most bytes of incomplete rows that a writer keeps in memory; two rows are kept even if they are larger.
const ROWS_MEMORY: usize = 32 << 20;
/// The number of bytes that are reserved for the index of a contribution whose size is known. It is more than the
/// largest file that lives in the catalog, for which no donors would be reserved.
const INDEX_ROOM: u64 = 64 << 10;
/// The number of times in a lease that a writer tells the manager that it is there; a writer that finishes waits until
/// the manager has heard another writer.
const SIGNS_OF_LIFE: u32 = 10;
/// The number of times that the sharing is renewed within the time for which a file stays shared unused.
const RENEWALS: u32 = 4;
/// The pause before a claim is tried again that the manager cannot grant yet.
const PAUSE: Duration = Duration::from_millis(200);

/// The outcome for a shared file when a writer has ended its part, or a version was to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedOutcome {
    /// The file has a new version of the contributions.
    Published,
    /// There is no new version by this call: the last of the other writers makes it, or has just made it, or
    /// [`Pool::publish_shared`] has to make it.
    Waiting,
    /// Nobody wrote anything since the last version.
    Nothing,
}

/// A writer of some bytes of a file that others write at the same time. Nothing is visible before all have finished.
///
/// A writer that is dropped before it has finished keeps the file from getting a version, until a writer of the same
/// name finishes in its place, or [`Pool::publish_shared`] leaves it out.
pub struct SharedWriter {
    client: Pool,
    place: SharedPlace,
    claims: Arc<Claims>,
    presence: Presence,
    writer: Writer,
    unit: u64,
    /// True if a part of the contribution may end within a row. The rest of that row waits in the memory of `writer`
    /// for the next one.
    is_row_split: bool,
    /// The rows of which only a part was written, by their numbers.
    rows: BTreeMap<u64, Row>,
    /// The buffer of a row that was stored, kept for the next row.
    spare: Vec<u8>,
    /// The bytes of parts of rows that are to be stored together as one row of the contribution.
    pack: Vec<u8>,
    /// The extents of `pack`, each with its number in the order of writing and its offset in `pack`.
    packed: Vec<(u64, WrittenExtent)>,
    /// The extents that are stored, each with its number in the order of writing.
    stored: Vec<(u64, WrittenExtent)>,
    /// A counter of writes to rows, and of what is stored and packed, that numbers extents in their order.
    order: u64,
    /// The least size of the file.
    size: u64,
}

/// The presence of a writer, of which the manager is told again and again, and also when it ends.
struct Presence {
    claims: Arc<Claims>,
    signs: JoinSet<()>,
    has_left: bool,
}

impl Presence {
    /// Ends the presence without telling the manager, because the writer itself says that it leaves.
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

/// A row of chunks of the file that is not written completely.
struct Row {
    bytes: Vec<u8>,
    written: ByteRanges<()>,
    /// The value of the writer's `order` when the row was last written to.
    touched: u64,
}

/// The ranges that a writer has claimed.
struct Claims {
    client: Pool,
    path: PoolPath,
    writer: SharedWriterId,
    name: String,
    /// The claimed ranges. The lock is held while the manager is told of more ranges or of all of them, so that it is
    /// never told that fewer are all.
    ranges: Mutex<ByteRanges<()>>,
    /// The path at which the mark of the writer is staged, and the version of the mark.
    mark: OnceLock<(PoolPath, VersionId)>,
    /// The failure for which the writer has lost its claims, if it has.
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

    /// Claims the range `more` at the manager, in addition to the ranges that are claimed already.
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
                            .hint("try again; `potluck write-shared ls` shows who writes"));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        ranges.add(more.clone(), ());
        Ok(())
    }

    /// Tells the manager that the writer is there, so that it keeps the claims.
    async fn say_that_it_is_there(&self) -> Result<(), Failure> {
        self.check()?;
        let said = self.client.call_retrying(&self.call(Vec::new())).await?;
        if said == SharedClaimed::Unknown {
            self.tell_all(&*self.ranges.lock().await).await?;
        }
        Ok(())
    }

    /// Tells a manager that does not know the writer all of its claims.
    async fn tell_all(&self, ranges: &ByteRanges<()>) -> Result<(), Failure> {
        // The manager may not know the writer because the file was removed, or shared anew.
        if let Some((path, version)) = self.mark.get() {
            match self.client.stat_unjudged(path).await {
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

    /// Removes the mark of the writer, if it has one, and leaves.
    async fn withdraw(&self, place: &SharedPlace) -> Result<SharedOutcome, Failure> {
        if let Some((mark, version)) = self.mark.get() {
            let (path, only_if) = (mark.clone(), OnlyIf::Version(*version));
            let remove = Remove { path, recursive: false, forever: false, only_if, soon: false };
            if let Err(failure) = self.client.call_retrying(&remove).await
                // This writer was left out, or the mark is that of a writer that took its place.
                && !matches!(failure.code.as_str(), code::NO_ENTRY | code::WRONG_VERSION)
            {
                return Err(failure);
            }
        }
        shared_version::leave(&self.client, place, self.writer, false).await
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

    /// Tells the manager again and again that the writer is there, and renews the sharing, until the task is ended.
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
    /// Makes a row in the buffer `bytes`, whose old content is kept: each page of fresh memory would cost a page fault.
    fn new(mut bytes: Vec<u8>, unit: u64) -> Self {
        bytes.resize(unit as usize, 0);
        Self { bytes, written: ByteRanges::default(), touched: 0 }
    }
}

impl SharedWriter {
    /// Makes a writer of the shared file at `path`, as [`Pool::shared_writer`] says.
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
        let bytes = options.bytes;
        let mut options = PutOptions { condition: Condition::IfEmpty, bytes: None, ..*options };
        options.policy.cut = Some(Cutting::Fixed); // so that its chunks are those of the file
        // The mark shows a client that makes a version that this writer has not finished, even if the manager was
        // restarted and does not know the writer.
        let mark = async { client.create(&staged, &options, attributes).await?.finish().await };
        let marker = mark.await.map_err(|failure| match failure.code.as_str() {
            code::EMPTY_INPUT => {
                let what = format!("the writer {name} of {path} has finished already");
                Failure::new(ErrorKind::Conflict, code::CLAIMED, what).hint("choose another name")
            }
            _ => failure,
        });
        let begun = match marker {
            Err(failure) => Err(failure),
            Ok(marker) => {
                // The condition keeps the contribution out of a file that was shared anew, and from replacing that of a
                // writer that took this one's place. The writer has a session of its own, so that the quota can refuse
                // this one file early.
                options.condition = Condition::IfVersion(marker);
                options.bytes = bytes.map(|bytes| bytes.saturating_add(INDEX_ROOM));
                let _ = claims.mark.set((staged.clone(), marker)); // this is the only place that sets it
                client.create(&staged, &options, attributes).await
            }
        };
        let writer = match begun {
            Ok(writer) => writer,
            Err(failure) => {
                // Nobody is to wait for this writer. It may be the last by now, and the version is its to make then.
                let _ = claims.withdraw(&place).await;
                return Err(failure);
            }
        };
        let policy = writer.policy()?;
        let unit = unit(&policy) as u64;
        let is_row_split = policy.ec.is_some_and(|ec| !PART_CHUNKS.is_multiple_of(ec.data()));
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
            is_row_split,
            rows: BTreeMap::new(),
            spare: Vec::new(),
            pack: Vec::new(),
            packed: Vec::new(),
            stored: Vec::new(),
            order: 0,
            size: 0,
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &PoolPath {
        &self.claims.path
    }

    /// Returns the name of this writer among those of the file.
    pub fn name(&self) -> &str {
        &self.claims.name
    }

    /// Returns the least size of the file in bytes: the end of what this writer wrote or the size of
    /// [`SharedWriter::extend`], whichever is larger.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Makes the file at least `size` bytes long. Bytes that nobody wrote are zeros.
    ///
    /// Errors: [`code::BAD_REQUEST`] for more than [`LARGEST_FILE`].
    pub fn extend(&mut self, size: u64) -> Result<(), Failure> {
        self.size = self.size.max(end(0, size)?);
        Ok(())
    }

    /// Claims a range before anything of it is written, so that writes there need no call to the manager.
    ///
    /// Errors: [`code::CLAIMED`] where another writer, which the message names, has claimed some of it, or where the
    /// making of a version takes too long; nothing is claimed then. [`code::BAD_REQUEST`] for a range beyond the
    /// largest file. [`code::NOT_TOGETHER`] where this writer was left out or replaced.
    pub async fn claim(&mut self, range: Range<u64>) -> Result<(), Failure> {
        end(range.start, range.end.saturating_sub(range.start))?;
        self.claims.claim(&range, false).await
    }

    /// Writes at `offset`. No other writer may write there until a version was made. Returns when the bytes are taken:
    /// complete rows of chunks are on their way to donors.
    ///
    /// Errors: those of [`SharedWriter::claim`], after which nothing is written and the writer may go on; the failure
    /// that ended the writing, such as one of kind [`ErrorKind::NoSpace`].
    pub async fn write_at(&mut self, offset: u64, mut bytes: &[u8]) -> Result<(), Failure> {
        let end = self.begin_write(offset, bytes.len() as u64).await?;
        let mut at = offset;
        while !bytes.is_empty() {
            let (row, skip) = (at / self.unit, (at % self.unit) as usize);
            let (now, later) = bytes.split_at(bytes.len().min(self.unit as usize - skip));
            match now.len() as u64 == self.unit {
                true => {
                    let from = self.begin_row(row);
                    self.writer.write(now).await?;
                    self.row_stored(row, from)?;
                }
                false => self.write_in_row(row, skip, now).await?,
            }
            (at, bytes) = (at + now.len() as u64, later);
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Writes a range of a local file at `offset`, as [`SharedWriter::write_at`] does. Whole rows of chunks that are
    /// stored as they are stay in the file until they are sent, so it must not be changed before the writer has
    /// finished.
    ///
    /// Errors: those of [`SharedWriter::write_at`], and [`code::LOCAL_IO`] where the file cannot be read, or is shorter
    /// than the range. Finishing fails where it was changed meanwhile.
    pub async fn write_file(
        &mut self,
        offset: u64,
        file: &Arc<fs::File>,
        range: Range<u64>,
    ) -> Result<(), Failure> {
        let end = self.begin_write(offset, range.end - range.start).await?;
        let (mut at, mut from) = (offset, range.start);
        while at < end {
            let (row, skip) = (at / self.unit, at % self.unit);
            let len = (end - at).min(self.unit - skip);
            if len == self.unit && !self.is_row_split {
                let stored = self.begin_row(row);
                self.writer.write_unit_of(file, from).await?;
                self.row_stored(row, stored)?;
            } else {
                let bytes = read_exact(&self.client, file, from, len as usize).await?;
                self.write_in_row(row, skip as usize, &bytes).await?;
            }
            (at, from) = (at + len, from + len);
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Claims a range that is to be written, if it is not claimed, and returns its end.
    async fn begin_write(&mut self, offset: u64, len: u64) -> Result<u64, Failure> {
        let end = end(offset, len)?;
        self.claims.check()?;
        let is_claimed = self.claims.ranges.lock().await.covers(&(offset..end));
        if !is_claimed {
            self.claims.claim(&(offset..end), false).await?;
        }
        Ok(end)
    }

    async fn write_in_row(
        &mut self,
        number: u64,
        skip: usize,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        self.order += 1;
        let row = self.rows.entry(number);
        let row = row.or_insert_with(|| Row::new(std::mem::take(&mut self.spare), self.unit));
        row.bytes[skip..skip + bytes.len()].copy_from_slice(bytes);
        row.written.add(skip as u64..(skip + bytes.len()) as u64, ());
        row.touched = self.order;
        if row.written.covers(&(0..self.unit)) {
            let row = self.rows.remove(&number).expect("it was just there");
            let from = self.begin_row(number);
            self.spare = self.writer.write_unit(row.bytes).await?;
            return self.row_stored(number, from);
        }
        let most = (ROWS_MEMORY / self.unit as usize).max(2);
        while self.rows.len() > most {
            let oldest = self.rows.iter().min_by_key(|(_, row)| row.touched);
            let oldest = oldest.map(|(number, _)| *number).expect("there are some");
            self.pack_row(oldest).await?;
        }
        Ok(())
    }

    /// Begins to store a whole row, which replaces parts of it that were written before; returns its offset in the
    /// contribution.
    fn begin_row(&mut self, number: u64) -> u64 {
        self.rows.remove(&number);
        self.order += 1;
        self.writer.written()
    }

    /// Notes that a whole row was stored, which the version takes over as it is.
    fn row_stored(&mut self, number: u64, from: u64) -> Result<(), Failure> {
        let row = WrittenExtent { at: number * self.unit, len: self.unit, from };
        let packed = self.packed.last().map_or(0, |(order, _)| *order);
        match self.stored.last_mut() {
            // Rows that adjoin are one extent, unless something that may lie over them was written in between.
            Some((order, last))
                if *order > packed && last.len.is_multiple_of(self.unit) && last.adjoins(&row) =>
            {
                (*order, last.len) = (self.order, last.len + row.len);
            }
            _ => self.stored.push((self.order, row)),
        }
        self.check_count()
    }

    /// Adds the written parts of a row to those of other rows, to be stored together.
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
        self.writer.write_owned(pack).await?;
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

    /// Waits until donors have acknowledged all that was written, and returns the ack level of the policy. Bytes that
    /// do not fill a row take a whole row of the contribution, so flush seldom.
    ///
    /// Errors: the failure that ended the writing.
    pub async fn flush(&mut self) -> Result<AckLevel, Failure> {
        self.claims.check()?;
        self.store_rest().await?;
        if !self.pack.is_empty() {
            self.pack.resize(self.unit as usize, 0); // so that later bytes begin with a row again
            self.store_pack().await?;
        }
        self.writer.flush().await
    }

    /// Finishes this writer's part. The last writer that finishes makes the version of all contributions.
    ///
    /// Errors: the failure that ended the writing; [`code::CLAIMED`] where this writer was not heard for so long that
    /// others claimed its bytes; [`code::NOT_TOGETHER`] where this writer was left out or replaced, or where no version
    /// can be made, for example because a writer went away without finishing. In the latter case the contribution of
    /// this writer is stored, and [`Pool::publish_shared`] makes a version without the other.
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
            // The others may wait for this writer to leave.
            let _ = shared_version::leave(&self.client, place, claims.writer, false).await;
            return Err(claims.left_out());
        }
        self.presence.end();
        shared_version::leave(&self.client, place, claims.writer, true).await
    }

    /// Withdraws this writer: nothing that it wrote will be in the file, and the other writers go on without it.
    ///
    /// Errors: those of the manager, and those of making a version if all other writers have finished.
    pub async fn abort(mut self) -> Result<SharedOutcome, Failure> {
        self.presence.end();
        self.writer.abort();
        self.claims.withdraw(&self.place).await
    }
}

/// Returns the end of `len` bytes from `offset` on.
///
/// Errors: [`code::BAD_REQUEST`] beyond the largest file.
fn end(offset: u64, len: u64) -> Result<u64, Failure> {
    let end = offset.checked_add(len).filter(|end| *end <= LARGEST_FILE);
    end.ok_or_else(|| Failure::bad_request("a file has at most 1 EiB"))
}

/// Reads exactly `len` bytes of a local file, from `from` on.
async fn read_exact(
    client: &Pool,
    file: &Arc<fs::File>,
    from: u64,
    len: usize,
) -> Result<Vec<u8>, Failure> {
    let file = Arc::clone(file);
    let read = move || {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, from).map(|()| bytes)
    };
    client.env.offload.run(read).await.map_err(|error| CutError::Read(error).failure())
}
