//! The pool's own metadata adapts to the donors there are. A survey tells how many copies can be
//! had; here that is written down, and what is lost or has no place any more is given up. Nothing is
//! lost by that: the catalog itself is here, and writes it anew to donors that take it.

use super::{any_taker, pool};
use crate::catalog::names::{self, When};
use crate::catalog::{Durability, Error, entries, versions};
use crate::journal::{self, segment::Position};
use crate::service::Service;
use potluck_core::path::PoolPath;
use potluck_core::policy::Redundancy;
use potluck_pool::redundancy::Metadata;
use rusqlite::Connection;

/// Follows what a survey found; whether anything changed, so that another should look.
pub async fn adapt(service: &Service, found: &Metadata) -> Result<bool, Error> {
    if service.gc_held().is_some() {
        return Ok(false); // a newer catalog may know more of it
    }
    if found.health.files > 0 && has_no_place(service, found) {
        tracing::info!(
            files = found.health.files,
            "no donor keeps the pool's own metadata any more: it is on the manager's own disk only"
        );
        let when = service.when();
        service.catalog.write(Durability::Process, move |db| give_up_all(db, when)).await?;
        service.backups.begin_anew();
        return Ok(true);
    }
    let lost = if any_taker(service) { found.lost.clone() } else { Vec::new() };
    if found.adapted.is_empty() && lost.is_empty() {
        return Ok(false);
    }
    if !lost.is_empty() {
        tracing::warn!(
            files = lost.len(),
            "some of the pool's own metadata is lost: it is written anew"
        );
        service.backups.begin_anew();
    }
    let (adapted, when) = (found.adapted.clone(), service.when());
    let write = move |db: &_| {
        for (version, copies) in &adapted {
            versions::set_redundancy(db, *version, Redundancy::Copies(*copies), &[])?;
        }
        give_up_lost(db, &lost, when)
    };
    service.catalog.write(Durability::Process, write).await?;
    Ok(true)
}

/// Whether it is to be on no donor: nobody asks for it, or all that hold it leave, and nothing of
/// users waits there that would be found again by it.
fn has_no_place(service: &Service, found: &Metadata) -> bool {
    if service.config().metadata_copies == 0 {
        return true;
    }
    let users_wait = service.keeper.kept().moving.values().any(|moving| moving.chunks > 0);
    found.homeless > 0 && !users_wait && service.pool().all_leave(service.time.tick())
}

fn at(names: &[&str]) -> Result<PoolPath, Error> {
    PoolPath::system(names).map_err(|why| Error::Bug(why.to_string()))
}

/// Removes all of it; the journal begins anew when a donor takes it.
fn give_up_all(db: &Connection, when: When) -> Result<(), Error> {
    for dir in [journal::DIR, pool::DIR] {
        remove(db, &at(&[dir])?, when)?;
    }
    lose_journal(db)
}

/// Has what is lost written anew: a new generation of the journal takes the place of one that has
/// gaps, and a checkpoint without some of its pieces is none.
fn give_up_lost(db: &Connection, lost: &[String], when: When) -> Result<(), Error> {
    for path in lost {
        let mut names = path.split('/');
        match (names.next(), names.next()) {
            (Some(dir), Some(number)) if dir == pool::DIR => {
                remove(db, &at(&[dir, number])?, when)?;
            }
            _ => lose_journal(db)?,
        }
    }
    Ok(())
}

fn lose_journal(db: &Connection) -> Result<(), Error> {
    match Position::of(db)? {
        Some(position) if !position.lost => Position { lost: true, ..position }.note(db),
        _ => Ok(()),
    }
}

/// Removes what may be there.
fn remove(db: &Connection, path: &PoolPath, when: When) -> Result<(), Error> {
    match entries::resolve(db, path)? {
        Some(_) => names::remove(db, path, true, when).map(drop),
        None => Ok(()),
    }
}
