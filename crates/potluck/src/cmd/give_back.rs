//! `potluck give-back`: an owner takes lent space back. `potluck nodes drain` is the admin's side
//! of the same.

use super::Ending;
use super::donors::percent_given;
use crate::args::{self, GiveBackPace};
use crate::confirm::confirm;
use crate::output::{Output, count};
use crate::progress_bar;
use potluck_client::pool::Client;
use potluck_core::ids::DonorId;
use potluck_core::size::format_size;
use potluck_wire::control::{GiveBack, GiveBackStatus, GivingBack};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::fmt::Write;
use std::time::Duration;

/// Between two looks while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long nothing may be possible before waiting makes no sense: longer than a donor's restart.
const STUCK_PATIENCE: Duration = Duration::from_secs(60);

/// Which donor is emptied, and in whose words.
pub struct Place<'a> {
    /// Which; `None`: the one that asks.
    pub donor: Option<DonorId>,
    /// What people call it.
    pub name: &'a str,
    /// The command that calls it off.
    pub cancel: String,
}

pub async fn run(
    args: args::GiveBack,
    client: &Client,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let place =
        Place { donor: None, name: "this machine", cancel: "potluck give-back --cancel".into() };
    if args.cancel {
        return cancel(&place, client, output).await;
    }
    empty(&place, args.size, args.pace, client, output, shown).await
}

/// Calls an earlier give-back off.
pub async fn cancel(
    place: &Place<'_>,
    client: &Client,
    output: &Output,
) -> Result<Ending, Failure> {
    let call_off = GiveBack { cancel: true, ..order(place, None, false) };
    output.result(&client.call(&call_off).await?, |back| {
        format!("{} lends again; it holds {}", place.name, format_size(back.held))
    });
    Ok(Ending::Done)
}

fn order(place: &Place<'_>, bytes: Option<u64>, now: bool) -> GiveBack {
    GiveBack { donor: place.donor, bytes, now, agreed: None, dry_run: false, cancel: false }
}

/// Asks what would be lost if all were taken now.
pub fn look(place: &Place<'_>) -> GiveBack {
    GiveBack { dry_run: true, ..order(place, None, true) }
}

/// Takes `bytes`, or all, from a donor, and waits until it is done.
pub async fn empty(
    place: &Place<'_>,
    bytes: Option<u64>,
    pace: GiveBackPace,
    client: &Client,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    if pace.caution.dry_run {
        let look = GiveBack { dry_run: true, ..order(place, bytes, pace.now) };
        let planned = client.call(&look).await?;
        output.result(&planned, |planned| plan(place, bytes, pace.now, planned));
        return Ok(Ending::Done);
    }
    let begun = if pace.now && !pace.caution.yes {
        begin_now(place, bytes, client, output).await?
    } else {
        client.call(&order(place, bytes, pace.now)).await?
    };
    if pace.no_wait {
        output.result(&begun, |begun| {
            let held = format_size(begun.held);
            format!("{} gives back what it holds, {held}, moved first; `potluck status` shows how far it is", place.name)
        });
        return Ok(Ending::Done);
    }
    let background = GoesOn { output, place, over: false };
    wait(place, client, background, shown).await
}

/// Begins to take `bytes`, or all, at once, when its user agreed to what is lost by that; `None`:
/// did not. What changed while the user was thinking is shown and asked about again.
async fn begin_now(
    place: &Place<'_>,
    bytes: Option<u64>,
    client: &Client,
    output: &Output,
) -> Result<GivingBack, Failure> {
    loop {
        let planned = client.call(&GiveBack { dry_run: true, ..order(place, bytes, true) }).await?;
        if planned.lost_files > 0 {
            output.note(&plan(place, bytes, true, &planned));
            let question = format!("lose {} for ever?", count(planned.lost_files, "file"));
            let advice = "without --now everything is moved to other donors first; add -y to lose it without being asked";
            confirm(&question, advice).await?;
        }
        let agreed = GiveBack { agreed: planned.listing, ..order(place, bytes, true) };
        match client.call(&agreed).await {
            Err(failure) if failure.code == code::NOT_AGREED => output.note(&failure.message),
            begun => return begun,
        }
    }
}

/// What taking `bytes`, or all, would mean.
fn plan(place: &Place<'_>, bytes: Option<u64>, now: bool, planned: &GivingBack) -> String {
    let kept = bytes.map_or(0, |bytes| planned.held.saturating_sub(bytes));
    let (name, held) = (place.name, format_size(planned.held));
    let mut text = format!("{name} holds {held} and would keep {}", format_size(kept));
    if !now {
        text.push_str("\nwhat other donors lack of it moves to them first; nothing is lost");
        return text;
    }
    if planned.lost_files == 0 {
        text.push_str("\nevery file has enough elsewhere; nothing is lost");
        return text;
    }
    let _ = write!(text, "\n{} would be lost for ever:", count(planned.lost_files, "file"));
    for path in &planned.lost {
        let _ = write!(text, "\n  {path}");
    }
    let more = planned.lost_files.saturating_sub(planned.lost.len() as u64);
    if more > 0 {
        let _ = write!(text, "\n  … and {more} more");
    }
    text
}

