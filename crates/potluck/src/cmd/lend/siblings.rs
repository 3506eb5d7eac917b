//! Further directories that one donor daemon lends, each by a donor of its own, with its own identity,
//! store and fate: one that cannot start, or whose disk fails, leaves the others alone.

use super::{Machine, absolute, config, failed};
use crate::args::Lend;
use crate::cmd::{Ending, join};
use crate::keys::Daemon;
use crate::output::Output;
use crate::running::{self, Told};
use crate::settings::{self, Settings};
use crate::settings_file::SettingsFile;
use potluck_donor::disk::SystemDisk;
use potluck_donor::{Controls, Donor, DonorConfig, DonorError};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Where identities of further donors are, below the first one's state.
const STATES: &str = "dirs";
/// More disks than a desktop has.
const MOST: usize = 64;

/// The donors of one process beside the first.
#[derive(Default)]
pub struct Siblings(BTreeMap<PathBuf, Sibling>);

struct Sibling {
    state: PathBuf,
    controls: Controls,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), DonorError>>,
}

impl Siblings {
    /// Lends what the settings say beside `first`: new directories are begun, others stopped or told
    /// their terms. Gives what went wrong first; the others go on.
    pub async fn follow(
        &mut self,
        file: &SettingsFile,
        first: &Path,
        machine: &Machine,
    ) -> Result<(), Failure> {
        let lent = file.lent();
        let wanted = |dir: &PathBuf| *dir != first && lent.contains(dir);
        let gone: Vec<_> = self
            .0
            .iter()
            .filter(|(dir, sibling)| !wanted(dir) || sibling.ended.is_finished())
            .map(|(dir, _)| dir.clone())
            .collect();
        for dir in gone {
            if let Some(sibling) = self.0.remove(&dir) {
                sibling.stop(&dir).await;
            }
        }
        let mut done = Ok(());
        for dir in lent.iter().filter(|dir| wanted(dir)) {
            let told = match self.0.get(dir) {
                Some(sibling) => sibling.tune(file, dir, machine),
                None => Sibling::start(file, dir, machine).await.map(|sibling| {
                    self.0.insert(dir.clone(), sibling);
                }),
            };
            done = done.and(told.inspect_err(|why| {
                tracing::error!("{} is not lent: {why}. {}", dir.display(), why.hint);
            }));
        }
        done
    }

    /// Lets all finish what they do.
    pub async fn stop(self) {
        for (dir, sibling) in self.0 {
            sibling.stop(&dir).await;
        }
    }
}

impl Sibling {
    async fn start(file: &SettingsFile, dir: &Path, machine: &Machine) -> Result<Self, Failure> {
        let state = file.lent_state(dir).ok_or_else(|| {
            let what = format!("{}: lend: state is missing", file.path().display());
            Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what)
                .hint("add a directory with: potluck lend --add DIR --token TOKEN")
        })?;
        let identity = Settings::donor_identity(&state)?;
        let caller = settings::guided(&identity, &state)?;
        let told = sibling_config(file, dir, &state, 0, machine)?;
        let lender = super::own(&identity);
        let start = Donor::start(told, lender, Env::system(), Arc::new(SystemDisk), caller);
        let donor = start.await.map_err(failed)?;
        let controls = donor.controls();
        tracing::info!(
            "lending {} as {} at {}",
            dir.display(),
            identity.about.name,
            donor.address()
        );
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(donor.run(async {
            let _ = stopped.await; // a sender that is gone means stop, too
        }));
        let sibling = Self { state, controls, stop, ended };
        sibling.tune(file, dir, machine)?;
        Ok(sibling)
    }

    fn tune(&self, file: &SettingsFile, dir: &Path, machine: &Machine) -> Result<(), Failure> {
        let config = sibling_config(file, dir, &self.state, self.controls.used(), machine)?;
        self.controls.retune(&config);
        Ok(())
    }

    async fn stop(self, dir: &Path) {
        drop(self.stop);
        match self.ended.await {
            Ok(Ok(())) => tracing::info!("{} is lent no more", dir.display()),
            Ok(Err(why)) => tracing::error!("{}: {why}", dir.display()),
            Err(why) => tracing::error!("the donor of {} failed: {why}", dir.display()),
        }
    }
}

/// The terms of a further directory: those of the daemon, at the port after the first one's.
fn sibling_config(
    file: &SettingsFile,
    dir: &Path,
    state: &Path,
    used: u64,
    machine: &Machine,
) -> Result<DonorConfig, Failure> {
    let config = config(file, dir, state, used, &machine.name)?;
    let config = machine.place.under(file, config);
    let place = file.lent().iter().position(|lent| lent == dir).unwrap_or(1).max(1) as u16;
    let port_of = |address: &str| {
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse::<u16>().ok()?;
        // At port 0 the system picks one.
        Some((host.to_owned(), if port == 0 { 0 } else { port.saturating_add(place) }))
    };
    let moved = |address: String| match port_of(&address) {
        Some((host, port)) => format!("{host}:{port}"),
        None => address,
    };
    Ok(DonorConfig {
        listen: moved(config.listen),
        advertise: config.advertise.into_iter().map(moved).collect(),
        ..config
    })
}

