//! Copies inside the pool: new versions of the same chunks, so that no byte moves.
//!
//! A copy has the chunk size and at first the redundancy of its source. If its new directory asks for another
//! redundancy, the copy gets that as its goal and is changed in the background, as after a change of policy.
//!
//! A copy is acknowledged as a written file is: a file of which too few holders are there at the moment is refused. The
//! client then stores it anew, which sends missing chunks to other donors.

use crate::error::Error;
use crate::kept_replies::RepliesTo;
use crate::log::changes::{self, ChangeOp};
use crate::names::{
    entries::{self, EntryPlace},
    walk::{Walk, WalkedEntry, What},
};
use crate::operations::{
    checkpoints::staging,
    commits::{
        commit::PreparedFile,
        enough_copies::{self, AcknowledgedFile, WriteSafety},
        visible::{FileToPut, PutTarget, Visible, is_refusal},
    },
    names::links::{self, LinkToMake},
};
use crate::pool_records::{
    meta::Counter,
    spaces::{self, Space},
};
use crate::sql::Tx;
use crate::versions::{self, parts, wholes};
use crate::when::When;
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::link_target::LinkTarget;
use potluck_core::path::{BadPath, PoolPath};
use potluck_core::policy::AskedPolicy;
use potluck_pool::redundancy::Version;
use potluck_pool::{InUseAgain, OpenReservation, PoolView};
use potluck_wire::control::Condition;

/// The most work of one transaction, in units of the work for a chunk, unless a single file takes more: commits then
/// wait for a few milliseconds only.
const PAGE_WORK: u64 = 512;
/// The work of an entry besides its chunks, in units of the work for a chunk.
const ENTRY_WORK: u64 = 10;
/// The most chunks of a file made of parts, all of which are copied in one transaction.
const MOST_CHUNKS: u64 = 8192;

/// A copy inside the pool that was asked for.
#[derive(Debug, Clone)]
pub struct CopyRequest {
    /// The path of the file, link or directory that is copied.
    pub from: PoolPath,
    /// The path of the copy itself.
    pub to: PoolPath,
    /// True if a directory is copied with all that is in it, and a link is copied as a link.
    pub recursive: bool,
    /// The condition under which a copy may replace a file.
    pub condition: Condition,
    /// The requirements on the copies, whatever their directories say.
    pub asked: AskedPolicy,
    /// The cursor from which the copy of a tree goes on; `None` at its beginning.
    pub after: Option<String>,
    /// The open reservations, whose room counts in quotas.
    pub reserved: Vec<OpenReservation>,
}

/// The files that were copied.
#[derive(Debug, Default)]
pub struct Copied {
    /// The path of each file, with its version or the reason why it was refused. Refused directories and links are
    /// among them.
    pub files: Vec<(PoolPath, Result<CopiedVersion, Error>)>,
    /// The number of links that were copied.
    pub links: u64,
    /// The cursor from which the copy goes on; `None` at the end.
    pub next: Option<String>,
    /// The chunks that were condemned or gone and are in use again.
    pub again: InUseAgain,
}

/// A copy of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedVersion {
    /// The version of the copy.
    pub version: Version,
    /// The versions of the copy's parts; for a copy without parts, its own version.
    pub parts: Vec<VersionId>,
    /// True if the copy has less redundancy than its source should have, because donors are away.
    pub below_policy: bool,
}

/// The outcome of copying a page.
#[derive(Debug)]
pub enum CopyOutcome {
    /// The page was copied before; this is the reply that was given then.
    Repeated(String),
    /// The files that were copied now.
    Fresh(Copied),
}

