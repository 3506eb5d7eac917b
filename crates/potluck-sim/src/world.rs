//! A whole pool in one thread: manager, donors and clients of the product on simulated machines.

use crate::admin;
use crate::cast::{DONORS, Who};
use crate::client;
use crate::disk::Drive;
use crate::draw::Draw;
use crate::host::Host;
use crate::net::BelieveWho;
use crate::plan::Plan;
use crate::stage::Stage;
use potluck_core::chunk::Digest;
use potluck_core::ids::DonorId;
use potluck_core::owner_limits::{KeepFree, Limits};
use potluck_donor::{Claiming, Donor, DonorConfig, Lender, Owner};
use potluck_manager::{Manager, ManagerConfig};
use std::collections::BTreeMap;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use turmoil::Sim;

/// The time after which a write session without calls ends.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long chunks that no file uses are kept.
pub const GC_DELAY: Duration = Duration::from_secs(10);
/// How long an interrupted write can be resumed.
pub const RESUME_WINDOW: Duration = Duration::from_secs(15);
/// The time from one scan of the manager for repair to the next.
const SCAN_EVERY: Duration = Duration::from_secs(10);
/// The size of a donor's disk in bytes.
const DISK: u64 = 512 << 20;
/// The directory where a donor keeps chunks.
pub const LENT: &str = "/lend";
/// The directory where a donor keeps its own state.
const STATE: &str = "/state";

/// The simulated machines, with the means to steer them.
pub struct World {
    /// The simulation of turmoil.
    pub sim: Sim<'static>,
    /// The state that the driver shares with the machines.
    pub stage: Stage,
    /// The machines of the pool.
    pub hosts: BTreeMap<Who, Host>,
    /// The disks of the donors.
    pub drives: Vec<Drive>,
    /// The random decisions about details of faults.
    pub draw: Draw,
    state: Arc<Mutex<PathBuf>>,
    root: TempDir,
    managers: u32,
}

impl World {
    /// Makes the machines for `plan`; no simulated time has passed yet.
    pub fn new(plan: &Plan) -> Self {
        let mut builder = turmoil::Builder::new();
        builder
            .rng_seed(plan.seed)
            .tick_duration(plan.tick)
            .simulation_duration(Duration::from_secs(3600))
            .min_message_latency(Duration::ZERO)
            .max_message_latency(plan.latency)
            .tcp_capacity(plan.window)
            .enable_random_order();
        let stage = Stage::default();
        stage.board().health.tolerates = plan.redundancy.tolerates() as usize;
        stage.board().health.needs = plan.redundancy.donors() as usize;
        stage.board().health.least = plan.redundancy.least_donors() as usize;
        stage.board().name_liars = plan.name_liars;
        let host = |(who, skew): &(Who, i64)| {
            (*who, Host::new(*who, plan.seed, *skew, stage.trace.clone()))
        };
        let mut hosts: BTreeMap<Who, Host> = plan.skews.iter().map(host).collect();
        hosts.insert(Who::Admin, Host::new(Who::Admin, plan.seed, 0, stage.trace.clone()));
        let drive = |_| Drive::new(DISK, &[Path::new(LENT), Path::new(STATE)]);
        let root = scratch();
        let mut world = Self {
            sim: builder.build(),
            stage,
            hosts,
            drives: (0..DONORS).map(drive).collect(),
            draw: Draw::new(plan.seed, "faults' details"),
            state: Arc::new(Mutex::new(root.path().join("manager-0"))),
            root,
            managers: 0,
        };
        world.raise_manager(plan.repair_grace);
        for (number, drive) in world.drives.clone().into_iter().enumerate() {
            world.raise_donor(number as u8, drive);
        }
        for who in Who::clients() {
            world.raise_client(who);
        }
        let (stage, host, policy) =
            (world.stage.clone(), world.hosts[&Who::Admin].clone(), admin::policy(plan));
        let state = Arc::clone(&world.state);
        world.sim.host(Who::Admin.to_string(), move || {
            let dir = state.lock().expect("no holder panics").join("admin");
            admin::live(stage.clone(), host.clone(), dir, policy.clone())
        });
        world
    }

