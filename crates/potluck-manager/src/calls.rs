//! The calls, from a request's bytes to its answer. Each group of calls is in a file of its own, which translates
//! requests into operations on the pool and the catalog.

mod access_keys;
mod answer;
mod audit;
mod authority;
mod caching;
mod call_terms;
mod checkpoints;
mod commit;
mod concerned;
mod copying;
mod donor;
mod find;
mod fsck;
mod gc_freeze;
mod give_back;
mod grants;
mod health;
mod history;
mod locks;
mod membership;
mod naming;
mod policy;
mod policy_advice;
mod prepare;
mod quotas;
mod reading;
mod repair;
mod reservations;
mod series;
mod session;
mod shared_files;
mod space;
mod status;
mod unsent;
mod verb;
mod watching;

pub(crate) use answer::Answer;
pub(crate) use concerned::{concerned, no_donor};
pub use verb::Verb;

use crate::access;
use crate::access_keys::ActingKey;
use crate::audit_log::Auditor;
use crate::callers::CallingMember;
use crate::handles::Handles;
use crate::tasks::reach::Reach;
use axum::body::{Body, Bytes};
use call_terms::Waits;
use potluck_catalog::ReadFor;
use potluck_core::chunk::Digest;
use potluck_core::path::{BadPath, PoolPath, SCHEME};
use potluck_wire::bodies::{Received, SHORT, discard};
use potluck_wire::control::{self, Call};
use potluck_wire::env::{Offload, spawn};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use potluck_wire::serve::{Answers, CalledName, Peer, no_such_call};
use std::sync::Arc;
use std::time::Duration;

/// The time by which a reply leaves before its caller stops waiting for it.
const MARGIN: Duration = Duration::from_millis(500);

macro_rules! calls {
    ($($group:ty: $($verb:ident)*;)*) => {
        /// Answers a call: parses the JSON of the request, and returns the JSON of the reply.
        async fn answer(
            handles: &Handles,
            caller: CallingMember,
            verb: Verb,
            body: Received,
        ) -> Result<Vec<u8>, Failure> {
            let began = handles.time.tick();
            let answering: BoxFuture<'_, Result<Vec<u8>, Failure>> = match verb {
                $($(Verb::$verb => {
                    Box::pin(answer_one::<control::$verb, $group>(handles, caller, verb, body))
                })*)*
            };
            let answered = answering.await;
            let took = handles.time.tick().saturating_sub(began);
            handles.metrics.calls.ended(verb.name(), took, answered.is_ok());
            answered
        }
    };
}
calls! {
    membership::MembershipCalls: Join Invite InvitationList InvitationRemove MemberList Revoke Leave;
    access_keys::AccessKeyCalls: AccessKeyCreate AccessKeyList AccessKeyRemove AccessKeyShow;
    space::SpaceCalls: SpaceCreate SpaceRemove SpaceList SpaceRekey;
    grants::GrantCalls: SpaceGrant SpaceRevoke SpaceWho GroupCreate GroupRemove GroupChange GroupList;
    session::WriteSessionCalls: Reserve Offer Grow Renew Abort;
    commit::CommitCalls: Commit LostParts;
    reading::ReadingCalls: Open OpenPart OldFiles RenewLeases Report TellTraffic Unreached;
    naming::NamingCalls: List Stat MakeDir MakeLinks SetAttributes Move Remove SyncChanges Usage;
    history::HistoryCalls: KeptList BringBack LetGo SnapshotTake SnapshotRemove SnapshotList;
    series::SeriesCalls: SeriesPurge Pin;
    caching::CachingCalls: Evict;
    watching::WatchCalls: Watch Refresh;
    locks::LockCalls: LockTake LockKeep LockGive NameReserve NameFree;
    shared_files::SharedFileCalls: SharedClaim SharedLeave SharedTurn SharedWriters;
    copying::CopyCalls: CopyFiles;
    checkpoints::CheckpointCalls: CheckpointBegin CheckpointCommit CheckpointAbort CheckpointList;
    status::StatusCalls: Status Check OwnStatus;
    policy::PolicyCalls: PolicySet;
    donor::DonorCalls: Register Inventory Heartbeat Locate;
    find::FindCalls: Find;
    gc_freeze::GcFreezeCalls: GcResume ReclaimUnknown;
    repair::RepairCalls: RepairStatus RepairControl Away Trust ScrubNow;
    give_back::GiveBackCalls: GiveBack GiveBackStatus Departing;
    fsck::FsckCalls: Fsck;
    audit::AuditCalls: AuditRead;
    authority::AuthorityCalls: AuthorityReplace;
    quotas::QuotaCalls: QuotaSet QuotaList;
    reservations::ReservationCalls: RoomReserve RoomReservationList RoomRelease;
}

