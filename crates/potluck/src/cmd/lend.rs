//! `potluck lend`: the donor.

mod siblings;

use super::Ending;
use super::join;
use crate::args::{Given, Lend};
use crate::keys::{self, Daemon};
use crate::output::Output;
use crate::ready;
use crate::running::{Running, tell_reloaded};
use crate::settings::{self, Settings};
use crate::settings_file::SettingsFile;
use potluck_core::budget::{KeepFree, Limits};
use potluck_core::ids::DonorId;
use potluck_core::size::{exact_size, format_size, parse_size};
use potluck_donor::disk::SystemDisk;
use potluck_donor::{
    Claiming, Controls, Donor, DonorConfig, DonorError, Lender, Owner, StoreError,
};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::mdns::{self, Announced};
use siblings::Siblings;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Never lend more than this unless told to.
const DEFAULT_MAX: u64 = 500 << 30;

pub async fn run(args: Lend, settings: &Settings, output: &Output) -> Result<Ending, Failure> {
    if args.add {
        return siblings::add(&args, settings, output).await;
    }
    if args.remove {
        return siblings::remove(&args, settings, output).await;
    }
    let (stopped, hangups) = ready::daemon_signals();
    let state = absolute(&args.state.unwrap_or_else(|| settings.donor_dir()))?;
    if let Some(token) = &args.token {
        join::donor(token, args.name, &state).await?;
    }
    let identity = Settings::donor_identity(&state)?;
    let claiming = match (args.adopt_store, args.new_store) {
        (true, _) => Claiming::Adopt,
        (_, true) => Claiming::Anew,
        _ => Claiming::Own,
    };
    let (donor, mut tuning) = start(
        &args.given,
        args.dir.as_deref(),
        claiming,
        state,
        Place::default(),
        &identity,
        output,
    )
    .await?;
    // A manager beside it would announce itself.
    let _announcing = mdns::announce(Announced::Donor, identity.pool(), donor.address());
    ready::announce(args.ready_file.as_deref(), donor.address())?;
    let ended = tokio::select! {
        ended = donor.run(stopped) => ended,
        ended = hangups.each(async || tell_reloaded([tuning.reload().await])) => ended,
    };
    tuning.stop().await;
    ended.map_err(failed)?;
    Ok(Ending::Done)
}

/// The path from the root: a daemon's working directory means nothing.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let what = format!("“{}” names no directory: {error}", path.display());
        Failure::new(ErrorKind::Usage, code::LOCAL_IO, what).hint("name the directory to lend")
    })
}

/// Has a running donor go by its settings file.
pub struct Tuning {
    state: PathBuf,
    dir: PathBuf,
    controls: Controls,
    running: Running,
    machine: Machine,
    siblings: Siblings,
}

impl Tuning {
    /// Reads the settings again: other terms, and directories that are lent beside the first.
    pub async fn reload(&mut self) -> Result<(), Failure> {
        let done = match SettingsFile::read(Daemon::Donor, &self.state) {
            Ok(file) => self.follow(&file).await,
            Err(why) => Err(why),
        };
        self.running.reloaded(done)
    }

    async fn follow(&mut self, file: &SettingsFile) -> Result<(), Failure> {
        let used = self.controls.used();
        let config = config(file, &self.dir, &self.state, used, &self.machine.name)?;
        self.controls.retune(&config);
        self.siblings.follow(file, &self.dir, &self.machine).await
    }

    /// Lets the donors of further directories finish what they do.
    pub async fn stop(self) {
        self.siblings.stop().await;
    }
}

/// Lends as `identity` what that lent before.
fn own(identity: &Identity) -> Lender {
    Lender { owner: owner(identity), claiming: Claiming::Own }
}

/// Where a donor listens and how others reach it, as far as its settings do not say.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// As [`DonorConfig::listen`].
    pub listen: Option<String>,
    /// As [`DonorConfig::advertise`].
    pub advertise: Vec<String>,
}

/// What all donors of one process share.
#[derive(Debug)]
struct Machine {
    /// What fails together where several directories are lent.
    name: String,
    place: Place,
}

impl Place {
    fn under(&self, file: &SettingsFile, config: DonorConfig) -> DonorConfig {
        let set = file.set_to(keys::key("lend.listen"));
        let listen = set.or_else(|| self.listen.clone()).unwrap_or(config.listen);
        let said = config.advertise;
        let advertise = if said.is_empty() { self.advertise.clone() } else { said };
        DonorConfig { listen, advertise, ..config }
    }
}

