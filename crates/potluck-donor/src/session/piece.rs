//! Memory into which bodies are received, piece by piece. A byte costs a quarter less in a long piece than in a short
//! one, for the page cache takes a long write in few large parts. Only some connections at once have a long piece, so
//! that a donor with many clients needs little memory.

use potluck_wire::bulk::PIECE;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The size in bytes of a long piece. This size was the cheapest among those from 256 KiB to 2 MiB.
const LONG: usize = 1 << 20;
/// The most connections that have a long piece at once.
const LONG_AT_ONCE: usize = 8;

/// The permits for long pieces, which all connections share.
#[derive(Debug, Clone)]
pub(crate) struct LongPieces(Arc<Semaphore>);

impl Default for LongPieces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LONG_AT_ONCE)))
    }
}

/// The buffer of one connection, which is empty until the first put.
#[derive(Debug, Default)]
pub(super) struct PieceBuffer {
    bytes: Vec<u8>,
    long: Option<OwnedSemaphorePermit>,
}

impl PieceBuffer {
    /// Makes room for a piece of a chunk of `len` bytes and for `tail` bytes behind it; returns the size of the piece
    /// in bytes.
    pub fn make_room(&mut self, len: u32, tail: usize, long_pieces: &LongPieces) -> usize {
        if self.long.is_none() && len as usize > PIECE {
            self.long = Arc::clone(&long_pieces.0).try_acquire_owned().ok();
        }
        let most = if self.long.is_some() { LONG } else { PIECE };
        let size = most.min(len as usize);
        self.bytes.resize(self.bytes.len().max(size + tail), 0);
        size
    }

    /// Returns the first `len` bytes of the piece.
    pub fn first(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[..len]
    }

    /// Frees the buffer, and gives its permit for a long piece back.
    pub fn release(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_connections_have_long_pieces_and_all_others_short_ones() {
        let long_pieces = LongPieces::default();
        let mut pieces: Vec<PieceBuffer> = Vec::new();
        for _ in 0..LONG_AT_ONCE {
            let mut piece = PieceBuffer::default();
            assert_eq!(piece.make_room(4 << 20, 100, &long_pieces), LONG);
            assert_eq!(piece.first(LONG + 100).len(), LONG + 100);
            pieces.push(piece);
        }
        let mut late = PieceBuffer::default();
        assert_eq!(late.make_room(4 << 20, 100, &long_pieces), PIECE);
        assert_eq!(late.make_room(1000, 100, &long_pieces), 1000, "a small chunk needs no more");
        pieces[0].release();
        assert_eq!(late.make_room(4 << 20, 100, &long_pieces), LONG, "one was given back");
    }
}
