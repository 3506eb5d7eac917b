//! Tests which copies a scan says may be deleted, and what the catalog makes of that afterwards.

use crate::commit::PreparedFile;
use crate::conversions::arrive_some;
use crate::excess::can_go;
use crate::fixture::{Fixture, arrives, chunk, coded, file};
use crate::{donors, placements, units, versions};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::Redundancy;
use potluck_pool::redundancy::{Excess, Findings};
use potluck_pool::{Giving, PoolView};
use std::collections::BTreeMap;
use std::time::Duration;

fn copies(at: &str, n: u64, on: &[u32], copies: u32) -> PreparedFile {
    let mut file = file(at, &[n], on);
    file.version.copies = copies;
    file
}

fn giving(at_once: bool, lose: &[VersionId]) -> Option<Giving> {
    let since = Tick::ZERO;
    Some(Giving { start: 0, at_once, lose: lose.into(), since })
}

impl Fixture {
    fn view(&self) -> PoolView {
        self.pool.view(Tick::ZERO)
    }

    /// Copies that all can do without, by a scan of now.
    fn agreed(&self) -> BTreeMap<(ChunkName, DonorId), Excess> {
        let found = self.scan(Findings::new(self.view())).excess;
        found.into_iter().filter(|(_, excess)| excess.is_agreed()).collect()
    }

    /// Which of these copies may still go, each by itself.
    fn still(&self, agreed: &BTreeMap<(ChunkName, DonorId), Excess>) -> Vec<u32> {
        let view = self.view();
        let goes = |((name, donor), excess): (&(ChunkName, DonorId), &Excess)| {
            can_go(&self.db, &view, name, *donor, excess).expect("read").then_some(donor.0)
        };
        agreed.iter().filter_map(goes).collect()
    }
}

#[test]
fn a_copy_goes_only_for_those_who_were_asked() {
    let mut fixture = Fixture::new();
    fixture.put(copies("pot://lab/a", 1, &[1, 2], 1));
    let agreed = fixture.agreed();
    assert_eq!(fixture.still(&agreed), [2]);
    // As many references as before, and another's, who was told of two copies.
    fixture.put(copies("pot://lab/a", 1, &[], 2));
    assert_eq!(fixture.refs(&chunk(1)), Some(1));
    assert!(fixture.still(&agreed).is_empty());
}

#[test]
fn a_copy_stays_when_what_was_asked_for_changed() {
    let mut fixture = Fixture::new();
    let version = fixture.put(copies("pot://lab/a", 1, &[1, 2], 1));
    let agreed = fixture.agreed();
    versions::set_goal(&fixture.db, version, Some(Redundancy::Copies(2))).expect("set");
    assert!(fixture.still(&agreed).is_empty());
}

#[test]
fn a_file_that_is_met_twice_does_not_stand_in_for_another() {
    let mut fixture = Fixture::new();
    let one = fixture.put(copies("pot://lab/a", 1, &[1, 2], 1));
    fixture.put(copies("pot://lab/b", 1, &[], 2));
    let version = versions::get(&fixture.db, one).expect("there");
    let layout = units::layout(&fixture.db, &version).expect("read");
    let mut findings = Findings::new(fixture.view());
    for _ in 0..2 {
        findings.add(&version, ChunkKind::Data, &layout);
    }
    let excess = &findings.excess[&(chunk(1), DonorId(2))];
    assert_eq!(excess.uses(), excess.refs, "as many as there are");
    assert!(!excess.is_agreed());
    // A file that uses a chunk twice is met once.
    fixture.put(file("pot://lab/b", &[2, 2], &[1, 2]));
    assert!(fixture.agreed().contains_key(&(chunk(2), DonorId(2))));
}

#[test]
fn a_copy_stays_when_what_is_relied_on_instead_counts_no_more() {
    let mut fixture = Fixture::new();
    fixture.put(copies("pot://lab/a", 1, &[1, 2], 1));
    let agreed = fixture.agreed();
    fixture.pool.give_back(DonorId(1), giving(true, &[]));
    assert!(fixture.still(&agreed).is_empty(), "its owner takes the space");
    fixture.pool.give_back(DonorId(1), None);
    fixture.pool.quarantine(DonorId(1), Some("it lies".into()));
    assert!(fixture.still(&agreed).is_empty(), "it is not trusted");
    fixture.pool.quarantine(DonorId(1), None);
    assert_eq!(fixture.still(&agreed), [2]);
}

