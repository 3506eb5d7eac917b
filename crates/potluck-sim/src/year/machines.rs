//! The machines of the year: the manager's, the donors', and the one at which files are written.

use super::time_lapse::TimeLapse;
use super::wires::Wires;
use crate::disk::Drive;
use crate::draw::Draw;
use crate::net::{BelieveWho, SayWho};
use potluck_client::Pool;
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::owner_limits::{KeepFree, Limits};
use potluck_donor::{Claiming, Donor, DonorConfig, Lender, Owner};
use potluck_manager::{Manager, ManagerConfig};
use potluck_wire::call::Caller;
use potluck_wire::control::{Invite, Join};
use potluck_wire::env::{Env, Offload};
use potluck_wire::identity::{Identity, fingerprint, new_key_and_request};
use potluck_wire::packed::Blob;
use potluck_wire::token::Role;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The name of the pool.
const POOL: &str = "simulated";
/// The directory that a donor lends.
const LENT: &str = "/lend";
/// The directory where a donor keeps its own state.
const STATE: &str = "/state";
/// How long chunks that no file uses are kept.
pub const GC_DELAY: Duration = Duration::from_secs(20);
/// The size of a donor's disk in bytes.
const DISK: u64 = 4 << 30;

/// The environment that all machines share.
#[derive(Clone)]
pub struct World {
    /// The clock of all machines.
    pub time: TimeLapse,
    /// The network of all machines.
    pub wires: Wires,
    /// The seed of what the machines draw.
    pub seed: u64,
}

impl World {
    fn env(&self, who: &str, here: SocketAddr) -> Env {
        Env {
            clock: Arc::new(self.time.clone()),
            entropy: Draw::new(self.seed, &format!("entropy of {who}")).entropy(),
            net: Arc::new(self.wires.machine(here)),
            offload: Offload::Inline,
        }
    }

    fn caller(&self, here: SocketAddr, member: Option<Digest>) -> Caller {
        let manager = manager_address().into();
        Caller::new(Arc::new(self.wires.machine(here)), Arc::new(SayWho(member)), manager)
    }
}

fn manager_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7700))
}

/// A process on a machine.
struct Process {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), String>>,
}

impl Process {
    fn start<W>(run: impl FnOnce(oneshot::Receiver<()>) -> W) -> Self
    where
        W: Future<Output = Result<(), String>> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        Self { stop, ended: tokio::spawn(run(stopped)) }
    }

    /// Asks the process to end, and waits until it has.
    async fn stop(self) -> Result<(), String> {
        drop(self.stop);
        self.ended.await.map_err(|why| why.to_string())?
    }
}

/// The machine of the manager.
pub struct ManagerMachine(Process);

impl ManagerMachine {
    /// Makes a pool in `state` and serves it.
    pub async fn start(world: &World, state: &Path, limits: ManagerConfig) -> Result<Self, String> {
        let config = ManagerConfig {
            listen: "0.0.0.0:7700".into(),
            state: state.to_path_buf(),
            pool_name: Some(POOL.into()),
            advertise: vec![manager_address().to_string()],
            ..limits
        };
        let env = world.env("manager", manager_address());
        potluck_manager::init(&config, &env).map_err(|why| why.to_string())?.keep();
        let manager = Manager::start(config, env, Some(Arc::new(BelieveWho))).await;
        let manager = manager.map_err(|why| why.to_string())?;
        let run = |stopped| async move {
            manager.run(async { drop(stopped.await) }).await.map_err(|why| why.to_string())
        };
        Ok(Self(Process::start(run)))
    }

    /// Stops the manager, and waits until it has ended.
    pub async fn stop(self) -> Result<(), String> {
        self.0.stop().await
    }
}

/// The admin's machine, at which files are also written and read.
pub struct Desk {
    /// The client that all files are written and read with.
    pub pool: Pool,
}

impl Desk {
    /// Makes the machine of the first admin, whose identity the new pool in `state` has made.
    pub fn sit_down(world: &World, state: &Path) -> Result<Self, String> {
        let identity = Identity::load(&state.join("admin")).map_err(|why| why.to_string())?;
        let here = SocketAddr::from(([10, 0, 0, 2], 7702));
        let caller = world.caller(here, Some(fingerprint(&identity.certificate)));
        Ok(Self { pool: Pool::new(world.env("desk", here), caller) })
    }
}

