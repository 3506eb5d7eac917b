//! The answers to the calls that open files for reading, that renew their leases and tickets, and that report copies
//! which could not be read and donors which were not reached.

use super::Answer;
use crate::access::Access;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::{BAD_COPY_MET, ScanState};
use crate::series_uses::SeriesUses;
use crate::shared_pool::SharedPool;
use crate::ticket_issuer;
use crate::ticket_issuer::TicketIssuer;
use crate::waiting_for_donors::WaitingForDonors;
use potluck_catalog::{Catalog, ChunkAsker, MOST_LEASES, OldPage, OpenedPage};
use potluck_core::ids::DonorId;
use potluck_core::policy::AckLevel;
use potluck_core::rights::Right;
use potluck_wire::control::{
    CopyFault, Done, DonorLoad, Holding, OldFiles, Open, OpenPart, Opened, OpenedOldFiles,
    RenewLeases, RenewedLeases, Report, Reported, TellTraffic, Unreached,
};
use potluck_wire::error::Failure;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most donors for which a reader gets new tickets when it renews its leases.
const MOST_DONORS: usize = 4096;

handles! {
    /// The handles for answering readers.
    pub struct ReadingCalls {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        uses: Arc<SeriesUses>,
        scan_state: Arc<ScanState>,
        wait_until: WaitingForDonors,
        tickets: TicketIssuer,
        access: Access,
    }
}

impl Answer<Open> for ReadingCalls {
    async fn answer(self, call: Open, caller: CallingMember) -> Result<Opened, Failure> {
        let Open { path, recursive, after, leased } = call;
        self.access.need(&caller, Right::Read, &path).await?;
        self.uses.note(&self.catalog, &path, self.time.without_leaps_ms()).await;
        let page = match leased && !recursive {
            true => {
                let member = caller.member()?.member;
                self.catalog.open_leased(path, member, self.time.now_ms()).await?
            }
            false => self.catalog.open_files(path, recursive, after).await?,
        };
        self.opened(page, &caller).await
    }
}

impl Answer<OpenPart> for ReadingCalls {
    async fn answer(self, call: OpenPart, caller: CallingMember) -> Result<Opened, Failure> {
        let OpenPart { path, version, number } = call;
        self.access.need(&caller, Right::Read, &path).await?;
        let page = self.catalog.open_part(path, version, number).await?;
        self.opened(page, &caller).await
    }
}

impl Answer<OldFiles> for ReadingCalls {
    async fn answer(
        self,
        call: OldFiles,
        caller: CallingMember,
    ) -> Result<OpenedOldFiles, Failure> {
        let OldFiles { space, after } = call;
        self.access.need_in(&caller, Right::Read, &space).await?;
        self.access.need_in(&caller, Right::Manage, &space).await?;
        let OldPage { files, kept, next } = self.catalog.open_old(space, after).await?;
        Ok(OpenedOldFiles { opened: self.opened(files, &caller).await?, kept, next })
    }
}

impl Answer<RenewLeases> for ReadingCalls {
    async fn answer(
        self,
        call: RenewLeases,
        caller: CallingMember,
    ) -> Result<RenewedLeases, Failure> {
        let RenewLeases { space, mut versions, mut donors, mut read_from, traffic } = call;
        self.access.need_in(&caller, Right::Read, &space).await?;
        let member = caller.member()?.member;
        let rest = versions.split_off(versions.len().min(MOST_LEASES));
        let now_ms = self.time.now_ms();
        let mut gone = self.catalog.renew_leases(member, &space, versions, now_ms).await;
        gone.extend(rest);
        donors.truncate(MOST_DONORS);
        read_from.truncate(MOST_DONORS);
        let (contacts, loads) = {
            let (mut pool, now) = (self.pool.lock(), self.time.tick());
            pool.told_traffic(member, &traffic, now);
            let load = |donor| {
                let (live, load) = pool.load(donor, now)?;
                Some(DonorLoad { donor, live, load })
            };
            let loads = read_from.into_iter().filter_map(load).collect();
            (ticket_issuer::contacts(&pool, donors, now), loads)
        };
        Ok(RenewedLeases { donors: self.tickets.for_reading(member, contacts), loads, gone })
    }
}

