//! Reading: which copy of a chunk to ask for, and which parts of which chunks make a range.

use crate::ids::DonorId;
use crate::pace::Pace;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// A donor that holds a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Source {
    /// Who.
    pub donor: DonorId,
    /// Whether the manager heard of it lately; otherwise a suspect.
    pub live: bool,
    /// [`crate::load::Load::score`].
    pub load: f32,
}

/// The copy expected to arrive first, of those not `tried` yet; ties go to fewer outstanding
/// bytes, then to the less loaded (CEFT-PVFS §6.3).
///
/// Suspects are asked only when no live copy is left. `None` when every copy was tried, or when
/// those in question have a full window: wait for one of them.
pub fn pick(
    sources: &[Source],
    paces: &BTreeMap<DonorId, Pace>,
    bytes: u32,
    tried: &[DonorId],
) -> Option<DonorId> {
    let untried = || sources.iter().filter(|source| !tried.contains(&source.donor));
    let live = untried().any(|source| source.live);
    let unknown = Pace::new();
    let pace = |donor| paces.get(&donor).unwrap_or(&unknown);
    let rank = |source: &Source| -> (Duration, u64) {
        let pace = pace(source.donor);
        (pace.expected_finish(bytes), pace.outstanding())
    };
    untried()
        .filter(|source| source.live == live && pace(source.donor).has_room(bytes))
        .min_by(|a, b| {
            rank(a).cmp(&rank(b)).then(a.load.total_cmp(&b.load)).then(a.donor.cmp(&b.donor))
        })
        .map(|source| source.donor)
}

/// The part of one chunk that belongs to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which chunk, counted from 0.
    pub index: usize,
    /// Bytes of the chunk before the part.
    pub skip: u32,
    /// Bytes of the part; never 0.
    pub take: u32,
}

/// The pieces, in order, that make the bytes `range` of a file whose chunks have these plaintext
/// lengths; what lies past the end of the file is left out.
pub fn chunks_of_range(lens: impl Iterator<Item = u32>, range: Range<u64>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (index, len) in lens.enumerate() {
        if start >= range.end {
            break;
        }
        let end = start + u64::from(len);
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            pieces.push(Piece { index, skip: (from - start) as u32, take: (to - from) as u32 });
        }
        start = end;
    }
    pieces
}
