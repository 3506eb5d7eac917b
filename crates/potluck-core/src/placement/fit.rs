//! The greedy fit itself, in whole chunks.

use super::near::Near;
use super::{Candidate, PlacementRequest, Refusal};
use crate::ids::DonorId;
use std::collections::HashMap;

/// The number of chunks that a donor can still take, and the domain that it fails with.
struct Room {
    donor: DonorId,
    chunks: u64,
    load: f32,
    /// The bytes a second that the donor takes, as far as that is known.
    rate: Option<f64>,
    /// The bytes a second at which the writing machine would read from the donor, as far as that is known.
    read_rate: Option<f64>,
    /// True if the donor is on the writing machine, and a part of the file is asked for there.
    is_here: bool,
    /// The donor's failure domain, counted from 0: the place of its first donor among all of them.
    domain: usize,
}

/// Room is scarce where it is for fewer files than this, each as large as what is placed.
const SCARCE: u64 = 64;

/// The most turns in which a stripe is dealt when donors differ in their rates: shares are then within a few percent.
const MOST_TURNS: usize = 64;
/// The quotient of rates below which donors are alike: measurements differ by as much from hour to hour.
const ALIKE: f64 = 1.25;

/// A way to choose a stripe.
#[derive(Clone, Copy)]
enum Way {
    /// No two copies are in one domain.
    Apart,
    /// Copies are in as many domains as there are.
    MostDomains,
    /// The donors with most room.
    Plain,
}

/// A placement under way.
pub(super) struct Fit {
    /// The donors with room, the best first after [`Fit::rank`].
    rooms: Vec<Room>,
    donors: usize,
    copies: usize,
    /// True if slots have fewer copies than were asked for. The plan tells of that by sections of so few turns.
    short: bool,
    width: usize,
    near: Near,
    /// The number of chunks that a donor takes in a row.
    run: u64,
    /// The width of what finds no room on the writing machine, where the whole file is asked for there.
    width_elsewhere: usize,
    /// The bytes a second that the client's link carries, if that is known.
    link: Option<f64>,
    /// The number of chunks that are not placed yet.
    left: u64,
    /// The number of bytes of a chunk, as space is counted.
    unit: u64,
}

/// Returns the number of copies in the first `chunks` chunks that the donor at `position` of a stripe of `width` is
/// dealt, when chunk `k` goes to positions `k..k + copies` around the stripe.
fn turns(position: usize, width: usize, copies: usize, chunks: u64) -> u64 {
    let (width, copies) = (width as u64, (copies as u64).min(width as u64));
    let (round, rest) = (chunks / width, chunks % width);
    let past = position as u64 + 1;
    let direct = past.min(rest) - past.saturating_sub(copies).min(rest);
    let around = rest.saturating_sub(width + past.min(copies) - copies);
    round * copies + direct + around
}

/// Returns the number of copies in the first `chunks` chunks that the donor at `position` is dealt, when turns are dealt as
/// [`turns`] says, and each is for `run` chunks in a row.
pub(super) fn dealt_to(position: usize, width: usize, copies: usize, chunks: u64, run: u64) -> u64 {
    let (full, rest) = (chunks / run, chunks % run);
    let before = turns(position, width, copies, full);
    let has_last = turns(position, width, copies, full + 1) - before;
    before * run + has_last * rest
}

/// Deals `turns` turns to donors so that they end at the same time by their rates. Each has one at least, and no more
/// than `most` says; `None` where that is too few for all turns.
fn turns_by_rates(rates: &[f64], turns: usize, most: &[usize]) -> Option<Vec<usize>> {
    let mut taken = vec![1_usize; rates.len()];
    for _ in rates.len()..turns {
        let end = |at: &usize| (taken[*at] + 1) as f64 / rates[*at];
        let open = (0..rates.len()).filter(|at| taken[*at] < most[*at]);
        let first = open.min_by(|a, b| end(a).total_cmp(&end(b)))?;
        taken[first] += 1;
    }
    Some(taken)
}

