//! Keeps which writer writes which bytes of the files that writers share (docs/notes/0016-shared-writers.md). It is
//! soft state: the staged contributions themselves tell the writer that makes a version of them which writers have not
//! finished. Claims keep writers from writing the same bytes before that.

use crate::deadlines::Deadlines;
use potluck_core::byte_ranges::ByteRanges;
use potluck_core::clock::Tick;
use potluck_core::ids::{MemberId, SharedWriterId};
use potluck_core::path::PoolPath;
use potluck_wire::control::{
    CLAIM_LEASE, MOST_CLAIMED, SharedClaim, SharedLeave, SharedLeft, SharedTurnOver,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most writers that one member may have in all files together, with its turns to make a version.
const WRITERS_OF_MEMBER: usize = 4096;
/// The most ranges that all writers of one member may have claimed, in all files together.
const RANGES_OF_MEMBER: usize = 1 << 20;
/// The time for which the claims of writers that have finished are remembered while nobody makes a version.
const FINISHED_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The files that writers share.
pub type AllSharedFiles = Arc<Mutex<SharedFiles>>;

/// A writer, whose number nobody but its member may use.
pub type SharedWriterKey = (MemberId, SharedWriterId);

/// The reason why a claim is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum ClaimRefusal {
    /// Another writer has claimed a part of the range.
    Taken {
        /// The bytes that both want.
        range: Range<u64>,
        /// The name of the other writer.
        name: String,
        /// The member to whom the other writer belongs.
        member: MemberId,
    },
    /// Another writer of that name writes to the file, which belongs to this member.
    Named(MemberId),
    /// The member has as many writers or ranges as it may have, or the file as many ranges: the words for what there
    /// are too many of, and the limit.
    TooMany(&'static str, usize),
    /// The manager does not know the writer, which has to report all its ranges.
    Unknown,
    /// A version of the file is being made.
    Closed,
}

/// The files that several writers write, by their paths.
#[derive(Default)]
pub struct SharedFiles {
    files: BTreeMap<PoolPath, Sharing>,
    counts: HashMap<MemberId, MemberCounts>,
    /// The moment at which each writer loses its claims, unless it is heard.
    writers: Deadlines<(PoolPath, SharedWriterKey)>,
    /// The moment at which the turn to make a version of each file is lost, unless it is kept.
    turns: Deadlines<PoolPath>,
    /// The writers whose contributions are in a version, and who may not know it yet.
    published: Deadlines<(PoolPath, SharedWriterKey)>,
}

/// The parts of the manager's memory that one member takes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct MemberCounts {
    /// The number of writers, and of turns to make a version.
    writers: usize,
    /// The number of ranges that these writers claimed.
    ranges: usize,
}

#[derive(Default)]
struct Sharing {
    writers: BTreeMap<SharedWriterKey, SharingWriter>,
    claims: ByteRanges<SharedWriterKey>,
    /// The writer that makes a version, and the moment at which it was heard last.
    turn: Option<(SharedWriterKey, Tick)>,
}

struct SharingWriter {
    name: String,
    heard: Tick,
    has_finished: bool,
}

/// The facts about a writer that callers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterFacts {
    /// The name of the writer.
    pub name: String,
    /// The member to whom the writer belongs.
    pub member: MemberId,
    /// True if the writer has done its part.
    pub has_finished: bool,
    /// The number of bytes that the writer has claimed.
    pub claimed: u64,
}

impl Sharing {
    fn is_closed(&self, key: SharedWriterKey, now: Tick) -> bool {
        let turn = self.turn.filter(|(of, _)| *of != key);
        turn.is_some_and(|(_, heard)| now.saturating_sub(heard) < CLAIM_LEASE)
    }

    /// Returns the number of ranges that a writer has claimed.
    fn ranges_of(&self, key: SharedWriterKey) -> usize {
        self.claims.iter().filter(|(_, of)| *of == key).count()
    }
}

impl SharedFiles {
    /// Claims ranges for a writer, or notes all the ranges that it says it has, or only that it is there.
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
        // Ranges that the writer says are all that it has take the place of those from before.
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
        self.writers.set((call.path.clone(), key), now + CLAIM_LEASE);
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

    /// Returns whether a writer of a file is known, and has not finished.
    pub fn knows(&self, path: &PoolPath, key: SharedWriterKey) -> bool {
        let writer = self.files.get(path).and_then(|file| file.writers.get(&key));
        writer.is_some_and(|writer| !writer.has_finished)
    }

    fn check_writers(&self, member: MemberId) -> Result<(), ClaimRefusal> {
        let count = self.counts.get(&member).map_or(0, |count| count.writers);
        match count < WRITERS_OF_MEMBER {
            true => Ok(()),
            false => Err(ClaimRefusal::TooMany("writers of shared files", WRITERS_OF_MEMBER)),
        }
    }

