//! Tests that a scan which looks at some files alone finds the same as a scan that looks at all files.

use super::{Findings, Remembered};
use crate::redundancy::layout::{Layout, LayoutChunk, Unit, Version};
use crate::tests::{at, chunk, pool, register, send_heartbeat};
use crate::{Giving, Pool, PoolView};
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::{ChunkKind, Digest};
use potluck_core::ids::{DonorId, Incarnation, SpaceId, VersionId};
use potluck_core::policy::Redundancy;
use potluck_wire::control::SpaceHealth;
use std::collections::BTreeSet;

const SPACES: [(SpaceId, &str); 2] = [(SpaceId(1), "lab"), (SpaceId(2), "attic")];

fn five() -> Pool {
    let mut pool = pool();
    for donor in 1..=5 {
        register(&mut pool, donor, 7, 0.0);
        pool.inventory_done(DonorId(donor), Incarnation(7));
    }
    pool
}

/// A file that is to be kept in `copies` copies.
struct Stored {
    n: u64,
    copies: u32,
    /// The donors of each of its chunks.
    holders: Vec<Vec<u32>>,
}

impl Stored {
    fn space(&self) -> SpaceId {
        SPACES[(self.n % 2) as usize].0
    }

    fn is_at(&self, donor: u32) -> bool {
        self.holders.iter().flatten().any(|holder| *holder == donor)
    }

    fn version(&self) -> Version {
        Version {
            metadata: None,
            id: VersionId(self.n),
            size: 3000,
            holes: 0,
            digest: Digest([0; 32]),
            attributes: EntryAttributes::default(),
            chunk_size: 1000,
            copies: self.copies,
            ec: None,
            goal: None,
            safe_wall_ms: Some(1),
            origin: None,
            cache: Default::default(),
            key: None,
            chunks: self.holders.len() as u64,
            parts: 0,
            inline: false,
        }
    }

    /// Returns the layout of the file, with the units that are `wanted`.
    fn layout(&self, wanted: impl Fn(usize) -> bool) -> Layout {
        let mut layout = Layout::default();
        for (number, holders) in self.holders.iter().enumerate().filter(|(at, _)| wanted(*at)) {
            let shards = vec![layout.pieces.len(); self.copies as usize];
            layout.units.push(Unit { number: number as u32, group: None, shards });
            let holders = holders.iter().map(|donor| (DonorId(*donor), false)).collect();
            let name = chunk(self.n * 10 + number as u64);
            layout.pieces.push(LayoutChunk { name, len: 1000, refs: 1, holders });
        }
        layout.data = layout.pieces.len();
        layout
    }
}

/// Makes files of two and three copies, whose chunks are at donors in turn.
fn files() -> Vec<Stored> {
    let file = |n: u64| {
        let copies = 2 + (n % 2) as u32;
        let at = |chunk: u32| {
            (0..copies).map(|next| ((n % 5) as u32 + chunk + next) % 5 + 1).collect::<Vec<_>>()
        };
        Stored { n, copies, holders: (0..3).map(at).collect() }
    };
    (1..=40).map(file).collect()
}

fn walk(files: &[Stored], view: PoolView) -> Findings {
    let mut findings = Findings::new(view);
    for (space, name) in SPACES {
        findings.enter(space, name, Redundancy::Copies(2));
        files.iter().filter(|file| file.space() == space).for_each(|file| {
            findings.add(&file.version(), ChunkKind::Data, &file.layout(|_| true));
        });
        findings.leave();
    }
    findings
}

/// Looks at the units that changed since the last scan; returns the findings and how many units were looked at.
fn follow(files: &[Stored], last: Remembered, view: PoolView) -> (Findings, usize) {
    let changed = last.changed(&view);
    let unsettled: BTreeSet<VersionId> = last.unsettled().map(|(version, _)| version).collect();
    let known: Vec<Option<Vec<u32>>> =
        files.iter().map(|file| last.units(VersionId(file.n)).map(Into::into)).collect();
    let spaces = SPACES.map(|(id, name)| (id, name.to_owned(), Redundancy::Copies(2)));
    let mut findings = Findings::resume(view, last, spaces);
    let mut looked_at = 0;
    for (file, known) in files.iter().zip(known) {
        let is_changed =
            |unit: usize| file.holders[unit].iter().any(|at| changed.contains(&DonorId(*at)));
        let is_concerned = (0..file.holders.len()).any(is_changed);
        if is_concerned || unsettled.contains(&VersionId(file.n)) {
            let is_known =
                |unit: usize| known.as_ref().is_none_or(|numbers| numbers.contains(&(unit as u32)));
            let layout = file.layout(|unit| is_changed(unit) || is_known(unit));
            looked_at += layout.units.len();
            assert!(findings.enter_again(file.space()));
            findings.add_again(&file.version(), ChunkKind::Data, &layout);
        }
    }
    findings.conclude();
    (findings, looked_at)
}

fn healths(findings: &Findings) -> Vec<SpaceHealth> {
    findings.spaces.iter().map(|space| space.health.clone()).collect()
}

/// Returns the version, unit and urgency of each job, whatever its order.
fn jobs(findings: &Findings) -> BTreeSet<(u64, u32, u32)> {
    findings.queue.iter().map(|((urgency, _), job)| (job.unit.0.0, job.unit.1, *urgency)).collect()
}

