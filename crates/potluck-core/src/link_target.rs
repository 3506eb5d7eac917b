//! The text of a symbolic link.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The most bytes of a target, as in XFS. The bound is low because a listing holds thousands of targets.
pub const MAX_TARGET: usize = 1024;

/// The target of a symbolic link, as the maker of the link wrote it. It is kept and given back as it is and never
/// followed in the pool: it may lead anywhere, or nowhere, on the machine that reads it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkTarget(String);

impl LinkTarget {
    /// Returns the target as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The reasons why a text is no target of a link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// There is no text.
    #[error("a link leads somewhere: its target is empty")]
    Empty,
    /// The text is too long.
    #[error("the target of a link has {0} bytes: at most {MAX_TARGET} fit")]
    Long(usize),
    /// The text has a byte that no path can have.
    #[error("the target of a link has a NUL byte")]
    Nul,
}

impl TryFrom<String> for LinkTarget {
    type Error = BadTarget;
    fn try_from(text: String) -> Result<Self, BadTarget> {
        match text.len() {
            0 => Err(BadTarget::Empty),
            len if len > MAX_TARGET => Err(BadTarget::Long(len)),
            _ if text.contains('\0') => Err(BadTarget::Nul),
            _ => Ok(Self(text)),
        }
    }
}

impl From<LinkTarget> for String {
    fn from(target: LinkTarget) -> Self {
        target.0
    }
}

impl fmt::Display for LinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_text_round_trips_as_link_target() {
        let target = |text: &str| LinkTarget::try_from(text.to_owned()).map(String::from);
        for text in ["a", "../../etc/passwd", "/", ".", "a//b/", "new\nline \u{1b}[31m", "ä"] {
            assert_eq!(target(text), Ok(text.to_owned()), "{text:?}");
        }
        assert_eq!(target(""), Err(BadTarget::Empty));
        assert_eq!(target("a\0b"), Err(BadTarget::Nul));
        let longest = "x".repeat(MAX_TARGET);
        assert_eq!(target(&longest), Ok(longest.clone()));
        assert_eq!(target(&format!("{longest}x")), Err(BadTarget::Long(MAX_TARGET + 1)));
    }
}
