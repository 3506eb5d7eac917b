//! A pool runs mixed versions (PROMISES U1): every shape that was ever released must still be read.
//!
//! `golden/VERSION/NAME.json` holds what that release sent. To record a new release's shapes, run
//! the tests with `POTLUCK_RECORD_GOLDEN=1`; recorded files are never changed afterwards.

use potluck_core::budget::DiskState;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::entropy::{Entropy, SeededEntropy};
use potluck_core::ids::{DonorId, Epoch, Incarnation, SessionId, SpaceId, VersionId};
use potluck_core::load::Load;
use potluck_core::path::PoolPath;
use potluck_core::placement::{Plan, Section};
use potluck_core::policy::{AckLevel, Override, Policy};
use potluck_core::seal::SpaceKey;
use potluck_wire::control::{
    Beat, Commit, Condition, DonorAccess, FileCommit, Heartbeat, Holding, Join, Offer, OpenFile,
    Opened, Order, Register, Reserve, Reserved,
};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::{Acknowledged, Caveat, Ops, Receipt, Secret, Ticket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// The recorded text must be read, and what it says must be what is said today.
fn check<T: Serialize + DeserializeOwned>(name: &str, today: &T) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/0.1").join(name);
    let text = serde_json::to_string_pretty(today).expect("serializable") + "\n";
    if std::env::var_os("POTLUCK_RECORD_GOLDEN").is_some() {
        std::fs::write(&file, &text).expect("recordable");
    }
    let recorded =
        std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let read: T = serde_json::from_str(&recorded).expect("a released shape is still read");
    let read = serde_json::to_value(&read).expect("serializable");
    assert_eq!(read, serde_json::to_value(today).expect("serializable"), "{name}");
    // Fields that this release does not know are ignored.
    let mut newer: serde_json::Value = serde_json::from_str(&recorded).expect("JSON");
    newer["of_a_newer_release"] = true.into();
    serde_json::from_value::<T>(newer).expect("unknown fields are ignored");
}

fn path(text: &str) -> PoolPath {
    text.parse().expect("a pool path")
}

fn name() -> ChunkName {
    ChunkName::of(b"golden")
}

fn access() -> DonorAccess {
    let entropy: &dyn Entropy = &SeededEntropy::new(1);
    let caveats = [
        Caveat::Donor(DonorId(2)),
        Caveat::Ops(Ops::PUT),
        Caveat::Bytes(1 << 20),
        Caveat::Expires(60_000),
        Caveat::Session(SessionId([7; 16])),
    ];
    DonorAccess {
        donor: DonorId(2),
        name: "desk-2".into(),
        address: "10.0.0.2:7701".into(),
        live: true,
        load: 0.5,
        ticket: Some(Ticket::issue(&Secret::from_bytes([9; 32]), entropy, &caveats)),
    }
}

#[test]
fn u1_messages_of_release_0_1_are_still_read() {
    check(
        "join.json",
        &Join { secret: Digest([1; 32]), request: Blob(vec![1, 2, 3]), name: "desk".into() },
    );
    check(
        "reserve.json",
        &Reserve {
            path: path("pot://lab/a"),
            bytes: Some(10),
            policy: Override { copies: Some(2), ..Override::default() },
            condition: Condition::IfVersion(VersionId(4)),
        },
    );
    let section = Section { donors: vec![DonorId(2), DonorId(3)], chunks: 3, bytes: 12 };
    check(
        "reserved.json",
        &Reserved {
            session: SessionId([7; 16]),
            lease_ms: 30_000,
            policy: Policy::default(),
            space: SpaceId(1),
            space_key: Some(SpaceKey::from_bytes([5; 32])),
            plan: Plan { sections: vec![section], copies: 2, chunk_size: 4 },
            donors: vec![access()],
        },
    );
    check(
        "offer.json",
        &Offer { session: SessionId([7; 16]), chunks: Packed(vec![name()]), ack: AckLevel::Disk },
    );
    let said = Acknowledged {
        chunk: 0,
        donor: DonorId(2),
        ack: AckLevel::Disk,
        receipt: Receipt([3; 16]),
    };
    check(
        "commit.json",
        &Commit {
            session: SessionId([7; 16]),
            batch: 1,
            files: vec![FileCommit {
                path: path("pot://lab/a"),
                size: 5,
                digest: Digest([2; 32]),
                mtime_ms: 1_700_000_000_000,
                executable: true,
                chunk_size: 1 << 22,
                copies: 2,
                inline: None,
                pages: vec![Blob(vec![1])],
                ec: None,
                parity: Packed::default(),
                acknowledged: Packed(vec![said]),
                condition: Condition::IfAbsent,
            }],
            done: true,
        },
    );
    check(
        "opened.json",
        &Opened {
            dirs: vec!["d".into()],
            files: vec![OpenFile {
                path: "d/f".into(),
                version: VersionId(9),
                size: 5,
                digest: Digest([2; 32]),
                mtime_ms: 0,
                executable: false,
                inline: Some(Blob(b"hello".to_vec())),
                pages: vec![],
                holders: vec![vec![DonorId(2)]],
                ec: None,
                parity: Packed::default(),
                parity_holders: vec![],
                race: Default::default(),
            }],
            donors: vec![access()],
            space_key: None,
            next: Some("more".into()),
        },
    );
    let disk = DiskState { total: 3, available: 2, lent_used: 1 };
    check(
        "register.json",
        &Register {
            incarnation: Incarnation(8),
            key: Secret::from_bytes([9; 32]),
            address: "0.0.0.0:1".into(),
            version: "0.1.0".into(),
            disk,
            room: 1,
            label: None,
            grace_ms: None,
            heard: Default::default(),
        },
    );
    check(
        "heartbeat.json",
        &Heartbeat {
            incarnation: Incarnation(8),
            touches: 3,
            load: Load::default(),
            disk,
            room: 1,
            added: Packed(vec![Holding { name: name(), len: 6 }]),
            removed: Packed(vec![name()]),
            spoiled: Packed(vec![]),
            sound: Packed(vec![]),
            results: vec![],
            excess: 0,
            scrub: Default::default(),
        },
    );
    check(
        "beat.json",
        &Beat {
            epoch: Epoch(2),
            start: 0,
            now_ms: 77,
            register: false,
            orders: vec![
                Order::Delete { chunk: name(), incarnation: Incarnation(8), touches: 3 },
                Order::Verify { chunk: name() },
            ],
        },
    );
}

#[test]
fn u1_orders_of_newer_releases_are_ignored() {
    let orders = format!(
        r#"["dance", {{"sing": {{"loud": true}}}}, {{"verify": {{"chunk": "{}"}}}}]"#,
        name()
    );
    let beat = format!(r#"{{"epoch": 1, "now_ms": 2, "orders": {orders}}}"#);
    let beat: Beat = serde_json::from_str(&beat).expect("read");
    assert_eq!(beat.orders, [Order::Verify { chunk: name() }]);
}
