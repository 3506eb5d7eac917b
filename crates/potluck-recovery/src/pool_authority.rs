//! The pool's authority as a manager has it, and how it is replaced while the pool runs.
//!
//! The next authority is made beside the present one, with a recovery key of its own, and takes its place by two
//! renames; the one before it stays for the change. Meanwhile the manager proves itself by both, and tells every member
//! that trusts the earlier one which came after it, by a statement that the earlier one signed
//! ([`potluck_wire::succession`]). Members keep their certificates: who is a member is for the member list to say. The
//! change ends when the earlier authority is thrown away.
//!
//! Members are told once the metadata log is sealed under the new recovery key. Until then the earlier recovery kit
//! brings the pool back as it is, and from then on the new kit does.

use crate::ca::{self, Ca};
use crate::error::StateError;
use crate::kit;
use crate::state_dir::StateDir;
use potluck_core::chunk::Digest;
use potluck_core::entropy::Entropy;
use potluck_core::ids::{Epoch, MemberId};
use potluck_core::seal::RecoveryKey;
use potluck_wire::identity::{Identity, fingerprint, write_private};
use potluck_wire::net::{BoxFuture, BoxStream};
use potluck_wire::tls::Admit;
use potluck_wire::whereabouts::{SignedWhereabouts, Whereabouts};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// The file, beside the authority's own, of the members who do not follow it yet, or did not when the change ended.
const BEHIND: &str = "behind.json";

/// The pool's authority, and the one before it while it is being replaced.
pub struct PoolAuthority {
    places: Places,
    pool_name: String,
    trusted: RwLock<Trusted>,
    behind: Mutex<Behind>,
    /// The turn of who changes the directories.
    turn: Mutex<()>,
    /// Wakes what goes on with a change.
    changed: Notify,
}

/// The directories of authorities in a state directory.
#[derive(Debug, Clone)]
struct Places {
    root: PathBuf,
    /// The present authority.
    ca: PathBuf,
    /// The next authority while it is made.
    next: PathBuf,
    /// The authority before the present one, while that takes its place.
    earlier: PathBuf,
    /// The place of the earlier authority while it is thrown away.
    gone: PathBuf,
}

struct Trusted {
    ca: Arc<Ca>,
    tls: Arc<dyn Admit>,
    change: Option<Change>,
}

/// A change of the authority that is under way.
struct Change {
    earlier: Arc<Ca>,
    /// What members that trust the earlier authority are told, once the log is sealed anew.
    succession: String,
    is_told: bool,
}

#[derive(Default)]
struct Behind {
    members: BTreeSet<MemberId>,
    /// True if the file has other members.
    unsaved: bool,
}

/// How far a change of the authority is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeUnderWay {
    /// The authority that is replaced, by its fingerprint.
    pub earlier: Digest,
    /// True once members are told of the next one.
    pub is_told: bool,
}

impl Places {
    fn of(state: &StateDir) -> Self {
        let beside = |name: &str| state.root().join(name);
        let (ca, root) = (state.ca(), state.root().to_path_buf());
        Self {
            root,
            ca,
            next: beside("ca.next"),
            earlier: beside("ca.earlier"),
            gone: beside("ca.gone"),
        }
    }

    /// Ends what was interrupted: a change takes place if the earlier authority was moved away, and otherwise never
    /// began.
    fn settle(&self) -> io::Result<()> {
        if self.gone.exists() {
            fs::remove_dir_all(&self.gone)?;
        }
        if !self.next.exists() {
            return Ok(());
        }
        if self.ca.exists() {
            return fs::remove_dir_all(&self.next);
        }
        self.rename(&self.next, &self.ca)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        File::open(&self.root)?.sync_all()
    }

    fn io(&self) -> impl FnOnce(io::Error) -> StateError {
        StateDir::io(self.root.clone())
    }
}

impl Trusted {
    fn load(places: &Places, pool_name: &str) -> Result<Self, StateError> {
        let ca = Arc::new(Ca::load(&places.ca)?);
        if !places.earlier.exists() {
            return Ok(Self { tls: ca::tls(&ca, &places.ca, [])?, ca, change: None });
        }
        let earlier = Arc::new(Ca::load(&places.earlier)?);
        let bad = |why: rcgen::Error| StateError::Certificates {
            path: places.earlier.clone(),
            detail: why.to_string(),
        };
        let through = earlier.certify_next(&ca, pool_name).map_err(bad)?;
        let tls = ca::tls(&ca, &places.ca, [through, earlier.certificate().clone()])?;
        let succession = earlier.name_next(&ca).map_err(bad)?.to_string();
        Ok(Self { tls, ca, change: Some(Change { earlier, succession, is_told: false }) })
    }

