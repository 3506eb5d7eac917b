//! The moment of a change, with its author and the rule for what is kept of replaced or removed files.

use crate::Durability;
use potluck_core::ids::MemberId;

/// The moment of a change, on both clocks, with who makes it and what is kept of what it replaces or removes.
#[derive(Debug, Clone, Copy, Default)]
pub struct When {
    /// The pool's time in milliseconds.
    pub pool_ms: u64,
    /// The wall time in milliseconds.
    pub wall_ms: i64,
    /// The member who makes the change; `None` if the pool itself makes it, or it is not known.
    pub by: Option<MemberId>,
    /// The rule for what is kept.
    pub keeps: WhatIsKept,
    /// What the change survives when its caller hears of success. Where the ack level is `disk`, that is a power cut,
    /// whatever this says.
    pub durability: Durability,
}

impl When {
    /// Returns this moment as that of a change which `member` makes.
    pub fn made_by(self, member: MemberId) -> Self {
        Self { by: Some(member), ..self }
    }

    /// Returns this moment as that of a change that has to survive a power cut at once, or only `soon`.
    pub fn durable(self, soon: bool) -> Self {
        Self { durability: if soon { Durability::Soon } else { Durability::Disk }, ..self }
    }
}

/// The rule for what is kept of a file that a change replaces or removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhatIsKept {
    /// The policies of directories say how much is kept.
    #[default]
    AsPoliciesSay,
    /// Nothing is kept, nor what was kept of the name before, except what a snapshot shows.
    Nothing,
}
