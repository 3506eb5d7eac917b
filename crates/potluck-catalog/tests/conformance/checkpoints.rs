//! Checkpoints: files that are staged where nobody sees them, and become visible at one moment.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::{file, new_space, path};
use potluck_catalog::{
    CheckpointOutcome, Error, NewCheckpoint, OpenCheckpoint, SeenSpaces, Upkeep,
};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::{MemberId, VersionId};
use potluck_core::link_target::LinkTarget;
use potluck_core::policy::{Override, Policy};
use potluck_core::quota::{Quota, QuotaOf};
use potluck_wire::control::{Condition, NewLink};

const HOUR_MS: u64 = 3_600_000;
const ALWAYS: (Condition, bool) = (Condition::Always, false);

fn id(number: u8) -> CheckpointId {
    CheckpointId([number; 16])
}

fn new(number: u8, target: &str, style: CommitStyle) -> NewCheckpoint {
    let (id, target, made_by) = (id(number), path(target), MemberId(1));
    NewCheckpoint { id, target, style, made_by, idle_ms: HOUR_MS }
}

impl Stage {
    async fn begin(&self, number: u8, target: &str, style: CommitStyle) -> OpenCheckpoint {
        let begun = self.catalog.begin_checkpoint(new(number, target, style), when(1)).await;
        begun.expect("begun")
    }

    async fn replace(&self, number: u8, target: &str) -> OpenCheckpoint {
        self.begin(number, target, CommitStyle::Replace).await
    }

    async fn publish(
        &self,
        number: u8,
        how: (Condition, bool),
    ) -> Result<CheckpointOutcome, Error> {
        self.catalog.commit_checkpoint(("lab".into(), id(number)), how, when(2)).await
    }

    async fn abort(&self, number: u8) -> Result<(), Error> {
        self.catalog.abort_checkpoint(("lab".into(), id(number)), false, 2).await
    }

    async fn tree(&self) -> Vec<String> {
        self.listed("pot://lab", true, None).await
    }

    async fn sums(&self) -> (i64, i64) {
        let spaces = self.catalog.spaces().await.expect("spaces");
        (spaces[0].sums.files, spaces[0].sums.bytes)
    }

    /// Returns the redundancy that a file is to have, if it is another than it has.
    async fn goal_of(&self, at: &str) -> Option<String> {
        self.file(at).await.0.goal.map(|goal| goal.to_string())
    }
}

/// Returns the path of something that is staged.
fn staged(open: &OpenCheckpoint, below: &str) -> String {
    format!("{}/{below}", open.staging)
}

#[tokio::test]
async fn staged_files_are_invisible_until_commit_replaces_the_directory() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/run/step/old", &[1], &[1])).await;
    stage.put(file("pot://lab/run/step/a", &[2], &[1])).await;
    let open = stage.replace(1, "pot://lab/run/step").await;
    assert_eq!(open.target, path("pot://lab/run/step"));
    stage.put(file(&staged(&open, "a"), &[3], &[1])).await;
    let version = stage.put(file(&staged(&open, "d/b"), &[4], &[1])).await;
    let before = ["run", "run/step", "run/step/a", "run/step/old"];
    assert_eq!(stage.tree().await, before);
    let opened = stage.catalog.open_files(path("pot://lab"), true, None).await.expect("opened");
    assert_eq!(opened.files.len(), 2);
    let used = stage.catalog.usage(path("pot://lab"), None, 1000, SeenSpaces::ALL).await;
    assert_eq!(used.expect("summed").files, 2);
    assert_eq!(stage.sums().await.0, 4, "quotas count it from when it is acknowledged");
    assert_eq!(stage.refs([3, 4]).await, [Some(1), Some(1)], "scans keep it safe");
    assert_eq!(stage.listed(&open.staging.to_string(), true, None).await, ["a", "d", "d/b"]);

    assert_eq!(stage.publish(1, ALWAYS).await, Ok(CheckpointOutcome::Now(open.target.clone())));
    let after = ["run", "run/step", "run/step/a", "run/step/d", "run/step/d/b"];
    assert_eq!(stage.tree().await, after);
    assert_eq!(stage.file("pot://lab/run/step/d/b").await.0.id, version, "as it was acknowledged");
    stage.empty_trash().await;
    assert_eq!((stage.sums().await.0, stage.refs([1, 2]).await), (2, [Some(0), Some(0)]));

    let again = CheckpointOutcome::Before("pot://lab/run/step".into());
    assert_eq!(stage.publish(1, ALWAYS).await, Ok(again));
    let committed = Error::CheckpointCommitted { id: id(1), target: "pot://lab/run/step".into() };
    assert_eq!(stage.abort(1).await, Err(committed));
    let late = stage.refused(file(&staged(&open, "late"), &[5], &[1])).await;
    assert_eq!(late, Error::NoCheckpoint(id(1)));
    let known = stage.catalog.checkpoints().await.expect("read");
    assert_eq!((known.open.len(), known.committed.len()), (0, 1));
}

