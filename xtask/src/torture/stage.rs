//! One pool under torture: its processes, its disks, the donors that are hurt, and the files that should be in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use serde_json::Value;

use super::chance::Chance;
use super::counts::Counts;
use super::damage::chunk_files;
use super::files::Files;
use super::hostile::{Hostile, OWN_SPACE};
use super::plan::{CHUNK, Plan};
use super::pool::{DEADLINE, Pool, Ran, Under, copy};
use super::power::PowerDisk;
use super::process::wait_until;
use super::small_disk::{SmallDisk, relieve};

/// The size of a disk that can fill up, in bytes.
const SMALL: u64 = 160 << 20;
/// The size of a disk that can lose its power, in bytes: more than is ever written to one.
const POWER_DISK: u64 = 1 << 30;
/// The directories of a donor's disk in which everything of the pool is.
const KEPT: [&str; 2] = ["lent", "state"];
/// The bytes that are free on a small disk that nobody has filled, whatever the pool has written to it.
const ROOM: u64 = 64 << 20;
/// Options of the manager by which sessions and chunks go within a run. Donors get no blocks of the metadata log:
/// these come and go, and chunk files that belong to nothing could not be told from them. What is removed is not kept,
/// because the run counts what is there.
const BRISK: [&str; 12] = [
    "--lease",
    "2s",
    "--gc-delay",
    "1s",
    "--resume-window",
    "0s",
    "--metadata-copies",
    "0",
    "--copies",
    "1",
    "--trash",
    "none",
];

/// A pool, with all that is known of it.
pub struct Stage {
    /// The plan that the seed expanded to.
    pub plan: Plan,
    /// The processes. They come before the disks, so that they are dropped first.
    pub pool: Pool,
    /// Every space's files, by `SPACE/NAME`.
    pub files: Files,
    /// Donors whose process is dead.
    pub dead: BTreeSet<usize>,
    /// Donors whose process stands still.
    pub frozen: BTreeSet<usize>,
    /// Donors whose disk lost or changed something that was acknowledged.
    pub spoiled: BTreeSet<usize>,
    /// Donors whose disk somebody filled.
    pub full: BTreeSet<usize>,
    /// The events so far.
    pub log: Vec<String>,
    /// The events so far, counted.
    pub counts: Counts,
    /// The source of chance, which decides what happens.
    pub chance: Chance,
    /// Disks of donors that can lose their power.
    pub power_disks: Vec<PowerDisk>,
    /// The manager's disk, if it can lose its power.
    pub manager_disk: Option<PowerDisk>,
    /// The member that does what it may not, if its program is there.
    pub hostile: Option<Hostile>,
    /// The run of the hostile member's program that is under way.
    pub hostile_at_work: Option<Under>,
    said: bool,
    begun: Instant,
    _disks: Vec<SmallDisk>,
}

impl Stage {
    /// Starts the pool of `plan` below `dir`. With `said` each step is printed as it comes.
    pub fn set(plan: Plan, program: &Path, dir: &Path, said: bool) -> Result<Self> {
        let options = [&BRISK[..], &["--repair-grace", plan.repair_grace]].concat();
        let mut manager_disk = None;
        if plan.power.is_some() {
            let image = dir.join("image-manager");
            manager_disk = PowerDisk::mount(image, &dir.join("manager"), POWER_DISK)?;
        }
        let pool = Pool::start(program, dir, &options)?;
        let chance = Chance::new(plan.seed, "steps");
        let mut stage = Self {
            plan,
            pool,
            files: Files::default(),
            dead: BTreeSet::new(),
            frozen: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            full: BTreeSet::new(),
            log: Vec::new(),
            counts: Counts::default(),
            chance,
            power_disks: Vec::new(),
            manager_disk,
            hostile: None,
            hostile_at_work: None,
            said,
            begun: Instant::now(),
            _disks: Vec::new(),
        };
        for number in 0..stage.plan.donors {
            let disk = dir.join(format!("disk-{number}"));
            fs::create_dir_all(&disk)?;
            let mut small = false;
            if stage.plan.small.contains(&number) {
                let mounted = SmallDisk::mount(&disk, SMALL)?;
                small = mounted.is_some();
                stage._disks.extend(mounted);
            } else if stage.plan.power.as_ref().is_some_and(|donors| donors.contains(&number)) {
                let image = dir.join(format!("image-{number}"));
                stage.power_disks.extend(PowerDisk::mount(image, &disk, POWER_DISK)?);
            }
            stage.pool.lend(disk, small)?;
        }
        stage.pool.wait_live()?;
        for space in stage.plan.spaces.clone() {
            let size = CHUNK.to_string();
            let fixed = ["space", "create", &space.name, "--chunk-size", &size];
            stage.pool.run(&[&fixed[..], &space.flags].concat())?.ok()?;
        }
        if let Some(program) = Hostile::program(program) {
            stage.hostile = Some(Hostile::join(program, &mut stage.pool)?);
        }
        Ok(stage)
    }

