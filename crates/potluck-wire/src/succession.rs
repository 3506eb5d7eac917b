//! The statement by which the authority of a pool names the one that comes after it. The manager shows it to every
//! member that still trusts the earlier authority, and the member trusts the later one from then on.

use crate::packed::Blob;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderName;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::str::FromStr;

/// The header of a request in which a member says which authority it trusts, by its fingerprint, and of a reply in
/// which the manager answers with the [`Succession`] where that is not the pool's authority any more.
pub const AUTHORITY: HeaderName = HeaderName::from_static("potluck-authority");

/// The beginning of what is signed, so that no other signature of an authority is taken for one of its successor.
const PURPOSE: &[u8] = b"potluck: the authority of the pool is from now on\n";

/// The longest text of a succession that is read.
const MAX_TEXT: usize = 4 << 10;

/// The certificate of a pool's next authority, with the signature of the authority before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Succession {
    certificate: Blob,
    /// The signature of [`PURPOSE`] followed by the certificate, ECDSA on P-256 with SHA-256.
    signature: Blob,
}

/// The error for text that is no succession.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no statement about a pool's authority")]
pub struct NoSuccession;

impl Succession {
    /// Names the authority with the certificate `next`; `sign` signs with the key of the authority before it.
    pub fn sign<E>(
        next: &CertificateDer<'_>,
        sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let signature = Blob(sign(&[PURPOSE, next].concat())?);
        Ok(Self { certificate: Blob(next.to_vec()), signature })
    }

    /// Returns the certificate of the next authority, if the one with the certificate `ca` signed it.
    pub fn verified(&self, ca: &CertificateDer<'_>) -> Option<CertificateDer<'static>> {
        let signed = [PURPOSE, &self.certificate.0].concat();
        let key = webpki::EndEntityCert::try_from(ca).ok()?;
        let algorithm = webpki::aws_lc_rs::ECDSA_P256_SHA256;
        key.verify_signature(algorithm, &signed, &self.signature.0).ok()?;
        Some(self.certificate.0.clone().into())
    }
}

impl fmt::Display for Succession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |part: &Blob| URL_SAFE_NO_PAD.encode(&part.0);
        write!(f, "{}.{}", text(&self.certificate), text(&self.signature))
    }
}

impl FromStr for Succession {
    type Err = NoSuccession;
    fn from_str(text: &str) -> Result<Self, NoSuccession> {
        if text.len() > MAX_TEXT {
            return Err(NoSuccession);
        }
        let (certificate, signature) = text.split_once('.').ok_or(NoSuccession)?;
        let part = |text| URL_SAFE_NO_PAD.decode(text).map(Blob).map_err(|_| NoSuccession);
        Ok(Self { certificate: part(certificate)?, signature: part(signature)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SigningKey};

    fn authority() -> (KeyPair, CertificateDer<'static>) {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::default().self_signed(&key).expect("a certificate");
        (key, certificate.der().clone())
    }

    #[test]
    fn only_the_authority_itself_names_the_next_one_x6() {
        let ((key, ca), (_, next), (other_key, other)) = (authority(), authority(), authority());
        let named = Succession::sign(&next, |text| key.sign(text)).expect("signed");
        let read: Succession = named.to_string().parse().expect("a statement");
        assert_eq!(read.verified(&ca), Some(next.clone()));
        assert_eq!(read.verified(&other), None, "members of another authority");
        assert_eq!(read.verified(&next), None, "members that follow the next one already");
        let forged = Succession::sign(&next, |text| other_key.sign(text)).expect("signed");
        assert_eq!(forged.verified(&ca), None);
        let changed = Succession { certificate: Blob(other.to_vec()), ..read };
        assert_eq!(changed.verified(&ca), None);
        for text in ["", ".", "a", "a.b.c", "é.é"] {
            let parsed = text.parse::<Succession>();
            assert!(parsed.is_err() || parsed.is_ok_and(|it| it.verified(&ca).is_none()), "{text}");
        }
    }
}
