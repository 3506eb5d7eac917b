//! The erasure code, against its promise and against another implementation of the same matrix.

use potluck_core::entropy::{Entropy, SeededEntropy};
use potluck_core::erasure::{Codec, Ec, MAX_DATA, MAX_PARITY, MIN_SHARD};
use proptest::prelude::*;
use rustfs_erasure_codec::galois_8::ReedSolomon;

fn ec() -> impl Strategy<Value = Ec> {
    (2..=MAX_DATA, 1..=MAX_PARITY).prop_map(|(m, k)| Ec::new(m, k).expect("in range"))
}

/// Makes a group as cutting makes it: up to m data chunks of one length, of which the last may be shorter.
fn group(ec: Ec, seed: u64) -> Vec<Vec<u8>> {
    let entropy: &dyn Entropy = &SeededEntropy::new(seed);
    let pick = |below: usize| (entropy.u64() % below as u64) as usize;
    let (count, len) = (1 + pick(ec.data()), 1 + pick(100_000));
    let last = 1 + pick(len);
    (0..count)
        .map(|at| {
            let mut chunk = vec![0; if at + 1 == count { last } else { len }];
            entropy.fill(&mut chunk);
            chunk
        })
        .collect()
}

fn parity(codec: &Codec, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let len = data.iter().map(Vec::len).max().expect("a chunk");
    let mut parity = vec![vec![0; len]; codec.ec().parity()];
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut out: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    codec.encode(&data, &mut out);
    parity
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_m_chunks_of_a_group_give_back_the_others(
        ec in ec(), seed: u64, order in Just((0..24_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let (codec, data) = (Codec::new(ec), group(ec, seed));
        let parity = parity(&codec, &data);
        let len = parity[0].len();
        let chunk = |at: usize| match at.checked_sub(ec.data()) {
            None => data.get(at).map_or(&[][..], Vec::as_slice),
            Some(at) => &parity[at],
        };
        // Chunks of zeros, which pad the group, are always there. Of the other chunks so many are lost that m are
        // left.
        let real = |at: &usize| *at < data.len() || (ec.data()..ec.width()).contains(at);
        let mut lost: Vec<usize> = order.into_iter().filter(real).take(ec.parity()).collect();
        let there: Vec<Option<&[u8]>> =
            (0..ec.width()).map(|at| (!lost.contains(&at)).then(|| chunk(at))).collect();
        let mut rebuilt = vec![vec![7; len]; lost.len()];
        let mut out: Vec<&mut [u8]> = rebuilt.iter_mut().map(Vec::as_mut_slice).collect();
        codec.rebuild(&there, &lost, &mut out).expect("m chunks are there");
        for (at, rebuilt) in lost.iter().zip(&rebuilt) {
            let (bytes, zeros) = rebuilt.split_at(chunk(*at).len());
            prop_assert_eq!(bytes, chunk(*at));
            prop_assert!(zeros.iter().all(|byte| *byte == 0));
        }

        // One lost chunk alone is rebuilt to the same bytes, and with one more lost it is refused.
        let mut alone = vec![7; len];
        codec.rebuild(&there, &lost[..1], &mut [&mut alone]).expect("m chunks are there");
        prop_assert_eq!(&alone, &rebuilt[0]);
        let another = (0..ec.width()).filter(|at| real(at)).find(|at| !lost.contains(at));
        if let Some(another) = another {
            lost.push(another);
            let mut there = there;
            there[another] = None;
            prop_assert!(codec.rebuild(&there, &lost[..1], &mut [&mut alone]).is_err());
        }
    }

    #[test]
    fn parity_is_what_another_implementation_computes(ec in ec(), seed: u64) {
        let data = group(ec, seed);
        let ours = parity(&Codec::new(ec), &data);
        let len = ours[0].len();
        let mut padded = data;
        padded.resize(ec.data(), Vec::new());
        padded.iter_mut().for_each(|chunk| chunk.resize(len, 0));
        let oracle = ReedSolomon::new(ec.data(), ec.parity()).expect("a codec");
        let mut theirs = vec![vec![0; len]; ec.parity()];
        oracle.encode_sep(&padded, &mut theirs).expect("equal lengths");
        prop_assert!(ours == theirs);
    }

    #[test]
    fn last_group_is_cut_into_even_chunks(
        ec in ec(), shift in 16..27_u32, left in 1..1_u64 << 40, small: bool,
    ) {
        let chunk = 1 << shift;
        let group = u64::from(chunk) * ec.data() as u64;
        let left = if small { left % group + 1 } else { left };
        let shard = ec.shard_len(left, chunk);
        prop_assert!(shard <= chunk && shard >= MIN_SHARD.min(chunk));
        if left >= group {
            prop_assert_eq!(shard, chunk);
        } else {
            prop_assert!(u64::from(shard) * ec.data() as u64 >= left, "one group holds it");
        }
    }
}

/// Tries every code once, with as many data chunks lost as may be.
#[test]
fn every_code_gives_back_its_first_chunks() {
    for (m, k) in (2..=MAX_DATA).flat_map(|m| (1..=MAX_PARITY).map(move |k| (m, k))) {
        let ec = Ec::new(m, k).expect("in range");
        let codec = Codec::new(ec);
        let data: Vec<Vec<u8>> =
            (0..m).map(|at| vec![at.wrapping_mul(37).wrapping_add(k); 100]).collect();
        let parity = parity(&codec, &data);
        let lost: Vec<usize> = (0..ec.parity().min(ec.data())).collect();
        let there: Vec<Option<&[u8]>> = data
            .iter()
            .chain(&parity)
            .enumerate()
            .map(|(at, chunk)| (!lost.contains(&at)).then_some(&chunk[..]))
            .collect();
        let mut rebuilt = vec![vec![0; 100]; lost.len()];
        let mut out: Vec<&mut [u8]> = rebuilt.iter_mut().map(Vec::as_mut_slice).collect();
        codec.rebuild(&there, &lost, &mut out).expect("m chunks are there");
        assert_eq!(rebuilt, data[..lost.len()], "{ec}");
    }
}
