//! Opening files for reading, and reports of copies that could not be read.

use super::Answer;
use crate::callers::Caller;
use crate::held_up::donors_reported;
use crate::service::Service;
use crate::ticketing;
use potluck_core::ids::DonorId;
use potluck_wire::control::{CopyFault, Done, Open, Opened, Report, Unreached};
use potluck_wire::error::Failure;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Answer for Open {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Opened, Failure> {
        let Self { path, recursive, after, .. } = self;
        let mut page = service.catalog.open_files(path, recursive, after).await?;
        let holders =
            page.files.iter().flat_map(|file| file.holders.iter().chain(&file.parity_holders));
        let everybody: BTreeSet<DonorId> = holders.flatten().copied().collect();
        donors_reported(&service, |pool| everybody.iter().any(|donor| pool.expects_report(*donor)))
            .await;
        let contacts = {
            let now = service.time.tick();
            ticketing::contacts(&service.pool(), everybody, now)
        };
        let donors = ticketing::for_reading(&service, contacts);

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
            files: page.files,
            donors,
            space_key: page.key,
            next: page.next,
        })
    }
}

/// Live donors first, the less loaded before the others.
fn live_first(a: (bool, f32), b: (bool, f32)) -> Ordering {
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
}

impl Answer for Report {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Done, Failure> {
        let who = caller.member()?;
        let (name, donor) = (self.chunk, self.donor);
        if !service.catalog.is_held_by(name, donor).await? {
            return Ok(Done {});
        }
        let now = service.time.tick();
        let mut pool = service.pool();
        let asked = pool.is_asked_about(donor, &name);
        if !asked && !pool.hears(who.member, now) {
            return Ok(Done {});
        }
        if !asked && pool.casts_doubt(who.member, now) {
            let fault = match self.fault {
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
            service.scan_state.worse(now, "a reader met a bad copy");
        }
        // Believed only after the donor looked: a reader alone marks nothing as lost.
        match self.fault {
            CopyFault::WrongBytes => pool.accuse(self.donor, self.chunk, who.member, now),
            CopyFault::Missing | CopyFault::Unreadable => {
                pool.order_verify(self.donor, self.chunk, now);
            }
        }
        Ok(Done {})
    }
}

impl Answer for Unreached {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Done, Failure> {
        let who = caller.member()?.member;
        service.pool().not_reached_by(who, self.donor, service.time.tick());
        Ok(Done {})
    }
}
