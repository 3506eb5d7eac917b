//! A progress bar with rate and time left, on a terminal's standard error.

use indicatif::{ProgressBar, ProgressStyle};
use potluck_client::progress::{Progress, Quiet};
use std::sync::Arc;

struct Bar(ProgressBar);

/// A bar for a transfer of `total` bytes, if known; silent unless `shown`.
pub fn transfer(shown: bool, total: Option<u64>) -> Arc<dyn Progress> {
    if !shown {
        return Arc::new(Quiet);
    }
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{bar:30} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {binary_bytes}  {binary_bytes_per_sec}"),
    };
    bar.set_style(ProgressStyle::with_template(template).expect("a fixed template"));
    Arc::new(Bar(bar))
}

impl Progress for Bar {
    fn expect(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }
    fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }
    fn warn(&self, text: &str) {
        self.0.suspend(|| eprintln!("potluck: {text}"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
