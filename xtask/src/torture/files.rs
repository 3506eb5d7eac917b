//! The reference model: what was written to each path, and what a read may therefore give.
//!
//! A write that returned is what every later read gives. A write that was killed or refused took effect wholly or
//! not at all (D2), and which of these is known only after everything has come to rest and a read has told. Until
//! then nothing else is written there, because a commit under way could still arrive.

use std::collections::BTreeMap;

use super::chance::Chance;

/// The content of a file: bytes that follow from a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The number from which the bytes follow. Contents with one number begin alike, so that chunks repeat.
    pub number: u64,
    /// The number of bytes.
    pub len: u64,
}

impl Content {
    /// Draws a content: mostly of some chunks, sometimes empty, small enough for the catalog, or of a whole number
    /// of chunks.
    pub fn draw(chance: &mut Chance, chunk: u64) -> Self {
        let len = match chance.below(100) {
            0..4 => 0,
            4..14 => chance.between(1, 4096),
            14..24 => chunk * chance.between(1, 12),
            24..90 => chance.between(4097, 24 * chunk),
            _ => chance.between(24 * chunk, 120 * chunk),
        };
        Self { number: chance.below(40), len }
    }

    /// Returns the bytes of this content.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        Chance::new(self.number, "content").fill(&mut bytes);
        bytes
    }
}

/// The contents that may be at a path, where `None` is no file.
type Possible = Vec<Option<Content>>;

/// The paths to which anything was ever written, each with what may be there.
#[derive(Debug, Default)]
pub struct Files(BTreeMap<String, Possible>);

impl Files {
    /// Notes that a change of `path` returned: `content` is there now, or with `None` no file.
    pub fn wrote(&mut self, path: &str, content: Option<Content>) {
        self.0.insert(path.to_owned(), vec![content]);
    }

    /// Notes that a write to `path` was begun and may not have returned.
    pub fn may_have_written(&mut self, path: &str, content: Option<Content>) {
        let possible = self.0.entry(path.to_owned()).or_insert_with(|| vec![None]);
        if !possible.contains(&content) {
            possible.push(content);
        }
    }

    /// Returns whether it is known what is at `path`.
    pub fn is_certain(&self, path: &str) -> bool {
        self.0.get(path).is_none_or(|possible| possible.len() == 1)
    }

    /// Returns the contents that a read of `path` may give.
    pub fn possible(&self, path: &str) -> Possible {
        self.0.get(path).cloned().unwrap_or_else(|| vec![None])
    }

    /// Returns the content that a read of `path` gave, where `None` is no file; an error if nothing that may be
    /// there has these bytes.
    pub fn check(&self, path: &str, seen: Option<&[u8]>) -> Result<Option<Content>, String> {
        let possible = self.possible(path);
        let fits = |content: &Option<Content>| match (content, seen) {
            (None, None) => true,
            (Some(content), Some(seen)) => {
                content.len == seen.len() as u64 && content.bytes() == seen
            }
            _ => false,
        };
        possible.iter().find(|content| fits(content)).copied().ok_or_else(|| {
            let seen = seen.map_or("nothing".to_owned(), |seen| format!("{} bytes", seen.len()));
            format!("{path} had {seen}, but could only have {possible:?}")
        })
    }

    /// Returns the path of every file.
    pub fn paths(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Returns the paths at which there is a file for certain.
    pub fn there(&self) -> Vec<String> {
        let there = |possible: &Possible| matches!(possible.as_slice(), [Some(_)]);
        self.0
            .iter()
            .filter(|(_, possible)| there(possible))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Returns the number of files, if it is known what is at every path.
    pub fn count(&self) -> Option<u64> {
        let known = self.0.values().all(|possible| possible.len() == 1);
        known.then(|| self.there().len() as u64)
    }

    /// Returns the sum of the sizes of the files that are there for certain.
    pub fn bytes(&self) -> u64 {
        let certain = self.0.values().filter(|possible| possible.len() == 1).flatten().flatten();
        certain.map(|content| content.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Content = Content { number: 1, len: 100 };
    const NEW: Content = Content { number: 2, len: 100 };

    #[test]
    fn interrupted_write_leaves_old_or_new() {
        let mut files = Files::default();
        files.wrote("a", Some(OLD));
        files.may_have_written("a", Some(NEW));
        assert_eq!(files.check("a", Some(&OLD.bytes())), Ok(Some(OLD)));
        assert_eq!(files.check("a", Some(&NEW.bytes())), Ok(Some(NEW)));
        assert!(files.check("a", None).is_err());
        assert!(files.check("a", Some(&OLD.bytes()[..99])).is_err());
        assert!(!files.is_certain("a") && files.count().is_none() && files.there().is_empty());
    }

    #[test]
    fn removed_files_are_gone() {
        let mut files = Files::default();
        files.wrote("a", Some(OLD));
        files.wrote("a", None);
        assert_eq!((files.check("a", None), files.count()), (Ok(None), Some(0)));
        assert!(files.check("a", Some(&OLD.bytes())).is_err());
    }
}
