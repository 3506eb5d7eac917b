//! The places where the catalog keeps entries that were replaced or removed: in a directory of a reserved name beside
//! them.
//!
//! Old versions are entries like all others, in the directory [`KEPT_DIR`] of the directory that they were in, under
//! their numbers. So they are kept safe, counted, read and logged as all files are; listings leave them out, and only
//! the catalog writes there.

use crate::ids::VersionId;
use crate::path::{BadPath, PoolPath};

/// The name of the directory in which a directory keeps the entries that were replaced or removed in it.
pub const KEPT_DIR: &str = ".potluck-kept";

/// The name of the directory in which a directory shows its snapshots, in [`SNAPSHOTS`].
pub const SNAPSHOT_DIR: &str = ".potluck";
/// The name of the directory of snapshots in [`SNAPSHOT_DIR`].
pub const SNAPSHOTS: &str = "snapshots";

/// Returns true for a name that only the catalog gives and that no listing shows.
pub fn is_reserved(name: &str) -> bool {
    [KEPT_DIR, SNAPSHOT_DIR].contains(&name)
}

/// Returns true for a path that leads to or through a directory with a reserved name, where members may not write.
pub fn is_read_only(path: &PoolPath) -> bool {
    path.names().iter().any(|name| is_reserved(name))
}

/// The place of a file, directory or link that was replaced or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPlace {
    /// The directory in which the thing was.
    pub dir: PoolPath,
    /// The number of the version, or the number that a directory or a link was given when it was kept.
    pub number: VersionId,
}

impl KeptPlace {
    /// Returns the place that a path leads to; `None` where it leads to no such place.
    pub fn of(path: &PoolPath) -> Option<Self> {
        let number = path.file_name()?.parse().ok()?;
        let dir = path.parent()?;
        let place = Self { dir: dir.parent()?, number: VersionId(number) };
        (dir.file_name() == Some(KEPT_DIR) && path.file_name() == Some(&place.name()))
            .then_some(place)
    }

    /// Returns the name that the thing has in [`KEPT_DIR`].
    pub fn name(&self) -> String {
        self.number.0.to_string()
    }

    /// Returns the path that leads to the kept thing.
    pub fn path(&self) -> Result<PoolPath, BadPath> {
        self.dir.join(KEPT_DIR)?.join(&self.name())
    }
}

/// The place by which a snapshot of a directory is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlace {
    /// The directory that the snapshot is of.
    pub dir: PoolPath,
    /// The name of the snapshot.
    pub name: String,
}

impl SnapshotPlace {
    /// Returns the snapshot that a path leads to; `None` where it leads to none.
    pub fn of(path: &PoolPath) -> Option<Self> {
        let (name, above) = (path.file_name()?, path.parent()?);
        let holder = above.parent()?;
        let is_place =
            above.file_name() == Some(SNAPSHOTS) && holder.file_name() == Some(SNAPSHOT_DIR);
        Some(Self { dir: holder.parent()?, name: name.into() }).filter(|_| is_place)
    }

    /// Returns the path that leads to the snapshot.
    pub fn path(&self) -> Result<PoolPath, BadPath> {
        self.dir.join(SNAPSHOT_DIR)?.join(SNAPSHOTS)?.join(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_place_is_known_by_its_path() {
        let at = |text: &str| text.parse::<PoolPath>().expect("a path");
        let place = KeptPlace { dir: at("pot://lab/a"), number: VersionId(7) };
        let path = place.path().expect("short");
        assert_eq!(path, at("pot://lab/a/.potluck-kept/7"));
        assert_eq!(KeptPlace::of(&path), Some(place));
        let in_space = KeptPlace::of(&at("pot://lab/.potluck-kept/12")).expect("a place");
        assert_eq!(in_space.dir, at("pot://lab"));
        for other in
            ["pot://lab/.potluck-kept", "pot://lab/.potluck-kept/07", "pot://lab/a/7", "pot://lab"]
        {
            assert_eq!(KeptPlace::of(&at(other)), None, "{other}");
        }
        assert!(is_read_only(&at("pot://lab/a/.potluck-kept/7/b/c")));
        assert!(!is_read_only(&at("pot://lab/a.potluck-kept/7")));
    }

    #[test]
    fn a_snapshot_is_known_by_its_path() {
        let at = |text: &str| text.parse::<PoolPath>().expect("a path");
        let place = SnapshotPlace { dir: at("pot://lab/a"), name: "monday".into() };
        let path = place.path().expect("short");
        assert_eq!(path, at("pot://lab/a/.potluck/snapshots/monday"));
        assert_eq!(SnapshotPlace::of(&path), Some(place));
        assert!(is_read_only(&path) && is_read_only(&at("pot://lab/.potluck")));
        for other in ["pot://lab/a/.potluck/snapshots", "pot://lab/snapshots/monday", "pot://lab"] {
            assert_eq!(SnapshotPlace::of(&at(other)), None, "{other}");
        }
    }
}
