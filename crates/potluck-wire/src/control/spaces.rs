//! The calls about spaces.

use super::{Call, Done, call};
use potluck_core::policy::Policy;
use serde::{Deserialize, Serialize};

/// Makes a space, in which its maker has all rights.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceCreate {
    /// The name of the space.
    pub name: String,
    /// The policy of the space.
    pub policy: Policy,
}
call!(SpaceCreate => SpaceCreated, "space-create", once);

/// A space that was made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceCreated {
    /// Advice on the policy of the space, which its owner should read before something is stored.
    pub advice: Vec<String>,
}

/// Removes a space (members who manage it). The call is refused while anything is in the space unless it is
/// `recursive`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceRemove {
    /// The name of the space.
    pub name: String,
    /// True if everything in the space is removed with it.
    #[serde(default)]
    pub recursive: bool,
}
call!(SpaceRemove => Done, "space-remove", once);

/// Lists the spaces that the caller may list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceList {}
call!(SpaceList => Spaces, "space-list");

/// Spaces of the pool.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Spaces {
    /// The spaces, in order of their names.
    pub spaces: Vec<SpaceInfo>,
}

/// A space of the pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceInfo {
    /// The name of the space.
    pub name: String,
    /// The policy of the space.
    pub policy: Policy,
    /// The number of files in the space.
    #[serde(default)]
    pub files: u64,
    /// The size of the files together, in bytes of plaintext, before copies and dedup.
    #[serde(default)]
    pub bytes: u64,
    /// The number of files of up to 4 KiB, which live in the catalog.
    #[serde(default)]
    pub in_catalog: u64,
}
