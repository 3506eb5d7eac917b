//! Interrupted uploads: a session whose client went away is *parked*. Nothing is promised to it any
//! more, and what it stored stays for a while, so that its client can go on where it was, and the
//! same command, started again, finds most of its chunks there.
//!
//! A parked session holds nobody up: it ends when its time is over, when the pool runs short of
//! room, and when a donor that it wrote to takes nothing new, as when its owner wants the space back; the oldest ends
//! first. One that is gone on with stays, whatever room it takes: what it stored is what its client need not store again.

use super::Pool;
use crate::write_session::{MANAGER, OpenSession, Parked};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use std::collections::BTreeSet;
use std::time::Duration;

/// The part of the pool's lent space, one in so many, that must be free; while less is, parked sessions end. Writes that
/// find too little room have them end earlier.
const SHORT_OF_ROOM: u64 = 16;

/// The time for which a session is not heard that counts as interrupted where another writes the same. If its client is
/// there after all, its next call takes it up again.
const SILENT: Duration = Duration::from_secs(3);

/// The most names of a session, or of several that offer for one client, by which it is told what they go on with.
const COMPARED: usize = 1 << 16;

impl Pool {
    /// Parks a session, whose promises become free. Returns `false` if the session offered no chunk, is the manager's
    /// own, or is not open.
    pub fn park_session(&mut self, id: &SessionId, now: Tick) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return false };
        let is_open = !session.ending && session.parked.is_none();
        // The manager does not resume a write of its own metadata, but writes it anew.
        if !is_open || session.member == MANAGER || !self.offered.has_offered(id) {
            return false;
        }
        session.parked = Some(Parked { since: now, promised: self.ledger.release(*id) });
        true
    }

    /// Returns the space in which a session of `member` writes, if the session is parked.
    pub fn parked_in(&self, id: &SessionId, member: MemberId) -> Option<SpaceId> {
        let parked = |session: &&OpenSession| {
            session.member == member && session.parked.is_some() && !session.ending
        };
        self.sessions.get(id).filter(parked).map(|session| session.space)
    }

    /// Resumes a parked session whose client is back; returns `false` if the session was not parked.
    pub(super) fn unpark(&mut self, id: &SessionId) -> bool {
        let session = self.sessions.get_mut(id).filter(|session| !session.ending);
        let parked = session.and_then(|session| session.parked.take());
        let Some(parked) = parked else { return false };
        self.ledger.reserve(*id, parked.promised);
        true
    }

    /// Returns the parked sessions that are to end now: those parked for longer than `window`, those that had places
    /// at a donor which takes nothing new, and, the oldest first, as many as hold too much.
    pub fn parked_too_long(&self, window: Duration, now: Tick) -> Vec<SessionId> {
        let wanted_back = self.wanted_back();
        let (mut room, lent) = (self.room(&BTreeSet::new(), now), self.lent(now));
        let mut over = Vec::new();
        for (since, id, member) in self.parked_sessions() {
            let bytes = self.uncommitted.bytes_of(&id);
            // While no donor is heard, nobody can tell how much room there is.
            let is_short = lent > 0 && room < lent / SHORT_OF_ROOM;
            let short = is_short && !self.is_gone_on_with(&id, member);
            let old = now.saturating_sub(since) > window;
            let in_the_way = || {
                let donors = self.sessions.get(&id).map(|session| session.plan.donors());
                donors.is_some_and(|donors| !donors.is_disjoint(&wanted_back))
            };
            if old || short || in_the_way() {
                over.push(id);
                room += bytes;
            }
        }
        over
    }

    /// Returns the oldest parked sessions that together hold `bytes`, or all of them; those of `but` stay.
    pub fn parked_for(&self, bytes: u64, but: &BTreeSet<SessionId>) -> Vec<SessionId> {
        let mut found = 0;
        let parked = self.parked_sessions().into_iter().filter(|(_, id, _)| !but.contains(id));
        let needed = parked.take_while(|(_, id, _)| {
            let more = found < bytes;
            found = found.saturating_add(self.uncommitted.bytes_of(id));
            more
        });
        needed.map(|(_, id, _)| id).collect()
    }

    /// Returns the uploads of a member that offered what these sessions of it offered, too, and whether any of them was
    /// not parked. Those that are silent are parked now, so that what was promised to them is free.
    pub fn gone_on_with(
        &mut self,
        offering: &[SessionId],
        member: MemberId,
        now: Tick,
    ) -> (BTreeSet<SessionId>, bool) {
        let is_own = |id: &SessionId| self.sessions.get(id).is_some_and(|it| it.member == member);
        let names = offering.iter().filter(|id| is_own(id));
        let names = names.flat_map(|id| self.offered.names_of(id)).take(COMPARED);
        let mut same: BTreeSet<SessionId> =
            names.flat_map(|name| self.offered.sessions(name)).filter(is_own).collect();
        offering.iter().for_each(|id| {
            same.remove(id);
        });
        let goes_on = same.iter().any(|id| self.goes_on(id));
        let silent = |id: &&SessionId| {
            let silent = |it: &OpenSession| it.busy == 0 && now.saturating_sub(it.heard) >= SILENT;
            self.sessions.get(*id).is_some_and(silent)
        };
        let silent: Vec<SessionId> = same.iter().filter(silent).copied().collect();
        for id in silent {
            self.park_session(&id, now);
        }
        (same, goes_on)
    }

    /// Returns whether an open session of the member offered what this one offered.
    fn is_gone_on_with(&self, id: &SessionId, member: MemberId) -> bool {
        let goes_on = |other: &SessionId| {
            let open = self.sessions.get(other).filter(|it| it.member == member && it.goes_on());
            other != id && open.is_some()
        };
        let names = self.offered.names_of(id).iter().take(COMPARED);
        names.into_iter().any(|name| self.offered.sessions(name).any(|other| goes_on(&other)))
    }

    /// Returns how many parked sessions hold anything, and how many stored bytes. Chunks that another session made
    /// files of are kept by those files and do not count.
    pub fn parked(&self) -> (u64, u64) {
        let sessions = self.parked_sessions();
        let bytes = sessions.iter().map(|(_, id, _)| self.uncommitted.bytes_of(id));
        bytes
            .filter(|bytes| *bytes > 0)
            .fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
    }

    /// Lists the parked sessions, the oldest first.
    fn parked_sessions(&self) -> Vec<(Tick, SessionId, MemberId)> {
        let since = |(id, session): (&SessionId, &OpenSession)| {
            let parked = session.parked.as_ref().filter(|_| !session.ending)?;
            Some((parked.since, *id, session.member))
        };
        let mut parked: Vec<_> = self.sessions.iter().filter_map(since).collect();
        parked.sort_unstable();
        parked
    }

    /// Returns the donors that take nothing new: their owners want space back, or they are quarantined.
    fn wanted_back(&self) -> BTreeSet<DonorId> {
        let unwilling = self.donors.iter().filter(|(_, donor)| !donor.record.is_willing());
        unwilling.map(|(id, _)| id).collect()
    }

    /// Returns how many bytes the donors that take copies now lend, used or not.
    fn lent(&self, now: Tick) -> u64 {
        let live = self.donors.iter().filter(|(id, _)| self.takes(*id, now));
        live.filter_map(|(_, donor)| donor.registration.as_ref())
            .map(|registration| registration.disk.lent_used.saturating_add(registration.room))
            .sum()
    }
}
