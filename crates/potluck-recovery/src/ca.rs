//! The pool's certificate authority: it vouches for the manager and for every member.
//!
//! Certificates are valid from 1975 to 4096, so that no clock, however wrong, locks anybody out
//! (promise C1); rights end by the member list, never by a date.

use crate::error::StateError;
use crate::term_proof::TermProofs;
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_wire::identity::{fingerprint, pem, write_private};
use potluck_wire::private_dir;
use potluck_wire::succession::Succession;
use potluck_wire::tls::MANAGER_NAME;
use potluck_wire::tls::{Admit, TlsAdmit};
use potluck_wire::token::Role;
use potluck_wire::whereabouts::{SignedWhereabouts, Whereabouts};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SigningKey,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
const MANAGER_CERTIFICATE: &str = "manager.pem";
const MANAGER_KEY: &str = "manager.key";
/// The file of the certificates of the authorities before this one, the first one first.
const EARLIER: &str = "earlier.pem";

/// The pool's certificate authority, ready to sign.
pub struct Ca {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    terms: TermProofs,
    /// The certificates of the authorities that the pool had before, the first one first.
    earlier: Vec<CertificateDer<'static>>,
}

/// The texts of an authority as a recovery kit keeps them, in PEM.
pub struct CaTexts {
    /// The authority's certificate.
    pub certificate: String,
    /// The authority's key.
    pub key: String,
    /// The certificates of the authorities before it, the first one first.
    pub earlier: String,
}

/// A request that cannot be certified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificate request is not valid: {0}")]
pub struct BadRequest(String);

/// A public key whose owner has proved that it holds the private one.
pub struct ProvenKey(rcgen::PublicKey);

impl ProvenKey {
    /// Reads a PKCS#10 request in DER and checks its signature. Only the key is taken from it:
    /// what the requester would like to be called or allowed means nothing.
    pub fn of_request(der: &[u8]) -> Result<Self, BadRequest> {
        let der = CertificateSigningRequestDer::from(der);
        CertificateSigningRequestParams::from_der(&der)
            .map(|request| Self(request.public_key))
            .map_err(|why| BadRequest(why.to_string()))
    }

    /// Returns the digest that the key is known by.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.der_bytes())
    }
}

impl Ca {
    /// Makes the authority and the manager's certificate in `dir`, or loads the authority that is there. The
    /// authority's certificate is written last, so that a directory that was interrupted half-way is made again.
    pub fn create(dir: &Path, pool_name: &str) -> Result<Self, StateError> {
        if dir.join(CERTIFICATE).exists() {
            return Self::load(dir);
        }
        Self::make(dir, pool_name, Vec::new())
    }

    /// Makes the authority that comes after this one in `dir`, with the manager's certificate.
    pub fn make_next(&self, dir: &Path, pool_name: &str) -> Result<Self, StateError> {
        let earlier = self.earlier.iter().chain([&self.certificate]).cloned().collect();
        Self::make(dir, pool_name, earlier)
    }

    fn make(
        dir: &Path,
        pool_name: &str,
        earlier: Vec<CertificateDer<'static>>,
    ) -> Result<Self, StateError> {
        private_dir::make(dir).map_err(|source| StateError::Io { path: dir.into(), source })?;
        let key = KeyPair::generate().map_err(bad(dir))?;
        let certificate = ca_params(pool_name).self_signed(&key).map_err(bad(dir))?;
        let key_pem = key.serialize_pem();
        let ca = Self::new(certificate.der().clone(), key, earlier).map_err(bad(dir))?;

        ca.keep(dir, &key_pem)?;
        Ok(ca)
    }

    /// Puts the authority that a recovery kit holds into `dir`, with a new certificate for the
    /// manager.
    pub fn restore(dir: &Path, texts: &CaTexts) -> Result<Self, StateError> {
        private_dir::make(dir).map_err(|source| StateError::Io { path: dir.into(), source })?;
        let key = KeyPair::from_pem(&texts.key).map_err(bad(dir))?;
        let certificate =
            CertificateDer::from_pem_slice(texts.certificate.as_bytes()).map_err(bad(dir))?;
        let earlier = certificates(&texts.earlier).map_err(bad(dir))?;
        let ca = Self::new(certificate, key, earlier).map_err(bad(dir))?;
        ca.keep(dir, &texts.key)?;
        Ok(ca)
    }

