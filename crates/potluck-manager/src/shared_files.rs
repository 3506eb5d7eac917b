//! Who writes which bytes of the files that writers share (docs/notes/0016-shared-writers.md). Soft state: what was
//! contributed is staged, and whoever makes a version of it finds there who has not finished. Claims keep writers from
//! writing the same bytes before that.

use potluck_core::byte_ranges::ByteRanges;
use potluck_core::clock::Tick;
use potluck_core::ids::{MemberId, SharedWriterId};
use potluck_core::path::PoolPath;
use potluck_wire::control::{CLAIM_LEASE, MOST_CLAIMED, SharedClaim, SharedLeave, SharedLeft};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Writers of all files together that one member may have, and turns to make a version.
const WRITERS_OF_MEMBER: usize = 4096;
/// Ranges that all writers of one member may have claimed, of all files together.
const RANGES_OF_MEMBER: usize = 1 << 20;
/// How long the claims of writers that have finished are remembered where nobody makes a version.
const FINISHED_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Time from one look for writers that are gone to the next.
const SWEEP: Duration = Duration::from_secs(1);

/// The files that writers share.
pub type AllSharedFiles = Arc<Mutex<SharedFiles>>;

/// A writer, whose number nobody but its member may use.
pub type SharedWriterKey = (MemberId, SharedWriterId);

/// A claim that is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum ClaimRefusal {
    /// Another writer has a part of it.
    Taken {
        /// The bytes that both want.
        range: Range<u64>,
        /// The name of the other writer.
        name: String,
        /// The member that it is of.
        member: MemberId,
    },
    /// A writer of that name is there.
    Named(MemberId),
    /// There are as many writers or ranges as there may be.
    TooMany(&'static str, usize),
    /// The manager has to be told all that the writer has.
    Unknown,
    /// A version is being made.
    Closed,
}

/// The files that are written, by their paths.
#[derive(Default)]
pub struct SharedFiles {
    files: BTreeMap<PoolPath, Sharing>,
    counts: HashMap<MemberId, MemberCounts>,
    swept: Tick,
}

/// How much of the manager's memory one member has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct MemberCounts {
    /// Writers, and turns to make a version.
    writers: usize,
    /// Ranges that these writers claimed.
    ranges: usize,
}

#[derive(Default)]
struct Sharing {
    writers: BTreeMap<SharedWriterKey, SharingWriter>,
    claims: ByteRanges<SharedWriterKey>,
    /// Who makes a version, and when that one was heard last.
    turn: Option<(SharedWriterKey, Tick)>,
}

struct SharingWriter {
    name: String,
    heard: Tick,
    has_finished: bool,
}

/// A writer as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterFacts {
    /// The name of the writer.
    pub name: String,
    /// The member that it is of.
    pub member: MemberId,
    /// Whether it has done its part.
    pub has_finished: bool,
    /// Bytes that it has claimed.
    pub claimed: u64,
}

impl Sharing {
    fn is_closed(&self, key: SharedWriterKey, now: Tick) -> bool {
        let turn = self.turn.filter(|(of, _)| *of != key);
        turn.is_some_and(|(_, heard)| now.saturating_sub(heard) < CLAIM_LEASE)
    }

    /// How many ranges a writer has.
    fn ranges_of(&self, key: SharedWriterKey) -> usize {
        self.claims.iter().filter(|(_, of)| *of == key).count()
    }
}

