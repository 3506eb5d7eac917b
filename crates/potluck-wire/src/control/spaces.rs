//! The calls about spaces.

use super::{Call, Callers, Done, Opened, call};
use potluck_core::ids::VersionId;
use potluck_core::policy::{Policy, Redundancy};
use serde::{Deserialize, Serialize};

/// Makes a space, in which its maker has all rights.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceCreate {
    /// The name of the space.
    pub name: String,
    /// The policy of the space. The manager sets the parts that follow the pool's defaults.
    pub policy: Policy,
}
call!(SpaceCreate => SpaceCreated, "space-create", Users, "`potluck space create` or `rm`", once);

/// A space that was made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceCreated {
    /// The policy that the space has.
    pub policy: Policy,
    /// What the pool's defaults came to, in words.
    pub chosen: Vec<String>,
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
call!(SpaceRemove => Done, "space-remove", Users, "`potluck space create` or `rm`", once);

/// Gives a sealed space a new key (members who manage it), which seals what is written from then on. What is there stays
/// sealed with the earlier keys until clients have sealed it again ([`OldFiles`], [`super::Condition::SealsAgain`]).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceRekey {
    /// The name of the space.
    pub space: String,
    /// The step that is asked for.
    #[serde(default)]
    pub step: RekeyStep,
}
call!(SpaceRekey => OldContent, "space-rekey", Users, "`potluck space rekey`", once);

/// A step in the change of a space's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RekeyStep {
    /// There is to be a new key, unless an earlier change is unfinished and nobody lost the right to read since.
    #[default]
    OrGoOn,
    /// There is to be a new key in any case.
    Anew,
    /// Earlier keys that nothing needs any more are dropped.
    Finish,
}

/// The content of a space that is sealed with earlier keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OldContent {
    /// True if the space has got a new key by this call.
    pub new_key: bool,
    /// The number of files, and of parts of large files, old versions included.
    pub versions: u64,
    /// The size of these together, in bytes of plaintext.
    pub bytes: u64,
    /// The number of those that are being written or deleted, beside these.
    pub passing: u64,
    /// The number of write sessions that began under earlier keys and go on under them.
    pub sessions: u64,
}

impl OldContent {
    /// Returns whether anything needs an earlier key.
    pub fn is_there(&self) -> bool {
        self.versions + self.passing + self.sessions > 0
    }
}

/// Opens, page by page, the files of a space that are sealed with earlier keys, kept versions included (members who
/// manage the space and may read it).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OldFiles {
    /// The name of the space.
    pub space: String,
    /// The page continues after this version.
    #[serde(default)]
    pub after: VersionId,
}
call!(OldFiles => OpenedOldFiles, "old-files", Users, "`potluck space rekey`");

/// Open files that are sealed with earlier keys. Parts of large files are among them, each as a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OpenedOldFiles {
    /// The files, which have their paths in the pool as far as they have any.
    pub opened: Opened,
    /// The redundancy of each file.
    pub kept: Vec<Redundancy>,
    /// The version after which the next page begins; set when there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<VersionId>,
}

/// Lists the spaces that the caller may list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceList {}
call!(SpaceList => Spaces, "space-list", Users, "`potluck space ls` or `who`");

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
    /// The bytes of the files together that are in no hole, as plaintext, before copies and dedup.
    #[serde(default)]
    pub bytes: u64,
    /// The number of files of up to 4 KiB, which live in the catalog.
    #[serde(default)]
    pub in_catalog: u64,
    /// True if somebody who could read the space has lost that right since its key was made, so that it should get
    /// another ([`SpaceRekey`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rekey_advised: bool,
}
