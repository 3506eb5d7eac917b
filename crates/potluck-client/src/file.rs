//! An open file: the facts that the manager told of it when it was opened, and reads of any of its bytes from then on.

use crate::fetch::{Fetched, Fetcher};
use crate::leases::Lease;
use crate::parts::OpenedParts;
use crate::pool::Pool;
use crate::recipe::{self, Recipe};
use crate::stored_rows::KeptRow;
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::Digest;
use potluck_core::erasure::Ec;
use potluck_core::file_metadata::FileMetadata;
use potluck_core::ids::VersionId;
use potluck_core::merkle::SEGMENT;
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_core::read_plan::Piece;
use potluck_core::recipe::part_bytes;
use potluck_core::seal::{SpaceKey, SpaceKeys};
use potluck_wire::control::{Open, OpenFile};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, Range};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The most units of one file, each a chunk or a group, that are asked for at once; memory bounds them further.
pub(crate) const UNITS_AT_ONCE: usize = 64;

/// The zeros of holes, which a reader gives this many at a time.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// One version of a file. It is cheap to clone, and any number of threads can use it: clones share the facts about the
/// file, the connections to its donors, and with all files of their pool handle the memory for reading.
///
/// A file that is replaced or removed while it is open stays readable for as long as the pool keeps the chunks of that
/// version: for the manager's GC delay, or with [`Pool::open_leased`] as long as it is open.
#[derive(Clone)]
pub struct File {
    inner: Arc<Inner>,
    /// True if several writers shared the file when it was opened.
    is_shared: bool,
}

struct Inner {
    about: About,
    content: Content,
    fetcher: Fetcher,
    /// Permits for reading rows that another version keeps.
    turns: Arc<Semaphore>,
    /// The lease that has the pool keep the version, if it was opened under one.
    _lease: Option<Lease>,
}

/// The facts about a file.
struct About {
    path: String,
    size: u64,
    /// The bytes of the file that are in holes.
    holes: u64,
    digest: Digest,
    version: VersionId,
    attributes: EntryAttributes,
    metadata: FileMetadata,
    /// The size of each chunk but the last, in bytes.
    chunk_size: u32,
    ec: Option<Ec>,
}

/// The content of a file, or the recipes by which it is found.
enum Content {
    /// The recipe of the whole file, which has its content itself if that lives in the catalog.
    Own(Arc<Recipe>),
    /// The parts of the file, each of which is opened when it is read.
    Parts(Box<OpenedParts>),
    /// The parts of a file that is not visible yet, by their numbers, each but the last of `row` bytes. Those that are
    /// not there are holes.
    Unpublished { parts: BTreeMap<u64, Arc<Recipe>>, row: u64 },
}

impl File {
    /// Makes a file of `size` bytes that is not visible yet, of these `parts` of whole chunks, by their numbers. Its digest
    /// is that of no bytes.
    pub(crate) fn unpublished(
        path: &PoolPath,
        size: u64,
        parts: BTreeMap<u64, Arc<Recipe>>,
        policy: &Policy,
        fetcher: Fetcher,
    ) -> Self {
        let about = About {
            path: path.to_string(),
            size,
            holes: parts.values().fold(size, |left, part| left.saturating_sub(part.file.data())),
            digest: Digest::of(b""),
            version: VersionId(0),
            attributes: EntryAttributes::default(),
            metadata: FileMetadata::default(),
            chunk_size: policy.chunk_size,
            ec: policy.ec,
        };
        let row = part_bytes(policy.chunk_size, policy.is_cut_by_content());
        let (content, turns) = (Content::Unpublished { parts, row }, KeptRow::turns());
        let inner = Arc::new(Inner { about, content, fetcher, turns, _lease: None });
        Self { inner, is_shared: false }
    }

