//! The facts about files that a scan remembers, so that the next one looks only at files to which something happened.
//!
//! Most files are as safe as promised, and of these only sums are kept. Every other version is remembered by its
//! number, with what it adds to the figures of its space, so that it can be taken out of them when it is judged
//! anew.

use super::assess::Findings;
use super::judge::{JudgedFile, fewer_now, least};
use super::layout::Version;
use crate::{DonorView, PoolView};
use potluck_core::ids::{DonorId, SpaceId, VersionId};
use potluck_core::policy::Redundancy;
use potluck_wire::control::SpaceHealth;
use std::collections::{BTreeMap, BTreeSet};

/// The most versions that are remembered, some hundred bytes each. Where there are more, only a walk over all files
/// tells how safe they are.
pub const MAX_WATCHED: usize = 1 << 20;

/// A space of users, as far as a scan has looked at it.
#[derive(Debug, Clone, Default)]
pub struct FoundSpace {
    /// The number of the space.
    pub id: SpaceId,
    /// The health of the space's files.
    pub health: SpaceHealth,
    /// The least number of deaths that the redundancy of a file survives, over all files that are as they should be;
    /// `None` while no such file is on donors.
    pub promised: Option<u32>,
}

/// The share of a version in the figures of its space.
#[derive(Debug, Clone)]
pub struct Watched {
    space: SpaceId,
    unreadable: bool,
    lost: bool,
    incomplete: bool,
    changing: bool,
    tolerates: Option<u32>,
    tolerates_now: Option<u32>,
    /// True if every scan looks at the version: something of it is to be made, deleted, noted or changed, or is waited
    /// for.
    is_unsettled: bool,
    /// The numbers of the version's units that are not as they should be, in order; with `None` any may be.
    units: Option<Box<[u32]>>,
}

/// A judged version and what else a scan has found of it.
pub(super) struct JudgedVersion<'a> {
    pub(super) version: &'a Version,
    pub(super) file: &'a JudgedFile,
    /// True if the version lacks nothing of its redundancy.
    pub(super) whole: bool,
    /// True if the version can do without copies that are there.
    pub(super) has_excess: bool,
    /// True if the version waits for donors that were given up: each scan sums these up anew.
    pub(super) is_awaited: bool,
    /// The numbers of the version's units that are not as they should be, in order.
    pub(super) units: Vec<u32>,
}

impl Watched {
    fn of(judged: JudgedVersion<'_>, space: SpaceId) -> Self {
        let JudgedVersion { version, file, whole, has_excess, is_awaited, units } = judged;
        let health = &file.health;
        let unreadable = health.unreadable > 0;
        let is_settled = whole && version.goal.is_none() && version.safe_wall_ms.is_some();
        Self {
            space,
            unreadable,
            lost: unreadable && !file.may_return,
            incomplete: file.is_incomplete(),
            changing: version.goal.is_some(),
            tolerates: health.tolerates,
            tolerates_now: health.tolerates_now,
            is_unsettled: !is_settled || has_excess || is_awaited,
            units: version.goal.is_none().then_some(units.into()),
        }
    }

    /// Returns whether the version is to be remembered.
    fn matters(&self) -> bool {
        let is_waiting = self.unreadable || fewer_now(self.tolerates, self.tolerates_now);
        self.is_unsettled || self.incomplete || is_waiting
    }

    fn enter(&self, space: &mut SpaceHealth) {
        space.unreadable += u64::from(self.unreadable);
        space.lost += u64::from(self.lost);
        space.incomplete += u64::from(self.incomplete);
        space.changing += u64::from(self.changing);
        space.tolerates = least(space.tolerates, self.tolerates);
        space.tolerates_now = least(space.tolerates_now, self.tolerates_now);
    }

    /// Takes the version out of the sums of its space; the minima are found anew at the end.
    fn leave(&self, space: &mut SpaceHealth) {
        let less = |sum: &mut u64, one| *sum = sum.saturating_sub(u64::from(one));
        less(&mut space.unreadable, self.unreadable);
        less(&mut space.lost, self.lost);
        less(&mut space.incomplete, self.incomplete);
        less(&mut space.changing, self.changing);
    }
}

/// The facts that a scan leaves behind for the next one.
#[derive(Debug)]
pub struct Remembered {
    spaces: Vec<FoundSpace>,
    watched: BTreeMap<VersionId, Watched>,
    /// The donors as the scan saw them.
    view: PoolView,
}

impl Remembered {
    /// Returns the donors whose copies count otherwise by `now` than they did.
    pub fn changed(&self, now: &PoolView) -> BTreeSet<DonorId> {
        let differs = |donor: &DonorId| match (self.view.get(*donor), now.get(*donor)) {
            (Some(then), Some(now)) => !counts_alike(then, now),
            (then, now) => then.is_some() || now.is_some(),
        };
        let all = self.view.iter().chain(now.iter()).map(|(donor, _)| donor);
        all.filter(differs).collect()
    }