#[tokio::test]
async fn aborted_checkpoint_leaves_the_old_directory_only() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/step/a", &[1], &[1])).await;
    let open = stage.replace(1, "pot://lab/step").await;
    stage.put(file(&staged(&open, "b"), &[2], &[1])).await;
    assert_eq!((stage.abort(1).await, stage.abort(1).await), (Ok(()), Ok(())));
    stage.empty_trash().await;
    assert_eq!(stage.tree().await, ["step", "step/a"]);
    assert_eq!((stage.sums().await.0, stage.refs([2]).await), (1, [Some(0)]));
    assert_eq!(stage.publish(1, ALWAYS).await, Err(Error::NoCheckpoint(id(1))));
    assert_eq!(stage.publish(9, ALWAYS).await, Err(Error::NoCheckpoint(id(9))));
    let again = new(1, "pot://lab/step", CommitStyle::Replace);
    let again = stage.catalog.begin_checkpoint(again, when(3)).await;
    assert_eq!(again, Err(Error::NoCheckpoint(id(1))), "an identifier is used once");
}

#[tokio::test]
async fn checkpoint_follows_its_parent_directory() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/run/x", &[1], &[1])).await;
    let open = stage.replace(1, "pot://lab/run/new/step").await;
    stage.put(file(&staged(&open, "a"), &[2], &[1])).await;
    stage
        .catalog
        .rename(path("pot://lab/run"), path("pot://lab/moved"), false, None, when(1))
        .await
        .expect("moved");
    let gone = stage.refused(file(&staged(&open, "b"), &[3], &[1])).await;
    assert_eq!(gone, Error::NoCheckpoint(id(1)), "it is staged elsewhere by now");
    let target = path("pot://lab/moved/new/step");
    assert_eq!(stage.publish(1, ALWAYS).await, Ok(CheckpointOutcome::Now(target)));
    assert_eq!(
        stage.tree().await,
        ["moved", "moved/new", "moved/new/step", "moved/new/step/a", "moved/x"]
    );

    let open = stage.replace(2, "pot://lab/d/step").await;
    stage.catalog.make_directory(path("pot://lab/d"), false, MADE).await.expect("made");
    let other = stage.replace(3, "pot://lab/d/step").await;
    assert_ne!(open.staging.parent(), other.staging.parent(), "each in the deepest that was there");
    let kept = stage.catalog.remove(path("pot://lab/d"), Default::default(), false, when(1)).await;
    assert_eq!(kept.expect_err("in use"), Error::HasCheckpoint(path("pot://lab/d")));
    stage.remove("pot://lab/d", 1).await;
    assert_eq!(stage.publish(3, ALWAYS).await, Err(Error::NoCheckpoint(id(3))));
    assert!(stage.publish(2, ALWAYS).await.is_ok());
}