    /// Makes an open file of the `file` that the manager found at or below `root`.
    ///
    /// Errors: [`ErrorKind::Integrity`] where its recipe is not that of its digest.
    pub(crate) fn new(
        client: &Pool,
        root: &PoolPath,
        file: OpenFile,
        keys: &SpaceKeys,
        fetcher: Fetcher,
        lease: Option<Lease>,
    ) -> Result<Self, Failure> {
        let OpenFile { size, holes, digest, version, mtime, chunk_size, ec, .. } = file;
        let OpenFile { permissions, owner, changed, accessed, .. } = file;
        let attributes = EntryAttributes { mtime, permissions, owner, changed, accessed };
        let path = file.path.clone();
        let metadata = file.metadata.clone().unwrap_or_default();
        let about =
            About { path, size, holes, digest, version, attributes, metadata, chunk_size, ec };
        let content = if file.part_count == 0 {
            let key = recipe::key_of(keys, &file)?;
            Content::Own(Arc::new(Recipe::check(file, key)?))
        } else {
            let names = file.path.split('/').filter(|name| !name.is_empty());
            let path = root.join_all(names);
            let path = path.map_err(|why| {
                Failure::new(ErrorKind::Integrity, code::BAD_PATH, why.to_string())
                    .hint("the manager sent a name that no file can have")
            })?;
            Content::Parts(Box::new(OpenedParts::check(client, path, &file)?))
        };
        let turns = KeptRow::turns();
        let inner = Arc::new(Inner { about, content, fetcher, turns, _lease: lease });
        Ok(Self { inner, is_shared: false })
    }

    /// Opens the file at `path`, under a lease if it is to be `leased`.
    pub(crate) async fn open(
        client: &Pool,
        path: &PoolPath,
        leased: bool,
    ) -> Result<Self, Failure> {
        let open = Open { path: path.clone(), recursive: false, after: None, leased };
        let mut opened = client.call(&open).await?;
        let file = opened.files.pop().ok_or_else(|| {
            let what = format!("{path} is a directory");
            Failure::new(ErrorKind::Usage, code::NOT_RECURSIVE, what)
                .hint("add -r to copy directories")
        })?;
        let (chunk, unit) = recipe::largest(&file);
        let memory = client.memory_for_reading(chunk, unit, opened.donors.len());
        let fetcher = Fetcher::new(client, memory);
        fetcher.learn(opened.donors);
        fetcher.reads_below(open.path);
        let keep = || {
            let donors = Arc::new(fetcher.donors.clone());
            client.leases.keep(&client.caller, &client.traffic, path.space(), file.version, donors)
        };
        let lease = leased.then(keep);
        let is_shared = opened.is_shared;
        Ok(Self { is_shared, ..Self::new(client, path, file, &opened.space_keys, fetcher, lease)? })
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.inner.about.size
    }

    /// Returns the number of bytes of the file that are in no hole.
    pub fn data(&self) -> u64 {
        self.size().saturating_sub(self.inner.about.holes)
    }

    /// Returns the digest of the content, which is the same for the same bytes however they are stored.
    pub fn digest(&self) -> Digest {
        self.inner.about.digest
    }

    /// Returns whether several writers shared the file when it was opened ([`Pool::shared_writer`]).
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the number of the version that is read.
    pub fn version(&self) -> VersionId {
        self.inner.about.version
    }

    /// Returns the modification time, the permissions and the owner that the file had when it was opened.
    pub fn attributes(&self) -> EntryAttributes {
        self.inner.about.attributes
    }

    /// Returns what the file's writer noted of it for other programs.
    pub fn metadata(&self) -> &FileMetadata {
        &self.inner.about.metadata
    }

    /// Returns how often another copy stood in for one that failed or was late, plus the number of chunks that were
    /// rebuilt from others of their group.
    pub fn failovers(&self) -> u64 {
        self.inner.fetcher.failovers()
    }

