//! Repair: how safe a unit of redundancy is, which chunks it lacks, which donor makes them, and at which rate.
//!
//! A *unit* is a set of shards that live and die together: `need` of its `shards` give everything back. A group of
//! an erasure-coded file is one (its data chunks of its data and parity chunks), and so is a chunk of which n
//! copies are asked (1 of n equal shards). Donors of one *domain* fail together. A unit is therefore as safe as the
//! largest *matching* of its shards to distinct domains, however many copies there are (promise D3: matching, not
//! counting).

use crate::clock::Tick;
use crate::ids::{Domain, DonorId};
use crate::matching;
use std::collections::BTreeSet;

/// The worth of a copy to its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worth {
    /// The copy counts, and can be fetched now.
    Counts,
    /// The copy counts: its donor is silent, but not for so long that it is given up.
    Silent,
    /// The copy can be fetched and counts for nothing: it or its donor is on the way out, or the donor is not
    /// trusted.
    Source,
    /// The copy neither counts nor can be fetched, though it may come back.
    Lost,
}

impl Worth {
    /// Returns whether the copy counts for redundancy.
    pub fn counts(self) -> bool {
        matches!(self, Self::Counts | Self::Silent)
    }

    /// Returns whether the copy can be fetched now.
    pub fn fetchable(self) -> bool {
        matches!(self, Self::Counts | Self::Source)
    }
}

/// A copy of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// The donor that holds the copy.
    pub donor: DonorId,
    /// The failure domain of the donor.
    pub domain: Domain,
    /// The worth of the copy.
    pub worth: Worth,
}

/// The state of a shard in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// The shard's copy at this donor counts, in a domain that no other shard of the unit relies on.
    Apart(DonorId),
    /// The shard has a copy that counts at this donor, on which no other shard of the unit relies, but the donor fails
    /// together with others on which the unit relies.
    Crowded(DonorId),
    /// No copy of the shard counts, or only at donors that the unit relies on for other shards.
    Missing,
}

/// The judgement of a unit: what it has and what it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The number of shards that give everything back.
    pub need: usize,
    /// The number of shards for which copies that count lie in distinct domains.
    pub matching: usize,
    /// The number of shards for which copies that count lie in distinct domains, without donors that are silent.
    pub awake: usize,
    /// True if everything can be had now.
    pub readable: bool,
    /// The state of each shard, in the order given.
    pub shards: Vec<Stand>,
}

impl Judged {
    /// Returns the number of domains that may still die for ever before something is lost; `None` while the unit
    /// cannot be read.
    pub fn tolerates(&self) -> Option<u32> {
        self.readable.then(|| self.matching.saturating_sub(self.need) as u32)
    }

    /// Returns the number of domains that may still die or fall silent before the unit cannot be read; `None` while it
    /// cannot. The number is less than [`Judged::tolerates`] while donors that the unit relies on are silent.
    pub fn tolerates_now(&self) -> Option<u32> {
        self.readable.then(|| self.awake.saturating_sub(self.need) as u32)
    }

    /// Returns whether every shard is apart, so that nothing is to be made.
    pub fn complete(&self) -> bool {
        self.matching == self.shards.len()
    }

    /// Returns the number of shards that have a copy that counts at a donor of their own, also where these donors fail
    /// together.
    pub fn on_distinct_donors(&self) -> usize {
        self.shards.iter().filter(|stand| **stand != Stand::Missing).count()
    }

    /// Returns the places of the shards that need a copy elsewhere.
    pub fn lacking(&self) -> impl Iterator<Item = usize> + '_ {
        let stands = self.shards.iter().enumerate();
        stands.filter(|(_, stand)| !matches!(stand, Stand::Apart(_))).map(|(at, _)| at)
    }
}

/// Judges a unit of which `need` of `shards` give everything back. Each shard's copies stand in the order in which they
/// should be kept. Where several shards are equal, because they are copies of one chunk, each is passed the copies of
/// all.
pub fn judge(need: usize, shards: &[&[Copy]]) -> Judged {
    let counting: Vec<Vec<Copy>> = shards
        .iter()
        .map(|copies| copies.iter().filter(|copy| copy.worth.counts()).copied().collect())
        .collect();
    let domains: Vec<Vec<Domain>> =
        counting.iter().map(|copies| copies.iter().map(|copy| copy.domain).collect()).collect();
    let domains: Vec<&[Domain]> = domains.iter().map(Vec::as_slice).collect();
    let mut used = BTreeSet::new();
    let mut stands = vec![Stand::Missing; shards.len()];
    for ((stand, copies), own) in stands.iter_mut().zip(&counting).zip(matching::assign(&domains)) {
        if let Some(copy) = copies.iter().find(|copy| Some(copy.domain) == own) {
            used.insert(copy.donor);
            *stand = Stand::Apart(copy.donor);
        }
    }
    let matched = used.len();
    let silent = |copies: &Vec<Copy>| copies.iter().any(|copy| copy.worth == Worth::Silent);
    let awake = if counting.iter().any(silent) { awake(&counting) } else { matched };
    for (stand, copies) in stands.iter_mut().zip(&counting) {
        if *stand == Stand::Missing
            && let Some(copy) = copies.iter().find(|copy| !used.contains(&copy.donor))
        {
            used.insert(copy.donor);
            *stand = Stand::Crowded(copy.donor);
        }
    }
    let there = |copies: &&&[Copy]| copies.iter().any(|copy| copy.worth.fetchable());
    Judged {
        need,
        matching: matched,
        awake,
        readable: shards.iter().filter(there).count() >= need,
        shards: stands,
    }
}

