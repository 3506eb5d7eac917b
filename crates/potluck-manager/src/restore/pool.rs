//! Restoring from the newest checkpoint that the donors have.

use super::collect::{Collecting, Seen};
use super::{Restore, Restored, Site};
use crate::backup::pool::Head;
use crate::catalog::schema;
use crate::config::ManagerConfig;
use crate::error::ManagerError;
use crate::manager::Manager;
use crate::service::Service;
use crate::state_dir::{CATALOG, StateDir};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::DonorId;
use potluck_core::recipe::{self, Entry};
use potluck_core::seal::{Meaning, RecordKind, RecoveryKey};
use potluck_wire::control::DonorState;
use potluck_wire::courier::{Courier, CourierError};
use potluck_wire::env::Env;
use potluck_wire::identity::fingerprint;
use potluck_wire::ticket::{Caveat, Ops, Ticket};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Between two looks at who has answered.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A ticket outlives the reading of any catalog.
const TICKET_FOR: Duration = Duration::from_secs(6 * 3600);
/// The directory of the manager that only listens, inside the new state directory.
const SCRATCH: &str = "collecting";

/// How long donors are waited for.
#[derive(Debug, Clone)]
pub struct Patience {
    /// Where to listen: the lost manager's address, or what is forwarded to here.
    pub listen: String,
    /// How long nobody new must have answered.
    pub quiet: Duration,
    /// Do not wait for more than so many.
    pub donors: Option<usize>,
}

/// Restores from the newest whole checkpoint that the pool's donors have. `tell` hears of progress.
///
/// Errors: as [`super::restore_file`]; no donor answered, or none of the checkpoints they have is whole.
pub async fn restore_pool(
    ask: &Restore,
    patience: &Patience,
    env: Env,
    tell: impl Fn(&str),
) -> Result<Restored, ManagerError> {
    let site = Site::prepare(ask)?;
    let scratch = ask.state.join(SCRATCH);
    let io = StateDir::io(scratch.clone());
    if scratch.exists() {
        fs::remove_dir_all(&scratch).map_err(io)?;
    }
    let listener = listen(&site, patience, &scratch, env).await?;
    let (service, collecting) = listener.parts();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(listener.run(async {
        let _ = stopped.await; // a sender that is gone means stop, too
    }));
    let temp = site.state.catalog().with_extension("part");
    wait(&service, &collecting, patience, &tell).await;
    let fetched =
        Fetch::new(&service, site.kit.recovery_key()).newest(&collecting, &temp, &tell).await;
    let above = service.epoch();
    drop(stop);
    drop(service);
    let _ = serving.await;
    let _ = fs::remove_dir_all(&scratch);
    fetched?;
    site.finish(ask, &temp, above)
}

/// A manager over an empty catalog that listens to every donor of the pool.
async fn listen(
    site: &Site,
    patience: &Patience,
    scratch: &Path,
    env: Env,
) -> Result<Manager, ManagerError> {
    let state = StateDir::take(scratch)?;
    crate::ca::Ca::restore(&state.ca(), &site.kit.ca_certificate, &site.kit.ca_key)?;
    crate::backup::kit::keep_key(&state, &site.kit.recovery_key())?;
    schema::create(&scratch.join(CATALOG), &site.kit.pool)?;
    drop(state);
    let config = ManagerConfig {
        listen: patience.listen.clone(),
        state: scratch.into(),
        pool_name: site.kit.pool.clone(),
        metadata_copies: 0,
        ..ManagerConfig::default()
    };
    Manager::start_collecting(config, env).await
}

