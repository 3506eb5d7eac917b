//! A donor's disk in memory, with what goes wrong with disks: it fills up, it flips bits, and a
//! power cut takes what was not synced.
//!
//! It remembers two file systems: the one that programs see, and the one a power cut leaves. Names
//! move from the first to the second with [`Disk::sync_dir`], bytes with a file's own sync.

pub mod lies;
mod power;
pub mod trouble;

use lies::{Liar, Lie};
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
    /// How many of them, from the start, a power cut leaves.
    synced: usize,
    /// Whether it has a name that programs see, and so its bytes count.
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
    /// Bytes of all files that programs see.
    used: u64,
    /// Bytes that somebody else has written.
    foreign: u64,
    /// Counts processes; those of the past reach nothing any more.
    incarnation: u64,
    /// The tree of the disk when somebody copied it.
    copy: Option<Tree>,
    /// The lie that reads of chunks give instead of what is there.
    lie: Option<Lie>,
    /// The trouble that will happen, and when.
    trouble: Option<Armed>,
    /// Everything that ever changed the disk, in order.
    journal: blake3::Hasher,
}

/// The disk as one process has it. After the process was killed, every call fails.
#[derive(Debug, Clone)]
pub struct MemoryDisk {
    drive: Drive,
    incarnation: u64,
}

impl Drive {
    /// An empty disk of `capacity` bytes that has the directories `roots`.
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
            journal: blake3::Hasher::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder panics")
    }

    /// The disk for a process that starts now.
    pub fn process(&self) -> MemoryDisk {
        MemoryDisk { drive: self.clone(), incarnation: self.state().incarnation }
    }

    /// The process dies; what it wrote stays, synced or not.
    pub fn kill(&self) {
        let mut state = self.state();
        state.incarnation += 1;
        state.locks.clear();
    }

    /// The disk is thrown away, whoever still has a handle of it: there is nothing on it, and every call fails.
    pub fn scrap(&self) {
        self.kill();
        let mut state = self.state();
        (state.copy, state.durable) = (None, Tree::new());
        state.show(Tree::new());
    }

    /// Somebody else's files take all but `left` bytes; `None` removes them again.
    pub fn fill(&self, left: Option<u64>) {
        let mut state = self.state();
        state.foreign =
            left.map_or(0, |left| state.capacity.saturating_sub(state.used).saturating_sub(left));
    }

    /// Returns the bytes of all files on it.
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// The regular files below `dir` and their bytes, in order of their names.
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

    /// Flips one bit of the file at `path`, on the platter.
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

    /// Makes reads of chunks give something else from now on, or with `None` the truth again.
    pub fn lie(&self, lie: Option<Lie>) {
        self.state().lie = lie;
    }

    /// Remembers the disk as it is, bytes and all.
    pub fn keep_copy(&self) {
        let mut state = self.state();
        state.copy = Some(deep_copy(&state.seen));
    }

    /// The disk is again what [`Drive::keep_copy`] remembered, all of it synced. The process on it
    /// is dead.
    pub fn bring_back_copy(&self) {
        let mut state = self.state();
        if let Some(copy) = state.copy.take() {
            state.durable = copy.clone();
            state.show(copy);
        }
    }

    /// A digest of all that changed the disk so far.
    pub fn history(&self) -> String {
        self.state().journal.finalize().to_hex()[..16].to_owned()
    }
}

fn lock(inode: &Mutex<Inode>) -> MutexGuard<'_, Inode> {
    inode.lock().expect("no holder panics")
}

/// Copies a tree: its names, with bytes of their own, all synced.
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

/// The names in the directory `dir` itself.
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

    /// Programs see `tree` from now on, whose files are in no other tree that they ever saw.
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

    /// A name is gone, and with it the space of its file.
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
    /// The disk, if the process still lives.
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
        // If the process has died, its locks are gone with it and a later one has its own.
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
