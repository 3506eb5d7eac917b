//! Writes the pool's own metadata to its donors as any client writes files: in a session, with chunks that are offered
//! before they are sent and committed with receipts. Therefore placement, garbage collection and repair treat it like
//! other files.

use super::MetadataTrouble;
use crate::config::ManagerConfig;
use crate::handles::handles;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::sessions::SessionGuard;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::wakeup::Wakeup;
use potluck_catalog::{
    Advance, Batch, Catalog, ChunkAsker, PreparedChunk, PreparedFile, StoredSession,
};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Incarnation, SessionId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror, Policy, Redundancy, Width};
use potluck_core::recipe::{self, Entry};
use potluck_pool::redundancy::Version;
use potluck_pool::{DonorContact, MANAGER, NewSession, Pool, ReceiptJudgement, Ticketed};
use potluck_recovery::log::block::PIECE;
use potluck_wire::control::Condition;
use potluck_wire::env::Env;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use potluck_wire::ticket::{Caveat, Ops, Ticket};
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for writing to donors.
    pub struct WriterHandles {
        settings: Arc<Settings>,
        env: Env,
        term: Arc<OwnTerm>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        background: Wakeup,
        scan_state: Arc<ScanState>,
    }
}

/// The validity of a ticket, which is longer than the writing of any catalog takes.
const TICKET_FOR: Duration = Duration::from_secs(6 * 3600);

/// A write under way. If it is dropped without a commit, its session ends with its lease.
pub struct MetadataWriter {
    handles: WriterHandles,
    session: SessionId,
    ticketed: Ticketed,
    _guard: SessionGuard,
    next: u64,
    connections: BTreeMap<DonorId, PeerConnection>,
    failed: BTreeSet<DonorId>,
    /// The number of donors' losses that were noted when the write began: receipts of donors that were started
    /// again since are void.
    losses: u64,
    /// The incarnations of donors that acknowledged chunks.
    acknowledged_by: BTreeMap<DonorId, Incarnation>,
}

impl MetadataWriter {
    /// Begins to write about `bytes` of plaintext.
    pub async fn open(handles: &WriterHandles, bytes: u64) -> Result<Self, MetadataTrouble> {
        let wall_ms = handles.time.wall_ms();
        let space = handles.catalog.system_space(policy(1), wall_ms).await?;
        let now = handles.time.tick();
        let (new, ticketed, losses) = {
            let mut pool = handles.pool.lock();
            let copies = copies_now(&pool, &handles.settings.get(), bytes, now);
            let new = NewSession {
                id: SessionId::in_term(handles.term.start, handles.env.entropy.u64()),
                member: MANAGER,
                space,
                policy: policy(copies),
                asked: AskedPolicy { over: Redundancy::Copies(copies).into(), may_lower: true },
                room: None,
                peer: None,
                link: None,
            };
            let ticketed = pool.open_session(new.clone(), Some(bytes.max(1)), now)?;
            // The session is busy from now on, so that its lease does not end while it is written.
            pool.enter(&new.id, MANAGER, now).map_err(|_| MetadataTrouble::Ended)?;
            (new, ticketed, pool.losses())
        };
        let guard = SessionGuard::new(handles.pool.clone(), handles.time.clone(), new.id);
        let stored = StoredSession {
            id: new.id,
            member: MANAGER,
            space,
            policy: new.policy,
            asked: new.asked,
            plan: ticketed.plan.clone(),
            bytes: ticketed.bytes,
            ended: false,
            room: None,
            draws_on: None,
            key: None,
            counted: ticketed.bytes,
        };
        if let Err(why) = handles.catalog.open_session(stored).await {
            handles.pool.lock().take_back(&new.id);
            return Err(why.into());
        }
        Ok(Self {
            handles: handles.clone(),
            session: new.id,
            ticketed,
            _guard: guard,
            next: 0,
            connections: BTreeMap::new(),
            failed: BTreeSet::new(),
            losses,
            acknowledged_by: BTreeMap::new(),
        })
    }

    /// Returns the number of copies that each chunk is to have.
    pub fn copies(&self) -> u32 {
        self.ticketed.policy.copies
    }

