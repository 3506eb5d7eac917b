//! The formats of files that no other crate reads, for the fuzzer.

pub use crate::scrub::Round;
pub use crate::state::{HeardManager, Own};
pub use crate::store::marker::Marker;
pub use crate::store::trailer::Trailer;
