//! Interrupted uploads: a session whose client went away is *parked*. Nothing is promised to it any
//! more, and what it stored stays for a while, so that its client can go on where it was, and the
//! same command, started again, finds most of its chunks there.
//!
//! A parked session holds nobody up: it ends when its time is over, when the pool runs short of
//! room, and when a donor that it wrote to takes nothing new, as when its owner wants the space back; the oldest ends
//! first.

use super::Pool;
use crate::write_session::{MANAGER, OpenSession, Parked};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The part of the pool's lent space, one in so many, that must be free; while less is, parked sessions end.
const SHORT_OF_ROOM: u64 = 8;

/// The part of the lent space, one in so many, that the parked sessions of one member may hold, so that nobody fills
/// a pool with uploads that are never finished.
const MEMBERS_PART: u64 = 2;

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
        let mut of_members = self.parked_bytes();
        let mut over = Vec::new();
        for (since, id, member) in self.parked_sessions() {
            let bytes = self.uncommitted.bytes_of(&id);
            let of_member = of_members.entry(member).or_default();
            // While no donor is heard, nobody can tell how much room there is.
            let short =
                lent > 0 && (room < lent / SHORT_OF_ROOM || *of_member > lent / MEMBERS_PART);
            let old = now.saturating_sub(since) > window;
            let in_the_way = || {
                let donors = self.sessions.get(&id).map(|session| session.plan.donors());
                donors.is_some_and(|donors| !donors.is_disjoint(&wanted_back))
            };
            if old || short || in_the_way() {
                over.push(id);
                room += bytes;
                *of_member -= bytes;
            }
        }
        over
    }

    /// Returns the oldest parked sessions that together hold `bytes`, or all of them.
    pub fn parked_for(&self, bytes: u64) -> Vec<SessionId> {
        let mut found = 0;
        let parked = self.parked_sessions().into_iter();
        let needed = parked.take_while(|(_, id, _)| {
            let more = found < bytes;
            found = found.saturating_add(self.uncommitted.bytes_of(id));
            more
        });
        needed.map(|(_, id, _)| id).collect()
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

    fn parked_bytes(&self) -> BTreeMap<MemberId, u64> {
        let mut bytes = BTreeMap::new();
        for (_, id, member) in self.parked_sessions() {
            *bytes.entry(member).or_default() += self.uncommitted.bytes_of(&id);
        }
        bytes
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
