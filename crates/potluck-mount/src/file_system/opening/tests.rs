use super::*;
use crate::file_system::{AttributeChange, WriteMode};
use crate::inodes::ROOT;
use crate::record::{MountRecord, RecordedMount};
use crate::small_manager::SmallManager;
use crate::spool::Spool;
use crate::write_limits::{WriteLimits, WriteOptions};
use potluck_core::attributes::Permissions;
use potluck_core::path::PoolPath;
use tempfile::TempDir;

/// A mounted space. Tests take the part of the kernel: they look names up and open what they found, and do something
/// else in between.
struct Stage {
    manager: SmallManager,
    files: FileSystem,
    _dir: TempDir,
}

/// A thread of a program in the mount. Its number is that of no process, unless it was taken from one.
#[derive(Clone, Copy)]
struct Thread<'a> {
    stage: &'a Stage,
    id: u32,
}

impl Stage {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root: PoolPath = "pot://lab".parse().expect("a path");
        let mount = RecordedMount::alone(root.clone(), dir.path());
        let record = MountRecord::take(dir.path(), &mount).expect("taken");
        let spool = Spool::new(dir.path().into(), 1000);
        let limits = WriteLimits::new(WriteOptions::default());
        let manager = SmallManager::default();
        let files = FileSystem::new(manager.pool().await, root, spool, limits, record);
        Self { manager, files, _dir: dir }
    }

    /// Returns threads of which nothing is known.
    fn threads<const N: usize>(&self) -> [Thread<'_>; N] {
        std::array::from_fn(|number| Thread { stage: self, id: u32::MAX - number as u32 })
    }

    /// Replaces a file by renaming another over it, as a program of this mount does; the kernel knows both.
    async fn rename_over(&self, name: &str, content: &'static str) {
        self.manager.put("next", content);
        self.files.lookup(ROOT, "next").await.expect("there");
        self.files.rename((ROOT, "next"), (ROOT, name), false).await.expect("renamed");
    }

    /// Returns the first bytes of an open file.
    async fn read(&self, handle: u64) -> Vec<u8> {
        self.files.read(handle, 0, 100).await.expect("read").to_vec()
    }

    /// Returns the size that programs are told of a number.
    async fn size(&self, number: u64) -> Result<u64, Errno> {
        self.files.facts(number, None).await.map(|facts| facts.size)
    }
}

impl Thread<'_> {
    async fn look_up(self, name: &str) -> u64 {
        let found = self.stage.files.lookup_for(self.id, ROOT, name).await;
        found.expect("there").inode
    }

    async fn opens_to_read(self, number: u64) -> Result<u64, Errno> {
        self.stage.files.open(number, OpenMode::default(), self.id).await
    }

    async fn opens_to_write(self, number: u64) -> Result<u64, Errno> {
        let mode = OpenMode { writes: true, ..OpenMode::default() };
        self.stage.files.open(number, mode, self.id).await
    }

    async fn opens_to_cut_off(self, number: u64) -> Result<u64, Errno> {
        let mode = OpenMode { writes: true, truncates: true, ..OpenMode::default() };
        self.stage.files.open(number, mode, self.id).await
    }

    async fn change(self, number: u64, change: AttributeChange) -> Result<u64, Errno> {
        let changed = self.stage.files.change(number, None, change, self.id).await;
        changed.map(|facts| facts.size)
    }
}

#[tokio::test]
async fn open_reads_the_version_found_despite_replacement() {
    let stage = Stage::new().await;
    let (manager, [slow, reader, late]) = (&stage.manager, stage.threads());
    for (name, is_exchanged) in [("f", false), ("g", true)] {
        manager.put(name, "one");
        let first = slow.look_up(name).await;
        reader.opens_to_read(first).await.expect("opened");
        manager.put(name, "second");
        assert_eq!(slow.opens_to_read(first).await, Err(Errno::STALE), "programs read the first");
        let second = slow.look_up(name).await;
        assert_ne!(second, first);
        reader.opens_to_read(second).await.expect("opened");
        manager.put(name, "the third");
        if is_exchanged {
            assert_eq!(late.opens_to_read(second).await, Err(Errno::STALE), "it may be long ago");
        }
        let opened = slow.opens_to_read(second).await.expect("nothing else comes of it");
        assert_eq!(stage.read(opened).await, b"second");
        assert_eq!(stage.size(second).await, Ok(6), "all read one version under a number");

        let third = late.look_up(name).await;
        let opened = late.opens_to_read(third).await.expect("opened");
        assert_eq!(stage.read(opened).await, b"the third");
        assert!(![first, second].contains(&third));
    }
}

