//! Makes a catalog from records.
//!
//! Records are changes that were made once, so replaying them in order with the catalog's own operations gives the
//! state that they were exported from. Where records are missing, later ones may not fit: a record that the catalog
//! refuses is counted and left out, and the replay goes on with the others.

use crate::checkpoints::checkpoint_rows;
use crate::chunks::ReferenceCounts;
use crate::history::kept_entry::KeptEntry;
use crate::log::{
    apply,
    records::{Keeping, Record},
};
use crate::names::{entries, entry_moves};
use crate::operations::{
    commits::{
        commit::PreparedChunk,
        sealing_again::{self, SealedContent},
    },
    history,
    upkeep::reaping,
};
use crate::pool_records::{
    meta::Counter,
    spaces::{self, Sums},
};
use crate::sql::Tx;
use crate::versions::{self, parts, wholes};
use crate::when::{WhatIsKept, When};
use crate::{Durability, Error};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::CommitStyle;
use potluck_core::chunk::ChunkName;
use potluck_core::erasure::Ec;
use potluck_core::ids::{KeyNumber, SpaceId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::recipe::Entry;
use potluck_pool::redundancy::Version;
use potluck_wire::packed::Blob;
use std::collections::{BTreeSet, HashMap};

/// The most entries of removed trees that are taken apart in one step.
const TRASH_ENTRIES: usize = 1000;
/// The moment of all replayed changes. Garbage collection is frozen after a restore, so it does not judge by this time.
const WHEN: When = When {
    pool_ms: 0,
    wall_ms: 0,
    by: None,
    keeps: WhatIsKept::Nothing,
    durability: Durability::Disk,
};

/// A replay under way.
#[derive(Debug, Default)]
pub struct Replay {
    pages: HashMap<VersionId, Vec<Vec<u8>>>,
    parity: HashMap<VersionId, Vec<ChunkName>>,
    /// The paths of [`Record::Passed`] of which no later record has told yet that the file was replaced or removed.
    passed: BTreeSet<PoolPath>,
    /// The number of records that did not fit.
    pub left_out: u64,
}

impl Replay {
    /// Applies a record. One that does not fit is counted and left out.
    ///
    /// Errors: the catalog cannot be written, or meets a bug.
    pub(crate) fn apply(&mut self, db: &Tx, record: Record) -> Result<(), Error> {
        match db.savepoint(|| self.record(db, record)) {
            Err(why) if is_misfit(&why) => {
                tracing::warn!(%why, "a record of the log does not fit");
                self.left_out += 1;
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn record(&mut self, db: &Tx, record: Record) -> Result<(), Error> {
        self.settle(db, &record)?;
        match record {
            Record::Page { version, page } => {
                self.pages.entry(version).or_default().push(page.0);
                Ok(())
            }
            Record::Parity { version, names } => {
                self.parity.entry(version).or_default().extend(names.0);
                Ok(())
            }
            Record::Part { whole, number, version } => self.part(db, (whole, number), &version),
            Record::File { path, version, content } => {
                self.file(db, &path, &version, content.as_ref())
            }
            Record::Keeping { version, keeping } => self.keeping(db, version, &keeping),
            Record::SealedAgain { version, key, inline, keeping } => {
                self.sealed_again(db, version, key, inline, &keeping)
            }
            // The directories above were made with this file, and stay when it goes. The file that it replaced stays
            // until the later record that replaced or removed this one. If the log ends before that record, the
            // replaced file is the last state that is known.
            Record::Passed { path } => {
                if let Some(above) = path.parent() {
                    entries::make_dirs(db, &above, EntryAttributes::of_dir(0))?;
                }
                self.passed.insert(path);
                Ok(())
            }
            record => {
                apply::apply(db, &record, WHEN.pool_ms)?;
                match record {
                    Record::Link { .. }
                    | Record::Removed { .. }
                    | Record::Moved { .. }
                    | Record::Kept(_)
                    | Record::Published { .. }
                    | Record::SpaceRemoved { .. } => empty_trash(db),
                    _ => Ok(()),
                }
            }
        }
    }

    fn file(
        &mut self,
        db: &Tx,
        path: &PoolPath,
        version: &Version,
        content: Option<&Blob>,
    ) -> Result<(), Error> {
        let (id, (above, name)) = (version.id, entries::split(path)?);
        if versions::find(db, id)?.is_some() {
            return Err(Error::Exists(path.clone()));
        }
        let recipe = self.recipe(version)?;
        if version.parts > 0 && wholes::sum(db, version)?.is_none() {
            return Err(Error::PartsDiffer(path.clone()));
        }
        if matches!(entries::resolve(db, path), Ok(Some(_))) {
            entry_moves::remove(db, path, WHEN.pool_ms)?;
            empty_trash(db)?;
        }
        let of_file = EntryAttributes::of_dir(version.attributes.mtime.ms());
        let dir = entries::make_dirs(db, &above, of_file)?;
        let space = spaces::named(db, path.space())?;
        insert(db, version, content, &recipe)?;
        if version.parts > 0 {
            parts::finish(db, id, space.id)?;
        }
        entries::put_file(db, dir, name, id)?;
        let in_catalog = i64::from(version.chunks == 0);
        let one = Sums { files: 1, bytes: version.data() as i64, in_catalog, ..Sums::default() };
        spaces::add_sums(db, space.id, one)
    }

    /// Inserts a part of a file whose own record has still to come. A repeated record changes nothing. A record with
    /// another version under the number of a part replaces that part.
    fn part(
        &mut self,
        db: &Tx,
        (whole, number): (VersionId, u32),
        version: &Version,
    ) -> Result<(), Error> {
        let (id, recipe) = (version.id, self.recipe(version)?);
        let earlier = parts::at(db, whole, number)?;
        if earlier == Some(id) {
            return Ok(());
        }
        if versions::find(db, id)?.is_some() || versions::find(db, whole)?.is_some() {
            return Err(Error::Damaged(format!("part {number} of version {whole} comes too late")));
        }
        if let Some(earlier) = earlier {
            let mut counts = ReferenceCounts::new(db, WHEN.pool_ms);
            versions::delete(db, earlier, &mut counts)?;
            counts.close()?;
        }
        insert(db, version, None, &recipe)?;
        parts::finish(db, whole, NO_SPACE)?;
        parts::put(db, whole, number, id, None)
    }

    /// Takes out the recipe of a version, whose pages and parity came in earlier records.
    fn recipe(&mut self, version: &Version) -> Result<Recipe, Error> {
        let pages = self.pages.remove(&version.id).unwrap_or_default();
        let parity = self.parity.remove(&version.id).unwrap_or_default();
        if version.parts > 0 {
            return Ok(Recipe::default());
        }
        let entries = versions::unpack(version, &pages)?;
        let parity_lens = parity_lens(version.ec, &entries, parity.len())?;
        Ok(Recipe { pages, entries, parity, parity_lens })
    }

    fn keeping(&mut self, db: &Tx, id: VersionId, keeping: &Keeping) -> Result<(), Error> {
        let parity = self.parity.remove(&id).unwrap_or_default();
        let Some(version) = versions::find(db, id)? else { return Ok(()) }; // removed since
        if version.parts > 0 {
            // The records of its parts tell what redundancy they have.
            return versions::set_goal(db, id, keeping.goal);
        }
        let recipe = versions::recipe_of(db, &version)?;
        let lens = parity_lens(keeping.ec, &recipe, parity.len())?;
        let mut counts = ReferenceCounts::new(db, WHEN.pool_ms);
        for (name, len) in parity.iter().zip(lens) {
            counts.add(id, name, len, &[])?;
        }
        counts.release(&versions::parity(db, &version)?)?;
        counts.close()?;
        versions::set_redundancy(db, id, keeping.redundancy(), &parity)?;
        versions::set_goal(db, id, keeping.goal)?;
        if keeping.goal.is_none() { parts::arrived(db, id) } else { Ok(()) }
    }

    fn sealed_again(
        &mut self,
        db: &Tx,
        id: VersionId,
        key: KeyNumber,
        inline: Option<Blob>,
        keeping: &Keeping,
    ) -> Result<(), Error> {
        let Some(version) = versions::find(db, id)? else {
            self.pages.remove(&id);
            self.parity.remove(&id);
            return Ok(()); // removed since
        };
        // The version may have been changed to another redundancy after it was sealed again.
        let Keeping { copies, ec, .. } = *keeping;
        let kept = Version { copies, ec, ..version.clone() };
        let Recipe { pages, entries, parity, parity_lens } = self.recipe(&kept)?;
        let data = entries.iter().map(|entry| (entry.name, entry.len));
        let chunks = data.chain(parity.iter().copied().zip(parity_lens));
        let holders = Vec::new;
        let chunks: Vec<_> =
            chunks.map(|(name, len)| PreparedChunk { name, len, holders: holders() }).collect();
        let content = SealedContent {
            key,
            inline: inline.as_ref().map(|inline| &inline.0[..]),
            pages: &pages,
            chunks: &chunks,
            data: entries.len(),
            safe_wall_ms: version.safe_wall_ms,
        };
        let mut counts = ReferenceCounts::new(db, WHEN.pool_ms);
        sealing_again::replace(db, &version, &content, &mut counts)?;
        counts.close()?;
        versions::set_redundancy(db, id, keeping.redundancy(), &parity)?;
        versions::set_goal(db, id, keeping.goal)
    }

    /// Forgets the passed files of which a record tells what became of them.
    fn settle(&mut self, db: &Tx, record: &Record) -> Result<(), Error> {
        match record {
            Record::SpaceRemoved { name } => self.passed.retain(|path| path.space() != name),
            Record::Link { path, .. }
            | Record::File { path, .. }
            | Record::Removed { path }
            | Record::Kept(KeptEntry { from: Some(path), .. }) => self.settled(path),
            Record::Moved { from, to } => {
                self.settled(from);
                self.settled(to);
            }
            Record::Published { from, to, style, .. } => {
                if *style == CommitStyle::Merge {
                    for path in self.passed_in(to) {
                        let names = path.names()[to.names().len()..].iter().map(String::as_str);
                        let staged = from.join_all(names);
                        if let Ok(staged) = staged
                            && (self.passed.contains(&staged)
                                || entries::resolve(db, &staged)?.is_some())
                        {
                            self.passed.remove(&path);
                        }
                    }
                } else {
                    self.settled(to);
                }
                self.settled(from);
            }
            _ => {}
        }
        Ok(())
    }

    /// Forgets the passed files at and below `path`.
    fn settled(&mut self, path: &PoolPath) {
        for passed in self.passed_in(path) {
            self.passed.remove(&passed);
        }
    }

    fn passed_in(&self, path: &PoolPath) -> Vec<PoolPath> {
        let below = self.passed.range(path..).take_while(|passed| passed.is_inside(path));
        below.cloned().collect()
    }

    /// Ends the replay. Returns the number of records that did not fit or are missing.
    pub(crate) fn finish(self, db: &Tx) -> Result<u64, Error> {
        // Parts without a file are of sessions that are over, or of files that were removed.
        parts::abandon_strays(db)?;
        // A base tells of no checkpoint whose target has too long a path by then, and a gap may have any. Nobody would
        // see what is staged for it, or could commit or remove it.
        for staging in checkpoint_rows::strays(db)? {
            tracing::warn!(%staging, "what was staged for an unknown checkpoint is dropped");
            entry_moves::remove(db, &staging, WHEN.pool_ms)?;
        }
        empty_trash(db)?;
        for path in &self.passed {
            tracing::warn!(%path, "the log ends before it says what became of this file");
        }
        Ok(self.left_out + self.passed.len() as u64)
    }
}

/// The space of parts that no file has claimed yet: none.
const NO_SPACE: SpaceId = SpaceId(0);

/// The recipe of a version as its records gave it.
#[derive(Default)]
struct Recipe {
    pages: Vec<Vec<u8>>,
    entries: Vec<Entry>,
    parity: Vec<ChunkName>,
    /// The stored lengths of the parity chunks.
    parity_lens: Vec<u32>,
}

/// Inserts a version with its recipe and its references.
fn insert(
    db: &Tx,
    version: &Version,
    content: Option<&Blob>,
    recipe: &Recipe,
) -> Result<(), Error> {
    let mut counts = ReferenceCounts::new(db, WHEN.pool_ms);
    for entry in &recipe.entries {
        counts.add(version.id, &entry.name, entry.len, &[])?;
    }
    for (name, len) in recipe.parity.iter().zip(&recipe.parity_lens) {
        counts.add(version.id, name, *len, &[])?;
    }
    counts.close()?;
    let inline = content.map(|content| &content.0[..]);
    versions::insert(db, version, inline, &recipe.pages, &recipe.parity)?;
    Counter::Version.pass(db, version.id.0 as i64)
}

/// Returns the stored lengths of parity chunks, each that of the longest data chunk of its group.
///
/// Errors: [`Error::Damaged`] if the number of names is not that of the code.
fn parity_lens(ec: Option<Ec>, recipe: &[Entry], names: usize) -> Result<Vec<u32>, Error> {
    let wrong = || Error::Damaged("a version has another number of parity chunks".into());
    let Some(ec) = ec else {
        return if names == 0 { Ok(Vec::new()) } else { Err(wrong()) };
    };
    if names != ec.group_count(recipe.len()) * ec.parity() {
        return Err(wrong());
    }
    let longest = ec
        .groups(recipe.len())
        .map(|group| recipe[group].iter().map(|entry| entry.len).max().unwrap_or_default());
    Ok(longest.flat_map(|len| std::iter::repeat_n(len, ec.parity())).collect())
}

/// Takes all trash apart and lets go what snapshots kept that have ended, so that the references of removed trees have
/// ended before the next record.
fn empty_trash(db: &Tx) -> Result<(), Error> {
    while history::release(db, TRASH_ENTRIES, WHEN)?
        || reaping::reap(db, TRASH_ENTRIES, 0, WHEN.pool_ms)?
    {}
    Ok(())
}

/// Returns whether `why` is about one record, as after a gap; any other error ends the replay.
fn is_misfit(why: &Error) -> bool {
    !why.is_of_catalog() && !matches!(why, Error::Bug(_))
}
