//! Answers the calls of donors: register, inventory, heartbeat.

use super::Answer;
use crate::audit;
use crate::callers::Caller;
use crate::failure;
use crate::gc_freeze;
use crate::service::Service;
use crate::task_results;
use potluck_catalog::chunks::ChunkId;
use potluck_catalog::placements::Told;
use potluck_catalog::term_history::Term;
use potluck_core::ids::{DonorId, Incarnation};
use potluck_core::size::count;
use potluck_pool::{Enlisted, PageDone, Pool};
use potluck_wire::addresses::{Address, Addresses};
use potluck_wire::control::{
    Done, Heartbeat, HeartbeatReply, Holding, Inventory, Locate, Located, Register, Registered,
};
use potluck_wire::error::Failure;
use std::net::IpAddr;
use std::sync::Arc;

/// Chunks that become known in one job of the catalog's writer.
const TAKEN_IN: usize = 2048;
/// Copies looked at in one step at the end of an inventory.
const SWEEP: usize = 65_536;

fn donor_of(caller: &Caller) -> Result<DonorId, Failure> {
    Ok(DonorId(caller.member()?.member.0))
}

impl Answer for Register {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Registered, Failure> {
        let donor = donor_of(&caller)?;
        let addresses = reachable(&self, caller.peer)?;
        let (epoch, start) = self.heard;
        let heard = Term { epoch, start, changes: self.heard_changes };
        gc_freeze::compare(&service, donor, heard).await?;
        let now = service.time.tick();
        let told = (addresses.to_string(), self.version.clone());
        let enlisted = service.pool().register(donor, &self, addresses.clone(), now);
        let moved = service.pool().moved(donor, &addresses);
        if moved {
            // For a manager that starts elsewhere and looks for its donors.
            service.catalog.locate_donor(donor, addresses).await?;
        }
        match enlisted {
            Enlisted::Again if moved => {
                tracing::info!("{} is at {} now", service.pool().called(donor), told.0);
            }
            Enlisted::Again => tracing::debug!(%donor, "registered again"),
            Enlisted::Anew => tracing::info!(
                "{} registered anew, at {}, of version {}",
                service.pool().called(donor),
                told.0,
                told.1
            ),
            Enlisted::InTurns => tracing::warn!(
                "{} registers anew again and again, now at {}: it restarts all the time, or two machines use one identity",
                service.pool().called(donor),
                told.0
            ),
        }
        Ok(Registered {
            donor,
            epoch: service.epoch(),
            start: service.start,
            changes: service.catalog.changes(),
            now_ms: service.time.now_ms(),
        })
    }
}

/// Where others reach a donor that calls from `peer`: there first, unless its owner says otherwise,
/// for that address has just been of use. The loopback address is of use to others on this machine
/// alone, and taken when there is no other.
pub fn reachable(register: &Register, peer: IpAddr) -> Result<Addresses, Failure> {
    let said = &register.addresses;
    let seen = register.port.filter(|port| *port > 0).map(|port| Address::of(peer, port));
    let addresses = match seen {
        Some(seen) if !seen.is_loopback() => Addresses::from(seen).and(said),
        Some(seen) if said.is_empty() => seen.into(),
        _ => said.clone(),
    };
    if addresses.is_empty() {
        return Err(failure::bad_request("a donor that registers says where it is"));
    }
    Ok(addresses)
}

impl Answer for Locate {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Located, Failure> {
        let now = service.time.tick();
        let contact = service.pool().contact(self.donor, now);
        Ok(Located { addresses: contact.map(|contact| contact.addresses).unwrap_or_default() })
    }
}

impl Answer for Heartbeat {
    async fn answer(
        mut self,
        service: Arc<Service>,
        caller: Caller,
    ) -> Result<HeartbeatReply, Failure> {
        let donor = donor_of(&caller)?;
        let now = service.time.tick();
        let (known, turned) = {
            let mut pool = service.pool();
            let live = |pool: &Pool| pool.contact(donor, now).is_some_and(|contact| contact.live);
            let was_live = live(&pool);
            let known = pool.heartbeat(donor, &self, now);
            pool.heard_over(donor, caller.connection);
            // One that was silent may take what nobody could; one that lost its disk has nothing.
            let turned = match (was_live, live(&pool)) {
                (false, true) => pool.repairs.is_stuck(),
                (was_live, live) => was_live && !live,
            };
            (known, turned)
        };
        if known && turned {
            service.scan_state.changed(now);
        }
        let mut reply = HeartbeatReply {
            epoch: service.epoch(),
            start: service.start,
            changes: service.catalog.changes(),
            now_ms: service.time.now_ms(),
            register: !known,
            leaving: service.pool().giving(donor).is_some(),
            ..HeartbeatReply::default()
        };
        if self.follows.is_some_and(|follows| follows < service.issue()) {
            reply.manager = service.whereabouts();
        }
        if known {
            let incarnation = self.incarnation;
            let results = std::mem::take(&mut self.results);
            react(&service, donor, &self).await?;
            believe(&service, donor, incarnation, self).await?;
            // After what was stored is counted: results speak of that.
            task_results::answered(&service, donor, results).await?;
            {
                let mut pool = service.pool();
                reply.tasks = pool.tasks_for(donor);
                reply.chunk_orders = pool.chunk_orders_for(donor, now);
                reply.list = pool.is_to_list(donor, now);
            }
            if service.gc_frozen().is_some() {
                // Whoever decided on these did so before the freeze.
                reply.chunk_orders.delete.clear();
            }
        }
        Ok(reply)
    }
}

