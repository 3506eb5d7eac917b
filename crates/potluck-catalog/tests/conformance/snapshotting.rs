//! Snapshots: a directory stays readable as it was, whatever becomes of it.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::CopyRequest;
use potluck_catalog::fixture::{file, path};
use potluck_catalog::{Error, NewCheckpoint, Upkeep, WhatIsKept, When};
use potluck_core::attributes::FileTime;
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::clock::Tick;
use potluck_core::ids::{MemberId, SessionId, VersionId};
use potluck_core::policy::{AskedPolicy, Override};
use potluck_wire::control::{Condition, NewLink};

impl Stage {
    async fn take(&self, dir: &str, name: &str) -> String {
        let taken = self.catalog.take_snapshot(path(dir), name.into(), when(3)).await;
        taken.expect("taken").at.to_string()
    }

    async fn drop_snapshot(&self, dir: &str, name: &str) {
        self.catalog.remove_snapshot(path(dir), name.into()).await.expect("removed");
        self.catch_up().await;
    }

    /// Lets go of what nothing keeps any more.
    async fn catch_up(&self) {
        for _ in 0..3 {
            while self.catalog.upkeep(Upkeep::Kept { most: 1 }, 9).await.expect("a step") {}
            self.empty_trash().await;
        }
    }

    async fn moved(&self, from: &str, to: &str) {
        self.catalog.rename(path(from), path(to), false, None, when(4)).await.expect("moved");
    }

    /// Begins a checkpoint, and returns the path at which its files are staged.
    async fn stages(&self, number: u8, target: &str, style: CommitStyle) -> String {
        let (id, target) = (CheckpointId([number; 16]), path(target));
        let new = NewCheckpoint { id, target, style, made_by: MemberId(1), idle_ms: 1 << 40 };
        let begun = self.catalog.begin_checkpoint(new, when(3)).await.expect("begun");
        begun.staging.to_string()
    }

    async fn publishes(&self, number: u8) -> Result<(), Error> {
        let (of, always) = (("lab".into(), CheckpointId([number; 16])), (Condition::Always, false));
        self.catalog.commit_checkpoint(of, always, when(5)).await.map(drop)
    }

    async fn link(&self, at: &str, leads_to: &str) {
        let target = leads_to.to_owned().try_into().expect("a target");
        let new = vec![NewLink { path: path(at), target, mtime: Some(FileTime(1)), owner: None }];
        let made = self.catalog.make_links(new, true, Condition::Always, when(4)).await;
        assert_eq!(made.expect("made"), []);
    }

    /// Returns what a listing shows of a tree: paths, with versions of files and targets of links.
    async fn shown(&self, at: &str) -> Vec<(String, Option<VersionId>, Option<String>)> {
        let all = potluck_catalog::SeenSpaces::ALL;
        let listing = self.catalog.list_directory(path(at), true, None, all).await;
        let entries = listing.expect("listed").entries.into_iter();
        let target = |target: potluck_core::link_target::LinkTarget| target.as_str().to_owned();
        entries.map(|entry| (entry.path, entry.version, entry.target.map(target))).collect()
    }

    async fn all_used(&self) -> i64 {
        self.catalog.spaces().await.expect("spaces")[0].sums.files
    }
}

/// Makes a tree with files, a link, an empty directory and a directory with files.
async fn tree() -> Stage {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/sub/b", &[2], &[1])).await;
    stage.put(file("pot://lab/d/sub/c", &[3], &[1])).await;
    stage.catalog.make_directory(path("pot://lab/d/empty"), false, MADE).await.expect("made");
    stage.link("pot://lab/d/l", "first").await;
    stage
}

