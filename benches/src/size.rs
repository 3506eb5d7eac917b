//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};

/// Bytes, written `1GiB`, `256MiB`, `64KiB` or as a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (number, shift) = UNITS
            .iter()
            .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))
            .unwrap_or((text, 0));
        let number: u64 = number
            .trim()
            .parse()
            .with_context(|| format!("{text:?} is no size: write it like 1GiB, 256MiB or 65536"))?;
        number
            .checked_mul(1 << shift)
            .map(Self)
            .with_context(|| format!("{text} is more than can be counted"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, shift)| self.0 > 0 && self.0.is_multiple_of(1 << shift));
        match exact {
            Some((unit, shift)) => write!(out, "{} {unit}", self.0 >> shift),
            None => write!(out, "{:.1} GiB", self.0 as f64 / (1u64 << 30) as f64),
        }
    }
}
