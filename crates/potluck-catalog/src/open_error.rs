//! Why a catalog cannot be opened.

use super::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Why a catalog cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory has none.
    #[error("{} holds no pool", .0.display())]
    Missing(PathBuf),
    /// It is not what was written.
    #[error("the catalog {} is damaged: {detail}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// It was written by a later release.
    #[error("the catalog {} was written by a newer Potluck (format {found})", path.display())]
    TooNew {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
    /// It cannot be used.
    #[error("the catalog {}: {detail}", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What went wrong.
        detail: String,
    },
    /// Its file cannot be made.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

impl OpenError {
    /// What an operation met in the catalog at `path`.
    pub fn of(path: &Path, why: Error) -> Self {
        let path = path.to_path_buf();
        match why {
            Error::Damaged(detail) => Self::Damaged { path, detail },
            other => Self::Unusable { path, detail: other.to_string() },
        }
    }
}
