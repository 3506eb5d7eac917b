//! Disks that are full or break.

use crate::manager::State;
use crate::pool::{GIB, Place, Pool, content};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::owner_limits::{KeepFree, Limits};
use potluck_core::policy::AckLevel;
use potluck_donor::disk::{DirEntry, Disk, DiskSpace, NewFile, OldFile, SystemDisk, conformance};
use potluck_wire::bulk::{BulkStatus, ReadAt, Request};
use potluck_wire::control::{ChunkOrders, Heartbeat, TaskFault, TaskOutcome, Tombstone, Work};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The machine's disk, with faults on request.
#[derive(Default)]
struct Faulty {
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    /// The error of every write once [`Faults::writes_left`] is used up.
    write: Mutex<Option<Errno>>,
    writes_left: AtomicI64,
    sync_dir: AtomicBool,
    /// The free bytes that the disk reports, in place of the true number.
    available: AtomicU64,
    read_only: AtomicBool,
    /// The length that every chunk file reports, in place of the true one.
    len: AtomicU64,
    /// The number of bytes of every chunk file that can be read; 0 if all can.
    readable: AtomicU64,
    /// A file, and the name that it gets once the quarantine was listed.
    quarantined: Mutex<Option<(PathBuf, PathBuf)>>,
}

impl Faults {
    fn fail_writes(&self, after: i64, with: Option<Errno>) {
        self.writes_left.store(after, Ordering::Relaxed);
        *self.write.lock().expect("no holder panics") = with;
    }

    fn on_write(&self) -> io::Result<()> {
        match *self.write.lock().expect("no holder panics") {
            Some(errno) if self.writes_left.fetch_sub(1, Ordering::Relaxed) <= 0 => {
                Err(errno.into())
            }
            _ => Ok(()),
        }
    }
}

struct FaultyFile {
    file: Box<dyn NewFile>,
    faults: Arc<Faults>,
}

impl NewFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(why) = self.faults.on_write() {
            self.file.append(&bytes[..bytes.len() / 2])?; // as a full disk does
            return Err(why);
        }
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.faults.on_write()?;
        self.file.sync()
    }
}

/// A file whose end the disk cannot read.
struct HalfRead {
    file: Box<dyn OldFile>,
    readable: u64,
}

impl ReadAt for HalfRead {
    fn as_file(&self) -> Option<&File> {
        None
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.readable.saturating_sub(offset).min(out.len() as u64) as usize;
        if most == 0 { Err(Errno::IO.into()) } else { self.file.read_at(&mut out[..most], offset) }
    }
}

