//! Answers the calls of donors: register, inventory, heartbeat, locate.

use super::Answer;
use crate::applying_task_results::ApplyingTaskResults;
use crate::call_turns::CallTurns;
use crate::callers::{CallingMember, KnownMembers};
use crate::donor_claims;
use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::inventory_turns::{Counted, InventoryTurns, MOST_COUNTED};
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::recurring_notices::{Notice, RecurringNotices};
use crate::scan_state::ScanState;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::stale_catalog::StaleCatalog;
use crate::tasks::signpost::OwnWhereabouts;
use potluck_catalog::{Catalog, CatalogChunk, Compared, DonorNote, Error, Term, ToldCopies};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::{ChunkId, DonorId, Epoch, Incarnation, MemberId, SessionId};
use potluck_core::size::count;
use potluck_pool::{Enlisted, PageDone, UnknownArrivals};
use potluck_recovery::pool_authority::PoolAuthority;
use potluck_wire::control::{
    Arrived, Done, Heartbeat, HeartbeatReply, Holding, Inventory, Locate, Located, Register,
    Registered,
};
use potluck_wire::error::Failure;
use potluck_wire::packed::Packed;
use std::collections::BTreeSet;
use std::sync::Arc;

handles! {
    /// The handles for answering donors.
    pub struct DonorCalls {
        settings: Arc<Settings>,
        time: PoolTime,
        term: Arc<OwnTerm>,
        pool: SharedPool,
        catalog: Catalog,
        members: Arc<KnownMembers>,
        call_turns: Arc<CallTurns>,
        notices: Arc<RecurringNotices>,
        inventory_turns: Arc<InventoryTurns>,
        gc_freeze: Arc<GcFreeze>,
        scan_state: Arc<ScanState>,
        results: ApplyingTaskResults,
        stale_catalog: StaleCatalog,
        whereabouts: OwnWhereabouts,
        authority: Arc<PoolAuthority>,
    }
}

/// The most chunks that are marked as missing in one job of the catalog's writer.
const MISSING_PER_JOB: usize = 1024;
/// The most chunks in quarantine that are answered in one heartbeat; the donor asks about further ones again.
const DISCARDED: usize = 256;
/// The number of copies that are looked at in one step at the end of an inventory.
const SWEEP: usize = 65_536;

fn donor_of(caller: &CallingMember) -> Result<DonorId, Failure> {
    Ok(DonorId(caller.member()?.member.0))
}

impl Answer<Register> for DonorCalls {
    async fn answer(self, call: Register, caller: CallingMember) -> Result<Registered, Failure> {
        let donor = donor_of(&caller)?;
        let call = donor_claims::registration(call);
        let addresses = call.reached_at(caller.peer)?;
        let (epoch, start) = call.heard;
        let heard = Term { epoch, start, changes: call.heard_changes };
        let unproven = self.stale_catalog.compare(donor, heard, call.heard_proof).await?;
        let is_known = self.pool.lock().incarnation(donor) == Some(call.incarnation);
        if !is_known && !call.registered_before {
            // The donor registers only then, so that no commit relies meanwhile on what it may have lost.
            let owner = self.members.owner(caller.member()?.member);
            let _turn = self.call_turns.take_among_own(owner).await?;
            self.catalog.doubt_in_memory(donor).await?;
        }
        let now = self.time.tick();
        let told = (addresses.to_string(), call.version.clone());
        let (enlisted, moved, named) = {
            let mut pool = self.pool.lock();
            let enlisted = pool.register(donor, &call, addresses.clone(), now);
            (enlisted, !pool.is_at(donor, &addresses), pool.called(donor))
        };
        if moved {
            // The addresses are kept for a manager that starts elsewhere and looks for its donors. If the catalog
            // refuses them, the donor registers again, and counts as moved still.
            self.catalog.note_donor(donor, DonorNote::At(addresses.clone())).await?;
            self.pool.lock().moved(donor, addresses);
        }
        match enlisted {
            Enlisted::Again if moved && self.tells(Notice::Moved, donor, 1) => {
                tracing::info!("{named} is at {} now", told.0);
            }
            Enlisted::Again => tracing::debug!(%donor, "registered again"),
            Enlisted::Anew if !self.tells(Notice::RegisteredAnew, donor, 1) => {}
            Enlisted::InTurns if !self.tells(Notice::RegisteredInTurns, donor, 1) => {}
            Enlisted::Anew => {
                tracing::info!("{named} registered anew, at {}, of version {}", told.0, told.1)
            }
            Enlisted::InTurns => tracing::warn!(
                "{named} registers anew again and again, now at {}: it restarts all the time, or two machines use one identity (`potluck status` tells)",
                told.0
            ),
        }
        let (epoch, changes, proof) = self.said_of_term();
        Ok(Registered {
            donor,
            epoch,
            start: self.term.start,
            changes,
            proof,
            unproven,
            now_ms: self.time.now_ms(),
        })
    }
}

