//! An open file: what the manager said of it once, and reads of any of its bytes from then on.

use crate::fetch::{Fetched, Fetcher};
use crate::pool::Pool;
use crate::recipe::Recipe;
use futures_util::stream::{FuturesOrdered, StreamExt};
use potluck_core::chunk::Digest;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::read_plan::Piece;
use potluck_wire::control::Open;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Chunks, or groups of them, of one file that are asked for at once; memory bounds them further.
pub(crate) const UNITS_AT_ONCE: usize = 64;

/// One version of a file. Cheap to clone, and for any number of threads: clones share what is known of the
/// file, the connections to its donors, and with all files of their pool handle the memory for what is read.
///
/// A file that is replaced or removed while it is open stays readable for as long as the pool keeps the
/// chunks of that version.
#[derive(Clone)]
pub struct File {
    inner: Arc<Inner>,
}

struct Inner {
    recipe: Recipe,
    fetcher: Fetcher,
}

impl File {
    pub(crate) fn new(recipe: Recipe, fetcher: Fetcher) -> Self {
        Self { inner: Arc::new(Inner { recipe, fetcher }) }
    }

    pub(crate) async fn open(client: &Pool, path: &PoolPath) -> Result<Self, Failure> {
        let open = Open { path: path.clone(), recursive: false, after: None };
        let mut opened = client.call(&open).await?;
        let file = opened.files.pop().ok_or_else(|| {
            let what = format!("{path} is a directory");
            Failure::new(ErrorKind::Usage, code::NOT_RECURSIVE, what)
                .hint("add -r to copy directories")
        })?;
        let recipe = Recipe::check(file, opened.space_key.as_ref())?;
        let (chunk, unit) = (recipe.largest_chunk(), recipe.largest_unit());
        let memory = client.memory_for_reading(chunk, unit, opened.donors.len());
        let fetcher = Fetcher::new(client, memory, opened.space_key);
        fetcher.learn(opened.donors);
        fetcher.reads_below(open.path);
        Ok(Self::new(recipe, fetcher))
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.inner.recipe.file.size
    }

    /// The digest of its content, the same for the same bytes however they are stored.
    pub fn digest(&self) -> Digest {
        self.inner.recipe.file.digest
    }

    /// Returns the number of the version that is read.
    pub fn version(&self) -> VersionId {
        self.inner.recipe.file.version
    }

    /// Returns when the file was modified, in milliseconds since 1970.
    pub fn mtime_ms(&self) -> i64 {
        self.inner.recipe.file.mtime_ms
    }

    /// Whether its owner may execute it.
    pub fn is_executable(&self) -> bool {
        self.inner.recipe.file.executable
    }

    /// How often another copy stood in for one that failed or was late, and chunks that were rebuilt from
    /// others of their group.
    pub fn failovers(&self) -> u64 {
        self.inner.fetcher.failovers()
    }

    /// The bytes from `offset` on, `len` of them or as many as the file has there. Only the 64 KiB segments
    /// that they are in are moved, and each is verified. The manager is not asked.
    ///
    /// Errors: [`ErrorKind::Retry`] when too many donors are out of reach, [`ErrorKind::Integrity`] when all
    /// that was reached is spoiled.
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let range = offset..offset.saturating_add(len as u64).min(self.size());
        if let [pieces] = &self.inner.recipe.units(range.clone())[..] {
            let fetched = self.unit(pieces).await?;
            let parts: Vec<&[u8]> =
                fetched.iter().zip(pieces).map(|(of, piece)| of.of(piece)).collect();
            return Ok(parts.concat());
        }
        let mut reader = self.read(range);
        let mut bytes = Vec::with_capacity(reader.left() as usize);
        while let Some(part) = reader.next().await {
            bytes.extend_from_slice(&part?);
        }
        Ok(bytes)
    }

    /// Reads a range in order, as far as the file has it, and reads ahead.
    pub fn read(&self, range: Range<u64>) -> Reader {
        let range = range.start.min(self.size())..range.end.min(self.size());
        let units: VecDeque<_> = match &self.inner.recipe.inline {
            Some(_) => VecDeque::new(),
            None => self.inner.recipe.units(range.clone()).into(),
        };
        let inline = self.inner.recipe.inline.is_some() && !range.is_empty();
        let inline = inline.then_some(range.start as usize..range.end as usize);
        let left = range.end.saturating_sub(range.start);
        Reader {
            file: self.clone(),
            inline,
            units,
            under_way: FuturesOrdered::new(),
            parts: VecDeque::new(),
            left,
        }
    }

    pub(crate) fn recipe(&self) -> &Recipe {
        &self.inner.recipe
    }

    /// Fetches the chunks of one unit of its recipe for whoever writes them away at once.
    pub(crate) async fn unit(&self, pieces: &[Piece]) -> Result<Vec<Fetched>, Failure> {
        let Inner { recipe, fetcher } = &*self.inner;
        let place = fetcher.memory.on_demand(fetcher.need(recipe, pieces)).await;
        fetcher.unit(recipe, pieces, place).await.map_err(|failure| self.named(failure))
    }

    /// The failure, with the name of a file that is one of many.
    fn named(&self, failure: Failure) -> Failure {
        let path = &self.inner.recipe.file.path;
        match path.is_empty() {
            true => failure,
            false => Failure { message: format!("“{path}”: {}", failure.message), ..failure },
        }
    }
}

