//! Names: listings, sums, and changes.

use crate::stage::{Stage, when};
use potluck_catalog::Error;
use potluck_catalog::fixture::{chunk, file, path};
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_wire::control::EntryKind;

async fn moved(stage: &Stage, from: &str, to: &str) -> Result<(), Error> {
    stage.catalog.rename(path(from), path(to), false, when(1)).await
}

async fn tree() -> Stage {
    let mut stage = Stage::new().await;
    let files = vec![
        file("pot://lab/b/two", &[2], &[1]),
        file("pot://lab/b/one", &[1], &[1]),
        file("pot://lab/b/deep/er/three", &[3, 3], &[1]),
        file("pot://lab/b.txt", &[4], &[1]),
        file("pot://lab/a", &[5], &[1]),
    ];
    assert!(stage.commit(files).await.iter().all(Result::is_ok));
    stage
}

#[tokio::test]
async fn listings_go_in_order_of_names_with_parents_first() {
    let stage = tree().await;
    assert_eq!(stage.listed("pot://", false, None).await, ["lab"]);
    assert_eq!(stage.listed("pot://lab", false, None).await, ["a", "b", "b.txt"]);
    assert_eq!(
        stage.listed("pot://lab", true, None).await,
        ["a", "b", "b/deep", "b/deep/er", "b/deep/er/three", "b/one", "b/two", "b.txt"]
    );
    assert_eq!(stage.listed("pot://lab/a", false, None).await, [""], "a file lists itself");
    let all = stage.listed("pot://", true, None).await;
    assert_eq!((all[0].as_str(), all[3].as_str()), ("lab", "lab/b/deep"));
    let missing = stage.catalog.list_directory(path("pot://lab/zzz"), false, None).await;
    assert_eq!(missing.expect_err("missing"), Error::NoEntry(path("pot://lab/zzz")));
}

#[tokio::test]
async fn a_listing_goes_on_after_any_entry_also_when_that_is_gone() {
    let stage = tree().await;
    let all = stage.listed("pot://lab", true, None).await;
    for (index, cursor) in all.iter().enumerate() {
        let rest = stage.listed("pot://lab", true, Some(cursor)).await;
        assert_eq!(rest, all[index + 1..], "after {cursor}");
    }
    stage.remove("pot://lab/b/deep", 1).await;
    let rest = stage.listed("pot://lab", true, Some("b/deep/er/three")).await;
    assert_eq!(rest, ["b/one", "b/two", "b.txt"]);
}

