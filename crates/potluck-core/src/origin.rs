//! Origins: where the primary copy of a file lives, from which the file was imported and can be fetched again.

use serde::{Deserialize, Serialize};

/// The most bytes of the address of an origin.
pub const MAX_ORIGIN_URI: usize = 2048;
/// The most bytes of an entity tag; longer ones are not kept, as they say nothing that is worth their place.
pub const MAX_ENTITY_TAG: usize = 256;

/// The place that a file was imported from, and what was there at that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The address of the file at its origin, such as `https://host/data.nc`, without a password.
    pub uri: String,
    /// The entity tag that the origin gave the content, if it gave one (RFC 9110, section 8.8.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The time at which the origin says the content was modified last, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_wall_ms: Option<i64>,
    /// The size of the content in bytes.
    pub size: u64,
    /// The wall time at which the content was imported, in milliseconds since 1970.
    pub imported_wall_ms: i64,
}

/// The error of an origin that is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOrigin {
    /// The address is longer than [`MAX_ORIGIN_URI`], or the entity tag than [`MAX_ENTITY_TAG`].
    #[error("the address or the entity tag of an origin is too long")]
    TooLong,
    /// The address has no scheme, or a character that no address has.
    #[error("the address of an origin is not one")]
    NotAnAddress,
    /// The address holds a password, which everybody who may read the file would be shown.
    #[error("the address of an origin holds a password")]
    Password,
}

impl Origin {
    /// Checks that the origin may be kept with a file: its texts are bounded, and it tells no secret.
    ///
    /// Errors: the first bound that does not hold.
    pub fn check(&self) -> Result<(), BadOrigin> {
        let is_long = |tag: &String| tag.len() > MAX_ENTITY_TAG;
        if self.uri.len() > MAX_ORIGIN_URI || self.etag.as_ref().is_some_and(is_long) {
            return Err(BadOrigin::TooLong);
        }
        let (scheme, rest) = self.uri.split_once("://").ok_or(BadOrigin::NotAnAddress)?;
        let is_scheme = !scheme.is_empty()
            && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'+' || c == b'-');
        if !is_scheme || self.uri.chars().any(|c| c.is_control() || c == ' ') {
            return Err(BadOrigin::NotAnAddress);
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        match authority.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => Err(BadOrigin::Password),
            _ => Ok(()),
        }
    }

    /// Returns whether `now`, what is at the origin at present, is the content that was imported: by the entity tag
    /// where both have one, otherwise by size and time.
    pub fn is_unchanged(&self, now: &Self) -> bool {
        let by_tag = self.etag.as_ref().zip(now.etag.as_ref()).map(|(one, other)| one == other);
        let by_time =
            || self.modified_wall_ms.is_some() && self.modified_wall_ms == now.modified_wall_ms;
        self.uri == now.uri && self.size == now.size && by_tag.unwrap_or_else(by_time)
    }
}

/// What the pool promises of a version: to keep it, or to have it near for as long as there is room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// The version is kept, with all the redundancy of its policy.
    #[default]
    Kept,
    /// The version has an origin. Chunks that are lost are fetched from there, and it may be evicted.
    Cached,
    /// The version was evicted: its chunks may go, and are fetched from its origin when they are read.
    Evicted,
}

impl CacheState {
    /// Returns whether the version is kept, so that the loss of a chunk is damage.
    pub fn is_kept(&self) -> bool {
        *self == Self::Kept
    }

    /// Returns the number by which a table keeps the state.
    pub const fn number(self) -> u8 {
        match self {
            Self::Kept => 0,
            Self::Cached => 1,
            Self::Evicted => 2,
        }
    }

    /// Returns the state that a number in a table stands for; `None` for a number that stands for none.
    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Kept),
            1 => Some(Self::Cached),
            2 => Some(Self::Evicted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(uri: &str) -> Origin {
        let (etag, modified_wall_ms) = Default::default();
        Origin { uri: uri.into(), etag, modified_wall_ms, size: 3, imported_wall_ms: 1 }
    }

    #[test]
    fn origin_is_an_address_without_a_password() {
        for good in ["https://host/a.nc", "s3://bucket/key", "file:///srv/a", "ftp://me@host/a@b:c"]
        {
            assert_eq!(origin(good).check(), Ok(()), "{good}");
        }
        assert_eq!(origin("https://me:secret@host/a").check(), Err(BadOrigin::Password));
        for bad in ["", "/srv/a", "://a", "a b://c", "https://host/a b", "https://host/\n"] {
            assert_eq!(origin(bad).check(), Err(BadOrigin::NotAnAddress), "{bad}");
        }
        let long = format!("https://host/{}", "a".repeat(MAX_ORIGIN_URI));
        assert_eq!(origin(&long).check(), Err(BadOrigin::TooLong));
    }

    #[test]
    fn origin_is_unchanged_by_its_tag_or_else_by_time() {
        let of = |etag: Option<&str>, modified_wall_ms| Origin {
            etag: etag.map(str::to_owned),
            modified_wall_ms,
            ..origin("https://host/a")
        };
        assert!(of(Some("x"), Some(1)).is_unchanged(&of(Some("x"), Some(2))));
        assert!(!of(Some("x"), Some(1)).is_unchanged(&of(Some("y"), Some(1))));
        assert!(of(Some("x"), Some(1)).is_unchanged(&of(None, Some(1))));
        assert!(!of(None, Some(1)).is_unchanged(&of(None, Some(2))));
        assert!(!of(None, None).is_unchanged(&of(None, None)), "nothing says that it is the same");
        assert!(!of(Some("x"), None).is_unchanged(&Origin { size: 4, ..of(Some("x"), None) }));
    }

    #[test]
    fn cache_states_read_back_from_their_numbers() {
        for state in [CacheState::Kept, CacheState::Cached, CacheState::Evicted] {
            assert_eq!(CacheState::of_number(state.number()), Some(state));
        }
        assert_eq!(CacheState::of_number(3), None);
    }
}