impl Fit {
    /// Makes a placement of `copies` of each chunk, which are those of the request or fewer.
    pub(super) fn new(candidates: &[Candidate], request: &PlacementRequest, copies: u32) -> Self {
        let chunk = u64::from(request.chunk_size);
        let unit = if request.bytes == 0 { chunk } else { chunk.min(request.bytes) };
        let mut sorted: Vec<&Candidate> = candidates.iter().collect();
        sorted.sort_by(|a, b| {
            a.donor.cmp(&b.donor).then(a.free.cmp(&b.free)).then(a.load.total_cmp(&b.load))
        });
        sorted.dedup_by_key(|candidate| candidate.donor);
        let mut domains = HashMap::new();
        let rooms = sorted.iter().enumerate().map(|(own, candidate)| Room {
            donor: candidate.donor,
            chunks: candidate.free / unit,
            load: candidate.load,
            rate: candidate.rate,
            read_rate: candidate.read_rate,
            is_here: candidate.is_here && request.near.is_here(),
            domain: *domains.entry(candidate.domain).or_insert(own),
        });
        let rooms: Vec<Room> = rooms.filter(|room| room.chunks > 0).collect();
        let here = rooms.iter().filter(|room| room.is_here).count();
        let is_all_here = request.near == Near::HereShare(100) && copies == 1 && here > 0;
        let there = if is_all_here { 0 } else { request.width };
        Self {
            rooms,
            donors: sorted.len(),
            copies: copies as usize,
            short: copies < request.copies,
            width: (there as usize + here).max(copies as usize),
            near: request.near,
            run: u64::from(request.stripe_size.max(1)),
            width_elsewhere: request.width.max(copies) as usize,
            link: request.link,
            left: request.bytes.div_ceil(chunk),
            unit,
        }
    }