/// Copies the file or link at `wanted.from`, or the next page of the tree there. A page of a command that was copied
/// before is not copied again. Holders count as they stand in `view`, which must be of this moment.
pub(crate) fn copy(
    db: &Tx,
    (replies, page): (RepliesTo, u32),
    wanted: &CopyRequest,
    view: &PoolView,
    when: When,
    reply: impl FnOnce(&Copied) -> Result<String, Error>,
) -> Result<CopyOutcome, Error> {
    if let Some(text) = replies.find(db, page.into())? {
        return Ok(CopyOutcome::Repeated(text));
    }
    let space = spaces::named(db, wanted.to.space())?;
    check_places(db, wanted, &space)?;
    let mut copying = Copying {
        db,
        wanted,
        view,
        space: space.id,
        now: FileTime::of_ms(when.wall_ms),
        visible: Visible::new(db, Some(&space), when).asking(wanted.asked).beside(&wanted.reserved),
        files: Vec::new(),
        links: 0,
    };
    let found = entries::existing(db, &wanted.from)?;
    let next = match found.place {
        EntryPlace::Link(target) if wanted.recursive => {
            copying.link(target, found.attributes, wanted.to.clone())?;
            None
        }
        EntryPlace::Link(target) => {
            return Err(Error::IsALink { path: wanted.from.clone(), target });
        }
        EntryPlace::File(version) => {
            copying.file(versions::get(db, version)?, wanted.to.clone())?;
            None
        }
        EntryPlace::Dir(_) if !wanted.recursive => {
            return Err(Error::NotRecursive(wanted.from.clone()));
        }
        EntryPlace::Dir(dir) => {
            let mut walk = Walk::new(db, dir, true, wanted.after.as_deref())?.visible();
            if wanted.after.is_none() {
                // Only the first page has to find out whether a file is where the directory has to be.
                staging::check_writable(db, &wanted.to, Some(when.pool_ms))?;
                copying.visible.make_dirs(&wanted.to, found.attributes, copying.now)?;
            }
            copying.page(&mut walk)?
        }
    };
    let again = copying.visible.close()?;
    let copied = Copied { files: copying.files, links: copying.links, next, again };
    replies.keep(db, page.into(), when.pool_ms, reply(&copied)?)?;
    Ok(CopyOutcome::Fresh(copied))
}

/// Refuses a copy to the same path, to a path above or to one below, and a copy between spaces of which one is sealed:
/// only a client that has the keys can make that.
fn check_places(db: &Tx, wanted: &CopyRequest, to: &Space) -> Result<(), Error> {
    let CopyRequest { from, to: target, .. } = wanted;
    if from.is_inside(target) || target.is_inside(from) {
        return Err(Error::IntoItself { from: from.clone(), to: target.clone() });
    }
    let source = spaces::named(db, from.space())?;
    if source.id != to.id && (source.keys.is_some() || to.keys.is_some()) {
        return Err(Error::OtherKey { from: from.clone(), to: target.clone() });
    }
    Ok(())
}

struct Copying<'db> {
    db: &'db Tx,
    wanted: &'db CopyRequest,
    view: &'db PoolView,
    /// The space that the copies are in.
    space: SpaceId,
    now: FileTime,
    visible: Visible<'db>,
    files: Vec<(PoolPath, Result<CopiedVersion, Error>)>,
    links: u64,
}

