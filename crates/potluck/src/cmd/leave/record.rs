//! Which memberships end together, and how far that is: written down in the state directory of the
//! machine's own donor, or of the one member that leaves.

use crate::cmd::lend;
use crate::command_settings;
use potluck_donor::Owner;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity, write_private};
use potluck_wire::token::Role;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Written before the first of several memberships ends, and once all have ended.
pub const LEAVING: &str = "leaving.json";

/// A membership, and what this machine has of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Membership {
    pub about: About,
    pub owner: Owner,
    /// Directories that it lends.
    pub lent: Vec<PathBuf>,
    /// The directory of its identity and its state.
    pub dir: PathBuf,
    /// True once it has ended: what else is in its directories may be gone.
    pub ended: bool,
}

impl Membership {
    /// Reads the membership that an interrupted `potluck leave` wrote in `dir`, or that of the identity there.
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
        let identity = command_settings::load_identity(dir)?;
        let lent = match identity.about.role {
            Role::Donor => potluck_donor::lent_dirs(dir).map_err(|why| local(dir, "read", &why))?,
            Role::User | Role::Admin => Vec::new(),
        };
        let owner = lend::owner(&identity);
        Ok(Self { about: identity.about, owner, lent, dir: dir.into(), ended: false })
    }

    pub fn who(&self) -> String {
        who(&self.about)
    }

    /// Returns the directories of this machine that belong to it.
    pub fn here(&self) -> impl Iterator<Item = &Path> {
        self.lent.iter().chain([&self.dir]).map(PathBuf::as_path)
    }
}

/// Says in words which member an identity is of.
pub fn who(about: &About) -> String {
    let About { pool, member, role, name, .. } = about;
    format!("{role} {member} (“{name}”) of pool {pool}")
}

/// The memberships that end with the one whose identity is in `dir`, which comes last: the state of a
/// machine's further donors lies in that of its own.
pub fn find(dir: &Path) -> Result<Vec<Membership>, Failure> {
    let is_there = |state: &Path| Identity::exists(state) || state.join(LEAVING).exists();
    let mut found = read(dir)?;
    let own = found.pop().map_or_else(|| Membership::of(dir), Ok)?;
    // A member that left by itself after this was begun need not leave any more.
    found.retain(|known| known.ended || is_there(&known.dir));
    if own.about.role == Role::Donor && !own.ended {
        // Donors that were added since leave, too, and those whose leaving was interrupted.
        for state in lend::states(dir)? {
            if is_there(&state) && found.iter().all(|known| known.dir != state) {
                found.push(Membership::of(&state)?);
            }
        }
    }
    found.push(own);
    Ok(found)
}

/// Reads the record that was written in `dir`, if there is one.
pub fn read(dir: &Path) -> Result<Vec<Membership>, Failure> {
    let failed = |why: io::Error| local(dir, "read", &why);
    match fs::read(dir.join(LEAVING)) {
        Ok(text) => {
            let begun: Vec<Membership> =
                serde_json::from_slice(&text).map_err(|why| failed(why.into()))?;
            // A record that an earlier membership left behind says nothing of one that came after it.
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

/// Writes it into the directory of the last.
pub fn write(memberships: &[Membership]) -> Result<(), Failure> {
    let Some(own) = memberships.last() else { return Ok(()) };
    let text = serde_json::to_vec(memberships).expect("plain data");
    write_private(&own.dir.join(LEAVING), &text).map_err(|why| local(&own.dir, "write to", &why))
}

/// Something failed on this machine.
pub fn local(dir: &Path, doing: &str, why: &io::Error) -> Failure {
    let what = format!("cannot {doing} {}: {why}", dir.display());
    Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        .hint("mend that and run the same command again: it goes on from there")
}
