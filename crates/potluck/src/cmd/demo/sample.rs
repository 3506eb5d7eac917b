//! The files that the demo stores: those that the user names, or files that this machine has anyway.

use potluck_wire::error::{ErrorKind, Failure, code};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use walkdir::WalkDir;

/// The size of a sample in bytes: enough to measure rates, and little enough to wait for.
const ENOUGH: u64 = 300 << 20;

/// Local files that the demonstration stores.
pub struct Sample {
    /// The paths of the files.
    pub files: Vec<PathBuf>,
    /// The size of all files together in bytes.
    pub bytes: u64,
    /// A description of the files, for people.
    pub what: String,
}

impl Sample {
    /// Finds all files of `given`, which is a file or a directory. Without it finds some hundred MB of the Rust
    /// toolchain's own files and the system's.
    pub fn find(given: Option<&Path>) -> Result<Self, Failure> {
        if let Some(given) = given {
            std::fs::File::open(given).map_err(|error| {
                let what = format!("cannot read {}: {error}", given.display());
                Failure::new(ErrorKind::NotFound, code::LOCAL_IO, what)
                    .hint("name a file or directory that exists, or none for a sample")
            })?;
            return Ok(Self::below(&[given.to_path_buf()], u64::MAX, given.display().to_string()));
        }
        let places = [toolchain(), Some("/usr/lib".into()), Some("/usr/share".into())];
        let places: Vec<PathBuf> = places.into_iter().flatten().collect();
        let what = places.first().map(|place| place.display().to_string()).unwrap_or_default();
        let sample = Self::below(&places, ENOUGH, format!("from {what}"));
        if sample.files.is_empty() {
            return Err(Failure::new(
                ErrorKind::NotFound,
                code::LOCAL_IO,
                "found no files to show it with",
            )
            .hint("name one: potluck demo FILE"));
        }
        Ok(sample)
    }

    fn below(places: &[PathBuf], enough: u64, what: String) -> Self {
        let mut sample = Self { files: Vec::new(), bytes: 0, what };
        let entries = places.iter().flat_map(|place| WalkDir::new(place).sort_by_file_name());
        for entry in entries.flatten() {
            if sample.bytes >= enough {
                break;
            }
            let Ok(about) = entry.metadata() else { continue };
            // Files that cannot be read are left out.
            if about.is_file() && std::fs::File::open(entry.path()).is_ok() {
                sample.bytes += about.len();
                sample.files.push(entry.into_path());
            }
        }
        sample
    }
}

fn toolchain() -> Option<PathBuf> {
    let asked = Command::new("rustc").args(["--print", "sysroot"]).stderr(Stdio::null()).output();
    let root = PathBuf::from(String::from_utf8(asked.ok()?.stdout).ok()?.trim());
    Some(root.join("lib")).filter(|lib| lib.is_dir())
}
