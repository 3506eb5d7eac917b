//! `potluck drain`: moves all that a donor holds to others, for its owner or for an admin. `leave`, which does that
//! first, uses the same functions.

use super::Ending;
use super::donors::{self, percent_given};
use super::lend::OwnDonor;
use crate::args::{DrainArgs, DrainOptions};
use crate::confirm::confirm;
use crate::keys::{self, Daemon};
use crate::output::{self, Output, count, told};
use crate::progress_bar;
use crate::settings_file::SettingsFile;
use potluck_client::Pool;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::size::{format_size, parse_size};
use potluck_wire::control::{Departing, GiveBack, GiveBackStatus, GivingBack, Going, MayGo};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// How long a give-back may be stuck before the command stops waiting: longer than the restart of a donor.
const STUCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two messages about what keeps a give-back from going on.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// How long a command waits without a word before it says what it waits for.
const SAY_FIRST: Duration = Duration::from_secs(5);

/// The donor that is emptied, and the words about it for the user.
pub struct GiveBackPlace<'a> {
    /// The donor that is emptied; `None` for the donor as which the client acts.
    pub donor: Option<DonorId>,
    /// The name that people call it by.
    pub name: &'a str,
    /// The command that calls the give-back off.
    pub cancel: String,
}

/// The outcome of a give-back, for programs and for people.
pub struct GiveBackOutcome {
    ending: Ending,
    back: GivingBack,
    text: String,
}

impl GiveBackOutcome {
    /// Prints the outcome, and returns how the command ends.
    pub fn tell(self, output: &Output) -> Ending {
        output.result(&self.back, |_| self.text);
        self.ending
    }
}

/// The outcome of a give-back for one lent directory.
#[derive(Serialize)]
struct OfDirectory<'a> {
    dir: Option<&'a Path>,
    #[serde(flatten)]
    back: GivingBack,
}

/// Empties a donor of the pool for an admin, or calls that off.
pub async fn of_pool(
    args: DrainArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let named = args.donor.unwrap_or_default();
    let donor = donors::named(client, &named).await?;
    let place = GiveBackPlace {
        donor: Some(donor.donor),
        name: &donor.name,
        cancel: format!("potluck drain {named} --cancel"),
    };
    let outcome = match args.cancel {
        true => cancel(&place, None, client).await?,
        false => empty(&place, args.options, client, output, shown).await?,
    };
    Ok(outcome.tell(output))
}

/// Empties the donors of this machine's daemon, whose state is in `state`, or calls that off.
pub async fn own(
    args: DrainArgs,
    state: &Path,
    donors: &[(OwnDonor, Pool)],
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let name = |donor: &OwnDonor| match (donors.len(), &donor.dir) {
        (2.., Some(dir)) => dir.display().to_string(),
        _ => "this machine".to_owned(),
    };
    let names: Vec<String> = donors.iter().map(|(donor, _)| name(donor)).collect();
    let cancel = match &args.dir {
        Some(dir) => format!("potluck drain --cancel --dir {}", dir.display()),
        None => "potluck drain --cancel".to_owned(),
    };
    let place = |name| GiveBackPlace { donor: None, name, cancel: cancel.clone() };
    let file = SettingsFile::read(Daemon::Donor, state)?;
    if !args.cancel && !args.options.now && !args.options.caution.dry_run {
        // All give-backs begin before the command waits for one, so that nothing moves from one disk of this
        // machine to another.
        for ((_, client), name) in donors.iter().zip(&names).skip(usize::from(donors.len() == 1)) {
            client.call(&order(&place(name), false)).await?;
        }
    }
    let (mut ending, mut directories) = (Ending::Done, Vec::new());
    for ((donor, client), name) in donors.iter().zip(&names) {
        let place = place(name);
        let outcome = if args.cancel {
            let lends = donor
                .dir
                .as_deref()
                .and_then(|dir| parse_size(&file.lent_set_to(dir, keys::key("lend.max"))?).ok());
            self::cancel(&place, lends, client).await?
        } else {
            empty(&place, args.options, client, output, shown).await?
        };
        directories.push(OfDirectory { dir: donor.dir.as_deref(), back: outcome.back.clone() });
        let ended = outcome.tell(&output.of_step());
        if ended != Ending::Done {
            ending = ended;
        }
    }
    output.result(&serde_json::json!({ "directories": directories }), |_| String::new());
    Ok(ending)
}

