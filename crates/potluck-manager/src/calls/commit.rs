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
    PartsAhead, PreparedChunk, PreparedFile, Refused, StoredFile, ToldCopies, When,
};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, MemberId, SessionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Policy};
use potluck_core::rights::Right;
use potluck_pool::{DonorSnapshot, OpenReservation, Pool, ReceiptSigner, Ticketed};
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
        let Commit { session: id, batch, files, done, soon, traffic } = call;
        let member = caller.member()?.member;
        let (ticketed, _guard) = match self.sessions.enter(id, &caller).await {
            Ok(entered) => entered,
            // The last batch ends the session, and its reply may be asked for again.
            Err(over) => {
                let before = self.repeated(member, id, batch, files.len()).await?;
                return before.ok_or(over);
            }
        };
        if !traffic.is_empty() {
            self.pool.lock().told_traffic(member, &traffic, self.time.tick());
        }
        let steps = steps(files.iter().map(work_of));
        let (mut files, by) = self.prepare(&caller, id, &ticketed, files).await?;
        self.check_chunks(&caller, &id, &mut files).await?;
        self.wait_until.none_overdue_of(&acknowledgers(&files)).await;

        let from = Committer { session: id, member, ticketed: &ticketed, by, soon };
        let goes_on = |committed: &Committed| committed.files.iter().any(Outcome::is_sent_again);
        let (mut files, mut committed) = (files.into_iter(), Committed::default());
        let last = steps.len() - 1;
        // The steps go one after the other, because a file may be made of parts in an earlier step, or replace a file
        // of one.
        for (step, count) in steps.into_iter().enumerate() {
            let number = CommitStep { batch, step: step as u32 };
            let files: Vec<Prepared> = files.by_ref().take(count).collect();
            let is_sent_again = |why: &Failure| Outcome::Refused(why.clone()).is_sent_again();
            let waits = files.iter().any(|file| file.as_ref().is_err_and(is_sent_again));
            let ends = done && step == last && !waits && !goes_on(&committed);
            committed.files.extend(self.step(&from, number, files, ends).await?.files);
        }
        for outcome in &committed.files {
            if let Outcome::Refused(why) = outcome {
                self.auditor.refused(&caller, Verb::Commit.name(), why);
            }
        }
        if done && !goes_on(&committed) {
            // The files are visible, whatever becomes of the note.
            if let Err(why) = self.sessions.close(id, true).await {
                tracing::warn!("what is left of a reservation is not written down: {why}");
            }
        }
        Ok(committed)
    }
}

/// The facts by which the receipts of a commit were judged.
struct JudgedBy {
    signers: BTreeMap<DonorId, ReceiptSigner>,
    /// The number of losses of donors that were noted by then: receipts of donors that register anew from then on are
    /// left out in the transaction.
    losses: u64,
}

