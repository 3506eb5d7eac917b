//! A client of S3 and WebDAV gateways: a few lines of HTTP, and the signatures of AWS (version 4), so that the tests need
//! no other tool.

use aws_lc_rs::{digest, hmac};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

/// The time for which an answer is waited for.
const LIMIT: Duration = Duration::from_secs(90);
/// The digest that stands for a body which is not signed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// An answer of a gateway.
pub struct Answer {
    pub status: u16,
    /// The headers by their names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns this answer if it has the status.
    #[track_caller]
    pub fn with(self, status: u16) -> Self {
        let (body, headers) = (String::from_utf8_lossy(&self.body), &self.headers);
        assert_eq!(self.status, status, "{headers:?} {}", &body[..body.len().min(2000)]);
        self
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns what stands in all elements of this name in an XML body.
    pub fn all(&self, element: &str) -> Vec<String> {
        let text = self.text();
        let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
        let parts = text.split(&begin).skip(1);
        parts.map(|part| part.split(&end).next().unwrap_or_default().to_owned()).collect()
    }

    /// Returns a header.
    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }
}

/// A client with an access key.
#[derive(Clone)]
pub struct S3Client {
    pub address: String,
    pub id: String,
    pub secret: String,
}

impl S3Client {
    /// Sends a signed request; `target` is the path with its query, as it is sent.
    #[track_caller]
    pub fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let at = time(SystemTime::now());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut signed: BTreeMap<String, String> = headers
            .iter()
            .map(|(name, value)| (name.to_lowercase(), (*value).to_owned()))
            .collect();
        signed.insert("host".into(), self.address.clone());
        signed.insert("x-amz-date".into(), at.clone());
        signed.insert("x-amz-content-sha256".into(), UNSIGNED.into());
        let names = signed.keys().cloned().collect::<Vec<_>>().join(";");
        let lines: String =
            signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical =
            format!("{method}\n{path}\n{}\n{lines}\n{names}\n{UNSIGNED}", in_order(query));
        let signature = self.signature(&at, &canonical);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={names}, Signature={signature}",
            self.id,
            scope(&at)
        );
        signed.insert("authorization".into(), authorization);
        send(&self.address, method, target, &signed, body)
    }

    /// Returns a target that anybody may GET within a minute.
    pub fn presigned(&self, path: &str) -> String {
        let at = time(SystemTime::now());
        let credential = format!("{}/{}", self.id, scope(&at)).replace('/', "%2F");
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={at}&X-Amz-Expires=60\
             &X-Amz-SignedHeaders=host"
        );
        let canonical = format!("GET\n{path}\n{query}\nhost:{}\n\nhost\n{UNSIGNED}", self.address);
        format!("{path}?{query}&X-Amz-Signature={}", self.signature(&at, &canonical))
    }

    fn signature(&self, at: &str, canonical: &str) -> String {
        let scope = scope(at);
        let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashed}");
        let key = format!("AWS4{}", self.secret).into_bytes();
        let key = scope.split('/').fold(key, |key, part| mac(&key, part));
        hex(&mac(&key, &text))
    }

    /// Sends a request with the key as user name and password, as WebDAV clients do.
    #[track_caller]
    pub fn dav(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut all: BTreeMap<String, String> = headers
            .iter()
            .map(|(name, value)| (name.to_lowercase(), (*value).to_owned()))
            .collect();
        let shown = base64(format!("{}:{}", self.id, self.secret).as_bytes());
        all.insert("authorization".into(), format!("Basic {shown}"));
        all.insert("host".into(), self.address.clone());
        send(&self.address, method, path, &all, body)
    }
}

/// Sends a request that shows no key.
#[track_caller]
pub fn ask_openly(address: &str, method: &str, target: &str) -> Answer {
    let headers = [("host".to_owned(), address.to_owned())];
    send(address, method, target, &headers.into(), b"")
}

#[track_caller]
fn send(
    address: &str,
    method: &str,
    target: &str,
    headers: &BTreeMap<String, String>,
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(address).expect("a gateway that listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    let mut head = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
    // A gateway that refuses a request may answer and close before it has read all of it.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let mut came = Vec::new();
    let read = stream.read_to_end(&mut came);
    let end = came.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer to {method} {target}: {read:?}"));
    let head = String::from_utf8_lossy(&came[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    };
    let headers: BTreeMap<String, String> = lines.filter_map(pair).collect();
    let body = came.split_off(end + 4);
    let is_chunked = headers.get("transfer-encoding").is_some_and(|how| how == "chunked");
    let body = if is_chunked { dechunked(&body) } else { body };
    Answer { status: status.expect("a status"), headers, body }
}

/// Returns a body without the lengths of its chunks.
fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(&String::from_utf8_lossy(&body[..end]), 16);
        let Ok(length) = length else { break };
        let start = end + 2;
        if length == 0 || body.len() < start + length + 2 {
            break;
        }
        whole.extend_from_slice(&body[start..start + length]);
        body = &body[start + length + 2..];
    }
    whole
}

/// Returns a query with its pairs in order, each with a sign between name and value.
fn in_order(query: &str) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| if pair.contains('=') { pair.into() } else { format!("{pair}=") };
    let mut pairs: Vec<String> = pairs.map(pair).collect();
    pairs.sort();
    pairs.join("&")
}

fn scope(at: &str) -> String {
    format!("{}/us-east-1/s3/aws4_request", &at[..8])
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let three = |three: &[u8]| {
        let number = (0..3).fold(0, |all, at| all << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        let letter = |at: usize| match at <= three.len() {
            true => LETTERS[(number >> (18 - 6 * at)) as usize & 63] as char,
            false => '=',
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(three).collect()
}

/// Returns a time as signatures have it, such as `20261130T215900Z`.
fn time(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let (days, second) = ((seconds / 86400) as i64, seconds % 86400);
    // Days since 1970 as a date: https://howardhinnant.github.io/date_algorithms.html#civil_from_days
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{:02}Z", second % 60)
}
