//! The calls to read files.

use super::names::is_none;
use super::{Call, Callers, Done, call};
use super::{DonorAccess, DonorTraffic};
use crate::packed::{Blob, Packed, PackedRecord};
use potluck_core::attributes::{EntryAttributes, FileOwner, FileTime, Permissions};
use potluck_core::chunk::ChunkName;
use potluck_core::chunk::Digest;
use potluck_core::erasure::Ec;
use potluck_core::file_metadata::FileMetadata;
use potluck_core::ids::DonorId;
use potluck_core::ids::KeyNumber;
use potluck_core::ids::VersionId;
use potluck_core::link_target::LinkTarget;
use potluck_core::origin::Origin;
use potluck_core::path::PoolPath;
use potluck_core::policy::Race;
use potluck_core::seal::SpaceKeys;
use serde::{Deserialize, Serialize};

/// Opens a file, or page by page all files of a tree, for reading.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open {
    /// The path of the file or directory to open.
    pub path: PoolPath,
    /// True if all files of a directory are opened; otherwise a directory is refused.
    #[serde(default)]
    pub recursive: bool,
    /// The page continues after this [`Opened::next`].
    #[serde(default)]
    pub after: Option<String>,
    /// True if a single file stays readable when it is replaced or removed: for a minute, and for longer as often as
    /// its lease is renewed ([`RenewLeases`]).
    #[serde(default)]
    pub leased: bool,
}
call!(Open => Opened, "open", Users, "reading files");

/// Opens a part of a file that is made of parts and was opened before. The part can be opened for a while after the
/// file was replaced or removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenPart {
    /// The path at which the file was found.
    pub path: PoolPath,
    /// The version of the file.
    pub version: VersionId,
    /// The number of the part, from 0.
    pub number: u32,
}
call!(OpenPart => Opened, "open-part", Users, "reading files");

/// Renews the leases of versions that the caller opened with [`Open::leased`] and still has open. It is to be called
/// three times a minute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RenewLeases {
    /// The space in which the versions were opened, which the caller must still be allowed to read.
    pub space: String,
    /// The versions that are open.
    pub versions: Vec<VersionId>,
    /// The donors for which the caller needs new tickets: a file that was removed cannot be opened again for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub donors: Vec<DonorId>,
    /// The donors that the versions are read from, whose loads the caller asks for; the manager tells those of the
    /// first few thousand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_from: Vec<DonorId>,
    /// The traffic with donors since the caller last told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<DonorTraffic>,
}
call!(RenewLeases => RenewedLeases, "renew-leases", Users, "reading files", at most 1 << 20);

/// The leases that could not be renewed, and the new tickets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RenewedLeases {
    /// The donors for which tickets were asked, as far as they belong to the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub donors: Vec<DonorAccess>,
    /// The loads of the donors that the versions are read from, as far as they belong to the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<DonorLoad>,
    /// The versions whose leases had run out, or that the caller never leased.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<VersionId>,
}

/// The load of a donor as the manager heard it last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DonorLoad {
    /// The id of the donor.
    pub donor: DonorId,
    /// True if the donor was heard within the last seconds.
    pub live: bool,
    /// The donor's load as a score from 0 (idle) to 1 ([`potluck_core::load::Load::score`]).
    pub load: f32,
}

/// Open files and what is needed to read them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Opened {
    /// The directories below the path, relative to it, parents first; empty ones included.
    #[serde(default)]
    pub dirs: Vec<OpenDir>,
    /// The symbolic links at and below the path; a single one has the relative path "".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<OpenLink>,
    /// The files; a single file has the relative path "".
    pub files: Vec<OpenFile>,
    /// Every donor that holds a chunk of these files.
    pub donors: Vec<DonorAccess>,
    /// The space's secrets, where the space is sealed.
    #[serde(default, skip_serializing_if = "SpaceKeys::is_empty")]
    pub space_keys: SpaceKeys,
    /// True if several writers share the one file that was opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
    /// The place to pass as [`Open::after`] for the next page; set when there is more.
    #[serde(default)]
    pub next: Option<String>,
}

/// A symbolic link that was met when a tree was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenLink {
    /// The path of the link, relative to the opened path.
    pub path: String,
    /// The path to which the link leads.
    pub target: LinkTarget,
    /// The modification time, in nanoseconds since 1970.
    #[serde(default, rename = "mtime_ns")]
    pub mtime: FileTime,
    /// The owner of the link, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
}

