//! Has a copy of the log follow the catalog, wherever the copy is kept.

use super::block::{self, CutChanges};
use potluck_catalog::{Advance, Catalog, Error, LogAhead, LogCopy, Position};
use potluck_core::ids::Epoch;
use potluck_wire::env::Offload;

/// The number of rows of changes that are read at once.
const ROWS: usize = 1000;

/// A place where a copy of the log is kept.
pub trait Sink {
    /// The copy of the log that is kept in this place.
    const COPY: LogCopy;
    /// The reason why a copy cannot be written.
    type Trouble: From<Error>;

    /// Returns whether the copy that is there can be added to after `position`.
    fn goes_on(
        &self,
        position: &Position,
    ) -> impl Future<Output = Result<bool, Self::Trouble>> + Send;

    /// Begins a new generation with a base, in the place of the one that `before` is in, and notes it.
    fn begin(
        &mut self,
        before: Option<Position>,
    ) -> impl Future<Output = Result<(), Self::Trouble>> + Send;

    /// Adds changes after `before`, and notes them.
    fn add(
        &mut self,
        before: Position,
        changes: CutChanges,
    ) -> impl Future<Output = Result<(), Self::Trouble>> + Send;
}

/// Gives a copy all changes that were made when this began, with a new base if one is due at the wall time
/// `now_ms`. Changes that are made meanwhile may wait for the next time: under a load without pauses this would
/// otherwise never end, and write a block for each commit.
pub async fn catch_up<S: Sink>(
    sink: &mut S,
    catalog: &Catalog,
    epoch: Epoch,
    now_ms: i64,
    offload: Offload,
) -> Result<(), S::Trouble> {
    let mut until = None;
    loop {
        let LogAhead { position, changes, last, files } = catalog.log_ahead(S::COPY, ROWS).await?;
        let until = *until.get_or_insert(last);
        let before = match position {
            Some(at) if !at.is_worn(now_ms) && sink.goes_on(&at).await? => at,
            before => {
                sink.begin(before).await?;
                continue;
            }
        };
        let Some(changes) = changes.filter(|_| before.change < until) else { return Ok(()) };
        let change = changes.last;
        let blocks = offload.run(move || block::cut(&changes.records)).await?;
        if blocks.is_empty() {
            // The changed things are not there any more, so there are no records to write.
            let after = Position { change, ..before.clone() };
            let advance = Advance { copy: S::COPY, before: Some(before), after, epoch };
            catalog.note_log(Some(advance)).await?;
        } else {
            sink.add(before, CutChanges { last: change, files, blocks }).await?;
        }
    }
}
