//! Gateways of a pool: S3 and WebDAV for programs that do not know Potluck.
//!
//! A gateway keeps nothing that another one could not look up, so that as many can run as one likes. It reaches the
//! pool through the client library alone, and acts on behalf of the user whose access key a request shows
//! ([`users`]): the manager judges each call by that user's grants.
//!
//! One port serves both protocols ([`server`]): what is signed as S3 requests are goes to [`s3`], all else to
//! [`webdav`].

mod body;
mod listing;
mod object_names;
mod s3 {
    //! S3: buckets are spaces, and keys are paths.
    pub mod calls;
    pub mod checksums;
    pub mod errors;
    pub mod metadata;
    pub mod multipart;
    pub mod reading;
    pub mod writing;
}
mod server;
mod tls;
mod users;
mod webdav {
    //! WebDAV: the pool as a tree, whose first level are the spaces.
    pub mod file_system;
    pub mod service;
}

pub use server::{Gateway, GatewayOptions, Protocols};
pub use tls::{OwnCertificate, TlsError, from_files};
