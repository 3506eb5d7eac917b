//! The attributes of entries: those of directories, links and spaces, which their entries have.

use crate::error::Error;
use crate::names::entries::{self, DirId};
use crate::sql::Tx;
use potluck_core::attributes::EntryAttributes;
use potluck_core::path::PoolPath;

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
