//! Tickets, which say what a bulk connection may do at one donor, and receipts, by which a donor says what it stored.
//!
//! The manager shares a secret with every donor (the donor draws it and sends it when it
//! registers). A ticket is a random id and a chain of caveats, macaroon-style: each caveat is
//! folded into the signature with keyed BLAKE3, so anybody may narrow a ticket and nobody can
//! widen it (Birgisson et al., NDSS 2014). The final signature never travels readably on the bulk plane: it
//! keys the connection ([`crate::bulk`]), the way a Kerberos session key does. So a
//! forged ticket fails at the first frame, whose MAC is wrong.

use crate::packed::PackedRecord;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use potluck_core::chunk::ChunkName;
use potluck_core::entropy::Entropy;
use potluck_core::ids::{DonorId, Incarnation, MemberId, SessionId};
use potluck_core::policy::AckLevel;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The longest time for which a ticket of a manager is good. A member that needs one for longer has it renewed; donors
/// forget this long after the end of a session that it is over. The time is longer than commands wait for a manager
/// that is away, while they go on with the tickets that they have.
pub const TICKET_LIFE: Duration = Duration::from_secs(600);

/// The longest time by which the manager's clock may be ahead of what a donor reckons from the time in its last
/// heartbeat reply: the clock of a manager that is started anew begins minutes later than the last one ended. A ticket
/// that was issued later than this is of a time that a restore has forgotten, with all that happened in it, such as the
/// end of somebody's rights.
pub const CLOCK_SLACK: Duration = Duration::from_secs(600);

/// The time of a ticket that a restore issues: a restore knows no time of the pool, and has the donor's key from the
/// donor itself.
pub const OUT_OF_TIME: u64 = u64::MAX;

/// The longest ticket that a donor reads, in bytes of its text.
pub const MAX_TICKET: usize = 512;
/// The most caveats a donor follows.
const MAX_CAVEATS: usize = 16;

/// 32 secret bytes: a donor's key, or a ticket's signature.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(potluck_core::chunk::Digest);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// Draws a new secret for tickets.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        Self::from_bytes(entropy.bytes())
    }

    /// Makes the secret that consists of these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(potluck_core::chunk::Digest(bytes))
    }

    /// Returns the bytes, to key a hash with or to store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0.0
    }

    fn fold(&self, bytes: &[u8]) -> Self {
        Self::from_bytes(*blake3::keyed_hash(self.as_bytes(), bytes).as_bytes())
    }

    /// Derives a secret for one purpose, from which this one cannot be found.
    fn purpose(&self, label: &str) -> Self {
        self.fold(label.as_bytes())
    }
}

/// The operations that a ticket allows; a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ops(pub u8);

impl Ops {
    /// The bearer may read chunks.
    pub const GET: Self = Self(1);
    /// The bearer may store chunks.
    pub const PUT: Self = Self(2);
    /// The bearer may store chunks of other kinds than data; only managers get such tickets.
    pub const RECORD: Self = Self(4);

    /// Returns whether all of `ops` are in the set.
    pub fn allows(self, ops: Self) -> bool {
        self.0 & ops.0 == ops.0
    }

    /// Returns the operations of both sets together.
    pub fn and(self, ops: Self) -> Self {
        Self(self.0 | ops.0)
    }
}

/// One restriction of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caveat {
    /// The ticket is good only at this donor.
    Donor(DonorId),
    /// The ticket allows these operations only.
    Ops(Ops),
    /// The ticket allows a put while all puts of its session at the donor, whatever tickets they show, stay within
    /// this many stored bytes.
    Bytes(u64),
    /// The ticket is good only until the manager's clock shows this many milliseconds. Donors follow the manager's
    /// clock through their heartbeats, never their own wall clock.
    Expires(u64),
    /// The ticket is for this write session.
    Session(SessionId),
    /// The ticket was issued when the manager's clock showed this many milliseconds.
    Issued(u64),
    /// The ticket was issued to this member, whose share of the donor its requests take.
    Member(MemberId),
    /// This many stored bytes of the session have room reserved at the donor. What it stores beyond them leaves the room
    /// that is promised to other sessions.
    Promised(u64),
}