/// Draws the consequences of what a heartbeat said: losses are repaired, an owner in need of space
/// is served, a liar is not trusted any more.
async fn react(service: &Service, donor: DonorId, heartbeat: &Heartbeat) -> Result<(), Failure> {
    let now = service.time.tick();
    if !heartbeat.spoiled.is_empty() {
        service.scan_state.worse(now, "a copy is spoiled");
    }
    if heartbeat.excess > 0 || service.pool().awaits_removal(donor, &heartbeat.removed.0) {
        service.scan_state.hurry(now);
    }
    let denied = service.pool().denied(donor, &heartbeat.sound.0);
    if let Some(why) = denied {
        audit::quarantine(service, donor, why).await?;
    }
    Ok(())
}

/// Writes down what a heartbeat said of chunks.
async fn believe(
    service: &Service,
    donor: DonorId,
    incarnation: Incarnation,
    heartbeat: Heartbeat,
) -> Result<(), Failure> {
    let told = Told {
        removed: heartbeat.removed.0,
        spoiled: heartbeat.spoiled.0,
        added: heartbeat.added.0,
        sound: heartbeat.sound.0,
    };
    if told.is_empty() {
        return Ok(());
    }
    if let Some(first) = told.spoiled.first() {
        let copies = count(told.spoiled.len() as u64, "spoiled copy");
        let named = service.pool().called(donor);
        tracing::warn!("{named} quarantined {copies}, first that of chunk {first}");
    }
    let mut told = told;
    let compared = service.catalog.compare(donor, told.added.clone()).await?;
    service.pool().unknown_at(donor, incarnation, &compared.unknown);
    if told.removed.is_empty() && told.spoiled.is_empty() {
        // By far the commonest: chunks of open sessions, which the catalog need not hear of.
        told.added = [compared.uncounted, compared.leaving].concat();
    }
    if told.is_empty() {
        return Ok(());
    }
    let now_ms = service.time.now_ms();
    if service.catalog.tell(donor, told, now_ms).await? {
        service.scan_state.changed(service.time.tick());
    }
    Ok(())
}

impl Answer for Inventory {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Done, Failure> {
        let donor = donor_of(&caller)?;
        let (incarnation, last) = (self.incarnation, self.last);
        let page = service
            .pool()
            .inventory_page(donor, incarnation, self.page)
            .map_err(failure::of_inventory)?;
        let holdings = self.holdings.0;
        let mut compared = service.catalog.compare(donor, holdings).await?;
        if service.gc_frozen().is_none() && service.pool().is_given_up(donor) {
            let (rows, copies) = take_in(&service, &mut compared.unknown).await?;
            compared.known.extend(rows);
            compared.uncounted.extend(copies);
        }
        {
            let mut pool = service.pool();
            let rows: Vec<_> = compared.known.iter().map(|chunk| chunk.number()).collect();
            pool.inventory_listed(donor, incarnation, &rows);
            if page == PageDone::Next {
                pool.unknown_at(donor, incarnation, &compared.unknown);
            }
        }
        if !compared.uncounted.is_empty() {
            let told = Told { added: compared.uncounted, ..Told::default() };
            service.catalog.tell(donor, told, service.time.now_ms()).await?;
        }
        if last {
            sweep(&service, donor, incarnation).await?;
            service.pool().inventory_done(donor, incarnation);
            service.scan_state.changed(service.time.tick());
        }
        Ok(Done {})
    }
}

/// Makes what an admin gave up, and nobody is writing, chunks that no file uses; it is unknown no more.
/// Gives their numbers and copies.
async fn take_in(
    service: &Service,
    unknown: &mut Vec<Holding>,
) -> Result<(Vec<ChunkId>, Vec<Holding>), Failure> {
    let (offered, given_up) = service.pool().part_offered(unknown);
    let mut rows = Vec::with_capacity(given_up.len());
    for batch in given_up.chunks(TAKEN_IN) {
        rows.extend(service.catalog.take_in(batch.to_vec(), service.time.now_ms()).await?);
    }
    *unknown = offered;
    Ok((rows, given_up))
}

/// After the last page: what is counted at the donor and was not listed is missing.
async fn sweep(
    service: &Arc<Service>,
    donor: DonorId,
    incarnation: Incarnation,
) -> Result<(), Failure> {
    let listed = service.pool().inventory_rows(donor, incarnation);
    let mut after = ChunkId::FIRST;
    let mut missing = 0;
    loop {
        let page = service.catalog.counted_at(donor, after, SWEEP).await?;
        let Some(last) = page.last() else { break };
        after = *last;
        let unlisted: Vec<_> =
            page.into_iter().filter(|row| listed.binary_search(&row.number()).is_err()).collect();
        if !unlisted.is_empty() {
            missing += mark_missing(service, donor, incarnation, unlisted).await?;
        }
    }
    if missing > 0 {
        service.scan_state.worse(service.time.tick(), "copies are missing");
        let named = service.pool().called(donor);
        let chunks = count(missing as u64, "chunk");
        match service.pool().begins_anew(donor, incarnation) {
            true => tracing::info!("{named} begins anew: {chunks} that it had are lost"),
            false => tracing::warn!("{named} has lost {chunks} that it had, by its inventory"),
        }
    }
    Ok(())
}

async fn mark_missing(
    service: &Service,
    donor: DonorId,
    incarnation: Incarnation,
    unlisted: Vec<ChunkId>,
) -> Result<usize, Failure> {
    let mut names = service.catalog.names_of(unlisted).await?;
    loop {
        let unlisted = service.pool().unlisted(donor, incarnation, &names);
        if unlisted.names.is_empty() {
            return Ok(0);
        }
        names.clone_from(&unlisted.names);
        if let Some(missing) = service.catalog.mark_missing(donor, unlisted).await? {
            return Ok(missing);
        }
    }
}
