//! Changes of policy: setting one, and giving the files below it the redundancy of the policy as their goal.

use crate::checkpoints::checkpoint_rows;
use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::log::{
    apply,
    changes::{self, ChangeOp},
    records::Record,
};
use crate::names::{
    dir_policies::{self, Inherited},
    entries::{self, DirId, EntryPlace},
    walk::{Walk, What},
};
use crate::policies::conversions;
use crate::pool_records::spaces::{self, Space};
use crate::sql::Tx;
use crate::versions;
use crate::versions::parts;
use potluck_core::checkpoint::StagedPlace;
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{BadPolicy, Override, Policy, Redundancy};
use potluck_pool::redundancy::Version;

/// The most entries in one page: a transaction of some ten milliseconds.
const PAGE: usize = 2000;
/// The number of files with another goal at which a page ends: for each of them several rows are written.
const PAGE_GOALS: usize = 256;

/// The directory or file for which a policy is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyScope {
    /// A space or a directory, with all below it.
    Tree(DirId),
    /// The policy is set for one file.
    File,
}

/// The policy that is to hold at a path.
#[derive(Debug, Clone)]
pub struct PolicyChange {
    /// The kind of place that the policy is set for: a directory with all below it, or a file.
    pub scope: PolicyScope,
    /// The policy that the directory or file would have.
    pub policy: Policy,
}

/// Works out the policy that would hold at `path` with `over` set there, and sets nothing. The inner error says why
/// such a policy could not be kept.
pub(crate) fn plan(
    db: &Tx,
    path: &PoolPath,
    over: &Override,
) -> Result<Result<PolicyChange, BadPolicy>, Error> {
    if path.space().is_empty() {
        return Err(Error::OutsideSpaces(path.clone()));
    }
    checkpoint_rows::check_not_kept(path)?;
    if path.names().is_empty() && !over.series.is_unset() {
        return Err(Error::SpaceAsSeries(path.clone()));
    }
    let scope = match entries::existing(db, path)?.place {
        // Staged files inherit from the checkpoint's target, so a policy that is set at the target holds for them, too.
        EntryPlace::Dir(_) if StagedPlace::of(path).is_some() => {
            return Err(Error::StagingPlace(path.clone()));
        }
        EntryPlace::Dir(dir) => PolicyScope::Tree(dir),
        EntryPlace::File(_) => PolicyScope::File,
        EntryPlace::Link(target) => return Err(Error::IsALink { path: path.clone(), target }),
    };
    let policy = dir_policies::effective(db, path)?;
    Ok(policy.with(over).map(|policy| PolicyChange { scope, policy }))
}

/// Sets `over` at a space or directory. Nothing is set for a file, whose redundancy [`follow`] changes.
pub(crate) fn set(db: &Tx, path: &PoolPath, over: &Override) -> Result<(), Error> {
    match entries::existing(db, path)?.place {
        EntryPlace::File(_) | EntryPlace::Link(_) => Ok(()),
        EntryPlace::Dir(_) if path.names().is_empty() => {
            let space = spaces::named(db, path.space())?;
            let policy = space
                .policy
                .with(over)
                .map_err(|why| Error::Bug(format!("a policy that was checked: {why}")))?;
            apply::write(db, Space { policy, ..space }.into())
        }
        EntryPlace::Dir(dir) => {
            let space = spaces::named(db, path.space())?;
            dir_policies::admit(db, &space, dir)?;
            let over = dir_policies::get(db, dir)?.then(over);
            apply::write(db, Record::Policy { path: path.clone(), over })
        }
    }
}

