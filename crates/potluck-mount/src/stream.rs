//! Streams a file to donors as it is written. Bytes that donors do not have yet wait in memory (the window), or in
//! temporary files on this machine (incremental write); a task pushes them in order.

use crate::errno::errno;
use crate::spool::{Spool, Temporary};
use crate::write_limits::WriteLimits;
use potluck_client::Writer;
use potluck_wire::env;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;

/// The most bytes to which small writes are joined before they are pushed.
const PIECE: u64 = 1 << 20;
/// The number of temporary files whose bytes one file may have waiting: one that is written, one that is pushed, and
/// those between.
const TEMPORARIES: u64 = 4;

/// A file that is being streamed. If it is dropped before [`FileStream::end`], the file is given up.
pub struct FileStream {
    limits: Arc<WriteLimits>,
    spool: Arc<Spool>,
    queue: Arc<Queue>,
    /// The temporary file that is being written, and the offset at which the next bytes go.
    temporary: Option<(Arc<Temporary>, u64)>,
    pushing: JoinHandle<Result<Box<Writer>, Errno>>,
    _slot: OwnedSemaphorePermit,
}

/// The items that are to be pushed, in order.
#[derive(Default)]
struct Queue {
    state: Mutex<Queued>,
    /// Notified when an item came.
    arrived: Notify,
    /// Notified when bytes of a temporary file were pushed, or nothing will be pushed any more.
    pushed: Notify,
}

#[derive(Default)]
struct Queued {
    items: VecDeque<Item>,
    /// The number of bytes in temporary files that are not pushed yet.
    in_temporaries: u64,
    /// The reason why nothing is pushed any more.
    failure: Option<Errno>,
}

enum Item {
    /// Bytes in memory, with their room in the window.
    Memory(Vec<u8>, OwnedSemaphorePermit),
    Temporary(Arc<Temporary>, Range<u64>),
    /// A request that is answered when donors have all bytes before it.
    Flush(oneshot::Sender<()>),
    /// The end of the file, after which nothing follows.
    End,
}

impl FileStream {
    /// Begins to push to `writer`. `slot` is the permit to stream a file ([`WriteLimits::stream`]).
    pub fn begin(
        writer: Box<Writer>,
        limits: Arc<WriteLimits>,
        spool: Arc<Spool>,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        let queue = Arc::<Queue>::default();
        let pushing = env::spawn(push(Arc::clone(&queue), writer));
        Self { limits, spool, queue, temporary: None, pushing, _slot: slot }
    }

    /// Adds bytes at the end; returns when they are in the window or in a temporary file.
    ///
    /// Errors: what ended the pushing, once it has ended; or a failure of the spool.
    pub async fn write(&mut self, bytes: Vec<u8>) -> Result<(), Errno> {
        self.queue.check()?;
        match self.limits.room(bytes.len()).await {
            Some(room) => self.queue.add_memory(bytes, room),
            None => self.write_temporary(bytes).await?,
        }
        self.queue.check()
    }

    /// Returns when donors have all that was written, at the ack level of the policy.
    pub async fn flush(&mut self) -> Result<(), Errno> {
        let (done, flushed) = oneshot::channel();
        self.queue.add(Item::Flush(done));
        flushed.await.map_err(|_| self.queue.check().err().unwrap_or(Errno::IO))
    }

    /// Returns the writer when all bytes are pushed to it.
    pub async fn end(mut self) -> Result<Box<Writer>, Errno> {
        self.queue.add(Item::End);
        (&mut self.pushing).await.map_err(|_| Errno::IO)?
    }

    /// Adds bytes in a temporary file, as soon as more may wait there; or, if the spool has no room and none is to
    /// come, in the window.
    async fn write_temporary(&mut self, bytes: Vec<u8>) -> Result<(), Errno> {
        let (len, queue) = (bytes.len() as u64, Arc::clone(&self.queue));
        loop {
            let pushed = queue.pushed.notified();
            queue.check()?;
            let waiting = queue.state().in_temporaries;
            if waiting > 0 && waiting + len > TEMPORARIES * self.limits.temporary_size() {
                pushed.await;
                continue;
            }
            match self.append(&bytes) {
                Ok((temporary, range)) => {
                    queue.add_temporary(temporary, range);
                    return Ok(());
                }
                // Bytes that are pushed give their room back.
                Err(Errno::NOSPC) if waiting > 0 => pushed.await,
                Err(Errno::NOSPC) => {
                    let room = self.limits.room_some_time(bytes.len()).await;
                    queue.add_memory(bytes, room);
                    return Ok(());
                }
                Err(why) => return Err(why),
            }
        }
    }

