//! Policies: what a space promises about the files in it.

use crate::chunk::{DEFAULT_CHUNK, MAX_CHUNK, MIN_CHUNK};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What is true of every copy when a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckLevel {
    /// The donor holds the chunk in its page cache: it survives the death of the process, not a
    /// power cut.
    #[default]
    Memory,
    /// The donor has fsynced the chunk and its directory: it survives a power cut.
    Disk,
}

impl FromStr for AckLevel {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        match text {
            "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            _ => Err(BadPolicy(format!("unknown ack level “{text}”: use memory or disk"))),
        }
    }
}

impl std::fmt::Display for AckLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        })
    }
}

/// The most copies a policy may ask for.
pub const MAX_COPIES: u32 = 16;
/// The widest stripe a policy may ask for.
pub const MAX_WIDTH: u32 = 256;

/// How the files of a space are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Bytes per chunk; a power of two.
    pub chunk_size: u32,
    /// Donors a file is written to at once.
    pub stripe_width: u32,
    /// Copies of every chunk, each on its own donor.
    pub copies: u32,
    /// What an acknowledged write means.
    pub ack: AckLevel,
    /// Whether clients seal chunks before they leave. Fixed when the space is made.
    pub sealed: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            chunk_size: DEFAULT_CHUNK,
            stripe_width: 4,
            copies: 1,
            ack: AckLevel::Memory,
            sealed: true,
        }
    }
}

/// A policy that cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPolicy(pub String);

/// The part of a policy that one file or command sets differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Override {
    /// Instead of [`Policy::chunk_size`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_size: Option<u32>,
    /// Instead of [`Policy::stripe_width`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripe_width: Option<u32>,
    /// Instead of [`Policy::copies`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Instead of [`Policy::ack`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack: Option<AckLevel>,
}

impl Policy {
    /// This policy with the overridden parts replaced, if the result can be kept.
    pub fn with(&self, over: &Override) -> Result<Self, BadPolicy> {
        let policy = Self {
            chunk_size: over.chunk_size.unwrap_or(self.chunk_size),
            stripe_width: over.stripe_width.unwrap_or(self.stripe_width),
            copies: over.copies.unwrap_or(self.copies),
            ack: over.ack.unwrap_or(self.ack),
            sealed: self.sealed,
        };
        policy.check()?;
        Ok(policy)
    }

    /// Whether the policy can be kept at all.
    pub fn check(&self) -> Result<(), BadPolicy> {
        let refuse = |text: String| Err(BadPolicy(text));
        if !self.chunk_size.is_power_of_two() || !(MIN_CHUNK..=MAX_CHUNK).contains(&self.chunk_size)
        {
            return refuse(format!(
                "chunk size {} is not a power of two from 64KiB to 64MiB",
                self.chunk_size
            ));
        }
        if !(1..=MAX_COPIES).contains(&self.copies) {
            return refuse(format!("{} copies: use 1 to {MAX_COPIES}", self.copies));
        }
        if !(1..=MAX_WIDTH).contains(&self.stripe_width) {
            return refuse(format!("stripe width {}: use 1 to {MAX_WIDTH}", self.stripe_width));
        }
        Ok(())
    }
}
