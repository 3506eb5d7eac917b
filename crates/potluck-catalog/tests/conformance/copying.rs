//! Copies inside the pool.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::chunk;
use potluck_catalog::fixture::coded;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::new_space;
use potluck_catalog::fixture::path;
use potluck_catalog::{Copied, CopyOutcome, CopyRequest, Error};
use potluck_core::clock::Tick;
use potluck_core::ids::{MemberId, SessionId};
use potluck_core::policy::{AskedPolicy, Override, Policy, Redundancy};
use potluck_core::seal::SpaceKey;
use potluck_wire::control::Condition;

fn wanted(from: &str, to: &str) -> CopyRequest {
    CopyRequest {
        from: path(from),
        to: path(to),
        recursive: true,
        condition: Condition::Always,
        asked: AskedPolicy::default(),
        after: None,
        reserved: Vec::new(),
    }
}

async fn page(stage: &Stage, number: u32, wanted: &CopyRequest) -> Result<CopyOutcome, Error> {
    let reply = |copied: &Copied| Ok(format!("{} files", copied.files.len()));
    let command = (MemberId(1), SessionId([99; 16]), number);
    let donors = stage.donors.snapshot(Tick::ZERO);
    stage.catalog.copy_files(command, wanted.clone(), donors, when(60), reply).await
}

async fn copied(stage: &Stage, number: u32, wanted: &CopyRequest) -> Copied {
    match page(stage, number, wanted).await.expect("copied") {
        CopyOutcome::Fresh(copied) => copied,
        CopyOutcome::Repeated(text) => panic!("taken for repeated: {text}"),
    }
}

/// Returns the number of files of a space, and their bytes.
async fn sums(stage: &Stage, name: &str) -> (i64, i64) {
    let spaces = stage.catalog.spaces().await.expect("spaces");
    let space = spaces.iter().find(|space| space.name == name).expect("there");
    (space.sums.files, space.sums.bytes)
}

#[tokio::test]
async fn a_copy_counts_references_and_stands_for_itself() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1, 2, 1], &[1])).await;
    let copy = copied(&stage, 0, &wanted("pot://lab/a", "pot://lab/x/b")).await;
    assert_eq!((copy.next, copy.again.condemned.len()), (None, 0));
    assert_eq!(sums(&stage, "lab").await, (2, 6000));
    stage.remove("pot://lab/a", 50).await;
    assert!(stage.unused(1000).await.is_empty());

    // A copy over another file ends the references of that file, and a copy over an equal file changes nothing.
    stage.put(file("pot://lab/c", &[3], &[1])).await;
    for number in 1..3 {
        copied(&stage, number, &wanted("pot://lab/x/b", "pot://lab/c")).await;
        assert_eq!(stage.unused(1000).await, [chunk(3)]);
    }
    stage.remove("pot://lab/c", 70).await;
    assert_eq!(stage.unused(1000).await, [chunk(3)]);
    stage.remove("pot://lab/x/b", 70).await;
    assert_eq!(stage.unused(1000).await.len(), 3);
}

#[tokio::test]
async fn a_copy_of_a_coded_file_names_its_parity_too() {
    let mut stage = Stage::new().await;
    stage.put(coded("pot://lab/a", "2+1", 2, &[(1, &[1]), (2, &[2]), (9, &[3])])).await;
    copied(&stage, 0, &wanted("pot://lab/a", "pot://lab/b")).await;
    stage.remove("pot://lab/a", 50).await;
    assert!(stage.unused(1000).await.is_empty());
    stage.remove("pot://lab/b", 50).await;
    assert_eq!(stage.unused(1000).await.len(), 3);
}

#[tokio::test]
async fn a_page_that_is_asked_for_again_is_not_copied_again() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1])).await;
    let once =
        CopyRequest { condition: Condition::IfAbsent, ..wanted("pot://lab/a", "pot://lab/b") };
    copied(&stage, 0, &once).await;
    match page(&stage, 0, &once).await.expect("answered") {
        CopyOutcome::Repeated(text) => assert_eq!(text, "1 files"),
        CopyOutcome::Fresh(_) => panic!("copied twice"),
    }
    let (_, refused) = &copied(&stage, 1, &once).await.files[0];
    assert_eq!(*refused, Err(Error::Exists(path("pot://lab/b"))));
    stage.remove("pot://lab/a", 50).await;
    stage.remove("pot://lab/b", 50).await;
    assert_eq!(stage.unused(50).await, [chunk(1)], "a refused file leaves no trace");
}

