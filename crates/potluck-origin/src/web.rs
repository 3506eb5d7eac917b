//! Web servers: what is at an address, ranges of it, and the listings that servers show of their directories.

use crate::allowed::{AllowedHosts, PublicNames};
use crate::failures::{away, changed, of_status, refused};
use crate::listing::{self, Remote};
use crate::{FoundOrigin, Origins};
use futures_util::{Stream, StreamExt};
use potluck_core::origin::{MAX_ENTITY_TAG, Origin};
use potluck_wire::error::Failure;
use reqwest::header::{self, HeaderMap, HeaderName};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};
use std::error::Error as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use url::Url;

/// The most redirects in a row that are followed.
const MOST_REDIRECTS: usize = 8;
/// The time after which a server that sends nothing counts as away.
const SILENCE: Duration = Duration::from_secs(30);
/// The most bytes of a listing that are read.
const MAX_LISTING: usize = 16 << 20;
/// The most directories below an address that are listed, and the most files.
const MAX_LISTED: usize = 1_000_000;

pub(crate) struct Web {
    client: Client,
    allowed: Arc<AllowedHosts>,
}

impl Web {
    pub fn new(allowed: Arc<AllowedHosts>) -> Result<Self, Failure> {
        let redirects = {
            let allowed = Arc::clone(&allowed);
            redirect::Policy::custom(move |attempt| {
                let (url, from) = (attempt.url(), attempt.previous().last());
                let is_opened =
                    from.is_some_and(|from| from.scheme() == "https") && url.scheme() != "https";
                let private = url.host_str().and_then(|host| allowed.refuses(host));
                if attempt.previous().len() > MOST_REDIRECTS {
                    attempt.error("too many redirects")
                } else if is_opened {
                    attempt.error("it leads from https to http")
                } else if let Some(why) = private {
                    attempt.error(why)
                } else {
                    attempt.follow()
                }
            })
        };
        let client = Client::builder()
            .redirect(redirects)
            .dns_resolver(Arc::new(PublicNames(Arc::clone(&allowed))))
            .connect_timeout(SILENCE)
            .read_timeout(SILENCE)
            // A proxy of the environment would resolve names itself, past the rule of which hosts are asked.
            .no_proxy()
            .user_agent(concat!("potluck/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|why| {
                refused("anywhere", &format!("this machine cannot speak HTTPS: {why}"))
            })?;
        Ok(Self { client, allowed })
    }

