//! Tests that the log tells each event once: silence and return of donors, repairs, alarms.

use super::*;

fn donor(state: DonorState, silent_seconds: u64) -> DonorStatus {
    DonorStatus {
        donor: DonorId(3),
        name: "basement".into(),
        state,
        silent_seconds: Some(silent_seconds),
        room: 90 << 30,
        used: 10 << 30,
        ..DonorStatus::default()
    }
}

fn look(second: u64, donor: DonorStatus) -> Look {
    let (repair, made_last, alarms) = Default::default();
    Look { now: Tick::from_secs(second), donors: vec![donor], repair, made_last, alarms }
}

/// Returns the lines that are told; warnings are marked with "!".
fn said(lines: Vec<EventLine>) -> Vec<String> {
    let text = |line| match line {
        EventLine::Warn(said) => format!("! {said}"),
        EventLine::Info(said) => said,
    };
    lines.into_iter().map(text).collect()
}

#[test]
fn a_donors_silence_its_end_and_its_return_are_said_once_each() {
    let mut event_log = EventLog::default();
    let mut all = Vec::new();
    let mut second = 0;
    let mut pass = |state, seconds: u64| {
        for silent in 1..=seconds {
            second += 1;
            let silent = if state == DonorState::Live { 0 } else { silent };
            all.extend(said(event_log.compare(&look(second, donor(state, silent)))));
        }
    };
    pass(DonorState::Silent, 3); // the manager has just started
    pass(DonorState::Live, 5);
    pass(DonorState::Suspect, 4);
    pass(DonorState::Live, 5);
    pass(DonorState::Silent, 70);
    pass(DonorState::Dead, 700);
    pass(DonorState::Live, 5);
    assert_eq!(
        all,
        [
            "donor basement (3) is silent, for 1s now; it is given up when that lasts",
            "donor basement (3) is back; it was silent for 4s",
            "donor basement (3) is silent, for 1s now; it is given up when that lasts",
            "! donor basement (3) is given up, silent for 1s: what it holds is made again elsewhere",
            "donor basement (3) is back; it was silent for 11m 40s",
        ]
    );
}

#[test]
fn an_announced_absence_is_no_warning() {
    let mut event_log = EventLog::default();
    event_log.compare(&look(1, donor(DonorState::Live, 0)));
    let away = DonorStatus { away_seconds: Some(7200), ..donor(DonorState::Away, 60) };
    assert_eq!(
        said(event_log.compare(&look(2, away))),
        ["donor basement (3) is away, as was announced; it is waited for 2h more"]
    );
}

#[test]
fn repair_in_several_steps_logs_one_start_and_one_end() {
    let mut event_log = EventLog::default();
    let mut at = |second, queued: u64, made: u64| {
        let mut look = look(second, donor(DonorState::Live, 0));
        let (made_bytes, bytes_left) = (made << 20, queued << 20);
        let queued = vec![0, queued];
        look.repair = RepairState { queued, bytes_left, made, made_bytes, ..Default::default() };
        said(event_log.compare(&look))
    };
    assert_eq!(at(1, 0, 7), [""; 0]);
    assert_eq!(at(2, 40, 7), ["repair began: 40 chunks to make, 40.0 MiB"]);
    assert_eq!(at(60, 3, 44), [""; 0]);
    assert_eq!(at(62, 0, 47), [""; 0], "the next step may follow");
    assert_eq!(at(65, 5, 47), [""; 0]);
    assert_eq!(at(70, 0, 52), [""; 0]);
    assert_eq!(at(80, 0, 52), ["repair ended: 45 chunks made, 45.0 MiB, in 1m 8s"]);
    assert_eq!(at(81, 0, 52), [""; 0]);
    assert_eq!(at(82, 0, 60), ["repair began: 8 chunks to make, 8.0 MiB"], "and is over");
    assert_eq!(at(92, 0, 60), ["repair ended: 8 chunks made, 8.0 MiB, in 1s"]);
}

#[test]
fn alarm_is_logged_at_start_and_end_despite_text_changes() {
    let mut event_log = EventLog::default();
    let mut at = |second, kind, why: Option<&str>| {
        let mut look = look(second, donor(DonorState::Live, 0));
        let alarm = |why: &str| Alarm::new(kind, why, "look at it").of(DonorId(3));
        look.alarms = why.map(alarm).into_iter().collect();
        said(event_log.compare(&look))
    };
    let disk = AlarmKind::DonorDisk;
    assert_eq!(at(1, disk, Some("no room for 8 MiB")), ["! no room for 8 MiB"]);
    assert_eq!(at(2, disk, Some("no room for 9 MiB")), [""; 0]);
    assert_eq!(at(3, disk, None), [""; 0], "it may come and go");
    assert_eq!(at(4, disk, Some("no room for 9 MiB")), [""; 0]);
    let well = "the disk that donor basement (3) lends is well";
    assert_eq!(at(9, AlarmKind::DonorQuarantined, Some("it lies")), ["! it lies", well]);
    assert_eq!(at(14, disk, None), ["donor basement (3) is trusted again"]);
    assert_eq!(at(30, disk, None), [""; 0]);
}