    fn raise_manager(&mut self, repair_grace: Duration) {
        let (host, state) = (self.hosts[&Who::Manager].clone(), Arc::clone(&self.state));
        self.sim.host(Who::Manager.to_string(), move || {
            let config = ManagerConfig {
                listen: "0.0.0.0:7700".into(),
                state: state.lock().expect("no holder panics").clone(),
                pool_name: Some("simulated".into()),
                advertise: vec![Who::Manager.address()],
                lease: LEASE,
                gc_delay: GC_DELAY,
                resume_window: RESUME_WINDOW,
                repair_grace,
                scan_every: SCAN_EVERY,
                // Without the metadata log on donors, every stored chunk that no file needs is an orphan.
                metadata_copies: 0,
                // The simulated network has no rate.
                diagnose_donors: false,
                ..ManagerConfig::default()
            };
            let host = host.clone();
            async move {
                let env = host.env();
                potluck_manager::init(&config, &env)?.keep();
                let manager = Manager::start(config, env, Some(Arc::new(BelieveWho))).await?;
                manager.run(pending()).await?;
                Ok(())
            }
        });
    }

    fn raise_donor(&mut self, number: u8, drive: Drive) {
        let who = Who::Donor(number);
        let (stage, host) = (self.stage.clone(), self.hosts[&who].clone());
        self.sim.host(who.to_string(), move || {
            let (stage, host, disk) = (stage.clone(), host.clone(), drive.process());
            let limits = Limits { max: u64::MAX, keep_free: KeepFree::Bytes(0) };
            let config = DonorConfig {
                listen: "0.0.0.0:7701".into(),
                advertise: vec![who.address()],
                ..DonorConfig::new(LENT.into(), STATE.into(), limits)
            };
            async move {
                host.join(&stage.invitations).await;
                let owner = Owner {
                    pool: Digest::of(b"the pool"),
                    donor: DonorId(number.into()),
                    pool_name: "simulated".into(),
                    name: who.to_string(),
                };
                let lender = Lender { owner, claiming: Claiming::Own };
                let (env, caller) = (host.env(), host.caller());
                let donor = Donor::start(config, lender, env, Arc::new(disk), caller).await?;
                donor.run(pending()).await?;
                Ok(())
            }
        });
    }

    fn raise_client(&mut self, who: Who) {
        let Who::Client(number) = who else { return };
        let (stage, host) = (self.stage.clone(), self.hosts[&who].clone());
        self.sim.host(who.to_string(), move || client::live(stage.clone(), host.clone(), number));
    }

    /// Advances the simulation by one tick.
    ///
    /// Errors: a process ended by itself.
    pub fn step(&mut self) -> Result<(), String> {
        self.stage.trace.at(self.sim.elapsed());
        self.sim.step().map_err(|why| format!("a process ended: {why}"))?;
        self.stage.trace.at(self.sim.elapsed());
        Ok(())
    }

    /// Returns the simulated time that has passed.
    pub fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    /// Kills a process. What it has written stays, and its connections break.
    pub fn kill(&mut self, who: Who) {
        match who {
            Who::Donor(number) => self.drives[usize::from(number)].kill(),
            Who::Manager => self.keep_state(),
            Who::Client(_) | Who::Admin => {}
        }
        self.sim.crash(who.to_string());
    }

    /// Gives the next manager a copy of the files as they are now. The killed manager may still write while it is
    /// dropped, which would not happen after a kill -9.
    fn keep_state(&mut self) {
        self.managers += 1;
        let mut state = self.state.lock().expect("no holder panics");
        let next = self.root.path().join(format!("manager-{}", self.managers));
        copy_dir(&state, &next).expect("a copy of the manager's files");
        *state = next;
    }

    /// Starts a killed process again.
    pub fn start(&mut self, who: Who) {
        self.sim.bounce(who.to_string());
    }
}

/// Makes a directory for the manager's files, in memory if possible: the catalog syncs often, and the
/// simulation needs no real durability.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    let name = format!("potluck-sim-{}-", std::process::id());
    builder.prefix(&name);
    let made = if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() };
    made.expect("a temporary directory")
}

fn copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
