//! Groups of an erasure code on their way: every chunk of a group ends on its own donor.
//!
//! A group is a row of *seats*, one a chunk. A seat is given a donor that no other seat of its group
//! has; where that donor holds the chunk already, nothing is sent. Chunks are known by name, so that
//! one that occurs again, in its own group or in another, is sent only as often as distinct donors
//! are needed.

use super::copies::{Ack, Copies};
use crate::buffer::Buffer;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Names of stored chunks that are remembered, so that a file that repeats itself is sent once.
const REMEMBERED: usize = 1 << 16;
/// Groups looked at for donors with room, beyond the first that finds none.
const LOOK_AHEAD: usize = 8;

/// Where a chunk stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Among the data chunks, counted from 0.
    Data(u32),
    /// Among the parity chunks, counted from 0.
    Parity(u32),
}

/// A chunk of a new group.
pub struct Member {
    /// Where it stands.
    pub place: Place,
    /// Its name.
    pub name: ChunkName,
    /// Its bytes.
    pub body: Buffer,
}

/// A chunk that nothing more is to be done for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seated {
    /// Whose it is.
    pub file: u32,
    /// The place of the chunk.
    pub place: Place,
    /// How it came there.
    pub how: How,
}

/// How a chunk came where it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// So many stored bytes went to the donor for it, which has proved that it holds them.
    Sent(u32, Ack),
    /// It was sent for another place, or the pool held it, which takes no proof.
    Held(Option<Ack>),
    /// It did not: there are too few donors, and repair is to make it.
    LeftOut,
}

/// A chunk to be sent, and the donor to which it goes.
pub type Send = (ChunkName, DonorId);

/// No donor is left that a chunk could go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stranded;

/// All groups that are not stored yet.
#[derive(Default)]
pub struct Groups {
    groups: BTreeMap<u64, Group>,
    shards: HashMap<ChunkName, Shard>,
    remembered: VecDeque<ChunkName>,
    next: u64,
    unoffered: Vec<u64>,
    /// Groups with seats that have no donor.
    queue: VecDeque<u64>,
    seated: Vec<Seated>,
}

struct Group {
    file: u32,
    slot: u64,
    seats: Vec<Seat>,
}

struct Seat {
    place: Place,
    name: ChunkName,
    /// Donors it has: none yet, one, or two where the first is late.
    at: Vec<DonorId>,
    sent: bool,
    done: bool,
}

struct Shard {
    len: u32,
    /// While a seat needs it.
    body: Option<Arc<Buffer>>,
    /// Donors that held it before this session.
    held: Vec<DonorId>,
    acks: Vec<Ack>,
    under_way: Vec<DonorId>,
    /// Groups and positions that wait for it.
    seats: Vec<(u64, usize)>,
}

impl Groups {
    /// A group of file number `file`, for the plan's `slot`. Gives the names to offer.
    pub fn add(&mut self, file: u32, slot: u64, members: Vec<Member>) -> Vec<ChunkName> {
        let number = self.next;
        self.next += 1;
        let mut new = Vec::new();
        let mut seats = Vec::with_capacity(members.len());
        for (position, Member { place, name, body }) in members.into_iter().enumerate() {
            let shard = self.shards.entry(name).or_insert_with(|| {
                new.push(name);
                Shard {
                    len: body.len() as u32,
                    body: None,
                    held: Vec::new(),
                    acks: Vec::new(),
                    under_way: Vec::new(),
                    seats: Vec::new(),
                }
            });
            shard.body.get_or_insert_with(|| Arc::new(body));
            shard.seats.push((number, position));
            seats.push(Seat { place, name, at: Vec::new(), sent: false, done: false });
        }
        self.groups.insert(number, Group { file, slot, seats });
        self.unoffered.push(number);
        new
    }

