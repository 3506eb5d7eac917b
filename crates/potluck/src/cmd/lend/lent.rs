//! The directories that one daemon lends. Each is lent by a donor of its own, with its own identity and store. A
//! donor that cannot start, or whose disk fails, does not affect the others.
//!
//! The daemon's own donor has joined with a token. The daemon enrols the donors of further directories by
//! itself: the pool lets a donor invite other donors, which count as one machine with it.

use super::bill::{Bill, LendingCounts};
use super::owner::{self as owner_rules, OwnerWatch};
use super::state_files::{STATES, remove_state};
use super::traffic::{DirTraffic, TrafficNotes};
use super::{LendPlace, Machine, config, disk_of, failed, owner};
use crate::cmd::join;
use crate::command_settings::CommandSettings;
use crate::keys::{self, Daemon};
use crate::output::Output;
use crate::running::{Running, tell_reloaded};
use crate::settings_file::SettingsFile;
use crate::signals::Hangups;
use potluck_config::own_pools;
use potluck_core::cost_history::Visits;
use potluck_core::owner_rules::{InForce, OwnerRules};
use potluck_core::size::{exact_size, format_size};
use potluck_donor::disk::SystemDisk;
use potluck_donor::{Claiming, Donor, DonorConfig, DonorControls, DonorError, Lender};
use potluck_wire::control::{Invite, Leave};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::token::{JoinToken, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};

/// The most directories that a daemon lends: more than a desktop has disks.
const MOST: u16 = 64;
/// How long a change of settings waits for the manager to be told of it.
const TELLING: Duration = Duration::from_secs(3);
/// The time after which a starting daemon tells the user what it lends, even if the manager does not answer.
const GREETING: Duration = Duration::from_secs(10);
/// The validity in seconds of a token that the daemon asks for and uses at once.
const TOKEN_SECONDS: u64 = 60;

/// The directories that a daemon lends.
pub struct Lent {
    /// The daemon's own state directory, with the identity of its own donor.
    state: PathBuf,
    identity: Identity,
    machine: Machine,
    running: Running,
    donors: BTreeMap<PathBuf, Lending>,
    ends: JoinSet<Result<(), DonorError>>,
    /// What the owner's rules come to.
    owner: OwnerWatch,
    /// The notes for the user who changed the settings.
    notes: Vec<String>,
    /// The messages for the user who started the daemon. They are shown once the manager has heard of the donors, so
    /// that the next command can count on them.
    greetings: Vec<String>,
}

/// The donor of one directory.
struct Lending {
    state: PathBuf,
    controls: DonorControls,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: Id,
}

/// A donor that was started.
pub struct LentStarted {
    donor: Donor,
    state: PathBuf,
}

impl LentStarted {
    /// Begins to lend `dir` with the donor whose state is in `state`.
    pub async fn begin(
        file: &SettingsFile,
        dir: &Path,
        state: &Path,
        claiming: Claiming,
        identity: &Identity,
        machine: &Machine,
    ) -> Result<Self, Failure> {
        let config = terms(file, dir, state, 0, machine)?;
        let caller = own_pools::guided(identity, state)?;
        let lender = Lender { owner: owner(identity), claiming };
        let start = Donor::start(config, lender, Env::system(), Arc::new(SystemDisk), caller);
        let donor = start.await.map_err(failed)?;
        Ok(Self { donor, state: state.to_owned() })
    }
}

impl Lent {
    pub fn new(
        state: PathBuf,
        identity: Identity,
        machine: Machine,
        running: Running,
        rules: OwnerRules,
    ) -> Self {
        let (donors, ends, notes, greetings) = Default::default();
        let owner = OwnerWatch::new(rules);
        Self { state, identity, machine, running, donors, ends, owner, notes, greetings }
    }

    /// Has all donors do what the owner's rules come to now.
    fn follow_owner(&self) {
        let all = self.donors.len();
        self.donors.values().for_each(|lending| self.lend_as_told(&lending.controls, all));
    }

    /// Has a donor do what the owner's rules come to now. All donors of the machine together keep to its bandwidth.
    fn lend_as_told(&self, controls: &DonorControls, donors: usize) {
        let (InForce { mode, bandwidth, .. }, left) = self.owner.in_force();
        controls.lend_in(mode, bandwidth.part(donors), left);
    }