#[test]
fn followed_changes_equal_a_full_walk() {
    let mut files = files();
    let pool = five();
    let all = pool.view(at(1.0));
    let without = |donors: &[u32]| all.without(&donors.iter().map(|id| DonorId(*id)).collect());
    let mut last = walk(&files, all.clone()).remember().expect("few are to be remembered");
    assert_eq!(last.unsettled().count(), 0, "all are as they should be");
    let views = [without(&[1]), without(&[1, 2]), without(&[1, 2, 3]), without(&[2]), all.clone()];
    for (step, view) in views.into_iter().enumerate() {
        let whole = walk(&files, view.clone());
        let (mut findings, _) = follow(&files, last, view);
        assert_eq!(healths(&findings), healths(&whole), "step {step}");
        assert_eq!(jobs(&findings), jobs(&whole), "step {step}");
        assert_eq!(findings.lacking, whole.lacking, "step {step}");
        assert_eq!(findings.awaited, whole.awaited, "step {step}");
        last = findings.remember().expect("few are to be remembered");
    }
    assert_eq!(last.unsettled().count(), 0, "all is as it was");

    // What repair makes and what is removed meanwhile is seen without any donor changing.
    let (mut findings, looked_at) = follow(&files, last, without(&[1]));
    let units = files.iter().flat_map(|file| &file.holders);
    assert_eq!(looked_at, units.filter(|holders| holders.contains(&1)).count());
    last = findings.remember().expect("few are to be remembered");
    let made = files.iter_mut().flat_map(|file| &mut file.holders).find(|at| at.contains(&1));
    let made = made.expect("there is one");
    let other = (2..=5).find(|donor| !made.contains(donor)).expect("another donor");
    made.push(other);
    let gone = files.iter().rposition(|file| file.is_at(1)).expect("there is one");
    let gone = files.remove(gone);
    let (mut findings, _) = follow(&files, last, without(&[1]));
    findings.forget(VersionId(gone.n));
    findings.conclude();
    let counts = |health: SpaceHealth| (health.incomplete, health.unreadable, health.level);
    let whole = healths(&walk(&files, without(&[1])));
    let found: Vec<_> = healths(&findings).into_iter().map(counts).collect();
    assert_eq!(found, whole.into_iter().map(counts).collect::<Vec<_>>());
}

#[test]
fn files_awaiting_a_silent_donor_are_not_rescanned() {
    let files = files();
    let mut pool = five();
    for donor in 2..=5 {
        assert!(send_heartbeat(&mut pool, donor, 7, 0, 60.0));
    }
    let view = pool.view(at(61.0));
    let mut findings = walk(&files, view.clone());
    assert!(findings.spaces.iter().all(|space| space.health.silent), "{:?}", findings.spaces);
    let last = findings.remember().expect("few are to be remembered");
    let (again, looked_at) = follow(&files, last, view.clone());
    assert_eq!((healths(&again), looked_at), (healths(&walk(&files, view)), 0));
}

#[test]
fn unreadable_files_stay_so_until_donors_return() {
    let files = files();
    let mut pool = five();
    for donor in 3..=5 {
        assert!(send_heartbeat(&mut pool, donor, 7, 0, 60.0));
    }
    let view = pool.view(at(61.0));
    let mut findings = walk(&files, view.clone());
    let whole = healths(&findings);
    assert!(whole.iter().any(|health| health.unreadable > 0), "{whole:?}");
    for step in 0..3 {
        let last = findings.remember().expect("few are to be remembered");
        let looked_at;
        (findings, looked_at) = follow(&files, last, view.clone());
        assert_eq!((healths(&findings), looked_at), (whole.clone(), 0), "step {step}");
    }
    for donor in 1..=5 {
        assert!(send_heartbeat(&mut pool, donor, 7, 0, 62.0));
    }
    let last = findings.remember().expect("few are to be remembered");
    let (findings, _) = follow(&files, last, pool.view(at(62.0)));
    assert!(healths(&findings).iter().all(|health| health.unreadable == 0));
}

#[test]
fn copies_that_are_too_many_are_looked_at_until_they_are_gone() {
    let mut files = files();
    files[0].holders[1] = vec![1, 2, 3, 4];
    let view = five().view(at(1.0));
    let mut findings = walk(&files, view.clone());
    assert!(!findings.excess.is_empty());
    let (mut again, looked_at) =
        follow(&files, findings.remember().expect("few are to be remembered"), view.clone());
    assert_eq!((again.excess.len(), looked_at), (findings.excess.len(), 1));
    files[0].holders[1].pop();
    let last = again.remember().expect("few are to be remembered");
    let (mut settled, _) = follow(&files, last, view);
    assert_eq!(settled.remember().expect("few are to be remembered").unsettled().count(), 0);
}

#[test]
fn a_donor_that_gives_space_back_has_its_files_looked_at() {
    let files = files();
    let mut pool = five();
    let last = walk(&files, pool.view(at(1.0))).remember().expect("few are to be remembered");
    let since = at(1.0);
    let giving = Giving { start: 0, at_once: false, lose: [].into(), since };
    pool.give_back(DonorId(4), Some(giving));
    let view = pool.view(at(1.0));
    let whole = walk(&files, view.clone());
    let (findings, _) = follow(&files, last, view);
    assert_eq!((healths(&findings), findings.moving), (healths(&whole), whole.moving));
    assert!(!findings.queue.is_empty());
}
