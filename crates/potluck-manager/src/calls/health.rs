//! How safe one file is at this moment: what `stat` says of its chunks, their holders and the rest.

use super::ticketing;
use crate::catalog::versions::Version;
use crate::pool::{Contact, Pool};
use crate::service::Service;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::matching;
use potluck_core::policy::Redundancy;
use potluck_wire::control::{ChunkFacts, Health, Holding, MirrorState, Share};
use std::collections::{BTreeMap, BTreeSet};

/// The chunks of a file with their holders, parity after the data.
type Copies = [(Holding, Vec<DonorId>)];

/// Whether what a donor holds counts as there at this moment.
fn counts(pool: &Pool, donor: DonorId, now: Tick) -> bool {
    pool.contact(donor, now).is_some_and(|contact| contact.live)
}

/// Each donor's share of a file, and the donors whose copies count.
pub fn holders(service: &Service, copies: &Copies) -> (Vec<Share>, BTreeSet<DonorId>) {
    let everybody: BTreeSet<DonorId> =
        copies.iter().flat_map(|(_, donors)| donors).copied().collect();
    let now = service.time.tick();
    let (contacts, counting) = {
        let pool = service.pool();
        let counting = everybody.iter().copied().filter(|donor| counts(&pool, *donor, now));
        let counting = counting.collect();
        (ticketing::contacts(&pool, everybody, now), counting)
    };
    (shares(contacts, copies), counting)
}

fn shares(contacts: Vec<Contact>, copies: &Copies) -> Vec<Share> {
    let empty = |contact: Contact| {
        let Contact { donor, name, live, .. } = contact;
        (donor, Share { donor, name, live, chunks: 0, bytes: 0 })
    };
    let mut shares: BTreeMap<DonorId, Share> = contacts.into_iter().map(empty).collect();
    for (holding, donors) in copies {
        for donor in donors {
            let Some(share) = shares.get_mut(donor) else { continue };
            share.chunks += 1;
            share.bytes += u64::from(holding.len);
        }
    }
    shares.into_values().collect()
}

/// A file, examined.
#[derive(Debug)]
pub struct Examined {
    /// How safe it is.
    pub health: Health,
    /// Its chunks, parity after the data.
    pub chunks: Vec<ChunkFacts>,
    /// The fewest live holders of any data chunk.
    pub live_copies: u32,
}

/// Chunks of which some must be there: a group, or the copies of one chunk.
struct Unit {
    /// Places of the chunks, one for each shard; the same again for each copy.
    shards: Vec<usize>,
    /// Shards that give back all.
    need: usize,
    group: Option<u64>,
}

fn units(version: &Version) -> Vec<Unit> {
    let data = version.chunks as usize;
    match version.redundancy() {
        Redundancy::Copies(copies) => {
            let unit = |at| Unit { shards: vec![at; copies as usize], need: 1, group: None };
            (0..data).map(unit).collect()
        }
        Redundancy::Ec(ec) => {
            let unit = |(number, group): (usize, std::ops::Range<usize>)| {
                let parity = data + number * ec.parity()..data + (number + 1) * ec.parity();
                let need = group.len();
                Unit { shards: group.chain(parity).collect(), need, group: Some(number as u64) }
            };
            ec.groups(data).enumerate().map(unit).collect()
        }
    }
}

/// Examines a version, counting copies at the donors `counting` only.
pub fn examine(version: &Version, copies: &Copies, counting: &BTreeSet<DonorId>) -> Examined {
    let live: Vec<Vec<DonorId>> = copies
        .iter()
        .map(|(_, donors)| {
            donors.iter().copied().filter(|donor| counting.contains(donor)).collect()
        })
        .collect();
    let data = &live[..version.chunks as usize];
    let promised = version.redundancy().tolerates();
    let mut tolerates = Some(promised);
    let mut facts: BTreeMap<usize, ChunkFacts> = BTreeMap::new();
    for unit in units(version) {
        let shards: Vec<&[DonorId]> = unit.shards.iter().map(|at| live[*at].as_slice()).collect();
        let assigned = matching::assign(&shards);
        let there = shards.iter().filter(|donors| !donors.is_empty()).count();
        let readable = there >= unit.need;
        let matched = assigned.iter().flatten().count();
        let spare = readable.then(|| matched.saturating_sub(unit.need) as u32);
        tolerates = tolerates.zip(spare).map(|(all, one)| all.min(one));
        for (at, own) in unit.shards.iter().zip(&assigned) {
            let state = match own {
                Some(_) => MirrorState::Complete,
                None if !live[*at].is_empty() => MirrorState::Pending,
                None if readable => MirrorState::Rebuildable,
                None => MirrorState::Unreadable,
            };
            let (holding, _) = &copies[*at];
            let fact = ChunkFacts {
                name: holding.name,
                len: holding.len,
                parity: *at >= version.chunks as usize,
                group: unit.group,
                donors: live[*at].clone(),
                state,
            };
            // The last copy of a chunk says whether all are there: see `matching::assign`.
            facts.insert(*at, fact);
        }
    }
    let of_state = |states: &[MirrorState]| {
        facts.values().filter(|fact| states.contains(&fact.state)).count() as u64
    };
    let incomplete = facts.len() as u64 - of_state(&[MirrorState::Complete]);
    Examined {
        live_copies: data.iter().map(Vec::len).min().unwrap_or(0) as u32,
        health: Health {
            tolerates,
            promised,
            incomplete,
            unreadable: of_state(&[MirrorState::Unreadable]),
            safe_since_ms: version.safe_wall_ms.filter(|_| incomplete == 0),
            changing_to: version.goal,
        },
        chunks: facts.into_values().collect(),
    }
}
