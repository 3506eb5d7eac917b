//! The keys of sealed spaces. A space has one key that seals what is written, and keeps each earlier one as long as
//! content is left that it seals, or a write session that began under it.
//!
//! Keys have numbers that are unique in the pool, so that a version names its key, and not its space besides, and the
//! versions under a key are found by an index.

use crate::error::Error;
use potluck_core::ids::KeyNumber;
use potluck_core::seal::{SpaceKey, SpaceKeys};
use serde::{Deserialize, Serialize};

/// The keys of a sealed space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRing {
    /// The number of the key that seals what is written from now on.
    pub current: KeyNumber,
    /// All keys that the space still needs.
    pub keys: SpaceKeys,
    /// True if somebody who could read the space has lost that right since the present key was made, and may have
    /// kept it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exposed: bool,
}

impl KeyRing {
    /// Makes the keys of a space that has only this one.
    pub fn new(number: KeyNumber, key: SpaceKey) -> Self {
        let keys = SpaceKeys([(number, key)].into());
        Self { current: number, keys, exposed: false }
    }

    /// Returns the key that seals what is written from now on.
    pub fn current_key(&self) -> Option<&SpaceKey> {
        self.keys.get(self.current)
    }

    /// Returns the numbers of the earlier keys.
    pub fn earlier(&self) -> impl Iterator<Item = KeyNumber> {
        self.keys.0.keys().copied().filter(|number| *number != self.current)
    }
}

/// Returns the keys that the column of a space has as JSON.
pub(crate) fn read(column: Option<String>) -> Result<Option<KeyRing>, Error> {
    let keys = column.map(|text| serde_json::from_str(&text)).transpose();
    keys.map_err(|why| Error::Damaged(format!("the keys of a space: {why}")))
}

/// Returns the keys of a space as its column has them.
pub(crate) fn written(keys: Option<&KeyRing>) -> Result<Option<String>, Error> {
    let text = keys.map(serde_json::to_string).transpose();
    text.map_err(|why| Error::Bug(why.to_string()))
}
