//! The rate estimate of each donor, as its client measures it, and the window that follows from it: how many bytes
//! may be on their way to one donor.
//!
//! The window of a donor follows what it really delivers, so a slow donor holds one chunk while
//! fast ones stream: it gets fewer chunks and stalls nobody.

use crate::clock::Tick;
use crate::ids::DonorId;
use crate::load::HOT;
use std::time::Duration;

/// The seconds of queued work that a donor's window aims at: enough to hide any turnaround on a LAN, and all that is
/// lost when a donor dies or slows down.
const TARGET_DELAY_S: f64 = 0.25;
/// The most bytes that a donor may owe, unless [`PIPELINE`] chunks are more: a larger window fills no LAN better and
/// only costs the client memory.
const MAX_WINDOW: u64 = 16 << 20;
/// The number of chunks in flight below which the pipe drains between two chunks.
const PIPELINE: u64 = 2;
/// The seconds for [`PIPELINE`] chunks above which the pipe to a donor may drain, so that a donor that slows down
/// holds up no more than one chunk.
const PIPELINE_DELAY_S: f64 = 1.0;
/// The divisor of the bytes that the donor has delivered: a window beyond [`PIPELINE`] chunks grows to the quotient
/// at most, so that a short transfer never ends waiting for a queue that was filled on the evidence of one chunk.
const TRUST: u64 = 4;
/// The busy time, in seconds, in which the weight of earlier answers falls to 1/e, unless [`MEMORY_BYTES`] come sooner.
const MEMORY_S: f64 = 0.5;
/// The bytes in which the weight of earlier answers falls to 1/e: acknowledgements come in bursts, and a donor that
/// was stuck for long must be believed again after a few chunks.
const MEMORY_BYTES: f64 = (64 << 20) as f64;
/// The bytes a second expected of a donor that was not met yet: a gigabit link.
const UNKNOWN_RATE: f64 = 125e6;
/// The least share of a donor's rate that is expected under any load, so that no copy counts as out of reach.
const LEAST_LEFT: f64 = 0.05;
/// The bytes a second of the slowest link that a donor not met yet may have without being taken for hung: if more were
/// expected, every read over 100 Mb/s would ask for its first chunks twice.
const SLOW_RATE: f64 = 12.5e6;

/// The time for which a donor's word on its limit holds: an owner's machine is idle again sooner or later, and a donor
/// that is asked for nothing cannot say so.
pub const LIMIT_HOLDS: Duration = Duration::from_secs(5);

/// The speed of one donor as a client knows it.
#[derive(Debug, Clone, Default)]
pub struct RateEstimate {
    outstanding: u64,
    /// The bytes delivered and the busy seconds that took, both fading with age: their quotient stands still when
    /// acknowledgements arrive in bursts, where a mean of quotients would explode.
    delivered: f64,
    busy: f64,
    /// The bytes that the donor ever delivered.
    total: u64,
    /// The time at which the donor last became busy or made progress.
    since: Tick,
    failures: u32,
    /// The bytes a second that are expected of the donor until its first answer.
    expected: Option<f64>,
    /// The bytes a second that the donor says that it moves at most, because it yields to its owner, and until when its
    /// word holds.
    limit: Option<(f64, Tick)>,
    /// The bytes a second that others, or earlier work, saw of the donor.
    usual: Option<f64>,
    /// True if others than Potluck had more than half of the donor when it was met.
    is_hot: bool,
    /// The bytes that had come from the donor when it fell silent, while it is silent.
    silent_at: Option<u64>,
}

impl RateEstimate {
    /// Makes an estimate that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an estimate of a donor that usually moves so many bytes a second, as far as that is known, and has this load
    /// by others. Of D_max the share min(1 - used, 1/(n + 1)) is expected, where the load is what that leaves of one
    /// (docs/papers.md, CEFT). The expectation decides whom to ask first, and not when an answer is late, because this
    /// client's own line may be slower.
    pub fn expecting(usual: Option<f64>, load: f32) -> Self {
        let usual = usual.filter(|rate| *rate > 0.0);
        let left = f64::from(1.0 - load).clamp(LEAST_LEFT, 1.0);
        let expected = Some(usual.unwrap_or(UNKNOWN_RATE) * left);
        Self { expected, usual, is_hot: load > HOT, ..Self::default() }
    }

    /// Notes at `now` that the donor says that it moves so many bytes a second at most; `None` for no limit.
    pub fn limited(&mut self, limit: Option<u64>, now: Tick) {
        self.limit = limit.map(|limit| ((limit as f64).max(1.0), now + LIMIT_HOLDS));
    }

    /// Forgets what the donor said of its limit too long ago.
    pub fn forget_old_limit(&mut self, now: Tick) {
        self.limit = self.limit.filter(|(_, until)| now < *until);
    }

    /// Returns whether the donor said lately that it moves no more than it may for its owner's sake.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns a rate as far as the donor's limit lets it be true.
    fn within_limit(&self, rate: f64) -> f64 {
        self.limit.map_or(rate, |(limit, _)| rate.min(limit))
    }

    /// Notes that a request of `bytes` left for the donor.
    pub fn sent(&mut self, bytes: u32, now: Tick) {
        if self.outstanding == 0 {
            self.since = now;
        }
        self.outstanding += u64::from(bytes);
    }