impl Caveat {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(18);
        let mut put = |kind: u8, value: &[u8]| {
            out.push(kind);
            out.push(value.len() as u8);
            out.extend_from_slice(value);
        };
        match self {
            Self::Donor(donor) => put(1, &donor.0.to_le_bytes()),
            Self::Ops(ops) => put(2, &[ops.0]),
            Self::Bytes(bytes) => put(3, &bytes.to_le_bytes()),
            Self::Expires(at) => put(4, &at.to_le_bytes()),
            Self::Session(session) => put(5, &session.0),
            Self::Issued(at) => put(6, &at.to_le_bytes()),
            Self::Member(member) => put(7, &member.0.to_le_bytes()),
            Self::Promised(bytes) => put(8, &bytes.to_le_bytes()),
        }
        out
    }

    fn decode(kind: u8, value: &[u8]) -> Option<Self> {
        let u64_of = |value: &[u8]| value.try_into().ok().map(u64::from_le_bytes);
        Some(match kind {
            1 => Self::Donor(DonorId(u32::from_le_bytes(value.try_into().ok()?))),
            2 => Self::Ops(Ops(*value.first().filter(|_| value.len() == 1)?)),
            3 => Self::Bytes(u64_of(value)?),
            4 => Self::Expires(u64_of(value)?),
            5 => Self::Session(SessionId(value.try_into().ok()?)),
            6 => Self::Issued(u64_of(value)?),
            7 => Self::Member(MemberId(u32::from_le_bytes(value.try_into().ok()?))),
            8 => Self::Promised(u64_of(value)?),
            _ => return None, // a restriction we cannot check is one we cannot keep
        })
    }
}

/// The manager's word by which donors judge how old a ticket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TicketTime {
    /// The time on the manager's clock, in milliseconds.
    pub now: u64,
    /// The time before which issued tickets are void, because somebody's rights have ended since; 0 where none are.
    pub void_before: u64,
}

/// The rights left to the bearer after all caveats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The operations that are allowed.
    pub ops: Ops,
    /// The number of stored bytes that all puts of the session together may reach at this donor.
    pub bytes: u64,
    /// The stored bytes of the session that have room reserved at this donor.
    pub promised: u64,
    /// The time at which the ticket was issued, in the manager's milliseconds; 0 if the ticket does not say,
    /// [`OUT_OF_TIME`] for one of a restore.
    pub issued: u64,
    /// The time at which the ticket ends, in the manager's milliseconds.
    pub expires: u64,
    /// The write session that the ticket serves, if any.
    pub session: Option<SessionId>,
    /// The member that the ticket was issued to; `None` for the manager itself, and for copies between donors.
    pub member: Option<MemberId>,
    /// The secret that keys the connection.
    pub secret: Secret,
}

/// A ticket and its signature, as the manager hands it to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The public part, which the donor is shown.
    pub public: PublicTicket,
    /// The secret that only the manager, the client and the donor can know, and a donor that is to forward puts. It is
    /// sent under TLS, and in the sealed body of a route.
    pub secret: Secret,
}

/// The part of a ticket that is shown: id and caveats.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicTicket {
    bytes: Vec<u8>,
}

/// The reason why a ticket allows nothing at this donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTicket {
    /// The bytes are not a ticket, or the caveats cannot be followed: too many, unknown ones, two sessions or members,
    /// or none that names a donor.
    #[error("not a ticket of a version this donor knows")]
    Malformed,
    /// The ticket is for another donor.
    #[error("the ticket is for another donor")]
    OtherDonor,
    /// The ticket has ended, or was issued at a time of which no ticket is good ([`Grant::is_good`]).
    #[error("the ticket has expired")]
    Expired,
}

impl Grant {
    /// Returns whether the rights are good at this time: the ticket has not ended, was not issued before the time at
    /// which tickets became void, and was not issued later than [`CLOCK_SLACK`] from now.
    pub fn is_good(&self, time: TicketTime) -> bool {
        let latest = time.now.saturating_add(CLOCK_SLACK.as_millis() as u64);
        let in_time = (time.void_before..=latest).contains(&self.issued);
        time.now < self.expires && (in_time || self.issued == OUT_OF_TIME)
    }
}

