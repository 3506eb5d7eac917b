//! Reading a chunk back to see whether it still is what its name says (PROMISES R1).

use super::{Change, Refusal, Store, stored_len};
use crate::disk::OldFile;
use potluck_core::chunk::{ChunkName, Verifier};
use potluck_wire::bulk::PIECE;
use std::io;

/// How often a verification begins again because the chunk was put meanwhile.
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
    /// Reads `name` whole, compares, and sets it aside if it is spoiled. Reported by heartbeat.
    pub fn verify(&self, name: &ChunkName) -> Result<Verdict, Refusal> {
        for _ in 0..TRIES {
            let touched = self.touches().latest(name);
            let verdict = self.look_at(name);
            let _alone = self.lock_name(name);
            match verdict {
                Verdict::Sound => {
                    self.changes().push(Change::Sound(*name));
                    return Ok(verdict);
                }
                // Put meanwhile, so it may be another file now.
                _ if self.touches().latest(name) != touched => {}
                Verdict::Missing => {
                    self.changes().push(Change::Removed(*name));
                    return Ok(verdict);
                }
                Verdict::Spoiled => return self.set_aside_spoiled(name),
            }
        }
        Err(Refusal::Lost)
    }

    fn look_at(&self, name: &ChunkName) -> Verdict {
        match self.disk().open(&self.layout().chunk(name)) {
            Ok(file) if self.is_sound(&*file, name) => Verdict::Sound,
            Err(why) if why.kind() == io::ErrorKind::NotFound => Verdict::Missing,
            _ => Verdict::Spoiled,
        }
    }

    fn is_sound(&self, file: &dyn OldFile, name: &ChunkName) -> bool {
        let Some(len) = stored_len(file.len()) else { return false };
        match hash(file, len, name) {
            Ok(sound) => sound,
            Err(why) => {
                tracing::warn!("cannot read chunk {name}: {why}");
                false
            }
        }
    }

    fn set_aside_spoiled(&self, name: &ChunkName) -> Result<Verdict, Refusal> {
        let aside =
            self.layout().set_aside(&name.to_string(), self.incarnation(), self.next_serial());
        match self.disk().rename(&self.layout().chunk(name), &aside) {
            Ok(()) => {
                tracing::warn!("chunk {name} is spoiled; kept aside as {}", aside.display());
                self.changes().push(Change::Spoiled(*name));
                Ok(Verdict::Spoiled)
            }
            Err(why) => Err(self.refuse("setting a spoiled chunk aside", &why)),
        }
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