    /// Reads `len` bytes from `offset` on, or as many as the file has there. While all donors are well, only the 64 KiB
    /// segments that they are in are moved; each is verified. The manager is asked only for a part of the file that was
    /// not opened yet, for new tickets, and when donors fail.
    ///
    /// Errors: [`ErrorKind::Retry`] when too many donors are out of reach, [`ErrorKind::Integrity`] when all copies
    /// that were tried are spoiled or a rebuilt chunk is wrong.
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; (self.size().saturating_sub(offset)).min(len as u64) as usize];
        let read = self.read_into(offset, &mut bytes).await?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Reads from `offset` on until `into` is full or the file ends, as [`File::read_at`] does, and returns the number of
    /// bytes.
    ///
    /// Errors: those of [`File::read_at`]; some of the bytes may be in `into` then.
    pub async fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<usize, Failure> {
        let range = offset..offset.saturating_add(into.len() as u64).min(self.size());
        if range.is_empty() {
            return Ok(0);
        }
        let len = range.end - range.start;
        let taken =
            |pieces: &[Piece]| pieces.iter().map(|piece| u64::from(piece.take)).sum::<u64>();
        let mut filled = 0;
        let mut fill = |bytes: &[u8]| {
            into[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        };
        if let Some(stretch) = self.stretch(range.clone()).await?
            && let [pieces] = &stretch.units[..]
            && taken(pieces) == len
        {
            let fetched = self.unit(&stretch.recipe, pieces).await?;
            fetched.iter().zip(pieces).for_each(|(of, piece)| fill(of.of(piece)));
        } else {
            let mut reader = self.read(range);
            while let Some(part) = reader.next().await {
                fill(&part?);
            }
        }
        Ok(filled)
    }

    /// Returns a reader that gives the bytes of a range in order, and reads ahead. A range is cut off at the end of
    /// the file.
    pub fn read(&self, range: Range<u64>) -> Reader {
        let range = range.start.min(self.size())..range.end.min(self.size());
        let inline = self.inline().is_some() && !range.is_empty();
        let inline = inline.then_some(range.start as usize..range.end as usize);
        Reader {
            file: self.clone(),
            left: range.start..range.end.max(range.start),
            rest: if inline.is_some() { 0..0 } else { range },
            inline,
            units: VecDeque::new(),
            under_way: 0,
            parts: VecDeque::new(),
        }
    }

    /// Returns the first bytes from `at` on that are no hole, as many as are known to follow one another; `None` where
    /// only a hole follows.
    ///
    /// Errors: those of opening a part of the file.
    pub async fn data_from(&self, mut at: u64) -> Result<Option<Range<u64>>, Failure> {
        if at >= self.size() {
            return Ok(None);
        }
        match &self.inner.content {
            Content::Own(recipe) if recipe.inline.is_some() => Ok(Some(at..self.size())),
            Content::Own(recipe) => Ok(recipe.data_from(at)),
            Content::Parts(_) | Content::Unpublished { .. } => {
                while at < self.size() {
                    let Some(part) = self.part_at(at).await? else { break };
                    if let Some(data) = part.recipe.data_from(at.saturating_sub(part.at)) {
                        return Ok(Some(part.at + data.start..part.at + data.end));
                    }
                    at = part.at + part.recipe.file.size;
                }
                Ok(None)
            }
        }
    }

    /// Returns how many bytes of a hole a range begins with.
    pub(crate) async fn hole_in(&self, range: &Range<u64>) -> Result<u64, Failure> {
        let data = self.data_from(range.start).await?;
        Ok(data.map_or(range.end, |data| data.start.min(range.end)) - range.start)
    }

    /// Returns whether a file that is cut by `policy` has the same chunks as this one where it has the same bytes and the
    /// same key, and a digest that follows from those of its chunks.
    pub(crate) fn is_cut_by(&self, policy: &Policy) -> bool {
        let About { chunk_size, ec, .. } = self.inner.about;
        let is_subtree =
            chunk_size.is_multiple_of(SEGMENT) && (chunk_size / SEGMENT).is_power_of_two();
        let is_same =
            chunk_size == policy.chunk_size && ec == policy.ec && !policy.is_cut_by_content();
        is_subtree && is_same
    }

    /// Returns the row of whole chunks, sealed with `key` if there is one, that begins at `at`; `None` where no row
    /// begins there, only a last, short one, or one that is sealed with another key.
    pub(crate) async fn row_at(
        &self,
        at: u64,
        key: Option<&SpaceKey>,
    ) -> Result<Option<Arc<KeptRow>>, Failure> {
        let About { chunk_size, ec, .. } = self.inner.about;
        let count = ec.map_or(1, Ec::data);
        let end = at.saturating_add(u64::from(chunk_size) * count as u64);
        if end > self.size() {
            return Ok(None);
        }
        let Some(Stretch { recipe, units, rest, .. }) = self.stretch(at..end).await? else {
            return Ok(None);
        };
        let [pieces] = &units[..] else { return Ok(None) };
        if recipe.key.as_ref() != key {
            return Ok(None);
        }
        let first = pieces[0].index;
        let row = first..first + pieces.len();
        let is_whole = |piece: &Piece| piece.skip == 0 && piece.take == chunk_size;
        let is_row = pieces.len() == count && first.is_multiple_of(count);
        if !rest.is_empty() || !is_row || !pieces.iter().all(is_whole) {
            return Ok(None);
        }
        let rows = self.inner.fetcher.rows_of(recipe);
        Ok(Some(Arc::new(KeptRow::new(rows, row, Arc::clone(&self.inner.turns)))))
    }

    /// Returns the content of a file that lives in the catalog; `None` for other files.
    pub(crate) fn inline(&self) -> Option<&[u8]> {
        match &self.inner.content {
            Content::Own(recipe) => recipe.inline.as_deref(),
            Content::Parts(_) | Content::Unpublished { .. } => None,
        }
    }

    /// Returns the chunks of a range that are in the first part of the file that has some, and the range that follows that
    /// part. Bytes of the range that no chunk has are zeros; `None` where all are.
    pub(crate) async fn stretch(&self, range: Range<u64>) -> Result<Option<Stretch>, Failure> {
        let part = self.part_at(range.start).await?;
        Ok(part.filter(|part| part.at < range.end).map(|OpenedPart { recipe, at }| {
            let end = range.end.min(at + recipe.file.size);
            let units = recipe.units(range.start.max(at) - at..end - at);
            Stretch { recipe, at, units, rest: end..range.end }
        }))
    }

    /// Returns the first part from `at` on that is not a hole. A file that is not in parts is its only part.
    async fn part_at(&self, at: u64) -> Result<Option<OpenedPart>, Failure> {
        match &self.inner.content {
            Content::Own(recipe) => Ok(Some(OpenedPart { recipe: Arc::clone(recipe), at: 0 })),
            Content::Parts(parts) => {
                let Some((number, at)) = parts.stored_from(at) else { return Ok(None) };
                let opened = parts.open(number, &self.inner.fetcher).await;
                let recipe = opened.map_err(|failure| self.named(failure))?;
                Ok(Some(OpenedPart { recipe, at }))
            }
            Content::Unpublished { parts, row } => {
                let part = |(number, recipe): (&u64, &Arc<Recipe>)| OpenedPart {
                    recipe: Arc::clone(recipe),
                    at: number * row,
                };
                Ok(parts.range(at / row..).next().map(part))
            }
        }
    }

    /// Fetches the chunks of one unit of a recipe for a caller that waits for them.
    pub(crate) async fn unit(
        &self,
        recipe: &Recipe,
        pieces: &[Piece],
    ) -> Result<Vec<Fetched>, Failure> {
        let fetcher = &self.inner.fetcher;
        let place = fetcher.memory.on_demand(fetcher.need(recipe, pieces)).await;
        fetcher.unit(recipe, pieces, place).await.map_err(|failure| self.named(failure))
    }

    /// Adds the path of a file that is one of many to a failure.
    fn named(&self, failure: Failure) -> Failure {
        let path = &self.inner.about.path;
        match path.is_empty() {
            true => failure,
            false => Failure { message: format!("“{path}”: {}", failure.message), ..failure },
        }
    }
}

