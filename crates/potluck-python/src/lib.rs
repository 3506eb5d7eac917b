//! The module `potluck._native`: pools, files and writers for Python. Every call that waits lets other threads of
//! Python run, and ends early when a signal comes.

mod buffers;
mod errors;
mod forks;

use buffers::{ReadableBuffer, UnfilledBytes, WritableBuffer};
use errors::{raised, raising};
use forks::OwnProcess;
use potluck_client::blocking::{
    BlockingCheckpoint, BlockingFile, BlockingPool, BlockingWriter, FileToWrite, Overwrite,
    PoolEntry, PoolEntryKind,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The module as Python imports it.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{Checkpoint, File, Pool, Writer};
}

/// A connection to a pool, under the identity of the user. It is made again in a process that was forked.
#[pyclass(frozen, module = "potluck._native")]
struct Pool {
    name: Option<String>,
    /// The client of the process that used the pool last. The lock is taken only by who holds Python's own lock, so that no
    /// fork happens meanwhile.
    client: Mutex<OwnProcess<BlockingPool>>,
}

fn connect(py: Python<'_>, name: Option<&str>) -> PyResult<OwnProcess<BlockingPool>> {
    let pool = BlockingPool::connect(name).map_err(|error| raised(py, error))?;
    Ok(OwnProcess::new(pool.interrupted_by(Arc::new(errors::signal_came))))
}

