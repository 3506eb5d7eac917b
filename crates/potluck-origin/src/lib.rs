//! Bytes that live elsewhere: the web servers, buckets and directories from which files are imported, and from which
//! chunks of cached files are fetched again.
//!
//! A file at an origin is named by a URL. `https://` and `http://` are spoken here (`web`), because addresses with
//! queries, servers without ranges and listings that are web pages are ordinary there; `s3://`, `webdav://`,
//! `webdavs://` and `file://` by opendal (`stores`). Both go through one client for HTTP, whose names are resolved by
//! `allowed`: an address that somebody else wrote down must not lead this machine to services of its own network.

mod allowed;
mod checksum;
mod failures;
mod listing;
mod stores;
mod web;

pub use allowed::{AllowedHosts, is_public};
pub use checksum::{Checksum, Summing};
pub use listing::Remote;

use failures::refused;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use potluck_client::OriginSource;
use potluck_core::origin::Origin;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use stores::Stores;
use tokio::sync::Semaphore;
use url::Url;
use web::Web;

/// The number of times that a request is sent before it is given up, where the origin is away.
const TRIES: u32 = 4;
/// The pause after the first request that failed; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The way to origins: one client for all of them.
pub struct Origins {
    web: Web,
    stores: Stores,
    /// The most requests at once to each host.
    connections: usize,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A file at an origin, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundOrigin {
    /// What the pool is to keep of it; the time of its import is not set.
    pub origin: Origin,
    /// True if the origin gives any range of it by itself.
    pub ranges: bool,
}

impl Origins {
    /// Makes a way to those origins that `allowed` allows, with at most so many requests to each host at once.
    ///
    /// Errors: [`code::ORIGIN_REFUSED`] where this machine has no usable certificates of authorities.
    pub fn new(allowed: AllowedHosts, connections: usize) -> Result<Self, Failure> {
        potluck_wire::tls::install_provider();
        let web = Web::new(Arc::new(allowed))?;
        let stores = Stores::new(web.client());
        Ok(Self { web, stores, connections: connections.max(1), hosts: Mutex::default() })
    }

    /// Asks what is at an address.
    ///
    /// Errors: those of [`OriginSource::read`], and of an address that is none.
    pub async fn stat(&self, uri: &str) -> Result<FoundOrigin, Failure> {
        let url = parse(uri)?;
        let url = &url;
        self.retrying(url, || match is_web(url) {
            true => Box::pin(self.web.stat(url)),
            false => Box::pin(self.stores.stat(url)),
        })
        .await
    }

    /// Lists the files below an address that ends with a slash, in order of their names.
    ///
    /// Errors: those of [`OriginSource::read`]; [`code::ORIGIN_REFUSED`] for a web server that shows no listing.
    pub async fn list(&self, uri: &str) -> Result<Vec<Remote>, Failure> {
        let url = parse(uri)?;
        let mut found = match is_web(&url) {
            true => self.web.list(&url, self).await?,
            false => {
                let url = &url;
                self.retrying(url, || Box::pin(self.stores.list(url))).await?
            }
        };
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Reads a range of what is at an address. Fewer bytes come where it is shorter. If `as_of` is given, and the origin
    /// says that the content has another entity tag now, that is an error.
    ///
    /// Errors: those of [`OriginSource::read`], and [`code::ORIGIN_CHANGED`].
    pub async fn read_range(
        &self,
        uri: &str,
        range: Range<u64>,
        as_of: Option<&Origin>,
    ) -> Result<Vec<u8>, Failure> {
        let url = parse(uri)?;
        let (url, tag) = (&url, as_of.and_then(|origin| origin.etag.as_deref()));
        self.retrying(url, || match is_web(url) {
            true => Box::pin(self.web.read(url, range.clone(), tag)),
            false => Box::pin(self.stores.read(url, range.clone())),
        })
        .await
    }

    /// Reads a web address from its beginning to its end, in one request, for servers that give no ranges. Returns the
    /// bytes as they come.
    ///
    /// Errors: those of [`OriginSource::read`], also of each piece.
    pub async fn read_through(
        &self,
        uri: &str,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, Failure>>, Failure> {
        let url = parse(uri)?;
        let turn = self.turn(&url).await;
        let pieces = self.web.read_through(&url).await?;
        Ok(pieces.map(move |piece| piece.inspect(|_| _ = &turn)).boxed())
    }

    /// Runs a request when it is the host's turn, and again after a pause while the origin is away.
    async fn retrying<'r, T>(
        &self,
        url: &Url,
        request: impl Fn() -> BoxFuture<'r, Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            let turn = self.turn(url).await;
            match request().await {
                Err(failure) if failure.kind == ErrorKind::Retry => {}
                done => return done,
            }
            drop(turn);
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        let _turn = self.turn(url).await;
        request().await
    }

    /// Waits until fewer requests than are allowed go to the host of an address.
    async fn turn(&self, url: &Url) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let turns = {
            let mut hosts = self.hosts.lock().expect("no holder panics");
            let new = || Arc::new(Semaphore::new(self.connections));
            Arc::clone(hosts.entry(host).or_insert_with(new))
        };
        turns.acquire_owned().await.ok() // it is never closed
    }
}

impl OriginSource for Origins {
    fn read<'a>(
        &'a self,
        origin: &'a Origin,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        Box::pin(self.read_range(&origin.uri, range, Some(origin)))
    }
}

/// A way to origins that is made when it is first used: to load this machine's certificates of authorities takes longer
/// than most commands, of which few go to an origin.
pub struct OriginsOnDemand {
    allowed: AllowedHosts,
    connections: usize,
    made: OnceLock<Result<Origins, Failure>>,
}

