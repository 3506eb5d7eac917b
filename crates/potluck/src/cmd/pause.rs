//! `potluck pause` and `potluck resume`: an owner stops what this machine does for the pool, and has it go on.
//!
//! A pause is a setting, so that it outlives the daemon. The daemon announces it to the pool, which then neither makes
//! elsewhere what is here nor waits for it. What only this machine has is said first.

use super::Ending;
use super::lend::owner::{is_metered, moment, rules, sentence};
use super::lend::{OwnDonor, donors_of};
use super::set::apply;
use crate::args::{PauseArgs, ResumeArgs};
use crate::command_settings::CommandSettings;
use crate::confirm::confirm;
use crate::keys::{self, Daemon};
use crate::local_time::LocalTime;
use crate::output::{self, Output, count};
use crate::running::Told;
use crate::settings_file::SettingsFile;
use potluck_client::{Pool, RetryLimits};
use potluck_config::setting_kind as kind;
use potluck_core::clock::UnixMillis;
use potluck_core::ids::DonorId;
use potluck_core::owner_rules::{InForce, Pause};
use potluck_wire::control::{Departing, GivingBack};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// The name of the setting.
const PAUSED: &str = "lend.paused";
/// The time for which a manager is asked what only this machine has. An owner wants the machine for something else now.
const ASKING: Duration = Duration::from_secs(3);
/// The most files that are named.
const NAMED: usize = 3;

/// What a pause or its end comes to.
#[derive(Debug, Serialize)]
struct Outcome {
    /// True if the donor is paused from now on.
    paused: bool,
    /// What holds from now on by all rules of the owner.
    in_force: InForce,
    /// Whether the donor's daemon runs.
    running: bool,
    /// The number of files that cannot be read during the pause, as only this machine has them; `None` if nobody was
    /// asked, or the manager did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    only_here: Option<u64>,
}

impl Outcome {
    fn text(&self) -> String {
        let what = sentence(&self.in_force);
        match (self.paused, self.running) {
            (true, true) => format!("{what}: nothing is read, written, sent or received"),
            (true, false) => format!("{what}, once a donor runs here: none does now"),
            (false, true) => format!("goes on; now: {what}"),
            (false, false) => {
                format!("goes on once a donor runs here: none does now; then: {what}")
            }
        }
    }
}

/// Pauses the donors of this machine, whose daemon has its state in `state`.
pub async fn pause(
    args: PauseArgs,
    state: &Path,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let pause = asked(&args.time, Env::system().clock.wall())?;
    let file = SettingsFile::read(Daemon::Donor, state)?;
    // Whoever changes the end of a pause has agreed to it before.
    let is_paused = rules(&file).in_force(moment(is_metered())).mode.is_off();
    let lacks = if is_paused { None } else { lacking(state, settings).await };
    let only_here = lacks.as_ref().map(|lacks| lacks.lost_files);
    match &lacks {
        Some(lacks) if lacks.lost_files > 0 => {
            output.note(&only_here_sentence(lacks));
            if !args.caution.yes && !args.caution.dry_run {
                confirm("pause all the same?", "add -y to do it without asking, or -n to only look")
                    .await?;
            }
        }
        None if !is_paused => output.note(
            "warning: the manager does not answer now: whether only this machine has something is not known",
        ),
        _ => {}
    }
    if args.caution.dry_run {
        let paused = rules(&file).in_force(moment(is_metered()));
        let outcome =
            serde_json::json!({ "paused": false, "only_here": only_here, "in_force": paused });
        output.result(&outcome, |_| format!("nothing is changed; now: {}", sentence(&paused)));
        return Ok(Ending::Done);
    }
    let text = kind::pause_text(pause);
    let (told, file) = apply(keys::key(PAUSED), state, None, Some(&text), output).await?;
    finish(told, &file, only_here, output)
}

