//! Lets donors die for good, and checks the repair that must make up for them.

use std::fs;
use std::io::ErrorKind;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::pool::DEADLINE;
use super::process::wait_until;
use super::stage::Stage;

/// The name under which chunks that were made again are counted.
pub const MADE: &str = "chunks made again after a death for good";

/// The exit code of a command that is refused because of what is in the pool.
const CONFLICT: i32 = 10;

/// The name under which wiped disks are counted.
pub const WIPED: &str = "disk wiped, and a new donor in its place";

impl Stage {
    /// Lets another donor die for good, if the plan wants it and the spaces tolerate it: either it is killed and
    /// its disk goes away, or its disk is wiped and lent by a new donor. Then every space must tolerate as many
    /// deaths as before. Everything is healed when this is called.
    pub fn lose_one_for_good(&mut self) -> Result<()> {
        let living: Vec<usize> =
            (0..self.plan.donors).filter(|number| self.pool.donors[*number].runs()).collect();
        let fits = |number: &usize| self.may_hurt(*number);
        let may: Vec<usize> = living.into_iter().filter(fits).collect();
        if self.plan.deaths == 0 || may.is_empty() {
            return Ok(());
        }
        self.plan.deaths -= 1;
        let number = self.chance.pick(&may);
        let before = made(&self.pool.status()?)?;
        if self.chance.percent(60) {
            self.wipe(number)?;
        } else {
            self.say(format!("donor-{number} dies for good"));
            self.kill_donor(number)?;
            self.remove_all_of(number)?;
        }
        self.pool.donors[number].dead_for_good = true;
        let name = self.pool.donors[number].name.clone();
        self.read_after_a_death()?;
        let (mut asked, mut held) = (Instant::now(), false);
        wait_until(&format!("that {name} is gone"), DEADLINE, || {
            // This is before the status is asked, for the status waits for a scan that knows of the death, and no
            // later scan may come.
            asked = Instant::now();
            let status = self.pool.status()?;
            let donors = status["donors"].as_array().context("donors")?;
            let gone = |donor: &&Value| donor["name"] == name && donor["state"] == "dead";
            let gone = donors.iter().find(gone);
            held = gone.is_some_and(|donor| donor["chunks"] != 0);
            Ok(gone.is_some())
        })?;
        // If the donor held nothing, the status waits for no scan, and the last one may be as old as the death.
        self.wait_safe(held.then_some(asked))?;
        let after = made(&self.pool.status()?)?;
        let seconds = asked.elapsed().as_secs_f64();
        self.say(format!("{} chunks were made again in {seconds:.1} s", after - before));
        self.counts.add(MADE, after - before);
        self.counts.count("donor dead for good, and repaired after");
        self.remove_dead(&name)?;
        // What this donor's disk had lost does not matter any more.
        self.dead.remove(&number);
        self.spoiled.remove(&number);
        Ok(())
    }

    /// Removes a dead donor as an admin would, for only then does the pool give up what was condemned there. The
    /// removal may be refused while another donor is given up too, because it was silent for long, as happens on a
    /// busy machine; and while chunks of the dead donor are still made again, if the last scan began just before it
    /// was given up. It may be refused for no other reason once all is as safe as it should be.
    fn remove_dead(&mut self, name: &str) -> Result<()> {
        wait_until(&format!("that {name} may be removed"), DEADLINE, || {
            let made_before = made(&self.pool.status()?)?;
            let ran = self.pool.run(&["nodes", "rm", name, "--yes"])?;
            if ran.code != CONFLICT {
                ran.ok()?;
                return Ok(true);
            }
            let status = self.pool.status()?;
            let donors = status["donors"].as_array().context("donors")?;
            let away = |donor: &Value| donor["name"] != name && donor["state"] != "live";
            let is_repaired_meanwhile = made(&status)? > made_before;
            let explained = is_repaired_meanwhile
                || donors.iter().any(away)
                || self.danger(&status, None)?.is_some();
            ensure!(explained, "{} And yet all is safe: {status}", ran.stderr);
            self.counts.count("removal of a dead donor refused while another was away");
            self.wait_safe(None)?;
            Ok(false)
        })
    }