impl Answer<Locate> for DonorCalls {
    async fn answer(self, call: Locate, _: CallingMember) -> Result<Located, Failure> {
        let now = self.time.tick();
        let contact = self.pool.lock().contact(call.donor, now);
        Ok(Located { addresses: contact.map(|contact| contact.addresses).unwrap_or_default() })
    }
}

impl Answer<Heartbeat> for DonorCalls {
    async fn answer(
        self,
        call: Heartbeat,
        caller: CallingMember,
    ) -> Result<HeartbeatReply, Failure> {
        let donor = donor_of(&caller)?;
        let mut call = donor_claims::heartbeat(call);
        let now = self.time.tick();
        let (known, turned) = {
            let mut pool = self.pool.lock();
            let was_live = pool.is_heard(donor, now);
            let known = pool.heartbeat(donor, &call, now);
            pool.heard_over(donor, caller.connection, caller.peer);
            // A donor that was silent may take chunks that no other could, and one that is live no more has no copies
            // to count on.
            let turned = match (was_live, pool.is_heard(donor, now)) {
                (false, true) => pool.repairs.is_stuck(),
                (was_live, live) => was_live && !live,
            };
            (known, turned)
        };
        if known && turned {
            self.scan_state.changed(now);
        }
        // The turn is taken after the donor was noted as heard, so that a donor whose report waits does not seem
        // silent.
        let owner = self.members.owner(caller.member()?.member);
        let _turn = self.call_turns.take_among_own(owner).await?;
        let (epoch, changes, proof) = self.said_of_term();
        let mut reply = HeartbeatReply {
            epoch,
            start: self.term.start,
            changes,
            proof,
            now_ms: self.time.now_ms(),
            register: !known,
            ..HeartbeatReply::default()
        };
        if call.follows.is_some_and(|follows| follows < self.whereabouts.issue()) {
            reply.manager = self.whereabouts.signed();
        }
        let sessions = std::mem::take(&mut call.sessions.0);
        let results = std::mem::take(&mut call.results);
        let mut quarantined = std::mem::take(&mut call.quarantined.0);
        if known {
            self.believe(donor, call).await?;
            // Results are taken after the stored chunks are counted, because they refer to these.
            self.results.take(donor, results).await?;
        }
        {
            let mut pool = self.pool.lock();
            reply.leaving = pool.giving(donor).is_some();
            reply.promised = pool.promised_at(donor);
            reply.void_before = pool.tickets_void_before(reply.now_ms);
            reply.over = Packed(pool.over(&sessions, now));
            if known {
                reply.tasks = pool.tasks_for(donor);
                reply.chunk_orders = pool.chunk_orders_for(donor, now);
                reply.list = pool.is_to_list(donor);
            }
        }
        if self.gc_freeze.why().is_some() {
            // These deletions were decided on before the freeze.
            reply.chunk_orders.delete.clear();
        } else if known && !quarantined.is_empty() {
            // The heartbeat's losses are written down before, so that a lost copy is no reason to discard another.
            quarantined.truncate(DISCARDED);
            let needed = self.needed_in_quarantine(quarantined.clone()).await?;
            quarantined.retain(|name| !needed.contains(name));
            reply.discard = Packed(quarantined);
        }
        Ok(reply)
    }
}

