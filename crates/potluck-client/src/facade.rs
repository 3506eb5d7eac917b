//! Files of a pool as programs open and write them.

use crate::file::File;
use crate::pool::Pool;
use crate::put::PutOptions;
use crate::writer::{Attributes, Session, Writer};
use potluck_core::path::PoolPath;
use potluck_wire::error::{ErrorKind, Failure, code};

impl Pool {
    /// Opens a file for reading. One call to the manager; none follows while its donors answer.
    pub async fn open(&self, path: &PoolPath) -> Result<File, Failure> {
        File::open(self, path).await
    }

    /// Opens a session for files below `root`, which become visible one by one as they are finished.
    /// `options.atomic` is not for sessions: it is an error.
    pub async fn session(&self, root: &PoolPath, options: &PutOptions) -> Result<Session, Failure> {
        if options.atomic {
            let what = "files of a session become visible one by one";
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("store them with `put`, which makes all visible at one moment"));
        }
        Session::open(self, root, options).await
    }

    /// Writes one file in a session of its own.
    pub async fn create(
        &self,
        path: &PoolPath,
        options: &PutOptions,
        attributes: Attributes,
    ) -> Result<Writer, Failure> {
        Ok(self.session(path, options).await?.create(path.clone(), attributes))
    }
}
