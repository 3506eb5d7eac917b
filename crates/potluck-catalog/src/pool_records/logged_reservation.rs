//! Reserved room as the metadata log tells of it.

use potluck_core::ids::{MemberId, SessionId};
use potluck_core::placement::Plan;
use potluck_core::policy::Policy;
use potluck_core::reserved_room::ReservedRoom;
use serde::{Deserialize, Serialize};

/// Reserved room as the log tells of it. The room is in the space that its path begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedReservation {
    /// The identifier of the reservation.
    pub id: SessionId,
    /// The member who reserved the room.
    pub member: MemberId,
    /// The policy that the room was planned with.
    pub policy: Policy,
    /// The room that was asked for.
    pub room: ReservedRoom,
    /// The donors that keep the rest of the room free.
    pub plan: Plan,
    /// The stored bytes that were asked for, without redundancy.
    pub bytes: u64,
}
