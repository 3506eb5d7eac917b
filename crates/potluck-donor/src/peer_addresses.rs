//! The addresses of other donors. A client says to whom its puts are to be passed on, and the manager says
//! whether that is a donor of the pool: no member can make a machine in an owner's network connect
//! to another of its choice.

use potluck_core::clock::{Clock, Tick};
use potluck_core::ids::DonorId;
use potluck_wire::addresses::Addresses;
use potluck_wire::call::Caller;
use potluck_wire::control::{Locate, Source};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// How long addresses that the manager told are believed: a donor that started again may be elsewhere,
/// and until that is known its copies go the writer's way.
const BELIEVED: Duration = Duration::from_secs(10);
/// How long a put waits for its routes.
const DEADLINE: Duration = Duration::from_secs(3);
/// The most donors whose addresses are remembered; members may name as many as they like.
const MOST: usize = 1024;

/// Addresses as the manager said them.
pub(crate) struct PeerAddresses {
    caller: Caller,
    known: Mutex<BTreeMap<DonorId, (Addresses, Tick)>>,
}

impl PeerAddresses {
    /// Makes an empty memory of addresses that asks `caller`'s manager.
    pub fn new(caller: Caller) -> Self {
        Self { caller, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<DonorId, (Addresses, Tick)>> {
        self.known.lock().expect("no holder panics")
    }

    /// True when the manager says that the donor is where `said` has it. False when the manager cannot
    /// be asked now.
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
