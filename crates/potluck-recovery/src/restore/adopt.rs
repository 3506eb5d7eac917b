//! Exchanges the catalog of a manager, which is older than one that ran before, for the newer one that donors keep.

use super::Restored;
use super::donors::Gathered;
use super::listen::ListenOptions;
use super::staging::{Staging, last_replaced};
use crate::error::StateError;
use crate::log::chain::Chain;
use crate::state_dir::{CATALOG, StateDir};
use potluck_catalog::{CatalogSnapshot, Position};
use potluck_core::ids::Epoch;
use potluck_wire::addresses::Addresses;
use potluck_wire::env::Env;
use std::path::{Path, PathBuf};

/// A newer catalog that took the place of an older one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The report of the restore that brought the newer one.
    pub restored: Restored,
    /// The directory in which the older one lies.
    pub replaced: PathBuf,
}

/// Takes the newest catalog that donors keep in the place of the one in the state directory `state`, which is kept beside it,
/// and returns `None` where that is the newest itself. No manager may run there; donors find the caller in its place.
/// Those that the catalog knows are visited besides those that `options` name. `tell` hears of progress.
///
/// Errors: as [`super::restore_pool`]. The catalog stays in its place then.
pub async fn adopt_newer(
    state: &Path,
    options: &ListenOptions,
    env: Env,
    tell: impl Fn(&str),
) -> Result<Option<Adopted>, StateError> {
    let staging = Staging::exchange(state)?;
    let own = OwnCatalog::read(&state.join(CATALOG))?;
    let mut options = options.clone();
    options.visit.extend(own.donors.iter().filter_map(|addresses| addresses.first().cloned()));
    let (advertise, tell) = (Addresses::default(), &tell);
    let gathered = Gathered::from_donors(&staging, &advertise, &options, env, tell).await?;
    let Some(chain) = gathered.chains.first().filter(|chain| own.is_older_than(chain)).cloned()
    else {
        gathered.give_up().await;
        return Ok(None);
    };
    let restored = gathered.restore(Ok(chain), own.epoch, staging, &advertise, tell).await?;
    let replaced = last_replaced(state).map_err(StateDir::io(state.into()))?;
    let replaced = replaced.map_or_else(|| state.into(), |(_, path)| path);
    Ok(Some(Adopted { restored, replaced }))
}

/// What the catalog that is in its place says of its age.
struct OwnCatalog {
    epoch: Epoch,
    may_lack: bool,
    /// The position to which it wrote its log on donors.
    on_donors: Option<Position>,
    donors: Vec<Addresses>,
}

impl OwnCatalog {
    fn read(catalog: &Path) -> Result<Self, StateError> {
        let snapshot = CatalogSnapshot::begin(catalog)?;
        Ok(Self {
            epoch: snapshot.epoch()?,
            may_lack: snapshot.may_lack()?,
            on_donors: snapshot.on_donors()?,
            donors: snapshot.donor_addresses()?,
        })
    }

    /// Returns whether `chain`, of which nothing is missing, has changes that this catalog lacks.
    fn is_older_than(&self, chain: &Chain) -> bool {
        let Some(last) = chain.blocks.last().map(|last| &last.header) else { return false };
        let goes_beyond = match &self.on_donors {
            Some(own) if chain.blocks.iter().any(|block| block.name == own.last) => {
                last.sequence > own.sequence
            }
            // The other one went on elsewhere; a catalog that knows of it is the older one.
            Some(own) => self.may_lack || (last.epoch, last.sequence) > (own.epoch, own.sequence),
            // It wrote no log yet in its last term, or an admin just accepted it: what a later term wrote is newer, and in
            // its own only what was written after it was copied.
            None => self.may_lack || last.epoch >= self.epoch,
        };
        chain.is_whole() && goes_beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::block::{BlockPart, Header};
    use crate::log::chain::{Gaps, SeenBlock};
    use potluck_core::chunk::{ChunkName, Digest};

    #[test]
    fn only_a_whole_chain_that_goes_on_beyond_the_own_log_is_taken() {
        let chain = |epoch, sequence| {
            let header = Header {
                sequence,
                generation: 3,
                part: BlockPart::Log,
                before: None,
                epoch: Epoch(epoch),
                attempt: 1,
                wall_ms: 0,
                start: 1,
                files: 1,
                may_lack: false,
            };
            let name = ChunkName::of(&[epoch as u8, sequence as u8]);
            let blocks = vec![SeenBlock { name, header }];
            Chain { blocks, gaps: Gaps::default(), whole_base: true }
        };
        let position = Position {
            sequence: 9,
            ..Position::first(Digest([7; 32]), 3, ChunkName::of(&[2, 9]), Epoch(2), 1, 0)
        };
        let own = |may_lack, on_donors| {
            let (epoch, donors) = (Epoch(2), Vec::new());
            OwnCatalog { epoch, may_lack, on_donors, donors }
        };
        let known = own(false, Some(position.clone()));
        for (newer, epoch, sequence) in [(false, 2, 9), (false, 1, 99), (true, 2, 10), (true, 3, 9)]
        {
            assert_eq!(known.is_older_than(&chain(epoch, sequence)), newer, "{epoch} {sequence}");
        }
        let unwritten = own(false, None);
        assert!(unwritten.is_older_than(&chain(2, 1)), "it was copied before its first block");
        assert!(!unwritten.is_older_than(&chain(1, 99)), "it was restored from that, or accepted");
        assert!(own(true, None).is_older_than(&chain(1, 1)), "it knows that it is older");
        let marked = own(true, Some(position));
        assert!(marked.is_older_than(&chain(1, 10)), "it knows that it is older");
        assert!(!marked.is_older_than(&chain(2, 9)), "this is what it has itself");
        let mut lacking = chain(9, 9);
        lacking.gaps.inherited = true;
        assert!(!known.is_older_than(&lacking));
        (lacking.gaps, lacking.whole_base) = (Gaps { missing: 1, ..Gaps::default() }, true);
        assert!(!known.is_older_than(&lacking), "what is missing may come with other donors");
    }
}
