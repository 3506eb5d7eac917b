//! Measures how often something is done each second by several threads, and what their network interface received
//! meanwhile.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The time before anything counts, in which connections are made and rates are learnt.
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(3);

/// The result of a program that measures itself, which it prints as one line of JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rate {
    pub per_second: f64,
    /// The bytes that arrived on the interface for each repetition, with all headers.
    pub received: f64,
}

impl Rate {
    pub fn print(self) -> Result<()> {
        println!("{}", serde_json::to_string(&self)?);
        Ok(())
    }
}

/// Calls the work that `begin` makes for each thread again and again, each time with another number, and counts the
/// calls.
pub fn measure<W: FnMut(u64) -> Result<()>>(
    threads: usize,
    begin: impl Fn() -> Result<W> + Sync,
) -> Result<Rate> {
    let (count, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = |thread: usize| -> Result<()> {
        let mut work = begin()?;
        // Each thread has another sequence of numbers (splitmix64's increment, which comes from the golden ratio).
        let mut number = thread as u64;
        while !over.load(Ordering::Relaxed) {
            number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
            work(mixed(number)).inspect_err(|_| over.store(true, Ordering::Relaxed))?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        std::thread::sleep(WARM_UP);
        let (began, before, bytes) = (Instant::now(), count.load(Ordering::Relaxed), received()?);
        std::thread::sleep(MEASURED);
        let done = (count.load(Ordering::Relaxed) - before) as f64;
        let (took, bytes) = (began.elapsed().as_secs_f64(), received()? - bytes);
        over.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))?;
        Ok(Rate { per_second: done / took, received: bytes as f64 / done })
    })
}

/// Computes the output function of splitmix64.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the bytes that all interfaces of this network namespace but loopback have received.
fn received() -> Result<u64> {
    let table =
        fs::read_to_string("/proc/self/net/dev").context("cannot read /proc/self/net/dev")?;
    let interfaces = table.lines().filter_map(|line| line.split_once(':'));
    let bytes =
        |(_, counters): (&str, &str)| counters.split_whitespace().next()?.parse::<u64>().ok();
    Ok(interfaces.filter(|(name, _)| name.trim() != "lo").filter_map(bytes).sum())
}
