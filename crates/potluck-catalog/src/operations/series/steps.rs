//! Series: directories whose entries are steps, such as the checkpoints of a run, of which old ones are purged as a
//! rule says ([`potluck_core::policy::SeriesRule`]). The rule is a part of the policy that a directory sets, and
//! directories below do not inherit it.

use crate::error::Error;
use crate::history::kept_rows;
use crate::log::{apply, records::Record};
use crate::names::{
    dir_policies,
    entries::{self, DirId, EntryPlace, split},
    walk::{Walk, What},
};
use crate::operations::{checkpoints::staging, names};
use crate::pool_records::notes;
use crate::sql::{Tx, params};
use crate::when::When;
use potluck_core::attributes::FileTime;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::policy::{PurgeReason, SeriesRule, StepAge};
use std::collections::HashSet;

/// The most steps of one series that are looked at. If there are more, the newest may be among the others, so none is
/// purged.
const MOST_STEPS: usize = 20_000;

/// A series as it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The path of the directory.
    pub path: PoolPath,
    /// The rule that says which of the steps are purged.
    pub rule: SeriesRule,
    /// The versions that readers had open, in order of their numbers.
    pub read: Vec<VersionId>,
    /// The steps of the series, the newest first.
    pub steps: Vec<SeriesStep>,
    /// The steps because of which others may go: nothing is purged any more when one of them is gone.
    pub relied_on: Vec<SeriesStep>,
}

/// A file or directory in a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesStep {
    /// The name of the step.
    pub name: String,
    /// The number of the step's directory; `None` for a file.
    pub dir: Option<DirId>,
    /// The modification time of the step.
    pub mtime: FileTime,
    /// True if the step is never purged.
    pub pinned: bool,
    /// True if a reader had a file of the step open.
    pub is_read: bool,
    /// The pool's time, without its leaps, at which the step was used last, in milliseconds; 0 if that is not known.
    pub used_ms: u64,
    /// The reason why the rule lets the step go; `None` if it does not.
    pub reason: Option<PurgeReason>,
}

impl SeriesStep {
    /// Returns whether the rule lets the step go, and neither a pin nor a reader keeps it.
    pub fn may_go(&self) -> bool {
        self.reason.is_some() && !self.pinned && !self.is_read
    }
}

/// Returns the directories of all series that purge something. All policies of directories are looked at, because most
/// catalogs have few.
pub(crate) fn all(db: &Tx) -> Result<Vec<PoolPath>, Error> {
    let mut select = db.prepare("SELECT dir FROM dir_policies")?;
    let dirs: Result<Vec<DirId>, _> =
        select.query_map(params![], |row| row.get(0).map(DirId::now))?.collect();
    let mut series = Vec::new();
    for dir in dirs? {
        if !dir_policies::get(db, dir)?.series.is_none() {
            series.extend(entries::path_of(db, dir)?.filter(kept_rows::keeps_at));
        }
    }
    Ok(series)
}

/// Returns the steps of a series, and what its rule says of them while readers have these versions open.
///
/// Errors: [`Error::TooManySteps`] if there are more than [`MOST_STEPS`].
pub(crate) fn look(
    db: &Tx,
    path: &PoolPath,
    read: Vec<VersionId>,
    when: When,
) -> Result<Series, Error> {
    let dir = entries::existing_dir(db, path)?;
    let rule = dir_policies::get(db, dir)?.series;
    let read_steps = read_in(db, dir, &read)?;
    let mut walk = Walk::new(db, dir, false, None)?.visible();
    let mut steps = Vec::new();
    while let Some(item) = walk.next_item()? {
        if steps.len() == MOST_STEPS {
            return Err(Error::TooManySteps { path: path.clone(), most: MOST_STEPS });
        }
        let dir = match item.what {
            What::Dir(dir) => Some(dir),
            What::File(_) => None,
            What::Link(_) => continue, // such as a link to the latest step
        };
        let (name, mtime, pinned) = (item.path, item.attributes.mtime, item.pinned);
        let (is_read, used_ms) = (read_steps.contains(&name), item.used_ms);
        steps.push(SeriesStep { name, dir, mtime, pinned, is_read, used_ms, reason: None });
    }
    steps.sort_by(|a, b| (b.mtime, &b.name).cmp(&(a.mtime, &a.name)));
    let now_ms = notes::without_leaps(db, when.pool_ms)?;
    for (place, step) in steps.iter_mut().enumerate() {
        let unused_ms = (step.used_ms > 0).then(|| now_ms.saturating_sub(step.used_ms));
        let modified_ms = when.wall_ms.saturating_sub(step.mtime.ms());
        step.reason = rule.lets_go(place, StepAge { modified_ms, unused_ms });
    }
    Ok(Series { path: path.clone(), rule, read, steps, relied_on: Vec::new() })
}

/// Returns the names of a directory's entries that lead to some of these versions.
fn read_in(db: &Tx, dir: DirId, versions: &[VersionId]) -> Result<HashSet<String>, Error> {
    let (mut read, mut passed) = (HashSet::new(), HashSet::new());
    for version in versions {
        let mut place = EntryPlace::File(*version);
        while let Some((parent, name)) = entries::holder_of(db, &place)? {
            if parent == dir {
                read.insert(name);
                break;
            }
            if parent == DirId::ROOT || !passed.insert(parent) {
                break;
            }
            place = EntryPlace::Dir(parent);
        }
    }
    Ok(read)
}

