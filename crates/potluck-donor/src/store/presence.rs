//! Checks that the store is where it should be: disks are pulled, unmounted, and brought back, while
//! the daemon goes on (promise S3).

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
    /// Checks the disk, as is done each second: how much is left, and whether it is still the one
    /// the store is on. A store that comes back is looked through as at a start, and the manager
    /// needs its whole inventory then.
    pub fn check_disk(&self) {
        self.open_chunks.close_unread();
        if matches!(self.usage.fault(), Some((DiskTrouble::Writing, _))) {
            // The marker of a dead disk stays in the system's memory, so the disk itself has to be asked.
            self.forget_marker();
        }
        // The marker is read first: on a busy disk that takes long, and the space must be what it is
        // afterwards.
        let marker = marker::read(self.disk(), &self.layout);
        let asking = self.usage.asking();
        // The chunks' directory is asked: where a disk is not mounted there is none.
        let space = self.disk.space(self.layout.chunks());
        match marker.and_then(|found| Ok((found, space?))) {
            Ok((found, _)) if found.as_ref() != Some(&self.id) => {
                self.lost("its marker is missing, or another store's: pulled, or not mounted?");
            }
            Ok((_, space)) => self.there(asking, space),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                self.lost("its files are not there: pulled, or not mounted?");
            }
            Err(why) if is_broken(&why) => self.lost(&format!("looking at it failed: {why}")),
            Err(why) => drop(self.refuse("looking at the disk", &why)),
        }
    }

    fn there(&self, asking: Asking, space: DiskSpace) {
        let fault = self.usage.fault().map(|(fault, _)| fault);
        if fault == Some(DiskTrouble::Missing) && !self.comes_back() {
            return;
        }
        match (space.read_only, fault) {
            (true, _) => self.broke(DiskTrouble::ReadOnly, "it is mounted read-only"),
            (false, Some(DiskTrouble::ReadOnly)) => self.mends("takes writes again"),
            _ => {}
        }
        self.usage.sample(asking, space);
        // Quarantined files are removed for room before any chunk is.
        if self.trim_quarantine() {
            let asking = self.usage.asking();
            match self.disk.space(self.layout.chunks()) {
                Ok(space) => self.usage.sample(asking, space),
                Err(why) => drop(self.refuse("looking at the disk", &why)),
            }
        }
    }

    fn lost(&self, why: &str) {
        // Whoever checks or mounts that disk must not find it in use.
        *self.lock.lock().expect("no holder panics") = None;
        self.open_chunks.close_all();
        self.broke(DiskTrouble::Missing, why);
    }

    /// Tries to take back the store that is there again; true when that worked.
    fn comes_back(&self) -> bool {
        if !self.usage.idle() {
            return false; // puts of before end first: what they left is cleaned up
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
            self.lost(&format!("it is there again and cannot be looked through: {why}"));
            return false;
        }
        // The chunks that it holds now need not be those that it held, nor those that it gave receipts for.
        self.begin_incarnation();
        self.changes().forget();
        self.mends("is there again");
        true
    }

    /// Begins a new incarnation, so that the store is another one to all who were told of it.
    fn begin_incarnation(&self) {
        // The first number was drawn at random, so the next is hardly another donor's or an earlier
        // process's.
        self.incarnation.fetch_add(1, Ordering::AcqRel);
    }

    fn mends(&self, how: &str) {
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

    /// True while the disk is broken or missing.
    pub fn broken(&self) -> bool {
        self.usage.fault().is_some()
    }

    /// True when the store is there to ask, so that a chunk that is not found in it is missing.
    pub fn present(&self) -> bool {
        let found = marker::read(self.disk(), &self.layout);
        !self.is_missing() && found.is_ok_and(|found| found.as_ref() == Some(&self.id))
    }

    /// Gives a file of the store another name in it. A directory that somebody removed is made again:
    /// what was in it is missing, and nothing else is wrong with the disk.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let dir = match (self.disk().rename(from, to), to.parent()) {
            (Err(why), Some(dir)) if why.kind() == io::ErrorKind::NotFound && self.present() => dir,
            (renamed, _) => return renamed,
        };
        self.disk().make_dir(dir)?;
        dir.parent().map_or(Ok(()), |above| self.disk().sync_dir(above))?;
        self.disk().rename(from, to)
    }

    /// True while the lent directory is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self.usage.fault(), Some((DiskTrouble::Missing, _)))
    }
}