#[test]
fn what_no_list_named_is_not_lost_by_taking_space_at_once() {
    let mut fixture = Fixture::new();
    let listed = fixture.put(copies("pot://lab/listed", 1, &[1], 1));
    // Visible only after the list was made; and a file that two owners leave.
    let late = fixture.put(copies("pot://lab/late", 2, &[1], 1));
    fixture.put(copies("pot://lab/both", 3, &[1, 2], 2));
    // This one can be read without them: it waits for nobody.
    fixture.put(copies("pot://lab/safe", 4, &[1, 5], 2));
    fixture.pool.give_back(DonorId(1), giving(true, &[listed]));
    fixture.pool.give_back(DonorId(2), giving(true, &[]));

    let agreed = fixture.agreed();
    let mut names: Vec<_> = agreed.keys().map(|(name, donor)| (*name, donor.0)).collect();
    names.sort_unstable();
    let mut expected = [(chunk(1), 1), (chunk(4), 1)];
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(fixture.still(&agreed), [1, 1]);
    let moving = &fixture.scan(Findings::new(fixture.view())).moving;
    assert_eq!((moving[&DonorId(1)].chunks, moving[&DonorId(2)].chunks), (2, 1), "moved first");

    // A chunk that a listed file shares with another is that one's too.
    fixture.put(copies("pot://lab/shares", 1, &[1, 6], 1));
    placements::missing(&fixture.db, DonorId(6), row(&fixture, 1)).expect("told");
    assert!(!fixture.agreed().contains_key(&(chunk(1), DonorId(1))));
    // Called off: the list is worth nothing any more.
    fixture.pool.give_back(DonorId(1), giving(true, &[late]));
    assert!(fixture.still(&agreed).len() == 1, "only what can be read without it");
    fixture.pool.give_back(DonorId(1), None);
    assert!(fixture.still(&agreed).is_empty());
}

fn row(fixture: &Fixture, n: u64) -> crate::chunks::ChunkId {
    crate::chunks::get(&fixture.db, &chunk(n)).expect("read").expect("there").id
}

#[test]
fn a_group_loses_at_once_only_what_it_can_be_read_without() {
    let mut fixture = Fixture::new();
    let parts: &[(u64, &[u32])] = &[(1, &[1]), (2, &[2]), (11, &[3])];
    fixture.put(coded("pot://lab/a", "2+1", 2, parts));
    fixture.pool.give_back(DonorId(1), giving(true, &[]));
    let agreed = fixture.agreed();
    assert_eq!(fixture.still(&agreed), [1], "the two others give it back");
    fixture.pool.quarantine(DonorId(3), Some("it lies".into()));
    assert!(fixture.still(&agreed).is_empty());
    fixture.pool.quarantine(DonorId(3), None);
    fixture.pool.give_back(DonorId(2), giving(true, &[]));
    assert!(fixture.still(&agreed).is_empty() && fixture.agreed().is_empty());
}

#[test]
fn what_may_be_lost_is_remembered_until_it_is_called_off() {
    let fixture = Fixture::new();
    let lose = vec![VersionId(3), VersionId(u64::from(u32::MAX) + 7)];
    let goal = donors::Goal { start: 9, at_once: true, lose };
    donors::give_back(&fixture.db, DonorId(1), Some(&goal)).expect("kept");
    let fixture = fixture.reopen();
    let known = donors::all(&fixture.db).expect("read");
    assert_eq!(known[0].giving, Some(goal));
    donors::give_back(&fixture.db, DonorId(1), None).expect("called off");
    let again = donors::Goal { at_once: true, ..donors::Goal::default() };
    donors::give_back(&fixture.db, DonorId(1), Some(&again)).expect("kept");
    assert_eq!(donors::all(&fixture.db).expect("read")[0].giving, Some(again));
}

#[test]
fn an_earlier_redundancy_is_given_up_only_while_the_new_one_is_there() {
    let mut fixture = Fixture::new();
    let parts: &[(u64, &[u32])] = &[(1, &[1, 4]), (2, &[2, 5]), (11, &[3])];
    let version = fixture.put(coded("pot://lab/a", "2+1", 2, parts));
    let goal = Redundancy::Copies(2);
    versions::set_goal(&fixture.db, version, Some(goal)).expect("set");
    let found = fixture.scan(Findings::new(fixture.view())).arrived;
    assert_eq!(found, [(version, goal)]);
    let arrive = |view: &PoolView| arrive_some(&fixture.db, view, &found, 0).expect("looked at");
    // Donor 4 dies meanwhile: for now it is merely silent.
    let later = Duration::from_secs(5);
    let mut pool = crate::fixture::donors_there(5);
    [1, 2, 3, 5].iter().for_each(|donor| arrives(&mut pool, *donor, later));
    assert_eq!(arrive(&pool.view(later)), (1, 0));
    assert_eq!(versions::get(&fixture.db, version).expect("there").goal, Some(goal));
    let silent = fixture.scan(Findings::new(pool.view(later)));
    assert!(silent.arrived.is_empty(), "nor is it looked at again and again");
    assert_eq!(arrive(&fixture.view()), (1, 1));
    assert_eq!(versions::get(&fixture.db, version).expect("there").redundancy(), goal);
    assert_eq!(fixture.refs(&chunk(11)), Some(0));
}
