//! Donors that die for good, and the repair that must make up for them.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::pool::DEADLINE;
use super::process::wait_until;
use super::stage::Stage;

/// The name under which chunks that were made again are counted.
pub const MADE: &str = "chunks made again after a death for good";

impl Stage {
    /// Everything is healed, and the seed wants another donor to die for good: kills one, takes its
    /// disk away, and waits until every space tolerates as many deaths as before.
    pub fn kill_one_for_good(&mut self) -> Result<()> {
        let living: Vec<usize> =
            (0..self.plan.donors).filter(|number| self.pool.donors[*number].runs()).collect();
        let fits = |number: &usize| self.may_hurt(*number);
        let may: Vec<usize> = living.into_iter().filter(fits).collect();
        if self.plan.deaths == 0 || may.is_empty() {
            return Ok(());
        }
        self.plan.deaths -= 1;
        let number = self.chance.pick(&may);
        let name = self.pool.donors[number].name.clone();
        self.say(format!("{name} dies for good"));
        let before = made(&self.pool.status()?)?;
        self.kill_donor(number)?;
        for part in ["lent", "state"] {
            fs::remove_dir_all(self.pool.donors[number].disk.join(part))?;
        }
        self.pool.donors[number].dead_for_good = true;
        self.read_after_a_death()?;
        let mut gone = None;
        wait_until(&format!("that {name} is gone"), DEADLINE, || {
            let status = self.pool.status()?;
            let donors = status["donors"].as_array().context("donors")?;
            gone = donors
                .iter()
                .any(|donor| donor["name"] == name && donor["state"] == "dead")
                .then(Instant::now);
            Ok(gone.is_some())
        })?;
        self.wait_safe(gone)?;
        let after = made(&self.pool.status()?)?;
        let seconds = gone.map_or(0.0, |gone| gone.elapsed().as_secs_f64());
        self.say(format!("{} chunks were made again in {seconds:.1} s", after - before));
        self.counts.add(MADE, after - before);
        self.counts.count("donor dead for good, and repaired after");
        // An admin removes it, so that the pool gives up what was condemned there, and only then.
        self.pool.run(&["nodes", "rm", &name, "--yes"])?.ok()?;
        // Whatever its disk had lost is no concern any more.
        self.dead.remove(&number);
        self.spoiled.remove(&number);
        Ok(())
    }

    /// Every file stays readable while repair works.
    fn read_after_a_death(&mut self) -> Result<()> {
        for path in self.files.there() {
            let ran = self.pool.run(&["cat", &format!("pot://{path}")])?;
            self.judge_read(&path, ran, true)?;
        }
        Ok(())
    }

    /// Waits until `status` calls every space as safe as its policy promises, by a scan that began
    /// after `since`.
    pub fn wait_safe(&mut self, since: Option<Instant>) -> Result<()> {
        let mut last = String::new();
        let safe = wait_until("that every space is as safe as it should be", 2 * DEADLINE, || {
            self.pool.check_alive()?;
            let status = self.pool.status()?;
            let danger = self.danger(&status, since)?;
            if status["repair"]["paused"].is_string() {
                // More donors died than a pool of this size believes to be an accident.
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
            // Told in whole seconds, rounded down.
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
