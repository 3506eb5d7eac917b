//! A donor's disk in memory, with the faults of disks: it fills up, bits flip, and a power cut loses
//! what was not synced.
//!
//! It keeps two trees: the one that programs see, and the one that is durable. Names move from the
//! first to the second with [`Disk::sync_dir`], bytes with a file's own sync.

pub mod lies;
mod meminfo;
mod power;
pub mod trouble;

use lies::{Liar, Lie};
use meminfo::MemInfo;
use potluck_donor::disk::{DirEntry, Disk, DiskSpace, NewFile, OldFile};
use potluck_wire::bulk::ReadAt;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use trouble::{Armed, Change};

/// The directory or file that a name stands for.
#[derive(Debug, Clone)]
enum Node {
    Dir,
    File(Arc<Mutex<Inode>>),
}

impl Node {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dir, Self::Dir) => true,
            (Self::File(a), Self::File(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A file without its names.
#[derive(Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    /// The number of bytes, from the start of the file, that are synced and survive a power cut.
    synced: usize,
    /// Whether programs see a name of the file; only then its bytes count as used.
    named: bool,
}

type Tree = BTreeMap<PathBuf, Node>;

/// The disk of one simulated machine. It outlives the processes on it.
#[derive(Debug, Clone)]
pub struct Drive(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    seen: Tree,
    durable: Tree,
    locks: BTreeSet<PathBuf>,
    capacity: u64,
    /// The number of bytes of all files that programs see.
    used: u64,
    /// The number of bytes that files of other users take.
    foreign: u64,
    /// The number of processes that were killed. Handles of an earlier incarnation fail.
    incarnation: u64,
    /// The tree that [`Drive::keep_copy`] remembered.
    copy: Option<Tree>,
    /// The lie that reads of chunks return instead of the true bytes.
    lie: Option<Lie>,
    /// The trouble that will happen at a change of the disk, if any.
    trouble: Option<Armed>,
    /// Whether the owner's programs take nearly all of the machine's memory.
    memory_is_filled: bool,
    /// Hashes the calls that changed names or appended bytes, in order: paths and lengths, not contents.
    journal: blake3::Hasher,
}

/// The handle of one process on a disk. After the process was killed, every call fails.
#[derive(Debug, Clone)]
pub struct MemoryDisk {
    drive: Drive,
    incarnation: u64,
}

impl Drive {
    /// Makes an empty disk of `capacity` bytes with the directories `roots`.
    pub fn new(capacity: u64, roots: &[&Path]) -> Self {
        let ancestors = roots.iter().flat_map(|root| root.ancestors());
        let seen: Tree = ancestors.map(|dir| (dir.to_path_buf(), Node::Dir)).collect();
        Self(Arc::new(Mutex::new(State {
            durable: seen.clone(),
            seen,
            locks: BTreeSet::new(),
            capacity,
            used: 0,
            foreign: 0,
            incarnation: 0,
            copy: None,
            lie: None,
            trouble: None,
            memory_is_filled: false,
            journal: blake3::Hasher::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder panics")
    }

    /// Returns the disk's handle for a process that starts now.
    pub fn process(&self) -> MemoryDisk {
        MemoryDisk { drive: self.clone(), incarnation: self.state().incarnation }
    }

    /// Kills the process. What it wrote stays, synced or not.
    pub fn kill(&self) {
        let mut state = self.state();
        state.incarnation += 1;
        state.locks.clear();
    }

    /// Throws the disk's content away; every call through an existing handle fails from then on.
    pub fn scrap(&self) {
        self.kill();
        let mut state = self.state();
        (state.copy, state.durable) = (None, Tree::new());
        state.show(Tree::new());
    }

    /// Fills the disk with files of other users, but for `left` bytes; `None` removes these files again.
    pub fn fill(&self, left: Option<u64>) {
        let mut state = self.state();
        state.foreign =
            left.map_or(0, |left| state.capacity.saturating_sub(state.used).saturating_sub(left));
    }

    /// Returns the bytes of all files on the disk that programs see, without those of other users.
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// Returns the regular files below `dir` and their bytes, in order of their names.
    pub fn files(&self, dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.state();
        let below =
            state.seen.range(dir.to_path_buf()..).take_while(|(path, _)| path.starts_with(dir));
        below
            .filter_map(|(path, node)| match node {
                Node::Dir => None,
                Node::File(inode) => Some((path.clone(), lock(inode).bytes.clone())),
            })
            .collect()
    }

    /// Flips the stored bit number `bit`, modulo the length, of the file at `path`. Returns `false` if the file is
    /// missing or empty.
    pub fn flip(&self, path: &Path, bit: u64) -> bool {
        let state = self.state();
        let Some(Node::File(inode)) = state.seen.get(path) else { return false };
        let mut inode = lock(inode);
        let bits = 8 * inode.bytes.len() as u64;
        if bits > 0 {
            let bit = bit % bits;
            inode.bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        bits > 0
    }

    /// Makes files that are opened from now on return `lie` for chunks, or with `None` the truth again.
    pub fn lie(&self, lie: Option<Lie>) {
        self.state().lie = lie;
    }

    /// Remembers the disk as it is, with all bytes.
    pub fn keep_copy(&self) {
        let mut state = self.state();
        state.copy = Some(deep_copy(&state.seen));
    }

    /// Replaces the disk's content by what [`Drive::keep_copy`] remembered, all of it synced. The process on
    /// the disk must be dead.
    pub fn bring_back_copy(&self) {
        let mut state = self.state();
        if let Some(copy) = state.copy.take() {
            state.durable = copy.clone();
            state.show(copy);
        }
    }

    /// Returns a short digest of the calls that changed names or appended bytes so far.
    pub fn history(&self) -> String {
        self.state().journal.finalize().to_hex()[..16].to_owned()
    }
}

fn lock(inode: &Mutex<Inode>) -> MutexGuard<'_, Inode> {
    inode.lock().expect("no holder panics")
}

/// Copies a tree with its bytes, all of them synced.
fn deep_copy(tree: &Tree) -> Tree {
    let copy = |node: &Node| match node {
        Node::Dir => Node::Dir,
        Node::File(inode) => {
            let bytes = lock(inode).bytes.clone();
            let synced = bytes.len();
            Node::File(Arc::new(Mutex::new(Inode { bytes, synced, named: false })))
        }
    };
    tree.iter().map(|(path, node)| (path.clone(), copy(node))).collect()
}

/// Returns the entries directly in the directory `dir`.
fn children<'t>(tree: &'t Tree, dir: &'t Path) -> impl Iterator<Item = (&'t PathBuf, &'t Node)> {
    let below = tree.range(dir.to_path_buf()..).take_while(move |(path, _)| path.starts_with(dir));
    below.filter(move |(path, _)| *path != dir && parent(path) == dir)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

impl State {
    fn available(&self) -> u64 {
        self.capacity.saturating_sub(self.used).saturating_sub(self.foreign)
    }

    /// Makes `tree` what programs see from now on. Its files must be in no tree that programs saw before.
    fn show(&mut self, tree: Tree) {
        self.used = 0;
        for node in tree.values() {
            if let Node::File(inode) = node {
                let mut inode = lock(inode);
                inode.named = true;
                self.used += inode.bytes.len() as u64;
            }
        }
        self.seen = tree;
    }

    /// Takes a file out of the account of used bytes after its name is gone.
    fn gone(&mut self, node: Option<Node>) {
        if let Some(Node::File(inode)) = node {
            let mut inode = lock(&inode);
            inode.named = false;
            self.used -= inode.bytes.len() as u64;
        }
    }

    fn log(&mut self, verb: &str, path: &Path, bytes: usize) {
        let path = path.as_os_str().as_encoded_bytes();
        self.journal.update(verb.as_bytes()).update(path).update(&bytes.to_le_bytes());
    }

    fn dir(&self, dir: &Path) -> io::Result<()> {
        match self.seen.get(dir) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<Arc<Mutex<Inode>>> {
        match self.seen.get(path) {
            Some(Node::File(inode)) => Ok(Arc::clone(inode)),
            Some(Node::Dir) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }
}

impl MemoryDisk {
    /// Returns the locked state of the disk.
    ///
    /// Errors: the process is dead.
    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.drive.state();
        if state.incarnation == self.incarnation { Ok(state) } else { Err(Errno::IO.into()) }
    }
}

impl Disk for MemoryDisk {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        match state.seen.get(dir) {
            Some(Node::Dir) => return Ok(()),
            Some(Node::File(_)) => return Err(Errno::EXIST.into()),
            None => state.dir(parent(dir))?,
        }
        state.trouble(Change::Name)?;
        state.log("mkdir", dir, 0);
        state.seen.insert(dir.to_path_buf(), Node::Dir);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.dir(dir)?;
        if !state.trouble(Change::Sync)? {
            return Ok(());
        }
        state.log("syncdir", dir, 0);
        let State { seen, durable, .. } = &mut *state;
        let removed: Vec<_> = (children(durable, dir).map(|(path, _)| path))
            .filter(|path| !seen.contains_key(*path))
            .cloned()
            .collect();
        removed.iter().for_each(|path| drop(durable.remove(path)));
        durable.extend(children(seen, dir).map(|(path, node)| (path.clone(), node.clone())));
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let mut state = self.alive()?;
        state.dir(parent(path))?;
        if state.seen.contains_key(path) {
            return Err(Errno::EXIST.into());
        }
        state.trouble(Change::Name)?;
        state.log("create", path, 0);
        let inode = Arc::new(Mutex::new(Inode { named: true, ..Inode::default() }));
        state.seen.insert(path.to_path_buf(), Node::File(Arc::clone(&inode)));
        Ok(Box::new(Handle { disk: self.clone(), inode, len: 0 }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OldFile>> {
        if path == Path::new(meminfo::PATH) {
            return Ok(Box::new(MemInfo::open(self)));
        }
        let state = self.alive()?;
        let inode = state.file(path)?;
        if let Some(lie) = state.lie.filter(|_| lies::concerns(path)) {
            return Ok(Box::new(Liar::open(lie, path, &inode, &state.seen)?));
        }
        drop(state);
        let len = lock(&inode).bytes.len() as u64;
        Ok(Box::new(Handle { disk: self.clone(), inode, len }))
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        let inode = self.alive()?.file(path)?;
        let len = lock(&inode).bytes.len();
        Ok(len as u64)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.file(from)?;
        state.dir(parent(to))?;
        if let Some(Node::Dir) = state.seen.get(to) {
            return Err(Errno::ISDIR.into());
        }
        state.trouble(Change::Name)?;
        state.log("rename", from, 0);
        state.log("to", to, 0);
        let node = state.seen.remove(from).expect("looked up above");
        let replaced = state.seen.insert(to.to_path_buf(), node);
        state.gone(replaced);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.file(path)?;
        state.trouble(Change::Remove)?;
        state.log("remove", path, 0);
        let removed = state.seen.remove(path);
        state.gone(removed);
        Ok(())
    }

    fn list(&self, dir: &Path, each: &mut dyn FnMut(DirEntry<'_>)) -> io::Result<()> {
        let names: Vec<_> = {
            let state = self.alive()?;
            state.dir(dir)?;
            children(&state.seen, dir)
                .map(|(path, node)| match node {
                    Node::Dir => (path.clone(), None),
                    Node::File(inode) => (path.clone(), Some(lock(inode).bytes.len() as u64)),
                })
                .collect()
        };
        for (path, file) in &names {
            each(DirEntry { name: path.file_name().expect("below a directory"), file: *file });
        }
        Ok(())
    }

    fn space(&self, dir: &Path) -> io::Result<DiskSpace> {
        let state = self.alive()?;
        state.dir(dir)?;
        Ok(DiskSpace { total: state.capacity, available: state.available(), read_only: false })
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.alive()?;
        state.dir(dir)?;
        if !state.locks.insert(dir.to_path_buf()) {
            return Err(Errno::WOULDBLOCK.into());
        }
        Ok(Box::new(Lock { disk: self.clone(), dir: dir.to_path_buf() }))
    }
}

struct Lock {
    disk: MemoryDisk,
    dir: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A dead process has lost its locks already, and the lock may be another process's by now.
        if let Ok(mut state) = self.disk.alive() {
            state.locks.remove(&self.dir);
        }
    }
}

/// An open file of the disk.
struct Handle {
    disk: MemoryDisk,
    inode: Arc<Mutex<Inode>>,
    len: u64,
}

impl Handle {
    fn sync_bytes(&self) -> io::Result<()> {
        if !self.disk.alive()?.trouble(Change::Sync)? {
            return Ok(());
        }
        let mut inode = lock(&self.inode);
        inode.synced = inode.bytes.len();
        Ok(())
    }
}

impl NewFile for Handle {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.alive()?;
        state.trouble(Change::Bytes)?;
        let fits = bytes.len().min(state.available() as usize);
        state.log("append", Path::new(""), fits);
        let mut inode = lock(&self.inode);
        inode.bytes.extend_from_slice(&bytes[..fits]);
        if inode.named {
            state.used += fits as u64;
        }
        if fits < bytes.len() { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_bytes()
    }
}

impl ReadAt for Handle {
    fn as_file(&self) -> Option<&File> {
        None
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let _alive = self.disk.alive()?;
        let inode = lock(&self.inode);
        let rest = inode.bytes.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl OldFile for Handle {
    fn len(&self) -> u64 {
        self.len
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_bytes()
    }
}