#[tokio::test]
async fn checkpoint_commit_keeps_nested_staging_of_others() {
    let mut stage = Stage::new().await;
    let keeps = Override { keep_versions: Some("10".parse().expect("ten")), ..Override::default() };
    stage.put(file("pot://lab/run/step/old", &[1], &[1])).await;
    stage.catalog.make_directory(path("pot://lab/run/d"), false, MADE).await.expect("made");
    let inner = stage.replace(1, "pot://lab/run/step").await;
    stage.put(file(&staged(&inner, "a"), &[2], &[1])).await;
    let outer = stage.replace(2, "pot://lab/run").await;
    stage.put(file(&staged(&outer, "b"), &[3], &[1])).await;
    let refused = Err(Error::HasCheckpoint(path("pot://lab/run")));
    assert_eq!(stage.publish(2, ALWAYS).await, refused);
    stage.catalog.set_policy(path("pot://lab/run"), keeps).await.expect("set");
    assert_eq!(stage.publish(2, ALWAYS).await, refused, "it would lie in what is kept");
    assert!(stage.publish(1, ALWAYS).await.is_ok());
    assert_eq!(stage.listed("pot://lab/run/step", true, None).await, ["a"]);

    // Of a shared file it matters whether anybody contributes.
    let out = path("pot://lab/run/d/out");
    let shared = NewCheckpoint {
        id: CheckpointId::of_shared_file(&out),
        ..new(3, "pot://lab/run/d/out", CommitStyle::Share)
    };
    let shared = stage.catalog.begin_checkpoint(shared, when(1)).await.expect("begun");
    stage.put(file(&staged(&shared, "open/w-a"), &[], &[])).await;
    let refused = Err(Error::HasCheckpoint(path("pot://lab/run/d")));
    assert_eq!(stage.publish(2, ALWAYS).await, refused);
    stage.remove(&staged(&shared, "open"), 2).await;
    assert_eq!(stage.publish(2, ALWAYS).await, Ok(CheckpointOutcome::Now(path("pot://lab/run"))));
    assert_eq!(stage.listed("pot://lab/run", true, None).await, ["b"]);
}

#[tokio::test]
async fn only_checkpoints_change_staging_directory_names() {
    let mut stage = Stage::new().await;
    let open = stage.replace(1, "pot://lab/step").await;
    stage.put(file(&staged(&open, "a"), &[1], &[1])).await;
    let other = format!("pot://lab/{}", id(2).staging_name());
    let none = |number| Err(Error::NoCheckpoint(id(number)));
    assert_eq!(stage.catalog.make_directory(path(&other), true, MADE).await, none(2));
    let below = path(&staged(&open, &id(2).staging_name()));
    assert_eq!(stage.catalog.make_directory(below, true, MADE).await, none(2));
    let elsewhere = path(&format!("pot://lab/x/{}/f", id(1).staging_name()));
    assert_eq!(stage.catalog.make_directory(elsewhere, true, MADE).await, none(1));
    let moved =
        stage.catalog.rename(path(&staged(&open, "a")), path(&other), false, None, when(1)).await;
    assert_eq!(moved, Err(Error::StagingPlace(path(&other))));
    let here = Error::StagingPlace(open.staging.clone());
    let moved =
        stage.catalog.rename(open.staging.clone(), path("pot://lab/x"), false, None, when(1)).await;
    assert_eq!(moved, Err(here.clone()));
    let removed =
        stage.catalog.remove(open.staging.clone(), Default::default(), true, when(1)).await;
    assert_eq!(removed.expect_err("in use"), here);
    let policy = stage.catalog.plan_policy(open.staging.clone(), Override::default()).await;
    assert_eq!(policy.expect_err("inherited"), here);
    let nested = new(2, &staged(&open, "d"), CommitStyle::Replace);
    let nested = stage.catalog.begin_checkpoint(nested, when(1)).await;
    assert!(matches!(nested, Err(Error::StagingPlace(_))), "{nested:?}");
    for bad in ["pot://lab", "pot://"] {
        let refused =
            stage.catalog.begin_checkpoint(new(3, bad, CommitStyle::Replace), when(1)).await;
        assert!(refused.is_err(), "{bad}");
    }
    let elsewhere = stage.catalog.commit_checkpoint(("other".into(), id(1)), ALWAYS, when(1)).await;
    assert_eq!(
        elsewhere,
        Err(Error::NoCheckpoint(id(1))),
        "rights were asked for in another space"
    );
}

