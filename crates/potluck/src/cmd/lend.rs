//! `potluck lend`: runs the donors of this machine's lent directories.

pub mod bill;
pub mod calibrate;
mod further;
mod lent;
pub mod measured_impact;
pub mod owner;
mod process;
mod state_files;
pub mod status;
mod traffic;

use super::Ending;
use super::join;
use crate::args::{Given, LendArgs};
use crate::command_settings::{self, CommandSettings};
use crate::keys::{self, Daemon};
use crate::output::Output;
use crate::running::Running;
use crate::settings_file::SettingsFile;
use crate::{ready, signals};
pub use further::{OwnDonor, daemon_of, donors_of, forget, lend_no_more, state_of, states};
use lent::LentStarted;
pub use lent::{Lent, own_dir};
use potluck_core::governor::{GovernorTerms, Slowdown};
use potluck_core::ids::DonorId;
use potluck_core::owner_limits::{KeepFree, Limits};
use potluck_core::size::{format_size, parse_size};
use potluck_donor::{Claiming, DonorConfig, DonorError, Owner, StoreError};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::mdns::{self, Announced};
pub use state_files::{STATES, remove_state};
use std::path::{Path, PathBuf};
pub use traffic::FILE as TRAFFIC;

/// The most bytes that are lent of a directory by default.
const DEFAULT_MAX: u64 = 500 << 30;

pub async fn run(
    args: LendArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    if args.add {
        return further::add(&args, settings, output).await;
    }
    let (stopped, hangups) = signals::daemon_signals();
    let state = absolute(&args.state.unwrap_or_else(|| settings.donor_dir()))?;
    if let Some(file) = &args.token_file {
        let token = join::token_in(file).await?;
        join::donor(&token, args.name, &state).await?;
    }
    let identity = CommandSettings::donor_identity(&state)?;
    let claiming = match (args.adopt_store, args.new_store) {
        (true, _) => Claiming::Adopt,
        (_, true) => Claiming::Anew,
        _ => Claiming::Own,
    };
    let asked =
        LendAsked { given: &args.given, dirs: &args.dirs, claiming, place: LendPlace::default() };
    let pool = identity.pool();
    let lent = start(asked, state, identity, output).await?;
    let address = lent.address();
    // This process announces only its donor; a manager announces itself.
    let _announcing = address.map(|address| mdns::announce(Announced::Donor, pool, address));
    if let Some(address) = address {
        ready::announce(args.ready_file.as_deref(), address)?;
    }
    lent.run(output, stopped, hangups, || None).await?;
    Ok(Ending::Done)
}

/// Makes a path absolute, because the working directory of a daemon means nothing to the user.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let what = format!("“{}” names no directory: {error}", path.display());
        Failure::new(ErrorKind::Usage, code::LOCAL_IO, what).hint("name the directory to lend")
    })
}

/// Defaults for where a donor listens and how others reach it, for what its settings leave open.
#[derive(Debug, Clone, Default)]
pub struct LendPlace {
    /// The address to listen at ([`DonorConfig::listen`]).
    pub listen: Option<String>,
    /// The addresses that others are told ([`DonorConfig::advertise`]).
    pub advertise: Vec<String>,
}

/// The settings that all donors of one process share.
#[derive(Debug)]
pub struct Machine {
    /// The label of the donors if several directories are lent and the settings give none: the donors fail together.
    name: String,
    place: LendPlace,
}

impl LendPlace {
    fn under(&self, file: &SettingsFile, config: DonorConfig) -> DonorConfig {
        let set = file.set_to(keys::key("lend.listen"));
        let listen = set.or_else(|| self.listen.clone()).unwrap_or(config.listen);
        let said = config.advertise;
        let advertise = if said.is_empty() { self.advertise.clone() } else { said };
        DonorConfig { listen, advertise, ..config }
    }
}

