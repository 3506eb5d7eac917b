//! Copies that donors told of before any file used their chunk: what open sessions have stored so
//! far, and what interrupted ones left.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, SessionId};
use potluck_wire::control::Holding;
use std::collections::{BTreeMap, BTreeSet};

/// Copies of offered chunks that the catalog does not know, with the bytes of each session in sum.
#[derive(Debug, Default)]
pub struct Uncommitted {
    chunks: BTreeMap<ChunkName, Stored>,
    bytes: BTreeMap<SessionId, u64>,
}

#[derive(Debug)]
struct Stored {
    len: u32,
    donors: BTreeSet<DonorId>,
    /// Whose bytes these are: a session that offered the chunk.
    session: SessionId,
}

impl Uncommitted {
    /// A donor has a chunk of `len` stored bytes that `session` offered.
    pub fn add(&mut self, name: ChunkName, len: u32, donor: DonorId, session: SessionId) {
        let new = || Stored { len, donors: BTreeSet::new(), session };
        let stored = self.chunks.entry(name).or_insert_with(new);
        if stored.donors.insert(donor) {
            *self.bytes.entry(stored.session).or_default() += u64::from(stored.len);
        }
    }

    /// The stored bytes of a chunk, and the donors that have it.
    pub fn get(&self, name: &ChunkName) -> Option<(u32, Vec<DonorId>)> {
        let stored = self.chunks.get(name)?;
        Some((stored.len, stored.donors.iter().copied().collect()))
    }

    /// The catalog learns of a chunk; gives the donors that have it.
    pub fn take(&mut self, name: &ChunkName) -> BTreeSet<DonorId> {
        let Some(stored) = self.chunks.remove(name) else { return BTreeSet::new() };
        self.discount(&stored, stored.donors.len());
        stored.donors
    }

    /// A donor has a chunk no more.
    pub fn lost(&mut self, name: &ChunkName, donor: DonorId) {
        let Some(mut stored) = self.chunks.remove(name) else { return };
        if stored.donors.remove(&donor) {
            self.discount(&stored, 1);
        }
        if !stored.donors.is_empty() {
            self.chunks.insert(*name, stored);
        }
    }

    /// Forgets all that a donor said in an earlier incarnation, which does not hold any more.
    pub fn forget_donor(&mut self, donor: DonorId) {
        let there = self.chunks.iter().filter(|(_, stored)| stored.donors.contains(&donor));
        let names: Vec<ChunkName> = there.map(|(name, _)| *name).collect();
        names.iter().for_each(|name| self.lost(name, donor));
    }

    /// A session is no more. What it stored belongs to another one that offered the same, which
    /// `heir` names, or to nobody: then it is given, by the donors that have it.
    pub fn forget_session(
        &mut self,
        session: &SessionId,
        heir: impl Fn(&ChunkName) -> Option<SessionId>,
    ) -> BTreeMap<DonorId, Vec<Holding>> {
        self.bytes.remove(session);
        let bytes = &mut self.bytes;
        let mut nobodys = BTreeMap::<DonorId, Vec<Holding>>::new();
        self.chunks.retain(|name, stored| {
            if stored.session != *session {
                return true;
            }
            let Some(heir) = heir(name) else {
                let holding = Holding { name: *name, len: stored.len };
                let donors = stored.donors.iter();
                donors.for_each(|donor| nobodys.entry(*donor).or_default().push(holding));
                return false;
            };
            stored.session = heir;
            let copies = stored.donors.len() as u64;
            *bytes.entry(heir).or_default() += u64::from(stored.len) * copies;
            true
        });
        nobodys
    }

    /// Stored bytes of what a session has stored and not committed, all copies counted.
    pub fn bytes_of(&self, session: &SessionId) -> u64 {
        self.bytes.get(session).copied().unwrap_or(0)
    }

    fn discount(&mut self, stored: &Stored, copies: usize) {
        if let Some(bytes) = self.bytes.get_mut(&stored.session) {
            *bytes = bytes.saturating_sub(u64::from(stored.len) * copies as u64);
        }
    }
}
