//! The certificate that a gateway shows its clients: one that was given, or one that it makes for itself and keeps.

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A certificate that cannot be used, or not be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{}: {why}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The reason why.
        why: String,
    },
    /// No certificate can be made, or the key is not that of the certificate.
    #[error("{0}")]
    Unusable(String),
}

/// Makes the TLS configuration with the certificate chain and the key in these PEM files.
///
/// Errors: a file cannot be read, or the two do not belong together.
pub fn from_files(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let bad = |path: &Path, why: String| TlsError::File { path: path.into(), why };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|why| bad(certificate, why.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|why| bad(key, why.to_string()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|why| TlsError::Unusable(why.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificate that a gateway makes for itself, signed by itself: clients are told to trust its file.
#[derive(Debug, Clone)]
pub struct OwnCertificate {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key, which only its owner can read.
    pub key: PathBuf,
}

impl OwnCertificate {
    /// Returns the certificate that is kept in `dir`, and makes one for these host names and addresses if there is
    /// none. `write_private` writes a file that only its owner can read.
    ///
    /// Errors: it cannot be made, or not be written.
    pub fn keep(
        dir: &Path,
        names: Vec<String>,
        write_private: impl Fn(&Path, &[u8]) -> io::Result<()>,
    ) -> Result<Self, TlsError> {
        let own = Self { certificate: dir.join("gateway.crt"), key: dir.join("gateway.key") };
        if own.certificate.exists() && own.key.exists() {
            return Ok(own);
        }
        let unusable = |why: rcgen::Error| TlsError::Unusable(why.to_string());
        let key = KeyPair::generate().map_err(unusable)?;
        let mut params = CertificateParams::new(names).map_err(unusable)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Potluck gateway");
        let made = params.self_signed(&key).map_err(unusable)?;
        let write = |path: &Path, text: &str| {
            let written = write_private(path, text.as_bytes());
            written.map_err(|why| TlsError::File { path: path.into(), why: why.to_string() })
        };
        write(&own.key, &key.serialize_pem())?;
        write(&own.certificate, &made.pem())?;
        Ok(own)
    }
}
