//! Which sessions may be writing which chunks; such chunks are never garbage.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::SessionId;
use std::collections::{BTreeSet, HashMap};

/// Offered names of all sessions. Asked by name only, never walked, so that its order does not
/// matter.
#[derive(Debug, Default)]
pub struct OfferedChunks {
    claims: HashMap<ChunkName, Claim>,
    by_session: HashMap<SessionId, Vec<ChunkName>>,
}

#[derive(Debug)]
enum Claim {
    /// One session offered the chunk, which is by far the commonest and costs no allocation.
    One(SessionId),
    Many(Vec<SessionId>),
}

impl Claim {
    fn has(&self, session: &SessionId) -> bool {
        match self {
            Self::One(one) => one == session,
            Self::Many(many) => many.contains(session),
        }
    }

    fn add(&mut self, session: SessionId) {
        match self {
            Self::One(one) => *self = Self::Many(vec![*one, session]),
            Self::Many(many) => many.push(session),
        }
    }
}

impl OfferedChunks {
    /// Adds names; gives those the session had not offered before.
    pub fn add(&mut self, session: SessionId, names: &[ChunkName]) -> Vec<ChunkName> {
        use std::collections::hash_map::Entry;
        let mut new = Vec::new();
        for name in names {
            match self.claims.entry(*name) {
                Entry::Vacant(empty) => {
                    empty.insert(Claim::One(session));
                }
                Entry::Occupied(claim) if claim.get().has(&session) => continue,
                Entry::Occupied(mut claim) => claim.get_mut().add(session),
            }
            new.push(*name);
        }
        self.by_session.entry(session).or_default().extend_from_slice(&new);
        new
    }

    /// Returns how many chunks a session has offered.
    pub fn count_by(&self, session: &SessionId) -> usize {
        self.by_session.get(session).map_or(0, Vec::len)
    }

    /// Whether a session offered anything.
    pub fn has_offered(&self, session: &SessionId) -> bool {
        self.by_session.get(session).is_some_and(|names| !names.is_empty())
    }

    /// Whether any session offered it.
    pub fn is_offered(&self, name: &ChunkName) -> bool {
        self.claims.contains_key(name)
    }

    /// Whether this session offered it.
    pub fn is_offered_by(&self, session: &SessionId, name: &ChunkName) -> bool {
        self.claims.get(name).is_some_and(|claim| claim.has(session))
    }

    /// A session that offered it, the first if several did.
    pub fn one_of(&self, name: &ChunkName) -> Option<SessionId> {
        match self.claims.get(name)? {
            Claim::One(session) => Some(*session),
            Claim::Many(many) => many.first().copied(),
        }
    }

    /// Forgets some of a session's names, which something else protects from now on.
    pub fn withdraw(&mut self, session: &SessionId, names: &BTreeSet<ChunkName>) {
        let Some(of_session) = self.by_session.get_mut(session) else { return };
        of_session.retain(|name| !names.contains(name));
        for name in names {
            self.take_back(session, name);
        }
    }

    /// Forgets a session's names, and gives them.
    pub fn forget(&mut self, session: &SessionId) -> Vec<ChunkName> {
        let names = self.by_session.remove(session).unwrap_or_default();
        for name in &names {
            self.take_back(session, name);
        }
        names
    }

    fn take_back(&mut self, session: &SessionId, name: &ChunkName) {
        use std::collections::hash_map::Entry;
        let Entry::Occupied(mut claim) = self.claims.entry(*name) else { return };
        match claim.get_mut() {
            Claim::One(one) if one == session => drop(claim.remove()),
            Claim::One(_) => {}
            Claim::Many(many) => {
                many.retain(|other| other != session);
                if many.is_empty() {
                    claim.remove();
                }
            }
        }
    }
}
