//! The reasons why a catalog cannot be opened, and what to do next.

use crate::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a catalog cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory has no catalog.
    #[error("{} holds no pool", .0.display())]
    Missing(PathBuf),
    /// The file of the catalog is damaged, or has the format of an earlier release.
    #[error("the catalog {} is damaged: {detail}", path.display())]
    Damaged {
        /// The path of the file that is damaged.
        path: PathBuf,
        /// The damage that was found, or the format.
        detail: String,
    },
    /// The catalog was written by a later release.
    #[error("the catalog {} was written by a newer Potluck (format {found})", path.display())]
    TooNew {
        /// The path of the file.
        path: PathBuf,
        /// The format that the file has.
        found: i64,
    },
    /// The file cannot be used as a catalog.
    #[error("the catalog {}: {detail}", path.display())]
    Unusable {
        /// The path of the file.
        path: PathBuf,
        /// The error, in words.
        detail: String,
    },
    /// The file cannot be made.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl OpenError {
    /// Makes this error of an error that an operation met in the catalog at `path`.
    pub fn of(path: &Path, why: Error) -> Self {
        let path = path.to_path_buf();
        match why {
            Error::Damaged(detail) => Self::Damaged { path, detail },
            other => Self::Unusable { path, detail: other.to_string() },
        }
    }
}
