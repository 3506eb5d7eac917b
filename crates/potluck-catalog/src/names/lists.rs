//! Listings, facts about one path, and sums over trees (`du`) in parts of bounded length.

use crate::chunks;
use crate::chunks::placements;
use crate::error::Error;
use crate::members::grants::SeenSpaces;
use crate::names::{
    dir_policies,
    entries::{self, EntryPlace, FoundEntry},
    walk::{Walk, WalkedEntry, What},
};
use crate::sql::Tx;
use crate::versions;
use crate::versions::wholes;
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::ChunkName;
use potluck_core::kept_place::is_reserved;
use potluck_core::link_target::LinkTarget;
use potluck_core::origin::CacheState;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_core::policy::{Policy, SeriesRule};
use potluck_pool::redundancy::Version;
use potluck_wire::control::{ChildUse, EntryKind, ListedEntry, Listing, Used, UsedUpTo};

/// The most entries in one reply.
const PAGE: usize = 2000;

fn dir_entry(path: String, attributes: EntryAttributes) -> ListedEntry {
    let EntryAttributes { mtime, permissions, owner, changed, accessed } = attributes;
    ListedEntry {
        path,
        kind: EntryKind::Dir,
        size: 0,
        holes: 0,
        mtime,
        version: None,
        digest: None,
        copies: None,
        ec: None,
        in_catalog: false,
        permissions,
        owner,
        changed,
        accessed,
        metadata: None,
        target: None,
        origin: None,
        cache: CacheState::Kept,
    }
}

fn link_entry(path: String, target: LinkTarget, attributes: EntryAttributes) -> ListedEntry {
    ListedEntry {
        kind: EntryKind::Link,
        size: target.as_str().len() as u64,
        target: Some(target),
        ..dir_entry(path, attributes)
    }
}

fn file_entry(path: String, version: &Version) -> ListedEntry {
    let EntryAttributes { mtime, permissions, owner, changed, accessed } = version.attributes;
    ListedEntry {
        path,
        kind: EntryKind::File,
        size: version.size,
        holes: version.holes,
        mtime,
        version: Some(version.id),
        digest: Some(version.digest),
        copies: Some(version.copies),
        ec: version.ec,
        in_catalog: version.chunks == 0,
        permissions,
        owner,
        changed,
        accessed,
        metadata: version.metadata.clone(),
        target: None,
        origin: version.origin.clone(),
        cache: version.cache,
    }
}

fn entry(item: WalkedEntry) -> ListedEntry {
    match item.what {
        What::Dir(_) => dir_entry(item.path, item.attributes),
        What::File(version) => file_entry(item.path, &version),
        What::Link(target) => link_entry(item.path, target, item.attributes),
    }
}

/// Returns what was found behind a name in the form of a listing, under the name `path`.
pub(crate) fn found_entry(db: &Tx, path: String, found: FoundEntry) -> Result<ListedEntry, Error> {
    Ok(match found.place {
        EntryPlace::Dir(_) => dir_entry(path, found.attributes),
        EntryPlace::Link(target) => link_entry(path, target, found.attributes),
        EntryPlace::File(version) => file_entry(path, &versions::get(db, version)?),
    })
}

/// Returns whether an entry below `path` is of the pool's own metadata, which users neither see nor name.
fn is_system(path: &PoolPath, item: &WalkedEntry) -> bool {
    path.space().is_empty() && item.path.split('/').next() == Some(SYSTEM_SPACE)
}

/// Returns the next page of a listing. A file or link is listed alone, under an empty name.
pub(crate) fn list(
    db: &Tx,
    path: &PoolPath,
    recursive: bool,
    after: Option<&str>,
    seen: &SeenSpaces,
) -> Result<Listing, Error> {
    let found = entries::existing(db, path)?;
    let dir = match found.place {
        EntryPlace::Dir(dir) => dir,
        EntryPlace::Link(target) => {
            let entries = vec![link_entry(String::new(), target, found.attributes)];
            return Ok(Listing { entries, next: None });
        }
        EntryPlace::File(version) => {
            let entries = vec![file_entry(String::new(), &versions::get(db, version)?)];
            return Ok(Listing { entries, next: None });
        }
    };
    let mut walk = Walk::of_seen(db, dir, recursive, after, seen)?.visible();
    let mut listing = Listing::default();
    while let Some(item) = walk.next_item()? {
        if is_system(path, &item) {
            continue;
        }
        if listing.entries.len() == PAGE {
            listing.next = listing.entries.last().map(|last: &ListedEntry| last.path.clone());
            return Ok(listing);
        }
        listing.entries.push(entry(item));
    }
    Ok(listing)
}

/// The results of look-ups in directories: for each directory an entry for each name, `None` where there is none, or
/// the error of the directory.
pub(crate) type LookedUp = Vec<Result<Vec<Option<ListedEntry>>, Error>>;

