//! Only certificates of the pool's own CA are accepted (promise X5).

use potluck_core::chunk::Digest;
use potluck_wire::identity::{fingerprint, new_key_and_request};
use potluck_wire::net::{BoxStream, Detached, Stream};
use potluck_wire::tls::{Admit, Dial, MANAGER_NAME, TlsAdmit, TlsDial, install_provider};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// A stream in memory.
struct Pipe(DuplexStream);

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, out)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Stream for Pipe {
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        Ok(Detached::Stream(self))
    }
}

fn manager() -> (TlsAdmit, Digest) {
    install_provider();
    let ca_key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).expect("a CA");
    let issuer = rcgen::Issuer::from_params(&params, &ca_key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let leaf = rcgen::CertificateParams::new([MANAGER_NAME.to_string()]).expect("a name");
    let leaf = leaf.signed_by(&key, &issuer).expect("signed");
    let chain = vec![leaf.der().clone(), ca.der().clone()];
    let key = key.serialize_der().try_into().expect("a key");
    let admit = TlsAdmit::new(&[ca.der().clone()], chain, key);
    (admit.expect("usable"), fingerprint(ca.der()))
}

async fn meet(
    dial: &dyn Dial,
    admit: &dyn Admit,
) -> (io::Result<BoxStream>, Option<Option<Digest>>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (dialled, admitted) =
        tokio::join!(dial.secure(Box::new(Pipe(near))), admit.admit(Box::new(Pipe(far))));
    (dialled, admitted.ok().map(|(_, member)| member))
}

#[tokio::test]
async fn a_joiner_meets_only_the_pool_that_its_token_pins_x5() {
    let (admit, pin) = manager();
    let (dialled, member) = meet(&TlsDial::joining(pin), &admit).await;
    dialled.expect("the pinned pool");
    assert_eq!(member, Some(None), "a joiner is nobody yet");

    let (dialled, _) = meet(&TlsDial::joining(Digest([0; 32])), &admit).await;
    assert!(dialled.is_err(), "another pool");
}

#[test]
fn a_new_key_comes_with_its_request() {
    let (_key, request) = new_key_and_request().expect("made");
    assert!(!request.is_empty());
}
