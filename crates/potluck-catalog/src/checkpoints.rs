//! Checkpoints: directories whose files are staged out of sight, and become visible at one moment.
//!
//! A checkpoint's files are ordinary entries below a directory with a name that nobody guesses
//! ([`potluck_core::checkpoint`]), in the deepest directory above its target that was there when it began; where files
//! are merged, that may be the target itself. So they are kept, counted, repaired and logged as all files are. A commit
//! that replaces the target moves one entry; one that merges moves the entries one by one into directories that are
//! there. The row of a checkpoint says what its directory is to become. It outlives the end of the checkpoint for a
//! while, so that a client which repeats a commit hears of the first one. Writers share a file in a checkpoint that is
//! never committed.

pub(crate) mod checkpoint_rows;
pub(crate) mod open_checkpoint;
