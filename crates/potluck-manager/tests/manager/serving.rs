//! A donor that serves bytes.

use crate::lab::Donor;
use potluck_core::chunk::ChunkName;
use potluck_wire::bulk::{BulkStatus, Inbox, Reply, Request, SessionKeys, StreamIo};
use potluck_wire::net::{BoxStream, Net, SystemNet};
use potluck_wire::ticket::{PublicTicket, TicketTime};
use potluck_wire::upgrade::{NONCE_HEADER, TICKET_HEADER};
use potluck_wire::version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const OURS: [u8; 16] = [5; 16];

/// Serves what `bytes` gives for the name of a chunk of one segment to every peer with a ticket of this donor, and
/// returns the port.
pub async fn serve(
    donor: &Donor,
    bytes: impl Fn(&ChunkName) -> Option<Vec<u8>> + Send + 'static,
) -> u16 {
    let mut listener = SystemNet.listen("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (key, me) = (donor.key.clone(), donor.id);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let Some((ticket, nonce)) = shown(&mut stream).await else { continue };
            let grant =
                ticket.grant(&key, me, TicketTime::default()).expect("a ticket for this donor");
            let SessionKeys { client, mut donor } =
                SessionKeys::derive(&grant.secret, &nonce, &OURS);
            let mut inbox = Inbox::new(client, &[]).expect("nothing yet");
            let mut io = StreamIo(stream);
            while let Ok(Some((tag, Request::Get { name, .. }))) = inbox.request(&mut io).await {
                let bytes = bytes(&name);
                let found = bytes.as_ref().map(|bytes| Reply::found(bytes.len() as u32));
                let reply = found.unwrap_or(Reply::bare(BulkStatus::NotFound));
                let (head, bytes) = (reply.encode(tag, &mut donor), bytes.unwrap_or_default());
                let StreamIo(stream) = &mut io;
                let sent = async {
                    stream.write_all(&head).await?;
                    stream.write_all(&bytes).await
                };
                if sent.await.is_err() {
                    break;
                }
            }
        }
    });
    port
}

/// Answers the upgrade, and returns the ticket and the nonce that were shown.
async fn shown(stream: &mut BoxStream) -> Option<(PublicTicket, [u8; 16])> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(text).ok()?;
    let header = |name: &str| {
        let line = |line: &&str| line.to_ascii_lowercase().starts_with(&format!("{name}: "));
        Some(text.lines().find(line)?[name.len() + 2..].to_owned())
    };
    let shown = (
        header(TICKET_HEADER)?.parse().ok()?,
        potluck_core::ids::parse_hex(&header(NONCE_HEADER)?)?,
    );
    let ours: String = OURS.iter().map(|byte| format!("{byte:02x}")).collect();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {}\r\n{NONCE_HEADER}: {ours}\r\n\r\n",
        version::BULK
    );
    stream.write_all(answer.as_bytes()).await.ok()?;
    Some(shown)
}
