//! The inode numbers by which the kernel knows names of this mount.

use potluck_core::path::PoolPath;
use potluck_wire::control::EntryKind;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The number of the directory that is mounted.
pub const ROOT: u64 = 1;

/// The bit that is set in numbers which are hashes of names; all other numbers are counted.
const OF_NAME: u64 = 1 << 62;

/// A name in a directory, by the number of the directory.
pub type NamePlace = (u64, String);

#[derive(Default)]
struct Inode {
    /// The place of the name that leads to the number; `None` for the root, and once no name leads to the number.
    place: Option<NamePlace>,
    /// The place of the name that led to the number before it lost that.
    last_place: Option<NamePlace>,
    /// The number of times that the kernel was told of the number, less those that it forgot.
    lookups: u64,
    /// The kind of entry that the kernel was told.
    kind: Option<EntryKind>,
    /// The path at which the content of a directory is staged for a checkpoint, so that all names below lead there.
    staging: Option<PoolPath>,
    /// True if the number lost its name because another version has taken its place.
    is_outdated: bool,
    /// True if programs locked the file: they share it while they have it open, and must find it under one number.
    was_locked: bool,
    /// The number of what has taken the last name, once programs have locked or written that by this number.
    successor: Option<u64>,
}

/// The names and numbers that the kernel may ask about. A name whose number the kernel forgot gets the same number
/// again if that is free, also in another mount of the directory: `tar` looks at a directory again after unpacking all
/// that is below it, and `git` takes a file with another number for a changed one. A number stands for one entry for as
/// long as the kernel knows it.
pub struct Inodes {
    root: PoolPath,
    known: HashMap<u64, Inode>,
    names: HashMap<NamePlace, u64>,
    /// The numbers of the directories that are staged: these are few, and are needed at each change of a name.
    staged: BTreeSet<u64>,
    last: u64,
}

impl Inodes {
    /// Makes the numbers of a mount, of which only the root is known.
    pub fn new(root: PoolPath) -> Self {
        let known = HashMap::from([(ROOT, Inode { lookups: 1, ..Inode::default() })]);
        let (names, staged) = Default::default();
        Self { root, known, names, staged, last: ROOT }
    }

    /// Returns the present path of a number.
    pub fn path(&self, number: u64) -> Result<PoolPath, Errno> {
        if let Some(staging) = self.staging(number) {
            return Ok(staging.clone());
        }
        if number == ROOT {
            return Ok(self.root.clone());
        }
        let (parent, name) = self.place(number).ok_or(Errno::STALE)?;
        self.path(*parent)?.join(name).map_err(|_| Errno::NAMETOOLONG)
    }

    /// Returns the path of a number, or the last one that it had. Something else may be at that path: a program that
    /// looked a name up, and then opens it, opens what is there by then.
    pub fn last_path(&self, number: u64) -> Result<PoolPath, Errno> {
        let last_place = self.known.get(&number).and_then(|inode| inode.last_place.as_ref());
        match (self.path(number), last_place) {
            (Err(_), Some((parent, name))) => {
                self.last_path(*parent)?.join(name).map_err(|_| Errno::NAMETOOLONG)
            }
            (path, _) => path,
        }
    }

    /// Returns the path of what a program means by a number. If it does not have the file open, it has looked a name
    /// up, and means what is there by now; a directory that lost its name is meant itself.
    pub fn meant_path(&self, number: u64, is_open: bool) -> Result<PoolPath, Errno> {
        let kind = self.known.get(&number).and_then(|inode| inode.kind);
        match is_open || kind == Some(EntryKind::Dir) {
            true => self.path(number),
            false => self.last_path(number),
        }
    }

    /// Returns the number of a directory itself, and of any other entry that of the directory which it is in; the root's
    /// for what has no name.
    pub fn directory_of(&self, number: u64) -> u64 {
        let inode = self.known.get(&number);
        match inode.and_then(|inode| Some((inode.kind, inode.place.as_ref()?))) {
            Some((Some(EntryKind::Dir), _)) => number,
            Some((_, (parent, _))) => *parent,
            None => ROOT,
        }
    }

