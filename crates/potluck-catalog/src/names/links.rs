//! Symbolic links: entries that lead somewhere on the machine that reads them, and nowhere in the catalog.
//!
//! A link counts as a file without bytes in the sums of its space, so that a quota of files bounds links too.

use crate::checkpoints::checkpoint_rows;
use crate::error::Error;
use crate::history::bygone;
use crate::log::{changes, records::Record};
use crate::members::quotas;
use crate::names::{
    dir_times::touched,
    entries::{self, EntryPlace, split},
};
use crate::pool_records::spaces::{self, Sums};
use crate::sql::Tx;
use crate::versions::visible::{is_refusal, make_dirs};
use crate::when::When;
use potluck_core::attributes::{EntryAttributes, FileTime, Permissions};
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, NewLink};

/// A link that is to be made.
pub(crate) struct LinkToMake {
    /// The path of the link.
    pub path: PoolPath,
    /// The target of the link.
    pub target: LinkTarget,
    /// The attributes of the link.
    pub attributes: EntryAttributes,
}

/// Makes links, and returns those that were refused with the reasons. Any other error undoes all.
pub(crate) fn make_all(
    db: &Tx,
    links: &[NewLink],
    parents: bool,
    condition: Condition,
    when: When,
) -> Result<Vec<(PoolPath, Error)>, Error> {
    let mut refused = Vec::new();
    let now = FileTime::of_ms(when.wall_ms);
    for NewLink { path, target, mtime, owner } in links {
        let attributes = EntryAttributes::new(mtime.unwrap_or(now), Permissions::LINK, *owner);
        let attributes = EntryAttributes { changed: now, ..attributes };
        let link = LinkToMake { path: path.clone(), target: target.clone(), attributes };
        match make(db, &link, parents, condition, when) {
            Err(why) if is_refusal(&why) || matches!(why, Error::NoEntry(_)) => {
                refused.push((path.clone(), why));
            }
            made => made?,
        }
    }
    Ok(refused)
}

/// Makes a link where nothing is, or with [`Condition::Always`] in the place of another link. With `parents`, missing
/// directories above it are made. A link that is refused leaves no trace.
pub(crate) fn make(
    db: &Tx,
    link: &LinkToMake,
    parents: bool,
    condition: Condition,
    when: When,
) -> Result<(), Error> {
    let LinkToMake { path, target, attributes } = link;
    let now = FileTime::of_ms(when.wall_ms);
    let (above, _) = split(path)?;
    checkpoint_rows::check_writable(db, path, None)?;
    let there = entries::resolve(db, path)?.map(|found| found.place);
    let replaces = match there {
        None => false,
        Some(_) if condition != Condition::Always => return Err(Error::Exists(path.clone())),
        Some(EntryPlace::Link(_)) => true,
        Some(EntryPlace::Dir(_)) => return Err(Error::IsADirectory(path.clone())),
        Some(EntryPlace::File(_)) => return Err(Error::IsAFile(path.clone())),
    };
    if !replaces {
        let dirs = if parents { entries::missing_dirs(db, &above)? as i64 } else { 0 };
        let space = spaces::named(db, path.space())?.id;
        quotas::admit(db, space, Sums { files: 1, dirs, ..Sums::default() })?;
    }
    let dir = match parents {
        true => {
            let of_dir = EntryAttributes::new(attributes.mtime, Permissions::DIR, None);
            make_dirs(db, &above, of_dir, now)?
        }
        false => entries::existing_dir(db, &above)?,
    };
    if replaces {
        bygone::note(db, (dir, path), when)?;
    }
    put(db, path, target, *attributes)?;
    let (path, target, attributes) = (path.clone(), target.clone(), *attributes);
    changes::tell(db, Record::Link { path, target, attributes })?;
    touched(db, &above, dir, now)
}

/// Puts a link where nothing is, or in the place of another.
pub(crate) fn put(
    db: &Tx,
    path: &PoolPath,
    target: &LinkTarget,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    let (above, name) = split(path)?;
    let dir = entries::existing_dir(db, &above)?;
    if entries::lookup(db, dir, name)?.is_some() {
        entries::delete(db, dir, name)?;
    } else {
        let space = spaces::named(db, path.space())?.id;
        spaces::add_sums(db, space, Sums { files: 1, ..Sums::default() })?;
    }
    entries::make_link(db, dir, name, target, attributes)
}
