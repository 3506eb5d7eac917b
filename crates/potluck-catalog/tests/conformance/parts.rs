//! Files of many chunks are committed, read and removed in parts, and are visible as a whole or not at all.

use crate::stage::{MADE, Stage};
use potluck_catalog::fixture::{chunk, file, in_parts, new_space, path, register};
use potluck_catalog::{
    Error, Met, PageLimit, PartsAhead, PreparedFile, SeenSpaces, StoredFile, ToldCopies,
    UnusedSince, Upkeep,
};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Incarnation};
use potluck_core::policy::{AskedPolicy, Override, Policy, Redundancy};
use potluck_core::recipe::{self, PART_CHUNKS};
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{Holding, StoredPart};

/// The number of chunks of a file with three parts, of which the last is short.
const CHUNKS: u64 = 2 * PART_CHUNKS as u64 + 300;

async fn put_all(stage: &mut Stage, files: Vec<PreparedFile>) -> StoredFile {
    let mut last = None;
    for file in files {
        let (mut stored, _) = stage.store(vec![file]).await;
        last = Some(stored.remove(0).expect("accepted"));
    }
    last.expect("one is there")
}

async fn refs(stage: &Stage) -> usize {
    let unused =
        stage.catalog.unused_chunks(1 << 40, UnusedSince::FIRST, 10_000).await.expect("read");
    unused.len()
}

async fn bytes(stage: &Stage) -> (i64, i64) {
    let space = stage.catalog.spaces().await.expect("spaces").remove(0);
    (space.sums.files, space.sums.bytes)
}

#[tokio::test]
async fn a_file_in_parts_is_visible_as_a_whole_and_not_before() {
    let mut stage = Stage::new().await;
    let mut files = in_parts("pot://lab/d/large", 0, 0..CHUNKS, &[1, 2]);
    let whole = files.pop().expect("the whole");
    // Parts come in any order, and each counts once: one that is sent again takes its own place.
    for number in [1, 0, 2, 1] {
        let (stored, open) = stage.store(vec![files[number].clone()]).await;
        assert!(stored[0].is_ok() && !open, "{stored:?}");
    }
    assert_eq!(stage.listed("pot://lab", true, None).await, [""; 0]);
    assert_eq!(bytes(&stage).await, (0, 0));
    let stage = &mut stage.reopen().await;
    let stored = put_all(stage, vec![whole.clone()]).await;
    assert!(!stored.below_policy);
    assert_eq!(stage.listed("pot://lab", true, None).await, ["d", "d/large"]);
    assert_eq!(bytes(stage).await, (1, CHUNKS as i64 * 65_536));

    let opened = stage.catalog.open_files(path("pot://lab/d/large"), false, None);
    let opened = opened.await.expect("opened").files.remove(0);
    assert_eq!((opened.version, opened.size), (stored.version, CHUNKS * 65_536));
    assert_eq!((opened.digest, opened.pages.len()), (whole.version.digest, 0));
    let mut names = Vec::new();
    for StoredPart { number, digest } in &opened.parts.0 {
        let part = stage.catalog.open_part(path("pot://lab/d/large"), stored.version, *number);
        let part = part.await.expect("opened").files.remove(0);
        assert_eq!(part.digest, *digest);
        let pages = part.pages.iter().map(|page| &page.0[..]);
        names.extend(recipe::unpack(&part.digest, pages).expect("a recipe").chunks);
        assert!(part.holders.iter().all(|donors| donors.len() == 2));
    }
    assert!(names.iter().zip(0..CHUNKS).all(|(entry, n)| entry.name == chunk(n)));
    assert_eq!(names.len() as u64, CHUNKS);
    // A part is only found in the space of its file.
    let other = new_space("other", Policy::default(), None);
    stage.catalog.create_space(other, None, 0).await.expect("a space");
    let elsewhere = stage.catalog.open_part(path("pot://other/large"), stored.version, 0).await;
    assert!(matches!(elsewhere, Err(Error::NoEntry(_))), "{elsewhere:?}");

    let mut used = stage.catalog.usage(path("pot://lab"), None, 700, SeenSpaces::ALL);
    let mut sum = used.await.expect("summed");
    while let Some(after) = sum.next.take() {
        used = stage.catalog.usage(path("pot://lab"), Some(after), 700, SeenSpaces::ALL);
        sum.add(used.await.expect("summed"));
    }
    assert_eq!((sum.files, sum.bytes, sum.stored), (1, CHUNKS * 65_536, 2 * CHUNKS * 65_536));
    let found = stage.scan(stage.donors.view(Tick::ZERO)).await;
    assert_eq!((found.spaces[0].health.files, found.spaces[0].health.unreadable), (1, 0));
}

