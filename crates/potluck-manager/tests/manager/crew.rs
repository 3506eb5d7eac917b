//! Donors that do what they are asked to as real ones do, but without bytes: a chunk is its name.

use crate::lab::{Donor, LEN, Lab, chunk, commit, offer};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::{Clock, SharedClock, SystemClock, Tick, UnixMillis};
use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::policy::{AckLevel, Override};
use potluck_manager::ManagerConfig;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Condition, Health, Holding, Outcome, PoolStatus, RepairAction, RepairControl, RepairState,
    RepairStatus, Reserve, Stat, Status, Task, TaskOutcome, TaskResult, Tombstone, Work,
};
use potluck_wire::env::Env;
use potluck_wire::packed::Packed;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A donor with what it holds.
pub struct Member {
    pub donor: Donor,
    pub holds: BTreeSet<ChunkName>,
    /// True while it is silent, as if its machine slept.
    pub asleep: bool,
    /// The bytes that its owner lends, if that is less than all.
    pub lends: Option<u64>,
    /// The bytes that it has beyond its owner's limits.
    pub excess: u64,
    /// The bytes of the excess that its disk lacks.
    pub disk_lacks: u64,
    /// True if it computes wrong parity.
    pub lies: bool,
    /// True if it says that it has more room than any other, and to have stored what it was told to fetch, which it
    /// has not.
    pub pretends: bool,
    /// Every task that it was ever given, once.
    pub tasks: Vec<Task>,
    /// Every chunk that it was ever told to verify.
    pub verified: BTreeSet<ChunkName>,
    write_sequence: u64,
    added: Vec<ChunkName>,
    removed: Vec<ChunkName>,
    sound: Vec<ChunkName>,
    results: Vec<TaskResult>,
}

impl Member {
    pub fn id(&self) -> DonorId {
        self.donor.id
    }

    fn store(&mut self, name: ChunkName) {
        self.write_sequence += 1;
        self.holds.insert(name);
        self.added.push(name);
    }

    /// Sends a heartbeat with what happened since the last one, and does what is ordered.
    pub async fn send_heartbeat(&mut self) {
        let mut heartbeat = self.donor.heartbeat(self.write_sequence);
        let holding = |name| Holding { name, len: LEN }.into();
        heartbeat.added =
            Packed(std::mem::take(&mut self.added).into_iter().map(holding).collect());
        heartbeat.removed = Packed(std::mem::take(&mut self.removed));
        heartbeat.sound = Packed(std::mem::take(&mut self.sound));
        heartbeat.results = std::mem::take(&mut self.results);
        let held = self.holds.len() as u64 * u64::from(LEN);
        let beyond = self.lends.map_or(0, |lends| held.saturating_sub(lends));
        heartbeat.excess = self.excess.max(beyond);
        heartbeat.disk_lacks = self.disk_lacks;
        if self.pretends {
            heartbeat.room = 1 << 50;
        }
        heartbeat.disk.lent_used = held;
        let reply = self.donor.send_heartbeat(heartbeat).await;
        for Tombstone { chunk, write_sequence, .. } in reply.chunk_orders.delete {
            if write_sequence >= self.write_sequence {
                self.holds.remove(&chunk);
                self.removed.push(chunk);
            }
        }
        for chunk in reply.chunk_orders.verify.0 {
            self.verified.insert(chunk);
            match self.holds.contains(&chunk) {
                true => self.sound.push(chunk),
                false => self.removed.push(chunk),
            }
        }
        for task in reply.tasks {
            if !self.tasks.contains(&task) {
                self.tasks.push(task.clone());
            }
            let outcome = self.carry_out(task.work);
            self.results.push(TaskResult { task: task.number, outcome });
        }
    }

    fn carry_out(&mut self, work: Work) -> TaskOutcome {
        match work {
            Work::Copy { .. } if self.pretends => TaskOutcome::Done,
            Work::Copy { chunk, .. } | Work::Rebuild { chunk, .. } => {
                self.store(chunk);
                TaskOutcome::Done
            }
            Work::Encode { ec, shards, .. } => {
                let data: Vec<ChunkName> = shards.iter().map(|shard| shard.chunk).collect();
                let parity = parity_of(if self.lies { &data[..0] } else { &data }, ec);
                parity.iter().for_each(|name| self.store(*name));
                TaskOutcome::Encoded { parity: Packed(parity) }
            }
            Work::Scrub { .. } | Work::Describe => TaskOutcome::Done,
        }
    }

