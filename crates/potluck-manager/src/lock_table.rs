//! The table of which holder has the authority over the locks of which files
//! (docs/notes/0014-locks-between-mounts.md). It is soft state: a holder that is not heard for [`LOCK_LEASE`] has
//! nothing any more, and a manager that was just started believes what holders say that they have, and grants
//! nothing for as long.

use crate::deadlines::Deadlines;
use potluck_core::clock::Tick;
use potluck_core::ids::{LockHolderId, MemberId};
use potluck_core::path::PoolPath;
use potluck_wire::control::{LOCK_LEASE, LOCK_WAIT, LockAuthority, LockLevel, NameReserved};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// The most holders that one member may have: its mounts, on all machines that share an identity.
const HOLDERS_OF_MEMBER: usize = 128;
/// The most files that all holders of one member may have the authority over, or wait for.
const LOCKED_OF_MEMBER: usize = 65_536;
/// The time for which a place in the row of waiting holders is kept for a holder that has to ask again.
const PLACE_KEPT: Duration = LOCK_WAIT.saturating_mul(2);

/// The authorities over locks that there are.
pub type SharedLockTable = Arc<Mutex<LockTable>>;

/// A holder, whose number nobody but its member may use.
pub type HolderKey = (MemberId, LockHolderId);

/// The outcome of a try to take an authority.
#[derive(Debug)]
pub enum Taking {
    /// The holder has the authority now.
    Granted,
    /// All other holders whose authority is in the way say that they need it; this is notified when one gives it back.
    Busy(Arc<Notify>),
    /// The manager does not know the holder, which has to report its authorities first.
    Unknown,
    /// The authority may be free once this was notified.
    Waits(Arc<Notify>),
}

/// The authorities over locks of files, and the holders that wait for one.
#[derive(Default)]
pub struct LockTable {
    files: BTreeMap<PoolPath, LockedFile>,
    /// The names that are reserved for files which are not published yet.
    names: BTreeMap<PoolPath, HolderKey>,
    holders: BTreeMap<HolderKey, Holder>,
    /// The number of files in which each member has a part, by an authority or a place in the row, counted once for
    /// each holder, and of names that it has reserved.
    counts: HashMap<MemberId, usize>,
    /// The moment at which each holder loses its authorities, unless it is heard.
    leases: Deadlines<HolderKey>,
    /// The moment at which a place in the row for a file is lost, unless its holder asks again.
    places: Deadlines<(HolderKey, PoolPath)>,
}

#[derive(Default)]
struct LockedFile {
    held: BTreeMap<HolderKey, LockLevel>,
    row: Vec<Place>,
    freed: Arc<Notify>,
}

/// A holder's place in the row of those that wait for the authority over a file.
struct Place {
    key: HolderKey,
    level: LockLevel,
    /// The holders that have the authority over the file and say that they need it.
    refused_by: BTreeSet<HolderKey>,
}

struct Holder {
    held: BTreeSet<PoolPath>,
    names: BTreeSet<PoolPath>,
    /// Notified when another holder wants an authority that this one has.
    wanted: Arc<Notify>,
}

impl LockedFile {
    /// Returns the other holders of the file whose authority does not go with `level`.
    fn in_the_way(&self, key: HolderKey, level: LockLevel) -> Vec<HolderKey> {
        let others = self.held.iter().filter(|(other, _)| **other != key);
        others.filter(|(_, held)| !level.goes_with(**held)).map(|(other, _)| *other).collect()
    }

    /// Returns the highest level that other holders wait for and that does not go with what a holder has.
    fn wanted_of(&self, key: HolderKey) -> Option<LockLevel> {
        let held = self.held.get(&key)?;
        let others = self.row.iter().filter(|place| place.key != key);
        others.map(|place| place.level).filter(|level| !held.goes_with(*level)).max()
    }
}

