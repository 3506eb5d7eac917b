//! Tests that files and streams are cut into the chunks that their bytes ask for, however they are read.

use super::*;
use crate::buffer::Buffers;
use crate::content_reader::StreamedBytes;
use potluck_core::entropy::{Entropy, SeededEntropy};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

const CHUNK: usize = 64 << 10;

fn policy() -> Policy {
    Policy { chunk_size: CHUNK as u32, sealed: false, ..Policy::default() }
}

fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SeededEntropy::new(len as u64).fill(&mut bytes);
    bytes
}

fn item(name: &str, input: Input) -> Item {
    let root = PoolPath::space_root("s").expect("a space");
    Item { path: root.join(name).expect("a name"), input }
}

/// Cuts all items; returns each file's bytes as they would be read back, and its facts.
async fn cut_all(items: Vec<Item>, key: Option<SpaceKey>) -> Vec<(Vec<u8>, Facts)> {
    let buffers = Buffers::new(64 << 20);
    let mut cutter =
        Cutter::new(Box::new(items.into_iter()), &policy(), key.clone(), Default::default());
    let mut parts: std::collections::BTreeMap<u32, Vec<u8>> = Default::default();
    let mut files = Vec::new();
    loop {
        let cuts = cutter.next(buffers.claim(CHUNK).await);
        if cuts.is_empty() {
            return files;
        }
        for cut in cuts {
            match cut {
                Cut::Group { file, data, parity } => {
                    assert!(parity.is_empty(), "no code was asked for");
                    let [(entry, body)] = &data[..] else { panic!("not one chunk") };
                    let mut body = body.to_vec();
                    assert_eq!(ChunkName::of(&body), entry.name);
                    assert_eq!(body.len() as u32, entry.len);
                    if let Some(key) = &key {
                        key.cipher(Meaning::Chunk, &entry.digest).apply(0, &mut body);
                    }
                    assert_eq!(Digest::of(&body), entry.digest);
                    parts.entry(file).or_default().extend_from_slice(&body);
                }
                Cut::PartEnd { .. } | Cut::Hole { .. } | Cut::HoleParts { .. } => {
                    panic!("a small file without parts and holes")
                }
                Cut::End { file, facts } => {
                    let mut bytes = parts.remove(&file).unwrap_or_default();
                    if let Some(mut inline) = facts.inline.clone() {
                        if let Some(key) = &key {
                            key.cipher(Meaning::Inline, &facts.digest).apply(0, &mut inline);
                        }
                        bytes = inline;
                    }
                    files.push((bytes, facts));
                }
                Cut::Failed { error, .. } => panic!("{error}"),
            }
        }
    }
}

#[tokio::test]
async fn files_and_streams_of_every_awkward_length_are_cut_whole() {
    let key = SpaceKey::from_bytes([3; 32]);
    let inline = INLINE_MAX as usize;
    let lens = [
        0,
        1,
        inline - 1,
        inline,
        inline + 1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        3 * CHUNK,
        5 * CHUNK + 7,
    ];
    for key in [None, Some(key)] {
        let mut items = Vec::new();
        let mut files = Vec::new();
        for len in lens {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            file.write_all(&content(len)).expect("written");
            items.push(item("f", Input::File(file.path().to_path_buf())));
            items.push(item("s", Input::Stream(Box::new(io::Cursor::new(content(len))))));
            files.push(file);
        }
        let cut = cut_all(items, key).await;
        assert_eq!(cut.len(), 2 * lens.len());
        for (number, (bytes, facts)) in cut.iter().enumerate() {
            let expected = content(lens[number / 2]);
            assert!(*bytes == expected, "file {number}");
            assert_eq!(facts.size, expected.len() as u64);
            assert_eq!(
                facts.inline.is_some(),
                (1..=inline).contains(&expected.len()) || (expected.is_empty() && number % 2 == 0)
            );
            assert_eq!(facts.digest, Digest::of(&expected));
        }
    }
}

#[tokio::test]
async fn oversized_chunk_is_cut_by_the_next_call() {
    let policy = policy();
    let lens = [CHUNK / 2, CHUNK / 4, CHUNK - 1, CHUNK + CHUNK / 2, CHUNK, INLINE_MAX as usize + 1];
    let items: Vec<Item> = lens
        .iter()
        .map(|len| {
            let (mtime, permissions) = (FileTime(0), Permissions::FILE);
            let reader = Box::new(StreamedBytes(io::Cursor::new(content(*len))));
            let bytes = *len as u64;
            item("f", Input::Reader { reader, bytes, mtime, permissions, owner: None })
        })
        .collect();
    let buffers = Buffers::new(64 << 20);
    let mut cutter = Cutter::new(Box::new(items.into_iter()), &policy, None, Default::default());
    let (mut bytes, mut ends) = (0, 0);
    loop {
        let cuts = cutter.next(buffers.claim(Cutter::room(&policy)).await);
        if cuts.is_empty() {
            break;
        }
        let mut now = 0;
        for cut in &cuts {
            match cut {
                Cut::Group { data, .. } => now += data[0].1.len(),
                Cut::End { .. } => ends += 1,
                _ => panic!("whole small files"),
            }
        }
        assert!(now <= Cutter::room(&policy), "{now} bytes in one call");
        bytes += now;
    }
    assert_eq!((bytes, ends), (lens.iter().sum::<usize>(), lens.len()));
}

