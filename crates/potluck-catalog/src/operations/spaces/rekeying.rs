//! New keys for sealed spaces.

use crate::error::Error;
use crate::log::apply;
use crate::pool_records::{
    meta::Counter,
    old_keys::keys_of,
    spaces::{self, Space},
};
use crate::sql::{Tx, params};
use potluck_core::ids::KeyNumber;
use potluck_core::seal::SpaceKey;

/// The way in which the keys of a space change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rekey {
    /// A new key is made in any case.
    Anew,
    /// A new key is made unless content is still to be sealed with the present key, which nobody else can know: then an earlier rekey
    /// goes on.
    OrGoOn,
    /// No key is made: only keys that nothing needs any more are dropped.
    Finish,
}

/// Gives a space a new key if that is asked for, and returns whether it did. Keys that nothing needs are dropped.
pub(crate) fn rekey(db: &Tx, name: &str, key: &SpaceKey, how: Rekey) -> Result<bool, Error> {
    drop_unused(db, name)?;
    let space = spaces::named(db, name)?;
    let mut keys = keys_of(&space)?.clone();
    // Each earlier key that is left is needed.
    let goes_on = match how {
        Rekey::Anew => false,
        Rekey::OrGoOn => keys.earlier().next().is_some() && !keys.exposed,
        Rekey::Finish => true,
    };
    if goes_on {
        return Ok(false);
    }
    keys.current = KeyNumber(Counter::Key.take(db, 1)? as u32);
    keys.keys.0.insert(keys.current, key.clone());
    keys.exposed = false;
    apply::write(db, Space { keys: Some(keys), ..space }.into())?;
    drop_unused(db, name)?;
    Ok(true)
}

/// Drops the earlier keys of a space that nothing needs any more, and returns how many there were.
fn drop_unused(db: &Tx, name: &str) -> Result<usize, Error> {
    let space = spaces::named(db, name)?;
    let Some(mut keys) = space.keys.clone() else { return Ok(0) };
    let before = keys.keys.0.len();
    for number in keys.earlier().collect::<Vec<_>>() {
        let needed = db.prepare("SELECT 1 FROM versions WHERE key = ?1 LIMIT 1")?;
        let needed = { needed }.exists(params![number.0])?
            || db
                .prepare("SELECT 1 FROM sessions WHERE key = ?1 AND ended = 0")?
                .exists(params![number.0])?;
        if !needed {
            keys.keys.0.remove(&number);
        }
    }
    let dropped = before - keys.keys.0.len();
    if dropped > 0 {
        apply::write(db, Space { keys: Some(keys), ..space }.into())?;
    }
    Ok(dropped)
}
