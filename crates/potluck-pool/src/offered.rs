//! The chunks that each session may be writing; such chunks are never garbage.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::SessionId;
use std::collections::{BTreeSet, HashMap};

/// The names that all sessions have offered. They are looked up by name and never walked, so that their order does
/// not matter.
#[derive(Debug, Default)]
pub struct OfferedChunks {
    claims: HashMap<ChunkName, Claim>,
    by_session: HashMap<SessionId, OfSession>,
}

#[derive(Debug, Default)]
struct OfSession {
    names: Vec<ChunkName>,
    /// The number of the session's names that are in files that it committed.
    committed: usize,
}

#[derive(Debug)]
enum Claim {
    /// One session offered the chunk, which is by far the commonest and costs no allocation.
    One(SessionId),
    /// One session offered the chunk and committed a file that has it.
    Committed(SessionId),
    Many(Vec<OneOfMany>),
}

#[derive(Debug)]
struct OneOfMany {
    session: SessionId,
    committed: bool,
}

impl Claim {
    fn has(&self, session: &SessionId) -> bool {
        match self {
            Self::One(one) | Self::Committed(one) => one == session,
            Self::Many(many) => many.iter().any(|one| one.session == *session),
        }
    }

    fn add(&mut self, session: SessionId) {
        let added = OneOfMany { session, committed: false };
        match self {
            Self::One(session) => {
                *self = Self::Many(vec![OneOfMany { session: *session, committed: false }, added]);
            }
            Self::Committed(session) => {
                *self = Self::Many(vec![OneOfMany { session: *session, committed: true }, added]);
            }
            Self::Many(many) => many.push(added),
        }
    }

    /// Notes that a session committed a file that has the chunk; returns whether it had offered the chunk and
    /// committed no file with it before.
    fn commit(&mut self, session: &SessionId) -> bool {
        match self {
            Self::One(one) if one == session => {
                *self = Self::Committed(*session);
                true
            }
            Self::One(_) | Self::Committed(_) => false,
            Self::Many(many) => {
                let one = many.iter_mut().find(|one| one.session == *session);
                one.is_some_and(|one| !std::mem::replace(&mut one.committed, true))
            }
        }
    }
}

impl OfferedChunks {
    /// Adds names that a session offers; returns those that it had not offered before.
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
        self.by_session.entry(session).or_default().names.extend_from_slice(&new);
        new
    }

    /// Notes that a session committed a file that has these names. They stay offered, but are open no more.
    pub fn committed<'a>(
        &mut self,
        session: &SessionId,
        names: impl Iterator<Item = &'a ChunkName>,
    ) {
        let commit = |name: &&ChunkName| {
            self.claims.get_mut(*name).is_some_and(|claim| claim.commit(session))
        };
        let count = names.filter(commit).count();
        if let Some(of_session) = self.by_session.get_mut(session) {
            of_session.committed += count;
        }
    }

    /// Returns how many chunks a session has offered.
    pub fn count_by(&self, session: &SessionId) -> usize {
        self.by_session.get(session).map_or(0, |of_session| of_session.names.len())
    }

    /// Returns how many chunks a session has offered and not yet committed in a file.
    pub fn open_by(&self, session: &SessionId) -> usize {
        let open = |of: &OfSession| of.names.len().saturating_sub(of.committed);
        self.by_session.get(session).map_or(0, open)
    }

    /// Returns whether a session offered anything.
    pub fn has_offered(&self, session: &SessionId) -> bool {
        self.count_by(session) > 0
    }

    /// Returns whether any session offered the chunk.
    pub fn is_offered(&self, name: &ChunkName) -> bool {
        self.claims.contains_key(name)
    }

    /// Returns whether this session offered the chunk.
    pub fn is_offered_by(&self, session: &SessionId, name: &ChunkName) -> bool {
        self.claims.get(name).is_some_and(|claim| claim.has(session))
    }

    /// Returns a session that offered the chunk, the first if several did.
    pub fn one_of(&self, name: &ChunkName) -> Option<SessionId> {
        match self.claims.get(name)? {
            Claim::One(session) | Claim::Committed(session) => Some(*session),
            Claim::Many(many) => many.first().map(|one| one.session),
        }
    }

    /// Forgets some of a session's names, which something else protects from now on.
    pub fn withdraw(&mut self, session: &SessionId, names: &BTreeSet<ChunkName>) {
        let Some(of_session) = self.by_session.get_mut(session) else { return };
        of_session.names.retain(|name| !names.contains(name));
        let committed = names.iter().filter(|name| self.take_back(session, name)).count();
        if let Some(of_session) = self.by_session.get_mut(session) {
            of_session.committed = of_session.committed.saturating_sub(committed);
        }
    }

    /// Forgets all names of a session, and returns them.
    pub fn forget(&mut self, session: &SessionId) -> Vec<ChunkName> {
        let names = self.by_session.remove(session).unwrap_or_default().names;
        for name in &names {
            self.take_back(session, name);
        }
        names
    }

    /// Ends a session's claim on a name; returns whether the session had committed it.
    fn take_back(&mut self, session: &SessionId, name: &ChunkName) -> bool {
        use std::collections::hash_map::Entry;
        let Entry::Occupied(mut claim) = self.claims.entry(*name) else { return false };
        match claim.get_mut() {
            Claim::One(one) | Claim::Committed(one) if one == session => {
                return matches!(claim.remove(), Claim::Committed(_));
            }
            Claim::One(_) | Claim::Committed(_) => {}
            Claim::Many(many) => {
                let Some(at) = many.iter().position(|one| one.session == *session) else {
                    return false;
                };
                let committed = many.remove(at).committed;
                if many.is_empty() {
                    claim.remove();
                }
                return committed;
            }
        }
        false
    }
}
