//! `potluck set`: shows or changes the settings of this machine's daemons.

use super::Ending;
use super::lend::{absolute, check_terms};
use crate::args::SetArgs;
use crate::command_settings::CommandSettings;
use crate::keys::{self, Applies, Daemon, Key};
use crate::output::Output;
use crate::running::{self, Told};
use crate::settings_file::SettingsFile;
use potluck_config::setting_kind::SettingKind;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::path::{Path, PathBuf};

pub async fn run(
    args: SetArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let places = places(args.state.as_deref(), settings);
    let Some(name) = &args.key else {
        let shown = show(&places, |_| true)?;
        output.result(&shown, table);
        return Ok(Ending::Done);
    };
    let key = keys::named(name).map_err(|meant| unknown(name, &meant))?;
    let value = key.kind.join_typed(&args.value);
    let value = value.map_err(|why| {
        let what = format!("{}: {why}", key.full);
        Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what).hint(key.meaning)
    })?;
    if let Some(dir) = value.as_deref().filter(|_| key.kind == SettingKind::Path) {
        check_there(key, Path::new(dir))?;
    }
    if value.is_none() && !args.unset {
        places.of(key.daemon())?;
        let shown = show(&places, |other| std::ptr::eq(other, key))?;
        output.result(&shown, table);
        return Ok(Ending::Done);
    }
    let place = places.of(key.daemon())?;
    let (told, file) = apply(key, place, args.dir.as_deref(), value.as_deref(), output).await?;
    let changed = Changed {
        key: key.full,
        value,
        file: file.path().to_owned(),
        running: told != Told::Nobody,
        applies: match told {
            Told::Nobody => Applies::AtRestart.words(),
            _ => key.applies.words(),
        },
    };
    output.result(&changed, |changed| sentence(changed, key.daemon().name()));
    Ok(Ending::Done)
}

/// Sets a key of the daemon whose state is in `place`, or with `None` unsets it, and has the running daemon go by it.
/// Of a key that each lent directory has, that of `dir` is set, or that of the only one. If the daemon refuses, the
/// value of before is set again.
pub async fn apply(
    key: &Key,
    place: &Path,
    dir: Option<&Path>,
    value: Option<&str>,
    output: &Output,
) -> Result<(Told, SettingsFile), Failure> {
    let wanted = dir.map(absolute).transpose()?;
    let mut before = None;
    let file = SettingsFile::edit(key.daemon(), place, |file| {
        let dir = match key.per_dir {
            true => Some(one_of(file, wanted.as_deref())?),
            false => None,
        };
        let set_to = match &dir {
            Some(dir) => file.lent_set_to(dir, key),
            None => file.set_to(key),
        };
        change(file, dir.as_deref(), key, value);
        if let Some(dir) = &dir {
            check_terms(file, dir)?;
        }
        before = Some((dir, set_to));
        Ok(())
    })?;
    let told = running::reload(place).await;
    let who = key.daemon().name();
    match &told {
        Told::Refused(why) => {
            if let Some((dir, set_to)) = before {
                SettingsFile::edit(key.daemon(), place, |file| {
                    change(file, dir.as_deref(), key, set_to.as_deref());
                    Ok(())
                })?;
                running::reload(place).await;
            }
            let what = format!("the running {who} did not take it: {why}");
            return Err(Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what)
                .hint("nothing was changed; it goes by the settings of before"));
        }
        Told::Unheard(why) => output.note(&format!(
            "the {who} runs and could not be told ({why}): have it reload its settings with kill -HUP, as \
             whom it runs as"
        )),
        Told::Took(notes) if key.per_dir => notes.iter().for_each(|note| output.note(note)),
        Told::Nobody | Told::Took(_) => {}
    }
    Ok((told, file))
}

/// Refuses a directory that does not exist, because its disk may not be mounted.
fn check_there(key: &Key, dir: &Path) -> Result<(), Failure> {
    if dir.is_dir() {
        return Ok(());
    }
    let dir = dir.display();
    let what = format!("{}: there is no directory {dir}", key.full);
    Err(Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what)
        .hint(format!("mount its disk if it is on another one, or make it: mkdir -p {dir}")))
}

/// Sets a key of the daemon or of one lent directory, or with `None` unsets it, so that its default holds again.
fn change(file: &mut SettingsFile, dir: Option<&Path>, key: &Key, value: Option<&str>) {
    match (dir, value) {
        (Some(dir), value) => file.set_lent(dir, key, value),
        (None, Some(text)) => file.set(key, text),
        (None, None) => file.unset(key),
    }
}

/// The state directories of the daemons that a command is about.
struct Places {
    manager: Option<PathBuf>,
    donor: Option<PathBuf>,
}

impl Places {
    fn dir(&self, daemon: Daemon) -> Option<&Path> {
        match daemon {
            Daemon::Manager => self.manager.as_deref(),
            Daemon::Donor => self.donor.as_deref(),
        }
    }

    /// Returns the state directory of a daemon.
    ///
    /// Errors: it does not exist.
    fn of(&self, daemon: Daemon) -> Result<&Path, Failure> {
        if let Some(dir) = self.dir(daemon).filter(|dir| dir.is_dir()) {
            return Ok(dir);
        }
        let name = daemon.name();
        let place = self.dir(daemon).or(self.manager.as_deref()).or(self.donor.as_deref());
        let place = place.map_or(String::new(), |dir| format!(" in {}", dir.display()));
        let what = format!("no {name} has its state{place}");
        let start = match daemon {
            Daemon::Manager => "start one with `potluck up` or `potluck manager`",
            Daemon::Donor => "start one with `potluck up`, or `potluck join` and `potluck lend`",
        };
        Err(Failure::new(ErrorKind::NotFound, code::BAD_SETTINGS, what)
            .hint(format!("{start}, or give the --state that it was given")))
    }
}