    /// Returns the address of the daemon's own donor, or else of another one; `None` while none runs.
    pub fn address(&self) -> Option<SocketAddr> {
        self.first().map(|lending| lending.address)
    }

    fn first(&self) -> Option<&Lending> {
        let own = self.donors.values().find(|lending| lending.state == self.state);
        own.or_else(|| self.donors.values().next())
    }

    /// Has the pool's status show why the settings, or a part of them, cannot be used; with `None` that they can.
    pub fn settings_fault(&self, why: Option<String>) {
        self.donors.values().for_each(|lending| lending.controls.settings_fault(None));
        if let Some(first) = self.first() {
            first.controls.settings_fault(why);
        }
    }

    /// Returns a warning for each file system of which several directories are lent that together count more free
    /// space than it has.
    pub fn sharing(&self) -> Vec<String> {
        let mut systems: BTreeMap<u64, Vec<(&Path, &Lending)>> = BTreeMap::new();
        for (dir, lending) in &self.donors {
            if let Ok(about) = std::fs::metadata(dir) {
                systems.entry(about.dev()).or_default().push((dir, lending));
            }
        }
        let several = systems.into_values().filter(|lent| lent.len() > 1);
        several.filter_map(|lent| shared_room(&lent)).collect()
    }

    fn add(&mut self, dir: &Path, started: LentStarted) {
        let LentStarted { donor, state } = started;
        let (controls, address) = (donor.controls(), donor.address());
        self.lend_as_told(&controls, self.donors.len() + 1);
        let (stop, stopped) = oneshot::channel();
        let ends = donor.run(async {
            let _ = stopped.await; // a dropped sender means stop as well
        });
        let task = self.ends.spawn(ends).id();
        self.donors.insert(dir.to_owned(), Lending { state, controls, address, stop, task });
        self.follow_owner();
        if let Some(address) = self.address() {
            self.running.serves(address);
        }
    }

    /// Adds a message for the user who started the daemon, to be shown after those before it.
    pub fn say_next(&mut self, text: &str) {
        self.greetings.push(text.into());
    }

    /// Lends until `stopped` completes, or until no donor is left. At each hangup the settings are read again, and
    /// `reload` does the same for another daemon in this process.
    pub async fn run(
        mut self,
        output: &Output,
        stopped: impl Future<Output = ()>,
        mut hangups: Hangups,
        mut reload: impl FnMut() -> Option<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut stopped = pin!(stopped);
        let mut heard = pin!(tokio::time::timeout(GREETING, self.heard()));
        let mut noted = TrafficNotes::new(&self.state);
        let mut bill = Bill::new(&self.state);
        let ended = loop {
            tokio::select! {
                () = noted.pause() => noted.note(self.traffic()),
                () = bill.pause() => bill.note(self.counted()),
                () = self.owner.pause() => {
                    if self.owner.look() {
                        self.follow_owner();
                    }
                }
                () = &mut stopped => break Ok(()),
                heard = &mut heard, if !self.greetings.is_empty() => self.greet(output, heard.is_ok()),
                () = hangups.next() => {
                    let beside = reload();
                    let own = self.reload().await;
                    tell_reloaded(beside.into_iter().chain([own]));
                    heard.set(tokio::time::timeout(GREETING, self.heard()));
                }
                Some((dir, ended)) = self.next_end() => {
                    if self.donors.is_empty() {
                        break ended;
                    }
                    tell_end(&dir, ended);
                    heard.set(tokio::time::timeout(GREETING, self.heard()));
                }
            }
        };
        bill.note(self.counted());
        bill.save();
        self.donors.clear();
        while let Some(one) = self.ends.join_next().await {
            if let Ok(Err(why)) = one {
                tracing::error!("{why}");
            }
        }
        ended
    }

    /// Waits until the manager has heard of all donors that run now.
    fn heard(&self) -> impl Future<Output = ()> + use<> {
        let all: Vec<_> = self.donors.values().map(|lending| lending.controls.clone()).collect();
        async move {
            for controls in all {
                controls.told().await;
            }
        }
    }

