//! Changes of the keys that a space has.

use crate::error::Error;
use crate::log::changes;
use crate::pool_records::{
    meta::Counter,
    space_keys::{self, KeyRing},
    spaces::Space,
};
use crate::sql::{Tx, params};
use potluck_core::ids::SpaceId;

/// Sets the keys of a space.
pub(crate) fn set(db: &Tx, space: SpaceId, keys: Option<&KeyRing>) -> Result<(), Error> {
    let last = keys.and_then(|keys| keys.keys.0.last_key_value()).map_or(0, |(last, _)| last.0);
    Counter::Key.pass(db, last.into())?;
    db.prepare("UPDATE spaces SET keys = ?2 WHERE id = ?1")?
        .execute(params![space.0, space_keys::written(keys)?])?;
    Ok(())
}

/// Sets the keys of a space, and has the log tell of them.
pub(crate) fn change(db: &Tx, space: Space, keys: KeyRing) -> Result<(), Error> {
    set(db, space.id, Some(&keys))?;
    changes::tell(db, Space { keys: Some(keys), ..space }.record())
}

/// Notes that somebody who could read a space cannot any more, and may have kept its present key.
pub(crate) fn expose(db: &Tx, space: Space) -> Result<(), Error> {
    match &space.keys {
        Some(keys) if !keys.exposed => {
            let keys = KeyRing { exposed: true, ..keys.clone() };
            change(db, space, keys)
        }
        _ => Ok(()),
    }
}
