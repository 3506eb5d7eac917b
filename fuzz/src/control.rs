//! Decoders of messages of the control plane, and of what travels in them.

use crate::decoder::Decoder;
use crate::fabrication;
use crate::json::{self, Json};
use potluck_recovery::ca::{Ca, ProvenKey};
use potluck_wire::control::{self as c, Call};
use potluck_wire::error::Failure;
use potluck_wire::identity::new_key_and_request;
use potluck_wire::succession::Succession;
use potluck_wire::whereabouts::{Issue, SignedWhereabouts, Whereabouts};
use std::sync::LazyLock;

pub const DECODERS: [Decoder; 5] = [
    Decoder { name: "control-requests", read: request, seeds: || json::seeds_of_all(REQUESTS) },
    Decoder { name: "control-replies", read: reply, seeds: replies },
    Decoder { name: "whereabouts", read: whereabouts, seeds: signed },
    Decoder { name: "succession", read: succession, seeds: successions },
    Decoder { name: "join-request", read: join_request, seeds: join_requests },
];

macro_rules! messages {
    ($($call:ident)*) => {
        const REQUESTS: &[Json] = &[$(Json::of::<c::$call>()),*];
        const REPLIES: &[Json] =
            &[Json::of::<Failure>(), $(Json::of::<<c::$call as Call>::Reply>()),*];
    };
}
potluck_wire::every_call!(messages);

fn request(bytes: &[u8]) -> bool {
    json::read_one(REQUESTS, bytes)
}

fn reply(bytes: &[u8]) -> bool {
    json::read_one(REPLIES, bytes)
}

/// Makes seeds of all replies. A reply that is read passes over tasks of unknown kinds, so its type does not tell
/// the kinds; a reply is added here for each of them.
fn replies() -> Vec<Vec<u8>> {
    let number = REPLIES.iter().position(Json::is::<c::HeartbeatReply>).expect("a reply");
    let tasks = fabrication::values::<c::Task>().into_iter().map(|task| {
        let reply = c::HeartbeatReply { tasks: vec![task], ..c::HeartbeatReply::default() };
        [vec![number as u8], serde_json::to_vec(&reply).expect("written")].concat()
    });
    json::seeds_of_all(REPLIES).into_iter().chain(tasks).collect()
}

static AUTHORITY: LazyLock<Ca> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory");
    Ca::create(dir.path(), "fuzzed").expect("an authority")
});

/// Reads whereabouts, and checks that only those which the authority signed are believed.
fn whereabouts(bytes: &[u8]) -> bool {
    let Ok(shown) = serde_json::from_slice::<SignedWhereabouts>(bytes) else { return false };
    json::read::<SignedWhereabouts>(bytes);
    assert!(shown.verified(AUTHORITY.certificate()).is_none_or(|said| said == *SAID));
    true
}

static SAID: LazyLock<Whereabouts> = LazyLock::new(|| {
    let addresses = "10.0.0.1:7700".parse().expect("an address");
    Whereabouts { issue: Issue::default(), addresses }
});

fn signed() -> Vec<Vec<u8>> {
    let signed = AUTHORITY.sign_whereabouts(&SAID).expect("signed");
    vec![serde_json::to_vec(&signed).expect("written")]
}

/// Reads what names the next authority, and checks that only what the authority signed is believed.
fn succession(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(named) = text.parse::<Succession>() else { return false };
    assert_eq!(named.to_string().parse(), Ok(named.clone()));
    let next = named.verified(AUTHORITY.certificate());
    assert!(next.is_none_or(|next| next == *NEXT.certificate()));
    true
}

static NEXT: LazyLock<Ca> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory");
    AUTHORITY.make_next(dir.path(), "fuzzed").expect("an authority")
});

fn successions() -> Vec<Vec<u8>> {
    vec![AUTHORITY.name_next(&NEXT).expect("signed").to_string().into()]
}

fn join_request(bytes: &[u8]) -> bool {
    ProvenKey::of_request(bytes).map(|key| key.digest()).is_ok()
}

fn join_requests() -> Vec<Vec<u8>> {
    vec![new_key_and_request().expect("a request").1]
}
