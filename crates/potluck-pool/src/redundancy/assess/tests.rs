//! Tests which jobs are put off for which others, in a pool where not everything can be done.

use super::{Findings, MAX_QUEUED};
use crate::redundancy::layout::{Layout, LayoutChunk, Unit, Version};
use crate::redundancy::{chunk_facts, judge_file};
use crate::tests::{at, chunk, heartbeat, pool, register, register_in};
use crate::{Giving, Pool, PoolView};
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::{ChunkKind, ChunkName, Digest, PARTS};
use potluck_core::ids::{DonorId, Incarnation, SpaceId, VersionId};
use potluck_core::origin::CacheState;
use potluck_core::policy::Redundancy;
use potluck_core::repair_plan::Worth;
use potluck_wire::control::MirrorState;
use std::collections::BTreeSet;

/// Makes a pool of three live donors, with room for a GiB or so each.
fn three() -> Pool {
    let mut pool = pool();
    for donor in 1..=3 {
        register(&mut pool, donor, 7, 0.0);
        pool.inventory_done(DonorId(donor), Incarnation(7));
    }
    pool
}

/// Adds a file of one chunk of `len` bytes that is at `holder` and is to have two copies.
fn add(findings: &mut Findings, n: u64, len: u32, holder: u32) -> ChunkName {
    add_at(findings, n, len, &[holder])
}

/// Adds a file of one chunk that is at `holders` and is to have two copies.
fn add_at(findings: &mut Findings, n: u64, len: u32, holders: &[u32]) -> ChunkName {
    let holders = holders.iter().map(|holder| (*holder, false)).collect::<Vec<_>>();
    add_leaving(findings, n, len, &holders)
}

/// Adds a file of one chunk that is to have two copies; `holders` tells of each copy whether it is being deleted.
fn add_leaving(findings: &mut Findings, n: u64, len: u32, holders: &[(u32, bool)]) -> ChunkName {
    add_copies(findings, n, len, 2, holders)
}

/// Adds a file of one chunk that is to have `copies` copies.
fn add_copies(
    findings: &mut Findings,
    n: u64,
    len: u32,
    copies: u32,
    holders: &[(u32, bool)],
) -> ChunkName {
    add_promised(findings, n, (len, copies), CacheState::Kept, holders)
}

/// Adds a file of one chunk of a length in bytes that is to have some copies, of which the pool promises `cache`.
fn add_promised(
    findings: &mut Findings,
    n: u64,
    (len, copies): (u32, u32),
    cache: CacheState,
    holders: &[(u32, bool)],
) -> ChunkName {
    let version = Version {
        metadata: None,
        id: VersionId(n),
        size: len.into(),
        holes: 0,
        digest: Digest([0; 32]),
        attributes: EntryAttributes::default(),
        chunk_size: len,
        copies,
        ec: None,
        goal: None,
        safe_wall_ms: None,
        origin: None,
        cache,
        key: None,
        chunks: 1,
        parts: 0,
        inline: false,
    };
    let holders = holders.iter().map(|(holder, leaving)| (DonorId(*holder), *leaving)).collect();
    let name = chunk(n);
    let layout = Layout {
        pieces: vec![LayoutChunk { name, len, refs: 1, holders }],
        data: 1,
        units: vec![Unit { number: 0, group: None, shards: vec![0; copies as usize] }],
        ..Layout::default()
    };
    findings.add(&version, ChunkKind::Data, &layout);
    name
}

#[test]
fn a_donor_is_not_kept_by_what_is_as_far_apart_without_it() {
    let leaves = BTreeSet::from([DonorId(1)]);
    let blocked = |labels: [&str; 3]| {
        let mut pool = pool();
        for (donor, label) in (1..).zip(labels) {
            register_in(&mut pool, donor, 7, 0.0, Some(label));
            pool.inventory_done(DonorId(donor), Incarnation(7));
        }
        let mut findings = Findings::new(pool.view(at(1.0)).leaving(&leaves));
        add_at(&mut findings, 1, 1000, &[1, 2, 3]);
        findings.blocked.contains_key(&DonorId(1))
    };
    assert!(!blocked(["room", "room", "room"]), "two copies in one room stay");
    assert!(blocked(["another", "room", "room"]), "they are in one room only without it");
}

#[test]
fn absent_chunks_of_cached_files_are_no_damage() {
    for (cache, is_damage) in [(CacheState::Kept, true), (CacheState::Cached, false)] {
        let mut findings = Findings::new(three().view(at(1.0)));
        findings.enter(SpaceId(1), "lab", Redundancy::Copies(1));
        add_promised(&mut findings, 1, (1000, 1), cache, &[]);
        findings.leave();
        assert_eq!(findings.spaces[0].health.unreadable, u64::from(is_damage), "{cache:?}");
    }
}

