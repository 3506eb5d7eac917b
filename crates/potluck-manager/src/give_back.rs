//! Give-back: a donor's space returns to its owner. What it holds is made elsewhere first, and
//! deleted when every unit is whole without it; repair and trim do both, since its copies count
//! for nothing.
//!
//! With `--now` nothing is waited for where a file can be read without the donor. Where it cannot,
//! the last copy goes only if its version was listed before, and its owner agreed: that list is made
//! and kept when the give-back begins, so that a file written afterwards, or one that another owner's
//! `--now` leaves to this donor alone, is moved first.

use crate::catalog::{Durability, Error, donors};
use crate::departure::{self, Outlook};
use crate::pool::Giving;
use crate::service::Service;
use potluck_core::ids::{DonorId, VersionId};
use potluck_wire::control::{GivingBack, Going};
use std::sync::Arc;

/// Begins a give-back: at once where `lose` lists what may be lost for that.
pub async fn begin(
    service: &Service,
    donor: DonorId,
    lose: Option<Vec<VersionId>>,
    outlook: &Outlook,
) -> Result<(), Error> {
    let start = service.pool().held(donor);
    let at_once = lose.is_some();
    let kept = donors::Goal { start, at_once, lose: lose.unwrap_or_default() };
    let lose: Arc<[VersionId]> = kept.lose.as_slice().into();
    let keep = move |db: &_| donors::give_back(db, donor, Some(&kept));
    service.catalog.write(Durability::Disk, keep).await?;
    let now = service.time.tick();
    let giving = Giving { start, at_once, lose, since: now };
    service.pool().give_back(donor, Some(giving));
    service.keeper.kept().foresee(donor, now, outlook);
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

/// How far a donor's give-back is; `outlook` where it was just looked at what it means.
pub async fn progress(
    service: &Service,
    donor: DonorId,
    outlook: Option<&Outlook>,
) -> Result<GivingBack, Error> {
    let may_go = departure::may_go(service, donor, outlook).await?;
    let now = service.time.tick();
    let mut pool = service.pool();
    let giving = pool.giving(donor);
    let repair = pool.repair_state(now);
    let mut back = GivingBack {
        active: giving.is_some(),
        held: pool.held(donor),
        unclaimed: pool.unclaimed(donor),
        last_donor: pool.stayers(donor, now) == 0,
        room_elsewhere: Some(pool.room(Some(donor), now)),
        silent: !pool.is_heard(donor, now),
        may_go,
        ..GivingBack::default()
    };
    drop(pool);
    let (surveyed, found) = {
        let kept = service.keeper.kept();
        (giving.as_ref().is_some_and(|at| kept.knows(donor, at.since)), kept.of(donor))
    };
    let moving = outlook.map_or(found.moving, |look| look.moving);
    let blocked = outlook.map_or(found.blocked, |look| look.blocked);
    (back.to_move, back.to_move_bytes) = (moving.chunks, moving.bytes);
    if let Some(giving) = giving {
        back.held_at_start = giving.start;
        // A chunk that several files use was counted for each.
        back.to_move_bytes = moving.bytes.min(back.held);
        back.stuck = blocked.chunks.max(repair.stuck.min(moving.chunks));
        back.safe_to_remove = surveyed && back.may_go.verdict == Going::Now;
        back.done = back.safe_to_remove;
    } else {
        back.stuck = blocked.chunks;
    }
    if back.stuck > 0 {
        let stuck = back.may_go.verdict == Going::Stuck;
        back.stuck_why = if stuck { Some(back.may_go.why.clone()) } else { repair.stuck_why };
    }
    Ok(back)
}
