//! Keeps the entries behind names, as the manager told them. They are served for as long as a watch stream tells of
//! changes.
//!
//! A name is served only if all directories above it are kept, too, so that moves and removals there are heard of. A
//! fetched entry is kept only if no change of it was heard of while the fetch was under way
//! (docs/notes/0010-metadata-cache.md).

mod dir;

use dir::{Behind, CachedDir};
use potluck_core::attributes::FileTime;
use potluck_core::checkpoint::CheckpointId;
use potluck_core::clock::Tick;
use potluck_core::ids::WatchId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{DirChange, DirNews, EntryKind, KnownDir, ListedEntry, OWN_NAME};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// The time for which kept metadata is served after a call for news was made: as long as such a call may take. If the
/// manager is cut off unnoticed, changes of others are not seen for so long.
pub const HOLDS: Duration = Duration::from_secs(6);

/// The most names that are fetched one by one to complete a listing; if more are missing the directory is listed anew.
const FETCHED_BY_NAME: usize = 500;

/// The metadata that a mount keeps.
pub struct MetadataCache {
    /// The most bytes that may be kept; `bytes` are kept now.
    limit: usize,
    bytes: usize,
    dirs: BTreeMap<PoolPath, CachedDir>,
    /// The number of uses of directories so far, by which they are ordered by their last use.
    uses: u64,
    fetches: HashMap<u64, FetchUnderWay>,
    last_fetch: u64,
    stream: Option<LiveStream>,
}

/// The watch stream that tells of changes.
#[derive(Clone, Copy)]
struct LiveStream {
    id: WatchId,
    holds_until: Tick,
}

/// A fetch under way, with the changes of its directories that were heard of meanwhile.
struct FetchUnderWay {
    stream: WatchId,
    /// True if nothing is asked: this mount makes a file, and is told when its directory was modified.
    is_publication: bool,
    dirs: BTreeMap<PoolPath, HeardMeanwhile>,
}

#[derive(Default)]
struct HeardMeanwhile {
    names: BTreeSet<String>,
    touched: BTreeSet<String>,
    all: bool,
}

impl HeardMeanwhile {
    fn is_of(&self, name: &str) -> bool {
        self.all || self.names.contains(name) || self.touched.contains(name)
    }
}

/// The identifier of a fetch under way, which names it when its answer arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    number: u64,
    /// The stream that is to watch what is fetched.
    pub stream: Option<WatchId>,
}

