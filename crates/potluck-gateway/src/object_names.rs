//! Keys of S3 objects as paths of the pool, and back.

use potluck_core::path::{BadPath, PoolPath};

/// What the key of an object names in its space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedObject {
    /// The key names a file.
    File(PoolPath),
    /// The key ends in a slash and names a directory, which some tools make as an empty object.
    Dir(PoolPath),
}

/// Returns what `key` names in the space `bucket`.
///
/// Errors: a key that no path can be, such as one with two slashes in a row.
pub fn named(bucket: &str, key: &str) -> Result<NamedObject, BadPath> {
    let root = PoolPath::space_root(bucket)?;
    match key.strip_suffix('/') {
        Some(dir) => Ok(NamedObject::Dir(root.join_all(dir.split('/'))?)),
        None => Ok(NamedObject::File(root.join_all(key.split('/'))?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PoolPath {
        text.parse().expect("a path")
    }

    #[test]
    fn keys_are_paths_in_their_space() {
        assert_eq!(named("lab", "a/b.txt"), Ok(NamedObject::File(path("pot://lab/a/b.txt"))));
        assert_eq!(named("lab", "a/"), Ok(NamedObject::Dir(path("pot://lab/a"))));
        for bad in ["", "/", "a//b", "/a", "a/../b", "./a"] {
            assert!(named("lab", bad).is_err(), "{bad}");
        }
    }
}
