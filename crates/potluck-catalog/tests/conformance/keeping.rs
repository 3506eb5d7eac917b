//! Old versions of files, and what was removed: kept for as long as policies say, and brought back.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::{chunk, file, path};
use potluck_catalog::{Error, NewCheckpoint, SeenSpaces, Upkeep, WhatIsKept, When};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::{MemberId, VersionId};
use potluck_core::policy::Override;
use potluck_core::quota::{Quota, QuotaOf};
use potluck_wire::control::{Condition, KeptAbout, KeptScope};

const HOUR_MS: u64 = 3_600_000;
const USER: MemberId = MemberId(7);

impl Stage {
    /// Makes a directory that keeps old versions, and with `trash` what is removed.
    async fn keeps(&self, at: &str, versions: &str, trash: Option<&str>) {
        let over = Override {
            keep_versions: Some(versions.parse().expect("versions")),
            trash: trash.map(|trash| trash.parse().expect("a time")),
            ..Override::default()
        };
        self.catalog.make_directory(path(at), true, MADE).await.expect("made");
        self.catalog.set_policy(path(at), over).await.expect("set");
    }

    async fn kept(&self, at: &str, scope: KeptScope, now_ms: u64) -> Vec<KeptAbout> {
        let (mut kept, mut after) = (Vec::new(), None);
        loop {
            let page = self
                .catalog
                .kept(path(at), scope, after, now_ms, SeenSpaces::ALL)
                .await
                .expect("listed");
            kept.extend(page.kept);
            after = page.next;
            if after.is_none() {
                return kept;
            }
        }
    }

    /// Returns the numbers of the versions that are kept of a name, each with whether it was removed.
    async fn versions(&self, at: &str, now_ms: u64) -> Vec<(VersionId, bool)> {
        let kept = self.kept(at, KeptScope::OfName, now_ms).await;
        kept.into_iter().map(|about| (about.number, about.removed)).collect()
    }

    async fn bring_back(
        &self,
        at: &str,
        number: Option<VersionId>,
        removed: bool,
    ) -> Result<bool, Error> {
        let brought = self.catalog.bring_back(path(at), number, removed, when(5)).await;
        brought.map(|brought| brought.replaced)
    }

    async fn let_old_go(&self, now_ms: u64) {
        while self.catalog.upkeep(Upkeep::Kept { most: 1 }, now_ms).await.expect("a step") {}
        self.empty_trash().await;
    }

    async fn used(&self) -> (i64, i64) {
        let spaces = self.catalog.spaces().await.expect("spaces");
        (spaces[0].sums.files, spaces[0].sums.bytes)
    }
}

#[tokio::test]
async fn replaced_version_is_kept_hidden_and_can_be_reverted_to() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", None).await;
    let first = stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let second = stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    stage.put(file("pot://lab/elsewhere", &[3], &[1])).await;
    stage.put(file("pot://lab/elsewhere", &[4], &[1])).await;
    assert_eq!(stage.listed("pot://lab", true, None).await, ["d", "d/a", "elsewhere"]);
    assert_eq!(stage.versions("pot://lab/d/a", 9).await, [(first, false)]);
    assert_eq!(stage.versions("pot://lab/elsewhere", 9).await, [], "its directory keeps none");
    assert_eq!(stage.refs([1, 2, 3]).await, [Some(1), Some(1), Some(0)]);

    let kept = stage.kept("pot://lab/d/a", KeptScope::OfName, 9).await;
    let opened = stage.catalog.open_files(kept[0].at.clone(), false, None).await;
    assert_eq!(opened.expect("it is read").files[0].version, first);

    assert_eq!(stage.bring_back("pot://lab/d/a", None, false).await, Ok(true));
    assert_eq!(stage.file("pot://lab/d/a").await.0.id, first);
    assert_eq!(stage.versions("pot://lab/d/a", 9).await, [(second, false)], "kept in turn");
    let none = stage.bring_back("pot://lab/d/a", Some(VersionId(999)), false).await;
    assert!(matches!(none, Err(Error::NotKept { .. })), "{none:?}");
}

