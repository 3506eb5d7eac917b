use super::*;

fn index(extents: &[(u64, u64, u64)]) -> Index {
    let extent =
        |(at, len, from): &(u64, u64, u64)| WrittenExtent { at: *at, len: *len, from: *from };
    Index { extents: extents.iter().map(extent).collect(), size: 0 }
}

fn runs(composition: &Composition) -> Vec<(Range<u64>, ByteSource)> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < composition.size() {
        let (range, source) = composition.run(at);
        at = range.end;
        runs.push((range, source));
    }
    runs
}

fn of(number: usize, from: u64) -> ByteSource {
    ByteSource::Contribution { number, from }
}

#[test]
fn contribution_index_round_trips() {
    let index = Index { size: 77, ..index(&[(5, 10, 0), (100, 1, 10)]) };
    let bytes = index.encode();
    let (extents, footer) = bytes.split_at(bytes.len() - FOOTER);
    assert_eq!(Index::of_footer(footer).expect("a footer"), (extents.len(), 77));
    assert_eq!(Index::decode(extents, 77, 11).expect("an index"), index);
    assert!(Index::decode(extents, 77, 10).is_err(), "outside of the content");
    assert!(Index::of_footer(&footer[1..]).is_err());
    let mut other = footer.to_vec();
    other[23] ^= 1;
    assert!(Index::of_footer(&other).is_err(), "no contribution");
    other.copy_from_slice(footer);
    other[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(Index::of_footer(&other).is_err(), "too many extents");
    assert!(Index::decode(&[0xff; 24], 0, 9).is_err(), "beyond all numbers");
    let far = self::index(&[(LARGEST_FILE - 1, 2, 0)]).encode();
    assert!(Index::decode(&far[..24], 0, 9).is_err(), "beyond all files");
    assert!(Index::decode(&[], LARGEST_FILE + 1, 9).is_err(), "of a size that no file has");
    assert!(Index::decode(&[], LARGEST_FILE, 9).is_ok());
}

#[test]
fn later_writes_win_and_gaps_show_the_base_version() {
    let mut composition = Composition::of_version(12);
    composition.add(&index(&[(2, 6, 0), (4, 2, 6)])).expect("its own bytes");
    composition.add(&index(&[(20, 5, 0)])).expect("other bytes");
    let expected = [
        (0..2, ByteSource::Before),
        (2..4, of(0, 0)),
        (4..6, of(0, 6)),
        (6..8, of(0, 4)),
        (8..12, ByteSource::Before),
        (12..20, ByteSource::Zeros),
        (20..25, of(1, 0)),
    ];
    assert_eq!(runs(&composition), expected);
}

#[test]
fn extents_that_go_on_are_one_run_and_a_larger_size_is_zeros() {
    let mut composition = Composition::of_version(0);
    let index = Index { size: 30, ..index(&[(0, 10, 0), (10, 10, 10), (20, 5, 50)]) };
    composition.add(&index).expect("its own bytes");
    let expected = [(0..20, of(0, 0)), (20..25, of(0, 50)), (25..30, ByteSource::Zeros)];
    assert_eq!(runs(&composition), expected);
}

#[test]
fn bytes_of_two_writers_are_an_error_that_names_them() {
    let mut composition = Composition::of_version(0);
    composition.add(&index(&[(0, 10, 0)])).expect("the first");
    let refused = composition.add(&index(&[(20, 1, 0), (9, 2, 1)]));
    assert_eq!(refused, Err(NotComposed::Overlap { range: 9..10, numbers: (0, 1) }));
}

#[test]
fn too_many_contributed_pieces_is_an_error_naming_the_largest() {
    let mut composition = Composition::of_version(0);
    let pieces = |first: u64, count: u64| {
        let extents: Vec<_> = (first..first + count).map(|at| (2 * at, 1, 0)).collect();
        index(&extents)
    };
    composition.add(&pieces(0, 10)).expect("a few");
    composition
        .add(&pieces(10, MOST_EXTENTS as u64 - 11))
        .expect("as many as there may be but one");
    composition.add(&pieces(MOST_EXTENTS as u64, 1)).expect("the last");
    let refused = composition.add(&pieces(2 * MOST_EXTENTS as u64, 1));
    assert_eq!(refused, Err(NotComposed::TooManyPieces { number: 1 }));
}
