//! The stripe of a file where nobody says how wide it is: the smallest set of donors that fills the client's link while none of them
//! is asked for more than its owner's machine bears, and no more donors than copies for a small file.
//!
//! A wider stripe is the pool's part of controlling the impact on owners (FreeLoader, §3.2.2 and figure 12): each donor serves
//! less at a time. It complements what each governor does by itself, after its owner came.
//!
//! More donors than that make a write no faster. They make it likelier that some donor of the file is away, and each
//! costs a connection. Where the link's rate is not known, as many donors are taken as fill a fast one.

use super::Candidate;
use crate::policy::Width;
use serde::{Deserialize, Serialize};

/// The most bytes of a file that is not split: servers beyond the first made files of 0.5 to 8 MB slower
/// (docs/papers.md, CEFT).
const SMALL: u64 = 8 << 20;
/// The most chunks of a file that is not split. Whoever has small files cut into many chunks has them spread.
const FEW_CHUNKS: u64 = 2;
/// How much more than the client's link carries the donors of a stripe are to take together: some of them will be
/// slower than they were.
const HEADROOM: f64 = 1.25;
/// The share of the donors whose rates must be known before a width follows from rates.
const MOSTLY_KNOWN: f64 = 0.5;
/// The donors beside a narrow stripe to which a session may turn when one of the stripe fails or stalls.
pub const SPARES: usize = 2;

/// The facts from which the width of a file follows.
#[derive(Debug, Clone, PartialEq)]
pub struct WidthRequest {
    /// The width that the policy asks for.
    pub asked: Width,
    /// The stored bytes of all files that the session writes, without redundancy; `None` where that is not known yet.
    pub bytes: Option<u64>,
    /// The stored bytes of a full chunk.
    pub chunk_size: u32,
    /// The least number of donors: the copies of a chunk, or the chunks of a group.
    pub copies: u32,
    /// How often a byte that the client sends is stored by donors of the stripe.
    pub stored_times: u32,
    /// The bytes a second that the client's link carries, if donors were seen to fill it.
    pub link: Option<f64>,
    /// The bytes a second that each donor told which its owner's machine bears, in any order; donors that told nothing
    /// bear all.
    pub borne: Vec<f64>,
}

/// The reason for a width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WidthReason {
    /// The policy or the command asks for it, or nothing is written to donors.
    #[default]
    Asked,
    /// All files together are small.
    SmallFile,
    /// These donors together fill the client's link.
    Link,
    /// The part of each of fewer donors would be more than its owner's machine bears.
    Owners,
    /// These are all donors that there are.
    All,
    /// It is the most that is taken without being asked for, because the rate of the client's link is not known.
    Most,
}

/// The part of a file that was planned on the machine that writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedHere {
    /// No donor is known to be on that machine.
    #[default]
    NoDonor,
    /// The donor of that machine was passed over.
    PassedOver,
    /// The donor of that machine was to be passed over, and has a part because others cannot keep the file as well.
    Needed,
    /// The percentage of the chunks that have a copy there, which was asked for or does not matter.
    Share(u8),
}

/// How a file is striped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Striping {
    /// The number of donors that the file is written to at once.
    pub width: u32,
    /// The reason for the width.
    pub reason: WidthReason,
    /// The rate of the client's link by which the width was chosen, in bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u64>,
    /// The part on the machine that writes.
    pub here: PlannedHere,
}

/// Chooses the number of donors that a file is written to at once, and says why.
pub fn width(candidates: &[Candidate], request: &WidthRequest) -> (u32, WidthReason) {
    let WidthRequest { asked, bytes, chunk_size, copies, stored_times, link, ref borne } = *request;
    let there = candidates.len();
    let most = asked.donors(there).max(copies);
    if asked != Width::Auto {
        return (most, WidthReason::Asked);
    }
    let few = u64::from(chunk_size).saturating_mul(FEW_CHUNKS).min(SMALL);
    if bytes.is_some_and(|bytes| bytes <= few) {
        return (copies, WidthReason::SmallFile);
    }
    let filling = link.and_then(|link| filling(candidates, link * f64::from(stored_times)));
    match filling {
        Some(filling) if filling < most => {
            let all = link.unwrap_or(0.0) * f64::from(stored_times);
            let bearing = bearing(there, borne, all);
            match bearing > filling.max(copies) {
                true => (bearing.min(most), WidthReason::Owners),
                false => (filling.max(copies), WidthReason::Link),
            }
        }
        _ if most as usize >= there => (most, WidthReason::All),
        _ => (most, WidthReason::Most),
    }
}

/// Returns how many donors take `rate` bytes a second together and some more; `None` where too few rates are known. Each
/// counts as the lower middle one, by what its load leaves.
fn filling(candidates: &[Candidate], rate: f64) -> Option<u32> {
    let left = |candidate: &Candidate| {
        Some(candidate.rate? * f64::from(1.0 - candidate.load.clamp(0.0, 1.0)))
    };
    let mut rates: Vec<f64> = candidates.iter().filter_map(left).filter(|it| *it > 0.0).collect();
    if (rates.len() as f64) < MOSTLY_KNOWN * candidates.len() as f64 {
        return None;
    }
    rates.sort_by(f64::total_cmp);
    let typical = rates.get(rates.len().saturating_sub(1) / 2)?;
    Some((HEADROOM * rate / typical).ceil().max(1.0) as u32)
}

