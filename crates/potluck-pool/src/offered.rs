//! The chunks that each session may be writing; such chunks are never garbage. How many they may be is decided in
//! `pool/sessions`.

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
    /// The names that the session offered, with some that it withdrew since.
    names: Vec<ChunkName>,
    /// The number of names that the session offered and did not withdraw.
    held: usize,
    /// The number of these names that are in files that the session committed.
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
        let of_session = self.by_session.entry(session).or_default();
        of_session.names.extend_from_slice(&new);
        of_session.held += new.len();
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
        self.by_session.get(session).map_or(0, |of_session| of_session.held)
    }

    /// Returns how many chunks a session has offered and not yet committed in a file.
    pub fn open_by(&self, session: &SessionId) -> usize {
        let open = |of: &OfSession| of.held.saturating_sub(of.committed);
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

    /// Returns whether this session committed a file that has the chunk.
    pub fn is_committed_by(&self, session: &SessionId, name: &ChunkName) -> bool {
        match self.claims.get(name) {
            Some(Claim::Committed(one)) => one == session,
            Some(Claim::Many(many)) => {
                many.iter().any(|one| one.session == *session && one.committed)
            }
            Some(Claim::One(_)) | None => false,
        }
    }

    /// Returns whether a session offered the chunk for which `is_such` is true.
    pub fn is_offered_by_any(
        &self,
        name: &ChunkName,
        mut is_such: impl FnMut(&SessionId) -> bool,
    ) -> bool {
        match self.claims.get(name) {
            None => false,
            Some(Claim::One(session) | Claim::Committed(session)) => is_such(session),
            Some(Claim::Many(many)) => many.iter().any(|one| is_such(&one.session)),
        }
    }

    /// Returns a session that offered the chunk, the first if several did.
    pub fn one_of(&self, name: &ChunkName) -> Option<SessionId> {
        match self.claims.get(name)? {
            Claim::One(session) | Claim::Committed(session) => Some(*session),
            Claim::Many(many) => many.first().map(|one| one.session),
        }
    }

    /// Forgets some of a session's names, which something else protects from now on. The others are gone through only
    /// when most of those that are listed were withdrawn: a session withdraws the names of one part of a file after
    /// the other, and may have offered a million others.
    pub fn withdraw(&mut self, session: &SessionId, names: &BTreeSet<ChunkName>) {
        let taken = names.iter().filter_map(|name| self.take_back(session, name));
        let (mut withdrawn, mut committed) = (0, 0);
        for was_committed in taken {
            withdrawn += 1;
            committed += usize::from(was_committed);
        }
        let Some(of_session) = self.by_session.get_mut(session) else { return };
        of_session.held = of_session.held.saturating_sub(withdrawn);
        of_session.committed = of_session.committed.saturating_sub(committed);
        if of_session.names.len() > 2 * of_session.held {
            let has = |name: &ChunkName| self.claims.get(name).is_some_and(|it| it.has(session));
            of_session.names.retain(has);
            // A name that was withdrawn and offered again is listed twice.
            of_session.names.sort_unstable();
            of_session.names.dedup();
        }
    }

    /// Forgets all names of a session, and returns them.
    pub fn forget(&mut self, session: &SessionId) -> Vec<ChunkName> {
        let mut names = self.by_session.remove(session).unwrap_or_default().names;
        names.retain(|name| self.take_back(session, name).is_some());
        names
    }

    /// Ends a session's claim on a name; returns whether the session had committed it, or `None` if it had no claim.
    fn take_back(&mut self, session: &SessionId, name: &ChunkName) -> Option<bool> {
        use std::collections::hash_map::Entry;
        let Entry::Occupied(mut claim) = self.claims.entry(*name) else { return None };
        match claim.get_mut() {
            Claim::One(one) | Claim::Committed(one) if one == session => {
                Some(matches!(claim.remove(), Claim::Committed(_)))
            }
            Claim::One(_) | Claim::Committed(_) => None,
            Claim::Many(many) => {
                let at = many.iter().position(|one| one.session == *session)?;
                let committed = many.remove(at).committed;
                if many.is_empty() {
                    claim.remove();
                }
                Some(committed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::chunk;

    const WRITER: SessionId = SessionId([1; 16]);

    fn withdraw(offered: &mut OfferedChunks, names: &[ChunkName]) {
        offered.withdraw(&WRITER, &names.iter().copied().collect());
    }

    #[test]
    fn what_is_withdrawn_counts_no_more_and_the_rest_is_not_gone_through_for_it() {
        let mut offered = OfferedChunks::default();
        let names: Vec<ChunkName> = (0..1000).map(chunk).collect();
        offered.add(WRITER, &names);
        offered.committed(&WRITER, names[..20].iter());
        let listed = |offered: &OfferedChunks| offered.by_session[&WRITER].names.len();
        withdraw(&mut offered, &names[10..30]);
        assert_eq!((offered.count_by(&WRITER), offered.open_by(&WRITER)), (980, 970));
        assert_eq!(listed(&offered), 1000, "nobody looked at the others");
        withdraw(&mut offered, &names[10..30]);
        assert_eq!(offered.count_by(&WRITER), 980, "each is withdrawn once");
        assert!(!offered.is_offered(&names[10]) && offered.is_offered(&names[30]));

        assert_eq!(offered.add(WRITER, &names[..12]), names[10..12], "two are offered again");
        withdraw(&mut offered, &names[100..]);
        assert_eq!((offered.count_by(&WRITER), listed(&offered)), (82, 82));
        let mut left = offered.forget(&WRITER);
        left.sort_unstable();
        let mut expected = [&names[..12], &names[30..100]].concat();
        expected.sort_unstable();
        assert_eq!(left, expected);
        assert!(offered.claims.is_empty() && offered.by_session.is_empty());
    }

    #[test]
    fn the_names_that_a_session_leaves_are_those_that_it_did_not_withdraw() {
        let mut offered = OfferedChunks::default();
        let names: Vec<ChunkName> = (0..10).map(chunk).collect();
        offered.add(WRITER, &names);
        offered.add(SessionId([2; 16]), &names[..2]);
        withdraw(&mut offered, &names[..3]);
        offered.add(WRITER, &names[2..3]);
        assert_eq!(offered.forget(&WRITER), names[2..]);
        assert!(offered.is_offered(&names[0]) && !offered.is_offered(&names[2]));
    }
}
