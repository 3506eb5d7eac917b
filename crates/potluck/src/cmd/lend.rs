//! `potluck lend`: the donor.

use super::Ending;
use super::join;
use crate::args::{Lend, LendTerms};
use crate::output::Output;
use crate::ready;
use crate::settings::{self, Settings};
use potluck_core::budget::Limits;
use potluck_core::size::format_size;
use potluck_donor::disk::SystemDisk;
use potluck_donor::{Donor, DonorConfig};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Never lend more than this unless told to.
const DEFAULT_MAX: u64 = 500 << 30;

pub async fn run(args: Lend, settings: &Settings, output: &Output) -> Result<Ending, Failure> {
    let state = args.state.unwrap_or_else(|| settings.donor_dir());
    if let Some(token) = args.token.as_deref().filter(|_| !Identity::exists(&state)) {
        let identity = join::join(&join::parse(token)?, args.name).await?;
        join::save(&identity, &state)?;
    }
    let identity = Settings::donor_identity(&state)?;
    let dir = absolute(&args.dir)?;
    let config = DonorConfig {
        listen: args.listen,
        advertise: args.advertise,
        ..config(args.terms, dir, absolute(&state)?)?
    };
    let donor = start(config, &identity, output).await?;
    ready::announce(args.ready_file.as_deref(), donor.address())?;
    donor.run(ready::asked_to_stop()).await.map_err(failed)?;
    Ok(Ending::Done)
}

/// The path from the root: a daemon's working directory means nothing.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let what = format!("“{}” names no directory: {error}", path.display());
        Failure::new(ErrorKind::Usage, code::LOCAL_IO, what).hint("name the directory to lend")
    })
}

/// Starts a donor and says what it lends.
pub async fn start(
    config: DonorConfig,
    identity: &Identity,
    output: &Output,
) -> Result<Donor, Failure> {
    let (dir, limits) = (config.dir.display().to_string(), config.limits);
    let caller = settings::caller(identity)?;
    let donor =
        Donor::start(config, Env::system(), Arc::new(SystemDisk), caller).await.map_err(failed)?;
    output.note(&format!(
        "lending up to {} in {dir} to pool {}, always leaving {} of the disk free; at {}",
        format_size(limits.max),
        identity.about.pool,
        limits.keep_free,
        donor.address(),
    ));
    Ok(donor)
}

/// A donor that lends on these terms; by default a quarter of what is free now.
pub fn config(terms: LendTerms, dir: PathBuf, state: PathBuf) -> Result<DonorConfig, Failure> {
    let max = match terms.max {
        Some(max) => max,
        None => (free_bytes(&dir)? / 4).min(DEFAULT_MAX),
    };
    let limits = Limits { max, keep_free: terms.keep_free };
    Ok(DonorConfig {
        label: terms.label,
        grace: terms.away,
        scrub_every: terms.scrub_every,
        ..DonorConfig::new(dir, state, limits)
    })
}

fn free_bytes(dir: &Path) -> Result<u64, Failure> {
    // The directory may not be made yet; its file system is that of the nearest one that is.
    let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let about = rustix::fs::statvfs(existing).map_err(|error| {
        let what = format!("cannot look at the disk of {}: {error}", dir.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what).hint("give --max")
    })?;
    Ok(about.f_bavail * about.f_frsize)
}

/// A donor that cannot go on.
pub fn failed(error: potluck_donor::DonorError) -> Failure {
    Failure::new(ErrorKind::Other, code::LOCAL_IO, error.to_string())
}