/// What a request shows of who makes it.
struct ShownIdentity {
    /// The fingerprint of the caller's certificate, if it has one.
    certificate: Option<Digest>,
    /// The access key by which the caller acts, if it names one.
    key: Option<String>,
}

impl Answers for Handles {
    async fn answer(
        self: Arc<Self>,
        peer: Peer,
        CalledName { call, key }: CalledName,
        body: Body,
    ) -> Result<Vec<u8>, Failure> {
        let verb = Verb::named(&call).ok_or_else(|| no_such_call(&call))?;
        let (peer_address, connection) = (peer.address.ip(), peer.connection);
        let mut caller = CallingMember { who: None, key: None, peer: peer_address, connection };
        let shown = ShownIdentity { certificate: peer.certificate, key };
        let answered = self.admit(&mut caller, shown, verb, body).await;
        if let Err(why) = &answered {
            Auditor::from(&*self).refused(&caller, verb.name(), why);
        }
        answered
    }

    async fn ready(&self) -> Result<(), String> {
        self.catalog.authority().await.map(drop).map_err(|why| why.to_string())
    }

    fn is_member(&self, certificate: &Digest) -> bool {
        self.members.with_certificate(certificate).is_some()
    }

    fn succession(&self, peer: &Peer, trusted: &str) -> Option<String> {
        // Most of the time nothing changes, and nobody is looked up for that.
        self.authority.change()?;
        let member = self.members.with_certificate(&peer.certificate?)?;
        self.authority.heard(member, trusted)
    }

    async fn connection_ended(self: Arc<Self>, connection: u64) {
        Reach::from(&*self).connection_ended(connection).await;
    }
}

impl Handles {
    /// Answers a call if its caller may make it. Notes in `caller` which member that is.
    async fn admit(
        &self,
        caller: &mut CallingMember,
        shown: ShownIdentity,
        verb: Verb,
        body: Body,
    ) -> Result<Vec<u8>, Failure> {
        // This comes first, so that nothing is kept in memory for a caller that may not make the call.
        if let Err(why) = self.check(caller, shown, verb) {
            discard(body);
            return Err(why);
        }
        let owner = caller.who.as_ref().map(|who| self.members.owner(who.member));
        let body = self.bodies.read(body, owner, verb.body_limits()).await?;
        answer(self, caller.clone(), verb, body).await
    }

    /// Notes in `caller` which member it is, and refuses one that may not make the call.
    fn check(
        &self,
        caller: &mut CallingMember,
        shown: ShownIdentity,
        verb: Verb,
    ) -> Result<(), Failure> {
        if let Some(certificate) = shown.certificate.filter(|_| verb != Verb::Join) {
            caller.who = Some(self.members.identify(&certificate, self.time.wall_ms())?);
        }
        if let Some(key) = shown.key {
            let now = self.term.moment(&self.time);
            ActingKey::act(caller, &key, verb, &self.access_keys, &self.members, now)?;
        }
        access::check(caller, verb)
    }
}

/// Returns the fault of the first value in a request that is written as a path and is not a valid one.
fn bad_path(request: &serde_json::Value) -> Option<BadPath> {
    use serde_json::Value;
    match request {
        Value::String(text) if text.starts_with(SCHEME) => text.parse::<PoolPath>().err(),
        Value::Array(all) => all.iter().find_map(bad_path),
        Value::Object(fields) => fields.values().find_map(bad_path),
        _ => None,
    }
}

