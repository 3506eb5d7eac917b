//! The handling of outages in the middle of a read, when donors or the link to them are away for a while. What was
//! read stays; the donors are tried again for as long as the client's retry limits say.

use super::Fetcher;
use crate::buffer::Buffer;
use crate::link::LinkError;
use crate::recipe::{Recipe, changed};
use crate::retry_limits::{Pauses, STRANGERS, do_not_answer};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::path::PoolPath;
use potluck_core::read_plan::Piece;
use potluck_wire::addresses::Addresses;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::{Call, DonorAccess, Open, OpenPart, Opened};
use potluck_wire::error::{ErrorKind, Failure};
use potluck_wire::net::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The pause before tickets that could not be renewed are asked for again.
const RENEW_AGAIN: Duration = Duration::from_secs(30);

/// Finds the chunks of a file that has no name yet, and so cannot be opened again.
pub trait ChunkLocator: Send + Sync {
    /// Finds out which donors have these chunks now, and how to reach those.
    fn locate(&self, chunks: Vec<ChunkName>) -> BoxFuture<'_, Result<LocatedChunks, Failure>>;
}

/// The donors that have chunks.
#[derive(Debug, Default)]
pub struct LocatedChunks {
    /// The donors of each chunk.
    pub holders: BTreeMap<ChunkName, Vec<DonorId>>,
    /// The access to all of these donors.
    pub donors: Vec<DonorAccess>,
}

/// The state of a read whose donors may be away.
#[derive(Default)]
pub(super) struct Outage {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// True once a whole unit was read; a chunk of a group that cannot be rebuilt does not count.
    begun: bool,
    /// The donors that did not answer at some time.
    away: BTreeMap<DonorId, Away>,
    /// The time at which each donor last did not let this client in.
    denied: BTreeMap<DonorId, Tick>,
    /// The failure with which the manager refused to open the files again, if this client may not read them any more.
    refused: Option<Failure>,
    /// The path of the file that is read, or of the directory that all files of the read are below.
    root: Option<PoolPath>,
    /// The locator of the chunks, if the files have no names.
    locator: Option<Arc<dyn ChunkLocator>>,
}

struct Away {
    /// The time at which the donor first did not answer; `None` once it answered again.
    since: Option<Tick>,
    /// The last time at which the donor did not answer.
    last: Tick,
}

/// The time for which a manager that does not answer is asked: once, or for as long as the retry limits say.
#[derive(Clone, Copy)]
enum Asks {
    Once,
    ForLong,
}

/// A unit that could not be fetched.
pub(super) struct Failed {
    /// The donors that have any chunk which may serve to read the unit.
    pub holders: BTreeSet<DonorId>,
    /// The moment at which this try to fetch the unit began.
    pub began: Tick,
    /// The failure of the read.
    pub failure: Failure,
}

impl Outage {
    /// Notes that a whole unit was read: from now on donors that are away are waited for.
    pub fn read_some(&self) {
        self.state.lock().expect("no holder panics").begun = true;
    }

    /// Notes whether a donor answered.
    pub fn answered(&self, donor: DonorId, answer: &Result<Buffer, LinkError>, now: Tick) {
        let mut state = self.state.lock().expect("no holder panics");
        match answer {
            Ok(_) => {
                state.away.entry(donor).and_modify(|away| away.since = None);
            }
            // The donor's address, or the ticket that it accepts, may have changed.
            Err(
                error @ (LinkError::Away(_)
                | LinkError::Refused(BulkStatus::Away | BulkStatus::Denied)),
            ) => {
                if matches!(error, LinkError::Refused(BulkStatus::Denied)) {
                    state.denied.insert(donor, now);
                }
                let away = state.away.entry(donor).or_insert(Away { since: None, last: now });
                away.since.get_or_insert(now);
                away.last = now;
            }
            Err(_) => {}
        }
    }

    /// Notes whether the manager refused to open the files of the read again.
    fn refused(&self, why: Option<Failure>) {
        self.state.lock().expect("no holder panics").refused = why;
    }

