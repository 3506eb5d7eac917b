//! Sealed bodies. A route has the secret of a ticket for another donor: whoever could read it on the wire would have all
//! rights of that ticket. So its body is sealed (AES-256-GCM) under a key of its connection, which follows from the secret
//! of the connection's own ticket, and that is not on the wire.

use super::{FrameError, Inbox, Lane};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// The context of the keys for sealed bodies, which keeps them apart from the lane's key for codes.
const CONTEXT: &str = "potluck 2026-11 sealed body";

impl Lane {
    /// Seals the body of the frame that is encoded next on this lane.
    pub fn seal_body(&self, body: &mut Vec<u8>) {
        let sealed = self.body_key().seal_in_place_append_tag(nonce(self.next), Aad::empty(), body);
        sealed.expect("a body is far below the 64 GiB that GCM can seal");
    }

    fn body_key(&self) -> LessSafeKey {
        let key = blake3::derive_key(CONTEXT, &self.key);
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("32 bytes"))
    }
}

impl Inbox {
    /// Opens the sealed body of the frame that was received last.
    ///
    /// Errors: [`FrameError::Forged`] where the sender of the frame did not seal these bytes for it.
    pub fn open_body<'b>(&self, body: &'b mut [u8]) -> Result<&'b [u8], FrameError> {
        let number = self.lane.next.checked_sub(1).ok_or(FrameError::Forged)?;
        let opened = self.lane.body_key().open_in_place(nonce(number), Aad::empty(), body);
        opened.map(|plain| &*plain).map_err(|_| FrameError::Forged)
    }
}

/// Returns the nonce of a frame's body. A lane's key is that of one direction of one connection, so that no number is
/// used twice under it.
fn nonce(frame: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&frame.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::{Request, SessionKeys, StreamIo};
    use crate::ticket::Secret;
    use std::io;

    /// Receives two routes of a connection, the second with the body that `change` makes of both, and opens that.
    async fn received(change: fn(&[u8], &mut Vec<u8>)) -> Result<Vec<u8>, FrameError> {
        let keys = || SessionKeys::derive(&Secret::from_bytes([7; 32]), &[1; 16], &[2; 16]);
        let (mut lane, mut frames, mut bodies) = (keys().client, Vec::new(), Vec::<Vec<u8>>::new());
        for plain in [b"one", b"two"] {
            let mut body = plain.to_vec();
            lane.seal_body(&mut body);
            assert!(!body.starts_with(plain), "nobody reads it on the way");
            if let Some(first) = bodies.first() {
                change(first, &mut body);
            }
            let route = Request::Route { number: 1, len: body.len() as u32 };
            frames.extend(route.encode(0, &mut lane));
            frames.extend(&body);
            bodies.push(body);
        }
        let mut io = StreamIo(tokio::io::join(io::Cursor::new(frames), tokio::io::sink()));
        let mut inbox = Inbox::new(keys().client, &[])?;
        let mut opened = Vec::new();
        for body in &mut bodies {
            inbox.request(&mut io).await?;
            let mut filled = 0;
            while filled < body.len() {
                filled += inbox.body(&mut io, &mut body[filled..]).await?;
            }
            opened = inbox.open_body(body)?.to_vec();
        }
        Ok(opened)
    }

    #[tokio::test]
    async fn a_sealed_body_opens_in_its_own_frame_and_unchanged_only() {
        assert_eq!(received(|_, _| {}).await.expect("as it was sealed"), b"two");
        let forged = |result| matches!(result, Err(FrameError::Forged));
        assert!(forged(received(|_, second| second[0] ^= 1).await));
        assert!(forged(received(|first, second| second.copy_from_slice(first)).await));
        assert!(forged(received(|_, second| second.truncate(3)).await));
    }
}
