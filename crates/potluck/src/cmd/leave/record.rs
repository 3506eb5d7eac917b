//! The record of the memberships that end together, and of whether they have ended. It is a file in the state
//! directory of the machine's own donor, or of the only member that leaves.

use crate::cmd::lend;
use potluck_config::own_pools;
use potluck_donor::Owner;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity, write_private};
use potluck_wire::token::Role;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the record's file. It is written before the first of several memberships ends, and when all have ended.
pub const LEAVING: &str = "leaving.json";

/// A membership, with the directories on this machine that belong to it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Membership {
    pub about: About,
    pub owner: Owner,
    /// The directories that it lends.
    pub lent: Vec<PathBuf>,
    /// The directory of its identity and its state.
    pub dir: PathBuf,
    /// Whether it has ended; then its directories may be removed in part.
    pub ended: bool,
}

impl Membership {
    /// Reads the membership that an interrupted `potluck leave` recorded in `dir`, or that of the identity there.
    fn of(dir: &Path) -> Result<Self, Failure> {
        if let Some(begun) = read(dir)?.pop() {
            return Ok(begun);
        }
        if !Identity::exists(dir) {
            let what = format!("there is no identity in {}", dir.display());
            return Err(Failure::new(ErrorKind::NotFound, code::NOT_A_MEMBER, what).hint(
                "nothing is to be left; name the directory of an identity with --state DIR",
            ));
        }
        let identity = own_pools::load_identity(dir)?;
        let lent = match identity.about.role {
            Role::Donor => potluck_donor::lent_dirs(dir).map_err(|why| local(dir, "read", &why))?,
            Role::User | Role::Gateway | Role::Admin => Vec::new(),
        };
        let owner = lend::owner(&identity);
        Ok(Self { about: identity.about, owner, lent, dir: dir.into(), ended: false })
    }

    pub fn who(&self) -> String {
        who(&self.about)
    }

    /// Returns the directories of this machine that belong to the membership.
    pub fn here(&self) -> impl Iterator<Item = &Path> {
        self.lent.iter().chain([&self.dir]).map(PathBuf::as_path)
    }
}

/// Says to which member an identity belongs.
pub fn who(about: &About) -> String {
    let About { pool, member, role, name, .. } = about;
    format!("{role} {member} (“{name}”) of pool {pool}")
}

/// Returns the memberships that end together with the one whose identity is in `dir`. That one comes last, because its
/// directory holds the state directories of the machine's further donors.
pub fn find(dir: &Path) -> Result<Vec<Membership>, Failure> {
    let is_there = |state: &Path| Identity::exists(state) || state.join(LEAVING).exists();
    let mut found = read(dir)?;
    let own = found.pop().map_or_else(|| Membership::of(dir), Ok)?;
    // Members that left by themselves after the record was written are dropped.
    found.retain(|known| known.ended || is_there(&known.dir));
    if own.about.role == Role::Donor && !own.ended {
        // Donors that were added since leave as well, and those whose departure was interrupted.
        for state in lend::states(dir)? {
            if is_there(&state) && found.iter().all(|known| known.dir != state) {
                found.push(Membership::of(&state)?);
            }
        }
    }
    found.push(own);
    Ok(found)
}

/// Reads the record in `dir`; empty if there is none, or if it is of an earlier membership.
pub fn read(dir: &Path) -> Result<Vec<Membership>, Failure> {
    let failed = |why: io::Error| local(dir, "read", &why);
    match fs::read(dir.join(LEAVING)) {
        Ok(text) => {
            let begun: Vec<Membership> =
                serde_json::from_slice(&text).map_err(|why| failed(why.into()))?;
            // An earlier membership may have left a record behind, which does not concern the present one.
            let is_stale = begun.last().is_some_and(|own| {
                Identity::load(dir).is_ok_and(|now| {
                    (now.about.member, now.pool()) != (own.about.member, own.owner.pool)
                })
            });
            Ok(if is_stale { Vec::new() } else { begun })
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) => Err(failed(why)),
    }
}

/// Writes the record to the directory of the last membership.
pub fn write(memberships: &[Membership]) -> Result<(), Failure> {
    let Some(own) = memberships.last() else { return Ok(()) };
    let text = serde_json::to_vec(memberships).expect("plain data");
    write_private(&own.dir.join(LEAVING), &text).map_err(|why| local(&own.dir, "write to", &why))
}

/// Makes the failure that something on this machine could not be done.
pub fn local(dir: &Path, doing: &str, why: &io::Error) -> Failure {
    let what = format!("cannot {doing} {}: {why}", dir.display());
    Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        .hint("mend that and run the same command again: it goes on from there")
}