impl MetadataCache {
    /// Makes an empty cache of at most about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let (bytes, dirs, uses, fetches, last_fetch, stream) = Default::default();
        Self { limit, bytes, dirs, uses, fetches, last_fetch, stream }
    }

    fn is_live(&self, now: Tick) -> bool {
        self.stream.is_some_and(|stream| now < stream.holds_until)
    }

    /// Returns what is behind a path: an entry, or `Some(None)` for nothing; `None` if that is not known.
    pub fn entry(&mut self, path: &PoolPath, now: Tick) -> Option<Option<ListedEntry>> {
        let found = self.place(path, now)?;
        let (dir, name) = steps(path).pop()?;
        // Changes of the attributes of a space's directory are told only to a stream that watches that directory.
        let is_told = !path.names().is_empty() || self.dirs.contains_key(path) || found.is_none();
        let is_touched = self.dirs.get(&dir).is_some_and(|dir| dir.is_touched(name));
        (is_told && !is_touched).then_some(found)
    }

    /// Returns what [`Self::entry`] does, but with attributes that may be out of date.
    pub fn place(&mut self, path: &PoolPath, now: Tick) -> Option<Option<ListedEntry>> {
        if !self.is_live(now) {
            return None;
        }
        let mut found = None;
        for (dir, name) in steps(path) {
            match &found {
                None => {}
                Some(Some(ListedEntry { kind: EntryKind::Dir, .. })) => {}
                Some(None) => return Some(None), // nothing is below a name that does not exist
                Some(Some(_)) => return None, // the manager words the error for a path below a file
            }
            found = Some(self.used(&dir)?.get(name)?.cloned());
        }
        found
    }

    /// Returns the entries of a directory, if all are known with their attributes.
    pub fn listing(&mut self, path: &PoolPath, now: Tick) -> Option<Vec<ListedEntry>> {
        if !self.is_dir(path, now) {
            return None;
        }
        self.used(path)?.listing()
    }

    /// Returns whether no change of an entry is known since its directory was listed. No change is known in a directory
    /// that is not kept, such as one with very many names.
    pub fn is_as_listed(&self, dir: &PoolPath, entry: &ListedEntry) -> bool {
        let Some(kept) = self.dirs.get(dir) else { return true };
        let facts =
            |entry: &ListedEntry| (entry.kind, entry.size, entry.version, entry.attributes());
        match kept.get(&entry.path).filter(|_| !kept.is_touched(&entry.path)) {
            None => false,
            // Without a stream that tells of changes, the listing is newer than the kept entry.
            Some(_) if self.stream.is_none() => true,
            Some(now) => now.is_some_and(|now| facts(now) == facts(entry)),
        }
    }

    fn is_dir(&mut self, path: &PoolPath, now: Tick) -> bool {
        if path.space().is_empty() {
            return self.is_live(now);
        }
        let found = self.place(path, now);
        matches!(found, Some(Some(ListedEntry { kind: EntryKind::Dir, .. })))
    }

    fn used(&mut self, dir: &PoolPath) -> Option<&CachedDir> {
        self.uses += 1;
        let kept = self.dirs.get_mut(dir)?;
        kept.used = self.uses;
        Some(kept)
    }

    fn known(&self, dir: &PoolPath, name: &str) -> Option<Option<&ListedEntry>> {
        self.dirs.get(dir)?.get(name)
    }

    /// Returns the questions whose answers let [`Self::entry`] know the directories above a path.
    fn missing_above(&self, path: &PoolPath) -> Vec<KnownDir> {
        let mut above = steps(path);
        above.pop();
        above.retain(|(dir, name)| self.known(dir, name).is_none());
        above.into_iter().map(|(dir, name)| question(dir, [name])).collect()
    }

    /// Returns the questions whose answers let [`Self::entry`] know a path. The last is about the path itself, and other
    /// names of its directory.
    pub fn missing(&self, path: &PoolPath) -> Vec<KnownDir> {
        let mut missing = self.missing_above(path);
        let Some((dir, name)) = steps(path).pop() else { return missing };
        missing.push(match self.dirs.get(&dir) {
            Some(kept) if self.stream.is_some() => question(dir, kept.with_next_unknown(name)),
            _ => question(dir, [name]),
        });
        missing
    }

    /// Counts one more look for a name in the directory of a path. When there were several, returns once the questions
    /// whose answers let [`Self::entry`] know the whole directory; otherwise `None`.
    pub fn missing_with_its_directory(&mut self, path: &PoolPath) -> Option<Vec<KnownDir>> {
        let (dir, _) = steps(path).pop()?;
        let kept = self.dirs.get_mut(&dir)?;
        if dir.space().is_empty() || !kept.is_worth_listing() {
            return None;
        }
        let mut missing = self.missing_above(path);
        missing.push(KnownDir { whole: true, ..KnownDir::new(dir) });
        Some(missing)
    }

    /// Returns the directory that has the entry of a directory, with its attributes.
    pub fn above(dir: &PoolPath) -> Option<PoolPath> {
        steps(dir).pop().map(|(above, _)| above)
    }

    /// Begins a fetch of [`Self::above`] for [`Self::finish_modified`].
    pub fn begin_publication(&mut self, above: Option<&PoolPath>) -> Fetch {
        let fetch = self.begin(above.into_iter());
        let under_way = self.fetches.get_mut(&fetch.number);
        under_way.into_iter().for_each(|it| it.is_publication = true);
        fetch
    }

    /// Ends a fetch of [`Self::above`] that was begun before this mount changed the directory `dir`: sets the time at
    /// which the manager says that it was modified. If another change of `dir` was heard of meanwhile, its attributes
    /// are unknown instead. Other files that are published at the time bring times of their own, and need not hear of
    /// this one.
    pub fn finish_modified(&mut self, fetch: Fetch, dir: &PoolPath, modified: FileTime) {
        let Some((above, name)) = steps(dir).pop() else { return };
        let is_live = |it: &FetchUnderWay| self.stream.map(|stream| stream.id) == Some(it.stream);
        let under_way = self.fetches.remove(&fetch.number).filter(is_live);
        let heard = under_way.and_then(|mut it| it.dirs.remove(&above));
        let asked = self.fetches.values_mut().filter(|fetch| !fetch.is_publication);
        for heard in asked.filter_map(|fetch| fetch.dirs.get_mut(&above)) {
            heard.touched.insert(name.to_owned());
        }
        let Some(kept) = self.dirs.get_mut(&above) else { return };
        match heard.is_some_and(|heard| !heard.is_of(name)) {
            true => kept.modified(name, modified),
            false => kept.touch(name),
        }
    }

    /// Returns the questions whose answers let [`Self::listing`] know a directory. The last is about the directory
    /// itself.
    pub fn missing_of_listing(&self, path: &PoolPath) -> Vec<KnownDir> {
        let mut missing = self.missing_above(path);
        let of_dir = steps(path).pop().filter(|(dir, name)| self.known(dir, name).is_none());
        missing.extend(of_dir.map(|(dir, name)| question(dir, [name])));
        missing.push(match self.dirs.get(path).and_then(CachedDir::names_to_complete) {
            Some(names) if names.len() <= FETCHED_BY_NAME => question(path.clone(), names),
            _ => KnownDir { whole: true, ..KnownDir::new(path.clone()) },
        });
        missing
    }

    /// Begins a fetch of these directories.
    pub fn begin<'dirs>(&mut self, dirs: impl Iterator<Item = &'dirs PoolPath>) -> Fetch {
        self.last_fetch += 1;
        let number = self.last_fetch;
        let stream = self.stream.map(|stream| stream.id);
        if let Some(stream) = stream {
            let dirs = dirs.map(|dir| (dir.clone(), HeardMeanwhile::default())).collect();
            self.fetches.insert(number, FetchUnderWay { stream, is_publication: false, dirs });
        }
        Fetch { number, stream }
    }

    /// Ends a fetch: keeps what the manager told of each directory, except names of which a change was heard meanwhile.
    /// The pages of one directory must have been joined to one answer.
    pub fn finish(&mut self, fetch: Fetch, answers: &[(KnownDir, DirNews)]) {
        let Some(mut under_way) = self.fetches.remove(&fetch.number) else { return };
        if self.stream.map(|stream| stream.id) != Some(under_way.stream) {
            return;
        }
        for (asked, news) in answers {
            let heard = under_way.dirs.remove(&asked.path).unwrap_or_default();
            if heard.all || !news.watched || news.failure.is_some() {
                continue;
            }
            self.keep(asked, news, &heard);
        }
        self.make_room();
    }

    fn keep(&mut self, asked: &KnownDir, news: &DirNews, heard: &HeardMeanwhile) {
        self.uses += 1;
        let kept = self.dirs.entry(asked.path.clone()).or_insert_with(|| {
            self.bytes += dir::BYTES;
            CachedDir::default()
        });
        kept.used = self.uses;
        let before = kept.bytes();
        match (asked.whole, news.next.is_some()) {
            (true, true) => kept.is_partial(),
            // A question without names is about a directory of which nothing was known, so the answer has all entries.
            (true, false) if asked.names.is_empty() => kept.begin_listing(),
            _ => {}
        }
        for entry in &news.entries {
            // The digest is served by other calls, and is as large as the rest of the entry.
            let entry = ListedEntry { digest: None, ..entry.clone() };
            kept.put(&entry.path.clone(), Behind::Entry(Box::new(entry)));
        }
        news.gone.iter().for_each(|name| kept.put(name, Behind::Nothing));
        heard.touched.iter().for_each(|name| kept.touch(name));
        heard.names.iter().for_each(|name| kept.put(name, Behind::Unknown));
        self.bytes = self.bytes + kept.bytes() - before;
    }

    /// Forgets the least recently used directories, with all below them, if too much is kept.
    fn make_room(&mut self) {
        if self.bytes <= self.limit {
            return;
        }
        let mut by_use: Vec<_> = self.dirs.iter().map(|(dir, kept)| (kept.used, dir)).collect();
        by_use.sort_unstable();
        // More is forgotten than needed, so that this is not done for each directory.
        let oldest: Vec<PoolPath> = by_use.into_iter().map(|(_, dir)| dir.clone()).collect();
        for dir in oldest {
            if self.bytes <= self.limit - self.limit / 8 {
                break;
            }
            self.forget_below(&dir);
        }
    }

    fn forget_dir(&mut self, dir: &PoolPath) {
        if let Some(kept) = self.dirs.remove(dir) {
            self.bytes -= kept.bytes() + dir::BYTES;
        }
    }

    /// Forgets a directory and all below it, and makes fetches of these that are under way keep nothing.
    fn forget_below(&mut self, dir: &PoolPath) {
        let below = |(path, _): &(&PoolPath, &CachedDir)| path.is_inside(dir);
        let forgotten: Vec<PoolPath> = self
            .dirs
            .range(dir.clone()..)
            .take_while(below)
            .map(|(path, _)| path.clone())
            .collect();
        forgotten.iter().for_each(|dir| self.forget_dir(dir));
        for fetch in self.fetches.values_mut() {
            // The comparison of all kept directories is a fetch of as many.
            let dirs = fetch.dirs.range_mut(dir.clone()..);
            let below = dirs.take_while(|(path, _)| path.is_inside(dir));
            below.for_each(|(_, heard)| heard.all = true);
        }
    }

    /// Notes that another entry may be behind a path than was known.
    ///
    /// A name that is gone counts as unknown, too, not as absent: it may have come back already, which is told only by
    /// later news.
    pub fn changed(&mut self, path: &PoolPath) {
        let Some((dir, name)) = steps(path).pop() else { return };
        self.forget_below(path);
        for fetch in self.fetches.values_mut() {
            if let Some(heard) = fetch.dirs.get_mut(&dir) {
                heard.names.insert(name.to_owned());
            }
        }
        if let Some(kept) = self.dirs.get_mut(&dir) {
            let before = kept.bytes();
            kept.put(name, Behind::Unknown);
            self.bytes = self.bytes + kept.bytes() - before;
        }
    }

    /// Notes that attributes of the entry at a path were set; the entry and all below it are otherwise as before.
    pub fn touched(&mut self, path: &PoolPath) {
        let Some((dir, name)) = steps(path).pop() else { return };
        for fetch in self.fetches.values_mut() {
            if let Some(heard) = fetch.dirs.get_mut(&dir) {
                heard.touched.insert(name.to_owned());
            }
        }
        if let Some(kept) = self.dirs.get_mut(&dir) {
            kept.touch(name);
        }
    }

    /// Notes the changes in a directory that the stream told of.
    pub fn apply(&mut self, change: &DirChange) {
        let DirChange { dir, all, changed, attributes, modified, gone } = change;
        if *all && dir.space().is_empty() {
            // Changes in the directories of spaces are told by themselves.
            self.forget_dir(dir);
            let fetches = self.fetches.values_mut();
            fetches.filter_map(|fetch| fetch.dirs.get_mut(dir)).for_each(|heard| heard.all = true);
        } else if *all {
            self.forget_below(dir);
        }
        let names = changed.iter().chain(gone);
        names.filter_map(|name| dir.join(name).ok()).for_each(|path| self.changed(&path));
        for name in attributes {
            match name.as_str() {
                OWN_NAME => self.touched(dir),
                name => drop(dir.join(name).map(|path| self.touched(&path))),
            }
        }
        for (name, at) in modified {
            match name.as_str() {
                OWN_NAME => self.was_modified(dir, *at),
                name => drop(dir.join(name).map(|path| self.was_modified(&path, *at))),
            }
        }
    }

    /// Notes that the directory at a path was modified, as the stream told.
    fn was_modified(&mut self, path: &PoolPath, at: FileTime) {
        let Some((dir, name)) = steps(path).pop() else { return };
        for heard in self.fetches.values_mut().filter_map(|fetch| fetch.dirs.get_mut(&dir)) {
            heard.touched.insert(name.to_owned());
        }
        if let Some(kept) = self.dirs.get_mut(&dir) {
            kept.was_modified(name, at);
        }
    }

    /// Notes that news arrived for a call that was made at `asked`.
    pub fn heard(&mut self, asked: Tick) {
        if let Some(stream) = &mut self.stream {
            stream.holds_until = asked + HOLDS;
        }
    }

    /// Notes that no stream tells of changes any more: nothing is served, and answers that arrive are not kept.
    pub fn suspend(&mut self) {
        self.stream = None;
        self.fetches.clear();
    }

    /// Forgets all directories, because anything may have changed.
    pub fn clear(&mut self) {
        (self.dirs, self.bytes) = Default::default();
        self.fetches.clear();
    }

    /// Begins the comparison of all kept directories with the manager, before which none is served; returns the fetch
    /// and the questions. A directory is left out, and forgotten by [`Self::resume`], if one above it is not kept or if
    /// it cannot be compared.
    pub fn begin_revalidation(&mut self, stream: WatchId) -> (Fetch, Vec<KnownDir>) {
        let is_dir = |(above, name): &(PoolPath, &str)| {
            let known = self.known(above, name).flatten();
            known.is_some_and(|entry| entry.kind == EntryKind::Dir)
        };
        let mut known = Vec::new();
        for (path, kept) in &self.dirs {
            if steps(path).iter().all(is_dir) {
                known.extend(kept.known(path.clone()));
            }
        }
        let asked = known.iter().map(|asked: &KnownDir| asked.path.clone());
        let dirs = asked.map(|dir| (dir, HeardMeanwhile::default())).collect();
        self.last_fetch += 1;
        let fetch = FetchUnderWay { stream, is_publication: false, dirs };
        self.fetches.insert(self.last_fetch, fetch);
        (Fetch { number: self.last_fetch, stream: Some(stream) }, known)
    }

    /// Ends the comparison with the manager, and serves from now on what `stream` watches. Entries that differed are
    /// known anew, and directories without a good answer are forgotten.
    pub fn resume(
        &mut self,
        stream: WatchId,
        asked: Tick,
        fetch: Fetch,
        answers: &[(KnownDir, DirNews)],
    ) {
        let is_good = |news: &DirNews| news.watched && news.failure.is_none();
        let good = answers.iter().filter(|(_, news)| is_good(news));
        let good: BTreeSet<&PoolPath> = good.map(|(asked, _)| &asked.path).collect();
        let others: Vec<_> = self.dirs.keys().filter(|dir| !good.contains(dir)).cloned().collect();
        others.iter().for_each(|dir| self.forget_below(dir));
        for (asked, news) in answers {
            if asked.digest.is_some() && !news.same {
                self.forget_dir(&asked.path);
            }
        }
        self.stream = Some(LiveStream { id: stream, holds_until: asked + HOLDS });
        self.finish(fetch, answers);
    }

    /// Returns the number of fetches for which changes are noted.
    #[cfg(test)]
    pub fn fetches_under_way(&self) -> usize {
        self.fetches.len()
    }

    /// Returns the number of bytes that are kept.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.bytes
    }
}

fn question<N: Into<String>>(dir: PoolPath, names: impl IntoIterator<Item = N>) -> KnownDir {
    let names = names.into_iter().map(dir::unknown).collect();
    KnownDir { names, ..KnownDir::new(dir) }
}

/// Returns the directories that lead to a path, from the root of the pool on, each with the name that leads on.
///
/// The staging directory of a checkpoint is not among the names of its parent directory, so it is left out: it counts
/// as there until the stream tells that anything in it may have changed.
fn steps(path: &PoolPath) -> Vec<(PoolPath, &str)> {
    if path.space().is_empty() {
        return Vec::new();
    }
    let mut steps = vec![(PoolPath::root(), path.space())];
    let Ok(mut dir) = PoolPath::space_root(path.space()) else { return steps };
    for name in path.names() {
        let below = dir.join(name);
        if CheckpointId::of_staging_name(name).is_none() {
            steps.push((dir, name));
        }
        match below {
            Ok(below) => dir = below,
            Err(_) => break,
        }
    }
    steps
}

#[cfg(test)]
mod tests;