/// Returns the number of shards in distinct domains, on donors that are not silent.
fn awake(counting: &[Vec<Copy>]) -> usize {
    let domains = |copies: &Vec<Copy>| -> Vec<Domain> {
        let awake = copies.iter().filter(|copy| copy.worth == Worth::Counts);
        awake.map(|copy| copy.domain).collect()
    };
    let domains: Vec<Vec<Domain>> = counting.iter().map(domains).collect();
    let domains: Vec<&[Domain]> = domains.iter().map(Vec::as_slice).collect();
    matching::assign(&domains).iter().flatten().count()
}

/// A donor that may be given something to make, or be asked for something, at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// The id of the donor.
    pub donor: DonorId,
    /// The failure domain of the donor.
    pub domain: Domain,
    /// The bytes that the donor can still take.
    pub free: u64,
    /// The bytes that the donor was asked for and has not confirmed.
    pub outstanding: u64,
    /// True if the donor's budget allows for more now.
    pub allowed: bool,
}

/// The reason why no donor takes a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTarget {
    /// A donor could take the shard when budgets allow.
    Later,
    /// Every donor is in a domain that the unit relies on already.
    NoneApart,
    /// Some donors are in other domains, but none of them has room for the shard.
    Full,
}

/// Returns the donor that takes a shard of `len` bytes: the one with most room in a domain that the unit does not
/// rely on. A shard that is missing altogether may go to another donor in a domain in use, if all domains are used:
/// that donor's own death is then survived at least.
pub fn target<'a>(
    helpers: &'a [Helper],
    len: u64,
    used: &[(DonorId, Domain)],
    missing: bool,
) -> Result<&'a Helper, NoTarget> {
    let fresh = |helper: &&Helper| used.iter().all(|(donor, _)| *donor != helper.donor);
    let apart = |helper: &&Helper| used.iter().all(|(_, domain)| *domain != helper.domain);
    let roomy = |helper: &&Helper| helper.free >= len;
    let best = |fits: &dyn Fn(&&Helper) -> bool| {
        let able = || helpers.iter().filter(|helper| fits(helper) && roomy(helper));
        let ready = able().filter(|helper| helper.allowed);
        match ready.max_by_key(|helper| (helper.free, std::cmp::Reverse(helper.donor))) {
            Some(helper) => Some(Ok(helper)),
            None => able().next().map(|_| Err(NoTarget::Later)),
        }
    };
    if let Some(found) = best(&apart) {
        return found;
    }
    let full = helpers.iter().any(|helper| apart(&helper));
    if missing
        && !full
        && let Some(found) = best(&fresh)
    {
        return found;
    }
    Err(if full { NoTarget::Full } else { NoTarget::NoneApart })
}

/// Orders helpers by how much they should be asked for something: those with budget first, and of these the least
/// burdened first.
pub fn by_burden(sources: &mut [Helper]) {
    sources.sort_by_key(|helper| (!helper.allowed, helper.outstanding, helper.donor));
}

/// A budget of bytes a second, as they come due. It never gives more than the rate over any time, but for one
/// second's worth and one piece at once.
#[derive(Debug, Clone)]
pub struct Bucket {
    rate: u64,
    level: i64,
    filled: Tick,
}

impl Bucket {
    /// Makes a full bucket that fills at `rate` bytes a second.
    pub fn new(rate: u64, now: Tick) -> Self {
        Self { rate, level: whole(rate), filled: now }
    }

    /// Returns whether something may be taken now. A piece that is larger than what is left puts the bucket in debt, so
    /// that pieces of any size get through at the rate.
    pub fn ready(&mut self, now: Tick) -> bool {
        let passed = now.saturating_sub(self.filled);
        let due = (self.rate as f64 * passed.as_secs_f64()) as i64;
        if due > 0 {
            self.level = self.level.saturating_add(due).min(whole(self.rate));
            self.filled = now;
        }
        self.level > 0
    }

    /// Takes `bytes` of the budget.
    pub fn take(&mut self, bytes: u64) {
        self.level = self.level.saturating_sub(whole(bytes));
    }

    /// Sets the rate at which the bucket fills from now on; a debt is paid at that rate.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
        self.level = self.level.min(whole(rate));
    }

    /// Returns the rate at which the budget fills, in bytes a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }
}

fn whole(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns the seconds until `left` bytes are made at `rate` bytes a second; `None` where nothing moves.
pub fn eta(left: u64, rate: u64) -> Option<u64> {
    match (left, rate) {
        (0, _) => Some(0),
        (_, 0) => None,
        (left, rate) => Some(left.div_ceil(rate)),
    }
}
