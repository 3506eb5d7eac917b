//! Hands out repair to donors, within budgets.

mod encoding;
mod state;

use super::repairs::{Handed, NO_ROOM, Purpose, Reads, Repairs, SPARE_SOURCES, UNREACHABLE};
use super::{Encode, RepairJob, ShardAt};
use crate::donor_table::DonorContact;
use crate::pool::Pool;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{Domain, DonorId, VersionId};
use potluck_core::policy::AckLevel;
use potluck_core::repair_plan::{Helper, NoTarget, by_burden, target};
use potluck_wire::control::{Shard, Source, Work};

/// A round of handing out tasks, with the donors that take them. The pool is asked for these once, and they are kept
/// in step with the tasks that are handed out.
struct Round<'a> {
    takers: Vec<Helper>,
    /// True if the round hands out the tasks that owners wait for, which are not held back by the budgets of repair.
    over_quota: bool,
    now: Tick,
    source: &'a dyn Fn(DonorContact) -> Option<Source>,
}

impl Round<'_> {
    /// Returns whether no taker may be given more, so that no job needs to be looked at. Without any taker, jobs are
    /// looked at and found stuck.
    fn all_busy(&self) -> bool {
        !self.takers.is_empty() && self.takers.iter().all(|taker| !taker.allowed)
    }
}

impl Pool {
    /// Hands out the jobs and encodings that wait, as far as budgets allow; `source` turns a donor into a source that
    /// can be asked.
    pub fn hand_out(&mut self, now: Tick, source: &dyn Fn(DonorContact) -> Option<Source>) {
        self.drop_expired(now);
        let rests = self.repairs.paused.is_some() || self.too_many_dead().is_some();
        if rests && self.repairs.over_quota.is_empty() {
            return;
        }
        let takers = self.takers(now).into_iter().filter(|taker| self.takes_repair(taker.donor));
        let mut round = Round { takers: takers.collect(), over_quota: true, now, source };
        round.takers.iter_mut().for_each(|taker| {
            taker.free = taker
                .free
                .saturating_sub(self.repairs.writing.get(&taker.donor).copied().unwrap_or(0));
        });
        self.allow(&mut round);
        self.hand_out_jobs(&mut round);
        if rests {
            return;
        }
        round.over_quota = false;
        self.allow(&mut round);
        self.hand_out_jobs(&mut round);
        if !self.repairs.restores() {
            self.hand_out_encodings(&mut round);
        } else if !self.repairs.encodings.waiting.is_empty() {
            self.repairs.note_held_back();
        }
    }

    /// Hands out the jobs that wait, either those that owners wait for, without budgets, or the others. A pause holds
    /// up repair, but not the jobs that owners wait for: all chunks of these can be had.
    fn hand_out_jobs(&mut self, round: &mut Round<'_>) {
        let over_quota = round.over_quota;
        let restores = self.repairs.restores();
        for key in self.repairs.waiting(over_quota).round() {
            if round.all_busy() || (!over_quota && !self.repairs.pool.ready(round.now)) {
                return;
            }
            let Some(job) = self.repairs.waiting(over_quota).take(key) else { continue };
            if job.is_goal() && (restores || self.repairs.stuck.for_room) {
                self.repairs.waiting(over_quota).put_back(key, job);
                self.repairs.note_held_back();
                continue;
            }
            if let Some(rest) = self.hand_out_job(job, round) {
                self.repairs.waiting(over_quota).put_back(key, rest);
            }
        }
    }

    /// Notes on each taker whether it may be given more.
    fn allow(&mut self, round: &mut Round<'_>) {
        for taker in &mut round.takers {
            self.repairs.allow(taker, round.now, round.over_quota);
        }
    }

    /// Hands out a job as far as it can be; returns what is left of it, to be handed out later.
    fn hand_out_job(&mut self, mut job: RepairJob, round: &mut Round<'_>) -> Option<RepairJob> {
        let mut later = Vec::new();
        for make in std::mem::take(&mut job.make) {
            let chunk = job.shards[make.shard].name;
            if self.repairs.under_way.contains(&chunk) {
                later.push(make);
                continue;
            }
            if self.repairs.is_finished(&chunk) {
                continue; // the next scan sees whether it lacks more
            }
            match self.hand_out_chunk(&mut job, make.shard, make.missing, round) {
                Handed::Out => {}
                Handed::Later => later.push(make),
                Handed::Stuck(why) => self.repairs.note_stuck(why, job.is_goal()),
            }
        }
        job.make = later;
        (!job.make.is_empty()).then_some(job)
    }

