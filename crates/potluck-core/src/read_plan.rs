//! Reading: which chunks of a group to ask for, and which parts of which chunks make a range. The choice of donors to
//! ask is in [`crate::hedging`].

use std::ops::Range;

/// The state of a chunk of a group, as its reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardState {
    /// The chunk is here and verified; so are the zeros that a short group lacks.
    Had,
    /// The chunk was asked for.
    Asked {
        /// True if the chunk is no longer worth waiting for.
        late: bool,
    },
    /// No request for the chunk is under way, and a live donor has it that was not asked yet.
    Open,
    /// No request for the chunk is under way, and of the donors that were not asked yet only suspects have it.
    Suspect,
    /// The chunk cannot be had from any donor.
    Lost,
}

/// The next step of the reader of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupStep {
    /// All chunks that are needed are here.
    Done,
    /// The chunks that are needed and not here can be rebuilt now.
    Rebuild,
    /// One of these chunks is to be asked for, whichever is expected first.
    Ask(Vec<usize>),
    /// The chunks that were asked for are to be waited for.
    Wait,
    /// Too few chunks can be had.
    TooFew,
}

/// Returns the next step towards the chunks at `needed` of a group of which any `data` chunks give the others. While
/// live donors have the needed chunks and none is late, exactly these are asked for; otherwise as many others as make
/// `data` in all. With `extra`, that many more than `data` are asked for from the start (first m of n).
///
/// Suspects are asked when the live donors have too few chunks.
pub fn next_of_group(
    shards: &[ShardState],
    needed: &[usize],
    data: usize,
    extra: usize,
) -> GroupStep {
    let positions =
        |state: ShardState| (0..shards.len()).filter(|at| shards[*at] == state).collect::<Vec<_>>();
    let lacking: Vec<usize> =
        needed.iter().copied().filter(|at| shards[*at] != ShardState::Had).collect();
    let had = positions(ShardState::Had).len();
    if lacking.is_empty() {
        return GroupStep::Done;
    }
    if had >= data {
        return GroupStep::Rebuild;
    }
    let open: Vec<usize> =
        lacking.iter().copied().filter(|at| shards[*at] == ShardState::Open).collect();
    if !open.is_empty() {
        return GroupStep::Ask(open);
    }
    let on_time = ShardState::Asked { late: false };
    let in_time = lacking.iter().all(|at| shards[*at] == on_time);
    if in_time && extra == 0 {
        return GroupStep::Wait;
    }
    let coming = positions(on_time).len();
    if had + coming < data + extra {
        let open = positions(ShardState::Open);
        if !open.is_empty() {
            return GroupStep::Ask(open);
        }
    }
    if in_time || had + coming >= data {
        return GroupStep::Wait;
    }
    let suspects = positions(ShardState::Suspect);
    let late = positions(ShardState::Asked { late: true }).len();
    match (suspects.is_empty(), had + coming + late < data) {
        (false, _) => GroupStep::Ask(suspects),
        (true, false) => GroupStep::Wait,
        // All the shards that can still come are too few, unless all that lacks are needed chunks that were
        // asked for.
        (true, true)
            if lacking.iter().all(|at| matches!(shards[*at], ShardState::Asked { .. })) =>
        {
            GroupStep::Wait
        }
        (true, true) => GroupStep::TooFew,
    }
}

/// The part of one chunk that belongs to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The index of the chunk in the file, from 0.
    pub index: usize,
    /// The bytes of the chunk before the part.
    pub skip: u32,
    /// The bytes of the part; never 0.
    pub take: u32,
    /// The offset in the file, in bytes, at which the part begins.
    pub at: u64,
}

/// Returns the pieces, in order, that make the bytes `range` of a file whose chunks have these bytes of it; all others are
/// zeros, or past its end. The time taken grows with the chunks of the range, not of the file.
pub fn chunks_of_range(chunks: &[Range<u64>], range: Range<u64>) -> Vec<Piece> {
    let first = chunks.partition_point(|chunk| chunk.end <= range.start);
    let mut pieces = Vec::new();
    for (index, chunk) in chunks.iter().enumerate().skip(first) {
        if chunk.start >= range.end {
            break;
        }
        let (from, to) = (range.start.max(chunk.start), range.end.min(chunk.end));
        if from < to {
            let (skip, take) = ((from - chunk.start) as u32, (to - from) as u32);
            pieces.push(Piece { index, skip, take, at: from });
        }
    }
    pieces
}
