//! A version of a file that is open for reading, whatever becomes of the file's name.

use potluck_client::{File, Part, Reader};
use potluck_core::attributes::EntryAttributes;
use potluck_wire::error::Failure;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex as SyncMutex};
use tokio::sync::Mutex;

/// One version that programs read through one handle.
pub struct Reading {
    file: File,
    attributes: SyncMutex<EntryAttributes>,
    order: Mutex<InOrder>,
}

/// The offset up to which the file was read in order, and the bytes that were read ahead from there.
#[derive(Default)]
struct InOrder {
    /// The offset at which the next read begins if it goes on in order.
    next: u64,
    /// The reader that fetches ahead; `None` while reads are not in order.
    reader: Option<Reader>,
    /// The bytes that the reader returned last, and the number of them that the program got.
    part: Option<(Arc<Part>, usize)>,
}

/// The bytes of one read.
pub enum ReadBytes {
    /// A copy of them.
    Own(Vec<u8>),
    /// A range of the part of the file that they were fetched with.
    Of(Arc<Part>, Range<usize>),
}

impl ReadBytes {
    /// Returns a copy of the bytes that is the caller's own.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Own(bytes) => bytes,
            Self::Of(part, range) => part[range].to_vec(),
        }
    }
}

impl Deref for ReadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Of(part, range) => &part[range.clone()],
        }
    }
}

impl Reading {
    /// Makes a reading of a version.
    pub fn new(file: File) -> Self {
        let attributes = SyncMutex::new(file.attributes());
        Self { file, attributes, order: Mutex::default() }
    }

    /// Returns the version that is read.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the attributes of the version, as far as this mount knows.
    pub fn attributes(&self) -> EntryAttributes {
        *self.attributes.lock().expect("no holder panics")
    }

    /// Notes that the attributes of the version were set.
    pub fn note_attributes(&self, attributes: EntryAttributes) {
        *self.attributes.lock().expect("no holder panics") = attributes;
    }

    /// Returns the bytes at `offset`, as many as are asked for or the file has. A read that goes on where the last one
    /// ended has the following bytes fetched ahead; any other read fetches only the segments that it touches.
    pub async fn read(&self, offset: u64, len: usize) -> Result<ReadBytes, Failure> {
        let mut order = self.order.lock().await;
        if offset != order.next || offset == 0 {
            *order = InOrder::default();
            order.next = offset + len as u64;
            drop(order); // reads that are not in order do not wait for one another
            return self.file.read_at(offset, len).await.map(ReadBytes::Own);
        }
        if order.reader.is_none() {
            order.reader = Some(self.file.read(offset..self.file.size()));
        }
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let Some((part, given)) = &mut order.part else {
                match order.reader.as_mut().expect("just made").next().await {
                    Some(Ok(part)) => order.part = Some((Arc::new(part), 0)),
                    Some(Err(failure)) => {
                        *order = InOrder::default();
                        return Err(failure);
                    }
                    None => break,
                }
                continue;
            };
            let range = *given..part.len().min(*given + len - bytes.len());
            *given = range.end;
            let part = Arc::clone(part);
            if range.end == part.len() {
                order.part = None; // its memory is needed for the next part
            }
            if range.len() == len {
                order.next = offset + len as u64;
                return Ok(ReadBytes::Of(part, range));
            }
            bytes.reserve_exact(len - bytes.len());
            bytes.extend_from_slice(&part[range]);
        }
        order.next = offset + bytes.len() as u64;
        Ok(ReadBytes::Own(bytes))
    }
}
