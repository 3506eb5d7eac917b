//! Copies of chunks: sending, counting, and sending once more what is late.

use super::{Event, Window};
use crate::buffer::Buffer;
use crate::link::{Forwarding, LinkError, PutResult};
use crate::write::copies::Ack;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_wire::bulk::Status;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::ticket::Acknowledged;
use std::sync::Arc;
use std::time::Duration;

/// Names of sent chunks that are remembered, so that a file that repeats itself is sent once.
const REMEMBERED: usize = 1 << 16;
/// Chunks looked at for a donor with room, beyond the first that finds none.
const LOOK_AHEAD: usize = 16;
/// How often late copies are looked for once all else is sent.
const HEDGE_EVERY: Duration = Duration::from_millis(50);
/// A chunk that arrives damaged this often has a reason that trying again does not cure.
const MAX_MISMATCHES: u32 = 3;

impl Window {
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        let mut waiting = 0;
        while waiting < self.queue.len().min(LOOK_AHEAD) {
            let name = self.queue[waiting];
            if self.send_copies(name)? {
                self.queue.remove(waiting);
            } else {
                waiting += 1;
            }
        }
        self.look_for_late();
        Ok(())
    }

    /// Sends the copies of a chunk that find a donor; whether all did.
    pub(super) fn send_copies(&mut self, name: ChunkName) -> Result<bool, Failure> {
        loop {
            let Some(chunk) = self.chunks.get(&name).filter(|chunk| chunk.body.is_some()) else {
                return Ok(true);
            };
            let under_way = self.under_way.range((name, DonorId(0))..=(name, DonorId(u32::MAX)));
            let forwarded = chunk.forwarded.as_ref().map_or(0, |(_, to)| to.len());
            let under_way = under_way.count() + forwarded;
            if under_way + chunk.replicas.acks.len() >= chunk.replicas.want as usize {
                return Ok(true);
            }
            match self.copies.pick(&chunk.replicas, chunk.len) {
                Some(donor) => self.send_to(name, donor),
                None if self.copies.can_place(&chunk.replicas, under_way) => return Ok(false),
                None => {
                    // Its files are visible already: what is missing is left to repair.
                    let is_late = chunk.told && self.grow_refused.is_some();
                    if self.leave_short(name, under_way) {
                        return Ok(true);
                    }
                    if is_late {
                        self.abandon(name);
                        return Ok(true);
                    }
                    self.replace_donors()?;
                    return Ok(false);
                }
            }
        }
    }

    /// Leaves the copies of a chunk that no donor is there for to repair, if those it has or is
    /// being sent are enough for that.
    fn leave_short(&mut self, name: ChunkName, under_way: usize) -> bool {
        let Some(chunk) = self.chunks.get_mut(&name) else { return false };
        let made = (under_way + chunk.replicas.acks.len()) as u32;
        if !self.copies.may_be_short() || made < chunk.replicas.least {
            return false;
        }
        // By a protocol that does not wait, the manager does not know that these are left.
        if self.mirror.is_async() {
            self.abandoned += u64::from(chunk.replicas.want - made);
        }
        chunk.replicas.want = made;
        self.count_copies(name);
        true
    }

    pub(super) fn send_to(&mut self, name: ChunkName, donor: DonorId) {
        let Some(chunk) = self.chunks.get_mut(&name) else { return };
        let Some(body) = chunk.body.clone() else { return };
        chunk.replicas.targets.push(donor);
        let forward = self.forward(name, donor);
        self.put(name, donor, body, forward);
    }

    pub(super) fn put(
        &mut self,
        name: ChunkName,
        donor: DonorId,
        body: Arc<Buffer>,
        forward: Option<Forwarding>,
    ) {
        let (donors, clock) = (self.donors.clone(), self.client.env.clock.clone());
        let bytes = body.len() as u32;
        let (sent_at, ack) = (clock.now(), self.session.reserved.policy.ack);
        self.donors.rates(|rates| rates.entry(donor).or_default().sent(bytes, sent_at));
        self.under_way.insert((name, donor), sent_at);
        self.events.push(Box::pin(async move {
            let result = match donors.link(donor).await {
                Ok(link) => link.put(name, ack, body, forward).await,
                Err(error) => Err(error),
            };
            donors.rates(|rates| {
                let estimate = rates.entry(donor).or_default();
                match &result {
                    Ok(_) => estimate.acked(bytes, sent_at, clock.now()),
                    Err(_) => estimate.failed(bytes),
                }
            });
            Event::Put { name, donor, result }
        }));
    }

    pub(super) fn take_put(
        &mut self,
        name: ChunkName,
        donor: DonorId,
        result: PutResult,
    ) -> Result<(), Failure> {
        let wanted = self.chunks.get_mut(&name).filter(|chunk| chunk.body.is_some());
        let error = match (result, wanted) {
            (Ok(stored), Some(chunk)) => {
                // Copies are counted by donors, never by answers (promise D3).
                if chunk.replicas.acks.iter().all(|(acknowledged, ..)| *acknowledged != donor) {
                    chunk.replicas.acks.push((donor, stored.ack, stored.receipt));
                }
                self.take_forwarded(name, donor, &stored);
                self.count_copies(name);
                return Ok(());
            }
            (Ok(_), None) => return Ok(()), // a hedged copy that came second
            (Err(error), chunk) => {
                if let Some(chunk) = chunk {
                    // A forwarded chunk may have arrived or not: the client sends it itself.
                    let forwarded = chunk.forwarded.take_if(|(by, _)| *by == donor);
                    let to = forwarded.map_or_else(Vec::new, |(_, to)| to);
                    let gone = |at: &DonorId| *at == donor || to.contains(at);
                    chunk.replicas.targets.retain(|target| !gone(target));
                    self.queue.push_front(name);
                }
                error
            }
        };
        self.put_failed(donor, error)
    }

    /// Draws the consequences of a put that failed.
    pub(super) fn put_failed(&mut self, donor: DonorId, error: LinkError) -> Result<(), Failure> {
        tracing::debug!(%donor, %error, "a copy failed");
        self.outage.failed(donor, &error);
        match error {
            LinkError::Refused(Status::Mismatch) | LinkError::WrongBytes => {
                self.mismatches += 1;
                if self.mismatches > MAX_MISMATCHES {
                    let what = format!(
                        "{} keeps receiving other bytes than were sent",
                        self.donors.name(donor)
                    );
                    return Err(Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
                        .hint("check the memory of this machine and the network between the two"));
                }
            }
            LinkError::Refused(Status::Denied) => self.copies.give_up(donor, false),
            error => {
                self.donor_full |= error == LinkError::Refused(Status::Full);
                self.copies.give_up(donor, true);
            }
        }
        Ok(())
    }

    /// Draws the consequences of a chunk's copies so far: the files that need it are told when there
    /// are as many as their protocol waits for, and its bytes go when there are all.
    pub(super) fn count_copies(&mut self, name: ChunkName) {
        let is_async = self.mirror.is_async();
        let Some(chunk) = self.chunks.get_mut(&name) else { return };
        let (have, want) = (chunk.replicas.acks.len(), chunk.replicas.want as usize);
        let enough = have >= want || (is_async && chunk.replicas.is_somewhere());
        if enough && !chunk.told {
            chunk.told = true;
            let users = std::mem::take(&mut chunk.users);
            let acks = chunk.replicas.acks.clone();
            self.settle(&users, &acks);
        }
        if have >= want {
            self.release(name);
        }
    }

    /// All copies are made that will be made: the chunk's bytes are needed no more.
    pub(super) fn release(&mut self, name: ChunkName) {
        let Some(chunk) = self.chunks.get_mut(&name) else { return };
        if chunk.body.take().is_none() {
            return;
        }
        self.remembered.push_back(name);
        if self.remembered.len() > REMEMBERED
            && let Some(oldest) = self.remembered.pop_front()
            && self.chunks.get(&oldest).is_some_and(|chunk| chunk.body.is_none())
        {
            self.chunks.remove(&oldest);
        }
    }

    pub(super) fn settle(&mut self, users: &[(u32, u32)], acks: &[Ack]) {
        for &(file, index) in users {
            let Some(state) = self.files.get_mut(&file) else { continue };
            state.open -= 1;
            let said = acks.iter().map(|&(donor, ack, receipt)| Acknowledged {
                chunk: index,
                donor,
                ack,
                receipt,
            });
            state.acknowledged.extend(said);
            if !state.is_again {
                self.progress.advance(u64::from(state.entries[index as usize].len));
            }
            self.complete(file);
        }
    }

    /// Only the tail is hedged: before, the other donors have better to do.
    pub(super) fn look_for_late(&mut self) {
        let sent = self.queue.is_empty() && self.groups.queued() == 0;
        // Writers may wait for what was sent, whatever they bring next.
        let tail = (self.listening || self.all_cut()) && sent && self.unoffered.is_empty();
        if tail && !self.offering && !self.under_way.is_empty() && !self.hedging {
            self.hedging = true;
            self.events.push(Box::pin(async {
                tokio::time::sleep(HEDGE_EVERY).await;
                Event::LookForLate
            }));
        }
    }

    pub(super) fn hedge(&mut self) {
        let now = self.client.env.clock.now();
        let under_way: Vec<_> =
            self.under_way.iter().map(|(copy, sent_at)| (*copy, *sent_at)).collect();
        for ((name, slow), sent_at) in under_way {
            if let Some((name, donor)) = self.groups.hedge(&self.copies, (name, slow), sent_at, now)
                && let Some(body) = self.groups.body(&name)
            {
                self.put(name, donor, body, None);
                continue;
            }
            let chunk = self.chunks.get(&name).filter(|chunk| chunk.body.is_some());
            // One after the other: two late copies of a chunk must not both go to the same donor.
            let to = chunk.and_then(|chunk| {
                self.copies.hedge_copy(&chunk.replicas, slow, chunk.len, sent_at, now)
            });
            if let Some(donor) = to {
                self.send_to(name, donor);
            }
        }
    }
}