#[tokio::test]
async fn commit_reports_parts_as_versions() {
    let mut stage = Stage::new().await;
    let mut files = in_parts("pot://lab/large", 0, 0..CHUNKS, &[1, 2]);
    files.iter_mut().for_each(|file| file.version.copies = 2);
    let whole = files.pop().expect("the whole");
    let mut parts = Vec::new();
    for part in files {
        parts.push(put_all(&mut stage, vec![part]).await.version);
    }
    let batch = stage.next_batch();
    let committed = stage.commit_batch(batch, vec![whole], false, 0).await.expect("a batch");
    assert_eq!((committed.versions, committed.tolerates), (parts, Some(1)));
}

#[tokio::test]
async fn parts_that_do_not_make_the_file_make_none() {
    let mut stage = Stage::new().await;
    let mut files = in_parts("pot://lab/large", 7, 0..CHUNKS, &[1]);
    let whole = files.pop().expect("the whole");
    let differ = |why: Error| assert!(matches!(why, Error::PartsDiffer(_)), "{why:?}");
    differ(stage.refused(whole.clone()).await);
    put_all(&mut stage, vec![files[0].clone(), files[2].clone()]).await;
    differ(stage.refused(whole.clone()).await);
    // First the content of the first part comes in the place of the second, then the second part of another file.
    let mut twice = files[0].clone();
    twice.in_parts = files[1].in_parts;
    put_all(&mut stage, vec![twice]).await;
    differ(stage.refused(whole.clone()).await);
    put_all(&mut stage, vec![in_parts("pot://lab/large", 7, 5..CHUNKS, &[1])[1].clone()]).await;
    differ(stage.refused(whole.clone()).await);
    put_all(&mut stage, vec![files[1].clone(), whole]).await;
}

#[tokio::test]
async fn parts_of_a_session_that_ends_are_taken_apart_one_by_one() {
    for leases_are_forgotten in [false, true] {
        let mut stage = Stage::new().await;
        let mut files = in_parts("pot://lab/large", 0, 0..CHUNKS, &[1]);
        let whole = files.pop().expect("the whole");
        put_all(&mut stage, files).await;
        stage.put(file("pot://lab/small", &[9_000_000], &[2])).await;
        if leases_are_forgotten {
            stage.catalog.leases_are_forgotten(490); // of what nobody could open, nobody has one
        }
        stage.catalog.end_session(stage.session).await.expect("ended");
        let (mut steps, mut before) = (0, 0);
        while stage
            .catalog
            .upkeep(Upkeep::Trash { entries: 32, kept_ms: 400 }, 500)
            .await
            .expect("a step")
        {
            let now = refs(&stage).await;
            assert!(now - before <= PART_CHUNKS, "{}", now - before);
            (steps, before) = (steps + 1, now);
        }
        assert_eq!((steps, before as u64), (4, CHUNKS));
        let unused =
            stage.catalog.unused_chunks(100, UnusedSince::FIRST, 10_000).await.expect("read");
        assert_eq!(
            unused.len() as u64,
            CHUNKS,
            "nobody reads what never was visible: it waits for nothing"
        );
        assert!(matches!(
            stage.commit_batch(99, vec![whole], false, 0).await,
            Err(Error::NoSession)
        ));
    }
}