    /// Writes to the temporary file, or to a new one if the bytes do not fit.
    fn append(&mut self, bytes: &[u8]) -> Result<(Arc<Temporary>, Range<u64>), Errno> {
        let len = bytes.len() as u64;
        let most = self.limits.temporary_size();
        let (temporary, at) = match self.temporary.take().filter(|(_, at)| at + len <= most) {
            Some(current) => current,
            None => (Arc::new(Temporary::new(&self.spool)?), 0),
        };
        let written = temporary.write(at, bytes);
        let end = if written.is_ok() { at + len } else { at };
        self.temporary = Some((Arc::clone(&temporary), end));
        written.map(|()| (temporary, at..end))
    }
}

impl Drop for FileStream {
    fn drop(&mut self) {
        self.pushing.abort(); // its writer is dropped with it, and so the file is given up
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, Queued> {
        self.state.lock().expect("no holder panics")
    }

    fn check(&self) -> Result<(), Errno> {
        self.state().failure.map_or(Ok(()), Err)
    }

    /// Adds an item; if nothing is pushed any more it is dropped.
    fn add(&self, item: Item) {
        let mut state = self.state();
        if state.failure.is_none() {
            state.items.push_back(item);
            self.arrived.notify_one();
        }
    }

    fn add_memory(&self, mut bytes: Vec<u8>, room: OwnedSemaphorePermit) {
        let mut state = self.state();
        if let Some(Item::Memory(before, their_room)) = state.items.back_mut()
            && (before.len() + bytes.len()) as u64 <= PIECE
        {
            before.append(&mut bytes);
            their_room.merge(room);
            return;
        }
        drop(state);
        self.add(Item::Memory(bytes, room));
    }

    fn add_temporary(&self, temporary: Arc<Temporary>, range: Range<u64>) {
        let mut state = self.state();
        state.in_temporaries += range.end - range.start;
        if let Some(Item::Temporary(before, their_range)) = state.items.back_mut()
            && Arc::ptr_eq(before, &temporary)
            && their_range.end == range.start
            && range.end - their_range.start <= PIECE
        {
            their_range.end = range.end;
            return;
        }
        drop(state);
        self.add(Item::Temporary(temporary, range));
    }

    async fn next(&self) -> Item {
        loop {
            let arrived = self.arrived.notified();
            if let Some(item) = self.state().items.pop_front() {
                return item;
            }
            arrived.await;
        }
    }

    /// Notes that bytes of a temporary file were pushed.
    fn pushed(&self, bytes: u64) {
        self.state().in_temporaries -= bytes;
        self.pushed.notify_waiters();
    }

    /// Notes that nothing will be pushed any more.
    fn fail(&self, why: Errno) {
        let mut state = self.state();
        state.failure = Some(why);
        state.items.clear(); // a task that waits for an item, or for its room, goes on
        drop(state);
        self.pushed.notify_waiters();
    }
}

/// Pushes the items of the queue to a writer, and returns the writer at the end.
async fn push(queue: Arc<Queue>, mut writer: Box<Writer>) -> Result<Box<Writer>, Errno> {
    loop {
        let pushed = match queue.next().await {
            Item::Memory(bytes, _room) => {
                writer.write_owned(bytes).await.map_err(|why| errno(&why))
            }
            Item::Temporary(temporary, range) => {
                push_temporary(&queue, &mut writer, &temporary, range).await
            }
            Item::Flush(done) => {
                let flushed = writer.flush().await.map_err(|why| errno(&why));
                flushed.map(|_| {
                    let _ = done.send(()); // the asking task may be gone
                })
            }
            Item::End => return Ok(writer),
        };
        if let Err(why) = pushed {
            queue.fail(why);
            return Err(why);
        }
    }
}

async fn push_temporary(
    queue: &Queue,
    writer: &mut Writer,
    temporary: &Temporary,
    range: Range<u64>,
) -> Result<(), Errno> {
    let len = range.end - range.start;
    let bytes = temporary.read(range)?;
    writer.write_owned(bytes).await.map_err(|why| errno(&why))?;
    queue.pushed(len);
    Ok(())
}
