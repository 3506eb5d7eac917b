//! Bodies in slices. The answer to a get can be many seconds of a slow line, and its reader may have the chunk from
//! another donor meanwhile. So its body has a mark between slices, at which the donor may end it because its reader has
//! stopped it ([`Request::Stop`](super::Request::Stop)).
//!
//! The marks have no codes of their own: whoever changes one on the wire breaks the next frame, as he could anyway.

use super::{BulkIo, FrameError, Inbox};
use std::ops::Range;

/// The number of bytes of a slice; the last one of a body may be shorter. Clients receive and hash as much at a time,
/// so that marks cost no wake-ups; over 100 Mb/s it takes 84 ms.
pub const SLICE: u32 = 1 << 20;

const STOPPED: u8 = 0;
const GOES_ON: u8 = 1;

/// The mark before a slice that is not the first one.
pub const SLICE_FOLLOWS: [u8; 1] = [GOES_ON];
/// The mark after which nothing more of a body comes.
pub const BODY_STOPPED: [u8; 1] = [STOPPED];

/// Returns the parts of the stored bytes `range` that are sent as slices, where `before` bytes of the body come before
/// them in the first slice.
pub fn slices(before: u32, range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let mut at = range.start;
    let mut room = SLICE.saturating_sub(before);
    std::iter::from_fn(move || {
        let slice = at..range.end.min(at.saturating_add(room));
        (at, room) = (slice.end, SLICE);
        (!slice.is_empty()).then_some(slice)
    })
}

/// The body of the answer to a get while it is received.
#[derive(Debug)]
pub struct SlicedBody {
    /// The bytes of the body that did not come yet.
    left: u32,
    /// The bytes of the current slice that did not come yet.
    left_of_slice: u32,
}

/// What was received of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadBody {
    /// The next bytes of the body came, so many of them.
    Bytes(usize),
    /// The donor stopped the body: nothing more of it comes.
    Stopped,
}

impl SlicedBody {
    /// Makes the body of `len` bytes of an answer whose head was just received.
    pub fn new(len: u32) -> Self {
        Self { left: len, left_of_slice: len.min(SLICE) }
    }

    /// Receives some of the next bytes into `out`, which must not be empty, nor longer than what is left of the body.
    /// Nothing is lost if the future is dropped before it is done.
    pub async fn read(
        &mut self,
        inbox: &mut Inbox,
        io: &mut impl BulkIo,
        out: &mut [u8],
    ) -> Result<ReadBody, FrameError> {
        if self.left_of_slice == 0 {
            match inbox.byte(io).await? {
                STOPPED => return Ok(ReadBody::Stopped),
                GOES_ON => self.left_of_slice = self.left.min(SLICE),
                _ => return Err(FrameError::Malformed("unknown mark in a body")),
            }
        }
        let most = out.len().min(self.left_of_slice as usize);
        let read = inbox.body(io, &mut out[..most]).await?;
        self.left -= read as u32;
        self.left_of_slice -= read as u32;
        Ok(ReadBody::Bytes(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::{SessionKeys, StreamIo};
    use crate::ticket::Secret;
    use std::io::Cursor;

    #[test]
    fn slices_cover_a_range_once_and_in_order() {
        let all = |before, range| slices(before, range).collect::<Vec<_>>();
        assert_eq!(all(0, 5..5), []);
        assert!(all(0, 0..SLICE).into_iter().eq(std::iter::once(0..SLICE)));
        assert_eq!(all(64, 7..SLICE + 7), [7..SLICE - 57, SLICE - 57..SLICE + 7]);
        assert_eq!(
            all(0, 0..2 * SLICE + 1),
            [0..SLICE, SLICE..2 * SLICE, 2 * SLICE..2 * SLICE + 1]
        );
    }

    #[tokio::test]
    async fn a_body_is_read_across_marks_until_it_is_stopped() {
        let len = 2 * SLICE + 3;
        let body: Vec<u8> = (0..len).map(|at| (at ^ (at >> 11)) as u8).collect();
        for stopped in [false, true] {
            let (head, rest) = body.split_at(SLICE as usize);
            let mut sent = [head, &SLICE_FOLLOWS, &rest[..SLICE as usize]].concat();
            match stopped {
                true => sent.extend(BODY_STOPPED),
                false => sent.extend([&SLICE_FOLLOWS, &rest[SLICE as usize..]].concat()),
            }
            let lane = SessionKeys::derive(&Secret::from_bytes([7; 32]), &[1; 16], &[2; 16]).donor;
            let mut io = StreamIo(tokio::io::join(Cursor::new(sent), tokio::io::sink()));
            let mut inbox = Inbox::new(lane, &[]).expect("an inbox");
            let (mut receiving, mut got) = (SlicedBody::new(len), vec![0; len as usize]);
            let mut filled = 0;
            let ended = loop {
                let read = receiving.read(&mut inbox, &mut io, &mut got[filled..]).await;
                match read.expect("a body") {
                    ReadBody::Bytes(read) => filled += read,
                    ReadBody::Stopped => break true,
                }
                if filled == got.len() {
                    break false;
                }
            };
            assert_eq!(ended, stopped);
            assert_eq!(filled, if stopped { 2 * SLICE as usize } else { len as usize });
            assert!(got[..filled] == body[..filled]);
        }
    }
}
