//! A web server on loopback, with files in memory, that tests import from. It gives ranges, listings and entity tags, and
//! can be told to behave as bad servers do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A web server, which ends with the test's process.
#[derive(Clone)]
pub struct WebServer {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    redirects: Mutex<BTreeMap<String, String>>,
    /// The number of bytes of files that were sent.
    sent: AtomicU64,
    /// True if requests for ranges are answered with whole files.
    without_ranges: AtomicBool,
    /// True if every connection is closed without an answer.
    away: AtomicBool,
    /// The pause before each answer with bytes of a file, in milliseconds.
    pause_ms: AtomicU64,
}

impl WebServer {
    /// Starts a server without files.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::<Shared>::default();
        let server = Self { port, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        server
    }

    /// Returns the address of a path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Puts a file at a path.
    pub fn put(&self, path: &str, content: &[u8]) {
        self.shared.files.lock().expect("whole").insert(path.into(), content.into());
    }

    /// Has a path lead to another address.
    pub fn redirect(&self, path: &str, to: &str) {
        self.shared.redirects.lock().expect("whole").insert(path.into(), to.into());
    }

    /// Returns the number of bytes of files that were sent until now.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Has the server give no ranges, or give them again.
    pub fn without_ranges(&self, without: bool) {
        self.shared.without_ranges.store(without, Ordering::Relaxed);
    }

    /// Has the server answer nothing, or answer again.
    pub fn away(&self, away: bool) {
        self.shared.away.store(away, Ordering::Relaxed);
    }

    /// Has each answer with bytes of a file come so much later.
    pub fn pause(&self, pause: Duration) {
        self.shared.pause_ms.store(pause.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Shared {
    /// Answers the requests of a connection until it is closed.
    fn serve(&self, stream: &TcpStream) {
        let mut lines = BufReader::new(stream).lines();
        while let Some(Ok(request)) = lines.next() {
            let mut range = None;
            while let Some(Ok(header)) = lines.next() {
                if header.is_empty() {
                    break;
                }
                let header = header.to_ascii_lowercase();
                range = header.strip_prefix("range: bytes=").map(str::to_owned).or(range);
            }
            if self.away.load(Ordering::Relaxed) {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            let mut words = request.split(' ');
            let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let (head, body) = self.answer(path, range.as_deref());
            let is_sent = (&*stream).write_all(head.as_bytes()).is_ok();
            if method == "HEAD" {
                continue;
            }
            if !head.contains("text/html") {
                self.sent.fetch_add(body.len() as u64, Ordering::Relaxed);
            }
            if !is_sent || (&*stream).write_all(&body).is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str, range: Option<&str>) -> (String, Vec<u8>) {
        if let Some(to) = self.redirects.lock().expect("whole").get(path) {
            return (
                format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"),
                Vec::new(),
            );
        }
        let files = self.files.lock().expect("whole");
        let Some(content) = files.get(path) else {
            return listing(&files, path);
        };
        let tag = blake3::hash(content).to_hex()[..16].to_owned();
        let mut head =
            format!("ETag: \"{tag}\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n");
        let has_ranges = !self.without_ranges.load(Ordering::Relaxed);
        if has_ranges {
            head.push_str("Accept-Ranges: bytes\r\n");
        }
        let asked = range.filter(|_| has_ranges).and_then(|range| range.split_once('-'));
        let (status, body) = match asked {
            Some((from, to)) => {
                let from: usize = from.parse().expect("a number");
                let end = to.parse().map_or(content.len(), |to: usize| (to + 1).min(content.len()));
                if from >= content.len() {
                    return ("HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n".into(), Vec::new());
                }
                let _ =
                    write!(head, "Content-Range: bytes {from}-{}/{}\r\n", end - 1, content.len());
                ("206 Partial Content", content[from..end].to_vec())
            }
            None => ("200 OK", content.clone()),
        };
        drop(files);
        thread::park_timeout(Duration::from_millis(self.pause_ms.load(Ordering::Relaxed)));
        (format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n", body.len()), body)
    }
}

/// Answers with the page of a directory, if there are files below the path.
fn listing(files: &BTreeMap<String, Vec<u8>>, path: &str) -> (String, Vec<u8>) {
    let below = files.keys().filter_map(|file| file.strip_prefix(path));
    let mut names: Vec<String> = below
        .filter(|_| path.ends_with('/'))
        .map(|rest| match rest.split_once('/') {
            Some((dir, _)) => format!("{dir}/"),
            None => rest.to_owned(),
        })
        .collect();
    names.dedup();
    if names.is_empty() {
        return ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(), Vec::new());
    }
    let links: String =
        names.iter().map(|name| format!("<a href=\"{name}\">{name}</a>\n")).collect();
    let page = format!("<html><a href=\"../\">../</a>\n{links}</html>");
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
        page.len()
    );
    (head, page.into_bytes())
}