/// The session of a commit, as it was when the commit came.
struct Committer<'a> {
    session: SessionId,
    member: MemberId,
    ticketed: &'a Ticketed,
    by: JudgedBy,
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
        from: &Committer<'_>,
        number: CommitStep,
        files: Vec<Prepared>,
        ends: bool,
    ) -> Result<Committed, Failure> {
        for file in files.iter().flatten().filter(|file| !file.is_part()) {
            self.uses.note(&self.catalog, &file.path, self.time.without_leaps_ms()).await;
        }
        let Ticketed { space, policy: Policy { mirror, ack, .. }, asked, .. } = from.ticketed;
        let Begun { told, without_receipt, reserved, donors } = self.begin(from, &files);
        let batch = Arc::new(Batch {
            session: from.session,
            member: from.member,
            space: *space,
            number,
            mirror: *mirror,
            ack: *ack,
            asked: *asked,
            reserved,
            files,
            done: ends,
        });
        let when = self.time.when().made_by(from.member).durable(from.soon);
        let CommittedFiles { outcome, open, versions, tolerates } =
            self.committed(&batch, without_receipt.into(), donors, when).await?;
        let now = self.time.tick();
        if open {
            self.scan_state.worse(now, "files were written with fewer copies");
        }
        // A scan also considers labels and donors that leave, so it may find a file less safe than the commit did.
        if let Some(file) = batch.files.iter().flatten().next() {
            self.scan_state.written_in(file.path.space(), versions, tolerates, now);
        }
        let (files, again) = match outcome {
            CommitOutcome::Repeated(text) => return parse(&text),
            CommitOutcome::Fresh { files, again } => (files, again),
        };
        let visible = batch.files.iter().zip(&files).filter_map(|(file, stored)| {
            let file = file.as_ref().ok().filter(|file| !file.is_part())?;
            Some((&file.path, stored.as_ref().ok()?.data))
        });
        let visible: Vec<(&PoolPath, u64)> = visible.collect();
        let late = {
            let mut pool = self.pool.lock();
            pool.in_use_again(&again, now);
            pool.note_visible(&from.session, visible.iter().map(|(_, bytes)| bytes).sum());
            note_committed(&mut pool, &batch, &files);
            take_late(&mut pool, told, &files)
        };
        {
            let mut locks = self.locks.lock().expect("no holder panics");
            visible.iter().for_each(|(path, _)| locks.published(from.member, path));
        }
        self.rates.visible(from.session, visible.into_iter(), open, now);
        for (donor, added) in late {
            let told = ToldCopies { added, ..ToldCopies::default() };
            self.catalog.tell(donor, told, self.time.now_ms()).await?;
        }
        Ok(reply(&files))
    }

    /// Collects the facts of the pool by which files are committed. Also notes the copies that receipts prove or that
    /// donors told of, so that an inventory under way does not count them as missing.
    fn begin(&self, from: &Committer<'_>, files: &[Prepared]) -> Begun {
        let (mut told, mut without_receipt) = (Vec::new(), Vec::new());
        let mut pool = self.pool.lock();
        for (file, prepared) in files.iter().enumerate() {
            for PreparedChunk { name, holders, .. } in prepared.iter().flat_map(|it| &it.chunks) {
                let signed =
                    |donor: &DonorId| Some((*donor, from.by.signers.get(donor)?.incarnation));
                let mut copies: Vec<_> =
                    holders.iter().filter_map(|(donor, _)| signed(donor)).collect();
                if let Some((len, donors)) = pool.uncommitted(name) {
                    let has_receipt = |donor: &DonorId| holders.iter().any(|(it, _)| it == donor);
                    let others = donors.iter().filter(|donor| !has_receipt(donor));
                    let others = others.filter_map(|at| Some((*at, pool.incarnation(*at)?)));
                    let signed = copies.len();
                    copies.extend(others);
                    without_receipt
                        .extend(copies[signed..].iter().map(|(donor, _)| (*name, *donor)));
                    told.push(EarlyCopies { file, holding: Holding { name: *name, len }, donors });
                }
                pool.acknowledged(copies.into_iter().map(|(donor, life)| (donor, life, name)));
            }
        }
        let reserved = pool.reservations_beside(pool.draws_on(&from.session));
        let donors = pool.snapshot(self.time.tick()).for_work_begun_at(from.by.losses);
        Begun { told, without_receipt, reserved, donors }
    }
}

/// Notes the bytes that the files of a batch have at donors, and what became of their chunks' offers.
fn note_committed<S, F>(pool: &mut Pool, batch: &Batch<Failure>, outcomes: &[Result<S, F>]) {
    let files = || batch.files.iter().flatten();
    let stored = files().filter(|file| file.version.parts == 0 && !file.version.inline);
    let whole = files().filter(|file| !file.is_part()).flat_map(|file| &file.chunks);
    let receipts = whole
        .flat_map(|chunk| chunk.holders.iter().map(|(donor, _)| (*donor, u64::from(chunk.len))));
    pool.note_committed(&batch.session, stored.map(|file| file.version.data()).sum(), receipts);
    let all = outcomes.iter().all(Result::is_ok);
    for (file, outcome) in batch.files.iter().zip(outcomes) {
        match file {
            Ok(part) if part.is_part() && all => {
                pool.withdraw_offers(&batch.session, &part.names())
            }
            Ok(file) if !file.is_part() && outcome.is_ok() => {
                pool.offers_committed(&batch.session, &file.names());
            }
            _ => {}
        }
    }
}

