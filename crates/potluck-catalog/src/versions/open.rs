//! Opening files: recipes and holders, page by page.

use crate::checkpoints::checkpoint_rows;
use crate::chunks;
use crate::chunks::placements;
use crate::error::Error;
use crate::names::{
    dir_policies::{self, Inherited},
    entries::{self, EntryPlace},
    walk::{Walk, What},
};
use crate::pool_records::{
    old_keys,
    spaces::{self, Space},
};
use crate::sql::Tx;
use crate::versions;
use crate::versions::{parts, wholes};
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Race, Redundancy};
use potluck_core::seal::SpaceKeys;
use potluck_pool::redundancy::Version;
use potluck_wire::control::{OpenDir, OpenFile, OpenLink};
use potluck_wire::packed::{Blob, Packed};
use std::collections::BTreeSet;

/// The most files that one reply holds.
const PAGE_FILES: usize = 1000;
/// The number of chunks, or of parts, of files after which a reply takes no further file.
const PAGE_CHUNKS: u64 = 20_000;
/// The number of chunks after which a page of versions under earlier keys takes no further one.
const PAGE_OLD_CHUNKS: u64 = 4_000;
/// The most directories and links that one reply holds.
const PAGE_OTHERS: usize = 10_000;

/// A page of open files. Holders are in no order yet.
#[derive(Debug, Default)]
pub struct OpenedPage {
    /// The directories of this page by relative path, parents first.
    pub dirs: Vec<OpenDir>,
    /// The symbolic links of this page, by relative path.
    pub links: Vec<OpenLink>,
    /// The files of this page.
    pub files: Vec<OpenFile>,
    /// The donors of the first chunks of files that are made of parts, from which their readers will probably read.
    pub donors: BTreeSet<DonorId>,
    /// The keys of the space, if it is sealed.
    pub keys: SpaceKeys,
    /// True if writers share the one file that was opened.
    pub is_shared: bool,
    /// The cursor from which the next page goes on; `None` after the last.
    pub next: Option<String>,
}

/// The number of chunks of a file made of parts whose donors are told at its opening.
const FIRST_CHUNKS: u64 = 64;

impl OpenedPage {
    fn add(&mut self, db: &Tx, path: String, version: &Version, race: Race) -> Result<(), Error> {
        self.files.push(open_file(db, path, version, race)?);
        if version.parts > 0 {
            let first = wholes::next(db, version.id, 0)?.into_iter();
            for name in first
                .map(|(_, first)| versions::some_names(db, &first, 0, FIRST_CHUNKS))
                .collect::<Result<Vec<_>, _>>()?
                .concat()
            {
                self.donors.extend(holders(db, &name)?);
            }
        }
        Ok(())
    }
}

/// Opens the file at `path`, or with `recursive` the next page of the tree there.
pub(crate) fn open(
    db: &Tx,
    path: &PoolPath,
    recursive: bool,
    after: Option<&str>,
) -> Result<OpenedPage, Error> {
    if path.space().is_empty() {
        return Err(Error::OutsideSpaces(path.clone()));
    }
    let found = entries::existing(db, path)?;
    let space = spaces::named(db, path.space())?;
    let policy = dir_policies::effective(db, path)?;
    let mut page = OpenedPage { keys: keys_of(space), ..OpenedPage::default() };
    match found.place {
        EntryPlace::File(version) => {
            let version = versions::get(db, version)?;
            page.add(db, String::new(), &version, policy.race)?;
            page.is_shared = checkpoint_rows::is_shared_file(db, path)?;
        }
        EntryPlace::Link(target) if !recursive => {
            return Err(Error::IsALink { path: path.clone(), target });
        }
        EntryPlace::Link(target) => {
            page.links.push(open_link(String::new(), target, found.attributes));
        }
        EntryPlace::Dir(_) if !recursive => return Err(Error::NotRecursive(path.clone())),
        EntryPlace::Dir(dir) => {
            let mut walk = Walk::new(db, dir, true, after)?.visible();
            let mut inherited = Inherited::new(db, path.space(), Some(dir), policy)?;
            fill(db, &mut walk, &mut page, &mut inherited)?;
        }
    }
    Ok(page)
}

/// Opens part `number` of a version that is at `path`, or was there when it was opened.
pub(crate) fn open_part(
    db: &Tx,
    path: &PoolPath,
    whole: VersionId,
    number: u32,
) -> Result<OpenedPage, Error> {
    let space = spaces::named(db, path.space())?;
    let part = match parts::space_of(db, whole)? == Some(space.id) {
        true => parts::at(db, whole, number)?,
        false => None,
    };
    let part = versions::get(db, part.ok_or_else(|| Error::NoEntry(path.clone()))?)?;
    // The file may have been moved and its directory removed by now: the space's policy is as good.
    let race = space.policy.race;
    let mut page = OpenedPage { keys: keys_of(space), ..OpenedPage::default() };
    page.add(db, String::new(), &part, race)?;
    Ok(page)
}

