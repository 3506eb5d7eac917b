//! Checks everything in a commit that can be checked without the catalog: recipes, sizes, digests, receipts.
//!
//! Nothing that a client says is believed. A file that passes the checks becomes a [`PreparedFile`]; all others of
//! these are made from versions that the catalog has.

use potluck_catalog::{Error, PreparedChunk, PreparedFile};
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::{ChunkName, Digest, INLINE_MAX, MAX_CHUNK, MIN_CHUNK};
use potluck_core::file_metadata::FileMetadata;
use potluck_core::ids::{DonorId, SessionId, VersionId};
use potluck_core::origin::CacheState;
use potluck_core::path::PoolPath;
use potluck_core::policy::{MAX_COPIES, Redundancy};
use potluck_core::recipe::{
    self, CUT_BY_CONTENT_LEAST, Content, Entry, LARGEST_FILE, PART_CHUNKS, Span,
};
use potluck_pool::redundancy::Version;
use potluck_pool::{ReceiptJudgement, ReceiptSigner, Ticketed};
use potluck_wire::control::{FileCommit, InParts};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::ticket::Acknowledged;
use std::collections::{BTreeMap, BTreeSet};

/// The facts that files are checked against.
pub struct Against {
    /// The write session that commits the files.
    pub session: SessionId,
    /// True if the session's space is sealed.
    pub sealed: bool,
    /// The least redundancy of the session's files, as the number of donors whose death must lose nothing: that of the
    /// policy that the session was opened with. It is 0 if the member may lower what policies say.
    pub tolerates: u32,
    /// The facts about each donor by which its receipts are checked.
    pub signers: BTreeMap<DonorId, ReceiptSigner>,
    /// The donors that have not registered since the manager's start, so that it does not know their keys.
    pub unregistered: BTreeSet<DonorId>,
    /// The donors in whose names there were receipts that they did not make.
    pub false_receipts: BTreeSet<DonorId>,
}

/// The donor whose key is not known yet, so that a batch with its receipts cannot be checked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownKey(pub DonorId);

impl Against {
    /// Collects the facts that a commit to a space is checked against; `sealed` says whether the space is.
    pub fn new(
        session: SessionId,
        ticketed: &Ticketed,
        sealed: bool,
        signers: BTreeMap<DonorId, ReceiptSigner>,
    ) -> Self {
        let (unregistered, false_receipts) = Default::default();
        let may_lower = ticketed.asked.may_lower;
        let tolerates = if may_lower { 0 } else { ticketed.policy.redundancy().tolerates() };
        Self { session, sealed, tolerates, signers, unregistered, false_receipts }
    }

    /// Checks a file. The outer error is about the batch, the inner about the file.
    pub fn prepare(
        &mut self,
        file: FileCommit,
    ) -> Result<Result<PreparedFile, Failure>, UnknownKey> {
        let unknown = |said: &&Acknowledged| self.unregistered.contains(&said.donor);
        if let Some(said) = file.acknowledged.0.iter().find(unknown) {
            return Err(UnknownKey(said.donor));
        }
        Ok(self.checked(file))
    }

    fn checked(&mut self, mut file: FileCommit) -> Result<PreparedFile, Failure> {
        check_numbers(&file)?;
        if file.metadata.as_ref().is_some_and(FileMetadata::is_too_large) {
            return Err(bad(&file, "too much is noted of it for other programs"));
        }
        // A file whose content is in the catalog is on no donor.
        if file.inline.is_none() && redundancy_of(&file).tolerates() < self.tolerates {
            return Err(Error::LessSafe(file.path).into());
        }
        if let Some(InParts::Whole { parts, .. }) = file.in_parts {
            return whole(file, parts);
        }
        let (chunks, pages, holes) = match &file.inline {
            Some(inline) => {
                self.check_inline(&file, &inline.0)?;
                (Vec::new(), Vec::new(), 0)
            }
            None => {
                let content = self.check_recipe(&file)?;
                let entries = &content.chunks;
                let parity = parity_of(&file, entries)?;
                let pages = std::mem::take(&mut file.pages).into_iter().map(|page| page.0);
                let pages = pages.collect();
                let chunks = self.chunks(&file.path, entries, &parity, &file.acknowledged.0)?;
                (chunks, pages, content.hole_bytes())
            }
        };
        let count = (chunks.len() - file.parity.0.len()) as u64;
        let version = Version { holes, ..version_of(&file, count, 0) };
        Ok(PreparedFile {
            path: file.path,
            version,
            inline: file.inline.map(|inline| inline.0),
            pages,
            chunks,
            condition: file.condition,
            in_parts: file.in_parts,
        })
    }

