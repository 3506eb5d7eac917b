//! Judges how safe one file is. Scans, `stat` and `fsck` share this judgement, so that they never disagree.

use super::layout::Version;
use super::layout::{Layout, LayoutChunk, Unit};
use crate::PoolView;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::{Copy, Judged, Worth, judge};
use potluck_wire::control::{ChunkFacts, Health, HealthLevel, MirrorState, SpaceHealth};
use std::collections::{BTreeMap, BTreeSet};

/// The judgement of a file: how safe it is.
#[derive(Debug, Default)]
pub struct JudgedFile {
    /// The file's health as a person is told of it.
    pub health: Health,
    /// False if part of the file could not be read even if all donors that have some of it came back.
    pub may_return: bool,
    /// True if some unit has too few copies left that count or can be fetched.
    pub lost: bool,
}

/// Returns the copies of every piece as they count, in the order in which they should be kept.
pub(super) fn copies(layout: &Layout, view: &PoolView) -> Vec<Vec<Copy>> {
    let of = |piece: &LayoutChunk| {
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

/// Judges a file by the redundancy that it has now, whatever it is being changed to. What a cached file lacks is at its
/// origin, and is no damage.
pub fn judge_file(version: &Version, layout: &Layout, view: &PoolView) -> JudgedFile {
    let copies = copies(layout, view);
    let mut file = JudgedFile::new(version);
    for unit in layout.units.iter().filter(|_| version.cache.is_kept()) {
        file.count(unit, &judged(unit, &copies), &copies);
    }
    file.done()
}

/// Returns whether a version has all that it is being changed to; what keeps it now may be given up then.
pub fn reaches_goal(layout: &Layout, view: &PoolView) -> bool {
    goal_is_there(layout, &copies(layout, view))
}

/// Returns whether a version has all that it is being changed to, by how its copies count. Only copies that can be
/// reached count here: a donor that is silent may never come back, and then less would be left than either redundancy
/// promised.
pub(super) fn goal_is_there(layout: &Layout, copies: &[Vec<Copy>]) -> bool {
    let reached = |copies: &Vec<Copy>| {
        copies.iter().filter(|copy| copy.worth == Worth::Counts).copied().collect()
    };
    let reached: Vec<Vec<Copy>> = copies.iter().map(reached).collect();
    layout.unencoded.is_empty() && layout.goal.iter().all(|unit| judged(unit, &reached).complete())
}

impl JudgedFile {
    pub(super) fn new(version: &Version) -> Self {
        let has = version.redundancy().tolerates();
        if version.chunks == 0 {
            // Nothing of the file is on donors.
            let health = Health {
                in_catalog: true,
                safe_since_ms: version.safe_wall_ms,
                changing_to: version.goal,
                ..Health::default()
            };
            return Self { health, may_return: true, lost: false };
        }
        // A file written with less than its directory asks for is not as safe as promised until it has
        // that; a file that was safe when a policy changed keeps the old promise meanwhile.
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

    /// Counts a unit of the file.
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

    /// Returns whether the file is less safe than promised, though it can be read.
    pub fn is_incomplete(&self) -> bool {
        level(&self.health) == HealthLevel::Incomplete
    }

    /// Finishes the judgement, all units of the file having been counted.
    pub(super) fn done(mut self) -> Self {
        let whole = self.health.incomplete == 0;
        self.health.silent = fewer_now(self.health.tolerates, self.health.tolerates_now);
        self.health.level = level(&self.health);
        self.health.below_policy = !whole || self.is_incomplete();
        self.health.safe_since_ms = self.health.safe_since_ms.filter(|_| whole);
        self
    }
}

/// Returns the level of a file's health.
fn level(health: &Health) -> HealthLevel {
    let silent = fewer_now(health.tolerates, health.tolerates_now);
    match health.tolerates {
        None if health.in_catalog => HealthLevel::Safe,
        Some(tolerates) if health.unreadable == 0 => {
            match health.incomplete == 0 && tolerates >= health.promised {
                false => HealthLevel::Incomplete,
                true if silent => HealthLevel::Waiting,
                true => HealthLevel::Safe,
            }
        }
        _ => HealthLevel::Unreadable,
    }
}

/// Returns whether a file survives the silence of fewer donors now than it survives deaths.
pub(super) fn fewer_now(tolerates: Option<u32>, now: Option<u32>) -> bool {
    now.is_some_and(|now| tolerates.is_some_and(|tolerates| now < tolerates))
}

/// Judges a space by what was found of its files.
pub(super) fn judge_space(space: &mut SpaceHealth) {
    space.silent = fewer_now(space.tolerates, space.tolerates_now);
    space.all_in_catalog =
        space.in_catalog > 0 && space.tolerates.is_none() && space.unreadable == 0;
    space.level = Some(match (space.unreadable, space.incomplete, space.silent) {
        (0, 0, false) => HealthLevel::Safe,
        (0, 0, true) => HealthLevel::Waiting,
        (0, ..) => HealthLevel::Incomplete,
        _ => HealthLevel::Unreadable,
    });
}

/// Returns the lesser of two numbers; `None` where either is `None`.
pub(super) fn least(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    Some(one?.min(other?))
}

/// Returns the chunks of a file, parity after the data, each with how it stands.
pub fn chunk_facts(layout: &Layout, view: &PoolView) -> Vec<ChunkFacts> {
    let copies = copies(layout, view);
    let mut facts = BTreeMap::new();
    for unit in &layout.units {
        let judged = judged(unit, &copies);
        let lacking: BTreeSet<usize> = judged.lacking().map(|shard| unit.shards[shard]).collect();
        for at in unit.shards.iter().copied() {
            let fetchable = copies[at].iter().filter(|copy| copy.worth.fetchable());
            let donors: Vec<DonorId> = fetchable.map(|copy| copy.donor).collect();
            // A donor that is silent and waited for lacks nothing, but nobody can fetch what it has.
            let state = match (donors.is_empty(), judged.readable) {
                (true, false) => MirrorState::Unreadable,
                (true, true) => MirrorState::Rebuildable,
                (false, _) if lacking.contains(&at) => MirrorState::Pending,
                (false, _) => MirrorState::Complete,
            };
            let LayoutChunk { name, len, .. } = layout.pieces[at];
            let parity = at >= layout.data;
            let group = unit.group.map(|_| u64::from(unit.number));
            facts.insert(at, ChunkFacts { name, len, parity, group, donors, state });
        }
    }
    facts.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_promised_is_incomplete_and_missing_is_unreadable() {
        let of = |tolerates, incomplete, unreadable| {
            let health =
                Health { tolerates, promised: 2, incomplete, unreadable, ..Health::default() };
            level(&health)
        };
        assert_eq!(of(Some(2), 0, 0), HealthLevel::Safe);
        assert_eq!(of(Some(1), 0, 0), HealthLevel::Incomplete);
        assert_eq!(of(Some(2), 3, 0), HealthLevel::Incomplete);
        assert_eq!(of(None, 0, 1), HealthLevel::Unreadable);
        let health = |tolerates, tolerates_now| Health {
            tolerates,
            tolerates_now,
            promised: 1,
            ..Health::default()
        };
        assert_eq!(level(&health(Some(1), Some(0))), HealthLevel::Waiting);
        assert_eq!(level(&health(Some(0), Some(0))), HealthLevel::Incomplete);
        assert_eq!(level(&Health { in_catalog: true, ..health(None, None) }), HealthLevel::Safe);
    }

    #[test]
    fn a_space_is_as_its_worst_file() {
        let judged = |unreadable, incomplete, tolerates, tolerates_now| {
            let health = SpaceHealth::default();
            let mut space =
                SpaceHealth { unreadable, incomplete, tolerates, tolerates_now, ..health };
            judge_space(&mut space);
            (space.level, space.silent)
        };
        assert_eq!(judged(0, 0, Some(1), Some(1)), (Some(HealthLevel::Safe), false));
        assert_eq!(judged(0, 0, Some(1), Some(0)), (Some(HealthLevel::Waiting), true));
        assert_eq!(judged(0, 2, Some(1), Some(0)), (Some(HealthLevel::Incomplete), true));
        assert_eq!(judged(1, 2, None, None), (Some(HealthLevel::Unreadable), false));
        let mut notes = SpaceHealth { files: 1, in_catalog: 1, ..SpaceHealth::default() };
        judge_space(&mut notes);
        assert!(notes.all_in_catalog && notes.level == Some(HealthLevel::Safe));
    }
}
