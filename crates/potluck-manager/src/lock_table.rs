//! Who has the authority over the locks of which files (docs/notes/0014-locks-between-mounts.md). Soft state: a holder
//! that is not heard for [`LOCK_LEASE`] has nothing any more, and a manager that was just started believes what holders
//! say that they have, and grants nothing for as long.

use potluck_core::clock::Tick;
use potluck_core::ids::{LockHolderId, MemberId};
use potluck_core::path::PoolPath;
use potluck_wire::control::{LOCK_LEASE, LOCK_WAIT, LockAuthority, LockLevel, MOST_LOCKED};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// Holders of one member: its mounts, on all machines that share an identity.
const HOLDERS_OF_MEMBER: usize = 128;
/// Files that all holders of one member have the authority over, or wait for.
const LOCKED_OF_MEMBER: usize = 16 * MOST_LOCKED;
/// How long a place in the row is kept for one that has to ask again.
const PLACE_KEPT: Duration = LOCK_WAIT.saturating_mul(2);
/// Time from one look for holders that are gone to the next.
const SWEEP: Duration = Duration::from_secs(1);

/// The authorities over locks that there are.
pub type SharedLockTable = Arc<Mutex<LockTable>>;

/// A holder, whose number nobody but its member may use.
pub type HolderKey = (MemberId, LockHolderId);

/// What comes of a try to take an authority.
#[derive(Debug)]
pub enum Taking {
    /// The holder has it.
    Granted,
    /// All who have it say that they need it; this is notified when one gives it back.
    Busy(Arc<Notify>),
    /// The holder has to say first what it has.
    Unknown,
    /// It may be had once this was notified.
    Waits(Arc<Notify>),
}

/// The authorities over locks of files, and who waits for one.
#[derive(Default)]
pub struct LockTable {
    files: BTreeMap<PoolPath, LockedFile>,
    holders: BTreeMap<HolderKey, Holder>,
    /// How many files each member has a part in, by an authority or a place in the row, once for each holder.
    counts: HashMap<MemberId, usize>,
    swept: Tick,
}

#[derive(Default)]
struct LockedFile {
    held: BTreeMap<HolderKey, LockLevel>,
    row: Vec<Place>,
    freed: Arc<Notify>,
}

/// A place in the row for a file.
struct Place {
    key: HolderKey,
    level: LockLevel,
    until: Tick,
    /// Those who have the file and need it.
    refused_by: BTreeSet<HolderKey>,
}

struct Holder {
    heard: Tick,
    held: BTreeSet<PoolPath>,
    /// Notified when somebody wants something of it.
    wanted: Arc<Notify>,
}

impl LockedFile {
    /// Those who have what does not go with `level`.
    fn in_the_way(&self, key: HolderKey, level: LockLevel) -> Vec<HolderKey> {
        let others = self.held.iter().filter(|(other, _)| **other != key);
        others.filter(|(_, held)| !level.goes_with(**held)).map(|(other, _)| *other).collect()
    }

    /// What others want that does not go with what a holder has.
    fn wanted_of(&self, key: HolderKey) -> Option<LockLevel> {
        let held = self.held.get(&key)?;
        let others = self.row.iter().filter(|place| place.key != key);
        others.map(|place| place.level).filter(|level| !held.goes_with(*level)).max()
    }
}

