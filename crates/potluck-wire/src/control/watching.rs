//! Watching directories: a client that keeps metadata is told what changes, and brings what it kept up to date.
//!
//! A client has one watch stream. Directories that it asks about by [`Refresh`] are watched for it from before they
//! are read, and [`Watch`] brings the names that changed in them. The stream is a row of calls, each of which is
//! answered as soon as something changed: an answer that was lost is asked for again, and one without news is a
//! heartbeat (docs/notes/0010-metadata-cache.md).

use super::{Call, Callers, EntryKind, ListedEntry, call};
use crate::error::Failure;
use potluck_core::attributes::FileTime;
use potluck_core::chunk::Digest;
use potluck_core::entry_stamp::EntryStamp;
use potluck_core::file_digest::FileDigest;
use potluck_core::ids::WatchId;
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The time that a [`Watch`] waits for something to change before it is answered without news.
pub const WATCH_WAIT: Duration = Duration::from_secs(2);

/// The most names and directories together that one [`Refresh`] asks about; directories beyond these are not answered,
/// except the first one ([`refreshed_at_once`]).
pub const MAX_REFRESHED: usize = 20_000;
/// The bytes of a directory's path that count as one name more.
const PATH_UNIT: usize = 512;

/// Waits for changes in the directories that a stream watches.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Watch {
    /// The stream to wait on. A call without one opens a stream, and so does a call with one that the manager does
    /// not know, as after its restart.
    #[serde(default)]
    pub stream: Option<WatchId>,
    /// The number of the last news that arrived.
    #[serde(default)]
    pub heard: u64,
}
impl Call for Watch {
    const NAME: &'static str = "watch";
    const BY: Callers = Callers::Users;
    const WHAT: &'static str = "looking at files";
    /// The deadline passes soon after the call should have been answered without news, so that a silent connection is
    /// noticed.
    const DEADLINE: Duration = WATCH_WAIT.saturating_mul(3);
    type Reply = WatchNews;
}

/// The news of a watch stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchNews {
    /// The identifier of the stream. Where it is another than was asked for, changes may have been missed.
    pub stream: WatchId,
    /// The number of this news, which the next call acknowledges.
    #[serde(default)]
    pub number: u64,
    /// True if changes were left out: anything may have changed, and nothing is watched any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everything: bool,
    /// The directories in which something changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirs: Vec<DirChange>,
}

/// The name by which a space's own directory is among the names of a [change](DirChange::attributes) whose attributes
/// were set.
pub const OWN_NAME: &str = ".";

/// The changes in a directory. Where a name is a directory, what is below it may have changed as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirChange {
    /// The directory that has the names.
    pub dir: PoolPath,
    /// True if any name may have changed, and the directory is not watched any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The names that lead to something else now, or to the same with other attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The names of which nothing but attributes was set: what they lead to, and what is below, is as before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
    /// The names of directories that were modified because of names in them, and the times at which they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modified: Vec<(String, FileTime)>,
    /// The names that were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
}

impl DirChange {
    /// Makes the changes of a directory in which nothing changed yet.
    pub fn new(dir: PoolPath) -> Self {
        let (changed, attributes, modified, gone) = Default::default();
        Self { dir, all: false, changed, attributes, modified, gone }
    }
}

/// Brings what a client knows of directories up to date: the reply has what differs from that.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Refresh {
    /// The stream that watches the directories from before they are read.
    #[serde(default)]
    pub watch: Option<WatchId>,
    /// The directories that are asked about.
    pub dirs: Vec<KnownDir>,
}
call!(Refresh => Refreshed, "refresh", Users, "looking at files", at most MAX_REFRESHED * 2048);

/// A directory as a client remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDir {
    /// The path of the directory.
    pub path: PoolPath,
    /// The names that are asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<KnownName>,
    /// True if all other names of the directory are asked about, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The place where a page of the other names ended, after which the next begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The digest of all entries that the client knows, instead of names: the reply only tells whether they are still
    /// the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

