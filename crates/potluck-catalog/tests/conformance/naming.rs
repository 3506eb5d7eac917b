//! Names: listings, sums, and changes.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::chunk;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::new_space;
use potluck_catalog::fixture::path;
use potluck_catalog::{Error, NewCheckpoint, SeenSpaces};
use potluck_core::attributes::{
    AttributesToSet, EntryAttributes, FileOwner, FileTime, Permissions,
};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::{MemberId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_wire::control::{EntryKind, ListedEntry, OnlyIf, Used};

async fn moved(stage: &Stage, from: &str, to: &str) -> Result<(), Error> {
    stage.catalog.rename(path(from), path(to), false, None, when(1)).await
}

#[tokio::test]
async fn a_file_that_is_to_replace_a_version_replaces_no_other() {
    let mut stage = tree().await;
    let (a, b) = (path("pot://lab/a"), path("pot://lab/b.txt"));
    let before = told(&stage, "pot://lab/a").await.2;
    stage.put(file("pot://lab/a", &[6], &[1])).await;
    let refused = stage.catalog.rename(b.clone(), a.clone(), false, before, when(1)).await;
    assert!(matches!(refused, Err(Error::WrongVersion { .. })), "{refused:?}");
    let there = told(&stage, "pot://lab/a").await.2;
    stage.catalog.rename(b, a, false, there, when(1)).await.expect("it is that one");
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
    let missing =
        stage.catalog.list_directory(path("pot://lab/zzz"), false, None, SeenSpaces::ALL).await;
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
    let empty = stage.catalog.make_directory(path("pot://lab/empty"), false, MADE).await;
    empty.expect("made");
    let (mut files, mut dirs, mut pages, mut after) = (0, Vec::new(), 0, None);
    loop {
        let page = stage.catalog.open_files(path("pot://lab"), true, after).await.expect("a page");
        files += page.files.len();
        dirs.extend(page.dirs.into_iter().map(|dir| dir.path));
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
    assert_eq!(stage.catalog.spaces().await.expect("spaces")[0].sums.files, 4);
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
    let kept = stage.catalog.rename(from, to.clone(), true, None, when(1)).await;
    assert_eq!(kept, Err(Error::Exists(to)));
    let empty = stage.catalog.make_directory(path("pot://lab/empty"), false, MADE).await;
    empty.expect("made");
    let (from, to) = (path("pot://lab/b"), path("pot://lab/empty"));
    let kept = stage.catalog.rename(from, to.clone(), true, None, when(1)).await;
    assert_eq!(kept, Err(Error::Exists(to)));
    moved(&stage, "pot://lab/b", "pot://lab/empty").await.expect("over an empty directory");
    assert_eq!(stage.listed("pot://lab/empty", false, None).await, ["one", "two"]);
}

/// Returns the path of a file in directories below `top`, which has `bytes` bytes in all.
fn long_path(top: &str, bytes: usize) -> String {
    let mut at = top.to_owned();
    while bytes - at.len() > 201 {
        at = format!("{at}/{}", "d".repeat(99));
    }
    format!("{at}/{}", "f".repeat(bytes - at.len() - 1))
}

#[tokio::test]
async fn renames_that_make_a_path_too_long_are_refused() {
    let mut stage = Stage::new().await;
    let long = file(&long_path("pot://lab/b", 4090), &[1], &[1]);
    assert!(stage.commit(vec![long]).await.iter().all(Result::is_ok));
    moved(&stage, "pot://lab/b", "pot://lab/bbbbbbb").await.expect("4096 bytes");
    let target = path("pot://lab/bbbbbbbb");
    let refused = Error::TooLong { to: target.clone(), bytes: 4097 };
    let stay = moved(&stage, "pot://lab/bbbbbbb", "pot://lab/bbbbbbbb").await;
    assert_eq!(stay, Err(refused));
    assert_eq!(stage.listed("pot://lab", false, None).await, ["bbbbbbb"]);
    // A directory can be moved to a shorter path, however long the paths below it are.
    moved(&stage, "pot://lab/bbbbbbb", "pot://lab/a").await.expect("a shorter one");
    // The directories above the target of a checkpoint are made by its commit, and its path counts all the same.
    stage.catalog.make_directory(path("pot://lab/c"), false, MADE).await.expect("made");
    let new = NewCheckpoint {
        id: CheckpointId([1; 16]),
        target: path(&long_path("pot://lab/c", 4090)),
        style: CommitStyle::Replace,
        made_by: MemberId(1),
        idle_ms: 1000,
    };
    stage.catalog.begin_checkpoint(new, when(1)).await.expect("begun");
    moved(&stage, "pot://lab/c", "pot://lab/ccccccc").await.expect("4096 bytes");
    let target = path("pot://lab/cccccccc");
    let stay = moved(&stage, "pot://lab/ccccccc", "pot://lab/cccccccc").await;
    assert_eq!(stay, Err(Error::TooLong { to: target, bytes: 4097 }));
}

#[tokio::test]
async fn directories_are_made_and_removed_as_asked() {
    let stage = tree().await;
    let make = async |at, all| stage.catalog.make_directory(path(at), all, MADE).await;
    assert_eq!(make("pot://lab/b", false).await, Err(Error::Exists(path("pot://lab/b"))));
    make("pot://lab/b", true).await.expect("exists is as good");
    assert!(matches!(make("pot://lab/x/y/z", false).await, Err(Error::NoEntry(_))));
    make("pot://lab/x/y/z", true).await.expect("made");
    assert!(matches!(make("pot://lab/a/b", true).await, Err(Error::NotADirectory(_))));
    assert!(matches!(make("pot://none/b", true).await, Err(Error::NoSpaceNamed(_))));
    assert!(make("pot://lab", false).await.is_err());

    let remove =
        async |at, all| stage.catalog.remove(path(at), Default::default(), all, when(1)).await;
    let whole = remove("pot://lab/b", false).await;
    assert_eq!(whole.err(), Some(Error::NotRecursive(path("pot://lab/b"))));
    assert!(matches!(remove("pot://lab", true).await, Err(Error::OutsideSpaces(_))));
    let of_kind = async |at, only_if| stage.catalog.remove(path(at), only_if, false, when(1)).await;
    let z = "pot://lab/x/y/z";
    assert_eq!(of_kind(z, OnlyIf::NoDirectory).await.err(), Some(Error::IsADirectory(path(z))));
    let a = "pot://lab/a";
    assert_eq!(of_kind(a, OnlyIf::Directory).await.err(), Some(Error::NotADirectory(path(a))));
    of_kind(z, OnlyIf::Directory).await.expect("an empty one");
    make(z, false).await.expect("made");
    remove(z, false).await.expect("an empty one");
    let of_version = async |at, version: Option<VersionId>| {
        let only_if = OnlyIf::Version(version.expect("a file"));
        stage.catalog.remove(path(at), only_if, false, when(1)).await
    };
    let version = told(&stage, "pot://lab/b.txt").await.2;
    let other = told(&stage, "pot://lab/a").await.2;
    let refused = of_version("pot://lab/b.txt", other).await.map(drop);
    assert!(matches!(refused, Err(Error::WrongVersion { .. })), "{refused:?}");
    of_version("pot://lab/b.txt", version).await.expect("it is that one");
    assert_eq!(of_kind(a, OnlyIf::NoDirectory).await.expect("a file").files, 1);
    assert_eq!(remove("pot://lab/b", true).await.expect("removed").files, 3);
}

/// Returns what is said of a path by its facts and by a listing, which agree.
async fn told(stage: &Stage, at: &str) -> (i64, u32, Option<VersionId>) {
    let at = path(at);
    let said = |entry: &ListedEntry| (entry.mtime.0, entry.permissions.bits(), entry.version);
    let facts = stage.catalog.stat(at.clone()).await.expect("there");
    let above = at.parent().unwrap_or_else(PoolPath::root);
    let listed = stage.catalog.list_directory(above, false, None, SeenSpaces::ALL).await;
    let name = at.file_name().unwrap_or(at.space());
    let entries = listed.expect("listed").entries;
    let entry = entries.iter().find(|entry| entry.path == name).expect("listed");
    assert_eq!(said(entry), said(&facts.entry), "{at}");
    said(entry)
}

#[tokio::test]
async fn attributes_need_no_new_version_and_follow_moves_and_copies() {
    let stage = tree().await;
    let set = async |at, version, mtime: Option<i64>, mode: Option<u32>| {
        let (mtime, permissions) = (mtime.map(FileTime), mode.map(Permissions::of_mode));
        let new = AttributesToSet { mtime, permissions, ..AttributesToSet::default() };
        stage.catalog.set_attributes(path(at), version, new).await
    };
    let (was, mode, version) = told(&stage, "pot://lab/b/one").await;
    assert_eq!((was, mode), (7_000_000, 0o644));
    set("pot://lab/b/one", None, Some(1_700_000_000_123_456_789), None).await.expect("set");
    assert_eq!(told(&stage, "pot://lab/b/one").await, (1_700_000_000_123_456_789, 0o644, version));
    set("pot://lab/b/one", version, None, Some(0o4711)).await.expect("set");
    assert_eq!(told(&stage, "pot://lab/b/one").await, (1_700_000_000_123_456_789, 0o4711, version));
    let opened = stage.catalog.open_files(path("pot://lab/b/one"), false, None).await;
    let opened = opened.expect("opened").files.remove(0);
    assert_eq!((opened.mtime.0 % 1000, opened.permissions.bits()), (789, 0o4711));
    assert_eq!(stage.refs([1, 2]).await, [Some(1), Some(1)]);
    assert_eq!(told(&stage, "pot://lab/b/two").await.0, 7_000_000, "and of no other");

    // A call for a version that is not there changes nothing.
    let other = VersionId(1000);
    let refused = set("pot://lab/b/one", Some(other), Some(1), None).await;
    let (at, found) = (path("pot://lab/b/one"), version);
    assert_eq!(refused, Err(Error::WrongVersion { path: at, expected: other, found }));
    let refused = set("pot://lab/b", version, Some(1), None).await;
    assert_eq!(refused, Err(Error::IsADirectory(path("pot://lab/b"))));
    assert!(matches!(set("pot://lab/none", None, Some(1), None).await, Err(Error::NoEntry(_))));
    assert!(matches!(set("pot://none", None, Some(1), None).await, Err(Error::NoSpaceNamed(_))));
    let through = set("pot://lab/a/x", None, Some(1), None).await;
    assert!(matches!(through, Err(Error::NotADirectory(_))));
    let root = stage.catalog.set_attributes(PoolPath::root(), None, AttributesToSet::default());
    assert_eq!(root.await, Err(Error::OutsideSpaces(PoolPath::root())));

    set("pot://lab/b", None, Some(-3), Some(0o750)).await.expect("a directory");
    set("pot://lab", None, Some(9), Some(0o700)).await.expect("a space");
    assert_eq!(told(&stage, "pot://lab/b").await, (-3, 0o750, None));
    assert_eq!(told(&stage, "pot://lab").await, (9, 0o700, None));
    moved(&stage, "pot://lab/b", "pot://lab/moved").await.expect("moved");
    assert_eq!(told(&stage, "pot://lab/moved").await, (-3, 0o750, None));
    assert_eq!(told(&stage, "pot://lab/moved/one").await.1, 0o4711);
    let permissions = Permissions::of_mode(0o711);
    let made = EntryAttributes::new(FileTime(5), permissions, None);
    let make = async |at, all| stage.catalog.make_directory(path(at), all, made).await;
    make("pot://lab/made", false).await.expect("made");
    assert_eq!(told(&stage, "pot://lab/made").await, (5, 0o711, None));
    make("pot://lab/moved", true).await.expect("exists is as good");
    assert_eq!(told(&stage, "pot://lab/moved").await, (-3, 0o750, None), "it stays as it is");
    let stage = stage.reopen().await;
    assert_eq!(told(&stage, "pot://lab/moved/one").await.1, 0o4711);
}

#[tokio::test]
async fn atime_and_ctime_are_kept_and_ctime_follows_changes() {
    let mut stage = tree().await;
    let times = async |stage: &Stage, at: &str| {
        let entry = stage.catalog.stat(path(at)).await.expect("there").entry;
        (entry.accessed.map(|time| time.0), entry.changed.0)
    };
    let set = async |at, accessed, changed| {
        let (accessed, changed) = (Some(FileTime(accessed)), Some(FileTime(changed)));
        let new = AttributesToSet { accessed, changed, ..AttributesToSet::default() };
        stage.catalog.set_attributes(path(at), None, new).await.expect("set");
    };
    for at in ["pot://lab/b/one", "pot://lab/b", "pot://lab"] {
        set(at, -5, 100).await;
        assert_eq!(times(&stage, at).await, (Some(-5), 100), "{at}");
        set(at, -5, 200).await;
        assert_eq!(times(&stage, at).await, (Some(-5), 100), "{at}: nothing was changed");
    }
    let opened = stage.catalog.open_files(path("pot://lab/b/one"), false, None).await;
    let opened = opened.expect("opened").files.remove(0);
    assert_eq!((opened.accessed, opened.changed), (Some(FileTime(-5)), FileTime(100)));
    stage.put(file("pot://lab/b/further", &[1], &[1])).await;
    let (accessed, grown) = times(&stage, "pot://lab/b").await;
    assert!(accessed == Some(-5) && grown > 100, "an entry came: {grown}");
    moved(&stage, "pot://lab/b/one", "pot://lab/b/two").await.expect("moved");
    moved(&stage, "pot://lab/b", "pot://lab/moved").await.expect("moved");
    let stage = stage.reopen().await;
    for at in ["pot://lab/moved/two", "pot://lab/moved"] {
        let (accessed, changed) = times(&stage, at).await;
        assert!(accessed == Some(-5) && changed > 100, "{at}: {changed}");
    }
}

#[tokio::test]
async fn owners_are_kept_and_follow_moves() {
    let stage = tree().await;
    let owner = |uid| Some(FileOwner { uid, gid: u32::MAX - 1 });
    let give = async |at, uid| {
        let new = AttributesToSet { owner: owner(uid), ..AttributesToSet::default() };
        stage.catalog.set_attributes(path(at), None, new).await.expect("given");
    };
    let of = async |stage: &Stage, at: &str| {
        stage.catalog.stat(path(at)).await.expect("there").entry.owner
    };
    assert_eq!(of(&stage, "pot://lab/b/one").await, None, "nobody said");
    give("pot://lab/b/one", 1).await;
    give("pot://lab/b", 2).await;
    give("pot://lab", 0).await;
    let mode = AttributesToSet {
        permissions: Some(Permissions::of_mode(0o2770)),
        ..AttributesToSet::default()
    };
    stage.catalog.set_attributes(path("pot://lab/b"), None, mode).await.expect("set");
    moved(&stage, "pot://lab/b", "pot://lab/moved").await.expect("moved");
    let opened = stage.catalog.open_files(path("pot://lab/moved/one"), false, None).await;
    assert_eq!(opened.expect("opened").files[0].owner, owner(1));
    let stage = stage.reopen().await;
    for (at, uid) in [("pot://lab/moved/one", 1), ("pot://lab/moved", 2), ("pot://lab", 0)] {
        assert_eq!(of(&stage, at).await, owner(uid), "{at}");
    }
}

#[tokio::test]
async fn directory_mtime_follows_entries_only() {
    let mut stage = tree().await;
    let time = async |stage: &Stage, at: &str| told(stage, at).await.0;
    let old = AttributesToSet { mtime: Some(FileTime(1)), ..AttributesToSet::default() };
    let age = async |stage: &Stage, at: &str| {
        stage.catalog.set_attributes(path(at), None, old).await.expect("set");
    };
    let now = FileTime::of_ms(2).0;
    age(&stage, "pot://lab/b").await;
    stage.put(file("pot://lab/b/one", &[1], &[1])).await;
    assert_eq!(time(&stage, "pot://lab/b").await, 1, "another version of what is there");
    let above = time(&stage, "pot://lab").await;
    stage.put(file("pot://lab/b/further", &[1], &[1])).await;
    let came = time(&stage, "pot://lab/b").await;
    assert!(came > 1, "{came}");
    assert_eq!(time(&stage, "pot://lab").await, above, "only the one that it is in");
    age(&stage, "pot://lab/b").await;
    stage
        .catalog
        .remove(path("pot://lab/b/further"), Default::default(), false, when(1))
        .await
        .expect("removed");
    assert_eq!(time(&stage, "pot://lab/b").await, now);
    for at in ["pot://lab/b", "pot://lab"] {
        age(&stage, at).await;
    }
    moved(&stage, "pot://lab/b/one", "pot://lab/one").await.expect("moved");
    assert_eq!((time(&stage, "pot://lab/b").await, time(&stage, "pot://lab").await), (now, now));
    age(&stage, "pot://lab/b").await;
    let of_dir = EntryAttributes::of_dir(9);
    let make = stage.catalog.make_directory(path("pot://lab/b/x/y"), true, of_dir);
    make.await.expect("made");
    assert_eq!(time(&stage, "pot://lab/b").await, FileTime::of_ms(9).0);
}

#[tokio::test]
async fn usage_counts_shared_chunks_once_and_children_apart() {
    let stage = tree().await;
    let used = usage(&stage, "pot://lab", 1000).await;
    assert_eq!((used.files, used.dirs, used.bytes, used.stored), (5, 3, 6000, 5000));
    let children: Vec<_> =
        used.children.iter().map(|c| (c.name.as_str(), c.dir, c.files, c.bytes)).collect();
    assert_eq!(children, [("a", false, 1, 1000), ("b", true, 3, 4000), ("b.txt", false, 1, 1000)]);
    // Each file that has a chunk counts an equal part of it, and all together the whole.
    let mut stage = stage;
    let thirds = (0..3).map(|n| file(&format!("pot://lab/thirds/{n}"), &[9], &[1])).collect();
    assert!(stage.commit(thirds).await.iter().all(Result::is_ok));
    assert_eq!(usage(&stage, "pot://lab/thirds", 1000).await.stored, 1000);
    assert_eq!(usage(&stage, "pot://lab/thirds/0", 1000).await.stored, 333);
    let one = usage(&stage, "pot://lab/a", 1000).await;
    assert_eq!((one.files, one.bytes, one.children.len()), (1, 1000, 0));
}

/// Returns the usage of a path, summed in parts of some `most` entries and chunks.
async fn usage(stage: &Stage, of: &str, most: u64) -> Used {
    let part = async |after| {
        stage.catalog.usage(path(of), after, most, SeenSpaces::ALL).await.expect("summed")
    };
    let mut used = part(None).await;
    while let Some(after) = used.next.take() {
        used.add(part(Some(after)).await);
    }
    used
}

#[tokio::test]
async fn usage_in_parts_is_that_of_the_whole_also_within_a_file() {
    let mut stage = tree().await;
    let shown = |used: &Used| {
        let children = used.children.iter().map(|c| (c.name.clone(), c.dir, c.files, c.bytes));
        (used.files, used.dirs, used.bytes, used.stored, children.collect::<Vec<_>>())
    };
    for of in ["pot://lab", "pot://lab/a", "pot://"] {
        let whole = usage(&stage, of, u64::MAX).await;
        for most in 1..5 {
            assert_eq!(shown(&usage(&stage, of, most).await), shown(&whole), "{of} by {most}");
        }
    }
    let many: Vec<u64> = (100..3100).collect();
    stage.put(file("pot://lab/b/large", &many, &[1, 2])).await;
    for of in ["pot://lab", "pot://lab/b/large", "pot://"] {
        let whole = usage(&stage, of, u64::MAX).await;
        assert!(whole.stored >= 6_000_000);
        for most in [100, 1024, 1025, 2999, 3003] {
            assert_eq!(shown(&usage(&stage, of, most).await), shown(&whole), "{of} by {most}");
        }
    }
    // A file that is removed in the middle of the sums is passed over.
    let half =
        stage.catalog.usage(path("pot://lab"), None, 2000, SeenSpaces::ALL).await.expect("summed");
    let after = half.next.expect("the large file is in the middle");
    assert_eq!((after.path.as_str(), after.chunks.is_some()), ("b/large", true));
    stage.remove("pot://lab/b", 1).await;
    let rest = stage
        .catalog
        .usage(path("pot://lab"), Some(after), 2000, SeenSpaces::ALL)
        .await
        .expect("summed");
    assert_eq!((rest.files, rest.next), (1, None));
}

#[tokio::test]
async fn a_space_with_files_is_removed_only_by_force() {
    let stage = tree().await;
    let again =
        stage.catalog.create_space(new_space("lab", Policy::default(), None), None, 0).await;
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
