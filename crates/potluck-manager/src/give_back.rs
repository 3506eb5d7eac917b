//! Give-back: a donor's space returns to its owner. Repair first makes the donor's chunks elsewhere,
//! and trim deletes them at the donor when every unit is whole without them; both follow from its
//! copies counting for nothing.
//!
//! With `--now` the donor waits for no file that can be read without it. The last copy of any other
//! file goes only if its version was listed before: that list is made and kept when the give-back
//! begins, so that a file written afterwards, or one that another owner's `--now` leaves to this
//! donor alone, is moved first.

use crate::departure::{Departure, Departures, Outlook, needs};
use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::Leaving;
use crate::scan_state::ScanState;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, DonorNote, Error, Goal};
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::size::count;
use potluck_pool::Giving;
use potluck_wire::control::{GivingBack, Going, MayGo};
use std::sync::Arc;

handles! {
    /// The handles for giving space back.
    pub struct GiveBacks {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        gc_freeze: Arc<GcFreeze>,
        scan_state: Arc<ScanState>,
        departures: Departures,
    }
}

impl GiveBacks {
    /// Begins a give-back. With `lose`, the versions that may be lost, the space is given back at once.
    pub async fn begin(
        &self,
        donor: DonorId,
        lose: Option<Vec<VersionId>>,
        leaving: Leaving,
    ) -> Result<(), Error> {
        let start = self.pool.lock().held(donor);
        let at_once = lose.is_some();
        let kept = Goal { start, at_once, lose: lose.unwrap_or_default() };
        let lose: Arc<[VersionId]> = kept.lose.as_slice().into();
        self.catalog.note_donor(donor, DonorNote::GivesBack(Some(kept))).await?;
        let now = self.time.tick();
        let giving = Giving { start, at_once, lose, since: now };
        self.pool.lock().give_back(donor, Some(giving));
        self.scan_state.kept().foresee(donor, now, leaving);
        self.scan_state.hurry(now);
        Ok(())
    }

    /// Calls a give-back off: the donor's space is lent again.
    pub async fn cancel(&self, donor: DonorId) -> Result<(), Error> {
        self.catalog.note_donor(donor, DonorNote::GivesBack(None)).await?;
        self.pool.lock().give_back(donor, None);
        self.scan_state.hurry(self.time.tick());
        Ok(())
    }

    /// Returns the progress of a donor's give-back.
    pub async fn progress(&self, donor: DonorId) -> Result<GivingBack, Error> {
        let leaving = self.scan_state.kept().of(donor);
        self.of(&Departure::of(donor), leaving).await
    }

    /// Returns the effects of a departure that was just looked at.
    pub async fn planned(
        &self,
        departure: &Departure,
        outlook: Outlook,
    ) -> Result<GivingBack, Error> {
        let Outlook { leaving, loss, less_safe, held_of, stopped } = outlook;
        let mut back = self.of(departure, leaving).await?;
        let is_whole = departure.over.is_none();
        // Where nothing else is known, the verdict has it.
        let is_told = !is_whole || back.may_go.verdict == Going::NotKnown;
        let written = (!is_told).then(|| self.departures.writes_at(&departure.donors)).flatten();
        back.blocked
            .extend(written.map(|why| format!("it waits: {why}")).into_iter().chain(stopped.why()));
        Ok(GivingBack {
            removal: Some(needs(&loss, &less_safe, &back.may_go)),
            listing: Some(loss.digest()),
            lost: loss.paths,
            lost_files: loss.files,
            less_safe: less_safe.paths,
            less_safe_files: less_safe.files,
            held_of: is_whole.then_some(held_of),
            ..back
        })
    }

    /// Returns the reason why no copies in excess are deleted at any donor, if there is one.
    fn no_deletion(&self) -> Option<String> {
        let frozen = self.gc_freeze.why().map(|why| format!("{why}: `potluck gc resume`"));
        let damaged = self.scan_state.kept().damaged.files;
        let damaged = (damaged > 0).then(|| {
            format!("the records of {} are damaged: `potluck fsck`", count(damaged, "file"))
        });
        Some(format!("no copy is deleted, {}", frozen.or(damaged)?))
    }

    async fn of(&self, departure: &Departure, leaving: Leaving) -> Result<GivingBack, Error> {
        let may_go = self.departures.may_go(departure, leaving).await?;
        let now = self.time.tick();
        let donors = &departure.donors;
        let mut pool = self.pool.lock();
        let only = donors.first().copied().filter(|_| donors.len() == 1);
        let giving = only.and_then(|donor| Some((donor, pool.giving(donor)?)));
        let repair = pool.repair_state(now);
        let to_make = leaving.moving.chunks + leaving.unreached;
        let paused = repair.paused.clone().filter(|_| to_make > 0);
        let silent: Vec<String> = donors
            .iter()
            .filter(|id| !pool.is_heard(**id, now))
            .map(|id| pool.named(*id))
            .collect();
        let given_up = donors.iter().all(|donor| pool.has_nothing(*donor, now));
        let mut back = GivingBack {
            active: giving.is_some(),
            held: donors.iter().map(|donor| pool.held(*donor)).sum(),
            unclaimed: donors.iter().map(|donor| pool.unclaimed(*donor)).sum(),
            last_donor: pool.staying(donors, now) == 0,
            may_go,
            ..GivingBack::default()
        };
        drop(pool);
        let Leaving { moving, blocked, .. } = leaving;
        // A chunk that several files use was counted for each, so this may be more than the donor
        // holds.
        (back.to_move, back.to_move_bytes) = (moving.chunks, moving.bytes.min(back.held));
        back.stuck = blocked.chunks;
        if given_up && leaving.unreached > 0 {
            // Nothing leaves it any more. What it had is among what repair makes, or cannot make.
            back.stuck = repair.stuck;
        }
        if let Some((donor, giving)) = giving {
            back.held_at_start = giving.start;
            back.stuck = blocked.chunks.max(repair.stuck.min(moving.chunks));
            let known = self.scan_state.kept().knows(donor, giving.since);
            back.safe_to_remove = known && back.may_go.verdict == Going::Now;
            back.done = back.safe_to_remove;
        }
        if back.stuck > 0 {
            let stuck = back.may_go.verdict == Going::Stuck;
            back.stuck_why = if stuck { Some(back.may_go.why.clone()) } else { repair.stuck_why };
        }
        let paused = paused.map(|why| format!("repair rests, {why}: `potluck repair resume`"));
        let held_up = paused.or_else(|| self.no_deletion()).filter(|_| back.held > 0);
        back.blocked = blockers(&back, &silent).into_iter().chain(held_up).collect();
        Ok(back)
    }
}

/// Says what keeps the chunks of donors from leaving, where some of the donors are `silent`.
fn blockers(back: &GivingBack, silent: &[String]) -> Vec<String> {
    let MayGo { verdict, why, advice } = &back.may_go;
    if *verdict == Going::Stuck {
        return vec![format!("it cannot come to its end: {why}; {advice}")];
    }
    let silent = silent.iter().map(|name| {
        format!("{name} is not heard, and nothing moves until it is: start `potluck lend` there")
    });
    let stuck = (back.stuck > 0).then(|| {
        let why = back.stuck_why.as_deref().unwrap_or("no other donor takes them");
        let chunks = count(back.stuck, "chunk");
        format!("{chunks} cannot be moved now: {why}; lend more elsewhere, or call it off")
    });
    silent.chain(stuck).collect()
}