    /// Returns the authorities that members trust, the present one first.
    fn all(&self) -> impl Iterator<Item = &Arc<Ca>> {
        [&self.ca].into_iter().chain(self.change.as_ref().map(|change| &change.earlier))
    }
}

/// Ends what a kill interrupted of a change of the authority in `state`. Call this before anything there is read.
pub fn settle(state: &StateDir) -> Result<(), StateError> {
    let places = Places::of(state);
    places.settle().map_err(places.io())
}

impl PoolAuthority {
    /// Loads the authority of the pool in `state`, with a change that is under way.
    pub fn load(state: &StateDir, pool_name: &str) -> Result<Self, StateError> {
        let places = Places::of(state);
        let trusted = RwLock::new(Trusted::load(&places, pool_name)?);
        let members = read_behind(&places.ca).map_err(places.io())?;
        let behind = Mutex::new(Behind { members, unsaved: false });
        let (pool_name, turn, changed) = (pool_name.into(), Mutex::default(), Notify::new());
        let authority = Self { places, pool_name, trusted, behind, turn, changed };
        authority.take_admin_along(state)?;
        Ok(authority)
    }

    fn trusted(&self) -> RwLockReadGuard<'_, Trusted> {
        self.trusted.read().expect("no holder panics")
    }

    fn behind(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().expect("no holder panics")
    }

    /// Returns the present authority.
    pub fn ca(&self) -> Arc<Ca> {
        Arc::clone(&self.trusted().ca)
    }

    /// Returns the pool, which stays the same whatever its authority.
    pub fn pool(&self) -> Digest {
        self.trusted().ca.pool()
    }

    /// Returns the fingerprint of the present authority.
    pub fn fingerprint(&self) -> Digest {
        fingerprint(self.trusted().ca.certificate())
    }

    /// Reads the key that the metadata log is sealed with.
    pub fn recovery_key(&self) -> Result<RecoveryKey, StateError> {
        let _same = self.trusted(); // so that the directory is not replaced meanwhile
        kit::load_key(&self.places.ca)
    }

    /// Returns whether a manager of the pool proves by `proof` that it said this of its term.
    pub fn is_proven(&self, epoch: Epoch, start: u64, changes: u64, proof: Digest) -> bool {
        self.trusted().all().any(|ca| ca.terms().is_proven(epoch, start, changes, proof))
    }

    /// Signs where the manager is, for all members.
    pub fn sign_whereabouts(&self, said: &Whereabouts) -> Result<SignedWhereabouts, rcgen::Error> {
        let trusted = self.trusted();
        SignedWhereabouts::sign(said, |text| trusted.all().map(|ca| ca.sign_text(text)).collect())
    }

    /// Returns the whereabouts that a member shows, if the pool's authority signed them.
    pub fn verified(&self, shown: &SignedWhereabouts) -> Option<Whereabouts> {
        self.trusted().all().find_map(|ca| shown.verified(ca.certificate()))
    }

    /// Returns how far the change is that is under way; `None` if there is none.
    pub fn change(&self) -> Option<ChangeUnderWay> {
        self.trusted().change.as_ref().map(|change| ChangeUnderWay {
            earlier: fingerprint(change.earlier.certificate()),
            is_told: change.is_told,
        })
    }

    /// Makes another authority and another recovery key, which take the place of the present ones at once. The members
    /// `behind` do not follow yet.
    pub fn begin_change(
        &self,
        state: &StateDir,
        behind: BTreeSet<MemberId>,
        entropy: &dyn Entropy,
    ) -> Result<(), StateError> {
        let (places, _turn) = (&self.places, self.turn.lock().expect("no holder panics"));
        if self.change().is_some() {
            return Ok(());
        }
        places.settle().map_err(places.io())?;
        self.ca().make_next(&places.next, &self.pool_name)?;
        kit::keep_key(&places.next, &RecoveryKey::generate(entropy))?;
        write_behind(&places.next, &behind).map_err(places.io())?;
        {
            let mut trusted = self.trusted.write().expect("no holder panics");
            places.rename(&places.ca, &places.earlier).map_err(places.io())?;
            places.rename(&places.next, &places.ca).map_err(places.io())?;
            *trusted = Trusted::load(places, &self.pool_name)?;
        }
        *self.behind() = Behind { members: behind, unsaved: false };
        self.take_admin_along(state)?;
        self.changed.notify_one();
        Ok(())
    }

    /// Has members be told of the next authority from now on.
    pub fn tell(&self) {
        if let Some(change) = &mut self.trusted.write().expect("no holder panics").change {
            change.is_told = true;
        }
    }

    /// Ends the change: the earlier authority is thrown away, and nothing that it signed counts any more.
    pub fn end_change(&self) -> Result<(), StateError> {
        let (places, _turn) = (&self.places, self.turn.lock().expect("no holder panics"));
        if self.change().is_none() {
            return Ok(());
        }
        {
            let mut trusted = self.trusted.write().expect("no holder panics");
            places.rename(&places.earlier, &places.gone).map_err(places.io())?;
            *trusted = Trusted::load(places, &self.pool_name)?;
        }
        fs::remove_dir_all(&places.gone).map_err(places.io())
    }

    /// Returns the members who do not follow the authority.
    pub fn members_behind(&self) -> BTreeSet<MemberId> {
        self.behind().members.clone()
    }

    /// Notes which authority a member trusts, by its fingerprint; returns what the member is to be told.
    pub fn heard(&self, member: MemberId, trusts: &str) -> Option<String> {
        let trusted = self.trusted();
        let change = trusted.change.as_ref()?;
        if trusts != fingerprint(trusted.ca.certificate()).to_string() {
            return change.is_told.then(|| change.succession.clone());
        }
        let mut behind = self.behind();
        if behind.members.remove(&member) {
            behind.unsaved = true;
            self.changed.notify_one();
        }
        None
    }

    /// Waits until a change begins or a member follows; returns at once if that happened since the last wait.
    pub async fn moves(&self) {
        self.changed.notified().await;
    }

    /// Writes down which members do not follow, if that changed.
    pub fn save_behind(&self) -> Result<(), StateError> {
        let _turn = self.turn.lock().expect("no holder panics");
        let members = {
            let mut behind = self.behind();
            if !std::mem::take(&mut behind.unsaved) {
                return Ok(());
            }
            behind.members.clone()
        };
        write_behind(&self.places.ca, &members).map_err(|why| {
            self.behind().unsaved = true;
            self.places.io()(why)
        })
    }

    /// Has the local admin, whose identity lies in the state directory, trust the present authority.
    fn take_admin_along(&self, state: &StateDir) -> Result<(), StateError> {
        let (dir, ca) = (state.admin(), self.ca());
        if !Identity::exists(&dir) {
            return Ok(()); // moved to safety by its owner
        }
        let identity = Identity::load(&dir).map_err(StateDir::io(dir.clone()))?;
        if identity.ca != *ca.certificate() {
            Identity::save_ca(&dir, ca.certificate()).map_err(StateDir::io(dir))?;
        }
        let mut behind = self.behind();
        behind.unsaved |= behind.members.remove(&identity.about.member);
        Ok(())
    }
}

