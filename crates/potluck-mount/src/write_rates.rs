//! The rates at which files were written through this mount (checkpoint store, section V.B), and the shares of them
//! that the pool had already.

use potluck_client::{PendingReport, PutReport};
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_wire::env;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The number of files whose rates are remembered. The file that was first noted longest ago is forgotten first.
const REMEMBERED: usize = 4096;
/// The size in bytes below which files are not logged.
const LEAST_LOGGED: u64 = 4 << 20;

/// The rates at which one file was written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WriteRates {
    /// The bytes a second from open() to the end of close() (the observed application bandwidth).
    pub observed: f64,
    /// The bytes a second from open() until all copies were made (the achieved storage bandwidth), once this mount
    /// knows that they are made.
    pub achieved: Option<f64>,
    /// The share of the file that the pool had already, or that repeats within the file, from 0 to 1, once it is known.
    pub held_share: Option<f64>,
}

/// The rates of files that were written through this mount, at most [`REMEMBERED`].
#[derive(Default)]
pub struct WrittenFiles(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    rates: BTreeMap<PoolPath, WriteRates>,
    /// The paths in the order in which they were first noted.
    paths: VecDeque<PoolPath>,
}

/// The way in which this mount learns when all copies of a published file are made.
pub enum AllCopies {
    /// All copies are made when the file is visible.
    WhenVisible,
    /// The report of the session tells that, and how much of the file the pool had. The session must have written only
    /// this file.
    Reported(PendingReport),
    /// Copies may be made later, and this mount does not hear when.
    Unknown,
}

/// A file that was just published.
pub struct Published {
    /// The path of the file.
    pub path: PoolPath,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The time since the file was opened.
    pub took: Duration,
}

impl WrittenFiles {
    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().expect("no holder panics")
    }

    /// Returns the rates of a file.
    pub fn of(&self, path: &PoolPath) -> Option<WriteRates> {
        self.remembered().rates.get(path).copied()
    }

    fn note(&self, path: &PoolPath, rates: WriteRates) {
        let mut remembered = self.remembered();
        if remembered.rates.insert(path.clone(), rates).is_none() {
            remembered.paths.push_back(path.clone());
        }
        if remembered.paths.len() > REMEMBERED
            && let Some(oldest) = remembered.paths.pop_front()
        {
            remembered.rates.remove(&oldest);
        }
    }

    /// Notes that a file was published. If its copies are reported later, a task in the background waits for the
    /// report.
    pub fn published(self: &Arc<Self>, file: Published, copies: AllCopies) {
        let observed = rate(file.bytes, file.took);
        let achieved = matches!(copies, AllCopies::WhenVisible).then_some(observed);
        self.note(&file.path, WriteRates { observed, achieved, held_share: None });
        let AllCopies::Reported(report) = copies else { return };
        let (files, began) = (Arc::clone(self), tokio::time::Instant::now());
        env::spawn(async move {
            // If the session failed, its writer was told.
            if let Ok(report) = report.wait().await {
                files.stored(&file, &report, file.took + began.elapsed());
            }
        });
    }

    fn stored(&self, file: &Published, report: &PutReport, took: Duration) {
        let (observed, achieved) = (rate(file.bytes, file.took), rate(file.bytes, took));
        let achieved = (report.pending_copies == 0).then_some(achieved);
        let held = report.held_bytes as f64 / (file.bytes as f64).max(1.0);
        let rates = WriteRates { observed, achieved, held_share: Some(held) };
        self.note(&file.path, rates);
        if file.bytes >= LEAST_LOGGED {
            let until = |rate: f64| format!("{}/s", format_size(rate as u64));
            let achieved = achieved.map_or_else(
                || format!("{} copies are still to be made", report.pending_copies),
                |rate| format!("{} until it was stored", until(rate)),
            );
            tracing::info!(
                "{}: {} at {} until it was closed, {achieved}; {:.0} % were there already",
                file.path,
                format_size(file.bytes),
                until(observed),
                100.0 * held
            );
        }
    }
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_the_files_that_were_written_last_are_remembered() {
        let files = WrittenFiles::default();
        let path =
            |number: usize| -> PoolPath { format!("pot://lab/{number}").parse().expect("a path") };
        for number in 0..=REMEMBERED {
            files.note(&path(number), WriteRates::default());
            files.note(&path(number), WriteRates { observed: 7.0, ..WriteRates::default() });
        }
        assert_eq!(files.of(&path(0)), None);
        assert_eq!(files.of(&path(1)).map(|rates| rates.observed), Some(7.0));
        let published = |bytes| Published { path: path(1), bytes, took: Duration::from_secs(2) };
        let mut report = PutReport { held_bytes: 25, ..PutReport::default() };
        files.stored(&published(100), &report, Duration::from_secs(4));
        let rates = WriteRates { observed: 50.0, achieved: Some(25.0), held_share: Some(0.25) };
        assert_eq!(files.of(&path(1)), Some(rates));
        report.pending_copies = 1;
        files.stored(&published(100), &report, Duration::from_secs(4));
        assert_eq!(files.of(&path(1)), Some(WriteRates { achieved: None, ..rates }));
    }
}