    /// Notes in the log that `what` happens now.
    pub fn say(&mut self, what: String) {
        let line = format!("{:6.1} s  {what}", self.begun.elapsed().as_secs_f64());
        if self.said {
            println!("  {line}");
        }
        self.log.push(line);
    }

    /// Returns whether `donor` may be hurt without more donors being so than is tolerated.
    pub fn may_hurt(&self, donor: usize) -> bool {
        let mut hurt: BTreeSet<usize> =
            [&self.dead, &self.frozen, &self.spoiled].into_iter().flatten().copied().collect();
        hurt.insert(donor);
        hurt.len() <= self.plan.faults
    }

    /// Returns whether every write must succeed, because all donors run and have room.
    pub fn must_write(&self) -> bool {
        self.dead.is_empty() && self.frozen.is_empty() && self.full.is_empty()
    }

    /// Draws a path in one of the spaces.
    pub fn any_path(&mut self) -> String {
        let space = self.chance.index(self.plan.spaces.len());
        let name = self.chance.below(14);
        // Some of the files are in a directory.
        let dir = if name < 5 { "dir/" } else { "" };
        format!("space-{space}/{dir}file-{name}")
    }

    /// Kills a donor's process.
    pub fn kill_donor(&mut self, number: usize) -> Result<()> {
        self.pool.kill_donor(number)?;
        self.frozen.remove(&number);
        self.dead.insert(number);
        self.counts.count("kill -9 of a donor");
        Ok(())
    }

    /// Kills the manager's process.
    pub fn kill_manager(&mut self) -> Result<()> {
        self.pool.kill_manager()?;
        self.counts.count("kill -9 of the manager");
        Ok(())
    }

    /// Starts a donor that was killed.
    pub fn revive(&mut self, number: usize) -> Result<()> {
        self.pool.start_donor(number)?;
        self.dead.remove(&number);
        Ok(())
    }

    /// Starts everything that was killed, thaws everything that stands still, and waits until all are heard.
    pub fn revive_all(&mut self) -> Result<()> {
        if !self.pool.has_manager() {
            self.pool.start_manager()?;
        }
        for number in self.frozen.clone() {
            self.thaw(number);
        }
        for number in self.dead.clone() {
            self.revive(number)?;
        }
        self.pool.wait_live()
    }

    /// Starts the manager if it is down, and waits until it hears every donor that runs and is not frozen.
    pub fn settle(&mut self) -> Result<()> {
        if !self.pool.has_manager() {
            self.pool.start_manager()?;
        }
        let frozen = self.frozen.clone();
        self.pool.wait_heard(|number| !frozen.contains(&number))
    }

