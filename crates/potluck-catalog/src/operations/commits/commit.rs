//! Commit: written files become visible, in one transaction. Whether enough donors acknowledged their chunks is
//! decided in [`crate::operations::commits::enough_copies`].
//!
//! All that can be checked without the catalog was checked before ([`PreparedFile`]). Each file is first checked
//! against the catalog and only then written, so that a refused file leaves no trace and the other files of its batch
//! are committed.

use crate::chunks;
use crate::error::Error;
use crate::kept_replies::{CommitStep, RepeatableCall, RepliesTo};
use crate::log::changes::{self, ChangeOp};
use crate::operations::commits::{
    enough_copies::{self, AcknowledgedFile, MirroringWindow, Promise, WriteSafety},
    sealing_again::{self, SealedContent},
    visible::{FileToPut, PutTarget, Visible, is_refusal},
};
use crate::operations::sessions::session_changes;
use crate::pool_records::{
    meta::{self, Counter},
    sessions,
    spaces::{self, Space},
};
use crate::sql::Tx;
use crate::versions::{
    self,
    parts::{self, Relied},
    wholes,
};
use crate::when::When;
use potluck_core::attributes::FileTime;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, KeyNumber, MemberId, SessionId, SpaceId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror};
use potluck_core::recipe::PART_CHUNKS;
use potluck_pool::redundancy::Version;
use potluck_pool::{DonorSnapshot, InUseAgain, OpenReservation, PoolView};
use potluck_wire::control::{Condition, InParts, Outcome};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A file whose recipe, sizes, digest and receipts are what they should be.
#[derive(Debug, Clone)]
pub struct PreparedFile {
    /// The path at which the file becomes visible, inside the session's space.
    pub path: PoolPath,
    /// The version that becomes visible at that path; its number is given at the commit.
    pub version: Version,
    /// The content of the file, if it lives in the catalog.
    pub inline: Option<Vec<u8>>,
    /// The recipe of the file as it is kept, if its content does not live in the catalog.
    pub pages: Vec<Vec<u8>>,
    /// The chunks of the file in order, then its parity; all were offered in the session.
    pub chunks: Vec<PreparedChunk>,
    /// The condition under which the file may replace what is at its path.
    pub condition: Condition,
    /// The role of the file if it is a part of another, or if its parts were committed before.
    pub in_parts: Option<InParts>,
}

impl PreparedFile {
    /// Returns the names of all chunks of the file.
    pub fn names(&self) -> BTreeSet<ChunkName> {
        self.chunks.iter().map(|chunk| chunk.name).collect()
    }

    /// Returns whether this is a part of a file.
    pub fn is_part(&self) -> bool {
        matches!(self.in_parts, Some(InParts::Part { .. }))
    }

    /// Returns the file without the receipts of the given donors.
    fn without_receipts_of(&self, donors: &BTreeSet<DonorId>) -> Cow<'_, Self> {
        let is_void = |(donor, _): &(DonorId, AckLevel)| donors.contains(donor);
        if donors.is_empty() || !self.chunks.iter().any(|chunk| chunk.holders.iter().any(is_void)) {
            return Cow::Borrowed(self);
        }
        let mut file = self.clone();
        file.chunks.iter_mut().for_each(|chunk| chunk.holders.retain(|holder| !is_void(holder)));
        Cow::Owned(file)
    }

    /// Returns a file at `path` with the content of a version, without receipts.
    pub(crate) fn of_version(
        db: &Tx,
        version: Version,
        path: PoolPath,
        condition: Condition,
    ) -> Result<Self, Error> {
        let pages = versions::pages(db, version.id)?;
        let chunk = |(name, len)| PreparedChunk { name, len, holders: Vec::new() };
        let data = versions::unpack(&version, &pages)?;
        let mut chunks: Vec<_> = data.iter().map(|entry| chunk((entry.name, entry.len))).collect();
        for name in versions::parity(db, &version)? {
            let row = chunks::get(db, &name)?
                .ok_or_else(|| Error::Damaged(format!("chunk {name} of a recipe has no row")))?;
            chunks.push(chunk((name, row.len)));
        }
        let inline = versions::inline(db, version.id)?;
        Ok(Self { path, version, inline, pages, chunks, condition, in_parts: None })
    }
}

/// A chunk of a file.
#[derive(Debug, Clone)]
pub struct PreparedChunk {
    /// The name of the chunk.
    pub name: ChunkName,
    /// The size of the chunk in stored bytes.
    pub len: u32,
    /// The donors whose receipts for the chunk were valid, each with the ack level.
    pub holders: Vec<(DonorId, AckLevel)>,
}

