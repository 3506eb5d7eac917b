//! The recovery kit: everything that a restore needs and none of the pool's donors has.
//!
//! With the kit and donors, or with the kit and a backup file, a pool that lost its manager's
//! machine comes back. Somebody who has the kit can act as the pool's authority and read the pool's own
//! metadata, so it is as secret as the state directory.

use crate::ca::{Ca, CaTexts};
use crate::error::StateError;
use crate::state_dir::StateDir;
use potluck_core::chunk::Digest;
use potluck_core::entropy::Entropy;
use potluck_core::seal::RecoveryKey;
use potluck_wire::addresses::Addresses;
use potluck_wire::identity::write_private;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// The version of the file's format that this release writes and reads.
const VERSION: u32 = 1;
/// The file of the recovery key, beside the authority's own key.
const KEY: &str = "recovery.key";

/// The part of a recovery kit that every format has.
#[derive(Deserialize)]
struct KitFormat {
    potluck_recovery_kit: u32,
}

/// A recovery kit as it is written: as JSON, for people to recognise and to print.
#[derive(Serialize, Deserialize)]
pub struct Kit {
    /// The version of the kit's format, [`VERSION`].
    potluck_recovery_kit: u32,
    /// The name of the pool.
    pub pool: String,
    /// The addresses of the manager, as donors know them.
    pub addresses: Addresses,
    /// The authority's certificate, in PEM.
    ca_certificate: String,
    /// The authority's key, in PEM.
    ca_key: String,
    /// The certificates of the authorities before it, in PEM, the first one first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    earlier_certificates: String,
    /// The key that seals the pool's metadata log, on donors and in files.
    recovery_key: Digest,
}

impl Kit {
    /// Returns the pool's authority.
    pub fn ca(&self) -> CaTexts {
        CaTexts {
            certificate: self.ca_certificate.clone(),
            key: self.ca_key.clone(),
            earlier: self.earlier_certificates.clone(),
        }
    }

    /// Returns the key under which the pool's metadata is sealed.
    pub fn recovery_key(&self) -> RecoveryKey {
        RecoveryKey::from_bytes(self.recovery_key.0)
    }

    /// Reads a recovery kit from the file at `path`.
    ///
    /// Errors: [`StateError::NewerKit`] for a kit in the format of a newer release, whatever else is in it.
    pub fn load(path: &Path) -> Result<Self, StateError> {
        let io = |source| StateError::Io { path: path.into(), source };
        let text = fs::read(path).map_err(io)?;
        let bad = |why: serde_json::Error| {
            let detail = format!("this is no recovery kit: {why}");
            StateError::BadKit { path: path.into(), detail }
        };
        let format: KitFormat = serde_json::from_slice(&text).map_err(bad)?;
        if format.potluck_recovery_kit != VERSION {
            return Err(StateError::NewerKit(path.into()));
        }
        serde_json::from_slice(&text).map_err(bad)
    }

    /// Writes the kit to `path`, readable only by its owner.
    pub fn save(&self, path: &Path) -> Result<(), StateError> {
        let io = |source| StateError::Io { path: path.into(), source };
        let text = serde_json::to_vec_pretty(self).map_err(|why| io(why.into()))?;
        write_private(path, &text).map_err(io)
    }
}

/// Makes the kit of a pool where it is missing or has other keys, and writes it again when the manager is reached
/// elsewhere. A manager that has lost its network knows no address by which others would find it: then the kit keeps
/// the addresses that it has. A lost recovery key is taken from the kit, so that copies of the kit which lie elsewhere
/// stay good; without a kit the key is replaced, with a warning.
///
/// Errors: [`StateError::LostKey`] where the key is lost and the kit that is there cannot be read: it may have the key;
/// [`StateError::NewerKit`] where the kit is of a newer release, which is left alone.
pub fn keep(
    state: &StateDir,
    pool: &str,
    addresses: &Addresses,
    entropy: &dyn Entropy,
) -> Result<(), StateError> {
    let ca = Ca::texts(&state.ca())?;
    let path = state.kit();
    let loaded = match path.try_exists() {
        Ok(false) => None,
        _ => Some(Kit::load(&path)),
    };
    let is_lost = !state.ca().join(KEY).exists();
    let kept = match loaded {
        Some(Err(why)) if is_lost => {
            return Err(StateError::LostKey {
                path: state.ca().join(KEY),
                detail: why.to_string(),
            });
        }
        Some(Err(why @ StateError::NewerKit(_))) => return Err(why),
        loaded => loaded.and_then(Result::ok).filter(|kit| kit.ca_certificate == ca.certificate),
    };
    if is_lost {
        match &kept {
            Some(kit) => keep_key(&state.ca(), &kit.recovery_key())?,
            None => {
                make_key(state, entropy)?;
                tracing::warn!(
                    "the recovery key of the pool {pool} was lost, and a new one was made: copies of \
                     the recovery kit that lie elsewhere open nothing that donors keep for a restore \
                     from now on. Keep a copy of {} in their place",
                    path.display()
                );
            }
        }
    }
    let key = load_key(&state.ca())?;
    if let Some(kit) = kept.filter(|kit| kit.recovery_key.0 == *key.as_bytes()) {
        let known = kit.addresses;
        if known == *addresses || (addresses.are_local() && !known.are_local()) {
            return Ok(());
        }
    }
    let kit = Kit {
        potluck_recovery_kit: VERSION,
        pool: pool.into(),
        addresses: addresses.clone(),
        ca_certificate: ca.certificate,
        ca_key: ca.key,
        earlier_certificates: ca.earlier,
        recovery_key: Digest(*key.as_bytes()),
    };
    kit.save(&path)
}

