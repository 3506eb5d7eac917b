//! Texts that people and machines hand over: tickets, tokens, addresses, paths, parts of policies.

use std::fmt::Display;
use std::str::FromStr;

use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::owner_limits::KeepFree;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Mirror, Race, Width};
use potluck_core::rights::Right;
use potluck_core::size::parse_size;
use potluck_wire::addresses::{Address, Addresses};
use potluck_wire::ticket::{PublicTicket, Secret, TicketTime};
use potluck_wire::token::{JoinToken, Role};

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// What reads is told as a text that reads as the same.
fn reads<T: FromStr + Display>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        let told = read.to_string();
        let again = told.parse::<T>().unwrap_or_else(|_| panic!("{told:?} does not read"));
        assert_eq!(again.to_string(), told);
    }
}

pub fn ticket(bytes: &[u8]) {
    let key = Secret::from_bytes([4; 32]);
    let time = TicketTime { now: 1000, void_before: 10 };
    if let Some(ticket) = text(bytes).and_then(|text| text.parse::<PublicTicket>().ok()) {
        if let Ok(grant) = ticket.grant(&key, DonorId(1), time) {
            assert!(grant.is_good(time) && grant.secret != key);
        }
        let again = ticket.to_string().parse::<PublicTicket>().expect("what was written reads");
        assert_eq!(again, ticket);
    }
}

pub fn token(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    reads::<JoinToken>(text);
    reads::<JoinToken>(&format!("pot1.{text}"));
    reads::<Role>(text);
}

pub fn addresses(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    reads::<Address>(text);
    reads::<Addresses>(text);
    let _ = Address::parse(text, 7700);
}

pub fn path(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    reads::<PoolPath>(text);
    reads::<PoolPath>(&format!("pot://{text}"));
}

pub fn policy(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    reads::<Ec>(text);
    reads::<Width>(text);
    reads::<Race>(text);
    reads::<Mirror>(text);
    reads::<AckLevel>(text);
    reads::<SessionId>(text);
    let _ = (text.parse::<KeepFree>(), text.parse::<Right>(), parse_size(text));
}
