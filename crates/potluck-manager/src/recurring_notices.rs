//! Limits the lines of the log about events that a single donor or member can cause as often as it likes. The log tells
//! each kind a few times a minute of each donor or member; further ones are counted, and told as a number at the end of
//! the minute. Therefore no member fills the disk of the manager's machine with such lines.

use potluck_core::clock::Tick;
use potluck_core::ids::MemberId;
use potluck_core::size::count;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// The time in which the log tells a kind of notice of one donor or member at most [`IN_FULL`] times.
const EVERY: Duration = Duration::from_secs(60);
/// The number of notices of one kind that are told of one donor or member within [`EVERY`].
const IN_FULL: u32 = 3;

/// The kinds of events that the log tells of a donor or member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// A donor registered a new incarnation.
    RegisteredAnew,
    /// A donor registered a new incarnation soon after another one.
    RegisteredInTurns,
    /// A donor is reached somewhere else.
    Moved,
    /// A donor quarantined copies that counted.
    Quarantined,
    /// A donor lacks copies that counted, by its inventory.
    Missing,
    /// The lease of a write session ended.
    LeaseEnded,
    /// The chunks that an interrupted upload stored are kept.
    UploadKept,
    /// The chunks that an interrupted upload stored are given up.
    UploadGivenUp,
    /// Room that was reserved is free again.
    ReservationOver,
}

impl Notice {
    /// Returns the line that tells how many events of this kind were only counted.
    fn of_many(self, number: u64) -> String {
        let (one, what) = match self {
            Self::RegisteredAnew => ("time", "it registered anew"),
            Self::RegisteredInTurns => ("time", "it registered anew soon after it had"),
            Self::Moved => ("time", "it moved"),
            Self::Quarantined => ("copy", "it quarantined"),
            Self::Missing => ("copy", "its inventories lack"),
            Self::LeaseEnded => ("write session", "its leases ended"),
            Self::UploadKept => ("interrupted upload", "is kept for a while"),
            Self::UploadGivenUp => ("interrupted upload", "is given up"),
            Self::ReservationOver => ("reservation", "is over"),
        };
        format!("{what}: {} more in a minute", count(number, one))
    }
}

/// The notices of each kind and member that were told, and those that were only counted since.
#[derive(Debug, Default)]
pub struct RecurringNotices(Mutex<BTreeMap<(Notice, MemberId), Told>>);

/// The notices of one kind that a member brought about in a minute.
#[derive(Debug)]
struct Told {
    since: Tick,
    times: u32,
    /// The number of events that were only counted.
    untold: u64,
}

impl RecurringNotices {
    /// Notes that a member brought about `number` events of a kind. Returns true if the caller is to log them now;
    /// otherwise they are counted for a later line.
    pub fn tells(&self, what: Notice, by: MemberId, number: u64, now: Tick) -> bool {
        let mut told = self.0.lock().expect("no holder panics");
        let new = Told { since: now, times: 0, untold: 0 };
        let told = told.entry((what, by)).or_insert(new);
        let tells = told.times < IN_FULL;
        match tells {
            true => told.times += 1,
            false => told.untold += number,
        }
        tells
    }

    /// Takes the notices that were only counted and are to be told now: for each, the member that brought them
    /// about, and a line.
    pub fn due(&self, now: Tick) -> Vec<(MemberId, String)> {
        let mut due = Vec::new();
        let mut told = self.0.lock().expect("no holder panics");
        told.retain(|(what, by), told| {
            if now.saturating_sub(told.since) < EVERY {
                return true;
            }
            if told.untold > 0 {
                due.push((*by, what.of_many(told.untold)));
            }
            false
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn recurring_notices_are_rate_limited_and_counted() {
        let (notices, ada, bert) = (RecurringNotices::default(), MemberId(1), MemberId(2));
        let tells = |what, by, second| notices.tells(what, by, 2, at(second));
        for second in 0..60 {
            let told = tells(Notice::LeaseEnded, ada, second);
            assert_eq!(told, second < u64::from(IN_FULL), "{second}");
            assert_eq!(notices.due(at(second)), []);
        }
        assert!(tells(Notice::LeaseEnded, bert, 59), "others are told of");
        assert!(tells(Notice::UploadKept, ada, 59), "and other things");
        let due = notices.due(at(60));
        assert_eq!(due.len(), 1, "{due:?}");
        assert!(due[0].0 == ada && due[0].1.contains("114 write sessions"), "{due:?}");
        assert!(tells(Notice::LeaseEnded, ada, 61));
        assert_eq!(notices.due(at(180)), [], "nothing was left out since");
        assert!(notices.0.lock().expect("no holder panics").is_empty(), "nothing is kept of it");
    }
}