impl Ticket {
    /// Issues a ticket under the key shared with one donor.
    pub fn issue(key: &Secret, entropy: &dyn Entropy, caveats: &[Caveat]) -> Self {
        let id: [u8; 16] = entropy.bytes();
        let mut ticket = Self {
            public: PublicTicket { bytes: id.to_vec() },
            secret: key.purpose("potluck 1 ticket").fold(&id),
        };
        caveats.iter().for_each(|caveat| ticket.narrow(caveat));
        ticket
    }

    /// Adds a restriction; needs no key, and cannot be undone.
    pub fn narrow(&mut self, caveat: &Caveat) {
        let bytes = caveat.encode();
        self.secret = self.secret.fold(&bytes);
        self.public.bytes.extend_from_slice(&bytes);
    }
}

impl PublicTicket {
    /// Returns what the ticket grants at donor `me` when the manager's clock shows this `time`.
    ///
    /// A forged ticket is not noticed here: its bearer cannot know the secret this derives, and
    /// fails at the first frame.
    pub fn grant(&self, key: &Secret, me: DonorId, time: TicketTime) -> Result<Grant, BadTicket> {
        let (id, mut rest) = self.bytes.split_at_checked(16).ok_or(BadTicket::Malformed)?;
        let mut issued: Option<u64> = None;
        let mut grant = Grant {
            ops: Ops(u8::MAX),
            bytes: u64::MAX,
            promised: u64::MAX,
            issued: 0,
            expires: u64::MAX,
            session: None,
            member: None,
            secret: key.purpose("potluck 1 ticket").fold(id),
        };
        let mut named_me = false;
        for _ in 0..MAX_CAVEATS {
            let [kind, len, ..] = *rest else { break };
            let (raw, after) =
                rest.split_at_checked(2 + len as usize).ok_or(BadTicket::Malformed)?;
            grant.secret = grant.secret.fold(raw);
            match Caveat::decode(kind, &raw[2..]).ok_or(BadTicket::Malformed)? {
                Caveat::Donor(donor) if donor != me => return Err(BadTicket::OtherDonor),
                Caveat::Donor(_) => named_me = true,
                Caveat::Ops(ops) => grant.ops.0 &= ops.0,
                Caveat::Bytes(bytes) => grant.bytes = grant.bytes.min(bytes),
                Caveat::Promised(bytes) => grant.promised = grant.promised.min(bytes),
                Caveat::Expires(at) => grant.expires = grant.expires.min(at),
                Caveat::Issued(at) => issued = Some(issued.map_or(at, |other| other.min(at))),
                Caveat::Session(session) => match grant.session {
                    Some(other) if other != session => return Err(BadTicket::Malformed),
                    _ => grant.session = Some(session),
                },
                // Nobody has their sessions counted as those of another by a further caveat.
                Caveat::Member(member) => match grant.member {
                    Some(other) if other != member => return Err(BadTicket::Malformed),
                    _ => grant.member = Some(member),
                },
            }
            rest = after;
        }
        if !rest.is_empty() || !named_me {
            return Err(BadTicket::Malformed);
        }
        // A ticket that does not say when it was issued may be of any time, so the earliest counts.
        grant.issued = issued.unwrap_or(0);
        if !grant.is_good(time) {
            return Err(BadTicket::Expired);
        }
        Ok(grant)
    }
}

impl fmt::Display for PublicTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(&self.bytes))
    }
}

impl fmt::Debug for PublicTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicTicket({self})")
    }
}

impl std::str::FromStr for PublicTicket {
    type Err = BadTicket;
    fn from_str(text: &str) -> Result<Self, BadTicket> {
        if text.len() > MAX_TICKET {
            return Err(BadTicket::Malformed);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadTicket::Malformed)?;
        Ok(Self { bytes })
    }
}

impl Serialize for PublicTicket {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicTicket {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A donor's word that it holds a chunk at an ack level, for one session. Only the donor and the
/// manager can make one; a commit takes no client's word for a copy without it.
///
/// It stands for what one incarnation of the donor stored: a machine that lost power after its answer may have lost the
/// chunk as well, so that receipts of earlier incarnations count for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The incarnation of the donor that stored the chunk.
    pub incarnation: Incarnation,
    mac: [u8; 16],
}

impl Receipt {
    /// The number of bytes of a receipt in frames and records.
    pub const SIZE: usize = 24;