impl DonorCalls {
    /// Returns the epoch of this term and the number of changes that the catalog has, with the proof of both for later
    /// managers.
    fn said_of_term(&self) -> (Epoch, u64, Option<Digest>) {
        let (epoch, changes) = (self.term.epoch(), self.catalog.changes());
        (epoch, changes, Some(self.authority.ca().terms().prove(epoch, self.term.start, changes)))
    }

    /// Returns the chunks that files use and of which no donor that is there and trusted has a copy. A copy in
    /// quarantine may then be the last one, and copies on machines that are away are no reason to give it up.
    async fn needed_in_quarantine(
        &self,
        names: Vec<ChunkName>,
    ) -> Result<BTreeSet<ChunkName>, Error> {
        let known = self.catalog.chunks(names).await?;
        let donors = self.pool.lock().snapshot(self.time.tick());
        let view = donors.current();
        let is_elsewhere = |chunk: &CatalogChunk| {
            chunk.holders.iter().any(|holder| view.counts(*holder, &chunk.name))
        };
        let needed = known.into_iter().filter(|chunk| chunk.is_used && !is_elsewhere(chunk));
        Ok(needed.map(|chunk| chunk.name).collect())
    }

    /// Takes what a heartbeat says about chunks, and writes it down. Scans look at losses and at a donor that must hold
    /// less, and a donor that calls a copy sound of which the manager gets other bytes is a liar.
    async fn believe(&self, donor: DonorId, heartbeat: Heartbeat) -> Result<(), Failure> {
        let Heartbeat { incarnation, batch, spoiled, unreadable, .. } = heartbeat;
        let now = self.time.tick();
        if heartbeat.excess > 0 {
            self.scan_state.hurry(now);
        }
        let worse = match (spoiled.is_empty(), unreadable.is_empty()) {
            (false, _) => Some("a copy is spoiled"),
            (true, false) => Some("a copy cannot be read"),
            (true, true) => None,
        };
        let arrived = heartbeat.added.0;
        let mut told = ToldCopies {
            removed: heartbeat.removed.0,
            spoiled: [spoiled.0, unreadable.0].concat(),
            added: arrived.iter().map(|arrived| arrived.holding).collect(),
            sound: heartbeat.sound.0,
            ..ToldCopies::default()
        };
        if told.is_empty() {
            return Ok(());
        }
        let leaves = {
            let mut pool = self.pool.lock();
            if pool.has_written(donor, incarnation, batch) {
                return Ok(()); // the reply to this was lost
            }
            pool.denied(donor, &told.sound);
            pool.giving(donor).is_some()
        };
        if leaves && !told.removed.is_empty() {
            self.scan_state.hurry(now);
        }
        if let Some(why) = worse {
            self.scan_state.changed_at(donor, now);
            self.scan_state.worse(now, why);
        }
        let compared = self.catalog.compare(donor, told.added.clone()).await?;
        let mut unknown = compared.unknown.iter().peekable();
        let (unknown, known): (Vec<Arrived>, Vec<Arrived>) = arrived
            .into_iter()
            .partition(|it| unknown.next_if(|next| **next == it.holding).is_some());
        let known: Vec<Holding> = known.into_iter().map(|arrived| arrived.holding).collect();
        let arrived = self.unwanted(donor, incarnation, unknown);
        // No file will use these chunks, so none of them waits for the GC delay, which protects readers.
        let gc_delay_ms = self.settings.get().gc_delay.as_millis() as u64;
        let unused_since_ms = self.time.now_ms().saturating_sub(gc_delay_ms);
        self.take_in(donor, &arrived.unwanted, unused_since_ms).await?;
        if told.removed.is_empty() && told.spoiled.is_empty() {
            // Most heartbeats list only chunks of open sessions, of which the catalog is not told.
            told.added = [compared.uncounted, compared.leaving].concat();
        }
        let written = self.catalog.tell(donor, told, self.time.now_ms()).await?;
        let named = {
            let mut pool = self.pool.lock();
            pool.unused_gone(donor, written.unused_gone);
            // If the catalog could not be written, this is not reached, and the donor reports all of it again.
            pool.arrivals_written(donor, (incarnation, batch), &arrived, &known);
            pool.called(donor)
        };
        if let Some(first) = written.spoiled.first()
            && self.tells(Notice::Quarantined, donor, written.spoiled.len() as u64)
        {
            let copies = count(written.spoiled.len() as u64, "copy");
            tracing::warn!(
                "{named} quarantined {copies}, spoiled or unreadable, first that of chunk {first}"
            );
        }
        if written.lost || worse.is_some() {
            self.scan_state.changed_at(donor, self.time.tick());
        }
        if let Some(why) = worse {
            // A scan that began before this was written down may not have seen it.
            self.scan_state.worse(self.time.tick(), why);
        }
        Ok(())
    }