impl Admit for PoolAuthority {
    fn admit(&self, stream: BoxStream) -> BoxFuture<'_, io::Result<(BoxStream, Option<Digest>)>> {
        let tls = Arc::clone(&self.trusted().tls);
        Box::pin(async move { tls.admit(stream).await })
    }
}

fn read_behind(ca: &Path) -> io::Result<BTreeSet<MemberId>> {
    match fs::read(ca.join(BEHIND)) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(why) => Err(why),
    }
}

fn write_behind(ca: &Path, behind: &BTreeSet<MemberId>) -> io::Result<()> {
    write_private(&ca.join(BEHIND), &serde_json::to_vec(behind)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::entropy::SeededEntropy;
    use potluck_wire::whereabouts::Issue;

    fn pool() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::take(&dir.path().join("manager")).expect("taken");
        Ca::create(&state.ca(), "lab").expect("made");
        kit::make_key(&state, &SeededEntropy::new(1)).expect("made");
        (dir, state)
    }

    fn load(state: &StateDir) -> PoolAuthority {
        settle(state).expect("settled");
        PoolAuthority::load(state, "lab").expect("loaded")
    }

    fn change(authority: &PoolAuthority, state: &StateDir) {
        let behind = [MemberId(2), MemberId(3)].into();
        authority.begin_change(state, behind, &SeededEntropy::new(2)).expect("changed");
    }

    #[test]
    fn members_hear_of_a_rotation_after_the_log_is_resealed_x6() {
        let (_dir, state) = pool();
        let authority = load(&state);
        let (old, key) = (authority.ca(), authority.recovery_key().expect("a key"));
        let trusts_old = authority.fingerprint().to_string();
        assert_eq!(authority.heard(MemberId(2), &trusts_old), None, "nothing changes");
        change(&authority, &state);
        assert_ne!(authority.recovery_key().expect("a key").as_bytes(), key.as_bytes());
        assert_eq!(authority.pool(), fingerprint(old.certificate()), "it is the same pool");
        assert_eq!(authority.heard(MemberId(2), &trusts_old), None, "the log comes first");
        authority.tell();
        let told = authority.heard(MemberId(2), &trusts_old).expect("told");
        let told: potluck_wire::succession::Succession = told.parse().expect("a statement");
        assert_eq!(told.verified(old.certificate()).as_ref(), Some(authority.ca().certificate()));
        assert_eq!(authority.members_behind().len(), 2);
        let trusts_new = authority.fingerprint().to_string();
        assert_eq!(authority.heard(MemberId(2), &trusts_new), None);
        assert_eq!(authority.members_behind(), [MemberId(3)].into());
        authority.save_behind().expect("saved");
        // Once more is the same change.
        change(&authority, &state);
        assert_eq!(authority.fingerprint().to_string(), trusts_new);
        let after_restart = load(&state);
        assert_eq!(after_restart.fingerprint().to_string(), trusts_new);
        assert!(after_restart.change().is_some());
        assert_eq!(after_restart.members_behind(), [MemberId(3)].into());
        after_restart.end_change().expect("ended");
        assert_eq!(load(&state).change(), None);
        assert_eq!(load(&state).members_behind(), [MemberId(3)].into(), "they are still named");
    }

    #[test]
    fn previous_authority_is_trusted_until_rotation_ends_x6() {
        let (_dir, state) = pool();
        let authority = load(&state);
        let old = authority.ca();
        let proof = old.terms().prove(Epoch(3), 7, 11);
        let at = "10.0.0.1:7700".parse().expect("an address");
        let said = Whereabouts { issue: Issue::default(), addresses: at };
        let by_old = authority.sign_whereabouts(&said).expect("signed");
        change(&authority, &state);
        assert!(authority.is_proven(Epoch(3), 7, 11, proof));
        assert_eq!(authority.verified(&by_old).as_ref(), Some(&said));
        let by_both = authority.sign_whereabouts(&said).expect("signed");
        for ca in [&old, &authority.ca()] {
            assert_eq!(by_both.verified(ca.certificate()).as_ref(), Some(&said));
        }
        authority.end_change().expect("ended");
        assert!(!authority.is_proven(Epoch(3), 7, 11, proof));
        assert_eq!(authority.verified(&by_old), None);
        let by_new = authority.sign_whereabouts(&said).expect("signed");
        assert_eq!(by_new.verified(old.certificate()), None);
    }

    #[test]
    fn interrupted_rotation_leaves_one_authority_x6() {
        for steps in 0..=5_usize {
            let (_dir, state) = pool();
            let (root, before) = (state.root().to_path_buf(), load(&state));
            let old = before.fingerprint();
            let next = before.ca().make_next(&root.join("ca.next"), "lab").expect("made");
            let new = fingerprint(next.certificate());
            kit::keep_key(&root.join("ca.next"), &RecoveryKey::generate(&SeededEntropy::new(2)))
                .expect("kept");
            if steps == 0 {
                fs::remove_file(root.join("ca.next/ca.pem")).expect("not written yet");
            }
            // A crash may come after any of these.
            let moves = [("ca", "ca.earlier"), ("ca.next", "ca"), ("ca.earlier", "ca.gone")];
            for (from, to) in moves.iter().take(steps.saturating_sub(1)) {
                fs::rename(root.join(from), root.join(to)).expect("moved");
            }
            if steps == 5 {
                fs::remove_file(root.join("ca.gone/ca.key")).expect("half removed");
            }
            let after = load(&state);
            assert_eq!(after.fingerprint(), if steps < 2 { old } else { new }, "after {steps}");
            assert_eq!(after.change().is_some(), (2..4).contains(&steps), "after {steps}");
            after.recovery_key().expect("a key");
            let left = crate::state_dir::names(&root).expect("listed");
            let odd = |name: &&String| matches!(&***name, "ca.next" | "ca.gone");
            assert_eq!(left.iter().find(odd), None, "after {steps}");
            // The same command goes on, or begins.
            change(&after, &state);
            assert!(after.change().is_some());
            after.end_change().expect("ended");
        }
    }
}
