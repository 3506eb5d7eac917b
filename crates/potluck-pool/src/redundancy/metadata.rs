//! The pool's own metadata, as a scan judges it.
//!
//! The metadata has as many copies as were asked for, or as there are donors that can hold one: nobody
//! promised more, and a copy that cannot be made must keep no donor from leaving. The copies are as far
//! apart as those donors are: of three copies in two rooms each room has one at least, and with all of a pool
//! in one room, or on the disks of one machine, two copies there are still better than one.

use super::assess::{Findings, Look};
use super::judge::{JudgedFile, copies, judged};
use super::layout::Version;
use super::layout::{Layout, Unit};
use crate::PoolView;
use potluck_core::chunk::ChunkKind;
use potluck_core::ids::{Domain, VersionId};
use potluck_core::repair_plan::{Copy, Judged};
use potluck_wire::control::MetadataHealth;
use std::collections::BTreeSet;

/// The most files that are told apart for one purpose; more are found by the next scan.
const MAX_NOTED: usize = 16_384;

/// The findings of a scan about the pool's own metadata.
#[derive(Debug, Default)]
pub struct Metadata {
    /// The health of the metadata.
    pub health: MetadataHealth,
    /// The versions that are to have another number of copies from now on: fewer, because no donors can hold more, or
    /// more, because these copies are there.
    pub adapted: Vec<(VersionId, u32)>,
    /// The number of files of which some chunk has no copy that counts or can be fetched, or whose records are damaged.
    pub lost: u64,
    /// The number of files that no donor can hold, because the donors that have them leave.
    pub without_donors: u64,
}

/// The donors at which all chunks of a file can be.
#[derive(Debug, Clone, Copy)]
struct Able {
    /// The least number of donors that can hold a chunk of the file, over all its chunks: those that hold the chunk and
    /// stay, and those that would take a copy.
    donors: u32,
    /// The least number of failure domains of these donors, over all chunks.
    domains: u32,
}

impl Able {
    fn of(layout: &Layout, view: &PoolView, copies: &[Vec<Copy>]) -> Self {
        let of = |unit: &Unit| {
            let piece = unit.shards[0];
            let held = copies[piece].iter().filter(|copy| copy.worth.counts());
            let held = held.map(|copy| (copy.donor, copy.domain));
            let len = u64::from(layout.pieces[piece].len);
            let roomy = view.iter().filter(|(_, at)| at.takes && at.free >= len);
            let all = held.chain(roomy.map(|(donor, at)| (donor, at.domain)));
            let (donors, domains): (BTreeSet<_>, BTreeSet<_>) = all.unzip();
            (donors.len() as u32, domains.len() as u32)
        };
        let all: Vec<(u32, u32)> = layout.units.iter().map(of).collect();
        let least = |which: fn(&(u32, u32)) -> u32| all.iter().map(which).min().unwrap_or(u32::MAX);
        Self { donors: least(|at| at.0), domains: least(|at| at.1) }
    }

    /// Makes `wanted` copies count that are as far apart as they can be: where more are wanted than there are failure
    /// domains, the others count as if each were in a domain of its own.
    fn spread(self, wanted: u32, copies: &mut [Vec<Copy>]) {
        for copies in copies {
            let mut crowded = wanted.saturating_sub(self.domains);
            let mut met = BTreeSet::new();
            for copy in copies.iter_mut().filter(|copy| copy.worth.counts()) {
                if !met.insert(copy.domain) && crowded > 0 {
                    crowded -= 1;
                    copy.domain = Domain::MAX - copy.donor.0;
                }
            }
        }
    }
}

/// Returns the unit as one that is to have so many copies.
fn with_copies(unit: &Unit, copies: u32) -> Unit {
    Unit { shards: vec![unit.shards[0]; copies as usize], ..unit.clone() }
}

/// Judges a file of the pool's own metadata by the copies it is to have now.
pub fn judge_own_file(version: &Version, layout: &Layout, view: &PoolView) -> JudgedFile {
    let mut copies = copies(layout, view);
    Able::of(layout, view, &copies).spread(version.copies, &mut copies);
    let mut file = JudgedFile::new(version);
    for unit in &layout.units {
        file.count(unit, &judged(unit, &copies), &copies);
    }
    file.done()
}

