//! The whereabouts of a pool's manager, signed by the pool's authority. Members keep the latest that they heard, and so
//! find a manager that moved: donors show them to everybody who asks, and a manager that starts elsewhere shows them to
//! donors. Because of the signature nobody else can make a member connect to a place of his choice.

use crate::addresses::{Address, Addresses};
use crate::env;
use crate::identity::{Identity, write_private};
use crate::net::{Net, SharedNet};
use crate::packed::Blob;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use potluck_core::chunk::Digest;
use potluck_core::ids::Epoch;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The path at which donors show the whereabouts that they know (`GET`) and are shown later ones (`POST`).
pub const PATH: &str = "/manager";
/// The longest message about whereabouts, in bytes.
pub const MAX: usize = 4 << 10;
/// The longest time that one donor may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// The most donors that a member remembers.
const DONORS: usize = 8;
/// The number of remembered donors below which a member asks again soon: a pool that has just begun has more a moment
/// later, and a single donor may be on the machine that is lost.
const FEW: usize = 3;
/// The beginning of the text that is signed, so that no other signature of the authority is taken for one of
/// whereabouts.
const PURPOSE: &str = "potluck: where the manager is\n";
/// The name of the file with the whereabouts, beside a member's identity.
pub(crate) const FILE: &str = "manager.json";

/// The order of a manager's statements of where it is: of two, the later holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Issue {
    /// The manager's epoch, which is higher after each start.
    pub epoch: Epoch,
    /// The number of times that the manager's addresses have changed since that start.
    pub moves: u64,
}

/// The addresses of a manager, with what tells the latest statement from earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// The issue of the statement: of two, the later holds.
    pub issue: Issue,
    /// The addresses at which the manager is reached.
    pub addresses: Addresses,
}

/// The most signatures of a statement that are looked at.
const SIGNATURES: usize = 2;

/// The whereabouts of a manager, with the authority's signature. While the authority is being replaced there are two, so
/// that members find the manager by the one and by the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedWhereabouts {
    /// The whereabouts as JSON, in the text that was signed.
    text: String,
    /// The signatures of [`PURPOSE`] followed by the text, ECDSA on P-256 with SHA-256.
    signatures: Vec<Blob>,
}

impl SignedWhereabouts {
    /// Signs the whereabouts; `sign` signs with the key of each authority that members trust.
    pub fn sign<E>(
        said: &Whereabouts,
        sign: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Self, E> {
        let text = serde_json::to_string(said).expect("plain data");
        let signatures = sign(format!("{PURPOSE}{text}").as_bytes())?;
        Ok(Self { text, signatures: signatures.into_iter().map(Blob).collect() })
    }

    /// Returns the whereabouts, if the authority with this certificate signed them.
    pub fn verified(&self, ca: &CertificateDer<'_>) -> Option<Whereabouts> {
        let signed = format!("{PURPOSE}{}", self.text);
        let key = webpki::EndEntityCert::try_from(ca).ok()?;
        let algorithm = webpki::aws_lc_rs::ECDSA_P256_SHA256;
        let is_by_it = |signature: &Blob| {
            key.verify_signature(algorithm, signed.as_bytes(), &signature.0).is_ok()
        };
        let is_signed = self.signatures.iter().take(SIGNATURES).any(is_by_it);
        is_signed.then(|| serde_json::from_str(&self.text).ok()).flatten()
    }
}

/// Asks the donor at `address` where the manager is, after showing it what is known here.
pub async fn ask(
    net: &dyn Net,
    address: &Address,
    shown: Option<&SignedWhereabouts>,
) -> io::Result<SignedWhereabouts> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer");
    tokio::time::timeout(DEADLINE, exchange(net, address, shown)).await.map_err(late)?
}

async fn exchange(
    net: &dyn Net,
    address: &Address,
    shown: Option<&SignedWhereabouts>,
) -> io::Result<SignedWhereabouts> {
    let stream = net.connect(address.as_str()).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    env::spawn(connection);
    let (method, body) = match shown {
        Some(shown) => (Method::POST, serde_json::to_vec(shown)?),
        None => (Method::GET, Vec::new()),
    };
    let request =
        Request::builder().method(method).uri(PATH).header(header::HOST, address.as_str());
    let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    if response.status() != StatusCode::OK {
        return Err(no_donor());
    }
    let text = Limited::new(response.into_body(), MAX).collect().await;
    serde_json::from_slice(&text.map_err(io::Error::other)?.to_bytes()).map_err(|_| no_donor())
}

/// Returns the error for an answer, to the question where the manager is, from no donor of this pool.
pub fn no_donor() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what answers there is no donor of this pool")
}

/// The facts that a member remembers about how to find its manager.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Remembered {
    manager: Option<SignedWhereabouts>,
    /// The addresses of some donors, which know where the manager went.
    donors: Vec<Addresses>,
    /// The time at which the manager was asked for donors, in milliseconds since 1970; 0 to have them asked for again.
    asked_wall_ms: i64,
}

