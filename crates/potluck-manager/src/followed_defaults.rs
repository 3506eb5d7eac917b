//! The news that `potluck status` has of spaces that follow the pool's defaults.

use potluck_core::clock::Tick;
use potluck_core::policy::Redundancy;
use potluck_core::size::count;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The time for which a change is news.
const NEWS: Duration = Duration::from_secs(86_400);

/// The news, by the name of the space. A manager that starts has none.
#[derive(Debug, Default)]
pub struct FollowedDefaults(Mutex<BTreeMap<String, DefaultNews>>);

/// What became of a space that follows the pool's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultNews {
    /// The space has another redundancy.
    Changed {
        /// The redundancy that it has now.
        to: Redundancy,
        /// The reason, as a part of a sentence.
        why: String,
        /// The number of files that were there and are to change.
        files: u64,
        /// The moment of the change.
        at: Tick,
    },
    /// The space does not have the default, for this reason.
    HeldBack(String),
}

impl FollowedDefaults {
    /// Notes what became of a space.
    pub fn note(&self, space: &str, news: DefaultNews) {
        self.news().insert(space.to_owned(), news);
    }

    /// Notes that nothing holds a space back any more.
    pub fn not_held_back(&self, space: &str) {
        let mut news = self.news();
        if matches!(news.get(space), Some(DefaultNews::HeldBack(_))) {
            news.remove(space);
        }
    }

    /// Returns the news of a space in words. A scan that `began` then found so many files `changing`.
    pub fn of(&self, space: &str, began: Option<Tick>, changing: u64, now: Tick) -> Option<String> {
        match self.news().get(space)? {
            DefaultNews::HeldBack(why) => Some(why.clone()),
            DefaultNews::Changed { at, .. } if now.saturating_sub(*at) > NEWS => None,
            DefaultNews::Changed { to, why, files, at } => {
                let left = if began > Some(*at) { changing.min(*files) } else { *files };
                let under_way = (left > 0).then(|| {
                    let done = (files - left) * 100 / files;
                    format!("; converting {}, {done} % done", count(*files, "file"))
                });
                Some(format!("{to} now, {why}{}", under_way.unwrap_or_default()))
            }
        }
    }

    fn news(&self) -> MutexGuard<'_, BTreeMap<String, DefaultNews>> {
        self.0.lock().expect("no holder panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_with_how_far_it_is_and_for_a_day() {
        let news = FollowedDefaults::default();
        let second = Tick::from_secs;
        let (to, why) = (Redundancy::Copies(2), "since a second machine lends".to_owned());
        news.note("lab", DefaultNews::Changed { to, why, files: 3, at: second(10) });
        let told = |began, changing, now| news.of("lab", began, changing, second(now));
        let said = |text: &str| Some(format!("2 copies now, since a second machine lends{text}"));
        assert_eq!(told(Some(second(9)), 0, 11), said("; converting 3 files, 0 % done"));
        assert_eq!(told(Some(second(12)), 2, 13), said("; converting 3 files, 33 % done"));
        assert_eq!(told(Some(second(14)), 0, 15), said(""));
        assert_eq!(told(Some(second(14)), 0, 100_000), None);
        assert_eq!(news.of("home", None, 0, second(11)), None);
    }
}
