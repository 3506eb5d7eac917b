//! Reads what daemons tell Prometheus, as the bench needs it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The time within which a scrape is answered.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Returns a port of loopback that is free at this moment, as an address.
pub fn free_address() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.to_string())
}

/// The metrics of one daemon at one moment.
pub struct Scrape(String);

impl Scrape {
    /// Asks for the metrics at `address`, which are made once a second at most.
    pub fn of(address: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address)
            .with_context(|| format!("nobody serves metrics at {address}"))?;
        stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.contains("# EOF"), "{address} answered {answer:?}");
        Ok(Self(answer))
    }

    /// Returns the value of a series, such as `name` or `name{label="value"}`, if it is there.
    pub fn value(&self, series: &str) -> Option<f64> {
        let rest = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        rest.trim().parse().ok()
    }

    /// Returns a histogram without labels.
    pub fn histogram(&self, name: &str) -> Histogram {
        let prefix = format!("{name}_bucket{{le=\"");
        let bucket = |line: &str| {
            let (bound, count) = line.strip_prefix(&prefix)?.split_once("\"} ")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, count.trim().parse().ok()?))
        };
        Histogram(self.0.lines().filter_map(bucket).collect())
    }
}

/// Pairs of a bound in seconds and how many took at most so long, for growing bounds.
pub struct Histogram(Vec<(f64, f64)>);

impl Histogram {
    /// Returns what was added since an earlier moment.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |bound: f64| {
            before.0.iter().find(|(of, _)| *of == bound).map_or(0.0, |(_, count)| *count)
        };
        Self(self.0.iter().map(|(bound, count)| (*bound, count - earlier(*bound))).collect())
    }

    fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, count)| *count)
    }

    /// Returns how many took longer than a bound of the histogram.
    pub fn above(&self, bound: f64) -> f64 {
        let within = self.0.iter().find(|(of, _)| *of >= bound).map_or(0.0, |(_, count)| *count);
        self.count() - within
    }

    /// Returns the least bound that none was above.
    pub fn longest(&self) -> f64 {
        let all = self.count();
        self.0.iter().find(|(_, count)| *count >= all).map_or(0.0, |(bound, _)| *bound)
    }
}