/// Calls an earlier give-back of everything off. `lends` is the most bytes that are lent afterwards, if known.
pub async fn cancel(
    place: &GiveBackPlace<'_>,
    lends: Option<u64>,
    client: &Pool,
) -> Result<GiveBackOutcome, Failure> {
    let before = client.call(&GiveBackStatus { donor: place.donor }).await?;
    let call_off = GiveBack { cancel: true, ..order(place, false) };
    let back = client.call(&call_off).await?;
    let text = called_off(place, before.active, lends, &back);
    Ok(GiveBackOutcome { ending: Ending::Done, back, text })
}

/// Says what holds after a give-back of everything was called off, if there was one.
fn called_off(
    place: &GiveBackPlace<'_>,
    was: bool,
    lends: Option<u64>,
    back: &GivingBack,
) -> String {
    let (name, held) = (place.name, format_size(back.held));
    let lent = lends.map(|max| format!(" up to {}", format_size(max))).unwrap_or_default();
    let mut text = match was {
        true => format!("{name} lends again{lent}; it holds {held}"),
        false => format!(
            "no give-back of everything was under way: {name} lends{lent} as before; it holds {held}"
        ),
    };
    if lends.is_some() {
        text.push_str(
            "\na part that was given back stays so; to lend more: `potluck set lend.max SIZE`",
        );
    }
    text
}

/// Makes the request that gives back all that a donor holds.
pub fn order(place: &GiveBackPlace<'_>, now: bool) -> GiveBack {
    GiveBack { donor: place.donor, now, agreed: None, cancel: false }
}

/// Makes the request that asks what giving back everything would mean.
pub fn look(place: &GiveBackPlace<'_>) -> Departing {
    Departing { donors: place.donor.into_iter().collect(), over: None }
}

