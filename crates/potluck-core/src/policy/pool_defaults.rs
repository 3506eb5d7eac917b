//! The pool's defaults: what holds in spaces that were told nothing else.

use super::{BadPolicy, KeptTime, Override, Policy, Redundancy};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The parts of a space's policy that it was not told, and that follow the pool's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Follows {
    /// True if the redundancy follows.
    pub redundancy: bool,
    /// True if the time follows for which removed entries can be brought back.
    pub trash: bool,
    /// True while files that were there when the redundancy last changed may not have it as their goal yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub files_lag: bool,
}

impl Follows {
    /// All parts follow.
    pub const ALL: Self = Self { redundancy: true, trash: true, files_lag: false };

    /// Returns true if nothing follows.
    pub fn is_nothing(&self) -> bool {
        !self.redundancy && !self.trash
    }

    /// Returns the parts that still follow after a space was told `over`. Who says how long versions are kept has
    /// said how long removed files are, where nothing else is said of these.
    pub(super) fn but(self, over: &Override) -> Self {
        let redundancy = self.redundancy && over.redundancy().is_none();
        let keeps = over.keep_versions.is_some_and(|kept| !kept.is_none());
        let trash = self.trash && over.trash.is_none() && !keeps;
        Self { redundancy, trash, files_lag: self.files_lag && redundancy }
    }
}

/// The redundancy of spaces that were told none. Its text is `auto`, a number of copies, or an erasure code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultRedundancy {
    /// One copy while one machine lends, and two from the moment at which a second does. Files do not go back to one
    /// copy when machines leave.
    #[default]
    Auto,
    /// Always the same.
    Always(Redundancy),
}

impl DefaultRedundancy {
    /// Returns the redundancy that takes the place of `present` where donors on so many machines take files.
    pub fn next(self, present: Redundancy, machines: usize) -> Redundancy {
        match self {
            Self::Auto if machines > 1 && present.tolerates() == 0 => Redundancy::Copies(2),
            Self::Auto => present,
            Self::Always(redundancy) => redundancy,
        }
    }
}

impl FromStr for DefaultRedundancy {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let copies = text.parse().map(Redundancy::Copies).ok();
        let redundancy =
            copies.or_else(|| text.parse().map(Redundancy::Ec).ok()).ok_or_else(|| {
                let how = "write auto, a number of copies, or an erasure code such as 4+2";
                BadPolicy(format!("“{text}” does not say how to keep files: {how}"))
            })?;
        Policy::default().with(&redundancy.into())?;
        Ok(Self::Always(redundancy))
    }
}

impl fmt::Display for DefaultRedundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Always(Redundancy::Copies(copies)) => write!(f, "{copies}"),
            Self::Always(Redundancy::Ec(ec)) => write!(f, "{ec}"),
        }
    }
}

/// What holds in spaces that were told nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolDefaults {
    /// The redundancy of files.
    pub redundancy: DefaultRedundancy,
    /// The time for which removed entries can be brought back.
    pub trash: KeptTime,
}

impl Default for PoolDefaults {
    fn default() -> Self {
        Self { redundancy: DefaultRedundancy::Auto, trash: KeptTime(7 * 86_400) }
    }
}

impl PoolDefaults {
    /// Returns the policy that takes the place of `policy` where donors on so many machines take files: the parts that
    /// follow are these defaults.
    pub fn applied(&self, policy: &Policy, machines: usize) -> Policy {
        let mut applied = policy.clone();
        if policy.follows.redundancy {
            applied.set_redundancy(self.redundancy.next(policy.redundancy(), machines));
        }
        if policy.follows.trash {
            applied.trash = Some(self.trash);
        }
        applied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn untold() -> Policy {
        Policy { follows: Follows::ALL, ..Policy::default() }
    }

    #[test]
    fn a_default_is_auto_copies_or_a_code_and_its_text_reads_back() {
        for text in ["auto", "1", "3", "4+2"] {
            let default: DefaultRedundancy = text.parse().expect(text);
            assert_eq!(default.to_string(), text);
        }
        for bad in ["", "0", "99", "two", "4+", "-1", "Auto"] {
            assert!(bad.parse::<DefaultRedundancy>().is_err(), "{bad}");
        }
    }

    #[test]
    fn unset_space_defaults_to_two_copies_with_two_machines() {
        let defaults = PoolDefaults::default();
        let one = defaults.applied(&untold(), 1);
        assert_eq!((one.copies, one.trash), (1, Some(KeptTime(7 * 86_400))));
        let two = defaults.applied(&one, 2);
        assert_eq!((two.copies, two.follows), (2, Follows::ALL));
        assert_eq!(defaults.applied(&two, 1), two, "not lowered when a machine leaves");
        assert_eq!(defaults.applied(&two, 7), two);
        let three = DefaultRedundancy::Always(Redundancy::Copies(3));
        let three = PoolDefaults { redundancy: three, ..defaults };
        assert_eq!(three.applied(&two, 2).copies, 3);
        assert_eq!(defaults.applied(&Policy::default(), 2), Policy::default(), "told one copy");
    }

    #[test]
    fn explicitly_set_policy_fields_do_not_follow_pool_defaults() {
        let told = |over: Override| untold().with(&over).expect("a policy");
        let copies = told(Redundancy::Copies(3).into());
        assert_eq!(
            (copies.copies, copies.follows.redundancy, copies.follows.trash),
            (3, false, true)
        );
        let trash = told(Override { trash: Some(KeptTime::NONE), ..Override::default() });
        assert_eq!((trash.follows.redundancy, trash.follows.trash), (true, false));
        assert_eq!(
            told(Override { strict: Some(true), ..Override::default() }).follows,
            Follows::ALL
        );
        // What is removed is kept as versions are, if something is said of these.
        let of = |versions: &str| {
            let keep_versions = Some(versions.parse().expect("versions"));
            let over = Override { keep_versions, ..Override::default() };
            PoolDefaults::default().applied(&untold(), 1).with(&over).expect("a policy")
        };
        assert_eq!(of("30d").retention().removed.to_string(), "30d");
        assert_eq!(of("none").retention().removed.to_string(), "1w");
    }
}
