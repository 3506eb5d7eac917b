//! Messages of the control plane, and what travels in them.

use std::sync::OnceLock;

use potluck_recovery::ca::{Ca, ProvenKey};
use potluck_wire::control as c;
use potluck_wire::whereabouts::SignedWhereabouts;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What reads is written as something that reads as the same.
fn reads<T: Serialize + DeserializeOwned>(json: &[u8]) {
    if let Ok(read) = serde_json::from_slice::<T>(json) {
        let told = serde_json::to_vec(&read).expect("what was read is written");
        let again: T = serde_json::from_slice(&told).expect("what was written is read");
        assert_eq!(serde_json::to_vec(&again).expect("written"), told);
    }
}

/// The first byte says which message the others are.
macro_rules! one_of {
    ($bytes:ident: $($message:ty),* $(,)?) => {{
        const READERS: &[fn(&[u8])] = &[$(reads::<$message>),*];
        if let Some((which, json)) = $bytes.split_first() {
            READERS[usize::from(*which) % READERS.len()](json);
        }
    }};
}

pub fn of_users(bytes: &[u8]) {
    one_of!(bytes: c::Reserve, c::Offer, c::Grow, c::Renew, c::Commit, c::Abort, c::Open, c::Report,
        c::Unreached, c::List, c::Stat, c::Usage, c::MakeDir, c::Move, c::CopyFiles, c::Remove, c::SpaceCreate,
        c::SpaceGrant, c::PolicySet, c::QuotaSet, c::GroupChange, c::AuditRead, c::Fsck, c::GiveBack, c::Revoke,
        c::Join, c::Invite, c::Find, c::Away, c::OpenPart, c::LostParts, c::SetAttributes,
        c::MakeLinks, c::RenewLeases, c::Watch, c::Refresh, c::CheckpointBegin, c::CheckpointCommit,
        c::CheckpointAbort, c::CheckpointList);
}

pub fn of_donors(bytes: &[u8]) {
    one_of!(bytes: c::Register, c::Inventory, c::Heartbeat, c::Locate);
}

pub fn replies(bytes: &[u8]) {
    one_of!(bytes: c::HeartbeatReply, c::Registered, c::Reserved, c::Offered, c::Grown, c::Renewed,
        c::Committed, c::Opened, c::Listing, c::Stated, c::Used, c::Joined, c::Found, c::PoolStatus, c::Source,
        c::CopiedFiles, c::FsckReport, c::CommittedParts, c::MadeLinks, c::WatchNews,
        c::Refreshed, c::CheckpointBegun, c::CheckpointCommitted, c::Checkpoints);
}

fn ca() -> &'static Ca {
    static CA: OnceLock<Ca> = OnceLock::new();
    CA.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("potluck-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let ca = Ca::create(&dir, "fuzzed").expect("an authority");
        std::fs::remove_dir_all(&dir).expect("removed");
        ca
    })
}

pub fn whereabouts(bytes: &[u8]) {
    reads::<SignedWhereabouts>(bytes);
    if let Ok(shown) = serde_json::from_slice::<SignedWhereabouts>(bytes) {
        assert!(shown.verified(ca().certificate()).is_none(), "nobody signed this");
    }
}

pub fn join_request(bytes: &[u8]) {
    let _ = ProvenKey::of_request(bytes).map(|key| key.digest());
}
