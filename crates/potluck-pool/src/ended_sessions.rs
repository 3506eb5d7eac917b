//! Write sessions that ended a moment ago and that donors are told of, or still make copies for.

use potluck_core::clock::Tick;
use potluck_core::ids::SessionId;
use std::collections::VecDeque;
use std::time::Duration;

/// The time for which all donors are told that a session was cut off, whether they ask or not: each sends a heartbeat a
/// second.
const TOLD_FOR: Duration = Duration::from_secs(10);
/// The time after the end of a session within which the copies may arrive that donors make among themselves for it.
const ARRIVES_FOR: Duration = Duration::from_secs(60);
/// The most sessions of each kind that are remembered; beyond them the oldest is forgotten. Donors ask about all
/// sessions that stored anything with them, and copies that do not arrive are made by repair.
const MOST: usize = 4096;

/// The write sessions that ended a moment ago.
#[derive(Debug, Default)]
pub struct EndedSessions {
    /// The sessions that were ended because their members may not write any more, each with when.
    cut_off: VecDeque<(Tick, SessionId)>,
    /// The ended sessions for which donors still make copies, each with when it ended.
    copying: VecDeque<(Tick, SessionId)>,
}

fn add(sessions: &mut VecDeque<(Tick, SessionId)>, session: SessionId, now: Tick, last: Duration) {
    while sessions.pop_front_if(|(at, _)| now.saturating_sub(*at) > last).is_some() {}
    if sessions.len() == MOST {
        sessions.pop_front();
    }
    sessions.push_back((now, session));
}

fn recent(
    sessions: &VecDeque<(Tick, SessionId)>,
    now: Tick,
    last: Duration,
) -> impl Iterator<Item = SessionId> {
    let is_recent = move |(at, _): &&(Tick, SessionId)| now.saturating_sub(*at) <= last;
    sessions.iter().rev().take_while(is_recent).map(|(_, session)| *session)
}

impl EndedSessions {
    /// Notes that a session was ended because its member may not write any more: all donors are told.
    pub fn cut_off(&mut self, session: SessionId, now: Tick) {
        add(&mut self.cut_off, session, now, TOLD_FOR);
    }

    /// Notes that a session has ended for which donors may still send each other copies.
    pub fn may_still_copy(&mut self, session: SessionId, now: Tick) {
        add(&mut self.copying, session, now, ARRIVES_FOR);
    }

    /// Returns whether donors may still make copies for a session that has ended.
    pub fn is_copying(&self, session: &SessionId, now: Tick) -> bool {
        recent(&self.copying, now, ARRIVES_FOR).any(|recent| recent == *session)
    }

    /// Returns the sessions whose end every donor is told of.
    pub fn to_tell(&self, now: Tick) -> Vec<SessionId> {
        recent(&self.cut_off, now, TOLD_FOR).collect()
    }
}
