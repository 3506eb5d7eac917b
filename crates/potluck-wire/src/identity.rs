//! The identity of a machine or person in a pool: a key that never leaves the machine, the certificate that the pool
//! gave it, and the pool's CA. One directory holds one identity.

use crate::addresses::Addresses;
use crate::private_dir;
use crate::token::{JoinToken, Role};
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const ABOUT: &str = "identity.json";
const CA: &str = "ca.pem";
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";

/// The facts of an identity that are not secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The name of the pool.
    pub pool: String,
    /// The pool itself, by the fingerprint of its first CA: this stays when the CA is replaced.
    pub pool_id: Digest,
    /// The addresses at which the manager is reached.
    pub manager: Addresses,
    /// The number of the member.
    pub member: MemberId,
    /// The role of the member.
    pub role: Role,
    /// The name that people call the member by.
    pub name: String,
}

/// The identity of a member: the facts about it, its certificate and key, and the certificate of the pool's CA.
#[derive(Debug)]
pub struct Identity {
    /// The facts that are not secret.
    pub about: About,
    /// The certificate of the pool's CA.
    pub ca: CertificateDer<'static>,
    /// The certificate of this member.
    pub certificate: CertificateDer<'static>,
    /// The private key of this member.
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self {
            about: self.about.clone(),
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone_key(),
        }
    }
}

/// Returns the name by which a certificate is known: BLAKE3 of its DER.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Digest {
    Digest::of(certificate)
}

/// Makes a new key and the request to certify it, both in DER.
pub fn new_key_and_request() -> Result<(PrivateKeyDer<'static>, Vec<u8>), rcgen::Error> {
    let key = rcgen::KeyPair::generate()?;
    let request = rcgen::CertificateParams::default().serialize_request(&key)?;
    let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    Ok((der, request.der().to_vec()))
}

/// Reads a key that was kept as PKCS#8 in DER.
pub fn key_of_pkcs8(der: Vec<u8>) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(der.into())
}

impl Identity {
    /// Makes the identity of these certificates, in DER, and this key.
    pub fn new(
        about: About,
        ca: Vec<u8>,
        certificate: Vec<u8>,
        key: PrivateKeyDer<'static>,
    ) -> Self {
        Self { about, ca: ca.into(), certificate: certificate.into(), key }
    }

    /// Returns the pool that the identity is of, by the fingerprint of its first CA.
    pub fn pool(&self) -> Digest {
        self.about.pool_id
    }

    /// Makes the token of an invitation to the pool, whose manager is at `manager`.
    pub fn token(&self, manager: Addresses, role: Role, secret: Digest) -> JoinToken {
        let (ca, pool) = (fingerprint(&self.ca), self.pool());
        JoinToken { manager, ca, pool: (pool != ca).then_some(pool), role, secret }
    }

    /// Reads the certificate of the pool's CA beside the identity in `dir`.
    pub(crate) fn ca_of(dir: &Path) -> Option<CertificateDer<'static>> {
        CertificateDer::from_pem_file(dir.join(CA)).ok()
    }

    /// Has the identity in `dir` trust another CA from now on.
    pub fn save_ca(dir: &Path, ca: &CertificateDer<'_>) -> io::Result<()> {
        write_private(&dir.join(CA), pem("CERTIFICATE", ca).as_bytes())
    }

    /// Reads the identity in `dir`.
    pub fn load(dir: &Path) -> io::Result<Self> {
        let bad = |file: &str, why: &dyn std::fmt::Display| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {why}", dir.join(file).display()),
            )
        };
        let text = fs::read(dir.join(ABOUT))?;
        let certificate =
            |file| CertificateDer::from_pem_file(dir.join(file)).map_err(|why| bad(file, &why));
        Ok(Self {
            about: serde_json::from_slice(&text).map_err(|why| bad(ABOUT, &why))?,
            ca: certificate(CA)?,
            certificate: certificate(CERTIFICATE)?,
            key: PrivateKeyDer::from_pem_file(dir.join(KEY)).map_err(|why| bad(KEY, &why))?,
        })
    }

    /// Returns the addresses of the manager that stand in the identity in `dir`; none where they cannot be read.
    pub(crate) fn manager_of(dir: &Path) -> Addresses {
        let about = fs::read(dir.join(ABOUT)).ok();
        let about = about.and_then(|text| serde_json::from_slice::<About>(&text).ok());
        about.map(|about| about.manager).unwrap_or_default()
    }

    /// Returns whether `dir` holds an identity.
    pub fn exists(dir: &Path) -> bool {
        dir.join(ABOUT).exists()
    }

    /// Writes the identity to `dir`; the key is readable by its owner only. The file that makes
    /// the directory count as an identity is written last.
    pub fn save(&self, dir: &Path) -> io::Result<()> {
        private_dir::make(dir)?;
        write_private(&dir.join(KEY), pem("PRIVATE KEY", self.key.secret_der()).as_bytes())?;
        write_private(&dir.join(CERTIFICATE), pem("CERTIFICATE", &self.certificate).as_bytes())?;
        write_private(&dir.join(CA), pem("CERTIFICATE", &self.ca).as_bytes())?;
        self.save_about(dir)
    }

    /// Removes the identity in `dir`, if there is one; other files stay.
    pub fn remove(dir: &Path) -> io::Result<()> {
        for file in [crate::whereabouts::FILE, KEY, CERTIFICATE, CA, ABOUT] {
            match fs::remove_file(dir.join(file)) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes only the facts that are not secret, after they changed.
    pub fn save_about(&self, dir: &Path) -> io::Result<()> {
        let about = serde_json::to_vec_pretty(&self.about).map_err(io::Error::other)?;
        write_private(&dir.join(ABOUT), &about)
    }
}

/// Returns DER as PEM text.
pub fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("base64"));
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.collect::<Vec<_>>().join("\n")
    )
}

/// Replaces a small file durably, readable by its owner only: temp, fsync, rename, fsync of the
/// directory.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    // A bare name has the empty path as its parent.
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = parent.unwrap_or(Path::new("."));
    let temp = path.with_extension("tmp");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temp, path)?;
    fs::File::open(dir)?.sync_all()
}