impl KnownDir {
    /// Makes the question about a directory, without anything that is asked yet.
    pub fn new(path: PoolPath) -> Self {
        Self { path, names: Vec::new(), whole: false, after: None, digest: None }
    }
}

/// A name in a directory as a client remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownName {
    /// The name in the directory.
    pub name: String,
    /// The stamp of the entry that the client knows, [`EntryStamp::NOTHING`] where it knows that there is none;
    /// `None` where it does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<EntryStamp>,
}

/// The differences between the knowledge of a client and the catalog.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Refreshed {
    /// The directories in the order in which they were asked about. Those beyond what one call looks at are missing.
    pub dirs: Vec<DirNews>,
}

/// Returns the number of these directories, from the first on, that one call asks about: at least one.
pub fn refreshed_at_once(dirs: &[KnownDir]) -> usize {
    let mut left = MAX_REFRESHED;
    let fits = dirs.iter().take_while(|dir| {
        let path: usize = dir.path.names().iter().map(|name| 1 + name.len()).sum();
        let cost = 1 + path / PATH_UNIT + dir.names.len();
        let fits = cost <= left;
        left = left.saturating_sub(cost);
        fits
    });
    fits.count().max(1)
}

/// The differences between a directory and what a client knows of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DirNews {
    /// True if the stream is told from now on what changes in the directory.
    #[serde(default)]
    pub watched: bool,
    /// True if the digest that was sent is that of the entries in the directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same: bool,
    /// The entries that differ from what the client knows of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<ListedEntry>,
    /// The names that were asked about and lead to nothing, unless the client knows that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// The place after which the next page begins; set when there is more of the whole directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The reason why nothing is told of the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl ListedEntry {
    /// Returns the stamp of what programs see of the entry: its kind, size, version, attributes and target.
    pub fn stamp(&self) -> EntryStamp {
        let kind = match self.kind {
            EntryKind::File => 0_u8,
            EntryKind::Dir => 1,
            EntryKind::Link => 2,
        };
        let mut bytes = vec![kind];
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(self.mtime.0.to_le_bytes());
        bytes.extend(self.changed.0.to_le_bytes());
        bytes.push(u8::from(self.accessed.is_some()));
        bytes.extend(self.accessed.unwrap_or_default().0.to_le_bytes());
        bytes.extend(self.permissions.bits().to_le_bytes());
        let owner = self.owner.map(|owner| u64::from(owner.uid) << 32 | u64::from(owner.gid));
        bytes.push(u8::from(owner.is_some()));
        bytes.extend(owner.unwrap_or_default().to_le_bytes());
        bytes.extend(self.version.map_or(0, |version| version.0).to_le_bytes());
        bytes.extend(self.target.as_ref().map_or("", LinkTarget::as_str).as_bytes());
        EntryStamp::of(&bytes)
    }
}

/// A digest of the entries of a whole directory, which are added in order of their names.
#[derive(Debug, Default)]
pub struct DirDigest(FileDigest);

impl DirDigest {
    /// Adds the next entry.
    pub fn add(&mut self, name: &str, stamp: &EntryStamp) {
        self.0.update(name.as_bytes());
        self.0.update(&[0]);
        self.0.update(&stamp.0);
    }

    /// Returns the digest of the entries.
    pub fn finish(self) -> Digest {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_paths_fit_their_calls() {
        let name = format!("/{}", "d".repeat(254));
        let path: PoolPath = format!("pot://lab{}", name.repeat(16)).parse().expect("a path");
        let mut dirs = vec![KnownDir::new(path); MAX_REFRESHED];
        dirs.truncate(refreshed_at_once(&dirs));
        let count = dirs.len();
        assert!(count > 1000, "{count}");
        let call = serde_json::to_vec(&Refresh { watch: None, dirs }).expect("JSON");
        assert!(call.len() < Refresh::MOST_BODY, "{count} take {} bytes", call.len());
    }
}
