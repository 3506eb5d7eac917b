//! Turns a join token into an identity in a directory.
//!
//! The manager accepts a token for one key only. So the key is written to disk before the manager is asked.
//! If anything fails afterwards, the same command run again asks with the same key, and the manager answers
//! again. An existing identity is never replaced, and everything that can be checked without the manager is
//! checked before the token is used.

use potluck_config::own_pools::{self, JoinedPool};
use potluck_core::chunk::Digest;
use potluck_core::text::is_unseen;
use potluck_wire::call::Caller;
use potluck_wire::control::Join;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity, key_of_pkcs8, new_key_and_request, write_private};
use potluck_wire::packed::Blob;
use potluck_wire::private_dir;
use potluck_wire::tls::TlsDial;
use potluck_wire::token::JoinToken;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that holds a join that was begun, until the identity is written.
const PENDING: &str = "joining.json";

/// The directory into which an identity is written.
pub enum EnrolPlace<'a> {
    /// The identity is written into this directory.
    Dir(&'a Path),
    /// The identity is written into a directory below this one, which gets the pool's name.
    Pools(&'a Path),
}

/// A join that was begun. Its request is repeated until the manager answers.
#[derive(Serialize, Deserialize)]
struct Pending {
    /// The digest of the token's secret.
    token: Digest,
    name: String,
    /// The private key of the identity, as PKCS#8 in DER.
    key: Blob,
    /// The certificate request of the identity, as PKCS#10 in DER.
    request: Blob,
}

/// A directory for a join, locked by this process.
struct JoiningDir {
    dir: PathBuf,
    _lock: File,
}

/// Joins with a token; returns the identity and its directory.
///
/// Errors: the directory has an identity, or this user has one of the same pool in `EnrolPlace::Pools` (neither
/// uses the token up); the directory cannot be written; the manager refuses.
pub async fn join(
    token: &JoinToken,
    name: Option<String>,
    place: EnrolPlace<'_>,
) -> Result<(Identity, PathBuf), Failure> {
    match place {
        EnrolPlace::Dir(dir) => {
            let joining = JoiningDir::take(dir)?;
            if Identity::exists(dir) {
                return Err(is_taken(dir));
            }
            let identity = joining.enrol(token, name).await?;
            joining.forget_pending();
            Ok((identity, dir.to_owned()))
        }
        // The pool's name, and so that of the directory, is known only after joining.
        EnrolPlace::Pools(pools) => {
            let joining =
                JoiningDir::take(&pools.join(format!(".joining-{}", token.pool().short())))?;
            let begun =
                joining.pending().filter(|begun| begun.token == Digest::of(&token.secret.0));
            if Identity::exists(&joining.dir) {
                // An earlier join was interrupted before the directory got its name.
                let identity = own_pools::load_identity(&joining.dir)?;
                let dir = joining.settle(pools, &identity)?;
                if begun.is_some() {
                    return Ok((identity, dir));
                }
            }
            let member = own_pools::joined(pools).into_iter().find(|own| own.id == token.pool());
            if let Some(own) = member {
                let _ = fs::remove_dir(&joining.dir); // fails if anything is in it
                return Err(is_member(&own));
            }
            let identity = joining.enrol(token, name).await?;
            let dir = joining.settle(pools, &identity)?;
            Ok((identity, dir))
        }
    }
}

impl JoiningDir {
    /// Makes the directory and takes its lock, which ends with the process at the latest.
    fn take(dir: &Path) -> Result<Self, Failure> {
        private_dir::make(dir).map_err(|why| unwritable(dir, &why))?;
        let lock = File::open(dir).map_err(|why| unwritable(dir, &why))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { dir: dir.to_owned(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let what = format!("another `potluck join` is at work in {}", dir.display());
                Err(Failure::new(ErrorKind::Conflict, code::ALREADY_JOINED, what)
                    .hint("wait for its end; this token is not used"))
            }
            Err(why) => Err(unwritable(dir, &why.into())),
        }
    }

    fn pending(&self) -> Option<Pending> {
        let text = fs::read(self.dir.join(PENDING)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn forget_pending(&self) {
        // A file that stays does no harm, because its token is used up.
        let _ = fs::remove_file(self.dir.join(PENDING));
    }

    /// Asks the manager, and writes the identity to the directory.
    async fn enrol(&self, token: &JoinToken, name: Option<String>) -> Result<Identity, Failure> {
        let pending = self.begin(token, name)?;
        let identity = ask(token, &pending).await.inspect_err(|why| {
            // The join is over only if the pool's own manager refused it; a stranger at its address does not count.
            let refused = matches!(why.kind, ErrorKind::Auth | ErrorKind::Usage);
            if refused && why.code != code::WRONG_POOL {
                self.forget_pending();
                let _ = fs::remove_dir(&self.dir); // fails if anything else is in it
            }
        })?;
        identity.save(&self.dir).map_err(|why| {
            let what = format!("cannot write the identity to {}: {why}", self.dir.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what).hint(
                "mend that and run the same command again: until the token expires, the pool \
                 answers this machine once more",
            )
        })?;
        Ok(identity)
    }

    /// Returns the key and request for this token: those of an earlier run, or new ones, which are written to disk.
    fn begin(&self, token: &JoinToken, name: Option<String>) -> Result<Pending, Failure> {
        let token = Digest::of(&token.secret.0);
        if let Some(pending) = self.pending().filter(|pending| pending.token == token) {
            return Ok(pending);
        }
        let (key, request) = new_key_and_request().map_err(|why| {
            Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("cannot make a key: {why}"))
        })?;
        let name = name.unwrap_or_else(machine_name);
        let key = Blob(key.secret_der().to_vec());
        let pending = Pending { token, name, key, request: Blob(request) };
        let text = serde_json::to_vec(&pending).expect("plain data");
        write_private(&self.dir.join(PENDING), &text).map_err(|why| unwritable(&self.dir, &why))?;
        Ok(pending)
    }

    /// Gives the directory the name of its pool, or the name with the pool's fingerprint if that is taken.
    fn settle(&self, pools: &Path, identity: &Identity) -> Result<PathBuf, Failure> {
        self.forget_pending();
        let plain = directory_name(&identity.about.pool);
        let full = format!("{}-{}", plain.unwrap_or("pool"), identity.pool().short());
        let names = plain.map(str::to_owned).into_iter().chain([full]);
        let mut last = None;
        for dir in names.map(|name| pools.join(name)) {
            // The rename replaces an empty directory, and fails if anything is in it.
            match fs::rename(&self.dir, &dir).and_then(|()| File::open(pools)?.sync_all()) {
                Ok(()) => return Ok(dir),
                Err(why) => last = Some((dir, why)),
            }
        }
        let (dir, why) = last.expect("there was a name to try");
        let what = format!("cannot name the identity {}: {why}", dir.display());
        Err(Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("mend that and run the same command again"))
    }
}

/// Returns the name of a pool if it can be a directory's name.
fn directory_name(pool: &str) -> Option<&str> {
    let odd = |c: char| c == '/' || is_unseen(c);
    (!pool.is_empty() && !pool.starts_with('.') && pool.len() < 200 && !pool.contains(odd))
        .then_some(pool)
}

/// Asks the manager to admit this machine. The manager proves that it belongs to the token's CA before anything is
/// sent.
async fn ask(token: &JoinToken, pending: &Pending) -> Result<Identity, Failure> {
    let dial = Arc::new(TlsDial::joining(token.ca));
    let caller = Caller::joining(Env::system().net, dial, token.manager.clone(), token.pool());
    let call = Join {
        secret: token.secret,
        request: pending.request.clone(),
        name: pending.name.clone(),
        ca: Some(token.ca),
    };
    let joined = caller.call(&call).await?;
    if Digest::of(&joined.ca.0) != token.ca {
        return Err(Failure::new(
            ErrorKind::Auth,
            code::WRONG_POOL,
            "the manager sent another CA than the token pins",
        ));
    }
    let about = About {
        pool: joined.pool,
        pool_id: joined.pool_id,
        manager: caller.manager(),
        member: joined.member,
        role: joined.role,
        name: joined.name,
    };
    let key = key_of_pkcs8(pending.key.0.clone());
    Ok(Identity::new(about, joined.ca.0, joined.certificate.0, key))
}

/// Returns the host name of this machine.
fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "unnamed".into() } else { name }
}