#[tokio::test]
async fn history_lists_who_replaced_a_file_and_when() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", None).await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let moment = When { pool_ms: 40, wall_ms: 1234, ..When::default() }.made_by(USER);
    stage
        .catalog
        .remove(path("pot://lab/d/a"), Default::default(), false, moment)
        .await
        .expect("removed");
    let [about] = &stage.kept("pot://lab/d/a", KeptScope::OfName, 50).await[..] else {
        panic!("one version")
    };
    assert_eq!((about.member, about.kept_wall_ms, about.removed), (Some(USER), 1234, true));
    let week = 7 * 24 * HOUR_MS;
    assert_eq!(about.left_ms, Some(week - 10), "what is removed goes after a week");
}

#[tokio::test]
async fn versions_expire_by_count_or_age() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "1h,2", None).await;
    let mut put = Vec::new();
    for number in 1..=4 {
        put.push(stage.put(file("pot://lab/d/a", &[number], &[1])).await);
    }
    assert_eq!(stage.versions("pot://lab/d/a", 1).await, [(put[2], false), (put[1], false)]);
    assert_eq!(stage.used().await.0, 4, "until the upkeep comes to it");
    stage.let_old_go(1).await;
    assert_eq!(stage.used().await.0, 3);
    assert_eq!(stage.refs([1, 2, 3, 4]).await, [Some(0), Some(1), Some(1), Some(1)]);
    stage.let_old_go(HOUR_MS - 1).await;
    assert_eq!(stage.versions("pot://lab/d/a", 1).await.len(), 2, "their time is not over");
    stage.let_old_go(HOUR_MS).await;
    assert_eq!(stage.refs([2, 3, 4]).await, [Some(0), Some(0), Some(1)]);
    assert_eq!(stage.used().await.0, 1);
    assert_eq!(stage.versions("pot://lab/d/a", HOUR_MS).await, []);
}

#[tokio::test]
async fn restarts_of_the_manager_take_no_time_off_what_is_kept() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "1h", None).await;
    let old = stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    let leapt_ms = stage.begin_terms(40).await;
    assert!(leapt_ms > HOUR_MS);
    for now_ms in [leapt_ms, leapt_ms + HOUR_MS - 1] {
        stage.let_old_go(now_ms).await;
        assert_eq!(stage.versions("pot://lab/d/a", now_ms).await, [(old, false)], "{now_ms}");
    }
    // What is removed now stays as long as it would have without them.
    let removed_ms = leapt_ms + HOUR_MS;
    stage.remove("pot://lab/d/a", removed_ms).await;
    stage.let_old_go(removed_ms).await;
    assert_eq!(stage.versions("pot://lab/d/a", removed_ms).await.len(), 1, "its time is over");
    stage.let_old_go(removed_ms + HOUR_MS - 1).await;
    assert_eq!(stage.refs([1, 2]).await, [Some(0), Some(1)]);
    stage.let_old_go(removed_ms + HOUR_MS).await;
    assert_eq!(stage.refs([1, 2]).await, [Some(0); 2]);
}

#[tokio::test]
async fn open_version_survives_its_expiry_a5() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "1h", None).await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    let at = stage.kept("pot://lab/d/a", KeptScope::OfName, 1).await[0].at.clone();
    let opened = stage.catalog.open_leased(at, USER, HOUR_MS).await;
    opened.expect("opened");
    let let_go = Upkeep::Kept { most: 10 };
    stage.catalog.upkeep(let_go, HOUR_MS).await.expect("a step");
    let reap = Upkeep::Trash { entries: 100, kept_ms: 0 };
    stage.catalog.upkeep(reap, HOUR_MS + 1).await.expect("a step");
    assert!(!stage.unused(u64::MAX >> 1).await.contains(&chunk(1)), "it is being read");
    let later = HOUR_MS + 120_000;
    while stage.catalog.upkeep(reap, later).await.expect("a step") {}
    assert!(stage.unused(u64::MAX >> 1).await.contains(&chunk(1)));
}