impl Findings {
    /// Adds a file of the pool's own metadata.
    pub fn add_own(&mut self, version: &Version, kind: ChunkKind, layout: &Layout) {
        let mut copies = copies(layout, &self.view);
        let able = Able::of(layout, &self.view, &copies);
        let wanted = self.metadata.health.asked.min(able.donors).max(1);
        able.spread(wanted, &mut copies);
        let units: Vec<Unit> = layout.units.iter().map(|unit| with_copies(unit, wanted)).collect();
        let all: Vec<Judged> = units.iter().map(|unit| judged(unit, &copies)).collect();
        let whole = all.iter().all(Judged::complete);
        let adapts = wanted < version.copies || whole && wanted > version.copies;
        let has = if adapts { wanted } else { version.copies };
        if adapts && self.metadata.adapted.len() < MAX_NOTED {
            self.metadata.adapted.push((version.id, wanted));
        }
        let version = &Version { copies: has, ..version.clone() };
        let mut file = JudgedFile::new(version);
        for (unit, judged_wide) in units.iter().zip(all) {
            let narrow = with_copies(unit, has);
            file.count(&narrow, &judged(&narrow, &copies), &copies);
            let there = judged_wide.on_distinct_donors() as u32;
            let least = &mut self.metadata.health.copies;
            *least = Some(least.map_or(there, |least| least.min(there)));
            let look = Look {
                version,
                kind,
                layout,
                unit,
                judged: judged_wide,
                copies: &copies,
                goal: false,
            };
            // A unit that nobody can hold is not stuck: it goes with the last donor.
            if able.donors > 0 {
                self.unit(&look);
            }
        }
        let file = file.done();
        let found = &mut self.metadata;
        found.health.files += 1;
        found.health.unreadable += u64::from(file.health.unreadable > 0);
        found.health.incomplete += u64::from(file.is_incomplete());
        found.without_donors += u64::from(able.donors == 0);
        found.lost += u64::from(file.lost);
    }