/// Waits until the donors asked for have answered, or nobody new has for a while.
async fn wait(
    service: &Service,
    collecting: &Collecting,
    patience: &Patience,
    tell: &impl Fn(&str),
) {
    let (mut known, mut since) = (0, service.time.tick());
    loop {
        let answered = collecting.described();
        let now = service.time.tick();
        if answered > known {
            (known, since) = (answered, now);
            tell(&format!("{answered} donors have answered"));
        }
        let enough = patience.donors.is_some_and(|wanted| answered >= wanted);
        if enough || now.saturating_sub(since) > patience.quiet {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Fetches chunks from whoever has them.
struct Fetch<'s> {
    service: &'s Arc<Service>,
    key: RecoveryKey,
    pool: Digest,
    couriers: BTreeMap<DonorId, Courier>,
}

impl<'s> Fetch<'s> {
    fn new(service: &'s Arc<Service>, key: RecoveryKey) -> Self {
        let pool = fingerprint(service.ca.certificate());
        Self { service, key, pool, couriers: BTreeMap::new() }
    }

    /// Writes the newest checkpoint that is whole to `to`.
    async fn newest(
        &mut self,
        collecting: &Collecting,
        to: &Path,
        tell: &impl Fn(&str),
    ) -> Result<(), ManagerError> {
        let mut heads = Vec::new();
        for seen in collecting.heads() {
            heads.extend(self.head(&seen).await);
        }
        heads.sort_by_key(|head| std::cmp::Reverse((head.taken.epoch, head.taken.sequence)));
        let (answered, found) = (collecting.described(), heads.len());
        for head in heads {
            let number = head.taken.sequence;
            tell(&format!("fetching checkpoint {number}"));
            match self.pieces(&head, to).await? {
                None => return Ok(()),
                Some(why) => tell(&format!("checkpoint {number} is not whole: {why}")),
            }
        }
        Err(ManagerError::NothingFound { answered, found })
    }

    async fn head(&mut self, seen: &Seen) -> Option<Head> {
        let record = self.chunk(seen.name, seen.len, seen.donors.clone()).await?;
        let (sequence, text) =
            self.key.open_record(RecordKind::Checkpoint, &self.pool, &record).ok()?;
        let head: Head = serde_json::from_slice(&text).ok()?;
        (head.taken.sequence == sequence).then_some(head)
    }

    /// Writes all pieces to `to`; why not, if one cannot be had.
    async fn pieces(&mut self, head: &Head, to: &Path) -> Result<Option<String>, ManagerError> {
        let io = |source| ManagerError::Io { path: to.into(), source };
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(to);
        let file =
            file.as_mut().map_err(|why| io(std::io::Error::new(why.kind(), why.to_string())))?;
        let pieces_key = self.key.space_key();
        let pages = head.pages.iter().map(|page| recipe::unpack(&page.0));
        let Ok(pages) = pages.collect::<Result<Vec<Vec<Entry>>, _>>() else {
            return Ok(Some("its recipe cannot be read".into()));
        };
        for entry in pages.into_iter().flatten() {
            let everybody = self.donors();
            let Some(mut piece) = self.chunk(entry.name, entry.stored_len(), everybody).await
            else {
                return Ok(Some(format!("no donor that answered has its piece {}", entry.name)));
            };
            if pieces_key.open(Meaning::Chunk, &entry.digest, &mut piece).is_err() {
                return Ok(Some(format!("its piece {} does not open", entry.name)));
            }
            file.write_all(&piece).map_err(io)?;
        }
        file.sync_all().map_err(io)?;
        Ok(None)
    }

    /// Donors that are there now, those already connected first.
    fn donors(&self) -> Vec<DonorId> {
        let now = self.service.time.tick();
        let mut donors = self.service.pool().status(now);
        donors.retain(|donor| donor.state == DonorState::Live);
        donors.sort_by_key(|donor| !self.couriers.contains_key(&donor.donor));
        donors.into_iter().map(|donor| donor.donor).collect()
    }

    async fn chunk(&mut self, name: ChunkName, len: u32, donors: Vec<DonorId>) -> Option<Vec<u8>> {
        for donor in donors {
            match self.from(donor, name, len).await {
                Ok(bytes) => return Some(bytes),
                Err(None | Some(CourierError::Refused(_))) => {}
                Err(Some(why)) => {
                    tracing::debug!(%donor, %why, "a part of a checkpoint could not be fetched");
                    self.couriers.remove(&donor);
                }
            }
        }
        None
    }

    async fn from(
        &mut self,
        donor: DonorId,
        name: ChunkName,
        len: u32,
    ) -> Result<Vec<u8>, Option<CourierError>> {
        let service = self.service;
        if let std::collections::btree_map::Entry::Vacant(empty) = self.couriers.entry(donor) {
            let now = service.time.tick();
            let contact = service.pool().contact(donor, now).ok_or(None)?;
            let key = contact.key.ok_or(None)?;
            let expires = service.time.now_ms() + TICKET_FOR.as_millis() as u64;
            let caveats = [Caveat::Donor(donor), Caveat::Ops(Ops::GET), Caveat::Expires(expires)];
            let ticket = Ticket::issue(&key, &*service.env.entropy, &caveats);
            let (net, entropy) = (&*service.env.net, &*service.env.entropy);
            empty.insert(
                Courier::open(net, entropy, &contact.address, &ticket).await.map_err(Some)?,
            );
        }
        let courier = self.couriers.get_mut(&donor).ok_or(None)?;
        courier.get(name, len).await.map_err(Some)
    }
}