/// Puts `policy` in the place of `before` as the policy of a space. Returns false, and changes nothing, where another
/// policy holds or the space was removed.
pub(crate) fn replace(
    db: &Tx,
    space: SpaceId,
    before: &Policy,
    policy: &Policy,
) -> Result<bool, Error> {
    match spaces::numbered(db, space)?.filter(|space| space.policy == *before) {
        Some(space) => {
            apply::write(db, Space { policy: policy.clone(), ..space }.into())?;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// The work that one page of a change did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FollowedPage {
    /// The number of files whose redundancy is to change.
    pub files: u64,
    /// The size of those files in bytes of plaintext.
    pub bytes: u64,
    /// The approximate number of bytes that are stored in addition while these files have both redundancies.
    pub needs_bytes: u64,
    /// The cursor from which the change goes on; `None` when all was looked at.
    pub next: Option<String>,
}

impl FollowedPage {
    /// Counts a file that is to have `redundancy` and has another. Returns the goal that it is to have, if that is
    /// another than before.
    fn look(&mut self, version: &Version, redundancy: Redundancy) -> Option<Option<Redundancy>> {
        if version.chunks == 0 {
            return None;
        }
        let goal = (version.redundancy() != redundancy).then_some(redundancy);
        if goal.is_some() {
            self.files += 1;
            self.bytes += version.data();
            self.needs_bytes += beyond(version, redundancy);
        }
        (version.goal != goal).then_some(goal)
    }
}

/// Returns about how many more bytes a version takes while it has `redundancy` beside its own. Both share the data, and
/// as many copies of it as both ask for.
fn beyond(version: &Version, redundancy: Redundancy) -> u64 {
    let has = match version.redundancy() {
        Redundancy::Copies(copies) => u64::from(copies),
        Redundancy::Ec(_) => 1,
    };
    match redundancy {
        Redundancy::Copies(copies) => u64::from(copies).saturating_sub(has) * version.data(),
        Redundancy::Ec(ec) => {
            // Parity is as long as the longest chunk of its group.
            let longest = version.data().min(u64::from(version.chunk_size));
            ec.group_count(version.chunks as usize) as u64 * ec.parity() as u64 * longest
        }
    }
}

/// Gives the next files at `path`, after `after`, the redundancy of `policy` as their goal at the pool's time `set_at`,
/// in milliseconds; without `set_at` it only counts them. Files in directories below whose own policies decide on
/// redundancy keep theirs.
pub(crate) fn follow(
    db: &Tx,
    path: &PoolPath,
    policy: &Policy,
    after: Option<&str>,
    set_at: Option<u64>,
) -> Result<FollowedPage, Error> {
    let mut page = FollowedPage::default();
    let mut goals = Vec::new();
    match entries::existing(db, path)?.place {
        EntryPlace::File(version) => {
            let version = versions::get(db, version)?;
            let goal = page.look(&version, policy.redundancy());
            goals.extend(goal.map(|goal| (version.id, goal)));
        }
        EntryPlace::Link(_) => {}
        EntryPlace::Dir(dir) => {
            let deciding = dir_policies::deciding(db, path, dir)?;
            let mut inherited = Inherited::new(db, path.space(), deciding, policy.clone())?;
            let mut walk = Walk::new(db, dir, true, after)?;
            for _ in 0..PAGE {
                let Some(item) = walk.next_item()? else {
                    page.next = None;
                    break;
                };
                if let What::File(version) = &item.what {
                    let here = inherited.around(&item.path)?;
                    if !here.own_redundancy {
                        let goal = page.look(version, policy.redundancy());
                        goals.extend(goal.map(|goal| (version.id, goal)));
                    }
                }
                page.next = Some(item.path);
                if goals.len() >= PAGE_GOALS {
                    break;
                }
            }
        }
    }
    if let Some(now_ms) = set_at {
        aim(db, goals, now_ms)?;
    }
    Ok(page)
}

/// Gives versions other goals, and ends the references of parity that was made for their earlier goals.
fn aim(db: &Tx, goals: Vec<(VersionId, Option<Redundancy>)>, now_ms: u64) -> Result<(), Error> {
    let mut counts = ReferenceCounts::new(db, now_ms);
    for (version, goal) in goals {
        for part in parts::of(db, version)? {
            counts.release(&conversions::forget(db, part)?)?;
        }
        versions::set_goal(db, version, goal)?;
        changes::append(db, &ChangeOp::Version(version))?;
    }
    counts.close()?;
    Ok(())
}
