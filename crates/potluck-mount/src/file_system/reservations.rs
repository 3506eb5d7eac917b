//! Room that is reserved for what is written in a directory.

use super::FileSystem;
use crate::errno::errno;
use potluck_core::path::PoolPath;
use potluck_core::reserved_room::USUAL_RESERVATION;
use potluck_core::size::parse_size;
use potluck_wire::control::{RoomRelease, RoomReservation, RoomReservationList, RoomReserve};
use rustix::io::Errno;

impl FileSystem {
    /// The reservations of which files at a path take.
    pub(super) async fn reservations_of(
        &self,
        path: &PoolPath,
    ) -> Result<Vec<RoomReservation>, Errno> {
        let call = RoomReservationList { path: Some(path.clone()) };
        let found = self.pool.call(&call).await.map_err(|failure| errno(&failure))?;
        let mut reservations = found.reservations;
        reservations.retain(|reservation| path.is_inside(&reservation.path));
        Ok(reservations)
    }

    /// The bytes that are left of what is reserved for a path, as the attribute tells them.
    pub(super) async fn reserved_at(&self, path: &PoolPath) -> Result<String, Errno> {
        let reservations = self.reservations_of(path).await?;
        match reservations.is_empty() {
            true => Err(Errno::NODATA),
            false => Ok(reservations.iter().map(|it| it.left).sum::<u64>().to_string()),
        }
    }

    /// Reserves room for what is written at a number or below, in the place of what was reserved for exactly that; `0` is
    /// none.
    pub(super) async fn reserve(&self, inode: u64, value: &str) -> Result<(), Errno> {
        let bytes = parse_size(value.trim_end_matches(['\n', '\0'])).map_err(|_| Errno::INVAL)?;
        let path = self.inodes().path(inode)?;
        let before = self.reservations_of(&path).await?;
        for reservation in before.into_iter().filter(|it| it.path == path) {
            let released = self.pool.call(&RoomRelease { id: reservation.id }).await;
            released.map_err(|failure| errno(&failure))?;
        }
        if bytes > 0 {
            let for_ms = USUAL_RESERVATION.as_millis() as u64;
            let reserved = self.pool.call(&RoomReserve { path, bytes, for_ms }).await;
            reserved.map_err(|failure| errno(&failure))?;
        }
        Ok(())
    }
}