impl Answer<TellTraffic> for ReadingCalls {
    async fn answer(self, call: TellTraffic, caller: CallingMember) -> Result<Done, Failure> {
        let member = caller.member()?.member;
        self.pool.lock().told_traffic(member, &call.traffic, self.time.tick());
        Ok(Done {})
    }
}

impl ReadingCalls {
    /// Returns opened files with the holders of their chunks, in the order in which to ask them, and with tickets of
    /// the caller's for these donors.
    async fn opened(self, mut page: OpenedPage, caller: &CallingMember) -> Result<Opened, Failure> {
        if !page.keys.is_empty() {
            caller.need_unsealing()?;
        }
        let holders =
            page.files.iter().flat_map(|file| file.holders.iter().chain(&file.parity_holders));
        let everybody: BTreeSet<DonorId> = holders.flatten().chain(&page.donors).copied().collect();
        self.wait_until
            .donors_reported(|pool| everybody.iter().any(|donor| pool.expects_report(*donor)))
            .await;
        let contacts = {
            let now = self.time.tick();
            ticket_issuer::contacts(&self.pool.lock(), everybody, now)
        };
        let donors = self.tickets.for_reading(caller.member()?.member, contacts);

        let rank: BTreeMap<DonorId, (bool, f32)> =
            donors.iter().map(|donor| (donor.donor, (!donor.live, donor.load))).collect();
        let files = page.files.iter_mut();
        for holders in
            files.flat_map(|file| file.holders.iter_mut().chain(&mut file.parity_holders))
        {
            holders.retain(|donor| rank.contains_key(donor));
            holders.sort_by(|a, b| live_first(rank[a], rank[b]));
        }
        Ok(Opened {
            dirs: page.dirs,
            links: page.links,
            files: page.files,
            donors,
            space_keys: page.keys,
            is_shared: page.is_shared,
            next: page.next,
        })
    }
}

/// Orders donors for a reader: live ones first, the less loaded before the others.
fn live_first(a: (bool, f32), b: (bool, f32)) -> Ordering {
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
}

impl Answer<Report> for ReadingCalls {
    async fn answer(self, call: Report, caller: CallingMember) -> Result<Reported, Failure> {
        let who = caller.member()?;
        let (name, donor) = (call.chunk, call.donor);
        // Whoever may read no file of the chunk is told nothing of it.
        let asker = ChunkAsker { seen: self.access.seen(&caller).await?, session: None };
        let names = Arc::new(vec![name]);
        let known = self.catalog.look_up_chunks(names, AckLevel::Memory, asker).await?;
        let Some(chunk) = self.catalog.chunks(vec![name]).await?.pop() else {
            return Ok(Reported { counted: false });
        };
        if known.iter().any(|chunk| chunk.is_hidden || !chunk.used) {
            return Ok(Reported { counted: false });
        }
        let reported = Reported { counted: chunk.holders.contains(&donor) };
        if !reported.counted && !chunk.leaving.contains(&donor) {
            return Ok(reported);
        }
        let now = self.time.tick();
        let mut pool = self.pool.lock();
        let asked = pool.is_asked_about(donor, &name);
        if !asked && !pool.hears(who.member, now) {
            return Ok(reported);
        }
        if !asked && pool.casts_doubt(who.member, donor, name, now) {
            let fault = match call.fault {
                CopyFault::WrongBytes => "got wrong bytes of",
                CopyFault::Missing => "did not find",
                CopyFault::Unreadable => "could not read",
            };
            tracing::warn!(
                "{} {} ({}) {fault} copies at {}, first of chunk {name}; it looks at each",
                who.role,
                who.name,
                who.member,
                pool.called(donor)
            );
            self.scan_state.worse(now, BAD_COPY_MET);
            self.scan_state.changed_at(donor, now);
        }
        // The copy counts until its donor or the manager has looked at it: one reader's report marks nothing as lost.
        match call.fault {
            CopyFault::WrongBytes | CopyFault::Missing => {
                pool.accuse(donor, Holding { name, len: chunk.len }, Some(who.member), now);
            }
            CopyFault::Unreadable => pool.order_verify(donor, name, now),
        }
        Ok(reported)
    }
}

impl Answer<Unreached> for ReadingCalls {
    async fn answer(self, call: Unreached, caller: CallingMember) -> Result<Done, Failure> {
        let who = caller.member()?.member;
        self.pool.lock().not_reached_by(who, caller.peer, call.donor, self.time.tick());
        Ok(Done {})
    }
}