    fn check_inline(&self, file: &FileCommit, content: &[u8]) -> Result<(), Failure> {
        if !file.pages.is_empty() || !file.parity.is_empty() {
            return Err(bad(file, "it has both its content and a recipe"));
        }
        if file.size > INLINE_MAX || content.len() as u64 != file.size {
            return Err(bad(file, "its content has another length than the file"));
        }
        if !self.sealed && Digest::of(content) != file.digest {
            return Err(bad(file, "its content has another digest than the file"));
        }
        Ok(())
    }

    fn check_recipe(&self, file: &FileCommit) -> Result<Content, Failure> {
        let pages = file.pages.iter().map(|page| &page.0[..]);
        let content = recipe::unpack(&file.digest, pages);
        let content = content.map_err(|why| bad(file, &why.to_string()))?;
        let entries = &content.chunks;
        if entries.len() > PART_CHUNKS {
            return Err(bad(file, "it has more chunks than come at once, and is not in parts"));
        }
        if content.digest().is_some_and(|digest| digest != file.digest) {
            return Err(bad(file, "its chunks do not give its digest"));
        }
        if entries.iter().any(|entry| entry.sealed != self.sealed) {
            return Err(bad(file, "it is not sealed as its space is"));
        }
        // The last group of an erasure-coded file may be cut into shorter chunks.
        let whole_groups =
            file.ec.map_or(0, |ec| entries.len().saturating_sub(1) / ec.data() * ec.data());
        let (front, tail) = entries.split_at(if file.ec.is_some() { whole_groups } else { 0 });
        let even = |entries: &[Entry], len: u32| entries.iter().all(|entry| entry.len == len);
        let least = file.chunk_size / CUT_BY_CONTENT_LEAST as u32;
        let is_cut_by_content = file.ec.is_none()
            && entries.iter().all(|entry| entry.len <= file.chunk_size)
            && entries.split_last().is_none_or(|(_, rest)| rest.iter().all(|it| it.len >= least));
        let full = even(front, file.chunk_size)
            && tail.split_last().is_none_or(|(last, before)| {
                let len = match (file.ec, before.first()) {
                    (Some(_), Some(first)) => first.len,
                    _ => file.chunk_size,
                };
                len <= file.chunk_size && even(before, len) && last.len <= len
            });
        if content.size() != file.size || !(full || is_cut_by_content) {
            return Err(bad(file, "its chunks do not have the lengths its size asks for"));
        }
        if !holes_fit(&content, file.chunk_size) {
            return Err(bad(file, "its holes are not where chunks would be"));
        }
        Ok(content)
    }

    /// Returns the chunks of a file with their holders: the donors whose receipts are genuine and of their present
    /// incarnation. Other receipts are left out.
    fn chunks(
        &mut self,
        path: &PoolPath,
        entries: &[Entry],
        parity: &[(ChunkName, u32)],
        said: &[Acknowledged],
    ) -> Result<Vec<PreparedChunk>, Failure> {
        let data = entries.iter().map(|entry| (entry.name, entry.len));
        let chunk = |(name, len)| PreparedChunk { name, len, holders: Vec::new() };
        let mut chunks: Vec<_> = data.chain(parity.iter().copied()).map(chunk).collect();
        for said in said {
            let chunk = chunks.get_mut(said.chunk as usize).ok_or_else(|| {
                let what = format!(
                    "{path}: a receipt is for chunk {}, which the file does not have",
                    said.chunk
                );
                Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(WRITE_AGAIN)
            })?;
            // A donor without a key was removed, or has not registered in this term.
            let Some(signer) = self.signers.get(&said.donor) else { continue };
            let what = (&chunk.name, chunk.len);
            match signer.judge(&said.receipt, &self.session, what, said.ack) {
                ReceiptJudgement::Counts if !chunk.holders.contains(&(said.donor, said.ack)) => {
                    chunk.holders.push((said.donor, said.ack));
                }
                ReceiptJudgement::Counts | ReceiptJudgement::OfEarlierIncarnation => {}
                ReceiptJudgement::False => drop(self.false_receipts.insert(said.donor)),
            }
        }
        Ok(chunks)
    }
}