    /// Waits until the manager has heard that a donor's disk has room again: writes that come before are refused.
    pub fn hear_of_room(&mut self, donor: usize) -> Result<()> {
        self.settle()?;
        if self.dead.contains(&donor) || self.frozen.contains(&donor) {
            return Ok(());
        }
        let name = format!("donor-{donor}");
        wait_until("that a donor's room is heard of", DEADLINE, || {
            let ran = self.pool.run(&["--json", "status"])?;
            let status = ran.json()?;
            let donors = status["donors"].as_array().into_iter().flatten();
            let room = donors.filter(|donor| donor["name"] == *name).map(|donor| &donor["room"]);
            Ok(ran.code == 0 && room.filter_map(Value::as_u64).any(|room| room >= ROOM))
        })
    }

    /// Compares what a read gave with what may be at `path`. With `must` a read that was refused is an error.
    pub fn judge_read(&mut self, path: &str, ran: Ran, must: bool) -> Result<()> {
        let seen = match ran.code {
            0 => Some(ran.stdout.as_slice()),
            3 => None,
            // A refused read gives no wrong byte, but where `must` is set there were too few faults for it.
            code => {
                self.counts.count("reads refused while the manager was away");
                ensure!(
                    !must,
                    "D1/A1 is broken: {path} cannot be read: exit code {code}: {}",
                    ran.stderr
                );
                return Ok(());
            }
        };
        match self.files.check(path, seen) {
            Ok(_) => self.counts.count("reads compared byte by byte"),
            Err(why) => bail!("I1/D1/D2 is broken: {why}"),
        }
        Ok(())
    }

    /// Heals everything, then compares every file and what `status` says.
    pub fn check_everything(&mut self) -> Result<()> {
        for number in std::mem::take(&mut self.full) {
            relieve(&self.pool.donors[number].disk)?;
        }
        self.revive_all()?;
        self.say("everything is healed and compared".to_owned());
        let spaces: Vec<String> = self.plan.spaces.iter().map(|space| space.name.clone()).collect();
        self.wait_clean()?;
        for space in &spaces {
            let out = self.pool.dir().join("out");
            fs::create_dir_all(&out)?;
            let target = out.display().to_string();
            let ran = self.pool.run(&["cp", "-r", &format!("pot://{space}"), &target])?;
            if ran.code != 0 {
                // An empty space has nothing to copy.
                let any = self.files.there().iter().any(|path| below(path, space));
                ensure!(
                    !any,
                    "D1 is broken: {space} cannot be read with {:?} spoiled: exit code {}: {}",
                    self.spoiled,
                    ran.code,
                    ran.stderr
                );
            }
            let found = tree(&out)?;
            for path in self.files.paths().iter().filter(|path| below(path, space)) {
                let name = path.split_once('/').map_or(path.as_str(), |(_, name)| name);
                // The name may be below a directory for the space, or not.
                let place = [out.join(space).join(name), out.join(name)];
                let seen = place.iter().find(|place| place.is_file()).map(fs::read).transpose()?;
                let content = self.files.check(path, seen.as_deref());
                let content = content.map_err(|why| anyhow::anyhow!("D1/D2 is broken: {why}"))?;
                self.files.wrote(path, content);
                self.counts.count("reads compared byte by byte");
            }
            let known = self.files.there().iter().filter(|path| below(path, space)).count();
            ensure!(found == known, "{space} has {found} files, but {known} were written");
            fs::remove_dir_all(&out)?;
        }
        self.check_status()?;
        self.wait_safe(None)?;
        self.counts.count("checks of everything");
        Ok(())
    }

    /// Waits until nothing is left of what was never committed (D2), or was removed.
    fn wait_clean(&mut self) -> Result<()> {
        let mut last = String::new();
        let clean = wait_until("that leftovers are reclaimed", 2 * DEADLINE, || {
            let status = self.pool.status()?;
            let donors = status["donors"].as_array().context("donors")?;
            let promised: u64 = donors.iter().filter_map(|donor| donor["promised"].as_u64()).sum();
            let (sessions, condemned) = (&status["sessions"], &status["condemned_chunks"]);
            last = format!("{sessions} sessions, {condemned} condemned, {promised} bytes promised");
            Ok(*sessions == 0 && *condemned == 0 && promised == 0)
        });
        clean.with_context(|| last)
    }