/// A directory of a tree that was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDir {
    /// The path of the directory, relative to the opened path.
    pub path: String,
    /// The attributes of the directory.
    #[serde(flatten)]
    pub attributes: EntryAttributes,
}

/// One file that was opened, with what is needed to read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenFile {
    /// The path of the file, relative to the opened path.
    pub path: String,
    /// The version that is read, whatever is committed meanwhile.
    pub version: VersionId,
    /// The size of the file in bytes of plaintext.
    pub size: u64,
    /// The bytes of the file that are in holes, which nobody sends.
    #[serde(default, skip_serializing_if = "is_none")]
    pub holes: u64,
    /// The digest of the file's plaintext.
    pub digest: Digest,
    /// The modification time, in nanoseconds since 1970.
    #[serde(rename = "mtime_ns")]
    pub mtime: FileTime,
    /// The permissions of the file.
    #[serde(default)]
    pub permissions: Permissions,
    /// The owner of the file, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// The time of the last change of content, name or attributes, nanoseconds since 1970.
    #[serde(default, rename = "ctime_ns")]
    pub changed: FileTime,
    /// The access time that a program set, if one did, nanoseconds since 1970.
    #[serde(default, rename = "atime_ns", skip_serializing_if = "Option::is_none")]
    pub accessed: Option<FileTime>,
    /// What the writer noted of the file for other programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FileMetadata>,
    /// The content of the file, where it lives in the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Blob>,
    /// The pages of the file's recipe, when the content is not inline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Blob>,
    /// The donors that hold each chunk of the recipe, live ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Vec<DonorId>>,
    /// The erasure code of the file, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// The names of the parity chunks, k for each group in order. A group's parity is as long as the longest of its
    /// stored data chunks.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub parity: Packed<ChunkName>,
    /// The donors that hold each parity chunk, live ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parity_holders: Vec<Vec<DonorId>>,
    /// The way in which reads of the file race.
    #[serde(default)]
    pub race: Race,
    /// The number of the file's parts; 0 where it is not made of parts. The recipe and holders are those of its parts,
    /// each of which is opened by itself ([`OpenPart`]).
    #[serde(default)]
    pub part_count: u32,
    /// The parts of the file that are stored, in order; all others are holes.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub parts: Packed<StoredPart>,
    /// The plaintext bytes of a chunk, or the most of one where the file is cut by content. The size of the file's
    /// parts follows from it ([`potluck_core::recipe::part_bytes_of`]).
    #[serde(default)]
    pub chunk_size: u32,
    /// The number of the key that seals the content, where it is sealed and not in parts, each of which has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyNumber>,
    /// The place that the file was imported from, if it is cached: chunks that are lost come from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
}

impl OpenFile {
    /// Returns the number of bytes of the file that are in no hole.
    pub fn data(&self) -> u64 {
        self.size.saturating_sub(self.holes)
    }
}

/// A part of a file that is not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPart {
    /// The number of the part, from 0.
    pub number: u32,
    /// The digest of the part's plaintext.
    pub digest: Digest,
}

impl PackedRecord for StoredPart {
    const SIZE: usize = 36;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.digest.0);
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (number, digest) = bytes.split_first_chunk()?;
        Some(Self { number: u32::from_le_bytes(*number), digest: Digest(digest.try_into().ok()?) })
    }
}

/// Reports that a donor's copy of a chunk cannot be read (users). The donor looks at the copy itself before anything
/// is believed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The name of the chunk.
    pub chunk: ChunkName,
    /// The donor that has the copy.
    pub donor: DonorId,
    /// The fault of the copy.
    pub fault: CopyFault,
}
call!(Report => Reported, "report", Users, "reading files");

/// The manager's reply to a report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reported {
    /// True if the report counted for the copy. A copy that was let go meanwhile is missing for good reason, and does
    /// not count.
    pub counted: bool,
}

/// Reports that a donor that is there according to the manager answered this member at none of its addresses (users).
/// The manager tries for itself, and shows in `status` what remains of the report; nothing else depends on it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unreached {
    /// The donor that does not answer.
    pub donor: DonorId,
}
call!(Unreached => Done, "unreached", Users, "reading files");

/// The way in which a copy failed its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyFault {
    /// The donor says that it does not have the chunk.
    Missing,
    /// The donor sent bytes that are not the chunk.
    WrongBytes,
    /// The donor's disk failed to read the chunk.
    Unreadable,
}
