//! Removes what a machine has of memberships that have ended.

use super::record::{LEAVING, Membership, local};
use crate::cmd::{Ending, lend};
use crate::command_settings::CommandSettings;
use crate::output::Output;
use crate::running::{self, Said};
use crate::systemd::{self, UnitPlace, UnitRole};
use potluck_donor::{Owner, StoreError, StoreRemoved, remove_store};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::About;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a daemon may take to end, and a store to be unlocked.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// The time between two looks whether that has happened.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The result of the removal.
#[derive(Debug, Serialize)]
struct Left<'a> {
    #[serde(flatten)]
    about: &'a About,
    left: bool,
    removed: Vec<PathBuf>,
    stays: Vec<Stays>,
}

#[derive(Debug, Serialize)]
struct Stays {
    path: PathBuf,
    /// Whether the directory is empty, so that the user need not look at it.
    empty: bool,
    why: String,
}

/// Stops the daemon, and removes the files of all memberships. The directory of the last membership holds the record,
/// and is removed last.
pub async fn clean_up(
    memberships: &[Membership],
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let Some(own) = memberships.last() else { return Ok(Ending::Done) };
    let removed = stop(own, settings).await?;
    let mut left = Left { about: &own.about, left: true, removed, stays: Vec::new() };
    for membership in memberships {
        left.remove(membership).await?;
    }
    let partial = left.stays.iter().any(|stays| !stays.empty);
    output.result(&left, |left| {
        let gone = memberships.iter().map(|it| format!("left: {} is no member any more", it.who()));
        let removed = left.removed.iter().map(|path| format!("removed: {}", path.display()));
        let stays = left.stays.iter();
        let stays =
            stays.map(|Stays { path, why, .. }| format!("stays: {}: {why}", path.display()));
        gone.chain(removed).chain(stays).collect::<Vec<_>>().join("\n")
    });
    Ok(if partial { Ending::Partial } else { Ending::Done })
}

impl Left<'_> {
    async fn remove(&mut self, membership: &Membership) -> Result<(), Failure> {
        for dir in &membership.lent {
            let (empty, why) = match remove_unlocked(dir, &membership.owner).await {
                Ok(StoreRemoved::All) => {
                    self.removed.push(dir.clone());
                    continue;
                }
                Ok(StoreRemoved::Emptied) => (true, "it is empty; a mount point is not removed".into()),
                Ok(StoreRemoved::OthersStay) => {
                    (false, "Potluck's files are gone; others, which are yours, are there".into())
                }
                Ok(StoreRemoved::NotAStore) => (
                    false,
                    "it holds no store; if its disk is not mounted, mount it and lend nothing there: \
                     what it holds is nobody's any more"
                        .into(),
                ),
                Err(why @ (StoreError::Io { .. } | StoreError::Locked(_))) => {
                    return Err(lend::failed(why.into())
                        .hint("mend that and run the same command again: it goes on from there"));
                }
                Err(why) => (false, why.to_string()),
            };
            self.stays.push(Stays { path: dir.clone(), empty, why });
        }
        let dir = &membership.dir;
        let failed = |why: io::Error| local(dir, "remove the identity in", &why);
        if lend::remove_state(dir, &[LEAVING]).map_err(failed)? {
            self.removed.push(dir.clone());
        } else {
            let why = "the identity is gone; other files are there".into();
            self.stays.push(Stays { path: dir.clone(), empty: false, why });
        }
        Ok(())
    }
}

/// Removes a store as soon as it is unlocked. A daemon that was told to stop keeps the lock until its last thread ends,
/// a moment after it is found to have stopped.
async fn remove_unlocked(dir: &Path, owner: &Owner) -> Result<StoreRemoved, StoreError> {
    let unlocked = async {
        loop {
            match remove_store(dir, owner) {
                Err(StoreError::Locked(_)) => tokio::time::sleep(LOOK_EVERY).await,
                removed => return removed,
            }
        }
    };
    let in_time = tokio::time::timeout(STOP_TIMEOUT, unlocked).await;
    in_time.unwrap_or_else(|_| Err(StoreError::Locked(dir.to_owned())))
}

