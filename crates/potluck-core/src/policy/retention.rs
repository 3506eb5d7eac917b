//! The time for which old versions of files, and entries that were removed, are kept.

use super::BadPolicy;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The most old versions of one name that a policy keeps, whatever it asks for: all of them are read when the file is
/// replaced again. What is kept for snapshots does not count.
pub const MOST_VERSIONS: u32 = 1000;
/// The longest time that anything is kept for.
pub const LONGEST_KEPT: KeptTime = KeptTime(100 * 365 * DAY);

const DAY: u64 = 24 * 3600;
/// The units in which a time is written, longest first.
const UNITS: [(&str, u64); 5] = [("w", 7 * DAY), ("d", DAY), ("h", 3600), ("m", 60), ("s", 1)];

/// The time for which something is kept; its text is `none`, or a number and a unit such as `30d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeptTime(
    /// The time in seconds; 0 where the thing is not kept.
    pub u64,
);

impl KeptTime {
    /// The time for something that is not kept at all.
    pub const NONE: Self = Self(0);
    /// The time for which removed files are kept where versions are kept by their number alone: nothing else would ever
    /// let them go.
    const AFTER_REMOVAL: Self = Self(7 * DAY);

    /// Returns whether nothing is kept.
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }

    /// Returns the time in milliseconds.
    pub fn ms(self) -> u64 {
        self.0.saturating_mul(1000)
    }
}

impl FromStr for KeptTime {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let bad = || BadPolicy(format!("“{text}” is not a time: write none, 12h, 30d or 8w"));
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..]).ok_or_else(bad)?;
        let seconds = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit.1));
        let time = Self(seconds.ok_or_else(bad)?);
        if time > LONGEST_KEPT {
            return Err(BadPolicy(format!("{text} is too long: at most {LONGEST_KEPT}")));
        }
        Ok(time)
    }
}

impl fmt::Display for KeptTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, seconds)| self.0.is_multiple_of(*seconds));
        match exact {
            _ if self.is_none() => f.write_str("none"),
            Some((unit, seconds)) => write!(f, "{}{unit}", self.0 / seconds),
            None => write!(f, "{}s", self.0),
        }
    }
}

/// The rule by which versions of a file are kept when others take their place: some number of the newest, and of
/// these the ones that were replaced within a time. Its text is `none`, a number, a time, or both, such as `30d,10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeptVersions {
    /// The most old versions that are kept of one file; 0 where none are.
    pub newest: u32,
    /// The time for which each old version is kept; `None` for as long as it is one of the newest.
    pub time: Option<KeptTime>,
}

impl KeptVersions {
    /// The rule that keeps no old versions.
    pub const NONE: Self = Self { newest: 0, time: None };

    /// Returns true if the rule keeps no old versions.
    pub fn is_none(&self) -> bool {
        self.newest == 0
    }
}

impl FromStr for KeptVersions {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        let bad = || {
            let how = "write none, a number, a time, or both: 10, 30d, or 30d,10";
            BadPolicy(format!("“{text}” does not say which versions to keep: {how}"))
        };
        let (mut newest, mut time) = (None, None);
        for part in text.split(',').map(str::trim) {
            match part.parse::<u32>() {
                Ok(count) if newest.is_none() && count <= MOST_VERSIONS => newest = Some(count),
                Ok(_) => {
                    return Err(BadPolicy(format!("{text}: at most {MOST_VERSIONS} are kept")));
                }
                Err(_) if time.is_none() => {
                    time = Some(part.parse::<KeptTime>().map_err(|_| bad())?);
                }
                Err(_) => return Err(bad()),
            }
        }
        if newest == Some(0) || time.is_some_and(|time| time.is_none()) {
            return Ok(Self::NONE);
        }
        Ok(Self { newest: newest.unwrap_or(MOST_VERSIONS), time })
    }
}

impl fmt::Display for KeptVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.newest, self.time) {
            (0, _) => f.write_str("none"),
            (newest, None) => write!(f, "{newest}"),
            (MOST_VERSIONS, Some(time)) => write!(f, "{time}"),
            (newest, Some(time)) => write!(f, "{time},{newest}"),
        }
    }
}

macro_rules! as_text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = BadPolicy;
            fn try_from(text: String) -> Result<Self, BadPolicy> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}
as_text!(KeptTime);
as_text!(KeptVersions);

/// The part of a policy that says what is kept of files that are replaced or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// The rule by which versions are kept when others take their place.
    pub replaced: KeptVersions,
    /// The time for which removed entries can be brought back.
    pub removed: KeptTime,
}

impl Retention {
    /// Returns the retention of a policy that says this of versions and this of removed files. Where it says nothing
    /// of removed files, they are kept as long as a version.
    pub fn of(replaced: KeptVersions, trash: Option<KeptTime>) -> Self {
        let as_versions = match replaced {
            KeptVersions::NONE => KeptTime::NONE,
            KeptVersions { time, .. } => time.unwrap_or(KeptTime::AFTER_REMOVAL),
        };
        Self { replaced, removed: trash.unwrap_or(as_versions) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_by_count_and_age_round_trips() {
        let day = |days| Some(KeptTime(days * DAY));
        for (text, newest, time) in [
            ("none", 0, None),
            ("10", 10, None),
            ("4w", MOST_VERSIONS, day(28)),
            ("30d,10", 10, day(30)),
            ("36h", MOST_VERSIONS, Some(KeptTime(36 * 3600))),
        ] {
            let kept = KeptVersions { newest, time };
            assert_eq!(text.parse(), Ok(kept), "{text}");
            assert_eq!(kept.to_string(), text);
        }
        assert_eq!(
            "10,30d".parse::<KeptVersions>().map(|kept| kept.to_string()),
            Ok("30d,10".into())
        );
        assert_eq!("0".parse(), Ok(KeptVersions::NONE));
        for bad in ["", "x", "10,20", "30d,4w", "1001", "-1", "30", "d", "200000w", "9é"] {
            let is_number = bad == "30";
            assert_eq!(bad.parse::<KeptVersions>().is_ok(), is_number, "{bad}");
        }
    }

    #[test]
    fn trash_retention_defaults_to_version_retention() {
        let of = |versions: &str, trash: Option<&str>| {
            let trash = trash.map(|trash| trash.parse().expect("a time"));
            Retention::of(versions.parse().expect("versions"), trash).removed.to_string()
        };
        assert_eq!(of("none", None), "none");
        assert_eq!(of("none", Some("2d")), "2d");
        assert_eq!(of("30d,10", None), "30d");
        assert_eq!(of("10", None), "1w", "nothing else would let it go");
        assert_eq!(of("30d", Some("none")), "none");
    }
}
