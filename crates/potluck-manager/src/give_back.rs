//! Give-back: a donor's space returns to its owner. What it holds is made elsewhere first, and
//! deleted when every unit is whole without it; repair and trim do both, since its copies count
//! for nothing.
//!
//! With `--now` nothing is waited for where a file can be read without the donor. Where it cannot,
//! the last copy goes only if its version was listed before, and its owner agreed: that list is made
//! and kept when the give-back begins, so that a file written afterwards, or one that another owner's
//! `--now` leaves to this donor alone, is moved first.

use crate::catalog::units::{self, Layout, Met, Root};
use crate::catalog::versions::Version;
use crate::catalog::walk::Walk;
use crate::catalog::{Durability, Error, donors, placements};
use crate::pool::{Giving, Standings};
use crate::service::Service;
use crate::survey::judge_file;
use potluck_core::chunk::{Digest, PARTS};
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::path::SYSTEM_SPACE;
use potluck_core::policy::Redundancy;
use potluck_wire::control::GivingBack;
use rusqlite::Connection;
use std::sync::Arc;

/// Files listed by name.
const LISTED: usize = 100;
/// Entries looked at in one step.
const PAGE: usize = 512;

/// Begins a give-back down to `goal` bytes: at once where `lose` lists what may be lost for that.
pub async fn begin(
    service: &Service,
    donor: DonorId,
    goal: u64,
    lose: Option<Vec<VersionId>>,
) -> Result<(), Error> {
    let start = service.pool().held(donor);
    let at_once = lose.is_some();
    let kept = donors::Goal { bytes: goal, start, at_once, lose: lose.unwrap_or_default() };
    let lose: Arc<[VersionId]> = kept.lose.as_slice().into();
    let keep = move |db: &_| donors::give_back(db, donor, Some(&kept));
    service.catalog.write(Durability::Disk, keep).await?;
    let now = service.time.tick();
    let below = if goal == 0 { PARTS } else { 0 };
    let giving = Giving { goal, start, at_once, lose, below, since: now };
    service.pool().give_back(donor, Some(giving));
    service.keeper.hurry(now);
    Ok(())
}

/// Calls a give-back off: the donor's space is lent again.
pub async fn cancel(service: &Service, donor: DonorId) -> Result<(), Error> {
    let forget = move |db: &_| donors::give_back(db, donor, None);
    service.catalog.write(Durability::Disk, forget).await?;
    service.pool().give_back(donor, None);
    service.keeper.hurry(service.time.tick());
    Ok(())
}

/// How far a donor's give-back is.
pub async fn progress(service: &Service, donor: DonorId) -> Result<GivingBack, Error> {
    let (used, _) = service.catalog.read(move |db| placements::used_at(db, donor)).await?;
    let now = service.time.tick();
    let mut pool = service.pool();
    let (held, unclaimed) = (pool.held(donor), pool.unclaimed(donor));
    let last_donor = pool.stayers(donor, now) == 0;
    let Some(giving) = pool.giving(donor) else {
        return Ok(GivingBack {
            held,
            unclaimed,
            to_move: used,
            room_elsewhere: Some(pool.room(Some(donor), now)),
            silent: !pool.is_heard(donor, now),
            last_donor,
            ..GivingBack::default()
        });
    };
    let repair = pool.repair_state(now);
    let vouched = pool.vouches(donor, now);
    let silent = !pool.is_heard(donor, now);
    let room_elsewhere = Some(pool.room(Some(donor), now));
    let written = pool.is_written(donor);
    drop(pool);
    let kept = service.keeper.kept();
    let moving = kept.moving.get(&donor).copied().unwrap_or_default();
    let surveyed = kept.began.is_some_and(|began| began >= giving.since);
    let all = giving.goal == 0;
    // Its whole inventory was compared, nothing that files use is there, no session writes there.
    let safe = all && surveyed && vouched && used == 0 && moving.chunks == 0 && !written;
    let to_move = if surveyed { moving.chunks } else { used };
    let stuck = if moving.chunks > 0 { repair.stuck.min(to_move) } else { 0 };
    Ok(GivingBack {
        active: true,
        all,
        held_at_start: giving.start,
        held,
        goal: giving.goal,
        to_move,
        // A chunk that several files use was counted for each.
        to_move_bytes: moving.bytes.min(held),
        room_elsewhere,
        silent,
        last_donor,
        stuck,
        stuck_why: (stuck > 0).then_some(repair.stuck_why).flatten(),
        unclaimed,
        safe_to_remove: safe,
        done: if all { safe } else { surveyed && held <= giving.goal },
        ..GivingBack::default()
    })
}

