//! Directories that nobody but their owner enters. Keys, the catalog, and files on their way to the pool lie in them, and
//! some of these are made with the process's own mode: what keeps others out is the directory.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// The bits of a mode that let others than the owner in.
const OTHERS: u32 = 0o077;

/// Makes a directory, with those above it that are missing, or closes one that is there to others.
pub fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    close_to_others(dir)
}

/// Closes a directory of this user to all others. Whoever made it may have had any umask. One of another user is left
/// as it is, such as the root of a disk that an administrator mounted.
pub fn close_to_others(dir: &Path) -> io::Result<()> {
    let found = fs::metadata(dir)?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if is_own && found.mode() & OTHERS != 0 {
        fs::set_permissions(dir, Permissions::from_mode(found.mode() & 0o7777 & !OTHERS))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_directory_is_closed_to_others_whoever_made_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o7777;
        fs::create_dir(at("made")).expect("made");
        fs::set_permissions(at("made"), Permissions::from_mode(0o2777)).expect("set");
        make(&at("made")).expect("made private");
        make(&at("a/b")).expect("made private");
        assert_eq!(mode(&at("made")) & 0o777, 0o700);
        assert_eq!([mode(&at("a")) & OTHERS, mode(&at("a/b")) & OTHERS], [0, 0]);
    }
}
