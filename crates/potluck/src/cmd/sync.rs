//! `potluck sync`: makes a directory like another, of which one is in the pool and one is local. What is the same on both
//! sides is neither sent nor fetched.

use super::cp::{self, CopyPlace, PlacedAt, Unchanged};
use super::{Ending, hash};
use crate::args::{CpArgs, SyncArgs};
use crate::output::{Output, count, told};
use potluck_client::Pool;
use potluck_core::attributes::FileTime;
use potluck_core::chunk::Digest;
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_wire::control::EntryKind;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// The most changes of each kind that are named without `--json`.
const NAMED: usize = 1000;

/// The facts about an entry of one of the two directories.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: EntryKind,
    /// The size in bytes; 0 for a directory.
    size: u64,
    mtime: FileTime,
    digest: Option<Digest>,
}

/// The entries below a directory, by the paths relative to it. A directory comes before the entries in it.
type Tree = BTreeMap<String, Entry>;

/// The changes that make the target like the source.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct SyncPlan {
    /// The files, links and directories that the target lacks.
    new: Vec<String>,
    /// The files and links that differ.
    changed: Vec<String>,
    /// What only the target has, or has as another kind; of a directory not also what is in it.
    extra: Vec<String>,
    /// The bytes of the new and changed files.
    bytes: u64,
    /// The number of files and links that are the same.
    same: u64,
    #[serde(skip)]
    unchanged: Vec<String>,
}

/// Compares two trees; `same` says whether two files of the same size are the same.
fn plan(from: &Tree, to: &Tree, same: impl Fn(&Entry, &Entry) -> bool) -> SyncPlan {
    let mut plan = SyncPlan::default();
    for (path, entry) in from {
        match to.get(path).filter(|there| there.kind == entry.kind) {
            Some(_) if entry.kind == EntryKind::Dir => plan.unchanged.push(path.clone()),
            Some(there) if there.size == entry.size && same(entry, there) => {
                plan.same += 1;
                plan.unchanged.push(path.clone());
            }
            Some(_) => {
                plan.bytes += entry.size;
                plan.changed.push(path.clone());
            }
            None => {
                plan.bytes += entry.size;
                plan.new.push(path.clone());
            }
        }
    }
    for (path, there) in to {
        let stays = from.get(path).is_some_and(|entry| entry.kind == there.kind);
        let is_in_extra = Path::new(path).ancestors().skip(1).any(|above| {
            above.to_str().is_some_and(|above| plan.extra.binary_search(&above.into()).is_ok())
        });
        if !stays && !is_in_extra {
            plan.extra.push(path.clone());
        }
    }
    plan
}

pub async fn run(
    args: SyncArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let (from, to) = (CopyPlace::source(&args.from)?.at, CopyPlace::target(&args.to)?.at);
    let (local, path, is_inward) = match (from, to) {
        (PlacedAt::Local(local), PlacedAt::Pool(path)) => (local, path, true),
        (PlacedAt::Pool(path), PlacedAt::Local(local)) => (local, path, false),
        _ => {
            return Err(usage("one of the two directories is in the pool, and the other is local")
                .hint("inside the pool `potluck cp -r` copies without moving bytes"));
        }
    };
    let mut here = local_tree(&local, is_inward).await?;
    let there = pool_tree(client, &path, !is_inward).await?;
    if args.digest {
        add_digests(&local, &mut here, &there).await;
    }
    let (from, to) = if is_inward { (&here, &there) } else { (&there, &here) };
    let plan = plan(from, to, |one, other| match args.digest && one.kind == EntryKind::File {
        false => one.mtime == other.mtime,
        true => one.digest.is_some() && one.digest == other.digest,
    });
    if args.dry_run {
        output.result(&plan, |plan| would(plan, args.delete));
        return Ok(Ending::Done);
    }
    let blocking: Vec<_> =
        plan.extra.iter().filter(|name| from.contains_key(*name)).cloned().collect();
    if let (Some(name), false) = (blocking.first(), args.delete) {
        let what = format!("{} is of another kind at the target", told(name));
        return Err(Failure::new(ErrorKind::Conflict, code::WRONG_KIND, what)
            .hint("--delete replaces it; -n shows what would be removed"));
    }
    let (mut removed, mut ending) = (0, Ending::Done);
    let side = Side { client, local: &local, path: &path, is_inward };
    for name in &blocking {
        side.remove(name).await?;
        removed += 1;
    }
    if !plan.new.is_empty() || !plan.changed.is_empty() || to.is_empty() {
        let mut unchanged = Unchanged::default();
        for name in &plan.unchanged {
            match is_inward {
                true => drop(unchanged.inward.insert(below(&path, name)?)),
                false => drop(unchanged.outward.insert(name.clone())),
            }
        }
        let mut contents = args.from.clone();
        contents.push("/.");
        let copying = CpArgs {
            from: vec![contents],
            to: args.to.clone(),
            recursive: true,
            policy: args.policy.clone(),
            ..CpArgs::default()
        };
        ending = cp::copy_but(copying, &unchanged, client, &Output::silent(), shown).await?;
    }
    // Who has not got everything may need what would be removed.
    if args.delete && ending == Ending::Done {
        for name in plan.extra.iter().filter(|name| !blocking.contains(name)) {
            side.remove(name).await?;
            removed += 1;
        }
    }
    let report = serde_json::json!({
        "new": plan.new.len(), "changed": plan.changed.len(), "same": plan.same, "bytes": plan.bytes,
        "removed": removed, "extra": plan.extra.len() - removed,
    });
    output.result(&report, |_| done(&plan, removed));
    Ok(ending)
}

