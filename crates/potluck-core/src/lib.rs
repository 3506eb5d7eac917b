//! The decisions of Potluck, which wait for nothing: names and bytes of chunks, recipes, policies,
//! seals, placement, hedging.
//!
//! Nothing here opens a file, a socket or a clock; time and randomness come in as arguments
//! ([`clock`], [`entropy`]). So every rule can be property-tested, and a whole pool can be run
//! from one seed.

pub mod attributes;
pub mod byte_ranges;
pub mod checkpoint;
pub mod chunk;
pub mod chunk_file;
pub mod clock;
pub mod contention;
pub mod cost_history;
pub mod diagnostic_transfer;
pub mod donor_rate;
pub mod entropy;
pub mod entry_stamp;
pub mod erasure;
pub mod fair_turns;
pub mod file_digest;
pub mod file_metadata;
pub mod governor;
pub mod hedging;
pub mod ids;
pub mod impact;
pub mod kept_place;
pub mod lend_mode;
pub mod link_rate;
pub mod link_target;
pub mod load;
pub mod matching;
pub mod merkle;
pub mod origin;
pub mod owner_limits;
pub mod owner_rules;
pub mod path;
pub mod placement;
pub mod policy;
pub mod quota;
pub mod rate_estimate;
pub mod read_plan;
pub mod recipe;
pub mod repair_plan;
pub mod reservation;
pub mod reserved_room;
pub mod rights;
pub mod seal;
pub mod size;
pub mod text;
pub mod timetable;
pub mod traffic;
pub mod traffic_history;
pub mod write_plan;