impl OldFile for HalfRead {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

/// A file that was longer when its length was asked.
struct CutShort {
    file: Box<dyn OldFile>,
    len: u64,
}

impl ReadAt for CutShort {
    fn as_file(&self) -> Option<&File> {
        self.file.as_file()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(out, offset)
    }
}

impl OldFile for CutShort {
    fn len(&self) -> u64 {
        self.len
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Disk for Faulty {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        SystemDisk.make_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.faults.sync_dir.load(Ordering::Relaxed) {
            return Err(Errno::IO.into());
        }
        SystemDisk.sync_dir(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.faults.on_write()?;
        let file = SystemDisk.create(path)?;
        Ok(Box::new(FaultyFile { file, faults: Arc::clone(&self.faults) }))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn OldFile>> {
        let file = SystemDisk.open(path)?;
        let (readable, len) =
            (self.faults.readable.load(Ordering::Relaxed), self.faults.len.load(Ordering::Relaxed));
        let chunk = path
            .components()
            .any(|part| ["chunks", "quarantine"].map(OsStr::new).contains(&part.as_os_str()));
        Ok(match chunk {
            true if readable > 0 => Box::new(HalfRead { file, readable }),
            true if len > 0 => Box::new(CutShort { file, len }),
            _ => file,
        })
    }
    fn len(&self, path: &Path) -> io::Result<u64> {
        SystemDisk.len(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.on_write()?;
        SystemDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }
    fn list(&self, dir: &Path, each: &mut dyn FnMut(DirEntry<'_>)) -> io::Result<()> {
        SystemDisk.list(dir, each)?;
        let quarantine = dir.ends_with("quarantine");
        match self.faults.quarantined.lock().expect("no holder panics").take_if(|_| quarantine) {
            Some((from, to)) => SystemDisk.rename(&from, &to),
            None => Ok(()),
        }
    }
    fn space(&self, dir: &Path) -> io::Result<DiskSpace> {
        let space = SystemDisk.space(dir)?;
        let said = self.faults.available.load(Ordering::Relaxed);
        Ok(DiskSpace {
            available: if said > 0 { said } else { space.available },
            read_only: self.faults.read_only.load(Ordering::Relaxed),
            ..space
        })
    }
    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        SystemDisk.lock(dir)
    }
}

async fn pool_on(disk: Faulty) -> (Pool, Arc<Faults>) {
    let faults = Arc::clone(&disk.faults);
    (Pool::at(Place::new(), GIB, Arc::new(disk)).await, faults)
}

async fn until_room(pool: &Pool, has: bool) {
    let seen = |room: u64| ((room > 0) == has).then_some(());
    pool.manager.until("the room", |state| seen(state.heartbeats.last()?.room)).await;
}

#[test]
fn the_faulty_disk_without_faults_keeps_the_contract() {
    let root = tempfile::TempDir::new().expect("a directory");
    conformance::check(&Faulty::default(), root.path());
}

#[tokio::test]
async fn a_full_disk_at_any_write_is_said_and_harms_nothing() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    let mut client = pool.client().await;
    let kept = content(1, 100_000);
    assert_eq!(client.put(&kept, AckLevel::Disk).await, BulkStatus::Ok);
    // The writes are: create, five pieces, sync, rename.
    for at in 0..8 {
        faults.fail_writes(at, Some(Errno::NOSPC));
        let bytes = content(2, 5_000_000);
        assert_eq!(client.put(&bytes, AckLevel::Disk).await, BulkStatus::Full, "write {at}");
        faults.fail_writes(0, None);
        assert!(pool.place.files("temp").is_empty(), "write {at}");
        assert_eq!(client.get(&ChunkName::of(&bytes)).await, None);
        assert_eq!(client.get(&ChunkName::of(&kept)).await.as_ref(), Some(&kept));
        until_room(&pool, true).await;
        pool.manager.heartbeats(2).await; // what the disk has left is asked again
    }
    assert_eq!(client.put(&content(2, 5_000_000), AckLevel::Disk).await, BulkStatus::Ok);
}

#[tokio::test]
async fn a_disk_that_fills_up_during_a_copy_is_said_and_harms_nothing() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    let (rich, bytes) = (Pool::start().await, content(1, 1_200_000));
    assert_eq!(rich.client().await.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    let chunk = ChunkName::of(&bytes);
    let copy = || Work::Copy {
        chunk,
        len: bytes.len() as u32,
        ack: AckLevel::Disk,
        kind: ChunkKind::Data,
        from: vec![rich.source()],
    };
    let full = TaskOutcome::Failed { why: TaskFault::Full, donor: None };
    for at in 0..4 {
        faults.fail_writes(at as i64, Some(Errno::NOSPC));
        assert_eq!(pool.manager.ask(at, copy()).await, full, "write {at}");
        faults.fail_writes(0, None);
        assert!(pool.place.files("temp").is_empty(), "write {at}");
        pool.manager.heartbeats(2).await; // what the disk has left is asked again
    }
    assert_eq!(pool.manager.ask(9, copy()).await, TaskOutcome::Done);
}

#[tokio::test]
async fn deletes_work_on_a_full_disk() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    let bytes = content(1, 100_000);
    let name = ChunkName::of(&bytes);
    let mut client = pool.client().await;
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    faults.fail_writes(0, Some(Errno::NOSPC));
    {
        let mut state = pool.manager.state();
        let incarnation = state.registers[0].incarnation;
        let delete = vec![Tombstone { chunk: name, incarnation, write_sequence: 1 }];
        state.chunk_orders = ChunkOrders { delete, ..ChunkOrders::default() };
    }
    let deleted = |state: &State| {
        state.heartbeats.iter().any(|heartbeat| heartbeat.removed.0.contains(&name)).then_some(())
    };
    pool.manager.until("that it is deleted", deleted).await;
    assert_eq!(client.get(&name).await, None);
}

#[tokio::test]
async fn broken_disk_is_read_only() {
    for errno in [Errno::IO, Errno::ROFS] {
        let (pool, faults) = pool_on(Faulty::default()).await;
        let kept = content(1, 100_000);
        let mut client = pool.client().await;
        assert_eq!(client.put(&kept, AckLevel::Memory).await, BulkStatus::Ok);
        faults.fail_writes(2, Some(errno));
        assert_eq!(
            client.put(&content(2, 1 << 20), AckLevel::Memory).await,
            BulkStatus::DiskFailed
        );
        faults.fail_writes(0, None);
        assert_eq!(client.put(&content(3, 10), AckLevel::Memory).await, BulkStatus::DiskFailed);
        until_room(&pool, false).await;
        assert_eq!(client.get(&ChunkName::of(&kept)).await, Some(kept));
    }
}

#[tokio::test]
async fn an_unsynced_directory_is_not_called_durable() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    let mut client = pool.client().await;
    assert_eq!(client.put(&content(1, 10), AckLevel::Memory).await, BulkStatus::Ok);
    faults.sync_dir.store(true, Ordering::Relaxed);
    assert_eq!(client.put(&content(2, 10), AckLevel::Disk).await, BulkStatus::DiskFailed);
}

#[tokio::test]
async fn a_deletion_is_told_once_no_power_cut_undoes_it() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    let mut client = pool.client().await;
    let bytes = content(1, 10);
    let chunk = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    pool.manager.heartbeats(2).await;
    faults.sync_dir.store(true, Ordering::Relaxed);
    {
        let mut state = pool.manager.state();
        let heard = state.heartbeats.last().expect("a heartbeat");
        let (incarnation, write_sequence) = (heard.incarnation, heard.write_sequence);
        let delete = vec![Tombstone { chunk, incarnation, write_sequence }];
        state.chunk_orders = ChunkOrders { delete, ..ChunkOrders::default() };
    }
    pool.manager.heartbeats(3).await;
    assert!(!pool.place.chunk(&chunk).exists());
    let told = |state: &State| {
        let mut removed = state.heartbeats.iter().flat_map(|heartbeat| &heartbeat.removed.0);
        removed.any(|name| *name == chunk)
    };
    assert!(!told(&pool.manager.state()), "its directory may bring it back");
    faults.sync_dir.store(false, Ordering::Relaxed);
    pool.manager.until("that it is gone", |state| told(state).then_some(())).await;
}

#[tokio::test]
async fn a_disk_that_turns_read_only_is_noticed_without_a_write() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    faults.read_only.store(true, Ordering::Relaxed);
    until_room(&pool, false).await;
}

