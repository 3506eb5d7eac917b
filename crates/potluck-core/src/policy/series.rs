//! Series: directories of steps, such as the checkpoints of a run, of which old ones are purged.

use super::KeptTime;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which of the files and directories in a directory, the steps of a series, are purged. A step that any part of the rule
/// lets go is purged, but for those that are never purged: the newest that is whole, and those that are pinned or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesRule {
    /// Steps beyond so many of the newest are purged; 0: none are for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<u32>,
    /// Steps that were modified longer ago are purged; none: none are for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_after: Option<KeptTime>,
}

impl SeriesRule {
    /// Both, where `inner` goes first.
    pub fn then(&self, inner: &Self) -> Self {
        Self {
            keep_last: inner.keep_last.or(self.keep_last),
            purge_after: inner.purge_after.or(self.purge_after),
        }
    }

    /// Whether it says nothing.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it lets nothing go.
    pub fn is_none(&self) -> bool {
        self.keep_last.unwrap_or(0) == 0 && self.purge_after.is_none_or(|time| time.is_none())
    }

    /// Why a step is purged that is the `place`th newest, from 0, and was modified `age_ms` ago.
    pub fn lets_go(&self, place: usize, age_ms: i64) -> Option<PurgeReason> {
        let last = self.keep_last.filter(|last| *last > 0);
        let time = self.purge_after.filter(|time| !time.is_none());
        if last.is_some_and(|last| place >= last as usize) {
            return Some(PurgeReason::BeyondLast);
        }
        let is_old = time.is_some_and(|time| age_ms >= time.ms().min(i64::MAX as u64) as i64);
        is_old.then_some(PurgeReason::Age)
    }
}

impl fmt::Display for SeriesRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.keep_last.filter(|last| *last > 0).map(|last| format!("the last {last}"));
        let time = self.purge_after.filter(|time| !time.is_none());
        let time = time.map(|time| format!("of the last {time}"));
        let parts: Vec<String> = last.into_iter().chain(time).collect();
        f.write_str(&if parts.is_empty() { "all".into() } else { parts.join(", ") })
    }
}

/// Why a step of a series is purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeReason {
    /// Enough newer steps are there.
    BeyondLast,
    /// It was modified too long ago.
    Age,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_goes_when_enough_newer_ones_are_there_or_it_is_too_old() {
        let rule = |last: Option<u32>, time: Option<&str>| SeriesRule {
            keep_last: last,
            purge_after: time.map(|time| time.parse().expect("a time")),
        };
        let hour = 3_600_000;
        let both = rule(Some(2), Some("1h"));
        assert_eq!(both.lets_go(0, hour - 1), None);
        assert_eq!(both.lets_go(1, hour), Some(PurgeReason::Age));
        assert_eq!(both.lets_go(2, 0), Some(PurgeReason::BeyondLast));
        assert_eq!(rule(None, Some("1h")).lets_go(99, 0), None);
        assert_eq!(rule(Some(1), None).lets_go(0, i64::MAX), None);
        for none in [rule(None, None), rule(Some(0), Some("none"))] {
            assert!(none.is_none() && none.lets_go(99, i64::MAX).is_none(), "{none}");
        }
        assert_eq!(both.to_string(), "the last 2, of the last 1h");
        // What is set later goes first, part by part.
        assert_eq!(both.then(&rule(Some(5), None)), rule(Some(5), Some("1h")));
    }
}