    /// Counts fewer writers and ranges of a member.
    fn count_less(&mut self, member: MemberId, less: MemberCounts) {
        let Some(count) = self.counts.get_mut(&member) else { return };
        count.writers -= less.writers;
        count.ranges -= less.ranges;
        if *count == MemberCounts::default() {
            self.counts.remove(&member);
        }
    }

    /// Ends the part of a writer, which has finished or gives up, and tells whether it was the last. Other writers are
    /// known to be at work only if they were heard since it left. `may_be_more` says that the manager has just started,
    /// so that there may be writers that it has not heard yet.
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
            Some(writer) if call.has_finished => {
                (writer.has_finished, writer.heard) = (true, now);
                self.writers.set((call.path.clone(), key), now + FINISHED_KEPT);
            }
            Some(_) => self.remove(&call.path, key),
            None if call.has_finished && self.published.contains(&(call.path.clone(), key)) => {
                return SharedLeft::Published;
            }
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

    /// Gives a writer the turn to make a version, unless another has it. Returns whether the writer has the turn.
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
        self.turns.set(path.clone(), now + CLAIM_LEASE);
        self.files.entry(path.clone()).or_default().turn = Some((key, now));
        Ok(true)
    }

    /// Ends the turn of a file, if anybody has it.
    fn drop_turn(&mut self, path: &PoolPath) {
        let turn = self.files.get_mut(path).and_then(|file| file.turn.take());
        self.turns.remove(path);
        if let Some(((member, _), _)) = turn {
            self.count_less(member, MemberCounts { writers: 1, ranges: 0 });
        }
        self.forget_if_unused(path);
    }

    /// Ends a writer's turn, and forgets the writers that are in the version or were left out, with their claims. One
    /// that was left out and has not finished is told when it is heard next.
    pub fn end_turn(
        &mut self,
        path: &PoolPath,
        key: SharedWriterKey,
        over: &SharedTurnOver,
        now: Tick,
    ) {
        let Some(file) = self.files.get(path) else { return };
        if file.turn.is_none_or(|(of, _)| of != key) {
            return;
        }
        let free = file.writers.iter().filter_map(|(key, writer)| {
            let is_published = writer.has_finished && over.published.contains(&writer.name);
            (is_published || over.left_out.contains(&writer.name)).then_some((*key, is_published))
        });
        let free: Vec<(SharedWriterKey, bool)> = free.collect();
        for (key, is_published) in free {
            self.remove(path, key);
            if is_published {
                self.published.set((path.clone(), key), now + CLAIM_LEASE);
            }
        }
        self.drop_turn(path);
    }

    /// Forgets all writers of a file with their claims. The writers are told when they are heard next.
    pub fn forget(&mut self, path: &PoolPath) {
        let writers = self.files.get(path).into_iter().flat_map(|file| file.writers.keys());
        let writers: Vec<SharedWriterKey> = writers.copied().collect();
        writers.into_iter().for_each(|key| self.remove(path, key));
    }

    /// Returns the facts about the writers of a file.
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

    /// Returns the files at a path, or below it, to which writers wrote, or may have written, bytes that are in no
    /// version.
    pub fn written_below(&mut self, path: &PoolPath, now: Tick) -> Vec<PoolPath> {
        self.sweep(now);
        let below = self.files.iter().filter(|(file, _)| file.is_inside(path));
        let written = below.filter(|(_, sharing)| !sharing.writers.is_empty());
        written.map(|(file, _)| file.clone()).collect()
    }

    fn remove(&mut self, path: &PoolPath, key: SharedWriterKey) {
        let Some(file) = self.files.get_mut(path) else { return };
        if file.writers.remove(&key).is_some() {
            self.writers.remove(&(path.clone(), key));
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

    /// Forgets the writers that were not heard, or finished long ago, with their claims; and the turns that were not
    /// kept.
    fn sweep(&mut self, now: Tick) {
        while let Some((path, key)) = self.writers.take_over(now) {
            self.remove(&path, key);
        }
        while let Some(path) = self.turns.take_over(now) {
            self.drop_turn(&path);
        }
        while self.published.take_over(now).is_some() {}
    }
}

/// Returns the failure for a member that has too many of something.
pub fn too_many(what: &str, most: usize) -> Failure {
    let what = format!("there are {most} {what} already, and nobody has more");
    Failure::new(ErrorKind::Conflict, code::TOO_MANY_LOCKS, what)
        .hint("write in longer stretches, or let some writers finish first")
}

#[cfg(test)]
mod tests;
