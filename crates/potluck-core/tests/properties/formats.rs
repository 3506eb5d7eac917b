//! Tests that digests, recipe pages and paths that are written down are read back, and that nothing else is believed.

use potluck_core::chunk::{ChunkName, Digest, MAX_CHUNK};
use potluck_core::merkle::SEGMENT;
use potluck_core::path::PoolPath;
use potluck_core::policy::Race;
use potluck_core::recipe::{Content, Entry, PAGE_ENTRIES, pack, unpack, unpack_page};
use proptest::prelude::*;

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = (any::<[u8; 32]>(), any::<[u8; 32]>(), 1..=MAX_CHUNK);
    (any::<bool>(), prop::collection::vec(entry, 1..=PAGE_ENTRIES / 8)).prop_map(
        |(sealed, entries)| {
            let entry = |(name, digest, len)| Entry {
                name: ChunkName(name),
                digest: Digest(if sealed { digest } else { name }),
                len,
                sealed,
            };
            entries.into_iter().map(entry).collect()
        },
    )
}

/// Content of these chunks, with a hole before some of them and perhaps at the end.
fn content() -> impl Strategy<Value = Content> {
    let holes =
        prop::collection::vec(prop::option::of(1..=u64::from(u32::MAX)), PAGE_ENTRIES / 4 + 1);
    (entries(), holes).prop_map(|(entries, holes)| with_holes(entries, &holes))
}

fn with_holes(entries: Vec<Entry>, holes: &[Option<u64>]) -> Content {
    let mut content = Content::default();
    let mut holes = holes.iter().cycle();
    for entry in entries {
        content.push_hole(holes.next().copied().flatten().unwrap_or(0));
        content.push(entry);
    }
    content.push_hole(holes.next().copied().flatten().unwrap_or(0));
    content
}

fn digest_of(entries: &[Entry]) -> Option<Digest> {
    Content::from(entries).digest()
}

fn chunks_of(bytes: &[u8], len: usize) -> Vec<Entry> {
    let entry = |chunk: &[u8]| Entry {
        name: ChunkName::of(chunk),
        digest: Digest::of(chunk),
        len: chunk.len() as u32,
        sealed: false,
    };
    bytes.chunks(len).map(entry).collect()
}

#[test]
fn a_race_for_no_more_chunks_is_off_however_it_is_written() {
    for text in ["off", "0", "00", "+0"] {
        assert_eq!(text.parse(), Ok(Race::Off), "{text}");
    }
}

#[test]
fn chunks_that_are_whole_subtrees_tell_the_digest_of_their_file() {
    let bytes: Vec<u8> = (0..9 * SEGMENT + 5).map(|at| (at % 251) as u8).collect();
    let segment = SEGMENT as usize;
    for len in [0, 1, segment - 1, segment, segment + 1, 4 * segment, 7 * segment + 9, bytes.len()]
    {
        let file = &bytes[..len];
        for chunk in [segment, 2 * segment, 4 * segment, 16 * segment] {
            let mut entries = chunks_of(file, chunk);
            assert_eq!(digest_of(&entries), Some(Digest::of(file)), "{len} bytes by {chunk}");
            if let Some(first) = entries.first_mut() {
                first.digest = Digest([7; 32]);
                assert_ne!(digest_of(&entries), Some(Digest::of(file)));
            }
        }
    }
    for uneven in [3 * segment, segment + 1] {
        assert_eq!(digest_of(&chunks_of(&bytes, uneven)), None, "no subtrees");
    }
    let growing = [chunks_of(&bytes[..segment], segment), chunks_of(&bytes, 2 * segment)].concat();
    assert_eq!(digest_of(&growing), None, "of two sizes");
}

#[test]
fn holes_count_in_the_digest_as_the_zeros_that_they_are() {
    let segment = SEGMENT as usize;
    let chunk = 2 * segment;
    for tail in [0, 1, segment, chunk - 1, chunk] {
        // Chunks of one byte value each; those of zeros are holes.
        for pattern in 0..1_u32 << 6 {
            let chunks = (0..6).map(|at| (pattern >> at & 1) as u8);
            let mut bytes: Vec<u8> = chunks.flat_map(|byte| vec![byte; chunk]).collect();
            bytes.extend(vec![9; tail]);
            let mut content = Content::default();
            for (at, entry) in chunks_of(&bytes, chunk).into_iter().enumerate() {
                match at < 6 && pattern >> at & 1 == 0 {
                    true => content.push_hole(entry.len.into()),
                    false => content.push(entry),
                }
            }
            assert_eq!(content.size(), bytes.len() as u64);
            assert_eq!(content.digest(), Some(Digest::of(&bytes)), "{pattern:b} and {tail}");
        }
    }
    let mut holes = Content::default();
    holes.push_hole(5);
    assert_eq!(holes.digest(), Some(Digest::of(&[0; 5])));
    holes.push(chunks_of(&[1; 9], 9)[0]);
    assert_eq!(holes.digest(), None, "the chunk is no subtree");
}

proptest! {
    #[test]
    fn a_recipe_reads_back_and_is_taken_for_no_other_files(
        content in content(), digest: [u8; 32], other: [u8; 32],
    ) {
        let long: Vec<Entry> =
            content.chunks.iter().cycle().take(PAGE_ENTRIES + 1).copied().collect();
        let long = with_holes(long, &[None, Some(7), Some(9)]);
        let digest = Digest(digest);
        for content in [content, long] {
            let pages = pack(&digest, &content);
            let read = |digest: &Digest, pages: &[Vec<u8>]| unpack(digest, pages.iter().map(Vec::as_slice));
            prop_assert_eq!(read(&digest, &pages), Ok(content));
            prop_assert!(digest.0 == other || read(&Digest(other), &pages).is_err());
            let turned: Vec<_> = pages.iter().rev().cloned().collect();
            prop_assert!(pages.len() == 1 || read(&digest, &turned).is_err());
        }
    }

    #[test]
    fn a_damaged_recipe_page_is_refused(
        content in content(), at: prop::sample::Index, flip in 1..=u8::MAX, cut: prop::sample::Index,
    ) {
        let digest = Digest([7; 32]);
        let page = pack(&digest, &content).remove(0);
        let mut flipped = page.clone();
        flipped[at.index(page.len())] ^= flip;
        prop_assert!(unpack(&digest, [&flipped[..]]).is_err());
        prop_assert!(unpack(&digest, [&page[..cut.index(page.len())]]).is_err());
    }

    #[test]
    fn no_bytes_make_unpacking_panic(bytes: Vec<u8>, tail: Vec<u8>) {
        for page in [bytes, [b"PLR3".as_slice(), &tail].concat()] {
            let _ = unpack_page(&page);
            prop_assert!(unpack(&Digest([0; 32]), [&page[..]]).is_err());
        }
    }

    #[test]
    fn a_path_that_parses_reads_back(text in prop_oneof![
        any::<String>(),
        "pot://[a-z.]{0,4}(/[a-z./ ü\0]{0,5}){0,4}",
    ]) {
        if let Ok(path) = text.parse::<PoolPath>() {
            prop_assert_eq!(path.to_string().parse::<PoolPath>(), Ok(path));
        }
    }
}
