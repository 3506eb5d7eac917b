//! Finds the policies of the directories that files are copied to. A write session stores all its files by one
//! policy, so that each policy needs a session of its own.

use super::calls::some_at_once;
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Override, Policy};
use potluck_wire::control::EntryKind;
use potluck_wire::error::{Failure, code};
use std::collections::{BTreeMap, BTreeSet};

/// The policies of directories that exist. One that does not exist yet inherits.
pub struct Policies(BTreeMap<PoolPath, Policy>);

impl Policies {
    /// Asks for the policies of `dirs`, which are all at or below `base`, and of the directories between.
    pub async fn of(
        client: &Pool,
        base: &PoolPath,
        dirs: &BTreeSet<PoolPath>,
    ) -> Result<Self, Failure> {
        let mut levels = BTreeMap::<usize, BTreeSet<PoolPath>>::new();
        for dir in dirs {
            let mut above = Some(dir.clone());
            while let Some(dir) = above.take_if(|dir| dir.is_inside(base)) {
                above = dir.parent();
                if !levels.entry(dir.names().len()).or_default().insert(dir) {
                    break; // the directories above it are there as well
                }
            }
        }
        let mut known = Self(BTreeMap::new());
        for level in levels.into_values() {
            // A directory whose parent does not exist does not exist either.
            let there = |dir: &PoolPath| dir.parent().is_some_and(|up| known.0.contains_key(&up));
            let asked: Vec<_> = level.into_iter().filter(|dir| dir == base || there(dir)).collect();
            let ask = |dir: PoolPath| async move { (policy_of(client, &dir).await, dir) };
            for (policy, dir) in some_at_once(asked.into_iter().map(ask)).await {
                known.0.extend(policy?.map(|policy| (dir, policy)));
            }
        }
        Ok(known)
    }

    /// Returns the policy that holds in `dir`: that of the nearest directory at or above it that exists.
    pub fn at(&self, dir: &PoolPath) -> Option<&Policy> {
        let mut dir = dir.clone();
        loop {
            match self.0.get(&dir) {
                Some(policy) => return Some(policy),
                None => dir = dir.parent()?,
            }
        }
    }

    /// Returns the policy of a session that writes to all of these directories for a command that sets `over`. If the
    /// command leaves ack level or mirror protocol open, those of the safest directory hold, because a directory
    /// refuses files that were written with less.
    pub fn safest(&self, over: Override) -> Override {
        let ack = self.0.values().map(|policy| policy.ack).max();
        let ack = ack.filter(|ack| *ack > AckLevel::Memory); // `memory` could lower what a directory asks for
        let mirror = self.0.values().map(|policy| policy.mirror).find(|mirror| !mirror.is_async());
        Override { ack: over.ack.or(ack), mirror: over.mirror.or(mirror), ..over }
    }
}

/// Returns the policy of a directory; `None` if it does not exist. If a file is in its place, the commit will fail.
async fn policy_of(client: &Pool, dir: &PoolPath) -> Result<Option<Policy>, Failure> {
    match client.under_way().stat(dir).await {
        Ok(stated) => Ok((stated.entry.kind == EntryKind::Dir).then_some(stated.policy)),
        Err(failure) if [code::NO_ENTRY, code::WRONG_KIND].contains(&failure.code.as_str()) => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}
