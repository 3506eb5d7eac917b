//! The local directory that a tree is copied to. Nothing of the tree is written through a symbolic link in that
//! directory, not even through a link that this copy made: a link may lead to any place of this machine.

use super::local_dir::{LocalDir, LocalPlace};
use super::made_dirs::MadeDirs;
use super::{GetOptions, leftovers, local_failure, ownership};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::entropy::Entropy;
use potluck_core::path::check_name;
use potluck_wire::control::OpenLink;
use potluck_wire::error::{ErrorKind, Failure, code};
use rustix::fs::{
    AtFlags, FileType, Mode, Timespec, Timestamps, chmodat, readlinkat, renameat, symlinkat,
    utimensat,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// A local directory that a tree is copied to, and what is known of the directories below it.
pub struct LocalTree {
    root: Arc<LocalDir>,
    options: GetOptions,
    /// The directories that are to get their attributes of the pool, by relative path, in the order in which they came.
    dirs: Vec<(String, EntryAttributes)>,
    /// The directory that was looked up last, by relative path: entries of one directory come one after another.
    last: (String, Arc<LocalDir>),
}

impl LocalTree {
    /// Begins a copy into the directory `root`, which is made if need be; with `options.if_absent` nothing in it is
    /// replaced.
    ///
    /// Errors: [`code::LOCAL_IO`] and [`code::WRONG_KIND`] where there can be no such directory; the latter also where
    /// its name is one from the pool and is a link.
    pub fn begin(root: &Path, options: GetOptions, made: &mut MadeDirs) -> Result<Self, Failure> {
        if options.own_name && root.is_symlink() {
            return Err(is_link(root));
        }
        let failed = |error: io::Error| local_failure(root, &error);
        made.make(root).map_err(failed)?;
        let opened = match root.file_name().filter(|_| options.own_name) {
            Some(name) => LocalPlace::of(root).and_then(|place| place.dir.below(name)),
            None => LocalDir::open(root),
        };
        let root = Arc::new(opened.map_err(failed)?);
        leftovers::remove(&root);
        let last = (String::new(), Arc::clone(&root));
        Ok(Self { root, options, dirs: Vec::new(), last })
    }

    /// Makes the directory at a relative path with those above it, and removes what killed downloads left in it.
    ///
    /// Errors: [`code::WRONG_KIND`] where a symbolic link is at the path or above it.
    pub fn make_dir(&mut self, relative: &str, made: &mut MadeDirs) -> Result<(), Failure> {
        let mut dir = Arc::clone(&self.root);
        for name in names(relative) {
            let name = checked(name)?;
            let failed = |error: io::Error| local_failure(&dir.path().join(name), &error);
            if dir.make(name).map_err(failed)? {
                made.add(dir.path().join(name));
            }
            dir = Arc::new(below(&dir, name)?);
        }
        leftovers::remove(&dir);
        self.last = (relative.to_owned(), dir);
        Ok(())
    }

    /// Notes that a directory that was made is to get these attributes at the end; does nothing unless
    /// [`GetOptions::archive`] is set.
    pub fn is_dir(&mut self, relative: String, attributes: EntryAttributes) {
        if self.options.archive {
            self.dirs.push((relative, attributes));
        }
    }

    /// Gives directories their attributes, those below before those above, when nothing is written into them any more;
    /// `root` has the attributes of the tree's own directory. Returns the directories that could not be given theirs.
    pub fn set_attributes_of_dirs(&mut self, root: EntryAttributes) -> Vec<(String, Failure)> {
        let mut dirs = std::mem::take(&mut self.dirs);
        dirs.insert(0, (String::new(), root));
        let mut failed = Vec::new();
        for (relative, attributes) in dirs.into_iter().rev() {
            let set = self.dir(&relative).and_then(|dir| {
                set_all(&dir, attributes).map_err(|error| local_failure(dir.path(), &error))
            });
            if let Err(failure) = set {
                failed.push((relative, failure));
            }
        }
        failed
    }

    /// Returns the place at which a file of the tree may be written. A link that is there will be replaced.
    ///
    /// Errors: [`code::WRONG_KIND`] where a symbolic link is above the path; [`code::EXISTS`] where anything is there
    /// and nothing is to be replaced.
    pub fn file(&mut self, relative: &str) -> Result<LocalPlace, Failure> {
        let place = self.place(relative)?;
        match self.options.if_absent && place.kind().is_ok_and(|kind| kind.is_some()) {
            true => Err(local_failure(&place.path(), &io::ErrorKind::AlreadyExists.into())),
            false => Ok(place), // writing tells what else is wrong with it
        }
    }

    /// Returns the path of the directory that the tree is copied to.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns the options by which the tree is copied.
    pub fn options(&self) -> GetOptions {
        self.options
    }

    /// Makes a link of the tree as [`make_link`] does, with its owner only if attributes are kept.
    pub fn link(&mut self, link: &OpenLink, entropy: &dyn Entropy) -> Result<(), Failure> {
        let place = self.place(&link.path)?;
        let owner = link.owner.filter(|_| self.options.archive);
        let link = OpenLink { owner, ..link.clone() };
        make_link(&place, &link, self.options.if_absent, entropy)
    }

    /// Returns the place of a relative path, whose last component is not followed if it is a link. A link above is an
    /// error.
    fn place(&mut self, relative: &str) -> Result<LocalPlace, Failure> {
        let (above, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        let name = checked(name)?.to_owned();
        Ok(LocalPlace { dir: self.dir(above)?, name })
    }

    /// Opens the directory at a relative path, through no link.
    fn dir(&mut self, relative: &str) -> Result<Arc<LocalDir>, Failure> {
        if self.last.0 != relative {
            let mut dir = Arc::clone(&self.root);
            for name in names(relative) {
                dir = Arc::new(below(&dir, checked(name)?)?);
            }
            self.last = (relative.to_owned(), dir);
        }
        Ok(Arc::clone(&self.last.1))
    }
}

fn names(relative: &str) -> impl Iterator<Item = &str> {
    relative.split('/').filter(|name| !name.is_empty())
}

/// Returns a name from the network as one that never leads out of the directory it is looked up in.
fn checked(name: &str) -> Result<&OsStr, Failure> {
    check_name(name).map(|()| OsStr::new(name)).map_err(|why| {
        Failure::new(ErrorKind::Integrity, code::BAD_PATH, why.to_string())
            .hint("the manager sent a name that no file can have")
    })
}

fn below(dir: &LocalDir, name: &OsStr) -> Result<LocalDir, Failure> {
    dir.below(name).map_err(|error| match dir.kind_of(name) {
        Ok(Some(FileType::Symlink)) => is_link(&dir.path().join(name)),
        _ => local_failure(&dir.path().join(name), &error),
    })
}

fn is_link(place: &Path) -> Failure {
    let what =
        format!("{} is a symbolic link, which a tree is not copied through", place.display());
    Failure::new(ErrorKind::Conflict, code::WRONG_KIND, what)
        .hint("remove the link, or copy what belongs behind it by a command of its own")
}

/// Makes a symbolic link at `place`, or replaces another link there unless `if_absent` is set.
///
/// Errors: [`code::EXISTS`] with `if_absent` where anything is there; [`code::WRONG_KIND`] where a file or a directory
/// is.
pub fn make_link(
    place: &LocalPlace,
    link: &OpenLink,
    if_absent: bool,
    entropy: &dyn Entropy,
) -> Result<(), Failure> {
    let failed = |error: io::Error| local_failure(&place.path(), &error);
    let LocalPlace { dir, name } = place;
    let target = link.target.as_str();
    match place.kind().map_err(failed)? {
        None => symlinkat(target, &**dir, name).map_err(|why| failed(why.into()))?,
        Some(_) if if_absent => return Err(failed(io::ErrorKind::AlreadyExists.into())),
        Some(FileType::Directory) => return Err(failed(io::ErrorKind::IsADirectory.into())),
        Some(FileType::Symlink) => {
            let there = readlinkat(&**dir, name, Vec::new());
            if !there.is_ok_and(|there| there.as_bytes() == target.as_bytes()) {
                replace(place, target, entropy).map_err(failed)?;
            }
        }
        Some(_) => {
            let what = format!("{} is a file", place.path().display());
            return Err(Failure::new(ErrorKind::Conflict, code::WRONG_KIND, what)
                .hint("choose another target for the link, or remove the file"));
        }
    }
    if let Some(owner) = link.owner {
        ownership::give_at(&**dir, Path::new(name), owner).map_err(failed)?;
    }
    set_time(&**dir, name, link.mtime).map_err(failed)
}

/// Gives a directory the owner, as far as this process may, the time and the mode that it has in the pool. The mode
/// comes last, because it may take the right to look anything up in it.
fn set_all(dir: &LocalDir, attributes: EntryAttributes) -> io::Result<()> {
    if let Some(owner) = attributes.owner {
        ownership::give_at(dir, Path::new("."), owner)?;
    }
    set_time(dir, OsStr::new("."), attributes.mtime)?;
    Ok(chmodat(dir, ".", Mode::from(attributes.permissions.bits()), AtFlags::empty())?)
}

/// Replaces a link by one to `target`, in one step.
fn replace(place: &LocalPlace, target: &str, entropy: &dyn Entropy) -> io::Result<()> {
    let LocalPlace { dir, name } = place;
    let temp = leftovers::part_name(name, entropy.u64());
    symlinkat(target, &**dir, &temp)?;
    renameat(&**dir, &temp, &**dir, name).inspect_err(|_| {
        let _ = dir.remove(&temp); // nothing more can be done about it here
    })?;
    Ok(())
}

fn set_time(dir: impl AsFd, name: &OsStr, time: FileTime) -> io::Result<()> {
    let (tv_sec, tv_nsec) = (time.0.div_euclid(1_000_000_000), time.0.rem_euclid(1_000_000_000));
    let time = Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::entropy::SeededEntropy;
    use rustix::fs::CWD;
    use std::fs;

    #[test]
    fn tree_download_does_not_follow_symlinks() {
        let dir = tempfile::tempdir().expect("a directory");
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("real")).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("f"), "mine").expect("written");
        let entropy = SeededEntropy::new(1);
        let link = |path: &str, target: &str| OpenLink {
            path: path.into(),
            target: target.to_owned().try_into().expect("a target"),
            mtime: FileTime(5),
            owner: None,
        };
        let begin = |options| LocalTree::begin(&root, options, &mut MadeDirs::default());
        let plain = || begin(GetOptions::default()).expect("a directory");
        let mut tree = plain();
        for (path, target) in [("out", "../outside"), ("real/f", "../../outside/f")] {
            tree.link(&link(path, target), &entropy).expect("made");
            assert_eq!(fs::read_link(root.join(path)).expect("a link"), Path::new(target));
        }
        let code_of = |refused: Result<LocalPlace, Failure>| refused.expect_err("a link").code;
        for mut tree in [tree, plain()] {
            assert_eq!(code_of(tree.file("out/f")), code::WRONG_KIND);
            assert_eq!(code_of(tree.file("out/a/f")), code::WRONG_KIND);
            assert_eq!(code_of(tree.file("real/f/g")), code::WRONG_KIND);
            for dir in ["out", "out/a", "real/f/b"] {
                let refused = tree.make_dir(dir, &mut MadeDirs::default());
                assert_eq!(refused.expect_err("a link").code, code::WRONG_KIND, "{dir}");
            }
            tree.file("real/other").expect("no link is on the way");
        }
        assert_eq!(fs::read_dir(&outside).expect("listed").count(), 1);
        // A link takes the place of a link, and of nothing else.
        let mut tree = plain();
        tree.link(&link("out", "elsewhere"), &entropy).expect("replaced");
        assert_eq!(fs::read_link(root.join("out")).expect("a link"), Path::new("elsewhere"));
        fs::write(root.join("file"), "mine").expect("written");
        for there in ["file", "real"] {
            let refused = tree.link(&link(there, "x"), &entropy).expect_err("no link");
            assert_eq!(refused.code, code::WRONG_KIND, "{there}");
        }
        let if_absent = GetOptions { if_absent: true, ..GetOptions::default() };
        let refused = begin(if_absent).expect("there").link(&link("out", "x"), &entropy);
        assert_eq!(refused.expect_err("there").code, code::EXISTS);
        assert_eq!(fs::read_dir(&root).expect("listed").count(), 3, "nothing is left over");
        // The tree's own name is followed where the user chose it, and not where the pool did.
        let link_to_root = dir.path().join("link");
        symlinkat("root", CWD, &link_to_root).expect("a link");
        let begin = |own_name| {
            let options = GetOptions { own_name, ..GetOptions::default() };
            LocalTree::begin(&link_to_root, options, &mut MadeDirs::default())
        };
        assert!(begin(false).is_ok());
        assert_eq!(begin(true).err().expect("a link").code, code::WRONG_KIND);
    }
}
