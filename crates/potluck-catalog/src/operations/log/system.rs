//! The space of the pool's own metadata, where the log's blocks lie on donors.

use crate::Error;
use crate::log::log_position::{LogCopy, Position};
use crate::names::{
    entries::{self, EntryPlace},
    walk::Walk,
};
use crate::operations::{names, spaces::create};
use crate::pool_records::spaces::{self, NewSpace};
use crate::sql::Tx;
use crate::when::When;
use potluck_core::ids::SpaceId;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_core::policy::Policy;

/// The directory of the log's blocks.
const DIR: &str = "log";

/// Returns the path of the block of the metadata log with this sequence number.
pub fn block_path(sequence: u64) -> Result<PoolPath, Error> {
    PoolPath::system(&[DIR, &name(sequence)]).map_err(bad)
}

fn dir() -> Result<PoolPath, Error> {
    PoolPath::system(&[DIR]).map_err(bad)
}

/// Returns the name of a block, such that names sort as numbers do.
fn name(sequence: u64) -> String {
    format!("{sequence:020}")
}

fn bad(why: potluck_core::path::BadPath) -> Error {
    Error::Bug(why.to_string())
}

/// Returns the number of the space, which is made with `policy` at its first use. Its key is not in the catalog: it
/// is derived from the recovery key.
pub(crate) fn space(db: &Tx, policy: &Policy, wall_ms: i64) -> Result<SpaceId, Error> {
    match spaces::named(db, SYSTEM_SPACE) {
        Err(Error::NoSpaceNamed(_)) => {
            let (name, policy) = (SYSTEM_SPACE.into(), policy.clone());
            let new = NewSpace { name, policy, key: None, made_by: None };
            create(db, &new, wall_ms)?;
            Ok(spaces::named(db, SYSTEM_SPACE)?.id)
        }
        found => Ok(found?.id),
    }
}

/// Removes the blocks of generations before `generation`.
pub(crate) fn remove_older(db: &Tx, generation: u64, when: When) -> Result<(), Error> {
    let dir = dir()?;
    let Some(EntryPlace::Dir(root)) = entries::resolve(db, &dir)?.map(|found| found.place) else {
        return Ok(());
    };
    let first = name(generation);
    let mut walk = Walk::new(db, root, false, None)?;
    let mut old = Vec::new();
    while let Some(item) = walk.next_item()?
        && item.path < first
    {
        old.push(item.path);
    }
    for number in &old {
        names::remove(db, &dir.join(number).map_err(bad)?, false, when)?;
    }
    Ok(())
}

/// Removes all blocks, and has the log on donors begin with a new generation when there is a donor to take it.
pub(crate) fn remove_all(db: &Tx, when: When) -> Result<(), Error> {
    if entries::resolve(db, &dir()?)?.is_some() {
        names::remove(db, &dir()?, true, when)?;
    }
    lose(db)
}

/// Marks the generation of the log on donors as lost, so that a new one takes its place.
pub(crate) fn lose(db: &Tx) -> Result<(), Error> {
    match Position::of(db, LogCopy::OnDonors)? {
        Some(position) if !position.lost => position.lose(db, LogCopy::OnDonors),
        _ => Ok(()),
    }
}