/// A machine whose donor lends its disk.
pub struct DonorMachine {
    /// The donor that the machine's membership stands for.
    pub donor: DonorId,
    /// Whether it sleeps at night.
    pub sleeps: bool,
    world: World,
    name: String,
    here: SocketAddr,
    certificate: Digest,
    drive: Drive,
    /// The number of times its donor was started, so that no two of its processes draw the same.
    starts: u32,
    process: Option<Process>,
}

impl DonorMachine {
    /// Joins the pool as donor `number`, counted from 0 over all that ever joined, and starts the donor.
    pub async fn join(world: &World, desk: &Desk, number: u32) -> Result<Self, String> {
        let [.., high, low] = number.to_be_bytes();
        let (here, name) = (SocketAddr::from(([10, 1, high, low], 7701)), format!("desk-{number}"));
        let invite = Invite { role: Role::Donor, ttl_seconds: 600, name: None };
        let invited = desk.pool.call(&invite).await.map_err(|why| why.to_string())?;
        let (_key, request) = new_key_and_request().map_err(|why| why.to_string())?;
        let (secret, request) = (invited.secret, Blob(request));
        let join = Join { secret, request, name: name.clone(), ca: None };
        let joined = world.caller(here, None).call(&join).await.map_err(|why| why.to_string())?;
        let drive = Drive::new(DISK, &[Path::new(LENT), Path::new(STATE)]);
        let mut machine = Self {
            donor: DonorId(joined.member.0),
            sleeps: true,
            world: world.clone(),
            name,
            here,
            certificate: fingerprint(&joined.certificate.0.into()),
            drive,
            starts: 0,
            process: None,
        };
        machine.wake().await?;
        Ok(machine)
    }

    /// Returns the member that the donor is.
    pub fn member(&self) -> MemberId {
        MemberId(self.donor.0)
    }

    /// Starts the donor, unless it runs.
    pub async fn wake(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        let limits = Limits { max: u64::MAX, keep_free: KeepFree::Bytes(0) };
        let config = DonorConfig {
            listen: "0.0.0.0:7701".into(),
            advertise: vec![self.here.to_string()],
            ..DonorConfig::new(LENT.into(), STATE.into(), limits)
        };
        let owner = Owner {
            pool: Digest::of(b"the pool"),
            donor: self.donor,
            pool_name: POOL.into(),
            name: self.name.clone(),
        };
        let lender = Lender { owner, claiming: Claiming::Own };
        self.starts += 1;
        let env = self.world.env(&format!("{} {}", self.name, self.starts), self.here);
        let caller = self.world.caller(self.here, Some(self.certificate));
        let disk = Arc::new(self.drive.process());
        let donor = Donor::start(config, lender, env, disk, caller).await;
        let donor = donor.map_err(|why| format!("{}: {why}", self.name))?;
        self.process = Some(Process::start(|stopped| async move {
            donor.run(async { drop(stopped.await) }).await.map_err(|why| why.to_string())
        }));
        Ok(())
    }

    /// Shuts the machine down, or puts it to sleep. Its donor ends in order.
    pub async fn sleep(&mut self) -> Result<(), String> {
        if let Some(process) = self.process.take() {
            process.stop().await.map_err(|why| format!("{}: {why}", self.name))?;
            // Tasks that the donor left behind must not use the disk any more, as if they had ended with it.
            self.drive.kill();
            self.world.wires.cut(self.here);
        }
        Ok(())
    }

    /// Cuts the machine's power, as if long after the last write: its system has synced everything by then.
    pub fn lose_power(&mut self, draw: &Draw) {
        self.drive.write_back();
        self.drive.cut_power(draw);
        self.world.wires.cut(self.here);
        if let Some(process) = self.process.take() {
            process.ended.abort();
        }
    }

    /// Returns the bytes of the files on its disk.
    pub fn disk_bytes(&self) -> u64 {
        self.drive.used()
    }
}

impl Drop for DonorMachine {
    /// Frees the memory of the disk, although tasks of the last process may still have a handle of it.
    fn drop(&mut self) {
        self.drive.scrap();
    }
}

/// Returns the manager's limits for a pool of desktops that sleep at night, where up to `speed` simulated seconds
/// pass between two heartbeats.
pub fn limits(speed: u32) -> ManagerConfig {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    ManagerConfig {
        suspect_after: Duration::from_secs(3) * speed,
        silent_after: Duration::from_secs(6) * speed,
        repair_grace: hours(24),
        gc_delay: GC_DELAY,
        // A donor that comes or goes causes a scan as well.
        scan_every: hours(24),
        // The simulated network has no rate.
        diagnose_donors: false,
        ..ManagerConfig::default()
    }
}