#[tokio::test]
async fn staged_files_inherit_the_policy_of_the_target_directory() {
    let copies = |copies| Override { copies: Some(copies), ..Override::default() };
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/step/d/x", &[1, 2], &[1, 2, 3])).await;
    stage.catalog.set_policy(path("pot://lab/step"), copies(3)).await.expect("set");
    stage.catalog.set_policy(path("pot://lab/step/d"), copies(2)).await.expect("set");
    let open = stage.replace(1, "pot://lab/step").await;
    for name in ["a", "d/b", "e/c"] {
        stage.put(file(&staged(&open, name), &[1, 2], &[1, 2])).await;
    }
    let three = Some("3 copies".to_owned());
    assert_eq!(stage.goal_of(&staged(&open, "a")).await, three);
    assert_eq!(stage.goal_of(&staged(&open, "d/b")).await.as_deref(), Some("2 copies"));
    assert_eq!(stage.goal_of(&staged(&open, "e/c")).await, three);
    let admitted =
        stage.catalog.admit_write(path(&staged(&open, "new/x")), Condition::Always, 1).await;
    assert_eq!(admitted.expect("admitted").space.policy.copies, 3);
    // Staged files follow a policy that is set meanwhile.
    let at = open.staging.clone();
    let policy = stage.catalog.admit_write(path("pot://lab/step/a"), Condition::Always, 0).await;
    let policy = Policy { copies: 1, ..policy.expect("read").space.policy };
    let page = stage.catalog.follow_policy(at, policy, None, Some(5)).await.expect("followed");
    assert_eq!((page.next, stage.goal_of(&staged(&open, "a")).await), (None, None), "it has one");
    assert_eq!(
        stage.goal_of(&staged(&open, "d/b")).await.as_deref(),
        Some("2 copies"),
        "d decides"
    );

    stage.publish(1, ALWAYS).await.expect("committed");
    let policy = async |at: &str| {
        let space = stage.catalog.admit_write(path(at), Condition::Always, 0).await;
        space.expect("read").space.policy.copies
    };
    assert_eq!(policy("pot://lab/step/new").await, 3);
    assert_eq!(policy("pot://lab/step/d/new").await, 2);
    stage.empty_trash().await;
    assert_eq!(
        policy("pot://lab/step/d/new").await,
        2,
        "not those of the directory that was replaced"
    );
}

#[tokio::test]
async fn checkpoint_merge_is_all_or_nothing() {
    let mut stage = Stage::new().await;
    for (name, chunk) in [("tree/a", 1), ("tree/d/x", 2), ("tree/d/keep", 3)] {
        stage.put(file(&format!("pot://lab/{name}"), &[chunk], &[1])).await;
    }
    let open = stage.begin(1, "pot://lab", CommitStyle::Merge).await;
    assert_eq!(open.staging.parent(), Some(path("pot://lab")));
    for (name, chunk) in [("tree/d/x", 12), ("tree/e/f/new", 13), ("other", 14)] {
        stage.put(file(&staged(&open, name), &[chunk], &[1])).await;
    }
    let target: LinkTarget = "a".to_owned().try_into().expect("a target");
    let link =
        NewLink { path: path(&staged(&open, "tree/link")), target, mtime: None, owner: None };
    let made = stage.catalog.make_links(vec![link], true, Condition::Always, when(1)).await;
    assert_eq!(made.expect("made"), []);
    let before = stage.tree().await;
    let there = Error::Exists(path("pot://lab/tree/d/x"));
    assert_eq!(stage.publish(1, (Condition::IfAbsent, false)).await, Err(there));
    assert_eq!(stage.tree().await, before, "none of it");
    stage.publish(1, ALWAYS).await.expect("committed");
    let after = [
        "other",
        "tree",
        "tree/a",
        "tree/d",
        "tree/d/keep",
        "tree/d/x",
        "tree/e",
        "tree/e/f",
        "tree/e/f/new",
        "tree/link",
    ];
    assert_eq!(stage.tree().await, after);
    stage.empty_trash().await;
    assert_eq!(stage.refs([1, 2, 12, 13]).await, [Some(1), Some(0), Some(1), Some(1)]);
    assert_eq!(stage.sums().await, (6, 5000));

    // A directory is no file, an empty file spares content, and a commit may be for one version
    // alone.
    let kind = stage.begin(2, "pot://lab", CommitStyle::Merge).await;
    stage.put(file(&staged(&kind, "tree/d"), &[20], &[1])).await;
    assert_eq!(stage.publish(2, ALWAYS).await, Err(Error::IsADirectory(path("pot://lab/tree/d"))));
    stage.abort(2).await.expect("aborted");
    let empty = stage.begin(3, "pot://lab/tree", CommitStyle::Merge).await;
    stage.put(file(&staged(&empty, "a"), &[], &[])).await;
    let spared = stage.publish(3, (Condition::Always, true)).await;
    assert!(matches!(spared, Err(Error::HasContent { .. })), "{spared:?}");
    let wrong = stage.publish(3, (Condition::IfVersion(VersionId(99)), false)).await;
    assert!(matches!(wrong, Err(Error::WrongVersion { .. })), "{wrong:?}");
    stage.publish(3, ALWAYS).await.expect("committed");
    // A tree that is merged where nothing is becomes the whole there.
    let fresh = stage.begin(4, "pot://lab/fresh/tree", CommitStyle::Merge).await;
    stage.put(file(&staged(&fresh, "f"), &[30], &[1])).await;
    stage.publish(4, ALWAYS).await.expect("committed");
    assert_eq!(stage.listed("pot://lab/fresh", true, None).await, ["tree", "tree/f"]);
}