/// `potluck lend --add`: one more directory, with a token for its donor.
pub async fn add(args: &Lend, settings: &Settings, output: &Output) -> Result<Ending, Failure> {
    let (state, dir) = place(args, settings)?;
    let first = Settings::donor_identity(&state)?;
    let refused = |what: String, hint: &str| {
        Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint))
    };
    let file = SettingsFile::read(Daemon::Donor, &state)?;
    let known = file.lent();
    if known.is_empty() {
        let what = "this donor has lent nothing yet, so there is nothing to add to".to_owned();
        return refused(what, "begin with: potluck lend DIR");
    }
    if known.contains(&dir) {
        return refused(
            format!("{} is lent already", dir.display()),
            "`potluck set` shows its terms",
        );
    }
    let free = (2..=MOST).find(|number| {
        let own = state.join(STATES).join(number.to_string());
        !known.iter().any(|lent| file.lent_state(lent).as_deref() == Some(&own))
            && !potluck_wire::identity::Identity::exists(&own)
    });
    let Some(number) = free else {
        return refused(format!("a machine lends at most {MOST} directories"), "lend larger ones");
    };
    let own = state.join(STATES).join(number.to_string());
    let Some(token) = &args.token else {
        let what = "each lent directory has a donor of its own, which needs a token".to_owned();
        return refused(
            what,
            "ask an admin for one (`potluck invite --role donor`), and add --token TOKEN",
        );
    };
    let name = args.name.clone().unwrap_or_else(|| format!("{}-{number}", first.about.name));
    join::donor(token, Some(name), &own).await?;
    let joined = Settings::donor_identity(&own)?;
    if joined.pool() != first.pool() {
        let what = format!(
            "the token is of another pool than {}, to which this machine lends",
            first.about.pool
        );
        let _ = std::fs::remove_dir_all(&own);
        return refused(
            what,
            "lend to it with a daemon of its own: potluck lend DIR --state OTHER",
        );
    }
    SettingsFile::edit(Daemon::Donor, &state, |file| {
        file.lend(&dir);
        file.set_lent_state(&dir, &own);
        args.given.put_into_of(file, std::slice::from_ref(&dir));
        Ok(())
    })?;
    let told = running::reload(&state).await;
    let name = &joined.about.name;
    match told {
        Told::Took => output.note(&format!("{} is lent now, as donor {name}", dir.display())),
        Told::Nobody => output
            .note(&format!("{} is lent, as donor {name}, once `potluck lend` runs", dir.display())),
        Told::Refused(why) | Told::Unheard(why) => {
            let what = format!("{} is in the settings and is not lent yet: {why}", dir.display());
            return Err(Failure::new(ErrorKind::Other, code::BAD_SETTINGS, what).hint(
                "mend what is said and send the donor a hangup, or take it out again with --remove",
            ));
        }
    }
    Ok(Ending::Done)
}

/// `potluck lend --remove`: one directory less. What it holds must have been given back.
pub async fn remove(args: &Lend, settings: &Settings, output: &Output) -> Result<Ending, Failure> {
    let (state, dir) = place(args, settings)?;
    let file = SettingsFile::read(Daemon::Donor, &state)?;
    let Some(own) = file.lent_state(&dir) else {
        let lent = file.lent().contains(&dir);
        let what = match lent {
            true => format!("{} is the directory this donor began with", dir.display()),
            false => format!("{} is not lent", dir.display()),
        };
        let hint = match lent {
            true => "it ends with the donor: `potluck leave`",
            false => "`potluck set lend.max` shows the lent directories",
        };
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint));
    };
    let chunks = chunks_in(&dir);
    if chunks > 0 {
        let what = format!("{} still holds {chunks} chunks of the pool", dir.display());
        let give_back = format!("potluck give-back --all --state {}", own.display());
        return Err(Failure::new(ErrorKind::Conflict, code::NOT_EMPTY, what)
            .hint(format!("give it back first: {give_back}")));
    }
    SettingsFile::edit(Daemon::Donor, &state, |file| {
        file.lend_no_more(&dir);
        Ok(())
    })?;
    match running::reload(&state).await {
        Told::Took | Told::Nobody => {}
        Told::Refused(why) | Told::Unheard(why) => tracing::warn!("the running donor: {why}"),
    }
    output.note(&format!(
        "{} is lent no more; its donor's identity is in {}, and an admin removes it from the pool with \
         `potluck nodes rm`",
        dir.display(),
        own.display()
    ));
    Ok(Ending::Done)
}

fn place(args: &Lend, settings: &Settings) -> Result<(PathBuf, PathBuf), Failure> {
    let state = absolute(&args.state.clone().unwrap_or_else(|| settings.donor_dir()))?;
    let dir = args.dir.as_deref().ok_or_else(|| {
        Failure::new(ErrorKind::Usage, code::BAD_REQUEST, "no directory was named")
            .hint("potluck lend --add DIR --token TOKEN, or potluck lend --remove DIR")
    })?;
    Ok((state, absolute(dir)?))
}

/// Chunk files of a store; none where there is no store, such as on a disk that is gone for good.
fn chunks_in(dir: &Path) -> usize {
    let chunks = walkdir::WalkDir::new(dir.join("chunks")).into_iter().flatten();
    chunks.filter(|entry| entry.file_type().is_file()).count()
}
