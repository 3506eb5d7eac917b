//! Writes the rows that records tell of. An operation decides what becomes of its request and writes that as records;
//! a restore applies the records of a log. Both have it done here.

use crate::checkpoints::checkpoint_rows;
use crate::error::Error;
use crate::history::{bygone, kept_rows, snapshot_rows, snapshots};
use crate::log::{changes, records::Record};
use crate::members;
use crate::members::{grants, groups, quotas};
use crate::names::{dir_policies, entries, entry_attributes, entry_moves};
use crate::pool_records::{
    donors,
    meta::{self, Counter},
    notes, reservations, spaces,
};
use crate::sql::Tx;
use crate::versions;

/// Makes the change that a record tells of, and has the log tell of it if anything changed. The record ends no file.
pub(crate) fn write(db: &Tx, record: Record) -> Result<(), Error> {
    write_at(db, record, 0)
}

/// Makes the change that a record tells of at a moment of the pool's time, in milliseconds, from which on the chunks of
/// files that end with it are unused. The log tells of it if anything changed.
pub(crate) fn write_at(db: &Tx, record: Record, pool_ms: u64) -> Result<(), Error> {
    match apply(db, &record, pool_ms)? {
        true => changes::tell(db, record),
        false => Ok(()),
    }
}

/// Makes the change that a record tells of, and returns whether anything changed, as far as that is known.
pub(crate) fn apply(db: &Tx, record: &Record, pool_ms: u64) -> Result<bool, Error> {
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
        Record::Dir { path, attributes, .. } => entries::make_dirs(db, path, *attributes).map(drop),
        Record::Link { path, target, attributes } => {
            entry_moves::put_link(db, path, target, *attributes, pool_ms)
        }
        Record::Moved { from, to } => entry_moves::move_entry(db, from, to, pool_ms),
        Record::Removed { path } => entry_moves::remove(db, path, pool_ms),
        Record::Published { from, to, style, .. } => {
            entry_moves::publish(db, (from, to), *style, pool_ms)
        }
        Record::PathAttributes { path, attributes } => {
            entry_attributes::put_in_entry(db, path, *attributes)
        }
        Record::DirModified { path, mtime_ns } => {
            return entries::touch(db, entries::existing_dir(db, path)?, *mtime_ns);
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
        Record::Kept(entry) => entry_moves::keep(db, entry, pool_ms),
        Record::KeptUntil { path, until_ms, only_endless } => {
            let (above, name) = entries::split(path)?;
            let dir = entries::existing_dir(db, &above)?;
            return kept_rows::end_by(db, dir, name, *until_ms, *only_endless);
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
        | Record::Passed { .. } => {
            Err(Error::Bug("the rows of this record are written where it is decided".into()))
        }
    }
    .map(|()| true)
}
