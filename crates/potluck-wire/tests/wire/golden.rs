//! A pool runs mixed versions (PROMISES U1): every shape that was ever released must still be read.
//!
//! `golden/VERSION/NAME.json` holds what that release sent. To record a new release's shapes, run
//! the tests with `POTLUCK_RECORD_GOLDEN=1`; recorded files are never changed afterwards.

use potluck_core::budget::DiskState;
use potluck_core::chunk::{ChunkKind, ChunkName, Digest};
use potluck_core::entropy::{Entropy, SeededEntropy};
use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, Epoch, Incarnation, SessionId, SpaceId, VersionId};
use potluck_core::load::Load;
use potluck_core::path::PoolPath;
use potluck_core::placement::{Plan, Section};
use potluck_core::policy::{AckLevel, Mirror, Override, Policy, Race};
use potluck_core::seal::SpaceKey;
use potluck_wire::control::{
    Beat, Commit, Condition, DonorAccess, FileCommit, GiveBack, Grown, Heartbeat, Holding, Join,
    Locate, Located, Offer, OpenFile, Opened, Order, OrderFault, OrderOutcome, OrderResult,
    PolicySet, Register, Reserve, Reserved, Scrubbed, Shard, Source,
};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::{Acknowledged, Caveat, Ops, Receipt, Secret, Ticket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// The recorded text must be read, and what it says must be what is said today.
fn check<T: Serialize + DeserializeOwned>(name: &str, today: &T) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
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
        domain: None,
    }
}

#[test]
fn u1_messages_of_release_0_1_are_still_read() {
    check(
        "0.1/join.json",
        &Join { secret: Digest([1; 32]), request: Blob(vec![1, 2, 3]), name: "desk".into() },
    );
    check(
        "0.1/reserve.json",
        &Reserve {
            path: path("pot://lab/a"),
            bytes: Some(10),
            policy: Override { copies: Some(2), ..Override::default() },
            condition: Condition::IfVersion(VersionId(4)),
        },
    );
    let section = Section { donors: vec![DonorId(2), DonorId(3)], chunks: 3, bytes: 12 };
    check(
        "0.1/reserved.json",
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
        "0.1/offer.json",
        &Offer { session: SessionId([7; 16]), chunks: Packed(vec![name()]), ack: AckLevel::Disk },
    );
    let said = Acknowledged {
        chunk: 0,
        donor: DonorId(2),
        ack: AckLevel::Disk,
        receipt: Receipt([3; 16]),
    };
    check(
        "0.1/commit.json",
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
        "0.1/opened.json",
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
        "0.1/register.json",
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
            heard_changes: 0,
            disk_fault: None,
        },
    );
    check(
        "0.1/heartbeat.json",
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
            disk_fault: None,
        },
    );
    check(
        "0.1/beat.json",
        &Beat {
            epoch: Epoch(2),
            start: 0,
            changes: 0,
            now_ms: 77,
            register: false,
            orders: vec![
                Order::Delete { chunk: name(), incarnation: Incarnation(8), touches: 3 },
                Order::Verify { chunk: name() },
            ],
            leaving: false,
        },
    );
}

fn source() -> Source {
    let DonorAccess { donor, address, ticket, .. } = access();
    Source { donor, address, ticket: ticket.expect("a ticket") }
}

fn shard() -> Shard {
    Shard { position: 4, chunk: name(), len: 6, from: vec![source()] }
}

