//! What a writer notes of a file for other programs, beside content and attributes, such as the type of the content.
//!
//! It belongs to a version: whoever writes the file anew notes anew, and copies have it too.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most bytes of all that is noted of one file: what S3 allows (2 KiB of user metadata), and as much again.
pub const MOST_METADATA: usize = 4096;

/// What a writer notes of a file for other programs. The pool keeps it and does not look at it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileMetadata {
    /// The entity tag of the content as HTTP clients are told it, without quotes: for S3 the MD5 of the content in hex,
    /// or that of the MD5s of its parts with their number behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Headers of HTTP that come with the content, such as `content-type`, by their names in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What the user noted, by keys of the user's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user: BTreeMap<String, String>,
}

impl FileMetadata {
    /// Returns the bytes of all names and values.
    pub fn bytes(&self) -> usize {
        let pairs = self.headers.iter().chain(&self.user);
        let pairs: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        pairs + self.etag.as_ref().map_or(0, String::len)
    }

    /// Returns whether it is so large that no file can have it.
    pub fn is_too_large(&self) -> bool {
        self.bytes() > MOST_METADATA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_bounded_by_all_its_texts_together() {
        let mut metadata = FileMetadata::default();
        metadata.user.insert("k".into(), "v".repeat(MOST_METADATA - 1));
        assert!(!metadata.is_too_large());
        metadata.etag = Some("e".into());
        assert!(metadata.is_too_large());
    }
}