    /// Returns whether the program's log is to tell now of something that a donor did `number` times.
    fn tells(&self, what: Notice, donor: DonorId, number: u64) -> bool {
        self.notices.tells(what, MemberId(donor.0), number, self.time.tick())
    }
}

impl Answer<Inventory> for DonorCalls {
    async fn answer(self, call: Inventory, caller: CallingMember) -> Result<Done, Failure> {
        let donor = donor_of(&caller)?;
        let (incarnation, last) = (call.incarnation, call.last);
        let (owner, now) = (self.members.owner(caller.member()?.member), self.time.tick());
        let mut turn = self.inventory_turns.take(donor, owner, incarnation, now)?;
        let page = self.pool.lock().inventory_page(donor, incarnation, call.page)?;
        if call.page == 0 {
            *turn = None;
        }
        let mut compared = self.compare_page(donor, call.holdings.0, &mut turn).await?;
        if self.gc_freeze.why().is_none() && self.pool.lock().is_given_up(donor) {
            let given_up = self.pool.lock().take_given_up(donor, &mut compared.unknown);
            let taken_in = self.take_in(donor, &given_up, self.time.now_ms()).await?;
            compared.known.extend(taken_in);
            self.pool.lock().took_in(donor, given_up.len() as u64);
        }
        {
            let mut pool = self.pool.lock();
            pool.inventory_listed(donor, incarnation, &compared.known);
            if page == PageDone::Next {
                pool.unknown_at(donor, incarnation, &compared.unknown);
            }
        }
        if !compared.uncounted.is_empty() {
            let told = ToldCopies { added: compared.uncounted, ..ToldCopies::default() };
            self.catalog.tell(donor, told, self.time.now_ms()).await?;
            self.scan_state.changed_at(donor, self.time.tick());
        }
        if last {
            self.sweep(donor, incarnation).await?;
            let is_expected = {
                let mut pool = self.pool.lock();
                let is_expected = pool.expects_listing(donor);
                pool.inventory_done(donor, incarnation);
                is_expected
            };
            self.inventory_turns.end(donor);
            if is_expected {
                self.scan_state.assembles(self.time.tick());
            }
            // If the list is as the catalog says, only the state of the donor has changed, and a scan sees that.
            self.scan_state.changed(self.time.tick());
        }
        Ok(Done {})
    }
}

