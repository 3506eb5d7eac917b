//! Reservations in the metadata log. They come back where a catalog is made anew from the log, because a member who
//! reserved room may be away until using it. Other write sessions are over then, and their clients open new ones.

use crate::error::Error;
use crate::pool_records::{
    logged_reservation::LoggedReservation,
    sessions::{self, StoredSession},
    spaces,
};
use crate::sql::{Tx, params};
use potluck_core::ids::SessionId;
use potluck_core::policy::AskedPolicy;

/// Returns all reservations that have not ended and whose spaces are there.
pub(crate) fn all(db: &Tx) -> Result<Vec<LoggedReservation>, Error> {
    let all = sessions::all(db)?.into_iter();
    all.filter_map(|session| logged(db, session).transpose()).collect()
}

/// Returns a session as the log tells of it; `None` if it is no reservation, or one that is over.
pub(crate) fn logged(db: &Tx, session: StoredSession) -> Result<Option<LoggedReservation>, Error> {
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
