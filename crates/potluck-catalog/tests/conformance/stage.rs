//! A catalog in a directory of its own, with the plain space “lab” and an open session.

use potluck_catalog::fixture::ReadClock;
use potluck_catalog::fixture::chunk;
use potluck_catalog::fixture::donors_there;
use potluck_catalog::fixture::new_space;
use potluck_catalog::fixture::path;
use potluck_catalog::{
    Batch, Catalog, CommitOutcome, CommittedFiles, Error, Founding, Met, Moment, NewToken,
    PageLimit, PreparedFile, Refused, SeenSpaces, Space, StoredFile, StoredSession, TIME_LEAP,
    ToldCopies, UnusedSince, Upkeep, When, judge_files,
};
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::{ChunkName, DEFAULT_CHUNK, Digest};
use potluck_core::clock::Tick;
use potluck_core::ids::{ChunkId, DonorId, Epoch, MemberId, SessionId, SpaceId, VersionId};
use potluck_core::placement::Plan;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror, Policy, Redundancy};
use potluck_pool::redundancy::{Findings, Layout, Version};
use potluck_pool::{OpenReservation, Pool, PoolView};
use potluck_wire::env::Offload;
use potluck_wire::token::Role;
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;

pub type Outcomes = Vec<Result<VersionId, Refused<()>>>;

pub struct Stage {
    dir: TempDir,
    pub catalog: Catalog,
    /// Donors 1 to 32, which are all there.
    pub donors: Pool,
    pub session: SessionId,
    /// The space in which the session writes.
    space: SpaceId,
    /// The protocol by which copies of the files that are committed are made.
    pub mirror: Mirror,
    /// The ack level of what is committed.
    pub ack: AckLevel,
    /// The parts of the policy that the committing command asks for.
    pub asked: AskedPolicy,
    /// The room that is reserved for others.
    pub reserved: Vec<OpenReservation>,
    /// The count of donors' losses when the receipts of what is committed were checked; `None` is the present
    /// count.
    pub begun_at: Option<u64>,
    batch: u32,
}

/// The limits of a page, so small that a tree takes several.
const PAGE: PageLimit = PageLimit { chunks: 64, entries: 64 };

/// A time later than anything that a test does, in milliseconds.
const ALWAYS_MS: u64 = 1 << 40;

/// The attributes of a directory that a test makes.
pub const MADE: EntryAttributes = EntryAttributes::of_dir(2);

pub fn when(pool_ms: u64) -> When {
    When { pool_ms, wall_ms: 2, ..When::default() }
}

fn open(dir: &TempDir) -> Catalog {
    Catalog::open(&dir.path().join("catalog.db"), Offload::Inline, ReadClock::by(0))
        .expect("opened")
}

