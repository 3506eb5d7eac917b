//! Fetching chunks from donors that answered, for who has a recovery key and no catalog.

use super::collect::Seen;
use super::room::Room;
use crate::log::put::PIECE;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::DonorId;
use potluck_core::seal::RecoveryKey;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use potluck_wire::ticket::{Caveat, Ops, Ticket};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// A ticket outlives the reading of any catalog.
const TICKET_FOR: Duration = Duration::from_secs(6 * 3600);

/// The largest chunk that metadata is stored in: a piece or a segment, and its seal.
const MAX_RECORD: usize = PIECE + (64 << 10);

/// Who so often sent other bytes, or was silent, is asked no more: a donor may list a million
/// chunks that are none.
const MAX_FAILURES: u32 = 20;

/// Fetches chunks from whoever has them.
pub struct Fetch<'s> {
    room: &'s Room,
    key: RecoveryKey,
    pool: Digest,
    connections: BTreeMap<DonorId, PeerConnection>,
    /// How often each failed to give what it said it has.
    failures: BTreeMap<DonorId, u32>,
}

impl<'s> Fetch<'s> {
    /// From the donors that found the room; what opens with `key` as a record of `pool` is believed.
    pub fn new(room: &'s Room, key: RecoveryKey, pool: Digest) -> Self {
        Self { room, key, pool, connections: BTreeMap::new(), failures: BTreeMap::new() }
    }

    /// A record's number and content; `None` where nobody has it or it does not open.
    pub async fn record(&mut self, seen: &Seen) -> Option<(u64, Vec<u8>)> {
        let sealed = self.chunk(seen.name, &seen.donors).await?;
        self.key.open_record(&self.pool, &sealed).ok()
    }

    /// A chunk from the first of `donors` that has it with so many stored bytes.
    async fn chunk(&mut self, name: ChunkName, donors: &[(DonorId, u32)]) -> Option<Vec<u8>> {
        // A lie must not cost more memory or time than a chunk.
        let possible = donors.iter().filter(|(_, len)| *len as usize <= MAX_RECORD);
        for (donor, len) in possible.copied() {
            if self.failures.get(&donor).is_some_and(|failures| *failures >= MAX_FAILURES) {
                continue;
            }
            match self.from(donor, name, len).await {
                Ok(bytes) => return Some(bytes),
                Err(None | Some(PeerError::Refused(_))) => {}
                Err(Some(why)) => {
                    tracing::debug!(%donor, %why, "a part of the metadata could not be fetched");
                    self.connections.remove(&donor);
                    *self.failures.entry(donor).or_default() += 1;
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
        let room = self.room;
        if let Entry::Vacant(empty) = self.connections.entry(donor) {
            let contact = room.contact(donor).ok_or(None)?;
            let key = contact.key.ok_or(None)?;
            let expires = room.now_ms() + TICKET_FOR.as_millis() as u64;
            let caveats = [Caveat::Donor(donor), Caveat::Ops(Ops::GET), Caveat::Expires(expires)];
            let ticket = Ticket::issue(&key, &*room.env.entropy, &caveats);
            let (net, entropy) = (&*room.env.net, &*room.env.entropy);
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