/// A part of a file that is in parts, or all of it.
struct OpenedPart {
    recipe: Arc<Recipe>,
    /// The offset in the file at which the part begins.
    at: u64,
}

/// The chunks of a range of a file that are in one part of it.
pub(crate) struct Stretch {
    /// The recipe of the file, or of a part of it.
    pub recipe: Arc<Recipe>,
    /// The offset in the file to which the positions of the pieces are relative.
    pub at: u64,
    /// The pieces that are not zeros, grouped by the units that are fetched together.
    pub units: Vec<Vec<Piece>>,
    /// The range that follows.
    pub rest: Range<u64>,
}

/// The outcome of a unit: its pieces, each with its offset in the file, and the bytes fetched for them.
type Unit = (Vec<(u64, Piece)>, Result<Vec<Fetched>, Failure>);

/// A part of a range that cannot be read now.
pub struct Unreadable {
    /// The number of bytes that cannot be read now.
    pub bytes: u64,
    pub failure: Failure,
}

/// A unit that a reader is going to give.
enum Ahead {
    /// The unit was not asked for yet.
    Due(UnitRequest),
    /// The unit is fetched in a task of its own, which ends with the reader: otherwise a reader that is not asked for a
    /// while would keep a donor's answer waiting, and other reads of the file behind it.
    Asked(JoinSet<Unit>),
}

