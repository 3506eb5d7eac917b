//! Answers the calls that commit written files, which become visible. Receipts are checked in [`super::prepare`], where
//! those of a donor's earlier incarnation are left out. Receipts of donors that are started again after that are left
//! out in the transaction ([`potluck_pool::DonorSnapshot::for_work_begun_at`]), and the client sends their chunks
//! again.

use super::prepare::{Against, UnknownKey};
use super::unsent::{Presence, lacks};
use super::{Answer, Verb};
use crate::access::Access;
use crate::audit_log::Auditor;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::known_spaces::KnownSpaces;
use crate::lock_table::SharedLockTable;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::series_uses::SeriesUses;
use crate::session_rates::SessionRates;
use crate::sessions::WriteSessions;
use crate::shared_pool::SharedPool;
use crate::waiting_for_donors::WaitingForDonors;
use potluck_catalog::{
    Batch, Catalog, ChunkAsker, CommitOutcome, CommitStep, CommittedFiles, Error, KnownChunk,
    PartsAhead, PreparedFile, Refused, StoredFile, ToldCopies, When,
};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, Incarnation, MemberId, SessionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Policy};
use potluck_core::rights::Right;
use potluck_pool::{Pool, ReceiptSigner, Ticketed};
use potluck_wire::control::{
    Commit, Committed, CommittedParts, Condition, FileCommit, Holding, InParts, LostParts, Outcome,
};
use potluck_wire::env::{Env, Offload};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::token::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for answering commits.
    pub struct CommitCalls {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        rates: Arc<SessionRates>,
        uses: Arc<SeriesUses>,
        known_spaces: Arc<KnownSpaces>,
        scan_state: Arc<ScanState>,
        wait_until: WaitingForDonors,
        sessions: WriteSessions,
        access: Access,
        locks: SharedLockTable,
        auditor: Auditor,
    }
}

/// The age of a manager's term until which a commit with receipts of a donor that has not registered is to be tried
/// again. After that the donor counts as away, and its receipts, which cannot be checked, are left out.
const REGISTERING: Duration = Duration::from_secs(15);
/// The time for which a commit waits for a donor that took chunks and is not heard.
const AWAITED: Duration = Duration::from_secs(3);
/// The time between two looks at whether a donor that is waited for is heard again.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The number of tries of a batch after which parts that have to be judged again make the commit fail.
const ROUNDS: u32 = 40;
/// The number of chunk names that are looked up at once while the pool is locked.
const ASK: usize = 8192;
/// The most work of one step, in units of the work for a chunk, unless a single file takes more: other writers then
/// wait for a few milliseconds only.
const MOST_WORK: usize = 512;
/// The work of a file besides its chunks, in units of the work for a chunk: a version, an entry, a change for the log.
const FILE_WORK: usize = 10;
/// The most work of checking the files of a call that the thread which answers it does itself, in units of the work for a
/// receipt: a hundred microseconds or so.
const CHECKED_HERE: usize = 128;
/// The bytes of a recipe whose check is one unit of work.
const RECIPE_UNIT: usize = 64;

type Prepared = Result<PreparedFile, Failure>;

