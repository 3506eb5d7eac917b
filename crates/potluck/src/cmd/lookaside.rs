//! `potluck lookaside`: indexes trees of files near this machine, and says which of them are looked into.

use super::Ending;
use crate::args::{LookasideArgs, LookasideIndexArgs};
use crate::command_settings::CommandSettings;
use crate::output::{Output, table, told};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use potluck_client::Pool;
use potluck_core::clock::SystemClock;
use potluck_lookaside::{
    AddedTree, INDEX_NAME, IndexError, IndexProgress, IndexReport, Indexing, LookasideIndex,
    LookasideTrees, TreeCounts, TreeList,
};
use potluck_mount::{FoundRecord, MountQuestion};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A tree as `ls` shows it.
#[derive(Serialize)]
struct ListedTree {
    #[serde(flatten)]
    added: AddedTree,
    /// `there`, `absent`, or why the index cannot be used.
    state: String,
    files: u64,
    size: u64,
}

pub async fn run(
    args: LookasideArgs,
    settings: &CommandSettings,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let list = list(settings);
    let lists = matches!(args, LookasideArgs::Ls | LookasideArgs::Index(_));
    match args {
        LookasideArgs::Index(args) => return index(args, output, shown).await,
        LookasideArgs::Add(args) => add(&list, &args.tree, output)?,
        LookasideArgs::Rm(args) => {
            change_one(&list, &args.tree, output, |trees, at| drop(trees.remove(at)))?;
        }
        LookasideArgs::Enable(args) => {
            change_one(&list, &args.tree, output, |trees, at| trees[at].enabled = true)?;
        }
        LookasideArgs::Disable(args) => {
            change_one(&list, &args.tree, output, |trees, at| trees[at].enabled = false)?;
        }
        LookasideArgs::Clear => {
            let removed = list.change(|trees| std::mem::take(trees).len()).map_err(unlisted)?;
            output.result(&serde_json::json!({ "removed": removed }), |_| String::new());
        }
        LookasideArgs::Ls => {
            tell_mounts(settings);
            let trees: Vec<_> = list.read().map_err(unlisted)?.into_iter().map(listed).collect();
            output.result(&serde_json::json!({ "trees": trees }), |_| text(&trees));
        }
    }
    if !lists {
        tell_mounts(settings);
    }
    Ok(Ending::Done)
}

/// Returns a client that looks into the trees that this user has added, and these.
pub fn looking(client: Pool, settings: &CommandSettings) -> (Pool, Arc<LookasideTrees>) {
    let trees = Arc::new(LookasideTrees::open(&[], Arc::new(SystemClock::default())));
    look_again(&trees, &list(settings));
    (client.with_lookaside(trees.clone()), trees)
}

/// Looks into the trees that a list names now.
pub fn look_again(trees: &LookasideTrees, list: &TreeList) {
    match list.read() {
        Ok(added) => trees.look_into(&added),
        Err(why) => tracing::warn!("lookaside trees are passed over: {why}"),
    }
}

/// Adds what was found in the trees to what a list says of them.
pub fn count(trees: &LookasideTrees, list: &TreeList) {
    if let Err(why) = list.add_counts(trees) {
        tracing::warn!("what was found in lookaside trees is not counted: {why}");
    }
}

/// Returns the list of the trees that this user has added.
pub fn list(settings: &CommandSettings) -> TreeList {
    TreeList::at(settings.state_dir.join("lookaside.json"))
}

/// Has the running mounts count what they found, and look at the list again.
fn tell_mounts(settings: &CommandSettings) {
    for mount in FoundRecord::served(&settings.spool_dir()).unwrap_or_default() {
        if let Err(why) = mount.ask(MountQuestion::LookAgain) {
            let dir = mount.mount.dir.display();
            tracing::warn!("the mount at {dir} does not hear of lookaside trees: {why}");
        }
    }
}

async fn index(args: LookasideIndexArgs, output: &Output, shown: bool) -> Result<Ending, Failure> {
    let bar = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let template = "{spinner} {binary_bytes}  {binary_bytes_per_sec}  {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("a fixed template"));
    bar.enable_steady_tick(Duration::from_millis(200));
    let told = bar.clone();
    let work = tokio::task::spawn_blocking(move || {
        let clock = Arc::new(SystemClock::default());
        let indexing = Indexing::begin(&args.dir, args.index.as_deref(), clock)?;
        indexing.run(|done| {
            told.set_position(done.bytes);
            told.set_message(format!(
                "{} files, {} unchanged; Ctrl-C keeps what is done",
                HumanCount(done.hashed),
                HumanCount(done.unchanged)
            ));
        })
    });
    let done = work.await.unwrap_or_else(|why| resume_unwind(why.into_panic()));
    bar.finish_and_clear();
    let report = done.map_err(unusable)?;
    output.result(&report, said);
    Ok(if report.done.unreadable == 0 { Ending::Done } else { Ending::Partial })
}

