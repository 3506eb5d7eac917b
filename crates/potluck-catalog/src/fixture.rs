//! A catalog in a directory of its own, and files to put into it.

use crate::chunks::units;
use crate::engine::{self, Database};
use crate::log::changes;
use crate::operations::{
    self,
    commits::commit::{
        self, Batch, CommitOutcome, PreparedChunk, PreparedFile, Refused, StoredFile,
    },
};
use crate::pool_records::{
    donors, meta,
    sessions::{self, StoredSession},
    spaces::{self, NewSpace},
    stored_donor::StoredDonor,
};
use crate::when::When;
use crate::{Catalog, Durability, Error, PageLimit};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::chunk::{ChunkName, DEFAULT_CHUNK, Digest};
use potluck_core::clock::{Clock, SharedClock, Tick, UnixMillis};
use potluck_core::ids::{DonorId, Incarnation, MemberId, SessionId, SpaceId, VersionId};
use potluck_core::merkle::Tree;
use potluck_core::path::PoolPath;
use potluck_core::placement::Plan;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror, Policy, Redundancy};
use potluck_core::recipe::{self, Content, Entry};
use potluck_core::seal::SpaceKey;
use potluck_pool::redundancy::Findings;
use potluck_pool::redundancy::Version;
use potluck_pool::{Pool, PoolLimits};
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{Condition, InParts, Register};
use potluck_wire::ticket::Secret;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

pub mod tampering;

impl Catalog {
    /// Limits the pages that the catalog's file may have, as if the disk had no more.
    pub async fn limit_pages(&self, pages: u32) -> Result<(), Error> {
        self.write(Durability::Process, move |db| db.limit_pages(pages)).await
    }

    /// Returns the facts about donors, as the next term of the manager finds them.
    pub async fn donors(&self) -> Result<Vec<StoredDonor>, Error> {
        self.read(donors::all).await
    }

    /// Returns the number of changes that some copy of the log waits for.
    pub async fn waiting_changes(&self) -> Result<usize, Error> {
        self.read(|db| Ok(changes::rows(db, 0, usize::MAX >> 1)?.len())).await
    }
}

/// A clock that moves on by a fixed number of milliseconds each time that it is read; with 0 it stands still.
pub struct ReadClock {
    step_ms: u64,
    at_ms: AtomicU64,
}

impl ReadClock {
    /// Makes a clock at its start that moves on by `step_ms` at each reading.
    pub fn by(step_ms: u64) -> SharedClock {
        Arc::new(Self { step_ms, at_ms: AtomicU64::new(0) })
    }
}

impl Clock for ReadClock {
    fn now(&self) -> Tick {
        Tick::from_millis(self.at_ms.fetch_add(self.step_ms, Ordering::Relaxed))
    }

    fn wall(&self) -> UnixMillis {
        0
    }
}

/// A catalog with the plain space “lab” and one open session.
pub struct Fixture {
    pub dir: TempDir,
    pub db: Database,
    pub session: SessionId,
    /// A pool of the donors 1 to 32, which are all there, and which acknowledge copies.
    pub pool: Pool,
    batch: u32,
}