#[tokio::test]
async fn a_snapshot_shows_what_was_there_whatever_becomes_of_it() {
    let mut stage = tree().await;
    let before = stage.shown("pot://lab/d").await;
    let at = stage.take("pot://lab/d", "one").await;
    assert_eq!(at, "pot://lab/d/.potluck/snapshots/one");
    assert_eq!(stage.shown(&at).await, before);
    assert_eq!(stage.shown("pot://lab/d").await, before, "no listing shows where it is read");

    stage.put(file("pot://lab/d/a", &[10], &[1])).await; // replaced
    stage.put(file("pot://lab/d/new", &[11], &[1])).await; // new
    stage.put(file("pot://lab/d/sub/new", &[12], &[1])).await;
    stage.remove("pot://lab/d/sub/b", 4).await; // removed
    stage.remove("pot://lab/d/empty", 4).await;
    stage.link("pot://lab/d/l", "second").await; // another link
    stage.moved("pot://lab/d/sub/c", "pot://lab/d/a").await; // renamed over another
    stage.catch_up().await;
    assert_eq!(stage.shown(&at).await, before);
    assert_eq!(stage.refs([1, 2, 3, 10]).await, [Some(1), Some(1), Some(1), Some(0)]);

    let later = stage.shown("pot://lab/d").await;
    let two = stage.take("pot://lab/d", "two").await;
    stage.remove("pot://lab/d/sub", 4).await; // a tree
    stage.put(file("pot://lab/d/sub", &[13], &[1])).await; // a file in the place of a directory
    stage.catch_up().await;
    assert_eq!(stage.shown(&at).await, before);
    assert_eq!(stage.shown(&two).await, later);
    let opened = stage.catalog.open_files(path(&format!("{at}/sub/b")), false, None).await;
    assert_eq!(opened.expect("it is read").files.len(), 1);
    let opened = stage.catalog.open_files(path(&two), true, None).await.expect("a tree");
    assert_eq!(opened.files.len(), 3, "as `cp -r` reads it");
}

#[tokio::test]
async fn deleting_a_snapshot_frees_only_what_no_other_shows() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.take("pot://lab/d", "one").await;
    stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    stage.put(file("pot://lab/d/b", &[3], &[1])).await;
    let two = stage.take("pot://lab/d", "two").await;
    stage.remove("pot://lab/d/a", 4).await;
    stage.remove("pot://lab/d/b", 4).await;
    stage.catch_up().await;
    assert_eq!(stage.refs([1, 2, 3]).await, [Some(1); 3]);
    assert_eq!(stage.all_used().await, 3);
    stage.drop_snapshot("pot://lab/d", "one").await;
    assert_eq!(stage.refs([1, 2, 3]).await, [Some(0), Some(1), Some(1)]);
    assert_eq!(stage.shown(&two).await.len(), 2);
    stage.drop_snapshot("pot://lab/d", "two").await;
    assert_eq!(stage.refs([1, 2, 3]).await, [Some(0); 3]);
    assert_eq!(stage.all_used().await, 0);
    assert_eq!(stage.listed("pot://lab", true, None).await, ["d"]);
    let removed =
        stage.catalog.remove(path("pot://lab/d"), Default::default(), false, when(5)).await;
    removed.expect("it is empty again");
}

#[tokio::test]
async fn an_older_snapshot_keeps_what_a_newer_one_shows_too() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let one = stage.take("pot://lab/d", "one").await;
    stage.take("pot://lab/d", "two").await;
    stage.remove("pot://lab/d/a", 4).await;
    stage.drop_snapshot("pot://lab/d", "two").await;
    assert_eq!(stage.refs([1]).await, [Some(1)]);
    assert_eq!(stage.shown(&one).await.len(), 1);
    stage.drop_snapshot("pot://lab/d", "one").await;
    assert_eq!(stage.refs([1]).await, [Some(0)]);
}

#[tokio::test]
async fn entry_moved_out_of_a_directory_stays_in_its_snapshot() {
    let mut stage = tree().await;
    let before = stage.shown("pot://lab/d").await;
    let at = stage.take("pot://lab/d", "one").await;
    stage.catalog.make_directory(path("pot://lab/e"), false, MADE).await.expect("made");
    stage.moved("pot://lab/d/sub", "pot://lab/e/sub").await;
    stage.moved("pot://lab/d/a", "pot://lab/e/a").await;
    stage.put(file("pot://lab/e/sub/b", &[10], &[1])).await;
    stage.put(file("pot://lab/e/sub/new", &[11], &[1])).await;
    stage.put(file("pot://lab/e/a", &[12], &[1])).await;
    stage.catch_up().await;
    assert_eq!(stage.shown(&at).await, before);
    stage.remove("pot://lab/e/sub/c", 4).await;
    stage.catch_up().await;
    assert_eq!(stage.shown(&at).await, before);
    // The whole tree to which it was moved is removed, and taken apart.
    stage.remove("pot://lab/e", 4).await;
    stage.catch_up().await;
    assert_eq!(stage.shown(&at).await, before);
    assert_eq!(stage.refs([1, 2, 3]).await, [Some(1); 3]);
    stage.drop_snapshot("pot://lab/d", "one").await;
    assert_eq!(stage.refs([1, 2, 3, 10, 11, 12]).await, [Some(0); 6]);
    assert_eq!(stage.all_used().await, 1, "the link");
}