#[tokio::test]
async fn the_owners_reserve_is_left_alone_whoever_fills_the_disk() {
    let place = Place::new();
    let disk = Faulty::default();
    let faults = Arc::clone(&disk.faults);
    faults.available.store(10 << 20, Ordering::Relaxed);
    let keep_free = KeepFree::Bytes(6 << 20);
    let limits = Limits { max: GIB, keep_free };
    let pool = Pool::with(place, limits, Arc::new(disk)).await;
    let mut client = pool.client().await;
    assert_eq!(client.put(&content(1, 3 << 20), AckLevel::Memory).await, BulkStatus::Ok);
    assert_eq!(client.put(&content(2, 2 << 20), AckLevel::Memory).await, BulkStatus::Full);
    faults.available.store(5 << 20, Ordering::Relaxed); // the owner was faster
    until_room(&pool, false).await;
    assert_eq!(client.put(&content(3, 1), AckLevel::Memory).await, BulkStatus::Full);
    faults.available.store(20 << 20, Ordering::Relaxed);
    until_room(&pool, true).await;
    assert_eq!(client.put(&content(3, 1), AckLevel::Memory).await, BulkStatus::Ok);
}

#[tokio::test]
async fn chunk_quarantined_during_a_recount_is_counted_s2() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    let bytes = content(1, 100_000);
    assert_eq!(pool.client().await.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    let (name, quarantined) = (ChunkName::of(&bytes), pool.place.lent().join("quarantine/file"));
    *faults.quarantined.lock().expect("no holder panics") =
        Some((pool.place.chunk(&name), quarantined.clone()));
    pool.manager.ask(1, Work::Scrub { rate: 1 << 30 }).await;
    let over = |state: &State| {
        state.heartbeats.last().filter(|heartbeat| heartbeat.scrub.rounds == 1).map(drop)
    };
    pool.manager.until("the end of the round", over).await;
    pool.manager.heartbeats(2).await; // the disk is looked at before the scrub is
    let used = pool.manager.state().heartbeats.last().expect("one").disk.lent_used;
    assert_eq!((quarantined.exists(), used), (true, 4096 + 25 * 4096));
}