/// Says, when its user stops waiting, that the work goes on all the same.
struct GoesOn<'a> {
    output: &'a Output,
    place: &'a Place<'a>,
    over: bool,
}

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        if !self.over {
            let cancel = &self.place.cancel;
            self.output.note(&format!(
                "it goes on in the background: `potluck status` shows how far it is, `{cancel}` calls it off"
            ));
        }
    }
}

async fn wait(
    place: &Place<'_>,
    client: &Client,
    mut background: GoesOn<'_>,
    shown: bool,
) -> Result<Ending, Failure> {
    let bar = progress_bar::level(shown);
    let mut moved = client.env.clock.now();
    let mut last = GivingBack::default();
    loop {
        let back = client.call_patiently(&GiveBackStatus { donor: place.donor }).await?;
        let now = client.env.clock.now();
        if back.done || !back.active {
            drop(bar);
            background.over = true;
            background.output.result(&back, |back| outcome(place, back));
            return Ok(if back.done { Ending::Done } else { Ending::Partial });
        }
        if (back.held, back.to_move) != (last.held, last.to_move) || back.stuck < back.to_move {
            moved = now;
        }
        if now - moved > STUCK_PATIENCE {
            drop(bar);
            return Err(stuck(place, &back));
        }
        let given = back.held_at_start.saturating_sub(back.held);
        bar.set(given, back.held_at_start.saturating_sub(back.goal), progress(&back));
        last = back;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn progress(back: &GivingBack) -> String {
    match (back.stuck, &back.stuck_why) {
        (0, _) => format!("{} to move first", count(back.to_move, "chunk")),
        (stuck, why) => {
            format!("{stuck} stuck: {}", why.as_deref().unwrap_or("no donor takes them"))
        }
    }
}

fn stuck(place: &Place<'_>, back: &GivingBack) -> Failure {
    let why = back.stuck_why.as_deref().unwrap_or("no other donor takes them");
    let what = format!(
        "{} % of {} is given back; {} cannot be moved now: {why}",
        percent_given(back),
        place.name,
        count(back.stuck, "chunk")
    );
    Failure::new(ErrorKind::Partial, code::STUCK, what).hint(
        "it is not safe to remove; lend more elsewhere (`potluck lend`), and it goes on by itself",
    )
}

fn outcome(place: &Place<'_>, back: &GivingBack) -> String {
    if !back.done {
        return format!("called off; {} holds {}", place.name, format_size(back.held));
    }
    let given = format_size(back.held_at_start.saturating_sub(back.held));
    let mut text = format!("{given} given back; {} holds {}", place.name, format_size(back.held));
    if back.lost_files > 0 {
        let _ = write!(text, "\n{} lost, as agreed", count(back.lost_files, "file"));
    }
    if back.unclaimed > 0 {
        let chunks = count(back.unclaimed, "chunk");
        let _ =
            write!(text, "\n{chunks} there are unknown to the pool's catalog and stay untouched");
    }
    if back.safe_to_remove {
        let _ = write!(text, "\nsafe to remove: the pool needs nothing of {} any more", place.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place<'static> {
        Place { donor: None, name: "this machine", cancel: String::new() }
    }

    #[test]
    fn safe_to_remove_is_said_only_when_it_is_true() {
        let mut back = GivingBack { done: true, held_at_start: 4096, ..GivingBack::default() };
        assert!(!outcome(&place(), &back).contains("safe"));
        back.safe_to_remove = true;
        assert!(outcome(&place(), &back).contains("safe to remove"));
        let stuck = stuck(&place(), &GivingBack { stuck: 3, to_move: 3, ..back });
        assert!(stuck.hint.contains("not safe to remove"), "{stuck:?}");
    }

    #[test]
    fn what_is_lost_is_listed_with_how_much_more() {
        let planned = GivingBack {
            lost: vec!["pot://lab/a".into(), "pot://lab/b".into()],
            lost_files: 5,
            ..GivingBack::default()
        };
        let text = plan(&place(), None, true, &planned);
        assert!(
            text.contains("5 files would be lost") && text.contains("\n  pot://lab/b\n"),
            "{text}"
        );
        assert!(text.ends_with("… and 3 more"), "{text}");
        assert!(plan(&place(), Some(1), false, &planned).contains("nothing is lost"));
    }
}
