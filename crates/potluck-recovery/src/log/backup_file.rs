//! The copy of the log in a file.
//!
//! ```text
//! {"potluck_log":2,"pool":"…","authority":"…","key":"…"}\n
//! u32 length, little-endian   a sealed block       … as often as there are blocks
//! ```
//! The first blocks are a base; those of changes may follow. Each is authenticated with its number and
//! the block before it, so no bit of them can change unnoticed.

use super::block::{self, Base, BlockPart, Header, Lines, Sealer};
use crate::error::StateError;
use crate::state_dir::StateDir;
use potluck_catalog::{Authority, Error, LogPlace, Position};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::entropy::Entropy;
use potluck_core::seal::RecoveryKey;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The version of the file's format that this release writes and reads.
const VERSION: u32 = 2;
/// The most bytes of a sealed block: a length above it is damage.
const LONGEST: u32 = 8 << 20;

/// The heading of a file, readable without any key.
#[derive(Debug, Serialize, Deserialize)]
struct Heading {
    potluck_log: u32,
    pool: String,
    authority: String,
    /// The recovery key under which the blocks are sealed, by its name.
    key: Digest,
}

/// Writes the base of a catalog to the file `to`, whole or not at all: temporary file, fsync, rename,
/// fsync of the directory. Returns the position after it.
pub fn write_base(
    mut base: Base,
    to: &Path,
    pool: &str,
    mut sealer: Sealer,
    entropy: &dyn Entropy,
) -> Result<Position, StateError> {
    (sealer.files, sealer.may_lack) = (base.files, base.may_lack);
    let io = |source| StateError::Io { path: to.into(), source };
    let mut temp = Temp::beside(to).map_err(io)?;
    let (version, authority) = (VERSION, sealer.pool.to_string());
    let key = sealer.key.name();
    let heading = Heading { potluck_log: version, pool: pool.into(), authority, key };
    let mut line = serde_json::to_vec(&heading).map_err(|why| io(why.into()))?;
    line.push(b'\n');
    temp.file.write_all(&line).map_err(io)?;
    while let Some((part, lines)) = base.next_lines()? {
        write_block(&mut temp.file, &mut sealer, part, &lines, entropy).map_err(io)?;
    }
    temp.file.sync_all().map_err(io)?;
    let bytes = temp.file.stream_position().map_err(io)?;
    temp.becomes(to).map_err(io)?;
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)?;
    let position = sealer.position.ok_or_else(|| Error::Bug("a base without blocks".into()))?;
    Ok(Position { change: base.change, file: Some(LogPlace { number: 0, bytes }), ..position })
}

/// Adds changes to the file `to`, which is `bytes` long, and makes them durable. Returns the new length. A
/// part that could not be added whole is taken off again, if that succeeds.
pub fn append(
    to: &Path,
    bytes: u64,
    sealer: &mut Sealer,
    blocks: &[Lines],
    entropy: &dyn Entropy,
) -> io::Result<u64> {
    let mut file = File::options().write(true).open(to)?;
    file.seek(SeekFrom::Start(bytes))?;
    let mut add = || {
        for lines in blocks {
            write_block(&mut file, sealer, BlockPart::Log, lines, entropy)?;
        }
        file.sync_all()?;
        file.stream_position()
    };
    let added = add();
    if added.is_err() {
        // This is a best effort: a file of another length is not gone on with.
        let _ = file.set_len(bytes);
    }
    added
}

fn write_block(
    file: &mut File,
    sealer: &mut Sealer,
    part: BlockPart,
    lines: &Lines,
    entropy: &dyn Entropy,
) -> io::Result<()> {
    let sealed = sealer.seal(part, lines, entropy).map_err(io::Error::other)?.bytes;
    file.write_all(&(sealed.len() as u32).to_le_bytes())?;
    file.write_all(&sealed)
}

/// A temporary file that is renamed when it is complete, and removed otherwise, so that a file which fills the disk
/// does not keep it full.
struct Temp {
    path: PathBuf,
    file: File,
    arrived: bool,
}