#[tokio::test]
async fn checkpoint_merge_is_bounded_and_counts_replacements_twice() {
    let mut stage = Stage::new().await;
    let names = |from: u32| (from..from + 2100).map(|n| format!("tree/{n:05}"));
    let all = |at: &dyn Fn(String) -> String, from| -> Vec<_> {
        names(from).map(|name| file(&at(name), &[], &[])).collect()
    };
    stage.store(all(&|name| format!("pot://lab/{name}"), 0)).await;
    let over = stage.begin(1, "pot://lab", CommitStyle::Merge).await;
    stage.store(all(&|name| staged(&over, &name), 0)).await;
    let refused = stage.publish(1, ALWAYS).await;
    assert!(matches!(refused, Err(Error::TooManyMerged { .. })), "{refused:?}");
    stage.abort(1).await.expect("aborted");
    let beside = stage.begin(2, "pot://lab", CommitStyle::Merge).await;
    stage.store(all(&|name| staged(&beside, &name), 10_000)).await;
    stage.publish(2, ALWAYS).await.expect("committed");
    stage.empty_trash().await;
    assert_eq!(stage.sums().await.0, 4200);
}

#[tokio::test]
async fn unused_checkpoint_expires() {
    let mut stage = Stage::new().await;
    let idle = stage.replace(1, "pot://lab/idle").await;
    let used = stage.replace(2, "pot://lab/used").await;
    stage.put(file(&staged(&idle, "a"), &[1], &[1])).await;
    let number = stage.next_batch();
    let files = vec![file(&staged(&used, "a"), &[2], &[1])];
    stage.commit_batch(number, files, false, HOUR_MS).await.expect("a batch");
    let step = Upkeep::Checkpoints { most: 16 };
    assert_eq!(stage.catalog.upkeep(step, HOUR_MS).await, Ok(false));
    assert_eq!(stage.catalog.checkpoints().await.expect("read").open.len(), 2);
    assert_eq!(stage.catalog.upkeep(step, HOUR_MS + 10).await, Ok(false));
    let open = stage.catalog.checkpoints().await.expect("read").open;
    assert_eq!(open.iter().map(|open| open.id).collect::<Vec<_>>(), [id(2)]);
    stage.empty_trash().await;
    assert_eq!(stage.refs([1, 2]).await, [Some(0), Some(1)]);
    // Beginning a checkpoint again has it stay open.
    let again = new(2, "pot://lab/used", CommitStyle::Replace);
    let at = when(HOUR_MS * 3 / 2);
    stage.catalog.begin_checkpoint(again, at).await.expect("renewed");
    assert_eq!(stage.catalog.upkeep(step, HOUR_MS * 2 + 10).await, Ok(false));
    assert_eq!(stage.catalog.checkpoints().await.expect("read").open.len(), 1);
    // It is known for a day how a checkpoint ended.
    assert_eq!(stage.abort(1).await, Ok(()));
    assert_eq!(stage.catalog.upkeep(step, 27 * HOUR_MS).await, Ok(false));
    assert_eq!(stage.abort(1).await, Err(Error::NoCheckpoint(id(1))));
}

#[tokio::test]
async fn restarts_of_the_manager_take_no_time_off_an_open_checkpoint() {
    let stage = Stage::new().await;
    stage.replace(1, "pot://lab/step").await;
    let leapt_ms = stage.begin_terms(40).await;
    assert!(leapt_ms > HOUR_MS);
    let open_at = async |now_ms| {
        let step = Upkeep::Checkpoints { most: 16 };
        assert_eq!(stage.catalog.upkeep(step, now_ms).await, Ok(false));
        stage.catalog.checkpoints().await.expect("read").open.len()
    };
    assert_eq!(open_at(leapt_ms + HOUR_MS).await, 1);
    let again = new(1, "pot://lab/step", CommitStyle::Replace);
    stage.catalog.begin_checkpoint(again, when(leapt_ms + HOUR_MS)).await.expect("used");
    assert_eq!(open_at(leapt_ms + 2 * HOUR_MS).await, 1);
    assert_eq!(open_at(leapt_ms + 2 * HOUR_MS + 10).await, 0);
}