/// Returns among how many of `there` donors `rate` bytes a second are to be shared, so that the part of each is borne by
/// most of their owners' machines. What one donor says moves nothing, for it may lie.
fn bearing(there: usize, borne: &[f64], rate: f64) -> u32 {
    let mut borne: Vec<f64> = borne.iter().copied().filter(|it| *it >= 0.0).collect();
    borne.resize(there.max(borne.len()), f64::INFINITY);
    borne.sort_by(f64::total_cmp);
    match borne.get(borne.len().saturating_sub(1) / 2) {
        Some(typical) => (rate / typical.max(1.0)).ceil() as u32,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DonorId;
    use proptest::prelude::*;

    fn pool(donors: u32, rate: Option<f64>) -> Vec<Candidate> {
        let one = |id| Candidate {
            donor: DonorId(id),
            free: 1 << 40,
            load: 0.0,
            rate,
            read_rate: rate,
            domain: id,
            is_here: false,
        };
        (1..=donors).map(one).collect()
    }

    fn ask(bytes: u64, link: Option<f64>) -> WidthRequest {
        let (asked, chunk_size, copies, stored_times) = (Width::Auto, 4 << 20, 1, 1);
        let borne = Vec::new();
        WidthRequest { asked, bytes: Some(bytes), chunk_size, copies, stored_times, link, borne }
    }

    const GIB: u64 = 1 << 30;
    const GIGABIT: Option<f64> = Some(117e6);

    #[test]
    fn width_is_the_fewest_donors_that_fill_the_link() {
        assert_eq!(width(&pool(40, GIGABIT), &ask(GIB, GIGABIT)), (2, WidthReason::Link));
        let slow = Some(11.7e6);
        assert_eq!(width(&pool(40, slow), &ask(GIB, GIGABIT)), (13, WidthReason::Link));
        let mirrored = WidthRequest { copies: 2, stored_times: 2, ..ask(GIB, GIGABIT) };
        assert_eq!(width(&pool(40, GIGABIT), &mirrored), (3, WidthReason::Link));
        let mut loaded = pool(40, GIGABIT);
        loaded.iter_mut().for_each(|donor| donor.load = 0.75);
        assert_eq!(width(&loaded, &ask(GIB, GIGABIT)), (5, WidthReason::Link));
        assert_eq!(width(&pool(5, slow), &ask(GIB, GIGABIT)), (5, WidthReason::All));
    }

    #[test]
    fn stripe_is_wider_where_owners_bear_less_than_their_part() {
        let told = |donors, borne| WidthRequest { borne: vec![borne; donors], ..ask(GIB, GIGABIT) };
        let forty = pool(40, GIGABIT);
        assert_eq!(width(&forty, &told(40, 20e6)), (6, WidthReason::Owners));
        assert_eq!(width(&forty, &told(40, 90e6)), (2, WidthReason::Link), "two parts of 59 MB/s");
        assert_eq!(width(&forty, &told(19, 1e6)), (2, WidthReason::Link), "most told nothing");
        assert_eq!(
            width(&forty, &told(40, 0.0)),
            (16, WidthReason::Owners),
            "no more than the most"
        );
        let asked = WidthRequest { asked: Width::Donors(1), ..told(40, 20e6) };
        assert_eq!(width(&forty, &asked), (1, WidthReason::Asked));
    }

    proptest! {
        #[test]
        fn part_of_each_donor_is_borne_by_most_owners(
            borne in prop::collection::vec(1e6..200e6_f64, 2..40),
            link in 10e6..1e9_f64,
        ) {
            let there = borne.len();
            let candidates = pool(there as u32, Some(link));
            let request = WidthRequest { borne: borne.clone(), ..ask(GIB, Some(link)) };
            let (width, reason) = width(&candidates, &request);
            prop_assert!(width as usize <= there);
            let part = link / f64::from(width);
            let bear = borne.iter().filter(|borne| **borne >= part).count();
            let is_widest = width == Width::Auto.donors(there);
            prop_assert!(2 * bear >= there || is_widest, "{bear} of {there} bear {part}: {reason:?}");
        }
    }

    #[test]
    fn unknown_link_or_rates_take_as_many_donors_as_may_help() {
        assert_eq!(width(&pool(40, GIGABIT), &ask(GIB, None)), (16, WidthReason::Most));
        assert_eq!(width(&pool(40, None), &ask(GIB, GIGABIT)), (16, WidthReason::Most));
        assert_eq!(width(&pool(7, None), &ask(GIB, None)), (7, WidthReason::All));
    }

    #[test]
    fn small_files_are_not_split_and_copies_are_kept() {
        let copies = |copies, bytes| WidthRequest { copies, ..ask(bytes, GIGABIT) };
        let pool = pool(40, GIGABIT);
        for bytes in [1, 1 << 20, SMALL] {
            assert_eq!(width(&pool, &ask(bytes, None)), (1, WidthReason::SmallFile));
            assert_eq!(width(&pool, &copies(3, bytes)), (3, WidthReason::SmallFile));
        }
        assert_eq!(width(&pool, &ask(SMALL + 1, None)).0, 16);
        assert_eq!(width(&pool, &copies(6, GIB)), (6, WidthReason::Link));
        let in_small_chunks = WidthRequest { chunk_size: 64 << 10, ..ask(1 << 20, None) };
        assert_eq!(width(&pool, &in_small_chunks).0, 16);
        let stream = WidthRequest { bytes: None, ..ask(0, None) };
        assert_eq!(width(&pool, &stream).0, 16, "nobody knows how long it becomes");
        let asked = WidthRequest { asked: Width::Donors(4), ..ask(1, GIGABIT) };
        assert_eq!(width(&pool, &asked), (4, WidthReason::Asked));
    }
}