    /// Returns how many tasks to make something it was given so far.
    pub fn made(&self) -> usize {
        let made = |task: &&Task| {
            matches!(task.work, Work::Copy { .. } | Work::Rebuild { .. } | Work::Encode { .. })
        };
        self.tasks.iter().filter(made).count()
    }
}

/// Returns the parity that all members compute of the same data.
pub fn parity_of(data: &[ChunkName], ec: Ec) -> Vec<ChunkName> {
    let all: Vec<u8> = data.iter().flat_map(|name| name.0).collect();
    let parity = |at: usize| ChunkName::of(&[&all[..], &[at as u8]].concat());
    (0..ec.parity()).map(parity).collect()
}

/// The longest that time goes on after every member sent a heartbeat. A member that is first in one round and last
/// in the next is silent for twice that.
const LEASH: Duration = Duration::from_millis(200);

/// The machine's clock, but it stands still while the crew sends no heartbeats: however busy the machine is, only
/// members that sleep are silent.
#[derive(Default)]
pub struct Leashed {
    machine: SystemClock,
    at: Mutex<At>,
}

#[derive(Default)]
struct At {
    now: Tick,
    /// The time of the machine's clock when `now` was set.
    machine: Tick,
    end: Tick,
}

impl Leashed {
    fn read(&self) -> MutexGuard<'_, At> {
        let mut at = self.at.lock().expect("no holder panics");
        let machine = self.machine.now();
        at.now = (at.now + machine.saturating_sub(at.machine)).min(at.end);
        at.machine = machine;
        at
    }

    /// Lets time go on, by `LEASH` at most.
    pub fn go_on(&self) {
        let mut at = self.read();
        at.end = at.now + LEASH;
    }
}

impl Clock for Leashed {
    fn now(&self) -> Tick {
        self.read().now
    }

    fn wall(&self) -> UnixMillis {
        self.machine.wall()
    }
}

/// A pool with members at work.
pub struct Crew {
    pub lab: Lab,
    pub user: Caller,
    pub members: Vec<Member>,
    pub clock: Arc<Leashed>,
}

impl Crew {
    /// Makes a pool of `count` members, with a short grace and a short time to suspicion.
    pub async fn new(count: usize) -> Self {
        Self::with(count, |_| ()).await
    }

    pub async fn with(count: usize, change: impl FnOnce(&mut ManagerConfig)) -> Self {
        let clock = Arc::new(Leashed::default());
        let env = Env { clock: Arc::clone(&clock) as SharedClock, ..Env::system() };
        let lab = Lab::within(env, |config| {
            config.suspect_after = Duration::from_millis(500);
            config.repair_grace = Duration::from_millis(1500);
            change(config);
        })
        .await;
        let user = lab.user().await;
        let mut crew = Self { lab, user, members: Vec::new(), clock };
        for at in 0..count {
            let donor = crew.lab.donor(&format!("d{at}")).await;
            crew.members.push(Member {
                donor,
                holds: BTreeSet::new(),
                asleep: false,
                lends: None,
                excess: 0,
                disk_lacks: 0,
                lies: false,
                pretends: false,
                tasks: Vec::new(),
                verified: BTreeSet::new(),
                write_sequence: 0,
                added: Vec::new(),
                removed: Vec::new(),
                sound: Vec::new(),
                results: Vec::new(),
            });
            crew.send_heartbeat().await;
        }
        crew
    }

    /// Starts the manager again after it was stopped; members that are awake register anew.
    pub async fn restart(&mut self) {
        self.lab.start().await;
        self.user = self.lab.user().await;
        for member in &mut self.members {
            member.donor.caller = self.lab.caller(&member.donor.identity);
            if !member.asleep {
                let names: Vec<_> = member.holds.iter().copied().collect();
                member.donor.report(&names).await;
            }
        }
    }

    /// Lets every member that is awake send a heartbeat, and then time go on.
    pub async fn send_heartbeat(&mut self) {
        for member in self.members.iter_mut().filter(|member| !member.asleep) {
            member.send_heartbeat().await;
        }
        self.clock.go_on();
    }

    /// Sends heartbeats until `done` returns something; panics if that takes much longer than a minute.
    pub async fn until<T>(
        &mut self,
        what: &str,
        mut done: impl AsyncFnMut(&Self) -> Option<T>,
    ) -> T {
        for _ in 0..1200 {
            self.send_heartbeat().await;
            if let Some(found) = done(self).await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let repair = self.repair().await;
        panic!("did not happen within 60 s: {what}; {repair:?}; {:?}", self.status().await.spaces);
    }

    /// Sends heartbeats for `time` by the crew's clock.
    pub async fn work(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.send_heartbeat().await;
            let left = end.saturating_sub(self.clock.now());
            tokio::time::sleep(left.min(Duration::from_millis(100))).await;
        }
    }

