//! Buckets, WebDAV servers and local directories, by opendal.

use crate::FoundOrigin;
use crate::failures::{away, of_status, refused};
use crate::listing::{self, Remote};
use futures_util::StreamExt;
use opendal::services::{Fs, S3, Webdav};
use opendal::{ErrorKind as Kind, HttpTransporter, Metadata, OperationContext, Operator};
use opendal_http_transport_reqwest::ReqwestTransport;
use potluck_core::origin::{MAX_ENTITY_TAG, Origin};
use potluck_wire::error::Failure;
use reqwest::Client;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use url::Url;

/// The most files below an address that are listed.
const MAX_LISTED: usize = 10_000_000;
/// The region of buckets whose address names none.
const REGION: &str = "us-east-1";

pub(crate) struct Stores {
    client: Client,
    /// The operators that were made, by the address of their root, so that each reads the user's credentials once.
    made: Mutex<HashMap<String, Operator>>,
}

impl Stores {
    pub fn new(client: Client) -> Self {
        Self { client, made: Mutex::default() }
    }

    pub async fn stat(&self, url: &Url) -> Result<FoundOrigin, Failure> {
        let (store, path) = self.at(url)?;
        let found = store.stat(&path).await.map_err(|why| failed(url, &why))?;
        if !found.is_file() {
            return Err(refused(
                url.as_str(),
                "it is a directory: end its address with a slash to import all in it",
            ));
        }
        Ok(FoundOrigin { origin: origin(url, &found), ranges: true })
    }

    pub async fn read(&self, url: &Url, range: Range<u64>) -> Result<Vec<u8>, Failure> {
        let (store, path) = self.at(url)?;
        let read = store.read_with(&path).range(range).await.map_err(|why| failed(url, &why))?;
        Ok(read.to_vec())
    }

    pub async fn list(&self, url: &Url) -> Result<Vec<Remote>, Failure> {
        let (store, path) = self.at(url)?;
        let mut entries =
            store.lister_with(&path).recursive(true).await.map_err(|why| failed(url, &why))?;
        let mut found = Vec::new();
        while let Some(entry) = entries.next().await {
            let entry = entry.map_err(|why| failed(url, &why))?;
            let Some(below) = entry.path().strip_prefix(path.trim_start_matches('/')) else {
                continue;
            };
            if below.is_empty() || below.ends_with('/') || !entry.metadata().is_file() {
                continue;
            }
            found.push(Remote {
                path: below.to_owned(),
                size: Some(entry.metadata().content_length()),
            });
            if found.len() > MAX_LISTED {
                return Err(refused(url.as_str(), "there are more files than can be listed"));
            }
        }
        Ok(found)
    }

    /// Returns the operator of an address, and the path below its root.
    fn at(&self, url: &Url) -> Result<(Operator, String), Failure> {
        let path = listing::decoded(url.path())
            .ok_or_else(|| refused(url.as_str(), "its path is no text"))?;
        let root =
            format!("{}://{}?{}", url.scheme(), url.authority(), url.query().unwrap_or_default());
        let mut made = self.made.lock().expect("no holder panics");
        if let Some(known) = made.get(&root) {
            return Ok((known.clone(), path));
        }
        let transport = HttpTransporter::new(ReqwestTransport::new(self.client.clone()));
        let operator = operator(url).map_err(|why| failed(url, &why))?;
        let operator =
            operator.with_context(OperationContext::new().with_http_transport(transport));
        made.insert(root, operator.clone());
        Ok((operator, path))
    }
}

fn operator(url: &Url) -> opendal::Result<Operator> {
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "file" => Operator::new(Fs::default().root("/")),
        "webdav" | "webdavs" => {
            let scheme = if url.scheme() == "webdavs" { "https" } else { "http" };
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            Operator::new(Webdav::default().endpoint(&format!("{scheme}://{host}{port}")))
        }
        _ => {
            let asked =
                |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value);
            let region = asked("region").unwrap_or(REGION.into());
            // The service that lends machines of a cloud their credentials is not asked: it is at a local address.
            let mut bucket = S3::default().bucket(host).region(&region).disable_ec2_metadata();
            if let Some(endpoint) = asked("endpoint") {
                bucket = bucket.endpoint(&endpoint);
            }
            if asked("anonymous").is_some() {
                bucket = bucket.skip_signature().disable_config_load();
            }
            Operator::new(bucket)
        }
    }
}

fn origin(url: &Url, found: &Metadata) -> Origin {
    let etag = found.etag().filter(|tag| tag.len() <= MAX_ENTITY_TAG);
    Origin {
        uri: url.to_string(),
        etag: etag.map(str::to_owned),
        modified_wall_ms: found.last_modified().map(|time| time.into_inner().as_millisecond()),
        size: found.content_length(),
        imported_wall_ms: 0,
    }
}

fn failed(url: &Url, error: &opendal::Error) -> Failure {
    match error.kind() {
        Kind::NotFound => of_status(url.as_str(), 404),
        Kind::PermissionDenied => of_status(url.as_str(), 403),
        Kind::RateLimited => of_status(url.as_str(), 429),
        Kind::Unexpected if error.is_temporary() => away(url.as_str(), &error.to_string()),
        // What is read behind the end of a file is not there.
        _ => refused(url.as_str(), &error.to_string()),
    }
}