#[tokio::test]
async fn writes_are_seen_by_open_readers_unless_the_file_was_replaced() {
    let stage = Stage::new().await;
    let (manager, [writer, reader]) = (&stage.manager, stage.threads());
    manager.put("f", "one");
    let first = reader.look_up("f").await;
    let opened = reader.opens_to_read(first).await.expect("opened");
    writer.opens_to_cut_off(first).await.expect("opened under the number that is read");
    assert_eq!((stage.size(first).await, stage.read(opened).await), (Ok(0), Vec::new()));

    // Readers keep the number under which they read what another mount has replaced.
    manager.put("g", "one");
    let first = reader.look_up("g").await;
    let opened = reader.opens_to_read(first).await.expect("opened");
    manager.put("g", "second");
    assert_eq!(writer.opens_to_cut_off(first).await, Err(Errno::STALE));
    let second = writer.look_up("g").await;
    assert_ne!(first, second);
    writer.opens_to_cut_off(second).await.expect("opened");
    assert_eq!((stage.size(first).await, stage.size(second).await), (Ok(3), Ok(0)));
    assert_eq!(stage.read(opened).await, b"one");

    // By truncate(2) a program opens nothing, and the kernel makes that call once more, too.
    manager.put("h", "one");
    let number = writer.look_up("h").await;
    reader.opens_to_read(number).await.expect("opened");
    manager.put("h", "second");
    let cut = AttributeChange { size: Some(6), ..AttributeChange::default() };
    assert_eq!(writer.change(number, cut).await, Err(Errno::STALE));
    let again = writer.look_up("h").await;
    reader.opens_to_read(again).await.expect("opened");
    assert_eq!(writer.change(again, cut).await, Ok(6));
}

#[tokio::test]
async fn open_of_a_file_being_edited_reads_the_edits() {
    let stage = Stage::new().await;
    let (manager, [writer, reader]) = (&stage.manager, stage.threads());
    manager.put("f", "one");
    let number = writer.look_up("f").await;
    let writing = writer.opens_to_write(number).await.expect("opened");
    let before = reader.opens_to_read(number).await.expect("opened");
    let mode = WriteMode { appends: true, ..WriteMode::default() };
    let write = stage.files.write(writing, writer.id, 0, b" more".into(), mode);
    assert_eq!(write.await, Ok(()));
    let after = reader.opens_to_read(number).await.expect("opened");
    for reading in [before, after] {
        assert_eq!(stage.read(reading).await, b"one more");
    }
    assert_eq!(stage.size(number).await, Ok(8));
}

#[tokio::test]
async fn open_of_an_unlinked_inode_follows_its_name() {
    let stage = Stage::new().await;
    let (manager, [slow, reader, other]) = (&stage.manager, stage.threads());
    manager.put("f", "one");
    let first = slow.look_up("f").await;
    stage.rename_over("f", "second").await;
    assert_eq!(stage.size(first).await, Ok(6), "the kernel asks before it opens");
    assert_eq!(slow.opens_to_cut_off(first).await, Err(Errno::STALE));
    assert_eq!(other.opens_to_write(first).await, Err(Errno::STALE));
    let second = slow.look_up("f").await;
    assert_eq!(other.look_up("f").await, second);
    stage.rename_over("f", "the third").await;
    let third = reader.look_up("f").await;
    reader.opens_to_read(third).await.expect("opened");

    slow.opens_to_cut_off(second).await.expect("nothing else comes of it");
    let written = reader.look_up("f").await;
    assert!(stage.files.handles().draft(written).is_some(), "all in the mount find it");
    assert_eq!((written, stage.size(third).await), (third, Ok(0)), "who reads it, too");
    let fstat = stage.files.facts(second, None).await;
    assert_eq!(fstat.map(|facts| (facts.inode, facts.size)), Ok((written, 0)));
    // Another program whose number lost its name at the same time shares what is being written.
    let shared = other.opens_to_write(second).await.expect("opened");
    let opened = stage.files.handles().get(shared).expect("open");
    assert_eq!(opened.inode, written);
}