    /// Shows the messages for the user who started the daemon, and a warning unless the manager has `heard` of the
    /// donors.
    fn greet(&mut self, output: &Output, heard: bool) {
        self.greetings.drain(..).for_each(|text| output.note(&text));
        if !heard {
            output.note(&format!(
                "warning: the manager at {} does not answer: nothing is stored here until it does",
                self.identity.about.manager
            ));
        }
    }

    /// Waits for the next donor that ends, and returns its directory, which is then lent no more.
    async fn next_end(&mut self) -> Option<(PathBuf, Result<(), Failure>)> {
        let (task, ended) = match self.ends.join_next_with_id().await? {
            Ok((task, ended)) => (task, ended.map_err(failed)),
            Err(why) => {
                let what = format!("its donor failed: {why}");
                (why.id(), Err(Failure::new(ErrorKind::Other, code::LOCAL_IO, what)))
            }
        };
        let dir = self.donors.iter().find(|(_, lending)| lending.task == task);
        let dir = dir.map(|(dir, _)| dir.clone()).unwrap_or_default();
        self.donors.remove(&dir);
        self.follow_owner();
        Some((dir, ended))
    }

    /// Returns what went over the network to and from each lent directory.
    fn traffic(&self) -> Vec<DirTraffic> {
        let of = |(dir, lending): (&PathBuf, &Lending)| {
            let (served, stored) = lending.controls.traffic();
            DirTraffic { dir: dir.clone(), served, stored }
        };
        self.donors.iter().map(of).collect()
    }

    /// Returns what the donors of all directories counted.
    fn counted(&self) -> LendingCounts {
        let controls = || self.donors.values().map(|lending| &lending.controls);
        let mut visits = Visits::default();
        controls().for_each(|one| visits.add_all(&one.take_visits()));
        LendingCounts {
            dirs: self.traffic(),
            // Donors of one machine yield to the same owner.
            yielded: controls().map(|one| one.throttled_time().yielded).max().unwrap_or_default(),
            lent: controls().map(|one| one.limits().max).sum(),
            stored: controls().map(DonorControls::used).sum(),
            visits,
        }
    }

    async fn reload(&mut self) -> Result<(), Failure> {
        let done = match SettingsFile::read(Daemon::Donor, &self.state) {
            Ok(file) if file.lent().is_empty() && self.is_file_gone() => Err(self.file_gone()),
            Ok(file) => self.follow(file).await,
            Err(why) => Err(why),
        };
        self.settings_fault(done.as_ref().err().map(|why| why.message.clone()));
        let mut notes = std::mem::take(&mut self.notes);
        // If no terms changed, the user was warned before.
        if !notes.is_empty() {
            notes.extend(self.sharing());
        }
        if tokio::time::timeout(TELLING, self.heard()).await.is_err() {
            notes.push("the manager does not answer now, and is told when it does".into());
        }
        notes.iter().for_each(|note| tracing::info!("{note}"));
        let done = done.and(self.find_manager().await);
        self.running.lends(self.donors.keys().cloned().collect());
        self.running.reloaded(done, notes)
    }

    /// Returns whether the settings file is missing although directories are lent. An editor may be about to write it,
    /// or its disk may not be mounted: the user did not ask to lend nothing.
    fn is_file_gone(&self) -> bool {
        !self.donors.is_empty() && !self.state.join(keys::FILE).exists()
    }