impl OriginsOnDemand {
    /// Makes a way as [`Origins::new`] does, later.
    pub fn new(allowed: AllowedHosts, connections: usize) -> Self {
        Self { allowed, connections, made: OnceLock::new() }
    }

    /// Returns the way to origins, which is made if need be.
    ///
    /// Errors: those of [`Origins::new`].
    pub fn get(&self) -> Result<&Origins, Failure> {
        let made = self.made.get_or_init(|| Origins::new(self.allowed.clone(), self.connections));
        made.as_ref().map_err(Clone::clone)
    }
}

impl OriginSource for OriginsOnDemand {
    fn read<'a>(
        &'a self,
        origin: &'a Origin,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        let reached = refuse_own(&origin.uri, &self.allowed).and_then(|()| self.get());
        match reached {
            Ok(origins) => origins.read(origin, range),
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        }
    }
}

/// Refuses an origin, which another member may have written down, that would be read by what this user alone has: files
/// of this machine, unless `localhost` is allowed, and credentials for buckets at a service that is not allowed by name.
fn refuse_own(uri: &str, allowed: &AllowedHosts) -> Result<(), Failure> {
    let url = parse(uri)?;
    let of_query = |name: &str| url.query_pairs().find(|(key, _)| key == name);
    let host = match url.scheme() {
        "file" => Some("localhost".to_owned()),
        "s3" if of_query("anonymous").is_none() => of_query("endpoint").map(|(_, endpoint)| {
            let endpoint = Url::parse(&endpoint).ok();
            endpoint.and_then(|it| it.host_str().map(str::to_owned)).unwrap_or_default()
        }),
        _ => None,
    };
    match host.filter(|host| !allowed.names(host)) {
        None => Ok(()),
        Some(host) => {
            let what = format!("the origin {uri} is not asked: another member may have named it");
            let hint = format!("if you trust it, add {host} to origins-allow in config.toml");
            Err(Failure::new(ErrorKind::Auth, code::ORIGIN_REFUSED, what).hint(hint))
        }
    }
}

/// Reads an address of an origin.
///
/// Errors: [`code::BAD_REQUEST`] for a text that is none, or whose scheme is not known.
pub fn parse(uri: &str) -> Result<Url, Failure> {
    let url = Url::parse(uri).map_err(|why| not_an_address(uri, &why.to_string()))?;
    match url.scheme() {
        "http" | "https" | "s3" | "webdav" | "webdavs" if url.host_str().is_some() => Ok(url),
        "file" => Ok(url),
        scheme => Err(not_an_address(uri, &format!("nothing is imported by “{scheme}”"))),
    }
}

fn not_an_address(uri: &str, why: &str) -> Failure {
    let what = format!("“{uri}” is no address of an origin: {why}");
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(
        "use https://, http://, s3://BUCKET/KEY, webdavs://, webdav:// or file:///; `potluck cp` copies local files",
    )
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Returns the last name in the path of an address, decoded; `None` where it has none, or one that no file may have.
pub fn name_of(uri: &str) -> Option<String> {
    let url = parse(uri).ok()?;
    let last = url.path().rsplit('/').next()?.to_owned();
    let name = listing::decoded(&last)?;
    (!name.is_empty() && name != "." && name != ".." && !name.contains('/')).then_some(name)
}

/// Returns the address of an entry below another address that ends with a slash.
///
/// Errors: [`code::BAD_REQUEST`] for a base that is none.
pub fn below(base: &str, path: &str) -> Result<String, Failure> {
    let mut url = parse(base)?;
    let mut segments = match url.path_segments_mut() {
        Ok(segments) => segments,
        Err(()) => return Err(refused(base, "it has no path")),
    };
    segments.pop_if_empty().extend(path.split('/'));
    drop(segments);
    Ok(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_others_use_nothing_of_this_user_unasked() {
        let (none, listed) = (AllowedHosts::new([]), ["localhost".into(), "s3.lab.example".into()]);
        let listed = AllowedHosts::new(listed);
        let own = ["file:///dev/zero", "s3://bucket/key?endpoint=https://s3.lab.example"];
        for uri in own {
            assert!(refuse_own(uri, &none).is_err(), "{uri}");
            assert!(refuse_own(uri, &listed).is_ok(), "{uri}");
        }
        let open =
            ["https://example.org/f", "s3://b/k", "s3://b/k?anonymous&endpoint=https://x.example"];
        assert!(open.iter().all(|uri| refuse_own(uri, &none).is_ok()));
    }

    #[test]
    fn address_names_its_file_and_those_below_it() {
        assert_eq!(name_of("https://host/a/b%20c.nc?x=1").as_deref(), Some("b c.nc"));
        assert_eq!(name_of("s3://bucket/key").as_deref(), Some("key"));
        for none in
            ["https://host/", "https://host/a%2Fb", "https://host/%2e%2e", "ftp://host/a", "a"]
        {
            assert_eq!(name_of(none), None, "{none}");
        }
        let at = |base, path| below(base, path).ok();
        assert_eq!(at("https://host/d/", "a b/c").as_deref(), Some("https://host/d/a%20b/c"));
        assert_eq!(at("s3://bucket/", "a?b").as_deref(), Some("s3://bucket/a%3Fb"));
        assert_eq!(
            at("s3://bucket/d/?endpoint=http://h:1", "a").as_deref(),
            Some("s3://bucket/d/a?endpoint=http://h:1")
        );
    }
}
