//! Reading a chunk back to see whether it still is what its name says (promise R1).

use super::{Change, Refusal, Store, stored_len};
use crate::disk::{OldFile, is_broken};
use potluck_core::chunk::{ChunkName, Verifier};
use potluck_wire::bulk::PIECE;
use std::io;

/// How often a verification begins again because the chunk was put or deleted meanwhile.
const TRIES: usize = 3;

/// What a look at a chunk found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its bytes are its name's.
    Sound,
    /// They were not, or could not be read; set aside.
    Spoiled,
    /// It is not here.
    Missing,
}

impl Store {
    /// Reads `name` whole, compares, and sets it aside if it is spoiled. Reported by heartbeat. One
    /// that is sound counts as put again: whoever asked relies on it from now on, and no tombstone
    /// of before deletes it, also if that is still waiting here.
    pub fn verify(&self, name: &ChunkName) -> Result<Verdict, Refusal> {
        self.judge(name, |verdict| match verdict {
            Verdict::Sound => {
                self.write_sequence().wrote(name);
                Some(Change::Sound(*name))
            }
            Verdict::Missing => Some(Change::Removed(*name)),
            Verdict::Spoiled => None, // said where it is set aside
        })
    }

    /// The same when nobody asked: only what is spoiled is news.
    pub fn scrub(&self, name: &ChunkName) -> Result<Verdict, Refusal> {
        self.judge(name, |_| None)
    }

    fn judge(
        &self,
        name: &ChunkName,
        news: impl Fn(Verdict) -> Option<Change>,
    ) -> Result<Verdict, Refusal> {
        for _ in 0..TRIES {
            let written = self.write_sequence().latest_of(name);
            let verdict = self.look_at(name)?;
            let _alone = self.lock_name(name);
            if self.gone() {
                return Err(Refusal::Disk); // what is there may be another store, or is being counted
            }
            // Deleted meanwhile: what was read says nothing of what is there.
            if verdict != Verdict::Missing && self.disk().len(&self.layout().chunk(name)).is_err() {
                continue;
            }
            // Put meanwhile, so it may be another file now.
            if verdict != Verdict::Sound && self.write_sequence().latest_of(name) != written {
                continue;
            }
            if verdict == Verdict::Spoiled {
                return self.set_aside_spoiled(name);
            }
            news(verdict).into_iter().for_each(|change| self.changes().push(change));
            return Ok(verdict);
        }
        Err(Refusal::Lost)
    }

    fn look_at(&self, name: &ChunkName) -> Result<Verdict, Refusal> {
        match self.disk().open(&self.layout().chunk(name)) {
            Ok(file) if self.is_sound(&*file, name) => Ok(Verdict::Sound),
            Err(why) if why.kind() == io::ErrorKind::NotFound && self.present() => {
                Ok(Verdict::Missing)
            }
            // What that means, the look of each second finds out.
            Err(why) if why.kind() == io::ErrorKind::NotFound => Err(Refusal::Disk),
            // Out of files or memory: that says nothing of the chunk.
            Err(why) if !is_broken(&why) => Err(self.refuse("opening a chunk", &why)),
            _ => Ok(Verdict::Spoiled),
        }
    }

    fn is_sound(&self, file: &dyn OldFile, name: &ChunkName) -> bool {
        let Some(len) = stored_len(file.len()) else { return false };
        // What the disk has is asked, not what the system remembers of it; and the pages of a chunk
        // that nobody reads are not worth keeping.
        forget_pages(file);
        let hashed = hash(file, len, name);
        forget_pages(file);
        match hashed {
            Ok(sound) => sound,
            Err(why) => {
                tracing::warn!("cannot read chunk {name}: {why}");
                false
            }
        }
    }

    /// Has the next look at the marker ask the disk.
    pub(super) fn forget_marker(&self) {
        if let Ok(file) = self.disk().open(self.layout().marker()) {
            forget_pages(&*file);
        }
    }

    fn set_aside_spoiled(&self, name: &ChunkName) -> Result<Verdict, Refusal> {
        let aside =
            self.layout().set_aside(&name.to_string(), self.incarnation(), self.next_serial());
        match self.rename(&self.layout().chunk(name), &aside) {
            Ok(()) => {
                tracing::warn!("chunk {name} is spoiled; kept aside as {}", aside.display());
                self.changes().push(Change::Spoiled(*name));
                let len = self.disk().len(&aside).unwrap_or(0);
                self.is_aside(aside, len);
                Ok(Verdict::Spoiled)
            }
            Err(why) => Err(self.refuse("setting a spoiled chunk aside", &why)),
        }
    }
}

fn forget_pages(file: &dyn OldFile) {
    if let Some(file) = file.as_file() {
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed); // only advice
    }
}

fn hash(file: &dyn OldFile, len: u32, name: &ChunkName) -> io::Result<bool> {
    let mut verifier = Verifier::new(*name);
    let mut piece = vec![0; PIECE.min(len as usize)];
    let mut at = 0;
    while at < len as usize {
        let want = piece.len().min(len as usize - at);
        match file.read_at(&mut piece[..want], at as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                verifier.update(&piece[..n]);
                at += n;
            }
        }
    }
    Ok(verifier.finish().is_ok())
}