/// Purges those of the given steps that may go and are as they were when the series was looked at. They are removed as
/// by a user, so the policy may keep them in the trash. Returns the names of the purged steps.
///
/// No other steps are looked at but [`Series::relied_on`]: a long series is purged in many transactions of a few steps
/// each.
pub(crate) fn purge(
    db: &Tx,
    looked_at: &Series,
    steps: &[SeriesStep],
    when: When,
) -> Result<Vec<String>, Error> {
    let Series { path, rule, read, relied_on, .. } = looked_at;
    let dir = entries::existing_dir(db, path)?;
    if dir_policies::get(db, dir)?.series != *rule {
        return Ok(Vec::new());
    }
    for step in relied_on {
        let there = entries::lookup(db, dir, &step.name)?.map(|found| found.place);
        let is_there = match (step.dir, there) {
            (Some(dir), Some(EntryPlace::Dir(there))) => there == dir,
            // A file that was written again meanwhile is whole.
            (None, Some(EntryPlace::File(_))) => true,
            _ => false,
        };
        if !is_there {
            return Ok(Vec::new());
        }
    }
    let mut since = db.leases().leased(when.pool_ms);
    since.retain(|version| read.binary_search(version).is_err());
    let opened = read_in(db, dir, &since)?;
    let mut purged = Vec::new();
    for step in steps.iter().filter(|step| step.may_go() && !opened.contains(&step.name)) {
        let Ok(at) = path.join(&step.name) else { continue };
        if is_unchanged(db, dir, step)? {
            names::remove(db, &at, true, when)?;
            purged.push(step.name.clone());
        }
    }
    Ok(purged)
}

/// Returns whether a step is in its directory as it was when that was looked at.
fn is_unchanged(db: &Tx, dir: DirId, step: &SeriesStep) -> Result<bool, Error> {
    let mut select = db.prepare(
        "SELECT coalesce(v.mtime_ns, e.mtime_ns), e.dir, e.pinned, e.used_ms
         FROM entries e LEFT JOIN versions v ON v.id = e.version
         WHERE e.parent = ?1 AND e.name = ?2",
    )?;
    let found = select.query_one(params![dir.0, step.name], |row| {
        let (mtime, dir) = (FileTime(row.get(0)?), row.get::<Option<i64>>(1)?.map(DirId::now));
        Ok((mtime, dir, row.get(2)?, row.get::<i64>(3)? as u64))
    })?;
    Ok(found == Some((step.mtime, step.dir, step.pinned, step.used_ms)))
}

/// Notes that these steps of a directory were used at `now_ms`.
pub(crate) fn note_steps(
    db: &Tx,
    path: &PoolPath,
    names: &[String],
    now_ms: u64,
) -> Result<(), Error> {
    let dir = entries::existing_dir(db, path)?;
    names.iter().try_for_each(|name| entries::set_used(db, dir, name, now_ms))
}

/// Returns the steps whose use is to be noted when a path is read or written: those that lead to the path, and those in
/// series below it, if their last use was noted long enough ago.
pub(crate) fn used_by(
    db: &Tx,
    path: &PoolPath,
    now_ms: u64,
) -> Result<Vec<(DirId, String)>, Error> {
    let mut used = Vec::new();
    let Ok(mut at) = PoolPath::space_root(path.space()) else { return Ok(used) };
    for name in path.names() {
        let Some(EntryPlace::Dir(dir)) = entries::resolve(db, &at)?.map(|found| found.place) else {
            return Ok(used);
        };
        let known = entries::used_ms(db, dir, name)?;
        let after = dir_policies::get(db, dir)?.series.notes_uses_after_ms();
        if let (Some(known), Some(after)) = (known, after)
            && is_due(known, after, now_ms)
        {
            used.push((dir, name.clone()));
        }
        let Ok(below) = at.join(name) else { return Ok(used) };
        at = below;
    }
    for series in all(db)?.into_iter().filter(|series| series.is_inside(path)) {
        let dir = entries::existing_dir(db, &series)?;
        let Some(after) = dir_policies::get(db, dir)?.series.notes_uses_after_ms() else {
            continue;
        };
        let mut walk = Walk::new(db, dir, false, None)?.visible();
        while let Some(item) = walk.next_item()? {
            if is_due(item.used_ms, after, now_ms) {
                used.push((dir, item.path));
            }
        }
    }
    Ok(used)
}

fn is_due(used_ms: u64, after_ms: u64, now_ms: u64) -> bool {
    used_ms == 0 || now_ms.saturating_sub(used_ms) >= after_ms
}

impl Series {
    /// Sets `now_ms` as the last use of steps that are read and whose use was noted long enough ago, and of those of
    /// which no use is known. Returns their names, so that the use is noted in the catalog.
    pub fn use_steps(&mut self, now_ms: u64) -> Vec<String> {
        let Some(after) = self.rule.notes_uses_after_ms() else { return Vec::new() };
        let is_used = |step: &&mut SeriesStep| {
            step.used_ms == 0 || (step.is_read && is_due(step.used_ms, after, now_ms))
        };
        let used = self.steps.iter_mut().filter(is_used);
        used.map(|step| {
            step.used_ms = now_ms;
            step.name.clone()
        })
        .collect()
    }
}

/// Pins a file or directory, so that it is never purged, or ends that.
pub(crate) fn pin(db: &Tx, path: &PoolPath, pinned: bool) -> Result<(), Error> {
    staging::check_writable(db, path, None)?;
    let (above, name) = split(path)?;
    let dir = entries::existing_dir(db, &above)?;
    entries::existing(db, path)?;
    match entries::is_pinned(db, dir, name)? == pinned {
        true => Ok(()),
        false => apply::write(db, Record::Pinned { path: path.clone(), pinned }),
    }
}
