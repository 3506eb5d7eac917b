//! `potluck hash`: computes the digests by which a pool would know local files, without a pool.

use super::Ending;
use super::several::Several;
use crate::args::HashArgs;
use crate::output::{Output, told};
use potluck_core::chunk::Digest;
use potluck_core::file_digest::FileDigest;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The number of bytes read at a time.
const PIECE: usize = 1 << 20;

#[derive(Serialize)]
struct Hashed<'a> {
    path: &'a Path,
    size: u64,
    digest: Digest,
}

pub fn run(args: &HashArgs, output: &Output) -> Result<Ending, Failure> {
    let mut several = Several::default();
    for path in &args.files {
        let hashed = hash(path).map_err(|error| unreadable(path, &error));
        if let Ok(hashed) = &hashed {
            output.answer(hashed, |it| {
                format!("{}  {}", it.digest, told(&it.path.to_string_lossy()))
            });
        }
        several.note(path.display(), hashed.map(drop));
    }
    several.end(output)
}

/// Returns the digest by which a pool knows a local file.
pub fn digest_of(path: &Path) -> io::Result<Digest> {
    hash(path).map(|hashed| hashed.digest)
}

fn hash(path: &Path) -> io::Result<Hashed<'_>> {
    let mut input: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path)?),
    };
    let (mut digest, mut size) = (FileDigest::default(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece) {
            Ok(0) => return Ok(Hashed { path, size, digest: digest.finish() }),
            Ok(read) => {
                digest.update(&piece[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Other,
    };
    Failure::new(kind, code::LOCAL_IO, format!("cannot read {}: {error}", path.display())).hint(
        "name local files, or - for standard input; `potluck stat` shows a pool file's digest",
    )
}