    /// Returns the donors of the unit that are away or were while it was tried, the moment since which the first of
    /// them is, and the time for which they are waited for; `None` if waiting does not help. That time is `limit`, or
    /// at most [`STRANGERS`] if this client has `reached` none of the donors that are away.
    fn away(
        &self,
        failed: &Failed,
        reached: &BTreeSet<DonorId>,
        limit: Duration,
    ) -> Option<(Vec<DonorId>, Tick, Duration)> {
        let state = self.state.lock().expect("no holder panics");
        let concerned = state.away.iter().filter(|(donor, away)| {
            let was_away = away.since.is_some() || away.last >= failed.began;
            was_away && failed.holders.contains(donor)
        });
        let away: Vec<(DonorId, Tick)> =
            concerned.map(|(donor, away)| (*donor, away.since.unwrap_or(away.last))).collect();
        let since = away.iter().map(|(_, since)| *since).min()?;
        let away: Vec<DonorId> = away.into_iter().map(|(donor, _)| donor).collect();
        let may_come_back = state.begun || away.iter().any(|donor| reached.contains(donor));
        if state.refused.is_some() || !may_come_back {
            return None;
        }
        // If a donor that was reached before is away, too, it may be the link to all of them that is down.
        let others = state.away.iter().filter(|(_, away)| away.since.is_some());
        let mut all = away.iter().chain(others.map(|(donor, _)| donor));
        let is_outage = all.any(|donor| reached.contains(donor));
        let limit = if is_outage { limit } else { limit.min(STRANGERS) };
        Some((away, since, limit))
    }
}

impl Fetcher {
    /// Learns that the files of this read are at or below `root`, by which they can be opened again.
    pub fn reads_below(&self, root: PoolPath) {
        self.outage.state.lock().expect("no holder panics").root = Some(root);
    }

    /// Learns that `locator` finds the chunks of this read, whose files cannot be opened by name.
    pub fn located_by(&self, locator: Arc<dyn ChunkLocator>) {
        self.outage.state.lock().expect("no holder panics").locator = Some(locator);
    }

    /// Learns that the manager does not hear these donors: they are away from now on, until they answer.
    pub fn not_heard(&self, donors: &BTreeSet<DonorId>) {
        let now = self.client.env.clock.now();
        let mut state = self.outage.state.lock().expect("no holder panics");
        let away = |donor: &DonorId| (*donor, Away { since: Some(now), last: now });
        state.away.extend(donors.iter().map(away));
    }

