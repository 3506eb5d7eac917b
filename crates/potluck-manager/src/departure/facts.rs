//! Judges whether donors may go, by the facts about them.

use super::{Departure, Departures};
use crate::failure;
use crate::scan_state::Leaving;
use potluck_catalog::Error;
use potluck_core::size::{count, format_size};
use potluck_wire::control::{Going, MayGo};

impl Departures {
    /// Judges whether donors may go, by what a look at all files, or the last scan, found to be leaving.
    pub async fn may_go(&self, departure: &Departure, leaving: Leaving) -> Result<MayGo, Error> {
        let donors = &departure.donors;
        let mut used = 0;
        for donor in donors.iter().copied() {
            used += self.catalog.held_at(donor).await?.used_chunks;
        }
        let now = self.time.tick();
        let scanned = self.scan_state.kept().began.is_some();
        let written = self.writes_at(donors);
        let pool = self.pool.lock();
        let names: Vec<String> = donors.iter().map(|donor| pool.named(*donor)).collect();
        let facts = Facts {
            name: names.join(" and "),
            heard: donors.iter().all(|id| pool.is_heard(*id, now) || pool.has_nothing(*id, now)),
            given_up: donors.iter().all(|id| pool.has_nothing(*id, now)),
            compared: donors.iter().all(|id| pool.vouches(*id, now) || pool.has_nothing(*id, now)),
            gives_back: donors.iter().all(|id| pool.giving(*id).is_some()),
            part: departure.over.is_some(),
            written,
            others: pool.willing(donors, now).count(),
            unwilling: pool.unwilling(donors, now),
            room: pool.room(donors, now),
            scanned,
            used,
            leaving,
        };
        Ok(facts.judge())
    }
}

/// The facts of which the judgement is made.
#[derive(Debug, Clone, Default)]
struct Facts {
    name: String,
    /// True if each of the donors is heard, was given up, or never lent.
    heard: bool,
    /// True if each of the donors was given up, or never lent.
    given_up: bool,
    /// True if each of the donors has told what it holds, was given up, or never lent.
    compared: bool,
    /// True if the space of all the donors is being given back.
    gives_back: bool,
    /// True if only some of the chunks that the donors hold leave.
    part: bool,
    /// The writes that may still store something at one of the donors.
    written: Option<String>,
    /// The number of other donors that take copies now.
    others: usize,
    /// The reason why other donors take nothing, where some do not.
    unwilling: Option<String>,
    /// The bytes that the other donors can take.
    room: u64,
    /// True once a scan has come to its end since the manager's start.
    scanned: bool,
    /// The number of copies at the donors that files use.
    used: u64,
    /// The chunks that have to be made elsewhere first.
    leaving: Leaving,
}

impl Facts {
    fn judge(&self) -> MayGo {
        let name = &self.name;
        let say =
            |verdict, why: String, advice: &str| MayGo { verdict, why, advice: advice.into() };
        if self.used == 0 && (self.compared || self.given_up) && self.written.is_none() {
            return say(Going::Now, "nothing that files use is there".into(), "");
        }
        if !self.scanned {
            let why = "how safe files are is still being looked at".into();
            return say(Going::NotKnown, why, "ask again in a moment");
        }
        let Leaving { moving, blocked, awaited, unreached } = self.leaving;
        if self.given_up {
            return match (awaited, unreached) {
                (0, 0) => say(
                    Going::Now,
                    format!("{name} is given up, and no file needs what it had"),
                    "",
                ),
                (0, chunks) => say(
                    Going::Stuck,
                    format!(
                        "{name} is given up, and {} that it had {} not been made again elsewhere",
                        count(chunks, "chunk"),
                        if chunks == 1 { "has" } else { "have" },
                    ),
                    "bring it back, or wait until they have: `potluck repair status`",
                ),
                (files, _) => say(
                    Going::Stuck,
                    format!("{name} is given up, and {} only it has", need(files)),
                    "bring it back; `potluck nodes rm --force` loses these files",
                ),
            };
        }
        // Chunks that were to move when the donor was last heard cannot be reached now, as those that a scan found
        // since.
        let needed = unreached + awaited + moving.chunks > 0 || self.written.is_some() || self.part;
        if !self.heard && needed {
            return say(
                Going::Stuck,
                format!("{name} is not heard, and nothing can be moved off it until it is"),
                "start `potluck lend` there, or wait until it is given up; if it is lost for good, \
                 `potluck nodes rm --now` waits for nothing",
            );
        }
        if !self.heard {
            let why = format!("{name} is not heard, and no file is less safe without it");
            return say(Going::Now, why, "");
        }
        if self.used == 0 {
            let why = match &self.written {
                Some(written) if self.compared => written.clone(),
                _ => format!("{name} has not told yet what it holds"),
            };
            return say(Going::NotKnown, why, "ask again in a moment");
        }
        if blocked.chunks > 0 {
            return say(Going::Stuck, self.blocked_why(), &self.blocked_advice());
        }
        let advice = match (self.part, self.gives_back) {
            (true, _) => String::new(),
            (_, true) => "wait until it is done: `potluck status`".to_owned(),
            (_, false) => {
                format!("`potluck drain {name}`, or `potluck drain` there")
            }
        };
        let why = match (moving.chunks, self.gives_back) {
            (0, true) => "what is there has enough copies elsewhere and is being deleted".into(),
            (0, false) => "what is there has enough copies elsewhere".into(),
            (chunks, _) => format!(
                "{}, {}, move to other donors first",
                count(chunks, "chunk"),
                format_size(moving.bytes)
            ),
        };
        say(Going::AfterMoving, why, &advice)
    }

