//! Finds the donors that users name, and formats donors for people.

use crate::output::{count, duration};
use potluck_client::Pool;
use potluck_core::lend_mode::LendMode;
use potluck_core::rights::is_number;
use potluck_core::size::format_size;
use potluck_wire::control::{DonorState, DonorStatus, GivingBack, Going, PoolStatus, Status};
use potluck_wire::error::{ErrorKind, Failure, code};

/// Finds the donor that a user means by its name, its number, which is never a name, or both (`vm#3`).
pub async fn named(client: &Pool, text: &str) -> Result<DonorStatus, Failure> {
    pick(client.call(&Status {}).await?, text)
}

fn pick(status: PoolStatus, text: &str) -> Result<DonorStatus, Failure> {
    let hint = "`potluck nodes ls` lists their names and numbers";
    let means = |donor: &DonorStatus| donor.name == text && !is_number(text);
    let (mut by_name, others): (Vec<_>, Vec<_>) = status.donors.into_iter().partition(means);
    match (by_name.len(), by_name.pop()) {
        (1, Some(donor)) => Ok(donor),
        (0, _) => {
            let is_meant = |donor: &DonorStatus| {
                let (number, both) = (donor.donor, format!("{}#{}", donor.name, donor.donor));
                number.to_string() == text || both == text
            };
            others.into_iter().find(is_meant).ok_or_else(|| {
                Failure::new(
                    ErrorKind::NotFound,
                    code::NO_ENTRY,
                    format!("no donor is called “{text}”"),
                )
                .hint(hint)
            })
        }
        (several, _) => {
            let what = format!("{several} donors are called “{text}”");
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint(format!("use its number: {hint}")))
        }
    }
}

/// Returns the bytes that a donor has free for new files.
pub fn free(donor: &DonorStatus) -> u64 {
    if donor.takes_nothing { 0 } else { donor.room.saturating_sub(donor.promised) }
}

/// Says how much a donor holds, and how much it lends.
pub fn held(donor: &DonorStatus) -> String {
    let used = format_size(donor.used);
    donor.lends.map_or(used.clone(), |lends| format!("{used} of {}", format_size(lends)))
}

/// Says in which state the pool sees a donor.
pub fn state(donor: &DonorStatus) -> String {
    let silent = donor.silent_seconds.map(duration);
    let fault = donor.disk_fault.as_ref();
    let mut text = match (donor.state, donor.away_seconds, silent) {
        (DonorState::Joined, ..) => "joined, lends nothing yet".into(),
        (DonorState::Dead, ..) if fault.is_some_and(|fault| fault.missing) => {
            "dead: it lost its disk".into()
        }
        (_, None, _) if fault.is_some_and(|fault| fault.missing) => "its disk is gone".into(),
        (DonorState::Live, Some(left), _) => {
            format!("live, announced away for {} more", duration(left))
        }
        (DonorState::Live, ..) => DonorState::Live.word().into(),
        (DonorState::Away, Some(left), _) if donor.stopped => {
            format!("shut down, away for {} more at most", duration(left))
        }
        (DonorState::Away, Some(left), _) if donor.mode.is_off() => {
            format!("paused by its owner, away for {} more at most", duration(left))
        }
        (DonorState::Away, Some(left), _) => format!("away for {} more", duration(left)),
        (DonorState::Silent, _, Some(silent)) => format!("silent for {silent}"),
        (seen, _, Some(silent)) => format!("{}: silent for {silent}", seen.word()),
        (seen, ..) => seen.word().into(),
    };
    if fault.is_some_and(|fault| !fault.missing) {
        text.push_str(", disk takes no writes");
    }
    if donor.state == DonorState::Live && donor.unreachable.is_some() {
        text.push_str(", cannot be reached");
    }
    if !donor.unreached_by.is_empty() {
        let members = count(donor.unreached_by.len() as u64, "member");
        text.push_str(&format!(", not reached by {members}"));
    }
    if donor.state == DonorState::Live && donor.load.yielding.is_some() {
        text.push_str(", yielding");
    }
    match donor.mode {
        LendMode::Polite if donor.state == DonorState::Live => text.push_str(", polite"),
        LendMode::Reads if donor.state == DonorState::Live => text.push_str(", reads only"),
        _ => {}
    }
    if donor.quarantined.is_some() {
        text.push_str(", quarantined");
    }
    if let Some(back) = donor.giving_back.as_ref().filter(|back| back.active) {
        text.push_str(&match (back.safe_to_remove, back.done) {
            (true, _) => ", empty: safe to remove".to_string(),
            (_, true) => ", gave back".into(),
            _ if back.may_go.verdict == Going::Stuck => {
                format!(", giving back {} %, stuck: {}", percent_given(back), back.may_go.why)
            }
            _ => format!(", giving back {} %", percent_given(back)),
        });
    }
    text
}

