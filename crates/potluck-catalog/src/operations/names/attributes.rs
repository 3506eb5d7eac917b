//! The attributes of what is at a path: a file's version has them, and the entry of anything else.

use crate::error::Error;
use crate::log::{apply, records::Record};
use crate::names::entries::{self, EntryPlace, FoundEntry};
use crate::operations::commits::visible;
use crate::sql::Tx;
use crate::versions;
use crate::when::When;
use potluck_core::attributes::{AttributesToSet, EntryAttributes, FileTime};
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::control::Condition;

/// Sets attributes of a file, which has to be of `version` if one is given, or of a directory, a link or a space. The
/// permissions of a link stay. Neither version nor content changes, and a client that opened the file before keeps the
/// attributes that it was told then.
pub(crate) fn set_attributes(
    db: &Tx,
    path: &PoolPath,
    version: Option<VersionId>,
    new: AttributesToSet,
) -> Result<(), Error> {
    if path.space().is_empty() {
        return Err(Error::OutsideSpaces(path.clone()));
    }
    let found = entries::existing(db, path)?;
    match found.place {
        EntryPlace::File(id) => {
            if let Some(expected) = version {
                visible::check_condition(db, path, Condition::IfVersion(expected), Some(id))?;
            }
            let before = versions::get(db, id)?.attributes;
            match new.changes(before) {
                true => put(db, path, &found.place, before.with(new)),
                false => Ok(()),
            }
        }
        EntryPlace::Dir(_) if version.is_some() => Err(Error::IsADirectory(path.clone())),
        EntryPlace::Link(target) if version.is_some() => {
            Err(Error::IsALink { path: path.clone(), target })
        }
        EntryPlace::Dir(_) | EntryPlace::Link(_) => {
            let is_link = matches!(found.place, EntryPlace::Link(_));
            // The permissions of a link have no meaning.
            let permissions = new.permissions.filter(|_| !is_link);
            let new = AttributesToSet { permissions, ..new };
            match new.changes(found.attributes) {
                true => put(db, path, &found.place, found.attributes.with(new)),
                false => Ok(()),
            }
        }
    }
}

/// Gives what is at a path these attributes.
fn put(
    db: &Tx,
    path: &PoolPath,
    place: &EntryPlace,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    let record = match *place {
        EntryPlace::File(version) => Record::VersionAttributes { version, attributes },
        _ => Record::PathAttributes { path: path.clone(), attributes },
    };
    apply::write(db, record)
}

/// Notes that an entry was renamed, and so changed, at `when`.
pub(crate) fn is_renamed(db: &Tx, path: &PoolPath, when: When) -> Result<(), Error> {
    let FoundEntry { place, mut attributes } = entries::existing(db, path)?;
    if let EntryPlace::File(version) = place {
        attributes = versions::get(db, version)?.attributes;
    }
    attributes.changed = FileTime::of_ms(when.wall_ms);
    put(db, path, &place, attributes)
}