impl Answer<Commit> for CommitCalls {
    async fn answer(self, call: Commit, caller: CallingMember) -> Result<Committed, Failure> {
        let (id, number, done, soon) = (call.session, call.batch, call.done, call.soon);
        let (ticketed, _in_session) = match self.sessions.enter(id, &caller).await {
            Ok(entered) => entered,
            // The last batch ends the session, and its reply may be asked for again.
            Err(over) => {
                let member = caller.member()?.member;
                let before = self.repeated(member, id, number, call.files.len()).await?;
                return before.ok_or(over);
            }
        };
        // This is noted before the receipts are checked, so that those of donors that register anew from now on are
        // left out later.
        let losses = self.pool.lock().losses();
        let steps = steps(call.files.iter().map(work_of));
        let (mut files, signers) = self.prepare(&caller, id, &ticketed, call.files).await?;
        self.check_chunks(&caller, &id, &mut files).await?;
        self.note_receipts(&files, &signers);
        self.wait_until.none_overdue_of(&acknowledgers(&files)).await;

        let session = InSession { id, ticketed: &ticketed, losses, caller: &caller, soon };
        let goes_on = |committed: &Committed| committed.files.iter().any(Outcome::is_sent_again);
        let (mut files, mut committed) = (files.into_iter(), Committed::default());
        let last = steps.len() - 1;
        // The steps go one after the other, because a file may be made of parts in an earlier step, or replace a file
        // of one.
        for (step, count) in steps.into_iter().enumerate() {
            let number = CommitStep { batch: number, step: step as u32 };
            let files: Vec<Prepared> = files.by_ref().take(count).collect();
            let is_sent_again = |why: &Failure| Outcome::Refused(why.clone()).is_sent_again();
            let waits = files.iter().any(|file| file.as_ref().is_err_and(is_sent_again));
            let ends = done && step == last && !waits && !goes_on(&committed);
            committed.files.extend(self.step(session, number, files, ends).await?.files);
        }
        for outcome in &committed.files {
            if let Outcome::Refused(why) = outcome {
                self.auditor.refused(&caller, Verb::Commit.name(), why);
            }
        }
        if done && !goes_on(&committed) {
            // The files are visible, whatever becomes of the note.
            if let Err(why) = self.sessions.ended(id).await {
                tracing::warn!("what is left of a reservation is not written down: {why}");
            }
        }
        Ok(committed)
    }
}

/// The session of a commit, as it was when the commit came.
#[derive(Clone, Copy)]
struct InSession<'a> {
    id: SessionId,
    ticketed: &'a Ticketed,
    /// The number of losses of donors that were noted by then.
    losses: u64,
    caller: &'a CallingMember,
    /// True if the commit need not survive a power cut at once.
    soon: bool,
}

/// Returns the number of files that each step commits, in order, given the work of each file; at least one step. A call
/// that is repeated has the same steps.
fn steps(files: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut steps = vec![0];
    let mut work = 0;
    for more in files {
        if work > 0 && work + more > MOST_WORK {
            steps.push(0);
            work = 0;
        }
        work += more;
        *steps.last_mut().expect("never empty") += 1;
    }
    steps
}

/// Returns the work that a file is for the catalog's writer, in units of the work for a chunk.
fn work_of(file: &FileCommit) -> usize {
    let chunks = match file.inline {
        Some(_) => 0,
        None => file.size.div_ceil(u64::from(file.chunk_size.max(1))) as usize,
    };
    FILE_WORK + chunks + file.parity.0.len()
}

/// Returns whether files are so few, and have so few chunks, that to check them is no work for another thread. What a
/// client says of their sizes does not count, but what it sent.
fn are_few(files: &[FileCommit]) -> bool {
    let checks = |file: &FileCommit| {
        let recipe: usize = file.pages.iter().map(|page| page.0.len()).sum();
        FILE_WORK + recipe / RECIPE_UNIT + file.parity.0.len() + file.acknowledged.0.len()
    };
    files.iter().map(checks).sum::<usize>() <= CHECKED_HERE
}

