//! Room that is reserved for what is going to be written.

use super::{Call, Done, call};
use potluck_core::ids::SessionId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// Reserves room for files at and below a path, whoever writes them, for some time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoomReserve {
    /// The path of the reservation: files written here, or below, take of its room.
    pub path: PoolPath,
    /// Bytes of files; what is stored of them with all copies is found by the policy that holds there.
    pub bytes: u64,
    /// How long it lasts, in milliseconds.
    pub for_ms: u64,
}
call!(RoomReserve => RoomReservation, "room-reserve", once);

/// Room that is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomReservation {
    /// The identifier of the reservation.
    pub id: SessionId,
    /// The path of the reservation: files written here, or below, take of its room.
    pub path: PoolPath,
    /// Bytes of files that were asked for.
    pub bytes: u64,
    /// Bytes of files that still fit.
    pub left: u64,
    /// When it ends, in milliseconds of wall time.
    pub until_wall_ms: i64,
    /// The name of the member who reserved it.
    pub by: String,
}

/// Lists the reservations in the spaces that the caller may list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RoomReservationList {
    /// Those at, above or below a path alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PoolPath>,
}
call!(RoomReservationList => RoomReservations, "room-reservation-list");

/// Reservations, those that end first before the others.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RoomReservations {
    /// One item for each reservation.
    pub reservations: Vec<RoomReservation>,
}

/// Ends a reservation: what is left of it is free for all. For whoever made it, and who manages the space. To release what
/// has ended changes nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoomRelease {
    /// The identifier of the reservation.
    pub id: SessionId,
}
call!(RoomRelease => Done, "room-release");