    fn file_gone(&self) -> Failure {
        let what = format!("{} is gone", self.state.join(keys::FILE).display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("bring it back; to lend a directory no more: `potluck lend --remove DIR`")
    }

    /// Tells every donor the addresses of the manager that are in its identity now, which may have changed since it
    /// started.
    async fn find_manager(&self) -> Result<(), Failure> {
        for Lending { state, controls, .. } in self.donors.values() {
            controls.find_manager(CommandSettings::donor_identity(state)?.about.manager).await;
        }
        Ok(())
    }

    /// Lends what the settings say: starts donors of new directories, stops those that are lent no more, and gives the
    /// others their new terms. If the new terms of a lent directory are impossible, nothing changes. A new directory
    /// that cannot be lent does not affect the others.
    ///
    /// Errors: the first failure.
    pub async fn follow(&mut self, mut file: SettingsFile) -> Result<(), Failure> {
        let lent = file.lent();
        let mut notes = Vec::new();
        for (dir, lending, config) in self.terms_of_all(&file)? {
            let before = lending.controls.limits();
            lending.controls.retune(&config);
            let changed = before != lending.controls.limits();
            notes.extend(changed.then(|| self.terms_of(dir, lending)));
        }
        self.notes.extend(notes);
        if self.owner.take(owner_rules::rules(&file)) {
            self.follow_owner();
        }
        let gone: Vec<_> = self.donors.keys().filter(|dir| !lent.contains(dir)).cloned().collect();
        for dir in gone {
            self.stop(&dir).await;
        }
        let own = own_dir(&file, &self.state);
        let mut done = Ok(());
        for dir in &lent {
            if self.donors.contains_key(dir) {
                continue;
            }
            match self.begin(&mut file, dir, own.as_ref() == Some(dir)).await {
                Ok(terms) => self.notes.push(terms),
                Err(why) => {
                    let why = Failure { message: not_lent(dir, &why), ..why };
                    tracing::error!("{why}. {}", why.hint);
                    done = done.and(Err(why));
                }
            }
        }
        done
    }

    /// Returns the new terms of all directories that are lent and stay so.
    fn terms_of_all(
        &self,
        file: &SettingsFile,
    ) -> Result<Vec<(&Path, &Lending, DonorConfig)>, Failure> {
        let lent = file.lent();
        let stay = self.donors.iter().filter(|(dir, _)| lent.contains(dir));
        stay.map(|(dir, lending)| {
            let used = lending.controls.used();
            Ok((dir.as_path(), lending, terms(file, dir, &lending.state, used, &self.machine)?))
        })
        .collect()
    }

    /// Begins to lend a directory, and enrols a donor for it first if it has none. Returns the terms as text.
    pub async fn begin(
        &mut self,
        file: &mut SettingsFile,
        dir: &Path,
        is_own: bool,
    ) -> Result<String, Failure> {
        let state = match file.lent_state(dir) {
            _ if is_own => self.state.clone(),
            Some(state) => state,
            None => {
                let (state, passed_over) = self.enrol(file, dir).await?;
                let started = match self.start(file, dir, &state).await {
                    Ok(started) => started,
                    Err(why) => {
                        disenrol(&state, dir).await;
                        return Err(why);
                    }
                };
                *file = SettingsFile::edit(Daemon::Donor, &self.state, |file| {
                    file.lend(dir);
                    file.set_lent_state(dir, &state);
                    Ok(())
                })?;
                return Ok(self.begun(file, dir, started)? + &passed_over);
            }
        };
        let started = self.start(file, dir, &state).await?;
        self.begun(file, dir, started)
    }

    /// Starts the donor of a directory, whose state is in `state`.
    async fn start(
        &self,
        file: &SettingsFile,
        dir: &Path,
        state: &Path,
    ) -> Result<LentStarted, Failure> {
        let identity = CommandSettings::donor_identity(state)?;
        LentStarted::begin(file, dir, state, Claiming::Own, &identity, &self.machine).await
    }

    /// Lends a directory with a donor that was started. Returns the terms and the address as text.
    pub fn begun(
        &mut self,
        file: &SettingsFile,
        dir: &Path,
        started: LentStarted,
    ) -> Result<String, Failure> {
        keep_max(file, dir, &self.state, started.donor.controls().used())?;
        let at = started.donor.told();
        self.add(dir, started);
        Ok(format!("{}; at {at}", self.terms_of(dir, &self.donors[dir])))
    }

    /// Says on what terms a directory is lent, and how much can be stored there now.
    fn terms_of(&self, dir: &Path, lending: &Lending) -> String {
        let (limits, room) = (lending.controls.limits(), lending.controls.room());
        let terms = format!(
            "lending up to {} in {} to pool {}, always leaving {} of the disk free",
            format_size(limits.max),
            dir.display(),
            self.identity.about.pool,
            limits.keep_free,
        );
        match room {
            0 => format!(
                "{terms}; warning: nothing more can be stored there now: make room on the disk, or \
                 lend on other terms (--max, --keep-free)"
            ),
            room => format!("{terms}; {} can be stored now", format_size(room)),
        }
    }

    /// Returns the state directory of the donor that is to lend a further directory. The donor joins with an invitation
    /// of the daemon's own donor, unless one that fits has joined already.
    async fn enrol(&self, file: &SettingsFile, dir: &Path) -> Result<(PathBuf, String), Failure> {
        let state = |number: u16| self.state.join(STATES).join(number.to_string());
        let used: BTreeSet<PathBuf> =
            file.lent().iter().filter_map(|lent| file.lent_state(lent)).collect();
        let free = || (2..=MOST).filter(|number| !used.contains(&state(*number)));
        let lends = |number: u16| potluck_donor::lent_dirs(&state(number)).unwrap_or_default();
        // A donor fits that lent this directory before, or has joined and lent nothing yet.
        let known = free().find(|number| {
            Identity::exists(&state(*number))
                && (lends(*number).is_empty() || lends(*number) == [dir])
        });
        let (number, passed_over) = match known {
            Some(number) => (number, String::new()),
            None => {
                let new = free().filter(|number| !Identity::exists(&state(*number)));
                self.with_free_port(file, dir, new.map(|number| (number, state(number)))).await?
            }
        };
        let own = state(number);
        if known.is_none() {
            let name = format!("{}-{number}", self.identity.about.name);
            let token = invitation(&self.identity, &self.state).await?;
            join::donor(&token, Some(name), &own).await?;
        }
        Ok((own, passed_over))
    }

    /// Returns the first of these numbers, each with the state directory of its donor, at whose port nobody listens
    /// yet: the port of a donor follows from its number. Says which addresses were passed over for that.
    ///
    /// Errors: somebody listens at all of them, or there is no number.
    async fn with_free_port(
        &self,
        file: &SettingsFile,
        dir: &Path,
        numbers: impl Iterator<Item = (u16, PathBuf)>,
    ) -> Result<(u16, String), Failure> {
        let (mut taken, mut passed_over) = (None, String::new());
        for (number, state) in numbers {
            let address = terms(file, dir, &state, 0, &self.machine)?.listen;
            match Env::system().net.listen(&address).await {
                Ok(_) => return Ok((number, passed_over)),
                Err(why) => {
                    passed_over += &format!("; not at {address}: {why}");
                    taken.get_or_insert(failed(DonorError::Listen { address, why }));
                }
            }
        }
        Err(taken.unwrap_or_else(|| {
            let what = format!("a machine lends at most {MOST} directories");
            Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("lend larger ones, or end one: potluck lend --remove DIR")
        }))
    }

    async fn stop(&mut self, dir: &Path) {
        let Some(lending) = self.donors.get_mut(dir) else { return };
        // Dropping the sender asks the donor to stop.
        let (stop, _) = oneshot::channel();
        lending.stop = stop;
        while self.donors.contains_key(dir) {
            let Some((dir, ended)) = self.next_end().await else { return };
            tell_end(&dir, ended);
        }
    }
}

fn tell_end(dir: &Path, ended: Result<(), Failure>) {
    match ended {
        Ok(()) => tracing::info!("{} is lent no more", dir.display()),
        Err(why) => tracing::error!("{} is lent no more: {why}", dir.display()),
    }
}

/// Ends the membership of a donor that was enrolled for `dir`, which then could not be lent, and removes what it wrote.
/// Where that fails, the next directory that is lent takes the donor.
async fn disenrol(state: &Path, dir: &Path) {
    let undo = async {
        let identity = CommandSettings::donor_identity(state)?;
        let leave = Leave { now: false, agreed: None };
        own_pools::guided(&identity, state)?.call(&leave).await?;
        // The directory was never lent, so there is no store, or an empty one.
        let _ = potluck_donor::remove_store(dir, &owner(&identity));
        remove_state(state, &[]).map(drop).map_err(|why| {
            Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("{}: {why}", state.display()))
        })
    };
    if let Err(why) = undo.await {
        tracing::warn!("the donor that was to lend {} stays a member: {why}", dir.display());
    }
}

