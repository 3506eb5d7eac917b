//! Tests that chunks and segments are rebuilt from others of their group, and believed only if they prove
//! themselves.

use super::*;
use crate::buffer::Buffers;
use potluck_core::chunk::Digest;
use potluck_core::erasure::Ec;

async fn buffer(buffers: &Buffers, bytes: &[u8]) -> Buffer {
    let mut buffer = buffers.claim(bytes.len()).await.buffer(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer
}

/// Makes a short sealed group of 4+2: three data chunks, the last of them shorter. The data arrived opened, the parity
/// as it is stored; the chunks at `lost` did not arrive.
async fn group(lost: &[usize]) -> (Vec<Vec<u8>>, Rebuild) {
    let buffers = Buffers::new(1 << 20);
    let (ec, key) = (Ec::new(4, 2).expect("a code"), SpaceKey::from_bytes([5; 32]));
    let codec = Codec::new(ec);
    let plain: Vec<Vec<u8>> =
        [(1, 5000), (2, 5000), (3, 777)].map(|(byte, len)| vec![byte; len]).into();
    let mut entries = Vec::new();
    let mut stored = Vec::new();
    for bytes in &plain {
        let digest = Digest::of(bytes);
        let mut sealed = bytes.clone();
        key.cipher(Meaning::Chunk, &digest).apply(0, &mut sealed);
        let name = ChunkName::of(&sealed);
        entries.push(Entry { name, digest, len: bytes.len() as u32, sealed: true });
        stored.push(sealed);
    }
    let (mut p, mut q) = (vec![0; 5000], vec![0; 5000]);
    let data: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
    codec.encode(&data, &mut [&mut p, &mut q]);
    let mut had = Vec::new();
    for bytes in [&plain[0], &plain[1], &plain[2], &Vec::new(), &p, &q] {
        had.push(if bytes.is_empty() { None } else { Some(buffer(&buffers, bytes).await) });
    }
    lost.iter().for_each(|at| had[*at] = None);
    let lacking: Vec<usize> = lost.iter().copied().filter(|at| *at < 3).collect();
    let mut rebuilt = Vec::new();
    for _ in &lacking {
        rebuilt.push(buffers.claim(5000).await.buffer(5000));
    }
    let opened = vec![true, true, true, false, false, false];
    (
        plain,
        Rebuild {
            codec,
            key: Some(key),
            entries,
            had,
            opened,
            window: 0..5000,
            whole: true,
            lacking,
            rebuilt,
        },
    )
}

#[tokio::test]
async fn sealed_chunks_are_rebuilt_to_plaintext() {
    for lost in [vec![0, 1], vec![1, 2], vec![2], vec![0, 4], vec![2, 5]] {
        let (plain, rebuild) = group(&lost).await;
        let whole = rebuild.run().expect("enough of them");
        for (at, plain) in plain.iter().enumerate() {
            let bytes = whole[at].as_ref().expect("had or rebuilt");
            assert!(bytes[..] == plain[..], "chunk {at} without {lost:?}");
        }
    }
}

#[tokio::test]
async fn parity_of_other_data_is_never_believed_i1() {
    let (_, mut rebuild) = group(&[1, 5]).await;
    let name = rebuild.entries[1].name;
    rebuild.had[4].as_mut().expect("parity")[99] ^= 1;
    assert_eq!(rebuild.run().err(), Some(name));
}

/// Rebuilds segment 1 of the first of two sealed chunks of 2+1 from the same bytes of the others.
#[tokio::test]
async fn sealed_segments_are_rebuilt_alone_and_opened() {
    let buffers = Buffers::new(1 << 20);
    let (ec, key) = (Ec::new(2, 1).expect("a code"), SpaceKey::from_bytes([5; 32]));
    let plain: Vec<Vec<u8>> = [(1, 200_000), (2, 70_000)].map(|(byte, len)| vec![byte; len]).into();
    let (mut entries, mut stored) = (Vec::new(), Vec::new());
    for bytes in &plain {
        let (digest, mut sealed) = (Digest::of(bytes), bytes.clone());
        key.cipher(Meaning::Chunk, &digest).apply(0, &mut sealed);
        let name = ChunkName::of(&sealed);
        entries.push(Entry { name, digest, len: bytes.len() as u32, sealed: true });
        stored.push(sealed);
    }
    let mut parity = vec![0; stored[0].len()];
    let data: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
    Codec::new(ec).encode(&data, &mut [&mut parity]);
    let window = entries[0].bytes_of(&(1..2));
    let of = |chunk: &[u8]| {
        let here = clip(&window, chunk.len() as u32);
        chunk[here.start as usize..here.end as usize].to_vec()
    };
    let rebuild = Rebuild {
        codec: Codec::new(ec),
        key: Some(key),
        entries,
        had: vec![
            None,
            Some(buffer(&buffers, &of(&stored[1])).await),
            Some(buffer(&buffers, &of(&parity)).await),
        ],
        opened: vec![true, false, false],
        window,
        whole: false,
        lacking: vec![0],
        rebuilt: vec![buffers.claim(65_536).await.buffer(65_536)],
    };
    let whole = rebuild.run().expect("enough of them");
    assert_eq!(whole[0].as_deref(), Some(&plain[0][65_536..131_072]));
}

/// Rebuilds segment 1 of the first of two plain chunks of 2+1, of which the second ends in it: it is believed only if
/// it gives back the parity that it was rebuilt from.
#[tokio::test]
async fn plain_segments_are_rebuilt_individually_i1() {
    let buffers = Buffers::new(1 << 20);
    let codec = || Codec::new(Ec::new(2, 1).expect("a code"));
    let plain: Vec<Vec<u8>> = [(1, 200_000), (2, 70_000)].map(|(byte, len)| vec![byte; len]).into();
    let entry = |bytes: &Vec<u8>| {
        let digest = Digest::of(bytes);
        let len = bytes.len() as u32;
        Entry { name: ChunkName(digest.0), digest, len, sealed: false }
    };
    let mut parity = vec![0; plain[0].len()];
    let data: Vec<&[u8]> = plain.iter().map(Vec::as_slice).collect();
    codec().encode(&data, &mut [&mut parity]);
    let segment = 65_536..131_072;
    let rebuild = Rebuild {
        codec: codec(),
        key: None,
        entries: plain.iter().map(entry).collect(),
        had: vec![
            None,
            Some(buffer(&buffers, &plain[1][65_536..]).await),
            Some(buffer(&buffers, &parity[segment.clone()]).await),
        ],
        opened: vec![false; 3],
        window: 65_536..131_072,
        whole: false,
        lacking: vec![0],
        rebuilt: vec![buffers.claim(65_536).await.buffer(65_536)],
    };
    let mut wrong = plain[0][segment.clone()].to_vec();
    assert!(rebuild.gives_back(0, &wrong));
    wrong[99] ^= 1;
    assert!(!rebuild.gives_back(0, &wrong), "a codec that erred");
    let whole = rebuild.run().expect("enough of them");
    assert_eq!(whole[0].as_deref(), Some(&plain[0][segment]));
}
