//! The names in directories, and what they lead to.

pub(crate) mod dir_id;
pub(crate) mod dir_policies;
pub(crate) mod entries;
pub(crate) mod entry_attributes;
pub(crate) mod entry_moves;
pub(crate) mod lists;
pub(crate) mod walk;