/// Looks names up in directories.
pub(crate) fn look_up(db: &Tx, dirs: &[(PoolPath, Vec<String>)]) -> LookedUp {
    let in_dir = |(path, names): &(PoolPath, Vec<String>)| {
        let dir = entries::existing_dir(db, path)?;
        let entry = |name: &String| {
            let found = entries::lookup(db, dir, name)?;
            found.map(|found| found_entry(db, name.clone(), found)).transpose()
        };
        names.iter().map(entry).collect()
    };
    dirs.iter().map(in_dir).collect()
}

/// The facts about one path.
#[derive(Debug)]
pub struct EntryFacts {
    /// The entry as a listing shows it.
    pub entry: ListedEntry,
    /// The policy that holds at the path.
    pub policy: Policy,
    /// The rule for purging steps that a directory sets; the empty rule for a file or a link.
    pub series: SeriesRule,
    /// The version of a file; `None` for a directory or a link.
    pub version: Option<Version>,
}

/// Returns the facts about one path.
pub(crate) fn stat(db: &Tx, path: &PoolPath) -> Result<EntryFacts, Error> {
    let found = entries::existing(db, path)?;
    let policy = dir_policies::effective(db, path)?;
    let without_content =
        |entry, policy, series| EntryFacts { entry, policy, series, version: None };
    Ok(match found.place {
        EntryPlace::Dir(dir) => {
            let series = dir_policies::get(db, dir)?.series;
            without_content(dir_entry(String::new(), found.attributes), policy, series)
        }
        EntryPlace::Link(target) => {
            let entry = link_entry(String::new(), target, found.attributes);
            without_content(entry, policy, SeriesRule::default())
        }
        EntryPlace::File(version) => {
            let version = versions::get(db, version)?;
            EntryFacts {
                entry: file_entry(String::new(), &version),
                policy,
                series: SeriesRule::default(),
                version: Some(version),
            }
        }
    })
}

/// Returns sums over a part of a tree and over its direct children. The part ends when `most` entries and chunks were
/// looked at.
pub(crate) fn usage(
    db: &Tx,
    path: &PoolPath,
    after: Option<&UsedUpTo>,
    most: u64,
    seen: &SeenSpaces,
) -> Result<Used, Error> {
    let mut sums = UsageSums { db, used: Used::default(), stored: 0.0, left: most };
    let chunks = after.and_then(|after| after.chunks);
    match entries::existing(db, path)?.place {
        EntryPlace::File(_) if after.is_some() && chunks.is_none() => {} // the page before ended the file
        EntryPlace::Link(_) if after.is_some() => {}
        EntryPlace::Link(_) => sums.link(""),
        EntryPlace::File(version) => sums.file("", &versions::get(db, version)?, chunks)?,
        EntryPlace::Dir(dir) => {
            let is_seen = |file: &str| !seen.hides_some_of(path) || seen.has_below_root(file);
            if let (Some(UsedUpTo { path: file, .. }), Some(chunks)) = (after, chunks)
                && is_seen(file)
            {
                sums.rest_of_file(path, file, chunks)?;
            }
            let from = after.map(|after| after.path.as_str());
            let mut walk = Walk::of_seen(db, dir, true, from, seen)?.without_staged();
            while sums.used.next.is_none()
                && let Some(item) = walk.next_item()?
            {
                if !is_system(path, &item) {
                    sums.item(&item)?;
                }
            }
        }
    }
    // Only the sum is rounded, because parts of chunks, such as thirds, are whole bytes only together.
    Ok(Used { stored: sums.stored.round() as u64, ..sums.used })
}

/// The sums of a part of a tree, and the number of entries and chunks that may still be looked at for them.
struct UsageSums<'db> {
    db: &'db Tx,
    used: Used,
    /// The bytes that the files take on donors: of a chunk with several references, the share of each.
    stored: f64,
    left: u64,
}

