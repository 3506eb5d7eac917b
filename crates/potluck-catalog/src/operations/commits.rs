//! Commits, by which written files become visible.

pub(crate) mod commit;
pub(crate) mod enough_copies;
pub(crate) mod rejudging;
pub(crate) mod sealing_again;
pub(crate) mod visible;

use crate::chunks::placements;
use crate::kept_replies::{RepeatableCall, RepliesTo};
use crate::operations::commits::{
    commit::{Batch, CommitOutcome, PreparedFile, Refused, StoredFile},
    rejudging::PartsAhead,
};
use crate::policies::conversions;
use crate::versions::parts;
use crate::when::When;
use crate::{Catalog, Durability, Error, chunks};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, MemberId, SessionId, VersionId};
use potluck_core::path::PoolPath;
use potluck_pool::DonorSnapshot;
use std::sync::Arc;

/// The most parts of one file that lack chunks and are reported at once: the client that writes the file sends these
/// again, and asks for more.
pub const LOST_AT_ONCE: usize = 16;

/// A batch that was committed.
#[derive(Debug)]
pub struct CommittedFiles<F> {
    /// The outcome of the batch's files.
    pub outcome: CommitOutcome<F>,
    /// True if a file of the batch lacks copies that are still to be made.
    pub open: bool,
    /// The versions on donors that became visible; of a large file, its parts.
    pub versions: Vec<VersionId>,
    /// The number of deaths of donors that the least safe of these versions tolerates when it has all its copies;
    /// `None` if there are none.
    pub tolerates: Option<u32>,
}

impl Catalog {
    /// Commits a batch, unless it was committed before. Copies count as their donors stood in the snapshot, without
    /// those that stopped counting while this call waited for its turn.
    ///
    /// With `waits`, a file whose holders went away refuses the whole batch with [`Error::HoldersAway`], so that the
    /// caller can wait for them.
    ///
    /// `told` are copies that donors told of and that no receipt names. `reply` returns the text of the reply, which is
    /// kept to be repeated if it is lost.
    pub async fn commit_files<F: Clone + Send + Sync + 'static>(
        &self,
        batch: Arc<Batch<F>>,
        waits: bool,
        told: Arc<[(ChunkName, DonorId)]>,
        donors: DonorSnapshot,
        when: When,
        reply: impl Fn(&[Result<StoredFile, Refused<F>>]) -> Result<String, Error> + Send + 'static,
    ) -> Result<CommittedFiles<F>, Error> {
        let paths = batch.files.iter().flatten().map(|file| &file.path);
        let durability = self.durability(when, paths).await?;
        let work = move |db: &_| {
            let outcome = commit::commit(db, &batch, waits, &donors, when, &reply)?;
            let restarted = donors.restarted();
            for (name, donor) in told.iter().filter(|(_, donor)| !restarted.contains(donor)) {
                if let Some(chunk) = chunks::get(db, name)? {
                    placements::told_before(db, chunk.id, *donor)?;
                }
            }
            let (mut visible, mut on_donors, mut tolerates) = (Vec::new(), Vec::new(), None);
            if let CommitOutcome::Fresh { files, .. } = &outcome {
                for (stored, file) in files.iter().zip(&batch.files) {
                    let (Ok(stored), Ok(file)) = (stored, file) else { continue };
                    // A file whose content is in the catalog has all of its redundancy.
                    if !file.is_part() && !file.version.inline {
                        visible.push(stored.version);
                        // Of a large file only the parts have chunks of their own.
                        if file.version.chunks > 0 || file.version.parts > 0 {
                            on_donors.push(stored.version);
                            let has = file.version.redundancy().tolerates();
                            tolerates = Some(tolerates.map_or(has, |least: u32| least.min(has)));
                        }
                    }
                }
            }
            let open = conversions::any_open(db, visible.iter().copied())?;
            let mut versions = Vec::new();
            for version in on_donors {
                versions.extend(parts::of(db, version)?);
            }
            Ok(CommittedFiles { outcome, open, versions, tolerates })
        };
        self.write(durability, work).await
    }

    /// Judges, in several transactions, parts of a file that a session is writing once more: those that were judged
    /// before something happened to their donors, or that lacked chunks. This ends when [`LOST_AT_ONCE`] parts or more
    /// were found to lack some. A batch with the file is committed after that.
    pub async fn judge_parts(&self, ahead: PartsAhead, donors: DonorSnapshot) -> Result<(), Error> {
        let (ahead, mut from, mut lost) = (Arc::new(ahead), Some(0), 0);
        while let Some(number) = from.filter(|_| lost < LOST_AT_ONCE) {
            let (of, donors) = (Arc::clone(&ahead), donors.clone());
            let (judged, next) =
                self.read(move |db| rejudging::judge_parts(db, &of, number, &donors)).await?;
            lost += judged.iter().filter(|(.., relied)| relied.is_none()).count();
            if !judged.is_empty() {
                let of = Arc::clone(&ahead);
                let note = move |db: &_| rejudging::note_judged(db, &of, &judged);
                self.write(Durability::Process, note).await?;
            }
            from = next;
        }
        Ok(())
    }

    /// Returns parts of the file number `file` of a session that lacked chunks when they were judged last, at most
    /// [`LOST_AT_ONCE`], each with its number.
    pub async fn lost_parts(
        &self,
        session: SessionId,
        file: u32,
        path: PoolPath,
    ) -> Result<Vec<(u32, PreparedFile)>, Error> {
        let most = LOST_AT_ONCE;
        self.read(move |db| rejudging::lost_parts(db, &session, file, &path, most)).await
    }

    /// Returns the replies that were given to the steps of the call number `batch` of a member's commits, in order; none
    /// if that member committed nothing by it.
    pub async fn committed_before(
        &self,
        member: MemberId,
        session: SessionId,
        batch: u32,
    ) -> Result<Vec<String>, Error> {
        let replies = RepliesTo { member, call: RepeatableCall::Commit, id: session };
        self.read(move |db| replies.all_steps(db, batch)).await
    }
}