/// The directories that the command line tells a daemon to lend, and the terms.
pub struct LendAsked<'a, O> {
    /// The terms that the command line gives.
    pub given: &'a Given<O>,
    /// The directories to lend besides those that were lent before.
    pub dirs: &'a [PathBuf],
    /// How the daemon's own donor takes its store.
    pub claiming: Claiming,
    pub place: LendPlace,
}

impl<O> LendAsked<'_, O> {
    /// Puts the directories and terms into the settings. `own` is the directory that the daemon's own donor lends, and
    /// `before` the one that it lent before.
    fn put_into(
        &self,
        file: &mut SettingsFile,
        before: Option<&Path>,
        own: &Path,
        dirs: &[PathBuf],
    ) {
        // The store of the daemon's own donor may have moved to another directory, which keeps its terms.
        match before {
            Some(before) if before != own => file.lend_instead(before, own),
            _ => file.lend(own),
        }
        dirs.iter().for_each(|dir| file.lend(dir));
        let own = [own.to_owned()];
        self.given.put_into_of(file, if dirs.is_empty() { &own } else { dirs });
    }
}

/// Starts the donors of all directories; [`Lent::run`] tells the user what is lent. What was asked for is kept in
/// the settings. If some directories cannot be lent now, the user is told, and they are tried again when the
/// settings are read again.
///
/// Errors: no directory can be lent.
pub async fn start<O>(
    asked: LendAsked<'_, O>,
    state: PathBuf,
    identity: Identity,
    output: &Output,
) -> Result<Lent, Failure> {
    let mut file = SettingsFile::read(Daemon::Donor, &state)?;
    let dirs = asked.dirs.iter().map(|dir| absolute(dir)).collect::<Result<Vec<_>, _>>()?;
    let before = own_dir(&file, &state);
    let known = file.lent();
    let own = match &before {
        Some(before) if dirs.is_empty() || dirs.contains(before) => Some(before),
        _ => dirs.iter().find(|dir| !known.contains(dir)).or(before.as_ref()),
    };
    let Some(own) = own.cloned() else {
        let what = "nothing is lent: no directory was named, and none is in the settings";
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("name the directory to lend: potluck lend DIR"));
    };
    let put = |file: &mut SettingsFile| asked.put_into(file, before.as_deref(), &own, &dirs);
    put(&mut file);
    if !file.is_on("lend.mdns") {
        mdns::switch_off();
    }
    let name = format!("{} ({})", identity.about.name, identity.about.member);
    let machine = Machine { name, place: asked.place.clone() };
    let first = LentStarted::begin(&file, &own, &state, asked.claiming, &identity, &machine).await;
    let moved = before.as_ref().is_some_and(|before| *before != own);
    let first = match first {
        // The settings are not written yet, and still name the earlier directory.
        Err(why) if moved => {
            let hint =
                format!("to lend it beside the others: potluck lend --add {}", own.display());
            return Err(if why.hint.is_empty() { why.hint(hint) } else { why });
        }
        // If this is the only directory, nothing can be lent.
        Err(why) if file.lent().len() == 1 => return Err(why),
        first => first,
    };
    let running = Running::take(Daemon::Donor, &state).await?;
    let kept = SettingsFile::edit(Daemon::Donor, &state, |file| {
        put(file);
        Ok(())
    });
    if let Err(why) = kept {
        tracing::warn!("what was given on the command line holds for this start only: {why}");
    }
    let pool = identity.about.pool.clone();
    let mut lent = Lent::new(state, identity, machine, running, owner::rules(&file));
    let mut failed = Vec::new();
    match first {
        Ok(started) => {
            let terms = lent.begun(&file, &own, started)?;
            lent.say_next(&terms);
        }
        Err(why) => failed.push((own.clone(), why)),
    }
    for dir in file.lent().into_iter().filter(|dir| *dir != own) {
        match lent.begin(&mut file, &dir, false).await {
            Ok(terms) => lent.say_next(&terms),
            Err(why) => failed.push((dir, why)),
        }
    }
    if lent.address().is_none() {
        let (_, why) = failed.swap_remove(0);
        return Err(why);
    }
    lent.settings_fault(failed.first().map(|(dir, why)| lent::not_lent(dir, why)));
    lent.sharing().iter().for_each(|warning| output.note(warning));
    for (dir, why) in failed {
        let dir = dir.display();
        tracing::error!("{dir} is not lent: {why}. {}", why.hint);
        output.note(&format!(
            "warning: {dir} is not lent to pool {pool}: {why}; mend that and run \
             `kill -HUP {}`, or start this again",
            std::process::id()
        ));
    }
    Ok(lent)
}