    /// Returns the path at which the content of a directory is staged, if it is staged.
    pub fn staging(&self, number: u64) -> Option<&PoolPath> {
        self.known.get(&number)?.staging.as_ref()
    }

    /// Makes the names in a directory lead to the path at which they are staged, or with `None` to their own path. The
    /// number of a staged directory is kept even if the kernel forgets it.
    pub fn set_staging(&mut self, number: u64, staging: Option<PoolPath>) {
        if let Some(inode) = self.known.get_mut(&number) {
            match staging {
                Some(_) => self.staged.insert(number),
                None => self.staged.remove(&number),
            };
            inode.staging = staging;
        }
    }

    /// Returns the numbers of directories whose content is staged.
    pub fn staged(&self) -> impl Iterator<Item = u64> {
        self.staged.iter().copied()
    }

    /// Returns whether `number` is that of `dir` or of an entry below it.
    pub fn is_below(&self, number: u64, dir: u64) -> bool {
        let mut at = number;
        while at != dir {
            let Some((parent, _)) = self.place(at) else { return false };
            at = *parent;
        }
        true
    }

    /// Returns the numbers of a directory and of all that is known below it.
    pub fn below(&self, dir: u64) -> Vec<u64> {
        self.known.keys().copied().filter(|number| self.is_below(*number, dir)).collect()
    }

    /// Returns the name that leads to a number, if one does.
    pub fn place(&self, number: u64) -> Option<&NamePlace> {
        self.known.get(&number)?.place.as_ref()
    }

    /// Returns the name that leads to a number, or the last one that did.
    pub fn last_place(&self, number: u64) -> Option<&NamePlace> {
        let inode = self.known.get(&number)?;
        inode.place.as_ref().or(inode.last_place.as_ref())
    }

    /// Returns the number to which a name leads.
    pub fn find(&self, parent: u64, name: &str) -> Option<u64> {
        self.names.get(&(parent, name.to_owned())).copied()
    }

    /// Returns the number to which a path leads, if there is one.
    pub fn find_path(&self, path: &PoolPath) -> Option<u64> {
        let below_root: Vec<&str> = match (self.root.space(), path.space()) {
            ("", space) => std::iter::once(space).chain(names_of(path)).collect(),
            _ if path.is_inside(&self.root) => {
                names_of(path).skip(self.root.names().len()).collect()
            }
            _ => return None,
        };
        let mut names = below_root.into_iter().filter(|name| !name.is_empty());
        names.try_fold(ROOT, |parent, name| self.find(parent, name))
    }

    /// Returns the number of a name; if it has none it gets one.
    pub fn of(&mut self, parent: u64, name: &str) -> u64 {
        if let Some(number) = self.find(parent, name) {
            return number;
        }
        let number = self.new_number(parent, name);
        let place = (parent, name.to_owned());
        self.names.insert(place.clone(), number);
        self.known.insert(number, Inode { place: Some(place), ..Inode::default() });
        number
    }

    /// Returns the number of a name; if it has none, the one that it gets if that does not stand for another entry by
    /// then.
    pub fn expected(&self, parent: u64, name: &str) -> u64 {
        self.find(parent, name).unwrap_or_else(|| hash_of(parent, name))
    }

    /// Returns the number that is the hash of a name, unless that stands for another entry; in that case a number that
    /// was never used.
    fn new_number(&mut self, parent: u64, name: &str) -> u64 {
        let of_name = hash_of(parent, name);
        if !self.known.contains_key(&of_name) {
            return of_name;
        }
        self.last += 1;
        self.last
    }

    /// Notes that the kernel is told that a name leads to a number, and the kind of the entry.
    pub fn looked_up(&mut self, number: u64, (parent, name): (u64, &str), kind: EntryKind) {
        // The kernel may have forgotten the number since it was found for this answer, and the name may have another.
        if !self.known.contains_key(&number) {
            let place = (parent, name.to_owned());
            let inode = match self.names.contains_key(&place) {
                true => Inode { last_place: Some(place), ..Inode::default() },
                false => {
                    self.names.insert(place.clone(), number);
                    Inode { place: Some(place), ..Inode::default() }
                }
            };
            self.known.insert(number, inode);
        }
        if let Some(inode) = self.known.get_mut(&number) {
            inode.lookups += 1;
            inode.kind = Some(kind);
        }
    }