async fn answer_one<C: Call, G: Answer<C>>(
    handles: &Handles,
    caller: CallingMember,
    verb: Verb,
    body: Received,
) -> Result<Vec<u8>, Failure> {
    let reader = match verb.waits() {
        Waits::Throughout | Waits::ReadByRead => ReadFor::Member(caller.number()),
        Waits::AmongOwn => ReadFor::MemberApart(handles.members.owner(caller.number())),
    };
    let (group, offload) = (G::from(&handles.read_by(reader)), handles.env.offload);
    let Received { bytes, claim } = body;
    let call = read::<C>(offload, bytes).await?;
    let only_looks = verb.ends_with_its_caller() || G::only_looks(&call);
    let asker = caller.clone();
    let answering = Box::pin(async move {
        let reply = group.answer(call, asker).await?;
        drop(claim);
        serde_json::to_vec(&reply).map_err(|why| bug(verb, &why.to_string()))
    });
    run(handles, caller, verb, only_looks, C::DEADLINE.saturating_sub(MARGIN), answering).await
}

/// Answers a call in a task of its own, so that a change is not cut short when its caller goes away, and a panic ends
/// the call and not the connection.
async fn run(
    handles: &Handles,
    caller: CallingMember,
    verb: Verb,
    only_looks: bool,
    limit: Duration,
    answering: BoxFuture<'static, Result<Vec<u8>, Failure>>,
) -> Result<Vec<u8>, Failure> {
    let turns = Arc::clone(&handles.call_turns);
    let task = spawn(async move {
        let _turn = match verb.waits() {
            Waits::Throughout => Some(turns.take_for_call(&caller).await?),
            Waits::ReadByRead | Waits::AmongOwn => None,
        };
        answering.await
    });
    // Nobody waits for the answer after the deadline, or when this future is dropped.
    let _ends = only_looks.then(|| EndsTask(task.abort_handle()));
    match tokio::time::timeout(limit, task).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(bug(verb, &panic.to_string())),
        Err(_) => Err(Failure::new(
            ErrorKind::Retry,
            code::NO_MANAGER,
            format!("the manager could not answer “{}” in time", verb.name()),
        )
        .hint("it is busy, or its disk is slow: try again")),
    }
}

/// Ends a task when it is dropped, unless the task is done.
struct EndsTask(tokio::task::AbortHandle);

impl Drop for EndsTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn read<C: Call>(offload: Offload, body: Bytes) -> Result<C, Failure> {
    // A long body is parsed on another thread, so that it does not hold up other calls.
    let long = body.len() > SHORT;
    let parse = move || {
        serde_json::from_slice(&body).map_err(|why| {
            let read = serde_json::from_slice(&body).ok();
            match read.as_ref().and_then(bad_path) {
                Some(path) => Failure::new(ErrorKind::Usage, code::BAD_PATH, path.to_string()),
                None => {
                    let what = format!("the request “{}” cannot be read: {why}", C::NAME);
                    Failure::bad_request(what)
                }
            }
        })
    };
    if long { offload.run(parse).await } else { parse() }
}

fn bug(verb: Verb, why: &str) -> Failure {
    let call = verb.name();
    tracing::error!(call, why, "a call failed");
    Failure::new(ErrorKind::Other, code::CATALOG, format!("the manager failed at “{call}”"))
        .hint("this is a bug: please report it with the manager's log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_with_a_path_that_can_be_none_says_so() {
        let usage = async |body: String| {
            read::<control::Usage>(Offload::Threads, body.into()).await.map(drop)
        };
        let long = format!("pot://lab{}", "/name".repeat(1000));
        let request = serde_json::json!({ "path": long }).to_string();
        let why = usage(request).await.expect_err("too long");
        assert_eq!((why.kind, why.code.as_str()), (ErrorKind::Usage, code::BAD_PATH), "{why}");
        assert!(why.message.contains("at most 4096 fit"), "{why}");
        assert_eq!(usage("{}".into()).await.expect_err("no path").code, code::BAD_REQUEST);
    }
}
