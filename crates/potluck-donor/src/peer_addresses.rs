//! The addresses of other donors. A client says to which addresses its puts are to be passed on, and the manager says
//! whether a donor of the pool has them, so that no member can make a machine in an owner's network connect to a
//! machine of the member's choice.

use potluck_core::clock::{Clock, Tick};
use potluck_core::ids::DonorId;
use potluck_wire::addresses::Addresses;
use potluck_wire::call::Caller;
use potluck_wire::control::{Locate, Source};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The time for which addresses that the manager told are believed. A donor that was restarted may have others; until
/// they are known, its copies are not forwarded and the writer makes them.
const BELIEVED: Duration = Duration::from_secs(10);
/// The time that the manager may take to tell the addresses of a donor.
const DEADLINE: Duration = Duration::from_secs(3);
/// The most donors whose addresses are remembered, since members may name any number.
const MOST: usize = 1024;

/// The addresses of donors as the manager told them.
pub(crate) struct PeerAddresses {
    caller: Caller,
    known: Mutex<BTreeMap<DonorId, (Addresses, Tick)>>,
}

impl PeerAddresses {
    /// Makes an empty memory of addresses that asks the manager through `caller`.
    pub fn new(caller: Caller) -> Self {
        Self { caller, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<DonorId, (Addresses, Tick)>> {
        self.known.lock().expect("no holder panics")
    }

    /// Returns true when the manager says that the donor has all addresses in `said`, and false when it does not, or
    /// cannot be asked now.
    pub async fn confirm(&self, clock: &dyn Clock, said: &Source) -> bool {
        let now = clock.now();
        let known = self.known().get(&said.donor).filter(|(_, until)| now < *until).cloned();
        let addresses = match known {
            Some((addresses, _)) => addresses,
            None => {
                let locate = Locate { donor: said.donor };
                let asked = self.caller.call(&locate);
                let Ok(Ok(located)) = tokio::time::timeout(DEADLINE, asked).await else {
                    return false;
                };
                let mut known = self.known();
                if known.len() >= MOST {
                    known.clear();
                }
                known.insert(said.donor, (located.addresses.clone(), now + BELIEVED));
                located.addresses
            }
        };
        !said.addresses.is_empty() && said.addresses.iter().all(|said| addresses.contains(said))
    }
}
