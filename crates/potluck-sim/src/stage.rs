//! The state that the driver of a run and the simulated hosts share.

use crate::cast::Who;
use crate::health::Health;
use crate::history::History;
use crate::history::WriteId;
use crate::host::Invitations;
use crate::plan::{Op, Step};
use crate::trace::Trace;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_wire::control::PoolStatus;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The stage of one run. Clones are the same stage.
#[derive(Clone, Default)]
pub struct Stage {
    /// The record of everything that happened.
    pub trace: Trace,
    /// Tokens for those who have not joined.
    pub invitations: Invitations,
    board: Arc<Mutex<Board>>,
}

/// The state that changes during a run.
#[derive(Default)]
pub struct Board {
    /// The time at which the clients' scripts begin.
    pub curtain: Option<Duration>,
    /// The steps still to be done, by client.
    pub scripts: Vec<VecDeque<Step>>,
    /// The action that each client is at.
    pub busy: BTreeMap<Who, Busy>,
    /// The reference model: all writes, and what readers may see of them.
    pub history: History,
    /// The faults of the moment, by which it is known who can reach whom.
    pub health: Health,
    /// Chunks of the files as they were last opened, by everybody and at rest.
    pub needed: BTreeSet<ChunkName>,
    /// Chunks of those files by group of an erasure code: its data and its parity.
    pub groups: BTreeSet<Vec<ChunkName>>,
    /// Whether the admin is to have every disk read back.
    pub healing: bool,
    /// Rounds that donors had read back when they were asked to.
    pub scrubbed: Option<BTreeMap<DonorId, u64>>,
    /// The pool as the admin last saw it.
    pub status: Option<PoolStatus>,
    /// Donors of which it ever told bad copies.
    pub named: BTreeSet<String>,
    /// Whether donors whose reads lie must be named before they stop.
    pub name_liars: bool,
    /// The promises that were found broken.
    pub broken: Vec<String>,
}

/// Something a client is doing.
#[derive(Debug, Clone)]
pub struct Busy {
    /// The action, in words.
    pub op: String,
    /// The time at which it began.
    pub since: Duration,
    /// How long it may take.
    pub most: Duration,
    /// The writes it may or may not bring about.
    pub writes: Vec<WriteId>,
}

impl Stage {
    /// A look at the board; not across an await.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().expect("no holder panics")
    }

    /// A promise was broken: the run will end.
    pub fn broken(&self, promise: &str, how: impl std::fmt::Display) {
        let text = format!("{promise} is broken: {how}");
        self.trace.say("promise", &text);
        self.board().broken.push(text);
    }

    /// The next step of a client, if it is time for one.
    pub fn next_step(&self, client: u8) -> Option<Op> {
        let now = self.trace.now();
        let mut board = self.board();
        let begun = board.curtain?;
        let script = board.scripts.get_mut(usize::from(client))?;
        let due = script.front().is_some_and(|step| begun + step.at <= now);
        if due { script.pop_front().map(|step| step.op) } else { None }
    }
}
