//! Programs that use the client library as a mount or a gateway does: many calls and reads from one process.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use potluck_wire::identity::Identity;
use potluck_wire::net::SystemNet;
use potluck_wire::tls::{TlsDial, install_provider};
use tokio::runtime::Runtime;

use crate::rate;

/// The size of a read, in bytes.
pub const READ: u64 = 4096;

/// Reads `READ` bytes at random places of one open file, again and again, and prints the rate.
pub fn random_reads(identity: &Path, path: &str, threads: usize) -> Result<()> {
    let (client, runtime) = begin(identity)?;
    let path: PoolPath = parse(path)?;
    let file = runtime.block_on(client.open(&path)).map_err(said)?;
    let places = file.size() / READ;
    ensure!(places > 0, "{path} is shorter than one read");
    let rate = rate::measure(threads, || {
        let (file, runtime) = (file.clone(), &runtime);
        Ok(move |number: u64| {
            let at = number % places * READ;
            let read = runtime.block_on(file.read_at(at, READ as usize)).map_err(said)?;
            ensure!(read.len() as u64 == READ, "a read brought {} bytes", read.len());
            Ok(())
        })
    })?;
    rate.print()
}

/// Asks for the attributes of random files of a tree that `names` made, and prints the rate.
pub fn stats(identity: &Path, tree: &str, files: u64, threads: usize) -> Result<()> {
    let (client, runtime) = begin(identity)?;
    let rate = rate::measure(threads, || {
        let (client, runtime) = (client.clone(), &runtime);
        Ok(move |number: u64| {
            let path = parse(&format!("{tree}/{}", crate::names::file(number % files)))?;
            runtime.block_on(client.stat(&path)).map_err(said)?;
            Ok(())
        })
    })?;
    rate.print()
}

/// Makes a client of the pool, and the runtime that its calls run on.
pub fn begin(identity: &Path) -> Result<(Pool, Runtime)> {
    install_provider();
    let identity = Identity::load(identity).map_err(|why| anyhow!("{why}"))?;
    let dial = TlsDial::member(&identity).map_err(|why| anyhow!("{why}"))?;
    let caller = Caller::new(Arc::new(SystemNet), Arc::new(dial), identity.about.manager);
    Ok((Pool::new(Env::system(), caller), Runtime::new().context("a runtime")?))
}

fn parse(path: &str) -> Result<PoolPath> {
    path.parse().map_err(|why| anyhow!("{path}: {why}"))
}

/// Returns the failure of a client's call as an error of the bench.
pub fn said(failure: Failure) -> anyhow::Error {
    anyhow!("{failure}")
}
