//! Reads JSON as any of several types, and makes seeds of them.

use crate::fabrication;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type that is read as JSON.
pub struct Json {
    name: fn() -> &'static str,
    read: fn(&[u8]) -> bool,
    seeds: fn() -> Vec<Vec<u8>>,
}

impl Json {
    pub const fn of<T: Serialize + DeserializeOwned>() -> Self {
        Self { name: std::any::type_name::<T>, read: read::<T>, seeds: seeds::<T> }
    }

    /// Returns whether this type is `T`.
    pub fn is<T>(&self) -> bool {
        (self.name)() == std::any::type_name::<T>()
    }
}

/// Reads JSON; the first byte says as which of the types.
pub fn read_one(types: &[Json], bytes: &[u8]) -> bool {
    let Some((which, json)) = bytes.split_first() else { return false };
    (types[usize::from(*which) % types.len()].read)(json)
}

/// Makes seeds of all of the types, each with the number of its type before it.
pub fn seeds_of_all(types: &[Json]) -> Vec<Vec<u8>> {
    let numbered = (0..=u8::MAX).zip(types);
    let seeds = numbered.flat_map(|(number, of)| {
        let seeds = (of.seeds)();
        assert!(!seeds.is_empty(), "nothing can be made up of which {} is read", (of.name)());
        seeds.into_iter().map(move |json| [&[number][..], &json].concat())
    });
    seeds.collect()
}

/// Reads a value, and checks that it is written as something that reads as the same value; false if it is refused.
pub fn read<T: Serialize + DeserializeOwned>(json: &[u8]) -> bool {
    let Ok(read) = serde_json::from_slice::<T>(json) else { return false };
    let told = serde_json::to_vec(&read).expect("what was read is written");
    let again: T = serde_json::from_slice(&told).expect("what was written is read");
    assert_eq!(serde_json::to_vec(&again).expect("written"), told);
    true
}

/// Makes values of the type, as they are written.
pub fn seeds<T: Serialize + DeserializeOwned>() -> Vec<Vec<u8>> {
    let values = fabrication::values::<T>();
    values.iter().map(|value| serde_json::to_vec(value).expect("written")).collect()
}
