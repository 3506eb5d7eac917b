//! Symbolic links: entries that lead somewhere on the machine that reads them, and nowhere in the catalog.
//!
//! A link counts as a file without bytes in the sums of its space, so that a quota of files bounds links too.

use crate::error::Error;
use crate::log::{apply, records::Record};
use crate::members::quotas;
use crate::names::entries::{self, EntryPlace, split};
use crate::operations::{
    checkpoints::staging,
    commits::visible::is_refusal,
    history::keeping,
    names::directories::{make_dirs, touched},
};
use crate::pool_records::spaces::{self, Sums};
use crate::sql::Tx;
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
    staging::check_writable(db, path, None)?;
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
        keeping::note_bygone(db, (dir, path))?;
    }
    let (path, target, attributes) = (path.clone(), target.clone(), *attributes);
    apply::write_at(db, Record::Link { path, target, attributes }, when.pool_ms)?;
    touched(db, &above, now)
}
