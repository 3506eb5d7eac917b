//! Counts of what was done to pools.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// The number of times that each thing happened, by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// Adds one to the count of `what`.
    pub fn count(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    /// Adds `more` to the count of `what`.
    pub fn add(&mut self, what: &'static str, more: u64) {
        *self.0.entry(what).or_default() += more;
    }

    /// Returns the count of `what`.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Adds all counts of `other` to these.
    pub fn merge(&mut self, other: &Self) {
        for (what, more) in &other.0 {
            self.add(what, *more);
        }
    }

    /// Returns the number of processes that were killed, whatever their role.
    pub fn kills(&self) -> u64 {
        self.0.iter().filter(|(what, _)| what.starts_with("kill -9")).map(|(_, count)| count).sum()
    }

    /// Returns the counts as one JSON object.
    pub fn json(&self) -> Value {
        self.0.iter().map(|(what, count)| ((*what).to_owned(), Value::from(*count))).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.keys().map(|what| what.len()).max().unwrap_or_default();
        self.0.iter().try_for_each(|(what, count)| writeln!(f, "{what:<width$} {count:>8}"))
    }
}