    /// Checks that all copies fit; a plan without chunks must have room for one.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.donors < self.copies {
            let (have, need) = (self.donors as u32, self.copies as u32);
            return Err(Refusal::TooFewDonors { have, need });
        }
        let chunks = self.left.max(1);
        let (have, ask) = (self.room_for(chunks, &[]), self.slots(chunks));
        if have >= ask {
            return Ok(());
        }
        let bytes = |slots: u128| (slots * u128::from(self.unit)).try_into().unwrap_or(u64::MAX);
        Err(Refusal::NoSpace { ask: bytes(ask), have: bytes(have) })
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Places the next chunks: returns the donors that take them, and how many chunks they take.
    pub(super) fn next_section(&mut self) -> (Vec<DonorId>, u64) {
        let most = self.most_in_all();
        self.rank(most);
        let (stripe, chunks) = self.stripe(most);
        // Where there is plenty of room, only the file itself has to fit. One that overflows its stripe is dealt evenly, or
        // it would leave crumbs of room that each cost a section.
        let all = if self.left < most / SCARCE { self.left } else { most };
        let weighted = (chunks == self.left).then(|| self.by_rates(&stripe, all)).flatten();
        let stripe = weighted.unwrap_or(stripe);
        let donors = stripe.iter().map(|room| self.rooms[*room].donor).collect();
        for (room, dealt) in self.dealt(&stripe, chunks) {
            self.rooms[room].chunks -= dealt;
        }
        self.rooms.retain(|room| room.chunks > 0);
        if self.near == Near::HereShare(100) && !self.rooms.iter().any(|room| room.is_here) {
            self.width = self.width.max(self.width_elsewhere);
        }
        self.left -= chunks;
        (donors, chunks)
    }

    /// Sorts the donors by room. Rooms count as equal when they differ by less than one stripe share, unless they have
    /// less than a share: then the larger ones make do with fewer sections, and the file lies on fewer donors. But
    /// donors which can be in every remaining slot come first, because they may have to be. The writing machine's own
    /// come before all others where a part of the file is asked for there and room is plenty.
    fn rank(&mut self, most: u64) {
        let share = (self.slots(self.left) / self.width as u128).max(1);
        let left = self.left;
        let is_plenty = left < most / SCARCE;
        let size = |room: &Room| {
            let is_ample = (room.chunks >= left, room.chunks >= most);
            let shares = u128::from(room.chunks) / share;
            let crumbs = if shares == 0 { room.chunks } else { 0 };
            (room.is_here && is_plenty, is_ample, room.is_here, shares, crumbs)
        };
        self.rooms.sort_by(|a, b| {
            size(b).cmp(&size(a)).then(a.load.total_cmp(&b.load)).then(a.donor.cmp(&b.donor))
        });
    }

    /// Returns the donors of the next section, as places in the ranking, and the number of chunks that they take, where
    /// the donors can take `most` chunks in all. A wide stripe in which the largest donors are not in each slot, though
    /// they have as much room as all others together, wastes the room of the others: files would no longer fit of which
    /// the pool has told that they do. A stripe of one slot takes its place, if that costs no failure domain. It is
    /// slower, so a file for which there is plenty of room is dealt widely all the same.
    fn stripe(&mut self, most: u64) -> (Vec<usize>, u64) {
        let (way, stripe, chunks) = self.widest();
        if self.left < most / SCARCE {
            return (stripe, chunks);
        }
        let without_waste = |stripe: Vec<usize>| {
            let chunks = self.whole_turns(self.most_chunks(&stripe, most), stripe.len());
            (chunks >= self.left.min(self.turn_of(&stripe))).then_some((stripe, chunks))
        };
        let one_slot = || way.and_then(|way| self.stripe_by(way, self.copies));
        without_waste(stripe.clone())
            .or_else(|| without_waste(one_slot()?))
            .unwrap_or((stripe, chunks))
    }

    /// Returns the widest stripe, the way by which it was found, if by any, and the number of chunks that it can take.
    /// That is a full turn at least, or the width shrinks; at the least width it may be a single chunk.
    fn widest(&mut self) -> (Option<Way>, Vec<usize>, u64) {
        self.width = self.width.min(self.rooms.len());
        loop {
            for way in [Way::Apart, Way::MostDomains, Way::Plain] {
                let Some(stripe) = self.stripe_by(way, self.width) else { continue };
                let chunks = self.most_chunks(&stripe, self.left);
                let chunks = self.whole_turns(chunks, stripe.len());
                if chunks >= self.left.min(self.turn_of(&stripe)) {
                    return (Some(way), stripe, chunks);
                }
            }
            if self.width == self.copies {
                // Each of the best-ranked donors can take one chunk at least (`rank`).
                let plain: Vec<usize> = (0..self.width).collect();
                let chunks = self.most_chunks(&plain, self.left).max(1);
                return (None, plain, chunks);
            }
            self.width -= 1;
        }
    }

    /// Returns the chunks of a full turn, in which each donor of the stripe takes some: one that takes none would come back
    /// in section after section.
    fn turn_of(&self, stripe: &[usize]) -> u64 {
        stripe.len() as u64 * self.run
    }

    fn stripe_by(&self, way: Way, width: usize) -> Option<Vec<usize>> {
        match way {
            Way::Apart => self.apart(width),
            Way::MostDomains => self.spread(width),
            Way::Plain => Some((0..width).collect()),
        }
    }

    /// Returns the stripe with each donor in it as often as its rate says, so that all of them end at the same time:
    /// s_i = B_i·S/A (docs/papers.md, FreeLoader). Each stands in it once at least, so the stripe is as wide as it was.
    /// Where a part of the file is asked for on the writing machine, it has that part, as far as its room goes.
    /// `None` where the rates say nothing, or where copies would be less apart, or the donors lack the room, the rest of
    /// `all` chunks included.
    fn by_rates(&self, stripe: &[usize], all: u64) -> Option<Vec<usize>> {
        let rates = self.with_share_here(stripe, self.rates(stripe));
        let rates = rates.filter(|_| !self.short)?;
        let turns = MOST_TURNS.max(2 * stripe.len());
        let mut most = vec![turns / self.copies; stripe.len()];
        loop {
            let taken = turns_by_rates(&rates, turns, &most)?;
            let weighted = self.in_even_turns(stripe, &taken);
            let as_apart = self.least_domains(&weighted) >= self.least_domains(stripe);
            if as_apart
                && self.has_distinct_slots(&weighted)
                && self.fits(&weighted, self.left, all)
            {
                return Some(weighted);
            }
            let here = (0..stripe.len()).filter(|at| self.rooms[stripe[*at]].is_here);
            let widest = here.max_by_key(|at| taken[*at]).filter(|at| taken[*at] > 1)?;
            most[widest] = taken[widest] - 1;
        }
    }

    /// Returns the rates by which the writing machine's donors get the part of the chunks that is asked for there, in
    /// proportion among them, and the others the rest as they would; the rates as they were where none is asked for.
    fn with_share_here(&self, stripe: &[usize], rates: Option<Vec<f64>>) -> Option<Vec<f64>> {
        let room = |at: usize| &self.rooms[stripe[at]];
        let read = |is_here: bool| -> Option<f64> {
            let of = (0..stripe.len()).map(room).filter(|room| room.is_here == is_here);
            let known: Vec<f64> = of.clone().filter_map(|room| room.read_rate).collect();
            // A donor that nobody read from counts as the mean of those that are known.
            let all = known.iter().sum::<f64>() / known.len() as f64 * of.count() as f64;
            all.is_finite().then_some(all)
        };
        let here = (0..stripe.len()).filter(|at| room(*at).is_here).count();
        if here == 0 || here == stripe.len() {
            return rates;
        }
        let there = read(false).map(|there| self.link.map_or(there, |link| there.min(link)));
        let Some(share) = self.near.share(read(true), there) else { return rates };
        // Each chunk has so many turns, of which one is here if its part is.
        let share = share / self.copies as f64;
        let mut rates = rates.unwrap_or_else(|| vec![1.0; stripe.len()]);
        let sum = |rates: &[f64], is_here| -> f64 {
            let of = rates.iter().enumerate().filter(|(at, _)| room(*at).is_here == is_here);
            of.map(|(_, rate)| rate).sum()
        };
        let (sum_here, sum_there) = (sum(&rates, true), sum(&rates, false));
        for (at, rate) in rates.iter_mut().enumerate() {
            *rate *= match room(at).is_here {
                true => share / sum_here,
                false => (1.0 - share) / sum_there,
            };
        }
        Some(rates)
    }

    /// Returns the turns of donors that take so many each in the same time, each donor's spread evenly among all, so
    /// that a file of few chunks is dealt by the same shares; donors of one domain do not follow each other within a
    /// slot, if that can be. The next turn is always of the donor that lags most behind its share.
    fn in_even_turns(&self, stripe: &[usize], taken: &[usize]) -> Vec<usize> {
        let mut done = vec![0_usize; stripe.len()];
        let mut order: Vec<usize> = Vec::new();
        let all: usize = taken.iter().sum();
        for turn in 1..=all {
            let slot = &order[order.len().saturating_sub(self.copies - 1)..];
            let shares = |at: usize| {
                let domain = |room: usize| self.rooms[room].domain;
                slot.iter().any(|room| domain(*room) == domain(stripe[at]))
            };
            let lag = |at: usize| (taken[at] * turn) as i64 - (done[at] * all) as i64;
            let open = (0..stripe.len()).filter(|at| done[*at] < taken[*at]);
            let next = open.min_by_key(|at| (shares(*at), -lag(*at)));
            let Some(next) = next else { break };
            done[next] += 1;
            order.push(stripe[next]);
        }
        // The last turns are followed by the first.
        for _ in 1..self.copies {
            let Some(last) = order.pop() else { break };
            let at = (0..=order.len()).rev().find(|at| self.is_apart_at(&order, *at, last));
            order.insert(at.unwrap_or(order.len()), last);
        }
        order
    }

    /// Returns whether a donor shares a domain with none of those with which it would be in one slot, if it were put
    /// into a stripe there.
    fn is_apart_at(&self, stripe: &[usize], at: usize, room: usize) -> bool {
        let near = self.copies.saturating_sub(1).min(stripe.len());
        let domain = |room: usize| self.rooms[room].domain;
        let before = (1..=near).map(|back| stripe[(at + stripe.len() - back) % stripe.len()]);
        let after = (0..near).map(|on| stripe[(at + on) % stripe.len()]);
        before.chain(after).all(|other| domain(other) != domain(room))
    }

    /// Returns the rates of the donors of a stripe; a donor of unknown rate counts as a middling one. `None` where they
    /// are unknown or all alike.
    fn rates(&self, stripe: &[usize]) -> Option<Vec<f64>> {
        let mut known: Vec<f64> = stripe.iter().filter_map(|room| self.rooms[*room].rate).collect();
        known.sort_by(f64::total_cmp);
        let (slowest, fastest) = (*known.first()?, *known.last()?);
        if fastest < ALIKE * slowest {
            return None;
        }
        let middling = known[known.len() / 2];
        Some(stripe.iter().map(|room| self.rooms[*room].rate.unwrap_or(middling)).collect())
    }

    fn has_distinct_slots(&self, stripe: &[usize]) -> bool {
        let at = |position: usize| stripe[position % stripe.len()];
        (0..stripe.len()).all(|first| {
            (1..self.copies.min(stripe.len()))
                .all(|copy| (0..copy).all(|other| at(first + copy) != at(first + other)))
        })
    }

    /// Returns the most chunks for which there is room, those of other files that may come included.
    fn most_in_all(&self) -> u64 {
        let all: u128 = self.rooms.iter().map(|room| u128::from(room.chunks)).sum();
        let (mut most, mut too_many) = (self.left, (all / self.copies as u128) as u64 + 1);
        while most + 1 < too_many {
            let middle = most + (too_many - most) / 2;
            match self.room_for(middle, &[]) >= self.slots(middle) {
                true => most = middle,
                false => too_many = middle,
            }
        }
        most
    }

    /// Rounds the chunks of a section that is not the last down to whole turns, where the stripe is wider than a slot.
    /// The largest donors come out of it equal, instead of leaving crumbs that each cost a section.
    fn whole_turns(&self, chunks: u64, width: usize) -> u64 {
        let turn = width as u64 * self.run;
        let turn = if chunks < turn { width as u64 } else { turn };
        let crumbs = if width > self.copies { chunks % turn } else { 0 };
        if chunks == self.left { chunks } else { chunks - crumbs }
    }

    /// Returns the most chunks that fit on `stripe` and leave room for the rest of `all` elsewhere. Whatever number
    /// satisfies both, every smaller one does, hence the bisection.
    fn most_chunks(&self, stripe: &[usize], all: u64) -> u64 {
        if self.fits(stripe, self.left, all) {
            return self.left;
        }
        let (mut good, mut bad) = (0, self.left);
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if self.fits(stripe, middle, all) {
                good = middle;
            } else {
                bad = middle;
            }
        }
        good
    }

    fn fits(&self, stripe: &[usize], chunks: u64, all: u64) -> bool {
        let rest = all - chunks;
        let dealt = self.dealt(stripe, chunks);
        dealt.iter().all(|(room, dealt)| *dealt <= self.rooms[*room].chunks)
            && (rest == 0 || self.room_for(rest, &dealt) >= self.slots(rest))
    }

    /// Returns how many copies of `rest` chunks find a donor, no two of one chunk on the same, after donors were dealt
    /// so much. All of them do if this is no less than [`Fit::slots`], by dealing them around.
    fn room_for(&self, rest: u64, dealt: &[(usize, u64)]) -> u128 {
        let useful = |room: u64| u128::from(room.min(rest));
        let all: u128 = self.rooms.iter().map(|room| useful(room.chunks)).sum();
        let taken = dealt.iter().map(|(room, dealt)| {
            let before = self.rooms[*room].chunks;
            useful(before) - useful(before.saturating_sub(*dealt))
        });
        all - taken.sum::<u128>()
    }

    /// Returns the chunks that each donor of a stripe is dealt; a donor may stand in it several times.
    fn dealt(&self, stripe: &[usize], chunks: u64) -> Vec<(usize, u64)> {
        let width = stripe.len();
        let of =
            |(position, room)| (room, dealt_to(position, width, self.copies, chunks, self.run));
        let mut dealt: Vec<(usize, u64)> = stripe.iter().copied().enumerate().map(of).collect();
        dealt.sort_unstable();
        dealt.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        dealt
    }

    fn slots(&self, chunks: u64) -> u128 {
        u128::from(chunks) * self.copies as u128
    }

    /// Returns the widest stripe in which no slot has two copies in one domain, if there are enough domains: a
    /// narrower stripe costs speed once, a shared domain costs the file.
    fn apart(&self, width: usize) -> Option<Vec<usize>> {
        if self.copies == 1 {
            return None;
        }
        (self.copies..=width).rev().find_map(|width| {
            let stripe = self.interleave(self.few_per_domain(width)?);
            (self.least_domains(&stripe) == self.copies).then_some(stripe)
        })
    }

    /// Returns a stripe for domains that are too few to keep copies apart: every slot has copies in as many domains as
    /// can be, and the stripe is as wide as allowed or else one slot wide.
    fn spread(&self, width: usize) -> Option<Vec<usize>> {
        if self.copies == 1 {
            return None;
        }
        // A donor that cannot take its part of a full turn would make the stripe useless.
        let turn = self.left.min(self.copies as u64);
        let mut seen = vec![0_usize; self.donors];
        let mut evenly: Vec<(usize, usize)> = Vec::with_capacity(self.rooms.len());
        for (at, room) in self.rooms.iter().enumerate().filter(|(_, room)| room.chunks >= turn) {
            let seen = &mut seen[room.domain];
            evenly.push((*seen, at));
            *seen += 1;
        }
        evenly.sort_unstable();
        let domains = evenly.iter().filter(|(nth, _)| *nth == 0).count();
        if domains == evenly.len() {
            return None; // there is none to spread over
        }
        [width, self.copies].into_iter().filter(|width| *width <= evenly.len()).find_map(|width| {
            let mut donors: Vec<usize> = evenly[..width].iter().map(|(_, at)| *at).collect();
            donors.sort_unstable();
            let stripe = self.interleave(donors);
            let least = self.least_domains(&stripe);
            (least == domains.min(self.copies)).then_some(stripe)
        })
    }

    /// Returns the best `width` donors with at most as many of one domain as can be kept apart.
    fn few_per_domain(&self, width: usize) -> Option<Vec<usize>> {
        let mut taken = vec![0; self.donors];
        let chosen = |room: &usize| {
            let count: &mut usize = &mut taken[self.rooms[*room].domain];
            *count += 1;
            *count <= width / self.copies
        };
        let stripe: Vec<usize> = (0..self.rooms.len()).filter(chosen).take(width).collect();
        (stripe.len() == width).then_some(stripe)
    }

    /// Orders donors so that those of one domain are far from each other: always the domain with
    /// most left among those used least for the last copies.
    fn interleave(&self, mut donors: Vec<usize>) -> Vec<usize> {
        let domain = |room: usize| self.rooms[room].domain;
        let mut left = vec![0_usize; self.donors];
        donors.iter().for_each(|room| left[domain(*room)] += 1);
        let mut recent = vec![0_usize; self.donors];
        let mut stripe: Vec<usize> = Vec::with_capacity(donors.len());
        while !donors.is_empty() {
            let rank = |at: &usize| {
                let own = domain(donors[*at]);
                (recent[own], std::cmp::Reverse(left[own]), *at)
            };
            let best = (0..donors.len()).min_by_key(rank).unwrap_or(0);
            let room = donors.remove(best);
            left[domain(room)] -= 1;
            recent[domain(room)] += 1;
            stripe.push(room);
            if let Some(past) = stripe.len().checked_sub(self.copies) {
                recent[domain(stripe[past])] -= 1;
            }
        }
        stripe
    }

    /// Counts the domains of each slot's copies and returns the smallest number.
    fn least_domains(&self, stripe: &[usize]) -> usize {
        let domain = |position: usize| self.rooms[stripe[position % stripe.len()]].domain;
        let is_first = |at: usize, copy: usize| {
            (0..copy).all(|earlier| domain(at + earlier) != domain(at + copy))
        };
        let count = |at| (0..self.copies).filter(|copy| is_first(at, *copy)).count();
        (0..stripe.len()).map(count).min().unwrap_or(0)
    }
}
