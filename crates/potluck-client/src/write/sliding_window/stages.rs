//! The state of each stage of a write. Most of it is changed only in the file of the stage's name; other stages read
//! it, and add to it through methods and a few fields.

use crate::source::{Cutter, Facts, Items};
use crate::write::options::PutOptions;
use crate::write::pushes::{Finished, Push, Pushes};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::{Condition, FileCommit};
use potluck_wire::error::Failure;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};

/// The state of cutting: the files that are still to be cut, and the number of bytes that were.
pub(super) struct Cutting {
    /// The cutter; `None` while it is at work, or when its files are done.
    pub cutter: Option<Box<Cutter>>,
    pub under_way: bool,
    /// The files whose turn comes after those of the cutter.
    pub later: VecDeque<Items>,
    /// The number of the next file.
    pub next_file: Arc<AtomicU32>,
    /// The receiver of the writers' messages; `None` while a task waits for one, or when all writers are gone.
    pub from: Option<UnboundedReceiver<Push>>,
    pub listening: bool,
    /// The channel that tells writers whether they may bring more.
    pub tell: watch::Sender<bool>,
    /// The number of plaintext bytes that were cut so far. Chunks that are kept of another version are added when they
    /// are first sent.
    pub bytes: u64,
    /// True if local files may change while they are read.
    pub allow_changing: bool,
}

impl Cutting {
    /// Makes the stage with nothing cut yet of what comes from `pushes`.
    pub fn new(pushes: Pushes, options: &PutOptions) -> Self {
        let Pushes { from, tell, next_file, .. } = pushes;
        Self {
            cutter: None,
            under_way: false,
            later: VecDeque::new(),
            next_file,
            from: Some(from),
            listening: false,
            tell,
            bytes: 0,
            allow_changing: options.allow_changing,
        }
    }

    /// Returns whether all is cut, and nothing more will come.
    pub fn is_over(&self) -> bool {
        let cutting = self.under_way || self.cutter.is_some() || !self.later.is_empty();
        !cutting && !self.listening && self.from.is_none()
    }

    /// Returns whether writers are there that may bring more; they may wait until what they brought is stored.
    pub fn waits_for_writers(&self) -> bool {
        self.listening
    }
}

/// The chunks and groups that one offer asks about.
pub(super) struct Offer {
    pub names: Vec<ChunkName>,
    /// The groups all of whose chunks have been offered when this offer is answered.
    pub groups: Vec<u64>,
}

/// The state of offering: the chunks that were cut and not offered yet.
#[derive(Default)]
pub(super) struct Offering {
    pub names: Vec<ChunkName>,
    pub bytes: usize,
    pub under_way: bool,
    /// True if a writer waits for some of these chunks.
    pub is_awaited: bool,
    /// True once the user was told how much an interrupted upload had left.
    pub told_resumed: bool,
}

impl Offering {
    /// Adds the names of new chunks of a group of `bytes` bytes.
    pub fn add(&mut self, names: Vec<ChunkName>, bytes: usize) {
        self.names.extend(names);
        self.bytes += bytes;
    }

    /// Returns whether no chunk waits for an offer or for the answer to one.
    pub fn is_idle(&self) -> bool {
        self.names.is_empty() && !self.under_way
    }
}

/// The state of sending: the chunks on their way to donors.
#[derive(Default)]
pub(super) struct Sending {
    /// The copies that are being sent, by chunk and donor, each with the time at which sending began.
    pub under_way: BTreeMap<(ChunkName, DonorId), Tick>,
    /// True while a look for late chunks is scheduled.
    pub hedging: bool,
    /// The number of chunks that arrived damaged.
    pub mismatches: u32,
}

impl Sending {
    /// Returns whether no chunk is on its way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns the number of chunks on their way, each copy counted.
    pub fn chunks(&self) -> usize {
        self.under_way.len()
    }
}

/// The state of the session's requests for more room.
#[derive(Default)]
pub(super) struct Room {
    pub growing: bool,
    pub refused: Option<Failure>,
    /// True if a donor said that it has no lent space left, and no more room was granted since.
    pub donor_full: bool,
}

impl Room {
    /// Returns whether the manager is being asked for more room.
    pub fn is_growing(&self) -> bool {
        self.growing
    }

    /// Returns whether the manager refused more room.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Allows the session to ask for more room again.
    pub fn ask_again(&mut self) {
        self.refused = None;
    }
}

/// The state of committing: the files that are ready for a commit.
pub(super) struct Committing {
    pub condition: Condition,
    pub spare_content: bool,
    pub in_order: bool,
    pub soon: bool,
    pub ready: Vec<(FileCommit, Option<Finished>)>,
    /// The moment from which the files that are ready have waited for a commit.
    pub ready_since: Option<Tick>,
    pub ready_bytes: u64,
    /// The number of the next commit.
    pub batch: u32,
    pub under_way: bool,
    /// True if the last commit, made or under way, ends the session.
    pub finished: bool,
}

impl Committing {
    /// Makes the stage with no files yet.
    pub fn new(options: &PutOptions) -> Self {
        Self {
            condition: options.condition,
            spare_content: options.spare_content,
            in_order: options.in_order,
            soon: options.soon,
            ready: Vec::new(),
            ready_since: None,
            ready_bytes: 0,
            batch: 0,
            under_way: false,
            finished: false,
        }
    }

    /// Returns whether no file waits for a commit and no commit is under way.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && !self.under_way
    }

    /// Notes what is left of the ready files once some were taken for a commit. They count as ready since the first of
    /// all was, because an event is scheduled for the end of the time that this one waits, and none for a later one.
    pub fn note_left(&mut self) {
        self.ready_since = self.ready_since.filter(|_| !self.ready.is_empty());
        let sizes = self.ready.iter().map(|(file, _)| file.size);
        self.ready_bytes = sizes.fold(0, u64::saturating_add);
    }

    /// Returns whether any commit was begun.
    pub fn has_committed(&self) -> bool {
        self.batch > 0
    }

    /// Returns whether the last commit, made or under way, ends the session.
    pub fn is_finished(&self) -> bool {
        self.finished
    }
}

/// The place of a part: its file, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartOf {
    /// The number of the file in its session.
    pub file: u32,
    /// The number of the part, from 0.
    pub number: u32,
}

/// A file that is stored in parts.
#[derive(Default)]
pub(super) struct Whole {
    /// The part that is being cut, by its number among the window's files.
    pub filling: u32,
    /// The number of parts that were cut to their end, with those that are holes.
    pub count: u32,
    /// The plaintext bytes of their chunks.
    pub data: u64,
    /// The numbers of the parts that were cut and are not committed.
    pub uncommitted: BTreeSet<u32>,
    /// The plaintext bytes of chunks of its parts that the pool held already.
    pub held: u64,
    /// The facts about the file, once it is cut to its end.
    pub facts: Option<Facts>,
    /// True while the commit of the whole file is under way, or waits for its turn.
    pub is_ready: bool,
    pub flushed: Option<oneshot::Sender<()>>,
    pub finished: Option<Finished>,
}
