//! The names of chunks that ended sessions of a member offered and made no files of, until the chunks are reclaimed.

use potluck_core::clock::Tick;

/// The number of names a second that count no more: about half as many as donors are told to delete, so that no member
/// leaves more for long than is reclaimed.
const RECLAIMED: u64 = 1024;

/// The number of names that sessions of a member left when they ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeftNames {
    /// The number of names that counted at the moment `at`.
    count: u64,
    at: Tick,
}

impl LeftNames {
    /// Returns how many of the names count now.
    pub fn count(&self, now: Tick) -> u64 {
        let passed = now.saturating_sub(self.at).as_millis() as u64;
        self.count.saturating_sub(passed.saturating_mul(RECLAIMED) / 1000)
    }

    /// Adds names that a session left that was last heard at `heard`.
    pub fn add(&mut self, names: u64, heard: Tick) {
        let at = heard.max(self.at);
        *self = Self { count: self.count(at).saturating_add(names), at };
    }
}
