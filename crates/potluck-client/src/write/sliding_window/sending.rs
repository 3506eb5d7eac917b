//! Sending: groups are given donors, their chunks are sent there, and to another donor as well where a donor is late.

use super::{Event, Window};
use crate::body::Body;
use crate::link::{LinkError, PutResult};
use crate::source::CutError;
use crate::write::groups::{Place, Send, StoredChunk, StoredGroup, Stranded};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::ticket::Acknowledged;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which late chunks are looked for once everything else is sent.
const HEDGE_EVERY: Duration = Duration::from_millis(50);
/// The most chunks of a write that may arrive damaged: more have a reason that trying again does not cure.
const MAX_MISMATCHES: u32 = 3;

impl Window {
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        let now = self.client.env.clock.now();
        let no_more_donors = self.room.is_refused() && !self.denials.are_waited_for();
        match self.groups.place(&self.targets, no_more_donors, now) {
            Ok(sends) => sends.into_iter().for_each(|send| self.put(send, now)),
            Err(Stranded) => self.replace_donors()?,
        }
        self.take_stored();
        self.look_for_late();
        Ok(())
    }

    fn put(&mut self, Send { name, donor, forward, is_first }: Send, sent_at: Tick) {
        let Some(body) = self.groups.body(&name) else { return };
        let (donors, clock) = (self.donors.clone(), self.client.env.clock.clone());
        let (bytes, offload) = (body.len() as u32, self.client.env.offload);
        let ack = self.session.reserved.policy.ack;
        self.sending.under_way.insert((name, donor), sent_at);
        if let Body::Kept(chunk) = &*body
            && is_first
        {
            // This chunk was not counted when it was cut, since a kept chunk usually need not be sent.
            self.cutting.bytes += u64::from(chunk.plain);
        }
        self.events.push(Box::pin(async move {
            let request = donors.begin(donor, bytes);
            let put = async {
                let body = body.in_hand().await.map_err(LinkError::Unread)?;
                let link = donors.link(donor).await?;
                match link.put(name, ack, Arc::clone(&body), forward).await {
                    Err(LinkError::Refused(BulkStatus::Mismatch))
                        if offload.run(move || body.has_changed(&name)).await =>
                    {
                        Err(LinkError::FileChanged)
                    }
                    put => put,
                }
            };
            let result = put.await;
            match &result {
                Ok(_) => request.answered(),
                // What is wrong with the file is no fault of the donor.
                Err(LinkError::FileChanged | LinkError::Unread(_)) => drop(request),
                Err(_) => request.failed(),
            }
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
        let sent_at = self.sending.under_way.remove(&(name, donor)).unwrap_or_default();
        match result {
            Ok(stored) => {
                self.outage.answered(donor);
                self.denials.answered(donor);
                let ack = (donor, stored.ack, stored.receipt);
                self.groups.acked(&name, ack, &stored.forwarded);
            }
            Err(LinkError::FileChanged) => self.give_up(&name, &CutError::Changed.failure()),
            Err(LinkError::Unread(failure)) => self.give_up(&name, &failure),
            Err(error) => {
                self.groups.failed(&name, donor);
                self.put_failed(donor, error, sent_at)?;
            }
        }
        self.take_stored();
        Ok(())
    }

    /// Gives up a chunk that cannot be sent, and every file that has it.
    fn give_up(&mut self, name: &ChunkName, why: &Failure) {
        for file in self.groups.give_up(name) {
            if let Some(state) = self.files.get_mut(&file) {
                state.open -= 1;
                state.unsent = Some(why.clone());
                self.complete(file);
            }
        }
    }

    /// Handles a put that failed.
    ///
    /// Errors: [`code::WRONG_BYTES`] where chunks keep arriving damaged.
    fn put_failed(
        &mut self,
        donor: DonorId,
        error: LinkError,
        sent_at: Tick,
    ) -> Result<(), Failure> {
        tracing::debug!(%donor, %error, "a chunk was not taken");
        self.outage.failed(donor, &error);
        match error {
            LinkError::Refused(BulkStatus::Mismatch) | LinkError::WrongBytes => {
                self.sending.mismatches += 1;
                if self.sending.mismatches > MAX_MISMATCHES {
                    let what = format!(
                        "{} keeps receiving other bytes than were sent",
                        self.donors.name(donor)
                    );
                    return Err(Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
                        .hint("check the memory of this machine and the network between the two"));
                }
            }
            LinkError::Refused(BulkStatus::Denied) => self.denied(donor, sent_at),
            error => {
                self.room.donor_full |= error == LinkError::Refused(BulkStatus::Full);
                self.targets.give_up(donor);
            }
        }
        Ok(())
    }

    /// Records groups that have the copies that their files wait for in these files and in the report.
    fn take_stored(&mut self) {
        for StoredGroup { file, chunks } in self.groups.take_stored() {
            let mut state = self.files.get_mut(&file);
            for StoredChunk { place, sent, left_out, acks } in chunks {
                match sent {
                    Some(bytes) => {
                        self.report.sent_chunks += 1;
                        self.report.sent_bytes += u64::from(bytes);
                    }
                    None if left_out => {}
                    None => self.report.held_chunks += 1,
                }
                let Some(state) = &mut state else { continue };
                let (chunk, said) = match place {
                    Place::Data(index) => {
                        let len = u64::from(state.content.chunks[index as usize].len);
                        if !state.is_again {
                            self.progress.advance(len);
                            state.held += if sent.is_none() && !left_out { len } else { 0 };
                        }
                        (index, &mut state.acknowledged)
                    }
                    Place::Parity(index) => (index, &mut state.parity_acknowledged),
                };
                let acks = acks.into_iter();
                said.extend(acks.map(|(donor, ack, receipt)| Acknowledged {
                    chunk,
                    donor,
                    ack,
                    receipt,
                }));
            }
            if let Some(state) = state {
                state.open -= 1;
                self.complete(file);
            }
        }
    }

    /// Schedules a look for late chunks, which other donors are asked to take. There is none while chunks wait for an
    /// offer or a donor, nor, in a session without writers, while chunks are still cut, since donors are busy then.
    fn look_for_late(&mut self) {
        // A writer may wait for its chunks before it brings more, so chunks may be late while writers are there, too.
        let no_more = self.cutting.waits_for_writers() || self.cutting.is_over();
        let tail = no_more && self.groups.queued() == 0 && self.offering.is_idle();
        if tail && !self.sending.is_idle() && !self.sending.hedging {
            self.sending.hedging = true;
            self.events.push(Box::pin(async {
                tokio::time::sleep(HEDGE_EVERY).await;
                Event::LookForLate
            }));
        }
    }

    pub(super) fn hedge(&mut self) {
        self.sending.hedging = false;
        let now = self.client.env.clock.now();
        let under_way: Vec<_> =
            self.sending.under_way.iter().map(|(copy, sent_at)| (*copy, *sent_at)).collect();
        for ((name, slow), sent_at) in under_way {
            if let Some(send) = self.groups.hedge(&self.targets, &name, slow, sent_at, now) {
                self.put(send, now);
            }
        }
    }
}