impl SharedFiles {
    /// A writer claims ranges, or says all that it has, or that it is there.
    pub fn claim(
        &mut self,
        member: MemberId,
        call: &SharedClaim,
        now: Tick,
    ) -> Result<(), ClaimRefusal> {
        self.sweep(now);
        let key = (member, call.writer);
        let file = self.files.get(&call.path);
        let known = file.and_then(|file| file.writers.get(&key));
        if known.is_none_or(|known| known.has_finished) {
            if !call.is_first && !call.is_all {
                return Err(ClaimRefusal::Unknown);
            }
            if file.is_some_and(|file| file.is_closed(key, now)) && !call.is_all {
                return Err(ClaimRefusal::Closed);
            }
            let mut others = file.into_iter().flat_map(|file| &file.writers);
            let named = others.find(|(_, other)| other.name == call.name && !other.has_finished);
            if let Some(((member, _), _)) = named {
                return Err(ClaimRefusal::Named(*member));
            }
            if known.is_none() {
                self.check_writers(member)?;
            }
        }
        // What it says to be all takes the place of what it had.
        let had = file.filter(|_| call.is_all).map_or(0, |file| file.ranges_of(key));
        let count = self.counts.get(&member).map_or(0, |count| count.ranges);
        if count - had + call.ranges.len() > RANGES_OF_MEMBER {
            let what = "ranges of shared files that are yours";
            return Err(ClaimRefusal::TooMany(what, RANGES_OF_MEMBER));
        }
        let file = self.files.entry(call.path.clone()).or_default();
        for range in &call.ranges {
            if let Some((range, other)) = file.claims.taken(range, key) {
                let name = file.writers.get(&other).map(|it| it.name.clone()).unwrap_or_default();
                let member = other.0;
                self.forget_if_unused(&call.path);
                return Err(ClaimRefusal::Taken { range, name, member });
            }
        }
        if file.claims.len() - had + call.ranges.len() > MOST_CLAIMED {
            self.forget_if_unused(&call.path);
            return Err(ClaimRefusal::TooMany("ranges of a shared file", MOST_CLAIMED));
        }
        let (name, has_finished) = (call.name.clone(), false);
        let writer = SharingWriter { name, heard: now, has_finished };
        let counts = self.counts.entry(member).or_default();
        counts.writers += usize::from(file.writers.insert(key, writer).is_none());
        let before = file.claims.len();
        if call.is_all {
            file.claims.remove(key);
        }
        call.ranges.iter().for_each(|range| file.claims.add(range.clone(), key));
        counts.ranges = counts.ranges + file.claims.len() - before;
        Ok(())
    }

    fn check_writers(&self, member: MemberId) -> Result<(), ClaimRefusal> {
        let count = self.counts.get(&member).map_or(0, |count| count.writers);
        match count < WRITERS_OF_MEMBER {
            true => Ok(()),
            false => Err(ClaimRefusal::TooMany("writers of shared files", WRITERS_OF_MEMBER)),
        }
    }

    /// A member has fewer writers and ranges by so many.
    fn count_less(&mut self, member: MemberId, less: MemberCounts) {
        let Some(count) = self.counts.get_mut(&member) else { return };
        count.writers -= less.writers;
        count.ranges -= less.ranges;
        if *count == MemberCounts::default() {
            self.counts.remove(&member);
        }
    }

    /// A writer has done its part, or gives it up. Of the others only those are known to be there that were heard since it
    /// left; and `may_be_more` after a start, of whom nothing was heard yet.
    pub fn leave(
        &mut self,
        member: MemberId,
        call: &SharedLeave,
        may_be_more: bool,
        now: Tick,
    ) -> SharedLeft {
        self.sweep(now);
        let key = (member, call.writer);
        match self.files.get_mut(&call.path).and_then(|file| file.writers.get_mut(&key)) {
            Some(writer) if call.has_finished => (writer.has_finished, writer.heard) = (true, now),
            Some(_) => self.remove(&call.path, key),
            None => {}
        }
        let writers = self.files.get(&call.path).into_iter().flat_map(|file| file.writers.values());
        let mut others = writers.filter(|writer| !writer.has_finished).peekable();
        let (is_alone, waited) = (others.peek().is_none(), Duration::from_millis(call.waited_ms));
        if others.any(|other| now.saturating_sub(other.heard) < waited) {
            return SharedLeft::OthersWrite;
        }
        if is_alone && !may_be_more { SharedLeft::Last } else { SharedLeft::NotKnown }
    }

    /// Whether it is somebody's turn to make a version.
    ///
    /// Errors: [`ClaimRefusal::TooMany`].
    pub fn take_turn(
        &mut self,
        path: &PoolPath,
        key: SharedWriterKey,
        now: Tick,
    ) -> Result<bool, ClaimRefusal> {
        self.sweep(now);
        let turn = self.files.get(path).and_then(|file| file.turn);
        if turn.is_none_or(|(of, _)| of != key) {
            if self.files.get(path).is_some_and(|file| file.is_closed(key, now)) {
                return Ok(false);
            }
            self.check_writers(key.0)?;
            self.drop_turn(path);
            self.counts.entry(key.0).or_default().writers += 1;
        }
        self.files.entry(path.clone()).or_default().turn = Some((key, now));
        Ok(true)
    }