    /// Deletes all that a donor keeps, perhaps while it runs, and lends the same directory anew.
    fn wipe(&mut self, number: usize) -> Result<()> {
        let name = self.pool.donors[number].name.clone();
        if self.chance.percent(50) {
            self.say(format!("{name}'s directories are deleted while it runs"));
            let lent = self.pool.donors[number].lent();
            // The donor may write there meanwhile.
            wait_until(&format!("that {name}'s directory is gone"), DEADLINE, || {
                Ok(fs::remove_dir_all(&lent).is_ok() || !lent.exists())
            })?;
            wait_until(&format!("that {name} misses its directory"), DEADLINE, || {
                let status = self.pool.status()?;
                let donors = status["donors"].as_array().context("donors")?;
                let misses =
                    |donor: &Value| donor["name"] == name && !donor["disk_fault"].is_null();
                Ok(donors.iter().any(misses))
            })?;
            self.pool.check_alive()?;
            self.counts.count("directory of a donor deleted while it ran");
        } else {
            self.say(format!("{name}'s directories are deleted"));
        }
        self.kill_donor(number)?;
        self.remove_all_of(number)?;
        let (disk, small) = (self.pool.donors[number].disk.clone(), self.pool.donors[number].small);
        self.pool.lend(disk, small)?;
        self.say(format!("donor-{} lends in its place", self.plan.donors));
        self.plan.donors += 1;
        self.counts.count(WIPED);
        Ok(())
    }

    fn remove_all_of(&self, number: usize) -> Result<()> {
        for part in ["lent", "state"] {
            match fs::remove_dir_all(self.pool.donors[number].disk.join(part)) {
                Err(why) if why.kind() != ErrorKind::NotFound => return Err(why.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that every file can be read while repair works.
    fn read_after_a_death(&mut self) -> Result<()> {
        for path in self.files.there() {
            let ran = self.pool.run(&["cat", &format!("pot://{path}")])?;
            self.judge_read(&path, ran, true)?;
        }
        Ok(())
    }

    /// Waits until `status` calls every space as safe as its policy promises, by a scan that began after `since`.
    pub fn wait_safe(&mut self, since: Option<Instant>) -> Result<()> {
        let mut last = String::new();
        let safe = wait_until("that every space is as safe as it should be", 2 * DEADLINE, || {
            self.pool.check_alive()?;
            let status = self.pool.status()?;
            let danger = self.danger(&status, since)?;
            if status["repair"]["paused"].is_string() {
                // The circuit breaker has stopped repair, for too many donors of so small a pool are away at once.
                self.counts.count("repair paused, and told to go on");
                self.pool.run(&["repair", "now"])?.ok()?;
            }
            last = danger.unwrap_or_default();
            Ok(last.is_empty())
        });
        safe.with_context(|| last)
    }

    fn danger(&self, status: &Value, since: Option<Instant>) -> Result<Option<String>> {
        let repair = &status["repair"];
        if let Some(since) = since {
            // `status` tells the time since the scan in whole seconds, rounded down.
            let fresh = repair["scanned_seconds"].as_u64().map(|seconds| seconds + 1);
            if fresh.is_none_or(|seconds| seconds > since.elapsed().as_secs()) {
                return Ok(Some(format!("not scanned since: {repair}")));
            }
        }
        let spaces = status["spaces"].as_array().context("spaces")?;
        for planned in &self.plan.spaces {
            let space = spaces.iter().find(|space| space["name"] == planned.name.as_str());
            let space = space.with_context(|| format!("{} is not in status", planned.name))?;
            let empty = space["files"] == space["in_catalog"];
            let tolerates = empty || space["tolerates"] == planned.tolerates();
            let whole = space["incomplete"] == 0 && space["unreadable"] == 0;
            if space["scanned"] != true || !tolerates || !whole {
                return Ok(Some(format!("{space}; {repair}")));
            }
        }
        Ok(None)
    }
}

fn made(status: &Value) -> Result<u64> {
    status["repair"]["made"].as_u64().context("a count of chunks made")
}
