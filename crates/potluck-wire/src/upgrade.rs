//! The opening of a bulk connection: `GET /bulk` with `Upgrade: potluck-bulk/1` on a donor's HTTP port.
//!
//! The client shows its ticket and a nonce, the donor answers 101 with a nonce of its own, and
//! both derive the connection's keys ([`crate::bulk::SessionKeys`]). Nothing secret is sent.

use crate::addresses::{Address, Addresses};
use crate::bulk::{FrameError, Inbox, SessionKeys, StreamIo};
use crate::env;
use crate::net::{BoxStream, Net};
use crate::race::{NoneReached, first_of};
use crate::ticket::Ticket;
use crate::version;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use potluck_core::entropy::Entropy;
use potluck_core::ids::parse_hex;
use std::io;
use std::time::Duration;

/// The path of the upgrade.
pub const PATH: &str = "/bulk";
/// The name of the header that carries the public part of the ticket.
pub const TICKET_HEADER: &str = "potluck-ticket";
/// The name of the header that carries a nonce, 16 bytes of hex, in both directions.
pub const NONCE_HEADER: &str = "potluck-nonce";
/// The longest time that the upgrade may take at one address.
pub const UPGRADE_DEADLINE: Duration = Duration::from_secs(5);

/// The reason why no bulk connection could be opened.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The donor cannot be reached.
    #[error("cannot reach the donor: {0}")]
    Io(#[from] io::Error),
    /// The donor refused the ticket or does not speak this protocol.
    #[error("the donor refused the connection: HTTP {0}")]
    Refused(StatusCode),
    /// The program that answered is not a donor, or the connection broke before it had answered.
    #[error("what answers there is not a donor: {0}")]
    NotADonor(String),
}

impl UpgradeError {
    /// Puts the failures of a donor that was tried at several addresses into one: a refusal says more than no answer
    /// at another address.
    fn of(unreached: NoneReached<Self>) -> Self {
        let NoneReached(mut failed) = unreached;
        let refused = failed.iter().position(|(_, why)| matches!(why, Self::Refused(_)));
        if let Some(at) = refused.or((failed.len() == 1).then_some(0)) {
            return failed.swap_remove(at).1;
        }
        let text = |why| match why {
            Self::Io(why) => why.to_string(),
            other => other.to_string(),
        };
        let failed = failed.into_iter().map(|(address, why)| (address, text(why))).collect();
        let kind = io::ErrorKind::NotConnected;
        Self::Io(io::Error::new(kind, NoneReached::<String>(failed).to_string()))
    }
}

/// Writes a nonce as a header's value.
pub fn nonce_value(nonce: &[u8; 16]) -> HeaderValue {
    let hex: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&hex).expect("hex is a valid header value")
}

/// Reads the nonce of a request or response; `None` if it has no valid one.
pub fn nonce_of(headers: &HeaderMap) -> Option<[u8; 16]> {
    parse_hex(headers.get(NONCE_HEADER)?.to_str().ok()?)
}

/// An open bulk connection as the client holds it.
pub struct OpenedBulk {
    /// The stream that the frames cross.
    pub io: StreamIo<BoxStream>,
    /// Receives the donor's answers.
    pub inbox: Inbox,
    /// The lane that signs requests.
    pub lane: crate::bulk::Lane,
}

/// Connects to the donor at one of its `addresses` and upgrades to bulk under `ticket`. Any other donor that answers
/// there refuses the ticket.
pub async fn open(
    net: &dyn Net,
    entropy: &dyn Entropy,
    addresses: &Addresses,
    ticket: &Ticket,
) -> Result<OpenedBulk, UpgradeError> {
    let reached = first_of(addresses, |address| open_at(net, entropy, address, ticket)).await;
    reached.map(|(_, opened)| opened).map_err(UpgradeError::of)
}

/// Connects to the donor at one address and upgrades to bulk under `ticket`.
pub async fn open_at(
    net: &dyn Net,
    entropy: &dyn Entropy,
    address: Address,
    ticket: &Ticket,
) -> Result<OpenedBulk, UpgradeError> {
    let opening = open_stream(net, entropy, address.as_str(), ticket);
    match tokio::time::timeout(UPGRADE_DEADLINE, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer").into()),
    }
}

async fn open_stream(
    net: &dyn Net,
    entropy: &dyn Entropy,
    address: &str,
    ticket: &Ticket,
) -> Result<OpenedBulk, UpgradeError> {
    let not_a_donor = |why: hyper::Error| UpgradeError::NotADonor(why.to_string());
    let stream = net.connect(address).await?;
    let nonce: [u8; 16] = entropy.bytes();
    let request = Request::get(PATH)
        .header(header::HOST, address)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, version::BULK)
        .header(TICKET_HEADER, ticket.public.to_string())
        .header(NONCE_HEADER, nonce_value(&nonce))
        .body(Empty::<bytes::Bytes>::new())
        .map_err(|why| UpgradeError::NotADonor(why.to_string()))?;

    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(not_a_donor)?;
    let driving = env::spawn(connection.with_upgrades());
    let response = sender.send_request(request).await.map_err(not_a_donor)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        driving.abort();
        return Err(UpgradeError::Refused(response.status()));
    }
    let donor_nonce = nonce_of(response.headers())
        .ok_or_else(|| UpgradeError::NotADonor("no nonce in the answer".into()))?;
    let upgraded = hyper::upgrade::on(response).await.map_err(not_a_donor)?;
    let parts = upgraded
        .downcast::<TokioIo<BoxStream>>()
        .map_err(|_| UpgradeError::NotADonor("the stream changed its type".into()))?;

    let keys = SessionKeys::derive(&ticket.secret, &nonce, &donor_nonce);
    let inbox = Inbox::new(keys.donor, &parts.read_buf)
        .map_err(|why: FrameError| UpgradeError::NotADonor(why.to_string()))?;
    Ok(OpenedBulk { io: StreamIo(parts.io.into_inner()), inbox, lane: keys.client })
}
