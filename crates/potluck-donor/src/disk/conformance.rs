//! Checks that every implementation of [`Disk`] has to pass. They also run against the simulation's disk.

use super::{Disk, read_exact_at, read_small, replace_durably};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// Checks `disk` in `root`, an existing empty directory.
///
/// # Panics Panics where `disk` breaks its contract.
pub fn check(disk: &dyn Disk, root: &Path) {
    directories(disk, &root.join("dirs"));
    files(disk, &root.join("files"));
    renames(disk, &root.join("renames"));
    locks(disk, &root.join("locks"));
    small_files(disk, &root.join("small"));
    let space = disk.space(root).expect("space");
    assert!(space.available <= space.total && !space.read_only, "{space:?}");
    assert!(disk.space(&root.join("nowhere")).is_err());
}

fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    let mut file = disk.create(path).expect("create");
    file.append(bytes).expect("append");
}

fn read(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    read_small(disk, path, 1 << 20).expect("read")
}

fn listed(disk: &dyn Disk, dir: &Path) -> BTreeMap<String, Option<u64>> {
    let mut found = BTreeMap::new();
    disk.list(dir, &mut |entry| {
        let name = entry.name.to_str().expect("our own names").to_owned();
        assert!(found.insert(name, entry.file).is_none(), "listed twice");
    })
    .expect("list");
    found
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|why| why.kind())
}

fn directories(disk: &dyn Disk, dir: &Path) {
    assert_eq!(kind(disk.make_dir(&dir.join("deep"))), Some(ErrorKind::NotFound));
    disk.make_dir(dir).expect("make");
    disk.make_dir(dir).expect("again");
    disk.make_dir(&dir.join("sub")).expect("below");
    write(disk, &dir.join("file"), b"123");
    let expected = [("file".to_owned(), Some(3)), ("sub".to_owned(), None)];
    assert_eq!(listed(disk, dir), BTreeMap::from(expected));
    assert!(disk.make_dir(&dir.join("file")).is_err(), "a file is no directory");
    disk.sync_dir(dir).expect("sync");
    assert_eq!(kind(disk.list(&dir.join("none"), &mut |_| ())), Some(ErrorKind::NotFound));
}

fn files(disk: &dyn Disk, dir: &Path) {
    disk.make_dir(dir).expect("make");
    let path = dir.join("file");
    assert_eq!(kind(disk.open(&path)), Some(ErrorKind::NotFound));
    assert_eq!(kind(disk.len(&path)), Some(ErrorKind::NotFound));
    assert_eq!(kind(disk.remove(&path)), Some(ErrorKind::NotFound));
    assert_eq!(kind(disk.create(&dir.join("no/where"))), Some(ErrorKind::NotFound));

    let mut file = disk.create(&path).expect("create");
    assert_eq!(kind(disk.create(&path)), Some(ErrorKind::AlreadyExists));
    file.reserve(1 << 20).expect("reserve");
    assert_eq!(disk.len(&path).expect("len"), 0, "room is no length");
    file.append(b"hello ").expect("append");
    file.append(b"world").expect("append");
    file.sync().expect("sync");
    drop(file);
    assert_eq!(disk.len(&path).expect("len"), 11);

    let old = disk.open(&path).expect("open");
    assert_eq!((old.len(), old.is_empty()), (11, false));
    let mut tail = [0; 5];
    read_exact_at(&*old, &mut tail, 6).expect("tail");
    assert_eq!(&tail, b"world");
    assert_eq!(old.read_at(&mut tail, 11).expect("at the end"), 0);
    old.sync().expect("sync");
    disk.remove(&path).expect("remove");
    assert_eq!(kind(disk.open(&path)), Some(ErrorKind::NotFound));
    read_exact_at(&*old, &mut tail, 0).expect("an open file outlives its name");
    assert_eq!(&tail, b"hello");
}

fn renames(disk: &dyn Disk, dir: &Path) {
    disk.make_dir(dir).expect("make");
    let (from, to) = (dir.join("from"), dir.join("to"));
    assert_eq!(kind(disk.rename(&from, &to)), Some(ErrorKind::NotFound));
    write(disk, &from, b"new");
    write(disk, &to, b"old bytes");
    let old = disk.open(&to).expect("open");
    disk.rename(&from, &to).expect("rename");
    assert_eq!(read(disk, &to), b"new");
    assert_eq!(kind(disk.open(&from)), Some(ErrorKind::NotFound));
    let mut bytes = [0; 9];
    read_exact_at(&*old, &mut bytes, 0).expect("the replaced file is still open");
    assert_eq!(&bytes, b"old bytes");
}

fn locks(disk: &dyn Disk, dir: &Path) {
    disk.make_dir(dir).expect("make");
    let held = disk.lock(dir).expect("lock");
    assert_eq!(kind(disk.lock(dir)), Some(ErrorKind::WouldBlock));
    drop(held);
    drop(disk.lock(dir).expect("free again"));
}

fn small_files(disk: &dyn Disk, dir: &Path) {
    disk.make_dir(dir).expect("make");
    let path = dir.join("state.json");
    write(disk, &dir.join("state.tmp"), b"left by an earlier incarnation");
    replace_durably(disk, &path, b"one").expect("first");
    replace_durably(disk, &path, b"two").expect("second");
    assert_eq!(read(disk, &path), b"two");
    assert_eq!(listed(disk, dir).len(), 1);
    assert_eq!(kind(read_small(disk, &path, 2)), Some(ErrorKind::InvalidData));
}
