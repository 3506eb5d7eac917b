//! The plan of a run: what it measures, and with how much.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::size::Size;

pub const FILES: usize = 1000;
pub const FILE_SIZE: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Work {
    Put,
    Get,
    Put2,
    PutEc,
    /// With two of six donors dead.
    GetEcDegraded,
    SealedPut,
    SealedGet,
    FilesIn,
    FilesOut,
    /// Memory and idle CPU of the donors.
    Donor,
    /// Client memory on one big file.
    Big,
    /// A donor of four dies, and what it held is made again.
    Repair,
    /// Reads at random places of an open file.
    RandomReads,
    /// Listing and asking in a pool of very many files.
    Names,
    /// A manager of many files is killed, and loses its directory.
    Comeback,
    /// Strangers, members and clients by the hundred and thousand.
    Crowd,
    /// Very many files are removed while a client stores others.
    Removal,
    /// Programs that read and write through a mount.
    Mount,
    /// One large file through a mount, against NULL-FUSE and `cp`.
    Checkpoint,
    /// Files are written by each write protocol, on few and many donors, in small and large chunks.
    WriteProtocols,
    /// A file of which most is as it was is written again.
    Rewrite,
    /// Clients that write one file at once.
    Shared,
    /// Very many donors and chunks, all simulated but the manager.
    Scale,
}

pub struct Plan {
    pub potluck: PathBuf,
    /// Another build of the product to compare with.
    pub against: Option<PathBuf>,
    pub only: Vec<Work>,
    pub rounds: usize,
    pub size: Size,
    pub big: Size,
    /// The number of files that are listed.
    pub names: u64,
    /// The number of simulated donors; `chunks` is that of the chunks of their pool.
    pub donors: usize,
    pub chunks: u64,
    pub idle: Duration,
    /// The directory in which tables and pictures are written.
    pub out: PathBuf,
    /// A directory of an NFS mount, if one was named.
    pub nfs: Option<PathBuf>,
}

impl Plan {
    pub fn wants(&self, work: Work) -> bool {
        self.only.is_empty() || self.only.contains(&work)
    }

    /// Returns whether anything is measured in the pool that most works share.
    pub fn wants_pool(&self) -> bool {
        let alone = |work: &Work| {
            use Work::{
                Checkpoint, Comeback, Crowd, Mount, Names, RandomReads, Removal, Repair, Rewrite,
                Scale, Shared, WriteProtocols,
            };
            matches!(
                work,
                Repair
                    | RandomReads
                    | Names
                    | Comeback
                    | Crowd
                    | Removal
                    | Mount
                    | Checkpoint
                    | WriteProtocols
                    | Rewrite
                    | Shared
                    | Scale
            )
        };
        Work::value_variants().iter().any(|work| !alone(work) && self.wants(*work))
    }

    pub fn wants_files(&self) -> bool {
        self.wants(Work::FilesIn) || self.wants(Work::FilesOut)
    }

    /// Returns the bytes of disk that a run can need at once, if the pool takes its time to purge what was removed.
    pub fn footprint(&self) -> u64 {
        use Work::{Get, GetEcDegraded, Put, Put2, PutEc, SealedGet, SealedPut};
        let stored =
            [(Put, Get, 1), (Put2, Put2, 2), (PutEc, GetEcDegraded, 2), (SealedPut, SealedGet, 1)];
        let wanted = stored.iter().filter(|(put, get, _)| self.wants(*put) || self.wants(*get));
        let copies: u64 = wanted.map(|(.., copies)| copies).sum::<u64>() * self.rounds as u64 + 6;
        let big = if self.wants(Work::Big) { 2 * self.big.0 } else { 0 };
        let repair = if self.wants(Work::Repair) { 4 * self.size.0 } else { 0 };
        let mounted = [Work::Checkpoint, Work::WriteProtocols, Work::Rewrite];
        let mounted = mounted.iter().any(|work| self.wants(*work));
        // Each of four protocols writes a file in every round, and some keep temporary files.
        let mounted = if mounted { (4 * self.rounds as u64 + 4) * self.size.0 } else { 0 };
        // Three numbers of clients write one file, and files of their own, in every round.
        let shared =
            if self.wants(Work::Shared) { (6 * self.rounds as u64 + 2) * self.size.0 } else { 0 };
        let pools = 1 + u64::from(self.against.is_some());
        pools * copies * self.size.0
            + big
            + repair
            + mounted
            + shared
            + (self.rounds as u64 + 3) * FILES as u64 * FILE_SIZE
    }
}