impl Stage {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Founding::begin(&dir.path().join("catalog.db"), "test pool").expect("made");
        let catalog = open(&dir);
        let policy = Policy { sealed: false, ..Policy::default() };
        catalog.create_space(new_space("lab", policy, None), None, 0).await.expect("a space");
        let (donors, session) = (donors_there(32), SessionId([0; 16]));
        let (mirror, ack, asked) = Default::default();
        let space = SpaceId(1);
        let (reserved, begun_at, batch) = Default::default();
        let mut stage = Self {
            dir,
            catalog,
            donors,
            session,
            space,
            mirror,
            ack,
            asked,
            reserved,
            begun_at,
            batch,
        };
        stage.new_session(1).await;
        stage
    }

    /// Closes the catalog and opens it again, as a restart of the manager does.
    pub async fn reopen(self) -> Self {
        self.catalog.close().await;
        Self { catalog: open(&self.dir), ..self }
    }

    /// Begins so many terms of managers, one after the other, and returns the milliseconds by which the pool's time leapt.
    pub async fn begin_terms(&self, count: u64) -> u64 {
        self.catalog.save_time(1, Vec::new(), Vec::new(), Vec::new()).await.expect("saved");
        for start in 0..count {
            self.catalog.begin_term(Digest([7; 32]), start).await.expect("began");
        }
        count * TIME_LEAP.as_millis() as u64
    }

    /// Begins a session that writes to another space.
    pub async fn session_in(&mut self, space: &str) {
        let spaces = self.catalog.spaces().await.expect("spaces");
        self.space = spaces.into_iter().find(|found| found.name == space).expect("there").id;
        self.new_session(self.session.0[0] + 1).await;
    }

    /// Returns the number of the next batch of the session.
    pub fn next_batch(&mut self) -> u32 {
        self.batch += 1;
        self.batch
    }

    /// Lets a user join.
    pub async fn join(&self, name: &str, number: u8) -> MemberId {
        self.try_join(name, number).await.expect("joined")
    }

    pub async fn try_join(&self, name: &str, number: u8) -> Result<MemberId, Error> {
        let secret = Digest([number; 32]);
        let now = Moment { epoch: Epoch(1), pool_ms: 1000, wall_ms: 5000 };
        let token = NewToken { role: Role::User, by: MemberId(1), ttl_ms: 60_000, name: None };
        self.catalog.add_token(secret, token, now).await.expect("issued");
        let certify = |id: MemberId, _| Ok((Digest([id.0 as u8; 32]), vec![id.0 as u8]));
        let joined = self.catalog.join(secret, secret, name.into(), now, certify).await;
        Ok(joined?.member.id)
    }

    pub async fn new_session(&mut self, id: u8) {
        (self.session, self.batch) = (SessionId([id; 16]), 0);
        let session = StoredSession {
            id: self.session,
            member: MemberId(1),
            space: self.space,
            policy: Policy::default(),
            asked: AskedPolicy::default(),
            plan: Plan {
                stripe_size: 1,
                sections: Vec::new(),
                copies: 1,
                chunk_size: DEFAULT_CHUNK,
            },
            bytes: 0,
            ended: false,
            room: None,
            draws_on: None,
            key: None,
            counted: 0,
        };
        self.catalog.open_session(session).await.expect("a session");
    }

    pub async fn commit_batch(
        &self,
        number: u32,
        files: Vec<PreparedFile>,
        done: bool,
        now_ms: u64,
    ) -> Result<CommittedFiles<()>, Error> {
        let batch = Batch {
            session: self.session,
            member: MemberId(1),
            space: self.space,
            number: number.into(),
            mirror: self.mirror,
            ack: self.ack,
            asked: self.asked,
            reserved: self.reserved.clone(),
            files: files.into_iter().map(Ok).collect(),
            done,
        };
        let reply =
            |files: &[Result<StoredFile, Refused<()>>]| Ok(format!("{} files", files.len()));
        let (batch, donors) = (Arc::new(batch), self.donors.snapshot(Tick::ZERO));
        let begun_at = self.begun_at.unwrap_or(donors.losses());
        let donors = donors.for_work_begun_at(begun_at);
        let none = Arc::from(Vec::new());
        self.catalog.commit_files(batch, false, none, donors, when(now_ms), reply).await
    }

    /// Commits the next batch of the session, and returns the outcome of each file and whether the session is still
    /// open.
    pub async fn store(
        &mut self,
        files: Vec<PreparedFile>,
    ) -> (Vec<Result<StoredFile, Refused<()>>>, bool) {
        self.batch += 1;
        let done = self.commit_batch(self.batch, files, false, 0).await.expect("a batch");
        match done.outcome {
            CommitOutcome::Fresh { files, .. } => (files, done.open),
            CommitOutcome::Repeated(_) => panic!("a fresh batch was taken for a repeated one"),
        }
    }

    /// Commits the next batch of the session, and returns the version of each file or why it was refused.
    pub async fn commit(&mut self, files: Vec<PreparedFile>) -> Outcomes {
        let (files, _) = self.store(files).await;
        files.into_iter().map(|file| file.map(|stored| stored.version)).collect()
    }

    /// Commits one file that must be refused, and returns why.
    pub async fn refused(&mut self, file: PreparedFile) -> Error {
        match self.commit(vec![file]).await.pop() {
            Some(Err(Refused::Here(why))) => why,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    /// Commits one file that must be accepted.
    pub async fn put(&mut self, file: PreparedFile) -> VersionId {
        match self.commit(vec![file]).await.pop() {
            Some(Ok(version)) => version,
            other => panic!("refused: {other:?}"),
        }
    }

    /// Removes what is at a path, at the pool's time `now_ms`.
    pub async fn remove(&self, at: &str, now_ms: u64) {
        self.catalog
            .remove(path(at), Default::default(), true, when(now_ms))
            .await
            .expect("removed");
    }

    /// Takes apart what was removed.
    pub async fn empty_trash(&self) {
        let step = Upkeep::Trash { entries: 1000, kept_ms: 0 };
        while self.catalog.upkeep(step, 1 << 30).await.expect("a step") {}
    }

    /// Returns the file at a path and how it is laid out.
    pub async fn file(&self, at: &str) -> (Version, Layout) {
        let page =
            self.catalog.files_at(path(at), None, PAGE, SeenSpaces::ALL).await.expect("read");
        match page.files.into_iter().next() {
            Some((_, Met::File(version, layout))) => (*version, layout),
            other => panic!("expected a file, got {other:?}"),
        }
    }

    /// Returns the references of chunks; `None` where one is unknown, or no donor has it any more.
    pub async fn refs<const N: usize>(&self, numbers: [u64; N]) -> [Option<i64>; N] {
        let mut refs = BTreeMap::new();
        let condemned = self.condemned().await.into_iter().map(|(name, _)| name);
        refs.extend(
            self.unused(ALWAYS_MS).await.into_iter().chain(condemned).map(|name| (name, 0)),
        );
        self.each_file(|_, files| {
            for (_, met) in &files {
                let Met::File(_, layout) = met else { continue };
                refs.extend(layout.pieces.iter().map(|piece| (piece.name, piece.refs)));
            }
        })
        .await;
        numbers.map(|n| refs.get(&chunk(n)).copied())
    }

    /// Scans everything as a manager does, but without pauses.
    pub async fn scan(&self, view: PoolView) -> Findings {
        let mut findings = Findings::new(view);
        let mut entered = None;
        self.each_file(|space, files| {
            if entered.as_ref() != Some(&space.name) {
                if entered.replace(space.name.clone()).is_some() {
                    findings.leave();
                }
                findings.enter(space.id, &space.name, Redundancy::Copies(2));
            }
            judge_files(space, files, &mut findings);
        })
        .await;
        findings.leave();
        findings
    }

    /// Looks at the files of all spaces, page by page.
    async fn each_file(&self, mut look: impl FnMut(&Space, Vec<(String, Met)>)) {
        for space in self.catalog.spaces().await.expect("spaces") {
            let mut after = None;
            loop {
                let page = self.catalog.files_of(&space, after, PAGE).await.expect("read");
                look(&space, page.files);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
    }

    /// Returns the paths that a listing gives.
    pub async fn listed(&self, at: &str, recursive: bool, after: Option<&str>) -> Vec<String> {
        let after = after.map(String::from);
        let listing = self.catalog.list_directory(path(at), recursive, after, SeenSpaces::ALL);
        listing.await.expect("listed").entries.into_iter().map(|entry| entry.path).collect()
    }

    /// Returns the chunks that no file has used since `before_ms`, longest unused first.
    pub async fn unused(&self, before_ms: u64) -> Vec<ChunkName> {
        let page =
            self.catalog.unused_chunks(before_ms, UnusedSince::FIRST, 1000).await.expect("read");
        page.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the condemned chunks, each with the donors that may have it.
    pub async fn condemned(&self) -> Vec<(ChunkName, Vec<DonorId>)> {
        let page = self.catalog.condemned_chunks(ChunkId::FIRST, 1000).await.expect("read");
        page.into_iter().map(|chunk| (chunk.name, chunk.donors)).collect()
    }

    /// Records what a donor told, and returns whether a file lost a copy by it.
    pub async fn tell(&self, donor: u32, told: ToldCopies, now_ms: u64) -> bool {
        self.catalog.tell(DonorId(donor), told, now_ms).await.expect("told").lost
    }

    /// Returns the copies counted at a donor: those there, and those missing or spoiled.
    pub async fn counted(&self, donor: u32) -> (u64, u64) {
        let stats = self.catalog.stats(Default::default()).await.expect("counted");
        let copies = stats.donors.get(&DonorId(donor)).copied().unwrap_or_default();
        (copies.here, copies.bad)
    }
}
