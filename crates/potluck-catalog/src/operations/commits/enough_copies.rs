//! The check that a written file has the copies that its acknowledgement promises (promise D3).
//!
//! A donor counts as a holder of a chunk by a receipt of the session or by the catalog's record, either of at least the
//! ack level that was asked for. It does not count if it is not trusted, is being removed, or deletes the chunk without
//! waiting; a donor that was given up counts by a receipt only. Holders must be distinct donors: n for each chunk of a
//! file with n copies; for an erasure-coded group a donor of its own for every chunk, found by matching. A file that is
//! not strict may be committed below its policy if one more donor may die (two of n copies, one chunk of each group
//! beyond its data): donors were away, and repair makes the rest. Under an asynchronous mirroring protocol, one holder
//! of each chunk of a file kept as copies is enough, and until repair has made the rest, the file is less safe.
//!
//! Holders must be heard at the commit. A donor that acknowledged a chunk and died since is the very death that the
//! file was to survive: without it the file waits, or its chunks are sent again.

use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::operations::commits::commit::PreparedFile;
use potluck_core::chunk::ChunkName;
use potluck_core::erasure::Ec;
use potluck_core::ids::DonorId;
use potluck_core::matching;
use potluck_core::policy::{AckLevel, AskedPolicy, Mirror};
use potluck_pool::PoolView;
use std::collections::{BTreeSet, HashMap};

/// The share of a file's redundancy that is there at its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteSafety {
    /// All of the file's redundancy is there.
    Safe,
    /// Donors were away, and so much redundancy is there that one more donor may die.
    BelowPolicy,
    /// Every chunk was acknowledged by one donor at least; further copies are being made.
    Mirroring(MirroringWindow),
}

/// The unsafe window of a file whose copies are made asynchronously.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirroringWindow {
    /// True if fewer donors are there than the file is to have copies: repair makes the rest when others are back.
    pub below_policy: bool,
    /// True if some chunk is known to be at one donor at most, whose death would lose it.
    pub at_risk: bool,
}

impl WriteSafety {
    /// Returns whether donors are away, so that repair has to complete the file.
    pub fn is_below_policy(self) -> bool {
        match self {
            Self::Safe => false,
            Self::BelowPolicy => true,
            Self::Mirroring(window) => window.below_policy,
        }
    }

    /// Returns whether the death of one donor may lose something of the file.
    pub fn is_at_risk(self) -> bool {
        matches!(self, Self::Mirroring(window) if window.at_risk)
    }
}

/// A file that may be committed.
#[derive(Debug)]
pub struct AcknowledgedFile {
    /// The share of the file's redundancy that is there.
    pub safety: WriteSafety,
    /// The donors on whose copies the file's redundancy relies; all of them are there.
    pub by: BTreeSet<DonorId>,
}

/// The promise that the acknowledgement of a file makes, beside its redundancy.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    /// The mirroring protocol: how copies are made, and whether they are waited for.
    pub mirror: Mirror,
    /// True if all redundancy must be there.
    pub strict: bool,
    /// The ack level that each copy which counts has reached.
    pub ack: AckLevel,
}

impl Promise {
    /// Returns the promise for a file in a directory with this promise, in a session that was opened with `mirror` and
    /// `ack`: the stricter of both, unless the command itself names the value and may lower it. A value that the
    /// session has from another directory lowers nothing, whoever gave the command.
    pub fn of_session(self, asked: AskedPolicy, mirror: Mirror, ack: AckLevel) -> Self {
        let lowers_mirror = asked.may_lower && asked.over.mirror.is_some();
        let lowers_ack = asked.may_lower && asked.over.ack.is_some();
        let is_sooner = mirror.is_async() && !self.mirror.is_async();
        let mirror = if is_sooner && !lowers_mirror { self.mirror } else { mirror };
        let ack = if lowers_ack { ack } else { ack.max(self.ack) };
        Self { mirror, ack, ..self }
    }
}

