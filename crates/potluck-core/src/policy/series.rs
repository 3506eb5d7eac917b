//! Series: directories of steps, such as the checkpoints of a run, of which old ones are purged.

use super::KeptTime;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The rule by which steps of a series, the files and directories in a directory, are purged. A step that any part of
/// the rule lets go is purged, except the newest step that is whole, and steps that are pinned or being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesRule {
    /// The number of newest steps beyond which steps are purged; 0 or `None` where none are purged for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<u32>,
    /// The time since a step was modified after which it is purged; `None` where none are purged for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_after: Option<KeptTime>,
    /// The time since a step was last read or written after which it is purged; `None` where none are purged for
    /// that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_unused: Option<KeptTime>,
}

/// The number of parts that the time of [`SeriesRule::purge_unused`] is divided into: a use of a step is noted again
/// after one part, so that uses are known this precisely.
const USE_PARTS: u64 = 16;
/// The longest time between two notes of uses of a step, in milliseconds, however long steps may be without use.
const LONGEST_UNNOTED_MS: u64 = 3_600_000;

/// The times since a step was modified and since it was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepAge {
    /// The milliseconds since the step was modified, by the wall clock; negative for a time in the future.
    pub modified_ms: i64,
    /// The milliseconds since a use of the step was last noted, by the pool's time; `None` where none is noted yet. The
    /// first look at a step without a noted use counts as one.
    pub unused_ms: Option<u64>,
}

impl SeriesRule {
    /// Returns this rule together with `inner`, whose parts take precedence.
    pub fn then(&self, inner: &Self) -> Self {
        Self {
            keep_last: inner.keep_last.or(self.keep_last),
            purge_after: inner.purge_after.or(self.purge_after),
            purge_unused: inner.purge_unused.or(self.purge_unused),
        }
    }

    /// Returns true if no part of the rule is set.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if no step is ever purged by the rule.
    pub fn is_none(&self) -> bool {
        let is_none = |time: Option<KeptTime>| time.is_none_or(|time| time.is_none());
        self.keep_last.unwrap_or(0) == 0 && is_none(self.purge_after) && is_none(self.purge_unused)
    }

    /// Returns the age, in milliseconds, up to which the last noted use of a step is recent enough that no other is
    /// noted; `None` where uses do not matter.
    pub fn notes_uses_after_ms(&self) -> Option<u64> {
        let time = self.purge_unused.filter(|time| !time.is_none())?;
        Some((time.ms() / USE_PARTS).min(LONGEST_UNNOTED_MS))
    }

    /// Returns the reason why a step is purged that is the `place`th newest, from 0; `None` where it stays.
    pub fn lets_go(&self, place: usize, age: StepAge) -> Option<PurgeReason> {
        let last = self.keep_last.filter(|last| *last > 0);
        let time = self.purge_after.filter(|time| !time.is_none());
        let unused = self.purge_unused.filter(|time| !time.is_none());
        if last.is_some_and(|last| place >= last as usize) {
            return Some(PurgeReason::BeyondLast);
        }
        let most = |time: KeptTime| time.ms().min(i64::MAX as u64) as i64;
        if time.is_some_and(|time| age.modified_ms >= most(time)) {
            return Some(PurgeReason::Age);
        }
        let is_unused = |time: KeptTime| age.unused_ms.is_some_and(|unused| unused >= time.ms());
        unused.is_some_and(is_unused).then_some(PurgeReason::Unused)
    }
}

impl fmt::Display for SeriesRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.keep_last.filter(|last| *last > 0).map(|last| format!("the last {last}"));
        let time = self.purge_after.filter(|time| !time.is_none());
        let time = time.map(|time| format!("of the last {time}"));
        let unused = self.purge_unused.filter(|time| !time.is_none());
        let unused = unused.map(|time| format!("used in the last {time}"));
        let parts: Vec<String> = last.into_iter().chain(time).chain(unused).collect();
        f.write_str(&if parts.is_empty() { "all".into() } else { parts.join(", ") })
    }
}

/// The reason why a step of a series is purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeReason {
    /// Enough newer steps are there.
    BeyondLast,
    /// The step was modified too long ago.
    Age,
    /// Nobody has read or written the step for too long.
    Unused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_step_expires_by_count_or_age() {
        let rule = |last: Option<u32>, time: Option<&str>| SeriesRule {
            keep_last: last,
            purge_after: time.map(|time| time.parse().expect("a time")),
            purge_unused: None,
        };
        let hour = 3_600_000;
        let age = |modified_ms| StepAge { modified_ms, unused_ms: None };
        let both = rule(Some(2), Some("1h"));
        assert_eq!(both.lets_go(0, age(hour - 1)), None);
        assert_eq!(both.lets_go(1, age(hour)), Some(PurgeReason::Age));
        assert_eq!(both.lets_go(2, age(0)), Some(PurgeReason::BeyondLast));
        assert_eq!(rule(None, Some("1h")).lets_go(99, age(0)), None);
        assert_eq!(rule(Some(1), None).lets_go(0, age(i64::MAX)), None);
        for none in [rule(None, None), rule(Some(0), Some("none"))] {
            assert!(none.is_none() && none.lets_go(99, age(i64::MAX)).is_none(), "{none}");
        }
        assert_eq!(both.to_string(), "the last 2, of the last 1h");
        let time = |text: &str| Some(text.parse().expect("a time"));
        let unused = SeriesRule { purge_unused: time("1h"), ..SeriesRule::default() };
        let age = |unused_ms| StepAge { modified_ms: i64::MAX, unused_ms };
        assert_eq!(unused.lets_go(99, age(None)), None, "nobody knows");
        assert_eq!(unused.lets_go(0, age(Some(hour as u64 - 1))), None);
        assert_eq!(unused.lets_go(0, age(Some(hour as u64))), Some(PurgeReason::Unused));
        assert!(!unused.is_none());
        assert_eq!(unused.notes_uses_after_ms(), Some(hour as u64 / USE_PARTS));
        assert_eq!(both.notes_uses_after_ms(), None);
        let year = SeriesRule { purge_unused: time("365d"), ..SeriesRule::default() };
        assert_eq!(year.notes_uses_after_ms(), Some(LONGEST_UNNOTED_MS));
        // The parts of the later rule take precedence, one by one.
        assert_eq!(both.then(&rule(Some(5), None)), rule(Some(5), Some("1h")));
    }
}