#[tokio::test]
async fn chunks_shared_with_ended_parts_are_unused_since_the_file_went() {
    let mut stage = Stage::new().await;
    put_all(&mut stage, in_parts("pot://lab/read", 1, 5..6, &[1])).await;
    let mut files = in_parts("pot://lab/large", 0, 0..CHUNKS, &[1]);
    files.pop();
    put_all(&mut stage, files).await;
    let trash = async |stage: &Stage, kept_ms, now_ms| {
        let step = Upkeep::Trash { entries: 1000, kept_ms };
        while stage.catalog.upkeep(step, now_ms).await.expect("a step") {}
    };
    stage.remove("pot://lab/read", 1000).await;
    trash(&stage, 0, 1000).await;
    stage.catalog.end_session(stage.session).await.expect("ended");
    trash(&stage, 400, 1010).await;
    let unused = async |before_ms| {
        let page = stage.catalog.unused_chunks(before_ms, UnusedSince::FIRST, 10_000).await;
        page.expect("read").into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    let early = unused(999).await;
    assert_eq!(early.len() as u64, CHUNKS - 1, "nobody reads what never was visible");
    assert!(!early.contains(&chunk(5)), "whoever had the file open may read this one");
    assert_eq!(unused(1000).await.len() as u64, CHUNKS);
}

#[tokio::test]
async fn a_removed_file_stays_open_for_a_while() {
    let mut stage = Stage::new().await;
    let files = in_parts("pot://lab/large", 0, 0..CHUNKS, &[1]);
    let version = put_all(&mut stage, files).await.version;
    stage.remove("pot://lab/large", 1000).await;
    assert_eq!(bytes(&stage).await, (0, 0));
    assert!(
        !stage
            .catalog
            .upkeep(Upkeep::Trash { entries: 1000, kept_ms: 60 }, 1059)
            .await
            .expect("nothing is due")
    );
    let part = stage.catalog.open_part(path("pot://lab/large"), version, 2).await;
    assert_eq!(part.expect("opened").files.len(), 1);
    while stage
        .catalog
        .upkeep(Upkeep::Trash { entries: 1000, kept_ms: 60 }, 1060)
        .await
        .expect("a step")
    {}
    let unused = stage.catalog.unused_chunks(1000, UnusedSince::FIRST, 10_000).await.expect("read");
    assert_eq!(unused.len() as u64, CHUNKS, "unused since it was removed");
    let part = stage.catalog.open_part(path("pot://lab/large"), version, 2).await;
    assert!(matches!(part, Err(Error::NoEntry(_))), "{part:?}");
}

#[tokio::test]
async fn parts_are_rejudged_after_donor_events() {
    let mut stage = Stage::new().await;
    let two = |mut file: PreparedFile| {
        file.version.copies = 2;
        file
    };
    let on = |donors: &[u32]| -> Vec<PreparedFile> {
        in_parts("pot://lab/large", 0, 0..CHUNKS, donors).into_iter().map(two).collect()
    };
    let (mut files, others) = (on(&[1, 2]), on(&[3, 4]));
    let whole = files.pop().expect("the whole");
    put_all(&mut stage, vec![files[0].clone(), others[1].clone(), files[2].clone()]).await;

    // A donor that its parts rely on is started again, and has not listed what it has.
    let again = Incarnation(2);
    let call = register(again);
    stage.donors.register(DonorId(2), &call, Addresses::default(), Tick::ZERO);
    let unjudged = stage.commit_batch(50, vec![whole.clone()], false, 0).await;
    assert!(matches!(unjudged, Err(Error::PartsUnjudged)), "{unjudged:?}");
    let strict = Override { strict: Some(true), ..Override::default() };
    let ahead = PartsAhead {
        session: stage.session,
        file: 0,
        path: path("pot://lab/large"),
        mirror: stage.mirror,
        ack: stage.ack,
        asked: AskedPolicy { over: strict, may_lower: false },
    };
    let judge = async |stage: &Stage| {
        let donors = stage.donors.snapshot(Tick::ZERO);
        stage.catalog.judge_parts(ahead.clone(), donors).await.expect("judged");
    };
    judge(&stage).await;
    let away = stage.refused(whole.clone()).await;
    assert!(matches!(away, Error::HoldersAway { index: 0, .. }), "{away:?}");
    let lost = stage.catalog.lost_parts(stage.session, 0, path("pot://lab/large")).await;
    let lost = lost.expect("read");
    assert_eq!(lost.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 2]);
    assert_eq!((&lost[1].1.pages, lost[1].1.chunks.len()), (&files[2].pages, 300));

    // One part is sent to another donor, and the inventory of donor 2 shows that it has the other part.
    put_all(&mut stage, vec![on(&[1, 5])[0].clone()]).await;
    stage.donors.inventory_done(DonorId(2), again);
    judge(&stage).await;
    assert!(!put_all(&mut stage, vec![whole]).await.below_policy);
}

#[tokio::test]
async fn strict_directory_refuses_parts_judged_less_strictly() {
    let mut stage = Stage::new().await;
    let strict = path("pot://lab/strict");
    stage.catalog.make_directory(strict.clone(), true, MADE).await.expect("made");
    let over = Override { strict: Some(true), ..Override::default() };
    stage.catalog.set_policy(strict, over).await.expect("set");
    let mut files = in_parts("pot://lab/large", 0, 0..CHUNKS, &[1, 2]);
    files.iter_mut().for_each(|file| file.version.copies = 3);
    let whole = files.pop().expect("the whole");
    assert!(put_all(&mut stage, files).await.below_policy);
    let there = PreparedFile { path: path("pot://lab/strict/large"), ..whole.clone() };
    let why = stage.refused(there).await;
    assert!(matches!(why, Error::NotStrict { .. }), "{why:?}");
    assert!(put_all(&mut stage, vec![whole]).await.below_policy);
}

