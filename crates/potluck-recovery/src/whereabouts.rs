//! The addresses of this manager, signed by the pool's authority, and the news that another manager took its place.

use potluck_core::ids::Epoch;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{Alarm, AlarmKind};
use potluck_wire::whereabouts::{Issue, SignedWhereabouts, Whereabouts};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The addresses of this manager, and the news that another manager took its place.
#[derive(Debug)]
pub struct Signpost {
    told: Mutex<Told>,
    signed: Mutex<Option<(Issue, SignedWhereabouts)>>,
    superseded: Mutex<Option<Whereabouts>>,
    /// Wakes the task that tells the donors when the addresses change.
    moved: Notify,
}

/// The addresses that are to be signed, with the number of their changes.
#[derive(Debug)]
struct Told {
    /// The number of times that the addresses changed.
    moves: u64,
    addresses: Addresses,
}

impl Signpost {
    /// Makes the signpost of a manager that is reached at `told`.
    pub fn new(told: Addresses) -> Self {
        let told = Mutex::new(Told { moves: 0, addresses: told });
        let (signed, superseded, moved) = Default::default();
        Self { told, signed, superseded, moved }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no holder panics")
    }

    /// Notes that the manager is reached at other addresses from now on.
    pub fn move_to(&self, addresses: Addresses) {
        {
            let mut told = self.told();
            *told = Told { moves: told.moves + 1, addresses };
        }
        self.moved.notify_one();
    }

    /// Has the whereabouts signed and told anew, because the authority that signs them is another.
    pub fn sign_again(&self) {
        self.move_to(self.addresses());
    }

    /// Returns the issue of the manager's whereabouts in this epoch. Of two issues, the later one holds.
    pub fn issue(&self, epoch: Epoch) -> Issue {
        Issue { epoch, moves: self.told().moves }
    }

    /// Returns the addresses that members are told.
    pub fn addresses(&self) -> Addresses {
        self.told().addresses.clone()
    }

    /// Returns the whereabouts that the manager shows in this epoch, which `sign` signs; `None` when they cannot be
    /// signed.
    pub fn shown(
        &self,
        epoch: Epoch,
        sign: impl FnOnce(&Whereabouts) -> Result<SignedWhereabouts, rcgen::Error>,
    ) -> Option<SignedWhereabouts> {
        let said = {
            let told = self.told();
            let issue = Issue { epoch, moves: told.moves };
            Whereabouts { issue, addresses: told.addresses.clone() }
        };
        let mut signed = self.signed.lock().expect("no holder panics");
        if let Some((_, shown)) = signed.as_ref().filter(|(of, _)| *of == said.issue) {
            return Some(shown.clone());
        }
        match sign(&said) {
            Ok(shown) => Some(signed.insert((said.issue, shown)).1.clone()),
            Err(why) => {
                tracing::error!(%why, "where the manager is cannot be signed");
                None
            }
        }
    }

    /// Waits until the addresses change; returns at once if they changed since the last wait.
    pub async fn moves(&self) {
        self.moved.notified().await;
    }

    /// Notes that another manager of the pool started later; returns whether that is news.
    pub fn note_superseded(&self, other: Whereabouts) -> bool {
        let mut superseded = self.superseded.lock().expect("no holder panics");
        let new = superseded.as_ref() != Some(&other);
        *superseded = Some(other);
        new
    }

    /// Returns the alarm that another manager of the pool took this one's place, if one did.
    pub fn alarm(&self) -> Option<Alarm> {
        let superseded = self.superseded.lock().expect("no holder panics");
        let other = superseded.as_ref()?;
        let what = format!(
            "another manager of this pool, at {}, started later than this one, and donors follow it",
            other.addresses
        );
        let advice = "stop one of the two for good: this one, if it was restored elsewhere";
        Some(Alarm::new(AlarmKind::OtherManager, what, advice))
    }
}