impl DonorCalls {
    /// Compares a page of a donor's list with the copies that the catalog counts there, which are read at the first
    /// chunks.
    async fn compare_page(
        &self,
        donor: DonorId,
        holdings: Vec<Holding>,
        counted: &mut Counted,
    ) -> Result<Compared, Failure> {
        if holdings.is_empty() {
            return Ok(Compared::default());
        }
        let counted = match counted {
            Some(counted) => counted,
            None => counted.insert(self.catalog.counted_at(donor, MOST_COUNTED).await?),
        };
        let (known, others) = counted.part(holdings);
        if others.is_empty() {
            return Ok(Compared { known, ..Compared::default() });
        }
        let mut compared = self.catalog.compare(donor, others).await?;
        compared.known.extend(known);
        Ok(compared)
    }

    /// Notes chunks that arrived at a donor and that the catalog does not know. Some of them are unwanted: a write
    /// session that this process opened stored them without offering them. A chunk from a session of another term is
    /// never called unwanted, because another catalog may have files of that session.
    fn unwanted(
        &self,
        donor: DonorId,
        incarnation: Incarnation,
        unknown: Vec<Arrived>,
    ) -> UnknownArrivals {
        let is_frozen = self.gc_freeze.why().is_some();
        let is_own = |session: &SessionId| !is_frozen && session.is_of_term(self.term.start);
        self.pool.lock().unknown_arrived(donor, incarnation, unknown.into_iter(), is_own)
    }

    /// Has the catalog note chunks of a donor that no file uses and no session is writing, as unused since the pool's
    /// time `unused_since_ms`. Returns their numbers.
    async fn take_in(
        &self,
        donor: DonorId,
        chunks: &[Holding],
        unused_since_ms: u64,
    ) -> Result<Vec<ChunkId>, Failure> {
        let told = ToldCopies { unused: chunks.to_vec(), ..ToldCopies::default() };
        Ok(self.catalog.tell(donor, told, unused_since_ms).await?.taken_in)
    }

    /// Marks the copies as missing that are counted at the donor and that it did not list, after the last page of its
    /// list.
    async fn sweep(&self, donor: DonorId, incarnation: Incarnation) -> Result<(), Failure> {
        let listed = Arc::new(self.pool.lock().inventoried(donor, incarnation));
        let mut after = ChunkId::FIRST;
        let mut missing = 0;
        loop {
            let page = self.catalog.unlisted_at(donor, Arc::clone(&listed), after, SWEEP).await?;
            let (Some(last), unlisted) = page else { break };
            after = last;
            for names in unlisted.chunks(MISSING_PER_JOB) {
                missing += self.mark_missing(donor, incarnation, names.to_vec()).await?;
            }
        }
        if missing > 0 {
            self.scan_state.worse(self.time.tick(), "copies are missing");
            let (is_new, named) = {
                let pool = self.pool.lock();
                (pool.begins_anew(donor, incarnation), pool.called(donor))
            };
            let chunks = count(missing as u64, "chunk");
            if is_new {
                // No record says which copies a new store has lost, so a scan has to look at all files.
                self.scan_state.changed_anywhere(self.time.tick());
                tracing::info!("{named} begins anew: {chunks} that it had are lost");
            } else {
                self.scan_state.changed_at(donor, self.time.tick());
                if self.tells(Notice::Missing, donor, missing as u64) {
                    tracing::warn!("{named} has lost {chunks} that it had, by its inventory");
                }
            }
        }
        Ok(())
    }

    async fn mark_missing(
        &self,
        donor: DonorId,
        incarnation: Incarnation,
        mut names: Vec<ChunkName>,
    ) -> Result<usize, Failure> {
        loop {
            let unlisted = self.pool.lock().unlisted(donor, incarnation, &names);
            if unlisted.names.is_empty() {
                return Ok(0);
            }
            names.clone_from(&unlisted.names);
            if let Some(missing) = self.catalog.mark_missing(donor, unlisted).await? {
                return Ok(missing);
            }
        }
    }
}