    /// Takes the groups that were not offered yet.
    pub fn take_unoffered(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unoffered)
    }

    /// Whether there are groups that were not offered yet.
    pub fn has_unoffered(&self) -> bool {
        !self.unoffered.is_empty()
    }

    /// The pool holds a chunk at these donors.
    pub fn held(&mut self, name: &ChunkName, donors: Vec<DonorId>) {
        if let Some(shard) = self.shards.get_mut(name) {
            shard.held = donors;
        }
    }

    /// All chunks of these groups were offered.
    pub fn offered(&mut self, groups: Vec<u64>) {
        self.queue.extend(groups);
    }

    /// Groups with seats that have no donor.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Whether all groups are stored.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// A chunk's bytes, and their length, while a seat waits for it.
    pub fn body(&self, name: &ChunkName) -> Option<Arc<Buffer>> {
        self.shards.get(name)?.body.clone()
    }

    /// Chunks that arrived where they should be since the last call.
    pub fn take_seated(&mut self) -> Vec<Seated> {
        std::mem::take(&mut self.seated)
    }

    /// Gives seats donors that have room; what is to be sent for that, each once.
    pub fn seat(&mut self, copies: &Copies) -> Result<Vec<Send>, Stranded> {
        let mut sends = Vec::new();
        let mut waiting = 0;
        let mut result = Ok(());
        while result.is_ok() && waiting < self.queue.len().min(LOOK_AHEAD) {
            match self.seat_group(self.queue[waiting], copies, &mut sends) {
                Ok(true) => drop(self.queue.remove(waiting)),
                Ok(false) => waiting += 1,
                Err(stranded) => result = Err(stranded),
            }
        }
        match result {
            // Chunks that found their donors are sent before anything is said of the rest.
            Err(stranded) if sends.is_empty() => Err(stranded),
            _ => Ok(sends),
        }
    }

    /// Whether every seat of a group has a donor now.
    fn seat_group(
        &mut self,
        number: u64,
        copies: &Copies,
        sends: &mut Vec<Send>,
    ) -> Result<bool, Stranded> {
        self.seat_where_held(number, copies);
        let Some(group) = self.groups.get_mut(&number) else { return Ok(true) };
        let planned = copies.planned(group.slot);
        let mut taken: Vec<DonorId> = group.taken();
        let mut open = 0;
        for (position, seat) in group.seats.iter_mut().enumerate() {
            let Some(shard) = self.shards.get_mut(&seat.name) else { continue };
            if seat.done || !seat.at.is_empty() {
                continue;
            }
            let own = planned.get(position..=position).unwrap_or_default();
            let free = |donor: &DonorId| !taken.contains(donor) && !shard.has(donor);
            match copies.pick_of(own, &taken, free, shard.len) {
                Some(donor) => {
                    taken.push(donor);
                    seat.at.push(donor);
                    seat.sent = true;
                    shard.under_way.push(donor);
                    sends.push((seat.name, donor));
                }
                None => open += 1,
            }
        }
        let left = copies.left(|donor| !taken.contains(donor));
        if open > left {
            // While donors are away, one chunk beyond the data is enough.
            let data =
                group.seats.iter().filter(|seat| matches!(seat.place, Place::Data(_))).count();
            let placed = group.seats.iter().filter(|seat| !seat.at.is_empty()).count();
            if !copies.may_be_short() || placed + left <= data {
                return Err(Stranded);
            }
            self.leave_out(number, open - left);
            open = left;
        }
        Ok(open == 0)
    }

    /// Leaves the last `count` chunks of a group that have no donor to repair.
    fn leave_out(&mut self, number: u64, count: usize) {
        let Some(group) = self.groups.get(&number) else { return };
        let open =
            group.seats.iter().enumerate().filter(|(_, seat)| !seat.done && seat.at.is_empty());
        let last: Vec<usize> = open.map(|(position, _)| position).rev().take(count).collect();
        for position in last {
            self.settle(number, position, None);
        }
    }

    /// Gives seats the donors that have, or are being sent, their chunks already: those in a domain
    /// of the group last, and only where no other is left that could be sent the chunk.
    fn seat_where_held(&mut self, number: u64, copies: &Copies) {
        self.seat_if_held(number, |donor, taken| copies.is_apart(donor, taken));
        if copies.knows_domains() {
            self.seat_if_held(number, |donor, taken| copies.is_fit(donor, taken));
        }
    }

    fn seat_if_held(&mut self, number: u64, fits: impl Fn(&DonorId, &[DonorId]) -> bool) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let mut taken = group.taken();
        let mut done = Vec::new();
        for (position, seat) in group.seats.iter_mut().enumerate() {
            let Some(shard) = self.shards.get(&seat.name) else { continue };
            if seat.done || !seat.at.is_empty() {
                continue;
            }
            let free = |donor: &&DonorId| !taken.contains(donor) && fits(donor, &taken);
            let here = shard.acks.iter().map(|(donor, ..)| donor).chain(&shard.held).find(free);
            if let Some(donor) = here.or_else(|| shard.under_way.iter().find(free)).copied() {
                taken.push(donor);
                seat.at.push(donor);
                if !shard.under_way.contains(&donor) {
                    done.push((position, donor));
                }
            }
        }
        for (position, donor) in done {
            self.settle(number, position, Some(donor));
        }
    }

    /// A donor acknowledged a chunk.
    pub fn acked(&mut self, name: &ChunkName, ack: Ack) {
        let Some(shard) = self.shards.get_mut(name) else { return };
        shard.under_way.retain(|donor| *donor != ack.0);
        // Copies are counted by donors, never by answers (promise D3).
        if !shard.acks.iter().any(|(donor, ..)| *donor == ack.0) {
            shard.acks.push(ack);
        }
        for (number, position) in shard.seats.clone() {
            let seat = self.groups.get(&number).and_then(|group| group.seats.get(position));
            if seat.is_some_and(|seat| seat.at.contains(&ack.0)) {
                self.settle(number, position, Some(ack.0));
            }
        }
    }

    /// A donor did not take a chunk.
    pub fn failed(&mut self, name: &ChunkName, donor: DonorId) {
        let Some(shard) = self.shards.get_mut(name) else { return };
        shard.under_way.retain(|other| *other != donor);
        for &(number, position) in &shard.seats {
            let seat = self.groups.get_mut(&number).and_then(|group| group.seats.get_mut(position));
            let Some(seat) = seat else { continue };
            seat.at.retain(|other| *other != donor);
            if seat.at.is_empty() && !self.queue.contains(&number) {
                self.queue.push_front(number);
            }
        }
    }

    /// Another donor for a chunk that `slow` has had since `sent_at`, if waiting is not worth it.
    pub fn hedge(
        &mut self,
        copies: &Copies,
        (name, slow): Send,
        sent_at: Tick,
        now: Tick,
    ) -> Option<Send> {
        let shard = self.shards.get_mut(&name)?;
        let waiting = |(number, position): &(u64, usize)| {
            let group = self.groups.get(number)?;
            (group.seats.get(*position)?.at == [slow]).then_some((
                *number,
                *position,
                group.taken(),
            ))
        };
        let (number, position, taken) = shard.seats.iter().find_map(waiting)?;
        let free = |donor: &DonorId| !taken.contains(donor) && !shard.has(donor);
        // Whichever of the two answers first has the seat, so that one domain serves both.
        let with: Vec<DonorId> = taken.iter().copied().filter(|at| *at != slow).collect();
        let donor = copies.hedge(&with, free, (slow, shard.len), sent_at, now)?;
        shard.under_way.push(donor);
        self.groups.get_mut(&number)?.seats.get_mut(position)?.at.push(donor);
        Some((name, donor))
    }

    /// A chunk of a group is at `donor`, or is left out.
    fn settle(&mut self, number: u64, position: usize, donor: Option<DonorId>) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let Some(seat) = group.seats.get_mut(position).filter(|seat| !seat.done) else { return };
        seat.done = true;
        seat.at = donor.into_iter().collect();
        let (file, place, name) = (group.file, seat.place, seat.name);
        let was_sent = seat.sent;
        if group.seats.iter().all(|seat| seat.done) {
            self.groups.remove(&number);
        }
        let Some(shard) = self.shards.get_mut(&name) else { return };
        let ack =
            shard.acks.iter().find(|(acknowledged, ..)| Some(*acknowledged) == donor).copied();
        let how = match (donor, ack) {
            (None, _) => How::LeftOut,
            (Some(_), Some(ack)) if was_sent => How::Sent(shard.len, ack),
            (Some(_), ack) => How::Held(ack),
        };
        self.seated.push(Seated { file, place, how });
        shard.seats.retain(|seat| *seat != (number, position));
        if shard.seats.is_empty() {
            shard.body = None;
            self.remembered.push_back(name);
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if self.remembered.len() <= REMEMBERED {
            return;
        }
        let Some(oldest) = self.remembered.pop_front() else { return };
        // One that is needed again is remembered again.
        if self.shards.get(&oldest).is_some_and(|shard| shard.seats.is_empty()) {
            self.shards.remove(&oldest);
        }
    }
}

impl Group {
    fn taken(&self) -> Vec<DonorId> {
        self.seats.iter().flat_map(|seat| &seat.at).copied().collect()
    }
}

impl Shard {
    /// Whether a donor has it, or is being sent it.
    fn has(&self, donor: &DonorId) -> bool {
        self.held.contains(donor)
            || self.under_way.contains(donor)
            || self.acks.iter().any(|(acknowledged, ..)| acknowledged == donor)
    }
}

#[cfg(test)]
mod tests;
