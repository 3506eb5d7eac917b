//! The options of storing files.

use potluck_core::policy::Override;
use potluck_wire::control::Condition;

/// The options of storing files.
#[derive(Debug, Clone, Copy, Default)]
pub struct PutOptions {
    /// The parts of the policy that differ from the space's.
    pub policy: Override,
    /// The condition under which a file may replace what is at its path.
    pub condition: Condition,
    /// The plaintext bytes of all files together without their holes, if known.
    pub bytes: Option<u64>,
    /// If true, a stream that brings nothing replaces no file that has content.
    pub spare_content: bool,
    /// If true, a local file that changes while it is read is stored as it was read.
    pub allow_changing: bool,
    /// If true, no file becomes visible before those that were begun before it in the session. One that is stored in
    /// parts, or has to be sent again because donors went away, may become visible later.
    pub in_order: bool,
    /// If true, a power cut of the manager may undo a file for a tenth of a second after it became visible, where the ack
    /// level is `memory`.
    pub soon: bool,
}