    /// Returns whether the kernel was told that a number is of another kind. It takes such a change for an error of
    /// this daemon if it asked for attributes, and for another entry if it looked a name up.
    pub fn was_of_another_kind(&self, number: u64, kind: EntryKind) -> bool {
        self.known.get(&number).and_then(|inode| inode.kind).is_some_and(|told| told != kind)
    }

    /// Notes that the kernel forgets `times` look-ups of a number, which is dropped after the last one, unless a handle
    /// still needs it (`is_open`) or it is staged.
    pub fn forget(&mut self, number: u64, times: u64, is_open: bool) {
        let Some(inode) = self.known.get_mut(&number).filter(|_| number != ROOT) else { return };
        inode.lookups = inode.lookups.saturating_sub(times);
        if inode.lookups == 0 && !is_open && inode.staging.is_none() {
            let inode = self.known.remove(&number).expect("just found");
            if let Some(place) = inode.place {
                self.names.remove(&place);
            }
        }
    }

    /// Notes that a name leads nowhere any more.
    pub fn unlink(&mut self, parent: u64, name: &str) {
        if let Some(number) = self.names.remove(&(parent, name.to_owned()))
            && let Some(inode) = self.known.get_mut(&number)
        {
            inode.last_place = inode.place.take();
        }
    }

    /// Notes that another version took the place of the one that a number stands for: the number loses its name, which
    /// gets another number when it is looked up.
    pub fn outdate(&mut self, number: u64) {
        let Some(place) = self.place(number).cloned() else { return };
        self.unlink(place.0, &place.1);
        if let Some(inode) = self.known.get_mut(&number) {
            inode.is_outdated = true;
        }
    }

    /// Returns whether another version took the place of the one that a number stands for.
    pub fn is_outdated(&self, number: u64) -> bool {
        self.known.get(&number).is_some_and(|inode| inode.is_outdated)
    }

    /// Notes that a file is locked, and returns the number under which it is. If `number` is outdated when it is first
    /// locked, that is the number of its former name, and stays so.
    pub fn lock(&mut self, number: u64) -> u64 {
        let outdated = self.known.get(&number).filter(|inode| inode.is_outdated);
        if outdated.is_some_and(|inode| inode.successor.is_none()) {
            self.successor(number);
        }
        let locked = self.locked_number(number);
        self.known.entry(locked).and_modify(|inode| inode.was_locked = true);
        locked
    }

    /// Returns the number of what has the last name of a number that lost it: programs that write or lock the file by
    /// `number` do so under that one from then on. `None` if programs have locked the file before, for their locks
    /// stay where they are.
    pub fn successor(&mut self, number: u64) -> Option<u64> {
        let inode = self.known.get(&number)?;
        let is_named = |number: u64| self.place(number).is_some();
        if inode.successor.is_some_and(is_named) {
            return inode.successor;
        }
        let mut so_far = [Some(number), inode.successor].into_iter().flatten();
        if so_far.any(|number| self.was_locked(number)) {
            return None;
        }
        let (parent, name) = inode.last_place.clone()?;
        let successor = Some(self.of(parent, &name));
        self.known.entry(number).and_modify(|inode| inode.successor = successor);
        successor
    }

    /// Returns whether programs locked the file that a number stands for.
    pub fn was_locked(&self, number: u64) -> bool {
        self.known.get(&number).is_some_and(|inode| inode.was_locked)
    }

    /// Returns the number under which [`Self::lock`] locked a file, or programs write it ([`Self::successor`]); by
    /// default that is the same number.
    pub fn locked_number(&self, number: u64) -> u64 {
        self.known.get(&number).and_then(|inode| inode.successor).unwrap_or(number)
    }

