//! Requests that are read while the answer to an earlier one is sent. A reader that has a chunk from elsewhere stops its
//! get, and that is of use only if the donor hears of it before the get is answered.

use potluck_wire::bulk::{BulkIo, FrameError, Inbox, Request};
use std::collections::VecDeque;

/// The most requests that wait, and that are read at a time. A peer that has more under way is heard again once some are
/// answered.
const MOST: usize = 256;

/// A request that is to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NextRequest {
    /// The tag of the request.
    pub tag: u32,
    /// What the peer asks for.
    pub request: Request,
    /// True if the peer has stopped the request already.
    pub is_stopped: bool,
}

impl From<(u32, Request)> for NextRequest {
    fn from((tag, request): (u32, Request)) -> Self {
        Self { tag, request, is_stopped: false }
    }
}

/// The requests that were read ahead, in their order. Only requests without a body are.
#[derive(Debug, Default)]
pub(super) struct ReadAhead(VecDeque<NextRequest>);

impl ReadAhead {
    /// Takes the request that is to be answered next.
    pub fn next(&mut self) -> Option<NextRequest> {
        self.0.pop_front()
    }

    /// Reads the requests that have come, as far as they fit; returns whether one of them stops the get `current`.
    pub fn read(
        &mut self,
        inbox: &mut Inbox,
        io: &mut impl BulkIo,
        current: u32,
    ) -> Result<bool, FrameError> {
        let mut is_stopped = false;
        for _ in self.0.len()..MOST {
            match inbox.request_now(io)? {
                None => break,
                Some((tag, Request::Stop)) if tag == current => is_stopped = true,
                Some((tag, Request::Stop)) => {
                    let stopped = self.0.iter_mut().filter(|next| next.tag == tag);
                    stopped.for_each(|next| next.is_stopped = true);
                }
                Some(next) => self.0.push_back(next.into()),
            }
        }
        Ok(is_stopped)
    }
}
