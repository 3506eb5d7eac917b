//! The reference model: what was written to each path and when, and what a read may therefore see.
//!
//! It asks for what the promises say (D1, D2), and no more. A write that returned is seen by every later
//! read, until a newer write replaces it. A write that was refused is never seen. A write whose outcome its
//! writer does not know is seen whole or not at all. Of two stored files the higher version is the newer.

use crate::content::Content;
use potluck_core::chunk::Digest;
use potluck_core::ids::VersionId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time within which a write whose outcome is unknown takes effect after its writer gave up, or never:
/// messages that were on the network have arrived by then.
const LATE: Duration = Duration::from_secs(30);

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The write is under way.
    Open,
    /// The write took effect, as this version if it stored a file.
    Done(Option<VersionId>),
    /// The write did not take effect, and never will.
    Refused,
    /// The write did not take effect, and never will, because a conflicting write came first.
    Beaten,
    /// The writer does not know whether it took effect.
    Unknown,
}

#[derive(Debug, Clone)]
struct Write {
    /// The content after the write; `None` for a removal.
    value: Option<Content>,
    begun: Duration,
    ended: Duration,
    fate: Fate,
}

/// The identifier of a write: its path, and its number among the writes to that path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(String, usize);

/// The writes to all paths.
#[derive(Debug, Default)]
pub struct History {
    paths: BTreeMap<String, Vec<Write>>,
    versions: BTreeSet<VersionId>,
}

impl Write {
    /// Returns the latest time at which the write can have taken effect.
    fn last(&self) -> Duration {
        match self.fate {
            Fate::Done(_) | Fate::Refused | Fate::Beaten => self.ended,
            Fate::Unknown => self.ended + LATE,
            Fate::Open => Duration::MAX,
        }
    }

    /// Returns whether `other` keeps a read that began at `begun` from seeing this write.
    fn is_hidden_by(&self, other: &Self, begun: Duration) -> bool {
        let Fate::Done(version) = other.fate else { return false };
        let newer = match (self.fate, version) {
            (Fate::Done(Some(mine)), Some(theirs)) => theirs > mine,
            _ => other.begun > self.last(),
        };
        newer && other.ended < begun
    }
}

impl History {
    /// Notes that a client begins to write `value` to `path`, or with `None` to remove the file.
    pub fn begin(&mut self, path: &str, value: Option<Content>, now: Duration) -> WriteId {
        let writes = self.paths.entry(path.to_owned()).or_insert_with(|| {
            let nothing = Write {
                value: None,
                begun: Duration::ZERO,
                ended: Duration::ZERO,
                fate: Fate::Done(None),
            };
            vec![nothing]
        });
        writes.push(Write { value, begun: now, ended: now, fate: Fate::Open });
        WriteId(path.to_owned(), writes.len() - 1)
    }

    /// Notes how a write ended.
    ///
    /// Errors: its version was given to another write before.
    pub fn end(&mut self, id: &WriteId, fate: Fate, now: Duration) -> Result<(), String> {
        let write = &mut self.paths.get_mut(&id.0).expect("begun")[id.1];
        (write.fate, write.ended) = (fate, now);
        match fate {
            Fate::Done(Some(version)) if !self.versions.insert(version) => {
                Err(format!("{} became version {version}, as something else did before", id.0))
            }
            _ => Ok(()),
        }
    }

    /// Notes that the writer of a write is dead; if the write was under way, its outcome is unknown.
    pub fn give_up(&mut self, id: &WriteId, now: Duration) {
        let write = &mut self.paths.get_mut(&id.0).expect("begun")[id.1];
        if write.fate == Fate::Open {
            (write.fate, write.ended) = (Fate::Unknown, now);
        }
    }

    /// Returns every path that was ever written to.
    pub fn paths(&self) -> Vec<String> {
        self.paths.keys().cloned().collect()
    }

    /// Returns the paths below `dir`, which ends in a slash.
    pub fn below(&self, dir: &str) -> Vec<String> {
        self.paths.keys().filter(|path| path.starts_with(dir)).cloned().collect()
    }

    /// Returns the contents that a read from `begun` to `ended` may have seen at `path`.
    pub fn possible(&self, path: &str, begun: Duration, ended: Duration) -> Vec<Option<Content>> {
        let Some(writes) = self.paths.get(path) else { return vec![None] };
        let hidden = |write: &Write| writes.iter().any(|other| write.is_hidden_by(other, begun));
        let visible = writes.iter().filter(|write| {
            !matches!(write.fate, Fate::Refused | Fate::Beaten)
                && write.begun <= ended
                && !hidden(write)
        });
        visible.map(|write| write.value).collect()
    }

    /// Checks what a read saw: the digest of the file, or `None` if no file was there.
    pub fn check(
        &self,
        path: &str,
        seen: Option<Digest>,
        (begun, ended): (Duration, Duration),
    ) -> Result<(), String> {
        let possible = self.possible(path, begun, ended);
        if possible.iter().any(|value| value.map(|content| content.digest()) == seen) {
            return Ok(());
        }
        let writes = self.paths.get(path).map(Vec::as_slice).unwrap_or_default();
        let stranger = writes.iter().all(|write| write.value.map(|value| value.digest()) != seen);
        let seen = seen.map_or("nothing".to_owned(), |digest| format!("{digest:?}"));
        Err(format!(
            "{path} had {seen}{} between {begun:?} and {ended:?}, but could only have {possible:?}; \
             its writes are {writes:#?}",
            if stranger { ", which nobody wrote" } else { "" },
        ))
    }

    /// Checks a path that was only written on condition that it is absent, and never removed: at most one write
    /// succeeded, and a write was beaten only if another one succeeded or may have.
    pub fn check_one_winner(&self, path: &str) -> Result<(), String> {
        let Some(writes) = self.paths.get(path) else { return Ok(()) };
        let is = |wanted: fn(Fate) -> bool| {
            writes.iter().filter(|w| w.value.is_some() && wanted(w.fate)).count()
        };
        let won = is(|fate| matches!(fate, Fate::Done(_)));
        let lost = is(|fate| fate == Fate::Beaten);
        let unknown = is(|fate| matches!(fate, Fate::Unknown | Fate::Open));
        if won > 1 || (lost > 0 && won + unknown == 0) {
            return Err(format!("{path}: {won} won, {lost} lost, {unknown} do not know"));
        }
        Ok(())
    }
}