#[test]
fn copies_of_cached_files_go_when_donors_leave() {
    let leaves = BTreeSet::from([DonorId(1)]);
    let goes = |cache, donor| {
        let mut findings = Findings::new(three().view(at(1.0)).leaving(&leaves));
        let name = add_promised(&mut findings, 1, (1000, 1), cache, &[(donor, false)]);
        findings.excess.get(&(name, DonorId(donor))).is_some_and(|excess| excess.is_agreed())
    };
    assert!(!goes(CacheState::Kept, 1), "it is copied first");
    assert!(goes(CacheState::Cached, 1));
    assert!(!goes(CacheState::Cached, 2), "its donor stays");
    assert!(goes(CacheState::Evicted, 2));
}

#[test]
fn full_repair_queue_drops_unplaceable_work_first() {
    let mut findings = Findings::new(three().view(at(1.0)));
    for n in 0..MAX_QUEUED as u64 {
        add(&mut findings, n, u32::MAX, 1);
    }
    assert_eq!((findings.queue.len(), findings.more), (MAX_QUEUED, false));
    let fits = add(&mut findings, u64::MAX, 1000, 1);
    assert_eq!((findings.queue.len(), findings.more), (MAX_QUEUED, true));
    let first = findings.queue.values().next().expect("a job");
    assert_eq!(first.shards[0].name, fits);
    assert_eq!(findings.lacking, [MAX_QUEUED as u64 + 1]);
}

#[test]
fn a_copy_that_several_files_lack_is_counted_once() {
    let mut findings = Findings::new(three().view(at(1.0)));
    add(&mut findings, 1, 1000, 1);
    add(&mut findings, 1, 1000, 1);
    add(&mut findings, 2, 500, 1);
    assert_eq!((findings.lacking, findings.lacking_bytes), (vec![2], 1500));
    assert_eq!(findings.queue.len(), 3, "each is looked at for its own sake");
}

#[test]
fn work_with_only_a_failing_source_is_not_queued() {
    let mut pool = three();
    pool.leave_alone(DonorId(1), at(0.0));
    let mut findings = Findings::new(pool.view(at(1.0)));
    add(&mut findings, 1, 1000, 1);
    let other = add(&mut findings, 2, 1000, 2);
    let queued: Vec<_> = findings.queue.values().map(|job| job.shards[0].name).collect();
    assert_eq!((findings.sourceless, queued), (1, vec![other]));
    assert!(pool.view(at(31.0)).get(DonorId(1)).expect("known").sends, "only for a while");
}

#[test]
fn conversion_with_a_lost_copy_keeps_the_old_promise() {
    let view = three().view(at(1.0));
    let version = |goal| Version {
        metadata: None,
        id: VersionId(1),
        size: 1000,
        holes: 0,
        digest: Digest([0; 32]),
        attributes: EntryAttributes::default(),
        chunk_size: 1000,
        copies: 2,
        ec: None,
        goal,
        safe_wall_ms: Some(5),
        origin: None,
        cache: Default::default(),
        key: None,
        chunks: 1,
        parts: 0,
        inline: false,
    };
    let layout = |holders: &[u32]| Layout {
        pieces: vec![LayoutChunk {
            name: chunk(1),
            len: 1000,
            refs: 1,
            holders: holders.iter().map(|donor| (DonorId(*donor), false)).collect(),
        }],
        data: 1,
        units: vec![Unit { number: 0, group: None, shards: vec![0, 0] }],
        ..Layout::default()
    };
    let opened = |version: &Version| {
        let mut findings = Findings::new(view.clone());
        findings.add(version, ChunkKind::Data, &layout(&[1]));
        findings.open
    };
    let goal = version(Some(Redundancy::Copies(3)));
    assert_eq!(opened(&goal), []);
    assert_eq!(opened(&version(None)), [VersionId(1)]);
    let lacking = judge_file(&goal, &layout(&[1]), &view);
    assert!(lacking.is_incomplete() && lacking.health.safe_since_ms.is_none());
    let whole = judge_file(&goal, &layout(&[1, 2]), &view);
    assert!(!whole.is_incomplete(), "{:?}", whole.health);
    let lost = judge_file(&version(None), &layout(&[]), &view);
    assert!(lost.health.unreadable > 0 && !lost.is_incomplete(), "it is counted once");
    assert!(lost.health.below_policy);
}