/// Returns the configuration of the donor that lends `dir`, whose store takes `used` bytes.
///
/// Errors: terms on which nothing could ever be lent.
fn config(
    file: &SettingsFile,
    dir: &Path,
    state: &Path,
    used: u64,
    machine: &str,
) -> Result<DonorConfig, Failure> {
    let several = file.lent().len() > 1;
    let default = DonorConfig::new(dir.to_owned(), state.to_owned(), limits(file, dir, used)?);
    let slowdown = slowdown(file);
    let measured = measured_impact::read(daemon_of(state).unwrap_or(state));
    Ok(DonorConfig {
        listen: file.text_of("lend.listen").unwrap_or(default.listen),
        advertise: command_settings::list(file.text_of("lend.advertise")),
        // Disks of one machine share a label, so that copies of a chunk on two of them count as one.
        label: file.text_of("lend.label").or_else(|| several.then(|| machine.to_owned())),
        grace: file.time("lend.away"),
        scrub_every: file.time("lend.scrub-every").unwrap_or(default.scrub_every),
        governor: GovernorTerms {
            slowdown,
            floor: file.size("lend.least-rate").unwrap_or(default.governor.floor),
            ceilings: measured
                .zip(slowdown)
                .map(|(it, most)| it.ceilings(most))
                .unwrap_or_default(),
        },
        metrics_open: file.is_on("lend.metrics-open"),
        ..default
    })
}

/// Returns the share of its speed that an owner's program may lose; `None` if the donor never yields.
pub fn slowdown(file: &SettingsFile) -> Option<f64> {
    let set = file.parsed("lend.slowdown");
    set.map_or(GovernorTerms::default().slowdown, |Slowdown(share)| share)
}

/// Returns how much of the disk of `dir` is lent; by default a quarter of the space that is free or taken by the store
/// (`used`), up to [`DEFAULT_MAX`].
fn limits(file: &SettingsFile, dir: &Path, used: u64) -> Result<Limits, Failure> {
    let disk = disk_of(dir)?;
    let set_to = |full| file.lent_text_of(dir, full);
    let max = set_to("lend.max").and_then(|text| parse_size(&text).ok());
    let keep_free = set_to("lend.keep-free").and_then(|text| text.parse().ok());
    let keep_free = keep_free.unwrap_or(KeepFree::Percent(0.0));
    if keep_free.floor(disk.total) >= disk.total {
        let (dir, total) = (dir.display(), format_size(disk.total));
        let what =
            format!("keep-free {keep_free} leaves nothing to lend: the disk of {dir} has {total}");
        return Err(Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what)
            .hint("keep less free, or mount the disk if another one belongs there"));
    }
    let max = max.unwrap_or_else(|| rounded(((disk.free + used) / 4).min(DEFAULT_MAX)));
    Ok(Limits { max, keep_free })
}

/// Refuses terms on which nothing could ever be lent of `dir`.
pub fn check_terms(file: &SettingsFile, dir: &Path) -> Result<(), Failure> {
    limits(file, dir, 0).map(drop)
}

/// Rounds down to whole KiB, MiB, GiB or TiB: the largest of these units of which there are at least ten.
fn rounded(bytes: u64) -> u64 {
    let step = [40, 30, 20, 10].map(|unit| 1 << unit).into_iter().find(|unit| bytes >= 10 * unit);
    step.map_or(bytes, |unit: u64| bytes / unit * unit)
}

