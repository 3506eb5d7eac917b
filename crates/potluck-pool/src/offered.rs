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
    /// The number of these names that are not open: they are in files that the session committed, or may be.
    closed: usize,
}

/// The sessions that offered a chunk.
#[derive(Debug)]
enum Claim {
    /// One session offered the chunk, which is by far the commonest and costs no allocation.
    One(Offer),
    Many(Vec<Offer>),
}

#[derive(Debug, Clone, Copy)]
struct Offer {
    session: SessionId,
    outcome: OfferOutcome,
}

/// What became of a chunk that a session offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfferOutcome {
    /// The session committed no file that has the chunk.
    Open,
    /// The session committed no file that has the chunk, and was told that the pool has it, so that it did not send it.
    Told,
    /// The session offered the chunk in an earlier term of the manager. It may have committed a file that has it, and
    /// nothing shows that it ever had its bytes.
    Unknown,
    /// The session committed a file that has the chunk.
    Committed,
}

impl Claim {
    fn offers(&self) -> &[Offer] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    fn of(&self, session: &SessionId) -> Option<&Offer> {
        self.offers().iter().find(|offer| offer.session == *session)
    }

    fn of_mut(&mut self, session: &SessionId) -> Option<&mut Offer> {
        let offers = match self {
            Self::One(one) => std::slice::from_mut(one),
            Self::Many(many) => many,
        };
        offers.iter_mut().find(|offer| offer.session == *session)
    }

    fn add(&mut self, added: Offer) {
        match self {
            Self::One(one) => *self = Self::Many(vec![*one, added]),
            Self::Many(many) => many.push(added),
        }
    }

    /// Notes that a session committed a file that has the chunk; returns whether the chunk was open for it before.
    fn commit(&mut self, session: &SessionId) -> bool {
        let Some(offer) = self.of_mut(session) else { return false };
        let before = std::mem::replace(&mut offer.outcome, OfferOutcome::Committed);
        matches!(before, OfferOutcome::Open | OfferOutcome::Told)
    }
}

impl OfferedChunks {
    /// Adds names that a session offers; returns those that it had not offered before.
    pub fn add(&mut self, session: SessionId, names: &[ChunkName]) -> Vec<ChunkName> {
        self.add_as(session, names, OfferOutcome::Open)
    }

    /// Adds names that a session offered in an earlier term of the manager. None counts as open: it is not known which
    /// are in files, and a long upload has to go on.
    pub fn resume(&mut self, session: SessionId, names: &[ChunkName]) {
        let added = self.add_as(session, names, OfferOutcome::Unknown).len();
        self.by_session.entry(session).or_default().closed += added;
    }