/// Empties a donor, and waits until that is done unless the options say otherwise; with a dry run only looks.
pub async fn empty(
    place: &GiveBackPlace<'_>,
    options: DrainOptions,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<GiveBackOutcome, Failure> {
    let done = |back, text| Ok(GiveBackOutcome { ending: Ending::Done, back, text });
    if options.caution.dry_run {
        let planned = client.call(&look(place)).await?;
        let text = plan(place, options.now, &planned);
        let ending = if options.now { Ending::Done } else { ending(&planned) };
        return Ok(GiveBackOutcome { ending, back: planned, text });
    }
    let begun = if options.now && !options.caution.yes {
        begin_now(place, client, output).await?
    } else {
        client.call(&order(place, options.now)).await?
    };
    if options.no_wait {
        let held = format_size(begun.held);
        let text = format!(
            "{} gives back what it holds, {held}, moved first; `potluck status` shows how far it is",
            place.name
        );
        let text = begun.blocked.iter().fold(text, |text, what| text + "\n! " + what);
        return done(begun, text);
    }
    let background = GoesOn::new(output, place);
    begun.blocked.iter().chain([&meaning(place)]).for_each(|what| output.note(what));
    let looked = |back: &GivingBack| {
        if !back.done && back.active {
            return ControlFlow::Continue(Underway {
                given: back.held_at_start.saturating_sub(back.held),
                of: back.held_at_start,
                told: progress(back),
                waits_for: back.may_go.why.clone(),
                stuck: (back.stuck > 0 && back.stuck >= back.to_move).then(|| stuck(place, back)),
            });
        }
        let ending = if back.done { Ending::Done } else { Ending::Partial };
        let text = outcome(place, back);
        ControlFlow::Break(GiveBackOutcome { ending, back: back.clone(), text })
    };
    wait(client, background, shown, looked).await
}

/// Begins to give back everything at once, after the user agreed to the files that are lost by that. If these
/// changed while the user was thinking, the user is asked again.
///
/// Errors: the user did not agree.
async fn begin_now(
    place: &GiveBackPlace<'_>,
    client: &Pool,
    output: &Output,
) -> Result<GivingBack, Failure> {
    loop {
        let planned = client.call(&look(place)).await?;
        if planned.lost_files > 0 {
            output.note(&plan(place, true, &planned));
            let question = format!("lose {} for ever?", count(planned.lost_files, "file"));
            let advice = "without --now everything is moved to other donors first; add -y to lose it without being asked";
            confirm(&question, advice).await?;
        }
        let agreed = GiveBack { agreed: planned.listing, ..order(place, true) };
        match client.call(&agreed).await {
            Err(failure) if failure.code == code::NOT_AGREED => output.note(&failure.message),
            begun => return begun,
        }
    }
}

/// Says what giving back everything would mean.
fn plan(place: &GiveBackPlace<'_>, now: bool, planned: &GivingBack) -> String {
    let (name, held) = (place.name, format_size(planned.held));
    let last = if planned.last_donor { format!("\n! {LAST_DONOR}") } else { String::new() };
    let means = if now { at_once(planned) } else { moving(planned) };
    format!("{name} holds {held} and would keep nothing\n{}{last}\n{means}", meaning(place))
}

/// Says what it would mean for files if what leaves went at once.
pub fn at_once(planned: &GivingBack) -> String {
    match (planned.lost_files, planned.less_safe_files) {
        (0, 0) => return "no file would be lost, nor less safe".into(),
        (0, _) => return format!("no file would be lost, and {}", weakened(planned)),
        _ => {}
    }
    let mut text = format!("{} would be lost for ever:", count(planned.lost_files, "file"));
    for path in &planned.lost {
        let _ = write!(text, "\n  {}", told(&output::name(path)));
    }
    let more = planned.lost_files.saturating_sub(planned.lost.len() as u64);
    if more > 0 {
        let _ = write!(text, "\n  … and {more} more");
    }
    text
}

/// Returns how a dry run ends: as the give-back itself would.
pub fn ending(planned: &GivingBack) -> Ending {
    match planned.may_go.verdict {
        Going::Stuck => Ending::Partial,
        Going::Now | Going::AfterMoving | Going::NotKnown => Ending::Done,
    }
}

/// Says what happens to the chunks that leave a donor, and whether all of them can move.
pub fn moving(planned: &GivingBack) -> String {
    let MayGo { verdict, why, .. } = &planned.may_go;
    let moves = match verdict {
        Going::Now => format!("nothing has to move first: {why}; nothing is lost"),
        Going::AfterMoving => {
            "what other donors lack of it moves to them first; nothing is lost".into()
        }
        Going::Stuck => "what other donors take moves to them, and the rest stays".into(),
        Going::NotKnown => {
            format!("whether all of it can move to other donors is not known yet: {why}")
        }
    };
    planned.blocked.iter().fold(moves, |text, what| text + "\n! " + what)
}

/// Says which files are less safe if a donor goes at once, and whether repair can change that.
fn weakened(planned: &GivingBack) -> String {
    // A donor that is given up or not heard moves nothing itself, but repair makes what it held from other copies.
    let until = match planned.stuck {
        0 => "until repair made them whole",
        _ => "and the pool as it is could not make them whole",
    };
    let shown = planned.less_safe.iter().take(3).map(|path| told(&output::name(path)).to_string());
    let more = if planned.less_safe_files > 3 { ", …" } else { "" };
    format!(
        "{} would be less safe than promised {until}: {}{more}",
        count(planned.less_safe_files, "file"),
        shown.collect::<Vec<_>>().join(", ")
    )
}

/// The warning about the pool's own metadata if no donor stays.
const LAST_DONOR: &str = "no other donor stays: the pool's own metadata is then on the manager's own \
     disk only; keep a copy of it elsewhere (`potluck manager backup`, and the recovery kit)";

/// Says what a give-back means to a donor's lent space until it is called off.
fn meaning(place: &GiveBackPlace<'_>) -> String {
    format!("nothing new is stored there until `{}`", place.cancel)
}

/// Says now and then what a command waits for, so that none of them waits without a word.
pub struct WaitNotes {
    /// The time at which the command last said something.
    said: Tick,
    /// The time until it says something again.
    every: Duration,
}

impl WaitNotes {
    /// Begins to wait.
    pub fn new(now: Tick) -> Self {
        Self { said: now, every: SAY_FIRST }
    }

    /// Returns what is to be said now: what keeps the give-back from going on, else what it waits for.
    pub fn due(&mut self, now: Tick, blocked: &[String], waits_for: &str) -> Vec<String> {
        if now.saturating_sub(self.said) < self.every {
            return Vec::new();
        }
        (self.said, self.every) = (now, SAY_EVERY);
        if blocked.is_empty() { vec![format!("waiting: {waits_for}")] } else { blocked.to_vec() }
    }
}

/// A guard that says on drop that the work goes on in the background, such as when the user stops waiting.
pub struct GoesOn<'a> {
    pub output: &'a Output,
    pub place: &'a GiveBackPlace<'a>,
    over: bool,
}