pub type Outcomes = Vec<Result<VersionId, Refused<()>>>;

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("catalog.db");
        meta::create(&file, "test pool").expect("created");
        let db = engine::open_existing(&file).expect("opened");
        let policy = Policy { sealed: false, ..Policy::default() };
        operations::spaces::create(&db, &new_space("lab", policy, None), 0).expect("a space");
        Self::of(dir, db)
    }

    /// Makes a fixture of the catalog in `dir`, whose first space is called “lab”.
    pub fn of(dir: TempDir, db: Database) -> Self {
        let session = SessionId([0; 16]);
        let mut fixture = Self { dir, db, session, pool: donors_there(32), batch: 0 };
        fixture.new_session(1);
        fixture
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("catalog.db")
    }

    /// Closes the catalog and opens it again, as a restart of the manager does.
    pub fn reopen(self) -> Self {
        let file = self.file();
        drop(self.db);
        let db = engine::open_existing(&file).expect("reopened");
        Self { db, ..self }
    }

    pub fn new_session(&mut self, id: u8) {
        self.session = SessionId([id; 16]);
        self.batch = 0;
        let plan =
            Plan { stripe_size: 1, sections: Vec::new(), copies: 1, chunk_size: DEFAULT_CHUNK };
        let session = StoredSession {
            id: self.session,
            member: MemberId(1),
            space: SpaceId(1),
            policy: Policy::default(),
            asked: AskedPolicy::default(),
            plan,
            bytes: 0,
            ended: false,
            room: None,
            draws_on: None,
            key: None,
            counted: 0,
        };
        sessions::insert(&self.db, &session).expect("a session");
    }

    /// Commits the next batch of the session.
    pub fn commit(&mut self, files: Vec<PreparedFile>) -> Outcomes {
        self.batch += 1;
        let batch = Batch {
            session: self.session,
            member: MemberId(1),
            space: SpaceId(1),
            number: self.batch.into(),
            mirror: Mirror::ClientSync,
            ack: AckLevel::Memory,
            asked: AskedPolicy::default(),
            reserved: Vec::new(),
            files: files.into_iter().map(Ok).collect(),
            done: false,
        };
        let tx = self.db.begin().expect("a transaction");
        let reply = |files: &[Result<StoredFile, _>]| Ok(format!("{} files", files.len()));
        let donors = self.pool.snapshot(Tick::ZERO);
        let outcome =
            commit::commit(&tx, &batch, false, &donors, When::default(), reply).expect("a batch");
        tx.commit().expect("committed");
        match outcome {
            CommitOutcome::Fresh { files, .. } => {
                files.into_iter().map(|file| file.map(|stored| stored.version)).collect()
            }
            CommitOutcome::Repeated(_) => panic!("a fresh batch was taken for a repeated one"),
        }
    }

    /// Commits one file that must be accepted.
    pub fn put(&mut self, file: PreparedFile) -> VersionId {
        match self.commit(vec![file]).pop() {
            Some(Ok(version)) => version,
            other => panic!("refused: {other:?}"),
        }
    }

    /// Scans everything as a manager does, but without rests.
    pub fn scan(&self, mut findings: Findings) -> Findings {
        for space in spaces::all(&self.db).expect("spaces") {
            findings.enter(space.id, &space.name, Redundancy::Copies(2));
            let mut cursor: Option<String> = None;
            loop {
                let limit = PageLimit { chunks: 2048, entries: 2048 };
                let snapshot = self.db.begin().expect("a snapshot");
                let page =
                    units::page(&snapshot, space.root, cursor.as_deref(), limit).expect("read");
                units::judge(&space, page.files, &mut findings);
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            findings.leave();
        }
        findings
    }
}

/// Returns the description of a space that the pool itself makes.
pub fn new_space(name: &str, policy: Policy, key: Option<SpaceKey>) -> NewSpace {
    NewSpace { name: name.into(), policy, key, made_by: None }
}

/// Makes a pool of so many donors, which have all registered and listed what they have at the time 0.
pub fn donors_there(donors: u32) -> Pool {
    let second = Duration::from_secs(1);
    let mut pool = Pool::new(PoolLimits {
        lease: second,
        suspect_after: second,
        silent_after: second,
        grace: 10 * second,
        longest_absence: Tick::MAX,
        repair_rate: 1,
        repair_donor_rate: 1,
    });
    (1..=donors).for_each(|donor| arrives(&mut pool, donor, Tick::ZERO));
    pool
}

/// Adds a donor to a pool, and has it register and complete its inventory at the time `now`.
pub fn arrives(pool: &mut Pool, donor: u32, now: Tick) {
    let donor = DonorId(donor);
    pool.add_donor(donor, "d", None);
    let register = register(Incarnation(1));
    pool.register(donor, &register, Addresses::default(), now);
    pool.inventory_done(donor, register.incarnation);
}

