//! Tests of the cutter with a policy that cuts by content.

use super::{CHUNK, Dribble, content, item, policy};
use crate::buffer::Buffers;
use crate::source::{Cut, Cutter, Facts, Input};
use potluck_core::chunk::{ChunkName, Digest, INLINE_MAX};
use potluck_core::merkle::Tree;
use potluck_core::policy::{Cutting, Policy};
use potluck_core::recipe::{Entry, PART_CHUNKS, part_bytes, part_bytes_of};
use potluck_core::seal::{Meaning, SpaceKey};
use std::collections::HashSet;
use std::io;

fn by_content() -> Policy {
    Policy { cut: Cutting::Content, ..policy() }
}

/// A file that was cut.
struct File {
    facts: Facts,
    bytes: Vec<u8>,
    /// The chunks of each part.
    parts: Vec<Vec<Entry>>,
}

impl File {
    fn names(&self) -> HashSet<ChunkName> {
        self.parts.iter().flatten().map(|entry| entry.name).collect()
    }
}

async fn cut(input: Input, key: Option<SpaceKey>) -> File {
    let items = Box::new(std::iter::once(item("f", input)));
    let mut cutter = Cutter::new(items, &by_content(), key.clone(), Default::default());
    let buffers = Buffers::new(1 << 20);
    let (mut bytes, mut parts, mut digests) = (Vec::new(), vec![Vec::new()], Vec::new());
    loop {
        for cut in cutter.next(buffers.claim(Cutter::room(&by_content())).await) {
            match cut {
                Cut::Group { data, .. } => {
                    let [(entry, body)] = &data[..] else { panic!("not one chunk") };
                    let mut body = body.to_vec();
                    assert_eq!(ChunkName::of(&body), entry.name);
                    if let Some(key) = &key {
                        key.cipher(Meaning::Chunk, &entry.digest).apply(0, &mut body);
                    }
                    assert_eq!((Digest::of(&body), body.len()), (entry.digest, entry.len as usize));
                    bytes.extend_from_slice(&body);
                    parts.last_mut().expect("a part").push(*entry);
                }
                Cut::PartEnd { digest, .. } => {
                    digests.push(digest);
                    parts.push(Vec::new());
                }
                Cut::End { facts, .. } => {
                    bytes.extend(facts.inline.clone().unwrap_or_default());
                    digests.push(facts.last_part);
                    check(&facts, &parts, &digests, &bytes);
                    return File { facts, bytes, parts };
                }
                Cut::Failed { error, .. } => panic!("{error}"),
                Cut::Hole { .. } | Cut::HoleParts { .. } => panic!("no hole"),
            }
        }
    }
}

/// Checks the properties of a cut file that the manager and readers rely on.
fn check(facts: &Facts, parts: &[Vec<Entry>], digests: &[Digest], bytes: &[u8]) {
    assert_eq!((facts.size, facts.digest), (bytes.len() as u64, Digest::of(bytes)));
    let row = part_bytes(CHUNK as u32, true);
    let mut tree = Tree::default();
    for ((entries, digest), part) in parts.iter().zip(digests).zip(bytes.chunks(row as usize)) {
        assert_eq!(*digest, Digest::of(part));
        tree.push(digest.0);
        assert!(entries.len() <= PART_CHUNKS);
        assert!(entries.iter().all(|entry| entry.len <= CHUNK as u32));
        let before_last = &entries[..entries.len().saturating_sub(1)];
        assert!(before_last.iter().all(|entry| entry.len >= CHUNK as u32 / 4));
    }
    if parts.len() > 1 {
        assert_eq!(tree.root(), facts.digest.0);
        let count = parts.len() as u64;
        assert_eq!(part_bytes_of(facts.size, CHUNK as u32, count), Some(row));
    }
}

fn stream(bytes: &[u8]) -> Input {
    Input::Stream(Box::new(io::Cursor::new(bytes.to_vec())))
}

fn local(bytes: &[u8]) -> (tempfile::NamedTempFile, Input) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    let input = Input::File(file.path().to_path_buf());
    (file, input)
}

#[tokio::test]
async fn content_cutting_handles_awkward_lengths() {
    let row = part_bytes(CHUNK as u32, true) as usize;
    let inline = INLINE_MAX as usize;
    let least = CHUNK / 4;
    let lens = [1, inline, inline + 1, least, least + 1, CHUNK, 3 * CHUNK + 7];
    for len in lens.into_iter().chain([row - 1, row, row + 1, 2 * row + 12_345]) {
        let bytes = content(len);
        let (_file, input) = local(&bytes);
        let from_file = cut(input, None).await;
        assert!(from_file.bytes == bytes, "{len}");
        assert_eq!(from_file.facts.inline.is_some(), len <= inline, "{len}");
        let dribble = Input::Stream(Box::new(Dribble(io::Cursor::new(bytes.clone()))));
        let from_pipe = cut(dribble, None).await;
        assert!(from_pipe.bytes == bytes, "{len}");
        assert_eq!(from_pipe.names(), from_file.names(), "{len}");
        if len > inline {
            let sealed = cut(stream(&bytes), Some(SpaceKey::from_bytes([3; 32]))).await;
            assert!(sealed.bytes == bytes, "{len}");
        }
    }
}

#[tokio::test]
async fn content_defined_cutting_resynchronises_after_an_insertion() {
    let before = content(2 << 20);
    let first = cut(stream(&before), None).await;
    let mut after = before.clone();
    after.splice(300_000..300_000, *b"some bytes more");
    after.splice(1_500_000..1_500_100, []);
    let second = cut(stream(&after), None).await;
    let (old, new) = (first.names(), second.names());
    let fresh = new.difference(&old).count();
    assert!(fresh <= 8 && new.len() > 30, "{fresh} of {} chunks are new", new.len());
}

#[tokio::test]
async fn zeros_are_cut_where_the_largest_chunk_ends() {
    let zeros = cut(stream(&vec![0; 10 * CHUNK]), None).await;
    assert_eq!((zeros.names().len(), zeros.parts[0].len()), (1, 10));
}