    fn keep(&self, dir: &Path, key_pem: &str) -> Result<(), StateError> {
        let write = |file: &str, content: &str| {
            let path = dir.join(file);
            write_private(&path, content.as_bytes())
                .map_err(|source| StateError::Io { path, source })
        };
        let manager_key = KeyPair::generate().map_err(bad(dir))?;
        let manager =
            self.sign(&manager_params().map_err(bad(dir))?, &manager_key).map_err(bad(dir))?;
        let earlier = self.earlier.iter().map(|before| pem("CERTIFICATE", before));
        write(EARLIER, &earlier.collect::<String>())?;
        write(MANAGER_KEY, &manager_key.serialize_pem())?;
        write(MANAGER_CERTIFICATE, &pem("CERTIFICATE", &manager))?;
        write(KEY, key_pem)?;
        write(CERTIFICATE, &pem("CERTIFICATE", &self.certificate))
    }

    /// Reads the certificates and the key as text, as they are in `dir`.
    pub fn texts(dir: &Path) -> Result<CaTexts, StateError> {
        let read = |file: &str| {
            let path = dir.join(file);
            fs::read_to_string(&path).map_err(|source| StateError::Io { path, source })
        };
        Ok(CaTexts { certificate: read(CERTIFICATE)?, key: read(KEY)?, earlier: read(EARLIER)? })
    }

    /// Reads the authority in `dir`.
    pub fn load(dir: &Path) -> Result<Self, StateError> {
        let key = fs::read_to_string(dir.join(KEY))
            .map_err(|why| bad(dir)(format!("{KEY} cannot be read: {why}")))?;
        let key = KeyPair::from_pem(&key).map_err(bad(dir))?;
        let certificate = CertificateDer::from_pem_file(dir.join(CERTIFICATE)).map_err(bad(dir))?;
        let earlier = fs::read_to_string(dir.join(EARLIER))
            .map_err(|why| bad(dir)(format!("{EARLIER} cannot be read: {why}")))?;
        let earlier = certificates(&earlier).map_err(bad(dir))?;
        Self::new(certificate, key, earlier).map_err(bad(dir))
    }

    fn new(
        certificate: CertificateDer<'static>,
        key: KeyPair,
        earlier: Vec<CertificateDer<'static>>,
    ) -> Result<Self, rcgen::Error> {
        let terms = TermProofs::of(&key.serialize_der());
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { issuer, certificate, terms, earlier })
    }

    /// Returns the pool, by the fingerprint of its first authority: this stays when the authority is replaced.
    pub fn pool(&self) -> Digest {
        fingerprint(self.earlier.first().unwrap_or(&self.certificate))
    }

    /// Returns the certificates of all authorities that certified members: members keep theirs when the authority is
    /// replaced, and the member list says who is one.
    pub fn all_certificates(&self) -> Vec<CertificateDer<'static>> {
        self.earlier.iter().chain([&self.certificate]).cloned().collect()
    }

    /// Certifies the authority that came after this one, so that members which trust only this one accept what that
    /// one certified.
    pub fn certify_next(
        &self,
        next: &Self,
        pool_name: &str,
    ) -> Result<CertificateDer<'static>, rcgen::Error> {
        self.sign(&ca_params(pool_name), next.issuer.key())
    }

    /// Names the authority that came after this one.
    pub fn name_next(&self, next: &Self) -> Result<Succession, rcgen::Error> {
        Succession::sign(&next.certificate, |text| self.sign_text(text))
    }

    /// Returns the authority's own certificate, whose fingerprint join tokens pin.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Certifies a member's key.
    pub fn certify(
        &self,
        key: &ProvenKey,
        member: MemberId,
        role: Role,
    ) -> Result<CertificateDer<'static>, BadRequest> {
        let mut params = leaf_params(&format!("potluck {role} {member}"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params, &key.0).map_err(|why| BadRequest(why.to_string()))
    }

    /// Returns the maker and checker of proofs for the statements of the pool's managers about their terms.
    pub fn terms(&self) -> &TermProofs {
        &self.terms
    }

    /// Signs the whereabouts of the pool's manager as the pool's authority.
    pub fn sign_whereabouts(&self, said: &Whereabouts) -> Result<SignedWhereabouts, rcgen::Error> {
        SignedWhereabouts::sign(said, |text| Ok(vec![self.sign_text(text)?]))
    }

    /// Signs a text as the pool's authority.
    pub(crate) fn sign_text(&self, text: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.issuer.key().sign(text)
    }

    fn sign(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<CertificateDer<'static>, rcgen::Error> {
        Ok(params.signed_by(key, &self.issuer)?.der().clone())
    }
}

