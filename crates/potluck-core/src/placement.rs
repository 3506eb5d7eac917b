//! Placement: which donors take the chunks of a file.
//!
//! The greedy space fit (docs/papers.md, FreeLoader): sort the donors by free space, stripe over the top `width` as far
//! as the smallest of them allows, re-sort, and repeat for the overflow, with a smaller width when fewer have room.
//! Four things are added. Copies lie on distinct donors, and in distinct domains, or in as many domains as there are
//! where those are too few. A section stops early where going on would leave the rest without enough distinct donors, so a refusal
//! means that no placement exists. Donors that have as much room as all others together are in every slot, where no
//! domain is lost by that, so that what fits does not depend on the sizes of the files. Near ties in space go to the less loaded donor (docs/papers.md, CEFT).

mod fit;
pub mod near;
pub mod striping;

use crate::ids::{Domain, DonorId};
use crate::size::count;
use crate::size::format_size;
use fit::{Fit, dealt_to};
use near::Near;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A donor that may take chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The id of the donor.
    pub donor: DonorId,
    /// The bytes that the donor can still promise.
    pub free: u64,
    /// The donor's load as a score from 0 (idle) to 1 ([`crate::load::Load::score`]).
    pub load: f32,
    /// The bytes a second that the donor takes, as far as that is known.
    pub rate: Option<f64>,
    /// The bytes a second at which the writing machine would read from the donor, as far as that is known.
    pub read_rate: Option<f64>,
    /// The donor's failure domain.
    pub domain: Domain,
    /// True if the donor is on the machine that writes.
    pub is_here: bool,
}

/// The slots to be placed. A slot is a number of chunks of one length that must be on distinct donors: the copies of
/// one chunk, or the m + k chunks of an erasure-coded group, position by position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementRequest {
    /// The stored bytes of one copy, or of the chunks at one position of all groups; 0 when unknown, for a plan of
    /// donors without chunks.
    pub bytes: u64,
    /// The stored bytes of a full chunk, sealing included.
    pub chunk_size: u32,
    /// The number of donors to write to at once; it counts as the number of copies where it is less.
    pub width: u32,
    /// The number of copies of every chunk, or of chunks of a group.
    pub copies: u32,
    /// The number of donors that a slot is content with where there are fewer than it asks for.
    pub least: u32,
    /// The number of chunks that a donor takes in a row; 0 counts as 1.
    pub stripe_size: u32,
    /// The part of the chunks that lies on the writing machine. Its donors are in addition to the width.
    pub near: Near,
    /// The bytes a second that the client's link carries, if that is known.
    pub link: Option<f64>,
}

/// A run of chunks dealt in turn to a set of donors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// The donors of the section, in the order of dealing. One that is faster than others stands in it more often, but
    /// not in a section that has fewer donors than copies.
    pub donors: Vec<DonorId>,
    /// The number of chunks that the section takes.
    pub chunks: u64,
    /// The stored bytes of one copy of these chunks; only the last chunk may be short.
    pub bytes: u64,
}

/// A plan of where the chunks of a file go, in file order. For an erasure-coded file, each chunk of the plan is a
/// group, and its copies are the chunks of the group, position by position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The sections of the plan, in file order.
    pub sections: Vec<Section>,
    /// The number of copies of every chunk, or of chunks of every group. A section with fewer donors has one for each
    /// of them.
    pub copies: u32,
    /// The stored bytes of a full chunk.
    pub chunk_size: u32,
    /// The number of chunks in a row that go to the same donors before it is the turn of the next.
    pub stripe_size: u32,
}

/// The reason why nothing can be placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No donor is there to place chunks on.
    #[error("no donor is available: lend space with `potluck lend`, or wait for a donor to return")]
    NoDonors,
    /// The chunks of a slot need more donors than are available.
    #[error(
        "{} needed, {have} available: add donors or ask for less redundancy",
        count(u64::from(*need), "donor")
    )]
    TooFewDonors {
        /// The number of donors that are available.
        have: u32,
        /// The number of donors that are needed.
        need: u32,
    },
    /// The chunks do not fit when each of a slot is on its own donor.
    #[error(
        "{} are asked for, redundancy included, and {} fit: free space, lend more, or ask for less redundancy",
        format_size(*ask), format_size(*have)
    )]
    NoSpace {
        /// The bytes of all copies, in whole chunks.
        ask: u64,
        /// The bytes of the copies that fit.
        have: u64,
    },
}