/// Starts a donor and says what it lends. What it was told is kept in its settings file, with how much
/// is lent at most, which would be less at the next start for what is stored until then.
pub async fn start<O>(
    given: &Given<O>,
    dir: Option<&Path>,
    claiming: Claiming,
    state: PathBuf,
    place: Place,
    identity: &Identity,
    output: &Output,
) -> Result<(Donor, Tuning), Failure> {
    let mut file = SettingsFile::read(Daemon::Donor, &state)?;
    // Those with a state of their own are lent beside it.
    let known = file.lent().into_iter().find(|lent| file.lent_state(lent).is_none());
    let dir = match (dir.map(absolute).transpose()?, known) {
        (Some(dir), _) => dir,
        (None, Some(known)) => known,
        (None, None) => {
            let what = "nothing is lent: no directory was named, and none is in the settings";
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("name the directory to lend: potluck lend DIR --max 200GiB"));
        }
    };
    let put = |file: &mut SettingsFile| {
        // The store this daemon began with may have moved; those lent beside it stay.
        for lent in file.lent() {
            if lent != dir && file.lent_state(&lent).is_none() {
                file.lend_no_more(&lent);
            }
        }
        file.lend(&dir);
        given.put_into_of(file, std::slice::from_ref(&dir));
    };
    put(&mut file);
    if !file.is_on("lend.mdns") {
        mdns::switch_off();
    }
    let name = format!("{} ({})", identity.about.name, identity.about.member);
    let machine = Machine { name, place };
    let config = machine.place.under(&file, config(&file, &dir, &state, 0, &machine.name)?);
    let caller = settings::guided(identity, &state)?;
    let lender = Lender { owner: owner(identity), claiming };
    let start = Donor::start(config, lender, Env::system(), Arc::new(SystemDisk), caller);
    let donor = start.await.map_err(failed)?;
    let mut running = Running::take(Daemon::Donor, &state).await?;
    let controls = donor.controls();
    let limits = limits(&file, &dir, controls.used())?;
    let keep = |file: &mut SettingsFile| {
        put(file);
        file.set_lent(&dir, keys::key("lend.max"), Some(&exact_size(limits.max)));
    };
    keep(&mut file);
    let kept = SettingsFile::edit(Daemon::Donor, &state, |file| {
        keep(file);
        Ok(())
    });
    if let Err(why) = kept {
        tracing::warn!("what was given on the command line holds for this start only: {why}");
    }
    running.serves(donor.address());
    let siblings = Siblings::default();
    let mut tuning = Tuning { state, dir, controls, running, machine, siblings };
    // A further directory that cannot be lent now was logged, and holds up nothing.
    let _ = tuning.follow(&file).await;
    output.note(&format!(
        "lending up to {} in {} to pool {}, always leaving {} of the disk free; {} can be stored now; \
         at {}",
        format_size(limits.max),
        tuning.dir.display(),
        identity.about.pool,
        limits.keep_free,
        format_size(donor.room()),
        donor.told(),
    ));
    if donor.room() == 0 {
        output.note(
            "warning: nothing more can be stored there now: make room on the disk, or lend on \
             other terms (--max, --keep-free)",
        );
    }
    Ok((donor, tuning))
}

/// A donor that lends `dir`, whose store takes `used` bytes, as its settings say.
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
    Ok(DonorConfig {
        listen: file.text_of("lend.listen").unwrap_or(default.listen),
        advertise: settings::list(file.text_of("lend.advertise")),
        // Disks of one machine fail together: no copy is counted twice there.
        label: file.text_of("lend.label").or_else(|| several.then(|| machine.to_owned())),
        grace: file.time("lend.away"),
        scrub_every: file.time("lend.scrub-every").unwrap_or(default.scrub_every),
        ..default
    })
}

/// How much of the disk of `dir` is lent; by default a quarter of what its owner does not use.
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
    let max = max.unwrap_or_else(|| ((disk.free + used) / 4).min(DEFAULT_MAX));
    Ok(Limits { max, keep_free })
}

/// A disk in bytes.
struct DiskSize {
    total: u64,
    free: u64,
}

fn disk_of(dir: &Path) -> Result<DiskSize, Failure> {
    // The directory may not be made yet; its file system is that of the nearest one that is.
    let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let about = rustix::fs::statvfs(existing).map_err(|error| {
        let what = format!("cannot look at the disk of {}: {error}", dir.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("name a directory of this machine")
    })?;
    let bytes = |blocks: u64| blocks * about.f_frsize;
    Ok(DiskSize { total: bytes(about.f_blocks), free: bytes(about.f_bavail) })
}

/// The owner of what is lent under an identity.
pub fn owner(identity: &Identity) -> Owner {
    let about = &identity.about;
    Owner {
        pool: identity.pool(),
        donor: DonorId(about.member.0),
        pool_name: about.pool.clone(),
        name: about.name.clone(),
    }
}

/// A donor that cannot go on.
pub fn failed(error: DonorError) -> Failure {
    use StoreError as S;
    let (kind, code) = match &error {
        DonorError::Store(S::Io { .. } | S::TooNew { .. } | S::Missing(_)) => {
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
    fn terms_on_which_nothing_could_be_lent_are_refused_with_what_to_write_instead() {
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
        // A cap above the disk's size is how people say “all of it”.
        assert!(terms(&["--max", "1PiB", "--keep-free", "10%"]).is_ok());
        let labelled = terms(&["--max", "1GiB", "--label", " room-12 "]).expect("fine");
        assert_eq!(labelled.label.as_deref(), Some("room-12"));
        assert_eq!(
            terms(&["--max", "1GiB"]).expect("fine").scrub_every,
            default_of_donor().scrub_every
        );
    }

    fn default_of_donor() -> DonorConfig {
        let limits = Limits { max: 0, keep_free: KeepFree::Percent(0.0) };
        DonorConfig::new("/tmp".into(), "/state".into(), limits)
    }
}