#[test]
fn chunk_on_a_silent_donor_is_rebuildable_from_its_group() {
    let pool = three();
    let now = at(0.0);
    let piece = |n, donor| LayoutChunk {
        name: chunk(n),
        len: 100,
        refs: 1,
        holders: vec![(DonorId(donor), false)],
    };
    let ec = "2+1".parse().expect("a code");
    let layout = Layout {
        pieces: (1..).zip([1, 2, 3]).map(|(n, donor)| piece(n, donor)).collect(),
        data: 2,
        units: vec![Unit { number: 0, group: Some((ec, 2)), shards: vec![0, 1, 2] }],
        ..Layout::default()
    };
    let mut view = pool.view(now);
    let states = |view: &PoolView| -> Vec<MirrorState> {
        chunk_facts(&layout, view).iter().map(|chunk| chunk.state).collect()
    };
    assert_eq!(states(&view), [MirrorState::Complete; 3]);
    let mut fall_silent = |donor| {
        for at in view.each(&BTreeSet::from([DonorId(donor)])) {
            (at.live, at.worth) = (false, Worth::Silent);
        }
        states(&view)
    };
    let one = fall_silent(1);
    assert_eq!(one, [MirrorState::Rebuildable, MirrorState::Complete, MirrorState::Complete]);
    let two = fall_silent(2);
    assert_eq!(two, [MirrorState::Unreadable, MirrorState::Unreadable, MirrorState::Complete]);
}

#[test]
fn space_with_damaged_files_has_no_current_tolerance() {
    let mut findings = Findings::new(three().view(at(1.0)));
    findings.enter(SpaceId(1), "lab", Redundancy::Copies(2));
    findings.add_damaged("lab", "a", "a recipe");
    findings.leave();
    let space = &findings.spaces[0].health;
    assert_eq!((space.tolerates, space.tolerates_now, space.unreadable), (None, None, 1));
}

#[test]
fn copy_under_deletion_is_recalled_only_as_last_copy() {
    let mut pool = three();
    let since = at(0.0);
    let giving = Giving { start: 0, at_once: false, lose: [].into(), since };
    pool.give_back(DonorId(1), Some(giving));
    let look = |holders: &[(u32, bool)]| {
        let mut findings = Findings::new(pool.view(at(1.0)));
        let name = add_leaving(&mut findings, 1, 1000, holders);
        let job = findings.queue.values().next().expect("a job");
        let keep: Vec<_> = findings.keep.iter().map(|(donor, kept)| (donor.0, *kept)).collect();
        (job.shards[0].from.clone(), keep, name)
    };
    let (from, keep, _) = look(&[(1, true), (2, false)]);
    assert_eq!((from, keep), (vec![DonorId(2)], vec![]));
    let (from, keep, name) = look(&[(1, true)]);
    assert_eq!((from, keep), (vec![DonorId(1)], vec![(1, name)]));
}

#[test]
fn quota_shrink_deletes_no_needed_copy() {
    let goes = |disk_lacks: u64| {
        let mut pool = three();
        let mut told = heartbeat(7, 0);
        (told.excess, told.disk_lacks) = (1000, disk_lacks);
        pool.heartbeat(DonorId(1), &told, at(0.5));
        pool.leave_below(DonorId(1), PARTS, if disk_lacks > 0 { PARTS } else { 0 });
        let mut findings = Findings::new(pool.view(at(1.0)));
        let name = add_copies(&mut findings, 1, 1000, 3, &[(1, false), (2, false), (3, false)]);
        let excess = findings.excess.get(&(name, DonorId(1)));
        (excess.is_some_and(|copy| copy.is_agreed()), findings.blocked[&DonorId(1)].chunks)
    };
    assert_eq!(goes(0), (false, 1), "nobody else takes it, and it stays");
    assert_eq!(
        goes(1),
        (true, 1),
        "a full disk does not wait for what one more death loses nothing by"
    );
}

#[test]
fn evacuation_range_is_reset_after_a_shortage() {
    let mut pool = three();
    let mut says = |sequence, bytes, now| {
        let mut told = heartbeat(7, sequence);
        (told.excess, told.disk_lacks) = (bytes, bytes);
        pool.heartbeat(DonorId(1), &told, at(now));
        let view = pool.view(at(now));
        let status = view.get(DonorId(1)).expect("registered");
        let leaving = (status.below, status.disk_below);
        pool.leave_below(DonorId(1), PARTS, PARTS);
        leaving
    };
    says(0, 1000, 0.5);
    assert_eq!(says(0, 1000, 1.5), (PARTS, PARTS));
    says(0, 0, 2.5);
    let mut told = heartbeat(7, 0);
    pool.heartbeat(DonorId(1), &told, at(3.5));
    told.excess = 1;
    pool.heartbeat(DonorId(1), &told, at(4.5));
    let view = pool.view(at(4.5));
    let status = view.get(DonorId(1)).expect("registered");
    assert_eq!((status.below, status.disk_below), (0, 0), "no scan has chosen what goes");
}