    /// Returns the client, which asks no host that is not allowed.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        with: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, Failure> {
        if let Some(why) = url.host_str().and_then(|host| self.allowed.refuses(host)) {
            return Err(refused(url.as_str(), &why));
        }
        let request =
            self.client.request(method, url.clone()).header(header::ACCEPT_ENCODING, "identity");
        with(request).send().await.map_err(|why| failed(url, &why))
    }

    /// Asks for the headers of what is at an address; of its first byte where the server answers no HEAD.
    pub async fn stat(&self, url: &Url) -> Result<FoundOrigin, Failure> {
        let head = self.send(Method::HEAD, url, |request| request).await?;
        if head.status().is_success()
            && let Some(size) = number(head.headers(), &header::CONTENT_LENGTH)
        {
            let ranges = text(head.headers(), &header::ACCEPT_RANGES) == Some("bytes");
            if ranges {
                return Ok(FoundOrigin { origin: origin(url, head.headers(), size), ranges });
            }
        }
        if matches!(head.status().as_u16(), 404 | 410) {
            return Err(of_status(url.as_str(), head.status().as_u16()));
        }
        // Not every server that gives ranges says so.
        let first =
            self.send(Method::GET, url, |request| request.header(header::RANGE, "bytes=0-0"));
        let first = first.await?;
        let headers = first.headers();
        match first.status() {
            StatusCode::PARTIAL_CONTENT => {
                let size = text(headers, &header::CONTENT_RANGE)
                    .and_then(|range| range.rsplit('/').next()?.parse().ok())
                    .ok_or_else(|| refused(url.as_str(), "it does not say how long it is"))?;
                Ok(FoundOrigin { origin: origin(url, headers, size), ranges: true })
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(FoundOrigin { origin: origin(url, headers, 0), ranges: false })
            }
            status if status.is_success() => {
                let size = number(headers, &header::CONTENT_LENGTH)
                    .ok_or_else(|| refused(url.as_str(), "it does not say how long it is"))?;
                Ok(FoundOrigin { origin: origin(url, headers, size), ranges: false })
            }
            status => Err(of_status(url.as_str(), status.as_u16())),
        }
    }

    /// Reads a range. A server that gives none sends all, of which what comes before the range is thrown away.
    pub async fn read(
        &self,
        url: &Url,
        range: Range<u64>,
        tag: Option<&str>,
    ) -> Result<Vec<u8>, Failure> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let asked = format!("bytes={}-{}", range.start, range.end - 1);
        let response =
            self.send(Method::GET, url, |request| request.header(header::RANGE, &asked)).await?;
        let now = text(response.headers(), &header::ETAG);
        if let (Some(before), Some(now)) = (tag, now)
            && before != now
        {
            return Err(changed(url.as_str()));
        }
        let mut skip = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let begins = format!("bytes {}-", range.start);
                let given = text(response.headers(), &header::CONTENT_RANGE);
                if given.is_none_or(|given| !given.starts_with(&begins)) {
                    return Err(refused(url.as_str(), "it gives another range than was asked for"));
                }
                0
            }
            StatusCode::OK => range.start,
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(Vec::new()),
            status => return Err(of_status(url.as_str(), status.as_u16())),
        };
        let len = usize::try_from(range.end - range.start)
            .map_err(|_| refused(url.as_str(), "the range does not fit in memory"))?;
        let mut bytes = Vec::with_capacity(len);
        let mut body = response.bytes_stream();
        while bytes.len() < len
            && let Some(part) = body.next().await
        {
            let part = part.map_err(|why| failed(url, &why))?;
            let skipped = skip.min(part.len() as u64);
            skip -= skipped;
            let part = &part[skipped as usize..];
            bytes.extend_from_slice(&part[..part.len().min(len - bytes.len())]);
        }
        Ok(bytes)
    }

    /// Returns all bytes of what is at an address, as they come.
    pub async fn read_through(
        &self,
        url: &Url,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, Failure>> + Send + use<>, Failure> {
        let response = self.send(Method::GET, url, |request| request).await?;
        if !response.status().is_success() {
            return Err(of_status(url.as_str(), response.status().as_u16()));
        }
        let url = url.clone();
        let piece = move |part: reqwest::Result<_>| match part {
            Ok(part) => Ok(Vec::from(part)),
            Err(why) => Err(failed(&url, &why)),
        };
        Ok(response.bytes_stream().map(piece))
    }

    /// Lists what is below an address by the pages that the server shows of its directories.
    pub async fn list(&self, base: &Url, origins: &Origins) -> Result<Vec<Remote>, Failure> {
        let (mut found, mut dirs) = (Vec::new(), vec![String::new()]);
        let mut listed = 0;
        while let Some(dir) = dirs.pop() {
            let at = base
                .join(&listing::encoded(&dir))
                .map_err(|why| refused(base.as_str(), &why.to_string()))?;
            let page = origins.retrying(&at, || Box::pin(self.page(&at))).await?;
            listed += 1;
            for name in listing::links(&page, &at) {
                let path = format!("{dir}{name}");
                match name.ends_with('/') {
                    true => dirs.push(path),
                    false => found.push(Remote { path, size: None }),
                }
                if found.len() + dirs.len() + listed > MAX_LISTED {
                    return Err(refused(base.as_str(), "there are more files than can be listed"));
                }
            }
        }
        Ok(found)
    }

    async fn page(&self, url: &Url) -> Result<String, Failure> {
        let response = self.send(Method::GET, url, |request| request).await?;
        if !response.status().is_success() {
            return Err(of_status(url.as_str(), response.status().as_u16()));
        }
        let is_page = text(response.headers(), &header::CONTENT_TYPE)
            .is_some_and(|it| it.starts_with("text/html"));
        if !is_page {
            return Err(refused(
                url.as_str(),
                "it shows no listing: name the files, or use --from-file",
            ));
        }
        let (mut page, mut body) = (Vec::new(), response.bytes_stream());
        while let Some(part) = body.next().await {
            page.extend_from_slice(&part.map_err(|why| failed(url, &why))?);
            if page.len() > MAX_LISTING {
                return Err(refused(url.as_str(), "its listing is too long"));
            }
        }
        Ok(String::from_utf8_lossy(&page).into_owned())
    }
}

fn origin(url: &Url, headers: &HeaderMap, size: u64) -> Origin {
    let etag = text(headers, &header::ETAG).filter(|tag| tag.len() <= MAX_ENTITY_TAG);
    let modified =
        text(headers, &header::LAST_MODIFIED).and_then(|text| httpdate::parse_http_date(text).ok());
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Origin {
        uri: url.to_string(),
        etag: etag.map(str::to_owned),
        modified_wall_ms: since.and_then(|since| i64::try_from(since.as_millis()).ok()),
        size,
        imported_wall_ms: 0,
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    text(headers, name)?.parse().ok()
}

/// Returns the failure of a request that was not answered. What a host is not asked for is no reason to try again.
fn failed(url: &Url, error: &reqwest::Error) -> Failure {
    let mut causes = vec![error.to_string()];
    let mut cause = error.source();
    let mut is_forbidden = error.is_redirect();
    while let Some(why) = cause {
        let io = why.downcast_ref::<std::io::Error>();
        is_forbidden |= io.is_some_and(|why| why.kind() == std::io::ErrorKind::PermissionDenied);
        causes.push(why.to_string());
        cause = why.source();
    }
    let why = causes.pop().unwrap_or_default();
    if is_forbidden { refused(url.as_str(), &why) } else { away(url.as_str(), &why) }
}
