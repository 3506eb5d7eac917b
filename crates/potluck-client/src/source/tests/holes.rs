//! Tests that holes of local files are left out, and that all else is cut as it would be without them.

use super::*;
use potluck_core::entropy::Entropy;
use potluck_core::erasure::Codec;
use potluck_core::merkle::Tree;
use potluck_core::recipe::{Content, part_bytes};

/// The bytes that a file is cut into, and what is left out.
#[derive(Default)]
struct Cuts {
    /// The content of each part that has chunks, by number.
    parts: Vec<(u64, Content)>,
    bytes: Vec<u8>,
    holes: u64,
}

async fn cut(path: &std::path::Path, policy: &Policy, key: Option<&SpaceKey>) -> (Cuts, Facts) {
    let items = Box::new(std::iter::once(item("f", Input::File(path.into()))));
    let mut cutter = Cutter::new(items, policy, key.cloned(), Default::default());
    let buffers = Buffers::new(16 << 20);
    let row = part_bytes(policy.chunk_size, policy.is_cut_by_content());
    let mut cuts = Cuts::default();
    let (mut number, mut part) = (0, Content::default());
    loop {
        for cut in cutter.next(buffers.claim(Cutter::room(policy)).await) {
            match cut {
                Cut::Group { data, parity, .. } => {
                    let stored: Vec<Vec<u8>> = data.iter().map(|(_, body)| body.to_vec()).collect();
                    if let Some(ec) = policy.ec {
                        let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
                        let len = stored.iter().map(|chunk| chunk.len()).max().expect("a chunk");
                        let mut expected = vec![0; len];
                        Codec::new(ec).encode(&stored, &mut [&mut expected]);
                        assert_eq!(parity.len(), 1);
                        assert!(parity[0].1.to_vec() == expected);
                    }
                    for ((entry, _), mut body) in data.into_iter().zip(stored) {
                        if let Some(key) = key {
                            key.cipher(Meaning::Chunk, &entry.digest).apply(0, &mut body);
                        }
                        assert_eq!(Digest::of(&body), entry.digest);
                        cuts.bytes.extend_from_slice(&body);
                        part.push(entry);
                    }
                }
                Cut::Hole { len, .. } => {
                    cuts.bytes.resize(cuts.bytes.len() + len as usize, 0);
                    cuts.holes += len;
                    part.push_hole(len);
                }
                Cut::HoleParts { count, .. } => {
                    assert_eq!(part, Content::default());
                    let len = u64::from(count) * row;
                    cuts.bytes.resize(cuts.bytes.len() + len as usize, 0);
                    cuts.holes += len;
                    number += u64::from(count);
                }
                Cut::PartEnd { digest, .. } => {
                    assert_eq!(part.size(), row);
                    assert!(part.digest().is_none_or(|told| told == digest));
                    cuts.parts.push((number, std::mem::take(&mut part)));
                    number += 1;
                }
                Cut::End { facts, .. } => {
                    cuts.bytes.extend(facts.inline.clone().unwrap_or_default());
                    assert!(
                        part.digest()
                            .is_none_or(|told| told == facts.last_part || facts.inline.is_some())
                    );
                    cuts.parts.push((number, part));
                    return (cuts, facts);
                }
                Cut::Failed { error, .. } => panic!("{error}"),
            }
        }
    }
}

/// Writes a file of `size` bytes that has data at `runs`, the rest of it being holes as far as the system makes them.
fn sparse(path: &std::path::Path, size: u64, runs: &[(u64, usize)]) -> Vec<u8> {
    let file = File::create(path).expect("made");
    file.set_len(size).expect("extended");
    for (at, len) in runs {
        let len = *len.min(&(size.saturating_sub(*at) as usize));
        file.write_all_at(&content(len), *at).expect("written");
    }
    std::fs::read(path).expect("read")
}

#[tokio::test]
async fn sparse_file_is_cut_like_its_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let entropy = SeededEntropy::new(7);
    let below = |end: u64| (&entropy as &dyn Entropy).u64() % end;
    let policies = [
        policy(),
        Policy { ec: Some("2+1".parse().expect("a code")), copies: 1, ..policy() },
        Policy { ec: Some("3+1".parse().expect("a code")), copies: 1, ..policy() },
        Policy { cut: potluck_core::policy::Cutting::Content, ..policy() },
    ];
    for policy in &policies {
        let row = part_bytes(CHUNK as u32, policy.is_cut_by_content());
        let unit = (CHUNK * policy.ec.map_or(1, |ec| ec.data())) as u64;
        for round in 0..6 {
            let size = match round {
                0 => 3 * row,
                1 => 2 * row + 5,
                2 => unit + 1,
                _ => below(4 * row),
            };
            let place = |at: u64| {
                let step = [1, 4096, CHUNK as u64][below(3) as usize];
                at / step * step
            };
            let mut runs: Vec<(u64, usize)> =
                (0..below(9)).map(|_| (place(below(size + 1)), below(200_000) as usize)).collect();
            runs.retain(|(at, _)| *at < size);
            let bytes = sparse(&path, size, &runs);
            let key = (round % 2 == 1).then(|| SpaceKey::generate(&entropy));
            let (cuts, facts) = cut(&path, policy, key.as_ref()).await;
            let what = format!("{size} bytes with {runs:?} by {policy:?}");
            assert!(cuts.bytes == bytes, "{what}");
            assert_eq!((facts.size, facts.digest), (size, Digest::of(&bytes)), "{what}");
            let mut tree = Tree::default();
            bytes.chunks(row as usize).for_each(|part| tree.push(Digest::of(part).0));
            assert_eq!(tree.root(), facts.digest.0);
            let stored = size - cuts.holes;
            let step = if policy.is_cut_by_content() { row } else { unit };
            let most: u64 = runs.iter().map(|(_, len)| *len as u64 + 2 * step).sum();
            assert!(stored <= most, "{stored} bytes of at most {most} are stored: {what}");
        }
    }
}