#[tokio::test]
async fn a_page_of_files_ends_inside_a_file_and_goes_on_there() {
    let mut stage = Stage::new().await;
    put_all(&mut stage, in_parts("pot://lab/a/large", 0, 0..CHUNKS, &[1])).await;
    stage.put(file("pot://lab/b", &[9_000_000], &[1])).await;
    let space = stage.catalog.spaces().await.expect("spaces").remove(0);
    let limit = PageLimit { chunks: 1000, entries: 100 };
    let (mut after, mut met) = (None, Vec::new());
    loop {
        let page = stage.catalog.files_of(&space, after, limit).await.expect("read");
        assert!(page.files.len() <= 2);
        met.extend(page.files.into_iter().map(|(path, met)| match met {
            Met::File(_, layout) => (path, true, layout.data),
            Met::Part(_, layout) => (path, false, layout.data),
            Met::Damaged(why) => panic!("{why}"),
        }));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let large = |first, chunks| ("a/large".to_owned(), first, chunks);
    let expected =
        [large(true, 1024), large(false, 1024), large(false, 300), ("b".into(), true, 1)];
    assert_eq!(met, expected);
    // The file itself gives the same pages.
    let (mut after, mut data) = (None, 0);
    loop {
        let page = stage.catalog.files_at(path("pot://lab/a/large"), after, limit, SeenSpaces::ALL);
        let page = page.await.expect("read");
        for (at, met) in page.files {
            let (Met::File(_, layout) | Met::Part(_, layout)) = met else { panic!("{met:?}") };
            assert_eq!(at, "");
            data += layout.data;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(data as u64, CHUNKS);
}

#[tokio::test]
async fn scan_findings_of_parts_apply_to_the_whole_file() {
    let mut stage = Stage::new().await;
    put_all(&mut stage, in_parts("pot://lab/large", 0, 0..CHUNKS, &[1])).await;
    let stat = async |stage: &Stage| {
        let facts = stage.catalog.stat(path("pot://lab/large")).await.expect("facts");
        let version = facts.version.expect("a file");
        (version.copies, version.goal, version.safe_wall_ms)
    };
    assert_eq!(stat(&stage).await, (1, None, Some(2)));
    let two = Redundancy::Copies(2);
    let over = Override { copies: Some(2), ..Override::default() };
    let policy = Policy { copies: 2, ..Policy::default() };
    let at = path("pot://lab/large");
    stage.catalog.set_policy(at.clone(), over).await.expect("set");
    stage.catalog.follow_policy(at, policy, None, Some(5)).await.expect("aimed");
    assert_eq!(stat(&stage).await.1, Some(two));
    // Copies are made of one part after the other, and the file has its goal when all parts have.
    let numbers: Vec<u64> = (0..CHUNKS).collect();
    for part in numbers.chunks(PART_CHUNKS) {
        assert_eq!(stat(&stage).await, (1, Some(two), Some(2)));
        for n in part.chunks(500) {
            let held = |n: &u64| Holding { name: chunk(*n), len: 65_536 };
            let added = n.iter().map(held).collect();
            stage.tell(2, ToldCopies { added, ..ToldCopies::default() }, 6).await;
        }
        let found = stage.scan(stage.donors.view(Tick::ZERO)).await;
        assert_eq!(found.arrived.len(), 1);
        let donors = stage.donors.snapshot(Tick::ZERO);
        stage.catalog.arrive(donors, found.arrived, 7).await.expect("arrived");
    }
    assert_eq!(stat(&stage).await, (2, None, Some(2)));
    // A file is not safe while one of its parts is not.
    let told = |removed| ToldCopies { removed, ..ToldCopies::default() };
    stage.tell(2, told(vec![chunk(2000)]), 8).await;
    let found = stage.scan(stage.donors.view(Tick::ZERO)).await;
    assert_eq!((found.open.len(), found.safe.len()), (1, 0));
    stage.catalog.set_safe(found.open, found.safe, 8).await.expect("set");
    assert_eq!(stat(&stage).await, (2, None, None));
    let added = vec![Holding { name: chunk(2000), len: 65_536 }];
    stage.tell(2, ToldCopies { added, ..ToldCopies::default() }, 9).await;
    let found = stage.scan(stage.donors.view(Tick::ZERO)).await;
    assert_eq!((found.open.len(), found.safe.len()), (0, 1));
    stage.catalog.set_safe(found.open, found.safe, 9).await.expect("set");
    assert_eq!(stat(&stage).await, (2, None, Some(9)));
}
