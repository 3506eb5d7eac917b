//! Copies that are still being made when their files are visible already.

use super::Window;

/// The rest of a write by an asynchronous protocol. Dropped before it has settled, it leaves the
/// copies that are missing to the pool's repair.
#[must_use = "copies are only made while somebody waits for them"]
pub struct Settling {
    window: Option<Box<Window>>,
}

impl Settling {
    pub(super) fn settled() -> Self {
        Self { window: None }
    }

    pub(super) fn of(window: Window) -> Self {
        Self { window: Some(Box::new(window)) }
    }

    /// Copies still to be made by this client; those that donors make are not among them.
    pub fn pending(&self) -> u64 {
        self.window.as_ref().map_or(0, |window| window.pending_copies() + window.abandoned)
    }

    /// Waits until the copies are made; gives how many were not, because no donor took them. The
    /// pool's repair makes those.
    pub async fn wait(self) -> u64 {
        let Some(mut window) = self.window else { return 0 };
        if let Err(failure) = window.run(|window| window.pending_copies() == 0).await {
            tracing::warn!(%failure, "copies of what was written are left to the pool's repair");
        }
        let missing = window.abandoned + window.pending_copies();
        let Window { session, batch, .. } = *window;
        match session.calls().commit(batch, Vec::new(), false, true).await.1 {
            Ok(_) => session.finish(),
            Err(failure) => tracing::debug!(%failure, "the lease ends the session"),
        }
        missing
    }
}
