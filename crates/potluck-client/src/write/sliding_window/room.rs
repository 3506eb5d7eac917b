//! Room: the bytes that are promised to a session grow, and donors that failed are replaced.

use super::{Event, Window};
use crate::write::reservation::Growth;
use potluck_wire::control::{GrowingFile, Grown};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The least plaintext bytes by which a session of known size grows, when it turns out to be larger.
const GROW_BYTES: u64 = 256 << 20;
/// The most plaintext bytes by which a session of unknown size grows, unless an eighth of its promise is more: bytes
/// that are promised to it are promised to nobody else.
const MOST_AHEAD: u64 = 64 << 20;
/// The least growth in bytes that is halved and asked for again where it does not fit.
const LEAST_GROWTH: u64 = 64 << 10;

/// Returns the plaintext bytes by which a session of unknown size grows that was promised so many.
fn next_growth(promised: u64) -> u64 {
    promised.min(MOST_AHEAD.max(promised / 8))
}

impl Window {
    pub(super) fn grow_ahead(&mut self) {
        let policy = &self.session.reserved.policy;
        // The bytes of a session of known size are promised; a stream grows early, so that it need not wait at the
        // end of its promise.
        let ahead = match self.session.bytes {
            Some(_) => 0,
            // Chunks that are kept are counted when they have to be sent, perhaps after all was cut.
            None if self.cutting.is_over() => 0,
            None => {
                let group = policy.ec.map_or(0, |ec| 2 * ec.data() as u64);
                let ahead = u64::from(policy.chunk_size) * group.max(self.targets.width() as u64);
                // The distance alone must not use up the first promise.
                ahead.min(self.session.promised / 2)
            }
        };
        if self.cutting.bytes + ahead > self.session.promised
            && self.session.promised > 0
            && self.room.refused.is_none()
        {
            self.grow(match self.session.bytes {
                Some(_) => self.cutting.bytes.max(GROW_BYTES),
                // More may have been cut at once than was promised.
                None => next_growth(self.session.promised.max(self.cutting.bytes)),
            });
        }
    }

    pub(super) fn grow(&mut self, bytes: u64) {
        if self.room.growing {
            return;
        }
        self.room.growing = true;
        let (calls, avoid) = (self.session.calls(), self.targets.failed());
        // Waiting brings no other donor in place of a full one, and a client that may wait does so in
        // `replace_donors`, also for donors that failed.
        let whole = self.room.donor_full;
        let wait = !whole && self.client.retry_limits.donors.is_zero();
        let growth = Growth { bytes, avoid, whole, file: self.growing_file() };
        self.events.push(Box::pin(async move {
            let grown = calls.grow(growth, wait).await;
            Event::Grown(bytes, grown)
        }));
    }

    /// Returns the one file of this session and its bytes so far, if nobody said how large it becomes.
    fn growing_file(&self) -> Option<GrowingFile> {
        let is_alone = self.cutting.next_file.load(Ordering::Relaxed) == 1;
        let (path, bytes) = (self.session.root.clone(), self.cutting.bytes);
        (is_alone && self.session.bytes.is_none()).then_some(GrowingFile { path, bytes })
    }

    /// Asks for other donors, where too few are left for the chunks that wait; or waits for donors that are away.
    ///
    /// Errors: the manager's refusal, where there is nothing to wait for.
    pub(super) fn replace_donors(&mut self) -> Result<(), Failure> {
        if self.denials.are_waited_for() {
            return Ok(()); // what was promised is still there, and nothing more is needed
        }
        if let Some(refusal) = &self.room.refused {
            let full = self.room.donor_full || self.client.retry_limits.donors.is_zero();
            if !full && self.outage.is_waited_for(refusal) {
                self.wait_for_donors();
                return Ok(());
            }
            let mut failure = refusal.clone();
            if self.room.donor_full && failure.code != code::NO_MANAGER {
                // Waiting for donors to come back, which the manager may advise, makes no room.
                failure = Failure::new(ErrorKind::NoSpace, code::FULL, "the donors' disks are full")
                    .hint("free space on the donors' disks, lend more with `potluck lend`, or remove files for good (`potluck rm --forever`)");
            }
            return Err(self.with_faults(failure));
        }
        let policy = &self.session.reserved.policy;
        let chunks = policy.ec.map_or(1, |ec| ec.data()) * (self.groups.queued() + 1);
        self.grow(u64::from(policy.chunk_size) * chunks as u64);
        Ok(())
    }

    pub(super) fn take_grown(
        &mut self,
        bytes: u64,
        grown: Result<Grown, Failure>,
    ) -> Result<(), Failure> {
        self.room.growing = false;
        match grown {
            Ok(grown) => {
                self.outage.end();
                self.room.donor_full = false; // what is granted has room
                self.session.promised += bytes;
                self.donors.learn(grown.donors);
                self.targets.extend(grown.plan);
            }
            // The file is over its quota already, whatever can still be written.
            Err(refusal) if refusal.code == code::OVER_QUOTA => return Err(refusal),
            // A write that does not know how much it needs takes what fits.
            Err(refusal)
                if refusal.code == code::FULL
                    && self.session.bytes.is_none()
                    && !self.room.donor_full
                    && bytes > LEAST_GROWTH =>
            {
                self.grow(bytes / 2);
            }
            // Bytes that were promised can still be written; the refusal matters when they are not enough.
            Err(refusal) => self.room.refused = Some(refusal),
        }
        Ok(())
    }

    pub(super) fn renew_later(&mut self) {
        let (calls, every) = (self.session.calls(), self.session.reserved.lease_ms / 3);
        self.events.push(Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(every.max(100))).await;
            Event::Renewed(calls.renew().await)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsized_session_doubles_then_grows_linearly() {
        const MIB: u64 = 1 << 20;
        let mut promised = 4 * MIB;
        let mut steps = Vec::new();
        for _ in 0..7 {
            steps.push(next_growth(promised) / MIB);
            promised += next_growth(promised);
        }
        assert_eq!(steps, [4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(next_growth(8 << 30), 1 << 30, "a few calls for a file of any size");
    }
}
