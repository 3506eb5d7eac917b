//! The size of a pool at one moment: rows, files, log, disks and memory.

use potluck_catalog::fixture::tampering::Tampering;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The size of a pool at one moment. All sizes are in bytes.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// The simulated day.
    pub day: u64,
    /// The number of files.
    pub files: u64,
    /// The size of these files.
    pub file_bytes: u64,
    /// The size of their chunks with all redundancy.
    pub needed_on_donors: u64,
    /// The size of everything on the disks of donors, without those that were replaced.
    pub on_donors: u64,
    /// The size of one copy of the metadata log on donors.
    pub log: u64,
    /// The size of the catalog's file.
    pub catalog: u64,
    /// The size of the catalog's write-ahead log.
    pub write_ahead: u64,
    /// The size of everything else in the manager's directory, such as backups and the audit log.
    pub manager_files: u64,
    /// The heap in use by the pool: that of the process, without the donors' simulated disks and without what was in
    /// use before there was a pool.
    pub heap: u64,
    /// The resident memory of the whole process, donors' simulated disks included.
    pub resident: u64,
    /// The number of rows of each table of the catalog.
    pub rows: BTreeMap<String, u64>,
}

impl Figures {
    /// Measures the manager's directory and the memory of the process. Figures about files and donors stay 0.
    pub fn look(state: &Path) -> Result<Self, String> {
        let path = state.join("catalog.db");
        let mut figures = Self { resident: resident(), heap: Self::heap_now(), ..Self::default() };
        let catalog = Tampering::with(&path).map_err(|why| why.to_string())?;
        figures.rows = catalog.rows_by_table().map_err(|why| why.to_string())?;
        figures.log = catalog.log_on_donors().map_err(|why| why.to_string())?;
        drop(catalog);
        figures.catalog = size(&path);
        figures.write_ahead = size(&state.join("catalog.db-wal"));
        figures.manager_files = size(state) - figures.catalog - figures.write_ahead;
        Ok(figures)
    }

    /// Returns the bytes that the allocator has given out and not got back.
    pub fn heap_now() -> u64 {
        // SAFETY: the call takes nothing and returns numbers.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as u64
    }

    /// Returns the number of rows of all tables.
    pub fn all_rows(&self) -> u64 {
        self.rows.values().sum()
    }

    /// Returns all figures with their names, with the rows of all tables in one sum.
    pub fn columns(&self) -> [(&'static str, u64); 12] {
        [
            ("day", self.day),
            ("files", self.files),
            ("file_bytes", self.file_bytes),
            ("needed_on_donors", self.needed_on_donors),
            ("on_donors", self.on_donors),
            ("log", self.log),
            ("catalog", self.catalog),
            ("write_ahead", self.write_ahead),
            ("manager_files", self.manager_files),
            ("heap", self.heap),
            ("resident", self.resident),
            ("rows", self.all_rows()),
        ]
    }

    /// Returns the header and the line of a table in CSV, with the rows of each table.
    pub fn csv(&self) -> (String, String) {
        let columns = self.columns().map(|(name, value)| (name.to_owned(), value));
        let rows = self.rows.iter().map(|(table, rows)| (format!("rows_{table}"), *rows));
        let (names, values): (Vec<_>, Vec<_>) =
            columns.into_iter().chain(rows).map(|(name, value)| (name, value.to_string())).unzip();
        (names.join(","), values.join(","))
    }
}

/// Returns the bytes of the file at `path`, or of all files below it; 0 if nothing is there.
fn size(path: &Path) -> u64 {
    if path.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        return entries.map(|entry| size(&entry.path())).sum();
    }
    path.metadata().map_or(0, |about| about.len())
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
