//! Calls about many directories: some of them at the same time.

use futures_util::stream::{self, StreamExt};

/// Calls to the manager about directories at the same time.
const CALLS_AT_ONCE: usize = 16;

/// Makes calls to the manager, [`CALLS_AT_ONCE`] at the same time; gives the answers as they come.
pub async fn some_at_once<T>(calls: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    stream::iter(calls).buffer_unordered(CALLS_AT_ONCE).collect().await
}
