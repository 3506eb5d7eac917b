//! Finds the policies of the directories that files are copied to: one write session stores all its files
//! by one policy, so that each policy gets a session of its own.

use super::calls::some_at_once;
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Override, Policy};
use potluck_wire::control::EntryKind;
use potluck_wire::error::{Failure, code};
use std::collections::{BTreeMap, BTreeSet};

/// The policies of those directories that are there; what is not there yet inherits.
pub struct Policies(BTreeMap<PoolPath, Policy>);

impl Policies {
    /// Asks for what holds in `dirs`, all inside `base`.
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
                    break; // and so are those above it
                }
            }
        }
        let mut known = Self(BTreeMap::new());
        for level in levels.into_values() {
            // No directory is below one that is not there.
            let there = |dir: &PoolPath| dir.parent().is_some_and(|up| known.0.contains_key(&up));
            let asked: Vec<_> = level.into_iter().filter(|dir| dir == base || there(dir)).collect();
            let ask = |dir: PoolPath| async move { (policy_of(client, &dir).await, dir) };
            for (policy, dir) in some_at_once(asked.into_iter().map(ask)).await {
                known.0.extend(policy?.map(|policy| (dir, policy)));
            }
        }
        Ok(known)
    }

    /// Returns the policy that holds in `dir`: that of the nearest directory that is there.
    pub fn at(&self, dir: &PoolPath) -> Option<&Policy> {
        let mut dir = dir.clone();
        loop {
            match self.0.get(&dir) {
                Some(policy) => return Some(policy),
                None => dir = dir.parent()?,
            }
        }
    }

    /// Returns the policy of a session that writes to all of these directories for a command that sets `over`. Where the
    /// command leaves open when a write may return, that is as the safest of them says: a file is refused in a
    /// directory that asks for more.
    pub fn safest(&self, over: Override) -> Override {
        let ack = self.0.values().map(|policy| policy.ack).max();
        let ack = ack.filter(|ack| *ack > AckLevel::Memory); // `memory` could lower what one asks
        let mirror = self.0.values().map(|policy| policy.mirror).find(|mirror| !mirror.is_async());
        Override { ack: over.ack.or(ack), mirror: over.mirror.or(mirror), ..over }
    }
}

/// The policy of a directory; `None` if there is none. A file in its place is told of at the
/// commit.
async fn policy_of(client: &Pool, dir: &PoolPath) -> Result<Option<Policy>, Failure> {
    match client.under_way().stat(dir).await {
        Ok(stated) => Ok((stated.entry.kind == EntryKind::Dir).then_some(stated.policy)),
        Err(failure) if [code::NO_ENTRY, code::WRONG_KIND].contains(&failure.code.as_str()) => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}
