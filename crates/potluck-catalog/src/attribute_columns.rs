//! The columns in which tables keep the attributes of an entry or a version.

use potluck_core::attributes::EntryAttributes;

/// The values of `mtime_ns`, `permissions`, `uid`, `gid`, `ctime_ns` and `atime_ns`.
pub(crate) type AttributeColumns = (i64, u32, Option<u32>, Option<u32>, i64, Option<i64>);

/// Returns the values that keep these attributes.
pub(crate) fn columns(attributes: EntryAttributes) -> AttributeColumns {
    let EntryAttributes { mtime, permissions, owner, changed, accessed } = attributes;
    let (uid, gid) = (owner.map(|owner| owner.uid), owner.map(|owner| owner.gid));
    (mtime.0, permissions.bits(), uid, gid, changed.0, accessed.map(|time| time.0))
}