/// Places a file. The answer depends on the candidates, not on their order; a donor listed twice
/// counts once.
///
/// Space is counted in whole chunks (of one chunk alone, in bytes): what a donor has beyond its
/// last whole chunk is not used.
///
/// The writing machine's own donors are passed over as [`Near::Elsewhere`] says, and never at the price of a copy or
/// of a failure domain.
pub fn plan(candidates: &[Candidate], request: &PlacementRequest) -> Result<Plan, Refusal> {
    let is_here = |candidate: &&Candidate| candidate.is_here;
    if request.near != Near::Elsewhere || !candidates.iter().any(|it| is_here(&it)) {
        return plan_on(candidates, request);
    }
    let others: Vec<Candidate> = candidates.iter().filter(|it| !is_here(it)).cloned().collect();
    match (plan_on(&others, request), plan_on(candidates, request)) {
        (Ok(elsewhere), Ok(all))
            if elsewhere.least_domains(candidates) >= all.least_domains(candidates) =>
        {
            Ok(elsewhere)
        }
        (_, all) => all,
    }
}

/// Places a file on any of the candidates.
fn plan_on(candidates: &[Candidate], request: &PlacementRequest) -> Result<Plan, Refusal> {
    if candidates.is_empty() {
        return Err(Refusal::NoDonors);
    }
    let (copies, chunk_size) = (request.copies.max(1), request.chunk_size.max(1));
    let donors: BTreeSet<DonorId> = candidates.iter().map(|candidate| candidate.donor).collect();
    let placed = copies.min(request.least.max(donors.len() as u32));
    let mut fit =
        Fit::new(candidates, &PlacementRequest { copies, chunk_size, ..*request }, placed);
    fit.check()?;
    let mut sections = Vec::new();
    let mut bytes_left = request.bytes;
    loop {
        let (donors, chunks) = fit.next_section();
        let bytes = chunks.saturating_mul(u64::from(chunk_size)).min(bytes_left);
        bytes_left -= bytes;
        sections.push(Section { donors, chunks, bytes });
        if fit.is_done() {
            break;
        }
    }
    Ok(Plan { sections, copies, chunk_size, stripe_size: request.stripe_size.max(1) })
}

/// The number of files of equal size as which [`room`] fills the donors.
const FILES_IN_ROOM: u64 = 32;

/// Returns the bytes of one copy that are placed before nothing fits any more, if files of a part of it are stored one
/// after another, as a request asks for ([`PlacementRequest::bytes`] is not looked at). That may be less than one file
/// of the most bytes that [`plan`] places: no file knows of those that come after it.
pub fn room(candidates: &[Candidate], request: &PlacementRequest) -> u64 {
    let chunk = u64::from(request.chunk_size.max(1));
    let places = |bytes: u64| PlacementRequest { bytes, ..*request };
    let largest = candidates.iter().map(|candidate| candidate.free / chunk).max().unwrap_or(0);
    let total: u64 = candidates.iter().map(|candidate| candidate.free / chunk).sum();
    // Whatever number of chunks fits, every smaller one does, hence the bisection.
    let (mut most, mut too_many) = (0, largest.max(total).saturating_add(1));
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        match plan(candidates, &places(middle.saturating_mul(chunk))) {
            Ok(_) => most = middle,
            Err(_) => too_many = middle,
        }
    }
    let mut left = candidates.to_vec();
    let (mut file, mut placed) = ((most / FILES_IN_ROOM).max(1), 0);
    loop {
        match plan(&left, &places(file * chunk)) {
            Ok(plan) => {
                placed += file;
                let promised = plan.promised();
                for candidate in &mut left {
                    let taken = promised.get(&candidate.donor).copied().unwrap_or_default();
                    candidate.free = candidate.free.saturating_sub(taken);
                }
            }
            Err(_) if file > 1 => file /= 2,
            Err(_) => return placed.saturating_mul(chunk),
        }
    }
}

impl Section {
    /// Returns the donors of turn number `turn`, which are those of one chunk or of several in a row.
    fn slot(&self, turn: u64, copies: u32) -> impl Iterator<Item = DonorId> + '_ {
        let width = self.donors.len();
        let first = (turn % width.max(1) as u64) as usize;
        (0..width.min(copies as usize)).map(move |copy| self.donors[(first + copy) % width])
    }

    /// Returns the number of bytes by which the last chunk is short.
    fn shortfall(&self, chunk_size: u32) -> u64 {
        self.chunks.saturating_mul(u64::from(chunk_size)).saturating_sub(self.bytes)
    }
}

