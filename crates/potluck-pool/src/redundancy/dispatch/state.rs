//! Sums up the state of repair, as people are told.

use crate::pool::Pool;
use crate::redundancy::repairs::{PROMISED_FIRST, UNREACHABLE};
use potluck_core::clock::Tick;
use potluck_core::repair_plan::eta;
use potluck_wire::control::RepairState;
use std::collections::BTreeSet;

impl Pool {
    /// Returns the state of repair.
    pub fn repair_state(&mut self, now: Tick) -> RepairState {
        let paused = self.repairs.paused.clone().or_else(|| self.too_many_dead());
        let stuck_why = self.repairs.stuck.why.map(|why| self.blocked(why, now));
        let changing_stuck_why = self.repairs.changing_stuck.why.map(|why| self.blocked(why, now));
        let repairs = &mut self.repairs;
        let rate = repairs.rate(now);
        let left = repairs.left();
        let bytes_left = left.bytes + repairs.writing.values().sum::<u64>();
        let planned = if rate > 0 { rate } else { repairs.pool.rate() };
        let after = |bytes| if paused.is_some() { None } else { eta(bytes, planned) };
        let stuck = repairs.changing_stuck.why.is_some() || left.goal_bytes == 0;
        // Nobody knows when these chunks can be made, so no time is told.
        let hopeless = repairs.stuck.chunks > 0 && repairs.under_way.is_empty();
        RepairState {
            not_known: None, // the last scan knows
            waits_for: Vec::new(),
            begins_seconds: None,
            eta_seconds: after(bytes_left).filter(|_| !hopeless),
            changing_eta_seconds: after(bytes_left + left.goal_bytes).filter(|_| !stuck),
            paused,
            queued: left.chunks,
            more: repairs.beyond.total(),
            bytes_left,
            under_way: repairs.under_way.len() as u64 + repairs.encodings.under_way(),
            stuck: repairs.stuck.chunks,
            stuck_why,
            changing: 0, // the catalog knows
            changing_bytes: 0,
            changing_stuck: repairs.changing_stuck.chunks,
            changing_stuck_why,
            excess: repairs.excess,
            made: repairs.made,
            made_bytes: repairs.made_bytes,
            rate,
            pool_budget: repairs.pool.rate(),
            donor_budget: repairs.donor_rate,
            scanned_seconds: repairs.scanned.map(|at| now.saturating_sub(at).as_secs()),
        }
    }
    /// Says why something cannot be made, with the donors that stand in its way.
    fn blocked(&self, why: &str, now: Tick) -> String {
        let donors = match why {
            UNREACHABLE => self.absent(now),
            PROMISED_FIRST => None,
            _ => self.unwilling(&BTreeSet::new(), now),
        };
        donors.map_or_else(|| why.to_owned(), |donors| format!("{why} ({donors})"))
    }
}
