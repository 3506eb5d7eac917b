//! The files of a donor in its state directory, which go when its membership has ended.

use super::{bill, measured_impact, traffic};
use potluck_wire::identity::Identity;
use std::fs;
use std::io;
use std::path::Path;

/// The directory below the daemon's own state that holds the state directories of further donors.
pub const STATES: &str = "dirs";
/// The files that this program keeps in a donor's state directory, besides those of the donor and the identity.
const OWN_FILES: [&str; 7] = [
    "settings.toml",
    "daemon.json",
    "joining.json",
    traffic::FILE,
    bill::FILES[0],
    bill::FILES[1],
    measured_impact::FILE,
];

/// Removes a member's identity and a donor's state from `dir`, and then the files called `last`. Returns whether the
/// directory is gone, and not only these files.
pub fn remove_state(dir: &Path, last: &[&str]) -> io::Result<bool> {
    for file in potluck_donor::STATE_FILES.iter().chain(&OWN_FILES) {
        remove_file(&dir.join(file))?;
    }
    Identity::remove(dir)?;
    last.iter().try_for_each(|file| remove_file(&dir.join(file)))?;
    let removed = fs::remove_dir(dir);
    if let Some(above) = dir.parent().filter(|above| above.ends_with(STATES)) {
        // This fails if other directories are lent, whose donors have their state there.
        let _ = fs::remove_dir(above);
    }
    Ok(removed.is_ok() || removed.is_err_and(|why| why.kind() == io::ErrorKind::NotFound))
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}