#[test]
fn u1_messages_of_release_0_2_are_still_read() {
    let ec = Ec::new(4, 2).expect("a code");
    check(
        "0.2/reserve.json",
        &Reserve {
            path: path("pot://lab/a"),
            bytes: None,
            policy: Override {
                ec: Some(ec),
                mirror: Some(Mirror::ServerAsync),
                race: Some(Race::Extra(2)),
                ..Override::default()
            },
            condition: Condition::Always,
        },
    );
    check(
        "0.2/commit.json",
        &FileCommit {
            path: path("pot://lab/a"),
            size: 5,
            digest: Digest([2; 32]),
            mtime_ms: 1,
            executable: false,
            chunk_size: 1 << 22,
            copies: 1,
            inline: None,
            pages: vec![Blob(vec![1])],
            ec: Some(ec),
            parity: Packed(vec![name(), name()]),
            acknowledged: Packed::default(),
            condition: Condition::Always,
        },
    );
    check(
        "0.2/opened.json",
        &OpenFile {
            path: "f".into(),
            version: VersionId(9),
            size: 5,
            digest: Digest([2; 32]),
            mtime_ms: 0,
            executable: false,
            inline: None,
            pages: vec![Blob(vec![1])],
            holders: vec![vec![DonorId(2)]],
            ec: Some(ec),
            parity: Packed(vec![name()]),
            parity_holders: vec![vec![DonorId(3)]],
            race: Race::Off,
        },
    );
    let disk = DiskState { total: 3, available: 2, lent_used: 1 };
    check(
        "0.2/register.json",
        &Register {
            incarnation: Incarnation(8),
            key: Secret::from_bytes([9; 32]),
            address: "0.0.0.0:1".into(),
            version: "0.2.0".into(),
            disk,
            room: 1,
            label: Some("room-12".into()),
            grace_ms: Some(86_400_000),
            heard: (Epoch(4), 77),
            heard_changes: 0,
            disk_fault: None,
        },
    );
    let result = |order, outcome| OrderResult { order, outcome };
    check(
        "0.2/heartbeat.json",
        &Heartbeat {
            incarnation: Incarnation(8),
            touches: 3,
            load: Load::default(),
            disk,
            room: 1,
            added: Packed::default(),
            removed: Packed::default(),
            spoiled: Packed::default(),
            sound: Packed::default(),
            results: vec![
                result(1, OrderOutcome::Done),
                result(2, OrderOutcome::Encoded { parity: Packed(vec![name()]) }),
                result(3, OrderOutcome::Audited { hash: Digest([1; 32]) }),
                result(
                    4,
                    OrderOutcome::Described {
                        journal: Packed(vec![Holding { name: name(), len: 6 }]),
                        checkpoints: Packed::default(),
                    },
                ),
                result(
                    5,
                    OrderOutcome::Failed { why: OrderFault::SourceWrong, donor: Some(DonorId(2)) },
                ),
            ],
            excess: 9,
            scrub: Scrubbed { done: 1, of: 2, rounds: 3, spoiled: 4, hurried: true },
            disk_fault: None,
        },
    );
    let section = Section { donors: vec![DonorId(2), DonorId(3)], chunks: 3, bytes: 12 };
    check(
        "0.2/grown.json",
        &Grown {
            plan: Plan { sections: vec![section], copies: 2, chunk_size: 4 },
            donors: vec![DonorAccess { domain: Some("room-12".into()), ..access() }],
        },
    );
    check("0.2/locate.json", &Locate { donor: DonorId(2) });
    check("0.2/located.json", &Located { address: Some("10.0.0.2:7701".into()) });
    check(
        "0.2/beat.json",
        &Beat {
            epoch: Epoch(2),
            start: 5,
            changes: 0,
            now_ms: 77,
            register: false,
            leaving: false,
            orders: vec![
                Order::Copy {
                    order: 1,
                    chunk: name(),
                    len: 6,
                    ack: AckLevel::Disk,
                    from: vec![source()],
                    kind: ChunkKind::Journal,
                },
                Order::Rebuild {
                    order: 2,
                    chunk: name(),
                    len: 6,
                    ack: AckLevel::Disk,
                    ec,
                    position: 5,
                    data: 4,
                    shards: vec![shard()],
                    kind: ChunkKind::Data,
                },
                Order::Encode { order: 3, ec, ack: AckLevel::Memory, shards: vec![shard()] },
                Order::Probe { order: 4, chunk: name(), len: 6, from: source() },
                Order::Audit { order: 5, chunk: name(), key: Digest([3; 32]), offset: 1, len: 2 },
                Order::Scrub { order: 6, rate: 1 << 20 },
                Order::Describe { order: 7 },
            ],
        },
    );
    check(
        "0.2/policy-set.json",
        &PolicySet {
            path: path("pot://lab/d"),
            policy: Override { copies: Some(2), ..Override::default() },
            new_files_only: true,
            dry_run: false,
        },
    );
    check(
        "0.2/give-back.json",
        &GiveBack {
            donor: Some(DonorId(2)),
            bytes: Some(5),
            now: true,
            agreed: None,
            dry_run: false,
            cancel: false,
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
