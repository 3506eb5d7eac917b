//! The local directory that a tree is copied to. Nothing of the tree is written through a symbolic link in that
//! directory, not even through a link that this copy made: a link may lead to any place of this machine.

use super::made_dirs::MadeDirs;
use super::{GetOptions, leftovers, local_failure, local_path, ownership};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::entropy::Entropy;
use potluck_wire::control::OpenLink;
use potluck_wire::error::{ErrorKind, Failure, code};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A local directory that a tree is copied to, and what is known of the directories below it.
pub struct LocalTree<'a> {
    root: &'a Path,
    options: GetOptions,
    /// The directories that are to get their attributes of the pool, by relative path, in the order in which they came.
    dirs: Vec<(String, EntryAttributes)>,
    /// The directories below the root that are known to be no links; nothing that is copied replaces a directory.
    real: HashSet<PathBuf>,
}

impl<'a> LocalTree<'a> {
    /// Begins a copy into the directory `root`; with `options.if_absent` nothing in it is replaced.
    pub fn new(root: &'a Path, options: GetOptions) -> Self {
        Self { root, options, dirs: Vec::new(), real: HashSet::new() }
    }

    /// Makes the directory at a relative path with those above it, and removes what killed downloads left in it.
    ///
    /// Errors: [`code::WRONG_KIND`] where a symbolic link is at the path or above it.
    pub fn make_dir(&mut self, relative: &str, made: &mut MadeDirs) -> Result<(), Failure> {
        let dir = self.place(relative)?;
        if !relative.is_empty() {
            refuse_link(&dir)?;
        }
        made.make(&dir).map_err(|error| local_failure(&dir, &error))?;
        leftovers::remove(&dir);
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
            let set = self.place(&relative).and_then(|dir| {
                if !relative.is_empty() {
                    refuse_link(&dir)?;
                }
                set_all(&dir, attributes).map_err(|error| local_failure(&dir, &error))
            });
            if let Err(failure) = set {
                failed.push((relative, failure));
            }
        }
        failed
    }

    /// Returns the local path at which a file of the tree may be written.
    ///
    /// Errors: [`code::WRONG_KIND`] where a symbolic link is at the path or above it; [`code::EXISTS`] where anything
    /// is there and nothing is to be replaced.
    pub fn file(&mut self, relative: &str) -> Result<PathBuf, Failure> {
        let place = self.place(relative)?;
        match (place.symlink_metadata(), self.options.if_absent) {
            (Ok(_), true) => Err(local_failure(&place, &io::ErrorKind::AlreadyExists.into())),
            (Ok(about), false) if about.is_symlink() => Err(is_link(&place)),
            _ => Ok(place), // writing tells what else is wrong with it
        }
    }

    /// Returns the directory that the tree is copied to.
    pub fn root(&self) -> &'a Path {
        self.root
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

    /// Returns the local path for a relative path. Only its last component may be a symbolic link: a link above is an
    /// error.
    fn place(&mut self, relative: &str) -> Result<PathBuf, Failure> {
        let place = local_path(self.root, relative)?;
        let Some((above, _)) = relative.rsplit_once('/') else { return Ok(place) };
        let mut dir = self.root.to_path_buf();
        for name in above.split('/') {
            dir.push(name);
            if !self.real.contains(&dir) {
                refuse_link(&dir)?;
                if dir.is_dir() {
                    self.real.insert(dir.clone());
                }
            }
        }
        Ok(place)
    }
}