#[tokio::test]
async fn a_tree_is_copied_page_by_page_with_its_directories() {
    let mut stage = Stage::new().await;
    let files = (0..600).map(|n| file(&format!("pot://lab/t/{n:04}"), &[n % 7], &[1]));
    stage.commit(files.collect()).await;
    let empty = stage.catalog.make_directory(path("pot://lab/t/empty"), false, MADE).await;
    empty.expect("made");
    let before = stage.catalog.waiting_changes().await.expect("counted");
    let mut tree = wanted("pot://lab/t", "pot://lab/copy");
    let mut pages = 0;
    loop {
        let copied = copied(&stage, pages, &tree).await;
        assert!(copied.files.iter().all(|(_, file)| file.is_ok()));
        pages += 1;
        tree.after = copied.next;
        if tree.after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 14, "of 46 files of a chunk, so that no commit waits long");
    let after = stage.catalog.waiting_changes().await.expect("counted");
    assert!(after > before, "a restore knows it too");
    assert_eq!(sums(&stage, "lab").await.0, 1200);
    let (from, to) = ("pot://lab/t", "pot://lab/copy");
    assert_eq!(stage.listed(to, true, None).await, stage.listed(from, true, None).await);
    let mut inside = wanted("pot://lab/t", "pot://lab/t/below");
    assert!(matches!(page(&stage, pages, &inside).await, Err(Error::IntoItself { .. })));
    inside.recursive = false;
    inside.to = path("pot://lab/u");
    assert!(matches!(page(&stage, pages, &inside).await, Err(Error::NotRecursive(_))));
}

#[tokio::test]
async fn a_copy_gets_what_its_directory_asks_for_as_its_goal() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1])).await;
    let dir = path("pot://lab/twice");
    stage.catalog.make_directory(dir.clone(), false, MADE).await.expect("made");
    let twice = Override { copies: Some(2), ..Override::default() };
    stage.catalog.set_policy(dir, twice).await.expect("set");
    let of = |copied: Copied| copied.files[0].1.clone().expect("copied").version;
    let copy = of(copied(&stage, 0, &wanted("pot://lab/a", "pot://lab/twice/b")).await);
    assert_eq!((copy.copies, copy.goal), (1, Some(Redundancy::Copies(2))));
    assert_eq!(copy.safe_wall_ms, None, "not as safe as is asked for yet");
    let asked = |may_lower| CopyRequest {
        asked: AskedPolicy { over: Redundancy::Copies(1).into(), may_lower },
        ..wanted("pot://lab/a", "pot://lab/twice/c")
    };
    let refused = copied(&stage, 1, &asked(false)).await;
    assert!(matches!(&refused.files[..], [(_, Err(Error::LessSafe(_)))]), "{refused:?}");
    let copy = of(copied(&stage, 2, &asked(true)).await);
    assert_eq!((copy.goal, copy.safe_wall_ms), (None, Some(2)));
    let there = stage.catalog.stat(path("pot://lab/twice/c")).await.expect("there");
    assert_eq!(there.entry.version, Some(copy.id));
}

#[tokio::test]
async fn a_manager_copies_nothing_between_keys() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1])).await;
    for (name, key) in [("sealed", Some(SpaceKey::from_bytes([7; 32]))), ("open", None)] {
        let policy = Policy { sealed: key.is_some(), ..Policy::default() };
        stage.catalog.create_space(new_space(name, policy, key), None, 0).await.expect("a space");
    }
    let refused = page(&stage, 0, &wanted("pot://lab/a", "pot://sealed/a")).await;
    assert!(matches!(refused, Err(Error::OtherKey { .. })), "{refused:?}");
    copied(&stage, 0, &wanted("pot://lab/a", "pot://open/a")).await;
    assert_eq!(sums(&stage, "open").await, (1, 1000));
}