impl UsageSums<'_> {
    fn item(&mut self, item: &WalkedEntry) -> Result<(), Error> {
        if item.path.split('/').any(is_reserved) {
            return self.kept(item);
        }
        let (child, below) = match item.path.split_once('/') {
            Some((child, _)) => (child, true),
            None => (item.path.as_str(), false),
        };
        let dir = below || matches!(item.what, What::Dir(_));
        self.child(child, dir);
        match &item.what {
            What::Dir(_) => {
                self.used.dirs += 1;
                self.looked_at(1, || UsedUpTo { path: item.path.clone(), chunks: None });
                Ok(())
            }
            What::File(version) => self.file(&item.path, version, None),
            What::Link(_) => {
                self.link(&item.path);
                Ok(())
            }
        }
    }

    /// Adds an entry that was replaced or removed and is kept. It counts separately, except in the stored bytes.
    fn kept(&mut self, item: &WalkedEntry) -> Result<(), Error> {
        match &item.what {
            What::Dir(_) => {
                self.looked_at(1, || UsedUpTo { path: item.path.clone(), chunks: None });
                Ok(())
            }
            What::File(version) => self.file(&item.path, version, None),
            What::Link(_) => {
                self.used.kept_files += 1;
                self.looked_at(1, || UsedUpTo { path: item.path.clone(), chunks: None });
                Ok(())
            }
        }
    }

    /// Adds a link, which counts as a file without bytes.
    fn link(&mut self, path: &str) {
        self.used.files += 1;
        if let Some(child) = self.used.children.last_mut() {
            child.files += 1;
        }
        self.looked_at(1, || UsedUpTo { path: path.into(), chunks: None });
    }

    /// Adds a child to the list, once: the walk meets all entries below a child one after the other.
    fn child(&mut self, name: &str, dir: bool) {
        if self.used.children.last().is_none_or(|last| last.name != name) {
            let child = ChildUse { name: name.into(), dir, ..ChildUse::default() };
            self.used.children.push(child);
        }
    }

    /// Adds the chunks of a file below `path` from number `chunks` on, if it still is there.
    fn rest_of_file(&mut self, path: &PoolPath, file: &str, chunks: u64) -> Result<(), Error> {
        let whole = path.join_all(file.split('/'));
        let found = whole.ok().map(|whole| entries::resolve(self.db, &whole)).transpose()?;
        match found.flatten().map(|found| found.place) {
            Some(EntryPlace::File(version)) => {
                self.file(file, &versions::get(self.db, version)?, Some(chunks))
            }
            _ => Ok(()),
        }
    }

    /// Adds a file to the sums, or with `done` only the stored bytes of its chunks from this number on.
    fn file(&mut self, path: &str, version: &Version, done: Option<u64>) -> Result<(), Error> {
        let is_kept = path.split('/').any(is_reserved);
        if done.is_none() && is_kept {
            self.used.kept_files += 1;
            self.used.kept_bytes += version.data();
        } else if done.is_none() {
            self.used.files += 1;
            self.used.bytes += version.data();
            if let Some(child) = self.used.children.last_mut() {
                child.files += 1;
                child.bytes += version.data();
            }
        }
        let first = done.unwrap_or(0);
        let (names, next) = some_names(self.db, version, first, self.left)?;
        for name in &names {
            if let Some(chunk) = chunks::get(self.db, name)? {
                let copies = placements::holders(self.db, chunk.id)?.len() as u64;
                self.stored += (copies * u64::from(chunk.len)) as f64 / chunk.refs.max(1) as f64;
            }
        }
        let rest = (!names.is_empty()).then_some(next);
        self.looked_at(1 + names.len() as u64, || UsedUpTo { path: path.into(), chunks: rest });
        Ok(())
    }

    /// Ends this part of the sums at `here` where enough was looked at.
    fn looked_at(&mut self, more: u64, here: impl FnOnce() -> UsedUpTo) {
        self.left = self.left.saturating_sub(more);
        if self.left == 0 {
            self.used.next = Some(here());
        }
    }
}

/// The distance between the numbers of the first chunks of two parts. It is more than a part has of chunks and parity,
/// which differ between the parts of a file while it is changed to another redundancy.
const NUMBERS_PER_PART: u64 = 1 << 32;

/// Returns the names of at most `most` chunks of a version from number `first` on, with parity after the data of each
/// part, and the number from which on the others are.
fn some_names(
    db: &Tx,
    version: &Version,
    first: u64,
    most: u64,
) -> Result<(Vec<ChunkName>, u64), Error> {
    if version.parts == 0 {
        let names = versions::some_names(db, version, first, most)?;
        let next = first + names.len() as u64;
        return Ok((names, next));
    }
    let (mut names, mut next) = (Vec::new(), first);
    while (names.len() as u64) < most {
        let (number, skipped) = (next / NUMBERS_PER_PART, next % NUMBERS_PER_PART);
        let Ok(from) = u32::try_from(number) else { break };
        let Some((number, part)) = wholes::next(db, version.id, from)? else { break };
        let skipped = if number == from { skipped } else { 0 };
        let some = versions::some_names(db, &part, skipped, most - names.len() as u64)?;
        let number = u64::from(number);
        next = match some.len() as u64 {
            0 => (number + 1) * NUMBERS_PER_PART,
            more => number * NUMBERS_PER_PART + skipped + more,
        };
        names.extend(some);
    }
    Ok((names, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, in_parts, path};
    use potluck_core::policy::Redundancy;
    use potluck_core::recipe::PART_CHUNKS;

    #[test]
    fn usage_counts_all_parts_during_a_conversion() {
        let mut fixture = Fixture::new();
        let chunks = 2 * PART_CHUNKS as u64 + 10;
        let files = in_parts("pot://lab/large", 0, 0..chunks, &[1]).into_iter();
        let whole = files.map(|file| fixture.put(file)).last().expect("the whole");
        let db = &fixture.db;
        // While its last part has a code, the file has it, too; the other parts have copies already.
        let code = Redundancy::Ec("4+2".parse().expect("a code"));
        versions::set_redundancy(db, whole, code, &[]).expect("set");
        for most in [700, u64::MAX] {
            let part = |after: Option<UsedUpTo>| {
                usage(db, &path("pot://lab"), after.as_ref(), most, &SeenSpaces::ALL).expect("sums")
            };
            let mut used = part(None);
            while let Some(after) = used.next.take() {
                used.add(part(Some(after)));
            }
            assert_eq!((used.files, used.stored), (1, chunks * 65_536), "by {most}");
        }
    }
}