#[tokio::test]
async fn shared_state_ends_by_commit_removal_or_ten_idle_minutes() {
    let mut stage = Stage::new().await;
    let out = path("pot://lab/out");
    let shared = |made_by| {
        let (id, style) = (CheckpointId::of_shared_file(&out), CommitStyle::Share);
        NewCheckpoint { id, target: out.clone(), style, made_by, idle_ms: HOUR_MS }
    };
    let begin = |at_ms| stage.catalog.begin_checkpoint(shared(MemberId(1)), when(at_ms));
    let open = begin(1).await.expect("begun");
    assert_eq!(begin(1).await.expect("begun before").staging, open.staging);
    let id = CheckpointId::of_shared_file(&out);
    let commit = stage.catalog.commit_checkpoint(("lab".into(), id), ALWAYS, when(2)).await;
    assert_eq!(commit, Err(Error::NoCheckpoint(id)), "its writers make the versions");
    // Sharing goes on if somebody has begun with the next version.
    stage.put(file(&staged(&open, "open/w-a"), &[], &[])).await;
    let refused = stage.catalog.abort_checkpoint(("lab".into(), id), true, 2).await;
    assert_eq!(refused, Err(Error::NotEmpty(open.staging.clone())));
    assert_eq!(stage.catalog.shared_file(out.clone()).await, Ok(Some(open.clone())));
    let written = |at: &str| stage.catalog.written_shared_file(path(at));
    for at in ["pot://lab", "pot://lab/out"] {
        assert_eq!(written(at).await, Ok(Some(out.clone())), "{at}");
    }
    assert_eq!(written("pot://lab/beside").await, Ok(None));
    // Makers that died left many empty directories, which come before that of the contributions.
    for number in 0..20 {
        let closed = path(&staged(&open, &format!("closed-{number:02}")));
        stage.catalog.make_directory(closed, false, MADE).await.expect("made");
    }
    let refused = stage.catalog.abort_checkpoint(("lab".into(), id), true, 2).await;
    assert_eq!(refused, Err(Error::NotEmpty(open.staging.clone())));
    let mark = path(&staged(&open, "open/w-a"));
    stage.catalog.remove(mark, Default::default(), false, when(2)).await.expect("removed");
    assert_eq!(stage.catalog.written_shared_file(out.clone()).await, Ok(None));
    let ended = stage.catalog.abort_checkpoint(("lab".into(), id), true, 2).await;
    ended.expect("nobody contributes, and the empty directories are nothing");
    assert_eq!(stage.catalog.shared_file(out.clone()).await, Ok(None));
    let open = stage.catalog.begin_checkpoint(shared(MemberId(1)), when(2)).await.expect("anew");
    stage.put(file(&staged(&open, "open/w-a"), &[], &[])).await;
    stage.catalog.abort_checkpoint(("lab".into(), id), false, 2).await.expect("ended");
    let again = stage.catalog.abort_checkpoint(("lab".into(), id), false, 2).await;
    assert_eq!(again, Err(Error::NoCheckpoint(id)), "nothing is known of it");

    // A file that is removed takes along what was to be its next version.
    let open = stage.catalog.begin_checkpoint(shared(MemberId(2)), when(3)).await.expect("again");
    stage.put(file("pot://lab/out", &[1], &[1])).await;
    stage.put(file(&staged(&open, "open/w-a"), &[2], &[1])).await;
    let opened = || stage.catalog.open_files(out.clone(), false, None);
    assert!(opened().await.expect("opened").is_shared);
    stage.catalog.remove(out.clone(), Default::default(), false, when(4)).await.expect("removed");
    assert_eq!(stage.catalog.checkpoints().await.expect("read").open, []);
    stage.empty_trash().await;
    assert_eq!(stage.refs([1, 2]).await, [Some(0), Some(0)]);

    // To one shared file nothing is contributed, and to another something is.
    let step = Upkeep::Checkpoints { most: 16 };
    let open = stage.catalog.begin_checkpoint(shared(MemberId(1)), when(5)).await.expect("again");
    stage.put(file(&staged(&open, "open/w-a"), &[3], &[1])).await;
    let idle = NewCheckpoint {
        id: CheckpointId::of_shared_file(&path("pot://lab/idle")),
        target: path("pot://lab/idle"),
        ..shared(MemberId(1))
    };
    stage.catalog.begin_checkpoint(idle, when(5)).await.expect("begun");
    let ten_minutes = HOUR_MS / 6;
    assert_eq!(stage.catalog.upkeep(step, ten_minutes).await, Ok(false));
    assert_eq!(stage.catalog.checkpoints().await.expect("read").open.len(), 2);
    assert_eq!(stage.catalog.upkeep(step, ten_minutes + 10).await, Ok(false));
    let open = stage.catalog.checkpoints().await.expect("read").open;
    assert_eq!(open.iter().map(|open| &open.target).collect::<Vec<_>>(), [&out]);
}