/// Returns how much of a give-back is done, in percent.
pub fn percent_given(back: &GivingBack) -> u64 {
    let to_give = back.held_at_start;
    let given = back.held_at_start.saturating_sub(back.held).min(to_give);
    match (back.done, to_give) {
        (true, _) | (_, 0) => 100,
        (false, _) => (given as f64 / to_give as f64 * 100.0) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::DonorId;
    use potluck_wire::control::DiskFault;

    #[test]
    fn a_donor_is_meant_by_name_or_by_number() {
        let donor = |number, name: &str| DonorStatus {
            donor: DonorId(number),
            name: name.into(),
            ..DonorStatus::default()
        };
        let status = || PoolStatus {
            donors: vec![donor(2, "a"), donor(3, "b"), donor(4, "b"), donor(5, "2")],
            ..PoolStatus::default()
        };
        assert_eq!(pick(status(), "a").map(|d| d.donor), Ok(DonorId(2)));
        assert_eq!(
            pick(status(), "2").map(|d| d.donor),
            Ok(DonorId(2)),
            "a number is never a name"
        );
        assert_eq!(pick(status(), "4").map(|d| d.donor), Ok(DonorId(4)));
        assert_eq!(pick(status(), "b#4").map(|d| d.donor), Ok(DonorId(4)), "as alarms call it");
        assert_eq!(pick(status(), "b").expect_err("two").kind, ErrorKind::Usage);
        assert_eq!(pick(status(), "c").expect_err("none").kind, ErrorKind::NotFound);
    }

    #[test]
    fn a_disk_that_fails_is_told_in_the_state() {
        let fault = |missing| Some(DiskFault { missing, why: "EIO".into() });
        let mut donor =
            DonorStatus { name: "desk".into(), state: DonorState::Live, ..DonorStatus::default() };
        donor.disk_fault = fault(false);
        assert_eq!(state(&donor), "live, disk takes no writes");
        (donor.state, donor.disk_fault) = (DonorState::Suspect, fault(true));
        assert_eq!(state(&donor), "its disk is gone");
        donor.state = DonorState::Dead;
        assert_eq!(state(&donor), "dead: it lost its disk");
    }

    #[test]
    fn a_donor_that_is_not_heard_is_called_by_its_state() {
        let shown = |seen, silent_seconds, away_seconds| {
            state(&DonorStatus { state: seen, silent_seconds, away_seconds, ..Default::default() })
        };
        assert_eq!(shown(DonorState::Suspect, Some(36), None), "suspect: silent for 36s");
        assert_eq!(shown(DonorState::Silent, Some(70), None), "silent for 1m 10s");
        assert_eq!(shown(DonorState::Silent, None, None), "silent");
        assert_eq!(shown(DonorState::Away, Some(36), Some(7200)), "away for 2h more");
        assert_eq!(shown(DonorState::Dead, Some(720), None), "dead: silent for 12m");
        assert_eq!(shown(DonorState::Dead, None, None), "dead");
    }

    #[test]
    fn donor_that_takes_nothing_reports_no_free_space() {
        let mut donor = DonorStatus { room: 9, promised: 2, ..DonorStatus::default() };
        assert_eq!(free(&donor), 7);
        donor.takes_nothing = true;
        assert_eq!(free(&donor), 0);
    }

    #[test]
    fn a_give_back_is_told_in_percent_and_safe_only_when_it_is() {
        let mut donor = DonorStatus { state: DonorState::Live, ..DonorStatus::default() };
        let mut back =
            GivingBack { active: true, held_at_start: 300, held: 150, ..GivingBack::default() };
        donor.giving_back = Some(back.clone());
        assert_eq!(state(&donor), "live, giving back 50 %");
        (back.done, back.held) = (true, 90);
        donor.giving_back = Some(back.clone());
        assert_eq!(state(&donor), "live, gave back");
        back.safe_to_remove = true;
        donor.giving_back = Some(back);
        assert_eq!(state(&donor), "live, empty: safe to remove");
    }
}