/// The size of a file system in bytes.
struct DiskSize {
    total: u64,
    free: u64,
}

fn disk_of(dir: &Path) -> Result<DiskSize, Failure> {
    // The directory may not exist yet. Then its file system is that of the nearest directory above that does.
    let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let about = rustix::fs::statvfs(existing).map_err(|error| {
        let what = format!("cannot look at the disk of {}: {error}", dir.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("name a directory of this machine")
    })?;
    let bytes = |blocks: u64| blocks * about.f_frsize;
    Ok(DiskSize { total: bytes(about.f_blocks), free: bytes(about.f_bavail) })
}

/// Returns the owner of the store that is lent under an identity.
pub fn owner(identity: &Identity) -> Owner {
    let about = &identity.about;
    Owner {
        pool: identity.pool(),
        donor: DonorId(about.member.0),
        pool_name: about.pool.clone(),
        name: about.name.clone(),
    }
}

/// Makes the failure of a donor that cannot start or go on.
pub fn failed(error: DonorError) -> Failure {
    use StoreError as S;
    let (kind, code) = match &error {
        DonorError::Store(S::Io { .. } | S::TooNew { .. } | S::TooOld { .. } | S::Missing(_)) => {
            (ErrorKind::Other, code::LOCAL_IO)
        }
        DonorError::Store(_) => (ErrorKind::Conflict, code::NOT_OURS),
        _ => (ErrorKind::Other, code::LOCAL_IO),
    };
    Failure::new(kind, code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn terms(line: &[&str]) -> Result<DonorConfig, String> {
        let args = [&["potluck", "lend", "/tmp"], line].concat();
        let args = Args::try_parse_from(args).map_err(|why| why.to_string())?;
        let Command::Lend(lend) = args.command else { panic!("another command") };
        let state = tempfile::tempdir().expect("a directory");
        let mut file = SettingsFile::read(Daemon::Donor, state.path()).expect("none");
        file.lend(Path::new("/tmp"));
        lend.given.put_into_of(&mut file, &["/tmp".into()]);
        let refused = |why: Failure| format!("{why}; {}", why.hint);
        config(&file, Path::new("/tmp"), state.path(), 0, "here").map_err(refused)
    }

    #[test]
    fn unusable_lending_terms_are_refused_with_advice() {
        for (line, said) in [
            (["--max", "0"], "too little"),
            (["--max", "10"], "such as 200GiB"),
            (["--keep-free", "0.1"], "10%"),
            (["--keep-free", "100%"], "leaves nothing"),
            (["--keep-free", "8000PiB"], "leaves nothing"),
            (["--label", ""], "names nothing"),
            (["--label", "  "], "names nothing"),
        ] {
            let why = terms(&line).expect_err("refused");
            assert!(why.contains(said), "{line:?}: {why}");
        }
        // Users give a cap above the disk's size to lend all of it.
        assert!(terms(&["--max", "1PiB", "--keep-free", "10%"]).is_ok());
        let labelled = terms(&["--max", "1GiB", "--label", " room-12 "]).expect("fine");
        assert_eq!(labelled.label.as_deref(), Some("room-12"));
        assert_eq!(
            terms(&["--max", "1GiB"]).expect("fine").scrub_every,
            default_of_donor().scrub_every
        );
    }

    #[test]
    fn a_default_is_what_people_would_write() {
        assert_eq!(rounded(771_701 << 10), 753 << 20);
        assert_eq!(rounded((9 << 30) + 1), 9216 << 20);
        assert_eq!(rounded((312 << 30) + 5), 312 << 30);
        assert_eq!(rounded(9 << 10), 9 << 10);
    }

    fn default_of_donor() -> DonorConfig {
        let limits = Limits { max: 0, keep_free: KeepFree::Percent(0.0) };
        DonorConfig::new("/tmp".into(), "/state".into(), limits)
    }
}
