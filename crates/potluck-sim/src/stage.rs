//! The state that the driver of a run shares with the simulated hosts.

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

/// The shared state of one run. Clones share it.
#[derive(Clone, Default)]
pub struct Stage {
    /// The record of everything that happened.
    pub trace: Trace,
    /// The tokens for machines that have not joined.
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
    /// The action that each client is performing.
    pub busy: BTreeMap<Who, Busy>,
    /// The reference model: all writes, and what readers may see of them.
    pub history: History,
    /// The faults of the moment, which decide what must work.
    pub health: Health,
    /// The chunks of all files, as [`Op::Recipe`] found them.
    pub needed: BTreeSet<ChunkName>,
    /// The groups of erasure-coded files among them, each with its data and its parity chunks.
    pub groups: BTreeSet<Vec<ChunkName>>,
    /// Whether the admin is to trust quarantined donors again and order a scrub of every disk.
    pub healing: bool,
    /// The number of rounds that each donor had scrubbed when the scrub was ordered; `None` before that.
    pub scrubbed: Option<BTreeMap<DonorId, u64>>,
    /// The pool's status as the admin last saw it; `None` while the manager does not answer.
    pub status: Option<PoolStatus>,
    /// The names of donors for which a status ever showed bad copies.
    pub named: BTreeSet<String>,
    /// Whether a donor whose lies harm must be in [`Board::named`] before it stops lying.
    pub name_liars: bool,
    /// Descriptions of the promises that were found broken.
    pub broken: Vec<String>,
}

/// An action that a client is performing.
#[derive(Debug, Clone)]
pub struct Busy {
    /// The action, in words.
    pub op: String,
    /// The time at which it began.
    pub since: Duration,
    /// The longest time that it may take.
    pub most: Duration,
    /// The writes that the action has begun.
    pub writes: Vec<WriteId>,
}

impl Stage {
    /// Locks the board. The guard must not be held across an await.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().expect("no holder panics")
    }

    /// Notes that a promise was broken, which ends the run.
    pub fn broken(&self, promise: &str, how: impl std::fmt::Display) {
        let text = format!("{promise} is broken: {how}");
        self.trace.say("promise", &text);
        self.board().broken.push(text);
    }

    /// Takes the next step of a client, if its time has come.
    pub fn next_step(&self, client: u8) -> Option<Op> {
        let now = self.trace.now();
        let mut board = self.board();
        let begun = board.curtain?;
        let script = board.scripts.get_mut(usize::from(client))?;
        let due = script.front().is_some_and(|step| begun + step.at <= now);
        if due { script.pop_front().map(|step| step.op) } else { None }
    }
}
