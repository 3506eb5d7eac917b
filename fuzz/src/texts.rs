//! Decoders of texts that people, programs and machines hand over: tickets, tokens, addresses, paths, parts of
//! policies, what programs ask of a mount, and files in which the kernel tells how busy a machine is.

use crate::decoder::Decoder;
use crate::fabrication::values;
use potluck_core::attributes::Permissions;
use potluck_core::chunk::Digest;
use potluck_core::entropy::SystemEntropy;
use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, MemberId, SessionId};
use potluck_core::link_target::LinkTarget;
use potluck_core::load;
use potluck_core::owner_limits::KeepFree;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Cutting, KeptTime, KeptVersions, Mirror, Race, Width};
use potluck_core::rights::Right;
use potluck_core::size::{exact_size, parse_size};
use potluck_mount::WriteProtocol;
use potluck_mount::fuzzing::CheckpointRequest;
use potluck_wire::addresses::{Address, Addresses};
use potluck_wire::ticket::{Caveat, Ops, PublicTicket, Secret, Ticket, TicketTime};
use potluck_wire::token::{JoinToken, Role};
use std::fmt::Display;
use std::str::FromStr;

pub const DECODERS: [Decoder; 7] = [
    Decoder {
        name: "ticket",
        read: ticket,
        seeds: || vec![issued_ticket().public.to_string().into()],
    },
    Decoder {
        name: "token",
        read: token,
        seeds: || {
            let tokens = values::<JoinToken>().into_iter().map(|token| token.to_string().into());
            tokens.chain(of(&["donor", "user", "admin"])).collect()
        },
    },
    Decoder {
        name: "addresses",
        read: addresses,
        seeds: || of(&["127.0.0.1:7700", "[::1]:7701", "host.lab:7700,10.0.0.1:7700", "10.0.0.1"]),
    },
    Decoder {
        name: "path",
        read: path,
        seeds: || of(&["pot://lab/a/b c/d", "lab/ä", "pot://lab", "pot://", "../a"]),
    },
    Decoder {
        name: "policy-text",
        read: policy,
        seeds: || {
            let numbers = of(&[&"1".repeat(32), &"1".repeat(64), "1.5 TB"]);
            POLICIES.split(' ').map(Into::into).chain(numbers).collect()
        },
    },
    Decoder {
        name: "mount-request",
        read: mount_request,
        seeds: || {
            of(&["begin", "begin a", "commit", "abort", &format!("join {} a", "1".repeat(32))])
        },
    },
    Decoder { name: "load", read: load_of_machine, seeds: || of(LOADS) },
];

/// Parts of policies and of owners' limits, of each kind.
const POLICIES: &str =
    "4+2 auto 16 memory client-async 10% 5GiB 30d 12h none 5 content fixed 0644 write off";

/// Files in which the kernel tells a machine's load, one of each (proc(5)).
const LOADS: &[&str] = &[
    "cpu  1 2 3 4 5 6 7 8 0 0\nprocs_blocked 3\n",
    "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00\n",
    "0.52 0.58 0.59 1/797 12345\n",
    "MemTotal: 100 kB\nMemAvailable: 50 kB\n",
    "8 0 sda 1 0 2 3 4 5 6 7 0 9 10\n8 1 sda1 1 0 2 3 4 5 6 7 0 9 10\n",
    "Inter-| Receive\neth0: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n",
];

fn of(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Reads a text, and checks that the value is written as a text that reads as the same value; false if it is
/// refused.
fn reads<T: FromStr + Display>(text: &str) -> bool {
    let Ok(read) = text.parse::<T>() else { return false };
    let told = read.to_string();
    let again = told.parse::<T>().unwrap_or_else(|_| panic!("{told:?} does not read"));
    assert_eq!(again.to_string(), told);
    true
}

pub fn issued_ticket() -> Ticket {
    let caveats = [
        Caveat::Donor(DonorId(1)),
        Caveat::Ops(Ops::PUT),
        Caveat::Bytes(1000),
        Caveat::Session(SessionId([1; 16])),
        Caveat::Expires(5000),
        Caveat::Issued(40),
        Caveat::Member(MemberId(7)),
    ];
    Ticket::issue(&Secret::from_bytes([4; 32]), &SystemEntropy, &caveats)
}

fn ticket(bytes: &[u8]) -> bool {
    let (key, time) = (Secret::from_bytes([4; 32]), TicketTime { now: 1000, void_before: 10 });
    let Some(ticket) = text(bytes).and_then(|text| text.parse::<PublicTicket>().ok()) else {
        return false;
    };
    if let Ok(grant) = ticket.grant(&key, DonorId(1), time) {
        assert!(grant.is_good(time) && grant.secret != key);
    }
    let again = ticket.to_string().parse::<PublicTicket>().expect("what was written reads");
    assert_eq!(again, ticket);
    true
}

fn token(bytes: &[u8]) -> bool {
    let Some(text) = text(bytes) else { return false };
    reads::<JoinToken>(text) | reads::<JoinToken>(&format!("pot1.{text}")) | reads::<Role>(text)
}

fn addresses(bytes: &[u8]) -> bool {
    let Some(text) = text(bytes) else { return false };
    reads::<Address>(text) | reads::<Addresses>(text) | Address::parse(text, 7700).is_ok()
}

fn path(bytes: &[u8]) -> bool {
    let Some(text) = text(bytes) else { return false };
    reads::<PoolPath>(text)
        | reads::<PoolPath>(&format!("pot://{text}"))
        | LinkTarget::try_from(text.to_owned()).is_ok()
}

fn policy(bytes: &[u8]) -> bool {
    let Some(text) = text(bytes) else { return false };
    let size = parse_size(text).inspect(|bytes| {
        assert_eq!(parse_size(&exact_size(*bytes)).as_ref(), Ok(bytes));
    });
    reads::<Ec>(text)
        | reads::<Width>(text)
        | reads::<Race>(text)
        | reads::<Mirror>(text)
        | reads::<AckLevel>(text)
        | reads::<Cutting>(text)
        | reads::<KeptTime>(text)
        | reads::<KeptVersions>(text)
        | reads::<KeepFree>(text)
        | reads::<Right>(text)
        | reads::<Permissions>(text)
        | reads::<SessionId>(text)
        | reads::<Digest>(text)
        | size.is_ok()
}

/// Reads values of extended attributes that programs set, and names of write protocols.
fn mount_request(bytes: &[u8]) -> bool {
    let Some(text) = text(bytes) else { return false };
    reads::<WriteProtocol>(text) | text.parse::<CheckpointRequest>().is_ok()
}

fn load_of_machine(bytes: &[u8]) -> bool {
    let Some(text) = text(bytes) else { return false };
    load::CpuTimes::parse(text).is_some()
        | load::parse_psi(text).is_some()
        | load::parse_load1(text).is_some()
        | load::parse_procs_blocked(text).is_some()
        | load::parse_meminfo(text).is_some()
        | !load::parse_diskstats(text).is_empty()
        | !load::parse_net_dev(text).is_empty()
}