    /// Asks the manager, for as long as `asks` says, where the chunks of a file are now, and for tickets for their
    /// donors. If the manager does not answer, nothing changes; if the file was moved or removed, or may not be read
    /// any more, that is noted. Returns false, and asks nothing, if another unit has asked since `began`.
    async fn reopen(&self, recipe: &Recipe, began: Tick, asks: Asks) -> bool {
        let mut last = recipe.reopened.lock().await;
        let (root, has_no_name) = {
            let state = self.outage.state.lock().expect("no holder panics");
            (state.root.clone(), state.locator.is_some())
        };
        let path = root.map(|root| {
            let names = recipe.file.path.split('/').filter(|name| !name.is_empty());
            root.join_all(names)
        });
        if *last >= Some(began) {
            return false;
        }
        if has_no_name {
            // This call tries for as long as the client's retry limits say.
            let _ = self.locate(recipe).await; // what was known before may still be true
            *last = Some(self.client.env.clock.now());
            return true;
        }
        let Some(Ok(path)) = path else { return true };
        let opened = match recipe.part {
            None => {
                self.open(&Open { path, recursive: false, after: None, leased: false }, asks).await
            }
            Some((version, number)) => self.open(&OpenPart { path, version, number }, asks).await,
        };
        *last = Some(self.client.env.clock.now());
        let opened = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                match failure.kind {
                    ErrorKind::NotFound => recipe.moved(None),
                    ErrorKind::Auth => self.outage.refused(Some(failure)),
                    _ => {}
                }
                return true;
            }
        };
        self.outage.refused(None);
        recipe.moved(opened.files.into_iter().next());
        self.learn_anew(opened.donors);
        true
    }

    /// Finds out where the chunks of a file without a name are.
    pub async fn locate(&self, recipe: &Recipe) -> Result<(), Failure> {
        let locator = self.outage.state.lock().expect("no holder panics").locator.clone();
        if let Some(locator) = locator {
            let located = locator.locate(recipe.names().collect()).await?;
            recipe.located(&located.holders);
            self.learn_anew(located.donors);
        }
        Ok(())
    }

    /// Learns from the manager how donors are reached now. Donors that answer keep their links for as long as
    /// [`Donors::learn`](crate::donors::Donors::learn) says.
    fn learn_anew(&self, donors: Vec<DonorAccess>) {
        {
            let state = self.outage.state.lock().expect("no holder panics");
            let away = state.away.iter().filter(|(_, away)| away.since.is_some());
            away.for_each(|(donor, _)| self.donors.discard(*donor));
        }
        self.donors.learn(donors);
    }

    async fn open<C: Call<Reply = Opened>>(&self, open: &C, asks: Asks) -> Result<Opened, Failure> {
        match asks {
            Asks::Once => self.client.caller.call(open).await,
            Asks::ForLong => self.client.call_retrying(open).await,
        }
    }

    /// Renews the tickets by which these pieces are read before they end, by opening the file again, at most once in
    /// [`RENEW_AGAIN`].
    pub(super) async fn renew_tickets(&self, recipe: &Recipe, pieces: &[Piece]) {
        let old = self.donors.to_renew();
        if !old.is_empty() && old.iter().any(|donor| holders(recipe, pieces).contains(donor)) {
            let now = self.client.env.clock.now();
            self.reopen(recipe, now.saturating_sub(RENEW_AGAIN), Asks::Once).await;
        }
    }

    /// Opens the file again for a unit that could not be fetched. Returns true if the unit is worth another try at
    /// once: chunks have moved, a donor is elsewhere or has to be shown a new ticket, or another unit has asked
    /// meanwhile.
    pub(super) async fn reopening_helps(
        &self,
        recipe: &Recipe,
        pieces: &[Piece],
        began: Tick,
    ) -> bool {
        let known = || -> BTreeMap<DonorId, Option<Addresses>> {
            let holders = holders(recipe, pieces).into_iter();
            let at = |donor| self.donors.access(donor).map(|access| access.addresses.clone());
            holders.map(|donor| (donor, at(donor))).collect()
        };
        let before = known();
        let denied = {
            let state = self.outage.state.lock().expect("no holder panics");
            before.keys().any(|donor| state.denied.get(donor) >= Some(&began))
        };
        // This unit has not tried the addresses that another unit has learnt since.
        !self.reopen(recipe, began, Asks::Once).await || denied || known() != before
    }

    /// Lets some time pass before a unit that failed is tried again, and then asks the manager where its donors are;
    /// returns the failure when the time to wait is over.
    pub(super) async fn wait_for_donors(
        &self,
        pauses: &mut Option<Pauses>,
        recipe: &Recipe,
        failed: Failed,
    ) -> Result<(), Failure> {
        let limit = self.client.retry_limits.donors;
        let away = self.outage.away(&failed, &self.client.reached(), limit);
        let away = away.filter(|_| !limit.is_zero());
        let Some((away, since, limit)) = away else {
            return Err(self.with_advice(recipe, failed));
        };
        let names: Vec<String> = away.iter().map(|donor| self.donors.name(*donor)).collect();
        let pauses = pauses.get_or_insert_with(|| Pauses::new(&self.client, since));
        if !pauses.pause(&do_not_answer(&names), limit).await {
            return Err(self.with_advice(recipe, failed));
        }
        let asked = self.client.env.clock.now();
        self.reopen(recipe, asked, Asks::ForLong).await;
        // The time in which the manager was away counts against a limit of its own.
        pauses.leave_out(self.client.env.clock.now().saturating_sub(asked));
        Ok(())
    }

    /// Adds advice to the failure: to read the version that is there now, or to see why this machine never reached
    /// donors that the manager hears.
    fn with_advice(&self, recipe: &Recipe, failed: Failed) -> Failure {
        if recipe.is_changed() {
            return changed(&recipe.file.path);
        }
        let strangers: Vec<DonorId> = {
            let state = self.outage.state.lock().expect("no holder panics");
            if let Some(refused) = &state.refused {
                return refused.clone();
            }
            let away = state.away.keys().filter(|donor| failed.holders.contains(donor));
            let reached = self.client.reached();
            away.filter(|donor| !reached.contains(donor)).copied().collect()
        };
        match self.donors.unreached_advice(strangers.into_iter()) {
            Some(advice) => failed.failure.hint(advice),
            None => failed.failure,
        }
    }
}

/// Returns the donors that have any chunk which may serve to read `pieces`.
pub(super) fn holders(recipe: &Recipe, pieces: &[Piece]) -> BTreeSet<DonorId> {
    match (recipe.file.ec, pieces.first()) {
        (Some(ec), Some(first)) => {
            let group = recipe.group(ec, first.index);
            (0..ec.width()).flat_map(|position| group.holders(position)).copied().collect()
        }
        _ => pieces.iter().flat_map(|piece| recipe.holders(piece.index)).collect(),
    }
}