impl CommitCalls {
    /// Commits some files of a call. With `ends` the session is over afterwards, unless chunks of a file are to be sent
    /// again.
    async fn step(
        &self,
        session: InSession<'_>,
        number: CommitStep,
        files: Vec<Prepared>,
        ends: bool,
    ) -> Result<Committed, Failure> {
        let InSession { id, ticketed, losses, caller, soon } = session;
        let told = self.copies_told_of(&files);
        let others = self.copies_without_receipt(&told);

        let unseen = |path: &PoolPath| {
            let kept = self.scan_state.kept();
            kept.spaces.get(path.space()).is_none_or(|space| space.files == 0)
        };
        for file in files.iter().flatten().filter(|file| !file.is_part()) {
            self.uses.note(&self.catalog, &file.path, self.time.without_leaps_ms()).await;
        }
        let wrote = files.iter().flatten().next().map(|file| file.path.clone());
        let first = wrote.as_ref().is_some_and(unseen);
        let Ticketed { space, policy: Policy { mirror, ack, .. }, asked, .. } = ticketed.clone();
        let named = |file: &PreparedFile| (file.is_part(), file.names());
        let names: Vec<Option<(bool, BTreeSet<ChunkName>)>> =
            files.iter().map(|file| file.as_ref().ok().map(named)).collect();
        let stored = files.iter().flatten().filter(|file| file.version.parts == 0);
        let stored: u64 =
            stored.filter(|file| !file.version.inline).map(|file| file.version.data()).sum();
        let paths: Vec<Option<PoolPath>> = files.iter().map(visible_path).collect();
        let whole = files.iter().flatten().filter(|file| !file.is_part());
        let receipts = whole.flat_map(|file| &file.chunks).flat_map(|chunk| {
            chunk.holders.iter().map(|(donor, _)| (*donor, u64::from(chunk.len)))
        });
        let receipts: Vec<(DonorId, u64)> = receipts.collect();
        let reserved = {
            let pool = self.pool.lock();
            pool.reservations_beside(pool.draws_on(&id))
        };
        let member = caller.member()?.member;
        let when = self.time.when().made_by(member).durable(soon);
        let batch = Batch {
            session: id,
            member,
            space,
            number,
            mirror,
            ack,
            asked,
            reserved,
            files,
            done: ends,
        };
        let CommittedFiles { outcome, open, versions, tolerates } =
            self.committed(batch, others, losses, when).await?;
        if open {
            self.scan_state.worse(self.time.tick(), "files were written with fewer copies");
        }
        // A scan also considers labels and donors that leave, so it may find a file less safe than the commit did.
        self.scan_state.written(versions);
        if let (Some(path), Some(tolerates)) = (&wrote, tolerates) {
            self.scan_state.tolerates_at_most(path.space(), tolerates, self.time.tick());
        }
        if first || open {
            // A space in which no scan has seen files is looked at as a whole, and repair makes the copies that are
            // still to be made.
            self.scan_state.changed(self.time.tick());
        }
        match outcome {
            CommitOutcome::Repeated(text) => parse(&text),
            CommitOutcome::Fresh { files, again } => {
                {
                    let mut pool = self.pool.lock();
                    pool.in_use_again(&again, self.time.tick());
                    pool.note_committed(&id, stored, receipts.into_iter());
                    let all = files.iter().all(Result::is_ok);
                    for (file, named) in files.iter().zip(&names) {
                        match named {
                            Some((true, names)) if all => pool.withdraw_offers(&id, names),
                            Some((false, names)) if file.is_ok() => {
                                pool.offers_committed(&id, names);
                            }
                            _ => {}
                        }
                    }
                }
                let visible = paths.iter().zip(&files);
                let visible = visible.filter_map(|(path, stored)| {
                    Some((path.as_ref()?, stored.as_ref().ok()?.data))
                });
                let visible: Vec<_> = visible.collect();
                if let Ok(caller) = caller.member() {
                    let mut locks = self.locks.lock().expect("no holder panics");
                    visible.iter().for_each(|(path, _)| locks.published(caller.member, path));
                }
                let bytes = visible.iter().map(|(_, bytes)| bytes).sum();
                self.pool.lock().note_visible(&id, bytes);
                self.rates.visible(id, visible.into_iter(), open, self.time.tick());
                self.count_late(told, &files).await?;
                Ok(reply(&files))
            }
        }
    }
}

/// Returns the path of a file that is to become visible; `None` for a part and for a refused file.
fn visible_path(file: &Prepared) -> Option<PoolPath> {
    let file = file.as_ref().ok().filter(|file| !file.is_part())?;
    Some(file.path.clone())
}

/// Returns the arguments for judging the parts of a file again, if the file is made of parts and becomes visible.
fn ahead(batch: &Batch<Failure>, file: &PreparedFile) -> Option<PartsAhead> {
    let Some(InParts::Whole { file: number, .. }) = file.in_parts else { return None };
    Some(PartsAhead {
        session: batch.session,
        file: number,
        path: file.path.clone(),
        mirror: batch.mirror,
        ack: batch.ack,
        asked: batch.asked,
    })
}

impl Answer<LostParts> for CommitCalls {
    async fn answer(
        self,
        call: LostParts,
        caller: CallingMember,
    ) -> Result<CommittedParts, Failure> {
        let (ticketed, _in_session) = self.sessions.enter(call.session, &caller).await?;
        let space = self.catalog.space(ticketed.space).await?;
        let space = space.ok_or(Error::NoSession)?;
        self.access.need_in(&caller, Right::Write, &space.name).await?;
        // This path stands for that of the file, which the client knows.
        let path = PoolPath::space_root(&space.name).and_then(|root| root.join("part"));
        let path = path.map_err(|why| Error::Bug(why.to_string()))?;
        let lost = self.catalog.lost_parts(call.session, call.file, path).await?;
        let parts = lost.into_iter().map(|(number, part)| as_committed(call.file, number, part));
        Ok(CommittedParts { parts: parts.collect() })
    }
}