/// The outcome of a unit: its pieces, and the bytes fetched for them.
type Unit = Result<(Vec<Piece>, Vec<Fetched>), Failure>;

/// A range of a file, read in order. What is read ahead keeps its place in the memory that all files of the
/// pool handle share until the reader is dropped.
pub struct Reader {
    file: File,
    /// The rest of a file that lives in the catalog.
    inline: Option<Range<usize>>,
    /// Units that were not asked for yet.
    units: VecDeque<Vec<Piece>>,
    under_way: FuturesOrdered<BoxFuture<'static, Unit>>,
    parts: VecDeque<Part>,
    left: u64,
}

impl Reader {
    /// Bytes of the range that [`Reader::next`] has not given yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes of the range, as many as came together; `None` at its end. Drop them before the next
    /// are asked for, for their memory is part of what all reads share. A call that is given up loses nothing.
    ///
    /// After an error the range cannot be read on.
    pub async fn next(&mut self) -> Option<Result<Part, Failure>> {
        if let Some(range) = self.inline.take() {
            return Some(Ok(self.gives(Part(Bytes::Inline(self.file.clone(), range)))));
        }
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Some(Ok(self.gives(part)));
            }
            self.ask_ahead();
            if self.under_way.is_empty() {
                let inner = self.file.inner.clone();
                let need = inner.fetcher.need(&inner.recipe, self.units.front()?);
                let place = inner.fetcher.memory.on_demand(need).await;
                self.ask(place);
            }
            match self.under_way.next().await? {
                Ok((pieces, fetched)) => {
                    let parts = pieces.into_iter().zip(fetched);
                    self.parts
                        .extend(parts.map(|(piece, fetched)| Part(Bytes::Chunk(fetched, piece))));
                }
                Err(failure) => {
                    self.units.clear();
                    self.under_way.clear();
                    return Some(Err(self.file.named(failure)));
                }
            }
        }
    }

    fn gives(&mut self, part: Part) -> Part {
        self.left -= part.len() as u64;
        part
    }

    /// Asks for as much as there is memory for now.
    fn ask_ahead(&mut self) {
        let inner = self.file.inner.clone();
        while self.under_way.len() < UNITS_AT_ONCE {
            let Some(pieces) = self.units.front() else { break };
            let need = inner.fetcher.need(&inner.recipe, pieces);
            let Some(place) = inner.fetcher.memory.try_ahead(need) else { break };
            self.ask(place);
        }
    }

    /// Asks for the next unit, whose bytes have a `place` in the memory.
    fn ask(&mut self, place: tokio::sync::OwnedSemaphorePermit) {
        let Some(pieces) = self.units.pop_front() else { return };
        let inner = self.file.inner.clone();
        // A task of its own: a reader that is not asked for a while keeps no donor's answer waiting, on
        // which other reads of the file would wait in turn. It ends with the reader.
        let mut task = JoinSet::new();
        task.spawn(async move {
            let fetched = inner.fetcher.unit(&inner.recipe, &pieces, place).await?;
            Ok((pieces, fetched))
        });
        self.under_way.push_back(Box::pin(async move {
            match task.join_next().await.expect("one was begun") {
                Ok(unit) => unit,
                Err(why) => std::panic::resume_unwind(why.into_panic()),
            }
        }));
    }
}

/// Verified bytes of a file.
pub struct Part(Bytes);

enum Bytes {
    Inline(File, Range<usize>),
    Chunk(Fetched, Piece),
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline(file, range) => {
                let content = file.inner.recipe.inline.as_deref().unwrap_or_default();
                content.get(range.clone()).unwrap_or_default()
            }
            Bytes::Chunk(fetched, piece) => fetched.of(piece),
        }
    }
}