/// Gets a chunk that breaks off, and waits until the manager hears which chunk it was.
async fn breaks_off_and_is_named(pool: &Pool, name: ChunkName, len: u32) {
    let mut client = pool.client().await;
    client.send(Request::Get { name, part: None }, &[]).await.expect("a connection");
    let reply = client.reply().await.expect("a connection").expect("an answer");
    assert_eq!((reply.status, reply.body), (BulkStatus::Ok, len));
    assert!(client.body(len).await.is_err());
    let named = |state: &State| {
        let lists = |heartbeat: &Heartbeat| {
            [heartbeat.spoiled.0.clone(), heartbeat.unreadable.0.clone()].concat()
        };
        state.heartbeats.iter().flat_map(lists).any(|bad| bad == name).then_some(())
    };
    pool.manager.until("of the bad copy", named).await;
    assert_eq!(pool.client().await.get(&name).await, None, "it is served to nobody any more");
}

#[tokio::test]
async fn unreadable_chunk_is_quarantined_until_readable_again() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    let bytes = content(1, 1_000_000);
    let name = ChunkName::of(&bytes);
    assert_eq!(pool.client().await.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    faults.readable.store(600_000, Ordering::Relaxed);
    breaks_off_and_is_named(&pool, name, 1_000_000).await;
    assert_eq!(pool.place.files("quarantine").len(), 1);
    let heard = |state: &State| {
        let of = |list: &[ChunkName]| list.contains(&name);
        let heartbeats = &state.heartbeats;
        assert!(!heartbeats.iter().any(|heartbeat| of(&heartbeat.spoiled.0)), "nothing is wrong");
        let bad = heartbeats.iter().position(|heartbeat| of(&heartbeat.unreadable.0))?;
        let mut added = heartbeats[bad..].iter().flat_map(|heartbeat| &heartbeat.added.0);
        added.any(|arrived| arrived.holding.name == name).then_some(())
    };
    pool.manager.heartbeats(2).await; // it is looked at meanwhile
    faults.readable.store(0, Ordering::Relaxed);
    pool.manager.until("that it is there again", heard).await;
    assert_eq!(pool.client().await.get(&name).await, Some(bytes));
    assert_eq!(pool.place.files("quarantine").len(), 0);
}

#[tokio::test]
async fn a_chunk_that_ends_early_is_quarantined_and_named() {
    let (pool, faults) = pool_on(Faulty::default()).await;
    let bytes = content(1, 1_000_000);
    let name = ChunkName::of(&bytes);
    assert_eq!(pool.client().await.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    let file = File::options().write(true).open(pool.place.chunk(&name)).expect("stored");
    faults.len.store(file.metadata().expect("a length").len(), Ordering::Relaxed);
    file.set_len(600_000).expect("cut");
    breaks_off_and_is_named(&pool, name, 1_000_000).await;
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_reason_to_doubt_a_chunk() {
    let (pool, _) = pool_on(Faulty::default()).await;
    let bytes = content(1, 60 << 20);
    let name = ChunkName::of(&bytes);
    assert_eq!(pool.client().await.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    let mut client = pool.client().await;
    client.send(Request::Get { name, part: None }, &[]).await.expect("a connection");
    client.reply().await.expect("a connection").expect("an answer");
    drop(client);
    pool.manager.heartbeats(2).await;
    let state = pool.manager.state();
    assert!(
        state
            .heartbeats
            .iter()
            .all(|heartbeat| heartbeat.spoiled.0.is_empty() && heartbeat.sound.0.is_empty())
    );
}