#[tokio::test]
async fn removed_tree_is_restored_with_versions_and_policies() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", Some("1h")).await;
    stage.keeps("pot://lab/d/t/strict", "3", None).await;
    let old = stage.put(file("pot://lab/d/t/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/t/a", &[2], &[1])).await;
    stage.put(file("pot://lab/d/t/sub/b", &[3], &[1])).await;
    let before = stage.listed("pot://lab", true, None).await;
    let used = stage.used().await;
    stage.remove("pot://lab/d/t", 5).await;
    assert_eq!(stage.listed("pot://lab", true, None).await, ["d"]);
    assert_eq!(stage.used().await, used, "it counts for as long as it is kept");
    let removed = stage.kept("pot://lab", KeptScope::RemovedBelow, 6).await;
    assert_eq!(
        removed.iter().map(|about| about.path.clone()).collect::<Vec<_>>(),
        [path("pot://lab/d/t")]
    );

    let inside = stage.bring_back("pot://lab/d/t/a", None, true).await;
    let removed = path("pot://lab/d/t");
    assert_eq!(inside, Err(Error::RemovedAbove { path: path("pot://lab/d/t/a"), removed }));
    assert_eq!(stage.bring_back("pot://lab/d/t", None, true).await, Ok(false));
    assert_eq!(stage.listed("pot://lab", true, None).await, before);
    assert_eq!(stage.versions("pot://lab/d/t/a", 6).await, [(old, false)]);
    let facts = stage.catalog.stat(path("pot://lab/d/t/strict")).await.expect("there");
    assert_eq!(facts.policy.keep_versions.to_string(), "3");
    let twice = stage.bring_back("pot://lab/d/t", None, true).await;
    assert!(matches!(twice, Err(Error::NotKept { .. })), "{twice:?}");
}

#[tokio::test]
async fn undelete_never_replaces_an_existing_entry() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "none", Some("1h")).await;
    let first = stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.remove("pot://lab/d/a", 5).await;
    let second = stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    let refused = stage.bring_back("pot://lab/d/a", None, true).await;
    assert_eq!(refused, Err(Error::Exists(path("pot://lab/d/a"))));
    assert_eq!(stage.file("pot://lab/d/a").await.0.id, second);
    // A version that is asked for by its number takes the place of the present one, which is kept whatever the
    // policy says.
    assert_eq!(stage.bring_back("pot://lab/d/a", Some(first), false).await, Ok(true));
    assert_eq!(stage.file("pot://lab/d/a").await.0.id, first);
    assert_eq!(stage.versions("pot://lab/d/a", 6).await, [(second, false)]);
}

#[tokio::test]
async fn expired_tree_is_dismantled_with_its_history() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", Some("1h")).await;
    stage.put(file("pot://lab/d/t/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/t/a", &[2], &[1])).await;
    stage.put(file("pot://lab/d/t/b", &[3], &[1])).await;
    stage.remove("pot://lab/d/t/b", 5).await;
    stage.remove("pot://lab/d/t", 5).await;
    stage.let_old_go(HOUR_MS + 5).await;
    stage.empty_trash().await;
    assert_eq!(stage.refs([1, 2, 3]).await, [Some(0); 3]);
    assert_eq!(stage.used().await, (0, 0));
    stage.let_old_go(u64::MAX >> 2).await;
    assert_eq!(stage.kept("pot://lab", KeptScope::AllBelow, 5).await.len(), 0);
}

#[tokio::test]
async fn removal_without_trash_is_final() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", Some("none")).await;
    for number in 1..=3 {
        stage.put(file("pot://lab/d/a", &[number], &[1])).await;
    }
    stage.remove("pot://lab/d/a", 5).await;
    assert_eq!(stage.kept("pot://lab/d", KeptScope::AllBelow, 5).await.len(), 0);
    stage.let_old_go(5).await;
    assert_eq!(stage.refs([1, 2, 3]).await, [Some(0); 3]);
    assert_eq!(stage.used().await, (0, 0));

    stage.keeps("pot://lab/d", "10", Some("1h")).await;
    stage.put(file("pot://lab/d/b", &[4], &[1])).await;
    stage.put(file("pot://lab/d/b", &[5], &[1])).await;
    let forever = When { keeps: WhatIsKept::Nothing, ..when(5) };
    stage
        .catalog
        .remove(path("pot://lab/d/b"), Default::default(), false, forever)
        .await
        .expect("removed");
    stage.let_old_go(5).await;
    assert_eq!(stage.refs([4, 5]).await, [Some(0); 2]);
}

#[tokio::test]
async fn old_versions_of_a_name_that_is_gone_go_with_what_was_removed() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", Some("1h")).await;
    for number in 1..=2 {
        stage.put(file("pot://lab/d/removed", &[number], &[1])).await;
        stage.put(file("pot://lab/d/moved", &[number + 10], &[1])).await;
    }
    stage.remove("pot://lab/d/removed", 5).await;
    let (from, to) = (path("pot://lab/d/moved"), path("pot://lab/d/new"));
    stage.catalog.rename(from, to, false, None, when(5)).await.expect("moved");
    stage.let_old_go(HOUR_MS + 4).await;
    assert_eq!(stage.kept("pot://lab/d", KeptScope::AllBelow, 5).await.len(), 3);
    stage.let_old_go(HOUR_MS + 5).await;
    assert_eq!(stage.refs([1, 2, 11, 12]).await, [Some(0), Some(0), Some(0), Some(1)]);
    assert_eq!(stage.used().await.0, 1, "but for what was moved");
}

