//! Mishaps in the middle of something: processes die or stand still, disks fill up or lose power, and a member does
//! what it may not.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::hostile;
use super::pool::Under;
use super::power::{PowerDisk, lengths, lost};
use super::process::pause;
use super::small_disk;
use super::stage::{Stage, moment};

/// The name under which frozen donors are counted.
pub const DONOR_FROZEN: &str = "donor frozen";
pub const MANAGER_FROZEN: &str = "manager frozen";
pub const CLIENT_FROZEN: &str = "client frozen";
/// The names under which power cuts are counted.
pub const POWER: [&str; 3] =
    ["power cut of a donor", "power cut of the manager", "power cut of a donor in mid-session"];

/// A mishap in the middle of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    Nothing,
    KillClient,
    KillDonor(usize),
    KillManager,
    /// Manager, donors and clients die at once; page caches stay.
    KillAll,
    /// A donor's machine loses its power, and its disk loses what was not synced.
    CutPower(usize),
    /// A donor's machine loses its power and is back, without what it had not synced, while the same clients go on. They
    /// stand still for that time: what the donor acknowledged to them before is gone, and nothing told them so.
    CutPowerInSession(usize),
    CutPowerOfManager,
    /// Manager and donors lose their power at once, and clients die.
    CutPowerOfAll,
    /// A donor's process is frozen, as on a suspended machine, until the clients are done or for some steps.
    Freeze(usize),
    /// The manager's process is frozen for so many milliseconds.
    FreezeManager(u64),
    FreezeClients(u64),
    FreezeAll(u64),
    /// A member does what it may not while the clients are at work.
    Hostile,
    Fill(usize),
}

impl Mishap {
    /// Returns whether the manager goes away, so that reads under way may fail.
    pub fn excuses_reads(self) -> bool {
        matches!(
            self,
            Self::KillManager | Self::KillAll | Self::CutPowerOfManager | Self::CutPowerOfAll
        )
    }

    /// Returns whether the manager alone goes away, so that it must come back for clients that wait for it.
    pub fn takes_the_manager(self) -> bool {
        matches!(self, Self::KillManager | Self::CutPowerOfManager)
    }

    /// Returns whether writes of clients that live must succeed all the same in a pool where all is well.
    pub fn harms_no_write(self) -> bool {
        matches!(self, Self::Nothing | Self::KillClient | Self::Hostile)
    }
}

impl Stage {
    /// Draws what goes wrong, within what the spaces tolerate.
    pub fn any_mishap(&mut self) -> Mishap {
        let donor = self.chance.index(self.plan.donors);
        let may_fall =
            |stage: &Self, donor: usize| stage.pool.donors[donor].runs() && stage.may_hurt(donor);
        // If memory is enough for an ack, a power cut takes copies that were acknowledged; only victims may lose
        // such.
        let syncs = self.plan.syncs();
        let mut powerless: Vec<usize> =
            if syncs { (0..self.plan.donors).collect() } else { self.plan.victims.clone() };
        powerless.retain(|donor| self.has_power_disk(*donor) && may_fall(self, *donor));
        let powerless = (!powerless.is_empty()).then(|| self.chance.pick(&powerless));
        let still_for = self.chance.pick(&[100, 500, 1500, 4000]);
        match self.chance.below(100) {
            0..18 => Mishap::KillClient,
            18..38 if may_fall(self, donor) => Mishap::KillDonor(donor),
            38..48 => Mishap::KillManager,
            48..60 => Mishap::KillAll,
            60..69 if let Some(donor) = powerless => match self.chance.percent(60) {
                true => Mishap::CutPowerInSession(donor),
                false => Mishap::CutPower(donor),
            },
            69..73 if self.manager_disk.is_some() => Mishap::CutPowerOfManager,
            73..75 if self.manager_disk.is_some() && syncs => Mishap::CutPowerOfAll,
            75..81 if may_fall(self, donor) => Mishap::Freeze(donor),
            81..84 => Mishap::FreezeManager(still_for),
            84..87 => Mishap::FreezeClients(still_for),
            87..89 => Mishap::FreezeAll(still_for),
            89..95 if self.hostile.is_some() => Mishap::Hostile,
            95..100 if self.may_fill(donor) => Mishap::Fill(donor),
            _ => Mishap::Nothing,
        }
    }