/// The two directories.
struct Side<'a> {
    client: &'a Pool,
    local: &'a Path,
    path: &'a PoolPath,
    is_inward: bool,
}

impl Side<'_> {
    /// Removes what is at a path of the target. What is gone meanwhile is no error.
    async fn remove(&self, name: &str) -> Result<(), Failure> {
        if self.is_inward {
            return match self.client.remove(&below(self.path, name)?, true).await {
                Err(failure) if failure.code == code::NO_ENTRY => Ok(()),
                removed => removed.map(drop),
            };
        }
        let place = self.local.join(name);
        let is_dir = place.symlink_metadata().is_ok_and(|about| about.is_dir());
        let removed = match is_dir {
            true => std::fs::remove_dir_all(&place),
            false => std::fs::remove_file(&place),
        };
        match removed {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                let what = format!("cannot remove {}: {why}", place.display());
                Err(Failure::new(ErrorKind::Other, code::LOCAL_IO, what))
            }
            _ => Ok(()),
        }
    }
}

fn below(path: &PoolPath, name: &str) -> Result<PoolPath, Failure> {
    path.join_all(name.split('/')).map_err(|why| {
        let what = format!("{} cannot be a path in the pool: {why}", told(name));
        Failure::new(ErrorKind::Usage, code::BAD_PATH, what)
    })
}

/// Returns what is below a local directory, which must be there if it is the source.
async fn local_tree(dir: &Path, is_source: bool) -> Result<Tree, Failure> {
    let dir: PathBuf = dir.to_owned();
    let walked = tokio::task::spawn_blocking(move || walk(&dir, is_source));
    walked.await.unwrap_or_else(|why| std::panic::resume_unwind(why.into_panic()))
}

fn walk(dir: &Path, is_source: bool) -> Result<Tree, Failure> {
    match dir.metadata() {
        Ok(about) if about.is_dir() => {}
        Ok(_) => return Err(usage(&format!("{} is no directory", dir.display())).hint(FOR_FILES)),
        Err(why) if why.kind() == io::ErrorKind::NotFound && !is_source => return Ok(Tree::new()),
        Err(why) => return Err(unreadable(dir, &why)),
    }
    let mut tree = Tree::new();
    for entry in WalkDir::new(dir).min_depth(1) {
        let entry = entry.map_err(|why| {
            let at = why.path().unwrap_or(dir).to_owned();
            unreadable(&at, &why.into())
        })?;
        let kind = match entry.file_type() {
            kind if kind.is_dir() => EntryKind::Dir,
            kind if kind.is_symlink() => EntryKind::Link,
            kind if kind.is_file() => EntryKind::File,
            _ => continue, // the copy tells that devices and pipes are passed over
        };
        let about = entry.metadata().map_err(|why| unreadable(entry.path(), &why.into()))?;
        let size = if kind == EntryKind::Dir { 0 } else { about.len() };
        let mtime = about.modified().map(FileTime::of_system).unwrap_or(FileTime(0));
        let relative = entry.path().strip_prefix(dir).unwrap_or(entry.path());
        // A name that is no text cannot be in the pool, and the copy tells so.
        if let Some(name) = relative.to_str() {
            tree.insert(name.to_owned(), Entry { kind, size, mtime, digest: None });
        }
    }
    Ok(tree)
}

/// Computes the digests of the local files whose sizes are those in the pool. One that cannot be read gets none: it is
/// copied, and the copy tells why it cannot be.
async fn add_digests(dir: &Path, here: &mut Tree, there: &Tree) {
    let is_compared = |(name, entry): &(&String, &mut Entry)| {
        let other = there.get(*name).filter(|other| other.kind == EntryKind::File);
        entry.kind == EntryKind::File && other.is_some_and(|other| other.size == entry.size)
    };
    for (name, entry) in here.iter_mut().filter(is_compared) {
        let place = dir.join(name);
        // On a thread of its own, so that Ctrl-C is heard while a large file is read.
        let hashed = tokio::task::spawn_blocking(move || hash::digest_of(&place));
        entry.digest = hashed.await.ok().and_then(Result::ok);
    }
}