fn refuse_link(place: &Path) -> Result<(), Failure> {
    match place.is_symlink() {
        true => Err(is_link(place)),
        false => Ok(()),
    }
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
    place: &Path,
    link: &OpenLink,
    if_absent: bool,
    entropy: &dyn Entropy,
) -> Result<(), Failure> {
    let failed = |error: io::Error| local_failure(place, &error);
    match place.symlink_metadata() {
        Err(_) => symlink(link.target.as_str(), place).map_err(failed)?,
        Ok(_) if if_absent => return Err(failed(io::ErrorKind::AlreadyExists.into())),
        Ok(about) if about.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
        Ok(about) if about.is_symlink() => {
            let is_same =
                fs::read_link(place).is_ok_and(|there| there == Path::new(link.target.as_str()));
            if !is_same {
                replace(place, link.target.as_str(), entropy).map_err(failed)?;
            }
        }
        Ok(_) => {
            let what = format!("{} is a file", place.display());
            return Err(Failure::new(ErrorKind::Conflict, code::WRONG_KIND, what)
                .hint("choose another target for the link, or remove the file"));
        }
    }
    if let Some(owner) = link.owner {
        ownership::give_at(place, owner).map_err(failed)?;
    }
    set_time(place, link.mtime).map_err(failed)
}

/// Gives a directory the owner, as far as this process may, the mode and the time that it has in the pool.
fn set_all(dir: &Path, attributes: EntryAttributes) -> io::Result<()> {
    if let Some(owner) = attributes.owner {
        ownership::give_at(dir, owner)?;
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(attributes.permissions.bits()))?;
    set_time(dir, attributes.mtime)
}

/// Replaces a link by one to `target`, in one step.
fn replace(place: &Path, target: &str, entropy: &dyn Entropy) -> io::Result<()> {
    let temp = leftovers::PartName::of(place, entropy.u64())?.path();
    symlink(target, &temp)?;
    fs::rename(&temp, place).inspect_err(|_| {
        let _ = fs::remove_file(&temp); // nothing more can be done about it here
    })
}

fn set_time(place: &Path, time: FileTime) -> io::Result<()> {
    let (tv_sec, tv_nsec) = (time.0.div_euclid(1_000_000_000), time.0.rem_euclid(1_000_000_000));
    let time = Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::entropy::SeededEntropy;

    #[test]
    fn nothing_of_a_tree_goes_through_a_link_in_it() {
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
        let mut tree = LocalTree::new(&root, GetOptions::default());
        for (path, target) in [("out", "../outside"), ("real/f", "../../outside/f")] {
            tree.link(&link(path, target), &entropy).expect("made");
            assert_eq!(fs::read_link(root.join(path)).expect("a link"), Path::new(target));
        }
        let code_of = |refused: Result<PathBuf, Failure>| refused.expect_err("a link").code;
        for mut tree in [tree, LocalTree::new(&root, GetOptions::default())] {
            assert_eq!(code_of(tree.file("out/f")), code::WRONG_KIND);
            assert_eq!(code_of(tree.file("out/a/f")), code::WRONG_KIND);
            assert_eq!(code_of(tree.file("real/f")), code::WRONG_KIND);
            for dir in ["out", "out/a", "real/f/b"] {
                let refused = tree.make_dir(dir, &mut MadeDirs::default());
                assert_eq!(refused.expect_err("a link").code, code::WRONG_KIND, "{dir}");
            }
            tree.file("real/other").expect("no link is on the way");
        }
        assert_eq!(fs::read_dir(&outside).expect("listed").count(), 1);
        // A link takes the place of a link, and of nothing else.
        let mut tree = LocalTree::new(&root, GetOptions::default());
        tree.link(&link("out", "elsewhere"), &entropy).expect("replaced");
        assert_eq!(fs::read_link(root.join("out")).expect("a link"), Path::new("elsewhere"));
        fs::write(root.join("file"), "mine").expect("written");
        for there in ["file", "real"] {
            let refused = tree.link(&link(there, "x"), &entropy).expect_err("no link");
            assert_eq!(refused.code, code::WRONG_KIND, "{there}");
        }
        let if_absent = GetOptions { if_absent: true, ..GetOptions::default() };
        let refused = LocalTree::new(&root, if_absent).link(&link("out", "x"), &entropy);
        assert_eq!(refused.expect_err("there").code, code::EXISTS);
        assert_eq!(fs::read_dir(&root).expect("listed").count(), 3, "nothing is left over");
    }
}