#[tokio::test]
async fn entry_moved_into_a_staging_directory_stays_in_its_snapshot() {
    for commits in [true, false] {
        let mut stage = tree().await;
        let before = stage.shown("pot://lab").await;
        let at = stage.take("pot://lab", "one").await;
        let staging = stage.stages(1, "pot://lab/step", CommitStyle::Replace).await;
        let staged = |below: &str| format!("{staging}/{below}");
        stage.moved("pot://lab/d", &staged("d")).await;
        stage.put(file(&staged("d/a"), &[10], &[1])).await; // replaced
        stage.remove(&staged("d/sub/b"), 4).await; // removed
        stage.moved(&staged("d/sub/c"), &staged("c")).await; // moved
        stage.put(file(&staged("c"), &[11], &[1])).await;
        stage.put(file(&staged("new"), &[12], &[1])).await;
        stage.take("pot://lab", "two").await;
        stage.put(file(&staged("new"), &[13], &[1])).await;
        stage.catch_up().await;
        assert_eq!(stage.shown(&at).await, before);
        assert_eq!(stage.refs([1, 2, 3]).await, [Some(1); 3]);
        assert_eq!(stage.refs([12]).await, [Some(0)], "no snapshot shows what is staged");
        match commits {
            true => stage.publishes(1).await.expect("committed"),
            false => {
                let id = CheckpointId([1; 16]);
                let aborted = stage.catalog.abort_checkpoint(("lab".into(), id), false, 5).await;
                aborted.expect("aborted");
            }
        }
        stage.catch_up().await;
        assert_eq!(stage.shown(&at).await, before, "committed: {commits}");
    }
}

#[tokio::test]
async fn checkpoint_does_not_replace_a_directory_with_snapshots() {
    let mut stage = tree().await;
    stage.take("pot://lab/d/sub", "one").await;
    let staging = stage.stages(1, "pot://lab/d", CommitStyle::Replace).await;
    stage.put(file(&format!("{staging}/new"), &[4], &[1])).await;
    assert_eq!(stage.publishes(1).await, Err(Error::HasSnapshots(path("pot://lab/d/sub"))));
    assert_eq!(stage.listed("pot://lab/d/sub", true, None).await, ["b", "c"]);
    // Where versions are kept, the old directory comes back with its snapshots.
    let keep_versions = Some("1".parse().expect("versions"));
    let over = Override { keep_versions, ..Override::default() };
    stage.catalog.set_policy(path("pot://lab/d"), over).await.expect("set");
    stage.publishes(1).await.expect("committed");
    assert_eq!(stage.listed("pot://lab/d", true, None).await, ["new"]);
    stage.catalog.bring_back(path("pot://lab/d"), None, false, when(6)).await.expect("back");
    let shown = stage.shown("pot://lab/d/sub/.potluck/snapshots/one").await;
    assert_eq!(shown.len(), 2);
}

#[tokio::test]
async fn a_directory_that_a_snapshot_shows_is_not_merged_into_another() {
    let mut stage = tree().await;
    stage.put(file("pot://lab/other/sub/x", &[4], &[1])).await;
    stage.take("pot://lab/d", "one").await;
    let staging = stage.stages(1, "pot://lab/other", CommitStyle::Merge).await;
    let staged = format!("{staging}/sub");
    stage.moved("pot://lab/d/sub", &staged).await;
    let refused = stage.publishes(1).await;
    assert_eq!(refused, Err(Error::HasSnapshots(path("pot://lab/other/sub"))));
    stage.moved(&staged, "pot://lab/d/sub").await;
    stage.moved("pot://lab/d", &staged).await;
    let refused = stage.publishes(1).await;
    assert!(matches!(refused, Err(Error::HasSnapshots(_))), "{refused:?}");
    // Where nothing has its name it becomes visible as it is, with its snapshots.
    stage.moved(&staged, &format!("{staging}/new")).await;
    stage.publishes(1).await.expect("committed");
    let shown = stage.shown("pot://lab/other/new/.potluck/snapshots/one").await;
    assert!(shown.iter().any(|(at, ..)| at == "sub/b"), "{shown:?}");
}

