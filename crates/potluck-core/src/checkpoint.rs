//! Checkpoints: files that become visible at one moment, and the directories in which they wait for it.
//!
//! The files of a checkpoint are staged in a directory with a name of its own kind, beside the directory that they will
//! become, and listings leave it out. The name holds the checkpoint's identifier. That is random, except for a file
//! that several writers share, so only those can read the content who were told the identifier and have the rights in
//! the space besides.

use crate::chunk::Digest;
use crate::ids::hex_id;
use crate::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The beginning of the names of all staging directories; the identifier of the checkpoint follows.
const PREFIX: &str = ".potluck-ckpt-";

hex_id!(
    /// The identifier of a checkpoint, from its begin to its commit or abort. The client that begins the checkpoint
    /// draws it at random, or derives it from the path of a shared file ([`CheckpointId::of_shared_file`]). A member
    /// who knows it, and has the rights in the space, reaches the staged files.
    CheckpointId,
    16
);

impl CheckpointId {
    /// Returns the name of the directory in which the checkpoint's files are staged.
    pub fn staging_name(&self) -> String {
        format!("{PREFIX}{self}")
    }

    /// Returns the identifier of the checkpoint in which several writers share the file at `path`. It follows from the
    /// path, so that the writers need not tell it to one another.
    pub fn of_shared_file(path: &PoolPath) -> Self {
        let name = Digest::of(format!("shared file {path}").as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&name.0[..16]);
        Self(id)
    }

    /// Returns the checkpoint whose files are staged in a directory of this name; `None` for any other name.
    pub fn of_staging_name(name: &str) -> Option<Self> {
        let text = name.strip_prefix(PREFIX)?;
        // Other spellings of the same number are names that anybody may use, and no staging directories.
        text.parse().ok().filter(|id: &Self| id.to_string() == text)
    }
}

/// A path at or below a staging directory, divided at that directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedPlace {
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// The path of its staging directory.
    pub staging: PoolPath,
    /// The names below that directory.
    pub below: Vec<String>,
}

impl StagedPlace {
    /// Splits a path that is, or is below, a staging directory; returns `None` for any other path. Where one staging
    /// directory is inside another, the outermost counts.
    pub fn of(path: &PoolPath) -> Option<Self> {
        let mut ids = path.names().iter().map(|name| CheckpointId::of_staging_name(name));
        let depth = ids.position(|id| id.is_some())?;
        let id = CheckpointId::of_staging_name(&path.names()[depth])?;
        let mut staging = path.clone();
        while staging.names().len() > depth + 1 {
            staging = staging.parent()?;
        }
        Some(Self { id, staging, below: path.names()[depth + 1..].to_vec() })
    }
}

/// The way in which files that were staged for a checkpoint take their places at its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitStyle {
    /// The files are the whole content of the target: a directory that was there before is gone.
    Replace,
    /// The files are added to the content of the target, and replace files of the same names.
    Merge,
    /// The files are what several writers contribute to one file, which is the target. A client makes a version of
    /// them: there is nothing to commit.
    Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_the_checkpoint_that_it_is_staged_in() {
        let id = CheckpointId([0xa5; 16]);
        let at = |text: &str| -> PoolPath { text.parse().expect("a path") };
        let staging = at(&format!("pot://lab/run/{}", id.staging_name()));
        let file = staging.join("d").and_then(|dir| dir.join("f")).expect("a path");
        let below = vec!["d".to_owned(), "f".to_owned()];
        let place = StagedPlace { id, staging: staging.clone(), below };
        assert_eq!(StagedPlace::of(&file), Some(place));
        assert_eq!(StagedPlace::of(&staging).map(|place| place.below.len()), Some(0));
        for other in ["pot://lab/run", "pot://", "pot://lab/.potluck-ckpt-x/f"] {
            assert_eq!(StagedPlace::of(&at(other)), None, "{other}");
        }
        let capital = format!("pot://lab/{PREFIX}{}", "A5".repeat(16));
        assert_eq!(
            StagedPlace::of(&at(&capital)),
            None,
            "another name than that of the checkpoint"
        );
    }
}
