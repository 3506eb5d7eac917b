//! The audit log: refusals, and changes of who may do what, as lines of JSON in files of the manager's state directory.
//!
//! The log is bounded, because a caller can provoke any number of refusals: repetitions are counted, a member gets a
//! few lines a minute, and files are rotated by size. Refusals and changes are in separate files, so that no number of
//! refusals pushes a change out.

mod files;
mod refusals;

use crate::access_keys::ActingKey;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use files::{AuditFileKind, AuditFiles};
use potluck_core::clock::Tick;
use potluck_core::ids::MemberId;
use potluck_wire::control::{AuditEntry, AuditKind, AuditPage};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use refusals::{LoggedRefusal, Refusals};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// The time between two writes of refusals.
const EVERY: Duration = Duration::from_secs(1);
/// The most changes of rights that a user or a donor may make in a minute, so that none is pushed out of the log soon.
const CHANGES: u32 = 64;
/// The time for which changes of rights are counted together.
const MINUTE: Duration = Duration::from_secs(60);
/// The bytes after which the text of an entry is cut: a path in it may have some thousand bytes.
const LONGEST: usize = 400;

/// The audit log of one manager.
#[derive(Debug)]
pub struct AuditLog {
    refusals: Mutex<Refusals>,
    /// The changes that each member who is no admin made in the minute that began at this moment.
    changes: Mutex<(Tick, HashMap<MemberId, u32>)>,
    files: Mutex<AuditFiles>,
}

impl AuditLog {
    /// Makes an audit log in the directory `dir`, which is created when something is to be written.
    pub fn new(dir: PathBuf) -> Self {
        let files = Mutex::new(AuditFiles::new(dir));
        Self { refusals: Mutex::default(), changes: Mutex::default(), files }
    }
}

handles! {
    /// The handles for writing and reading the audit log.
    pub struct Auditor {
        env: Env,
        time: PoolTime,
        audit_log: Arc<AuditLog>,
    }
}

impl Auditor {
    /// Notes that a call, or a part of one, failed, if that was a refusal. The line is written later.
    pub fn refused(&self, caller: &CallingMember, call: &str, why: &Failure) {
        if !is_refusal(caller, why) {
            return;
        }
        let mut entry = self.entry(caller, call, AuditKind::Refused, &why.message);
        entry.code = Some(why.code.clone());
        let (now, mut refusals) =
            (self.time.tick(), self.audit_log.refusals.lock().expect("no holder panics"));
        refusals.add(LoggedRefusal(entry), now);
    }

    /// Refuses a change of rights by a member who makes too many in a minute, because each is a line of the log. Admins
    /// may make any number.
    pub fn admit_change(&self, caller: &CallingMember) -> Result<(), Failure> {
        let who = caller.member()?;
        if who.role == Role::Admin {
            return Ok(());
        }
        let now = self.time.tick();
        let mut changes = self.audit_log.changes.lock().expect("no holder panics");
        if now.saturating_sub(changes.0) >= MINUTE {
            *changes = (now, HashMap::new());
        }
        let made = changes.1.entry(who.member).or_default();
        if *made >= CHANGES {
            let what = format!("you have changed rights {CHANGES} times in a minute");
            return Err(Failure::new(ErrorKind::Retry, code::TOO_MANY_CHANGES, what)
                .hint("try again in a minute; to let many in at once, grant to a group"));
        }
        *made += 1;
        Ok(())
    }

    /// Writes down a change of rights that was made. It is on disk when this returns, unless the disk fails; the change
    /// stands then, and the manager's own log tells of the failure.
    pub async fn changed(&self, caller: &CallingMember, call: &str, what: String) {
        let entry = self.entry(caller, call, AuditKind::Changed, &what);
        self.write(vec![entry], AuditFileKind::Changes).await;
    }

    fn entry(&self, caller: &CallingMember, call: &str, kind: AuditKind, what: &str) -> AuditEntry {
        let who = caller.who.as_ref();
        let end = what.floor_char_boundary(LONGEST);
        let through = |key: &ActingKey| {
            let (gateway, id) = (&key.gateway, key.id());
            format!("{} ({}) by the access key {id}", gateway.name, gateway.member)
        };
        AuditEntry {
            number: 0,
            at_wall_ms: self.time.wall_ms(),
            kind,
            member: who.map(|who| who.member),
            name: who.map(|who| who.name.clone()),
            role: who.map(|who| who.role),
            through: caller.key.as_ref().map(through),
            from: caller.peer.to_string(),
            call: call.into(),
            what: what[..end].into(),
            code: None,
            times: 1,
        }
    }

    async fn write(&self, entries: Vec<AuditEntry>, kept: AuditFileKind) {
        let log = Arc::clone(&self.audit_log);
        let write = move || log.files.lock().expect("no holder panics").write(entries, kept);
        if let Err(why) = self.env.offload.run(write).await {
            tracing::warn!(%why, "the audit log cannot be written");
        }
    }

    /// Writes refusals until dropped.
    pub async fn run(self) {
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.write_refusals().await;
        }
    }

    /// Writes the refusals that are due by now.
    pub async fn write_refusals(&self) {
        let (now, wall_ms) = (self.time.tick(), self.time.wall_ms());
        let due = self.audit_log.refusals.lock().expect("no holder panics").due(now, wall_ms);
        if !due.is_empty() {
            self.write(due, AuditFileKind::Refusals).await;
        }
    }

    /// Reads a page of the entries that were written since a wall time, after the entry with the number `after`.
    pub async fn read(&self, since_wall_ms: Option<i64>, after: u64) -> Result<AuditPage, Failure> {
        self.write_refusals().await;
        let log = Arc::clone(&self.audit_log);
        let since = since_wall_ms.unwrap_or(i64::MIN);
        let read = move || log.files.lock().expect("no holder panics").read(since, after);
        self.env.offload.run(read).await.map_err(|why| {
            let what = format!("the audit log cannot be read: {why}");
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
                .hint("look at the directory audit in the manager's state directory")
        })
    }
}

/// Returns whether a failure is the refusal of something that the caller may not do, or that a quota forbids. A user
/// who names a space that does not exist counts as refused, because a space without rights gives the same answer.
fn is_refusal(caller: &CallingMember, why: &Failure) -> bool {
    let is_user = || caller.who.as_ref().is_some_and(|who| who.role == Role::User);
    why.kind == ErrorKind::Auth
        || why.code == code::OVER_QUOTA
        || (why.code == code::NO_SPACE_NAMED && is_user())
}