impl<'a> GoesOn<'a> {
    /// Makes the guard. It prints its message on drop unless [`Self::done`] was called.
    pub fn new(output: &'a Output, place: &'a GiveBackPlace<'a>) -> Self {
        Self { output, place, over: false }
    }

    /// Keeps the guard from printing its message, because nothing goes on any more.
    pub fn done(&mut self) {
        self.over = true;
    }
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

/// What a command that waits for a give-back shows of it.
pub struct Underway {
    /// The bytes that were given back.
    pub given: u64,
    /// The bytes that are to be given back in all.
    pub of: u64,
    /// What the progress bar tells beside that.
    pub told: String,
    /// What the give-back waits for, where nothing keeps it from going on.
    pub waits_for: String,
    /// The failure with which the command ends if nothing moves for long.
    pub stuck: Option<Failure>,
}

/// Asks again and again how far a give-back is, until `look` says that it is over.
///
/// Errors: it is stuck.
pub async fn wait<T>(
    client: &Pool,
    mut background: GoesOn<'_>,
    shown: bool,
    mut look: impl FnMut(&GivingBack) -> ControlFlow<T, Underway>,
) -> Result<T, Failure> {
    let bar = progress_bar::level(shown);
    let started = client.now();
    let (mut moved, mut stuck, mut notes) = (started, None, WaitNotes::new(started));
    let mut least = (u64::MAX, u64::MAX);
    loop {
        let donor = background.place.donor;
        let back = client.call_retrying(&GiveBackStatus { donor }).await?;
        let now = client.now();
        let underway = match look(&back) {
            ControlFlow::Continue(underway) => underway,
            ControlFlow::Break(over) => {
                background.done();
                return Ok(over);
            }
        };
        if back.held < least.0 || back.to_move < least.1 {
            least = (back.held.min(least.0), back.to_move.min(least.1));
            moved = now;
        }
        // The manager looks at a stuck give-back again now and then, and reports it as not stuck for a moment.
        stuck = underway.stuck.map(|failure| (now, failure)).or(stuck);
        if let Some((at, failure)) = &stuck
            && now - moved > STUCK_TIMEOUT
            && now - *at < SAY_EVERY
        {
            return Err(failure.clone());
        }
        let said = notes.due(now, &back.blocked, &underway.waits_for);
        said.iter().for_each(|what| background.output.note(what));
        bar.set(underway.given, underway.of, underway.told);
        tokio::time::sleep(super::waiting::ASK_AGAIN).await;
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

fn stuck(place: &GiveBackPlace<'_>, back: &GivingBack) -> Failure {
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

fn outcome(place: &GiveBackPlace<'_>, back: &GivingBack) -> String {
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
    if back.done && back.last_donor {
        let _ = write!(text, "\n! {LAST_DONOR}");
    }
    if back.safe_to_remove {
        let _ = write!(text, "\nsafe to remove: the pool needs nothing of {} any more", place.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> GiveBackPlace<'static> {
        GiveBackPlace { donor: None, name: "this machine", cancel: String::new() }
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
    fn drain_explains_effect_and_obstacles() {
        let planned = GivingBack { held: 9 << 20, ..GivingBack::default() };
        let text = plan(&place(), false, &planned);
        assert!(text.contains("nothing new is stored there until"), "{text}");
        let may_go = |verdict| MayGo { verdict, why: "too few".into(), advice: "lend".into() };
        let blocked = vec!["it cannot come to its end: too few".to_owned()];
        let narrow = GivingBack { may_go: may_go(Going::Stuck), blocked, ..planned.clone() };
        let text = plan(&place(), false, &narrow);
        assert!(text.ends_with("stays\n! it cannot come to its end: too few"), "{text}");
        assert!(!text.contains("nothing is lost"), "{text}");
        let roomy = GivingBack { may_go: may_go(Going::AfterMoving), ..planned };
        let text = plan(&place(), false, &roomy);
        assert!(!text.contains('!') && text.contains("nothing is lost"), "{text}");
        let part = GivingBack { active: true, done: true, ..GivingBack::default() };
        assert!(!outcome(&place(), &part).contains("until"), "said when it began, and not twice");
    }

    #[test]
    fn only_what_no_donor_takes_is_said_not_to_become_whole() {
        let stuck =
            MayGo { verdict: Going::Stuck, why: "desk is given up".into(), ..MayGo::default() };
        let dead = GivingBack { may_go: stuck, less_safe_files: 1, ..GivingBack::default() };
        assert!(weakened(&dead).contains("until repair made them whole"), "{}", weakened(&dead));
        let full = GivingBack { stuck: 3, ..dead };
        assert!(weakened(&full).contains("could not make them whole"), "{}", weakened(&full));
    }

    #[test]
    fn a_command_that_waits_says_what_for_within_ten_seconds() {
        let at = |seconds| Tick::ZERO + Duration::from_secs(seconds);
        let mut notes = WaitNotes::new(at(0));
        let mut due = |seconds, blocked: &[&str]| {
            let blocked: Vec<String> = blocked.iter().map(|what| (*what).to_owned()).collect();
            notes.due(at(seconds), &blocked, "3 chunks move")
        };
        assert_eq!(due(1, &["full"]), [""; 0]);
        assert_eq!(due(9, &[]), ["waiting: 3 chunks move"]);
        assert_eq!(due(20, &[]), [""; 0], "not again and again");
        assert_eq!(due(40, &["full"]), ["full"]);
    }

    #[test]
    fn drain_lists_losses_and_counts_the_rest() {
        let planned = GivingBack {
            lost: vec!["pot://lab/a".into(), "pot://lab/b".into()],
            lost_files: 5,
            ..GivingBack::default()
        };
        let text = plan(&place(), true, &planned);
        assert!(
            text.contains("5 files would be lost") && text.contains("\n  pot://lab/b\n"),
            "{text}"
        );
        assert!(text.ends_with("… and 3 more"), "{text}");
        let unknown = plan(&place(), false, &planned);
        assert!(unknown.contains("not known yet") && !unknown.contains("lost"), "{unknown}");
    }
}
