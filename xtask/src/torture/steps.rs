//! The steps of a run: what clients do, and what goes wrong meanwhile.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::damage::{Damage, chunk_files};
use super::files::Content;
use super::mishap::Mishap;
use super::plan::CHUNK;
use super::process::pause;
use super::small_disk;
use super::stage::{Stage, moment};

impl Stage {
    /// Does one thing that chance picks.
    pub fn step(&mut self) -> Result<()> {
        match self.chance.below(100) {
            0..45 => self.write(),
            45..64 => self.read(),
            64..70 => self.remove(),
            70..74 => self.rename(),
            74..86 => self.spoil(),
            86..90 => self.bring_back_an_old_disk(),
            90..94 => self.fill_or_relieve(),
            94..97 => self.interrupt_nothing(),
            _ => {
                self.say("the dead are revived, and the frozen thawed".to_owned());
                self.revive_all()
            }
        }
    }

    // ---- what clients do

    fn write(&mut self) -> Result<()> {
        let certain = self.must_write();
        let mishap = if self.chance.percent(80) { self.any_mishap() } else { Mishap::Nothing };
        let mut writes: Vec<(String, Content)> = Vec::new();
        for _ in 0..self.chance.between(1, 3) {
            let path = self.any_path();
            if self.files.is_certain(&path) && !writes.iter().any(|(other, _)| *other == path) {
                writes.push((path, Content::draw(&mut self.chance, CHUNK)));
            }
        }
        if writes.is_empty() {
            return Ok(());
        }
        self.say(format!("put {writes:?}, meanwhile {mishap:?}"));
        let mut clients = Vec::new();
        for (number, (path, content)) in writes.iter().enumerate() {
            let input = self.pool.dir().join(format!("input-{number}"));
            fs::write(&input, content.bytes())?;
            let remote = format!("pot://{path}");
            let put = self.pool.begin(&["cp", &input.display().to_string(), &remote])?;
            clients.push((path.clone(), put));
            self.files.may_have_written(path, Some(*content));
        }
        self.inflict(mishap, &mut clients)?;
        if mishap.takes_the_manager() {
            // The manager comes back in time for the clients, whose retry limit is far longer.
            pause(moment(&mut self.chance));
            self.pool.start_manager()?;
        }
        for ((path, put), (_, content)) in clients.into_iter().zip(&writes) {
            let ran = put.end()?;
            match ran.code {
                0 => {
                    self.files.wrote(&path, Some(*content));
                    self.counts.count("writes acknowledged");
                }
                -9 => self.counts.count("writes killed"),
                5 | 6 => {
                    self.counts.count("writes refused");
                    let healthy = certain && mishap.harms_no_write();
                    ensure!(
                        !healthy,
                        "A1 is broken: a write failed in a healthy pool: {}",
                        ran.stderr
                    );
                }
                code => anyhow::bail!(
                    "putting {path} ended with {code}, neither “try again” nor “no space”: {}",
                    ran.stderr
                ),
            }
        }
        self.recover(mishap)
    }

    fn read(&mut self) -> Result<()> {
        let there = self.files.paths();
        if there.is_empty() {
            return Ok(());
        }
        let mishap = if self.chance.percent(60) { self.any_mishap() } else { Mishap::Nothing };
        let paths: Vec<String> =
            (0..self.chance.between(1, 3)).map(|_| self.chance.pick(&there)).collect();
        self.say(format!("read {paths:?}, meanwhile {mishap:?}"));
        let mut clients = Vec::new();
        for path in &paths {
            let get = self.pool.begin(&["cat", &format!("pot://{path}")])?;
            clients.push((path.clone(), get));
        }
        self.inflict(mishap, &mut clients)?;
        for (path, get) in clients {
            let ran = get.end()?;
            if ran.code == -9 {
                self.counts.count("reads killed");
            } else {
                self.judge_read(&path, ran, !mishap.excuses_reads())?;
            }
        }
        self.recover(mishap)
    }