    /// Makes the receipt for `len` stored bytes called `name`, which this incarnation of the donor holds.
    pub fn issue(
        key: &Secret,
        incarnation: Incarnation,
        session: &SessionId,
        name: &ChunkName,
        len: u32,
        ack: AckLevel,
    ) -> Self {
        let mut text = Vec::with_capacity(64);
        text.extend_from_slice(&incarnation.0.to_le_bytes());
        text.extend_from_slice(&session.0);
        text.extend_from_slice(&name.0);
        text.extend_from_slice(&len.to_le_bytes());
        text.push(ack as u8);
        let mac = key.purpose("potluck 1 receipt").fold(&text);
        Self { incarnation, mac: mac.as_bytes()[..16].try_into().expect("16 bytes") }
    }

    /// Returns the bytes in which the receipt is sent.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.mac);
        bytes
    }

    /// Reads a receipt from the bytes in which it was sent; does not check who made it.
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let (incarnation, mac) = bytes.split_at(8);
        Self {
            incarnation: Incarnation(u64::from_le_bytes(incarnation.try_into().expect("8 bytes"))),
            mac: mac.try_into().expect("16 bytes"),
        }
    }
}

/// A receipt as a client presents it at commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// The index of the chunk in its file: the data chunks in order, then parity.
    pub chunk: u32,
    /// The donor that holds the chunk.
    pub donor: DonorId,
    /// The ack level that the copy has reached.
    pub ack: AckLevel,
    /// The proof that the donor holds the chunk.
    pub receipt: Receipt,
}

impl PackedRecord for Acknowledged {
    const SIZE: usize = 9 + Receipt::SIZE;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chunk.to_le_bytes());
        out.extend_from_slice(&self.donor.0.to_le_bytes());
        out.push(ack_byte(self.ack));
        out.extend_from_slice(&self.receipt.to_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let u32_at = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        Some(Self {
            chunk: u32_at(0)?,
            donor: DonorId(u32_at(4)?),
            ack: ack_from_byte(*bytes.get(8)?)?,
            receipt: Receipt::from_bytes(bytes.get(9..)?.try_into().ok()?),
        })
    }
}

/// Returns the byte that stands for an ack level in a frame or record.
pub fn ack_byte(ack: AckLevel) -> u8 {
    match ack {
        AckLevel::Memory => 0,
        AckLevel::Disk => 1,
    }
}

