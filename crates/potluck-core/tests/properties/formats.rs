use potluck_core::chunk::{ChunkName, Digest, MAX_CHUNK};
use potluck_core::path::PoolPath;
use potluck_core::recipe::{Entry, PAGE_ENTRIES, pack, unpack};
use proptest::prelude::*;

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = (any::<[u8; 32]>(), any::<[u8; 32]>(), 1..=MAX_CHUNK);
    (any::<bool>(), prop::collection::vec(entry, 0..=PAGE_ENTRIES / 8)).prop_map(
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

proptest! {
    #[test]
    fn a_recipe_page_reads_back(entries in entries()) {
        prop_assert_eq!(unpack(&pack(&entries)), Ok(entries));
    }

    #[test]
    fn a_damaged_recipe_page_is_read_or_refused(
        entries in entries(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let mut page = pack(&entries);
        let at = at.index(page.len());
        page[at] = byte;
        page.truncate(cut.index(page.len() + 1));
        if let Ok(read) = unpack(&page) {
            prop_assert_eq!(read.len(), page.len().saturating_sub(8) / if page[4] == 0 { 36 } else { 68 });
        }
    }

    #[test]
    fn no_bytes_make_unpacking_panic(bytes: Vec<u8>, tail: Vec<u8>) {
        let _ = unpack(&bytes);
        let _ = unpack(&[b"PLR1".as_slice(), &tail].concat());
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