    /// Notes that a name is renamed, and replaces what had the new name.
    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str)) {
        let Some(number) = self.find(from.0, from.1) else { return self.unlink(to.0, to.1) };
        if self.find(to.0, to.1) == Some(number) {
            return;
        }
        self.unlink(to.0, to.1);
        self.names.remove(&(from.0, from.1.to_owned()));
        let place = (to.0, to.1.to_owned());
        self.names.insert(place.clone(), number);
        if let Some(inode) = self.known.get_mut(&number) {
            inode.place = Some(place);
        }
    }
}

fn hash_of(parent: u64, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, name).hash(&mut hasher);
    OF_NAME | hasher.finish() >> 2
}

fn names_of(path: &PoolPath) -> impl Iterator<Item = &str> {
    path.names().iter().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_directory_moves_its_inodes_and_unlinks_the_replaced() {
        let mut inodes = Inodes::new("pot://lab".parse().expect("a path"));
        let dir = inodes.of(ROOT, "a");
        let file = inodes.of(dir, "f");
        let other = inodes.of(ROOT, "other");
        inodes.looked_up(other, (ROOT, "other"), EntryKind::File);
        let path = |inodes: &Inodes, number| inodes.path(number).map(|path| path.to_string());
        assert_eq!(path(&inodes, file), Ok("pot://lab/a/f".into()));
        let find = |inodes: &Inodes, path: &str| inodes.find_path(&path.parse().expect("a path"));
        assert_eq!(find(&inodes, "pot://lab/a/f"), Some(file));
        assert_eq!(find(&inodes, "pot://lab"), Some(ROOT));
        inodes.looked_up(dir, (ROOT, "a"), EntryKind::Dir);
        let directories = [ROOT, dir, file, other, 1000].map(|number| inodes.directory_of(number));
        assert_eq!(directories, [ROOT, dir, dir, ROOT, ROOT]);
        assert_eq!(find(&inodes, "pot://lab/a/g"), None);
        assert_eq!(find(&inodes, "pot://other/a"), None);
        inodes.rename((ROOT, "a"), (ROOT, "b"));
        assert_eq!(path(&inodes, file), Ok("pot://lab/b/f".into()));
        inodes.rename((dir, "f"), (ROOT, "other"));
        assert_eq!(path(&inodes, file), Ok("pot://lab/other".into()));
        assert_eq!(path(&inodes, other), Err(Errno::STALE));
        let opened = inodes.last_path(other).map(|path| path.to_string());
        assert_eq!(opened, Ok("pot://lab/other".into()), "what is there now");
        assert_ne!(inodes.of(dir, "f"), file);
    }

    #[test]
    fn forgotten_name_regains_its_inode() {
        let mut inodes = Inodes::new("pot://lab".parse().expect("a path"));
        let dir = inodes.of(ROOT, "d");
        let file = inodes.of(dir, "f");
        let told = [(file, (dir, "f"), EntryKind::File), (dir, (ROOT, "d"), EntryKind::Dir)];
        for (number, place, kind) in told {
            inodes.looked_up(number, place, kind);
            inodes.forget(number, 1, false);
        }
        let other = inodes.of(ROOT, "other");
        assert_eq!((inodes.of(ROOT, "d"), inodes.of(dir, "f")), (dir, file));
        inodes.looked_up(file, (dir, "f"), EntryKind::File);
        inodes.unlink(dir, "f"); // while a program has it open
        let new = inodes.of(dir, "f");
        assert!(![ROOT, dir, file, other].contains(&new));
        assert_eq!((inodes.find(dir, "f"), inodes.path(file)), (Some(new), Err(Errno::STALE)));
    }

    #[test]
    fn inode_forgotten_during_a_lookup_stays_valid() {
        let mut inodes = Inodes::new("pot://lab".parse().expect("a path"));
        let file = inodes.of(ROOT, "f");
        inodes.looked_up(file, (ROOT, "f"), EntryKind::File);
        let found = inodes.of(ROOT, "f");
        inodes.forget(file, 1, false);
        inodes.looked_up(found, (ROOT, "f"), EntryKind::File);
        assert_eq!(inodes.path(found).map(|path| path.to_string()), Ok("pot://lab/f".into()));
        inodes.unlink(ROOT, "f"); // while the kernel still knows it
        assert_ne!(inodes.of(ROOT, "f"), found);

        // Its name has another number by then.
        let gone = 1 << 40;
        inodes.looked_up(gone, (ROOT, "f"), EntryKind::File);
        assert_ne!(inodes.find(ROOT, "f"), Some(gone));
        let meant = inodes.meant_path(gone, false).map(|path| path.to_string());
        assert_eq!(meant, Ok("pot://lab/f".into()));
    }

    #[test]
    fn unlinked_file_is_written_under_its_name_unless_locked() {
        let mut inodes = Inodes::new("pot://lab".parse().expect("a path"));
        let [old, next] = ["f", "next"].map(|name| {
            let number = inodes.of(ROOT, name);
            inodes.looked_up(number, (ROOT, name), EntryKind::File);
            number
        });
        inodes.rename((ROOT, "next"), (ROOT, "f"));
        assert_eq!((inodes.successor(old), inodes.locked_number(old)), (Some(next), next));
        inodes.unlink(ROOT, "f");
        let anew = inodes.of(ROOT, "f");
        assert_eq!(inodes.successor(old), Some(anew), "nobody locked the one before");
        inodes.lock(anew);
        assert_eq!(inodes.successor(old), Some(anew));
        inodes.unlink(ROOT, "f");
        assert_eq!((inodes.successor(old), inodes.locked_number(old)), (None, anew));
        let path = |is_open| inodes.meant_path(old, is_open).map(|path| path.to_string());
        assert_eq!((path(true), path(false)), (Err(Errno::STALE), Ok("pot://lab/f".into())));
    }

    #[test]
    fn staging_mapping_survives_kernel_forget() {
        let mut inodes = Inodes::new("pot://lab".parse().expect("a path"));
        let dir = inodes.of(ROOT, "d");
        inodes.looked_up(dir, (ROOT, "d"), EntryKind::Dir);
        let staging: PoolPath = "pot://lab/.staging".parse().expect("a path");
        inodes.set_staging(dir, Some(staging.clone()));
        inodes.set_staging(1000, Some(staging));
        inodes.forget(dir, 1, false);
        assert_eq!(
            inodes.staged().collect::<Vec<_>>(),
            [dir],
            "one that is not known is not staged"
        );
        inodes.set_staging(dir, None);
        assert_eq!(inodes.staged().count(), 0);
    }

    #[test]
    fn stale_inode_is_locked_by_its_name() {
        let mut inodes = Inodes::new("pot://lab".parse().expect("a path"));
        let old = inodes.of(ROOT, "f");
        inodes.looked_up(old, (ROOT, "f"), EntryKind::File);
        inodes.outdate(old);
        assert!(inodes.is_outdated(old));
        assert_eq!(inodes.path(old), Err(Errno::STALE));
        let new = inodes.of(ROOT, "f");
        assert_ne!(new, old);
        assert!(!inodes.is_outdated(new));
        assert_eq!((inodes.locked_number(old), inodes.lock(old)), (old, new));
        assert!(inodes.was_locked(new) && !inodes.was_locked(old));
        inodes.unlink(ROOT, "f");
        assert_eq!(inodes.locked_number(old), new, "where its locks are");
    }

    #[test]
    fn a_number_is_forgotten_with_the_last_lookup_unless_it_is_open() {
        let mut inodes = Inodes::new("pot://lab".parse().expect("a path"));
        let file = inodes.of(ROOT, "f");
        inodes.looked_up(file, (ROOT, "f"), EntryKind::File);
        inodes.looked_up(file, (ROOT, "f"), EntryKind::File);
        inodes.forget(file, 1, false);
        assert_eq!(inodes.find(ROOT, "f"), Some(file));
        inodes.forget(file, 1, true);
        assert_eq!(inodes.find(ROOT, "f"), Some(file));
        inodes.forget(file, 0, false);
        assert_eq!(inodes.find(ROOT, "f"), None);
    }
}