/// Asks the manager for a token for one more donor of this machine.
async fn invitation(identity: &Identity, state: &Path) -> Result<JoinToken, Failure> {
    let invite = Invite { role: Role::Donor, ttl_seconds: TOKEN_SECONDS, name: None };
    let invited = own_pools::guided(identity, state)?.call(&invite).await?;
    // The pool may have another authority since the daemon began, which the token is to pin.
    let identity = CommandSettings::donor_identity(state)?;
    Ok(identity.token(identity.about.manager.clone(), Role::Donor, invited.secret))
}

/// Returns the directory that the daemon's own donor lends: among those that no other donor lends, the one that it lent
/// before, or the first.
pub fn own_dir(file: &SettingsFile, state: &Path) -> Option<PathBuf> {
    let before = potluck_donor::lent_dirs(state).unwrap_or_default();
    let own = || file.lent().into_iter().filter(|lent| file.lent_state(lent).is_none());
    own().find(|dir| before.contains(dir)).or_else(|| own().next())
}

/// Writes to the settings how much of a directory is lent at most. A default that was worked out again at the next
/// start would be lower by a part of what is stored until then.
fn keep_max(file: &SettingsFile, dir: &Path, state: &Path, used: u64) -> Result<(), Failure> {
    let limits = super::limits(file, dir, used)?;
    let max = exact_size(limits.max);
    let kept = SettingsFile::edit(Daemon::Donor, state, |file| {
        file.set_lent(dir, keys::key("lend.max"), Some(&max));
        Ok(())
    });
    if let Err(why) = kept {
        tracing::warn!("how much is lent holds for this start only: {why}");
    }
    Ok(())
}

