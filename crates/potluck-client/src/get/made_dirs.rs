//! Directories that a download makes on its way. Those that are still empty when it fails or is interrupted are
//! removed.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that were made, those above before those below. Dropping this removes the empty ones
/// that [`MadeDirs::stay`] did not keep.
#[derive(Debug, Default)]
pub struct MadeDirs(Vec<PathBuf>);

impl MadeDirs {
    /// Makes a directory with those above it; a directory that is there already is left as it is.
    pub fn make(&mut self, dir: &Path) -> io::Result<()> {
        if dir.exists() && !dir.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        // The path is rebuilt from its components to leave out `.`, which cannot be made.
        let dir: PathBuf = dir.components().collect();
        let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
        for dir in missing.into_iter().rev().filter(|dir| !dir.as_os_str().is_empty()) {
            match fs::create_dir(dir) {
                Ok(()) => self.0.push(dir.to_owned()),
                // Another process made the directory meanwhile.
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Notes that a directory was made.
    pub fn add(&mut self, dir: PathBuf) {
        self.0.push(dir);
    }

    /// Keeps the directories that have everything that belongs into them, even if they are empty: those that are above
    /// none of the files at `lacking`.
    pub fn stay(&mut self, lacking: &[PathBuf]) {
        // Of a large tree both are many, as when the disk is full.
        let mut above: HashSet<&Path> = HashSet::new();
        for file in lacking {
            // The directories above one that is known are known, too.
            let mut own = file.ancestors();
            while own.next().is_some_and(|dir| above.insert(dir)) {}
        }
        self.0.retain(|dir| above.contains(dir.as_path()));
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for dir in self.0.iter().rev() {
            let _ = fs::remove_dir(dir); // this fails for a directory that is not empty
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_parent_directories_are_removed_after_a_failed_download() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        let mut made = MadeDirs::default();
        for dir in ["a/b/c", "a/b/d", "a/bc", "e"] {
            made.make(&at(dir)).expect("made");
        }
        made.stay(&["a/b/c/1", "a/b/c/2", "a/b/3"].map(at));
        let left: Vec<&Path> = made.0.iter().map(PathBuf::as_path).collect();
        assert_eq!(left, ["a", "a/b", "a/b/c"].map(at));
        made.stay(&[]);
        assert!(made.0.is_empty());
    }

    #[test]
    fn only_what_stayed_empty_for_a_failure_goes() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("mine")).expect("made");
        let mut made = MadeDirs::default();
        for dir in ["mine", "a/./failed", "a/half", "a/empty"] {
            made.make(&at(dir)).expect("made");
        }
        fs::write(at("a/half/one"), "1").expect("written");
        made.stay(&[at("a/failed/x"), at("a/half/y")]);
        drop(made);
        let there = |names: &[&str]| names.iter().map(|name| at(name).exists()).collect::<Vec<_>>();
        assert_eq!(
            there(&["mine", "a/half/one", "a/empty", "a/failed"]),
            [true, true, true, false]
        );

        let mut made = MadeDirs::default();
        made.make(&at("b/c")).expect("made");
        drop(made);
        assert!(!at("b").exists(), "one that was interrupted leaves nothing");
        assert!(MadeDirs::default().make(&at("a/half/one")).is_err(), "a file");
    }
}
