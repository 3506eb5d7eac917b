//! What shows that a checkpoint's file is as it was written: a trailer after the catalog's last page.
//!
//! SQLite's own checks find pages that do not fit together, but no value that changed into another.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Begins the trailer; the digest of all bytes before the trailer follows, in hex, and a newline.
const MAGIC: &str = "\npotluck checkpoint 1, BLAKE3 ";
const TRAILER: u64 = MAGIC.len() as u64 + 2 * blake3::OUT_LEN as u64 + 1;
/// The length of every file of SQLite is a multiple of this, its smallest page. Therefore no file
/// with a trailer looks like one without, whatever happened to the trailer itself.
const SECTOR: u64 = 512;
const _: () = assert!(!TRAILER.is_multiple_of(SECTOR));

/// What is known of a file by its checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// It is as it was written.
    Whole,
    /// It has none, as a copy made by hand and those of older releases.
    Without,
    /// It is not what was written, and why.
    Damaged(&'static str),
}

/// Ends the catalog's copy in the file at `path` with its trailer, and makes all of it durable.
pub fn append(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).append(true).open(path)?;
    let len = file.metadata()?.len();
    let trailer = trailer(&mut file, len)?;
    file.write_all(trailer.as_bytes())?;
    file.sync_all()
}

/// Checks the file at `path`, and takes its trailer off if it is whole.
pub fn take_off(path: &Path) -> io::Result<Checked> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let len = file.metadata()?.len();
    if len.is_multiple_of(SECTOR) {
        return Ok(Checked::Without);
    }
    let Some(pages) = len.checked_sub(TRAILER) else {
        return Ok(Checked::Damaged("its length is no checkpoint's"));
    };
    let expected = trailer(&mut file, pages)?;
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(pages))?;
    file.read_to_end(&mut found)?;
    if found != expected.as_bytes() {
        return Ok(Checked::Damaged("it is not what its checksum says"));
    }
    file.set_len(pages)?;
    Ok(Checked::Whole)
}

/// Takes the trailer off a catalog that somebody made of a checkpoint by hand, before anything is
/// written there that the checksum is not of. Not checked: an older release may have written.
pub fn strip(path: &Path) -> io::Result<()> {
    let len = fs::metadata(path)?.len();
    // A length that is none of SQLite's alone shows nothing: writing may have been interrupted.
    if len < TRAILER || len % SECTOR != TRAILER % SECTOR {
        return Ok(());
    }
    let mut file = File::options().read(true).write(true).open(path)?;
    let mut found = [0; MAGIC.len()];
    file.seek(SeekFrom::Start(len - TRAILER))?;
    file.read_exact(&mut found)?;
    if found == MAGIC.as_bytes() { file.set_len(len - TRAILER) } else { Ok(()) }
}

/// Bytes of the catalog in the checkpoint's file `file`.
pub fn pages_of(file: &File) -> io::Result<u64> {
    let len = file.metadata()?.len();
    Ok(len - len % SECTOR)
}

/// The trailer that belongs after the first `pages` bytes of `file`.
fn trailer(file: &mut File, pages: u64) -> io::Result<String> {
    file.rewind()?;
    let mut hash = blake3::Hasher::new();
    hash.update_reader(file.take(pages))?;
    Ok(format!("{MAGIC}{}\n", hash.finalize().to_hex()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::schema;

    #[test]
    fn d4_no_bit_of_a_checkpoint_can_change_unnoticed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (catalog, copy) = (dir.path().join("catalog.db"), dir.path().join("copy.db"));
        schema::create(&catalog, "lab").expect("a catalog");
        super::super::file::copy(&catalog, &copy, None).expect("copied");
        let written = fs::read(&copy).expect("read");
        let check = |bytes: &[u8]| {
            fs::write(&copy, bytes).expect("written");
            take_off(&copy).expect("read")
        };
        let trailer = written.len() - TRAILER as usize..written.len();
        let offsets = (0..trailer.start).step_by(331).chain(trailer);
        for offset in offsets {
            let mut flipped = written.clone();
            flipped[offset] ^= 1 << (offset % 8);
            let checked = check(&flipped);
            assert!(matches!(checked, Checked::Damaged(_)), "a bit of byte {offset}: {checked:?}");
        }
        for cut in [1, 40, TRAILER as usize - 1, TRAILER as usize + 1, 5000] {
            let checked = check(&written[..written.len() - cut]);
            assert!(matches!(checked, Checked::Damaged(_)), "{cut} bytes cut off: {checked:?}");
        }
        assert_eq!(check(&written), Checked::Whole);
        let bare = fs::read(&copy).expect("read");
        assert_eq!(bare, written[..written.len() - TRAILER as usize], "the catalog remains");
        assert_eq!(take_off(&copy).expect("read"), Checked::Without);
    }

    #[test]
    fn a_checkpoint_put_in_as_the_catalog_by_hand_is_one_and_its_copies_are_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let [catalog, copy, again] = ["catalog.db", "copy.db", "x.db"].map(|f| dir.path().join(f));
        schema::create(&catalog, "lab").expect("a catalog");
        super::super::file::copy(&catalog, &copy, None).expect("copied");
        let db = schema::open_existing(&copy).expect("opens");
        assert_eq!(schema::pool_name(&db).expect("a name"), "lab");
        drop(db);
        fs::copy(&copy, &again).expect("copied by hand");
        assert_eq!(take_off(&again).expect("read"), Checked::Without);
    }
}
