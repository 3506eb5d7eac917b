//! Tests of what a client believes of a recipe, and of how much memory a read of it takes.

use super::*;
use potluck_core::attributes::{FileTime, Permissions};
use potluck_core::ids::VersionId;
use potluck_wire::packed::{Blob, Packed};

fn nothing() -> OpenFile {
    OpenFile {
        metadata: None,
        path: "f".into(),
        version: VersionId(1),
        size: 0,
        holes: 0,
        digest: Digest::of(b""),
        mtime: FileTime::default(),
        permissions: Permissions::FILE,
        owner: None,
        changed: FileTime::default(),
        accessed: None,
        inline: None,
        pages: Vec::new(),
        holders: Vec::new(),
        ec: None,
        parity: Packed::default(),
        parity_holders: Vec::new(),
        race: Race::default(),
        part_count: 0,
        parts: Packed::default(),
        chunk_size: 0,
        key: None,
        origin: None,
    }
}

/// Makes a file with chunks of these lengths, sealed or not.
fn opened(lens: &[u32], sealed: bool) -> OpenFile {
    let entry = |(n, len): (usize, &u32)| {
        let digest = Digest::of(&[n as u8]);
        let name = if sealed { ChunkName::of(&[n as u8, 1]) } else { ChunkName(digest.0) };
        Entry { name, digest, len: *len, sealed }
    };
    let entries: Vec<_> = lens.iter().enumerate().map(entry).collect();
    let digest = Digest([7; 32]);
    OpenFile {
        size: lens.iter().copied().map(u64::from).sum(),
        digest,
        pages: recipe::pack(&digest, &entries[..].into()).into_iter().map(Blob).collect(),
        ..nothing()
    }
}

#[test]
fn sealed_and_plain_bytes_are_never_confused_i1() {
    let key = SpaceKey::from_bytes([5; 32]);
    assert!(Recipe::check(opened(&[9, 9, 4], true), Some(&key)).is_ok());
    assert!(Recipe::check(opened(&[9, 9, 4], false), None).is_ok());
    for (file, key) in [(opened(&[9, 9, 4], true), None), (opened(&[9], false), Some(&key))] {
        let Err(why) = Recipe::check(file, key) else { panic!("it was believed") };
        assert_eq!((why.kind, why.code.as_str()), (ErrorKind::Integrity, code::WRONG_BYTES));
    }
    // The content of a file that is stored in the catalog is checked in the same way.
    let content = b"a few bytes".to_vec();
    let plain = OpenFile {
        size: content.len() as u64,
        digest: Digest::of(&content),
        inline: Some(Blob(content.clone())),
        ..nothing()
    };
    let mut sealed = content;
    key.cipher(Meaning::Inline, &plain.digest).apply(0, &mut sealed);
    let sealed = OpenFile { inline: Some(Blob(sealed)), ..plain.clone() };
    assert!(Recipe::check(plain.clone(), None).is_ok());
    assert!(Recipe::check(sealed.clone(), Some(&key)).is_ok());
    assert!(Recipe::check(plain, Some(&key)).is_err());
    assert!(Recipe::check(sealed, None).is_err());
}

#[test]
fn read_unit_is_one_chunk_or_group_at_any_file_size() {
    let file = opened(&[4 << 20, 4 << 20, 1000], true);
    let stored = 4 << 20;
    assert_eq!(largest(&file), (stored, stored));
    let coded = OpenFile { ec: Some("4+2".parse().expect("a code")), ..file };
    assert_eq!(largest(&coded), (stored, 6 * stored));
    assert_eq!(largest(&opened(&[], false)), (0, 0), "what lives in the catalog");
    // The first chunk of a file that is cut by content may be the shortest.
    let by_content = OpenFile { chunk_size: 4 << 20, ..opened(&[1 << 20, 3 << 20, 9], false) };
    assert_eq!(largest(&by_content), (4 << 20, 4 << 20));
    let small = OpenFile { chunk_size: 4 << 20, ..opened(&[100, 200], false) };
    assert_eq!(largest(&small), (300, 300), "no more than the file has");
}
