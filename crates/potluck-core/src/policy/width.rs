//! The stripe width: the number of donors that a file is written to at once.

use super::{BadPolicy, MAX_WIDTH};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The number of donors that a file is written to at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Width {
    /// The file is written to all donors that are there, up to [`Width::AUTO_MOST`], because many slow links together
    /// may fill the client's fast one.
    #[default]
    Auto,
    /// The file is written to this many donors, or to all of them where there are fewer.
    Donors(u32),
}

impl Width {
    /// The most donors that [`Width::Auto`] takes: they fill a gigabit link from links of 100 Mb/s,
    /// and a client's memory for what is on its way stays small.
    pub const AUTO_MOST: u32 = 16;

    /// Returns the number of donors to stripe over where `there` donors can be written to. A number that the policy
    /// sets is returned as it is, even above `there`: placement takes fewer then.
    pub fn donors(self, there: usize) -> u32 {
        match self {
            Self::Auto => Self::AUTO_MOST.min(there as u32),
            Self::Donors(donors) => donors,
        }
    }
}

impl FromStr for Width {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(donors)) => Ok(Self::Donors(donors)),
            _ => Err(BadPolicy(format!("stripe width {text}: use auto, or 1 to {MAX_WIDTH}"))),
        }
    }
}

impl std::fmt::Display for Width {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Donors(donors) => write!(f, "{donors}"),
        }
    }
}

/// The form of a width in JSON: a number of donors, or a word.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Donors(u32),
    Word(String),
}

impl TryFrom<Written> for Width {
    type Error = BadPolicy;
    fn try_from(written: Written) -> Result<Self, BadPolicy> {
        match written {
            Written::Donors(donors) => Ok(Self::Donors(donors)),
            Written::Word(word) => word.parse(),
        }
    }
}

impl From<Width> for Written {
    fn from(width: Width) -> Self {
        match width {
            Width::Auto => Self::Word(width.to_string()),
            Width::Donors(donors) => Self::Donors(donors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_is_a_number_or_auto() {
        for (text, width) in
            [("auto", Width::Auto), ("1", Width::Donors(1)), ("256", Width::Donors(256))]
        {
            assert_eq!(text.parse(), Ok(width));
            assert_eq!(Width::try_from(Written::from(width)), Ok(width), "as it is in JSON");
        }
        for bad in ["-1", "wide", ""] {
            assert!(bad.parse::<Width>().is_err(), "{bad}");
        }
        assert_eq!((Width::Auto.donors(3), Width::Auto.donors(40)), (3, Width::AUTO_MOST));
        assert_eq!(Width::Donors(9).donors(3), 9, "placement knows how many there are");
    }
}
