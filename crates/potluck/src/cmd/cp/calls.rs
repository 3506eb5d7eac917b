//! Makes many calls to the manager, a limited number of them at the same time.

use futures_util::stream::{self, StreamExt};

/// The most calls to the manager at the same time.
const CALLS_AT_ONCE: usize = 16;

/// Makes calls to the manager, up to [`CALLS_AT_ONCE`] at the same time; returns the answers in the order in which they
/// come.
pub async fn some_at_once<T>(calls: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    stream::iter(calls).buffer_unordered(CALLS_AT_ONCE).collect().await
}
