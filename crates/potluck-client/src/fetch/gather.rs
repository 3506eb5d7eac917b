//! Gathering: asks for chunks until those that are needed are here, or can be rebuilt from others. A chunk that has
//! copies is gathered by the 1-of-1 code: nothing but its own copies can stand in for it.

use super::Fetcher;
use crate::buffer::Buffer;
use crate::link::{ChunkRequest, LinkError};
use futures_util::stream::{FuturesUnordered, StreamExt};
use potluck_core::clock::Tick;
use potluck_core::hedging::{Rates, ReadSource, Requests};
use potluck_core::ids::DonorId;
use potluck_core::read_plan::{GroupStep, ShardState, next_of_group};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A chunk that is gathered, and the state of its requests.
pub(super) struct Shard {
    /// The request for the chunk; `None` for zeros, which no donor stores.
    pub request: Option<ChunkRequest>,
    /// The donors that have the chunk, and which of them were asked.
    pub requests: Requests,
    /// The bytes of the chunk, once they are here.
    pub had: Option<Buffer>,
    /// The donors that did not give the chunk, and why.
    pub faults: Vec<(DonorId, LinkError)>,
}

impl Shard {
    /// Makes a chunk that no donor was asked for yet; `sources` are the donors that have it.
    pub fn new(request: Option<ChunkRequest>, sources: Vec<ReadSource>) -> Self {
        Self { request, requests: Requests::new(sources), had: None, faults: Vec::new() }
    }

    fn state(&self, rates: &Rates, now: Tick) -> ShardState {
        match self.had.is_some() || self.request.is_none() {
            true => ShardState::Had,
            false => self.requests.state(rates, now),
        }
    }
}

/// The rule by which chunks stand in for each other, and how hard they are asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code {
    /// The number of chunks that suffice to rebuild all others.
    pub data: usize,
    /// The number of chunks that are asked for from the start beyond those that are needed.
    pub extra: usize,
    /// True if a chunk that is late is asked for at another donor, too.
    pub hedged: bool,
}

impl Code {
    /// The code by which a chunk that has copies is gathered.
    pub const COPIES: Self = Self { data: 1, extra: 0, hedged: true };
}

/// The outcome of gathering.
pub(super) enum Gathered {
    /// All that is needed is here.
    All,
    /// All chunks that are needed are here or can be rebuilt.
    Enough,
    /// Too few chunks can be had.
    TooFew,
}

impl Fetcher {
    /// Asks for `shards` by the rules of `code` until those at `needed` are here, can be rebuilt, or cannot be had.
    pub(super) async fn gather(
        &self,
        code: Code,
        needed: &[usize],
        shards: &mut [Shard],
    ) -> Gathered {
        let mut asked = FuturesUnordered::new();
        loop {
            let room = self.donors.room.notified();
            let states = self.states(shards);
            let waits_for_room = match next_of_group(&states, needed, code.data, code.extra) {
                GroupStep::Done => return Gathered::All,
                GroupStep::Rebuild => return Gathered::Enough,
                GroupStep::TooFew => return Gathered::TooFew,
                GroupStep::Wait => false,
                GroupStep::Ask(positions) => match self.pick_of(shards, &positions) {
                    Some((position, donor)) => {
                        asked.push(self.ask_for(&mut shards[position], position, donor));
                        continue;
                    }
                    None => true,
                },
            };
            tokio::select! {
                Some((position, (donor, answer))) = asked.next() => {
                    let shard = &mut shards[position];
                    shard.requests.answered();
                    match answer {
                        Ok(bytes) => self.take(shard, bytes),
                        Err(error) => {
                            let name = shard.request.as_ref().map(|request| request.name);
                            name.iter().for_each(|name| self.report(donor, *name, &error));
                            shard.faults.push((donor, error));
                        }
                    }
                }
                () = room, if waits_for_room => {}
                () = self.until_late(shards), if code.hedged => {
                    for (position, donor) in self.mark_late(shards) {
                        asked.push(self.ask_for(&mut shards[position], position, donor));
                    }
                }
            }
        }
    }

    /// Returns the state of each chunk for this read.
    pub(super) fn states(&self, shards: &[Shard]) -> Vec<ShardState> {
        let now = self.client.env.clock.now();
        self.donors.rates(|rates| shards.iter().map(|shard| shard.state(rates, now)).collect())
    }

    /// Picks the chunk that is expected first among those at these positions, and its donor.
    fn pick_of(&self, shards: &[Shard], positions: &[usize]) -> Option<(usize, DonorId)> {
        self.donors.listen();
        self.donors.rates(|rates| {
            let expected = |position: &usize| {
                let shard = &shards[*position];
                let len = shard.request.as_ref()?.bytes();
                let donor = shard.requests.next(rates, len)?;
                Some((expected_finish(rates, donor, len), *position, donor))
            };
            let (_, position, donor) = positions.iter().filter_map(expected).min()?;
            Some((position, donor))
        })
    }

    fn ask_for(
        &self,
        shard: &mut Shard,
        position: usize,
        donor: DonorId,
    ) -> impl Future<Output = (usize, (DonorId, Result<Buffer, LinkError>))> + use<'_> {
        let request = shard.request.clone().expect("nobody is asked for zeros");
        let now = self.client.env.clock.now();
        let heard = self.donors.heard(donor);
        self.donors.rates(|rates| shard.requests.sent(donor, rates, request.bytes(), heard, now));
        async move { (position, self.ask(donor, request).await) }
    }

    fn take(&self, shard: &mut Shard, bytes: Buffer) {
        if shard.had.is_none() {
            self.failovers.fetch_add(shard.requests.repeated(), Ordering::Relaxed);
            shard.had = Some(bytes);
        }
    }

    /// Waits until a request is late, or for ever if no request under way can become late.
    async fn until_late(&self, shards: &[Shard]) {
        let waiting = shards.iter().filter(|shard| shard.had.is_none());
        match waiting.filter_map(|shard| shard.requests.due()).min() {
            Some(due) => {
                let now = self.client.env.clock.now();
                tokio::time::sleep(due.saturating_sub(now).max(Duration::from_millis(1))).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Marks requests that are late, and donors that are silent; returns the late chunks that another donor may be asked for, with that donor.
    fn mark_late(&self, shards: &mut [Shard]) -> Vec<(usize, DonorId)> {
        let now = self.client.env.clock.now();
        // If nothing else can stand in for a chunk, it is better to ask a suspect donor than to wait on.
        let suspects_too = shards.len() == 1;
        let waiting = shards.iter_mut().enumerate().filter(|(_, shard)| shard.had.is_none());
        let another = |(position, shard): (usize, &mut Shard)| {
            let (bytes, requests) = (shard.request.as_ref()?.bytes(), &mut shard.requests);
            let heard = requests.asked().and_then(|donor| self.donors.heard(donor));
            let another = self
                .donors
                .rates(|rates| requests.another(rates, bytes, suspects_too, heard, now))?;
            Some((position, another))
        };
        waiting.filter_map(another).collect()
    }
}

/// Returns the time after which a donor is expected to have sent so many more bytes; zero for a donor of unknown rate,
/// so that it comes before all others.
fn expected_finish(rates: &Rates, donor: DonorId, bytes: u32) -> Duration {
    rates.get(&donor).map_or(Duration::ZERO, |estimate| estimate.expected_finish(bytes))
}