    /// Lets `mishap` happen while `clients` are at work.
    pub fn inflict(&mut self, mishap: Mishap, clients: &mut [(String, Under)]) -> Result<()> {
        pause(moment(&mut self.chance));
        match mishap {
            Mishap::Nothing => {}
            Mishap::KillClient => self.kill_clients(clients)?,
            Mishap::KillDonor(number) => self.kill_donor(number)?,
            Mishap::KillManager => self.kill_manager()?,
            Mishap::KillAll => {
                self.kill_manager()?;
                for number in self.running() {
                    self.kill_donor(number)?;
                }
                self.kill_clients(clients)?;
            }
            Mishap::CutPower(number) => self.cut_power(&[number], false)?,
            Mishap::CutPowerInSession(number) => {
                self.freeze_clients(clients)?;
                self.cut_power(&[number], false)?;
                self.revive(number)?;
                clients.iter().for_each(|(_, client)| client.thaw());
                self.counts.count(POWER[2]);
            }
            Mishap::CutPowerOfManager => self.cut_power(&[], true)?,
            Mishap::CutPowerOfAll => {
                self.cut_power(&self.running(), true)?;
                self.kill_clients(clients)?;
                self.counts.count("power cut of everything at once");
            }
            Mishap::Freeze(number) => {
                self.pool.freeze_donor(number)?;
                self.frozen.insert(number);
                self.counts.count(DONOR_FROZEN);
            }
            Mishap::FreezeManager(time) => {
                self.pool.freeze_manager()?;
                pause(Duration::from_millis(time));
                self.pool.thaw_manager();
                self.counts.count(MANAGER_FROZEN);
            }
            Mishap::FreezeClients(time) => {
                self.freeze_clients(clients)?;
                pause(Duration::from_millis(time));
                clients.iter().for_each(|(_, client)| client.thaw());
            }
            Mishap::FreezeAll(time) => self.freeze_all(clients, Duration::from_millis(time))?,
            Mishap::Hostile => self.hostile_begins()?,
            Mishap::Fill(number) => self.fill(number)?,
        }
        Ok(())
    }

    /// Returns the donors whose process runs or is frozen.
    fn running(&self) -> Vec<usize> {
        (0..self.plan.donors).filter(|number| self.pool.donors[*number].runs()).collect()
    }

    fn kill_clients(&mut self, clients: &mut [(String, Under)]) -> Result<()> {
        for (_, client) in clients {
            if client.kill_9()? {
                self.counts.count("kill -9 of a client");
            }
        }
        Ok(())
    }

    fn freeze_clients(&mut self, clients: &mut [(String, Under)]) -> Result<()> {
        for (_, client) in clients {
            if client.freeze()? {
                self.counts.count(CLIENT_FROZEN);
            }
        }
        Ok(())
    }

    /// Freezes all processes, and wakes them after `time` in an order that chance picks.
    fn freeze_all(&mut self, clients: &mut [(String, Under)], time: Duration) -> Result<()> {
        self.freeze_clients(clients)?;
        self.pool.freeze_manager()?;
        let mut asleep: Vec<usize> =
            self.running().into_iter().filter(|number| !self.frozen.contains(number)).collect();
        for number in &asleep {
            self.pool.freeze_donor(*number)?;
        }
        self.counts.count("everything frozen at once");
        pause(time);
        let manager_wakes_after = self.chance.index(asleep.len() + 1);
        for woken in 0.. {
            if woken == manager_wakes_after {
                self.pool.thaw_manager();
                clients.iter().for_each(|(_, client)| client.thaw());
            }
            if asleep.is_empty() {
                break;
            }
            let next = self.chance.index(asleep.len());
            self.pool.thaw_donor(asleep.swap_remove(next));
            pause(Duration::from_millis(self.chance.below(100)));
        }
        Ok(())
    }