impl Remembered {
    fn read(path: &Path) -> Self {
        let read = std::fs::read(path).ok();
        read.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
}

/// Leads a member to its manager.
pub struct Guide {
    net: SharedNet,
    pool: Digest,
    /// The certificate of the authority whose word counts.
    ca: Mutex<CertificateDer<'static>>,
    path: PathBuf,
    known: Mutex<(Remembered, Whereabouts)>,
}

impl Guide {
    /// Makes a guide to the manager of `pool` from what is remembered in `dir`, beside the identity that trusts the
    /// authority `ca`.
    pub fn open(net: SharedNet, pool: Digest, ca: CertificateDer<'static>, dir: &Path) -> Self {
        let path = dir.join(FILE);
        let remembered = Remembered::read(&path);
        let said = remembered.manager.as_ref().and_then(|signed| signed.verified(&ca));
        let known = Mutex::new((remembered, said.unwrap_or_default()));
        Self { net, pool, ca: Mutex::new(ca), path, known }
    }

    /// Returns the certificate of the authority whose word counts.
    pub(crate) fn ca(&self) -> CertificateDer<'static> {
        self.ca.lock().expect("no holder panics").clone()
    }

    /// Returns the certificate of the authority that the identity beside the guide's file trusts, where that is another
    /// by now: another process of the member has followed the pool.
    pub(crate) fn ca_in_identity(&self) -> Option<CertificateDer<'static>> {
        let written = self.path.parent().and_then(Identity::ca_of);
        written.filter(|written| *written != self.ca())
    }

    /// Has the identity trust the authority `ca` from now on. Whereabouts that only the one before it signed are
    /// forgotten: whoever has the key of that could have led the member anywhere.
    ///
    /// Errors: it cannot be written down, and all stays as it was.
    pub(crate) fn trust(&self, ca: CertificateDer<'static>) -> io::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        if Identity::ca_of(dir).as_ref() != Some(&ca) {
            Identity::save_ca(dir, &ca)?;
        }
        let mut known = self.known();
        let said = known.0.manager.as_ref().and_then(|signed| signed.verified(&ca));
        if said.is_none() {
            known.0.manager = None;
        }
        known.1 = said.unwrap_or_default();
        *self.ca.lock().expect("no holder panics") = ca;
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, (Remembered, Whereabouts)> {
        self.known.lock().expect("no holder panics")
    }

    /// Returns the addresses of the manager that the guide heard last; none before it heard any.
    pub fn addresses(&self) -> Addresses {
        self.known().1.addresses.clone()
    }

    /// Returns the issue of the whereabouts that was heard.
    pub fn issue(&self) -> Issue {
        self.known().1.issue
    }

    /// Returns the signed whereabouts that were heard, if any were.
    pub fn signed(&self) -> Option<SignedWhereabouts> {
        self.known().0.manager.clone()
    }

    /// Reads the whereabouts from the file, which another process may have written.
    pub(crate) fn written(&self) -> Option<SignedWhereabouts> {
        Remembered::read(&self.path).manager
    }

    /// Returns the addresses of the manager that stand in the identity beside the guide's file, which another process
    /// may have written: a manager writes there where it is when it starts.
    pub(crate) fn in_identity(&self) -> Addresses {
        self.path.parent().map(Identity::manager_of).unwrap_or_default()
    }

    /// Takes over the whereabouts that somebody showed, if the authority signed them and they are later than what is
    /// known; returns whether it did.
    pub(crate) fn learn(&self, shown: &SignedWhereabouts) -> bool {
        let Some(said) = shown.verified(&self.ca()) else { return false };
        {
            let mut known = self.known();
            if said.issue <= known.1.issue {
                return false;
            }
            (known.0.manager, known.1) = (Some(shown.clone()), said);
        }
        self.save();
        true
    }

    /// Returns whether the guide remembers few donors, or has them from before `wall_ms` or from more than a day after
    /// it.
    pub fn is_poorer_than(&self, wall_ms: i64) -> bool {
        let known = self.known();
        let asked = known.0.asked_wall_ms;
        // A time in the future was written under a wrong clock.
        known.0.donors.len() < FEW || asked < wall_ms || asked > wall_ms + 24 * 3_600_000
    }

    /// Remembers donors, as of `wall_ms`.
    pub fn remember(&self, mut donors: Vec<Addresses>, wall_ms: i64) {
        donors.truncate(DONORS);
        {
            let mut known = self.known();
            (known.0.donors, known.0.asked_wall_ms) = (donors, wall_ms);
        }
        self.save();
    }

    /// Has the manager asked for donors again soon, because the remembered ones led nowhere.
    pub(crate) fn doubt(&self) {
        self.known().0.asked_wall_ms = 0;
    }

    /// Returns the pool that the guide leads to.
    pub(crate) fn pool(&self) -> Digest {
        self.pool
    }

    /// Asks the donors that are remembered where the manager is now, and returns whether one knew something later.
    pub(crate) async fn seek(&self) -> bool {
        let donors = self.known().0.donors.clone();
        self.ask_at(donors.iter().flat_map(Addresses::iter)).await
    }

    /// Asks the donors that may be at these addresses where the manager is now, and returns whether one knew
    /// something later.
    pub(crate) async fn ask_at(&self, addresses: impl Iterator<Item = &Address>) -> bool {
        let answers = addresses.map(|address| ask(&*self.net, address, None));
        let answers = join_all(answers).await;
        // All answers are looked at, for one of the donors may have slept for long.
        answers.iter().flatten().filter(|shown| self.learn(shown)).count() > 0
    }

    fn save(&self) {
        let text = serde_json::to_vec_pretty(&self.known().0).expect("plain data");
        if let Err(why) = write_private(&self.path, &text) {
            let path = self.path.display();
            tracing::debug!("where the manager is cannot be remembered in {path}: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SigningKey};
    use std::sync::Arc;

    const POOL: Digest = Digest([7; 32]);

    fn authority() -> (KeyPair, CertificateDer<'static>) {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::default().self_signed(&key).expect("a certificate");
        (key, certificate.der().clone())
    }

    fn said(key: &KeyPair, epoch: u64, at: &str) -> SignedWhereabouts {
        said_again(key, epoch, 0, at)
    }

    fn said_again(key: &KeyPair, epoch: u64, moves: u64, at: &str) -> SignedWhereabouts {
        let addresses = at.parse().expect("addresses");
        let said = Whereabouts { issue: Issue { epoch: Epoch(epoch), moves }, addresses };
        SignedWhereabouts::sign(&said, |text| Ok::<_, rcgen::Error>(vec![key.sign(text)?]))
            .expect("signed")
    }

    #[test]
    fn a_member_that_remembers_few_donors_asks_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let net = Arc::new(crate::net::SystemNet);
        let guide = Guide::open(net, POOL, authority().1, dir.path());
        let donors = |count| vec!["10.0.0.1:7701".parse().expect("an address"); count];
        guide.remember(Vec::new(), 1000);
        assert!(guide.is_poorer_than(900), "the pool had no donor yet");
        guide.remember(donors(3), 1000);
        assert!(!guide.is_poorer_than(900));
        assert!(guide.is_poorer_than(1001));
    }

    #[test]
    fn member_follows_signed_rotations_forward_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let (key, ca) = authority();
        let open = || Guide::open(Arc::new(crate::net::SystemNet), POOL, ca.clone(), dir.path());
        let guide = open();
        assert!(guide.learn(&said(&key, 3, "10.0.0.1:7700")));
        assert!(!guide.learn(&said(&key, 2, "10.0.0.2:7700")), "an earlier one");
        assert!(!guide.learn(&said(&authority().0, 9, "10.0.0.3:7700")), "another authority's");
        let mut changed = said(&key, 9, "10.0.0.4:7700");
        changed.text = changed.text.replace("10.0.0.4", "10.0.0.5");
        assert!(!guide.learn(&changed), "changed after it was signed");
        assert_eq!(open().addresses().to_string(), "10.0.0.1:7700", "it is kept");
        assert!(open().learn(&said(&key, 4, "10.0.0.6:7700")));
        assert!(open().learn(&said_again(&key, 4, 1, "10.0.0.7:7700")), "it moved while it ran");
        assert!(!open().learn(&said(&key, 4, "10.0.0.6:7700")));
        assert_eq!(open().issue(), Issue { epoch: Epoch(4), moves: 1 });
    }

    #[test]
    fn new_authority_replaces_known_whereabouts_x6() {
        let dir = tempfile::tempdir().expect("a directory");
        let ((old_key, old), (next_key, next)) = (authority(), authority());
        let guide = Guide::open(Arc::new(crate::net::SystemNet), POOL, old, dir.path());
        // Somebody who has the key of the old one speaks of a manager that starts in the far future.
        assert!(guide.learn(&said(&old_key, 1 << 40, "10.0.0.66:7700")));
        guide.trust(next.clone()).expect("written down");
        assert_eq!(Identity::ca_of(dir.path()), Some(next));
        assert_eq!((guide.issue(), guide.signed()), (Issue::default(), None));
        assert!(guide.learn(&said(&next_key, 3, "10.0.0.1:7700")));
        assert!(!guide.learn(&said(&old_key, 1 << 41, "10.0.0.66:7700")));
    }

    #[test]
    fn whereabouts_verify_by_either_authority_in_rotation_x6() {
        let ((old_key, old), (next_key, next)) = (authority(), authority());
        let at = "10.0.0.1:7700".parse().expect("addresses");
        let whereabouts = Whereabouts { issue: Issue::default(), addresses: at };
        let both =
            |text: &[u8]| Ok::<_, rcgen::Error>(vec![next_key.sign(text)?, old_key.sign(text)?]);
        let shown = SignedWhereabouts::sign(&whereabouts, both).expect("signed");
        assert_eq!(shown.verified(&old), Some(whereabouts.clone()));
        assert_eq!(shown.verified(&next), Some(whereabouts));
        assert_eq!(shown.verified(&authority().1), None);
    }
}
