//! Series: directories of steps, of which old ones are purged.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::{file, path};
use potluck_catalog::{Error, NewCheckpoint, Series, When};
use potluck_core::attributes::{AttributesToSet, FileTime};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::MemberId;
use potluck_core::policy::{Override, PurgeReason, SeriesRule};
use potluck_wire::control::Condition;
use std::sync::Arc;

/// The moment of a look, `n` seconds after step `n` was modified.
const NOW: When = When {
    pool_ms: 50,
    wall_ms: 1_000_000,
    by: None,
    keeps: potluck_catalog::WhatIsKept::AsPoliciesSay,
    durability: potluck_catalog::Durability::Disk,
};

impl Stage {
    async fn set_rule(&self, at: &str, keep_last: Option<u32>, purge_after: Option<&str>) {
        let purge_after = purge_after.map(|time| time.parse().expect("a time"));
        let series = SeriesRule { keep_last, purge_after, purge_unused: None };
        let over = Override { series, ..Override::default() };
        self.catalog.set_policy(path(at), over).await.expect("set");
    }

    /// Makes a step that was modified so many seconds ago.
    async fn step(&mut self, name: &str, seconds: i64, chunk: u64) {
        let at = format!("pot://lab/run/{name}");
        self.put(file(&format!("{at}/state"), &[chunk], &[1])).await;
        let mtime = Some(FileTime::of_ms(NOW.wall_ms - 1000 * seconds));
        let new = AttributesToSet { mtime, ..AttributesToSet::default() };
        self.catalog.set_attributes(path(&at), None, new).await.expect("set");
    }

    /// Returns the steps that may be purged, each with the reason.
    async fn due(&self) -> Vec<(String, PurgeReason)> {
        let series = self.catalog.series(path("pot://lab/run"), NOW).await.expect("looked at");
        let due = series.steps.into_iter().filter(|step| step.may_go());
        due.filter_map(|step| step.reason.map(|reason| (step.name, reason))).collect()
    }

    /// Purges those of these steps that may go at a moment, and returns them.
    async fn purge(&self, names: &[&str], when: When) -> Vec<String> {
        let looked_at = self.catalog.series(path("pot://lab/run"), when).await.expect("looked at");
        self.purge_as_seen(looked_at, names, when).await
    }

    async fn purge_as_seen(
        &self,
        mut looked_at: Series,
        names: &[&str],
        when: When,
    ) -> Vec<String> {
        let mut steps = std::mem::take(&mut looked_at.steps);
        steps.retain(|step| names.contains(&step.name.as_str()));
        self.catalog.purge_steps(Arc::new(looked_at), steps, when).await.expect("purged")
    }
}

async fn series() -> Stage {
    let mut stage = Stage::new().await;
    for number in 1..=4 {
        stage.step(&format!("step-{number}"), number, number as u64).await;
    }
    stage
}

#[tokio::test]
async fn steps_beyond_the_last_and_those_that_are_too_old_are_let_go() {
    let stage = series().await;
    assert_eq!(stage.due().await, [], "no rule, nothing goes");
    assert_eq!(stage.catalog.all_series().await, Ok(vec![]));
    stage.set_rule("pot://lab/run", Some(2), None).await;
    assert_eq!(stage.catalog.all_series().await, Ok(vec![path("pot://lab/run")]));
    let beyond = |number: u8| (format!("step-{number}"), PurgeReason::BeyondLast);
    assert_eq!(stage.due().await, [beyond(3), beyond(4)], "step-1 is the newest");
    stage.set_rule("pot://lab/run", None, Some("2s")).await;
    let old = ("step-2".to_owned(), PurgeReason::Age);
    assert_eq!(stage.due().await, [old, beyond(3), beyond(4)], "both parts hold");
    stage.set_rule("pot://lab/run", Some(0), Some("none")).await;
    assert_eq!(stage.due().await, []);
    assert_eq!(stage.catalog.all_series().await, Ok(vec![]));
}

