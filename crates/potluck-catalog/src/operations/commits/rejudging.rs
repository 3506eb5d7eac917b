//! Parts of files are judged when they are committed, and their files become visible later. Parts that rely on donors
//! to which something happened in between are judged again before that, a few at a time, by what the catalog knows and
//! only by donors that have listed what they hold.

use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::names::dir_policies;
use crate::operations::commits::{
    commit::PreparedFile,
    enough_copies::{self, AcknowledgedFile, Promise},
    visible::is_refusal,
};
use crate::pool_records::meta;
use crate::sql::Tx;
use crate::versions::{
    self,
    parts::{self, Relied},
};
use potluck_core::ids::{SessionId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror, Policy};
use potluck_pool::DonorSnapshot;
use potluck_pool::redundancy::Version;
use potluck_wire::control::Condition;

/// The most parts that are judged again in one query, at some ten milliseconds each.
const JUDGED_AT_ONCE: usize = 8;
/// The most parts that are looked at in one query; most of them may need no judgement.
const PARTS_AT_ONCE: usize = 256;

/// The parts of a file that a session is writing, which are to be judged again.
#[derive(Debug, Clone)]
pub struct PartsAhead {
    /// The write session that the file is written in.
    pub session: SessionId,
    /// The number of the file in its session.
    pub file: u32,
    /// The path at which the file is to be.
    pub path: PoolPath,
    /// The mirroring protocol: how copies of the file are made, and whether they are waited for.
    pub mirror: Mirror,
    /// The ack level that the session was promised.
    pub ack: AckLevel,
    /// The requirements of the session's command, whatever directories say.
    pub asked: AskedPolicy,
}

/// A part that was judged again: its number, its version, and the donors that it relies on now, or `None` if it lacks
/// chunks.
pub(crate) type JudgedAnew = (u32, VersionId, Option<Relied>);

/// Judges some of the parts from number `from` on that were judged before something happened to their donors, or that
/// lacked chunks then. Also returns the number from which to go on, or `None` after the last part.
pub(crate) fn judge_parts(
    db: &Tx,
    ahead: &PartsAhead,
    from: u32,
    donors: &DonorSnapshot,
) -> Result<(Vec<JudgedAnew>, Option<u32>), Error> {
    let Some(whole) = parts::being_written(db, &ahead.session, ahead.file)? else {
        return Ok((Vec::new(), None));
    };
    let (view, term) = (donors.current().of_those_that_listed(), meta::epoch(db)?);
    let dir = ahead.path.parent().ok_or_else(|| Error::OutsideSpaces(ahead.path.clone()))?;
    let Policy { mirror, ack, strict, .. } = dir_policies::effective(db, &dir)?;
    let promise = Promise { mirror, strict: ahead.asked.over.strict.unwrap_or(strict), ack };
    let promise = promise.of_session(ahead.asked, ahead.mirror, ahead.ack);
    let mut judged = Vec::new();
    let mut next = from;
    for part in parts::judged(db, whole, from, PARTS_AT_ONCE)? {
        next = part.number + 1;
        if part.relied.is_some_and(|relied| relied.holds(term, donors)) {
            continue;
        }
        let version = versions::get(db, part.part)?;
        let file = PreparedFile::of_version(db, version, ahead.path.clone(), Condition::Always)?;
        let mut counts = ReferenceCounts::new(db, 0);
        let relied = match enough_copies::check(&mut counts, &file, promise, &view) {
            Ok(AcknowledgedFile { by, .. }) => {
                let donors_by = by.into_iter().collect();
                Some(Relied { donors: donors_by, term, losses: donors.losses() })
            }
            Err(why) if is_refusal(&why) => None,
            Err(why) => return Err(why),
        };
        judged.push((part.number, part.part, relied));
        if judged.len() >= JUDGED_AT_ONCE {
            return Ok((judged, Some(next)));
        }
    }
    let more = next > from;
    Ok((judged, more.then_some(next)))
}

/// Notes the parts that were judged anew.
pub(crate) fn note_judged(db: &Tx, ahead: &PartsAhead, judged: &[JudgedAnew]) -> Result<(), Error> {
    let Some(whole) = parts::being_written(db, &ahead.session, ahead.file)? else { return Ok(()) };
    for (number, part, relied) in judged {
        parts::set_relied(db, whole, (*number, *part), relied.as_ref())?;
    }
    Ok(())
}

/// Returns at most `most` parts of a file that lacked chunks when they were judged last, each with its number.
pub(crate) fn lost_parts(
    db: &Tx,
    session: &SessionId,
    file: u32,
    path: &PoolPath,
    most: usize,
) -> Result<Vec<(u32, PreparedFile)>, Error> {
    let Some(whole) = parts::being_written(db, session, file)? else { return Ok(Vec::new()) };
    let lost = parts::judged(db, whole, 0, usize::MAX >> 1)?;
    let lost = lost.into_iter().filter(|part| part.relied.is_none()).take(most);
    let read = |part: parts::JudgedPart| {
        let version: Version = versions::get(db, part.part)?;
        let file = PreparedFile::of_version(db, version, path.clone(), Condition::Always)?;
        Ok((part.number, file))
    };
    lost.map(read).collect()
}
