//! Chunks of a file that nobody sent in its session: whether the file may have them all the same.

use potluck_catalog::PreparedFile;
use potluck_core::chunk::ChunkName;
use std::collections::BTreeSet;

/// What the pool has of a chunk that nobody sent in a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// The pool has the chunk, and the member may be told so.
    Told,
    /// The pool has the chunk, and the member may not be told so.
    Hidden,
    /// The pool does not have the chunk.
    None,
}

/// Returns whether a file lacks chunks that nobody sent: any where it is copied; and where it is coded more of a group
/// than there are donors too few, while `live` are.
pub(super) fn lacks(
    file: &PreparedFile,
    unsent: &BTreeSet<ChunkName>,
    presence: &dyn Fn(&ChunkName) -> Presence,
    live: usize,
) -> bool {
    let Some(ec) = file.version.ec else {
        return unsent.iter().any(|name| presence(name) != Presence::Told);
    };
    let (data, too_few) = (file.version.chunks as usize, ec.width().saturating_sub(live));
    ec.groups(data).enumerate().any(|(number, group)| {
        let parity = data + number * ec.parity()..data + (number + 1) * ec.parity();
        let names = group.chain(parity).filter_map(|at| Some(&file.chunks.get(at)?.name));
        let lacking = names.filter(|name| unsent.contains(name)).map(presence);
        let lacking: Vec<_> = lacking.filter(|it| *it != Presence::Told).collect();
        lacking.len() > too_few.min(ec.parity()) || lacking.contains(&Presence::Hidden)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_catalog::fixture::{chunk, coded, file};

    #[test]
    fn only_short_groups_may_lack_chunks_and_no_hidden_ones() {
        let groups = coded("pot://lab/f", "2+1", 2, &[(1, &[1]), (2, &[2]), (3, &[3])]);
        let lacks = |file: &_, unsent: &[u64], presence, live| {
            let unsent = unsent.iter().map(|n| chunk(*n)).collect();
            lacks(file, &unsent, &|_| presence, live)
        };
        assert!(!lacks(&groups, &[3], Presence::None, 2), "nobody could take it");
        assert!(lacks(&groups, &[3], Presence::None, 3), "it is to be sent");
        assert!(lacks(&groups, &[2, 3], Presence::None, 1), "more than the code makes again");
        assert!(lacks(&groups, &[3], Presence::Hidden, 2), "it would be read without a right");
        assert!(!lacks(&groups, &[1, 2, 3], Presence::Told, 3));
        let copies = file("pot://lab/f", &[1, 2], &[1]);
        assert!(lacks(&copies, &[2], Presence::None, 0), "copies are whole");
        assert!(!lacks(&copies, &[2], Presence::Told, 3));
    }
}
