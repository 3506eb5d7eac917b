//! Copies that donors told of before any file used their chunk: those that open sessions have stored so
//! far, and those that interrupted sessions left.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, MemberId, SessionId};
use potluck_wire::control::Holding;
use std::collections::{BTreeMap, BTreeSet};

/// The copies of offered chunks that the catalog does not know, with the sum of each session's bytes.
#[derive(Debug, Default)]
pub struct Uncommitted {
    chunks: BTreeMap<ChunkName, Stored>,
    bytes: BTreeMap<SessionId, u64>,
}

/// A copy of a chunk, at a donor that told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UncommittedCopy {
    /// The donor that has the copy.
    pub donor: DonorId,
    /// True unless the donor merely listed the copy after it was started again: it may be one that lost its bytes, and
    /// nobody has read it since.
    pub counts: bool,
}

#[derive(Debug)]
struct Stored {
    len: u32,
    /// The copies of the chunk, in the order of donors. There are only a few: a set would take three times the memory,
    /// and there may be a million chunks.
    copies: Vec<UncommittedCopy>,
    /// A session that offered the chunk, to which the bytes are counted.
    session: SessionId,
    /// The member who stored the chunk; `None` where sessions of several had offered it by then.
    by: Option<MemberId>,
}

impl Stored {
    /// Returns the index of the copy at a donor, or where it would be.
    fn find(&self, donor: DonorId) -> Result<usize, usize> {
        self.copies.binary_search_by_key(&donor, |copy| copy.donor)
    }
}

impl Uncommitted {
    /// Notes that a donor has a copy of a chunk of `len` stored bytes that `session` offered, and that members other than
    /// `by` had not when it came; returns whether that is news.
    pub fn add(
        &mut self,
        name: ChunkName,
        len: u32,
        copy: UncommittedCopy,
        session: SessionId,
        by: Option<MemberId>,
    ) -> bool {
        let new = || Stored { len, copies: Vec::new(), session, by };
        let stored = self.chunks.entry(name).or_insert_with(new);
        match stored.find(copy.donor) {
            Ok(at) => {
                stored.copies[at].counts |= copy.counts;
                return false;
            }
            Err(at) => {
                stored.copies.reserve_exact(1);
                stored.copies.insert(at, copy);
            }
        }
        *self.bytes.entry(stored.session).or_default() += u64::from(stored.len);
        true
    }

    /// Returns the stored bytes of a chunk, and the donors that have it.
    pub fn get(&self, name: &ChunkName) -> Option<(u32, Vec<DonorId>)> {
        let stored = self.chunks.get(name)?;
        Some((stored.len, stored.copies.iter().map(|copy| copy.donor).collect()))
    }

    /// Returns whether a chunk is there because this member stored it.
    pub fn is_stored_by(&self, name: &ChunkName, member: MemberId) -> bool {
        self.chunks.get(name).is_some_and(|stored| stored.by == Some(member))
    }

    /// Returns the stored bytes of a chunk, and the donors whose copies count.
    pub fn counting(&self, name: &ChunkName) -> Option<(u32, Vec<DonorId>)> {
        let stored = self.chunks.get(name)?;
        let counting = stored.copies.iter().filter(|copy| copy.counts);
        Some((stored.len, counting.map(|copy| copy.donor).collect()))
    }

    /// Takes out a chunk of which the catalog learns; returns the donors that have it.
    pub fn take(&mut self, name: &ChunkName) -> BTreeSet<DonorId> {
        let Some(stored) = self.chunks.remove(name) else { return BTreeSet::new() };
        self.discount(&stored, stored.copies.len());
        stored.copies.into_iter().map(|copy| copy.donor).collect()
    }

