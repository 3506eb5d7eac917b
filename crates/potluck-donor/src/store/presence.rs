//! Checks that the store is where it should be: disks are pulled, unmounted and brought back while the daemon runs
//! (promise S3).

use super::quarantine::Quarantine;
use super::usage::{Asking, DiskTrouble};
use super::{Store, marker};
use crate::deletion::leftovers;
use crate::disk::{DiskSpace, is_broken};
use potluck_wire::control::DiskFault;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

impl Store {
    /// Checks the disk, once a second: how much space is left, and whether the store is still there. A store that comes
    /// back is looked through as at a start, and the manager needs its whole inventory then.
    pub fn check_disk(&self) {
        self.open_chunks.close_unread();
        if matches!(self.usage.fault(), Some((DiskTrouble::Writing, _))) {
            // The marker of a dead disk may stay in the page cache, so it has to be read from the disk.
            self.forget_marker();
        }
        // The marker is read first: on a busy disk that takes long, and the space must be asked for after it.
        let marker = marker::read(self.disk(), &self.layout);
        let asking = self.usage.asking();
        // The space of the chunks' directory is asked for: where the disk is not mounted that directory is missing.
        let space = self.disk.space(self.layout.chunks());
        match marker.and_then(|found| Ok((found, space?))) {
            Ok((found, _)) if found.as_ref() != Some(&self.id) => {
                self.note_missing(
                    "its marker is missing, or another store's: pulled, or not mounted?",
                );
            }
            Ok((_, space)) => self.note_present(asking, space),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                self.note_missing("its files are not there: pulled, or not mounted?");
            }
            Err(why) if is_broken(&why) => {
                self.note_missing(&format!("looking at it failed: {why}"))
            }
            Err(why) => drop(self.refuse("looking at the disk", &why)),
        }
    }

    fn note_present(&self, asking: Asking, space: DiskSpace) {
        let fault = self.usage.fault().map(|(fault, _)| fault);
        if fault == Some(DiskTrouble::Missing) && !self.comes_back() {
            return;
        }
        match (space.read_only, fault) {
            (true, _) => self.broke(DiskTrouble::ReadOnly, "it is mounted read-only"),
            (false, Some(DiskTrouble::ReadOnly)) => self.note_recovered("takes writes again"),
            _ => {}
        }
        self.usage.sample(asking, space);
        // Quarantined files are removed for room before any chunk leaves.
        if self.trim_quarantine() {
            let asking = self.usage.asking();
            match self.disk.space(self.layout.chunks()) {
                Ok(space) => self.usage.sample(asking, space),
                Err(why) => drop(self.refuse("looking at the disk", &why)),
            }
        }
    }

    fn note_missing(&self, why: &str) {
        // Nothing is kept open, so that the disk can be checked or mounted again.
        *self.lock.lock().expect("no holder panics") = None;
        self.open_chunks.close_all();
        self.broke(DiskTrouble::Missing, why);
    }

    /// Tries to open the store that is there again; returns whether that worked.
    fn comes_back(&self) -> bool {
        if !self.usage.idle() {
            return false; // earlier puts and deletions must end first, because the files are cleaned up and counted
        }
        let root = self.layout.root();
        match self.disk.lock(root) {
            Ok(lock) => *self.lock.lock().expect("no holder panics") = Some(lock),
            Err(why) => {
                self.broke(
                    DiskTrouble::Missing,
                    &format!("it is there again and cannot be locked: {why}"),
                );
                return false;
            }
        }
        self.usage.forget();
        *self.quarantine() = Quarantine::default();
        if let Err(why) = leftovers(self) {
            self.note_missing(&format!("it is there again and cannot be looked through: {why}"));
            return false;
        }
        // The store may lack chunks that it held, and chunks that it gave receipts for.
        self.begin_incarnation();
        self.changes().forget();
        self.note_recovered("is there again");
        true
    }

    /// Begins a new incarnation, so that receipts and orders for the earlier one do not count for this store.
    fn begin_incarnation(&self) {
        // The first number was drawn at random, so the next is hardly that of another donor or of an earlier process.
        self.incarnation.fetch_add(1, Ordering::AcqRel);
    }

    fn note_recovered(&self, how: &str) {
        self.usage.mended();
        tracing::info!("the lent directory {} {how}", self.layout.root().display());
    }

    pub(super) fn broke(&self, fault: DiskTrouble, why: &str) {
        if !self.usage.broke(fault, why.to_owned()) {
            return;
        }
        let dir = self.layout.root().display();
        match fault {
            DiskTrouble::Missing => tracing::error!(
                "the lent directory {dir} is broken or gone ({why}): nothing there is counted on. \
                 Mount its disk if it is not mounted; it goes on by itself when it is back"
            ),
            DiskTrouble::ReadOnly => tracing::error!(
                "the lent directory {dir} takes no writes ({why}): what is there is still served. \
                 Check the disk; it goes on by itself when it is writable again"
            ),
            DiskTrouble::Writing => tracing::error!(
                "the lent directory {dir} is broken ({why}); nothing more is stored there, what is \
                 there is still served. Check the disk, and start the donor again"
            ),
        }
    }

    /// Returns the fault of the disk, if it has one.
    pub fn fault(&self) -> Option<DiskFault> {
        let (fault, why) = self.usage.fault()?;
        Some(DiskFault { missing: fault == DiskTrouble::Missing, why })
    }

    /// Returns whether the disk has a fault: it is broken, read-only or missing.
    pub fn broken(&self) -> bool {
        self.usage.fault().is_some()
    }

    /// Returns whether the store is there, so that a chunk that is not found in it is missing.
    pub fn present(&self) -> bool {
        let found = marker::read(self.disk(), &self.layout);
        !self.is_missing() && found.is_ok_and(|found| found.as_ref() == Some(&self.id))
    }

    /// Renames a file within the store. If somebody removed the target's directory it is made again: its files are
    /// missing, but the disk is not broken.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let dir = match (self.disk().rename(from, to), to.parent()) {
            (Err(why), Some(dir)) if why.kind() == io::ErrorKind::NotFound && self.present() => dir,
            (renamed, _) => return renamed,
        };
        self.disk().make_dir(dir)?;
        dir.parent().map_or(Ok(()), |above| self.disk().sync_dir(above))?;
        self.disk().rename(from, to)
    }

    /// Returns whether the store is missing.
    pub fn is_missing(&self) -> bool {
        matches!(self.usage.fault(), Some((DiskTrouble::Missing, _)))
    }
}
