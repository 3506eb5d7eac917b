//! The calls of a write session. A reserve opens it, and the last commit or an abort closes it; files become visible
//! only by commits. An abort may ask to keep what was stored, so that the same command goes on later (parked sessions
//! in `potluck_pool`).

use crate::fetch::LocatedChunks;
use crate::pool::Pool;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::AckLevel;
use potluck_wire::control::{
    Abort, Commit, Committed, CommittedParts, FileCommit, Grow, GrowingFile, Grown, Held,
    LostParts, Offer, Offered, Renew, Renewed, Reserve, Reserved,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::Packed;
use std::collections::{BTreeMap, BTreeSet};

/// The reservation of an open write session. If it is dropped without [`Reservation::finish`], it is aborted, and the
/// chunks that were sent are kept for a while.
pub struct Reservation {
    calls: SessionCalls,
    /// The session and the plan that the manager granted.
    pub reserved: Reserved,
    /// The plaintext bytes that the manager has promised so far.
    pub promised: u64,
    /// The plaintext bytes that the writer said it will write, if it said so.
    pub bytes: Option<u64>,
    /// The path of the file, or of the tree, that is written.
    pub root: PoolPath,
    armed: bool,
}

/// The calls of a session; cheap to clone, so that several can be under way.
#[derive(Clone)]
pub struct SessionCalls {
    client: Pool,
    session: SessionId,
    /// The path that all files of the session are at or below.
    root: PoolPath,
}

/// A request of a session for more room.
pub struct Growth {
    /// The additional plaintext bytes that are asked for.
    pub bytes: u64,
    /// The donors that failed and should not be planned again.
    pub avoid: Vec<DonorId>,
    /// True if only donors for the whole redundancy are of use.
    pub whole: bool,
    /// The one file of the session, if its size was unknown.
    pub file: Option<GrowingFile>,
}

/// The most bytes of the first promise to a session of unknown size that the client counts on: it asks for more before
/// they are used up.
const FIRST_PROMISE: u64 = 64 << 20;

/// The most names in one call that offers chunks: a manager refuses very many at once. While it is slow, or is started
/// again, a write of small chunks has as many cut as its memory takes.
const OFFERED_AT_ONCE: usize = 8192;

impl Reservation {
    /// Opens a write session with the bytes that `reserve` asks for.
    ///
    /// Errors: those of [`Pool::call_to_begin`].
    pub async fn open(client: &Pool, reserve: &Reserve) -> Result<Self, Failure> {
        let reserved = client.call_to_begin(reserve).await?;
        client.note_striping(reserved.striping);
        let calls = SessionCalls {
            client: client.clone(),
            session: reserved.session,
            root: reserve.path.clone(),
        };
        // With an erasure code the plan counts groups.
        let data = reserved.policy.ec.map_or(1, |ec| ec.data() as u64);
        let planned = reserved.plan.chunks() * data * u64::from(reserved.policy.chunk_size);
        let promised = reserve.bytes.unwrap_or(planned.min(FIRST_PROMISE));
        let root = reserve.path.clone();
        Ok(Self { calls, reserved, promised, bytes: reserve.bytes, root, armed: true })
    }

    /// Makes the reservation of a session that no manager knows.
    #[cfg(test)]
    pub fn unknown(client: &Pool, reserved: Reserved, root: PoolPath) -> Self {
        let (session, client) = (reserved.session, client.clone());
        let calls = SessionCalls { client, session, root: root.clone() };
        Self { calls, reserved, promised: 0, bytes: None, root, armed: false }
    }

    /// Returns the calls of this session.
    pub fn calls(&self) -> SessionCalls {
        self.calls.clone()
    }

    /// Ends the reservation without an abort, because the last commit has closed the session.
    pub fn finish(mut self) {
        self.armed = false;
    }

    /// Ends the session; nothing more becomes visible. Its chunks are reclaimed; with `keep` they are kept for a while,
    /// for a client that soon writes the same again.
    pub async fn abort(mut self, keep: bool) {
        self.armed = false;
        self.calls.abort(keep).await;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let calls = self.calls.clone();
        // Its writer was interrupted, so the session is kept for the resume window.
        self.calls.client.in_background(async move { calls.abort(true).await });
    }
}

/// Returns the answer about `count` names as one about all names of an offer, of which these begin at `first`.
fn of_all(answer: Offered, first: u32, count: usize) -> impl Iterator<Item = Held> {
    let of_these = answer.held.into_iter().filter(move |held| (held.index as usize) < count);
    of_these.map(move |held| Held { index: first + held.index, ..held })
}

impl SessionCalls {
    /// Asks, in as many calls as it takes, which chunks the pool holds, and whether a file that has so many `bytes` so
    /// far is allowed, for example by its quota.
    pub async fn offer(
        &self,
        chunks: Vec<ChunkName>,
        ack: AckLevel,
        bytes: Option<u64>,
    ) -> Result<Offered, Failure> {
        let mut offered = Offered::default();
        let parts = chunks.chunks(OFFERED_AT_ONCE);
        for (first, names) in (0..).step_by(OFFERED_AT_ONCE).zip(parts) {
            let so_far = bytes.map(|bytes| GrowingFile { path: self.root.clone(), bytes });
            let (session, chunks) = (self.session, Packed(names.to_vec()));
            let answer = self.client.call_retrying(&Offer { session, chunks, ack, so_far }).await?;
            offered.held.extend(of_all(answer, first, names.len()));
        }
        Ok(offered)
    }

    /// Asks where those of these chunks are for which no donor is known, and how the donors of all of them, and those
    /// of the session, can be reached now.
    pub async fn locate(
        self,
        mut holders: BTreeMap<ChunkName, Vec<DonorId>>,
        ack: AckLevel,
    ) -> Result<LocatedChunks, Failure> {
        let unknown = holders.iter().filter(|(_, donors)| donors.is_empty());
        let unknown: Vec<ChunkName> = unknown.map(|(name, _)| *name).collect();
        let found = self.offer(unknown.clone(), ack, None).await?.held.into_iter();
        let found = found.filter_map(|it| Some((*unknown.get(it.index as usize)?, it.donors)));
        holders.extend(found);
        let all: BTreeSet<DonorId> = holders.values().flatten().copied().collect();
        let donors = self.reach(all.into_iter().collect()).await?.donors;
        Ok(LocatedChunks { holders, donors })
    }

    /// Returns the reason why the manager does not know the session any more, if that is that the right to write was
    /// taken from this member, which ends its sessions.
    pub async fn lost_right(&self) -> Option<Failure> {
        let so_far = Some(GrowingFile { path: self.root.clone(), bytes: 0 });
        let (session, chunks, ack) = (self.session, Packed(Vec::new()), AckLevel::Memory);
        let failure =
            self.client.caller.call(&Offer { session, chunks, ack, so_far }).await.err()?;
        match failure.code.as_str() {
            code::NO_RIGHT => Some(failure),
            // The member may not even see the space any more to which it has just written.
            code::NO_SPACE_NAMED => {
                Some(Failure { kind: ErrorKind::Auth, code: code::NO_RIGHT.into(), ..failure })
            }
            _ => None,
        }
    }

    /// Asks for more room; with `wait` it asks again for a while where donors may still report to a new manager.
    pub async fn grow(self, growth: Growth, wait: bool) -> Result<Grown, Failure> {
        let Growth { bytes, avoid, whole, file } = growth;
        let grow = Grow { session: self.session, bytes, holders: Vec::new(), avoid, whole, file };
        match wait {
            true => self.client.call_retrying(&grow).await,
            false => self.client.call_for_manager(&grow).await,
        }
    }

    /// Asks how the donors of the session can be reached now, and those of `holders` that are not in its plan.
    pub async fn reach(self, holders: Vec<DonorId>) -> Result<Grown, Failure> {
        let (session, avoid) = (self.session, Vec::new());
        let grow = Grow { session, bytes: 0, holders, avoid, whole: false, file: None };
        self.client.call_retrying(&grow).await
    }

    /// Keeps the session, and renews its tickets.
    pub async fn renew(self) -> Result<Renewed, Failure> {
        self.readmit(Vec::new()).await
    }

    /// Asks for other tickets, because these donors refused the current ones.
    pub async fn readmit(self, refused: Vec<DonorId>) -> Result<Renewed, Failure> {
        let traffic = self.client.traffic.take_untold();
        self.client.call_retrying(&Renew { session: self.session, refused, traffic }).await
    }

    /// Commits parts of files, and files, which become visible; with `done` this closes the session, and with `soon` a
    /// power cut may undo it for a moment. Returns the files together with the outcome of each.
    pub async fn commit(
        self,
        batch: u32,
        files: Vec<FileCommit>,
        done: bool,
        soon: bool,
    ) -> (Vec<FileCommit>, Result<Committed, Failure>) {
        let traffic = self.client.traffic.take_untold();
        let commit = Commit { session: self.session, batch, files, done, soon, traffic };
        let committed = self.client.call_retrying(&commit).await;
        let committed = committed.and_then(|committed| of_all_files(committed, commit.files.len()));
        (commit.files, committed)
    }

    /// Asks which parts of a file lost donors after they were committed.
    pub async fn lost_parts(self, file: u32) -> Result<CommittedParts, Failure> {
        self.client.call_retrying(&LostParts { session: self.session, file }).await
    }

    async fn abort(&self, keep: bool) {
        // The call is made only once, because a writer that was interrupted does not wait.
        let abort = Abort { session: self.session, keep };
        if let Err(failure) = self.client.caller.call(&abort).await {
            tracing::debug!(%failure, "abort failed; the lease ends the session");
        }
    }
}

/// Returns what became of `files` files, if the manager said that of each: a file that it says nothing of is not taken
/// for stored.
fn of_all_files(committed: Committed, files: usize) -> Result<Committed, Failure> {
    if committed.files.len() == files {
        return Ok(committed);
    }
    let what = format!(
        "the manager says what became of {} files where {files} were to become visible",
        committed.files.len()
    );
    Err(Failure::new(ErrorKind::Other, code::NOT_ACKNOWLEDGED, what)
        .hint("repeat the command: what is stored is not sent again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::control::Outcome;

    #[test]
    fn chunks_that_were_offered_by_several_calls_are_told_apart() {
        let answer = |indexes: &[u32]| {
            let held = |index: &u32| Held { index: *index, donors: Vec::new(), unused: false };
            Offered { held: indexes.iter().map(held).collect() }
        };
        let indexes = |answer, first, count| {
            of_all(answer, first, count).map(|held| held.index).collect::<Vec<u32>>()
        };
        assert_eq!(indexes(answer(&[0, 7]), 0, 8), [0, 7]);
        assert_eq!(indexes(answer(&[3, 8, u32::MAX]), 16, 8), [19], "the call offered no others");
    }

    #[test]
    fn a_commit_fails_that_does_not_say_what_became_of_each_file() {
        let said = |files: usize| Committed {
            files: vec![Outcome::Refused(Failure::bad_request("refused")); files],
        };
        assert!(of_all_files(said(2), 2).is_ok());
        for (files, said_of) in [(1, 0), (2, 1), (1, 2)] {
            let failure = of_all_files(said(said_of), files).expect_err("not said of each");
            assert!(failure.message.contains(&format!("of {said_of} files where {files}")));
        }
    }
}