#[tokio::test]
async fn entry_moved_twice_stays_in_its_snapshot_after_both_removals() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/f", &[1], &[1])).await;
    stage.put(file("pot://lab/d/sub/g", &[2], &[1])).await;
    let at = stage.take("pot://lab", "one").await;
    let before = stage.shown(&at).await;
    stage.catalog.make_directory(path("pot://lab/t"), false, MADE).await.expect("made");
    stage.moved("pot://lab/d", "pot://lab/t/z").await;
    // Both come before their former directory when the tree is taken apart.
    stage.moved("pot://lab/t/z/f", "pot://lab/t/f").await;
    stage.moved("pot://lab/t/z/sub", "pot://lab/t/a").await;
    stage.remove("pot://lab/t", 4).await;
    stage.catch_up().await;
    assert_eq!(stage.shown(&at).await, before);
    assert_eq!(stage.refs([1, 2]).await, [Some(1); 2]);
    stage.drop_snapshot("pot://lab", "one").await;
    assert_eq!(stage.refs([1, 2]).await, [Some(0); 2]);
    assert_eq!(stage.all_used().await, 0);
}

#[tokio::test]
async fn snapshot_keeps_a_removed_subdirectory_with_its_content() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/sub/f", &[1], &[1])).await;
    let before = stage.shown("pot://lab/d").await;
    let at = stage.take("pot://lab/d", "one").await;
    stage.catalog.make_directory(path("pot://lab/e"), false, MADE).await.expect("made");
    stage.moved("pot://lab/d/sub/f", "pot://lab/e/f").await;
    let removed =
        stage.catalog.remove(path("pot://lab/d/sub"), Default::default(), false, when(4)).await;
    removed.expect("it is empty");
    stage.remove("pot://lab/e", 4).await;
    stage.catch_up().await;
    assert_eq!(stage.shown(&at).await, before);
    assert_eq!(stage.refs([1]).await, [Some(1)]);
    stage.drop_snapshot("pot://lab/d", "one").await;
    assert_eq!(stage.refs([1]).await, [Some(0)]);
    assert_eq!(stage.all_used().await, 0);
}

#[tokio::test]
async fn snapshot_keeps_a_replaced_subdirectory_with_its_content() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/sub/f", &[1], &[1])).await;
    let before = stage.shown("pot://lab/d").await;
    let at = stage.take("pot://lab/d", "one").await;
    stage.remove("pot://lab/d/sub/f", 4).await;
    stage.put(file("pot://lab/new/g", &[2], &[1])).await;
    stage.moved("pot://lab/new", "pot://lab/d/sub").await;
    stage.catch_up().await;
    assert_eq!(stage.shown(&at).await, before);
    assert_eq!(stage.listed("pot://lab/d", true, None).await, ["sub", "sub/g"]);
    stage.drop_snapshot("pot://lab/d", "one").await;
    assert_eq!(stage.refs([1, 2]).await, [Some(0), Some(1)]);
}

#[tokio::test]
async fn version_in_two_snapshots_survives_deleting_one() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/sub/f", &[1], &[1])).await;
    stage.take("pot://lab/d", "one").await;
    stage.catalog.make_directory(path("pot://lab/e"), false, MADE).await.expect("made");
    stage.moved("pot://lab/d/sub/f", "pot://lab/e/f").await;
    let two = stage.take("pot://lab/e", "two").await;
    let before = stage.shown(&two).await;
    stage.moved("pot://lab/e/f", "pot://lab/d/sub/g").await;
    stage.remove("pot://lab/d", 4).await;
    stage.catch_up().await;
    assert_eq!(stage.shown(&two).await, before);
    assert_eq!(stage.refs([1]).await, [Some(1)]);
    stage.drop_snapshot("pot://lab/e", "two").await;
    assert_eq!(stage.refs([1]).await, [Some(0)]);
}