    /// Has donors hold `bytes` as the chunk `name`; sends only the copies that are missing.
    ///
    /// Errors: no donor has the chunk, or it cannot be offered. Fewer copies than asked for are no error: repair makes
    /// them.
    pub async fn chunk(
        &mut self,
        kind: ChunkKind,
        name: ChunkName,
        bytes: &[u8],
    ) -> Result<PreparedChunk, MetadataTrouble> {
        let held = self.offer(name).await?;
        let mut chunk = PreparedChunk { name, len: bytes.len() as u32, holders: Vec::new() };
        let slot = self.ticketed.plan.slot(self.next).unwrap_or_default();
        self.next += 1;
        let others = self.ticketed.plan.donors();
        let mut targets: Vec<DonorId> = slot;
        targets.extend(others);
        let mut tried: BTreeSet<DonorId> = held.iter().copied().collect();
        for donor in targets {
            if held.len() + chunk.holders.len() >= self.copies() as usize {
                break;
            }
            if self.failed.contains(&donor) || !tried.insert(donor) {
                continue;
            }
            match self.send(donor, kind, name, bytes).await {
                Ok(()) => chunk.holders.push((donor, AckLevel::Disk)),
                Err(why) => {
                    tracing::debug!(%donor, %why, "a donor did not take a block");
                    self.connections.remove(&donor);
                    self.failed.insert(donor);
                }
            }
        }
        if held.is_empty() && chunk.holders.is_empty() {
            Err(MetadataTrouble::NoDonor)
        } else {
            Ok(chunk)
        }
    }

    async fn send(
        &mut self,
        donor: DonorId,
        kind: ChunkKind,
        name: ChunkName,
        bytes: &[u8],
    ) -> Result<(), MetadataTrouble> {
        let now = self.handles.time.tick();
        let contact = self.handles.pool.lock().contact(donor, now).filter(|contact| contact.live);
        let Some(DonorContact { addresses, signer: Some(signer), .. }) = contact else {
            return Err(MetadataTrouble::NoDonor);
        };
        let handles = self.handles.clone();
        let connection = match self.connections.entry(donor) {
            Slot::Occupied(open) => open.into_mut(),
            Slot::Vacant(empty) => {
                let now_ms = handles.time.now_ms();
                let caveats = [
                    Caveat::Donor(donor),
                    Caveat::Ops(Ops::PUT.and(Ops::RECORD)),
                    Caveat::Issued(now_ms),
                    Caveat::Expires(now_ms + TICKET_FOR.as_millis() as u64),
                    Caveat::Session(self.session),
                ];
                let ticket = Ticket::issue(&signer.key, &*handles.env.entropy, &caveats);
                let (net, entropy) = (&*handles.env.net, &*handles.env.entropy);
                empty.insert(PeerConnection::open(net, entropy, &addresses, &ticket).await?)
            }
        };
        let ack = AckLevel::Disk;
        let receipt = connection.put(name, ack, kind, bytes).await?;
        let what = (&name, bytes.len() as u32);
        if signer.judge(&receipt, &self.session, what, ack) != ReceiptJudgement::Counts {
            return Err(PeerError::WrongBytes.into());
        }
        self.acknowledged_by.insert(donor, signer.incarnation);
        Ok(())
    }

    /// Commits the files to the pool, and moves the log's position as `advance` says.
    pub async fn commit(
        self,
        files: Vec<PreparedFile>,
        advance: Advance,
    ) -> Result<(), MetadataTrouble> {
        let handles = &self.handles;
        let chunks = files.iter().flat_map(|file| &file.chunks);
        let copies = chunks.flat_map(|chunk| {
            let of = |(donor, _): &(DonorId, AckLevel)| {
                Some((*donor, *self.acknowledged_by.get(donor)?, &chunk.name))
            };
            chunk.holders.iter().filter_map(of)
        });
        handles.pool.lock().acknowledged(copies);
        let Ticketed { space, asked, .. } = self.ticketed;
        let batch = Arc::new(Batch {
            session: self.session,
            member: MANAGER,
            space,
            number: 0.into(),
            mirror: Mirror::ClientAsync,
            ack: AckLevel::Disk,
            asked,
            reserved: Vec::new(),
            files: files.into_iter().map(Ok).collect(),
            done: true,
        });
        let donors = handles.pool.lock().snapshot(handles.time.tick());
        let donors = donors.for_work_begun_at(self.losses);
        let done = handles.catalog.commit_log(batch, advance, donors, handles.time.when()).await?;
        let is_unseen = handles.scan_state.kept().metadata.files == 0;
        if done.open || is_unseen {
            // A donor that took a copy has died or begun to leave meanwhile, or no scan has seen that there are copies.
            handles.scan_state.changed(handles.time.tick());
        }
        let now = handles.time.tick();
        let mut pool = handles.pool.lock();
        pool.in_use_again(&done.again, now);
        pool.end_session(&self.session);
        drop(pool);
        handles.background.wake();
        Ok(())
    }

    /// Protects a chunk from garbage collection, and then returns the donors that have it already.
    async fn offer(&mut self, name: ChunkName) -> Result<Vec<DonorId>, MetadataTrouble> {
        let handles = &self.handles;
        let new = handles.pool.lock().offer(&self.session, &[name])?;
        let (names, ack) = (Arc::new(vec![name]), AckLevel::Disk);
        let found = handles.catalog.offer(self.session, new, names, ack, ChunkAsker::ALL).await?;
        let view = handles.pool.lock().view(handles.time.tick());
        let used = found.into_iter().filter(|found| found.used).flat_map(|found| found.donors);
        Ok(used.filter(|donor| view.counts(*donor, &name)).collect())
    }
}