    fn remove(&mut self) -> Result<()> {
        let there = self.files.there();
        if there.is_empty() {
            return Ok(());
        }
        let path = self.chance.pick(&there);
        self.say(format!("remove {path}"));
        self.pool.run(&["rm", &format!("pot://{path}")])?.ok()?;
        self.files.wrote(&path, None);
        self.counts.count("files removed");
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let there = self.files.there();
        if there.is_empty() {
            return Ok(());
        }
        let from = self.chance.pick(&there);
        let space = from.split_once('/').context("a space")?.0;
        let to = format!("{space}/file-{}", self.chance.between(5, 13));
        if from == to || !self.files.is_certain(&to) {
            return Ok(());
        }
        self.say(format!("move {from} to {to}"));
        self.pool.run(&["mv", "-y", &format!("pot://{from}"), &format!("pot://{to}")])?.ok()?;
        let content = self.files.possible(&from)[0];
        self.files.wrote(&to, content);
        self.files.wrote(&from, None);
        self.counts.count("files moved");
        Ok(())
    }

    // ---- what goes wrong in between

    /// Damages chunk files on a victim's disk, as rot or a lying owner does.
    fn spoil(&mut self) -> Result<()> {
        let number = self.chance.pick(&self.plan.victims);
        if !self.may_hurt(number) || self.pool.donors[number].dead_for_good {
            return Ok(());
        }
        let (chunks, most) =
            (chunk_files(&self.pool.donors[number].lent()), self.chance.between(1, 12));
        if chunks.is_empty() {
            return Ok(());
        }
        // This comes before the first chunk is damaged, for a step that fails in between has damaged the disk all
        // the same.
        self.spoiled.insert(number);
        let mut done = Vec::new();
        for _ in 0..most {
            let (damage, path, other) = (
                self.chance.pick(&Damage::ALL),
                self.chance.pick(&chunks),
                self.chance.pick(&chunks),
            );
            if damage.inflict(&path, &other, &mut self.chance)? {
                self.counts.count(damage.name());
                done.push(damage);
            }
        }
        self.say(format!("donor-{number}'s disk: {done:?}"));
        Ok(())
    }

    /// Replaces a victim's disk by a copy of it that was made some writes earlier.
    fn bring_back_an_old_disk(&mut self) -> Result<()> {
        let number = self.chance.pick(&self.plan.victims);
        if !self.may_hurt(number) || !self.pool.donors[number].runs() {
            return Ok(());
        }
        self.say(format!("donor-{number}'s disk is copied, and brought back some writes later"));
        let copy = self.pool.dir().join("old-disk");
        fs::create_dir_all(&copy)?;
        self.kill_donor(number)?;
        self.copy_disk(number, &copy)?;
        self.revive(number)?;
        self.settle()?;
        for _ in 0..self.chance.between(1, 3) {
            self.write()?;
            self.remove()?;
        }
        self.settle()?;
        if !self.may_hurt(number) {
            // Other donors were hurt meanwhile.
            return Ok(fs::remove_dir_all(&copy)?);
        }
        if self.pool.donors[number].runs() {
            self.kill_donor(number)?;
        }
        self.spoiled.insert(number);
        small_disk::relieve(&self.pool.donors[number].disk)?;
        self.full.remove(&number);
        self.restore_disk(number, &copy)?;
        fs::remove_dir_all(&copy)?;
        self.revive(number)?;
        self.counts.count("old disk brought back");
        self.settle()
    }

    fn fill_or_relieve(&mut self) -> Result<()> {
        let small: Vec<usize> =
            (0..self.plan.donors).filter(|number| self.may_fill(*number)).collect();
        if let Some(number) = self.full.pop_first() {
            self.say(format!("donor-{number} has room again"));
            small_disk::relieve(&self.pool.donors[number].disk)?;
            self.hear_of_room(number)?;
        } else if !small.is_empty() {
            let number = self.chance.pick(&small);
            self.say(format!("donor-{number}'s disk is filled"));
            self.fill(number)?;
        }
        Ok(())
    }

    /// Lets something go wrong while no client is at work.
    fn interrupt_nothing(&mut self) -> Result<()> {
        let mishap = self.any_mishap();
        if matches!(mishap, Mishap::KillClient | Mishap::FreezeClients(_) | Mishap::Nothing) {
            return Ok(());
        }
        self.say(format!("nobody does anything, meanwhile {mishap:?}"));
        self.inflict(mishap, &mut [])?;
        self.recover(mishap)
    }
}