#[tokio::test]
async fn snapshot_shows_a_renamed_file_under_its_old_name() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let at = stage.take("pot://lab/d", "one").await;
    stage.moved("pot://lab/d/a", "pot://lab/d/b").await;
    assert_eq!(stage.listed(&at, true, None).await, ["a"]);
    let two = stage.take("pot://lab/d", "two").await;
    stage.remove("pot://lab/d/b", 4).await;
    stage.catch_up().await;
    assert_eq!(stage.listed(&at, true, None).await, ["a"]);
    assert_eq!(stage.listed(&two, true, None).await, ["b"]);
    assert_eq!(stage.refs([1]).await, [Some(1)]);
    stage.drop_snapshot("pot://lab/d", "two").await;
    stage.drop_snapshot("pot://lab/d", "one").await;
    assert_eq!(stage.refs([1]).await, [Some(0)]);
}

#[tokio::test]
async fn snapshots_and_kept_versions_let_go_only_what_neither_needs() {
    let mut stage = Stage::new().await;
    let over = Override {
        keep_versions: Some("1".parse().expect("versions")),
        trash: Some("1h".parse().expect("a time")),
        ..Override::default()
    };
    stage.catalog.make_directory(path("pot://lab/d"), false, MADE).await.expect("made");
    stage.catalog.set_policy(path("pot://lab/d"), over).await.expect("set");
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let at = stage.take("pot://lab/d", "one").await;
    for number in 2..=4 {
        stage.put(file("pot://lab/d/a", &[number], &[1])).await;
    }
    stage.catch_up().await;
    let refs = stage.refs([1, 2, 3, 4]).await;
    assert_eq!(refs, [Some(1), Some(0), Some(1), Some(1)], "the snapshot's, the last, and this");
    assert_eq!(stage.shown(&at).await.len(), 1);
    stage.drop_snapshot("pot://lab/d", "one").await;
    assert_eq!(stage.refs([1, 3, 4]).await, [Some(0), Some(1), Some(1)]);
    // What is removed for good is not kept, but for what a snapshot shows.
    let two = stage.take("pot://lab/d", "two").await;
    let forever = When { keeps: WhatIsKept::Nothing, ..when(5) };
    stage
        .catalog
        .remove(path("pot://lab/d/a"), Default::default(), false, forever)
        .await
        .expect("removed");
    stage.catch_up().await;
    assert_eq!(stage.refs([3, 4]).await, [Some(0), Some(1)]);
    assert_eq!(stage.shown(&two).await.len(), 1);
    stage.drop_snapshot("pot://lab/d", "two").await;
    assert_eq!(stage.refs([4]).await, [Some(0)]);
}

#[tokio::test]
async fn removed_directory_keeps_its_snapshots() {
    let mut stage = Stage::new().await;
    let over = Override { trash: Some("1h".parse().expect("a time")), ..Override::default() };
    stage.catalog.set_policy(path("pot://lab"), over).await.expect("set");
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let at = stage.take("pot://lab/d", "one").await;
    let forever = When { keeps: WhatIsKept::Nothing, ..when(5) };
    stage
        .catalog
        .remove(path("pot://lab/d/a"), Default::default(), false, forever)
        .await
        .expect("removed");
    let refused = stage
        .catalog
        .remove(path("pot://lab/d"), Default::default(), false, when(5))
        .await
        .map(drop);
    assert_eq!(refused, Err(Error::HasSnapshots(path("pot://lab/d"))));
    stage.remove("pot://lab/d", 5).await;
    stage.catch_up().await;
    stage.catalog.bring_back(path("pot://lab/d"), None, true, when(6)).await.expect("back");
    assert_eq!(stage.listed(&at, true, None).await, ["a"]);
    stage
        .catalog
        .remove(path("pot://lab/d"), Default::default(), true, forever)
        .await
        .expect("removed");
    stage.catch_up().await;
    assert_eq!(stage.refs([1]).await, [Some(0)]);
    assert_eq!(stage.all_used().await, 0);
}