    /// Waits until `status` tells the right sums, if it is known what is at every path. A manager counts anew once its
    /// last count is older than twenty times what it took, which is long beside other seeds.
    fn check_status(&mut self) -> Result<()> {
        let Some(count) = self.files.count() else { return Ok(()) };
        let mut last = String::new();
        let counted = wait_until("that status counts every file", DEADLINE, || {
            let status = self.pool.status()?;
            let (said, bytes) = (&status["files"], &status["bytes"]);
            let is_right = *said == count && *bytes == self.files.bytes();
            last =
                format!("{said} files of {bytes} bytes; it is {count} of {}", self.files.bytes());
            Ok(is_right)
        });
        counted.with_context(|| last)
    }

    /// Removes everything, and checks that no chunk file stays on disks that did what they should, that all
    /// processes end when asked, and that none is left.
    pub fn strike(&mut self) -> Result<()> {
        for space in self.plan.spaces.clone() {
            self.pool.run(&["space", "rm", "-r", "-y", &space.name])?.ok()?;
        }
        if self.hostile.is_some() {
            self.pool.run(&["space", "rm", "-r", "-y", OWN_SPACE])?.ok()?;
        }
        self.wait_clean()?;
        let sound: Vec<PathBuf> = (0..self.plan.donors)
            .filter(|number| {
                !self.spoiled.contains(number) && !self.pool.donors[*number].dead_for_good
            })
            .map(|number| self.pool.donors[number].lent())
            .collect();
        let mut left = Vec::new();
        let gone = wait_until("that removed files leave the disks", DEADLINE, || {
            left = sound.iter().flat_map(|lent| chunk_files(lent)).collect();
            Ok(left.is_empty())
        });
        gone.with_context(|| format!("chunk files of nobody stay: {left:?}"))?;
        self.pool.shut_down()?;
        let panics = self.pool.panics()?;
        ensure!(panics.is_empty(), "the product panicked: {panics:#?}");
        let dir = self.pool.dir().display().to_string();
        let left = processes_that_name(&dir)?;
        ensure!(left.is_empty(), "processes are left: {left:?}");
        Ok(())
    }

    /// Copies what the pool keeps on a donor's disk to `to`, as a backup would, without what somebody else may have
    /// filled it with, who removes that from the disk and from no backup.
    pub fn copy_disk(&self, number: usize, to: &Path) -> Result<()> {
        let disk = &self.pool.donors[number].disk;
        KEPT.iter().try_for_each(|part| copy(&disk.join(part), &to.join(part)))
    }

    /// Puts back on the donor's disk what [`Stage::copy_disk`] copied.
    pub fn restore_disk(&self, number: usize, from: &Path) -> Result<()> {
        let disk = &self.pool.donors[number].disk;
        for part in KEPT {
            fs::remove_dir_all(disk.join(part))?;
        }
        copy(from, disk)?;
        // A backup that was restored is there after a power cut.
        rustix::fs::syncfs(fs::File::open(disk)?)?;
        Ok(())
    }
}

fn below(path: &str, space: &str) -> bool {
    path.strip_prefix(space).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns how many files are below a directory.
fn tree(dir: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        files += if path.is_dir() { tree(&path)? } else { 1 };
    }
    Ok(files)
}

/// Returns the command lines of processes that contain `text`. Zombies have none.
fn processes_that_name(text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(text) {
            found.push(line);
        }
    }
    Ok(found)
}

/// Draws how long a fault waits for its moment in what is under way. A client of some files is done within tens of
/// milliseconds, and it spends the first of them on starting.
pub fn moment(chance: &mut Chance) -> Duration {
    let most = chance.pick(&[20, 60, 60, 150, 500]);
    Duration::from_millis(chance.below(most))
}
