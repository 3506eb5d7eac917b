//! The promises of the catalog, whatever engine holds it: asked through the operations of
//! [`Catalog`](potluck_catalog::Catalog) alone, so that a second engine runs the same suite.

mod checkpoints;
mod committing;
mod copies_at_donors;
mod copying;
mod excess;
mod following;
mod granting;
mod joining;
mod keeping;
mod leasing;
mod limiting;
mod linking;
mod naming;
mod parts;
mod policies;
mod reclaiming;
mod redundancy;
mod series;
mod snapshotting;
mod stage;
mod telling;
mod terms;
