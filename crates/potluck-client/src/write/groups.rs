//! Groups on their way to donors, which were encoded before (`source/parity`). With an erasure code a group is some
//! data chunks and their parity. A chunk with n copies is a group of one chunk, of which the 1-of-n code makes n equal
//! ones, so both are sent by the same code.
//!
//! A group is a row of *slots*. Each is given a donor that no other slot of the group has; where that donor holds the
//! chunk already, nothing is sent. Chunks are known by name, so a chunk that occurs again, in its own group or in
//! another, is sent only as often as distinct donors are needed.
//!
//! The mirroring protocol (docs/papers.md, CEFT) says who makes the copies of a chunk, and which of them a write waits
//! for: the donor of the first copy may be asked to forward the chunk to the others.

mod rules;

use super::targets::{Ack, At, Targets, count};
use crate::body::Body;
use crate::link::Forwarding;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::policy::{Mirror, Policy};
use potluck_wire::ticket::Receipt;
use rules::Rules;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// The most names of stored chunks that are remembered, so that a file that repeats itself is sent once.
const REMEMBERED: usize = 1 << 16;
/// The number of groups without enough donors after which the search for donors ends.
const LOOK_AHEAD: usize = 8;

/// The position of a chunk in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The index of a data chunk among those of its file, from 0.
    Data(u32),
    /// The index of a parity chunk among those of its file, from 0.
    Parity(u32),
}

/// A chunk of a new group.
pub struct Member {
    /// The position of the chunk in its file.
    pub place: Place,
    /// The name of the chunk.
    pub name: ChunkName,
    /// The bytes of the chunk.
    pub body: Arc<Body>,
}

/// A group that has what its file waits for.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredGroup {
    /// The number of the file that the group belongs to.
    pub file: u32,
    /// The chunks of the group, in the order in which they were added.
    pub chunks: Vec<StoredChunk>,
}

/// A chunk of a group that has what its file waits for.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// The place of the chunk.
    pub place: Place,
    /// The size of the chunk in stored bytes if it was sent for this group; `None` if the pool held it, another group
    /// sent it, or it is left to repair.
    pub sent: Option<u32>,
    /// True if all copies of the chunk are left to repair, because there are too few donors.
    pub left_out: bool,
    /// The acknowledgements of donors that proved that they hold the chunk. What the pool held before takes no proof.
    pub acks: Vec<Ack>,
}

/// An order to send a chunk to a donor.
#[derive(Debug, Clone)]
pub struct Send {
    /// The name of the chunk.
    pub name: ChunkName,
    /// The donor to which the chunk is sent.
    pub donor: DonorId,
    /// The donors to which that donor forwards the chunk, if it is to.
    pub forward: Option<Forwarding>,
    /// True if the chunk was sent to nobody before, as far as the session remembers it.
    pub is_first: bool,
}

/// The failure to find enough donors for a group, with no busy donor left to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stranded;

/// All groups of a session that are not stored yet, and what is remembered of the chunks of earlier ones.
pub struct Groups {
    rules: Rules,
    groups: BTreeMap<u64, Group>,
    shards: HashMap<ChunkName, Shard>,
    remembered: VecDeque<ChunkName>,
    next: u64,
    unoffered: Vec<u64>,
    /// The numbers of groups with slots that have no donor.
    queue: VecDeque<u64>,
    stored: Vec<StoredGroup>,
    /// The number of copies that donors make after they answered.
    forwarded_later: u64,
    /// The number of copies in an asynchronous write that nobody makes, which the manager does not know.
    abandoned: u64,
    /// The number of chunks of which no second copy is made.
    left_alone: u64,
}

struct Group {
    file: u32,
    /// The slot of the plan that the group is for.
    planned: u64,
    slots: Vec<Slot>,
    /// True once the file of the group was told that the group is stored.
    told: bool,
    /// True while the group is in the queue.
    queued: bool,
}

struct Slot {
    place: Place,
    name: ChunkName,
    /// The donors of the slot: none yet, one, or two where the first is late.
    at: Vec<DonorId>,
    ack: Option<Ack>,
    sent: bool,
    done: bool,
}

