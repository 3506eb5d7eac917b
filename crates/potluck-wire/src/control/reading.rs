//! The calls to read files.

use super::DonorAccess;
use super::{Call, Done, call};
use crate::packed::{Blob, Packed};
use potluck_core::attributes::{EntryAttributes, FileOwner, FileTime, Permissions};
use potluck_core::chunk::ChunkName;
use potluck_core::chunk::Digest;
use potluck_core::erasure::Ec;
use potluck_core::ids::DonorId;
use potluck_core::ids::VersionId;
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use potluck_core::policy::Race;
use potluck_core::seal::SpaceKey;
use serde::{Deserialize, Serialize};

/// Opens a file, or page by page all files of a tree, for reading.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open {
    /// A file or directory.
    pub path: PoolPath,
    /// Whether a directory's files are opened; otherwise a directory is refused.
    #[serde(default)]
    pub recursive: bool,
    /// The page continues after this [`Opened::next`].
    #[serde(default)]
    pub after: Option<String>,
    /// Whether a single file stays readable when it is replaced or removed: for a minute, and for as long as that is
    /// renewed ([`RenewLeases`]).
    #[serde(default)]
    pub leased: bool,
}
call!(Open => Opened, "open");

/// Opens a part of a file that is made of parts, and that was opened before. It can be opened for a while after
/// the file was replaced or removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenPart {
    /// The path at which the file was found.
    pub path: PoolPath,
    /// The version of the file.
    pub version: VersionId,
    /// The number of the part, from 0.
    pub number: u32,
}
call!(OpenPart => Opened, "open-part");

/// The caller has these versions, which it opened with [`Open::leased`], still open. To be called three times a minute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RenewLeases {
    /// The space in which they were opened, which the caller may still read.
    pub space: String,
    /// The versions that are open.
    pub versions: Vec<VersionId>,
    /// Donors for which it needs new tickets: a file that was removed cannot be opened again for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub donors: Vec<DonorId>,
}
call!(RenewLeases => RenewedLeases, "renew-leases", at most 1 << 20);

/// The leases that could not be renewed, and the tickets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RenewedLeases {
    /// The donors that were asked for, as far as they are of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub donors: Vec<DonorAccess>,
    /// Versions whose leases had run out, or that the caller never leased.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<VersionId>,
}

/// Open files and what is needed to read them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Opened {
    /// Directories below the path, relative to it, parents first; empty ones included.
    #[serde(default)]
    pub dirs: Vec<OpenDir>,
    /// The symbolic links; a single one has the relative path "".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<OpenLink>,
    /// The files; a single file has the relative path "".
    pub files: Vec<OpenFile>,
    /// Every donor that holds a chunk of these files.
    pub donors: Vec<DonorAccess>,
    /// The space's secret, when it is sealed.
    #[serde(default)]
    pub space_key: Option<SpaceKey>,
    /// Whether several writers share the one file that was opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
    /// Set when there is more: pass it as [`Open::after`].
    #[serde(default)]
    pub next: Option<String>,
}

/// A symbolic link that was met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenLink {
    /// Relative to the opened path.
    pub path: String,
    /// Where it leads.
    pub target: LinkTarget,
    /// Modification time, nanoseconds since 1970.
    #[serde(default, rename = "mtime_ns")]
    pub mtime: FileTime,
    /// Whom it belongs to, if somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
}

/// A directory of a tree that was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDir {
    /// Relative to the opened path.
    pub path: String,
    /// The attributes of the directory.
    #[serde(flatten)]
    pub attributes: EntryAttributes,
}

/// One file that was opened, with what is needed to read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenFile {
    /// Relative to the opened path.
    pub path: String,
    /// The version that is read, whatever is committed meanwhile.
    pub version: VersionId,
    /// Size of the file in bytes of plaintext.
    pub size: u64,
    /// Digest of the plaintext.
    pub digest: Digest,
    /// Modification time, nanoseconds since 1970.
    #[serde(rename = "mtime_ns")]
    pub mtime: FileTime,
    /// Who may do what with it.
    #[serde(default)]
    pub permissions: Permissions,
    /// Whom it belongs to, if somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// The content, when it lives in the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Blob>,
    /// The pages of the file's recipe, when the content is not inline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Blob>,
    /// Who holds each chunk of the recipe, live donors first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Vec<DonorId>>,
    /// The erasure code of the file, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// Names of the parity chunks, k for each group in order. A group's parity is as long as the
    /// longest of its stored data chunks.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub parity: Packed<ChunkName>,
    /// Who holds each parity chunk, live donors first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parity_holders: Vec<Vec<DonorId>>,
    /// How its reads race.
    #[serde(default)]
    pub race: Race,
    /// The digests of its parts, where it is made of parts. Its recipe and holders are those of its parts then,
    /// each of which is opened by itself ([`OpenPart`]).
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub parts: Packed<Digest>,
    /// Plaintext bytes per chunk: each part but the last has [`potluck_core::recipe::PART_CHUNKS`] chunks of so many.
    #[serde(default)]
    pub chunk_size: u32,
}

/// Tells the manager that a donor's copy cannot be read (users). The donor looks itself before
/// anything is believed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The name of the chunk.
    pub chunk: ChunkName,
    /// The donor that has the copy.
    pub donor: DonorId,
    /// The fault of the copy.
    pub fault: CopyFault,
}
call!(Report => Reported, "report");

/// The manager's reply to a report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reported {
    /// Whether the copy counted as one. What was let go meanwhile is missing for good reason.
    pub counted: bool,
}

/// Tells the manager that a donor, which it says is there, answered this member at none of its addresses
/// (users). The manager tries for itself, and what is left is shown in `status`; nothing else depends on it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unreached {
    /// The donor that does not answer.
    pub donor: DonorId,
}
call!(Unreached => Done, "unreached");

/// How a copy failed its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyFault {
    /// The donor says it does not have it.
    Missing,
    /// The bytes are not the chunk.
    WrongBytes,
    /// The donor's disk failed.
    Unreadable,
}
