//! Connections that read, a few of them kept open.

use super::file::{Database, open_reader};
use super::tx::Tx;
use crate::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// The most idle connections that are kept open; more are opened for a burst of readers, and closed after it.
const KEPT: usize = 4;

pub struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Database>>,
}

impl Readers {
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), idle: Mutex::default() }
    }

    /// Runs a query on a snapshot. Once `is_over` is set nobody waits for it any more, and it ends with an error soon.
    pub fn run<T>(
        &self,
        query: impl Fn(&Tx) -> Result<T, Error>,
        is_over: &Arc<AtomicBool>,
    ) -> Result<T, Error> {
        let mut answer = None;
        self.with_snapshot(is_over, &mut |snapshot| answer = Some(query(snapshot)))?;
        answer.expect("the query was run")
    }

    fn with_snapshot(
        &self,
        is_over: &Arc<AtomicBool>,
        query: &mut dyn FnMut(&Tx),
    ) -> Result<(), Error> {
        let kept = self.idle.lock().expect("no holder panics").pop();
        let mut db = match kept {
            Some(db) => db,
            None => open_reader(&self.path)?,
        };
        db.end_statements_when(Some(Arc::clone(is_over)))?;
        // One snapshot serves the whole query. A panic drops the connection and with it the
        // snapshot.
        let snapshot = db.begin()?;
        query(&snapshot);
        drop(snapshot);
        db.end_statements_when(None)?;
        let mut idle = self.idle.lock().expect("no holder panics");
        if idle.len() < KEPT {
            idle.push(db);
        }
        Ok(())
    }

    /// Closes the connections that are not in use.
    pub fn close_idle(&self) {
        self.idle.lock().expect("no holder panics").clear();
    }
}