/// Returns a part as its client committed it, without receipts.
fn as_committed(file: u32, number: u32, part: PreparedFile) -> FileCommit {
    let PreparedFile { path, version, pages, chunks, condition, .. } = part;
    let parity = chunks[version.chunks as usize..].iter().map(|chunk| chunk.name).collect();
    FileCommit {
        path,
        size: version.size,
        digest: version.digest,
        mtime: version.attributes.mtime,
        permissions: version.attributes.permissions,
        owner: version.attributes.owner,
        changed: version.attributes.changed,
        accessed: version.attributes.accessed,
        chunk_size: version.chunk_size,
        copies: version.copies,
        inline: None,
        pages: pages.into_iter().map(Blob).collect(),
        ec: version.ec,
        parity: Packed(parity),
        acknowledged: Packed::default(),
        condition,
        in_parts: Some(InParts::Part { file, number }),
    }
}

/// Returns the donors whose receipts files have.
fn acknowledgers(files: &[Prepared]) -> BTreeSet<DonorId> {
    let chunks = files.iter().flatten().flat_map(|file| &file.chunks);
    chunks.flat_map(|chunk| chunk.holders.iter().map(|(donor, _)| *donor)).collect()
}

impl CommitCalls {
    /// Commits a batch whose preparation began when so many `losses` were noted, by the state of the donors when its
    /// turn comes. Waits a moment for donors that are not heard, because a late heartbeat is no death.
    async fn committed(
        &self,
        batch: Batch<Failure>,
        told: Vec<(ChunkName, DonorId)>,
        losses: u64,
        when: When,
    ) -> Result<CommittedFiles<Failure>, Failure> {
        let text = |outcomes: &[_]| {
            serde_json::to_string(&reply(outcomes)).map_err(|why| Error::Bug(why.to_string()))
        };
        let by = acknowledgers(&batch.files);
        let ahead: Vec<PartsAhead> =
            batch.files.iter().flatten().filter_map(|file| ahead(&batch, file)).collect();
        let mut rounds = 0;
        let (batch, told) = (Arc::new(batch), Arc::from(told));
        let began = self.time.tick();
        loop {
            let now = self.time.tick();
            let (donors, waits) = {
                let pool = self.pool.lock();
                // Chunks have to be sent again to a donor that was started again, however soon it was back.
                let waits = now.saturating_sub(began) < AWAITED && !pool.has_restarted(&by, losses);
                (pool.snapshot(now).for_work_begun_at(losses), waits)
            };
            let (batch, told) = (Arc::clone(&batch), Arc::clone(&told));
            match self.catalog.commit_files(batch, waits, told, donors, when, text).await {
                Err(Error::HoldersAway { .. }) if waits => tokio::time::sleep(LOOK_EVERY).await,
                Err(Error::PartsUnjudged) if rounds < ROUNDS => {}
                done => return Ok(done?),
            }
            rounds += 1;
            if !ahead.is_empty() {
                self.wait_until.donors_reported(Pool::expects_listings).await;
            }
            for ahead in ahead.clone() {
                let donors = self.pool.lock().snapshot(self.time.tick());
                self.catalog.judge_parts(ahead, donors).await?;
            }
        }
    }

    /// Returns the reply to a call for so many files that was committed before.
    async fn repeated(
        &self,
        member: MemberId,
        session: SessionId,
        batch: u32,
        files: usize,
    ) -> Result<Option<Committed>, Failure> {
        let replies = self.catalog.committed_before(member, session, batch).await?;
        let steps = replies.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
        Ok(joined(steps, files))
    }
}

/// Returns the reply to a call for so many files, given the replies to its steps; `None` unless all steps were
/// committed. The session may have ended after the manager was killed between two of them.
fn joined(steps: Vec<Committed>, files: usize) -> Option<Committed> {
    let is_there = !steps.is_empty();
    let joined = Committed { files: steps.into_iter().flat_map(|step| step.files).collect() };
    (is_there && joined.files.len() == files).then_some(joined)
}

