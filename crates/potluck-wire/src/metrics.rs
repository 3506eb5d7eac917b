//! Metrics of one moment, as Prometheus reads them: the OpenMetrics text format.
//!
//! Names are `potluck_…` with a unit; counters end in `_total`. Labels are donors' and spaces' names,
//! operations and states: nothing secret, no paths.

use potluck_core::clock::Tick;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The name of the format in HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The time for which an exposition is good, however often and by however many it is asked for.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// An operation, as a label.
type Op = [(&'static str, &'static str); 1];
/// A label and its value.
type Label = [(&'static str, String); 1];

/// The metrics of one moment, while they are put together.
#[derive(Debug)]
pub struct Exposition(Registry);

impl Exposition {
    /// Makes an exposition that begins with what runs: `role` is `manager` or `donor`.
    pub fn of(role: &'static str) -> Self {
        let mut exposition = Self(Registry::default());
        let build: Family<[(&str, &str); 2], Gauge> = Family::default();
        build.get_or_create(&[("role", role), ("version", crate::version::PRODUCT)]).set(1);
        exposition.add("potluck_build_info", "What runs", build);
        exposition
    }

    /// Adds a gauge with one value.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        self.add(name, help, gauge);
    }

    /// Adds a gauge with a value for each `label`.
    pub fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (String, f64)>,
    ) {
        let family: Family<Label, Gauge<f64, AtomicU64>> = Family::default();
        for (of, value) in values {
            family.get_or_create(&[(label, of)]).set(value);
        }
        self.add(name, help, family);
    }

    /// Adds a count that only grows while the process runs; its name gets the suffix `_total`.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        self.add(name, help, counter);
    }

    /// Adds a time that only grows while the process runs; its name gets the suffix `_total`.
    pub fn total_time(&mut self, name: &str, help: &str, value: Duration) {
        let counter = Counter::<f64, AtomicU64>::default();
        counter.inc_by(value.as_secs_f64());
        self.add(name, help, counter);
    }

    /// Adds the calls by operation: how long each took, and how many failed.
    pub fn calls(&mut self, calls: &Calls) {
        self.add("potluck_call_seconds", "Calls by how long they took", calls.seconds.clone());
        self.add("potluck_calls_failed", "Calls that were refused or failed", calls.failed.clone());
    }

    /// Adds a histogram of times.
    pub fn times(&mut self, name: &str, help: &str, times: &Times) {
        self.add(name, help, times.0.clone());
    }

    fn add(
        &mut self,
        name: &str,
        help: &str,
        metric: impl EncodeMetric + Debug + Send + Sync + 'static,
    ) {
        self.0.register(name, help, metric);
    }

    /// Returns all metrics in the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0).expect("a string takes what is written");
        text
    }
}

/// A histogram of times in seconds, with buckets from one millisecond to five seconds.
#[derive(Debug)]
pub struct Times(Histogram);

impl Default for Times {
    fn default() -> Self {
        let buckets = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
        Self(Histogram::new(buckets))
    }
}

impl Times {
    /// Counts one more time, which `took` this long.
    pub fn took(&self, took: Duration) {
        self.0.observe(took.as_secs_f64());
    }
}

/// The counts and times of calls by operation.
#[derive(Debug)]
pub struct Calls {
    seconds: Family<Op, Histogram, fn() -> Histogram>,
    failed: Family<Op, Counter>,
}

impl Default for Calls {
    fn default() -> Self {
        // The buckets reach from a read of memory to the deadline of the longest calls.
        let buckets = || Histogram::new((0..9).map(|power| 0.001 * f64::from(4_u32.pow(power))));
        Self { seconds: Family::new_with_constructor(buckets), failed: Family::default() }
    }
}

impl Calls {
    /// Counts a call that ended after `took`, `well` or not.
    pub fn ended(&self, op: &'static str, took: Duration, well: bool) {
        self.seconds.get_or_create(&[("op", op)]).observe(took.as_secs_f64());
        if !well {
            self.failed.get_or_create(&[("op", op)]).inc();
        }
    }
}

/// The last exposition, while it is good.
#[derive(Debug, Default)]
pub struct CachedMetrics(Mutex<Option<(Tick, Arc<str>)>>);

impl CachedMetrics {
    /// Returns the text that was kept, if it is still good.
    pub fn good(&self, now: Tick) -> Option<Arc<str>> {
        let cached = self.0.lock().expect("no holder panics");
        let (made, text) = cached.as_ref()?;
        (now.saturating_sub(*made) < GOOD_FOR).then(|| Arc::clone(text))
    }

    /// Keeps a text that was made at `now`, and returns it.
    pub fn keep(&self, now: Tick, exposition: &Exposition) -> Arc<str> {
        let text: Arc<str> = exposition.text().into();
        *self.0.lock().expect("no holder panics") = Some((now, Arc::clone(&text)));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposition_has_types_units_and_escaped_labels() {
        let mut exposition = Exposition::of("manager");
        exposition.gauges("potluck_space_bytes", "Bytes", "space", [("a \"b\"".into(), 1.5)]);
        exposition.counter("potluck_served_bytes", "Bytes", 7);
        let calls = Calls::default();
        calls.ended("stat", Duration::from_millis(2), false);
        exposition.calls(&calls);
        let text = exposition.text();
        for line in [
            "# TYPE potluck_build_info gauge",
            "potluck_space_bytes{space=\"a \\\"b\\\"\"} 1.5",
            "# TYPE potluck_served_bytes counter",
            "potluck_served_bytes_total 7",
            "potluck_call_seconds_bucket{le=\"0.004\",op=\"stat\"} 1",
            "potluck_calls_failed_total{op=\"stat\"} 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn metrics_exposition_is_cached_for_a_second() {
        let cached = CachedMetrics::default();
        let at = Tick::from_secs;
        assert_eq!(cached.good(at(5)), None);
        cached.keep(at(5), &Exposition::of("donor"));
        assert!(cached.good(at(5)).is_some());
        assert_eq!(cached.good(at(6)), None);
    }
}