/// Has the donors of this machine go on.
pub async fn resume(_: ResumeArgs, state: &Path, output: &Output) -> Result<Ending, Failure> {
    let (told, file) = apply(keys::key(PAUSED), state, None, None, output).await?;
    finish(told, &file, None, output)
}

fn finish(
    told: Told,
    file: &SettingsFile,
    only_here: Option<u64>,
    output: &Output,
) -> Result<Ending, Failure> {
    let rules = rules(file);
    let in_force = rules.in_force(moment(is_metered()));
    let (paused, running) = (rules.pause != Pause::No, told != Told::Nobody);
    output.result(&Outcome { paused, in_force, running, only_here }, Outcome::text);
    Ok(Ending::Done)
}

/// Asks the manager what nobody could read while all donors of this machine pause; `None` if it does not answer soon.
pub async fn lacking(state: &Path, settings: &CommandSettings) -> Option<GivingBack> {
    let asking = async {
        let (mut clients, mut donors) = (Vec::new(), Vec::new());
        for OwnDonor { state, .. } in donors_of(state, None).ok()? {
            let own = CommandSettings::donor_identity(&state).ok()?;
            let client = settings.donor_client(Some(&state)).ok()?;
            let limits = client.retry_limits();
            clients.push(client.with_retry_limits(RetryLimits { at_first: ASKING, ..limits }));
            donors.push(DonorId(own.about.member.0));
        }
        let client: &Pool = clients.first()?;
        client.call(&Departing { donors, over: None }).await.ok()
    };
    tokio::time::timeout(ASKING, asking).await.ok().flatten()
}

/// Names the files that cannot be read during the pause.
fn only_here_sentence(lacks: &GivingBack) -> String {
    let named = lacks.lost.iter().take(NAMED).map(|path| output::told(path).into_owned());
    let more = if lacks.lost_files > NAMED as u64 { ", …" } else { "" };
    let (files, named) = (count(lacks.lost_files, "file"), named.collect::<Vec<_>>().join(", "));
    format!("only this machine has {files}, which nobody can read during the pause: {named}{more}")
}

/// Reads for how long to pause, from the words of the command line.
fn asked(words: &[String], now: UnixMillis) -> Result<Pause, Failure> {
    let refused = |what: String| {
        Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("write: potluck pause 30m, potluck pause until 18:00, or potluck pause alone until `potluck resume`")
    };
    match words {
        [] => Ok(Pause::UntilResume),
        [until, time] if until == "until" => {
            let clock = time.split_once(':').and_then(|(hour, minute)| {
                let hour = hour.parse::<u8>().ok().filter(|hour| *hour < 24)?;
                let minute = minute.parse::<u8>().ok().filter(|minute| *minute < 60)?;
                LocalTime::of(now)?.next(hour, minute)
            });
            clock.map(Pause::Until).ok_or_else(|| refused(format!("“{time}” is not a time of day")))
        }
        words => {
            let time = kind::time(&words.join(" ")).map_err(refused)?;
            let ms = i64::try_from(time.as_millis()).ok().filter(|ms| *ms > 0);
            let end = ms.and_then(|ms| now.checked_add(ms));
            end.map(Pause::Until).ok_or_else(|| refused("that is no time at all".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_for_a_time_until_a_time_or_open_ended() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let now = 1_700_000_000_000;
        assert_eq!(asked(&[], now), Ok(Pause::UntilResume));
        assert_eq!(asked(&words("1h 30m"), now), Ok(Pause::Until(now + 90 * 60_000)));
        let Ok(Pause::Until(end)) = asked(&words("until 18:00"), now) else { panic!("a time") };
        assert!(LocalTime::of(end).expect("a time").text().ends_with(" 18:00:00"));
        for text in ["0s", "until 25:00", "until", "until 6pm", "18:00", "soon"] {
            let why = asked(&words(text), now).expect_err(text);
            assert!(why.kind == ErrorKind::Usage && why.hint.contains("until 18:00"), "{why:?}");
        }
    }
}