/// A unit that was not asked for yet.
struct UnitRequest {
    recipe: Arc<Recipe>,
    /// The offset in the file to which the positions of the pieces are relative.
    at: u64,
    pieces: Vec<Piece>,
}

/// A reader of a range of a file, in order. Bytes that are read ahead keep their place in the memory that all files of
/// the pool handle share, until they are given out and dropped or the reader is dropped.
pub struct Reader {
    file: File,
    /// The range to give of a file whose content is in the catalog; `None` once it was given, and for other files.
    inline: Option<Range<usize>>,
    /// The range whose units have not been looked up yet.
    rest: Range<u64>,
    /// The units that follow, in order.
    units: VecDeque<Ahead>,
    /// How many of them were asked for.
    under_way: usize,
    /// What was fetched, or could not be, and the offset in the file where it begins. Before it there may be zeros.
    parts: VecDeque<(u64, Result<Bytes, Unreadable>)>,
    /// The range that was not given yet.
    left: Range<u64>,
}

impl Reader {
    /// Returns how many bytes of the range [`Reader::next`] has not given yet.
    pub fn left(&self) -> u64 {
        self.left.end - self.left.start
    }

    /// Returns the next bytes of the range, as far as they came in one piece; `None` at its end. Drop them before the
    /// next are asked for: they take memory that all reads share. A call that is given up loses nothing.
    ///
    /// After an error the range cannot be read on.
    pub async fn next(&mut self) -> Option<Result<Part, Failure>> {
        let next = self.next_or_unreadable().await?;
        Some(next.map_err(|unreadable| self.fail(unreadable.failure)))
    }

    /// Returns the next bytes of the range if they came together with those that were returned last, without waiting.
    pub fn at_hand(&mut self) -> Option<Part> {
        self.parts.front().filter(|(at, what)| *at == self.left.start && what.is_ok())?;
        let bytes = self.parts.pop_front()?.1.ok()?;
        Some(self.gives(bytes))
    }

    /// Returns the next bytes as [`Reader::next`] does, or how many of them cannot be read; the reader goes on behind
    /// those.
    pub(crate) async fn next_or_unreadable(&mut self) -> Option<Result<Part, Unreadable>> {
        if let Some(range) = self.inline.take() {
            return Some(Ok(self.gives(Bytes::Inline(self.file.clone(), range))));
        }
        loop {
            if let Some((at, _)) = self.parts.front() {
                if *at > self.left.start {
                    return Some(Ok(self.zeros(*at)));
                }
                return Some(match self.parts.pop_front()?.1 {
                    Ok(bytes) => Ok(self.gives(bytes)),
                    Err(unreadable) => {
                        self.left.start += unreadable.bytes;
                        Err(unreadable)
                    }
                });
            }
            if self.units.len() < UNITS_AT_ONCE
                && let Err(failure) = self.look_ahead().await
            {
                let failure = self.fail(failure);
                let bytes = self.left();
                self.left.start = self.left.end;
                return Some(Err(Unreadable { bytes, failure }));
            }
            self.ask_ahead();
            let fetcher = &self.file.inner.fetcher;
            let unit = match self.units.front_mut() {
                None => return (self.left() > 0).then(|| Ok(self.zeros(self.left.end))),
                Some(Ahead::Due(UnitRequest { recipe, pieces, .. })) => {
                    let place = fetcher.memory.on_demand(fetcher.need(recipe, pieces)).await;
                    self.ask(0, place);
                    continue;
                }
                Some(Ahead::Asked(task)) => task.join_next().await.expect("one was begun"),
            };
            self.units.pop_front();
            self.under_way -= 1;
            match unit.unwrap_or_else(|why| std::panic::resume_unwind(why.into_panic())) {
                (pieces, Ok(fetched)) => {
                    let parts = pieces.into_iter().zip(fetched);
                    self.parts.extend(
                        parts.map(|((at, piece), fetched)| (at, Ok(Bytes::Chunk(fetched, piece)))),
                    );
                }
                (pieces, Err(failure)) => {
                    let (Some((at, _)), Some((last, piece))) = (pieces.first(), pieces.last())
                    else {
                        continue;
                    };
                    let bytes = last + u64::from(piece.take) - at;
                    let failure = self.file.named(failure);
                    self.parts.push_back((*at, Err(Unreadable { bytes, failure })));
                }
            }
        }
    }

