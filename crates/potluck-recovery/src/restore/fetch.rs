//! Fetches chunks from donors that answered, with a recovery key and without a catalog.

use super::collect::SeenMetadata;
use super::server::RestoreServer;
use crate::log::block::PIECE;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::DonorId;
use potluck_core::seal::RecoveryKey;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use potluck_wire::ticket::{Caveat, OUT_OF_TIME, Ops, Ticket};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// The validity of a ticket, which outlasts the reading of any catalog.
const TICKET_FOR: Duration = Duration::from_secs(6 * 3600);

/// The most bytes of a chunk of metadata: a block and its seal.
const MAX_RECORD: usize = PIECE + (64 << 10);

/// The number of failures, such as wrong bytes or silence, after which a donor is asked no more: a donor may list a
/// million chunks that do not exist.
const MAX_FAILURES: u32 = 20;
/// The number of chunks that are no part of this log after which a donor is asked no more. Some may be left of a log
/// under a key that was lost.
const MAX_FOREIGN: u32 = 2000;

/// The connections over which chunks are fetched from donors, with a record of how each donor behaves.
pub struct BlockFetch<'s> {
    server: &'s RestoreServer,
    key: RecoveryKey,
    pool: Digest,
    connections: BTreeMap<DonorId, PeerConnection>,
    record: BTreeMap<DonorId, Conduct>,
}

/// The record of how a donor has behaved so far.
#[derive(Debug, Clone, Copy, Default)]
struct Conduct {
    /// The number of times that the donor failed to give a chunk, refusals not counted.
    failures: u32,
    /// The number of chunks that the donor gave and that are no part of the log.
    foreign: u32,
    bytes: u64,
    took: Duration,
}

impl Conduct {
    fn is_trusted(&self) -> bool {
        self.failures < MAX_FAILURES && self.foreign < MAX_FOREIGN
    }

    /// Returns the donor's nanoseconds a byte; 0 as long as that is unknown, so that every donor is tried.
    fn slowness(&self) -> u128 {
        self.took.as_nanos() / u128::from(self.bytes.max(1))
    }
}

/// What came of asking for a block.
pub enum FetchedBlock {
    /// The block, by its number and content.
    Opened(u64, Vec<u8>),
    /// The block is what its name says, and another key sealed it, or nobody's.
    Foreign,
    /// No donor gave the block.
    NotGiven,
}

impl<'s> BlockFetch<'s> {
    /// Makes a fetch from the donors that found the server. Only what opens with `key` as a record of `pool` is
    /// believed.
    pub fn new(server: &'s RestoreServer, key: RecoveryKey, pool: Digest) -> Self {
        Self { server, key, pool, connections: BTreeMap::new(), record: BTreeMap::new() }
    }

    /// Fetches a block.
    pub async fn block(&mut self, seen: &SeenMetadata) -> FetchedBlock {
        let Some((donor, sealed)) = self.chunk(seen.name, &seen.donors).await else {
            return FetchedBlock::NotGiven;
        };
        match self.key.open_record(&self.pool, &sealed) {
            Ok((number, text)) => FetchedBlock::Opened(number, text),
            Err(_) => {
                self.record.entry(donor).or_default().foreign += 1;
                FetchedBlock::Foreign
            }
        }
    }

    /// Fetches a chunk from one of `donors`, each of which says that it has so many stored bytes of it. The donor that
    /// was fastest so far is asked first, so that a slow one holds the restore up only once.
    async fn chunk(
        &mut self,
        name: ChunkName,
        donors: &[(DonorId, u32)],
    ) -> Option<(DonorId, Vec<u8>)> {
        let of = |donor: DonorId| self.record.get(&donor).copied().unwrap_or_default();
        let mut order: Vec<(DonorId, u32)> = donors.to_vec();
        // A donor that lies about the length must not cost more memory or time than a chunk does.
        order.retain(|(donor, len)| *len as usize <= MAX_RECORD && of(*donor).is_trusted());
        order.sort_by_key(|(donor, _)| of(*donor).slowness());
        for (donor, len) in order {
            let began = self.server.tick();
            let got = self.from(donor, name, len).await;
            let conduct = self.record.entry(donor).or_default();
            conduct.took += self.server.tick().saturating_sub(began);
            match got {
                Ok(bytes) => {
                    conduct.bytes += u64::from(len);
                    return Some((donor, bytes));
                }
                Err(None | Some(PeerError::Refused(_))) => {}
                Err(Some(why)) => {
                    tracing::debug!(%donor, %why, "a part of the metadata could not be fetched");
                    conduct.failures += 1;
                    self.connections.remove(&donor);
                }
            }
        }
        None
    }

    async fn from(
        &mut self,
        donor: DonorId,
        name: ChunkName,
        len: u32,
    ) -> Result<Vec<u8>, Option<PeerError>> {
        let server = self.server;
        if let Entry::Vacant(empty) = self.connections.entry(donor) {
            let contact = server.contact(donor).ok_or(None)?;
            let key = contact.key.ok_or(None)?;
            let expires = server.now_ms() + TICKET_FOR.as_millis() as u64;
            let caveats = [
                Caveat::Donor(donor),
                Caveat::Ops(Ops::GET),
                Caveat::Expires(expires),
                Caveat::Issued(OUT_OF_TIME),
            ];
            let ticket = Ticket::issue(&key, &*server.env.entropy, &caveats);
            let (net, entropy) = (&*server.env.net, &*server.env.entropy);
            empty.insert(
                PeerConnection::open(net, entropy, &contact.addresses, &ticket)
                    .await
                    .map_err(Some)?,
            );
        }
        let connection = self.connections.get_mut(&donor).ok_or(None)?;
        connection.get(name, len).await.map_err(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restore_asks_slow_donors_last_and_bad_ones_never() {
        let of = |bytes, seconds| Conduct {
            bytes,
            took: Duration::from_secs(seconds),
            ..Conduct::default()
        };
        let (unknown, fast, slow, silent) = (of(0, 0), of(4 << 20, 1), of(4 << 20, 40), of(0, 8));
        let mut order = [silent, slow, fast, unknown];
        order.sort_by_key(Conduct::slowness);
        let took = |conduct: Conduct| conduct.took.as_secs();
        assert_eq!(order.map(took), [0, 1, 40, 8]);
        assert!(fast.is_trusted());
        assert!(!Conduct { failures: MAX_FAILURES, ..fast }.is_trusted());
        assert!(!Conduct { foreign: MAX_FOREIGN, ..fast }.is_trusted());
    }
}