#[tokio::test]
async fn opening_a_tree_pages_through_all_of_it() {
    let mut stage = Stage::new().await;
    for batch in 0..3 {
        let one = |n| file(&format!("pot://lab/d{batch}/{n:04}"), &[n], &[1]);
        stage.commit((0..700).map(one).collect()).await;
    }
    let empty = stage.catalog.make_directory(path("pot://lab/empty"), false, when(1)).await;
    empty.expect("made");
    let (mut files, mut dirs, mut pages, mut after) = (0, Vec::new(), 0, None);
    loop {
        let page = stage.catalog.open_files(path("pot://lab"), true, after).await.expect("a page");
        files += page.files.len();
        dirs.extend(page.dirs);
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((files, pages), (2100, 3));
    assert_eq!(dirs, ["d0", "d1", "d2", "empty"]);
    let dir = stage.catalog.open_files(path("pot://lab/d0"), false, None).await;
    assert_eq!(dir.expect_err("a directory"), Error::NotRecursive(path("pot://lab/d0")));
}

#[tokio::test]
async fn moving_keeps_versions_and_replaces_like_rename() {
    let stage = tree().await;
    let version = async |at| {
        let facts = stage.catalog.stat(path(at)).await.expect("there");
        facts.entry.version
    };
    let before = version("pot://lab/b/deep/er/three").await;
    moved(&stage, "pot://lab/b/deep", "pot://lab/deeper").await.expect("a directory moves");
    assert_eq!(version("pot://lab/deeper/er/three").await, before);
    moved(&stage, "pot://lab/a", "pot://lab/b.txt").await.expect("a file replaces a file");
    assert_eq!(stage.unused(1).await, [chunk(4)]);
    assert_eq!(stage.catalog.spaces().await.expect("spaces")[0].files, 4);
    moved(&stage, "pot://lab/b.txt", "pot://lab/b.txt").await.expect("onto itself is nothing");

    let same = async |from, to| moved(&stage, from, to).await.expect_err("refused");
    assert!(matches!(same("pot://lab/b", "pot://lab/b/c").await, Error::IntoItself { .. }));
    assert!(matches!(same("pot://lab/b", "pot://lab/b.txt").await, Error::NotADirectory(_)));
    assert!(matches!(same("pot://lab/b.txt", "pot://lab/b").await, Error::IsADirectory(_)));
    assert!(matches!(same("pot://lab/deeper", "pot://lab/b").await, Error::NotEmpty(_)));
    assert!(matches!(same("pot://lab/none", "pot://lab/x").await, Error::NoEntry(_)));
    assert!(matches!(same("pot://lab/b", "pot://lab/none/x").await, Error::NoEntry(_)));
    assert!(matches!(same("pot://lab/b", "pot://other/b").await, Error::AcrossSpaces { .. }));
    assert!(matches!(same("pot://lab", "pot://lab/x").await, Error::OutsideSpaces(_)));
    let (from, to) = (path("pot://lab/b/one"), path("pot://lab/b/two"));
    let kept = stage.catalog.rename(from, to.clone(), true, when(1)).await;
    assert_eq!(kept, Err(Error::Exists(to)));
    let empty = stage.catalog.make_directory(path("pot://lab/empty"), false, when(1)).await;
    empty.expect("made");
    moved(&stage, "pot://lab/b", "pot://lab/empty").await.expect("over an empty directory");
    assert_eq!(stage.listed("pot://lab/empty", false, None).await, ["one", "two"]);
}

#[tokio::test]
async fn directories_are_made_and_removed_as_asked() {
    let stage = tree().await;
    let make = async |at, all| stage.catalog.make_directory(path(at), all, when(1)).await;
    assert_eq!(make("pot://lab/b", false).await, Err(Error::Exists(path("pot://lab/b"))));
    make("pot://lab/b", true).await.expect("exists is as good");
    assert!(matches!(make("pot://lab/x/y/z", false).await, Err(Error::NoEntry(_))));
    make("pot://lab/x/y/z", true).await.expect("made");
    assert!(matches!(make("pot://lab/a/b", true).await, Err(Error::NotADirectory(_))));
    assert!(matches!(make("pot://none/b", true).await, Err(Error::NoSpaceNamed(_))));
    assert!(make("pot://lab", false).await.is_err());

    let remove = async |at, all| stage.catalog.remove(path(at), all, when(1)).await;
    let whole = remove("pot://lab/b", false).await;
    assert_eq!(whole.err(), Some(Error::NotRecursive(path("pot://lab/b"))));
    assert!(matches!(remove("pot://lab", true).await, Err(Error::OutsideSpaces(_))));
    remove("pot://lab/x/y/z", false).await.expect("an empty one");
    assert_eq!(remove("pot://lab/b", true).await.expect("removed").files, 3);
}

#[tokio::test]
async fn usage_counts_shared_chunks_once_and_children_apart() {
    let stage = tree().await;
    let used = stage.catalog.usage(path("pot://lab")).await.expect("summed");
    assert_eq!((used.files, used.dirs, used.bytes, used.stored), (5, 3, 6000, 5000));
    let children: Vec<_> =
        used.children.iter().map(|c| (c.name.as_str(), c.dir, c.files, c.bytes)).collect();
    assert_eq!(children, [("a", false, 1, 1000), ("b", true, 3, 4000), ("b.txt", false, 1, 1000)]);
    let one = stage.catalog.usage(path("pot://lab/a")).await.expect("summed");
    assert_eq!((one.files, one.bytes, one.children.len()), (1, 1000, 0));
}

#[tokio::test]
async fn a_space_with_files_is_removed_only_by_force() {
    let stage = tree().await;
    let again = stage.catalog.create_space("lab".into(), Policy::default(), None, 0).await;
    assert_eq!(again, Err(Error::SpaceExists("lab".into())));
    let kept = stage.catalog.remove_space("lab".into(), false).await;
    assert!(matches!(kept, Err(Error::SpaceNotEmpty { files: 5, .. })));
    stage.catalog.remove_space("lab".into(), true).await.expect("forced");
    assert_eq!(stage.listed("pot://", false, None).await, Vec::<String>::new());
    let gone = stage.catalog.stat(path("pot://lab/a")).await.expect_err("gone");
    assert_eq!(gone, Error::NoSpaceNamed("lab".into()));
}

#[tokio::test]
async fn the_root_is_a_directory_of_spaces() {
    let stage = tree().await;
    let facts = stage.catalog.stat(PoolPath::root()).await.expect("stat");
    assert_eq!(facts.entry.kind, EntryKind::Dir);
    let whole = stage.catalog.open_files(PoolPath::root(), true, None).await;
    assert_eq!(whole.expect_err("each space has its key"), Error::OutsideSpaces(PoolPath::root()));
}
