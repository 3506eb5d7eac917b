//! Following the copies of a donor to the files that need them.

use crate::stage::{Stage, when};
use potluck_catalog::fixture::{chunk, coded, file, in_parts, new_space, path};
use potluck_catalog::{CopyRequest, Met, PageLimit, SomeUnits, ToFollow, ToldCopies};
use potluck_core::clock::Tick;
use potluck_core::ids::{ChunkId, DonorId, MemberId, SpaceId, VersionId};
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_wire::control::Condition;

const PAGE: PageLimit = PageLimit { chunks: 64, entries: 64 };

impl Stage {
    /// Returns the versions that need copies at a donor, read in pages of two chunks.
    async fn needing(&self, donor: u32) -> Vec<VersionId> {
        let (mut needing, mut after) = (Vec::new(), Some(ChunkId::FIRST));
        while let Some(from) = after {
            let page = self.catalog.referrers_at(DonorId(donor), from, 2).await.expect("read");
            needing.extend(page.uses.into_iter().map(|(version, _)| version));
            after = page.next;
        }
        needing.sort_unstable();
        needing.dedup();
        needing
    }

    /// Returns those of these versions to which paths lead, with their spaces.
    async fn followed(&self, versions: &[VersionId]) -> Vec<(VersionId, SpaceId)> {
        let whole = |version: &VersionId| ToFollow { version: *version, units: None };
        let (mut all, mut rest) = (Vec::new(), versions.iter().map(whole).collect::<Vec<_>>());
        while !rest.is_empty() {
            let page = self.catalog.files_followed(rest.clone(), PAGE).await.expect("read");
            assert!(page.1 > 0, "a page looks at one at least");
            rest.drain(..page.1);
            for followed in page.0 {
                assert!(
                    matches!(followed.met, Met::File(version, _) if version.id == followed.version)
                );
                all.push((followed.version, followed.space));
            }
        }
        all
    }
}

#[tokio::test]
async fn donor_copies_map_to_the_files_that_need_them() {
    let mut stage = Stage::new().await;
    let one = stage.put(file("pot://lab/d/one", &[1, 2, 2], &[1, 2])).await;
    let two = stage.put(file("pot://lab/two", &[2, 3], &[2, 3])).await;
    let three = stage.put(file("pot://lab/three", &[4], &[3, 4])).await;
    let five = coded("pot://lab/five", "2+1", 2, &[(5, &[5]), (6, &[6]), (7, &[7])]);
    let five = stage.put(five).await;
    assert_eq!(stage.needing(1).await, [one, two], "they share a chunk");
    assert_eq!(stage.needing(3).await, [one, two, three], "wherever the shared chunk came from");
    assert_eq!(stage.needing(4).await, [three]);
    assert_eq!(stage.needing(7).await, [five], "parity is needed as well");
    assert_eq!(stage.needing(8).await, []);
    // A lost copy is followed as well, for its files miss it.
    stage.tell(4, ToldCopies { removed: vec![chunk(4)], ..ToldCopies::default() }, 0).await;
    assert_eq!(stage.needing(4).await, [three]);
}

#[tokio::test]
async fn replaced_and_removed_files_are_unfollowed() {
    let mut stage = Stage::new().await;
    let mut last = VersionId(0);
    for _ in 0..20 {
        // Each version has the same content, and takes the place of the one before.
        last = stage.put(file("pot://lab/a", &[1, 2], &[1])).await;
        assert_eq!(stage.needing(1).await, [last]);
    }
    let copy = CopyRequest {
        from: path("pot://lab/a"),
        to: path("pot://lab/b"),
        recursive: false,
        condition: Condition::Always,
        asked: AskedPolicy::default(),
        after: None,
        reserved: Vec::new(),
    };
    let donors = stage.donors.snapshot(Tick::ZERO);
    stage
        .catalog
        .copy_files((MemberId(1), stage.session, 900), copy, donors, when(0), |_| Ok(String::new()))
        .await
        .expect("copied");
    let both = stage.needing(1).await;
    assert_eq!(both.len(), 2);
    stage.remove("pot://lab/a", 5).await;
    stage.empty_trash().await;
    assert_eq!(stage.needing(1).await, both[1..]);
    assert_ne!(both[1], last);
    stage.remove("pot://lab/b", 6).await;
    stage.empty_trash().await;
    assert_eq!(stage.needing(1).await, []);
}

