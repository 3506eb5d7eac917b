//! Mutual TLS 1.3 on the control plane, under the pool's own CA.
//!
//! Certificates never expire in practice: rights end by the manager's member list, and a clock that is wrong must not
//! lock anybody out, be it two days off or at 1970, as that of a machine without a battery is after a start (promise
//! C1). So certificates are judged as of one moment, and not by the machine's clock.

use crate::identity::{Identity, fingerprint};
use crate::net::{BoxFuture, BoxStream, Detached, Stream};
use potluck_core::chunk::Digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The name in every manager's certificate; the pool's CA signs nothing else with it.
pub const MANAGER_NAME: &str = "manager.potluck.internal";

/// The longest time that a handshake may take.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Makes a raw stream to a manager safe.
pub trait Dial: Send + Sync + 'static {
    /// Proves the manager to the caller, and the caller to the manager unless it is about to join.
    fn secure(&self, stream: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>>;

    /// Returns the CA that a manager has to prove, by its fingerprint; `None` for a caller that could not follow the
    /// pool to another.
    fn authority(&self) -> Option<Digest> {
        None
    }

    /// Returns what makes streams of the same member safe to a manager that proves the CA `ca`; `None` if this cannot
    /// be had.
    fn trusting(&self, _ca: &CertificateDer<'static>) -> Option<Arc<dyn Dial>> {
        None
    }
}

/// Makes a raw stream from a member safe.
pub trait Admit: Send + Sync + 'static {
    /// Proves both ends to each other. Returns the stream and the fingerprint of the member's certificate;
    /// `None` for a peer without a certificate, which can only join.
    fn admit(&self, stream: BoxStream) -> BoxFuture<'_, io::Result<(BoxStream, Option<Digest>)>>;
}

/// Chooses the cryptography of the whole process; call once, first thing in `main`.
pub fn install_provider() {
    // This fails only if a provider was installed before, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static> Stream
    for tokio_rustls::client::TlsStream<S>
{
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        Ok(Detached::Stream(self))
    }
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static> Stream
    for tokio_rustls::server::TlsStream<S>
{
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        Ok(Detached::Stream(self))
    }
}

fn in_time<'a, T: 'a>(
    handshake: impl Future<Output = io::Result<T>> + Send + 'a,
) -> BoxFuture<'a, io::Result<T>> {
    Box::pin(async move {
        let timeout = || io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake hung");
        tokio::time::timeout(HANDSHAKE_DEADLINE, handshake).await.map_err(|_| timeout())?
    })
}

/// Secures the connections that a client opens, with TLS.
#[derive(Clone)]
pub struct TlsDial {
    connector: TlsConnector,
    /// The member that calls; `None` for somebody about to join.
    member: Option<Arc<Identity>>,
}

impl TlsDial {
    /// Makes the side of a member, which trusts the pool's CA only.
    pub fn member(identity: &Identity) -> Result<Self, rustls::Error> {
        let config = ClientConfig::builder_with_details(provider(), Arc::new(OneMoment))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots([&identity.ca])?)
            .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self { connector, member: Some(Arc::new(identity.clone())) })
    }

    /// Makes the side of somebody about to join, who trusts the one CA whose fingerprint is `pin`.
    pub fn joining(pin: Digest) -> Self {
        let verifier = Arc::new(PinnedCa { pin });
        let config = ClientConfig::builder_with_details(provider(), Arc::new(OneMoment))
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Self { connector: TlsConnector::from(Arc::new(config)), member: None }
    }
}

impl Dial for TlsDial {
    fn secure(&self, stream: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>> {
        let name = ServerName::try_from(MANAGER_NAME).expect("a valid name");
        in_time(
            async move { Ok(Box::new(self.connector.connect(name, stream).await?) as BoxStream) },
        )
    }

    fn authority(&self) -> Option<Digest> {
        self.member.as_ref().map(|member| fingerprint(&member.ca))
    }

    fn trusting(&self, ca: &CertificateDer<'static>) -> Option<Arc<dyn Dial>> {
        let member = Identity { ca: ca.clone(), ..Identity::clone(self.member.as_deref()?) };
        Some(Arc::new(Self::member(&member).ok()?))
    }
}

/// Secures the connections that a manager accepts, with TLS.
#[derive(Clone)]
pub struct TlsAdmit(TlsAcceptor);

impl TlsAdmit {
    /// Makes the side of the manager that proves itself by the certificates of `chain`, the first of which is its own
    /// with this `key`. Members have certificates of any of the CAs in `cas`.
    pub fn new(
        cas: &[CertificateDer<'static>],
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        // Joiners have no certificate yet; the manager lets a peer that shows none only join.
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots(cas)?))
            .allow_unauthenticated()
            .build()
            .map_err(|why| rustls::Error::General(why.to_string()))?;
        let config = ServerConfig::builder_with_details(provider(), Arc::new(OneMoment))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

impl Admit for TlsAdmit {
    fn admit(&self, stream: BoxStream) -> BoxFuture<'_, io::Result<(BoxStream, Option<Digest>)>> {
        in_time(async move {
            let stream = self.0.accept(stream).await?;
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let member = shown.map(fingerprint);
            Ok((Box::new(stream) as BoxStream, member))
        })
    }
}

fn provider() -> Arc<CryptoProvider> {
    let installed = CryptoProvider::get_default().cloned();
    installed.unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

/// The time by which certificates are judged: one moment, at which those of every pool are valid.
#[derive(Debug)]
struct OneMoment;

/// The seconds from 1970 to a moment in 2033.
const MOMENT: Duration = Duration::from_secs(2_000_000_000);

impl TimeProvider for OneMoment {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(MOMENT))
    }
}

fn roots<'c>(
    cas: impl IntoIterator<Item = &'c CertificateDer<'static>>,
) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        roots.add(ca.clone())?;
    }
    Ok(roots)
}

/// A verifier that accepts only a chain that ends in the CA with the fingerprint `pin`.
#[derive(Debug)]
struct PinnedCa {
    pin: Digest,
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = intermediates
            .iter()
            .find(|certificate| fingerprint(certificate) == self.pin)
            .ok_or(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))?;
        let roots = roots([&ca.clone().into_owned()])?;
        let verifier = WebPkiServerVerifier::builder(Arc::new(roots))
            .build()
            .map_err(|why| rustls::Error::General(why.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms =
            rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