/// Files that are lost when all that a donor has goes at once.
#[derive(Debug, Default)]
pub struct Loss {
    /// The first by path.
    pub paths: Vec<String>,
    /// How many.
    pub files: u64,
    /// All of them, in order, …
    pub versions: Vec<VersionId>,
    /// … and files whose records are damaged, so that nobody knows.
    pub damaged: u64,
    /// Of all files that lie there in part, lost or not, what the one has that needs most donors.
    pub widest: Option<Redundancy>,
}

impl Loss {
    /// What a whole list is called, so that it can be agreed to.
    pub fn digest(&self) -> Digest {
        let ids = self.versions.iter().map(|id| id.0).chain([self.damaged]);
        let packed: Vec<u8> = ids.flat_map(u64::to_le_bytes).collect();
        Digest::of(&packed)
    }
}

/// Lists what is lost because all that a donor has goes at once.
pub async fn would_lose(service: &Service, donor: DonorId) -> Result<Loss, Error> {
    let mut looking = Looking::new(service, donor);
    // The pool's own metadata is written anew where it is lost (backup::adapting).
    let roots = service.catalog.read(units::roots).await?;
    for root in roots.into_iter().filter(|root| root.name != SYSTEM_SPACE) {
        let mut cursor: Option<String> = None;
        loop {
            let root = root.clone();
            let step = move |db: &Connection| {
                let next = looking.page(db, &root, cursor.as_deref())?;
                Ok((looking, next))
            };
            (looking, cursor) = service.catalog.read(step).await?;
            if cursor.is_none() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let mut loss = looking.loss;
    // One that was moved meanwhile may have been met twice.
    loss.versions.sort_unstable();
    loss.versions.dedup();
    loss.files = loss.versions.len() as u64 + loss.damaged;
    Ok(loss)
}

struct Looking {
    donor: DonorId,
    /// The donors as they are, and without this one, …
    now: [Standings; 2],
    /// … and the same if those that were given up came back. `None` while it is not known of all
    /// others what they have.
    at_best: Option<[Standings; 2]>,
    loss: Loss,
}

impl Looking {
    fn new(service: &Service, donor: DonorId) -> Self {
        // A catalog that was restored may not know of copies that are there.
        let restored = service.gc_held().is_some();
        let now = service.time.tick();
        let pool = service.pool();
        let known = pool.assembled(now) && !restored;
        let standings = pool.standings(now);
        drop(pool);
        let pair = |standings: &Standings| [standings.beside(donor), standings.without(donor)];
        let at_best = known.then(|| pair(&standings.all_back()));
        Self { donor, now: pair(&standings), at_best, loss: Loss::default() }
    }

    /// Whether a part of a file is at the donor.
    fn lies_there(&self, layout: &Layout) -> bool {
        let mut holders = layout.pieces.iter().flat_map(|piece| &piece.holders);
        holders.any(|(donor, _)| *donor == self.donor)
    }

    /// Whether a file that lies there is lost because this donor goes. One that cannot be read as it is, is not,
    /// if it could not be read either were all the others back, or could be without this donor.
    fn loses(&self, version: &Version, layout: &Layout) -> bool {
        let lost = |standings: &Standings| judge_file(version, layout, standings).lost;
        let by_going = |[with, without]: &[Standings; 2]| lost(without) && !lost(with);
        lost(&self.now[1]) && (by_going(&self.now) || self.at_best.as_ref().is_none_or(by_going))
    }

    fn page(
        &mut self,
        db: &Connection,
        root: &Root,
        cursor: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let mut walk = Walk::new(db, root.dir, true, cursor)?;
        let mut last = None;
        for _ in 0..PAGE {
            let Some((path, met)) = units::meet(db, &mut walk)? else { return Ok(None) };
            let lost = match met {
                Met::Dir => false,
                Met::File(_, layout) if !self.lies_there(&layout) => false,
                Met::File(version, layout) => {
                    let wide = Some(version.redundancy());
                    let donors =
                        |redundancy: Option<Redundancy>| redundancy.map(Redundancy::donors);
                    if donors(wide) > donors(self.loss.widest) {
                        self.loss.widest = wide;
                    }
                    let lost = self.loses(&version, &layout);
                    self.loss.versions.extend(lost.then_some(version.id));
                    lost
                }
                // It may need what goes. Nothing is trimmed while its needs are unknown.
                Met::Damaged(_) => {
                    self.loss.damaged += 1;
                    true
                }
            };
            if lost && self.loss.paths.len() < LISTED {
                self.loss.paths.push(format!("pot://{}/{path}", root.name));
            }
            last = Some(path);
        }
        Ok(last)
    }
}
