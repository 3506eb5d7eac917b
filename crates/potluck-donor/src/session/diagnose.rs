//! Takes part in a diagnostic transfer, by which the manager learns how fast the line of this machine is. No disk has a
//! part in it, and it is refused while the owner limits what the donor moves.

use super::BulkSession;
use crate::socket::PeerIo;
use potluck_wire::bulk::{BulkStatus, FrameError, PIECE, Reply, SLICE_FOLLOWS, slices};
use potluck_wire::ticket::Ops;

impl BulkSession {
    /// Receives `len` bytes and answers with `wanted` others, or with a status that says why not.
    pub(super) async fn diagnose(
        &mut self,
        io: &mut impl PeerIo,
        tag: u32,
        len: u32,
        wanted: u32,
    ) -> Result<(), FrameError> {
        self.piece.make_room((PIECE as u32).min(len), 0, &self.service.long_pieces);
        let mut left = len as usize;
        // The body is read in any case, for the next request follows it.
        while left > 0 {
            let now = left.min(PIECE);
            self.fill(io, now).await?;
            left -= now;
        }
        if let Err(status) = self.may_diagnose() {
            return self.answer(io, tag, Reply::bare(status), false).await;
        }
        let mut head = Reply::found(wanted).encode(tag, &mut self.lane);
        let zeros = [0; 16 << 10];
        for slice in slices(0, 0..wanted) {
            if slice.start > 0 {
                head = SLICE_FOLLOWS.to_vec();
            }
            let mut left = slice.len();
            while left > 0 {
                let now = left.min(zeros.len());
                io.write(&std::mem::take(&mut head), &zeros[..now]).await?;
                left -= now;
            }
        }
        if wanted == 0 {
            io.write(&head, &[]).await?;
        }
        self.service.throttle.moved(u64::from(len) + u64::from(wanted));
        Ok(())
    }

    /// Checks that the manager asks, and that the owner limits nothing.
    fn may_diagnose(&self) -> Result<(), BulkStatus> {
        self.allowed(Ops::GET)?;
        match self.grant.member {
            Some(_) => Err(BulkStatus::Denied),
            None if self.service.throttle.is_limited() => Err(BulkStatus::Away),
            None => Ok(()),
        }
    }
}
