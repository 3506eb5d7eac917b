//! The decoders of what no other crate reads, for the fuzzer.

pub use crate::file_system::CheckpointRequest;
pub use crate::record::unpublished_in;
