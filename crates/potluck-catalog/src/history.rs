//! What names led to in the past: kept files, directories and links that were replaced or removed, and snapshots
//! ([note 0012](../../../docs/notes/0012-versions-and-trash.md)).

pub(crate) mod bygone;
pub(crate) mod bygone_name;
pub(crate) mod kept;
pub(crate) mod kept_entry;
pub(crate) mod kept_rows;
pub(crate) mod snapshot_rows;
pub(crate) mod snapshots;
pub(crate) mod taken_snapshot;
pub(crate) mod trash;
