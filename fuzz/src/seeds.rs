//! What encoders make: the bytes that mutation begins with.

use std::fs;
use std::io;
use std::path::Path;

use potluck_core::attributes::{FileTime, Permissions};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::chunk::{ChunkKind, ChunkName, Digest};
use potluck_core::entropy::SystemEntropy;
use potluck_core::entry_stamp::EntryStamp;
use potluck_core::ids::{DonorId, Incarnation, SessionId, WatchId};
use potluck_core::policy::{AckLevel, Override};
use potluck_core::recipe::{self, Entry};
use potluck_wire::bulk::{ChunkPart, Forward, Reply, Request};
use potluck_wire::control as c;
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::{Acknowledged, Caveat, Ops, Receipt, Secret, Ticket};
use serde::Serialize;

const MAC: usize = 16;

/// Writes seeds for the decoder `name` to `dir`.
pub fn write(name: &str, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (number, seed) in of(name).iter().enumerate() {
        fs::write(dir.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

fn of(name: &str) -> Vec<Vec<u8>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    match name {
        "frame-request" => {
            requests().iter().map(|frame| frame[..frame.len() - MAC].to_vec()).collect()
        }
        "frame-unsigned" => requests(),
        "frame-reply" => {
            replies().iter().map(|frame| frame[..frame.len() - MAC].to_vec()).collect()
        }
        "ticket" => vec![ticket().public.to_string().into_bytes()],
        "token" => texts(&["pot1.eyJtIjoiMTI3LjAuMC4xOjc3MDAifQ", "donor", "user", "admin"]),
        "addresses" => {
            texts(&["127.0.0.1:7700", "[::1]:7701", "host.lab:7700,10.0.0.1:7700", "fe80::1%eth0"])
        }
        "path" => texts(&["pot://lab/a/b c/d", "lab/ä", "pot://lab", "pot://"]),
        "policy-text" => texts(&[
            "4+2",
            "auto",
            "16",
            "memory",
            "client-async",
            "10%",
            "5GiB",
            "00000000000000000000000000000001",
        ]),
        "control-of-users" => users(),
        "control-of-donors" => donors(),
        "control-replies" => {
            vec![at(0, &c::HeartbeatReply::default()), at(7, &c::Opened::default())]
        }
        "whereabouts" => texts(&[r#"{"said":"AAAA","signature":"AAAA"}"#]),
        "join-request" => vec![potluck_wire::identity::new_key_and_request().expect("a request").1],
        "recipe-page" => pages(),
        "sealed" => vec![vec![0; 100]],
        "segment-proof" => vec![vec![0; 16 + 5 * 32]],
        "log-block" => texts(&["{\"sequence\":1}\n{\"space_removed\":{\"name\":\"lab\"}}\n"]),
        "donor-files" => vec![trailer(), b"{\"donor\":1}".to_vec()],
        _ => Vec::new(),
    }
}

fn at(which: u8, message: &impl Serialize) -> Vec<u8> {
    [&[which][..], &serde_json::to_vec(message).expect("written")].concat()
}

fn requests() -> Vec<Vec<u8>> {
    let name = ChunkName([5; 32]);
    let forward = Forward::to(&[7, 0, 255], false).expect("few routes");
    let part = ChunkPart { offset: 1 << 20, len: 70_000, proven: true };
    [
        Request::put(name, AckLevel::Disk, 4),
        Request::Put { name, ack: AckLevel::Memory, len: 9, kind: ChunkKind::Log, forward },
        Request::Route { number: 200, len: 300 },
        Request::Get { name, part: None },
        Request::Get { name, part: Some(part) },
    ]
    .map(|request| request.encode(3, &mut crate::frames::keys().client))
    .into()
}

fn replies() -> Vec<Vec<u8>> {
    [Reply::found(100), Reply::stored(AckLevel::Disk, Receipt([3; 16]))]
        .map(|reply| reply.encode(3, &mut crate::frames::keys().donor))
        .into()
}

fn ticket() -> Ticket {
    let caveats = [
        Caveat::Donor(DonorId(1)),
        Caveat::Ops(Ops::PUT),
        Caveat::Bytes(1000),
        Caveat::Session(SessionId([1; 16])),
        Caveat::Expires(5000),
        Caveat::Issued(40),
    ];
    Ticket::issue(&Secret::from_bytes([4; 32]), &SystemEntropy, &caveats)
}

fn pages() -> Vec<Vec<u8>> {
    let entry =
        |sealed| Entry { name: ChunkName([1; 32]), digest: Digest([1; 32]), len: 4096, sealed };
    [false, true]
        .map(|sealed| {
            let page =
                recipe::pack(&Digest([3; 32]), &[entry(sealed), entry(sealed)]).swap_remove(0);
            page[..page.len() - MAC].to_vec()
        })
        .into()
}

fn users() -> Vec<Vec<u8>> {
    let path = || "pot://lab/a".parse().expect("a path");
    let session = SessionId([1; 16]);
    let (policy, condition) = (Override::default(), c::Condition::Always);
    let stamp = Some(EntryStamp::NOTHING);
    let names = vec![c::KnownName { name: "a".into(), stamp }];
    let known = c::KnownDir { names, whole: true, ..c::KnownDir::new(path()) };
    let receipt = Receipt([2; 16]);
    let acknowledged = Acknowledged { chunk: 0, donor: DonorId(1), ack: AckLevel::Disk, receipt };
    let file = c::FileCommit {
        path: path(),
        size: 5000,
        digest: Digest([3; 32]),
        mtime: FileTime::of_ms(0),
        permissions: Permissions::FILE,
        chunk_size: 1 << 22,
        copies: 1,
        inline: None,
        pages: vec![Blob(vec![1, 2, 3])],
        ec: None,
        parity: Packed::default(),
        acknowledged: Packed(vec![acknowledged]),
        condition,
        in_parts: Some(c::InParts::Part { file: 1, number: 2 }),
    };
    let chunks = Packed(vec![ChunkName([1; 32])]);
    vec![
        at(0, &c::Reserve { path: path(), bytes: Some(1), policy, condition }),
        at(1, &c::Offer { session, chunks, ack: AckLevel::Disk }),
        at(
            2,
            &c::Grow {
                session,
                bytes: 1,
                holders: Vec::new(),
                avoid: vec![DonorId(1)],
                whole: false,
                file: Some(c::GrowingFile { path: path(), bytes: 1 }),
            },
        ),
        at(4, &c::Commit { session, batch: 0, files: vec![file], done: true }),
        at(6, &c::Open { path: path(), recursive: true, after: Some("a/b".into()), leased: true }),
        at(9, &c::List { path: path(), recursive: true, after: Some("a/b".into()) }),
        at(
            36,
            &c::CheckpointBegin {
                id: CheckpointId([1; 16]),
                target: path(),
                style: CommitStyle::Replace,
            },
        ),
        at(34, &c::Watch { stream: Some(WatchId([1; 16])), heard: 1 }),
        at(35, &c::Refresh { watch: None, dirs: vec![known] }),
    ]
}

fn donors() -> Vec<Vec<u8>> {
    let holding = c::Holding { name: ChunkName([1; 32]), len: 100 };
    let (incarnation, holdings) = (Incarnation(1), Packed(vec![holding]));
    vec![
        at(1, &c::Inventory { incarnation, page: 0, holdings, last: true }),
        at(3, &c::Locate { donor: DonorId(1) }),
        [&[2][..], br#"{"incarnation":1,"write_sequence":1,"load":{},"disk":{"total":1,"free":1},"room":1,"results":[{"task":1,"outcome":"done"}]}"#].concat(),
    ]
}

fn trailer() -> Vec<u8> {
    let mut front = b"POTCHUNK".to_vec();
    front.extend_from_slice(&[2, 0, 0, 0]);
    front.extend_from_slice(&1000_u32.to_le_bytes());
    front.resize(56, 1);
    front
}
