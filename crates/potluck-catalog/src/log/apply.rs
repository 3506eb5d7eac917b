//! Writes the rows that records tell of. An operation decides what becomes of its request and writes that as records;
//! a restore applies the records of a log. Both have it done here.

use crate::checkpoints::checkpoint_rows;
use crate::error::Error;
use crate::history;
use crate::history::{bygone, snapshot_rows, snapshots};
use crate::log::{changes, notes, records::Record};
use crate::members;
use crate::members::{grants, groups, quotas};
use crate::names::{dir_policies, entries, entry_attributes, links};
use crate::pool_records::{
    donors,
    meta::{self, Counter},
    reservations, spaces,
};
use crate::sql::Tx;
use crate::versions;

/// Makes the change that a record tells of, and has the log tell of it.
pub(crate) fn write(db: &Tx, record: Record) -> Result<(), Error> {
    apply(db, &record)?;
    changes::tell(db, record)
}

/// Makes the change that a record tells of.
pub(crate) fn apply(db: &Tx, record: &Record) -> Result<(), Error> {
    match record {
        Record::Space { name, policy, keys, made_by } => {
            spaces::put(db, name, policy, keys.as_ref(), *made_by)
        }
        Record::SpaceRemoved { name } => spaces::forget(db, name),
        Record::Grant { space, to, rights } => grants::set(db, space, to, *rights),
        Record::Quota { of, quota } => quotas::put(db, of, *quota),
        Record::Group { name, there } => groups::put(db, name, *there),
        Record::GroupMember { group, member, within } => {
            groups::put_member(db, group, *member, *within)
        }
        Record::Dir { path, attributes } => entries::make_dirs(db, path, *attributes).map(drop),
        Record::Link { path, target, attributes } => links::put(db, path, target, *attributes),
        Record::PathAttributes { path, attributes } => {
            entry_attributes::put_in_entry(db, path, *attributes)
        }
        Record::DirModified { path, mtime_ns } => {
            entries::touch(db, entries::existing_dir(db, path)?, *mtime_ns).map(drop)
        }
        Record::VersionAttributes { version, attributes } => {
            versions::set_attributes(db, *version, *attributes)
        }
        Record::Policy { path, over } => {
            let space = spaces::named(db, path.space())?.id;
            dir_policies::set(db, space, entries::existing_dir(db, path)?, over)
        }
        Record::Pinned { path, pinned } => {
            let (above, name) = entries::split(path)?;
            entries::set_pinned(db, entries::existing_dir(db, &above)?, name, *pinned)
        }
        Record::Snapshot(taken) => snapshots::put(db, taken),
        Record::Covered { path, snapshot } => {
            snapshot_rows::cover(db, entries::existing_dir(db, path)?, *snapshot)
        }
        Record::Bygone(told) => bygone::put(db, told),
        // A base has this record after all its entries, so that an entry without a `Since` record counts as older than
        // the first snapshot.
        Record::NextSnapshot { next } => Counter::Snapshot.pass(db, next.0 as i64 - 1),
        Record::Since { path, since } => {
            let (above, name) = entries::split(path)?;
            entries::set_since(db, entries::existing_dir(db, &above)?, name, *since)
        }
        Record::Kept(entry) => history::put(db, entry),
        Record::KeptUntil { path, until_ms, only_endless } => {
            history::end_at(db, path, *until_ms, *only_endless)
        }
        Record::Checkpoint(open) => checkpoint_rows::put(db, open),
        Record::Reservation(told) => reservations::put(db, told.clone()),
        Record::ReservationEnded { id } => reservations::forget(db, id),
        Record::Member(member) => members::put(db, member),
        Record::Donor(known) => donors::put(db, known),
        Record::Note { key, value: Some(value) } => notes::set(db, key, value),
        Record::Note { key, value: None } => notes::clear(db, key),
        Record::Time { pool_ms, leapt_ms } => {
            notes::set(db, notes::TIME_LEAPT, &leapt_ms.to_string())?;
            meta::save_pool_time(db, *pool_ms)
        }
        Record::Page { .. }
        | Record::Parity { .. }
        | Record::Part { .. }
        | Record::File { .. }
        | Record::Keeping { .. }
        | Record::SealedAgain { .. }
        | Record::Passed { .. }
        | Record::Moved { .. }
        | Record::Published { .. }
        | Record::Removed { .. } => {
            Err(Error::Bug("the rows of this record are written where it is decided".into()))
        }
    }
}
