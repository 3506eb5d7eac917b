//! Room that is reserved for what is going to be written.

use super::{Call, Callers, Done, call};
use potluck_core::ids::SessionId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// Reserves room for files at and below a path, whoever writes them, for some time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoomReserve {
    /// The path of the reservation: files written here, or below, take of its room.
    pub path: PoolPath,
    /// The bytes of files that are to fit. The policy that holds at the path says how much is stored of them with all
    /// copies.
    pub bytes: u64,
    /// The time that the reservation lasts, in milliseconds.
    pub for_ms: u64,
}
call!(RoomReserve => RoomReservation, "room-reserve", Users, "`potluck reserve`", once);

/// Room that is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomReservation {
    /// The identifier of the reservation.
    pub id: SessionId,
    /// The path of the reservation: files written here, or below, take of its room.
    pub path: PoolPath,
    /// The bytes of files that were asked for.
    pub bytes: u64,
    /// The bytes of files that still fit.
    pub left: u64,
    /// The time at which the reservation ends, in milliseconds of wall time.
    pub until_wall_ms: i64,
    /// The name of the member who reserved it.
    pub by: String,
    /// True if the caller reserved it.
    #[serde(default)]
    pub is_own: bool,
}

/// Lists the reservations in the spaces that the caller may list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RoomReservationList {
    /// The path to which the list is limited: reservations at, above or below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PoolPath>,
}
call!(RoomReservationList => RoomReservations, "room-reservation-list", Users, "`potluck reserve`");

/// Reservations, in the order in which they end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RoomReservations {
    /// One item for each reservation.
    pub reservations: Vec<RoomReservation>,
}

/// Ends a reservation, so that what is left of it is free for all (the member who made it, and members who manage the
/// space). To end one that has ended changes nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoomRelease {
    /// The identifier of the reservation.
    pub id: SessionId,
}
call!(RoomRelease => Done, "room-release", Users, "`potluck reserve`");