    fn hand_out_chunk(
        &mut self,
        job: &mut RepairJob,
        shard: usize,
        missing: bool,
        round: &mut Round<'_>,
    ) -> Handed {
        let wanted = job.shards[shard].clone();
        let len = u64::from(wanted.len);
        let mut used = job.used.clone();
        used.extend(self.targets_of(job.unit, &round.takers));
        let able: Vec<Helper> = round
            .takers
            .iter()
            .filter(|taker| !wanted.at.contains(&taker.donor))
            .cloned()
            .collect();
        let chosen = match target(&able, len, &used, missing) {
            Ok(chosen) => chosen.clone(),
            Err(NoTarget::Later) => return Handed::Later,
            Err(NoTarget::Full) => return Handed::Stuck(NO_ROOM),
            Err(NoTarget::NoneApart) => {
                return Handed::Stuck(
                    "too few donors: each copy or chunk of a group needs a donor of its own",
                );
            }
        };
        let from: Vec<&ShardAt> = if wanted.from.is_empty() {
            let others = job.shards.iter().enumerate();
            others
                .filter(|(at, other)| *at != shard && !other.from.is_empty())
                .map(|(_, s)| s)
                .collect()
        } else {
            vec![&wanted]
        };
        let need = if wanted.from.is_empty() { job.group.map_or(1, |(_, data)| data) } else { 1 };
        let (shards, reads) = match self.sources(&from, need, round) {
            Ok(found) => found,
            Err(why) => return why,
        };
        let chunk = wanted.name;
        let purpose =
            Purpose::Make { unit: job.unit, chunk, len: wanted.len, reads: reads.clone() };
        let rebuilt = wanted.from.is_empty().then_some(job.group).flatten();
        let kind = job.kind;
        let work = match rebuilt {
            None => Work::Copy {
                chunk,
                len: wanted.len,
                ack: AckLevel::Disk,
                kind,
                from: shards.into_iter().flat_map(|shard| shard.from).collect(),
            },
            Some((ec, data)) => Work::Rebuild {
                chunk,
                len: wanted.len,
                ack: AckLevel::Disk,
                kind,
                ec,
                position: wanted.position,
                data: data as u8,
                shards,
            },
        };
        self.repairs.tasks.give(chosen.donor, round.now, purpose, work);
        self.repairs.under_way.insert(chunk);
        self.repairs.makers.entry(job.unit).or_default().push(chosen.donor);
        self.charge(chosen.donor, len, &reads, round);
        job.used.push((chosen.donor, chosen.domain));
        Handed::Out
    }

    /// Charges the budgets of a task, and looks anew whether the taker may be given more.
    fn charge(
        &mut self,
        taker: DonorId,
        bytes: u64,
        reads: &[(DonorId, u64)],
        round: &mut Round<'_>,
    ) {
        let rate = self.repairs.donor_rate;
        let budgeted = !round.over_quota;
        if budgeted {
            self.repairs.pool.take(bytes);
            Repairs::bucket(&mut self.repairs.writers, taker, rate, round.now).take(bytes);
        }
        *self.repairs.writing.entry(taker).or_default() += bytes;
        for (source, bytes) in reads {
            if budgeted {
                Repairs::bucket(&mut self.repairs.readers, *source, rate, round.now).take(*bytes);
            }
            *self.repairs.reading.entry(*source).or_default() += bytes;
        }
        if let Some(taker) = round.takers.iter_mut().find(|helper| helper.donor == taker) {
            taker.free = taker.free.saturating_sub(bytes);
            self.repairs.allow(taker, round.now, round.over_quota);
        }
    }

    /// Returns the targets of tasks under way for the same unit.
    fn targets_of(
        &self,
        unit: (VersionId, u32, bool),
        takers: &[Helper],
    ) -> Vec<(DonorId, Domain)> {
        let Some(makers) = self.repairs.makers.get(&unit) else { return Vec::new() };
        takers
            .iter()
            .filter(|taker| makers.contains(&taker.donor))
            .map(|taker| (taker.donor, taker.domain))
            .collect()
    }