impl Temp {
    /// Makes a temporary file beside `to`. A file that already has such a name belongs to another process, and stays.
    fn beside(to: &Path) -> io::Result<Self> {
        for n in 0..100 {
            let mut name = to.as_os_str().to_owned();
            name.push(format!(".part{n}"));
            let path = PathBuf::from(name);
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok(Self { path, file, arrived: false }),
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(why),
            }
        }
        Err(io::Error::other("interrupted copies lie beside it: remove them"))
    }

    fn becomes(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.arrived = true;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.arrived
            && let Err(why) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %why, "a part of a copy stays");
        }
    }
}

/// A reader of the blocks of a file in order.
pub struct BackupReader {
    file: BufReader<File>,
    key: RecoveryKey,
    pool: Digest,
    last: Option<(Header, ChunkName)>,
}

/// The next part of a file.
#[derive(Debug)]
pub enum Next {
    /// A block, with its header and its plaintext.
    Block(Header, Vec<u8>),
    /// The file ends here.
    End,
    /// The rest of the file, so many bytes, is no blocks, for this reason.
    Unreadable(u64, &'static str),
}

impl BackupReader {
    /// Opens the file at `path`.
    ///
    /// Errors: it is no log, is of another version, or is another pool's than that of `ours`. The blocks are opened
    /// with `key`; the recovery kit at `kit` is named in errors.
    pub fn open(
        path: &Path,
        kit: &Path,
        key: RecoveryKey,
        ours: &Authority,
    ) -> Result<Self, StateError> {
        let io = |source| StateDir::io(path.into())(source);
        let bad = |detail: &str| StateError::BadBackup { path: path.into(), detail: detail.into() };
        let mut file = BufReader::new(File::open(path).map_err(io)?);
        let mut line = Vec::new();
        (&mut file).take(4096).read_until(b'\n', &mut line).map_err(io)?;
        let heading: Heading = serde_json::from_slice(&line)
            .map_err(|_| bad("it does not begin as a backup of a catalog does"))?;
        if heading.potluck_log != VERSION {
            return Err(bad("it is of another version of Potluck"));
        }
        let pool = heading.authority.parse().map_err(|_| bad("it names no authority"))?;
        let whose = Authority::new(&heading.pool, &pool);
        if !whose.may_be(ours) {
            let (kit, kit_of) = (kit.into(), ours.to_string());
            return Err(StateError::OtherPool { kit, kit_of, backup_of: whose.to_string() });
        }
        if heading.key != key.name() {
            return Err(StateError::OtherKey { kit: kit.into(), backup: path.into() });
        }
        Ok(Self { file, key, pool, last: None })
    }

    /// Reads the next block of the file.
    pub fn next_block(&mut self) -> io::Result<Next> {
        let at = self.file.stream_position()?;
        let mut sealed = Vec::new();
        let read = self.file.by_ref().take(4).read_to_end(&mut sealed)?;
        if read == 0 {
            return Ok(Next::End);
        }
        let found = match <[u8; 4]>::try_from(&sealed[..]) {
            Ok(length) => self.block(u32::from_le_bytes(length))?,
            Err(_) => Err("it is cut off"),
        };
        match found {
            Ok((header, text)) => Ok(Next::Block(header, text)),
            Err(why) => {
                let end = self.file.get_ref().metadata()?.len();
                Ok(Next::Unreadable(end - at, why))
            }
        }
    }

    fn block(&mut self, length: u32) -> io::Result<Result<(Header, Vec<u8>), &'static str>> {
        if length > LONGEST {
            return Ok(Err("it is not what was written"));
        }
        let mut sealed = Vec::new();
        self.file.by_ref().take(u64::from(length)).read_to_end(&mut sealed)?;
        if sealed.len() < length as usize {
            return Ok(Err("it is cut off"));
        }
        let Ok((sequence, text)) = self.key.open_record(&self.pool, &sealed) else {
            return Ok(Err("it is not what was written"));
        };
        let Ok(header) = block::header(sequence, &text) else {
            return Ok(Err("it is not what was written"));
        };
        let (fits, state) = match &self.last {
            None => (header.before.is_none() && sequence == header.generation, true),
            Some((last, name)) => (
                header.before == Some(*name) && header.generation == last.generation,
                last.part == BlockPart::Base,
            ),
        };
        if !fits || state == (header.part == BlockPart::Log) {
            return Ok(Err("its parts do not belong together"));
        }
        self.last = Some((header.clone(), ChunkName::of(&sealed)));
        Ok(Ok((header, text)))
    }
}
