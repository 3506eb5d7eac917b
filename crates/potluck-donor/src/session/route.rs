//! Learns from a client how to reach a donor that its puts are forwarded to.

use super::BulkSession;
use crate::socket::PeerIo;
use potluck_wire::bulk::{BulkStatus, FrameError};
use potluck_wire::control::Source;
use potluck_wire::ticket::Ops;
use std::sync::Arc;

impl BulkSession {
    /// Receives the description, and learns the route if the peer may put and the donor's address is confirmed.
    pub(super) async fn route(
        &mut self,
        io: &mut impl PeerIo,
        number: u8,
        len: u32,
    ) -> Result<BulkStatus, FrameError> {
        let mut text = vec![0; len as usize]; // a frame may announce `MAX_ROUTE` bytes at most
        let mut filled = 0;
        while filled < text.len() {
            filled += self.inbox.body(io, &mut text[filled..]).await?;
        }
        let Ok(to) = serde_json::from_slice::<Source>(self.inbox.open_body(&mut text)?) else {
            return Err(FrameError::Malformed("a route that names no donor"));
        };
        if let Err(status) = self.allowed(Ops::PUT) {
            return Ok(status);
        }
        // The other donor checks the ticket itself, and the address is confirmed with the manager. A put that was
        // forwarded to this donor would wait for itself.
        let me = self.service.registration.now().map(|(me, _)| me);
        let confirmed = {
            let service = Arc::clone(&self.service);
            let asked = service.peer_addresses.confirm(&*service.env.clock, &to);
            me != Some(to.donor) && io.meanwhile(service.unless_stopped(asked)).await == Some(true)
        };
        let learned = confirmed && self.routes.learn(number, to);
        Ok(if learned { BulkStatus::Ok } else { BulkStatus::Denied })
    }
}
