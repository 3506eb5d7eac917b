//! Tells in the log how background work ends: a failure is told when it begins, when its reason changes and when it is
//! over, and not at every attempt between.

use potluck_catalog::Error;
use std::collections::BTreeMap;

/// The kinds of work that fail now, and what the log said of each.
#[derive(Debug, Default)]
pub struct Outcomes(BTreeMap<&'static str, String>);

impl Outcomes {
    /// Notes how an attempt at `what` ended.
    pub fn note(&mut self, what: &'static str, result: Result<(), Error>) {
        match result {
            Err(Error::Closed) => {}
            // A fault of the catalog's own disk is reported once, for all work that writes there.
            Err(why) if why.is_disks() => {}
            Err(why) => {
                let why = why.to_string();
                if self.0.get(what) != Some(&why) {
                    tracing::error!(why, "{what} failed; trying again");
                    self.0.insert(what, why);
                }
            }
            Ok(()) => {
                if self.0.remove(what).is_some() {
                    tracing::info!("{what} succeeds again");
                }
            }
        }
    }
}