/// Returns what is below a directory of the pool, which must be there if it is the source.
async fn pool_tree(client: &Pool, path: &PoolPath, is_source: bool) -> Result<Tree, Failure> {
    match client.kind(path).await? {
        Some(EntryKind::Dir) => {}
        Some(_) => return Err(usage(&format!("{path} is no directory")).hint(FOR_FILES)),
        None if !is_source => return Ok(Tree::new()),
        None => {
            let what = format!("nothing is at {path}");
            return Err(Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
                .hint("`potluck ls` shows what there is"));
        }
    }
    let listed = client.list(path, true).await?;
    let entry = |entry: potluck_wire::control::ListedEntry| {
        let size = if entry.kind == EntryKind::Dir { 0 } else { entry.size };
        let (kind, mtime, digest) = (entry.kind, entry.mtime, entry.digest);
        (entry.path, Entry { kind, size, mtime, digest })
    };
    Ok(listed.into_iter().map(entry).collect())
}

/// What to do with what is no directory.
const FOR_FILES: &str = "sync is about directories; `potluck cp` copies files";

fn would(plan: &SyncPlan, deletes: bool) -> String {
    let mut text = String::new();
    let mut name = |what: &str, names: &[String]| {
        for name in names.iter().take(NAMED) {
            text.push_str(&format!("{what} {}\n", told(name)));
        }
        if names.len() > NAMED {
            text.push_str(&format!("{what} … and {} more\n", names.len() - NAMED));
        }
    };
    name("new    ", &plan.new);
    name("changed", &plan.changed);
    name(if deletes { "remove " } else { "extra  " }, &plan.extra);
    let size = format_size(plan.bytes);
    text.push_str(&format!("would copy {size}; the same: {}", count(plan.same, "file")));
    text
}

fn done(plan: &SyncPlan, removed: usize) -> String {
    let copied = (plan.new.len() + plan.changed.len()) as u64;
    let mut text = format!(
        "{} copied, {}; the same: {}",
        count(copied, "entry"),
        format_size(plan.bytes),
        count(plan.same, "file")
    );
    match (removed, plan.extra.len() - removed) {
        (0, 0) => {}
        (0, extra) => {
            text.push_str(&format!("; only at the target: {extra} (--delete removes it)"))
        }
        (removed, _) => text.push_str(&format!("; removed: {removed}")),
    }
    text
}

fn usage(what: &str) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
}

fn unreadable(place: &Path, why: &io::Error) -> Failure {
    let kind = match why.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Other,
    };
    Failure::new(kind, code::LOCAL_IO, format!("cannot read {}: {why}", place.display()))
}

/// What the command says when it is interrupted.
pub const WHEN_INTERRUPTED: &str =
    "interrupted: files that were whole are there, and the same command goes on from there";

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, EntryKind, u64, i64)]) -> Tree {
        let entry = |(path, kind, size, mtime): &(&str, EntryKind, u64, i64)| {
            let (kind, size, mtime) = (*kind, *size, FileTime(*mtime));
            ((*path).to_owned(), Entry { kind, size, mtime, digest: None })
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn plan_names_what_differs_and_what_is_extra() {
        use EntryKind::{Dir, File, Link};
        let from = tree(&[
            ("a", File, 1, 1),
            ("b", File, 2, 1),
            ("d", Dir, 0, 1),
            ("d/new", File, 5, 1),
            ("kind", File, 1, 1),
            ("link", Link, 1, 1),
        ]);
        let to = tree(&[
            ("a", File, 1, 1),
            ("b", File, 2, 9),
            ("d", Dir, 0, 7),
            ("kind", Dir, 0, 1),
            ("kind/in", File, 1, 1),
            ("link", Link, 1, 1),
            ("old", Dir, 0, 1),
            ("old-name", File, 1, 1),
            ("old/in", Dir, 0, 1),
            ("old/in/it", File, 1, 1),
        ]);
        let found = plan(&from, &to, |one, other| one.mtime == other.mtime);
        assert_eq!(found.new, ["d/new", "kind"]);
        assert_eq!(found.changed, ["b"]);
        assert_eq!(found.extra, ["kind", "old", "old-name"]);
        assert_eq!((found.bytes, found.same), (2 + 5 + 1, 2));
        assert_eq!(found.unchanged, ["a", "d", "link"]);
        assert_eq!(plan(&from, &from, |_, _| true).unchanged.len(), from.len());
    }
}
