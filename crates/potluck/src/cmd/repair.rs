//! `potluck repair`: shows and steers repair, which makes lost copies again.

use super::Ending;
use crate::args::{RepairArgs, WatchArgs};
use crate::output::{Output, count, duration};
use crate::progress_bar;
use potluck_client::Pool;
use potluck_core::size::format_size;
use potluck_wire::control::{Check, RepairAction, RepairControl, RepairState, RepairStatus};
use potluck_wire::error::Failure;
use std::fmt::Write;
use std::time::Duration;

/// How long `potluck repair now` waits for a scan. With millions of files a scan takes longer, for which `--watch`
/// waits.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without progress after which stuck chunks end the watch: by then more than one scan has found no way for
/// them.
const STANDSTILL: Duration = Duration::from_secs(60);

pub async fn run(
    args: RepairArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let control = |action| RepairControl { action };
    let (state, watch) = match args {
        RepairArgs::Status(WatchArgs { watch }) => {
            client.call(&Check {}).await?; // returns when the manager knows all that happened
            (client.call(&RepairStatus {}).await?, watch)
        }
        RepairArgs::Pause => (client.call(&control(RepairAction::Pause)).await?, false),
        RepairArgs::Resume => (client.call(&control(RepairAction::Resume)).await?, false),
        RepairArgs::Now(WatchArgs { watch: false }) => {
            client.call(&control(RepairAction::Now)).await?;
            (looked_anew(client).await?, false)
        }
        RepairArgs::Now(WatchArgs { watch: true }) => {
            client.call(&control(RepairAction::Now)).await?;
            let state = until_idle(client, shown, true).await?;
            return Ok(ended(&state, output));
        }
    };
    if watch {
        let state = until_idle(client, shown, false).await?;
        return Ok(ended(&state, output));
    }
    output.result(&state, text);
    Ok(Ending::Done)
}

fn ended(state: &RepairState, output: &Output) -> Ending {
    output.result(state, text);
    let open = left(state) + state.stuck + state.changing;
    if open == 0 { Ending::Done } else { Ending::Partial }
}

/// Returns the state of repair once there was a new scan, or as far as it is known after [`LOOK_TIMEOUT`].
async fn looked_anew(client: &Pool) -> Result<RepairState, Failure> {
    let started = client.now();
    loop {
        let state = client.call_retrying(&RepairStatus {}).await?;
        let waited = client.now() - started;
        let looked = state.scanned_seconds.is_some_and(|ago| ago < waited.as_secs());
        if looked || state.paused.is_some() || waited > LOOK_TIMEOUT {
            return Ok(state);
        }
        tokio::time::sleep(super::waiting::ASK_AGAIN).await;
    }
}

/// Returns the number of chunks that wait to be made or are being made.
pub fn left(state: &RepairState) -> u64 {
    state.queued.iter().sum::<u64>() + state.under_way
}

/// Watches until repair is paused, nothing is left, or nothing more can be made now. With `anew` that holds only after
/// one more scan.
async fn until_idle(client: &Pool, shown: bool, anew: bool) -> Result<RepairState, Failure> {
    let started = client.now();
    let line = progress_bar::line(shown);
    let (mut made, mut changing, mut moved) = (0, 0, started);
    loop {
        let state = client.call_retrying(&RepairStatus {}).await?;
        let now = client.now();
        let looked =
            state.scanned_seconds.is_some_and(|ago| !anew || ago < (now - started).as_secs());
        if state.made != made || state.changing != changing || state.under_way > 0 {
            (made, changing, moved) = (state.made, state.changing, now);
        }
        if state.paused.is_some() || (looked && is_over(&state, now - moved)) {
            return Ok(state);
        }
        line.say(&summary(&state));
        tokio::time::sleep(super::waiting::ASK_AGAIN).await;
    }
}

/// Returns whether the watch is over: nothing is left to make and nothing is expected, or something is stuck and
/// nothing has moved for [`STANDSTILL`]. More is expected while a scan is pending, or while a silent donor may still
/// return.
fn is_over(state: &RepairState, still: Duration) -> bool {
    let stuck = state.stuck + state.changing_stuck > 0;
    let nothing = left(state) + state.changing == 0;
    let expected = state.not_known.is_some() || state.begins_seconds.is_some();
    (nothing && !expected) || (stuck && still >= STANDSTILL)
}