fn parse(text: &str) -> Result<Committed, Failure> {
    serde_json::from_str(text)
        .map_err(|why| Failure::from(Error::Damaged(format!("a kept reply: {why}"))))
}

impl CommitCalls {
    /// Checks the files without the catalog, on another thread unless they are few. Also returns the signers by which
    /// receipts were judged.
    async fn prepare(
        &self,
        caller: &CallingMember,
        session: SessionId,
        ticketed: &Ticketed,
        files: Vec<FileCommit>,
    ) -> Result<(Vec<Prepared>, BTreeMap<DonorId, ReceiptSigner>), Failure> {
        let space = self.known_spaces.facts(&self.catalog, ticketed.space).await?;
        let space = space.ok_or_else(|| {
            Failure::new(
                ErrorKind::NotFound,
                code::NO_SPACE_NAMED,
                "the space was removed meanwhile",
            )
            .hint("nothing of the write is visible; make the space again to repeat it")
        })?;
        // The right to write is checked once more since the session was opened, so that nothing becomes visible if it
        // was taken in the meantime.
        self.access.need_in(caller, Right::Write, &space.name).await?;
        // Nobody can tell whether sealed content is what it is said to be, and this may take the place of kept versions.
        if files.iter().any(|file| matches!(file.condition, Condition::SealsAgain(_))) {
            self.access.need_in(caller, Right::Manage, &space.name).await?;
        }
        let receipts = files.iter().flat_map(|file| &file.acknowledged.0);
        let donors: BTreeSet<DonorId> = receipts.map(|receipt| receipt.donor).collect();
        let against = {
            let pool = self.pool.lock();
            let signers = pool.receipt_signers(&donors);
            let mut against = Against::new(session, ticketed, space.sealed, signers);
            if self.time.uptime() < REGISTERING {
                against.unregistered = pool.unregistered();
            }
            against
        };
        // Two threads that wake each other take longer than the checks of a small file.
        let offload = if are_few(&files) { Offload::Inline } else { self.env.offload };
        let check = move || {
            let mut against = against;
            let files = files.into_iter().map(|file| against.prepare(file));
            let files = files.collect::<Result<Vec<_>, _>>();
            (files, against)
        };
        let (files, Against { false_receipts, signers, .. }) = offload.run(check).await;
        if !false_receipts.is_empty() {
            self.pool.lock().note_false_receipts(&session, &false_receipts, self.time.tick());
        }
        let files = files.map_err(|UnknownKey(donor)| {
            let what =
                format!("the manager has just started and donor {donor} has not reported yet");
            Failure::new(ErrorKind::Retry, code::NOT_ACKNOWLEDGED, what)
                .hint("try again in a second; the session goes on")
        })?;
        Ok((files, signers))
    }

