//! The decoders of formats that only this crate reads, for the fuzzer.

pub use crate::file_system::CheckpointRequest;
pub use crate::record::unpublished_in;
