//! Settling: the end of a write whose files are visible while some of their copies are still being made.

use super::Window;
use crate::write::report::PutReport;

impl Window {
    /// Waits until all copies are made that this client makes, closes the session, and returns the report. The pool's
    /// repair makes copies that no donor took, or that are not made when this future is dropped.
    pub(super) async fn settle(mut self) -> PutReport {
        if self.committing.has_committed() && self.groups.has_pending() {
            if let Err(failure) = self.run(|window| !window.groups.has_pending()).await {
                tracing::warn!(%failure, "copies of what was written are left to the pool's repair");
            }
            self.close().await;
        }
        let missing = self.groups.pending() + self.groups.abandoned();
        let pending_copies = self.groups.forwarded_later() + missing;
        let stored_after = self.client.env.clock.now().saturating_sub(self.opened);
        // A file that had one copy when it became visible has others now, unless a donor has yet to forward it.
        let is_settled = self.groups.pending() + self.groups.forwarded_later() == 0;
        let at_risk = match is_settled && self.groups.left_alone() == 0 {
            true => 0,
            false => self.report.at_risk,
        };
        let report = PutReport { pending_copies, at_risk, stored_after, ..self.report };
        match self.committing.is_finished() {
            true => self.session.finish(),
            false => self.session.abort(false).await,
        }
        report
    }
}
