//! Copies files inside the pool: by new versions of the same chunks, which moves no byte, or by reading and writing
//! every byte again, for example between spaces that are sealed with different keys.

use crate::content_reader::{ContentReader, HoleAhead};
use crate::get;
use crate::pending_links::PendingLinks;
use crate::pool::Pool;
use crate::progress::{Progress, Quiet};
use crate::source::{Input, Item};
use crate::write::options::PutOptions;
use crate::write::report::PutReport;
use crate::write::session::put;
use potluck_core::attributes::Permissions;
use potluck_core::ids::SessionId;
use potluck_core::path::{BadPath, PoolPath};
use potluck_core::policy::Redundancy;
use potluck_wire::control::{
    Condition, CopiedFile, CopyFiles, EntryKind, List, ListedEntry, Listing, MakeDir, NewLink,
    NotCopied,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The most files that wait to be written while another is read. Small files live in the catalog, so that their
/// content comes at once.
const FILES_AHEAD: usize = 64;
/// The most parts of one file that wait between its reader and its writer.
const PARTS_AHEAD: usize = 2;

/// The report of a copy without moving bytes.
#[derive(Debug, Default)]
pub struct CopyReport {
    /// The files that were copied.
    pub files: Vec<CopiedFile>,
    /// The number of links that were copied.
    pub links: u64,
    /// The files that were not copied, and why. Those that only lack holders ([`NotCopied::lacks_holders`]) can
    /// be copied through this client.
    pub failed: Vec<NotCopied>,
}

impl Pool {
    /// Copies the file or tree at `from` to the path `to` without moving its bytes. The copies have
    /// the redundancy of their sources at first, and are changed in the background to `redundancy`, or
    /// to what their directories ask for.
    ///
    /// Errors: those of [`Pool::call`], such as [`code::NO_ENTRY`]. Nothing of the page under way was copied then;
    /// earlier pages of a tree were. Files that failed alone are in the report.
    pub async fn copy_within(
        &self,
        from: &PoolPath,
        to: &PoolPath,
        recursive: bool,
        condition: Condition,
        redundancy: Option<Redundancy>,
    ) -> Result<CopyReport, Failure> {
        let mut report = CopyReport::default();
        let mut page = CopyFiles {
            from: from.clone(),
            to: to.clone(),
            recursive,
            condition,
            redundancy,
            copy: SessionId(self.env.entropy.bytes()),
            page: 0,
            after: None,
        };
        loop {
            let copied = self.call_retrying(&page).await?;
            let is_told = copied.files.len() + copied.failed.len() + copied.links as usize > 0;
            if !recursive && !is_told {
                let what = format!("the manager does not say what became of the copy of {from}");
                return Err(Failure::new(ErrorKind::Other, code::NOT_ACKNOWLEDGED, what)
                    .hint("repeat the command"));
            }
            report.files.extend(copied.files);
            report.links += copied.links;
            report.failed.extend(copied.failed);
            page.page += 1;
            page.after = copied.next;
            if page.after.is_none() {
                return Ok(report);
            }
        }
    }

    /// Copies files or trees through this client, which reads and writes every byte: each of `pairs` has a source and
    /// its target, below `root`. `options.bytes` is the number of all these bytes.
    ///
    /// Errors: those of [`put`], which ended the write session. Sources that cannot be read are in the report.
    pub async fn copy_through(
        &self,
        pairs: &[(PoolPath, PoolPath)],
        root: &PoolPath,
        options: &PutOptions,
        progress: Arc<dyn Progress>,
    ) -> Result<PutReport, Failure> {
        let (items, queue) = sync_channel(FILES_AHEAD);
        let mut links = PendingLinks::new(self, options.condition);
        let reading = async move {
            for (from, to) in pairs {
                if let Err(failure) = feed(self, from, to, &items, &mut links).await {
                    links.failed.push((from.clone(), failure));
                    break;
                }
            }
            if let Err(failure) = links.make().await {
                links.failed.push((root.clone(), failure));
            }
            (links.made, links.failed)
        };
        let writing = put(self, root, Box::new(queue.into_iter()), options, progress);
        tokio::pin!(reading, writing);
        let mut read = None;
        // The writer waits for the reader; when the writer has given up, the reader stops.
        let written = loop {
            tokio::select! {
                result = &mut reading, if read.is_none() => read = Some(result),
                written = &mut writing => break written,
            }
        };
        let mut report = written?;
        if let Some((links, failed)) = read {
            report.links += links;
            report.failed.extend(failed); // what was found before is stored
        }
        Ok(report)
    }
}

/// Reads all files at `from`, one after the other, and makes the links, and the directories that are empty or have
/// permissions of their own.
async fn feed(
    client: &Pool,
    from: &PoolPath,
    to: &PoolPath,
    items: &SyncSender<Item>,
    links: &mut PendingLinks,
) -> Result<(), Failure> {
    let mut after = None;
    let mut empty = Some(to.clone());
    loop {
        let list = List { path: from.clone(), recursive: true, after: after.take() };
        let page: Listing = client.call_retrying(&list).await?;
        for entry in page.entries {
            let (source, target) = (below(from, &entry.path)?, below(to, &entry.path)?);
            // A directory is empty if what follows it is not inside it. A file that is copied is listed at `to`
            // itself.
            if let Some(dir) = empty.take().filter(|dir| !target.is_inside(dir)) {
                make_dir(client, dir, Permissions::DIR).await?;
            }
            if entry.kind == EntryKind::Dir && entry.permissions != Permissions::DIR {
                make_dir(client, target, entry.permissions).await?;
            } else if entry.kind == EntryKind::Dir {
                empty = Some(target);
            } else if let Some(leads_to) = entry.target {
                let (mtime, owner) = (Some(entry.mtime), entry.owner);
                links.add(NewLink { path: target, target: leads_to, mtime, owner }).await?;
            } else if !read_one(client, &source, target, &entry, items).await {
                return Ok(()); // the writer has given up, and says why
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    match empty {
        Some(dir) => make_dir(client, dir, Permissions::DIR).await,
        None => Ok(()),
    }
}

async fn make_dir(client: &Pool, path: PoolPath, permissions: Permissions) -> Result<(), Failure> {
    let make = MakeDir { path, parents: true, permissions, owner: None };
    client.call_retrying(&make).await.map(drop)
}

/// Reads one file and sends its parts to its writer; false when the writer is gone.
async fn read_one(
    client: &Pool,
    source: &PoolPath,
    target: PoolPath,
    entry: &ListedEntry,
    items: &SyncSender<Item>,
) -> bool {
    let (parts, pipe) = sync_channel(PARTS_AHEAD);
    let input = Input::Reader {
        reader: Box::new(PipeReader::new(pipe)),
        bytes: entry.size,
        mtime: entry.mtime,
        permissions: entry.permissions,
        owner: entry.owner,
    };
    let (items, item) = (items.clone(), Item { path: target, input });
    let queued = client.env.offload.run(move || items.send(item).is_ok()).await;
    if !queued {
        return false;
    }
    let end = match send_content(client, source, &parts).await {
        Ok(()) => Part::End,
        Err(failure) => Part::Failed(failure),
    };
    // The writer may have given up this file alone; if it is gone, it takes no further file.
    client.env.offload.run(move || drop(parts.send(end))).await;
    true
}

/// Sends the content of a file: its bytes, and how long its holes are.
async fn send_content(
    client: &Pool,
    source: &PoolPath,
    parts: &SyncSender<Part>,
) -> Result<(), Failure> {
    let file = client.open(source).await?;
    let mut at = 0;
    while at < file.size() {
        let data = file.data_from(at).await?.unwrap_or(file.size()..file.size());
        if data.start > at {
            let (parts, hole) = (parts.clone(), Part::Hole(data.start - at));
            // If the writer is gone, the next bytes find that, or nothing needs to.
            client.env.offload.run(move || drop(parts.send(hole))).await;
        }
        at = data.end;
        let out = PipeWriter(parts.clone());
        get::stream_range(client, &file, data, out, Arc::new(Quiet)).await?;
    }
    Ok(())
}

fn below(path: &PoolPath, relative: &str) -> Result<PoolPath, Failure> {
    let names = relative.split('/').filter(|name| !name.is_empty());
    path.join_all(names).map_err(|why: BadPath| {
        Failure::new(ErrorKind::Integrity, code::BAD_PATH, why.to_string())
            .hint("the manager sent a name that no file can have")
    })
}

/// A part of a file on its way from the reader to the writer. Its end is sent too, so that a file that was
/// cut off is not taken for whole.
enum Part {
    Bytes(Vec<u8>),
    /// This many zeros follow.
    Hole(u64),
    Failed(Failure),
    End,
}

struct PipeWriter(SyncSender<Part>);

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = Part::Bytes(bytes.to_vec());
        self.0.send(part).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct PipeReader {
    pipe: Receiver<Part>,
    part: io::Cursor<Vec<u8>>,
    /// The number of zeros that follow the part.
    hole: u64,
    ended: bool,
}

impl PipeReader {
    fn new(pipe: Receiver<Part>) -> Self {
        Self { pipe, part: io::Cursor::default(), hole: 0, ended: false }
    }

    /// Waits for the next part, unless there is one or the file has ended.
    fn fill(&mut self) -> io::Result<()> {
        let has_part = self.part.position() < self.part.get_ref().len() as u64;
        if has_part || self.hole > 0 || self.ended {
            return Ok(());
        }
        match self.pipe.recv() {
            Ok(Part::Bytes(bytes)) => self.part = io::Cursor::new(bytes),
            Ok(Part::Hole(len)) => self.hole = len,
            Ok(Part::End) => self.ended = true,
            Ok(Part::Failed(why)) => return Err(io::Error::other(why)),
            Err(_) => return Err(io::Error::other("its reader ended early")),
        }
        Ok(())
    }
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.fill()?;
            let read = match self.hole {
                0 => self.part.read(buffer)?,
                hole => {
                    let zeros = (hole.min(buffer.len() as u64)) as usize;
                    buffer[..zeros].fill(0);
                    self.hole -= zeros as u64;
                    zeros
                }
            };
            if read > 0 || buffer.is_empty() || self.ended {
                return Ok(read);
            }
        }
    }
}

impl ContentReader for PipeReader {
    fn hole(&mut self) -> io::Result<HoleAhead> {
        self.fill()?;
        Ok(HoleAhead::Zeros(self.hole))
    }

    fn skip(&mut self, zeros: u64) {
        self.hole -= zeros;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_off_is_not_taken_for_whole() {
        let pipe = || {
            let (parts, pipe) = sync_channel(8);
            (parts, PipeReader::new(pipe))
        };
        let (parts, mut whole) = pipe();
        PipeWriter(parts.clone()).write_all(b"ab").expect("sent");
        parts.send(Part::Hole(3)).expect("sent");
        parts.send(Part::Hole(1 << 50)).expect("sent");
        PipeWriter(parts.clone()).write_all(b"c").expect("sent");
        parts.send(Part::End).expect("sent");
        let mut read = [1; 5];
        whole.read_exact(&mut read).expect("the first");
        assert_eq!(&read, b"ab\0\0\0");
        assert_eq!(whole.hole().expect("told"), HoleAhead::Zeros(1 << 50));
        whole.skip((1 << 50) - 1);
        let mut read = Vec::new();
        whole.read_to_end(&mut read).expect("the rest");
        assert_eq!(read, b"\0c");
        let (parts, mut cut) = pipe();
        PipeWriter(parts.clone()).write_all(b"ab").expect("sent");
        drop(parts);
        assert!(cut.read_to_end(&mut Vec::new()).is_err());
    }
}