    fn add_as(
        &mut self,
        session: SessionId,
        names: &[ChunkName],
        outcome: OfferOutcome,
    ) -> Vec<ChunkName> {
        use std::collections::hash_map::Entry;
        let (mut new, offer) = (Vec::new(), Offer { session, outcome });
        for name in names {
            match self.claims.entry(*name) {
                Entry::Vacant(empty) => {
                    empty.insert(Claim::One(offer));
                }
                Entry::Occupied(claim) if claim.get().of(&session).is_some() => continue,
                Entry::Occupied(mut claim) => claim.get_mut().add(offer),
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
            of_session.closed += count;
        }
    }

    /// Notes that a session was told that the pool has a chunk that it offered.
    pub fn told(&mut self, session: &SessionId, name: &ChunkName) {
        let offer = self.claims.get_mut(name).and_then(|claim| claim.of_mut(session));
        if let Some(offer) = offer.filter(|offer| offer.outcome == OfferOutcome::Open) {
            offer.outcome = OfferOutcome::Told;
        }
    }

    /// Returns how many chunks a session has offered.
    pub fn count_by(&self, session: &SessionId) -> usize {
        self.by_session.get(session).map_or(0, |of_session| of_session.held)
    }

    /// Returns how many chunks a session has offered and not yet committed in a file.
    pub fn open_by(&self, session: &SessionId) -> usize {
        let open = |of: &OfSession| of.held.saturating_sub(of.closed);
        self.by_session.get(session).map_or(0, open)
    }

    /// Returns whether a session offered anything.
    pub fn has_offered(&self, session: &SessionId) -> bool {
        self.count_by(session) > 0
    }

    /// Lists names that a session offered, with some that it withdrew since.
    pub fn names_of(&self, session: &SessionId) -> &[ChunkName] {
        self.by_session.get(session).map_or(&[], |of_session| &of_session.names)
    }

    /// Returns whether any session offered the chunk.
    pub fn is_offered(&self, name: &ChunkName) -> bool {
        self.claims.contains_key(name)
    }

    /// Returns whether this session offered the chunk.
    pub fn is_offered_by(&self, session: &SessionId, name: &ChunkName) -> bool {
        self.claims.get(name).is_some_and(|claim| claim.of(session).is_some())
    }

    /// Returns whether this session committed a file that has the chunk, or was told that the pool has it.
    pub fn knows_of(&self, session: &SessionId, name: &ChunkName) -> bool {
        let offer = self.claims.get(name).and_then(|claim| claim.of(session));
        offer.is_some_and(|offer| {
            matches!(offer.outcome, OfferOutcome::Committed | OfferOutcome::Told)
        })
    }

    /// Returns the sessions that offered the chunk.
    pub fn sessions(&self, name: &ChunkName) -> impl Iterator<Item = SessionId> {
        let offers = self.claims.get(name).map(Claim::offers).unwrap_or_default();
        offers.iter().map(|offer| offer.session)
    }

    /// Returns a session that offered the chunk, the first if several did.
    pub fn one_of(&self, name: &ChunkName) -> Option<SessionId> {
        self.sessions(name).next()
    }

    /// Forgets some of a session's names, which something else protects from now on. The others are gone through only
    /// when most of those that are listed were withdrawn: a session withdraws the names of one part of a file after
    /// the other, and may have offered a million others.
    pub fn withdraw(&mut self, session: &SessionId, names: &BTreeSet<ChunkName>) {
        let taken = names.iter().filter_map(|name| self.take_back(session, name));
        let (mut withdrawn, mut closed) = (0, 0);
        for was_open in taken {
            withdrawn += 1;
            closed += usize::from(!was_open);
        }
        let Some(of_session) = self.by_session.get_mut(session) else { return };
        of_session.held = of_session.held.saturating_sub(withdrawn);
        of_session.closed = of_session.closed.saturating_sub(closed);
        if of_session.names.len() > 2 * of_session.held {
            let has =
                |name: &ChunkName| self.claims.get(name).is_some_and(|it| it.of(session).is_some());
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

    /// Ends a session's claim on a name; returns whether the chunk was open for it, or `None` if it had no claim.
    fn take_back(&mut self, session: &SessionId, name: &ChunkName) -> Option<bool> {
        use std::collections::hash_map::Entry;
        let Entry::Occupied(mut claim) = self.claims.entry(*name) else { return None };
        let was_open = claim.get().of(session)?.outcome == OfferOutcome::Open;
        match claim.get_mut() {
            Claim::Many(many) if many.len() > 1 => many.retain(|offer| offer.session != *session),
            _ => drop(claim.remove()),
        }
        Some(was_open)
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
    fn withdrawing_offers_is_counted_without_walking_the_rest() {
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
    fn offers_before_a_restart_are_neither_open_nor_committed() {
        let mut offered = OfferedChunks::default();
        let names: Vec<ChunkName> = (0..10).map(chunk).collect();
        offered.resume(WRITER, &names);
        assert_eq!((offered.count_by(&WRITER), offered.open_by(&WRITER)), (10, 0));
        assert!(!offered.knows_of(&WRITER, &names[0]), "nobody saw it commit that");
        offered.add(WRITER, &[chunk(20)]);
        offered.committed(&WRITER, names[..5].iter());
        assert!(offered.knows_of(&WRITER, &names[0]));
        assert_eq!(offered.open_by(&WRITER), 1, "what was counted as committed counts once");
        withdraw(&mut offered, &names);
        assert_eq!((offered.count_by(&WRITER), offered.open_by(&WRITER)), (1, 1));
    }

    #[test]
    fn session_leaves_its_unwithdrawn_names() {
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