#[tokio::test]
async fn staged_files_count_against_the_space_quota() {
    let mut stage = Stage::new().await;
    let quota = Quota { bytes: Some(2000), files: None };
    stage.catalog.set_quota(QuotaOf::Space("lab".into()), quota).await.expect("set");
    stage.put(file("pot://lab/a", &[1], &[1])).await;
    let open = stage.replace(1, "pot://lab/step").await;
    stage.put(file(&staged(&open, "b"), &[2], &[1])).await;
    let over = stage.refused(file(&staged(&open, "c"), &[3], &[1])).await;
    assert!(matches!(over, Error::OverQuota { .. }), "{over:?}");
    stage.abort(1).await.expect("aborted");
    stage.empty_trash().await;
    stage.put(file("pot://lab/c", &[3], &[1])).await;
}

#[tokio::test]
async fn a_member_has_so_many_checkpoints_open_and_no_more() {
    let stage = Stage::new().await;
    let mut begun = 0_u16;
    let refused = loop {
        let mut bytes = [1; 16];
        bytes[..2].copy_from_slice(&begun.to_le_bytes());
        let one = new(1, "pot://lab/step", CommitStyle::Replace);
        let one = NewCheckpoint { id: CheckpointId(bytes), ..one };
        match stage.catalog.begin_checkpoint(one, when(1)).await {
            Ok(_) => begun += 1,
            Err(why) => break why,
        }
    };
    assert_eq!((begun, refused), (256, Error::TooManyCheckpoints(256)));
    let other =
        NewCheckpoint { made_by: MemberId(2), ..new(9, "pot://lab/x", CommitStyle::Replace) };
    stage.catalog.begin_checkpoint(other, when(1)).await.expect("another member's");
}

/// Anybody can work out the identifier of a shared file from its path, also who does not see its space.
#[tokio::test]
async fn a_checkpoint_of_one_space_says_nothing_in_another() {
    let stage = Stage::new().await;
    let policy = Policy { sealed: false, ..Policy::default() };
    let eves = new_space("eves", policy, None);
    stage.catalog.create_space(eves, None, 0).await.expect("a space");
    let out = path("pot://lab/out");
    let id = CheckpointId::of_shared_file(&out);
    for (target, style) in
        [("pot://eves/taken", CommitStyle::Replace), ("pot://lab/out", CommitStyle::Share)]
    {
        let new = NewCheckpoint { id, ..new(1, target, style) };
        stage.catalog.begin_checkpoint(new, when(1)).await.expect("begun");
    }
    let shared = stage.catalog.shared_file(out.clone()).await.expect("read").expect("shared");
    assert_eq!(shared.target, out);
    let of_eve = ("eves".to_owned(), id);
    let commit = stage.catalog.commit_checkpoint(of_eve.clone(), ALWAYS, when(2)).await;
    assert_eq!(commit, Ok(CheckpointOutcome::Now(path("pot://eves/taken"))));
    assert_eq!(stage.catalog.open_checkpoint(of_eve).await, Ok(None));
    let staged = path(&staged(&shared, "open"));
    stage.catalog.make_directory(staged, false, MADE).await.expect("it is still open");
    stage.catalog.abort_checkpoint(("lab".into(), id), false, 2).await.expect("aborted");
    assert_eq!(stage.catalog.shared_file(out).await, Ok(None));
}