#[tokio::test]
async fn a_rule_is_of_one_directory_and_no_space_has_one() {
    let stage = series().await;
    stage.set_rule("pot://lab/run", Some(1), None).await;
    let inside = stage.catalog.series(path("pot://lab/run/step-1"), NOW).await.expect("looked at");
    assert!(inside.rule.is_none(), "steps have files, and no steps");
    let series = SeriesRule { keep_last: Some(1), ..SeriesRule::default() };
    let over = Override { series, ..Override::default() };
    let refused = stage.catalog.plan_policy(path("pot://lab"), over).await.map(drop);
    assert_eq!(refused, Err(Error::SpaceAsSeries(path("pot://lab"))));
}

#[tokio::test]
async fn pinned_and_open_steps_are_never_purged() {
    let stage = series().await;
    stage.set_rule("pot://lab/run", Some(1), None).await;
    stage.catalog.pin(path("pot://lab/run/step-4"), true).await.expect("pinned");
    let state = path("pot://lab/run/step-3/state");
    stage.catalog.open_leased(state, MemberId(5), 40).await.expect("opened");
    assert_eq!(stage.due().await, [("step-2".into(), PurgeReason::BeyondLast)]);
    let all = ["step-1", "step-2", "step-3", "step-4"];
    assert_eq!(stage.purge(&all, NOW).await, ["step-2"]);
    assert_eq!(stage.listed("pot://lab/run", false, None).await, ["step-1", "step-3", "step-4"]);
    // If a step is renamed, its pin goes along.
    let (from, to) = (path("pot://lab/run/step-4"), path("pot://lab/run/best"));
    stage.catalog.rename(from, to.clone(), false, None, when(51)).await.expect("moved");
    assert_eq!(stage.due().await, []);
    stage.catalog.pin(to, false).await.expect("unpinned");
    assert_eq!(stage.purge(&["best"], NOW).await, ["best"]);
    let none = stage.catalog.pin(path("pot://lab/run/none"), true).await;
    assert_eq!(none, Err(Error::NoEntry(path("pot://lab/run/none"))));
}

#[tokio::test]
async fn replacement_of_a_pinned_step_is_pinned() {
    for versions in ["none", "5"] {
        let mut stage = Stage::new().await;
        let at = |name: &str| format!("pot://lab/run/{name}");
        let steps = ["copied", "moved", "merged", "committed/old", "other", "newest"];
        for (chunk, name) in (1..).zip(steps) {
            stage.put(file(&at(name), &[chunk], &[1])).await;
        }
        let keep_versions = Some(versions.parse().expect("versions"));
        let over = Override { keep_versions, ..Override::default() };
        stage.catalog.set_policy(path("pot://lab/run"), over).await.expect("set");
        for name in ["copied", "moved", "merged", "committed"] {
            stage.catalog.pin(path(&at(name)), true).await.expect("pinned");
        }
        stage.put(file(&at("copied"), &[11], &[1])).await;
        let (from, to) = (path(&at("other")), path(&at("moved")));
        stage.catalog.rename(from, to, false, None, when(3)).await.expect("moved");
        for (number, style, target, staged) in [
            (1, CommitStyle::Merge, "pot://lab/run", "merged"),
            (2, CommitStyle::Replace, "pot://lab/run/committed", "new"),
        ] {
            let (id, target) = (CheckpointId([number; 16]), path(target));
            let new = NewCheckpoint { id, target, style, made_by: MemberId(1), idle_ms: 1 << 40 };
            let begun = stage.catalog.begin_checkpoint(new, when(3)).await.expect("begun");
            let staged = format!("{}/{staged}", begun.staging);
            stage.put(file(&staged, &[20 + u64::from(number)], &[1])).await;
            let (of, always) = (("lab".into(), id), (Condition::Always, false));
            stage.catalog.commit_checkpoint(of, always, when(4)).await.expect("committed");
        }
        stage.set_rule("pot://lab/run", Some(1), None).await;
        let series = stage.catalog.series(path("pot://lab/run"), NOW).await.expect("looked at");
        let pinned = series.steps.iter().filter(|step| step.pinned).map(|step| step.name.as_str());
        let mut pinned: Vec<&str> = pinned.collect();
        pinned.sort_unstable();
        assert_eq!(pinned, ["committed", "copied", "merged", "moved"], "versions: {versions}");
    }
}