/// Returns the keys that readers of a space get: all, since parts of a file are opened while others of it are sealed
/// with another key.
fn keys_of(space: Space) -> SpaceKeys {
    space.keys.map(|keys| keys.keys).unwrap_or_default()
}

/// Opens versions that are sealed with earlier keys of a space and can be sealed again, the first after `after`.
pub(crate) fn open_old(db: &Tx, name: &str, after: VersionId) -> Result<OldPage, Error> {
    let space = spaces::named(db, name)?;
    let old = old_keys::old_versions(db, &space, after, PAGE_FILES)?;
    let mut page = OldPage::default();
    let mut chunks = 0;
    for version in old {
        chunks += version.chunks;
        let number = version.id;
        let whole = parts::whole_of(db, number)?.unwrap_or(number);
        let path = entries::path_of_version(db, whole)?.map(|path| path.to_string());
        page.files.add(db, path.unwrap_or_default(), &version, space.policy.race)?;
        page.kept.push(version.redundancy());
        if chunks >= PAGE_OLD_CHUNKS {
            page.next = Some(number);
            break;
        }
        page.next = (page.files.files.len() >= PAGE_FILES).then_some(number);
    }
    page.files.keys = keys_of(space);
    Ok(page)
}

/// A page of versions that are sealed with earlier keys.
#[derive(Debug, Default)]
pub struct OldPage {
    /// The versions, as files without a path.
    pub files: OpenedPage,
    /// The redundancy of each of them.
    pub kept: Vec<Redundancy>,
    /// The version after which the next page goes on; `None` after the last.
    pub next: Option<VersionId>,
}

fn fill(
    db: &Tx,
    walk: &mut Walk<'_>,
    page: &mut OpenedPage,
    inherited: &mut Inherited<'_>,
) -> Result<(), Error> {
    let mut chunks = 0;
    while let Some(item) = walk.next_item()? {
        page.next = Some(item.path.clone());
        match item.what {
            What::Dir(_) => {
                page.dirs.push(OpenDir { path: item.path, attributes: item.attributes });
            }
            What::Link(target) => {
                page.links.push(open_link(item.path, target, item.attributes));
            }
            What::File(version) => {
                chunks += if version.parts > 0 { version.parts } else { version.chunks };
                let race = inherited.around(&item.path)?.policy.race;
                page.add(db, item.path, &version, race)?;
            }
        }
        let others = page.dirs.len() + page.links.len();
        if page.files.len() >= PAGE_FILES || chunks >= PAGE_CHUNKS || others >= PAGE_OTHERS {
            return Ok(());
        }
    }
    page.next = None;
    Ok(())
}

fn open_link(path: String, target: LinkTarget, attributes: EntryAttributes) -> OpenLink {
    let EntryAttributes { mtime, owner, .. } = attributes;
    OpenLink { path, target, mtime, owner }
}

fn open_file(db: &Tx, path: String, version: &Version, race: Race) -> Result<OpenFile, Error> {
    let mut file = OpenFile {
        path,
        version: version.id,
        size: version.size,
        holes: version.holes,
        digest: version.digest,
        mtime: version.attributes.mtime,
        permissions: version.attributes.permissions,
        owner: version.attributes.owner,
        changed: version.attributes.changed,
        accessed: version.attributes.accessed,
        metadata: version.metadata.clone(),
        inline: None,
        pages: Vec::new(),
        holders: Vec::new(),
        ec: version.ec,
        parity: Packed::default(),
        parity_holders: Vec::new(),
        race,
        part_count: version.parts as u32,
        parts: Packed::default(),
        chunk_size: version.chunk_size,
        key: version.key,
        origin: version.origin.clone().filter(|_| !version.cache.is_kept()),
    };
    if version.parts > 0 {
        file.parts = Packed(parts::stored(db, version.id)?);
        return Ok(file);
    }
    if version.inline {
        file.inline = versions::inline(db, version.id)?.map(Blob);
    } else {
        let pages = versions::pages(db, version.id)?;
        let recipe = versions::unpack(version, &pages)?;
        let of = |name: &ChunkName| holders(db, name);
        file.holders = recipe.iter().map(|entry| of(&entry.name)).collect::<Result<_, _>>()?;
        file.parity = Packed(versions::parity(db, version)?);
        file.parity_holders = file.parity.0.iter().map(of).collect::<Result<_, _>>()?;
        file.pages = pages.into_iter().map(Blob).collect();
    }
    Ok(file)
}

fn holders(db: &Tx, name: &ChunkName) -> Result<Vec<DonorId>, Error> {
    match chunks::get(db, name)? {
        Some(chunk) => placements::holders(db, chunk.id),
        None => Err(Error::Damaged(format!("chunk {name} of a recipe has no row"))),
    }
}
