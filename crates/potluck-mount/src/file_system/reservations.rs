//! Reserves room for the files that are written in a directory.

use super::FileSystem;
use crate::errno::errno;
use potluck_core::path::PoolPath;
use potluck_core::reserved_room::USUAL_RESERVATION;
use potluck_core::size::parse_size;
use potluck_wire::control::{RoomRelease, RoomReservation, RoomReservationList, RoomReserve};
use potluck_wire::error::ErrorKind;
use rustix::io::Errno;

/// The bytes of files that are left of the reservations in a space.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReservedBytes {
    /// The bytes that files at a path take.
    pub here: u64,
    /// The bytes that only files elsewhere in the space take.
    pub elsewhere: u64,
}

impl FileSystem {
    /// Returns the reservations at, above and below a path.
    async fn reservations_around(&self, path: PoolPath) -> Result<Vec<RoomReservation>, Errno> {
        let call = RoomReservationList { path: Some(path) };
        let found = self.pool.call(&call).await.map_err(|failure| errno(&failure))?;
        Ok(found.reservations)
    }

    /// Returns the reservations that files at a path take room from.
    async fn reservations_of(&self, path: &PoolPath) -> Result<Vec<RoomReservation>, Errno> {
        let mut reservations = self.reservations_around(path.clone()).await?;
        reservations.retain(|reservation| path.is_inside(&reservation.path));
        Ok(reservations)
    }

    /// Returns the bytes that are left of reservations for a path, and for other paths of its space.
    pub(super) async fn reserved_for(&self, path: &PoolPath) -> Result<ReservedBytes, Errno> {
        let space = PoolPath::space_root(path.space()).map_err(|_| Errno::INVAL)?;
        let all = self.reservations_around(space).await?;
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|reservation| path.is_inside(&reservation.path));
        Ok(ReservedBytes { here: left_of(&here), elsewhere: left_of(&elsewhere) })
    }

    /// Returns the value of the attribute: the number of bytes that are left of the reservations for a path.
    pub(super) async fn reserved_at(&self, path: &PoolPath) -> Result<String, Errno> {
        let reservations = self.reservations_of(path).await?;
        match reservations.is_empty() {
            true => Err(Errno::NODATA),
            false => Ok(left_of(&reservations).to_string()),
        }
    }

    /// Reserves `value` bytes for the files at an inode number and below, in place of earlier reservations of this member
    /// for exactly that path; `0` reserves nothing. If it is refused the earlier reservations stay, unless they were
    /// released first to make room for it.
    pub(super) async fn reserve(&self, inode: u64, value: &str) -> Result<(), Errno> {
        let bytes = parse_size(value.trim_end_matches(['\n', '\0'])).map_err(|_| Errno::INVAL)?;
        let path = self.inodes().path(inode)?;
        let mut before = self.reservations_of(&path).await?;
        before.retain(|reservation| reservation.path == path && reservation.is_own);
        if bytes == 0 {
            return self.release_all(&before).await;
        }
        let for_ms = USUAL_RESERVATION.as_millis() as u64;
        let reserve = RoomReserve { path, bytes, for_ms };
        match self.pool.call(&reserve).await {
            Ok(_) => self.release_all(&before).await,
            // There is no room for both, but the earlier reservations are large enough to make room for the new one.
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

/// Returns the number of bytes that still fit in reservations.
fn left_of(reservations: &[RoomReservation]) -> u64 {
    reservations.iter().map(|reservation| reservation.left).sum()
}
