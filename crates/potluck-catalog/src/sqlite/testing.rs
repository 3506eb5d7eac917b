//! Access of tests to the engine itself.

use super::file::Database;
use super::tx::Tx;
use crate::Error;
use rusqlite::Connection;
use std::path::Path;

impl Database {
    /// Returns the connection, for statements that only a test makes.
    pub fn raw(&self) -> &Connection {
        &self.0.connection
    }

    /// Returns how SQLite would find the rows of a statement, one step in each line.
    pub fn plan(&self, sql: &str) -> Result<Vec<String>, Error> {
        let mut plan = self.0.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
        let numbers = rusqlite::params_from_iter(vec![1; plan.parameter_count()]);
        let steps = plan.query_map(numbers, |row| row.get(3))?;
        Ok(steps.collect::<Result<_, _>>()?)
    }

    /// Writes the catalog as it is at this moment into the new file `to`.
    pub fn copy_to(&self, to: &Path) -> Result<(), Error> {
        let to = to.display().to_string();
        self.0.connection.execute("VACUUM INTO ?1", [to])?;
        Ok(())
    }
}

impl Tx {
    /// Limits the pages that the file may have, as if the disk had no room for more.
    pub fn limit_pages(&self, pages: u32) -> Result<(), Error> {
        Ok(self.connection.pragma_update(None, "max_page_count", pages)?)
    }
}