#[tokio::test]
async fn a_file_that_another_is_renamed_over_is_kept() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", None).await;
    let old = stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/tmp", &[2], &[1])).await;
    let (from, to) = (path("pot://lab/d/tmp"), path("pot://lab/d/a"));
    stage.catalog.rename(from, to, false, None, when(5)).await.expect("moved");
    assert_eq!(stage.versions("pot://lab/d/a", 6).await, [(old, false)]);
    assert_eq!(stage.used().await.0, 2);
}

#[tokio::test]
async fn kept_versions_count_against_the_quota() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", None).await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let bytes = stage.used().await.1 as u64;
    let quota = Quota { bytes: Some(2 * bytes), files: None };
    stage.catalog.set_quota(QuotaOf::Space("lab".into()), quota).await.expect("set");
    stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    let early = stage.catalog.admit_write(path("pot://lab/d/a"), Condition::Always, bytes).await;
    assert!(matches!(early, Err(Error::OverQuota { .. })), "before it is sent: {early:?}");
    let refused = stage.refused(file("pot://lab/d/a", &[3], &[1])).await;
    assert!(matches!(refused, Error::OverQuota { .. }), "{refused}");
    let used = stage.catalog.usage(path("pot://lab"), None, 1000, SeenSpaces::ALL).await;
    let used = used.expect("added up");
    assert_eq!((used.files, used.bytes), (1, bytes));
    assert_eq!((used.kept_files, used.kept_bytes), (1, bytes));
    let kept = stage.kept("pot://lab", KeptScope::AllBelow, 5).await;
    let numbers = kept.iter().map(|about| about.number).collect();
    stage.catalog.let_go(path("pot://lab"), numbers, when(6)).await.expect("let go");
    stage.put(file("pot://lab/d/a", &[3], &[1])).await;
}

#[tokio::test]
async fn only_what_is_below_the_path_that_is_named_is_let_go() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", None).await;
    let old = stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    for elsewhere in ["pot://lab/d/b", "pot://lab/e", "pot://other"] {
        stage.catalog.let_go(path(elsewhere), vec![old], when(6)).await.expect("nothing");
    }
    assert_eq!(stage.versions("pot://lab/d/a", 6).await, [(old, false)]);
}

#[tokio::test]
async fn writes_to_the_hidden_history_directory_are_refused() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", None).await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let old = stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    stage.put(file("pot://lab/d/a", &[3], &[1])).await;
    let holder = "pot://lab/d/.potluck-kept";
    let kept = format!("{holder}/{old}");
    let refused = |at: &str| Error::KeptPlace(path(at));
    for at in [holder, &kept, "pot://lab/new/.potluck-kept"] {
        let make = stage.catalog.make_directory(path(at), true, MADE).await;
        assert_eq!(make, Err(refused(at)));
        let (from, to) = (path("pot://lab/d/a"), path(at));
        let onto = stage.catalog.rename(from.clone(), to.clone(), false, None, when(5)).await;
        assert_eq!(onto, Err(refused(at)));
        let set = stage.catalog.set_attributes(to.clone(), None, Default::default()).await;
        assert_eq!(set, Err(refused(at)));
    }
    let removed = stage.catalog.remove(path(&kept), Default::default(), true, when(5)).await;
    assert_eq!(removed.map(drop), Err(refused(&kept)));
    let moved = stage.catalog.rename(path(&kept), path("pot://lab/x"), false, None, when(5)).await;
    assert_eq!(moved, Err(refused(&kept)));
    assert_eq!(stage.refused(file(&kept, &[9], &[1])).await, refused(&kept));
    let below = format!("{holder}/x/y");
    assert_eq!(stage.refused(file(&below, &[9], &[1])).await, refused(&below));
    let planned = stage.catalog.plan_policy(path(holder), Override::default()).await;
    assert_eq!(planned.map(drop), Err(refused(holder)));
}

