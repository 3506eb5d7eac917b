//! Keeps the copy of the log on donors, in chunks that are written as any client writes files, so that placement,
//! repair and garbage collection care for them.

use super::copies::LogCopies;
use super::metadata_writer::WriterHandles;
use super::metadata_writer::{MetadataWriter, prepared};
use super::{MetadataTrouble, any_taker};
use crate::handles::handles;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{
    Advance, Catalog, ChangeNumber, Error, LogCopy, Position, PreparedFile, block_path,
};
use potluck_core::chunk::{ChunkKind, Digest};
use potluck_core::recipe::Entry;
use potluck_recovery::log::block::{Base, BlockPart, CutChanges, Lines, Sealed, Sealer};
use potluck_recovery::log::copying::{Sink, catch_up};
use potluck_recovery::pool_authority::PoolAuthority;
use potluck_recovery::state_dir::StateDir;
use potluck_wire::env::Env;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The pause between two attempts to write changes to donors, while none fails.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// The longest pause after failures: each attempt may leave a whole base behind that no file uses until it is
/// reclaimed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

handles! {
    /// The handles for keeping the log on donors.
    pub struct DonorLog {
        settings: Arc<Settings>,
        env: Env,
        time: PoolTime,
        term: Arc<OwnTerm>,
        pool: SharedPool,
        catalog: Catalog,
        authority: Arc<PoolAuthority>,
        log: Arc<LogCopies>,
        state: Arc<StateDir>,
        put: WriterHandles,
    }
}

impl DonorLog {
    /// Writes the catalog's changes to donors until it is dropped; discards the copy there while none is asked for.
    pub async fn run(self) {
        let (mut attempts, mut pause) = (0, EVERY);
        loop {
            tokio::time::sleep(pause).await;
            let done = match self.settings.get().metadata_copies {
                0 => {
                    let discarded = self.catalog.adapt_metadata(Vec::new(), true).await;
                    discarded.map_err(MetadataTrouble::from).map(|()| None)
                }
                _ if any_taker(&self.pool, &self.time) => {
                    let began = self.time.tick();
                    let (epoch, offload) = (self.term.epoch(), self.env.offload);
                    let mut donors = Donors { log: &self, attempts: &mut attempts };
                    let now_ms = self.time.wall_ms();
                    catch_up(&mut donors, &self.catalog, epoch, now_ms, offload)
                        .await
                        .map(|()| Some(began))
                }
                _ => Ok(self.log.donors.complete_at()),
            };
            match done {
                Ok(complete) => {
                    pause = EVERY;
                    self.log.donors.well(complete);
                }
                Err(MetadataTrouble::Catalog(Error::Closed)) => {}
                // The catalog's disk failed and no donor did; the catalog tells of it by itself.
                Err(MetadataTrouble::Catalog(why)) if why.is_disks() => {
                    pause = after_failure(pause)
                }
                Err(why) => {
                    pause = after_failure(pause);
                    self.log.donors.failing(why.to_string());
                }
            }
        }
    }
}

/// Returns the pause after one more failure; `pause` was the one before.
pub(super) fn after_failure(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

/// The pool's donors, which take blocks.
struct Donors<'s> {
    log: &'s DonorLog,
    /// The number of writes since the manager's start.
    attempts: &'s mut u64,
}

impl Sink for Donors<'_> {
    const COPY: LogCopy = LogCopy::OnDonors;
    type Trouble = MetadataTrouble;

    /// Returns whether the generation is sealed under the present key.
    async fn goes_on(&self, position: &Position) -> Result<bool, MetadataTrouble> {
        let key = self.log.authority.recovery_key().map_err(io::Error::other)?;
        Ok(position.key == key.name())
    }

    async fn begin(&mut self, before: Option<Position>) -> Result<(), MetadataTrouble> {
        let offload = self.log.env.offload;
        let path = self.log.state.catalog();
        let mut base = offload.run(move || Base::begin(&path)).await?;
        let mut write = self.write(base.bytes, before, None, base.files).await?;
        write.sealer.may_lack = base.may_lack;
        loop {
            let (more, next) =
                offload.run(move || base.next_lines().map(|next| (base, next))).await?;
            base = more;
            let Some((part, lines)) = next else { break };
            write.block(part, &lines).await?;
        }
        tracing::debug!("the log on donors begins a new generation");
        write.commit(base.change).await
    }

    async fn add(&mut self, before: Position, changes: CutChanges) -> Result<(), MetadataTrouble> {
        let CutChanges { last, files, blocks } = changes;
        let bytes = blocks.iter().map(|lines| lines.text.len() as u64).sum();
        let mut write = self.write(bytes, Some(before.clone()), Some(before), files).await?;
        for lines in &blocks {
            write.block(BlockPart::Log, lines).await?;
        }
        write.commit(last).await
    }
}

impl<'s> Donors<'s> {
    /// Begins a write of about `bytes` to the copy, which now ends at `before`, from a catalog of so many `files`. The
    /// new blocks follow `position`; without one they begin a new generation.
    async fn write(
        &mut self,
        bytes: u64,
        before: Option<Position>,
        position: Option<Position>,
        files: u64,
    ) -> Result<Write<'s>, MetadataTrouble> {
        let log = self.log;
        *self.attempts += 1;
        let key = log.authority.recovery_key().map_err(io::Error::other)?;
        // All blocks get one epoch: a GC freeze may raise the manager's epoch meanwhile.
        let epoch = log.term.epoch();
        // A catalog that was restored does not know how far the lost one came, but its epoch is later:
        // generations of different terms are far apart.
        let last = before.as_ref().map_or(0, |before| before.sequence);
        let sealer = Sealer {
            key,
            pool: log.authority.pool(),
            epoch,
            attempt: *self.attempts,
            wall_ms: log.time.wall_ms(),
            position,
            first: last.max(epoch.0 << 32) + 1,
            start: log.term.start,
            files,
            may_lack: false,
        };
        let put = MetadataWriter::open(&log.put, bytes).await?;
        Ok(Write { log, before, put, sealer, files: Vec::new() })
    }
}

/// Blocks on their way to donors, committed together.
struct Write<'s> {
    log: &'s DonorLog,
    before: Option<Position>,
    put: MetadataWriter,
    sealer: Sealer,
    files: Vec<PreparedFile>,
}

impl Write<'_> {
    /// Seals and stores a block.
    async fn block(&mut self, part: BlockPart, lines: &Lines) -> Result<(), MetadataTrouble> {
        let Sealed { sequence, name, bytes } =
            self.sealer.seal(part, lines, &*self.log.env.entropy)?;
        let chunk = self.put.chunk(ChunkKind::Log, name, &bytes).await?;
        let entry = Entry { name, digest: Digest(name.0), len: bytes.len() as u32, sealed: false };
        let (path, copies) = (block_path(sequence)?, self.put.copies());
        self.files.push(prepared(path, entry, chunk, copies, self.sealer.wall_ms));
        Ok(())
    }

    /// Makes the blocks part of the pool: donors then have all changes up to the one numbered `change`.
    async fn commit(self, change: ChangeNumber) -> Result<(), MetadataTrouble> {
        let Sealer { position: Some(position), epoch, .. } = self.sealer else { return Ok(()) };
        let (before, after) = (self.before, Position { change, ..position });
        let advance = Advance { copy: LogCopy::OnDonors, before, after, epoch };
        self.put.commit(self.files, advance).await
    }
}
