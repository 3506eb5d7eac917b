//! The pools that a user joined: identities, and callers of their managers.

use potluck_core::chunk::Digest;
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity};
use potluck_wire::tls::TlsDial;
use potluck_wire::whereabouts::Guide;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Loads the identity in `dir`.
pub fn load_identity(dir: &Path) -> Result<Identity, Failure> {
    Identity::load(dir).map_err(|error| {
        let what = format!("cannot use the identity in {}: {error}", dir.display());
        Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what)
            .hint("bring its files back from a copy; if they are lost, move that directory away and join as a new member (`potluck invite` makes a token): a donor then takes its store over with `potluck lend DIR --adopt-store`")
    })
}

/// Makes a caller of the manager of an identity's pool, which does not follow a manager that moved.
pub fn caller(identity: &Identity) -> Result<Caller, Failure> {
    Ok(Caller::new(Env::system().net, dial(identity)?, identity.about.manager.clone()))
}

fn dial(identity: &Identity) -> Result<Arc<TlsDial>, Failure> {
    let dial = TlsDial::member(identity).map_err(|why| {
        Failure::new(
            ErrorKind::Auth,
            code::NOT_A_MEMBER,
            format!("the identity is unusable: {why}"),
        )
        .hint("bring its files back from a copy, or move that directory away and join as a new member")
    })?;
    Ok(Arc::new(dial))
}

/// Makes a caller of the manager of an identity's pool, which finds a manager that moved by the guide beside the
/// identity in `dir`.
pub fn guided(identity: &Identity, dir: &Path) -> Result<Caller, Failure> {
    let (net, dial) = (Env::system().net, dial(identity)?);
    let guide = Guide::open(Arc::clone(&net), identity.pool(), identity.ca.clone(), dir);
    Ok(Caller::guided(net, dial, &identity.about.manager, guide))
}

/// A pool that this user joined.
#[derive(Debug, Clone)]
pub struct JoinedPool {
    /// The directory of the identity.
    pub dir: PathBuf,
    /// The pool and the member that the identity belongs to.
    pub about: About,
    /// The fingerprint of the pool's first CA, which identifies the pool.
    pub id: Digest,
}

impl JoinedPool {
    /// Loads the identity in `dir`, if one is there that can be used.
    pub fn load(dir: &Path) -> Option<Self> {
        let load = Identity::exists(dir).then(|| Identity::load(dir))?;
        let unusable = |why| tracing::warn!("the identity in {} is unusable: {why}", dir.display());
        let identity = load.map_err(unusable).ok()?;
        Some(Self { dir: dir.into(), id: identity.pool(), about: identity.about })
    }

    /// Returns the pool's name with a part of its fingerprint, which no other pool has.
    fn full_name(&self) -> String {
        format!("{}-{}", self.about.pool, self.id.short())
    }
}

/// Loads the identities directly below `pools`, in the order of their directories' names.
pub fn joined(pools: &Path) -> Vec<JoinedPool> {
    let entries = std::fs::read_dir(pools).into_iter().flatten().flatten();
    // A directory with a hidden name belongs to a join that is not finished.
    let whole = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let mut dirs: Vec<_> = whole.map(|entry| entry.path()).collect();
    dirs.sort();
    dirs.iter().filter_map(|dir| JoinedPool::load(dir)).collect()
}

/// Returns the directory of the pool whose name, or full name, is `name`.
pub(crate) fn pick(own: Vec<JoinedPool>, name: &str) -> Result<PathBuf, Failure> {
    let by = |is: &dyn Fn(&JoinedPool) -> bool| -> Vec<JoinedPool> {
        own.iter().filter(|own| is(own)).cloned().collect()
    };
    let exact = by(&|own| own.full_name() == name);
    let found = if exact.is_empty() { by(&|own| own.about.pool == name) } else { exact };
    match &found[..] {
        [one] => Ok(one.dir.clone()),
        [] => Err(unknown(name, "is no pool that you joined")),
        several => {
            let what =
                format!("you have joined several pools called “{name}”: {}", listed(several));
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint(format!("say which: --pool {}", several[0].full_name())))
        }
    }
}

pub(crate) fn unknown(named: &str, what: &str) -> Failure {
    Failure::new(ErrorKind::NotFound, code::NOT_A_MEMBER, format!("“{named}” {what}"))
        .hint("join it with `potluck join -`, or look in the pools directory of your configuration")
}

pub(crate) fn listed(own: &[JoinedPool]) -> String {
    let one = |own: &JoinedPool| {
        let About { manager, role, name, .. } = &own.about;
        format!("{} ({role} “{name}”, manager at {manager})", own.full_name())
    };
    own.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::MemberId;
    use potluck_wire::token::Role;

    #[test]
    fn pools_of_one_name_are_told_apart_by_their_authority() {
        let pool = |name: &str, id: u8| JoinedPool {
            dir: PathBuf::from(format!("/{name}/{id}")),
            about: About {
                pool: name.into(),
                pool_id: Digest([id; 32]),
                manager: "lab:7700".parse().expect("an address"),
                member: MemberId(2),
                role: Role::User,
                name: "ada".into(),
            },
            id: Digest([id; 32]),
        };
        let own = || vec![pool("pool", 1), pool("pool", 2), pool("lab", 3)];
        assert_eq!(pick(own(), "lab"), Ok("/lab/3".into()));
        assert_eq!(pick(own(), "lab-03030303"), Ok("/lab/3".into()));
        assert_eq!(pick(own(), "pool-02020202"), Ok("/pool/2".into()));
        let why = pick(own(), "pool").expect_err("two of them");
        assert_eq!(why.kind, ErrorKind::Usage);
        assert!(why.message.contains("pool-01010101") && why.message.contains("pool-02020202"));
        assert_eq!(pick(own(), "nope").expect_err("none").kind, ErrorKind::NotFound);
    }
}