#[tokio::test]
async fn checkpoint_keeps_the_replaced_directory_as_a_version() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/runs", "2", None).await;
    stage.put(file("pot://lab/runs/step/old", &[1], &[1])).await;
    let (id, target) = (CheckpointId([1; 16]), path("pot://lab/runs/step"));
    let style = CommitStyle::Replace;
    let new = NewCheckpoint { id, target, style, made_by: MemberId(1), idle_ms: HOUR_MS };
    let open = stage.catalog.begin_checkpoint(new, when(1)).await.expect("begun");
    for number in [2, 3] {
        stage.put(file(&format!("{}/new", open.staging), &[number], &[1])).await;
    }
    let how = (Condition::Always, false);
    stage.catalog.commit_checkpoint(("lab".into(), id), how, when(2)).await.expect("committed");
    assert_eq!(stage.refs([1, 2, 3]).await, [Some(1), Some(0), Some(1)], "nothing staged is kept");
    assert_eq!(stage.listed("pot://lab/runs", true, None).await, ["step", "step/new"]);
    assert_eq!(stage.bring_back("pot://lab/runs/step", None, false).await, Ok(true));
    assert_eq!(stage.listed("pot://lab/runs", true, None).await, ["step", "step/old"]);
    assert_eq!(stage.bring_back("pot://lab/runs/step", None, false).await, Ok(true));
    assert_eq!(stage.listed("pot://lab/runs", true, None).await, ["step", "step/new"]);
}

#[tokio::test]
async fn replaced_empty_directory_keeps_its_trash() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab", "none", Some("7d")).await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.put(file("pot://lab/new/b", &[2], &[1])).await;
    stage.remove("pot://lab/d/a", 1).await;
    let (from, to) = (path("pot://lab/new"), path("pot://lab/d"));
    stage.catalog.rename(from, to, false, None, when(2)).await.expect("it is empty");
    stage.let_old_go(3).await;
    assert_eq!(stage.refs([1, 2]).await, [Some(1); 2]);
    assert_eq!(stage.bring_back("pot://lab/d", None, false).await, Ok(true));
    assert_eq!(stage.bring_back("pot://lab/d/a", None, true).await, Ok(false));
    assert_eq!(stage.listed("pot://lab", true, None).await, ["d", "d/a"]);
}

#[tokio::test]
async fn directory_with_only_old_versions_is_empty() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", Some("1h")).await;
    stage.put(file("pot://lab/d/e/a", &[1], &[1])).await;
    stage.remove("pot://lab/d/e/a", 5).await;
    let removed =
        stage.catalog.remove(path("pot://lab/d/e"), Default::default(), false, when(6)).await;
    assert_eq!(removed.expect("as rmdir does").files, 0);
    assert_eq!(stage.bring_back("pot://lab/d/e", None, true).await, Ok(false));
    assert_eq!(stage.bring_back("pot://lab/d/e/a", None, true).await, Ok(false));
    assert_eq!(stage.refs([1]).await, [Some(1)]);
}

#[tokio::test]
async fn removed_empty_directory_keeps_history_of_its_name() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", Some("1h")).await;
    let old = stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    let last = stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    stage.remove("pot://lab/d/a", 5).await;
    stage.catalog.make_directory(path("pot://lab/d/a"), false, MADE).await.expect("made");
    let removed =
        stage.catalog.remove(path("pot://lab/d/a"), Default::default(), false, when(6)).await;
    removed.expect("it is empty");
    stage.let_old_go(7).await;
    assert_eq!(stage.versions("pot://lab/d/a", 7).await, [(last, true), (old, false)]);
    assert_eq!(stage.bring_back("pot://lab/d/a", None, true).await, Ok(false));
    assert_eq!(stage.refs([1, 2]).await, [Some(1); 2]);
}

#[tokio::test]
async fn old_versions_are_kept_as_safe_as_a_changed_policy_asks() {
    let mut stage = Stage::new().await;
    stage.keeps("pot://lab/d", "10", None).await;
    stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/a", &[2], &[1])).await;
    let over = Override { copies: Some(2), ..Override::default() };
    let change = stage.catalog.plan_policy(path("pot://lab/d"), over).await.expect("planned");
    let policy = change.expect("kept").policy;
    let followed = stage.catalog.follow_policy(path("pot://lab/d"), policy, None, Some(5)).await;
    assert_eq!(followed.expect("followed").files, 2, "the current version and the old one");
}