struct Shard {
    len: u32,
    /// The bytes of the chunk, kept while a slot needs them.
    body: Option<Arc<Body>>,
    /// The donors that held the chunk when it was offered, or that get it from another donor later.
    held: Vec<DonorId>,
    acks: Vec<Ack>,
    /// The acknowledgements that did not count any more when a file was refused: their donors were away or had been
    /// started again.
    void_acks: Vec<Ack>,
    under_way: Vec<DonorId>,
    /// The donor that forwards the chunk and has not answered, and those to which it forwards it.
    forwarded: Option<(DonorId, Vec<DonorId>)>,
    /// True once the chunk was sent to a donor.
    was_sent: bool,
    /// True while a donor may be asked to forward the chunk; each chunk is forwarded once.
    may_forward: bool,
    /// The slots that wait for the chunk, by group and position.
    slots: BTreeSet<(u64, usize)>,
}

impl Groups {
    /// Makes an empty set of groups, for a session with this policy.
    pub fn new(policy: &Policy) -> Self {
        Self {
            rules: Rules::new(policy),
            groups: BTreeMap::new(),
            shards: HashMap::new(),
            remembered: VecDeque::new(),
            next: 0,
            unoffered: Vec::new(),
            queue: VecDeque::new(),
            stored: Vec::new(),
            forwarded_later: 0,
            abandoned: 0,
            left_alone: 0,
        }
    }

    /// Adds a group of file number `file`, for the plan's slot `planned`; returns the names to offer.
    pub fn add(&mut self, file: u32, planned: u64, members: Vec<Member>) -> Vec<ChunkName> {
        let mut new = Vec::new();
        let number = self.insert(file, planned, members, &mut new);
        self.unoffered.push(number);
        new
    }

    /// Inserts a group and returns its number; `new` gets the names that were not known.
    fn insert(
        &mut self,
        file: u32,
        planned: u64,
        members: Vec<Member>,
        new: &mut Vec<ChunkName>,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        let mut slots = Vec::with_capacity(members.len() * self.rules.copies);
        for Member { place, name, body } in members {
            let shard = self.shards.entry(name).or_insert_with(|| {
                new.push(name);
                Shard {
                    len: body.len() as u32,
                    body: None,
                    held: Vec::new(),
                    acks: Vec::new(),
                    void_acks: Vec::new(),
                    under_way: Vec::new(),
                    forwarded: None,
                    was_sent: false,
                    may_forward: self.rules.mirror.is_server(),
                    slots: BTreeSet::new(),
                }
            });
            shard.body.get_or_insert(body);
            for _ in 0..self.rules.copies {
                shard.slots.insert((number, slots.len()));
                let (at, ack) = Default::default();
                slots.push(Slot { place, name, at, ack, sent: false, done: false });
            }
        }
        let group = Group { file, planned, slots, told: false, queued: false };
        self.groups.insert(number, group);
        number
    }