/// Finds the state directories. A `state` that is given is that of `potluck up`, with one for each daemon below it, or
/// a daemon's own.
fn places(state: Option<&Path>, settings: &CommandSettings) -> Places {
    let Some(state) = state else {
        let (manager, donor) = (settings.manager_dir(), settings.donor_dir());
        return match (manager.is_dir(), donor.is_dir()) {
            // If neither exists, both are named, so that their defaults can be shown.
            (false, false) => Places { manager: Some(manager), donor: Some(donor) },
            (has_manager, has_donor) => Places {
                manager: has_manager.then_some(manager),
                donor: has_donor.then_some(donor),
            },
        };
    };
    let at = |name| Some(state.join(name)).filter(|dir| dir.is_dir());
    match (at("manager"), at("donor")) {
        (None, None) => {
            let (manager, own) =
                (state.join(potluck_recovery::state_dir::KIT).exists(), state.to_owned());
            match manager {
                true => Places { manager: Some(own), donor: None },
                false => Places { manager: None, donor: Some(own) },
            }
        }
        (manager, donor) => Places { manager, donor },
    }
}

fn unknown(name: &str, meant: &[&str]) -> Failure {
    let hint = match meant {
        [] => "`potluck set` lists all settings".to_owned(),
        meant => format!("did you mean {}? `potluck set` lists all settings", meant.join(" or ")),
    };
    let what = format!("there is no setting “{name}”");
    Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what).hint(hint)
}

/// Returns the lent directory that the user means: the `wanted` one, or the only one.
pub(super) fn one_of(file: &SettingsFile, wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    let lent = file.lent();
    let shown = lent.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
    let refused = |what: String, hint: String| {
        Err(Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what).hint(hint))
    };
    match (wanted, lent.as_slice()) {
        (Some(dir), _) if lent.iter().any(|lent| lent == dir) => Ok(dir.to_owned()),
        (Some(dir), _) => {
            refused(format!("{} is not lent", dir.display()), format!("lent are: {shown}"))
        }
        (None, [one]) => Ok(one.clone()),
        (None, []) => refused(
            "this donor has lent nothing yet".into(),
            "start it first: potluck lend DIR".into(),
        ),
        (None, _) => refused(
            "several directories are lent".into(),
            format!("say for which one, with --dir: {shown}"),
        ),
    }
}

/// A setting with its present value.
#[derive(Debug, Serialize)]
struct Setting {
    key: &'static str,
    /// The value that holds; `null` if the daemon determines it by itself.
    value: Option<String>,
    /// Whether the settings file sets it.
    set: bool,
    default: &'static str,
    /// The lent directory that the setting is for, if each has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<PathBuf>,
    applies: &'static str,
    meaning: &'static str,
    file: PathBuf,
}

#[derive(Debug, Serialize)]
struct Shown {
    settings: Vec<Setting>,
}

/// The outcome of a change of a setting.
#[derive(Debug, Serialize)]
struct Changed {
    key: &'static str,
    /// The value that was set; `null` if the default holds again.
    value: Option<String>,
    file: PathBuf,
    /// Whether the key's daemon runs.
    running: bool,
    applies: &'static str,
}

fn show(places: &Places, wanted: impl Fn(&'static Key) -> bool) -> Result<Shown, Failure> {
    let mut settings = Vec::new();
    for daemon in [Daemon::Manager, Daemon::Donor] {
        let Some(dir) = places.dir(daemon) else { continue };
        let file = SettingsFile::read(daemon, dir)?;
        for key in keys::of(daemon).filter(|key| wanted(key)) {
            let setting = |dir: Option<PathBuf>| {
                let set = match &dir {
                    Some(dir) => file.lent_set_to(dir, key),
                    None => file.set_to(key),
                };
                Setting {
                    key: key.full,
                    set: set.is_some(),
                    value: set.or_else(|| crate::settings_file::default_of(key)),
                    default: key.default(),
                    dir,
                    applies: key.applies.words(),
                    meaning: key.meaning,
                    file: file.path().to_owned(),
                }
            };
            match key.per_dir {
                true if !file.lent().is_empty() => {
                    settings.extend(file.lent().into_iter().map(|dir| setting(Some(dir))));
                }
                _ => settings.push(setting(None)),
            }
        }
    }
    Ok(Shown { settings })
}

fn table(shown: &Shown) -> String {
    let mut text = String::new();
    let mut file: Option<&Path> = None;
    for setting in &shown.settings {
        if file != Some(&setting.file) {
            file = Some(&setting.file);
            text += &format!("{}:\n", setting.file.display());
        }
        let value = setting.value.as_deref().unwrap_or("-");
        let dir =
            setting.dir.as_ref().map_or(String::new(), |dir| format!(" of {}", dir.display()));
        let origin = match setting.set {
            true => format!("set; default: {}", setting.default),
            false if setting.value.is_some() => "default".to_owned(),
            false => format!("default: {}", setting.default),
        };
        text += &format!("  {}{dir} = {value}  ({origin})\n      {}", setting.key, setting.meaning);
        text += match setting.applies == Applies::AtRestart.words() {
            true => ". Changes apply at the next start\n",
            false => "\n",
        };
    }
    text
}

fn sentence(changed: &Changed, who: &str) -> String {
    let now = match &changed.value {
        Some(value) => format!("{} is {value}", changed.key),
        None => format!("{} is its default again", changed.key),
    };
    let when = match (changed.running, changed.applies == Applies::AtRestart.words()) {
        (true, false) => format!("the running {who} goes by it"),
        (true, true) => format!("the running {who} goes by it once it is started again"),
        (false, _) => format!("no {who} runs; the next start goes by it"),
    };
    format!("{now}; {when}")
}
