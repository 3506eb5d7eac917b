//! Fills the catalog of a manager that does not run, through the operations by which a manager fills it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use potluck_catalog::{
    Batch, Catalog, CommitOutcome, PreparedChunk, PreparedFile, StoredFile, StoredSession, When,
};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::chunk::Digest;
use potluck_core::clock::{SystemClock, Tick};
use potluck_core::ids::{DonorId, Incarnation, MemberId, SessionId, VersionId};
use potluck_core::placement::Plan;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror, Policy};
use potluck_core::recipe::{self, Content, Entry};
use potluck_pool::redundancy::Version;
use potluck_pool::{DonorSnapshot, Pool, PoolLimits};
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{Condition, Register};
use potluck_wire::env::Offload;
use potluck_wire::error::Failure;
use potluck_wire::ticket::Secret;

use super::layout::{EACH, LEN, Layout};
use crate::interrupt;

/// The number of files that become visible by one commit.
const AT_ONCE: u64 = 4;

/// Puts all files of `layout` into the space “scale” of the catalog at `path`.
pub async fn fill(path: &Path, layout: &Layout) -> Result<()> {
    let catalog = Catalog::open(path, Offload::Threads, Arc::new(SystemClock::default()))?;
    let spaces = catalog.spaces().await?;
    let named = spaces.iter().find(|space| space.name == "scale").context("no space")?;
    let root = format!("pot://{}", named.name).parse().map_err(|why| anyhow!("{why}"))?;
    let space = catalog.admit_write(root, Condition::Always, 0).await?.space.id;
    let session = SessionId([7; 16]);
    let stored = StoredSession {
        id: session,
        member: MemberId(1),
        space,
        policy: Policy::default(),
        asked: AskedPolicy::default(),
        room: None,
        plan: Plan { stripe_size: 1, sections: Vec::new(), copies: 2, chunk_size: LEN },
        bytes: 0,
        ended: false,
        draws_on: None,
        key: None,
        counted: 0,
    };
    catalog.open_session(stored).await?;
    let donors = all_there(&layout.donors);
    for (number, first) in (0..).zip((0..layout.files).step_by(AT_ONCE as usize)) {
        interrupt::check()?;
        let files = first..layout.files.min(first + AT_ONCE);
        let batch = Batch::<Failure> {
            session,
            member: MemberId(1),
            space,
            number: u32::into(number),
            mirror: Mirror::ClientSync,
            ack: AckLevel::Memory,
            asked: AskedPolicy::default(),
            done: files.end == layout.files,
            files: files.map(|file| prepared(layout, file).map(Ok)).collect::<Result<_>>()?,
            reserved: Vec::new(),
        };
        let (told, when) = (Arc::from([]), When { pool_ms: 1, wall_ms: 1, ..When::default() });
        let reply = |_: &[Result<StoredFile, _>]| Ok(String::new());
        let batch = Arc::new(batch);
        let done = catalog.commit_files(batch, false, told, donors.clone(), when, reply).await?;
        if let CommitOutcome::Fresh { files, .. } = done.outcome {
            for stored in files {
                stored.map_err(|why| anyhow!("a file was refused: {why:?}"))?;
            }
        }
        if first % 2000 == 0 {
            eprintln!("{} of {} chunks are in the catalog", first * EACH, layout.chunks());
        }
    }
    catalog.close().await;
    Ok(())
}

fn prepared(layout: &Layout, file: u64) -> Result<PreparedFile> {
    let chunks = file * EACH..(file + 1) * EACH;
    let entry = |chunk| {
        let name = layout.name(chunk);
        Entry { name, digest: Digest(name.0), len: LEN, sealed: false }
    };
    let entries: Vec<Entry> = chunks.clone().map(entry).collect();
    let digest = Content::from(&entries[..]).digest().context("no digest of so many bytes")?;
    let holder = |place: usize| (layout.donors[place], AckLevel::Memory);
    let chunk = |chunk| PreparedChunk {
        name: layout.name(chunk),
        len: LEN,
        holders: layout.holders(chunk).map(holder).to_vec(),
    };
    let path = layout.path(file);
    Ok(PreparedFile {
        path: path.parse().map_err(|why| anyhow!("{path}: {why}"))?,
        version: Version {
            metadata: None,
            id: VersionId(0),
            size: EACH * u64::from(LEN),
            holes: 0,
            digest,
            attributes: EntryAttributes { mtime: FileTime::of_ms(1), ..EntryAttributes::default() },
            chunk_size: LEN,
            copies: 2,
            ec: None,
            goal: None,
            safe_wall_ms: None,
            origin: None,
            cache: Default::default(),
            key: None,
            chunks: EACH,
            parts: 0,
            inline: false,
        },
        inline: None,
        pages: recipe::pack(&digest, &entries[..].into()),
        chunks: chunks.map(chunk).collect(),
        condition: Condition::Always,
        in_parts: None,
    })
}

/// Returns the donors of a pool in which all of them are there.
fn all_there(donors: &[DonorId]) -> DonorSnapshot {
    let long = Duration::from_secs(1 << 30);
    let mut pool = Pool::new(PoolLimits {
        lease: long,
        suspect_after: long,
        silent_after: long,
        grace: long,
        longest_absence: long,
        repair_rate: 1,
        repair_donor_rate: 1,
    });
    for donor in donors {
        let register = register(Secret::from_bytes([1; 32]), None);
        pool.add_donor(*donor, "d", None);
        pool.register(*donor, &register, Addresses::default(), Tick::ZERO);
        pool.inventory_done(*donor, register.incarnation);
    }
    pool.snapshot(Tick::ZERO)
}

/// The incarnation of every donor.
pub const INCARNATION: Incarnation = Incarnation(1);

/// Returns the registration of a donor that is new to a manager.
pub fn register(key: Secret, port: Option<u16>) -> Register {
    Register {
        incarnation: INCARNATION,
        key,
        addresses: Addresses::default(),
        port,
        version: "simulated".into(),
        disk: Default::default(),
        room: super::donors::ROOM,
        label: None,
        grace_ms: None,
        heard: Default::default(),
        heard_changes: 0,
        heard_proof: None,
        disk_fault: None,
        new_store: false,
        registered_before: false,
        does: Default::default(),
    }
}