#[tokio::test]
async fn snapshots_are_read_only() {
    let mut stage = tree().await;
    let at = stage.take("pot://lab/d", "one").await;
    let inside = format!("{at}/sub/b");
    let refused = |at: &str| Error::KeptPlace(path(at));
    assert_eq!(stage.refused(file(&inside, &[9], &[1])).await, refused(&inside));
    for at in [&inside, &at, "pot://lab/d/.potluck/snapshots", "pot://lab/d/.potluck"] {
        let removed =
            stage.catalog.remove(path(at), Default::default(), true, when(5)).await.map(drop);
        assert_eq!(removed, Err(refused(at)));
        let moved = stage.catalog.rename(path(at), path("pot://lab/x"), false, None, when(5)).await;
        assert_eq!(moved, Err(refused(at)));
        let set = stage.catalog.set_attributes(path(at), None, Default::default()).await;
        assert_eq!(set, Err(refused(at)));
        let nested = stage.catalog.take_snapshot(path(at), "x".into(), when(5)).await.map(drop);
        assert_eq!(nested, Err(refused(at)));
    }
    let twice = stage.catalog.take_snapshot(path("pot://lab/d"), "one".into(), when(5)).await;
    assert_eq!(twice.map(drop), Err(Error::Exists(path(&at))));
    let none = stage.catalog.remove_snapshot(path("pot://lab/d"), "two".into()).await;
    assert!(matches!(none, Err(Error::NoSnapshot(_))), "{none:?}");
    let bad = stage.catalog.take_snapshot(path("pot://lab/d"), "a/b".into(), when(5)).await;
    assert!(matches!(bad, Err(Error::BadSnapshotName(_))), "{bad:?}");
}

#[tokio::test]
async fn snapshot_entries_can_be_copied_inside_the_pool() {
    let stage = tree().await;
    let at = stage.take("pot://lab/d", "one").await;
    stage.remove("pot://lab/d/sub", 4).await;
    let wanted = CopyRequest {
        from: path(&format!("{at}/sub")),
        to: path("pot://lab/d/sub"),
        recursive: true,
        condition: Condition::Always,
        asked: AskedPolicy::default(),
        after: None,
        reserved: Vec::new(),
    };
    let donors = stage.donors.snapshot(Tick::ZERO);
    let command = (MemberId(1), SessionId([9; 16]), 0);
    let copied = stage.catalog.copy_files(command, wanted, donors, when(5), |_| Ok(String::new()));
    copied.await.expect("copied");
    assert_eq!(stage.listed("pot://lab/d/sub", true, None).await, ["b", "c"]);
    assert_eq!(stage.refs([2, 3]).await, [Some(2); 2]);
}

#[tokio::test]
async fn snapshot_of_a_large_directory_is_paged() {
    let mut stage = Stage::new().await;
    let count = 600;
    for number in 0..count {
        stage.put(file(&format!("pot://lab/d/{number:04}"), &[number], &[1])).await;
    }
    let at = stage.take("pot://lab/d", "one").await;
    for number in (0..count).step_by(2) {
        stage.remove(&format!("pot://lab/d/{number:04}"), 4).await;
    }
    let names: Vec<String> = (0..count).map(|number| format!("{number:04}")).collect();
    assert_eq!(stage.listed(&at, true, None).await, names);
    assert_eq!(stage.listed(&at, true, Some("0300")).await, names[301..]);
    assert_eq!(stage.listed("pot://lab/d", true, None).await.len() as u64, count / 2);
}

#[tokio::test]
async fn snapshots_of_a_directory_are_listed_and_bounded() {
    let stage = Stage::new().await;
    stage.catalog.make_directory(path("pot://lab/d"), false, MADE).await.expect("made");
    for number in 0..256 {
        stage.take("pot://lab/d", &format!("s{number}")).await;
    }
    let refused = stage.catalog.take_snapshot(path("pot://lab/d"), "more".into(), when(5)).await;
    assert!(matches!(refused, Err(Error::TooManySnapshots { .. })), "{refused:?}");
    let listed = stage.catalog.snapshots(path("pot://lab/d")).await.expect("listed");
    assert_eq!(listed.len(), 256);
    assert_eq!(listed[0].at, path("pot://lab/d/.potluck/snapshots/s0"));
}