/// Describes the state of repair in one line.
pub fn summary(state: &RepairState) -> String {
    if let Some(why) = &state.paused {
        return format!("paused: {why}");
    }
    let mut parts = Vec::new();
    if left(state) > 0 {
        let mut text =
            format!("{} to make, {}", count(left(state), "chunk"), format_size(state.bytes_left));
        if let Some(endangered) = state.queued.first().filter(|chunks| **chunks > 0) {
            let _ = write!(text, ", {endangered} of them one dead donor from loss");
        }
        parts.push(text);
    }
    if state.changing > 0 {
        parts.push(format!(
            "{}, {}, still changing to another policy",
            count(state.changing, "file"),
            format_size(state.changing_bytes)
        ));
    }
    if left(state) + state.changing > 0 {
        let mut text = format!("{}/s", format_size(state.rate));
        // Files change their redundancy after lost copies are made, so theirs is the later time.
        let eta = if state.changing > 0 { state.changing_eta_seconds } else { state.eta_seconds };
        if let Some(eta) = eta {
            let _ = write!(text, ", done in about {}", duration(eta));
        }
        parts.push(text);
    }
    if state.stuck > 0 {
        let why = state.stuck_why.as_deref().unwrap_or("no source, or nowhere to put them");
        parts.push(format!("{} stuck: {why}", count(state.stuck, "chunk")));
    }
    let nowhere = (state.changing_stuck > 0).then_some("nowhere to put them");
    if let Some(why) = state.changing_stuck_why.as_deref().or(nowhere) {
        parts.push(format!("that change is stuck: {why}"));
    }
    if let Some(why) = &state.not_known {
        parts.push(format!("what is to be made is being looked at: {why}"));
    } else if let Some(seconds) = state.begins_seconds {
        parts.push(format!(
            "{} not heard: what is there is made again in {}, or at once by `potluck repair now`",
            match state.waits_for.as_slice() {
                [one] => format!("{one} is"),
                several => format!("{} are", several.join(", ")),
            },
            duration(seconds)
        ));
    }
    if parts.is_empty() { "nothing to do".into() } else { parts.join("; ") }
}

fn text(state: &RepairState) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}"); // writing to a string cannot fail
    };
    line("repair", summary(state));
    for (tolerates, chunks) in state.queued.iter().enumerate().filter(|(_, chunks)| **chunks > 0) {
        let danger = match tolerates {
            0 => "whose file is lost with the next donor that holds it".into(),
            more => format!("whose file survives {}", count(more as u64, "more dead donor")),
        };
        line("to make", format!("{} {danger}", count(*chunks, "chunk")));
    }
    line("under way", count(state.under_way, "chunk"));
    if state.excess > 0 {
        line("excess", format!("{} beyond any policy, waiting to be deleted", state.excess));
    }
    line(
        "made",
        format!(
            "{}, {}, since the manager's start",
            count(state.made, "chunk"),
            format_size(state.made_bytes)
        ),
    );
    line(
        "budget",
        format!(
            "{}/s for the pool, {}/s for a donor",
            format_size(state.pool_budget),
            format_size(state.donor_budget)
        ),
    );
    line(
        "looked",
        match state.scanned_seconds {
            Some(seconds) => format!("at everything {} ago", duration(seconds)),
            None => "not yet at everything since the manager's start".into(),
        },
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_goes_on_while_more_is_known_to_be_lacking() {
        let still = Duration::from_secs(3600);
        assert!(is_over(&RepairState::default(), Duration::ZERO));
        let drained = RepairState { queued: vec![0, 7], more: 7, ..RepairState::default() };
        assert!(!is_over(&drained, still), "the next look finds them");
        let stuck = RepairState { stuck: 1, ..drained };
        assert!(!is_over(&stuck, Duration::from_secs(5)), "perhaps only what is first");
        assert!(is_over(&stuck, still));
        let begins = RepairState {
            begins_seconds: Some(120),
            waits_for: vec!["desk".into()],
            ..RepairState::default()
        };
        assert!(!is_over(&begins, still), "it has not begun");
        let said = summary(&begins);
        assert!(said.starts_with("desk is not heard: what is there is made again in 2m"), "{said}");
        let unknown = RepairState { not_known: Some("a start".into()), ..RepairState::default() };
        assert!(!is_over(&unknown, still), "{}", summary(&unknown));
        let changing = RepairState { changing: 2, ..RepairState::default() };
        assert!(!is_over(&changing, still), "files that change are followed too");
        assert!(is_over(&RepairState { changing_stuck: 1, ..changing }, still));
    }

    #[test]
    fn the_summary_names_what_is_endangered_and_why_it_stops() {
        let idle = RepairState::default();
        assert_eq!(summary(&idle), "nothing to do");
        let busy = RepairState {
            queued: vec![2, 3],
            under_way: 1,
            bytes_left: 6 << 20,
            rate: 1 << 20,
            eta_seconds: Some(6),
            stuck: 1,
            stuck_why: Some("no donor has room".into()),
            ..RepairState::default()
        };
        assert_eq!(
            summary(&busy),
            "6 chunks to make, 6.0 MiB, 2 of them one dead donor from loss; 1.0 MiB/s, done in about 6s; 1 chunk stuck: no donor has room"
        );
        let changing = RepairState {
            changing: 2,
            changing_bytes: 3 << 20,
            rate: 1 << 20,
            eta_seconds: Some(0),
            changing_eta_seconds: Some(3),
            ..RepairState::default()
        };
        assert_eq!(
            summary(&changing),
            "2 files, 3.0 MiB, still changing to another policy; 1.0 MiB/s, done in about 3s"
        );
        let full = Some("no donor has room".to_string());
        let stuck = RepairState { changing_stuck: 4, changing_stuck_why: full, ..changing };
        assert!(summary(&stuck).ends_with("that change is stuck: no donor has room"));
        let paused = RepairState { paused: Some("an admin said so".into()), ..busy };
        assert_eq!(summary(&paused), "paused: an admin said so");
    }
}
