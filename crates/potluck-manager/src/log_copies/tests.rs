//! Tests that the copies of the log catch up with the catalog.

use super::copy_on_donors::{EVERY, after_failure};
use crate::handles::Handles;
use crate::tasks::repair::tests::still;
use potluck_catalog::fixture::new_space;
use potluck_catalog::{Advance, ChangeNumber, Error, LogCopy, Position};
use potluck_core::policy::Policy;
use potluck_recovery::log::block::CutChanges;
use potluck_recovery::log::copying::{Sink, catch_up};

#[test]
fn failing_log_copies_back_off_up_to_a_minute() {
    let pauses: Vec<u64> = std::iter::successors(Some(EVERY), |pause| Some(after_failure(*pause)))
        .map(|pause| pause.as_secs())
        .take(8)
        .collect();
    assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
}

/// A place that is written to while more is changed.
struct Busy {
    manager: Handles,
    written: u64,
    bases: u64,
    /// The wall time of the last base.
    begun_ms: i64,
    now_ms: i64,
}

impl Busy {
    fn new(manager: &Handles) -> Self {
        Self { manager: manager.clone(), written: 0, bases: 0, begun_ms: 0, now_ms: 0 }
    }
}

impl Busy {
    async fn change(&self) {
        let name = format!("space-{}", self.written);
        let made = self
            .manager
            .catalog
            .create_space(new_space(&name, Policy::default(), None), None, 0)
            .await;
        made.expect("a space");
    }

    async fn note(
        &mut self,
        before: Option<Position>,
        change: ChangeNumber,
        blocks_since: u64,
    ) -> Result<(), Error> {
        self.written += 1;
        assert!(self.written < 10, "it never ends");
        self.change().await;
        let at = serde_json::json!({
            "generation": 1, "key": "00".repeat(32), "sequence": self.written, "last": "00".repeat(32), "epoch": 1,
            "attempt": 1, "change": change, "begun_ms": self.begun_ms, "base": { "blocks": 1, "lines": 9, "bytes": 900 },
            "log": { "blocks": blocks_since, "lines": 9, "bytes": 900 * blocks_since },
        });
        let after = serde_json::from_value(at).expect("a position");
        let (copy, epoch) = (LogCopy::InFile, self.manager.term.epoch());
        self.manager.catalog.note_log(Some(Advance { copy, before, after, epoch })).await
    }
}

impl Sink for Busy {
    const COPY: LogCopy = LogCopy::InFile;
    type Trouble = Error;

    async fn goes_on(&self, _: &Position) -> Result<bool, Error> {
        Ok(true)
    }

    async fn begin(&mut self, before: Option<Position>) -> Result<(), Error> {
        let last = self.manager.catalog.log_ahead(LogCopy::InFile, 0).await?.last;
        (self.bases, self.begun_ms) = (self.bases + 1, self.now_ms);
        self.note(before, last, 0).await
    }

    async fn add(&mut self, before: Position, changes: CutChanges) -> Result<(), Error> {
        assert!(!changes.blocks.is_empty());
        let blocks = before.log.blocks + changes.blocks.len() as u64;
        self.note(Some(before), changes.last, blocks).await
    }
}

#[tokio::test]
async fn changes_during_a_log_copy_wait_for_the_next_round() {
    let (_dir, manager) = still().await;
    let mut busy = Busy::new(&manager);
    let (epoch, offload) = (manager.term.epoch(), manager.env.offload);
    for round in 1..4 {
        catch_up(&mut busy, &manager.catalog, epoch, 0, offload).await.expect("written");
        assert_eq!(busy.written, round, "a base, and then once a round");
        let ahead = manager.catalog.log_ahead(LogCopy::InFile, 0).await.expect("read");
        assert_eq!(ahead.waiting(), 2, "a space, and the attributes of its root");
    }
}

#[tokio::test]
async fn log_copy_restarts_from_a_new_base_when_stale() {
    let (_dir, manager) = still().await;
    let mut busy = Busy::new(&manager);
    let (epoch, offload) = (manager.term.epoch(), manager.env.offload);
    let day_ms = 24 * 3600 * 1000;
    for (now_ms, bases) in [(0, 1), (1000, 1), (day_ms - 1, 1), (day_ms, 2), (day_ms, 2)] {
        busy.now_ms = now_ms;
        let caught_up = catch_up(&mut busy, &manager.catalog, epoch, now_ms, offload).await;
        caught_up.expect("written");
        assert_eq!(busy.bases, bases, "{now_ms}");
    }
}
