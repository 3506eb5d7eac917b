//! Changes to write sessions, of which the log has those that are reservations.

use crate::error::Error;
use crate::log::{changes, records::Record};
use crate::pool_records::{
    reservations,
    sessions::{self, StoredSession},
};
use crate::sql::Tx;
use potluck_core::ids::{SessionId, SpaceId};
use potluck_core::placement::Plan;

/// Writes a new session down.
pub(crate) fn begin(db: &Tx, session: &StoredSession) -> Result<(), Error> {
    sessions::insert(db, session)?;
    tell(db, &session.id)
}

/// Keeps a session's longer plan, for `bytes` in all; `counted` more bytes count in quotas.
pub(crate) fn grow(
    db: &Tx,
    id: &SessionId,
    plan: &Plan,
    bytes: u64,
    counted: u64,
) -> Result<(), Error> {
    sessions::grow(db, id, plan, bytes, counted)?;
    tell(db, id)
}

/// Ends a session: from now on it commits nothing.
pub(crate) fn end(db: &Tx, id: &SessionId) -> Result<(), Error> {
    sessions::end(db, id)?;
    tell(db, id)
}

/// Ends the reservations in a space that was removed: nobody could list or release them any more, because the rights in
/// the space are gone.
pub(crate) fn end_reservations(db: &Tx, space: SpaceId) -> Result<(), Error> {
    let all = sessions::in_space(db, space)?.into_iter();
    let mut open = all.filter(|session| session.room.is_some() && !session.ended);
    open.try_for_each(|session| end(db, &session.id))
}

/// Has the log record a session in its present state, if it is a reservation.
fn tell(db: &Tx, id: &SessionId) -> Result<(), Error> {
    let Some(session) = sessions::get(db, id)?.filter(|session| session.room.is_some()) else {
        return Ok(());
    };
    let record = match reservations::logged(db, session)? {
        Some(reservation) => Record::Reservation(reservation),
        None => Record::ReservationEnded { id: *id },
    };
    changes::tell(db, record)
}
