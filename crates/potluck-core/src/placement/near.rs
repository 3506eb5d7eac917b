//! Where a file lies, seen from the machine that writes it.
//!
//! A checkpoint that lies only where its job runs is lost with that machine, so the writing machine's own donors are
//! passed over unless they are asked for. Whoever is going to read a file where it was written asks for a part of it
//! there: the disk and the network are then read at the same time (asymmetric striping, docs/papers.md, FreeLoader).

use crate::policy::BadPolicy;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The part of a file that lies on the donors of the machine that writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Near {
    /// None, as long as the donors of other machines keep the file as well: with room for it, and with copies as far
    /// apart.
    #[default]
    Elsewhere,
    /// The part is as large as that of any other donor.
    Anywhere,
    /// The part is the one that makes reads fastest there, by the measured rates of its disk and of the other donors.
    Here,
    /// The part is so many percent of the chunks, or of the groups of an erasure code, from 1 to 100.
    HereShare(u8),
}

/// The part of a file that lies here while the rates are unknown by which it would be computed.
const UNMEASURED: f64 = 0.5;

impl Near {
    /// Returns whether this is what holds where nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether a part of the file is asked for on the writing machine.
    pub fn is_here(self) -> bool {
        matches!(self, Self::Here | Self::HereShare(_))
    }

    /// Returns the part of the chunks that is asked for on the writing machine, from 0 to 1, where its donors are read
    /// at `here` bytes a second and all others together at `there`; `None` where no part is asked for.
    pub fn share(self, here: Option<f64>, there: Option<f64>) -> Option<f64> {
        match self {
            Self::Elsewhere | Self::Anywhere => None,
            Self::HereShare(percent) => Some(f64::from(percent) / 100.0),
            Self::Here => Some(here.zip(there).map_or(UNMEASURED, |(here, there)| {
                // Both parts are read in the same time then, which is the peak of `throughput`.
                here / (here + there).max(1.0)
            })),
        }
    }
}

/// Returns the bytes a second at which a file is read of which the part `share` lies on a local disk that is read at
/// `here` bytes a second, and the rest on donors that are read at `there` together, both at the same time:
/// (l + r) / max(l / thpt_l, r / thpt_r).
pub fn throughput(share: f64, here: f64, there: f64) -> f64 {
    1.0 / (share / here).max((1.0 - share) / there)
}

impl FromStr for Near {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        let percent = text.strip_prefix("here:").and_then(|rest| rest.strip_suffix('%'));
        match (text, percent.and_then(|percent| percent.parse().ok())) {
            ("elsewhere", _) => Ok(Self::Elsewhere),
            ("anywhere", _) => Ok(Self::Anywhere),
            ("here", _) => Ok(Self::Here),
            (_, Some(percent @ 1..=100)) => Ok(Self::HereShare(percent)),
            _ => Err(BadPolicy(format!(
                "near “{text}”: use elsewhere, anywhere, here, or here:1% to here:100%"
            ))),
        }
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere => f.write_str("elsewhere"),
            Self::Anywhere => f.write_str("anywhere"),
            Self::Here => f.write_str("here"),
            Self::HereShare(percent) => write!(f, "here:{percent}%"),
        }
    }
}

impl TryFrom<String> for Near {
    type Error = BadPolicy;
    fn try_from(text: String) -> Result<Self, BadPolicy> {
        text.parse()
    }
}

impl From<Near> for String {
    fn from(near: Near) -> Self {
        near.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_a_word_or_a_share_and_its_text_reads_back() {
        for text in ["elsewhere", "anywhere", "here", "here:1%", "here:40%", "here:100%"] {
            let near: Near = text.parse().expect(text);
            assert_eq!(near.to_string(), text);
        }
        for bad in ["", "there", "here:", "here:40", "here:0%", "here:101%", "here:-1%", "40%"] {
            assert!(bad.parse::<Near>().is_err(), "{bad}");
        }
    }

    #[test]
    fn computed_share_is_at_the_peak_of_the_throughput_model() {
        for (here, there) in [(60e6, 88e6), (200e6, 11e6), (30e6, 90e6)] {
            let share = Near::Here.share(Some(here), Some(there)).expect("a share");
            let peak = throughput(share, here, there);
            assert!((peak - here - there).abs() < 1.0, "disk and network together");
            for percent in 1..100 {
                let other = throughput(f64::from(percent) / 100.0, here, there);
                assert!(other <= peak + 1.0, "{percent} % is faster: {other}");
            }
        }
        assert_eq!(Near::Here.share(None, Some(1e6)), Some(UNMEASURED));
        assert_eq!(Near::HereShare(40).share(Some(1e6), None), Some(0.4));
        assert_eq!(Near::Elsewhere.share(Some(1e6), Some(1e6)), None);
    }
}