impl LockTable {
    /// A holder wants an authority; `is_first` if it has none, and `may_grant` unless what others had in an earlier term
    /// may still hold.
    ///
    /// Errors: [`code::TOO_MANY_LOCKS`].
    pub fn take(
        &mut self,
        key: HolderKey,
        is_first: bool,
        authority: &LockAuthority,
        may_grant: bool,
        now: Tick,
    ) -> Result<Taking, Failure> {
        self.sweep(now);
        if !self.holders.contains_key(&key) {
            if !is_first {
                return Ok(Taking::Unknown);
            }
            self.add_holder(key, now)?;
        }
        self.hear(key, now);
        let LockAuthority { path, level } = authority;
        if !self.has_part(key, path) {
            self.count_more(key.0)?;
        }
        let file = self.files.entry(path.clone()).or_default();
        if file.held.get(&key).is_some_and(|held| held >= level) {
            return Ok(Taking::Granted);
        }
        let in_the_way = file.in_the_way(key, *level);
        let at = file.row.iter().position(|place| place.key == key);
        let before = &file.row[..at.unwrap_or(file.row.len())];
        let is_next = before.iter().all(|place| place.level.goes_with(*level));
        if may_grant && in_the_way.is_empty() && is_next {
            file.held.insert(key, *level);
            if let Some(at) = at {
                file.row.remove(at);
            }
            // Those behind may go with it.
            file.freed.notify_waiters();
            if let Some(holder) = self.holders.get_mut(&key) {
                holder.held.insert(path.clone());
            }
            return Ok(Taking::Granted);
        }
        let (until, freed) = (now + PLACE_KEPT, Arc::clone(&file.freed));
        match at {
            Some(at) => {
                let place = &mut file.row[at];
                (place.level, place.until) = (*level, until);
                let is_refused = !in_the_way.is_empty()
                    && in_the_way.iter().all(|holder| place.refused_by.contains(holder));
                if is_refused {
                    return Ok(Taking::Busy(freed));
                }
            }
            None => {
                let refused_by = BTreeSet::new();
                file.row.push(Place { key, level: *level, until, refused_by });
                for holder in in_the_way {
                    if let Some(holder) = self.holders.get(&holder) {
                        holder.wanted.notify_waiters();
                    }
                }
            }
        }
        Ok(Taking::Waits(freed))
    }

    /// A holder waits no longer.
    pub fn leave_row(&mut self, key: HolderKey, path: &PoolPath) {
        self.part(key, path, |file| file.row.retain(|place| place.key != key));
    }