/// A batch of files of one session.
#[derive(Debug)]
pub struct Batch<F> {
    /// The write session that commits these files.
    pub session: SessionId,
    /// The member whose session it is.
    pub member: MemberId,
    /// The space in which the session writes.
    pub space: SpaceId,
    /// The position of this commit among those of the session.
    pub number: CommitStep,
    /// The mirroring protocol: how copies are made, and whether they are waited for.
    pub mirror: Mirror,
    /// The ack level that the session was promised.
    pub ack: AckLevel,
    /// The requirements of the session's command, whatever directories say.
    pub asked: AskedPolicy,
    /// The reservations that are open, without the one whose room the session uses.
    pub reserved: Vec<OpenReservation>,
    /// The files of the batch; those that were refused before keep their places as errors.
    pub files: Vec<Result<PreparedFile, F>>,
    /// True if the session ends with the batch, unless chunks of a file are to be sent again.
    pub done: bool,
}

/// The outcome of a batch.
#[derive(Debug)]
pub enum CommitOutcome<F> {
    /// The batch was committed before; this is the reply that was given then.
    Repeated(String),
    /// The batch was committed now, all of it or in part.
    Fresh {
        /// The outcome of each file, in the order of the batch: what was stored, or why it was refused.
        files: Vec<Result<StoredFile, Refused<F>>>,
        /// The chunks that were condemned or gone and are in use again.
        again: InUseAgain,
    },
}

/// A file that became visible, or a part that was stored for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredFile {
    /// The version that the file has.
    pub version: VersionId,
    /// The bytes of the file that are in no hole.
    pub data: u64,
    /// True if the file has less redundancy than its policy asks for, because donors are away.
    pub below_policy: bool,
    /// True if the death of one donor may lose some of the file until an asynchronous protocol has made its copies.
    pub at_risk: bool,
    /// The time at which the file's directory was modified by its arrival; `None` for a part, and for a file that
    /// replaced another.
    pub dir_modified: Option<FileTime>,
}

impl StoredFile {
    fn new(version: &Version, safety: WriteSafety, dir_modified: Option<FileTime>) -> Self {
        let (below_policy, at_risk) = (safety.is_below_policy(), safety.is_at_risk());
        Self { version: version.id, data: version.data(), below_policy, at_risk, dir_modified }
    }
}

/// The reason why a file of a batch was refused.
#[derive(Debug)]
pub enum Refused<F> {
    /// The file was refused before the catalog was asked.
    Before(F),
    /// The catalog refused the file.
    Here(Error),
}

impl<F> Refused<F> {
    /// Returns whether the client is to send chunks of the file to other donors, for which the session goes on.
    pub fn is_sent_again(&self) -> bool {
        let told = |why: &Error| Outcome::Refused(why.clone().into());
        matches!(self, Self::Here(why) if told(why).is_sent_again())
    }
}

/// Commits a batch, unless it was committed before.
///
/// Copies count by the state of `donors` at this moment; receipts of donors that were started again since the work
/// began do not count. The whole batch fails, for the caller to try it again, if `waits` is set and donors that hold a
/// file went away, or if parts of a file must be judged again first. `reply` makes the text that is kept to repeat a
/// reply that was lost.
pub(crate) fn commit<F: Clone>(
    db: &Tx,
    batch: &Batch<F>,
    waits: bool,
    donors: &DonorSnapshot,
    when: When,
    reply: impl FnOnce(&[Result<StoredFile, Refused<F>>]) -> Result<String, Error>,
) -> Result<CommitOutcome<F>, Error> {
    let replies =
        RepliesTo { member: batch.member, call: RepeatableCall::Commit, id: batch.session };
    if let Some(text) = replies.find(db, batch.number)? {
        return Ok(CommitOutcome::Repeated(text));
    }
    if !sessions::is_open(db, &batch.session)? {
        return Err(Error::NoSession);
    }
    let first = Counter::Version.take(db, batch.files.len() as u64)?;
    let space = spaces::numbered(db, batch.space)?;
    let (view, restarted) = (donors.current(), donors.restarted());
    let mut work = Work {
        db,
        session: batch.session,
        space: batch.space,
        donors,
        view: &view,
        mirror: batch.mirror,
        ack: batch.ack,
        asked: batch.asked,
        key: sessions::key_of(db, &batch.session)?,
        of: space.as_ref(),
        visible: Visible::new(db, space.as_ref(), when).asking(batch.asked).beside(&batch.reserved),
    };
    let mut outcomes = Vec::with_capacity(batch.files.len());
    for (id, file) in (first..).zip(&batch.files) {
        let outcome = match file {
            Err(refused) => Err(Refused::Before(refused.clone())),
            Ok(file) => {
                match work.file(VersionId(id as u64), &file.without_receipts_of(&restarted)) {
                    Ok(stored) => Ok(stored),
                    Err(why @ Error::HoldersAway { .. }) if waits => return Err(why),
                    Err(why) if is_refusal(&why) => Err(Refused::Here(why)),
                    Err(why) => return Err(why),
                }
            }
        };
        outcomes.push(outcome);
    }
    let again = work.visible.close()?;
    let is_whole = |file: &Result<PreparedFile, F>| file.as_ref().is_ok_and(|it| !it.is_part());
    let visible = outcomes.iter().zip(&batch.files).filter(|(_, file)| is_whole(file));
    let visible = visible.filter_map(|(outcome, _)| outcome.as_ref().ok());
    sessions::visible(db, &batch.session, visible.map(|stored| stored.data).sum())?;
    let goes_on = outcomes.iter().any(|file| file.as_ref().is_err_and(Refused::is_sent_again));
    if batch.done && !goes_on {
        session_changes::end(db, &batch.session)?;
    }
    replies.keep(db, batch.number, when.pool_ms, reply(&outcomes)?)?;
    Ok(CommitOutcome::Fresh { files: outcomes, again })
}

