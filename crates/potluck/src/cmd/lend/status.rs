//! `potluck lend status`: shows an owner what this machine lends, for whom, and at what cost.

use super::process::Process;
use super::traffic::{DirTraffic, NotedTraffic};
use super::{OwnDonor, bill, disk_of, donors_of, measured_impact, owner, slowdown};
use crate::args::LendStatusArgs;
use crate::cmd::{Ending, donors, drain};
use crate::command_settings::CommandSettings;
use crate::keys::Daemon;
use crate::output::{self, Output, count, duration};
use crate::running;
use crate::settings_file::SettingsFile;
use potluck_client::{Pool, RetryLimits};
use potluck_core::cost_history::{LendingCost, Visits, day_of};
use potluck_core::ids::DonorId;
use potluck_core::impact::MachineImpact;
use potluck_core::owner_limits::Limits;
use potluck_core::owner_rules::InForce;
use potluck_core::size::format_size;
use potluck_wire::control::{self, Departing, DonorState, DonorStatus, GivingBack, OwnDonorStatus};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How long the command waits for a manager that does not answer: what this machine knows itself is shown without it.
const WAIT: Duration = Duration::from_secs(3);

/// What a machine lends.
#[derive(Debug, Serialize)]
struct LendStatus {
    pool: String,
    /// The daemon that runs, if one does.
    daemon: Option<Process>,
    directories: Vec<LentDirectory>,
    /// What the rules of the machine's owner come to now.
    owner: InForce,
    /// What was done and used today, and who came in thirty days, as `potluck cost` and `potluck inspect` tell.
    today: LendingCost,
    visits: Visits,
    /// What serving costs this machine, if that was measured.
    impact: Option<MachineImpact>,
    /// The share of its speed that an owner's program may lose; absent if the donor never yields.
    slowdown: Option<f64>,
    /// The time since which the traffic of the directories is counted.
    traffic_since_wall_ms: Option<i64>,
    /// What would happen if the machine left; absent while the manager does not answer.
    leaving: Option<GivingBack>,
    /// Why the manager was not asked, if it was not.
    manager_away: Option<String>,
}

/// A lent directory, as this machine and the pool know it.
#[derive(Debug, Serialize)]
struct LentDirectory {
    dir: Option<PathBuf>,
    /// How much of its disk is lent, as the settings say.
    #[serde(skip)]
    terms: Option<Limits>,
    traffic: Option<DirTraffic>,
    #[serde(flatten)]
    pool: Option<OwnDonorStatus>,
}

pub async fn run(
    args: LendStatusArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let state = super::absolute(&args.state.unwrap_or_else(|| settings.donor_dir()))?;
    let identity = CommandSettings::donor_identity(&state)?;
    let file = SettingsFile::read(Daemon::Donor, &state)?;
    let of_manager = |pid| {
        let manager = [Some(settings.manager_dir()), state.parent().map(|at| at.join("manager"))];
        let mut found = manager.iter().flatten().filter_map(|dir| running::find(dir).ok()?);
        found.any(|said| said.pid == pid)
    };
    let daemon = running::find(&state).ok().flatten();
    let daemon = daemon.and_then(|said| Process::read(said.pid, of_manager(said.pid)));
    let traffic = NotedTraffic::of(&state);
    let (history, day) = (bill::read(&state), day_of(bill::local_now()));
    let mut status = LendStatus {
        today: history.since(day, day).0,
        visits: history.visits(),
        impact: measured_impact::read(&state),
        slowdown: slowdown(&file),
        pool: identity.about.pool.clone(),
        daemon,
        owner: owner::rules(&file).in_force(owner::moment(owner::is_metered())),
        traffic_since_wall_ms: traffic.as_ref().map(|traffic| traffic.since_wall_ms),
        directories: Vec::new(),
        leaving: None,
        manager_away: None,
    };
    let mut asked: Option<(Pool, Vec<DonorId>)> = None;
    for OwnDonor { dir, state } in donors_of(&state, None)? {
        let own = CommandSettings::donor_identity(&state)?;
        let client = settings.donor_client(Some(&state))?;
        let limits = client.retry_limits();
        let client =
            client.with_retry_limits(RetryLimits { at_first: limits.at_first.min(WAIT), ..limits });
        let said = match &status.manager_away {
            None => match client.call(&control::OwnStatus {}).await {
                Ok(said) => Some(said),
                Err(why) if why.code == code::NO_MANAGER => {
                    status.manager_away = Some(why.message);
                    None
                }
                Err(why) => return Err(why),
            },
            Some(_) => None,
        };
        if said.is_some() {
            let id = DonorId(own.about.member.0);
            asked.get_or_insert_with(|| (client, Vec::new())).1.push(id);
        }
        let mut dirs = traffic.iter().flat_map(|traffic| &traffic.dirs);
        status.directories.push(LentDirectory {
            terms: dir.as_ref().and_then(|dir| super::limits(&file, dir, 0).ok()),
            traffic: dirs.find(|one| Some(&one.dir) == dir.as_ref()).cloned(),
            pool: said,
            dir,
        });
    }
    if let Some((client, donors)) = asked {
        status.leaving = Some(client.call(&Departing { donors, over: None }).await?);
    }
    let ending = match (args.check, status.is_well()) {
        (true, false) if status.manager_away.is_some() => Ending::Said(ErrorKind::Retry),
        (true, false) => Ending::Partial,
        _ => Ending::Done,
    };
    output.result(&status, |status| match args.check && status.is_well() {
        true => String::new(),
        false => status.text(),
    });
    Ok(ending)
}