    /// Adds a group of file number `file` that lost chunks, for the plan's slot `planned`; `there` has the donors that
    /// have its chunks. All chunks of the group were offered before.
    pub fn add_again<'a>(
        &mut self,
        file: u32,
        planned: u64,
        members: Vec<Member>,
        there: impl IntoIterator<Item = (&'a ChunkName, &'a At)>,
    ) {
        let number = self.insert(file, planned, members, &mut Vec::new());
        for (name, At { acks, held }) in there {
            let Some(shard) = self.shards.get_mut(name) else { continue };
            acks.iter().for_each(|ack| count(&mut shard.acks, *ack));
            shard.held.clone_from(held);
        }
        self.offered(vec![number]);
    }

    /// Stops counting the acknowledgements and holders of all chunks, apart from acknowledgements for which `counts` is
    /// true and donors for which `is_held` is true.
    pub fn keep_only(&mut self, counts: impl Fn(&Ack) -> bool, is_held: impl Fn(&DonorId) -> bool) {
        for shard in self.shards.values_mut() {
            let (acks, void): (_, Vec<Ack>) =
                std::mem::take(&mut shard.acks).into_iter().partition(&counts);
            shard.acks = acks;
            shard.void_acks.extend(void);
            shard.held.retain(&is_held);
        }
    }

    /// Takes the groups that were not offered yet.
    pub fn take_unoffered(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unoffered)
    }

    /// Returns whether there are groups that were not offered yet.
    pub fn has_unoffered(&self) -> bool {
        !self.unoffered.is_empty()
    }

    /// Notes that the pool holds a chunk at these donors.
    pub fn held(&mut self, name: &ChunkName, donors: Vec<DonorId>) {
        if let Some(shard) = self.shards.get_mut(name) {
            shard.held = donors;
        }
    }

    /// Notes that all chunks of these groups were offered.
    pub fn offered(&mut self, groups: Vec<u64>) {
        for number in groups {
            if let Some(group) = self.groups.get_mut(&number) {
                group.queued = true;
                self.queue.push_back(number);
            }
        }
    }

    /// Returns the number of groups with slots that have no donor.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether all groups are stored.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the bytes of a chunk, while a slot waits for it.
    pub fn body(&self, name: &ChunkName) -> Option<Arc<Body>> {
        self.shards.get(name)?.body.clone()
    }

    /// Returns the acknowledgements of a chunk of this session, as far as they are remembered, with those that did not
    /// count any more at [`Groups::keep_only`].
    pub fn all_acks(&self, name: &ChunkName) -> impl Iterator<Item = &Ack> {
        let shard = self.shards.get(name).into_iter();
        shard.flat_map(|shard| shard.acks.iter().chain(&shard.void_acks))
    }

    /// Returns the donors that have a chunk, as far as the session remembers it.
    pub fn holders(&self, name: &ChunkName) -> Vec<DonorId> {
        let Some(shard) = self.shards.get(name) else { return Vec::new() };
        let acknowledged = shard.acks.iter().map(|(donor, ..)| *donor);
        let donors: BTreeSet<_> = acknowledged.chain(shard.held.iter().copied()).collect();
        donors.into_iter().collect()
    }

    /// Takes the groups that got what their files wait for since the last call.
    pub fn take_stored(&mut self) -> Vec<StoredGroup> {
        std::mem::take(&mut self.stored)
    }

    /// Returns the number of copies that this client has still to make in groups whose files were told that they are
    /// stored.
    pub fn pending(&self) -> u64 {
        let told = self.groups.values().filter(|group| group.told);
        told.flat_map(|group| &group.slots).filter(|slot| !slot.done).count() as u64
    }

    /// Returns whether [`Groups::pending`] is not zero, without counting on after the first.
    pub fn has_pending(&self) -> bool {
        let mut told = self.groups.values().filter(|group| group.told);
        told.any(|group| group.slots.iter().any(|slot| !slot.done))
    }

    /// Returns the number of copies that donors make after they answered.
    pub fn forwarded_later(&self) -> u64 {
        self.forwarded_later
    }

    /// Returns the number of copies in an asynchronous write that found no donor.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Returns the number of chunks of an asynchronous write of which no second copy is made, for want of donors.
    pub fn left_alone(&self) -> u64 {
        self.left_alone
    }

    /// Gives slots donors that have room; returns the chunks that are to be sent `now` for that. If `no_more_donors`
    /// will come, slots that find none are left to repair in groups whose files were told that they are stored.
    ///
    /// Errors: [`Stranded`] where a group lacks donors and nothing else is to be sent.
    pub fn place(
        &mut self,
        targets: &Targets,
        no_more_donors: bool,
        now: Tick,
    ) -> Result<Vec<Send>, Stranded> {
        let mut sends = Vec::new();
        let mut waiting = 0;
        let mut is_stranded = false;
        while waiting < self.queue.len().min(LOOK_AHEAD) {
            let number = self.queue[waiting];
            let placed = self.place_group(number, targets, no_more_donors, now, &mut sends);
            is_stranded |= placed.is_err();
            if placed == Ok(true) {
                self.queue.remove(waiting);
                if let Some(group) = self.groups.get_mut(&number) {
                    group.queued = false;
                }
            } else {
                waiting += 1;
            }
        }
        // Chunks that found their donors are sent before anything is said of the rest.
        if is_stranded && sends.is_empty() { Err(Stranded) } else { Ok(sends) }
    }

    /// Gives the slots of a group donors; returns whether every slot has a donor now or is left to repair.
    ///
    /// Errors: [`Stranded`] where too few donors are left for the group.
    fn place_group(
        &mut self,
        number: u64,
        targets: &Targets,
        no_more_donors: bool,
        now: Tick,
        sends: &mut Vec<Send>,
    ) -> Result<bool, Stranded> {
        self.place_where_held(number, targets);
        let Some(group) = self.groups.get_mut(&number) else { return Ok(true) };
        let mut planned = targets.planned(group.planned);
        let first = group.slots.first().and_then(|slot| self.shards.get(&slot.name));
        if let Some(first) = first.filter(|_| self.rules.copies > 1) {
            targets.sort_copies(&mut planned, first.len);
        }
        let mut taken: Vec<DonorId> = group.taken();
        let mut open = 0;
        for position in 0..group.slots.len() {
            let (slot, rest) = group.slots[position..].split_first_mut().expect("one is there");
            let Some(shard) = self.shards.get_mut(&slot.name) else { continue };
            if slot.done || !slot.at.is_empty() {
                continue;
            }
            let own = planned.get(position..).unwrap_or_default();
            let Some(donor) = shard.pick(targets, own, &taken) else {
                open += 1;
                continue;
            };
            taken.push(donor);
            slot.send_to(donor, shard);
            // This is counted before the next donor is picked, which may have room for this chunk alone.
            targets.sent(donor, shard.len, now);
            let forward = std::mem::take(&mut shard.may_forward)
                .then(|| self.rules.forward(targets, &planned, rest, &mut taken, shard))
                .flatten();
            if let Some(Forwarding { to, .. }) = &forward {
                shard.forwarded = Some((donor, to.iter().map(|to| to.donor).collect()));
            }
            let is_first = !std::mem::replace(&mut shard.was_sent, true);
            sends.push(Send { name: slot.name, donor, forward, is_first });
        }
        let left = targets.left(|donor| !taken.contains(donor));
        if open > left {
            // While donors are away, redundancy that survives one more death is enough.
            let nowhere = group.slots.iter().filter(|slot| slot.at.is_empty()).count();
            if targets.may_be_short() && nowhere - left <= self.rules.spare {
                self.leave_out(number, open - left);
                open = left;
            } else if group.told && no_more_donors {
                self.leave_out(number, open);
                open = 0;
            } else {
                return Err(Stranded);
            }
        }
        Ok(open == 0)
    }

    /// Leaves the last `count` slots of a group that have no donor to repair.
    fn leave_out(&mut self, number: u64, count: usize) {
        let Some(group) = self.groups.get(&number) else { return };
        let open =
            group.slots.iter().enumerate().filter(|(_, slot)| !slot.done && slot.at.is_empty());
        let last: Vec<usize> = open.map(|(position, _)| position).rev().take(count).collect();
        // In an asynchronous write the manager does not know of these slots, so they are counted here.
        if self.rules.mirror.is_async() {
            self.abandoned += last.len() as u64;
            self.left_alone += group.left_with_one(&last);
        }
        for position in last {
            self.settle(number, position, None);
        }
    }

    /// Gives slots the donors that have their chunks already or are being sent them. Donors in a domain of another
    /// chunk of the group come last, and only where no donor of another domain is left.
    fn place_where_held(&mut self, number: u64, targets: &Targets) {
        self.place_if_held(number, |donor, taken| targets.is_apart(donor, taken));
        self.place_if_held(number, |donor, taken| targets.is_fit(donor, taken));
    }

    fn place_if_held(&mut self, number: u64, fits: impl Fn(&DonorId, &[DonorId]) -> bool) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let mut taken = group.taken();
        let mut done = Vec::new();
        for (position, slot) in group.slots.iter_mut().enumerate() {
            let Some(shard) = self.shards.get(&slot.name) else { continue };
            if slot.done || !slot.at.is_empty() {
                continue;
            }
            let free = |donor: &&DonorId| !taken.contains(donor) && fits(donor, &taken);
            let here = shard.acks.iter().map(|(donor, ..)| donor).chain(&shard.held).find(free);
            if let Some(donor) = here.or_else(|| shard.under_way.iter().find(free)).copied() {
                taken.push(donor);
                slot.at.push(donor);
                if !shard.under_way.contains(&donor) {
                    done.push((position, donor));
                }
            }
        }
        for (position, donor) in done {
            self.settle(number, position, Some(donor));
        }
    }

    /// Notes an acknowledgement of a chunk; `forwarded` has the receipts of the donors to which it was forwarded, in
    /// the order of [`Forwarding::to`].
    pub fn acked(&mut self, name: &ChunkName, ack: Ack, forwarded: &[Option<Receipt>]) {
        let by = ack.0;
        self.count(name, ack);
        for (at, donor) in self.take_forwarded(name, by).into_iter().enumerate() {
            if self.rules.mirror == Mirror::ServerAsync && forwarded.is_empty() {
                self.forwarded_later += 1;
                self.takes_later(name, donor);
                continue;
            }
            match forwarded.get(at).copied().flatten() {
                Some(receipt) => self.count(name, (donor, self.rules.ack, receipt)),
                None => self.fail(name, donor),
            }
        }
    }

    /// Takes the donors to which `by` was to forward a chunk.
    fn take_forwarded(&mut self, name: &ChunkName, by: DonorId) -> Vec<DonorId> {
        let shard = self.shards.get_mut(name);
        let forwarded = shard.and_then(|shard| shard.forwarded.take_if(|(donor, _)| *donor == by));
        forwarded.map_or_else(Vec::new, |(_, to)| to)
    }

    fn count(&mut self, name: &ChunkName, ack: Ack) {
        let Some(shard) = self.shards.get_mut(name) else { return };
        shard.under_way.retain(|donor| *donor != ack.0);
        count(&mut shard.acks, ack);
        self.settle_all(name, ack.0);
    }

    /// Notes that `donor` will get the chunk from another donor. If it does not take the chunk, that is left to repair.
    fn takes_later(&mut self, name: &ChunkName, donor: DonorId) {
        let Some(shard) = self.shards.get_mut(name) else { return };
        shard.under_way.retain(|other| *other != donor);
        shard.held.push(donor);
        self.settle_all(name, donor);
    }

    /// Settles the slots that were given `donor` for a chunk, since it has the chunk.
    fn settle_all(&mut self, name: &ChunkName, donor: DonorId) {
        let Some(shard) = self.shards.get(name) else { return };
        for (number, position) in shard.slots.clone() {
            let slot = self.groups.get(&number).and_then(|group| group.slots.get(position));
            if slot.is_some_and(|slot| slot.at.contains(&donor)) {
                self.settle(number, position, Some(donor));
            }
        }
    }

    /// Notes that a donor did not take a chunk. It is not known whether other donors got the chunk from that donor, so
    /// the client sends it to them itself.
    pub fn failed(&mut self, name: &ChunkName, donor: DonorId) {
        for other in self.take_forwarded(name, donor) {
            self.fail(name, other);
        }
        self.fail(name, donor);
    }

    fn fail(&mut self, name: &ChunkName, donor: DonorId) {
        let Some(shard) = self.shards.get_mut(name) else { return };
        shard.under_way.retain(|other| *other != donor);
        for (number, position) in &shard.slots {
            let Some(group) = self.groups.get_mut(number) else { continue };
            let Some(slot) = group.slots.get_mut(*position).filter(|slot| !slot.done) else {
                continue;
            };
            slot.at.retain(|other| *other != donor);
            if slot.at.is_empty() && !std::mem::replace(&mut group.queued, true) {
                self.queue.push_front(*number);
            }
        }
    }

    /// Gives up a chunk that cannot be sent any more, and the groups that wait for it; returns the files of these
    /// groups, once for each group that its file was not told of.
    pub fn give_up(&mut self, name: &ChunkName) -> Vec<u32> {
        let Some(shard) = self.shards.remove(name) else { return Vec::new() };
        let numbers: BTreeSet<u64> = shard.slots.iter().map(|(number, _)| *number).collect();
        let mut files = Vec::new();
        for number in numbers {
            let Some(group) = self.groups.remove(&number) else { continue };
            group.slots.iter().for_each(|slot| self.release(&slot.name, number));
            files.extend((!group.told).then_some(group.file));
        }
        files
    }

    /// Gives back the bytes of a chunk of a group that was given up, unless another group waits for them.
    fn release(&mut self, name: &ChunkName, number: u64) {
        let Some(shard) = self.shards.get_mut(name) else { return };
        let before = shard.slots.len();
        shard.slots.retain(|(of, _)| *of != number);
        if shard.slots.is_empty() && before > 0 {
            shard.body = None;
            self.remembered.push_back(*name);
            self.forget_oldest();
        }
    }

    /// Picks another donor for a chunk that was sent to `slow` at `sent_at`, if waiting for `slow` is not worth it.
    pub fn hedge(
        &mut self,
        targets: &Targets,
        name: &ChunkName,
        slow: DonorId,
        sent_at: Tick,
        now: Tick,
    ) -> Option<Send> {
        let shard = self.shards.get_mut(name)?;
        let waiting = |(number, position): &&(u64, usize)| {
            let slot = self.groups.get(number).and_then(|group| group.slots.get(*position));
            slot.is_some_and(|slot| slot.at == [slow])
        };
        let waiting: Vec<_> = shard.slots.iter().filter(waiting).copied().collect();
        let taken = self.groups.get(&waiting.first()?.0)?.taken();
        let free = |donor: &DonorId| !taken.contains(donor) && !shard.has(donor);
        // The slot goes to whichever of the two answers first, so both may be of one domain.
        let with: Vec<DonorId> = taken.iter().copied().filter(|at| *at != slow).collect();
        let donor = targets.hedge(&with, free, (slow, shard.len), sent_at, now)?;
        shard.under_way.push(donor);
        targets.sent(donor, shard.len, now);
        for (number, position) in waiting {
            let Some(group) = self.groups.get_mut(&number) else { continue };
            if !group.taken().contains(&donor) {
                group.slots[position].at.push(donor);
            }
        }
        Some(Send { name: *name, donor, forward: None, is_first: false })
    }

    /// Notes that the chunk of a slot is at `donor`, or with `None` that the slot is left to repair.
    fn settle(&mut self, number: u64, position: usize, donor: Option<DonorId>) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let Some(slot) = group.slots.get_mut(position).filter(|slot| !slot.done) else { return };
        let Some(shard) = self.shards.get_mut(&slot.name) else { return };
        slot.done = true;
        slot.at = donor.into_iter().collect();
        slot.ack = shard.acks.iter().find(|(by, ..)| Some(*by) == donor).copied();
        let name = slot.name;
        shard.slots.remove(&(number, position));
        if shard.slots.is_empty() {
            shard.body = None;
            self.remembered.push_back(name);
        }
        let all_done = group.slots.iter().all(|slot| slot.done);
        if (all_done || self.rules.mirror.is_async() && donor.is_some()) && !group.told {
            group.told = true;
            self.stored.push(group.stored(self.rules.copies, &self.shards));
        }
        if all_done {
            self.groups.remove(&number);
        }
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        if self.remembered.len() <= REMEMBERED {
            return;
        }
        let Some(oldest) = self.remembered.pop_front() else { return };
        // A chunk that slots wait for again is kept, and comes into this list once more when it is stored.
        if self.shards.get(&oldest).is_some_and(|shard| shard.slots.is_empty()) {
            self.shards.remove(&oldest);
        }
    }
}

