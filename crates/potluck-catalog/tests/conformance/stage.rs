//! A catalog in a directory of its own, with the plain space “lab” and an open session.

use potluck_catalog::chunks::ChunkId;
use potluck_catalog::commit::{Batch, Outcome, PreparedFile, Refused, Stored};
use potluck_catalog::fixture::{donors_there, path};
use potluck_catalog::gc::Waiting;
use potluck_catalog::names::When;
use potluck_catalog::placements::Told;
use potluck_catalog::sessions::StoredSession;
use potluck_catalog::{Catalog, Error, Founding};
use potluck_core::chunk::{ChunkName, DEFAULT_CHUNK};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId, VersionId};
use potluck_core::placement::Plan;
use potluck_core::policy::{Mirror, Override, Policy};
use potluck_pool::Pool;
use potluck_wire::env::Offload;
use std::sync::Arc;
use tempfile::TempDir;

pub type Outcomes = Vec<Result<VersionId, Refused<()>>>;

pub struct Stage {
    dir: TempDir,
    pub catalog: Catalog,
    /// Donors 1 to 32, which are all there.
    pub donors: Pool,
    pub session: SessionId,
    batch: u32,
}

pub fn when(pool_ms: u64) -> When {
    When { pool_ms, wall_ms: 2 }
}

fn open(dir: &TempDir) -> Catalog {
    Catalog::open(&dir.path().join("catalog.db"), Offload::Inline).expect("opened")
}

impl Stage {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Founding::begin(&dir.path().join("catalog.db"), "test pool").expect("made");
        let catalog = open(&dir);
        let policy = Policy { sealed: false, ..Policy::default() };
        catalog.create_space("lab".into(), policy, None, 0).await.expect("a space");
        let (donors, session) = (donors_there(32), SessionId([0; 16]));
        let mut stage = Self { dir, catalog, donors, session, batch: 0 };
        stage.new_session(1).await;
        stage
    }

    /// As after a restart of the manager.
    pub async fn reopen(self) -> Self {
        self.catalog.close().await;
        Self { catalog: open(&self.dir), ..self }
    }

    pub async fn new_session(&mut self, id: u8) {
        (self.session, self.batch) = (SessionId([id; 16]), 0);
        let session = StoredSession {
            id: self.session,
            member: MemberId(1),
            space: SpaceId(1),
            policy: Policy::default(),
            asked: Override::default(),
            plan: Plan { sections: Vec::new(), copies: 1, chunk_size: DEFAULT_CHUNK },
            bytes: 0,
            ended: false,
        };
        self.catalog.open_session(session).await.expect("a session");
    }

    pub async fn commit_batch(
        &self,
        number: u32,
        files: Vec<PreparedFile>,
        done: bool,
        now_ms: u64,
    ) -> Result<Outcome<()>, Error> {
        let batch = Batch {
            session: self.session,
            space: SpaceId(1),
            number,
            mirror: Mirror::ClientSync,
            asked: Override::default(),
            files: files.into_iter().map(Ok).collect(),
            atomic: false,
            done,
        };
        let reply = |files: &[Result<Stored, Refused<()>>]| Ok(format!("{} files", files.len()));
        let (batch, donors) = (Arc::new(batch), self.donors.snapshot(Tick::ZERO));
        let none = Arc::from(Vec::new());
        let done =
            self.catalog.commit_files(batch, false, none, donors, when(now_ms), reply).await?;
        Ok(done.outcome)
    }

    /// Commits the next batch of the session.
    pub async fn commit(&mut self, files: Vec<PreparedFile>) -> Outcomes {
        self.batch += 1;
        match self.commit_batch(self.batch, files, false, 0).await.expect("a batch") {
            Outcome::Fresh { files, .. } => {
                files.into_iter().map(|file| file.map(|stored| stored.version)).collect()
            }
            Outcome::Repeated(_) => panic!("a fresh batch was taken for a repeated one"),
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
        self.catalog.remove(path(at), true, when(now_ms)).await.expect("removed");
    }

    /// The paths that a listing gives.
    pub async fn listed(&self, at: &str, recursive: bool, after: Option<&str>) -> Vec<String> {
        let listing = self.catalog.list_directory(path(at), recursive, after.map(String::from));
        listing.await.expect("listed").entries.into_iter().map(|entry| entry.path).collect()
    }

    /// Chunks that no file has used since `before_ms`, longest unused first.
    pub async fn unused(&self, before_ms: u64) -> Vec<ChunkName> {
        let page = self.catalog.unused_chunks(before_ms, Waiting::FIRST, 1000).await.expect("read");
        page.into_iter().map(|(_, name)| name).collect()
    }

    /// Condemned chunks, each with the donors that may have it.
    pub async fn condemned(&self) -> Vec<(ChunkName, Vec<DonorId>)> {
        let page = self.catalog.condemned_chunks(ChunkId::FIRST, 1000).await.expect("read");
        page.into_iter().map(|chunk| (chunk.name, chunk.donors)).collect()
    }

    /// Takes down what a donor told; whether that changes how safe a file is.
    pub async fn tell(&self, donor: u32, told: Told, now_ms: u64) -> bool {
        self.catalog.tell(DonorId(donor), told, now_ms).await.expect("told")
    }

    /// Copies counted at a donor: those there, and those missing or spoiled.
    pub async fn counted(&self, donor: u32) -> (u64, u64) {
        let stats = self.catalog.stats().await.expect("counted");
        let copies = stats.donors.get(&DonorId(donor)).copied().unwrap_or_default();
        (copies.here, copies.bad)
    }
}