    /// Notes that a request sent at `sent_at` was answered in full.
    pub fn acked(&mut self, bytes: u32, sent_at: Tick, now: Tick) {
        let span = now.saturating_sub(self.since.max(sent_at)).as_secs_f64();
        let bytes_f = f64::from(bytes);
        let age = span / MEMORY_S;
        let kept = (-age.max(bytes_f / MEMORY_BYTES)).exp();
        // The early part of a long span is half forgotten itself when the span ends.
        let seen = if age > 1e-6 { (1.0 - (-age).exp()) / age } else { 1.0 };
        self.delivered = self.delivered * kept + bytes_f * seen;
        self.busy = self.busy * kept + span * seen;
        self.total = self.total.saturating_add(u64::from(bytes));
        self.since = now;
        self.failures = 0;
        self.silent_at = None;
        self.outstanding = self.outstanding.saturating_sub(u64::from(bytes));
    }

    /// Notes that a request failed or was given up.
    pub fn failed(&mut self, bytes: u32) {
        self.outstanding = self.outstanding.saturating_sub(u64::from(bytes));
        self.failures = self.failures.saturating_add(1);
    }

    /// Notes that a request is not waited for any more, by no fault of the donor.
    pub fn withdrawn(&mut self, bytes: u32) {
        self.outstanding = self.outstanding.saturating_sub(u64::from(bytes));
    }

    /// Notes that the donor owes an answer and nothing came for a while after `heard` bytes.
    pub fn fell_silent(&mut self, heard: u64) {
        self.silent_at = Some(heard);
    }

    /// Notes that the donor is silent no more if another number of bytes than before has come from it, or if the
    /// connection on which it was silent is gone.
    pub fn listen(&mut self, heard: Option<u64>) {
        self.silent_at = self.silent_at.filter(|before| heard == Some(*before));
    }

    /// Returns whether the donor owes an answer and nothing comes from it.
    pub fn is_silent(&self) -> bool {
        self.silent_at.is_some()
    }

    /// Returns the time in which so many more bytes come at the donor's rate, as far as that is known.
    pub fn time_for(&self, bytes: u32) -> Duration {
        let rate = self.rate().or(self.expected).unwrap_or(UNKNOWN_RATE);
        Duration::try_from_secs_f64(f64::from(bytes) / rate).unwrap_or(Duration::MAX)
    }

    /// Returns whether the donor gives less than half of what it could: by its rate once it answered, and by its load
    /// before.
    pub fn is_slowed(&self) -> bool {
        match (self.rate(), self.usual) {
            (Some(rate), Some(usual)) => rate < usual / 2.0,
            (Some(_), None) => false,
            (None, _) => self.is_hot,
        }
    }

    /// Returns the number of requests that failed or were given up since the last that was answered.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the time at which the donor last became busy or made progress.
    pub fn since(&self) -> Tick {
        self.since
    }

    /// Returns the number of bytes that were requested and not answered.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Returns the bytes a second that the donor delivers while it has something to do: the time for which requests
    /// wait in its queue does not count against it. `None` before the first answer.
    pub fn rate(&self) -> Option<f64> {
        (self.delivered > 0.0).then(|| self.delivered / self.busy.max(1e-6))
    }

    /// Returns the bytes that the donor may owe when requests are about `chunk` bytes.
    pub fn window(&self, chunk: u32) -> u64 {
        let chunk = u64::from(chunk);
        if self.failures > 0 {
            return chunk;
        }
        let pipeline = PIPELINE * chunk;
        let most = (self.total / TRUST).min(MAX_WINDOW).max(pipeline);
        match self.rate() {
            None => pipeline,
            Some(rate) => {
                let rate = self.within_limit(rate);
                let both = (rate * PIPELINE_DELAY_S) as u64 >= pipeline;
                let least = if both { pipeline } else { chunk };
                ((rate * TARGET_DELAY_S) as u64).clamp(least, most)
            }
        }
    }

    /// Returns whether another request of `chunk` bytes may be sent now.
    pub fn has_room(&self, chunk: u32) -> bool {
        self.outstanding == 0 || self.outstanding + u64::from(chunk) <= self.window(chunk)
    }

    /// Returns the time until `bytes` more are here; each failure in a row doubles it, up to 16 times.
    pub fn expected_finish(&self, bytes: u32) -> Duration {
        self.finish(bytes, self.expected.unwrap_or(UNKNOWN_RATE))
    }

    /// Returns the time after which `bytes` more are late. A donor not met yet may have a slow link.
    pub fn latest_finish(&self, bytes: u32) -> Duration {
        self.finish(bytes, SLOW_RATE)
    }

    fn finish(&self, bytes: u32, unknown: f64) -> Duration {
        let owed = (self.outstanding + u64::from(bytes)) as f64;
        let doubt = 2_f64.powi(self.failures.min(16) as i32);
        let seconds = owed / self.within_limit(self.rate().unwrap_or(unknown)) * doubt;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// Returns the donor with room that is expected to finish a chunk first; `None` when all windows are full.
pub fn choose<'a>(
    candidates: impl Iterator<Item = (DonorId, &'a RateEstimate)>,
    chunk: u32,
) -> Option<DonorId> {
    candidates
        .filter(|(_, estimate)| estimate.has_room(chunk))
        .min_by_key(|(donor, estimate)| {
            (estimate.expected_finish(chunk), estimate.outstanding(), *donor)
        })
        .map(|(donor, _)| donor)
}
