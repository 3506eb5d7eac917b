//! A client that asks for one thing after another, at even intervals, while something else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use potluck_client::{Attributes, Pool as Client, PutOptions};

use crate::library;
use crate::pool::Pool;

/// The time from one request to the next.
const EVERY: Duration = Duration::from_millis(50);

/// A client that runs until its end is asked for.
pub struct Steady {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<f64>>>,
}

impl Steady {
    /// Starts a client that asks by `ask`, which is given the number of times that it asked before.
    pub fn start(
        pool: &Pool,
        ask: impl AsyncFn(&Client, usize) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (client, runtime) = library::begin(&pool.identity())?;
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let work = move || {
            let mut times = Vec::new();
            while !until.load(Ordering::Relaxed) {
                let began = Instant::now();
                runtime.block_on(ask(&client, times.len()))?;
                let took = began.elapsed();
                times.push(took.as_secs_f64() * 1e3);
                std::thread::sleep(EVERY.saturating_sub(took));
            }
            Ok(times)
        };
        Ok(Self { over, thread: std::thread::spawn(work) })
    }

    /// Ends the client, and returns how long its requests took.
    pub fn end(self) -> Result<Waits> {
        self.over.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().map_err(|_| anyhow!("the client panicked"))??;
        times.sort_by(f64::total_cmp);
        Ok(Waits(times))
    }
}

/// The times of requests in milliseconds, the shortest first.
pub struct Waits(Vec<f64>);

impl Waits {
    /// Returns whether nothing was answered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the time within which `percent` of a hundred requests were answered: 100 for the longest.
    pub fn percentile(&self, percent: usize) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((self.0.len() * percent / 100).min(last)).copied().unwrap_or(f64::INFINITY)
    }
}

/// Stores a small file below `directory`, in a session of its own.
pub async fn store(client: &Client, directory: &str, number: usize) -> Result<()> {
    let path = format!("{directory}/{number:06}");
    let path = path.parse().map_err(|why| anyhow!("{path}: {why}"))?;
    let options = PutOptions { bytes: Some(8), ..PutOptions::default() };
    let stored = async {
        let mut writer = client.create(&path, &options, Attributes::default()).await?;
        writer.write(&number.to_le_bytes()).await?;
        writer.finish().await
    };
    stored.await.map(|_| ()).map_err(library::said)
}