impl Pool {
    fn client(&self, py: Python<'_>) -> PyResult<BlockingPool> {
        let mut client = self.client.lock().expect("no holder panics");
        if client.get().is_none() {
            *client = connect(py, self.name.as_deref())?;
        }
        Ok(client.get().expect("it is of this process").clone())
    }
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (name=None))]
    fn new(py: Python<'_>, name: Option<String>) -> PyResult<Self> {
        let client = Mutex::new(connect(py, name.as_deref())?);
        Ok(Self { name, client })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let name = slf.get().name.clone();
        (slf.get_type(), (name,)).into_pyobject(slf.py())
    }

    /// Opens a file for reading.
    fn open(&self, py: Python<'_>, path: &str) -> PyResult<File> {
        let client = self.client(py)?;
        let file = raising(py, || client.open(path))?;
        Ok(File { file: OwnProcess::new(file) })
    }

    /// Begins to write a file: over what is there, only where nothing is, or only over one version.
    #[pyo3(signature = (path, *, exclusive=false, replaces=None, size=None, modified_ns=None))]
    fn create(
        &self,
        py: Python<'_>,
        path: &str,
        exclusive: bool,
        replaces: Option<u64>,
        size: Option<u64>,
        modified_ns: Option<i64>,
    ) -> PyResult<Writer> {
        let overwrite = match (exclusive, replaces) {
            (true, _) => Overwrite::Never,
            (false, Some(version)) => Overwrite::OnlyVersion(version),
            (false, None) => Overwrite::Always,
        };
        let client = self.client(py)?;
        let new = FileToWrite { overwrite, size, modified_ns };
        let writer = raising(py, || client.create(path, &new))?;
        Ok(Writer::of(writer))
    }

    /// Begins to write a file that has what is there first.
    fn append(&self, py: Python<'_>, path: &str) -> PyResult<Writer> {
        let client = self.client(py)?;
        Ok(Writer::of(raising(py, || client.append(path))?))
    }

    /// Reads a range of a file; a negative place counts from its end.
    #[pyo3(signature = (path, start=None, end=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        start: Option<i64>,
        end: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let read = self.read_ranges(py, vec![(path.to_owned(), start, end)])?;
        let only = read.get_item(0)?;
        match only.is_instance_of::<pyo3::exceptions::PyBaseException>() {
            true => Err(PyErr::from_value(only)),
            false => Ok(only),
        }
    }

    /// Reads ranges side by side. In the list that is returned a range that could not be read has its exception.
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(String, Option<i64>, Option<i64>)>,
    ) -> PyResult<Bound<'py, PyList>> {
        let client = self.client(py)?;
        let mut paths: Vec<String> = ranges.iter().map(|(path, ..)| path.clone()).collect();
        paths.sort();
        paths.dedup();
        let opened = raising(py, || client.open_all(&paths))?;
        let all = PyList::empty(py);
        let mut wanted = Vec::new();
        for (path, start, end) in &ranges {
            let at = paths.binary_search(path).expect("it was put in");
            match &opened[at] {
                Err(error) => all.append(raised(py, error.clone()))?,
                Ok(file) => {
                    let place = |place: i64| match place {
                        0.. => (place as u64).min(file.size()),
                        _ => file.size().saturating_sub(place.unsigned_abs()),
                    };
                    let start = start.map_or(0, place);
                    let end = end.map_or(file.size(), place).max(start);
                    let bytes = UnfilledBytes::new(py, (end - start) as usize)?;
                    all.append(bytes.object())?;
                    wanted.push((all.len() - 1, file, start, bytes));
                }
            }
        }
        let reads =
            wanted.iter_mut().map(|(_, file, start, bytes)| (*file, *start, bytes.as_mut()));
        let reads: Vec<_> = reads.collect();
        let done = raising(py, || client.read_all(reads))?;
        for ((index, ..), done) in wanted.iter().zip(done) {
            if let Err(error) = done {
                all.set_item(*index, raised(py, error))?;
            }
        }
        Ok(all)
    }

    /// Tells what is at a path.
    fn stat<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyDict>> {
        let client = self.client(py)?;
        about(py, raising(py, || client.stat(path))?)
    }

    /// Lists a directory; with `recursive` all that is below it.
    #[pyo3(signature = (path, recursive=false))]
    fn list<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        recursive: bool,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let client = self.client(py)?;
        let found = raising(py, || client.list(path, recursive))?;
        found.into_iter().map(|entry| about(py, entry)).collect()
    }

    /// Makes a directory or a space.
    #[pyo3(signature = (path, parents=false))]
    fn make_dir(&self, py: Python<'_>, path: &str, parents: bool) -> PyResult<()> {
        let client = self.client(py)?;
        raising(py, || client.make_dir(path, parents))
    }

    /// Removes a file, or with `recursive` a tree.
    #[pyo3(signature = (path, recursive=false))]
    fn remove(&self, py: Python<'_>, path: &str, recursive: bool) -> PyResult<()> {
        let client = self.client(py)?;
        raising(py, || client.remove(path, recursive))
    }

    /// Removes an empty directory or space.
    fn remove_dir(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let client = self.client(py)?;
        raising(py, || client.remove_dir(path))
    }

    /// Moves a file or directory inside its space.
    #[pyo3(signature = (source, target, replace=true))]
    fn rename(&self, py: Python<'_>, source: &str, target: &str, replace: bool) -> PyResult<()> {
        let client = self.client(py)?;
        raising(py, || client.rename(source, target, replace))
    }

    /// Copies a file, or with `recursive` a tree, inside the pool.
    #[pyo3(signature = (source, target, recursive=false))]
    fn copy(&self, py: Python<'_>, source: &str, target: &str, recursive: bool) -> PyResult<()> {
        let client = self.client(py)?;
        raising(py, || client.copy(source, target, recursive))
    }

    /// Reserves room for files at and below a path, and returns the identifier of the reservation.
    fn reserve(&self, py: Python<'_>, path: &str, bytes: u64, seconds: f64) -> PyResult<String> {
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|why| PyValueError::new_err(why.to_string()))?;
        let client = self.client(py)?;
        raising(py, || client.reserve(path, bytes, time))
    }

    /// Ends a reservation.
    fn release(&self, py: Python<'_>, reservation: &str) -> PyResult<()> {
        let client = self.client(py)?;
        raising(py, || client.release(reservation))
    }

    /// Has all but the newest `count` steps of a directory purged.
    fn keep_last(&self, py: Python<'_>, path: &str, count: u32) -> PyResult<()> {
        let client = self.client(py)?;
        raising(py, || client.keep_last(path, count))
    }

    /// Begins a checkpoint for a directory.
    fn begin_checkpoint(&self, py: Python<'_>, target: &str) -> PyResult<Checkpoint> {
        let client = self.client(py)?;
        let checkpoint = raising(py, || client.begin_checkpoint(target))?;
        Ok(Checkpoint { checkpoint: OwnProcess::new(checkpoint) })
    }

    /// Tells the manager what was measured, before the program ends.
    fn settle(&self, py: Python<'_>) {
        // In a forked process that did not use the pool there is nothing to tell.
        let client = self.client.lock().expect("no holder panics").get().cloned();
        if let Some(client) = client {
            py.detach(|| client.settle());
        }
    }
}

