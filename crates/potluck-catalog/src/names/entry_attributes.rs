//! The attributes of what is at a path: a file's version has them, and the entry of anything else.

use crate::error::Error;
use crate::log::{changes, records::Record};
use crate::names::entries::{self, DirId, EntryPlace, FoundEntry};
use crate::sql::Tx;
use crate::versions;
use crate::when::{WhatIsKept, When};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::path::PoolPath;

/// Gives what is at a path these attributes.
pub(crate) fn put(
    db: &Tx,
    path: &PoolPath,
    place: &EntryPlace,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    if let EntryPlace::File(version) = *place {
        versions::set_attributes(db, version, attributes)?;
        return changes::tell(db, Record::VersionAttributes { version, attributes });
    }
    put_in_entry(db, path, attributes)?;
    changes::tell(db, Record::PathAttributes { path: path.clone(), attributes })
}

/// Gives the directory, the link or the space at a path these attributes.
pub(crate) fn put_in_entry(
    db: &Tx,
    path: &PoolPath,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    let (parent, name) = match entries::split(path) {
        Ok((above, name)) => (entries::existing_dir(db, &above)?, name),
        Err(_) => (DirId::ROOT, path.space()),
    };
    match entries::set_attributes(db, parent, name, attributes)? {
        true => Ok(()),
        false => Err(Error::NoEntry(path.clone())),
    }
}

/// Notes that an entry was renamed, and so changed, at `when`. The log tells it by a record of its own.
pub(crate) fn is_renamed(db: &Tx, path: &PoolPath, when: When) -> Result<(), Error> {
    if when.keeps == WhatIsKept::AsTheLogSays {
        return Ok(());
    }
    let FoundEntry { place, mut attributes } = entries::existing(db, path)?;
    if let EntryPlace::File(version) = place {
        attributes = versions::get(db, version)?.attributes;
    }
    attributes.changed = FileTime::of_ms(when.wall_ms);
    put(db, path, &place, attributes)
}