    /// Refuses files with chunks that the session has not offered and that no file uses: nothing protected those from
    /// being reclaimed after they were sent. Offers of a committed part are forgotten, but its chunks are in use.
    ///
    /// Refuses files, too, with chunks that nobody sent in the session, as their lack of receipts shows, and of which
    /// the member may not be told that the pool has them: to make a file of them would tell just that, and would let
    /// the member read them. A group that is written while too few donors are live may lack chunks that the pool has
    /// nowhere.
    async fn check_chunks(
        &self,
        caller: &CallingMember,
        session: &SessionId,
        files: &mut [Prepared],
    ) -> Result<(), Failure> {
        let is_admin = caller.member()?.role == Role::Admin;
        let doubtful: Vec<DoubtfulChunks> =
            files.iter().map(|file| self.doubtful(session, file, is_admin)).collect();
        let names: BTreeSet<ChunkName> =
            doubtful.iter().flat_map(|it| it.unoffered.iter().chain(&it.unsent)).copied().collect();
        if names.is_empty() {
            return Ok(());
        }
        let asker = ChunkAsker { seen: self.access.seen(caller).await?, session: Some(*session) };
        let names: Arc<Vec<ChunkName>> = Arc::new(names.into_iter().collect());
        let ack = AckLevel::Memory;
        let known = self.catalog.look_up_chunks(Arc::clone(&names), ack, asker).await?;
        let known: BTreeMap<ChunkName, KnownChunk> = names.iter().copied().zip(known).collect();
        let pool = self.pool.lock();
        let live = pool.live_donors(self.time.tick()).len();
        let is_used = |name: &ChunkName| known[name].used || known[name].is_hidden;
        let is_told = |name: &ChunkName| match &known[name] {
            KnownChunk { used: true, .. } => true,
            KnownChunk { is_hidden: true, .. } => pool.knows_of(session, name),
            _ => pool.tells_of_unused(session, name),
        };
        for (prepared, DoubtfulChunks { unoffered, unsent }) in files.iter_mut().zip(&doubtful) {
            let Ok(file) = prepared else { continue };
            if !unoffered.iter().all(is_used) {
                let what =
                    format!("{}: some of its chunks were never offered in this session", file.path);
                *prepared = Err(Failure::new(ErrorKind::Other, code::NOT_ACKNOWLEDGED, what)
                    .hint("offer the file's chunks and send them again"));
            } else if lacks(
                file,
                unsent,
                &|name| match &known[name] {
                    _ if is_told(name) => Presence::Told,
                    KnownChunk { is_hidden: false, donors, .. } if donors.is_empty() => {
                        Presence::None
                    }
                    _ => Presence::Hidden,
                },
                live,
            ) {
                let what = format!("{}: some of its chunks were not sent", file.path);
                *prepared = Err(Failure::new(ErrorKind::Retry, code::NOT_ACKNOWLEDGED, what)
                    .hint("send the file's chunks again"));
            }
        }
        Ok(())
    }

    /// Returns the chunks of a file of which the catalog is to be asked.
    fn doubtful(&self, session: &SessionId, file: &Prepared, is_admin: bool) -> DoubtfulChunks {
        let mut doubtful = DoubtfulChunks::default();
        let Ok(file) = file else { return doubtful };
        for part in file.chunks.chunks(ASK) {
            let pool = self.pool.lock();
            let other = part.iter().filter(|chunk| !pool.is_offered_by(session, &chunk.name));
            doubtful.unoffered.extend(other.map(|chunk| chunk.name));
        }
        if !is_admin {
            let sent = file.chunks.iter().filter(|chunk| !chunk.holders.is_empty());
            let sent: BTreeSet<ChunkName> = sent.map(|chunk| chunk.name).collect();
            doubtful.unsent = file.names();
            doubtful.unsent.retain(|name| !sent.contains(name));
        }
        doubtful
    }

    /// Notes the copies that receipts prove, so that an inventory under way does not count them as missing.
    fn note_receipts(&self, files: &[Prepared], signers: &BTreeMap<DonorId, ReceiptSigner>) {
        let chunks = files.iter().flatten().flat_map(|file| &file.chunks);
        let copies = chunks.flat_map(|chunk| {
            let of = |(donor, _): &(DonorId, AckLevel)| {
                Some((*donor, signers.get(donor)?.incarnation, &chunk.name))
            };
            chunk.holders.iter().filter_map(of)
        });
        self.pool.lock().acknowledged(copies);
    }

    /// Returns the copies of the files' chunks that donors told of and that the catalog does not know.
    fn copies_told_of(&self, files: &[Prepared]) -> Vec<EarlyCopies> {
        let mut told = Vec::new();
        let pool = self.pool.lock();
        for (at, file) in files.iter().enumerate() {
            for chunk in file.iter().flat_map(|file| &file.chunks) {
                let Some((len, donors)) = pool.uncommitted(&chunk.name) else { continue };
                let has_receipt =
                    |donor: &DonorId| chunk.holders.iter().any(|(holder, _)| holder == donor);
                let others = donors.iter().filter(|donor| !has_receipt(donor));
                let others = others.filter_map(|donor| Some((*donor, pool.incarnation(*donor)?)));
                let others = others.collect();
                let holding = Holding { name: chunk.name, len };
                told.push(EarlyCopies { file: at, holding, donors, others });
            }
        }
        told
    }