/// Reads the manager's own certificate and key, as [`Ca::create`] or [`Ca::restore`] left them in `dir`.
pub fn manager_identity(
    dir: &Path,
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), StateError> {
    let certificate =
        CertificateDer::from_pem_file(dir.join(MANAGER_CERTIFICATE)).map_err(bad(dir))?;
    let key = PrivateKeyDer::from_pem_file(dir.join(MANAGER_KEY)).map_err(bad(dir))?;
    Ok((certificate, key))
}

fn bad<E: Display>(dir: &Path) -> impl FnOnce(E) -> StateError {
    let path = PathBuf::from(dir);
    move |why| StateError::Certificates { path, detail: why.to_string() }
}

fn params(subject: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    params.not_before = date_time_ymd(1975, 1, 1);
    params.not_after = date_time_ymd(4096, 1, 1);
    params
}

fn ca_params(pool_name: &str) -> CertificateParams {
    let mut params = params(&format!("potluck pool {pool_name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn leaf_params(subject: &str) -> CertificateParams {
    let mut params = params(subject);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

fn manager_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = leaf_params("potluck manager");
    params.subject_alt_names =
        CertificateParams::new([MANAGER_NAME.to_string()])?.subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Makes the manager's side of TLS under the authority `ca`, whose files are in `dir`. It also proves itself to members
/// that trust the last of the certificates `through`, if each certifies the one before it, and the first the authority.
pub fn tls(
    ca: &Ca,
    dir: &Path,
    through: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<dyn Admit>, StateError> {
    let (certificate, key) = manager_identity(dir)?;
    let chain = [certificate, ca.certificate.clone()].into_iter().chain(through).collect();
    let admit = TlsAdmit::new(&ca.all_certificates(), chain, key)
        .map_err(|why| StateError::Certificates { path: dir.into(), detail: why.to_string() })?;
    Ok(Arc::new(admit))
}

/// Reads certificates one after the other, in PEM.
fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::identity::new_key_and_request;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_authority_reads_back_and_its_keys_are_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = Ca::create(dir.path(), "lab").expect("made");
        let read = Ca::create(dir.path(), "lab").expect("read");
        assert_eq!(made.certificate(), read.certificate());
        for file in [KEY, MANAGER_KEY] {
            let mode = fs::metadata(dir.path().join(file)).expect(file).permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file}");
        }
    }

    #[test]
    fn a_request_gives_its_key_and_nothing_else_x5() {
        let dir = tempfile::tempdir().expect("a directory");
        let ca = Ca::create(dir.path(), "lab").expect("made");
        // The request asks for a manager's certificate.
        let key = KeyPair::generate().expect("a key");
        let mut asked = manager_params().expect("params");
        asked.is_ca = IsCa::NoCa;
        let request = asked.serialize_request(&key).expect("a request");
        let proven = ProvenKey::of_request(request.der()).expect("a valid request");
        let got = ca.certify(&proven, MemberId(7), Role::User).expect("certified");
        assert!(!got.windows(MANAGER_NAME.len()).any(|part| part == MANAGER_NAME.as_bytes()));

        let (_, mut der) = new_key_and_request().expect("a request");
        let last = der.len() - 1;
        der[last] ^= 1;
        assert!(ProvenKey::of_request(&der).is_err(), "a changed request");
        assert!(ProvenKey::of_request(b"garbage").is_err());
    }
}