/// Returns the ack level that a byte stands for; `None` for an unknown byte.
pub fn ack_from_byte(byte: u8) -> Option<AckLevel> {
    match byte {
        0 => Some(AckLevel::Memory),
        1 => Some(AckLevel::Disk),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::entropy::SeededEntropy;

    fn fixture() -> (Secret, Ticket) {
        let entropy: &dyn Entropy = &SeededEntropy::new(3);
        let key = Secret::generate(entropy);
        let caveats = [
            Caveat::Donor(DonorId(4)),
            Caveat::Ops(Ops::PUT),
            Caveat::Bytes(1000),
            Caveat::Expires(50),
            Caveat::Issued(40),
        ];
        let ticket = Ticket::issue(&key, entropy, &caveats);
        (key, ticket)
    }

    #[test]
    fn a_ticket_grants_what_its_caveats_leave() {
        let (key, mut ticket) = fixture();
        ticket.narrow(&Caveat::Bytes(10));
        let at = |now| TicketTime { now, void_before: 0 };
        let grant = ticket.public.grant(&key, DonorId(4), at(49)).expect("valid");
        assert_eq!((grant.bytes, grant.ops), (10, Ops::PUT));
        assert_eq!(grant.secret, ticket.secret);
        assert_eq!(ticket.public.grant(&key, DonorId(5), at(0)), Err(BadTicket::OtherDonor));
        assert_eq!(ticket.public.grant(&key, DonorId(4), at(50)), Err(BadTicket::Expired));
        assert_eq!(ticket.public.to_string().parse(), Ok(ticket.public));
    }

    #[test]
    fn a_ticket_is_of_one_member_whatever_its_bearer_adds() {
        let (key, mut ticket) = fixture();
        let member = |ticket: &Ticket| {
            let time = TicketTime { now: 45, void_before: 0 };
            ticket.public.grant(&key, DonorId(4), time).map(|grant| grant.member)
        };
        assert_eq!(member(&ticket), Ok(None));
        ticket.narrow(&Caveat::Member(MemberId(7)));
        assert_eq!(member(&ticket), Ok(Some(MemberId(7))));
        ticket.narrow(&Caveat::Member(MemberId(8)));
        assert_eq!(member(&ticket), Err(BadTicket::Malformed));
    }

    #[test]
    fn ticket_is_void_after_a_revocation() {
        let (key, mut ticket) = fixture();
        let at = |void_before| TicketTime { now: 45, void_before };
        assert!(ticket.public.grant(&key, DonorId(4), at(40)).is_ok(), "issued at that moment");
        assert_eq!(ticket.public.grant(&key, DonorId(4), at(41)), Err(BadTicket::Expired));
        ticket.narrow(&Caveat::Issued(43));
        assert_eq!(
            ticket.public.grant(&key, DonorId(4), at(41)),
            Err(BadTicket::Expired),
            "its bearer makes it no younger"
        );
    }

    #[test]
    fn ticket_from_before_a_restore_is_void() {
        let entropy: &dyn Entropy = &SeededEntropy::new(3);
        let key = Secret::generate(entropy);
        let slack = CLOCK_SLACK.as_millis() as u64;
        let granted = |issued, time| {
            let (donor, ops) = (Caveat::Donor(DonorId(4)), Caveat::Ops(Ops::GET));
            let caveats = [donor, ops, Caveat::Expires(u64::MAX), Caveat::Issued(issued)];
            let ticket = Ticket::issue(&key, entropy, &caveats);
            ticket.public.grant(&key, DonorId(4), time).is_ok()
        };
        let time = TicketTime { now: 1000, void_before: 900 };
        assert!(granted(1000 + slack, time), "a manager that was started anew");
        assert!(!granted(1001 + slack, time));
        assert!(granted(OUT_OF_TIME, time), "of a restore");
    }

    #[test]
    fn no_changed_ticket_gives_its_bearer_the_donors_secret() {
        let (key, ticket) = fixture();
        let bytes = ticket.public.bytes.clone();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut forged = bytes.clone();
                forged[at] ^= 1 << bit;
                let forged = PublicTicket { bytes: forged };
                if let Ok(grant) = forged.grant(&key, DonorId(4), TicketTime::default()) {
                    assert_ne!(grant.secret, ticket.secret, "byte {at} bit {bit}");
                }
            }
        }
        for cut in 0..bytes.len() {
            let cut = PublicTicket { bytes: bytes[..cut].to_vec() };
            if let Ok(grant) = cut.grant(&key, DonorId(4), TicketTime::default()) {
                assert_ne!(grant.secret, ticket.secret);
            }
        }
    }

    #[test]
    fn receipt_binds_chunk_level_session_and_incarnation() {
        let (key, _) = fixture();
        let (name, session, life) = (ChunkName::of(b"x"), SessionId([1; 16]), Incarnation(5));
        let of = |life, session, ack| Receipt::issue(&key, life, &session, &name, 1, ack);
        let receipt = of(life, session, AckLevel::Memory);
        assert_ne!(receipt, of(life, session, AckLevel::Disk));
        assert_ne!(receipt, of(life, SessionId([2; 16]), AckLevel::Memory));
        let other = of(Incarnation(6), session, AckLevel::Memory);
        let claimed = Receipt { incarnation: life, ..other };
        assert_ne!(receipt, claimed, "nobody makes a receipt of one incarnation that of another");
        let said = Acknowledged { chunk: 7, donor: DonorId(9), ack: AckLevel::Disk, receipt };
        let mut raw = Vec::new();
        said.write(&mut raw);
        assert_eq!(Acknowledged::read(&raw), Some(said));
    }
}
