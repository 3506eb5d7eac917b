//! Reservations in the metadata log. They come back where a catalog is made anew from the log, because a member who
//! reserved room may be away until using it. Other write sessions are over then, and their clients open new ones.

use crate::error::Error;
use crate::log::{changes, logged_reservation::LoggedReservation, records::Record};
use crate::pool_records::{
    sessions::{self, StoredSession},
    spaces,
};
use crate::sql::{Tx, params};
use potluck_core::ids::{SessionId, SpaceId};
use potluck_core::policy::AskedPolicy;

/// Has the log record a session in its present state, if it is a reservation.
pub(crate) fn changed(db: &Tx, session: &StoredSession) -> Result<(), Error> {
    if session.room.is_none() {
        return Ok(());
    }
    changes::tell(
        db,
        match logged(db, session.clone())? {
            Some(reservation) => Record::Reservation(reservation),
            None => Record::ReservationEnded { id: session.id },
        },
    )
}

/// Ends the reservations in a space that was removed: nobody could list or release them any more, because the rights in
/// the space are gone.
pub(crate) fn end_in(db: &Tx, space: SpaceId) -> Result<(), Error> {
    for session in sessions::in_space(db, space)? {
        if session.room.is_some() && !session.ended {
            sessions::end(db, &session.id)?;
        }
    }
    Ok(())
}

/// Returns all reservations that have not ended and whose spaces are there.
pub(crate) fn all(db: &Tx) -> Result<Vec<LoggedReservation>, Error> {
    let all = sessions::all(db)?.into_iter();
    all.filter_map(|session| logged(db, session).transpose()).collect()
}

fn logged(db: &Tx, session: StoredSession) -> Result<Option<LoggedReservation>, Error> {
    let StoredSession { id, member, space, policy, room, plan, bytes, ended, .. } = session;
    let Some(room) = room.filter(|_| !ended) else { return Ok(None) };
    let space = spaces::numbered(db, space)?;
    Ok(space.map(|_| LoggedReservation { id, member, policy, room, plan, bytes }))
}

/// Writes down a reservation from the log, in the place of its former state.
pub(crate) fn put(db: &Tx, told: LoggedReservation) -> Result<(), Error> {
    forget(db, &told.id)?;
    let LoggedReservation { id, member, policy, room, plan, bytes } = told;
    let session = StoredSession {
        id,
        member,
        space: spaces::named(db, room.path.space())?.id,
        policy,
        asked: AskedPolicy::default(),
        plan,
        bytes,
        ended: false,
        room: Some(room),
        draws_on: None,
        key: None,
        counted: 0,
    };
    sessions::insert(db, &session)
}

/// Forgets a reservation that is over, as the log says.
pub(crate) fn forget(db: &Tx, id: &SessionId) -> Result<(), Error> {
    db.execute("DELETE FROM sessions WHERE id = ?1", params![id.0]).map(drop)
}