/// Says which directory of the settings cannot be lent, and why.
pub fn not_lent(dir: &Path, why: &Failure) -> String {
    format!("{} is not lent: {}", dir.display(), why.message)
}

/// Returns a warning if directories of one file system together count more free space than it has.
fn shared_room(lent: &[(&Path, &Lending)]) -> Option<String> {
    let disk = disk_of(lent[0].0).ok()?;
    let room: u64 = lent.iter().map(|(_, lending)| lending.controls.room()).sum();
    let left = |lending: &Lending| {
        disk.free.saturating_sub(lending.controls.limits().keep_free.floor(disk.total))
    };
    let there = lent.iter().map(|(_, lending)| left(lending)).max()?;
    if room <= there {
        return None;
    }
    let named = lent.iter().map(|(dir, _)| dir.display().to_string()).collect::<Vec<_>>();
    Some(format!(
        "warning: {} are on one file system: the pool counts {} as free there, and {} are. Lend one \
         directory of each file system, or less of each: potluck set lend.max SIZE --dir DIR",
        named.join(" and "),
        format_size(room),
        format_size(there),
    ))
}

/// Returns the configuration of the donor whose state is in `state`, which lends `dir`. The donors of further
/// directories listen at the ports after that of the daemon's own donor.
fn terms(
    file: &SettingsFile,
    dir: &Path,
    state: &Path,
    used: u64,
    machine: &Machine,
) -> Result<DonorConfig, Failure> {
    let config = config(file, dir, state, used, &machine.name)?;
    let config = LendPlace::under(&machine.place, file, config);
    let number = match state.parent().is_some_and(|above| above.ends_with(STATES)) {
        true => state.file_name().and_then(|name| name.to_str()?.parse::<u16>().ok()).unwrap_or(2),
        false => 1,
    };
    let port_of = |address: &str| {
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse::<u16>().ok()?;
        // With port 0 the system chooses a port.
        Some((host.to_owned(), if port == 0 { 0 } else { port.saturating_add(number - 1) }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::addresses::{DONOR_PORT, MANAGER_PORT};

    #[test]
    fn documented_ports_do_not_clash() {
        let ours =
            |port: u16| port == MANAGER_PORT || (DONOR_PORT..DONOR_PORT + MOST).contains(&port);
        let monitoring = include_str!("../../../../../docs/monitoring.md");
        let scraped = include_str!("../../../../../contrib/monitoring/prometheus.yml");
        let said = |text: &str, before: &str| -> u16 {
            let (_, after) = text.split_once(before).expect(before);
            let port: String = after.chars().take_while(char::is_ascii_digit).collect();
            port.parse().expect("a port")
        };
        let metrics = said(monitoring, "manager.metrics-listen 0.0.0.0:");
        assert!(!ours(metrics), "{metrics}");
        assert_eq!(metrics, said(scraped, "[\"alice:"));
        let second = said(include_str!("../../../../../docs/operations.md"), "--listen '[::]:");
        assert!(!ours(second), "a second donor beside one that lends several: {second}");
    }
}