/// Takes out the copies that donors told of while the files were being committed, by donor. Copies of a file that was
/// refused stay with the session, at whose end they are left to garbage collection.
fn take_late<S, F>(
    pool: &mut Pool,
    told: Vec<EarlyCopies>,
    outcomes: &[Result<S, F>],
) -> BTreeMap<DonorId, Vec<Holding>> {
    let mut late = BTreeMap::<DonorId, Vec<Holding>>::new();
    for EarlyCopies { holding, donors, .. } in
        told.into_iter().filter(|it| outcomes[it.file].is_ok())
    {
        let since = pool.take_early(&holding.name).into_iter().filter(|at| !donors.contains(at));
        since.for_each(|donor| late.entry(donor).or_default().push(holding));
    }
    late
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
        let (ticketed, _guard) = self.sessions.enter(call.session, &caller).await?;
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
        metadata: None,
        origin: None,
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
    /// Commits a batch by the state of the donors when its turn comes. Waits a moment for donors that are not heard,
    /// because a late heartbeat is no death.
    async fn committed(
        &self,
        batch: &Arc<Batch<Failure>>,
        told: Arc<[(ChunkName, DonorId)]>,
        mut donors: DonorSnapshot,
        when: When,
    ) -> Result<CommittedFiles<Failure>, Failure> {
        let text = |outcomes: &[_]| {
            serde_json::to_string(&reply(outcomes)).map_err(|why| Error::Bug(why.to_string()))
        };
        let by = acknowledgers(&batch.files);
        let ahead: Vec<PartsAhead> =
            batch.files.iter().flatten().filter_map(|file| ahead(batch, file)).collect();
        let (began, losses, mut rounds) = (self.time.tick(), donors.losses(), 0);
        loop {
            // Chunks have to be sent again to a donor that was started again, however soon it was back.
            let waits = self.time.tick().saturating_sub(began) < AWAITED
                && donors.restarted().is_disjoint(&by);
            let (batch, told) = (Arc::clone(batch), Arc::clone(&told));
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
            donors = self.pool.lock().snapshot(self.time.tick()).for_work_begun_at(losses);
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
    /// Checks the files without the catalog, on another thread unless they are few.
    async fn prepare(
        &self,
        caller: &CallingMember,
        session: SessionId,
        ticketed: &Ticketed,
        files: Vec<FileCommit>,
    ) -> Result<(Vec<Prepared>, JudgedBy), Failure> {
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
        let (against, losses) = {
            let pool = self.pool.lock();
            let signers = pool.receipt_signers(&donors);
            let mut against = Against::new(session, ticketed, space.sealed, signers);
            if self.time.uptime() < REGISTERING {
                against.unregistered = pool.unregistered();
            }
            (against, pool.losses())
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
        Ok((files, JudgedBy { signers, losses }))
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
        let unsent: Vec<BTreeSet<ChunkName>> = files
            .iter()
            .map(|file| file.as_ref().ok().filter(|_| !is_admin).map(unsent))
            .map(Option::unwrap_or_default)
            .collect();
        let unoffered = self.unoffered(session, files);
        let names: BTreeSet<ChunkName> =
            unsent.iter().flatten().chain(&unoffered).copied().collect();
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
        let presence = |name: &ChunkName| match &known[name] {
            KnownChunk { used: true, .. } => Presence::Told,
            KnownChunk { is_hidden: true, .. } if pool.knows_of(session, name) => Presence::Told,
            KnownChunk { is_hidden: true, .. } => Presence::Hidden,
            _ if pool.tells_of_unused(session, name) => Presence::Told,
            KnownChunk { donors, .. } if donors.is_empty() => Presence::None,
            _ => Presence::Hidden,
        };
        for (prepared, unsent) in files.iter_mut().zip(&unsent) {
            let Ok(file) = prepared else { continue };
            let is_stray = |name: &ChunkName| unoffered.contains(name) && !is_used(name);
            if file.chunks.iter().any(|chunk| is_stray(&chunk.name)) {
                let what =
                    format!("{}: some of its chunks were never offered in this session", file.path);
                *prepared = Err(Failure::new(ErrorKind::Other, code::NOT_ACKNOWLEDGED, what)
                    .hint("offer the file's chunks and send them again"));
            } else if lacks(file, unsent, &presence, live) {
                let what = format!("{}: some of its chunks were not sent", file.path);
                *prepared = Err(Failure::new(ErrorKind::Retry, code::NOT_ACKNOWLEDGED, what)
                    .hint("send the file's chunks again"));
            }
        }
        Ok(())
    }

    /// Returns the chunks of files that a session has not offered.
    fn unoffered(&self, session: &SessionId, files: &[Prepared]) -> BTreeSet<ChunkName> {
        let chunks = files.iter().flatten().flat_map(|file| &file.chunks);
        let names: Vec<ChunkName> = chunks.map(|chunk| chunk.name).collect();
        let mut unoffered = BTreeSet::new();
        for names in names.chunks(ASK) {
            let pool = self.pool.lock();
            unoffered.extend(names.iter().filter(|name| !pool.is_offered_by(session, name)));
        }
        unoffered
    }
}

/// Returns the chunks of a file for which there is no receipt.
fn unsent(file: &PreparedFile) -> BTreeSet<ChunkName> {
    let sent = file.chunks.iter().filter(|chunk| !chunk.holders.is_empty());
    let sent: BTreeSet<ChunkName> = sent.map(|chunk| chunk.name).collect();
    let mut names = file.names();
    names.retain(|name| !sent.contains(name));
    names
}

/// The facts of the pool when files begin to be committed.
struct Begun {
    /// The copies of the files' chunks that donors told of and that the catalog does not know.
    told: Vec<EarlyCopies>,
    /// The copies of these that no receipt names: the second of a hedged pair, or one whose answer was lost on the way.
    without_receipt: Vec<(ChunkName, DonorId)>,
    reserved: Vec<OpenReservation>,
    donors: DonorSnapshot,
}

/// A chunk of one of the files, and the donors that told of it.
struct EarlyCopies {
    file: usize,
    holding: Holding,
    donors: Vec<DonorId>,
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
    fn commit_steps_are_bounded_except_single_files() {
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