    /// Returns the sources to ask for `need` of `shards`, the least burdened first, and how much is read at each.
    /// Shards beyond `need` are named in case one fails.
    ///
    /// Errors: `Later` if budgets do not allow it now, `Stuck` if too few sources can be asked.
    fn sources(
        &mut self,
        shards: &[&ShardAt],
        need: usize,
        round: &Round<'_>,
    ) -> Result<(Vec<Shard>, Reads), Handed> {
        let mut found: Vec<(Helper, &ShardAt, Vec<DonorId>)> = Vec::new();
        let mut able = 0;
        for shard in shards {
            let mut helpers = Vec::new();
            for donor in &shard.from {
                if self.donors.is_live(*donor, round.now, &self.limits) {
                    helpers.push(self.helper(*donor, round.now, round.over_quota));
                }
            }
            let failing = |helper: &Helper| self.repairs.is_failing(helper.donor, round.now);
            able += usize::from(!helpers.iter().all(failing));
            by_burden(&mut helpers);
            let Some(best) = helpers.first().cloned() else { continue };
            let sources = helpers.iter().take(1 + SPARE_SOURCES).map(|helper| helper.donor);
            found.push((best, shard, sources.collect()));
        }
        found.sort_by_key(|(best, shard, _)| (!best.allowed, best.outstanding, shard.position));
        if able < need {
            return Err(Handed::Stuck(UNREACHABLE));
        }
        let chosen = &found[..need];
        if chosen.iter().any(|(helper, ..)| !helper.allowed) {
            return Err(Handed::Later);
        }
        let reads =
            chosen.iter().map(|(helper, shard, _)| (helper.donor, u64::from(shard.len))).collect();
        // Tickets cost more than all the rest, so they are made only for what is sent.
        let source = |donor| (round.source)(self.contact(donor, round.now)?);
        let sent = |(_, shard, sources): (Helper, &ShardAt, Vec<DonorId>)| Shard {
            position: shard.position,
            chunk: shard.name,
            len: shard.len,
            from: sources.into_iter().filter_map(source).collect(),
        };
        Ok((found.into_iter().map(sent).collect(), reads))
    }

    fn helper(&mut self, donor: DonorId, now: Tick, over_quota: bool) -> Helper {
        let rate = self.repairs.donor_rate;
        let alone = self.repairs.is_left_alone(donor, now);
        let ready =
            over_quota || Repairs::bucket(&mut self.repairs.readers, donor, rate, now).ready(now);
        let outstanding = self.repairs.reading.get(&donor).copied().unwrap_or(0);
        let ahead = self.repairs.ahead(over_quota);
        let allowed = ready && !alone && (outstanding == 0 || outstanding < ahead);
        Helper { donor, domain: 0, free: 0, outstanding, allowed }
    }

    fn drop_expired(&mut self, now: Tick) {
        for (donor, task) in self.repairs.tasks.expired(now) {
            self.repairs.landed(donor, &task.purpose);
            self.repairs.let_rest(donor, now);
            // The job of the task is in no queue any more, so only the next scan finds that the chunk is still lacking.
            self.repairs.more = true;
        }
        self.repairs.forget_failures(now);
    }

    /// Forgets the tasks of a donor that will not answer them: it has a new incarnation, is dead, or was removed.
    pub(crate) fn forget_tasks(&mut self, donor: DonorId) {
        for task in self.repairs.tasks.forget(donor) {
            self.repairs.landed(donor, &task.purpose);
        }
    }

    /// Notes that a donor answered a task; returns the purpose of the task.
    pub fn task_answered(&mut self, donor: DonorId, number: u64, now: Tick) -> Option<Purpose> {
        let task = self.repairs.tasks.take(donor, number, now)?;
        self.repairs.landed(donor, &task.purpose);
        Some(task.purpose)
    }

    /// Notes that a chunk was made.
    pub fn chunk_made(&mut self, chunk: ChunkName, len: u32, now: Tick) {
        self.repairs.made(chunk, len, now);
    }

    /// Notes that a donor did what a task asked of it, so that it may be asked again. What it did while it is left alone
    /// as failing was asked of it before, and ends nothing. Of the donors that sent it something nothing is known: it
    /// does not say which of them did.
    pub fn worked(&mut self, donor: DonorId, now: Tick) {
        if !self.repairs.is_failing(donor, now) {
            self.repairs.ask_again(donor);
        }
    }

    /// Notes that a donor computed a group's parity, and holds it.
    pub fn parity_made(&mut self, group: &Encode, now: Tick) {
        self.repairs.wrote(group.parity_bytes(), now);
    }

    /// Orders a donor to read back all it holds.
    pub fn order_scrub(&mut self, donor: DonorId, rate: u64, now: Tick) {
        self.repairs.tasks.give(donor, now, Purpose::Scrub, Work::Scrub { rate });
    }

    /// Notes that a source did not answer the donor that a task had sent to it. The source rests for a while,
    /// unless it has registered since the task was given: the task then names the addresses it had before.
    pub fn source_is_away(&mut self, source: DonorId, task: u64, now: Tick) {
        if self.donors.registration(source).is_none_or(|registration| task > registration.last_task)
        {
            self.let_rest(source, now);
        }
    }

    /// Notes that a donor failed at what it was asked for. It is asked for nothing for a moment, and for longer when it
    /// fails again: a live donor that missed one task is not worth an alarm.
    pub fn let_rest(&mut self, donor: DonorId, now: Tick) {
        self.repairs.let_rest(donor, now);
    }

    /// Notes that a donor gave an answer that cannot be right; it is asked for nothing for a while.
    pub fn leave_alone(&mut self, donor: DonorId, now: Tick) {
        self.repairs.leave_alone(donor, now);
    }
}

#[cfg(test)]
mod tests;