    /// Notes that a donor does not have a chunk any more.
    pub fn forget_copy(&mut self, name: &ChunkName, donor: DonorId) {
        let Some(mut stored) = self.chunks.remove(name) else { return };
        if let Ok(at) = stored.find(donor) {
            stored.copies.remove(at);
            self.discount(&stored, 1);
        }
        if !stored.copies.is_empty() {
            self.chunks.insert(*name, stored);
        }
    }

    /// Forgets all that a donor told of, because it has a new incarnation or was removed.
    pub fn forget_donor(&mut self, donor: DonorId) {
        let there = self.chunks.iter().filter(|(_, stored)| stored.find(donor).is_ok());
        let names: Vec<ChunkName> = there.map(|(name, _)| *name).collect();
        names.iter().for_each(|name| self.forget_copy(name, donor));
    }

    /// Forgets a session that offered `names`. A chunk that it stored passes to another session that offered it, which
    /// `heir` names; chunks without one are returned, by the donors that have them. Only `names` are looked at, since
    /// other sessions may store much while many small ones end.
    pub fn forget_session<'a>(
        &mut self,
        session: &SessionId,
        names: impl Iterator<Item = &'a ChunkName>,
        heir: impl Fn(&ChunkName) -> Option<SessionId>,
    ) -> BTreeMap<DonorId, Vec<Holding>> {
        self.bytes.remove(session);
        let mut nobodys = BTreeMap::<DonorId, Vec<Holding>>::new();
        for name in names {
            let Some(stored) = self.chunks.get_mut(name) else { continue };
            if stored.session != *session {
                continue;
            }
            if let Some(heir) = heir(name) {
                stored.session = heir;
                let copies = stored.copies.len() as u64;
                *self.bytes.entry(heir).or_default() += u64::from(stored.len) * copies;
            } else if let Some(stored) = self.chunks.remove(name) {
                let holding = Holding { name: *name, len: stored.len };
                for UncommittedCopy { donor, .. } in stored.copies {
                    nobodys.entry(donor).or_default().push(holding);
                }
            }
        }
        nobodys
    }

    /// Returns the bytes that a session has stored and not committed, all copies counted. A chunk that several sessions
    /// offered counts for one of them.
    pub fn bytes_of(&self, session: &SessionId) -> u64 {
        self.bytes.get(session).copied().unwrap_or(0)
    }

    fn discount(&mut self, stored: &Stored, copies: usize) {
        if let Some(bytes) = self.bytes.get_mut(&stored.session) {
            *bytes = bytes.saturating_sub(u64::from(stored.len) * copies as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offered::OfferedChunks;
    use crate::tests::chunk;

    #[test]
    fn the_end_of_a_session_looks_at_nothing_that_others_store() {
        let (mut offered, mut uncommitted) = (OfferedChunks::default(), Uncommitted::default());
        let session = |n| SessionId([n; 16]);
        let names: Vec<ChunkName> = (0..1000).map(chunk).collect();
        // Sessions 2 and 3 share chunk 990, and session 1 stores 990 others.
        for (owner, names) in [(1, &names[..990]), (2, &names[990..995]), (3, &names[990..991])] {
            offered.add(session(owner), names);
        }
        for name in &names[..995] {
            let owner = offered.one_of(name).expect("offered");
            let copy = UncommittedCopy { donor: DonorId(1), counts: true };
            uncommitted.add(*name, 100, copy, owner, None);
        }
        let looked = std::cell::Cell::new(0);
        let gone = offered.forget(&session(2));
        let counted = gone.iter().inspect(|_| looked.set(looked.get() + 1));
        uncommitted.forget_session(&session(2), counted, |name| offered.one_of(name));
        assert_eq!(looked.get(), 5);
        let bytes = [1, 2, 3].map(|owner| uncommitted.bytes_of(&session(owner)));
        assert_eq!(bytes, [99_000, 0, 100], "what another one offered, too, is its own now");
        assert_eq!(uncommitted.get(&names[994]), None);
        assert!(uncommitted.get(&names[990]).is_some() && uncommitted.get(&names[0]).is_some());
    }
}