impl Plan {
    /// Returns the donors of a chunk, one for each copy; `None` past the last planned chunk.
    pub fn slot(&self, mut chunk: u64) -> Option<Vec<DonorId>> {
        for section in &self.sections {
            if chunk < section.chunks {
                return Some(section.slot(self.turn(chunk), self.copies).collect());
            }
            chunk -= section.chunks;
        }
        None
    }

    /// Returns the turn in which a chunk of a section is dealt.
    fn turn(&self, chunk: u64) -> u64 {
        chunk / u64::from(self.stripe_size.max(1))
    }

    /// Returns the bytes that the plan needs on each donor; donors that need none are left out.
    pub fn promised(&self) -> BTreeMap<DonorId, u64> {
        let mut promised = BTreeMap::<DonorId, u64>::new();
        for section in self.sections.iter().filter(|section| section.chunks > 0) {
            let width = section.donors.len();
            for (position, donor) in section.donors.iter().enumerate() {
                let run = u64::from(self.stripe_size.max(1));
                let chunks = dealt_to(position, width, self.copies as usize, section.chunks, run);
                let bytes = chunks.saturating_mul(u64::from(self.chunk_size));
                let sum = promised.entry(*donor).or_default();
                *sum = sum.saturating_add(bytes);
            }
            for donor in section.slot(self.turn(section.chunks - 1), self.copies) {
                if let Some(sum) = promised.get_mut(&donor) {
                    *sum = sum.saturating_sub(section.shortfall(self.chunk_size));
                }
            }
        }
        promised.retain(|_, bytes| *bytes > 0);
        promised
    }

    /// Names up to so many further donors, without chunks: a session may turn to them when planned ones fail or stall.
    /// Those of other failure domains come first, and then those with more room.
    pub fn add_spares(&mut self, candidates: &[Candidate], spares: usize) {
        let mut donors: Vec<DonorId> = self.donors().into_iter().collect();
        let domains: BTreeSet<Domain> =
            candidates.iter().filter(|it| donors.contains(&it.donor)).map(|it| it.domain).collect();
        let mut others: Vec<&Candidate> = candidates
            .iter()
            .filter(|it| it.free >= u64::from(self.chunk_size) && !donors.contains(&it.donor))
            .collect();
        others
            .sort_by_key(|it| (domains.contains(&it.domain), std::cmp::Reverse(it.free), it.donor));
        if !others.is_empty() {
            donors.extend(others.iter().take(spares).map(|it| it.donor));
            self.sections.push(Section { donors, chunks: 0, bytes: 0 });
        }
    }

    /// Returns the donors that are dealt chunks, or are in a section of the plan that deals some.
    pub fn stripe(&self) -> BTreeSet<DonorId> {
        let dealing = self.sections.iter().filter(|section| section.chunks > 0);
        dealing.flat_map(|section| &section.donors).copied().collect()
    }

    /// Continues the plan with the sections of `other`, planned for the same policy.
    pub fn extend(&mut self, other: Plan) {
        self.sections.extend(other.sections);
    }

    /// Returns whether some section has fewer donors than copies.
    pub fn is_short(&self) -> bool {
        self.sections.iter().any(|section| section.donors.len() < self.copies as usize)
    }

    /// Returns the number of chunks planned.
    pub fn chunks(&self) -> u64 {
        self.sections.iter().map(|section| section.chunks).sum()
    }

    /// Returns the number of failure domains that the donors of a slot are in, in the slot with the fewest.
    fn least_domains(&self, candidates: &[Candidate]) -> usize {
        let domains: BTreeMap<DonorId, Domain> =
            candidates.iter().map(|candidate| (candidate.donor, candidate.domain)).collect();
        let of_slot = |section: &Section, turn: u64| {
            let slot = section.slot(turn, self.copies);
            slot.filter_map(|donor| domains.get(&donor)).collect::<BTreeSet<_>>().len()
        };
        let of_section = |section: &Section| {
            (0..section.donors.len() as u64).map(|turn| of_slot(section, turn)).min()
        };
        self.sections.iter().filter_map(of_section).min().unwrap_or_default()
    }

    /// Returns every donor that the plan names, those without a chunk yet included.
    pub fn donors(&self) -> BTreeSet<DonorId> {
        self.sections.iter().flat_map(|section| &section.donors).copied().collect()
    }
}