impl Group {
    /// Returns the number of chunks of the group that have fewer than two copies without the slots at `left_out`.
    fn left_with_one(&self, left_out: &[usize]) -> u64 {
        let mut kept = HashMap::<ChunkName, usize>::new();
        for (position, slot) in self.slots.iter().enumerate() {
            let is_left_out = left_out.contains(&position) || slot.done && slot.at.is_empty();
            *kept.entry(slot.name).or_default() += usize::from(!is_left_out);
        }
        kept.values().filter(|kept| **kept < 2).count() as u64
    }

    fn taken(&self) -> Vec<DonorId> {
        self.slots.iter().flat_map(|slot| &slot.at).copied().collect()
    }

    /// Returns the group in the form that its file records; each chunk has `copies` slots, one after the other.
    fn stored(&self, copies: usize, shards: &HashMap<ChunkName, Shard>) -> StoredGroup {
        let chunk = |slots: &[Slot]| StoredChunk {
            place: slots[0].place,
            sent: (slots.iter().any(|slot| slot.sent))
                .then(|| shards.get(&slots[0].name).map_or(0, |shard| shard.len)),
            left_out: slots.iter().all(|slot| slot.done && slot.at.is_empty()),
            acks: slots.iter().filter_map(|slot| slot.ack).collect(),
        };
        StoredGroup { file: self.file, chunks: self.slots.chunks(copies).map(chunk).collect() }
    }
}

impl Slot {
    fn send_to(&mut self, donor: DonorId, shard: &mut Shard) {
        self.at.push(donor);
        self.sent = true;
        shard.under_way.push(donor);
    }
}

impl Shard {
    /// Picks a donor with room for the chunk: one of the slot's `own` planned donors if possible, and none that the
    /// group has `taken`.
    fn pick(&self, targets: &Targets, own: &[DonorId], taken: &[DonorId]) -> Option<DonorId> {
        let free = |donor: &DonorId| !taken.contains(donor) && !self.has(donor);
        targets.pick(own, taken, free, self.len)
    }

    /// Returns whether a donor has the chunk, or is being sent it.
    fn has(&self, donor: &DonorId) -> bool {
        self.held.contains(donor)
            || self.under_way.contains(donor)
            || self.acks.iter().any(|(acknowledged, ..)| acknowledged == donor)
    }
}

#[cfg(test)]
mod tests;