/// Returns the call with which a donor begins a registration.
pub fn register(incarnation: Incarnation) -> Register {
    Register {
        incarnation,
        key: Secret::from_bytes([1; 32]),
        addresses: Addresses::default(),
        port: None,
        version: String::new(),
        disk: Default::default(),
        room: 0,
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

pub fn path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

/// Returns the name of chunk number `n` of a test.
pub fn chunk(n: u64) -> ChunkName {
    ChunkName::of(&n.to_le_bytes())
}

/// Makes a file of these chunks, each of 1000 bytes and acknowledged by all of `donors`.
pub fn file(at: &str, chunks: &[u64], donors: &[u32]) -> PreparedFile {
    let entry = |n: &u64| {
        let name = chunk(*n);
        Entry { name, digest: Digest(name.0), len: 1000, sealed: false }
    };
    let entries: Vec<_> = chunks.iter().map(entry).collect();
    let digest = Digest::of(&entries.iter().flat_map(|entry| entry.digest.0).collect::<Vec<_>>());
    let holders: Vec<_> = donors.iter().map(|donor| (DonorId(*donor), AckLevel::Memory)).collect();
    let prepared = |entry: &Entry| PreparedChunk {
        name: entry.name,
        len: entry.len,
        holders: holders.clone(),
    };
    PreparedFile {
        path: path(at),
        version: Version {
            metadata: None,
            id: VersionId(0),
            size: 1000 * chunks.len() as u64,
            holes: 0,
            digest,
            attributes: EntryAttributes { mtime: FileTime::of_ms(7), ..EntryAttributes::default() },
            chunk_size: DEFAULT_CHUNK,
            copies: 1,
            ec: None,
            goal: None,
            safe_wall_ms: None,
            origin: None,
            cache: Default::default(),
            key: None,
            chunks: chunks.len() as u64,
            parts: 0,
            inline: false,
        },
        inline: None,
        pages: recipe::pack(&digest, &entries[..].into()),
        chunks: entries.iter().map(prepared).collect(),
        condition: Condition::Always,
        in_parts: None,
    }
}

/// Makes a file as [`file`] does that ends with a hole of so many bytes.
pub fn sparse(at: &str, chunks: &[u64], hole: u64, donors: &[u32]) -> PreparedFile {
    let mut file = file(at, chunks, donors);
    let pages = file.pages.iter().map(Vec::as_slice);
    let mut content = recipe::unpack(&file.version.digest, pages).expect("a recipe");
    content.push_hole(hole);
    file.pages = recipe::pack(&file.version.digest, &content);
    file.version.size += hole;
    file.version.holes = hole;
    file
}

/// Makes a file as [`in_parts`] does of which only the last part is stored, and all before it is a hole.
pub fn last_part(at: &str, of: u32, numbers: Range<u64>, donors: &[u32]) -> Vec<PreparedFile> {
    let mut files = in_parts(at, of, numbers, donors);
    files.drain(..files.len() - 2);
    let [part, whole] = &mut files[..] else { unreachable!("two are left") };
    let stored = (whole.version.parts as u32 - 1, part.version.digest);
    let row = recipe::part_bytes(IN_PARTS, false);
    let digest = recipe::digest_of_parts(whole.version.size, row, [stored]);
    whole.version.digest = digest.expect("of a part that is there");
    files
}

/// Makes a file of the code `ec` with these chunks, of which the first `data` are data and the rest parity, each
/// acknowledged by the donors beside it.
pub fn coded(at: &str, ec: &str, data: usize, chunks: &[(u64, &[u32])]) -> PreparedFile {
    let numbers: Vec<u64> = chunks[..data].iter().map(|(n, _)| *n).collect();
    let ec = ec.parse().expect("a code");
    let plain = file(at, &numbers, &[]);
    let prepared = |(n, donors): &(u64, &[u32])| PreparedChunk {
        name: chunk(*n),
        len: 1000,
        holders: donors.iter().map(|donor| (DonorId(*donor), AckLevel::Memory)).collect(),
    };
    PreparedFile {
        version: Version { ec: Some(ec), ..plain.version },
        chunks: chunks.iter().map(prepared).collect(),
        ..plain
    }
}

/// The size in bytes of a chunk of a file in parts.
const IN_PARTS: u32 = 64 << 10;

/// Makes a file of the chunks `numbers`, each of 64 KiB and acknowledged by `donors`, as file number `of` of its
/// session. Returns its parts, and then the whole.
pub fn in_parts(at: &str, of: u32, numbers: Range<u64>, donors: &[u32]) -> Vec<PreparedFile> {
    let numbers: Vec<u64> = numbers.collect();
    let holders: Vec<_> = donors.iter().map(|donor| (DonorId(*donor), AckLevel::Memory)).collect();
    let part = |numbers: &[u64]| {
        let entry = |n: &u64| {
            let name = chunk(*n);
            Entry { name, digest: Digest(name.0), len: IN_PARTS, sealed: false }
        };
        let entries: Vec<_> = numbers.iter().map(entry).collect();
        let digest = Content::from(&entries[..]).digest().expect("of whole chunks");
        let plain = file(at, numbers, &[]);
        let version = Version {
            size: u64::from(IN_PARTS) * numbers.len() as u64,
            digest,
            chunk_size: IN_PARTS,
            ..plain.version
        };
        let prepared = |entry: &Entry| PreparedChunk {
            name: entry.name,
            len: entry.len,
            holders: holders.clone(),
        };
        let chunks = entries.iter().map(prepared).collect();
        PreparedFile { version, pages: recipe::pack(&digest, &entries[..].into()), chunks, ..plain }
    };
    let mut parts: Vec<_> = numbers.chunks(recipe::PART_CHUNKS).map(part).collect();
    let mut tree = Tree::default();
    for (number, part) in (0..).zip(&mut parts) {
        tree.push(part.version.digest.0);
        part.in_parts = Some(InParts::Part { file: of, number });
    }
    let count = parts.len() as u32;
    let whole = PreparedFile {
        version: Version {
            size: u64::from(IN_PARTS) * numbers.len() as u64,
            digest: Digest(tree.root()),
            chunks: 0,
            parts: count.into(),
            ..parts[0].version.clone()
        },
        pages: Vec::new(),
        chunks: Vec::new(),
        in_parts: Some(InParts::Whole { file: of, parts: count }),
        ..parts[0].clone()
    };
    parts.into_iter().chain([whole]).collect()
}
