//! The metadata log: every change to names, members and policies lies in two copies seconds or a minute
//! later, one on donors and one in a file, so that a lost catalog can be made again from either.
//!
//! Changes are noted as rows in the transactions that make them ([`potluck_catalog::changes`]). Each copy
//! takes them as records in sealed blocks ([`copying`]), and notes the last row that it has in the
//! transaction that forgets the rows which both copies have. A copy begins with a base, the whole state of one moment.
//! When the changes since outweigh the base, or a sixth of a base that is a day old, a new generation begins with
//! another base ([`potluck_catalog::Position::is_worn`]); so the cost of a copy follows the changes, and the bytes that
//! a restore reads follow the size of the catalog.

pub mod backup_file;
pub mod block;
pub mod chain;
pub mod copying;