    /// Takes something of what a holder has or waits for in a file, and wakes who waits for that.
    fn part(&mut self, key: HolderKey, path: &PoolPath, take: impl FnOnce(&mut LockedFile)) {
        if !self.has_part(key, path) {
            return;
        }
        if let Some(file) = self.files.get_mut(path) {
            take(file);
            file.freed.notify_waiters();
            if file.held.is_empty() && file.row.is_empty() {
                self.files.remove(path);
            }
        }
        if !self.has_part(key, path)
            && let Some(count) = self.counts.get_mut(&key.0)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key.0);
            }
        }
    }

    /// Whether a holder has the authority over a file, or waits for it.
    fn has_part(&self, key: HolderKey, path: &PoolPath) -> bool {
        self.files.get(path).is_some_and(|file| {
            file.held.contains_key(&key) || file.row.iter().any(|place| place.key == key)
        })
    }

    /// A holder is there; what notifies it of requests, or `None` where it has to say first what it has.
    pub fn hear(&mut self, key: HolderKey, now: Tick) -> Option<Arc<Notify>> {
        let holder = self.holders.get_mut(&key)?;
        holder.heard = now;
        Some(Arc::clone(&holder.wanted))
    }

    /// Believes what a holder says that it has, as far as nobody else has it; gives what is lost. Without `is_believed`
    /// that is all.
    ///
    /// Errors: [`code::TOO_MANY_LOCKS`].
    pub fn reclaim(
        &mut self,
        key: HolderKey,
        held: Vec<LockAuthority>,
        is_believed: bool,
        now: Tick,
    ) -> Result<Vec<PoolPath>, Failure> {
        self.sweep(now);
        self.release(key);
        self.add_holder(key, now)?;
        let mut lost = Vec::new();
        for (number, LockAuthority { path, level }) in held.into_iter().enumerate() {
            let file = self.files.get(&path);
            let is_free = file.is_none_or(|file| file.in_the_way(key, level).is_empty());
            let may = is_believed && is_free && number < MOST_LOCKED;
            if !may || (!self.has_part(key, &path) && self.count_more(key.0).is_err()) {
                lost.push(path);
                continue;
            }
            self.files.entry(path.clone()).or_default().held.insert(key, level);
            if let Some(holder) = self.holders.get_mut(&key) {
                holder.held.insert(path);
            }
        }
        Ok(lost)
    }

    /// What others want of a holder.
    pub fn wanted(&self, key: HolderKey) -> Vec<LockAuthority> {
        let held = self.holders.get(&key).into_iter().flat_map(|holder| &holder.held);
        let wanted = held.filter_map(|path| {
            let level = self.files.get(path)?.wanted_of(key)?;
            Some(LockAuthority { path: path.clone(), level })
        });
        wanted.collect()
    }

    /// A holder needs what others want.
    pub fn refuse(&mut self, key: HolderKey, path: &PoolPath) {
        let Some(file) = self.files.get_mut(path) else { return };
        if !file.held.contains_key(&key) {
            return;
        }
        for place in file.row.iter_mut().filter(|place| place.key != key) {
            place.refused_by.insert(key);
        }
        file.freed.notify_waiters();
    }

    /// A holder gives a file back, or keeps it at a lower level.
    pub fn give(&mut self, key: HolderKey, path: &PoolPath, keeps: Option<LockLevel>) {
        if keeps.is_none()
            && let Some(holder) = self.holders.get_mut(&key)
        {
            holder.held.remove(path);
        }
        self.part(key, path, |file| match (keeps, file.held.get_mut(&key)) {
            (Some(level), Some(held)) => *held = level.min(*held),
            (_, _) => {
                file.held.remove(&key);
            }
        });
    }

    /// Takes all from a holder.
    fn release(&mut self, key: HolderKey) {
        let Some(holder) = self.holders.remove(&key) else { return };
        for path in &holder.held {
            self.part(key, path, |file| {
                file.held.remove(&key);
            });
        }
        holder.wanted.notify_waiters();
    }

    fn add_holder(&mut self, key: HolderKey, now: Tick) -> Result<(), Failure> {
        let of_member = (key.0, LockHolderId::FIRST)..=(key.0, LockHolderId::LAST);
        if self.holders.range(of_member).count() >= HOLDERS_OF_MEMBER {
            return Err(too_many("mounts with locks", HOLDERS_OF_MEMBER));
        }
        let (held, wanted) = Default::default();
        self.holders.insert(key, Holder { heard: now, held, wanted });
        Ok(())
    }

    fn count_more(&mut self, member: MemberId) -> Result<(), Failure> {
        let count = self.counts.entry(member).or_default();
        if *count >= LOCKED_OF_MEMBER {
            return Err(too_many("files locked", LOCKED_OF_MEMBER));
        }
        *count += 1;
        Ok(())
    }

    /// Takes all from holders that were not heard, and places from those that did not ask again.
    fn sweep(&mut self, now: Tick) {
        if now.saturating_sub(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let silent = self.holders.iter();
        let silent = silent.filter(|(_, it)| now.saturating_sub(it.heard) >= LOCK_LEASE);
        let silent: Vec<HolderKey> = silent.map(|(key, _)| *key).collect();
        silent.into_iter().for_each(|key| self.release(key));
        let late = self.files.iter().flat_map(|(path, file)| {
            let late = file.row.iter().filter(|place| place.until <= now);
            late.map(|place| (place.key, path.clone()))
        });
        let late: Vec<(HolderKey, PoolPath)> = late.collect();
        late.into_iter().for_each(|(key, path)| self.leave_row(key, &path));
    }
}

fn too_many(what: &str, most: usize) -> Failure {
    let what = format!("you have {most} {what} already");
    Failure::new(ErrorKind::Conflict, code::TOO_MANY_LOCKS, what)
        .hint("close some, or use an identity of its own for each machine")
}

#[cfg(test)]
mod tests;
