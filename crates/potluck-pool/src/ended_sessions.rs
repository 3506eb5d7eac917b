//! Write sessions that ended a moment ago and that donors are told of, or still make copies for. How many chunks they
//! left that no file uses is in `left_names`.

use potluck_core::clock::Tick;
use potluck_core::ids::SessionId;
use std::collections::{HashMap, VecDeque};
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
    /// The time at which each session in `copying` ended last: each heartbeat asks about many sessions.
    ended: HashMap<SessionId, Tick>,
}

/// Adds a session that ends now; returns those that are forgotten because of that.
fn add(
    sessions: &mut VecDeque<(Tick, SessionId)>,
    session: SessionId,
    now: Tick,
    last: Duration,
) -> Vec<(Tick, SessionId)> {
    let old = || sessions.pop_front_if(|(at, _)| now.saturating_sub(*at) > last);
    let mut forgotten: Vec<_> = std::iter::from_fn(old).collect();
    if sessions.len() == MOST {
        forgotten.extend(sessions.pop_front());
    }
    sessions.push_back((now, session));
    forgotten
}

impl EndedSessions {
    /// Notes that a session was ended because its member may not write any more: all donors are told.
    pub fn cut_off(&mut self, session: SessionId, now: Tick) {
        add(&mut self.cut_off, session, now, TOLD_FOR);
    }

    /// Notes that a session has ended for which donors may still send each other copies.
    pub fn may_still_copy(&mut self, session: SessionId, now: Tick) {
        for (at, forgotten) in add(&mut self.copying, session, now, ARRIVES_FOR) {
            if self.ended.get(&forgotten) == Some(&at) {
                self.ended.remove(&forgotten);
            }
        }
        self.ended.insert(session, now);
    }

    /// Returns whether donors may still make copies for a session that has ended.
    pub fn is_copying(&self, session: &SessionId, now: Tick) -> bool {
        self.ended.get(session).is_some_and(|at| now.saturating_sub(*at) <= ARRIVES_FOR)
    }

    /// Returns the sessions whose end every donor is told of.
    pub fn to_tell(&self, now: Tick) -> Vec<SessionId> {
        let is_recent = |(at, _): &&(Tick, SessionId)| now.saturating_sub(*at) <= TOLD_FOR;
        let recent = self.cut_off.iter().rev().take_while(is_recent);
        recent.map(|(_, session)| *session).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::at;

    fn session(number: usize) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        SessionId(id)
    }

    #[test]
    fn recently_ended_sessions_are_remembered() {
        let mut sessions = EndedSessions::default();
        (0..MOST + 10).for_each(|number| sessions.may_still_copy(session(number), at(1.0)));
        let are_known = |sessions: &EndedSessions, now: f64| {
            [9, 20, MOST + 9].map(|number| sessions.is_copying(&session(number), at(now)))
        };
        assert_eq!(are_known(&sessions, 1.0), [false, true, true], "no more than are remembered");
        assert_eq!(sessions.ended.len(), MOST);
        // One that ends again is not forgotten with its first end.
        sessions.may_still_copy(session(MOST + 9), at(31.0));
        assert_eq!(are_known(&sessions, 61.0), [false, true, true]);
        assert_eq!(are_known(&sessions, 62.0), [false, false, true]);
        sessions.may_still_copy(session(0), at(62.0));
        assert_eq!(are_known(&sessions, 91.0), [false, false, true]);
        assert_eq!(sessions.ended.len(), 2, "what is over is forgotten");
    }
}
