//! A manager's term over the catalog: its start, and other terms that donors heard of.

use crate::log::{
    changes,
    log_position::{LogCopy, Position},
};
use crate::members::{
    authority::{self, Authority},
    stored_member::StoredMember,
};
use crate::pool_records::{
    donor_traffic, donors, meta, notes, sessions,
    sessions::StoredSession,
    stored_donor::StoredDonor,
    term_history::{self, Term},
};
use crate::sql::Tx;
use crate::{Catalog, Durability, Error, members};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::{DonorId, Epoch};
use potluck_pool::{CircuitBreaker, SavedTraffic};
use std::time::Duration;

/// The time by which the pool's time leaps at each start of a manager. A start may follow a power cut in which the last
/// saved times were lost, so time goes on from beyond anything that an earlier term can have said.
pub const TIME_LEAP: Duration = Duration::from_secs(120);

/// The state that a starting manager finds in the catalog.
#[derive(Debug)]
pub struct TermStart {
    /// The epoch of this term.
    pub epoch: Epoch,
    /// The reason why garbage collection is frozen, if it is.
    pub gc_frozen: Option<String>,
    /// True if the catalog may lack changes that another log has, and no admin has accepted it yet.
    pub may_lack: bool,
    /// The name of the pool.
    pub pool_name: String,
    /// The pool's time in milliseconds as last saved by an earlier term; this one begins [`TIME_LEAP`] after it. `None`
    /// if none saved it.
    pub saved_ms: Option<u64>,
    /// The milliseconds by which the pool's time leapt at all starts together, this one included.
    pub leapt_ms: u64,
    /// All members that the pool ever had.
    pub members: Vec<StoredMember>,
    /// The write sessions, each with the names that it offered.
    pub sessions: Vec<(StoredSession, Vec<ChunkName>)>,
    /// The facts kept about donors.
    pub donors: Vec<StoredDonor>,
    /// The traffic of donors, as far as it is known.
    pub traffic: Vec<(DonorId, SavedTraffic)>,
    /// The reason why repair is paused, if it is.
    pub repair_paused: Option<String>,
    /// The donors that went away at once, for which repair is paused, and those that were declared dead.
    pub circuit_breaker: CircuitBreaker,
}

impl Catalog {
    /// Reads the name and the authority of the pool that the catalog belongs to.
    pub async fn authority(&self) -> Result<Authority, Error> {
        self.read(authority::of).await
    }

    /// Begins the term of a manager that drew `start` at its start and serves a pool of this authority.
    pub async fn begin_term(&self, authority: Digest, start: u64) -> Result<TermStart, Error> {
        let begin = move |db: &_| {
            authority::note(db, &authority)?;
            begin_term(db, start)
        };
        self.write(Durability::Disk, begin).await
    }

    /// Returns whether a term that a donor heard of did something that this catalog does not know.
    pub async fn is_unknown_term(&self, heard: Term) -> Result<bool, Error> {
        self.read(move |db| term_history::unknown(db, heard)).await
    }

    /// Freezes garbage collection in the term that drew `start` and has the epoch `own`. With `above`, the epoch
    /// becomes a later one than that. Every copy of the log begins anew if the freeze begins or the epoch rises, and
    /// counts less than that of the newer catalog until an admin ends the freeze. Returns the epoch.
    pub async fn freeze_gc(
        &self,
        why: String,
        above: Option<Epoch>,
        own: Epoch,
        start: u64,
    ) -> Result<Epoch, Error> {
        let freeze = move |db: &_| {
            if notes::get(db, notes::GC_FROZEN)?.is_none() {
                notes::set(db, notes::GC_FROZEN, &why)?;
            }
            let begins = notes::get(db, notes::MAY_LACK)?.is_none();
            if begins {
                notes::set(db, notes::MAY_LACK, &why)?;
            }
            let epoch = match above {
                Some(above) => meta::raise_epoch(db, above)?,
                None => own,
            };
            if begins || epoch > own {
                if let (true, Some(left)) = (begins, notes::get(db, notes::LOG_ON_DONORS)?) {
                    notes::set(db, notes::LOG_LEFT, &left)?;
                }
                // The log of the newer manager goes on from where this catalog was copied: what this one writes must
                // not be taken for a part of that log, nor that for a part of this one's.
                Position::clear(db, LogCopy::OnDonors)?;
                Position::clear(db, LogCopy::InFile)?;
            }
            term_history::go_on(db, term(db, epoch, start)?)?;
            Ok(epoch)
        };
        self.write(Durability::Disk, freeze).await
    }

    /// Lets garbage collection go on: what other terms may have known is given up.
    ///
    /// A catalog that may lack changes is accepted by that: its log on donors begins anew, as one that counts more than
    /// the log that has them.
    pub async fn end_gc_freeze(&self) -> Result<(), Error> {
        let end = |db: &_| {
            term_history::give_up(db)?;
            if notes::get(db, notes::MAY_LACK)?.is_some() {
                notes::clear(db, notes::MAY_LACK)?;
                notes::clear(db, notes::LOG_LEFT)?;
                Position::clear(db, LogCopy::OnDonors)?;
            }
            notes::clear(db, notes::GC_FROZEN)
        };
        self.write(Durability::Disk, end).await
    }
}

/// Advances the pool's time by [`TIME_LEAP`], if it was ever saved. Returns the milliseconds by which it leapt at all
/// starts. Both are saved at once, so that the time without leaps never goes back.
fn leap(db: &Tx, saved_ms: Option<u64>) -> Result<u64, Error> {
    let before_ms = notes::time_leapt_ms(db)?;
    let Some(saved_ms) = saved_ms else { return Ok(before_ms) };
    let leap_ms = TIME_LEAP.as_millis() as u64;
    meta::save_pool_time(db, saved_ms + leap_ms)?;
    notes::set(db, notes::TIME_LEAPT, &(before_ms + leap_ms).to_string())?;
    Ok(before_ms + leap_ms)
}

fn term(db: &Tx, epoch: Epoch, start: u64) -> Result<Term, Error> {
    Ok(Term { epoch, start, changes: changes::last(db)?.max(0) as u64 })
}

fn begin_term(db: &Tx, start: u64) -> Result<TermStart, Error> {
    let epoch = meta::next_epoch(db)?;
    term_history::begin(db, term(db, epoch, start)?)?;
    let sessions = sessions::all(db)?.into_iter().map(|session| {
        let offered = sessions::offered(db, &session.id)?;
        Ok((session, offered))
    });
    let saved_ms = meta::saved_pool_time(db)?;
    let leapt_ms = leap(db, saved_ms)?;
    Ok(TermStart {
        epoch,
        gc_frozen: notes::get(db, notes::GC_FROZEN)?,
        may_lack: notes::get(db, notes::MAY_LACK)?.is_some(),
        pool_name: meta::pool_name(db)?,
        saved_ms,
        leapt_ms,
        members: members::all(db)?,
        sessions: sessions.collect::<Result<_, Error>>()?,
        donors: donors::all(db)?,
        traffic: donor_traffic::all(db)?,
        repair_paused: notes::get(db, notes::REPAIR_PAUSED)?,
        circuit_breaker: CircuitBreaker {
            tripped: notes::donors(db, notes::REPAIR_TRIPPED)?,
            declared_dead: notes::donors(db, notes::REPAIR_DECLARED_DEAD)?,
        },
    })
}
