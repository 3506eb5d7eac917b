use super::fabrication::values;
use super::{Decoder, decoders, words};
use potluck_core::chunk::Digest;
use potluck_core::entropy::{Entropy, SeededEntropy};
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic;
use std::path::Path;

/// The most inputs of each kind for one decoder.
const INPUTS: usize = 3000;

#[test]
fn every_seed_is_read() {
    let mut refused = Vec::new();
    for decoder in decoders() {
        let seeds = (decoder.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", decoder.name);
        let bad = seeds.iter().filter(|seed| !(decoder.read)(seed));
        refused.extend(bad.map(|seed| format!("{}: {}", decoder.name, seed.escape_ascii())));
    }
    assert!(refused.is_empty(), "refused:\n{}", refused.join("\n"));
}

#[test]
fn mutated_seeds_never_panic() {
    for decoder in decoders() {
        let seeds = (decoder.seeds)();
        truncated(&seeds).for_each(|input| feed(decoder, input));
        let words = words(&seeds).into_iter().collect::<Vec<_>>();
        let mut chance = Chance(Box::new(SeededEntropy::new(7)));
        for _ in 0..INPUTS {
            feed(decoder, &chance.mutated(&seeds, &words));
        }
    }
}

/// Returns the calls that a source defines, by the names of their types.
fn defined_calls(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let call = line.strip_prefix("call!(").or_else(|| line.strip_prefix("impl Call for "))?;
        call.split(' ').next()
    })
}

#[test]
fn every_call_of_the_wire_is_fuzzed() {
    macro_rules! names {
        ($($call:ident)*) => { [$(stringify!($call)),*] };
    }
    let fuzzed = potluck_wire::every_call!(names);
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/potluck-wire/src/control");
    let sources: Vec<String> = fs::read_dir(dir)
        .expect("listed")
        .map(|file| fs::read_to_string(file.expect("a file").path()).expect("read"))
        .collect();
    let defined: BTreeSet<&str> = sources.iter().flat_map(|text| defined_calls(text)).collect();
    assert_eq!(defined, BTreeSet::from(fuzzed));
    assert_eq!(defined.len(), fuzzed.len(), "one is there twice");
}

#[test]
fn names_are_those_of_one_decoder_each() {
    let names: BTreeSet<_> = decoders().map(|decoder| decoder.name).collect();
    assert_eq!(names.len(), decoders().count());
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Letter {
    to: PoolPath,
    how: Means,
    by: BTreeMap<u32, Vec<Digest>>,
    #[serde(flatten)]
    weight: Weight,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Means {
    Foot,
    Bus(u16),
    Car { wheels: Option<u8> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Weight {
    kilograms: String,
}

#[test]
fn values_of_a_type_have_every_variant_and_every_field() {
    let letters = values::<Letter>();
    let to = || "pot://lab/a".parse().expect("a path");
    let weight = || Weight { kilograms: "pot://lab/a".into() };
    let full = |how| Letter {
        to: to(),
        how,
        by: [(1, vec![Digest([0x11; 32])])].into(),
        weight: weight(),
    };
    let sparse = Letter { to: to(), how: Means::Foot, by: BTreeMap::new(), weight: weight() };
    let means = [Means::Foot, Means::Bus(1), Means::Car { wheels: Some(1) }];
    let expected: Vec<Letter> = [sparse].into_iter().chain(means.map(full)).collect();
    assert_eq!(letters, expected);
}

fn feed(decoder: &Decoder, input: &[u8]) {
    if panic::catch_unwind(|| (decoder.read)(input)).is_err() {
        let shown = input.escape_ascii();
        panic!("{} panicked at b\"{shown}\"", decoder.name);
    }
}

/// Returns beginnings of the seeds: all of them, or at most `INPUTS` that are spread evenly over all.
fn truncated(seeds: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    let all: usize = seeds.iter().map(Vec::len).sum();
    let cuts = seeds.iter().flat_map(|seed| (0..seed.len()).map(|len| &seed[..len]));
    cuts.step_by(all.div_ceil(INPUTS))
}

struct Chance(Box<dyn Entropy>);

impl Chance {
    fn below(&self, limit: usize) -> usize {
        (self.0.u64() % limit.max(1) as u64) as usize
    }

    /// Returns a seed with one to four changes: bytes are replaced, inserted or left out, or a part of another seed
    /// is put in.
    fn mutated(&mut self, seeds: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let start = self.below(input.len() + 1);
            let end = start + self.below((input.len() - start).min(8) + 1);
            let other = &seeds[self.below(seeds.len())];
            let from = self.below(other.len() + 1);
            let new = match self.below(5) {
                0 => Vec::new(),
                1 => vec![self.0.u64() as u8; end - start],
                2 => self.0.u64().to_le_bytes()[..self.below(9)].to_vec(),
                3 => words.get(self.below(words.len())).map_or(Vec::new(), |word| word.to_vec()),
                _ => other[from..other.len().min(from + 16)].to_vec(),
            };
            input.splice(start..end, new);
        }
        input
    }
}