    /// Returns the reason why other donors do not take the chunks that leave.
    fn blocked_why(&self) -> String {
        let Leaving { moving, blocked, .. } = self.leaving;
        let narrow = blocked.widest.filter(|wide| wide.donors() as usize > self.others);
        let why = match narrow {
            Some(wide) => failure::too_few_donors(wide, self.others),
            None if moving.bytes > self.room => {
                let (bytes, room) = (format_size(moving.bytes), format_size(self.room));
                format!("{bytes} have to move, and the others have {room} free")
            }
            None => format!(
                "no other donor takes {}: they have no room, or fail together with those that have \
                 the other copies",
                count(blocked.chunks, "chunk")
            ),
        };
        match &self.unwilling {
            Some(unwilling) => format!("{why} ({unwilling})"),
            None => why,
        }
    }

    fn blocked_advice(&self) -> String {
        let others = match self.unwilling {
            Some(_) => "see to the donors named, ",
            None => "",
        };
        format!(
            "{others}lend more on another machine (`potluck lend`), or ask for less redundancy \
             (`potluck policy set`)"
        )
    }
}

fn need(files: u64) -> String {
    if files == 1 { "1 file needs what".into() } else { format!("{files} files need what") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::policy::Redundancy;
    use potluck_pool::redundancy::{Blocked, Moving};

    #[test]
    fn departure_facts_name_what_blocks_each_donor() {
        let live = Facts {
            name: "desk".into(),
            heard: true,
            compared: true,
            scanned: true,
            used: 4,
            others: 2,
            room: 100,
            leaving: Leaving { moving: Moving { chunks: 3, bytes: 60 }, ..Leaving::default() },
            ..Facts::default()
        };
        let stuck = |copies| {
            let widest = Some(Redundancy::Copies(copies));
            let blocked = Blocked { chunks: 3, widest };
            Leaving { blocked, ..live.leaving }
        };
        let lacks = |unreached, awaited| Leaving { unreached, awaited, ..live.leaving };
        let unwilling = Some("attic gives its space back".to_owned());
        let written = Some("a write of ada".to_owned());
        let gone = Facts { heard: false, compared: false, given_up: true, ..live.clone() };
        for (facts, verdict, said) in [
            (live.clone(), Going::AfterMoving, "3 chunks, 60 B, move"),
            (Facts { leaving: Leaving::default(), ..live.clone() }, Going::AfterMoving, "enough"),
            (Facts { used: 0, ..live.clone() }, Going::Now, "nothing that files use"),
            (Facts { used: 0, written, ..live.clone() }, Going::NotKnown, "a write"),
            (Facts { used: 0, compared: false, ..live.clone() }, Going::NotKnown, "not told yet"),
            (Facts { scanned: false, ..live.clone() }, Going::NotKnown, "being looked at"),
            (
                Facts { room: 59, leaving: stuck(2), ..live.clone() },
                Going::Stuck,
                "the others have 59 B free",
            ),
            (
                Facts { leaving: stuck(3), ..live.clone() },
                Going::Stuck,
                "3 copies need 3 donors and 2",
            ),
            (
                Facts { leaving: stuck(3), unwilling, ..live.clone() },
                Going::Stuck,
                "2 are available (attic gives its space back)",
            ),
            (
                Facts { leaving: stuck(2), ..live.clone() },
                Going::Stuck,
                "no other donor takes 3 chunks",
            ),
            (
                Facts { heard: false, leaving: lacks(1, 0), ..live.clone() },
                Going::Stuck,
                "not heard, and nothing can be moved",
            ),
            (Facts { heard: false, ..live.clone() }, Going::Stuck, "not heard, and nothing"),
            (
                Facts { heard: false, leaving: Leaving::default(), ..live.clone() },
                Going::Now,
                "no file is less safe",
            ),
            (gone.clone(), Going::Now, "no file needs what it had"),
            (
                Facts { leaving: lacks(0, 1), ..gone.clone() },
                Going::Stuck,
                "1 file needs what only it has",
            ),
            (
                Facts { leaving: lacks(2, 0), ..gone.clone() },
                Going::Stuck,
                "2 chunks that it had have not been made again",
            ),
            (Facts { scanned: false, ..gone }, Going::NotKnown, "being looked at"),
        ] {
            let judged = facts.judge();
            assert_eq!(judged.verdict, verdict, "{facts:?}");
            assert!(judged.why.contains(said), "{judged:?}");
            assert_eq!(judged.advice.is_empty(), verdict == Going::Now, "{judged:?}");
        }
    }
}