    /// Counts a file of the pool's own metadata whose records in the catalog are damaged.
    pub fn add_own_damaged(&mut self) {
        self.metadata.health.files += 1;
        self.metadata.health.unreadable += 1;
        self.metadata.lost += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::LayoutChunk;
    use crate::tests::{at, chunk, pool, register, register_in};
    use crate::{Giving, Pool};
    use potluck_core::attributes::EntryAttributes;
    use potluck_core::chunk::Digest;
    use potluck_core::clock::Tick;
    use potluck_core::ids::{DonorId, Incarnation};

    fn donors(count: u32) -> Pool {
        let mut pool = pool();
        for donor in 1..=count {
            register(&mut pool, donor, 7, 0.0);
            pool.inventory_done(DonorId(donor), Incarnation(7));
        }
        pool
    }

    fn leaves(pool: &mut Pool, donor: u32) {
        let giving = Giving { start: 0, at_once: false, lose: [].into(), since: Tick::ZERO };
        pool.give_back(DonorId(donor), Some(giving));
    }

    /// Judges one block of the log that is to have `copies` copies and is at these donors.
    fn look(pool: &Pool, now: f64, copies: u32, holders: &[u32]) -> Findings {
        let version = Version {
            metadata: None,
            id: VersionId(1),
            size: 1000,
            holes: 0,
            digest: Digest([0; 32]),
            attributes: EntryAttributes::default(),
            chunk_size: 1000,
            copies,
            ec: None,
            goal: None,
            safe_wall_ms: None,
            origin: None,
            cache: Default::default(),
            key: None,
            chunks: 1,
            parts: 0,
            inline: false,
        };
        let holders = holders.iter().map(|donor| (DonorId(*donor), false)).collect();
        let layout = Layout {
            pieces: vec![LayoutChunk { name: chunk(1), len: 1000, refs: 1, holders }],
            data: 1,
            units: vec![Unit { number: 0, group: None, shards: vec![0; copies as usize] }],
            ..Layout::default()
        };
        let mut findings = Findings::new(pool.view(at(now)));
        findings.metadata.health.asked = 3;
        findings.own = true;
        findings.add_own(&version, ChunkKind::Log, &layout);
        findings
    }

    #[test]
    fn copies_follow_the_donors_that_stay_and_those_that_join() {
        let mut pool = donors(3);
        let well = look(&pool, 1.0, 3, &[1, 2, 3]);
        assert_eq!((well.metadata.adapted.len(), well.metadata.health.copies), (0, Some(3)));
        leaves(&mut pool, 3);
        let two = look(&pool, 1.0, 3, &[1, 2, 3]);
        assert_eq!(two.metadata.adapted, [(VersionId(1), 2)]);
        assert_eq!((two.metadata.health.copies, two.metadata.health.incomplete), (Some(2), 0));
        assert!(two.queue.is_empty() && two.moving.is_empty(), "nothing is lacking or stuck");
        let goes: Vec<_> = two.excess.iter().filter(|(_, excess)| excess.is_agreed()).collect();
        assert_eq!(goes.len(), 1);
        assert_eq!(goes[0].0.1, DonorId(3), "the donor may go");
        // The donor stays after all: a third copy is made, and nothing is called incomplete meanwhile.
        pool.give_back(DonorId(3), None);
        let more = look(&pool, 1.0, 2, &[1, 2]);
        assert_eq!((more.queue.len(), more.metadata.health.incomplete), (1, 0));
        assert!(more.metadata.adapted.is_empty(), "not before it is there");
        assert_eq!(look(&pool, 1.0, 2, &[1, 2, 3]).metadata.adapted, [(VersionId(1), 3)]);
    }

    #[test]
    fn a_donor_that_is_silent_for_a_moment_takes_no_copy_away() {
        let mut pool = donors(2);
        register(&mut pool, 3, 7, 0.0);
        // The third donor has not told what it holds yet.
        let held = look(&pool, 1.0, 3, &[1, 2, 3]);
        assert_eq!((held.metadata.adapted.len(), held.queue.len()), (0, 0));
    }

    #[test]
    fn metadata_copies_span_machines() {
        let mut pool = pool();
        for donor in 1..=4 {
            let machine = if donor <= 3 { "three disks" } else { "another" };
            register_in(&mut pool, donor, 7, 0.0, Some(machine));
            pool.inventory_done(DonorId(donor), Incarnation(7));
        }
        let crowded = look(&pool, 1.0, 3, &[1, 2, 3]);
        assert_eq!((crowded.queue.len(), crowded.metadata.health.incomplete), (1, 1));
        let apart = look(&pool, 1.0, 3, &[1, 2, 4]);
        assert_eq!((apart.queue.len(), apart.metadata.health.incomplete), (0, 0));
        let goes = look(&pool, 1.0, 3, &[1, 2, 3, 4]);
        let goes: Vec<_> = goes.excess.iter().filter(|(_, excess)| excess.is_agreed()).collect();
        assert!(goes.len() == 1 && goes[0].0.1 != DonorId(4), "{goes:?}");
    }

    #[test]
    fn in_one_room_each_donor_counts() {
        let mut pool = pool();
        for donor in 1..=2 {
            register_in(&mut pool, donor, 7, 0.0, Some("room"));
            pool.inventory_done(DonorId(donor), Incarnation(7));
        }
        let found = look(&pool, 1.0, 2, &[1, 2]);
        assert_eq!((found.metadata.health.copies, found.metadata.health.incomplete), (Some(2), 0));
        assert!(found.queue.is_empty());
    }

    #[test]
    fn metadata_copy_on_the_last_donor_is_homeless_and_not_stuck() {
        let mut pool = donors(1);
        leaves(&mut pool, 1);
        let found = look(&pool, 1.0, 1, &[1]);
        assert_eq!((found.metadata.without_donors, found.queue.len(), found.sourceless), (1, 0, 0));
        assert!(found.moving.is_empty(), "nothing of users waits");
        assert!(found.metadata.lost == 0);
        assert_eq!(look(&pool, 1.0, 1, &[]).metadata.lost, 1);
    }
}