impl LockTable {
    /// Tries to take an authority for a holder; `is_first` if it has none, and `may_grant` unless what others had
    /// in an earlier term may still hold.
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
                self.places.remove(&(key, path.clone()));
            }
            // Those that wait behind this one may be granted theirs together with it.
            file.freed.notify_waiters();
            if let Some(holder) = self.holders.get_mut(&key) {
                holder.held.insert(path.clone());
            }
            return Ok(Taking::Granted);
        }
        let freed = Arc::clone(&file.freed);
        self.places.set((key, path.clone()), now + PLACE_KEPT);
        match at {
            Some(at) => {
                let place = &mut file.row[at];
                place.level = *level;
                let is_refused = !in_the_way.is_empty()
                    && in_the_way.iter().all(|holder| place.refused_by.contains(holder));
                if is_refused {
                    return Ok(Taking::Busy(freed));
                }
            }
            None => {
                let refused_by = BTreeSet::new();
                file.row.push(Place { key, level: *level, refused_by });
                for holder in in_the_way {
                    if let Some(holder) = self.holders.get(&holder) {
                        holder.wanted.notify_waiters();
                    }
                }
            }
        }
        Ok(Taking::Waits(freed))
    }

    /// Notes that a holder does not wait for a file any longer.
    pub fn leave_row(&mut self, key: HolderKey, path: &PoolPath) {
        self.places.remove(&(key, path.clone()));
        self.part(key, path, |file| file.row.retain(|place| place.key != key));
    }

    /// Takes away some of what a holder has or waits for in a file, and wakes the holders that wait for that.
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
        if !self.has_part(key, path) {
            self.count_less(key.0);
        }
    }

    /// Returns whether a holder has the authority over a file, or waits for it.
    fn has_part(&self, key: HolderKey, path: &PoolPath) -> bool {
        self.files.get(path).is_some_and(|file| {
            file.held.contains_key(&key) || file.row.iter().any(|place| place.key == key)
        })
    }

    /// Notes that a holder is there. Returns what notifies it of requests, or `None` if the table does not know the
    /// holder, which has to report its authorities first.
    pub fn hear(&mut self, key: HolderKey, now: Tick) -> Option<Arc<Notify>> {
        let holder = self.holders.get(&key)?;
        self.leases.set(key, now + LOCK_LEASE);
        Some(Arc::clone(&holder.wanted))
    }

    /// Refuses a holder that says that it has so many authorities and names if its member may not have as many.
    ///
    /// Errors: [`code::TOO_MANY_LOCKS`].
    pub fn check_claim(said: usize) -> Result<(), Failure> {
        match said {
            0..=LOCKED_OF_MEMBER => Ok(()),
            _ => Err(too_many("files locked", LOCKED_OF_MEMBER)),
        }
    }

    /// Believes what a holder says that it has, as far as nobody else has it and the limit of its member allows it,
    /// and returns the files that the holder has lost. Without `is_believed` it has lost all.
    ///
    /// Errors: [`code::TOO_MANY_LOCKS`] where the member has too many holders.
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
        for LockAuthority { path, level } in held {
            let file = self.files.get(&path);
            let is_free = file.is_none_or(|file| file.in_the_way(key, level).is_empty());
            if !(is_believed && is_free)
                || (!self.has_part(key, &path) && self.count_more(key.0).is_err())
            {
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

    /// Returns the authorities of a holder that others want, each with the level that they want.
    pub fn wanted(&self, key: HolderKey) -> Vec<LockAuthority> {
        let held = self.holders.get(&key).into_iter().flat_map(|holder| &holder.held);
        let wanted = held.filter_map(|path| {
            let level = self.files.get(path)?.wanted_of(key)?;
            Some(LockAuthority { path: path.clone(), level })
        });
        wanted.collect()
    }

    /// Notes that a holder needs the authority that others want.
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

    /// Notes that a holder gives the authority over a file back, or keeps it at a lower level.
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

    /// Returns the other holders that have any authority over a file.
    pub fn held_beside(&self, key: HolderKey, path: &PoolPath) -> Vec<HolderKey> {
        let file = self.files.get(path);
        file.map(|file| file.in_the_way(key, LockLevel::Exclusive)).unwrap_or_default()
    }

    /// Reserves a name for a holder; the arguments are those of [`Self::take`].
    ///
    /// Errors: [`code::TOO_MANY_LOCKS`].
    pub fn reserve(
        &mut self,
        key: HolderKey,
        is_first: bool,
        path: &PoolPath,
        may_grant: bool,
        now: Tick,
    ) -> Result<NameReserved, Failure> {
        self.sweep(now);
        if !self.holders.contains_key(&key) {
            if !is_first {
                return Ok(NameReserved::Unknown);
            }
            self.add_holder(key, now)?;
        }
        self.hear(key, now);
        match self.names.get(path) {
            Some(other) if *other != key => return Ok(NameReserved::Taken),
            Some(_) => return Ok(NameReserved::Reserved), // the call is repeated
            None if !may_grant => return Ok(NameReserved::NotYet),
            None => {}
        }
        self.add_name(key, path)?;
        Ok(NameReserved::Reserved)
    }

    fn add_name(&mut self, key: HolderKey, path: &PoolPath) -> Result<(), Failure> {
        self.count_more(key.0)?;
        self.names.insert(path.clone(), key);
        if let Some(holder) = self.holders.get_mut(&key) {
            holder.names.insert(path.clone());
        }
        Ok(())
    }

    /// Believes what a holder says that it has reserved, as [`Self::reclaim`] does just before, and returns the names
    /// that it has lost.
    pub fn reclaim_names(
        &mut self,
        key: HolderKey,
        names: Vec<PoolPath>,
        is_believed: bool,
    ) -> Vec<PoolPath> {
        let is_lost = |path: &PoolPath| {
            !is_believed || self.names.contains_key(path) || self.add_name(key, path).is_err()
        };
        names.into_iter().filter(is_lost).collect()
    }

    /// Frees a name that a holder has reserved.
    pub fn free(&mut self, key: HolderKey, path: &PoolPath) {
        if self.names.get(path) == Some(&key) {
            self.names.remove(path);
            if let Some(holder) = self.holders.get_mut(&key) {
                holder.names.remove(path);
            }
            self.count_less(key.0);
        }
    }

    /// Frees a name under which a file of the member was published.
    pub fn published(&mut self, member: MemberId, path: &PoolPath) {
        if let Some(key) = self.names.get(path).copied().filter(|key| key.0 == member) {
            self.free(key, path);
        }
    }

    /// Removes a holder with its authorities and reserved names. Its places in rows stay until they expire.
    pub fn release(&mut self, key: HolderKey) {
        let Some(holder) = self.holders.remove(&key) else { return };
        self.leases.remove(&key);
        for path in &holder.held {
            self.part(key, path, |file| {
                file.held.remove(&key);
            });
        }
        for path in &holder.names {
            self.names.remove(path);
            self.count_less(key.0);
        }
        holder.wanted.notify_waiters();
    }

    fn add_holder(&mut self, key: HolderKey, now: Tick) -> Result<(), Failure> {
        let of_member = (key.0, LockHolderId::FIRST)..=(key.0, LockHolderId::LAST);
        if self.holders.range(of_member).count() >= HOLDERS_OF_MEMBER {
            return Err(too_many("mounts with locks", HOLDERS_OF_MEMBER));
        }
        let (held, names, wanted) = Default::default();
        self.holders.insert(key, Holder { held, names, wanted });
        self.leases.set(key, now + LOCK_LEASE);
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

    fn count_less(&mut self, member: MemberId) {
        if let Some(count) = self.counts.get_mut(&member) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&member);
            }
        }
    }

    /// Removes the holders that were not heard, with their authorities, and the places in rows of holders that did not
    /// ask again.
    fn sweep(&mut self, now: Tick) {
        while let Some(key) = self.leases.take_over(now) {
            self.release(key);
        }
        while let Some((key, path)) = self.places.take_over(now) {
            self.leave_row(key, &path);
        }
    }
}

fn too_many(what: &str, most: usize) -> Failure {
    let what = format!("you have {most} {what} already");
    Failure::new(ErrorKind::Conflict, code::TOO_MANY_LOCKS, what)
        .hint("close some, or use an identity of its own for each machine")
}

#[cfg(test)]
mod tests;