impl Copying<'_> {
    /// Copies entries until a page is full, and returns where to go on.
    fn page(&mut self, walk: &mut Walk<'_>) -> Result<Option<String>, Error> {
        let (mut work, mut last) = (0, None);
        while let Some(item) = walk.next_or_broken()? {
            work += ENTRY_WORK + item.as_ref().map_or(0, chunks_of);
            if last.is_some() && work > PAGE_WORK {
                return Ok(last);
            }
            let path = match &item {
                Ok(WalkedEntry { path, .. }) => path.clone(),
                Err(broken) => broken.path.clone(),
            };
            let to = below(&self.wanted.to, &path)?;
            match item.map(|item| (item.what, item.attributes)) {
                Ok((What::Dir(_), attributes)) => self.dir(&to, attributes)?,
                Ok((What::Link(target), attributes)) => self.link(target, attributes, to)?,
                Ok((What::File(version), _)) => self.file(*version, to)?,
                Err(broken) => self.files.push((to, Err(Error::Damaged(broken.why)))),
            }
            last = Some(path);
        }
        Ok(None)
    }

    /// Returns the attributes of a copy, which is new though it counts as modified when its source was.
    fn copied(&self, source: EntryAttributes) -> EntryAttributes {
        EntryAttributes { changed: self.now, accessed: None, ..source }
    }

    /// Makes a directory. If something else is in its place, the directory is reported as refused, and so is each file
    /// below it.
    fn dir(&mut self, path: &PoolPath, attributes: EntryAttributes) -> Result<(), Error> {
        let attributes = self.copied(attributes);
        match self.visible.make_dirs(path, attributes, self.now) {
            Ok(()) => Ok(()),
            Err(why) if is_refusal(&why) => {
                self.files.push((path.clone(), Err(why)));
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    fn link(
        &mut self,
        target: LinkTarget,
        attributes: EntryAttributes,
        to: PoolPath,
    ) -> Result<(), Error> {
        let attributes = self.copied(attributes);
        let made = LinkToMake { path: to.clone(), target, attributes };
        match links::make(self.db, &made, true, self.wanted.condition, self.visible.when) {
            Ok(()) => self.links += 1,
            Err(why) if is_refusal(&why) => self.files.push((to, Err(why))),
            Err(why) => return Err(why),
        }
        Ok(())
    }

    fn file(&mut self, mut source: Version, to: PoolPath) -> Result<(), Error> {
        source.attributes = self.copied(source.attributes);
        if source.parts > 0 {
            let copied = match self.put_whole(source, to.clone()) {
                Err(why) if !is_refusal(&why) && !matches!(why, Error::Damaged(_)) => {
                    return Err(why);
                }
                copied => copied,
            };
            self.files.push((to, copied));
            return Ok(());
        }
        let condition = self.wanted.condition;
        let copied = match PreparedFile::of_version(self.db, source, to.clone(), condition) {
            Ok(file) => match self.put(&file) {
                Err(why) if !is_refusal(&why) => return Err(why),
                copied => copied,
            },
            // Nothing of this file was written yet, so the other files can still be copied.
            Err(why @ Error::Damaged(_)) => Err(why),
            Err(why) => return Err(why),
        };
        self.files.push((to, copied));
        Ok(())
    }

    /// Copies a file that is made of parts, unless it has so many chunks that it would hold up others.
    fn put_whole(&mut self, source: Version, to: PoolPath) -> Result<CopiedVersion, Error> {
        if source.chunks > MOST_CHUNKS {
            return Err(Error::TooManyChunks { path: to, chunks: source.chunks });
        }
        let target = self.visible.look(to.clone(), self.wanted.condition, source.data())?;
        self.check_strict(&target, &source, &to)?;
        let mut checked = Vec::new();
        let mut below_policy = false;
        let mut next = 0;
        while let Some((number, version)) = wholes::next(self.db, source.id, next)? {
            next = number + 1;
            let part = PreparedFile::of_version(self.db, version, to.clone(), Condition::Always)?;
            let counts = &mut self.visible.counts;
            let AcknowledgedFile { safety, .. } =
                enough_copies::check(counts, &part, target.promise, self.view)?;
            below_policy |= safety.is_below_policy();
            checked.push((number, part, safety == WriteSafety::Safe));
        }
        let first = Counter::Version.take(self.db, 1 + checked.len() as u64)?;
        let id = VersionId(first as u64);
        let safe = checked.iter().all(|(.., safe)| *safe);
        for (nth, (number, part, safe)) in (1..).zip(&checked) {
            let part_id = VersionId(id.0 + nth);
            let PreparedFile { version, pages, chunks, .. } = part;
            let version = version.clone();
            let new = FileToPut { version, inline: None, pages, chunks, safe: *safe };
            self.visible.put_version(&target, part_id, new)?;
            parts::put(self.db, id, *number, part_id, None)?;
            changes::append(self.db, &ChangeOp::Part(id, *number))?;
        }
        parts::finish(self.db, id, self.space)?;
        let new = FileToPut { version: source, inline: None, pages: &[], chunks: &[], safe };
        self.visible.put(target, id, new)?;
        let version = versions::get(self.db, id)?;
        Ok(CopiedVersion { version, parts: parts::of(self.db, id)?, below_policy })
    }

    /// Refuses a copy whose directory asks for all redundancy from the start, and for another one than the source has.
    fn check_strict(
        &self,
        target: &PutTarget,
        source: &Version,
        to: &PoolPath,
    ) -> Result<(), Error> {
        let asks = target.keeping;
        if target.promise.strict && source.chunks > 0 && asks != source.redundancy() {
            return Err(Error::NotStrict { path: to.clone(), redundancy: asks });
        }
        Ok(())
    }

    fn put(&mut self, file: &PreparedFile) -> Result<CopiedVersion, Error> {
        let target = self.visible.look(file.path.clone(), file.condition, file.version.data())?;
        self.check_strict(&target, &file.version, &file.path)?;
        let counts = &mut self.visible.counts;
        let AcknowledgedFile { safety, .. } =
            enough_copies::check(counts, file, target.promise, self.view)?;
        let id = VersionId(Counter::Version.take(self.db, 1)? as u64);
        let PreparedFile { version, inline, pages, chunks, .. } = file;
        let (version, inline) = (version.clone(), inline.as_deref());
        let safe = safety == WriteSafety::Safe;
        let new = FileToPut { version, inline, pages, chunks, safe };
        self.visible.put(target, id, new)?;
        let version = versions::get(self.db, id)?;
        let (parts, below_policy) = (vec![version.id], safety.is_below_policy());
        Ok(CopiedVersion { version, parts, below_policy })
    }
}

fn chunks_of(entry: &WalkedEntry) -> u64 {
    match &entry.what {
        What::File(version) => version.chunks,
        What::Dir(_) | What::Link(_) => 0,
    }
}

fn below(to: &PoolPath, relative: &str) -> Result<PoolPath, Error> {
    to.join_all(relative.split('/')).map_err(|why| match why {
        BadPath::LongPath(bytes) => Error::TooLong { to: to.clone(), bytes },
        why => Error::Damaged(format!("{relative}: {why}")),
    })
}