/// Returns the facts about a path as Python sees them.
fn about(py: Python<'_>, entry: PoolEntry) -> PyResult<Bound<'_, PyDict>> {
    let about = PyDict::new(py);
    about.set_item("name", entry.path.trim_start_matches("pot://"))?;
    about.set_item("size", entry.size)?;
    about.set_item(
        "type",
        match entry.kind {
            PoolEntryKind::File => "file",
            PoolEntryKind::Directory => "directory",
            PoolEntryKind::Link => "link",
        },
    )?;
    about.set_item("mtime_ns", entry.modified_ns)?;
    about.set_item("ctime_ns", entry.changed_ns)?;
    about.set_item("version", entry.version)?;
    about.set_item("digest", entry.digest)?;
    if let Some(target) = entry.link_target {
        about.set_item("destination", target)?;
    }
    Ok(about)
}

/// One version of a file that is open for reading.
#[pyclass(frozen, module = "potluck._native")]
struct File {
    file: OwnProcess<BlockingFile>,
}

#[pymethods]
impl File {
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.file.here()?.size())
    }

    #[getter]
    fn version(&self) -> PyResult<u64> {
        Ok(self.file.here()?.version())
    }

    /// Reads from `offset` on into a buffer, and returns the number of bytes.
    fn read_into(&self, py: Python<'_>, offset: u64, into: &Bound<'_, PyAny>) -> PyResult<usize> {
        let file = self.file.here()?;
        let mut into = WritableBuffer::of(into)?;
        let bytes = into.as_mut();
        raising(py, || file.read_into(offset, bytes))
    }

    /// Reads at most `length` bytes from `offset` on.
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: u64) -> PyResult<Bound<'py, PyAny>> {
        let file = self.file.here()?;
        let length = file.size().saturating_sub(offset).min(length);
        let mut unfilled = UnfilledBytes::new(py, length as usize)?;
        let bytes = unfilled.as_mut();
        raising(py, || file.read_into(offset, bytes))?;
        Ok(unfilled.object())
    }
}

/// A writer of one file, which becomes visible when it is finished.
#[pyclass(frozen, module = "potluck._native")]
struct Writer {
    writer: OwnProcess<Mutex<BlockingWriter>>,
}

impl Writer {
    fn of(writer: BlockingWriter) -> Self {
        Self { writer: OwnProcess::new(Mutex::new(writer)) }
    }

    /// Calls the writer when no other thread does, without keeping the rest of Python from running.
    fn calling<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut BlockingWriter) -> Result<T, potluck_client::PoolError> + Send,
    ) -> PyResult<T> {
        let writer = self.writer.here()?;
        raising(py, || call(&mut writer.lock().expect("no holder panics")))
    }
}

#[pymethods]
impl Writer {
    /// Adds the bytes of a buffer at the end.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let data = ReadableBuffer::of(data)?;
        let bytes = data.as_ref();
        self.calling(py, |writer| writer.write(bytes))?;
        Ok(bytes.len())
    }

    /// Waits until donors have what was written.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.calling(py, BlockingWriter::flush)
    }

    /// Makes the file visible, and returns its version.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        self.calling(py, BlockingWriter::finish)
    }

    /// Gives the file up.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.calling(py, |writer| {
            writer.abort();
            Ok(())
        })
    }

    /// The bytes of the file so far.
    #[getter]
    fn written(&self, py: Python<'_>) -> PyResult<u64> {
        self.calling(py, |writer| Ok(writer.written()))
    }
}

/// A checkpoint of one directory.
#[pyclass(frozen, module = "potluck._native")]
struct Checkpoint {
    checkpoint: OwnProcess<BlockingCheckpoint>,
}

#[pymethods]
impl Checkpoint {
    /// Returns the path at which a file is written whose place will be `path`.
    fn staged(&self, py: Python<'_>, path: &str) -> PyResult<String> {
        let checkpoint = self.checkpoint.here()?;
        checkpoint.staged(path).map_err(|error| raised(py, error))
    }

    /// Makes all files visible at one moment.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let checkpoint = self.checkpoint.here()?;
        raising(py, || checkpoint.commit())
    }

    /// Removes what was written.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let checkpoint = self.checkpoint.here()?;
        raising(py, || checkpoint.abort())
    }
}