    /// Nobody has the turn of a file any more.
    fn drop_turn(&mut self, path: &PoolPath) {
        let turn = self.files.get_mut(path).and_then(|file| file.turn.take());
        if let Some(((member, _), _)) = turn {
            self.count_less(member, MemberCounts { writers: 1, ranges: 0 });
        }
        self.forget_if_unused(path);
    }

    /// A turn is over. What the writers of these names claimed is in a version, and free.
    pub fn end_turn(&mut self, path: &PoolPath, key: SharedWriterKey, published: &[String]) {
        let Some(file) = self.files.get(path) else { return };
        if file.turn.is_none_or(|(of, _)| of != key) {
            return;
        }
        let free = file
            .writers
            .iter()
            .filter(|(_, writer)| writer.has_finished && published.contains(&writer.name));
        let free: Vec<SharedWriterKey> = free.map(|(key, _)| *key).collect();
        free.into_iter().for_each(|key| self.remove(path, key));
        self.drop_turn(path);
    }

    /// Nothing that was claimed of a file counts any more. Its writers are told when they are heard next.
    pub fn forget(&mut self, path: &PoolPath) {
        let writers = self.files.get(path).into_iter().flat_map(|file| file.writers.keys());
        let writers: Vec<SharedWriterKey> = writers.copied().collect();
        writers.into_iter().for_each(|key| self.remove(path, key));
    }

    /// The writers of a file.
    pub fn writers(&mut self, path: &PoolPath, now: Tick) -> Vec<WriterFacts> {
        self.sweep(now);
        let Some(file) = self.files.get(path) else { return Vec::new() };
        let mut claimed: HashMap<SharedWriterKey, u64> = HashMap::new();
        for (range, key) in file.claims.iter() {
            *claimed.entry(key).or_default() += range.end - range.start;
        }
        let facts = |(key, writer): (&SharedWriterKey, &SharingWriter)| WriterFacts {
            name: writer.name.clone(),
            member: key.0,
            has_finished: writer.has_finished,
            claimed: claimed.get(key).copied().unwrap_or_default(),
        };
        file.writers.iter().map(facts).collect()
    }

    fn remove(&mut self, path: &PoolPath, key: SharedWriterKey) {
        let Some(file) = self.files.get_mut(path) else { return };
        if file.writers.remove(&key).is_some() {
            let before = file.claims.len();
            file.claims.remove(key);
            let ranges = before - file.claims.len();
            self.count_less(key.0, MemberCounts { writers: 1, ranges });
        }
        self.forget_if_unused(path);
    }

    fn forget_if_unused(&mut self, path: &PoolPath) {
        if self.files.get(path).is_some_and(|it| it.writers.is_empty() && it.turn.is_none()) {
            self.files.remove(path);
        }
    }

    /// Forgets writers that were not heard, and with them their claims.
    fn sweep(&mut self, now: Tick) {
        if now.saturating_sub(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let (mut silent, mut over) = (Vec::new(), Vec::new());
        for (path, file) in &self.files {
            if file.turn.is_some_and(|(_, heard)| now.saturating_sub(heard) >= CLAIM_LEASE) {
                over.push(path.clone());
            }
            let late = file.writers.iter().filter(|(_, writer)| {
                let kept = if writer.has_finished { FINISHED_KEPT } else { CLAIM_LEASE };
                now.saturating_sub(writer.heard) >= kept
            });
            silent.extend(late.map(|(key, _)| (path.clone(), *key)));
        }
        silent.into_iter().for_each(|(path, key)| self.remove(&path, key));
        over.into_iter().for_each(|path| self.drop_turn(&path));
    }
}

/// The failure of a member that has too many of something.
pub fn too_many(what: &str, most: usize) -> Failure {
    let what = format!("there are {most} {what} already, and nobody has more");
    Failure::new(ErrorKind::Conflict, code::TOO_MANY_LOCKS, what)
        .hint("write in longer stretches, or let some writers finish first")
}

#[cfg(test)]
mod tests;