    /// Returns the copies that donors told of and that no receipt names: the second of a hedged pair, or one whose
    /// answer was lost on the way. Also notes them for inventories that are under way.
    fn copies_without_receipt(&self, told: &[EarlyCopies]) -> Vec<(ChunkName, DonorId)> {
        let of = |copies: &EarlyCopies| {
            let name = copies.holding.name;
            copies.others.iter().map(move |(donor, life)| (*donor, *life, name)).collect::<Vec<_>>()
        };
        let others: Vec<_> = told.iter().flat_map(of).collect();
        // An inventory that is under way must not count these copies as missing.
        let copies = others.iter().map(|(donor, incarnation, name)| (*donor, *incarnation, name));
        self.pool.lock().acknowledged(copies);
        others.into_iter().map(|(donor, _, name)| (name, donor)).collect()
    }

    /// Tells the catalog of copies that donors told of while the files were being committed. Copies of a file that was
    /// refused stay with the session, at whose end they are left to garbage collection.
    async fn count_late<S, F>(
        &self,
        told: Vec<EarlyCopies>,
        files: &[Result<S, F>],
    ) -> Result<(), Error> {
        let mut late = BTreeMap::<DonorId, Vec<Holding>>::new();
        for EarlyCopies { file, holding, donors, .. } in told {
            if files.get(file).is_none_or(Result::is_err) {
                continue;
            }
            let now = self.pool.lock().take_early(&holding.name).into_iter();
            now.filter(|donor| !donors.contains(donor))
                .for_each(|donor| late.entry(donor).or_default().push(holding));
        }
        for (donor, added) in late {
            let told = ToldCopies { added, ..ToldCopies::default() };
            self.catalog.tell(donor, told, self.time.now_ms()).await?;
        }
        Ok(())
    }
}

/// The chunks of a file that may be reclaimed, or of which the member may not be told.
#[derive(Default)]
struct DoubtfulChunks {
    /// The chunks that the session has not offered.
    unoffered: BTreeSet<ChunkName>,
    /// The chunks for which there is no receipt, unless an admin writes, who may be told of all.
    unsent: BTreeSet<ChunkName>,
}

/// A chunk of one of the files, and the donors that told of it.
struct EarlyCopies {
    file: usize,
    holding: Holding,
    donors: Vec<DonorId>,
    /// The donors that told of the chunk and gave no receipt for it, each with its incarnation.
    others: Vec<(DonorId, Incarnation)>,
}

fn reply(outcomes: &[Result<StoredFile, Refused<Failure>>]) -> Committed {
    let outcome = |outcome: &Result<StoredFile, Refused<Failure>>| match outcome {
        Ok(StoredFile { version, below_policy, at_risk, dir_modified, .. }) => Outcome::Stored {
            version: *version,
            below_policy: *below_policy,
            at_risk: *at_risk,
            dir_modified: *dir_modified,
        },
        Err(Refused::Before(failure)) => Outcome::Refused(failure.clone()),
        Err(Refused::Here(why)) => Outcome::Refused(Failure::from(why.clone())),
    };
    Committed { files: outcomes.iter().map(outcome).collect() }
}

#[cfg(test)]
mod tests {
    use super::{FILE_WORK, MOST_WORK, joined, steps};
    use potluck_wire::control::{Committed, Outcome};
    use potluck_wire::error::Failure;

    #[test]
    fn a_step_takes_no_more_work_than_one_may_but_for_a_file_that_does() {
        let small = FILE_WORK + 1;
        let most = MOST_WORK / small;
        let of = |files: &[usize]| steps(files.iter().copied());
        assert_eq!(of(&[]), [0], "the last call of a session may have no file");
        assert_eq!(of(&vec![small; most]), [most]);
        assert_eq!(of(&vec![small; 2 * most + 1]), [most, most, 1]);
        assert_eq!(of(&[small, 2 * MOST_WORK, small, small]), [1, 1, 2]);
    }

    #[test]
    fn a_call_of_which_some_steps_are_missing_is_not_repeated() {
        let of = |files| {
            let refused = |_| Outcome::Refused(Failure::bad_request("refused"));
            Committed { files: (0..files).map(refused).collect() }
        };
        let count = |steps, files| joined(steps, files).map(|all| all.files.len());
        assert_eq!(count(vec![of(51), of(7)], 58), Some(58));
        assert_eq!(count(vec![of(51)], 58), None, "the manager was killed after its first step");
        assert_eq!(count(vec![], 0), None);
        assert_eq!(count(vec![of(0)], 0), Some(0), "the last call of a session may have no file");
    }
}
