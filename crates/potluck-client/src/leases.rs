//! Leases of the versions that this client has open for long: while they are renewed, the pool keeps what a version
//! is made of, though its file is replaced or removed.

use crate::measured_traffic::MeasuredTraffic;
use potluck_core::ids::{DonorId, VersionId};
use potluck_wire::call::Caller;
use potluck_wire::control::{DonorAccess, DonorLoad, RenewLeases};
use potluck_wire::error::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// The interval at which leases are renewed; a lease ends a minute after its last renewal.
const RENEW_EVERY: Duration = Duration::from_secs(20);
/// The pause before a renewal that failed is tried again.
const RENEW_AGAIN: Duration = Duration::from_secs(2);

/// All leases of a client. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct OpenLeases {
    open: Arc<Mutex<LeasedFiles>>,
    /// Notified when the leases are to be renewed without waiting.
    now: Arc<Notify>,
}

#[derive(Default)]
struct LeasedFiles {
    /// The open files, by numbers that only this client uses.
    files: BTreeMap<u64, Leased>,
    /// The number of the next file that is opened.
    next: u64,
    /// True while a task renews the leases.
    is_renewed: bool,
}

/// A version that is open.
#[derive(Clone)]
struct Leased {
    space: String,
    version: VersionId,
    /// The tickets for the donors from which the version is read.
    donors: Arc<dyn ReadTickets>,
}

/// The tickets by which an open file is read, and the loads of the donors that it is read from.
pub(crate) trait ReadTickets: Send + Sync {
    /// Returns the donors for which new tickets should be asked.
    fn due(&self) -> Vec<DonorId>;
    /// Uses these new tickets from now on.
    fn renew(&self, access: Vec<DonorAccess>);
    /// Returns all donors that the file is read from.
    fn all(&self) -> Vec<DonorId>;
    /// Learns how loaded donors are now.
    fn hear(&self, loads: &[DonorLoad]);
}

/// The lease of an open file. It is renewed until this handle is dropped, and then runs out.
pub(crate) struct Lease {
    of: OpenLeases,
    file: u64,
}

impl OpenLeases {
    /// Begins to renew the lease under which a version in `space` was just opened, and the tickets for its donors.
    pub fn keep(
        &self,
        caller: &Caller,
        traffic: &MeasuredTraffic,
        space: &str,
        version: VersionId,
        donors: Arc<dyn ReadTickets>,
    ) -> Lease {
        let mut open = self.open.lock().expect("no holder panics");
        let file = open.next;
        open.next += 1;
        let leased = Leased { space: space.into(), version, donors };
        open.files.insert(file, leased);
        // Without a runtime nothing is read either, so nothing has to be renewed.
        if !open.is_renewed
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            open.is_renewed = true;
            runtime.spawn(renew(self.clone(), caller.clone(), traffic.clone()));
        }
        Lease { of: self.clone(), file }
    }

    /// Renews all leases without waiting for the next interval.
    pub fn renew_now(&self) {
        self.now.notify_one();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.of.open.lock().expect("no holder panics").files.remove(&self.file);
    }
}

/// Renews leases until none is left.
async fn renew(leases: OpenLeases, caller: Caller, traffic: MeasuredTraffic) {
    let mut pause = RENEW_EVERY;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = leases.now.notified() => {}
        }
        let files: Vec<Leased> = {
            let mut open = leases.open.lock().expect("no holder panics");
            open.is_renewed = !open.files.is_empty();
            open.files.values().cloned().collect()
        };
        if files.is_empty() {
            return;
        }
        pause = RENEW_EVERY;
        let mut of: BTreeMap<&str, Vec<&Leased>> = BTreeMap::new();
        files.iter().for_each(|file| of.entry(&file.space).or_default().push(file));
        for (space, files) in of {
            if let Err(failure) = renew_in(&caller, &traffic, space, &files).await {
                tracing::debug!(%failure, "leases were not renewed");
                pause = RENEW_AGAIN;
            }
        }
    }
}

async fn renew_in(
    caller: &Caller,
    traffic: &MeasuredTraffic,
    space: &str,
    files: &[&Leased],
) -> Result<(), Failure> {
    let versions: BTreeSet<VersionId> = files.iter().map(|file| file.version).collect();
    let donors: BTreeSet<DonorId> = files.iter().flat_map(|file| file.donors.due()).collect();
    let read_from: BTreeSet<DonorId> = files.iter().flat_map(|file| file.donors.all()).collect();
    let call = RenewLeases {
        space: space.into(),
        versions: versions.into_iter().collect(),
        donors: donors.into_iter().collect(),
        read_from: read_from.into_iter().collect(),
        traffic: traffic.take_untold(),
    };
    let renewed = caller.call(&call).await?;
    for version in renewed.gone {
        tracing::debug!(%version, "the pool keeps this no longer than its file is there");
    }
    for file in files {
        let due = file.donors.due();
        let access = renewed.donors.iter().filter(|access| due.contains(&access.donor));
        file.donors.renew(access.cloned().collect());
        file.donors.hear(&renewed.loads);
    }
    Ok(())
}
