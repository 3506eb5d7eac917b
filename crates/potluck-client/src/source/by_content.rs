//! Cutting by content (FastCDC): the bytes before a place say whether a chunk ends there, so that inserted or removed
//! bytes change only the chunks around them, and the later chunks stay the same.

use super::{Current, Cutter, Piece};
use crate::body::Body;
use crate::buffer::Claim;
use fastcdc::v2020::FastCDC;
use potluck_core::chunk::Digest;
use potluck_core::merkle::SegmentHashes;
use potluck_core::recipe::CUT_BY_CONTENT_LEAST;
use std::io;

/// Returns the end of the first chunk of `bytes`. These are as many as the largest chunk has, or fewer at the end of
/// the file or part.
fn end_of_first(bytes: &[u8], largest: usize) -> usize {
    let least = largest / CUT_BY_CONTENT_LEAST as usize;
    if bytes.len() <= least {
        return bytes.len();
    }
    let cutter = FastCDC::new(bytes, least, largest / 2, largest);
    cutter.cut(0, bytes.len()).1
}

impl Cutter {
    /// Cuts the next chunk by content. The segments of such a chunk are not segments of its file, so it is hashed
    /// twice.
    pub(super) fn cut_by_content(
        &mut self,
        current: &mut Current,
        claim: &mut Claim,
    ) -> io::Result<Option<Piece>> {
        let uncut = current.uncut.len();
        let begin = current.size - uncut as u64;
        let left_in_part = self.part_bytes - begin % self.part_bytes;
        let most = left_in_part.min(self.chunk_size as u64) as usize;
        let want = uncut.saturating_add(current.most_left()).clamp(1, most);
        let mut body = claim.split(want).buffer(want);
        body[..uncut].copy_from_slice(&current.uncut);
        let mut digest = std::mem::take(&mut current.digest);
        let mut read = |current: &mut Current, body: &mut [u8]| {
            current.fill(body, |bytes| digest.update(bytes))
        };
        let mut len = uncut + read(current, &mut body[uncut..])?;
        if len < most && current.left == Some(0) && !current.at_end()? {
            // The file grew meanwhile, so a whole chunk is read, for only the last may be short.
            body.bytes_mut().resize(most, 0);
            len += read(current, &mut body[len..])?;
        }
        current.digest = digest;
        let is_end = len < most;
        body.bytes_mut().truncate(len);
        if len == 0 {
            current.ended = true;
            return Ok(None);
        }
        if self.inline && is_end && current.is_small_stream() {
            current.ended = true;
            current.digest = Default::default(); // inline content adds itself to the digest
            return Ok(Some(Piece::Inline(self.seal_inline(body.to_vec(), current))));
        }
        let end = end_of_first(&body, self.chunk_size);
        current.uncut.clear();
        current.uncut.extend_from_slice(&body[end..]);
        current.ended = is_end && current.uncut.is_empty();
        body.bytes_mut().truncate(end);
        let digest = Digest(SegmentHashes::of(&body).root());
        let entry = self.seal_chunk(digest, &mut body);
        Ok(Some(Piece::Group { data: vec![(entry, Body::Memory(body))], parity: Vec::new() }))
    }
}