/// Stops the daemon that uses what is to be removed, or has it lend the directories no more, and removes its service.
/// Returns the removed files of the service.
async fn stop(own: &Membership, settings: &CommandSettings) -> Result<Vec<PathBuf>, Failure> {
    if let Some(daemon) = lend::daemon_of(&own.dir) {
        lend::lend_no_more(daemon, Some(&own.dir), &own.lent).await?;
        return Ok(Vec::new());
    }
    let removed = match service_of(&own.dir, UnitRole::Lend, settings) {
        Some(place) => systemd::uninstall(&place, UnitRole::Lend)?,
        None => Vec::new(),
    };
    stop_daemon(&own.dir, settings).await?;
    Ok(removed)
}

/// Returns the place where a service of `role` is installed that runs the donor whose state is in `dir`, if one is.
pub fn service_of(dir: &Path, role: UnitRole, settings: &CommandSettings) -> Option<UnitPlace> {
    systemd::of_donor(dir, settings).filter(|place| place.is_installed(role))
}

/// Says what is to be done by hand if the donor whose state is in `dir` runs in one process with the manager, or an
/// installed service would start it so; otherwise `None`.
pub fn beside_manager(
    dir: &Path,
    settings: &CommandSettings,
) -> Result<Option<&'static str>, Failure> {
    if service_of(dir, UnitRole::Up, settings).is_some() {
        return Ok(Some(
            "end that service with `potluck service uninstall up`, have the manager go on alone with \
             `potluck service install manager`",
        ));
    }
    let runs = running_in_manager(dir, settings)?;
    Ok(runs.then_some("stop that process, have the manager go on alone with `potluck manager`"))
}

fn find_daemon(dir: &Path) -> Result<Option<Said>, Failure> {
    running::find(dir).map_err(|why| local(dir, "look for a daemon in", &why))
}

/// Returns whether the donor whose state is in `dir` runs in one process with a manager.
fn running_in_manager(dir: &Path, settings: &CommandSettings) -> Result<bool, Failure> {
    let Some(said) = find_daemon(dir)? else { return Ok(false) };
    let managers = [Some(settings.manager_dir()), dir.parent().map(|above| above.join("manager"))];
    let found = |manager: PathBuf| running::find(&manager).ok().flatten();
    Ok(managers.into_iter().flatten().filter_map(found).any(|manager| manager.pid == said.pid))
}

/// Ends the daemon that runs on a state directory, if one does.
async fn stop_daemon(dir: &Path, settings: &CommandSettings) -> Result<(), Failure> {
    let Some(said) = find_daemon(dir)? else { return Ok(()) };
    if running_in_manager(dir, settings)? {
        let todo = beside_manager(dir, settings)?.unwrap_or_default();
        let what = "the donor runs in one process with the manager (`potluck up`)";
        let hint = format!(
            "the membership has ended: {todo}, and run `potluck leave` again to take away what is left here"
        );
        return Err(Failure::new(ErrorKind::Partial, code::STUCK, what).hint(hint));
    }
    if let Some(pid) = i32::try_from(said.pid).ok().and_then(Pid::from_raw) {
        // The process may have ended meanwhile, which is no error.
        let _ = kill_process(pid, Signal::TERM);
    }
    let ended = async {
        while find_daemon(dir)?.is_some() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    };
    tokio::time::timeout(STOP_TIMEOUT, ended).await.unwrap_or_else(|_| {
        let what = format!("the daemon {} does not end", said.pid);
        Err(Failure::new(ErrorKind::Partial, code::STUCK, what)
            .hint("stop it, or what starts it again, and run `potluck leave` again"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::chunk::Digest;
    use potluck_core::ids::DonorId;

    #[tokio::test]
    async fn lend_waits_for_a_stopping_donor() {
        let dir = tempfile::tempdir().expect("a directory");
        let owner = Owner {
            pool: Digest([1; 32]),
            donor: DonorId(1),
            pool_name: "lab".into(),
            name: "bob".into(),
        };
        let held = std::fs::File::open(dir.path()).expect("opened");
        held.try_lock().expect("nobody else has it");
        let let_go = async { drop(held) };
        let (removed, ()) = tokio::join!(remove_unlocked(dir.path(), &owner), let_go);
        assert!(matches!(removed, Ok(StoreRemoved::NotAStore)), "{removed:?}");
    }
}