    /// Looks up the units that follow, if there are any.
    async fn look_ahead(&mut self) -> Result<(), Failure> {
        while !self.rest.is_empty() {
            let Some(stretch) = self.file.stretch(self.rest.clone()).await? else {
                self.rest = 0..0;
                break;
            };
            let Stretch { recipe, at, units, rest } = stretch;
            let unit = |pieces| UnitRequest { recipe: Arc::clone(&recipe), at, pieces };
            self.units.extend(units.into_iter().map(unit).map(Ahead::Due));
            self.rest = rest;
            if !self.units.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Ends the reading after a failure, and returns that failure.
    fn fail(&mut self, failure: Failure) -> Failure {
        self.rest = 0..0;
        self.units.clear();
        self.under_way = 0;
        self.parts.clear();
        self.left.end = self.left.start;
        failure
    }

    fn gives(&mut self, bytes: Bytes) -> Part {
        let part = Part(bytes);
        self.left.start += part.len() as u64;
        part
    }

    /// Gives zeros of a hole that ends at `end`.
    fn zeros(&mut self, end: u64) -> Part {
        let len = ((end - self.left.start) as usize).min(ZEROS.len());
        self.gives(Bytes::Zeros(len))
    }

    /// Asks for further units, as many as there is memory for now: always the one that has least time to spare until the
    /// reader comes to it. A slow donor is thus asked for its chunks while those before them come from others.
    fn ask_ahead(&mut self) {
        while self.under_way < UNITS_AT_ONCE {
            let fetcher = &self.file.inner.fetcher;
            let due = self.units.iter().enumerate().take(UNITS_AT_ONCE);
            let due = due.filter_map(|(number, unit)| match unit {
                Ahead::Due(unit) => Some((number, unit)),
                Ahead::Asked(_) => None,
            });
            let ahead = |unit: &UnitRequest| unit.at + unit.pieces[0].at - self.left.start;
            let Some(number) = fetcher.most_urgent(
                due.map(|(number, unit)| (number, &*unit.recipe, &unit.pieces[..], ahead(unit))),
            ) else {
                break;
            };
            let Ahead::Due(UnitRequest { recipe, pieces, .. }) = &self.units[number] else {
                break;
            };
            let Some(place) = fetcher.memory.try_ahead(fetcher.need(recipe, pieces)) else { break };
            self.ask(number, place);
        }
    }

    /// Asks for the unit at a place in the row, whose bytes are covered by the permit `place` of the memory.
    fn ask(&mut self, number: usize, place: tokio::sync::OwnedSemaphorePermit) {
        let mut task = JoinSet::new();
        let asked = std::mem::replace(&mut self.units[number], Ahead::Asked(JoinSet::new()));
        let Ahead::Due(UnitRequest { recipe, at, pieces }) = asked else { return };
        let inner = self.file.inner.clone();
        task.spawn(async move {
            let fetched = inner.fetcher.unit(&recipe, &pieces, place).await;
            (pieces.into_iter().map(|piece| (at + piece.at, piece)).collect(), fetched)
        });
        self.units[number] = Ahead::Asked(task);
        self.under_way += 1;
    }
}

/// A part of a file's bytes, which are verified.
pub struct Part(Bytes);

enum Bytes {
    Inline(File, Range<usize>),
    Chunk(Fetched, Piece),
    /// This many zeros are of a hole.
    Zeros(usize),
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline(file, range) => {
                let content = file.inline().unwrap_or_default();
                content.get(range.clone()).unwrap_or_default()
            }
            Bytes::Chunk(fetched, piece) => fetched.of(piece),
            Bytes::Zeros(len) => &ZEROS[..*len],
        }
    }
}
