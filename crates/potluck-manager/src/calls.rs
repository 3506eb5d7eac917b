//! The calls: from a request's bytes to its answer. One file a group; each translates its request
//! into operations on the pool and the catalog.

mod commit;
mod copying;
mod donor;
mod find;
mod fsck;
mod gc_freeze;
mod give_back;
mod health;
mod membership;
mod naming;
mod policy;
mod prepare;
mod reading;
mod repair;
mod session;
mod space;
mod status;

pub use donor::reachable;
pub use session::{end as end_session, interrupt as interrupt_session};

use crate::access;
use crate::callers::Caller;
use crate::failure;
use crate::service::Service;
use axum::body::Bytes;
use potluck_core::ids::DonorId;
use potluck_wire::control::{self, Call};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::sync::Arc;
use std::time::Duration;

/// How one kind of call is answered.
///
/// The future runs to its end even when the caller goes away, and may be dropped only with the
/// whole runtime.
trait Answer: Call {
    /// Answers `caller`, who may make this call.
    fn answer(
        self,
        service: Arc<Service>,
        caller: Caller,
    ) -> impl Future<Output = Result<Self::Reply, Failure>> + Send;
}

/// A reply leaves this long before its caller stops waiting for it.
const MARGIN: Duration = Duration::from_millis(500);
/// Bodies longer than this are read where they hold up nobody.
const LONG_BODY: usize = 256 << 10;

macro_rules! calls {
    ($($verb:ident)*) => {
        /// Every call there is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Verb { $(
            #[doc = concat!("[`control::", stringify!($verb), "`]")]
            $verb,
        )* }

        impl Verb {
            /// The call that a path names.
            pub fn named(name: &str) -> Option<Self> {
                $(if name == <control::$verb as Call>::NAME {
                    return Some(Self::$verb);
                })*
                None
            }

            /// Its name in paths.
            pub fn name(self) -> &'static str {
                match self { $(Self::$verb => <control::$verb as Call>::NAME,)* }
            }
        }

        /// Answers a call: JSON in, JSON out.
        pub async fn answer(
            service: &Arc<Service>,
            caller: Caller,
            verb: Verb,
            body: Bytes,
        ) -> Result<Vec<u8>, Failure> {
            access::check(&caller, verb)?;
            let began = service.time.tick();
            let answered = match verb {
                $(Verb::$verb => answer_one::<control::$verb>(service, caller, body).await,)*
            };
            let took = service.time.tick().saturating_sub(began);
            service.metrics.calls.ended(verb.name(), took, answered.is_ok());
            answered
        }
    };
}
calls! {
    Join Invite InvitationList InvitationRemove MemberList Revoke Leave SpaceCreate SpaceRemove SpaceList
    Reserve Offer Grow Renew Commit Abort Open Report Unreached
    List Stat MakeDir Move CopyFiles Remove Usage Status Check PolicySet
    Register Inventory Heartbeat Locate Find
    GcResume ReclaimUnknown
    RepairStatus RepairControl GiveBack GiveBackStatus Departing Away Trust ScrubNow Fsck
}

async fn answer_one<C: Answer>(
    service: &Arc<Service>,
    caller: Caller,
    body: Bytes,
) -> Result<Vec<u8>, Failure> {
    // A task of its own: a caller that goes away leaves nothing half done, and a panic ends the
    // call, not the connection.
    let task = tokio::spawn({
        let service = Arc::clone(service);
        async move {
            let request = read::<C>(&service, body).await?;
            let reply = request.answer(service, caller).await?;
            serde_json::to_vec(&reply).map_err(|why| bug(C::NAME, &why.to_string()))
        }
    });
    match tokio::time::timeout(C::DEADLINE.saturating_sub(MARGIN), task).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(bug(C::NAME, &panic.to_string())),
        Err(_) => Err(Failure::new(
            ErrorKind::Retry,
            code::NO_MANAGER,
            format!("the manager could not answer “{}” in time", C::NAME),
        )
        .hint("it is busy, or its disk is slow: try again")),
    }
}

async fn read<C: Call>(service: &Service, body: Bytes) -> Result<C, Failure> {
    let long = body.len() > LONG_BODY;
    let parse = move || {
        serde_json::from_slice(&body).map_err(|why| {
            failure::bad_request(format!("the request “{}” cannot be read: {why}", C::NAME))
        })
    };
    if long { service.env.offload.run(parse).await } else { parse() }
}

/// The donor that a call is about: a donor's own call is about itself.
fn concerned(
    service: &Service,
    caller: &Caller,
    named: Option<DonorId>,
) -> Result<DonorId, Failure> {
    let who = caller.member()?;
    let own = (who.role == Role::Donor).then_some(DonorId(who.member.0));
    match (own, named) {
        (Some(own), Some(named)) if own != named => {
            let what = format!("donor {own} may not decide about donor {named}");
            Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
                .hint("use the identity of an admin"))
        }
        (own, named) => match own.or(named) {
            Some(donor) if service.pool().knows_donor(donor) => Ok(donor),
            Some(donor) => Err(no_donor(donor)),
            None => Err(failure::bad_request("the request names no donor")),
        },
    }
}

fn no_donor(donor: DonorId) -> Failure {
    let what = format!("the pool has no donor {donor}");
    Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
        .hint("`potluck status` lists the donors")
}

fn bug(call: &str, why: &str) -> Failure {
    tracing::error!(call, why, "a call failed");
    Failure::new(ErrorKind::Other, code::CATALOG, format!("the manager failed at “{call}”"))
        .hint("this is a bug: please report it with the manager's log")
}
