//! Names of donors, which nobody should take for one another: people name donors in commands that empty or remove them.
//!
//! An admin may fix the name in the invitation. Otherwise whoever joins proposes one, and the machine's name is mostly
//! good; where another donor has it, or one that looks like it, a number follows.

use crate::error::Error;
use crate::sql::{Tx, params};
use std::collections::BTreeSet;

/// Returns what of a name people tell apart: in many fonts 0 and O, or 1, l and I, look alike, and nobody minds case.
fn seen(name: &str) -> String {
    let look = |letter: char| match letter.to_ascii_lowercase() {
        '0' => 'o',
        '1' | 'i' => 'l',
        '_' | ' ' => '-',
        other => other,
    };
    name.chars().map(look).collect()
}

/// Returns whether a donor may have this name: letters of other scripts look like those of this one.
pub(crate) fn is_plain(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ')
}

/// Returns the names of the donors that are in the pool, as people see them.
fn all_seen(db: &Tx) -> Result<BTreeSet<String>, Error> {
    let mut select = db.prepare("SELECT name FROM members WHERE role = 'donor' AND revoked = 0")?;
    let names = select.query_map(params![], |row| row.get::<String>(0))?;
    names.map(|name| Ok(seen(&name?))).collect()
}

/// Returns the name of a donor that joins: the one that the invitation fixes, or the `proposed` one, with a number if
/// another donor has it or one that looks like it.
///
/// Errors: [`Error::NameTaken`] if the invitation's name is taken by now, [`Error::BadDonorName`].
pub(crate) fn of_joining(db: &Tx, fixed: Option<&str>, proposed: &str) -> Result<String, Error> {
    let name = fixed.unwrap_or(proposed);
    if !is_plain(name) {
        return Err(Error::BadDonorName(name.into()));
    }
    let taken = all_seen(db)?;
    let is_free = |name: &String| !taken.contains(&seen(name));
    let wanted = name.to_owned();
    if is_free(&wanted) {
        return Ok(wanted);
    }
    if fixed.is_some() {
        return Err(Error::NameTaken {
            name: wanted,
            holder: "a donor, or looks like the name of one",
        });
    }
    let numbered = (2..).map(|number: u64| format!("{name}-{number}")).find(is_free);
    numbered.ok_or_else(|| Error::Bug("no number is free".into()))
}

/// Refuses a name in an invitation that no donor could join by.
pub(crate) fn check_fixed(db: &Tx, name: &str) -> Result<(), Error> {
    of_joining(db, Some(name), "").map(drop)
}
