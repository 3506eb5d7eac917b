//! Checks the promises that must hold once all faults are over: all reads succeed, no chunk is left that was
//! never committed, and no donor has space reserved for a write (liveness; D1, D2, L1).

use crate::cast::{CLIENTS, Who};
use crate::content::Content;
use crate::plan::{Op, Step};
use crate::world::{GC_DELAY, LEASE, LENT, RESUME_WINDOW, World};
use potluck_core::chunk::ChunkName;
use potluck_core::policy::Redundancy;
use potluck_wire::control::{Condition, DonorState, PoolStatus};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The time that cleaning up may take beyond lease, resume window and GC delay: the pauses of the manager's
/// background tasks, and two rounds of the garbage collector.
const SLACK: Duration = Duration::from_secs(60);
/// The time within which a donor restarts, registers and counts as live.
pub const RECOVERY: Duration = Duration::from_secs(40);

/// The directories that the clients' scripts write to.
const DIRS: [&str; 5] = ["shared", "once", "own-0", "own-1", "own-2"];

impl World {
    /// Fails if a check found a promise broken, or if an action of a client takes longer than it may (A2).
    pub fn check_now(&self) -> Result<(), String> {
        let now = self.now();
        let board = self.stage.board();
        if let Some(broken) = board.broken.first() {
            return Err(broken.clone());
        }
        let slow = board.busy.iter().find(|(_, busy)| now > busy.since + busy.most);
        match slow {
            Some((who, busy)) => {
                Err(format!("A2 is broken: {who} has been at “{}” since {:?}", busy.op, busy.since))
            }
            None => Ok(()),
        }
    }

    /// Returns whether no client has anything left to do.
    pub fn idle(&self) -> bool {
        let board = self.stage.board();
        board.busy.is_empty() && board.scripts.iter().all(std::collections::VecDeque::is_empty)
    }

    /// Has every client write a file, list every directory and read every path.
    pub fn ask_for_everything(&self) {
        let mut board = self.stage.board();
        let at = board.curtain.map_or(Duration::ZERO, |begun| self.now().saturating_sub(begun));
        let paths = board.history.paths();
        for client in 0..CLIENTS {
            let files =
                vec![(format!("own-{client}/last"), Content { number: 1000, len: 500_000 })];
            let write = Op::Put { files, condition: Condition::Always, known: true };
            let lists = DIRS.iter().map(|dir| Op::List((*dir).to_owned()));
            let reads = paths.iter().map(|path| Op::Get(path.clone(), 0));
            let steps = std::iter::once(write).chain(lists).chain(reads);
            board.scripts[usize::from(client)].extend(steps.map(|op| Step { at, op }));
        }
    }

    /// Has the first client look up the chunks of every file. No client writes any more by then.
    pub fn ask_for_recipes(&self) {
        let mut board = self.stage.board();
        let recipes = board.history.paths().into_iter().map(Op::Recipe);
        let steps: Vec<Step> = recipes.map(|op| Step { at: Duration::ZERO, op }).collect();
        board.scripts[0].extend(steps);
    }

    /// Checks that at most one of the conflicting commits to each path succeeded.
    pub fn check_races(&self) -> Result<(), String> {
        let board = self.stage.board();
        let races = board.history.below("once/");
        races.iter().try_for_each(|path| board.history.check_one_winner(path))
    }

    /// Returns how long it may take until nothing is left of uncommitted writes.
    pub fn clean_within() -> Duration {
        LEASE + RESUME_WINDOW + GC_DELAY + SLACK
    }

    /// Returns why the pool is not at rest yet; `None` if it is.
    pub fn unsettled(&self) -> Option<String> {
        let board = self.stage.board();
        let Some(status) = &board.status else { return Some("the manager does not answer".into()) };
        let PoolStatus { sessions, condemned_chunks, donors, .. } = status;
        if *sessions > 0 {
            return Some(format!("{sessions} sessions are open"));
        }
        if let Some(away) = donors.iter().find(|donor| donor.state != DonorState::Live) {
            return Some(format!("{} is {:?}", away.name, away.state));
        }
        if let Some(owed) = donors.iter().find(|donor| donor.promised > 0) {
            return Some(format!("{} bytes are promised on {}", owed.promised, owed.name));
        }
        if *condemned_chunks > 0 {
            return Some(format!("{condemned_chunks} chunks wait to be reclaimed"));
        }
        let orphans: Vec<_> = self.stored().difference(&board.needed).copied().collect();
        orphans.first().map(|orphan| format!("{} orphans, such as {orphan}", orphans.len()))
    }

    /// Returns every chunk that a donor stores.
    fn stored(&self) -> BTreeSet<ChunkName> {
        let files =
            self.drives.iter().flat_map(|drive| drive.files(&Path::new(LENT).join("chunks")));
        let names = files.filter_map(|(path, _)| path.file_name()?.to_str()?.parse().ok());
        names.collect()
    }

    /// Checks that every chunk of a file that is kept in copies is whole on enough donors. As many copies as
    /// there are donors with damaged disks may be missing.
    pub fn check_copies(&self, redundancy: Redundancy) -> Result<(), String> {
        let Redundancy::Copies(copies) = redundancy else { return Ok(()) };
        let board = self.stage.board();
        let made = 1 + board.health.survives().min(copies as usize - 1);
        let least = made.saturating_sub(board.health.damaged.len());
        let holders = self.holders();
        for name in &board.needed {
            let whole = holders.get(name).map_or(0, BTreeSet::len);
            if whole < least {
                return Err(format!("D1 is broken: {name} has {whole} whole copies of {least}"));
            }
        }
        Ok(())
    }

    /// Returns whether the pool's status ever showed bad copies on a donor. It stops showing them once repair has
    /// replaced them.
    pub fn names_liar(&self, number: u8) -> bool {
        self.stage.board().named.contains(&Who::Donor(number).to_string())
    }
}