struct Work<'db> {
    db: &'db Tx,
    session: SessionId,
    space: SpaceId,
    donors: &'db DonorSnapshot,
    view: &'db PoolView,
    mirror: Mirror,
    ack: AckLevel,
    asked: AskedPolicy,
    /// The number of the key that seals the session's files.
    key: Option<KeyNumber>,
    /// The space with its keys.
    of: Option<&'db Space>,
    visible: Visible<'db>,
}

impl Work<'_> {
    fn file(&mut self, id: VersionId, file: &PreparedFile) -> Result<StoredFile, Error> {
        if let Condition::SealsAgain(version) = file.condition {
            return self.seal_again(version, file);
        }
        match file.in_parts {
            Some(InParts::Part { file: of, number }) => self.part(id, file, of, number),
            Some(InParts::Whole { file: of, .. }) => self.whole(file, of),
            None => {
                let target =
                    self.visible.look(file.path.clone(), file.condition, file.version.data())?;
                let AcknowledgedFile { safety, .. } = self.check(&target, file)?;
                // From here on the file is accepted.
                let dir_modified = self.visible.put(target, id, self.to_put(file, safety))?;
                let version = Version { id, ..file.version.clone() };
                Ok(StoredFile::new(&version, safety, dir_modified))
            }
        }
    }

    /// Gives a version the content of a file that is sealed with the session's key.
    fn seal_again(&mut self, of: VersionId, file: &PreparedFile) -> Result<StoredFile, Error> {
        let now_ms = self.visible.counts.now_ms();
        let version = sealing_again::find(self.db, self.of, (of, self.key), file, now_ms)?;
        let key = self.key.ok_or(Error::NotSealedAgain(of))?;
        let promise = Promise { mirror: self.mirror, strict: false, ack: self.ack };
        let counts = &mut self.visible.counts;
        let AcknowledgedFile { safety, .. } =
            enough_copies::check(counts, file, promise, self.view)?;
        let content = SealedContent {
            key,
            inline: file.inline.as_deref(),
            pages: &file.pages,
            chunks: &file.chunks,
            data: file.version.chunks as usize,
            safe_wall_ms: version.safe_wall_ms.filter(|_| safety == WriteSafety::Safe),
        };
        sealing_again::replace(self.db, &version, &content, counts)?;
        Ok(StoredFile::new(&version, safety, None))
    }

    /// Stores a part of a file that is not visible yet, in the place of an earlier part with the same number.
    fn part(
        &mut self,
        id: VersionId,
        file: &PreparedFile,
        of: u32,
        number: u32,
    ) -> Result<StoredFile, Error> {
        let target =
            self.visible.look(file.path.clone(), Condition::Always, file.version.data())?;
        let AcknowledgedFile { safety, by } = self.check(&target, file)?;
        let whole = match parts::being_written(self.db, &self.session, of)? {
            Some(whole) => whole,
            None => {
                let whole = VersionId(Counter::Version.take(self.db, 1)? as u64);
                parts::begin(self.db, whole, self.space, &self.session, of)?;
                whole
            }
        };
        if let Some(earlier) = parts::at(self.db, whole, number)? {
            self.visible.remove_version(earlier)?;
        }
        self.visible.put_version(&target, id, self.to_put(file, safety))?;
        let (term, losses) = (meta::epoch(self.db)?, self.donors.losses());
        let relied = Relied { donors: by.into_iter().collect(), term, losses };
        parts::put(self.db, whole, number, id, Some(&relied))?;
        changes::append(self.db, &ChangeOp::Part(whole, number))?;
        // The part keeps its chunks in use, so their offers are forgotten: a session does not take more memory the
        // longer it writes.
        sessions::withdraw(self.db, &self.session, &file.names())?;
        Ok(StoredFile::new(&Version { id, ..file.version.clone() }, safety, None))
    }

    /// Makes a file visible whose parts are there. Each part was judged when it was committed, and is not judged again
    /// unless something happened to the donors that it relies on.
    fn whole(&mut self, file: &PreparedFile, of: u32) -> Result<StoredFile, Error> {
        let differ = || Error::PartsDiffer(file.path.clone());
        let id = parts::being_written(self.db, &self.session, of)?.ok_or_else(differ)?;
        let mut version = Version { id, ..file.version.clone() };
        let sum = wholes::sum(self.db, &version)?.ok_or_else(differ)?;
        (version.chunks, version.holes) = (sum.chunks, sum.holes);
        let target = self.visible.look(file.path.clone(), file.condition, version.data())?;
        let (term, mut holds) = (meta::epoch(self.db)?, None);
        for part in parts::judged(self.db, id, 0, usize::MAX >> 1)? {
            let Some(relied) = part.relied else {
                let index = part.number as usize * PART_CHUNKS;
                return Err(Error::HoldersAway { path: file.path.clone(), index });
            };
            // Many parts in a row rely on the same donors, which are checked once.
            if holds.as_ref() == Some(&relied) {
                continue;
            }
            if !relied.holds(term, self.donors) {
                return Err(Error::PartsUnjudged);
            }
            holds = Some(relied);
        }
        check_strict(&target, file)?;
        let promise = target.promise.of_session(self.asked, self.mirror, self.ack);
        if self.is_less_than(promise) {
            return Err(Error::LessSafe(file.path.clone())); // its parts were judged by less
        }
        let redundancy = version.redundancy();
        let safety = match sum.safe {
            true => WriteSafety::Safe,
            false if self.mirror.is_async() && file.version.ec.is_none() => {
                WriteSafety::Mirroring(MirroringWindow {
                    below_policy: self.view.trusted_and_live() < redundancy.donors() as usize,
                    at_risk: true, // a part does not say whether it has a second copy by now
                })
            }
            // Its parts may have been judged in another directory.
            false if promise.strict => {
                return Err(Error::NotStrict { path: file.path.clone(), redundancy });
            }
            false => WriteSafety::BelowPolicy,
        };
        parts::finish(self.db, id, self.space)?;
        let mut new = self.to_put(file, safety);
        new.version = version.clone();
        let dir_modified = self.visible.put(target, id, new)?;
        Ok(StoredFile::new(&version, safety, dir_modified))
    }

    fn check(
        &mut self,
        target: &PutTarget,
        file: &PreparedFile,
    ) -> Result<AcknowledgedFile, Error> {
        check_strict(target, file)?;
        let promise = target.promise.of_session(self.asked, self.mirror, self.ack);
        let checked = enough_copies::check(&mut self.visible.counts, file, promise, self.view);
        if !self.is_less_than(promise) || !checked.as_ref().is_err_and(is_refusal) {
            return checked;
        }
        // A file that keeps the session's own promise would be refused again, however often it is sent.
        let own = Promise { mirror: self.mirror, ack: self.ack, ..promise };
        match enough_copies::check(&mut self.visible.counts, file, own, self.view) {
            Ok(_) => Err(Error::LessSafe(file.path.clone())),
            Err(_) => checked,
        }
    }

    /// Returns whether the session waits for less than the directory of a file asks for.
    fn is_less_than(&self, promise: Promise) -> bool {
        self.ack < promise.ack || self.mirror.is_async() && !promise.mirror.is_async()
    }

    fn to_put<'f>(&self, file: &'f PreparedFile, safety: WriteSafety) -> FileToPut<'f> {
        // What has no content of its own is not sealed.
        let key = self.key.filter(|_| file.version.parts == 0 && file.version.size > 0);
        FileToPut {
            version: Version { key, ..file.version.clone() },
            inline: file.inline.as_deref(),
            pages: &file.pages,
            chunks: &file.chunks,
            safe: safety == WriteSafety::Safe,
        }
    }
}

/// Refuses a file whose directory asks for all redundancy from the start, and for more than the file was written with:
/// its session was opened for another directory, or the policy has changed since.
fn check_strict(target: &PutTarget, file: &PreparedFile) -> Result<(), Error> {
    let (has, asks) = (file.version.redundancy(), target.keeping);
    // A file whose content is in the catalog is on no donor.
    let is_less = !file.version.inline && has.tolerates() < asks.tolerates();
    match target.promise.strict && is_less {
        true => Err(Error::NotStrict { path: file.path.clone(), redundancy: asks }),
        false => Ok(()),
    }
}