fn unwritable(dir: &Path, why: &io::Error) -> Failure {
    let what = format!("cannot keep an identity in {}: {why}", dir.display());
    Failure::new(ErrorKind::Other, code::LOCAL_IO, what).hint(
        "the token is not used: make the directory writable, or name another with --state DIR",
    )
}

/// Makes the failure that the directory has an identity already.
pub fn is_taken(dir: &Path) -> Failure {
    let place = dir.display();
    let what = match Identity::load(dir) {
        Ok(identity) => format!("{place} is {} already", who(&identity.about)),
        Err(why) => format!("{place} has an identity already, which cannot be read: {why}"),
    };
    let mut hint = format!(
        "the token is not used. To go on as that member, do not join again; to join as a further \
         one, name another directory: --state DIR; to end that membership first: \
         `potluck leave --state {place}`"
    );
    // A new identity can take over the store of a donor whose identity is of no use any more.
    if let Some(store) = potluck_donor::lent_dirs(dir).unwrap_or_default().first() {
        let store = store.display();
        hint += &format!(
            "; if it is of no use any more, join with --state DIR, and `potluck lend {store} --adopt-store \
             --state DIR` goes on with what that member stored"
        );
    }
    Failure::new(ErrorKind::Conflict, code::ALREADY_JOINED, what).hint(hint)
}

/// Makes the failure that this user is a member of the pool already.
fn is_member(own: &JoinedPool) -> Failure {
    let place = own.dir.display();
    let what = format!("you are {} already, by the identity in {place}", who(&own.about));
    Failure::new(ErrorKind::Conflict, code::ALREADY_JOINED, what).hint(format!(
        "the token is not used. To join as a further member, name another directory: --state DIR; \
         to end this membership first: `potluck leave --state {place}`"
    ))
}

fn who(about: &About) -> String {
    let About { pool, member, role, name, .. } = about;
    format!("member {member} of pool {pool}, the {role} “{name}”")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pools_name_leads_nowhere_else() {
        for name in ["../../etc", "a/b", "", ".", "..", ".joining-0", "a\nb"] {
            assert_eq!(directory_name(name), None, "{name:?}");
        }
        assert_eq!(directory_name("climate lab"), Some("climate lab"));
    }
}