#[tokio::test]
async fn series_step_changed_since_the_look_is_not_purged() {
    let mut stage = series().await;
    for number in 5..=8 {
        stage.step(&format!("step-{number}"), number as i64, number).await;
    }
    stage.set_rule("pot://lab/run", Some(1), None).await;
    let run = path("pot://lab/run");
    let looked_at = stage.catalog.series(run.clone(), NOW).await.expect("looked at");
    stage.catalog.pin(path("pot://lab/run/step-2"), true).await.expect("pinned");
    let state = path("pot://lab/run/step-3/state");
    stage.catalog.open_leased(state, MemberId(5), 40).await.expect("opened");
    stage.put(file("pot://lab/run/step-4/more", &[14], &[1])).await;
    stage.catalog.note_steps(run.clone(), vec!["step-5".into()], 49).await.expect("noted");
    stage
        .catalog
        .rename(path("pot://lab/run/step-6"), path("pot://lab/x"), false, None, when(5))
        .await
        .expect("moved");
    let names: Vec<String> = (1..=8).map(|number| format!("step-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(stage.purge_as_seen(looked_at.clone(), &names[..7], NOW).await, ["step-7"]);
    stage.set_rule("pot://lab/run", Some(5), None).await;
    assert_eq!(stage.purge_as_seen(looked_at, &names, NOW).await, Vec::<String>::new());
}

#[tokio::test]
async fn series_purge_stops_when_the_step_that_allowed_it_is_gone() {
    let stage = series().await;
    stage.set_rule("pot://lab/run", Some(1), None).await;
    let mut looked_at = stage.catalog.series(path("pot://lab/run"), NOW).await.expect("looked at");
    looked_at.relied_on = looked_at.steps[..1].to_vec();
    assert_eq!(looked_at.relied_on[0].name, "step-1");
    assert_eq!(stage.purge_as_seen(looked_at.clone(), &["step-4"], NOW).await, ["step-4"]);
    stage.remove("pot://lab/run/step-1", 50).await;
    let older = ["step-2", "step-3"];
    assert_eq!(stage.purge_as_seen(looked_at.clone(), &older, NOW).await, Vec::<String>::new());
    // Another directory of the name is another step.
    stage.catalog.make_directory(path("pot://lab/run/step-1"), false, MADE).await.expect("made");
    assert_eq!(stage.purge_as_seen(looked_at, &older, NOW).await, Vec::<String>::new());
    assert_eq!(stage.listed("pot://lab/run", false, None).await, ["step-1", "step-2", "step-3"]);
}

#[tokio::test]
async fn unused_series_steps_are_purged() {
    let stage = series().await;
    let run = path("pot://lab/run");
    let series =
        SeriesRule { purge_unused: Some("16s".parse().expect("a time")), ..SeriesRule::default() };
    stage
        .catalog
        .set_policy(run.clone(), Override { series, ..Override::default() })
        .await
        .expect("set");
    let look = async |ms: u64| {
        let when = When { pool_ms: ms, ..NOW };
        let mut series = stage.catalog.series(run.clone(), when).await.expect("looked at");
        let due = series.steps.iter().filter(|step| step.may_go()).map(|step| step.name.clone());
        (due.collect::<Vec<_>>(), series.use_steps(ms))
    };
    let all = ["step-1", "step-2", "step-3", "step-4"];
    let none: [&str; 0] = [];
    let (due, unknown) = look(1_000_000).await;
    assert_eq!(due, none, "of no step is it known when it was used");
    assert_eq!(unknown, all);
    stage.catalog.note_steps(run.clone(), unknown, 1_000_000).await.expect("noted");
    assert_eq!(look(1_015_999).await, (vec![], vec![]));
    // A file of step 3 is read. A read of step 2 is not noted, and a read elsewhere is of no step.
    let note = async |at: &str, ms| stage.catalog.note_use(path(at), ms).await.expect("noted");
    note("pot://lab/run/step-2/state", 1_000_999).await; // too soon after that which is noted
    note("pot://lab/run/step-3/state", 1_008_000).await;
    note("pot://lab/elsewhere", 1_008_000).await;
    assert_eq!(look(1_016_000).await.0, ["step-1", "step-2", "step-4"]);
    stage
        .catalog
        .open_leased(path("pot://lab/run/step-4/state"), MemberId(5), 1_016_000)
        .await
        .expect("opened");
    let (due, used) = look(1_016_000).await;
    assert_eq!((due, used), (vec!["step-1".into(), "step-2".into()], vec!["step-4".into()]));
    // A read of a directory is a read of what is in it.
    note("pot://lab", 1_016_000).await;
    assert_eq!(look(1_031_999).await.0, none);
    let when = When { pool_ms: 1_032_000, ..NOW };
    stage.catalog.pin(path("pot://lab/run/step-1"), true).await.expect("pinned");
    let gone = stage.purge(&all, when).await;
    assert_eq!(gone, ["step-2", "step-3"], "one is pinned, and one is open");
}

#[tokio::test]
async fn a_step_that_is_brought_back_counts_as_used() {
    let stage = series().await;
    let run = path("pot://lab/run");
    let trash = Some("1h".parse().expect("a time"));
    let series =
        SeriesRule { purge_unused: Some("16s".parse().expect("a time")), ..SeriesRule::default() };
    let over = Override { trash, series, ..Override::default() };
    stage.catalog.set_policy(run.clone(), over).await.expect("set");
    let all: Vec<String> = (1..=4).map(|number| format!("step-{number}")).collect();
    stage.catalog.note_steps(run.clone(), all, 1000).await.expect("noted");
    let when = When { pool_ms: 20_000, ..NOW };
    assert_eq!(stage.purge(&["step-4"], when).await, ["step-4"]);
    let step = path("pot://lab/run/step-4");
    stage.catalog.bring_back(step, None, true, when).await.expect("brought back");
    let mut series = stage.catalog.series(run, when).await.expect("looked at");
    let stays = series.steps.iter().filter(|step| !step.may_go());
    assert_eq!(stays.map(|step| step.name.as_str()).collect::<Vec<_>>(), ["step-4"]);
    assert_eq!(series.use_steps(when.pool_ms), ["step-4"]);
}

#[tokio::test]
async fn restarts_of_the_manager_are_no_time_without_use() {
    let stage = series().await;
    let run = path("pot://lab/run");
    let series =
        SeriesRule { purge_unused: Some("1h".parse().expect("a time")), ..SeriesRule::default() };
    let over = Override { series, ..Override::default() };
    stage.catalog.set_policy(run.clone(), over).await.expect("set");
    let all: Vec<String> = (1..=4).map(|number| format!("step-{number}")).collect();
    stage.catalog.note_steps(run.clone(), all, 1000).await.expect("noted");
    let leapt_ms = stage.begin_terms(40).await;
    let due = async |ms| {
        let when = When { pool_ms: leapt_ms + ms, ..NOW };
        let series = stage.catalog.series(run.clone(), when).await.expect("looked at");
        series.steps.iter().filter(|step| step.may_go()).count()
    };
    assert_eq!((due(3_600_999).await, due(3_601_000).await), (0, 4));
}

#[tokio::test]
async fn a_purged_step_is_in_the_trash_where_there_is_one() {
    let stage = series().await;
    let trash = Some("1h".parse().expect("a time"));
    let over = Override { trash, ..Override::default() };
    stage.catalog.set_policy(path("pot://lab/run"), over).await.expect("set");
    stage.set_rule("pot://lab/run", Some(3), None).await;
    assert_eq!(stage.purge(&["step-4"], NOW).await, ["step-4"]);
    stage.empty_trash().await;
    assert_eq!(stage.refs([4]).await, [Some(1)]);
    let back = stage.catalog.bring_back(path("pot://lab/run/step-4"), None, true, when(60)).await;
    back.expect("brought back");
    assert_eq!(stage.listed("pot://lab/run", false, None).await.len(), 4);
    stage
        .catalog
        .make_directory(path("pot://lab/run/.potluck-kept"), true, MADE)
        .await
        .expect_err("reserved");
}
