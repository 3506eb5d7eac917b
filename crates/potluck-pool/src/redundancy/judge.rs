//! How safe one file is: the one judgement that scans, `stat` and `fsck` share, so that they never
//! disagree.

use super::layout::Version;
use super::layout::{Layout, Piece, Unit};
use crate::PoolView;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::{Copy, Judged, Worth, judge};
use potluck_wire::control::{ChunkFacts, Health, HealthLevel, MirrorState};
use std::collections::{BTreeMap, BTreeSet};

/// A file, judged.
#[derive(Debug, Default)]
pub struct File {
    /// As a person is told.
    pub health: Health,
    /// Whether what cannot be read is at donors that may come back.
    pub may_return: bool,
    /// Whether something has no copy left that counts or can be fetched.
    pub lost: bool,
}

/// Copies of every piece as they count, in the order of keeping.
pub(super) fn copies(layout: &Layout, view: &PoolView) -> Vec<Vec<Copy>> {
    let of = |piece: &Piece| {
        let known = piece.holders.iter();
        let mut copies: Vec<Copy> =
            known.filter_map(|(donor, gone)| view.copy(*donor, &piece.name, *gone)).collect();
        view.rank(&mut copies);
        copies
    };
    layout.pieces.iter().map(of).collect()
}

pub(super) fn judged(unit: &Unit, copies: &[Vec<Copy>]) -> Judged {
    let shards: Vec<&[Copy]> = unit.shards.iter().map(|piece| copies[*piece].as_slice()).collect();
    judge(unit.need(), &shards)
}

/// Judges a file by what keeps it now.
pub fn judge_file(version: &Version, layout: &Layout, view: &PoolView) -> File {
    let copies = copies(layout, view);
    let mut file = File::new(version);
    for unit in &layout.units {
        file.count(unit, &judged(unit, &copies), &copies);
    }
    file.done()
}

/// Whether a version has all that it is being changed to; what keeps it now may be given up then.
pub fn reaches_goal(layout: &Layout, view: &PoolView) -> bool {
    goal_is_there(layout, &copies(layout, view))
}

/// Whether a version has all that it is being changed to, by how its copies count. Only copies count here
/// that can be reached: a donor that is silent may never come back, and then less would be left than either
/// redundancy promised.
pub(super) fn goal_is_there(layout: &Layout, copies: &[Vec<Copy>]) -> bool {
    let reached = |copies: &Vec<Copy>| {
        copies.iter().filter(|copy| copy.worth == Worth::Counts).copied().collect()
    };
    let reached: Vec<Vec<Copy>> = copies.iter().map(reached).collect();
    layout.unencoded.is_empty() && layout.goal.iter().all(|unit| judged(unit, &reached).complete())
}

impl File {
    pub(super) fn new(version: &Version) -> Self {
        let has = version.redundancy().tolerates();
        // A file written with less than its directory asks for is not as safe as promised until it has
        // that; a file that was safe when a policy changed keeps the old promise meanwhile.
        if version.chunks == 0 {
            // Nothing of it is on donors.
            let health = Health {
                in_catalog: true,
                safe_since_ms: version.safe_wall_ms,
                changing_to: version.goal,
                ..Health::default()
            };
            return Self { health, may_return: true, lost: false };
        }
        let asked = version.goal.filter(|_| version.safe_wall_ms.is_none());
        let promised = asked.map_or(has, |goal| goal.tolerates().max(has));
        Self {
            health: Health {
                tolerates: Some(has),
                tolerates_now: Some(has),
                promised,
                safe_since_ms: version.safe_wall_ms,
                changing_to: version.goal,
                ..Health::default()
            },
            may_return: true,
            lost: false,
        }
    }

    /// Counts a unit of it.
    pub(super) fn count(&mut self, unit: &Unit, judged: &Judged, copies: &[Vec<Copy>]) {
        let health = &mut self.health;
        let lacking: BTreeSet<usize> = judged.lacking().map(|shard| unit.shards[shard]).collect();
        health.incomplete += lacking.len() as u64;
        health.tolerates = least(health.tolerates, judged.tolerates());
        health.tolerates_now = least(health.tolerates_now, judged.tolerates_now());
        if judged.readable {
            return;
        }
        let have = |fits: &dyn Fn(&Copy) -> bool| {
            unit.shards.iter().filter(|piece| copies[**piece].iter().any(fits)).count()
        };
        let mut without: Vec<usize> = unit.shards.clone();
        without.dedup();
        without.retain(|piece| !copies[*piece].iter().any(|copy| copy.worth.fetchable()));
        health.unreadable += without.len() as u64;
        self.may_return &= have(&|_| true) >= unit.need();
        self.lost |= have(&|copy| copy.worth != Worth::Lost) < unit.need();
    }

    /// Whether it is less safe than promised, though it can be read.
    pub fn is_incomplete(&self) -> bool {
        self.health.incomplete > 0 || self.health.level() == HealthLevel::Incomplete
    }

    /// All its units are counted.
    pub(super) fn done(mut self) -> Self {
        let whole = self.health.incomplete == 0;
        self.health.below_policy = self.is_incomplete();
        self.health.safe_since_ms = self.health.safe_since_ms.filter(|_| whole);
        self
    }
}

/// The lesser of two; none where either is none.
pub(super) fn least(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    Some(one?.min(other?))
}

/// The chunks of a file, parity after the data, each with how it stands.
pub fn chunk_facts(layout: &Layout, view: &PoolView) -> Vec<ChunkFacts> {
    let copies = copies(layout, view);
    let mut facts = BTreeMap::new();
    for unit in &layout.units {
        let judged = judged(unit, &copies);
        let lacking: BTreeSet<usize> = judged.lacking().map(|shard| unit.shards[shard]).collect();
        for at in unit.shards.iter().copied() {
            let fetchable = copies[at].iter().filter(|copy| copy.worth.fetchable());
            let donors: Vec<DonorId> = fetchable.map(|copy| copy.donor).collect();
            let state = match (lacking.contains(&at), donors.is_empty()) {
                (_, true) if !judged.readable => MirrorState::Unreadable,
                (false, _) => MirrorState::Complete,
                (true, false) => MirrorState::Pending,
                (true, true) => MirrorState::Rebuildable,
            };
            let Piece { name, len, .. } = layout.pieces[at];
            let parity = at >= layout.data;
            let group = unit.group.map(|_| u64::from(unit.number));
            facts.insert(at, ChunkFacts { name, len, parity, group, donors, state });
        }
    }
    facts.into_values().collect()
}