#[tokio::test]
async fn reopen_by_descriptor_does_not_reach_the_replacement() {
    let stage = Stage::new().await;
    let (manager, [thread, other]) = (&stage.manager, stage.threads());
    manager.put("f", "one");
    let first = thread.look_up("f").await;
    thread.opens_to_read(first).await.expect("opened");
    manager.put("f", "second");
    let second = other.look_up("f").await;
    // Such an open, as of /proc/self/fd/3, looks nothing up.
    for _ in 0..2 {
        assert_eq!(thread.opens_to_cut_off(first).await, Err(Errno::STALE));
    }
    assert!(stage.files.handles().draft(second).is_none());
}

#[tokio::test]
async fn setattr_applies_to_the_name_unless_the_old_file_is_open() {
    let stage = Stage::new().await;
    let manager = &stage.manager;
    let [own, init] = [std::process::id(), 1].map(|id| Thread { stage: &stage, id });
    let changes = AttributeChange {
        permissions: Some(Permissions::of_mode(0o600)),
        ..AttributeChange::default()
    };
    manager.put("f", "one");
    let first = own.look_up("f").await;
    init.opens_to_read(first).await.expect("opened");
    manager.put("f", "second");
    assert_eq!(own.change(first, changes).await, Err(Errno::STALE));
    let second = own.look_up("f").await;
    init.opens_to_read(second).await.expect("opened");
    let third = manager.put("f", "the third");
    assert_eq!(own.change(second, changes).await, Ok(6), "its readers are told of their version");
    assert_eq!(manager.attributes_set(), [Some(third)]);

    let meant = |thread: Thread<'_>| {
        let path = stage.files.meant_path(second, thread.id);
        path.map(|path| path.to_string())
    };
    assert_eq!(meant(own), Ok("pot://lab/f".into()));
    assert_eq!(meant(init), Err(Errno::STALE));
    // A descriptor of a former file is none of what replaced it.
    for _ in 0..2 {
        assert_eq!(init.change(first, changes).await, Err(Errno::STALE));
    }
    assert_eq!(manager.attributes_set().len(), 1);
}

#[tokio::test]
async fn name_with_a_changed_kind_gets_a_new_inode() {
    let stage = Stage::new().await;
    let (manager, [thread]) = (&stage.manager, stage.threads());
    let files = &stage.files;
    let target = async |number: u64| files.target(number).await.map(|it| it.to_string());
    manager.put("f", "one");
    let file = thread.look_up("f").await;
    manager.link("f", "elsewhere");
    assert_eq!(thread.opens_to_read(file).await, Err(Errno::STALE), "a link is there");
    assert_eq!(thread.opens_to_write(file).await, Err(Errno::STALE), "a link is there");
    let link = thread.look_up("f").await;
    assert_ne!(link, file, "what the kernel has of the file stays usable");
    assert_eq!(target(link).await, Ok("elsewhere".into()));
    manager.put("f", "second");
    assert_eq!(target(link).await, Err(Errno::STALE), "a file is there");
    assert!(![file, link].contains(&thread.look_up("f").await));

    // A link that was replaced by another after it was looked up is followed all the same.
    manager.link("current", "one");
    manager.link("next", "two");
    let current = thread.look_up("current").await;
    thread.look_up("next").await;
    files.rename((ROOT, "next"), (ROOT, "current"), false).await.expect("renamed");
    assert_eq!(target(current).await, Ok("two".into()));
}