#[tokio::test]
async fn followed_versions_are_found_while_a_path_leads_to_them() {
    let mut stage = Stage::new().await;
    let policy = Policy { sealed: false, ..Policy::default() };
    stage.catalog.create_space(new_space("attic", policy, None), None, 0).await.expect("made");
    let deep = stage.put(file("pot://lab/d/e/f/one", &[1], &[1])).await;
    stage.session_in("attic").await;
    let other = stage.put(file("pot://attic/one", &[2], &[1])).await;
    let spaces = stage.catalog.spaces().await.expect("spaces");
    let space = |name| spaces.iter().find(|space| space.name == name).expect("there").id;
    let all = stage.needing(1).await;
    assert_eq!(all, [deep, other]);
    let found = stage.followed(&all).await;
    assert_eq!(found, [(deep, space("lab")), (other, space("attic"))]);
    // A tree that is removed keeps its versions until it is taken apart, but no path leads to them.
    stage
        .catalog
        .remove(path("pot://lab/d"), Default::default(), true, when(5))
        .await
        .expect("removed");
    assert_eq!(stage.followed(&all).await, [(other, space("attic"))]);
}

#[tokio::test]
async fn parts_are_followed_once_their_file_is_visible() {
    let mut stage = Stage::new().await;
    let mut files = in_parts("pot://lab/large", 0, 0..3000, &[1, 2]);
    let whole = files.pop().expect("the whole");
    for part in files {
        stage.put(part).await;
    }
    let parts = stage.needing(1).await;
    assert_eq!(parts.len(), 3);
    assert_eq!(stage.followed(&parts).await, [], "it is still being written");
    assert_eq!(stage.catalog.pathless(parts.clone()).await.expect("read"), parts);
    stage.put(whole).await;
    assert_eq!(stage.followed(&parts).await.len(), 3);
    assert_eq!(stage.catalog.pathless(parts.clone()).await.expect("read"), []);
    stage.remove("pot://lab/large", 5).await;
    assert_eq!(stage.followed(&parts).await, []);
    assert_eq!(stage.catalog.pathless(parts.clone()).await.expect("read"), parts);
    stage.empty_trash().await;
    assert_eq!(stage.needing(1).await, []);
}

#[tokio::test]
async fn reading_units_of_a_file_returns_only_those_asked_for() {
    let mut stage = Stage::new().await;
    let on: [&[u32]; 9] = [&[1], &[2], &[3], &[4], &[5], &[6], &[7], &[8], &[9]];
    let chunks: Vec<(u64, &[u32])> = (1..).zip(on).collect();
    stage.asked.over.ec = Some("2+1".parse().expect("a code"));
    // The file has three groups of two data chunks, and their parity comes behind all data.
    let version = stage.put(coded("pot://lab/a", "2+1", 6, &chunks)).await;
    let units = SomeUnits { numbers: vec![0], names: vec![chunk(9), chunk(77)] };
    let asked = vec![ToFollow { version, units: Some(units) }];
    let (followed, _) = stage.catalog.files_followed(asked, PAGE).await.expect("read");
    let Met::File(_, layout) = &followed[0].met else { panic!("it is sound") };
    assert_eq!(layout.data, 4);
    let named = |piece: &usize| layout.pieces[*piece].name;
    let read: Vec<(u32, Vec<_>)> = layout
        .units
        .iter()
        .map(|unit| (unit.number, unit.shards.iter().map(named).collect()))
        .collect();
    let expected = [(0, [1, 2, 7].map(chunk).to_vec()), (2, [5, 6, 9].map(chunk).to_vec())];
    assert_eq!(read, expected);
}