/// Returns whether each hole takes the place of whole chunks. What ends the file may be shorter.
fn holes_fit(content: &Content, chunk_size: u32) -> bool {
    let (mut at, size, chunk) = (0, content.size(), u64::from(chunk_size));
    content.spans().all(|span| {
        let (start, end) = (at, at + span.bytes());
        at = end;
        let is_hole = matches!(span, Span::Hole(_));
        !is_hole || start.is_multiple_of(chunk) && (end.is_multiple_of(chunk) || end == size)
    })
}

/// Returns the redundancy that a client says a file has.
fn redundancy_of(file: &FileCommit) -> Redundancy {
    file.ec.map_or(Redundancy::Copies(file.copies), Redundancy::Ec)
}

/// Makes the catalog's version of a file with so many data chunks, or so many parts, and no holes.
fn version_of(file: &FileCommit, chunks: u64, parts: u32) -> Version {
    Version {
        id: VersionId(0),
        size: file.size,
        holes: 0,
        digest: file.digest,
        attributes: EntryAttributes {
            mtime: file.mtime,
            permissions: file.permissions,
            owner: file.owner,
            changed: file.changed,
            accessed: file.accessed,
        },
        chunk_size: file.chunk_size,
        copies: file.copies,
        ec: file.ec,
        goal: None,
        safe_wall_ms: None,
        metadata: file.metadata.clone(),
        origin: file.origin.clone(),
        cache: CacheState::Kept,
        key: None,
        chunks,
        parts: parts.into(),
        inline: file.inline.is_some(),
    }
}

/// Prepares a file whose parts were committed before, with which the catalog compares it, and which say what is in holes.
fn whole(file: FileCommit, parts: u32) -> Result<PreparedFile, Failure> {
    if file.inline.is_some() || !file.pages.is_empty() || !file.parity.is_empty() {
        return Err(bad(&file, "it has both parts and a content of its own"));
    }
    if parts < 2 {
        return Err(bad(&file, "it has too few parts"));
    }
    let version = version_of(&file, 0, parts);
    let FileCommit { path, condition, in_parts, .. } = file;
    let (inline, pages, chunks) = Default::default();
    Ok(PreparedFile { path, version, inline, pages, chunks, condition, in_parts })
}

/// Returns the parity chunks of a file, each with its stored length, which is that of the longest chunk of its group.
fn parity_of(file: &FileCommit, entries: &[Entry]) -> Result<Vec<(ChunkName, u32)>, Failure> {
    let names = &file.parity.0;
    let Some(ec) = file.ec else {
        return match names.is_empty() {
            true => Ok(Vec::new()),
            false => Err(bad(file, "it has parity without an erasure code")),
        };
    };
    if names.len() != ec.group_count(entries.len()) * ec.parity() {
        return Err(bad(file, "it has another number of parity chunks than its code asks for"));
    }
    let lens = ec
        .groups(entries.len())
        .map(|group| entries[group].iter().map(|entry| entry.len).max().unwrap_or_default());
    let lens = lens.flat_map(|len| std::iter::repeat_n(len, ec.parity()));
    Ok(names.iter().copied().zip(lens).collect())
}

const WRITE_AGAIN: &str = "write the file again; if it happens again, report a bug of the client";

fn bad(file: &FileCommit, why: &str) -> Failure {
    let what = format!("{}: {why}", file.path);
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(WRITE_AGAIN)
}

fn check_numbers(file: &FileCommit) -> Result<(), Failure> {
    if file.size > LARGEST_FILE {
        return Err(bad(file, "it is larger than any pool"));
    }
    if !file.chunk_size.is_power_of_two() || !(MIN_CHUNK..=MAX_CHUNK).contains(&file.chunk_size) {
        return Err(bad(file, "its chunk size is not a power of two in range"));
    }
    if file.ec.is_some() && file.copies != 1 {
        return Err(bad(file, "it has both copies and an erasure code"));
    }
    if !(1..=MAX_COPIES).contains(&file.copies) {
        return Err(bad(file, "its number of copies is out of range"));
    }
    if let Some(Err(why)) = file.origin.as_ref().map(|origin| origin.check()) {
        return Err(bad(file, &why.to_string()));
    }
    if file.origin.as_ref().is_some_and(|origin| origin.size != file.size) {
        return Err(bad(file, "its origin is said to have another size"));
    }
    Ok(())
}
