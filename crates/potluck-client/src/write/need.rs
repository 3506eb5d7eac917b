//! How much room files need in a pool that has some of their bytes already. A file of which all but a little is there
//! under another name, or that is mostly holes, fits where its length does not: it is cut, and the pool is asked about
//! its chunks, before room is asked for again.

use crate::pool::Pool;
use crate::source::{Cut, Cutter, Items};
use crate::write::reservation::Reservation;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::SessionId;
use potluck_wire::control::Reserve;
use potluck_wire::error::Failure;
use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

/// The number of chunks that are asked about at a time.
const ASKED_AT_ONCE: usize = 256;
/// The number of chunks that a session offers to which nothing is promised; a manager allows it a few more.
const MOST_OFFERED: usize = 960;

/// The bytes that are promised to a session for each name that it may offer, with some to spare.
const PROMISED_PER_NAME: u64 = 2 << 10;

/// What files need.
pub struct NeededRoom {
    /// The number of plaintext bytes that the pool lacks. A chunk that occurs several times is counted once.
    pub bytes: u64,
    /// The sessions that offered the chunks.
    pub offering: Offering,
}

/// Sessions that offered chunks and to which nothing is promised. While they last, no chunk that is there goes.
pub struct Offering {
    client: Pool,
    sessions: Vec<Reservation>,
    /// The moment at which they were renewed last.
    renewed: Tick,
}

impl Offering {
    /// Opens the first session.
    async fn open(client: &Pool, nothing: &Reserve) -> Result<Self, Failure> {
        let sessions = vec![Reservation::open(client, nothing).await?];
        Ok(Self { client: client.clone(), sessions, renewed: client.env.clock.now() })
    }

    /// Returns how long the sessions may go without being renewed.
    fn renew_every(&self) -> Duration {
        let lease = self.sessions.first().map_or(0, |session| session.reserved.lease_ms);
        Duration::from_millis((lease / 3).max(100))
    }

    /// Renews the sessions. One that is over keeps nothing any more, and what goes is sent.
    async fn renew(&mut self) {
        for session in &self.sessions {
            let _ = session.calls().renew().await;
        }
        self.renewed = self.client.env.clock.now();
    }

    /// Keeps the sessions until `work` is done, and ends them.
    pub async fn keep_for<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                () = tokio::time::sleep(self.renew_every()) => {}
            }
            tokio::select! {
                done = &mut work => break done,
                () = self.renew() => {}
            }
        };
        self.end().await;
        done
    }

    /// Ends the sessions.
    pub async fn end(self) {
        for session in self.sessions {
            session.abort(false).await;
        }
    }

    /// Returns the ids of the sessions.
    pub fn ids(&self) -> Vec<SessionId> {
        self.sessions.iter().map(|session| session.reserved.session).collect()
    }
}

/// A chunk, or a group of an erasure code, about which the pool is asked.
struct Asked {
    names: Vec<ChunkName>,
    /// The number of plaintext bytes of its data chunks.
    bytes: u64,
}

/// Reads `items` and finds out how many of their bytes the pool lacks; `reserve` is the request that asked for room for
/// all of them. Files that cannot be read, or change, are found when they are stored.
///
/// Errors: those of [`Pool::call`].
pub async fn of_files(
    client: &Pool,
    reserve: &Reserve,
    items: Items,
) -> Result<NeededRoom, Failure> {
    let nothing = Reserve { bytes: Some(0), ..reserve.clone() };
    let offering = Offering::open(client, &nothing).await?;
    let first = &offering.sessions[0].reserved;
    let (policy, key) = (first.policy.clone(), first.space_key.clone());
    let client = client.for_writing(&policy, 0);
    let cutter = Cutter::new(items, &policy, key, Default::default()).allowing_changes(true);
    let mut cutter = Some(cutter);
    let mut need = NeededRoom { bytes: 0, offering };
    let (mut seen, mut offered) = (HashSet::new(), 0);
    let mut waiting: Vec<Asked> = Vec::new();
    while let Some(mut at_work) = cutter.take() {
        let claim = client.buffers.claim(Cutter::room(&policy)).await;
        let cut = move || {
            // The bytes themselves are given up: the files are read again when their chunks are sent.
            let cuts = at_work.next(claim);
            let more = !cuts.is_empty();
            (at_work, more, cuts.into_iter().filter_map(asked).collect::<Vec<_>>())
        };
        let (after, more, cuts) = client.env.offload.run(cut).await;
        cutter = more.then_some(after);
        let is_new = |asked: &Asked| asked.names.iter().any(|name| !seen.contains(name));
        let new: Vec<Asked> = cuts.into_iter().filter(is_new).collect();
        for asked in new {
            // The first of several equal chunks of one turn is enough.
            if asked.names.iter().filter(|name| seen.insert(**name)).count() > 0 {
                waiting.push(asked);
            }
        }
        let names: Vec<ChunkName> =
            waiting.iter().flat_map(|asked| &asked.names).copied().collect();
        if client.env.clock.now() - need.offering.renewed >= need.offering.renew_every() {
            need.offering.renew().await;
        }
        if names.is_empty() || (names.len() < ASKED_AT_ONCE && cutter.is_some()) {
            continue;
        }
        if offered + names.len() > MOST_OFFERED {
            need.offering.sessions.push(Reservation::open(&client, &nothing).await?);
            offered = 0;
        }
        offered += names.len();
        let session = need.offering.sessions.last().expect("the first is there").calls();
        let held = session.offer(names.clone(), policy.ack, None).await?.held;
        // Copies that are missing are sent, and need room for the chunk as a whole.
        let has_all = |donors: usize| donors >= policy.copies as usize || policy.ec.is_some();
        let held = held.iter().filter(|held| has_all(held.donors.len()));
        let held: HashSet<&ChunkName> =
            held.filter_map(|held| names.get(held.index as usize)).collect();
        let lacks = |asked: &Asked| asked.names.iter().any(|name| !held.contains(name));
        need.bytes += waiting.drain(..).filter(lacks).map(|asked| asked.bytes).sum::<u64>();
    }
    // A session is allowed names for the bytes that are promised to it, and offers those that are there, too.
    need.bytes = need.bytes.max(seen.len() as u64 * PROMISED_PER_NAME);
    Ok(need)
}

fn asked(cut: Cut) -> Option<Asked> {
    let Cut::Group { data, parity, .. } = cut else { return None };
    let bytes = data.iter().map(|(entry, _)| u64::from(entry.len)).sum();
    let names =
        data.iter().map(|(entry, _)| entry.name).chain(parity.iter().map(|(name, _)| *name));
    Some(Asked { names: names.collect(), bytes })
}
