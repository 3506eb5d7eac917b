//! Restores from the log that the pool's donors keep.

use super::blocks::Blocks;
use super::fetch::BlockFetch;
use super::listen::{ListenOptions, RestoreListener};
use super::staging::Staging;
use super::{Replayed, Restore, Restored};
use crate::error::StateError;
use crate::log::chain::{self, Chain, ChainId, FoundChain};
use potluck_catalog::unlisted_files;
use potluck_core::ids::Epoch;
use potluck_core::size::count;
use potluck_wire::addresses::Addresses;
use potluck_wire::env::Env;

/// The directory of blocks that were fetched, inside the staging directory.
const BLOCKS: &str = "blocks";

/// Restores from the log that the pool's donors keep. `tell` hears of progress.
///
/// Errors: as [`super::restore_file`]; no donor answered, none has any block of the log that can be read, or none has
/// the chain that was asked for. Losses are no error: the report names them.
pub async fn restore_pool(
    ask: &Restore,
    options: &ListenOptions,
    env: Env,
    tell: impl Fn(&str),
) -> Result<Restored, StateError> {
    let staging = Staging::begin(ask)?;
    let gathered = Gathered::from_donors(&staging, &ask.advertise, options, env, &tell).await?;
    let chain = gathered.chosen(options.chain);
    gathered.restore(chain, Epoch(0), staging, &ask.advertise, &tell).await
}

/// The log as donors have it, while they are still listened to.
pub struct Gathered {
    listening: RestoreListener,
    blocks: Blocks,
    /// The chains of the log, the best first.
    pub chains: Vec<Chain>,
}

impl Gathered {
    /// Listens in the place of the lost manager, and fetches all blocks that the donors have which come.
    pub async fn from_donors(
        staging: &Staging,
        advertise: &Addresses,
        options: &ListenOptions,
        env: Env,
        tell: &impl Fn(&str),
    ) -> Result<Self, StateError> {
        let mut listening = RestoreListener::begin(staging, advertise, options, env).await?;
        let fetched = match listening.wait(options, tell).await {
            Ok(()) => fetch(staging, &listening, tell).await,
            Err(why) => Err(why),
        };
        match fetched {
            Ok(blocks) => {
                let chains = chain::chains(blocks.seen.clone());
                Ok(Self { listening, blocks, chains })
            }
            Err(why) => {
                listening.end().await;
                Err(why)
            }
        }
    }

    /// Returns the chain that was asked for; the best where none was.
    fn chosen(&self, asked: Option<ChainId>) -> Result<Chain, StateError> {
        let is_asked = |chain: &&Chain| asked.is_none() || chain.id() == asked;
        if let Some(chain) = self.chains.iter().find(is_asked) {
            return Ok(chain.clone());
        }
        Err(match asked.filter(|_| !self.chains.is_empty()) {
            Some(asked) => {
                let ids = self.chains.iter().filter_map(Chain::id).map(|id| id.to_string());
                StateError::NoChain { asked, found: ids.collect::<Vec<_>>().join(", ") }
            }
            None => StateError::NoLog {
                answered: self.listening.server.collecting.progress().answered,
                unread: self.blocks.unread + self.blocks.foreign,
            },
        })
    }

    /// Makes a pool of the state directory, from `chain`, with a later epoch than `above`.
    pub async fn restore(
        self,
        chain: Result<Chain, StateError>,
        above: Epoch,
        staging: Staging,
        advertise: &Addresses,
        tell: &impl Fn(&str),
    ) -> Result<Restored, StateError> {
        let made = chain.and_then(|chain| {
            tell(&format!("replaying {} blocks", chain.blocks.len()));
            let mut rebuild = staging.rebuild()?;
            self.blocks.replay(&chain, &mut rebuild)?;
            Ok((rebuild, chain))
        });
        let Self { listening, blocks, chains } = self;
        let collecting = &listening.server.collecting;
        let (listed, not_noted) = (collecting.take_listed(), collecting.not_noted());
        let heard = listening.end().await;
        let (rebuild, chain) = made?;
        let last = chain.blocks.last().map(|last| &last.header);
        let (generation, epoch) = last.map_or((0, Epoch(0)), |last| (last.generation, last.epoch));
        let passed_over = |seen| chain::passed_over(generation, epoch, seen);
        let log = Replayed {
            blocks: chain.blocks.len() as u64,
            until_ms: last.map(|last| last.wall_ms),
            gaps: chain.gaps,
            unread: blocks.unread,
            passed_over: passed_over(&blocks.seen),
            ..Replayed::default()
        };
        // A manager that lacked changes wrote other changes than these; these lack nothing for that.
        let passed_over = passed_over(&chain::accepted(&blocks.seen));
        let may_lack = Replayed { passed_over, ..log.clone() }.has_gaps();
        let catalog = staging.final_catalog();
        let report =
            staging.finish(advertise, rebuild, heard.max(epoch).max(above), log, may_lack)?;
        let unlisted = unlisted_files(&catalog, &listed)?;
        if not_noted > 0 && unlisted.files > 0 {
            let chunks = count(not_noted as u64, "chunk");
            tell(&format!(
                "donors listed {chunks} more than are noted: files may be named that can be read"
            ));
        }
        let chains: Vec<FoundChain> = chains.iter().filter_map(|one| one.found(&chain)).collect();
        Ok(Restored { unlisted: Some(unlisted), chains, ..report })
    }

    /// Listens no more, and makes nothing.
    pub async fn give_up(self) {
        self.listening.end().await;
    }
}

async fn fetch(
    staging: &Staging,
    listening: &RestoreListener,
    tell: &impl Fn(&str),
) -> Result<Blocks, StateError> {
    let collecting = &listening.server.collecting;
    let mut fetch = BlockFetch::new(&listening.server, staging.kit.recovery_key(), staging.pool());
    let there = count(collecting.blocks().len() as u64, "block");
    tell(&format!("fetching the metadata log: {there}"));
    Blocks::fetch(&mut fetch, collecting, &staging.scratch(BLOCKS)).await
}