    /// Cuts the power of these machines. Their processes are frozen first, so that none acknowledges anything that
    /// its disk does not have. What they had not synced is gone when the power is back, and no process runs.
    fn cut_power(&mut self, donors: &[usize], manager: bool) -> Result<()> {
        if manager {
            self.pool.freeze_manager()?;
        }
        for number in donors {
            self.pool.freeze_donor(*number)?;
        }
        let mut dirs: Vec<_> = donors
            .iter()
            .filter(|number| self.has_power_disk(**number))
            .map(|number| self.pool.donors[*number].disk.clone())
            .collect();
        dirs.extend(self.manager_disk.iter().filter(|_| manager).map(|disk| disk.dir().to_owned()));
        let before: Vec<_> = dirs.iter().map(|dir| lengths(dir)).collect();
        dirs.iter().try_for_each(|dir| self.power_disk(dir)?.cut())?;
        for number in donors {
            self.pool.kill_donor(*number)?;
            self.frozen.remove(number);
            self.dead.insert(*number);
            if self.has_power_disk(*number) {
                self.counts.count(POWER[0]);
            }
            if !self.plan.syncs() {
                self.spoiled.insert(*number);
            }
        }
        if manager {
            self.pool.kill_manager()?;
            self.counts.count(POWER[1]);
        }
        let mut taken = 0;
        for (dir, before) in dirs.iter().zip(&before) {
            self.power_disk(dir)?.restore()?;
            taken += lost(before, &lengths(dir));
        }
        self.say(format!("power was cut, and took {taken} files that nobody had synced"));
        self.counts.add("files that power cuts took", taken);
        Ok(())
    }

    fn power_disk(&self, dir: &Path) -> Result<&PowerDisk> {
        let mut disks = self.power_disks.iter().chain(&self.manager_disk);
        disks.find(|disk| disk.dir() == dir).context("a disk that can lose power")
    }

    fn has_power_disk(&self, number: usize) -> bool {
        self.power_disk(&self.pool.donors[number].disk).is_ok()
    }

    fn hostile_begins(&mut self) -> Result<()> {
        let seed = self.chance.below(u64::MAX);
        let Some(member) = &self.hostile else { return Ok(()) };
        self.hostile_at_work = Some(member.begin(&mut self.pool, seed, &self.plan.spaces)?);
        Ok(())
    }

    /// Brings back what a mishap took away; a single donor perhaps only in a later step.
    pub fn recover(&mut self, mishap: Mishap) -> Result<()> {
        match mishap {
            Mishap::KillAll | Mishap::CutPowerOfAll => {
                self.pool.start_manager()?;
                // More donors are down than the spaces tolerate, so all are started.
                self.revive_all()?;
            }
            Mishap::KillManager | Mishap::CutPowerOfManager => {
                pause(moment(&mut self.chance));
                self.settle()?;
            }
            Mishap::KillDonor(number) | Mishap::CutPower(number) if self.chance.percent(70) => {
                pause(moment(&mut self.chance));
                self.revive(number)?;
                self.settle()?;
            }
            Mishap::Freeze(number) if self.chance.percent(60) => {
                self.thaw(number);
                self.settle()?;
            }
            Mishap::CutPowerInSession(_) | Mishap::FreezeManager(_) | Mishap::FreezeAll(_) => {
                self.settle()?;
            }
            Mishap::Hostile => {
                if let Some(under) = self.hostile_at_work.take() {
                    let told = hostile::judge(under.end()?, &mut self.counts)?;
                    self.say(format!("the hostile member: {told}"));
                    // Donors tell of chunks that were stored and never offered in their next heartbeat, which the
                    // status waits for.
                    self.pool.status()?;
                }
            }
            Mishap::KillDonor(_)
            | Mishap::CutPower(_)
            | Mishap::Freeze(_)
            | Mishap::Nothing
            | Mishap::KillClient
            | Mishap::FreezeClients(_)
            | Mishap::Fill(_) => {}
        }
        Ok(())
    }

    /// Lets a frozen donor go on.
    pub fn thaw(&mut self, number: usize) {
        self.pool.thaw_donor(number);
        self.frozen.remove(&number);
    }

    /// Returns whether a donor's disk can fill up.
    pub fn may_fill(&self, number: usize) -> bool {
        let donor = &self.pool.donors[number];
        donor.small && !donor.dead_for_good
    }

    /// Fills a donor's disk nearly up with somebody else's file.
    pub fn fill(&mut self, number: usize) -> Result<()> {
        let left = self.chance.below(300_000);
        small_disk::fill(&self.pool.donors[number].disk, left)?;
        self.full.insert(number);
        self.counts.count("disk filled (ENOSPC)");
        Ok(())
    }
}
