//! Restores from the log that the pool's donors keep.

use super::blocks::Blocks;
use super::fetch::BlockFetch;
use super::listen::{ListenOptions, RestoreListener};
use super::staging::Staging;
use super::{Replayed, Restore, Restored};
use crate::error::StateError;
use crate::log::chain::{self, Preference};
use crate::state_dir::CATALOG;
use potluck_catalog::{Rebuild, unlisted_files};
use potluck_core::ids::Epoch;
use potluck_core::size::count;
use potluck_wire::env::Env;

/// The directory of blocks that were fetched, inside the staging directory.
const BLOCKS: &str = "blocks";

/// Restores from the log that the pool's donors keep. `tell` hears of progress.
///
/// Errors: as [`super::restore_file`]; no donor answered, or none has any block of the log that can be read. Losses
/// are no error: the report names them.
pub async fn restore_pool(
    ask: &Restore,
    options: &ListenOptions,
    env: Env,
    tell: impl Fn(&str),
) -> Result<Restored, StateError> {
    let staging = Staging::begin(ask)?;
    let mut listening = RestoreListener::begin(&staging, ask, options, env).await?;
    let made = match listening.wait(options, &tell).await {
        Ok(()) => make(&staging, &listening, options.prefer, &tell).await,
        Err(why) => Err(why),
    };
    let collecting = &listening.server.collecting;
    let (listed, not_noted) = (collecting.take_listed(), collecting.not_noted());
    let heard = listening.end().await;
    let (rebuild, log, epoch) = made?;
    let report = staging.finish(ask, rebuild, heard.max(epoch), log)?;
    let unlisted = unlisted_files(&ask.state.join(CATALOG), &listed)?;
    if not_noted > 0 && unlisted.files > 0 {
        let chunks = count(not_noted as u64, "chunk");
        tell(&format!(
            "donors listed {chunks} more than are noted: files may be named that can be read"
        ));
    }
    Ok(Restored { unlisted: Some(unlisted), ..report })
}

/// Makes the catalog from the blocks that donors have. Returns with it what was replayed, and the epoch of the manager
/// that wrote the last replayed block.
async fn make(
    staging: &Staging,
    listening: &RestoreListener,
    prefer: Preference,
    tell: &impl Fn(&str),
) -> Result<(Rebuild, Replayed, Epoch), StateError> {
    let collecting = &listening.server.collecting;
    let mut fetch =
        BlockFetch::new(&listening.server, staging.kit.recovery_key(), staging.fingerprint());
    let there = count(collecting.blocks().len() as u64, "block");
    tell(&format!("fetching the metadata log: {there}"));
    let dir = staging.scratch(BLOCKS);
    let blocks = Blocks::fetch(&mut fetch, collecting, &dir).await?;
    let chain = chain::choose(blocks.seen.clone(), prefer).ok_or_else(|| StateError::NoLog {
        answered: collecting.progress().answered,
        unread: blocks.unread,
    })?;
    tell(&format!("replaying {} blocks", chain.blocks.len()));
    let mut rebuild = staging.rebuild()?;
    blocks.replay(&chain, &mut rebuild)?;
    let last = chain.blocks.last().map(|last| &last.header);
    let (generation, epoch) = last.map_or((0, Epoch(0)), |last| (last.generation, last.epoch));
    let replayed = Replayed {
        blocks: chain.blocks.len() as u64,
        until_ms: last.map(|last| last.wall_ms),
        gaps: chain.gaps,
        unread: blocks.unread,
        passed_over: chain::passed_over(generation, epoch, &blocks.seen),
        ..Replayed::default()
    };
    Ok((rebuild, replayed, epoch))
}
