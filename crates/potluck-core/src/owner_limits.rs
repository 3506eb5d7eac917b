//! The part of a disk that a donor's owner lets Potluck use: the cap, and the floor that stays free. The donor's
//! `store/usage` keeps to it.

use crate::size::{BadSize, exact_size, parse_size};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The part of the disk that the owner wants left free.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeepFree {
    /// The owner keeps this many bytes free.
    Bytes(u64),
    /// The owner keeps this share of the whole disk free, 0 to 100.
    Percent(f64),
}

/// The error of a text that is not an amount to keep free.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKeepFree {
    /// A percentage outside 0 to 100.
    #[error("“{0}” is not a share of the disk: write 0% to 100%, or a size such as 50GiB")]
    Percent(String),
    /// A number with a decimal point and no unit, which does not tell what it is a fraction of.
    #[error("“{text}” may be a share or a size: write {meant}")]
    Fraction {
        /// The text that was given.
        text: String,
        /// The readings it may stand for.
        meant: String,
    },
    /// The text is neither a share nor a size.
    #[error(transparent)]
    Size(#[from] BadSize),
}

impl KeepFree {
    /// Returns the bytes to keep free on a disk of `total` bytes.
    pub fn floor(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (total as f64 * (percent / 100.0)).ceil() as u64,
        }
    }
}

impl FromStr for KeepFree {
    type Err = BadKeepFree;

    fn from_str(text: &str) -> Result<Self, BadKeepFree> {
        let Some(number) = text.trim().strip_suffix('%') else {
            return match fraction(text.trim()) {
                // A bare number with a decimal point may be meant as a share of the disk or as a size.
                Some(meant) => Err(BadKeepFree::Fraction { text: text.into(), meant }),
                None => Ok(Self::Bytes(parse_size(text)?)),
            };
        };
        match number.trim().parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Self::Percent(percent)),
            _ => Err(BadKeepFree::Percent(text.into())),
        }
    }
}

/// Returns the readings of a bare number with a decimal point, if `text` is one.
fn fraction(text: &str) -> Option<String> {
    let number = text.parse::<f64>().ok().filter(|_| text.contains('.'))?;
    Some(match number <= 1.0 {
        true => format!("{}% for that share of the disk", (number * 1e6).round() / 1e4),
        false => format!("{text}% for a share of the disk, {text}GiB for a size"),
    })
}

impl fmt::Display for KeepFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&exact_size(*bytes)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl TryFrom<String> for KeepFree {
    type Error = BadKeepFree;
    fn try_from(text: String) -> Result<Self, BadKeepFree> {
        text.parse()
    }
}

impl From<KeepFree> for String {
    fn from(keep: KeepFree) -> Self {
        keep.to_string()
    }
}

/// The limits that a donor's owner sets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The most bytes that Potluck may hold.
    pub max: u64,
    /// The room that must stay free for the owner, whoever fills the disk.
    pub keep_free: KeepFree,
}

/// The disk that holds the lent directory, at one moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskState {
    /// The size of the file system.
    pub total: u64,
    /// The bytes that an ordinary process may still write (`f_bavail`, not `f_bfree`).
    pub available: u64,
    /// The bytes that Potluck's files take.
    pub lent_used: u64,
}

/// Returns the bytes that Potluck may still write now.
pub fn room(limits: &Limits, disk: &DiskState) -> u64 {
    let under_cap = limits.max.saturating_sub(disk.lent_used);
    let above_floor = disk.available.saturating_sub(limits.keep_free.floor(disk.total));
    under_cap.min(above_floor)
}

/// Returns the bytes that Potluck must give back now for the limits to hold again; never more than it holds.
pub fn excess(limits: &Limits, disk: &DiskState) -> u64 {
    let over_cap = disk.lent_used.saturating_sub(limits.max);
    over_cap.max(disk_lacks(limits, disk)).min(disk.lent_used)
}

/// Returns the bytes by which the disk has less free than its owner wants kept free; never more than Potluck holds.
pub fn disk_lacks(limits: &Limits, disk: &DiskState) -> u64 {
    let below_floor = limits.keep_free.floor(disk.total).saturating_sub(disk.available);
    below_floor.min(disk.lent_used)
}
