//! An opened file that is made of parts. The recipes of all its parts would take memory without bound, so a part is
//! opened when something of it is read, and forgotten when enough others were read since.

use crate::fetch::Fetcher;
use crate::pool::Pool;
use crate::recipe::{Recipe, changed, key_of};
use potluck_core::chunk::Digest;
use potluck_core::ids::VersionId;
use potluck_core::origin::Origin;
use potluck_core::path::PoolPath;
use potluck_core::recipe;
use potluck_wire::control::{OpenFile, OpenPart};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The most parts that are remembered, of some hundred KiB each.
const REMEMBERED: usize = 16;

/// The parts of a file.
pub struct OpenedParts {
    client: Pool,
    /// The path at which the file was found.
    path: PoolPath,
    /// The path that failures name.
    name: String,
    version: VersionId,
    /// The place that the file can be fetched from again, if it is cached.
    origin: Option<Box<Origin>>,
    size: u64,
    /// The size of each part but the last, in bytes.
    row: u64,
    /// The digests of the parts that are stored; all others are holes.
    digests: BTreeMap<u32, Digest>,
    /// The parts that were read last, with their numbers, the latest at the end.
    opened: Mutex<VecDeque<(u32, Arc<Recipe>)>>,
    /// A lock that is held by the task that opens a part, so that each part is opened once.
    opening: tokio::sync::Mutex<()>,
}

impl OpenedParts {
    /// Checks the manager's answer: the digests of the parts must give the digest of the file.
    ///
    /// Errors: [`code::WRONG_BYTES`] where they do not, or where the number of parts does not fit the size.
    pub fn check(client: &Pool, path: PoolPath, file: &OpenFile) -> Result<Self, Failure> {
        let row = recipe::part_bytes_of(file.size, file.chunk_size, file.part_count.into());
        let digests = file.parts.0.iter().map(|part| (part.number, part.digest));
        let is_it = |row: &u64| {
            recipe::digest_of_parts(file.size, *row, digests.clone()) == Some(file.digest)
        };
        let row = row
            .filter(is_it)
            .ok_or_else(|| wrong(format!("the parts of “{}” do not make the file", file.path)))?;
        Ok(Self {
            client: client.clone(),
            path,
            name: file.path.clone(),
            version: file.version,
            origin: file.origin.clone(),
            size: file.size,
            row,
            digests: digests.collect(),
            opened: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the first stored part that has bytes of the file from `at` on: its number, and the number of bytes before
    /// it.
    pub fn stored_from(&self, at: u64) -> Option<(u32, u64)> {
        let from = u32::try_from(at / self.row).ok()?;
        let (number, _) = self.digests.range(from..).next()?;
        Some((*number, u64::from(*number) * self.row))
    }

    /// Returns the recipe of a stored part, which is opened if need be; `fetcher` learns how to reach its donors.
    pub async fn open(&self, number: u32, fetcher: &Fetcher) -> Result<Arc<Recipe>, Failure> {
        if let Some(known) = self.known(number) {
            return Ok(known);
        }
        let _turn = self.opening.lock().await;
        if let Some(known) = self.known(number) {
            return Ok(known);
        }
        let (path, version) = (self.path.clone(), self.version);
        let open = OpenPart { path, version, number };
        let opened = self.client.call_retrying(&open).await;
        // The part was there when the file was opened, so the file was replaced or removed since.
        let mut opened = opened.map_err(|failure| match failure.kind {
            ErrorKind::NotFound => changed(&self.name),
            _ => failure,
        })?;
        let file = opened.files.pop();
        let mut file = file.ok_or_else(|| self.differs(number))?;
        file.path.clone_from(&self.name);
        let size = self.row.min(self.size - u64::from(number) * self.row);
        if self.digests.get(&number) != Some(&file.digest) || file.size != size {
            return Err(self.differs(number));
        }
        fetcher.learn(opened.donors);
        let key = key_of(&opened.space_keys, &file)?;
        file.origin.clone_from(&self.origin);
        let mut recipe = Recipe::check(file, key)?;
        recipe.part = Some((self.version, number));
        recipe.begins_at = u64::from(number) * self.row;
        let recipe = Arc::new(recipe);
        let mut known = self.opened.lock().expect("no holder panics");
        known.push_back((number, Arc::clone(&recipe)));
        if known.len() > REMEMBERED {
            known.pop_front();
        }
        Ok(recipe)
    }

    fn known(&self, number: u32) -> Option<Arc<Recipe>> {
        let mut opened = self.opened.lock().expect("no holder panics");
        let at = opened.iter().position(|(known, _)| *known == number)?;
        let found = opened.remove(at)?;
        let recipe = Arc::clone(&found.1);
        opened.push_back(found);
        Some(recipe)
    }

    fn differs(&self, number: u32) -> Failure {
        wrong(format!("part {number} of “{}” is not that of the file", self.name))
    }
}

fn wrong(what: String) -> Failure {
    Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
        .hint("the catalog is damaged: tell the pool's admin")
}
