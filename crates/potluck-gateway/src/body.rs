//! The bytes of a file as a body of HTTP.

use bytes::Bytes;
use futures_util::Stream;
use potluck_client::Reader;
use potluck_wire::error::Failure;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

type PartStream = Pin<Box<dyn Stream<Item = Result<Bytes, Failure>> + Send>>;

/// The bytes of a range of a file, in order.
pub struct FileBody {
    /// It is polled by one task, so the lock is never waited for; it makes the stream one that may be shared.
    stream: Mutex<PartStream>,
}

impl FileBody {
    /// Makes a body of all that `reader` still gives.
    pub fn new(reader: Reader) -> Self {
        let next = |mut reader: Reader| async move {
            let part = reader.next().await?;
            // The part holds memory that all reads share until it is dropped, and a client may take its time.
            let bytes = part.map(|part| Bytes::copy_from_slice(&part));
            Some((bytes, reader))
        };
        Self { stream: Mutex::new(Box::pin(futures_util::stream::unfold(reader, next))) }
    }
}

impl Stream for FileBody {
    type Item = Result<Bytes, Failure>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.get_mut().stream.get_mut().expect("no holder panics");
        stream.as_mut().poll_next(cx)
    }
}