    /// Returns the versions that every scan looks at, with their units to be looked at, as [`units`](Self::units) gives
    /// them.
    pub fn unsettled(&self) -> impl Iterator<Item = (VersionId, Option<&[u32]>)> {
        let unsettled = self.watched.iter().filter(|(_, watched)| watched.is_unsettled);
        unsettled.map(|(id, watched)| (*id, watched.units.as_deref()))
    }

    /// Returns the numbers of a version's units that were not as they should be, in order; none for a version that is
    /// not remembered. They are to be looked at too when another unit of the version changed. `None`: all units are to
    /// be looked at.
    pub fn units(&self, version: VersionId) -> Option<&[u32]> {
        self.watched.get(&version).map_or(Some(&[]), |watched| watched.units.as_deref())
    }
}

/// Returns whether the copies at a donor count as they did. How much room the donor has, and whether it can be asked,
/// matters only for copies to be made, and every scan looks at the versions that lack some.
fn counts_alike(then: &DonorView, now: &DonorView) -> bool {
    let of =
        |at: &DonorView| (at.worth, at.worth_leaving, at.domain, at.below, at.rule, at.disk_below);
    of(then) == of(now) && then.lose == now.lose
}

impl Findings {
    /// Goes on from the findings of the last scan. `spaces` are the number, name and redundancy of each space that
    /// there is now; those in which the last scan saw files are kept, and all others are to be walked over.
    pub fn resume(
        view: PoolView,
        last: Remembered,
        spaces: impl IntoIterator<Item = (SpaceId, String, Redundancy)>,
    ) -> Self {
        let mut findings = Self::new(view);
        for (id, name, policy) in spaces {
            let seen = |known: &&FoundSpace| known.id == id && known.health.files > 0;
            if let Some(known) = last.spaces.iter().find(seen) {
                let health = SpaceHealth { name, policy: Some(policy), ..known.health.clone() };
                findings.spaces.push(FoundSpace { health, ..known.clone() });
            }
        }
        let known: BTreeSet<SpaceId> = findings.spaces.iter().map(|space| space.id).collect();
        findings.watched = last.watched;
        findings.watched.retain(|_, watched| known.contains(&watched.space));
        findings
    }

    /// Has files that are added from now on count in the space with this number. Returns whether the space is known.
    pub fn enter_again(&mut self, space: SpaceId) -> bool {
        self.own = false;
        let at = self.spaces.iter().position(|known| known.id == space);
        self.at = at.unwrap_or(self.at);
        at.is_some()
    }

    /// Returns the versions that are remembered one by one.
    pub fn watched(&self) -> impl Iterator<Item = VersionId> {
        self.watched.keys().copied()
    }

    /// Forgets a version to which no path leads any more, or that is about to be counted anew.
    pub fn forget(&mut self, version: VersionId) {
        if let Some(watched) = self.watched.remove(&version)
            && let Some(space) = self.spaces.iter_mut().find(|space| space.id == watched.space)
        {
            watched.leave(&mut space.health);
        }
    }

    /// Counts a judged version of the space that was entered last.
    pub(super) fn count_version(&mut self, judged: JudgedVersion<'_>) {
        let version = judged.version;
        self.forget(version.id);
        let Some(space) = self.spaces.get_mut(self.at).filter(|_| version.chunks > 0) else {
            return;
        };
        let watched = Watched::of(judged, space.id);
        watched.enter(&mut space.health);
        if !watched.matters() {
            let has = version.redundancy().tolerates();
            space.promised = Some(space.promised.map_or(has, |promised| promised.min(has)));
            return;
        }
        if self.watched.len() < MAX_WATCHED {
            self.watched.insert(version.id, watched);
        } else {
            self.unwatched = true;
        }
    }

    /// Concludes a scan that looked at some files again: finds the least number of tolerated deaths of each space anew.
    pub fn conclude(&mut self) {
        for space in &mut self.spaces {
            let promised = Some(space.promised.unwrap_or(u32::MAX));
            (space.health.tolerates, space.health.tolerates_now) = (promised, promised);
        }
        let at = |(at, space): (usize, &FoundSpace)| (space.id, at);
        let places: BTreeMap<SpaceId, usize> = self.spaces.iter().enumerate().map(at).collect();
        for watched in self.watched.values() {
            if let Some(at) = places.get(&watched.space) {
                let health = &mut self.spaces[*at].health;
                health.tolerates = least(health.tolerates, watched.tolerates);
                health.tolerates_now = least(health.tolerates_now, watched.tolerates_now);
            }
        }
        for at in 0..self.spaces.len() {
            (self.at, self.own) = (at, false);
            self.leave();
        }
    }

    /// Takes out the facts that the next scan goes on from. `None` if that scan has to walk over all files: more
    /// versions would have to be remembered than there is room for, or records are damaged.
    pub fn remember(&mut self) -> Option<Remembered> {
        let known = !self.unwatched && self.damaged.files == 0;
        known.then(|| Remembered {
            spaces: self.spaces.clone(),
            watched: std::mem::take(&mut self.watched),
            view: self.view.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
