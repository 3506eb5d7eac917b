//! Tests of the cutter with an erasure code.

use super::{CHUNK, Dribble, content, item, policy};
use crate::buffer::Buffers;
use crate::source::{Current, Cut, Cutter, Facts, Input, Item};
use potluck_core::chunk::{ChunkName, Digest, INLINE_MAX};
use potluck_core::erasure::{Codec, Ec, MIN_SHARD};
use potluck_core::policy::Policy;
use potluck_core::recipe::Entry;
use potluck_core::seal::{Meaning, SpaceKey};
use std::io::{self, Write};

fn ec() -> Ec {
    Ec::new(4, 2).expect("a code")
}

fn grouped() -> Policy {
    Policy { ec: Some(ec()), ..policy() }
}

/// A file that was cut.
struct File {
    facts: Facts,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The number of data chunks of each group.
    groups: Vec<usize>,
}

/// Cuts all `items`, and checks the properties of every group that a reader relies on.
async fn cut_all(items: Vec<Item>, key: Option<SpaceKey>) -> Vec<File> {
    let cutter =
        Cutter::new(Box::new(items.into_iter()), &grouped(), key.clone(), Default::default());
    cut(cutter, key).await
}

async fn cut(mut cutter: Cutter, key: Option<SpaceKey>) -> Vec<File> {
    let buffers = Buffers::new(Cutter::room(&grouped()));
    let codec = Codec::new(ec());
    let mut files = Vec::new();
    let (mut bytes, mut entries, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let cuts = cutter.next(buffers.claim(Cutter::room(&grouped())).await);
        if cuts.is_empty() {
            return files;
        }
        for cut in cuts {
            match cut {
                Cut::Group { data, parity, .. } => {
                    assert!((1..=4).contains(&data.len()) && parity.len() == 2);
                    let stored: Vec<Vec<u8>> = data.iter().map(|(_, body)| body.to_vec()).collect();
                    let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
                    let len = stored.iter().map(|chunk| chunk.len()).max().expect("a chunk");
                    let (mut p, mut q) = (vec![0; len], vec![0; len]);
                    codec.encode(&stored, &mut [&mut p, &mut q]);
                    for ((name, body), expected) in parity.iter().zip([p, q]) {
                        assert!(
                            body.to_vec() == expected && *name == ChunkName::of(&body.to_vec())
                        );
                    }
                    groups.push(data.len());
                    for (entry, body) in data {
                        let mut body = body.to_vec();
                        assert_eq!(ChunkName::of(&body), entry.name);
                        assert_eq!(body.len() as u32, entry.len);
                        if let Some(key) = &key {
                            key.cipher(Meaning::Chunk, &entry.digest).apply(0, &mut body);
                        }
                        assert_eq!(Digest::of(&body), entry.digest);
                        bytes.extend_from_slice(&body);
                        entries.push(entry);
                    }
                }
                Cut::PartEnd { .. } | Cut::Hole { .. } | Cut::HoleParts { .. } => {
                    panic!("a small file without parts and holes")
                }
                Cut::End { facts, .. } => files.push(File {
                    facts,
                    bytes: std::mem::take(&mut bytes),
                    entries: std::mem::take(&mut entries),
                    groups: std::mem::take(&mut groups),
                }),
                Cut::Failed { error, .. } => panic!("{error}"),
            }
        }
    }
}

/// Returns whether the chunks have the lengths that a file of this size is cut into.
fn is_well_cut(file: &File) -> bool {
    let (front, last) = match file.groups.split_last() {
        Some((last, _)) => file.entries.split_at(file.entries.len() - last),
        None => return file.entries.is_empty(),
    };
    let left: u64 = last.iter().map(|entry| u64::from(entry.len)).sum();
    let shard = ec().shard_len(left, CHUNK as u32);
    let (end, even) = last.split_last().expect("no group is empty");
    front.iter().all(|entry| entry.len == CHUNK as u32)
        && even.iter().all(|entry| entry.len == shard)
        && (1..=shard).contains(&end.len)
}

#[tokio::test]
async fn group_cutting_handles_awkward_lengths() {
    let (inline, group) = (INLINE_MAX as usize, 4 * CHUNK);
    let lens = [
        0,
        1,
        inline,
        inline + 1,
        2 * MIN_SHARD as usize,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        group - 1,
        group,
        group + 1,
        2 * group,
        2 * group + CHUNK + 77,
    ];
    for key in [None, Some(SpaceKey::from_bytes([3; 32]))] {
        let mut items = Vec::new();
        let mut files = Vec::new();
        for len in lens {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            file.write_all(&content(len)).expect("written");
            items.push(item("f", Input::File(file.path().to_path_buf())));
            items.push(item("s", Input::Stream(Box::new(io::Cursor::new(content(len))))));
            let dribble = Dribble(io::Cursor::new(content(len)));
            items.push(item("d", Input::Stream(Box::new(dribble))));
            files.push(file);
        }
        let cut = cut_all(items, key).await;
        assert_eq!(cut.len(), 3 * lens.len());
        for (number, file) in cut.iter().enumerate() {
            let len = lens[number / 3];
            assert_eq!(file.facts.size, len as u64);
            assert!(is_well_cut(file), "{len} bytes");
            if len <= inline {
                assert!(file.entries.is_empty(), "{len} bytes live in the catalog");
                continue;
            }
            assert!(file.bytes == content(len), "{len} bytes");
            assert_eq!(file.groups.len(), len.div_ceil(group));
            assert_eq!(file.facts.digest, Digest::of(&file.bytes));
        }
        for same in cut.chunks(3) {
            assert!(same.iter().all(|file| file.entries == same[0].entries), "however they come");
        }
    }
}

#[tokio::test]
async fn files_resized_during_upload_are_cut_by_final_size() {
    for (len, said) in [
        (4 * CHUNK + 9, 10_000),
        (6 * CHUNK + 9, 4 * CHUNK),
        (9 * CHUNK, 5 * CHUNK + 1),
        (9 * CHUNK + 5, 4 * CHUNK - 1),
        (5 * CHUNK + 7, 8 * CHUNK),
        (CHUNK, 3 * CHUNK),
        (100, 3 * CHUNK),
    ] {
        let stream = Input::Stream(Box::new(io::Cursor::new(content(len))));
        let mut current = Current::open(0, item("f", Input::File("/dev/null".into())).path, stream)
            .expect("open");
        current.left = Some(said as u64);
        let mut cutter =
            Cutter::new(Box::new(std::iter::empty()), &grouped(), None, Default::default());
        cutter.current = Some(current);
        let files = cut(cutter, None).await;
        assert!(files.len() == 1 && files[0].bytes == content(len), "{said} said, {len} there");
        assert_eq!(files[0].facts.size, len as u64);
        assert!(is_well_cut(&files[0]), "{said} said, {len} there");
    }
}