/// Returns the number of copies that are asked for when `bytes` of the pool's own metadata are written now: as many as
/// the settings say, but no more than there are donors that take all of it, for with fewer donors than copies it would
/// not be written at all. It is at least 1.
pub fn copies_now(pool: &Pool, config: &ManagerConfig, bytes: u64, now: Tick) -> u32 {
    let stored = bytes.div_ceil(PIECE as u64).max(1) * PIECE as u64;
    let takers = pool.takers(now).into_iter().filter(|taker| taker.free >= stored).count();
    config.metadata_copies.min(takers as u32).max(1)
}

/// Makes a block ready to be committed as a file of its own.
pub fn prepared(
    path: PoolPath,
    entry: Entry,
    chunk: PreparedChunk,
    copies: u32,
    wall_ms: i64,
) -> PreparedFile {
    let version = Version {
        metadata: None,
        id: VersionId(0),
        size: u64::from(entry.len),
        holes: 0,
        digest: entry.digest,
        attributes: EntryAttributes { mtime: FileTime::of_ms(wall_ms), ..Default::default() },
        chunk_size: PIECE as u32,
        copies,
        ec: None,
        goal: None,
        safe_wall_ms: None,
        origin: None,
        cache: Default::default(),
        key: None,
        chunks: 1,
        parts: 0,
        inline: false,
    };
    let (pages, chunks) = (recipe::pack(&entry.digest, &[entry][..].into()), vec![chunk]);
    let condition = Condition::Always;
    PreparedFile { path, version, inline: None, pages, chunks, condition, in_parts: None }
}

/// The least width of a stripe of the pool's own metadata, in donors.
const STRIPE: u32 = 4;

/// Returns the policy of the pool's own metadata.
fn policy(copies: u32) -> Policy {
    Policy {
        chunk_size: PIECE as u32,
        copies,
        stripe_width: Width::Donors(copies.max(STRIPE)),
        mirror: Mirror::ClientAsync,
        ack: AckLevel::Disk,
        sealed: true,
        ..Policy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::{Incarnation, SpaceId};
    use potluck_core::owner_limits::DiskState;
    use potluck_wire::addresses::Addresses;
    use potluck_wire::control::Register;
    use potluck_wire::ticket::Secret;
    use std::time::Duration;

    fn at(seconds: u64) -> Tick {
        Duration::from_secs(seconds)
    }

    fn register(pool: &mut Pool, donor: u32) {
        pool.add_donor(DonorId(donor), &format!("d{donor}"), None);
        let register = Register {
            incarnation: Incarnation(7),
            key: Secret::from_bytes([donor as u8; 32]),
            addresses: Addresses::default(),
            port: None,
            version: "0.1".into(),
            disk: DiskState::default(),
            room: 1000 << 20,
            label: None,
            grace_ms: None,
            heard: Default::default(),
            heard_changes: 0,
            heard_proof: None,
            disk_fault: None,
            new_store: false,
            registered_before: false,
            does: Default::default(),
        };
        let addresses = format!("10.0.0.{donor}:7701").parse().expect("an address");
        pool.register(DonorId(donor), &register, addresses, at(0));
    }
    use potluck_pool::Giving;

    #[test]
    fn metadata_is_asked_of_donors_that_take_all_of_it() {
        let config = ManagerConfig::default();
        let mut pool = Pool::new(config.limits());
        let copies = |pool: &Pool, bytes| copies_now(pool, &config, bytes, at(1));
        assert_eq!(copies(&pool, 1), 1, "never none");
        for donor in 1..=2 {
            register(&mut pool, donor);
        }
        assert_eq!(copies(&pool, 1), 2);
        for donor in 3..=5 {
            register(&mut pool, donor);
        }
        assert_eq!(copies(&pool, 1), config.metadata_copies);
        let giving = Giving { start: 0, at_once: false, lose: [].into(), since: Tick::ZERO };
        (2..=4).for_each(|donor| pool.give_back(DonorId(donor), Some(giving.clone())));
        assert_eq!(copies(&pool, 1), 2, "who leaves takes nothing");
        let policy = Policy { copies: 2, ..policy(2) };
        let new = |id| NewSession {
            id: SessionId([id; 16]),
            member: MANAGER,
            space: SpaceId(1),
            policy: policy.clone(),
            asked: AskedPolicy::default(),
            room: None,
            peer: None,
            link: None,
        };
        // This is more than is left when another write was promised most of the room.
        pool.open_session(new(1), Some(900 << 20), at(1)).expect("fits");
        pool.open_session(new(2), Some(90 << 20), at(1)).expect("as many as are counted");
        assert_eq!((copies(&pool, 1), copies(&pool, 90 << 20)), (2, 1));
    }
}
