//! Paths inside the pool: `pot://space/dir/file`.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// The scheme of a pool path.
pub const SCHEME: &str = "pot://";
/// The space of the pool's own metadata. No path that is read from text can name it.
pub const SYSTEM_SPACE: &str = ".potluck";
/// The longest name of a file or directory in bytes, as on the file systems people copy from.
pub const MAX_NAME: usize = 255;
/// The longest whole path in bytes.
pub const MAX_PATH: usize = 4096;

/// A place in the pool: a space and the names below it, checked when it is made. An empty list of names is the space
/// itself, and an empty space is the pool's root. To copy a path or to go up costs the same at any depth.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolPath {
    space: Arc<str>,
    /// The names below the space, shared with the paths above this one, each of which has the first `depth` of them.
    below_space: Arc<[String]>,
    depth: usize,
}

/// The reasons why a path or a name cannot be in the pool.
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

/// Checks that `name` can name a file or directory.
pub fn check_name(name: &str) -> Result<(), BadPath> {
    if name.len() > MAX_NAME {
        return Err(BadPath::LongName(name.into()));
    }
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(BadPath::BadName(name.into()));
    }
    Ok(())
}

/// Checks that `name` can name a space: 1 to 63 of `a-z 0-9 . _ -`, of which the first is a letter or digit.
pub fn check_space(name: &str) -> Result<(), BadPath> {
    let ok = (1..=63).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if ok { Ok(()) } else { Err(BadPath::BadSpace(name.into())) }
}

impl PoolPath {
    fn new(space: &str, names: Vec<String>) -> Self {
        Self { space: space.into(), depth: names.len(), below_space: names.into() }
    }

    /// Returns the path of the pool itself: what `pot://` names.
    pub fn root() -> Self {
        Self::new("", Vec::new())
    }

    /// Makes the path of the space named `space`.
    pub fn space_root(space: &str) -> Result<Self, BadPath> {
        check_space(space)?;
        Ok(Self::new(space, Vec::new()))
    }

    /// Makes the path of these names in the space of the pool's own metadata.
    pub fn system(names: &[&str]) -> Result<Self, BadPath> {
        names.iter().try_for_each(|name| check_name(name))?;
        let names = names.iter().map(|name| name.to_string()).collect();
        Ok(Self::new(SYSTEM_SPACE, names))
    }

    /// Returns true for a path in the space of the pool's own metadata, [`SYSTEM_SPACE`].
    pub fn is_system(&self) -> bool {
        self.space() == SYSTEM_SPACE
    }

    /// Returns true for a text that is meant as a pool path, because it begins with the scheme; it may still be a bad
    /// one.
    pub fn is_pool_path(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Returns the name of the space; it is empty for the pool's root.
    pub fn space(&self) -> &str {
        &self.space
    }

    /// Returns the names below the space, outermost first.
    pub fn names(&self) -> &[String] {
        &self.below_space[..self.depth]
    }

    /// Returns the last name, if the path leads to something inside a space.
    pub fn file_name(&self) -> Option<&str> {
        self.names().last().map(String::as_str)
    }

    /// Returns the path one level up; `None` for a space and for the root.
    pub fn parent(&self) -> Option<Self> {
        Some(self.ancestor(self.depth.checked_sub(1)?))
    }

    /// Returns the path of the first `depth` names: this one where it has no more.
    pub fn ancestor(&self, depth: usize) -> Self {
        Self { depth: depth.min(self.depth), ..self.clone() }
    }

    /// Returns the path of `name` inside this one.
    pub fn join(&self, name: &str) -> Result<Self, BadPath> {
        self.join_all([name])
    }

    /// Returns the path to which these names lead from this one, the outermost first. From the root, the first name is
    /// a space's.
    pub fn join_all<'n>(&self, below: impl IntoIterator<Item = &'n str>) -> Result<Self, BadPath> {
        let (mut below, mut space) = (below.into_iter(), Arc::clone(&self.space));
        if space.is_empty() {
            let Some(first) = below.next() else { return Ok(Self::root()) };
            check_space(first)?;
            space = first.into();
        }
        let mut names = self.names().to_vec();
        for name in below {
            check_name(name)?;
            names.push(name.into());
        }
        let path = Self { space, depth: names.len(), below_space: names.into() };
        path.check_len()?;
        Ok(path)
    }

    /// Returns whether `self` is `other` or lies inside it. No space counts as inside the root.
    pub fn is_inside(&self, other: &Self) -> bool {
        self.space == other.space && self.names().starts_with(other.names())
    }

    fn check_len(&self) -> Result<(), BadPath> {
        let names: usize = self.names().iter().map(|name| 1 + name.len()).sum();
        let len = SCHEME.len() + self.space.len() + names;
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
        let path = Self::new(space, names);
        path.check_len()?;
        Ok(path)
    }
}

impl fmt::Display for PoolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.space)?;
        self.names().iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

impl fmt::Debug for PoolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl PartialEq for PoolPath {
    fn eq(&self, other: &Self) -> bool {
        self.space == other.space && self.names() == other.names()
    }
}

impl Eq for PoolPath {}

impl Hash for PoolPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.space, self.names()).hash(state);
    }
}

impl PartialOrd for PoolPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PoolPath {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.space, self.names()).cmp(&(&other.space, other.names()))
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

    #[test]
    fn a_path_above_another_is_the_same_as_one_that_was_read() {
        let deep: PoolPath = "pot://lab/a/b/c".parse().expect("a path");
        let read: PoolPath = "pot://lab/a/b".parse().expect("a path");
        let above = deep.parent().expect("a directory");
        assert_eq!((above.names(), above.file_name()), (read.names(), Some("b")));
        assert_eq!(above, read);
        assert_eq!(std::collections::HashSet::from([above.clone()]).get(&read), Some(&above));
        assert!(above < deep && deep.is_inside(&above) && !above.is_inside(&deep));
        assert_eq!(above.join("c").expect("a name"), deep);
        assert_eq!((deep.ancestor(9), deep.ancestor(0).parent()), (deep.clone(), None));
        assert_eq!(PoolPath::root().join_all(["lab", "a", "b", "c"]), Ok(deep.clone()));
        assert_eq!(read.join_all(["c"]), Ok(deep));
        assert!(read.join_all(["c", ".."]).is_err() && PoolPath::root().join("Lab").is_err());
    }
}