/// Makes the recovery key of a new pool, unless it is there.
pub fn make_key(state: &StateDir, entropy: &dyn Entropy) -> Result<(), StateError> {
    match state.ca().join(KEY).exists() {
        true => Ok(()),
        false => keep_key(&state.ca(), &RecoveryKey::generate(entropy)),
    }
}

/// Keeps the recovery key beside the authority's own, in the directory `ca`.
pub fn keep_key(ca: &Path, key: &RecoveryKey) -> Result<(), StateError> {
    let path = ca.join(KEY);
    let text = Digest(*key.as_bytes()).to_string();
    write_private(&path, text.as_bytes()).map_err(StateDir::io(path))
}

/// Reads the recovery key beside the authority's own, in the directory `ca`.
pub fn load_key(ca: &Path) -> Result<RecoveryKey, StateError> {
    let path = ca.join(KEY);
    let text = fs::read_to_string(&path).map_err(StateDir::io(path.clone()))?;
    let bad = |_| io::Error::new(io::ErrorKind::InvalidData, "this is no recovery key");
    let key: Digest = text.trim().parse().map_err(bad).map_err(StateDir::io(path))?;
    Ok(RecoveryKey::from_bytes(key.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::entropy::SeededEntropy;

    #[test]
    fn unreadable_recovery_kit_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::take(dir.path()).expect("taken");
        Ca::create(&state.ca(), "lab").expect("made");
        let kept = || keep(&state, "lab", &Addresses::default(), &SeededEntropy::new(1));
        make_key(&state, &SeededEntropy::new(7)).expect("made");
        kept().expect("kept");
        let kit = fs::read_to_string(state.kit()).expect("read");
        // As of a newer release.
        let newer = kit.replace("\"potluck_recovery_kit\": 1", "\"potluck_recovery_kit\": 2");
        assert_ne!(newer, kit);
        fs::write(state.kit(), &newer).expect("written");
        let key = state.ca().join(KEY);
        let had = fs::read(&key).expect("read");
        fs::remove_file(&key).expect("lost");
        assert!(matches!(kept(), Err(StateError::LostKey { .. })));
        assert_eq!(fs::read_to_string(state.kit()).expect("read"), newer);
        assert!(!key.exists());
        // A copy of the kit in its place brings the key back.
        fs::write(state.kit(), kit).expect("written");
        kept().expect("kept");
        assert_eq!(fs::read(&key).expect("read"), had);
    }

    #[test]
    fn a_kit_of_a_newer_release_is_left_alone_u1() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::take(dir.path()).expect("taken");
        Ca::create(&state.ca(), "lab").expect("made");
        let kept = || keep(&state, "lab", &Addresses::default(), &SeededEntropy::new(1));
        make_key(&state, &SeededEntropy::new(7)).expect("made");
        for newer in [r#"{"potluck_recovery_kit":2}"#, r#"{"potluck_recovery_kit":9,"keys":[]}"#] {
            fs::write(state.kit(), newer).expect("written");
            assert!(matches!(kept(), Err(StateError::NewerKit(_))), "{newer}");
            assert_eq!(fs::read_to_string(state.kit()).expect("read"), newer);
        }
        // One that is merely damaged is written again, for all that it had is there.
        fs::write(state.kit(), "{}").expect("written");
        kept().expect("kept");
        Kit::load(&state.kit()).expect("a kit");
    }
}