/// Returns what the pool knows of the donors of this machine: a donor sees no others.
pub async fn own_donors(settings: &CommandSettings) -> Result<Vec<DonorStatus>, Failure> {
    let mut donors = Vec::new();
    for OwnDonor { state, .. } in donors_of(&settings.donor_dir(), None)? {
        let client = settings.donor_client(Some(&state))?;
        donors.push(client.call(&control::OwnStatus {}).await?.donor);
    }
    Ok(donors)
}

impl LendStatus {
    /// Returns whether the daemon runs, and the pool counts on all that is lent.
    fn is_well(&self) -> bool {
        let is_live = |one: &LentDirectory| {
            let said = one.pool.as_ref();
            said.is_some_and(|said| said.donor.state == DonorState::Live && said.alarms.is_empty())
        };
        self.daemon.is_some() && self.directories.iter().all(is_live)
    }

    fn text(&self) -> String {
        let mut text = match &self.daemon {
            Some(_) => format!("lends to pool {}\n", self.pool),
            None => format!(
                "a donor of pool {}, and nothing runs: `potluck lend` (or `potluck up`) lends again\n",
                self.pool
            ),
        };
        let _ = writeln!(text, "you let it: {}", owner::sentence(&self.owner));
        let since = self.traffic_since_wall_ms.map(output::stated_time).unwrap_or_default();
        self.directories.iter().for_each(|one| one.tell(&since, &mut text));
        if let Some(Process { seconds, cpu_ms, memory, with_manager, .. }) = &self.daemon {
            let share = *cpu_ms as f64 / 10.0 / (*seconds).max(1) as f64;
            let beside = if *with_manager { ", the pool's manager included" } else { "" };
            let _ = writeln!(
                text,
                "costs: {share:.2} % of one processor and {} of memory{beside}; runs for {}",
                format_size(*memory),
                duration(*seconds),
            );
        }
        let _ = writeln!(
            text,
            "today: {}\nvisitors: {}\nimpact: {}\nmore: potluck cost, potluck inspect",
            bill::sentence(&self.today),
            bill::who_came(&self.visits),
            measured_impact::sentence(self.impact.as_ref(), self.slowdown),
        );
        if let Some(leaving) = &self.leaving {
            if let Some(of) = leaving.held_of.as_ref().filter(|of| of.files > 0) {
                let _ = writeln!(
                    text,
                    "holds parts of {} in {} of {}",
                    count(of.files, "file"),
                    count(of.spaces, "space"),
                    match of.members {
                        1 => "1 person".into(),
                        more => format!("{more} people"),
                    }
                );
            }
            let size = format_size(leaving.to_move_bytes);
            let first = if leaving.to_move > 0 { format!("{size}: ") } else { String::new() };
            let _ = writeln!(text, "if it left: {first}{}", drain::moving(leaving));
        }
        if let Some(why) = &self.manager_away {
            let _ = writeln!(text, "! {why}: what the pool holds here cannot be told now");
        }
        text
    }
}

impl LentDirectory {
    /// Says what is known of the directory, whose traffic is counted `since` a time.
    fn tell(&self, since: &str, text: &mut String) {
        let dir = self.dir.as_ref().map_or("nothing is lent yet".into(), |dir| {
            output::name(&dir.display().to_string()).into_owned()
        });
        let state = self.pool.as_ref().map(|said| donors::state(&said.donor));
        let _ = writeln!(text, "\n{dir}{}", state.map(|it| format!(": {it}")).unwrap_or_default());
        if let Some(said) = &self.pool {
            let donor = &said.donor;
            let _ = writeln!(
                text,
                "  held:    {} in {}; {} can still be stored",
                donors::held(donor),
                count(donor.chunks, "chunk"),
                format_size(donors::free(donor)),
            );
        }
        if let (Some(dir), Some(Limits { max, keep_free })) = (&self.dir, self.terms) {
            let free = disk_of(dir).map(|disk| {
                let (floor, free) = (keep_free.floor(disk.total), disk.free);
                format!(": {}, and {} are free now", format_size(floor), format_size(free))
            });
            let _ = writeln!(
                text,
                "  lent:    at most {}, always leaving {keep_free} of the disk free{}",
                format_size(max),
                free.unwrap_or_default(),
            );
        }
        if let Some(DirTraffic { served, stored, .. }) = &self.traffic {
            let _ = writeln!(
                text,
                "  traffic: {} sent to readers and {} stored for writers since {since}",
                format_size(*served),
                format_size(*stored),
            );
        }
        if let Some(load) = self.pool.as_ref().map(|said| &said.donor.load) {
            match &load.yielding {
                Some(yielding) => drop(writeln!(text, "  governor: {yielding}")),
                None => text.push_str("  governor: does not yield\n"),
            }
        }
        for alarm in self.pool.iter().flat_map(|said| &said.alarms) {
            let _ = writeln!(text, "  ! {alarm}");
        }
    }
}
