//! Remembers what never changes about a space, so that a commit need not ask the catalog for it.

use potluck_catalog::{Catalog, Error, Space};
use potluck_core::ids::SpaceId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The most spaces that are remembered. Beyond that all are forgotten, and looked up again when they are needed.
const MOST: usize = 4096;

/// The facts about a space that never change: no space is renamed, or sealed later, and numbers are not used again.
#[derive(Debug)]
pub struct FixedFacts {
    /// The name of the space.
    pub name: String,
    /// True if the space is sealed.
    pub sealed: bool,
}

impl From<Space> for FixedFacts {
    fn from(space: Space) -> Self {
        Self { name: space.name, sealed: space.keys.is_some() }
    }
}

/// The spaces whose facts were looked up. Some may have been removed since: whoever writes to one of these is refused in
/// the catalog's transaction.
#[derive(Debug, Default)]
pub struct KnownSpaces(Mutex<HashMap<SpaceId, Arc<FixedFacts>>>);

impl KnownSpaces {
    /// Returns the facts about a space; `None` if they were never looked up and it was removed.
    pub async fn facts(
        &self,
        catalog: &Catalog,
        space: SpaceId,
    ) -> Result<Option<Arc<FixedFacts>>, Error> {
        let known = self.0.lock().expect("no holder panics").get(&space).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let facts = catalog.space(space).await?.map(|space| Arc::new(FixedFacts::from(space)));
        if let Some(facts) = &facts {
            let mut known = self.0.lock().expect("no holder panics");
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(space, Arc::clone(facts));
        }
        Ok(facts)
    }
}
