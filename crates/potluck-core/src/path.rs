//! Paths inside the pool: `pot://space/dir/file`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The scheme of a pool path.
pub const SCHEME: &str = "pot://";
/// The space of the pool's own metadata. No path that is read from text can name it.
pub const SYSTEM_SPACE: &str = ".potluck";
/// The longest name of a file or directory in bytes, as on the file systems people copy from.
pub const MAX_NAME: usize = 255;
/// The longest whole path in bytes.
pub const MAX_PATH: usize = 4096;

/// A place in the pool: a space and the names below it. Checked when made; an empty list of names
/// is the space itself, and an empty space is the pool's root.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolPath {
    space: String,
    names: Vec<String>,
}

/// A path the pool cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// The text is not of the form `pot://space/…`.
    #[error("“{0}” is not a pool path: write pot://SPACE/PATH")]
    NoScheme(String),
    /// A single name is too long.
    #[error("the name “{}…” has {} bytes: at most {MAX_NAME} fit", .0.chars().take(20).collect::<String>(), .0.len())]
    LongName(String),
    /// The whole path is too long.
    #[error("the path has {0} bytes: at most {MAX_PATH} fit")]
    LongPath(usize),
    /// A name that no file can have.
    #[error("“{}” cannot be a name in the pool: names hold no /, no NUL, and are not . or ..", .0.escape_debug())]
    BadName(String),
    /// A space name outside the allowed letters.
    #[error("“{}” cannot name a space: use 1 to 63 of a-z 0-9 . _ - starting with a letter or digit", .0.escape_debug())]
    BadSpace(String),
}

/// Whether `name` can name a file or directory.
pub fn check_name(name: &str) -> Result<(), BadPath> {
    if name.len() > MAX_NAME {
        return Err(BadPath::LongName(name.into()));
    }
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(BadPath::BadName(name.into()));
    }
    Ok(())
}

/// Whether `name` can name a space (also a valid S3 bucket or host label).
pub fn check_space(name: &str) -> Result<(), BadPath> {
    let ok = (1..=63).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if ok { Ok(()) } else { Err(BadPath::BadSpace(name.into())) }
}

impl PoolPath {
    /// The pool itself: what `pot://` names.
    pub fn root() -> Self {
        Self { space: String::new(), names: Vec::new() }
    }

    /// The space named `space`.
    pub fn space_root(space: &str) -> Result<Self, BadPath> {
        check_space(space)?;
        Ok(Self { space: space.into(), names: Vec::new() })
    }

    /// A place among the pool's own metadata.
    pub fn system(names: &[&str]) -> Result<Self, BadPath> {
        names.iter().try_for_each(|name| check_name(name))?;
        let names = names.iter().map(|name| name.to_string()).collect();
        Ok(Self { space: SYSTEM_SPACE.into(), names })
    }

    /// Whether it lies among the pool's own metadata.
    pub fn is_system(&self) -> bool {
        self.space == SYSTEM_SPACE
    }

    /// Whether the text is meant as a pool path.
    pub fn is_pool_path(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// The space's name; empty for the pool's root.
    pub fn space(&self) -> &str {
        &self.space
    }

    /// The names below the space, outermost first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The last name, if the path names something inside a space.
    pub fn file_name(&self) -> Option<&str> {
        self.names.last().map(String::as_str)
    }

    /// The path one level up; `None` for a space and the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.names.split_last()?;
        Some(Self { space: self.space.clone(), names: above.to_vec() })
    }

    /// The path of `name` inside this one.
    pub fn join(&self, name: &str) -> Result<Self, BadPath> {
        check_name(name)?;
        let mut path = self.clone();
        if path.space.is_empty() {
            return Self::space_root(name);
        }
        path.names.push(name.into());
        path.check_len()?;
        Ok(path)
    }

    /// Whether `self` is `other` or lies inside it.
    pub fn is_inside(&self, other: &Self) -> bool {
        self.space == other.space && self.names.starts_with(&other.names)
    }

    fn check_len(&self) -> Result<(), BadPath> {
        let len = self.to_string().len();
        if len > MAX_PATH { Err(BadPath::LongPath(len)) } else { Ok(()) }
    }
}

impl FromStr for PoolPath {
    type Err = BadPath;

    /// Reads `pot://space/a/b`; repeated and trailing slashes mean nothing.
    fn from_str(text: &str) -> Result<Self, BadPath> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| BadPath::NoScheme(text.to_string()))?;
        let mut names = rest.split('/').filter(|name| !name.is_empty());
        let Some(space) = names.next() else { return Ok(Self::root()) };
        check_space(space)?;
        let names = names
            .map(|name| check_name(name).map(|()| name.to_string()))
            .collect::<Result<Vec<_>, _>>()?;
        let path = Self { space: space.into(), names };
        path.check_len()?;
        Ok(path)
    }
}

impl fmt::Display for PoolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.space)?;
        self.names.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

impl TryFrom<String> for PoolPath {
    type Error = BadPath;
    fn try_from(text: String) -> Result<Self, BadPath> {
        text.parse()
    }
}

impl From<PoolPath> for String {
    fn from(path: PoolPath) -> Self {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_back_and_bad_names_are_refused() {
        for text in ["pot://lab", "pot://lab/a/b c/ü"] {
            assert_eq!(text.parse::<PoolPath>().expect(text).to_string(), text);
        }
        assert_eq!(
            "pot://lab//a/".parse::<PoolPath>().expect("slashes").to_string(),
            "pot://lab/a"
        );
        assert_eq!("pot://".parse(), Ok(PoolPath::root()));
        let long = format!("pot://lab/{}", "x".repeat(256));
        for bad in ["lab/a", "pot://Lab/a", "pot://lab/../x", "pot://lab/a\0b", &long] {
            assert!(bad.parse::<PoolPath>().is_err(), "{bad:?}");
        }
        let lab = PoolPath::space_root("lab").expect("lab");
        assert!(lab.join("a/b").is_err());
        let system = PoolPath::system(&["log"]).expect("the pool's own");
        assert!(system.is_system() && system.to_string().parse::<PoolPath>().is_err());
        assert!(lab.join("a").expect("a").is_inside(&lab));
    }
}
