//! Room that is reserved for what is written in a directory.

use super::FileSystem;
use crate::errno::errno;
use potluck_core::path::PoolPath;
use potluck_core::reserved_room::USUAL_RESERVATION;
use potluck_core::size::parse_size;
use potluck_wire::control::{RoomRelease, RoomReservation, RoomReservationList, RoomReserve};
use potluck_wire::error::ErrorKind;
use rustix::io::Errno;

impl FileSystem {
    /// Returns the reservations that files at a path take from.
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

    /// Returns the bytes that are left of what is reserved for a path, as the attribute tells them.
    pub(super) async fn reserved_at(&self, path: &PoolPath) -> Result<String, Errno> {
        let reservations = self.reservations_of(path).await?;
        match reservations.is_empty() {
            true => Err(Errno::NODATA),
            false => Ok(left_of(&reservations).to_string()),
        }
    }

    /// Reserves room for what is written at an inode number or below, in place of what was reserved for exactly that;
    /// `0` is none. Where it is refused, what was reserved stays.
    pub(super) async fn reserve(&self, inode: u64, value: &str) -> Result<(), Errno> {
        let bytes = parse_size(value.trim_end_matches(['\n', '\0'])).map_err(|_| Errno::INVAL)?;
        let path = self.inodes().path(inode)?;
        let mut before = self.reservations_of(&path).await?;
        before.retain(|reservation| reservation.path == path);
        if bytes == 0 {
            return self.release_all(&before).await;
        }
        let for_ms = USUAL_RESERVATION.as_millis() as u64;
        let reserve = RoomReserve { path, bytes, for_ms };
        match self.pool.call(&reserve).await {
            Ok(_) => self.release_all(&before).await,
            // There is no room for both, and the old one is large enough to become the new one.
            Err(failure) if failure.kind == ErrorKind::NoSpace && left_of(&before) >= bytes => {
                self.release_all(&before).await?;
                self.pool.call(&reserve).await.map(drop).map_err(|failure| errno(&failure))
            }
            Err(failure) => Err(errno(&failure)),
        }
    }

    async fn release_all(&self, reservations: &[RoomReservation]) -> Result<(), Errno> {
        for reservation in reservations {
            let released = self.pool.call(&RoomRelease { id: reservation.id }).await;
            released.map_err(|failure| errno(&failure))?;
        }
        Ok(())
    }
}

/// Returns how many bytes still fit in reservations.
fn left_of(reservations: &[RoomReservation]) -> u64 {
    reservations.iter().map(|reservation| reservation.left).sum()
}