/// A reader that delivers a few bytes at a time, as pipes do.
struct Dribble(io::Cursor<Vec<u8>>);

impl Read for Dribble {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = out.len().min(1000);
        self.0.read(&mut out[..n])
    }
}

#[tokio::test]
async fn a_pipe_that_dribbles_gives_the_same_chunks() {
    let bytes = content(3 * CHUNK + 5);
    let dribble = Input::Stream(Box::new(Dribble(io::Cursor::new(bytes.clone()))));
    let whole = Input::Stream(Box::new(io::Cursor::new(bytes)));
    let cut = cut_all(vec![item("a", dribble), item("b", whole)], None).await;
    assert_eq!(cut[0].1.digest, cut[1].1.digest);
}

/// A reader that knows how much is left, as what a writer feeds does.
struct Fed(io::Cursor<Vec<u8>>);

impl Read for Fed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl ContentReader for Fed {
    fn left(&self) -> Option<usize> {
        Some(self.0.get_ref().len() - self.0.position() as usize)
    }
}

fn fed(len: usize) -> Input {
    Input::Fed(Box::new(Fed(io::Cursor::new(content(len)))))
}

#[tokio::test]
async fn fed_bytes_are_cut_like_a_stream_in_right_sized_buffers() {
    for len in [0, 1, INLINE_MAX as usize, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5] {
        let stream = Input::Stream(Box::new(io::Cursor::new(content(len))));
        let cut = cut_all(vec![item("fed", fed(len)), item("stream", stream)], None).await;
        assert!(cut.iter().all(|(bytes, _)| *bytes == content(len)), "{len} bytes");
        assert_eq!(cut[0].1.digest, cut[1].1.digest, "{len} bytes");
        assert_eq!(cut[0].1.inline.is_some(), cut[1].1.inline.is_some(), "{len} bytes");
    }
    let items = Box::new(std::iter::once(item("f", fed(CHUNK / 4))));
    let mut cutter = Cutter::new(items, &policy(), None, Default::default());
    let mut cuts = cutter.next(Buffers::new(64 << 20).claim(CHUNK).await);
    let Some(Cut::Group { data, .. }) = cuts.first_mut() else { panic!("no chunk") };
    let Body::Memory(body) = &mut data[0].1 else { panic!("it is in no file") };
    assert!(body.bytes_mut().capacity() < CHUNK / 2, "no room for a whole chunk");
}

#[tokio::test]
async fn local_file_changed_during_upload_fails_unless_allowed() {
    let later = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    let touch: fn(&File) = |file| file.write_all_at(&[1], 0).expect("written");
    let truncate: fn(&File) = |file| file.set_len(2 * CHUNK as u64).expect("cut off");
    let append: fn(&File) = |file| file.set_len(4 * CHUNK as u64).expect("appended");
    for change in [touch, truncate, append] {
        for (key, allowed) in
            [(None, false), (Some(SpaceKey::from_bytes([3; 32])), false), (None, true)]
        {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            file.write_all(&content(3 * CHUNK)).expect("written");
            let items =
                Box::new(std::iter::once(item("f", Input::File(file.path().to_path_buf()))));
            let cutter = Cutter::new(items, &policy(), key, Default::default());
            let mut cutter = cutter.allowing_changes(allowed);
            let buffers = Buffers::new(64 << 20);
            assert!(matches!(cutter.next(buffers.claim(CHUNK).await)[..], [Cut::Group { .. }]));
            change(file.as_file());
            file.as_file().set_modified(later).expect("a time that surely differs");
            let last = loop {
                match cutter.next(buffers.claim(CHUNK).await).pop() {
                    Some(Cut::Group { .. }) => {}
                    last => break last.expect("an end"),
                }
            };
            match last {
                Cut::End { .. } => assert!(allowed),
                Cut::Failed { error: CutError::Changed, .. } => assert!(!allowed),
                _ => panic!("neither stored nor refused"),
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_grew_since_it_was_measured_is_read_to_its_end() {
    let mut current = Current::open(
        0,
        item("f", Input::File("/dev/null".into())).path,
        Input::Stream(Box::new(io::Cursor::new(content(CHUNK + 9)))),
    )
    .expect("open");
    current.left = Some(10); // what its length said
    let mut cutter = Cutter::new(Box::new(std::iter::empty()), &policy(), None, Default::default());
    cutter.current = Some(current);
    let buffers = Buffers::new(1 << 20);
    let mut bytes = 0;
    let size = loop {
        let cuts = cutter.next(buffers.claim(CHUNK).await);
        let Some(last) = cuts.last() else { panic!("no end") };
        let len = |cut: &Cut| match cut {
            Cut::Group { data, .. } => data[0].1.len(),
            _ => 0,
        };
        bytes += cuts.iter().map(len).sum::<usize>();
        if let Cut::End { facts, .. } = last {
            break facts.size;
        }
    };
    assert_eq!((size, bytes), ((CHUNK + 9) as u64, CHUNK + 9));
}

mod by_content;
mod grouped;
mod holes;