    /// Commits a file of one chunk for each of `chunks`, named by its number, in the directory `at`, with its
    /// copies on the members `on`.
    pub async fn copies(&mut self, at: &str, chunks: &[u64], on: &[usize]) {
        let over = Override { copies: Some(on.len() as u32), ..Override::default() };
        let session = self.open(over).await;
        offer(&self.user, session, chunks).await;
        let donors: Vec<&Donor> = on.iter().map(|at| &self.members[*at].donor).collect();
        let file = |n: &u64| {
            let mut file = crate::lab::file(&session, &format!("{at}/{n}"), &[*n], &donors);
            file.copies = on.len() as u32;
            file
        };
        let files = chunks.iter().map(file).collect();
        let committed = commit(&self.user, session, 0, files, true).await.expect("committed");
        for outcome in &committed.files {
            assert!(matches!(outcome, Outcome::Stored { .. }), "{outcome:?}");
        }
        for at in on {
            self.members[*at].holds.extend(chunks.iter().copied().map(chunk));
        }
        self.look().await;
        self.send_heartbeat().await;
    }

    /// Commits a file of one erasure-coded group, each chunk on the member of its position, and returns the names
    /// of the chunks.
    pub async fn coded(&mut self, at: &str, chunks: &[u64], ec: &str) -> Vec<ChunkName> {
        let ec: Ec = ec.parse().expect("a code");
        let session = self.open(Override { ec: Some(ec), ..Override::default() }).await;
        let mut names: Vec<ChunkName> = chunks.iter().copied().map(chunk).collect();
        let parity = parity_of(&names, ec);
        names.extend(&parity);
        let request = potluck_wire::control::Offer {
            session,
            chunks: Packed(names.clone()),
            ack: AckLevel::Memory,
            so_far: None,
        };
        self.user.call(&request).await.expect("offered");
        let mut file = crate::lab::file(&session, at, chunks, &[]);
        (file.ec, file.parity) = (Some(ec), Packed(parity));
        let receipts = names
            .iter()
            .enumerate()
            .map(|(index, name)| self.members[index].donor.receipt(&session, index, name));
        file.acknowledged = Packed(receipts.collect());
        let committed = commit(&self.user, session, 0, vec![file], true).await.expect("committed");
        assert!(matches!(committed.files[0], Outcome::Stored { .. }), "{committed:?}");
        self.look().await;
        for (member, name) in self.members.iter_mut().zip(&names) {
            member.holds.insert(*name);
        }
        self.send_heartbeat().await;
        names
    }

    /// Lets the manager scan everything now.
    async fn look(&self) {
        let resume = RepairControl { action: RepairAction::Resume };
        self.lab.admin().call(&resume).await.expect("resumed");
    }

    async fn open(&self, policy: Override) -> SessionId {
        let path = "pot://lab".parse().expect("a path");
        let reserve = Reserve {
            path,
            bytes: Some(1 << 20),
            policy,
            condition: Condition::Always,
            interrupted: Default::default(),
            link: None,
        };
        self.user.call(&reserve).await.expect("reserved").session
    }

    pub async fn status(&self) -> PoolStatus {
        self.lab.admin().call(&Status {}).await.expect("status")
    }

    pub async fn repair(&self) -> RepairState {
        self.lab.admin().call(&RepairStatus {}).await.expect("repair")
    }

    pub async fn health(&self, at: &str) -> Health {
        let path = at.parse().expect("path");
        let stat = Stat { path, chunks: false, unjudged: false, room: false, after: None };
        self.user.call(&stat).await.expect("stat").health.expect("a file")
    }

    /// Returns the members that hold a chunk.
    pub fn holders(&self, name: &ChunkName) -> Vec<usize> {
        let holds = |(_, member): &(usize, &Member)| member.holds.contains(name);
        self.members.iter().enumerate().filter(holds).map(|(at, _)| at).collect()
    }

    /// Returns how many tasks to make something members were given so far.
    pub fn made(&self) -> usize {
        self.members.iter().map(Member::made).sum()
    }

    /// Returns something if the last scan found the space whole, surviving exactly this many deaths.
    pub async fn tolerates(&self, deaths: u32) -> Option<()> {
        let status = self.status().await;
        let space = status.spaces.iter().find(|space| space.name == "lab")?;
        (space.scanned && space.tolerates == Some(deaths) && space.incomplete == 0).then_some(())
    }
}
