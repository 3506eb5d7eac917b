//! The addresses that an import was given, and under which names the files land that they mean.

use super::super::bad_path;
use super::super::cp::{Landing, target as landed};
use super::usage;
use crate::args::ImportArgs;
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_origin::{Origins, below, name_of};
use potluck_wire::control::EntryKind;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::fs;
use std::io;
use std::path::Path;

/// A file to be imported.
pub struct RemoteFile {
    /// The address of the file.
    pub uri: String,
    /// The path at which it lands in the pool.
    pub path: PoolPath,
}

/// Returns all addresses that were given: as arguments, and on the lines of a file, of which empty ones and those that
/// begin with # are passed over.
pub fn addresses(args: &ImportArgs) -> Result<Vec<String>, Failure> {
    let mut all = args.from.clone();
    if let Some(path) = &args.from_file {
        let text = match path == Path::new("-") {
            true => io::read_to_string(io::stdin()),
            false => fs::read_to_string(path),
        };
        let text = text.map_err(|error| {
            let what = format!("cannot read {}: {error}", path.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
                .hint("it has one address on each line")
        })?;
        let lines = text.lines().map(str::trim);
        all.extend(
            lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned),
        );
    }
    match all.is_empty() {
        true => Err(usage("no address is given").hint("name one, or a file with --from-file")),
        false => Ok(all),
    }
}

/// Finds the files that addresses mean, and where they land: what is listed below an address goes into the target, and a
/// single file does as `cp` would have it.
pub async fn find(
    addresses: &[String],
    (to, into): (&PoolPath, bool),
    client: &Pool,
    origins: &Origins,
) -> Result<Vec<RemoteFile>, Failure> {
    let is_dir = client.kind(to).await? == Some(EntryKind::Dir);
    let landing = Landing { into, is_dir, several: addresses.len() > 1 };
    let mut found = Vec::new();
    for uri in addresses {
        let path = uri.split(['?', '#']).next().unwrap_or_default();
        if path.ends_with('/') {
            for remote in origins.list(uri).await? {
                let path = to.join_all(remote.path.split('/')).map_err(bad_path)?;
                found.push(RemoteFile { uri: below(uri, &remote.path)?, path });
            }
            continue;
        }
        let takes_in = landing.into || landing.is_dir || landing.several;
        let name = name_of(uri).filter(|_| takes_in);
        if takes_in && name.is_none() {
            return Err(usage(&format!("“{uri}” ends with no name that a file may have"))
                .hint("name the file: potluck import URL pot://SPACE/NAME"));
        }
        found.push(RemoteFile { uri: uri.clone(), path: landed(to, name.as_deref())? });
    }
    Ok(found)
}