fn said(report: &IndexReport) -> String {
    let IndexProgress { hashed, bytes, unchanged, unreadable } = report.done;
    let mut text = format!(
        "indexed {} files ({}), {} were unchanged, {} are gone",
        HumanCount(hashed),
        HumanBytes(bytes),
        HumanCount(unchanged),
        HumanCount(report.removed)
    );
    if unreadable > 0 {
        text.push_str(&format!(", {} could not be read", HumanCount(unreadable)));
    }
    let place = told(&report.index.to_string_lossy()).into_owned();
    format!("{text}\nlook into it: potluck lookaside add {}", place.trim_end_matches(INDEX_NAME))
}

fn add(list: &TreeList, tree: &Path, output: &Output) -> Result<(), Failure> {
    let index = index_at(tree)?;
    LookasideIndex::open(&index).map_err(unusable)?;
    let added = AddedTree { index, enabled: true, counts: TreeCounts::default() };
    let changed = list.change(|trees| {
        if !trees.iter().any(|tree| tree.index == added.index) {
            trees.push(added.clone());
        }
    });
    changed.map_err(unlisted)?;
    output.result(&added, |_| String::new());
    Ok(())
}

fn change_one(
    list: &TreeList,
    tree: &Path,
    output: &Output,
    change: impl FnOnce(&mut Vec<AddedTree>, usize),
) -> Result<(), Failure> {
    let index = index_at(tree)?;
    let changed = list.change(|trees| {
        let at = trees.iter().position(|tree| tree.index == index)?;
        change(trees, at);
        Some(())
    });
    changed.map_err(unlisted)?.ok_or_else(|| {
        let what = format!("{} was not added", tree.display());
        let hint = "`potluck lookaside ls` lists those that were";
        Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what).hint(hint)
    })?;
    output.result(&serde_json::json!({ "index": index }), |_| String::new());
    Ok(())
}

/// Returns the path of the index that is meant by a tree, or by the index itself. The device may be absent.
fn index_at(tree: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::fs::canonicalize(tree).or_else(|_| std::path::absolute(tree));
    let absolute = absolute.map_err(|why| {
        let what = format!("cannot find {}: {why}", tree.display());
        Failure::new(ErrorKind::NotFound, code::LOCAL_IO, what)
    })?;
    let is_index = absolute.is_file() || absolute.ends_with(INDEX_NAME);
    Ok(if is_index { absolute } else { absolute.join(INDEX_NAME) })
}

fn listed(added: AddedTree) -> ListedTree {
    let facts = LookasideIndex::open(&added.index).and_then(|index| index.facts());
    let (state, facts) = match facts {
        Ok(facts) => ("there".to_owned(), Some(facts)),
        Err(IndexError::Missing(_)) => ("absent".to_owned(), None),
        Err(why) => (why.to_string(), None),
    };
    let (files, size) = facts.map_or((0, 0), |facts| (facts.files, facts.bytes));
    ListedTree { added, state, files, size }
}

fn text(trees: &[ListedTree]) -> String {
    if trees.is_empty() {
        return "no tree is looked into: `potluck lookaside index DIR`, then `potluck lookaside add DIR`".into();
    }
    let head = ["tree", "state", "files", "size", "hits", "misses", "stale", "saved"];
    let row = |tree: &ListedTree| {
        let AddedTree { index, enabled, counts } = &tree.added;
        let shown = index.to_string_lossy();
        let place = shown.strip_suffix(&format!("/{INDEX_NAME}")).unwrap_or(&shown);
        let state = if *enabled { tree.state.clone() } else { "disabled".into() };
        vec![
            told(place).into_owned(),
            told(&state).into_owned(),
            HumanCount(tree.files).to_string(),
            HumanBytes(tree.size).to_string(),
            HumanCount(counts.hits).to_string(),
            HumanCount(counts.misses).to_string(),
            HumanCount(counts.stale).to_string(),
            HumanBytes(counts.bytes).to_string(),
        ]
    };
    table(&head, &[2, 3, 4, 5, 6, 7], &trees.iter().map(row).collect::<Vec<_>>())
}

fn unlisted(why: io::Error) -> Failure {
    let what = format!("cannot use the list of lookaside trees: {why}");
    Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
}

fn unusable(why: IndexError) -> Failure {
    let (kind, hint) = match &why {
        IndexError::Missing(_) => (ErrorKind::NotFound, "make it: `potluck lookaside index DIR`"),
        IndexError::Foreign(_) => (
            ErrorKind::Conflict,
            "remove it, or give --index with another place, and index the tree anew",
        ),
        IndexError::Tree { .. } => (ErrorKind::NotFound, "name a directory of this machine"),
        IndexError::Database { .. } => (
            ErrorKind::Other,
            "where the tree cannot be written to, give --index with a place that can; another command may be at work on it",
        ),
    };
    Failure::new(kind, code::LOCAL_IO, why.to_string()).hint(hint)
}
