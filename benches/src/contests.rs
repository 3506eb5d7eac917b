//! The works that are compared with a floor, and the limits that they must keep.

use crate::floor_runs::Floor;
use crate::plan::Work;

/// One work against one floor, with the highest ratios of CPU time and of wall time that are good enough.
pub struct Contest {
    pub work: Work,
    pub name: &'static str,
    pub floor: Floor,
    pub cpu: f64,
    pub wall: Option<f64>,
    /// The least number of files a second, for works over many files.
    pub files_per_second: Option<f64>,
}

pub const CONTESTS: [Contest; 9] = [
    Contest {
        work: Work::Put,
        name: "put, 1 copy",
        floor: Floor::Put,
        cpu: 1.35,
        wall: Some(1.35),
        files_per_second: None,
    },
    Contest {
        work: Work::Get,
        name: "get to /dev/null",
        floor: Floor::Get,
        cpu: 1.3,
        wall: Some(1.3),
        files_per_second: None,
    },
    Contest {
        work: Work::Put2,
        name: "put, 2 copies",
        floor: Floor::Put2,
        cpu: 1.35,
        wall: Some(1.4),
        files_per_second: None,
    },
    Contest {
        work: Work::PutEc,
        name: "put, 4+2",
        floor: Floor::Ec,
        cpu: 1.4,
        wall: None,
        files_per_second: None,
    },
    Contest {
        work: Work::GetEcDegraded,
        name: "get of 4+2, 2 of 6 donors dead",
        floor: Floor::Get,
        cpu: 1.6,
        wall: None,
        files_per_second: None,
    },
    Contest {
        work: Work::SealedPut,
        name: "sealed put, 1 copy",
        floor: Floor::Put,
        cpu: 1.5,
        wall: None,
        files_per_second: None,
    },
    Contest {
        work: Work::SealedGet,
        name: "sealed get, 1 copy",
        floor: Floor::Get,
        cpu: 1.25,
        wall: None,
        files_per_second: None,
    },
    Contest {
        work: Work::FilesIn,
        name: "1000 files in",
        floor: Floor::Cp,
        cpu: 4.0,
        wall: None,
        files_per_second: Some(2400.0),
    },
    Contest {
        work: Work::FilesOut,
        name: "1000 files out",
        floor: Floor::Cp,
        cpu: 4.0,
        wall: None,
        files_per_second: Some(6000.0),
    },
];
