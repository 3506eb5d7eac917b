//! The metadata log: changes of the catalog as records that know no engine, and the rebuilding of a catalog from them.

pub(crate) mod apply;
pub(crate) mod changes;
pub(crate) mod committed;
pub(crate) mod export;
pub(crate) mod log_position;
pub(crate) mod records;
pub(crate) mod restored;