/// Refuses a file that is on fewer distinct donors than its redundancy asks for, unless its copies are made
/// asynchronously or it may be below its policy because `strict` is not set. Fails with [`Error::HoldersAway`] if it
/// would be accepted with holders that are not heard now.
pub fn check(
    counts: &mut ReferenceCounts<'_>,
    file: &PreparedFile,
    Promise { mirror, strict, ack }: Promise,
    view: &PoolView,
) -> Result<AcknowledgedFile, Error> {
    let holders = holders(counts, file, ack, view)?;
    let heard = |donors: &Vec<DonorId>| -> Vec<DonorId> {
        donors.iter().copied().filter(|donor| view.is_live(*donor)).collect()
    };
    let live: Vec<_> = holders.iter().map(heard).collect();
    let committed =
        |safety| Ok(AcknowledgedFile { safety, by: live.iter().flatten().copied().collect() });
    let is_there = |holders: &[Vec<DonorId>], missing: u32| match file.version.ec {
        None => check_copies(file, holders, missing),
        Some(ec) => check_groups(file, ec, holders, missing),
    };
    if is_there(&live, 0).is_ok() {
        return committed(WriteSafety::Safe);
    }
    let redundancy = file.version.redundancy();
    let mirroring = WriteSafety::Mirroring(MirroringWindow {
        below_policy: view.trusted_and_live() < redundancy.donors() as usize,
        at_risk: live.iter().any(|donors| donors.len() < 2),
    });
    // Only copies are mirrored asynchronously: parity is computed before anything is sent, and every chunk is waited
    // for.
    let is_async = file.version.ec.is_none() && mirror.is_async();
    let may_miss = redundancy.donors() - if is_async { 1 } else { redundancy.least_donors() };
    let enough = is_there(&live, may_miss);
    match enough {
        Ok(()) if is_async => return committed(mirroring),
        Ok(()) if !strict => return committed(WriteSafety::BelowPolicy),
        _ => {}
    }
    let asked = if strict && !is_async { 0 } else { may_miss };
    is_there(&holders, asked).map_err(|why| match enough {
        Ok(()) => Error::NotStrict { path: file.path.clone(), redundancy },
        Err(_) => why,
    })?;
    // As many donors as needed acknowledged each chunk, and some of them are not there any more.
    let lacking = |donors: &(&Vec<DonorId>, &Vec<DonorId>)| donors.0.len() < donors.1.len();
    let index = live.iter().zip(&holders).position(|donors| lacking(&donors)).unwrap_or_default();
    Err(Error::HoldersAway { path: file.path.clone(), index })
}

/// Returns the holders of each chunk. Fails if a chunk of a file that is kept as copies has none.
fn holders(
    counts: &mut ReferenceCounts<'_>,
    file: &PreparedFile,
    ack: AckLevel,
    view: &PoolView,
) -> Result<Vec<Vec<DonorId>>, Error> {
    let by_receipt = receipts(file, ack);
    let mut holders = Vec::with_capacity(file.chunks.len());
    for (index, chunk) in file.chunks.iter().enumerate() {
        if counts.differs(&chunk.name, chunk.len)? {
            return Err(Error::WrongLength { path: file.path.clone(), index });
        }
        let receipts = by_receipt.get(&chunk.name).into_iter().flatten().copied();
        let mut donors: BTreeSet<DonorId> =
            receipts.filter(|donor| view.proves(*donor, &chunk.name)).collect();
        let live = donors.iter().filter(|donor| view.is_live(**donor)).count();
        if live < file.version.redundancy().donors() as usize {
            let known = counts.holders(&chunk.name, ack)?.into_iter();
            donors.extend(known.filter(|donor| view.keeps(*donor, &chunk.name)));
        }
        if donors.is_empty() && file.version.ec.is_none() {
            return Err(Error::NotAcknowledged { path: file.path.clone(), index });
        }
        holders.push(donors.into_iter().collect());
    }
    Ok(holders)
}

/// Returns the donors of each chunk whose receipts have at least the level `ack`. If a chunk occurs twice in a file,
/// each place may name some of them.
fn receipts(file: &PreparedFile, ack: AckLevel) -> HashMap<ChunkName, Vec<DonorId>> {
    let mut receipts = HashMap::<_, Vec<DonorId>>::new();
    for chunk in &file.chunks {
        let enough = chunk.holders.iter().filter(|(_, level)| *level >= ack);
        let donors = enough.map(|(donor, _)| *donor);
        receipts.entry(chunk.name).or_default().extend(donors);
    }
    receipts
}

fn check_copies(file: &PreparedFile, holders: &[Vec<DonorId>], missing: u32) -> Result<(), Error> {
    let need = (file.version.copies - missing) as usize;
    match holders.iter().position(|donors| donors.len() < need) {
        None => Ok(()),
        Some(index) => {
            let (path, have) = (file.path.clone(), holders[index].len());
            Err(Error::TooFewCopies { path, index, have, need })
        }
    }
}

fn check_groups(
    file: &PreparedFile,
    ec: Ec,
    holders: &[Vec<DonorId>],
    missing: u32,
) -> Result<(), Error> {
    let data = file.version.chunks as usize;
    for (number, group) in ec.groups(data).enumerate() {
        let parity = data + number * ec.parity()..data + (number + 1) * ec.parity();
        let places: Vec<usize> = group.chain(parity).collect();
        let shards: Vec<&[DonorId]> = places.iter().map(|at| holders[*at].as_slice()).collect();
        let assigned = matching::assign(&shards);
        let mut without = assigned.iter().enumerate().filter(|(_, donor)| donor.is_none());
        if let Some((at, _)) = without.nth(missing as usize) {
            return Err(Error::NotApart { path: file.path.clone(), index: places[at], ec });
        }
    }
    Ok(())
}
