//! A manager for tests. It tells of small files and links in one space, which the test replaces between two requests of
//! the kernel.

use potluck_client::Pool;
use potluck_core::attributes::FileTime;
use potluck_core::chunk::Digest;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::call::Caller;
use potluck_wire::control::{Call, KnownDir, Move, NamesChanged, Open, Refresh, SetAttributes};
use potluck_wire::env;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::{BoxFuture, BoxStream, Net, SystemNet};
use potluck_wire::packed::Blob;
use potluck_wire::tls::Dial;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Plain;

impl Dial for Plain {
    fn secure(&self, stream: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>> {
        Box::pin(async { Ok(stream) })
    }
}

/// A manager that knows one space. Clones share what it knows.
#[derive(Clone, Default)]
pub struct SmallManager {
    space: Arc<Mutex<SmallSpace>>,
}

#[derive(Default)]
struct SmallSpace {
    names: BTreeMap<String, SmallEntry>,
    /// The number of versions that were made.
    versions: u64,
    /// The versions of which attributes were set.
    attributes_set: Vec<Option<VersionId>>,
}

#[derive(Clone, Copy)]
enum SmallEntry {
    File { version: VersionId, content: &'static str },
    Link { target: &'static str },
}

impl SmallManager {
    /// Answers on a port of its own from now on; returns a client.
    pub async fn pool(&self) -> Pool {
        let mut listener = SystemNet.listen("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let manager = self.clone();
        env::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let manager = manager.clone();
                env::spawn(async move { manager.serve(stream).await });
            }
        });
        let caller = Caller::new(Arc::new(SystemNet), Arc::new(Plain), address.into());
        Pool::new(Env::system(), caller)
    }

    fn space(&self) -> MutexGuard<'_, SmallSpace> {
        self.space.lock().expect("no holder panics")
    }

    /// Makes a new version of the file at a name.
    pub fn put(&self, name: &str, content: &'static str) -> VersionId {
        let mut space = self.space();
        space.versions += 1;
        let version = VersionId(space.versions);
        space.names.insert(name.into(), SmallEntry::File { version, content });
        version
    }

    /// Puts a symbolic link at a name.
    pub fn link(&self, name: &str, target: &'static str) {
        self.space().names.insert(name.into(), SmallEntry::Link { target });
    }

    /// Returns the versions of which attributes were set so far.
    pub fn attributes_set(&self) -> Vec<Option<VersionId>> {
        self.space().attributes_set.clone()
    }

    /// Answers the calls of one connection.
    async fn serve(&self, mut stream: BoxStream) {
        let (mut heard, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = stream.read(&mut part).await {
            heard.extend_from_slice(&part[..read]);
            let Some((name, body)) = whole_request(&heard) else { continue };
            let (status, said) = match self.space().answer(&name, &body) {
                Ok(answer) => ("200 OK", answer),
                Err(failure) => ("404 Not Found", json!(failure)),
            };
            heard.clear();
            let said = said.to_string();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", said.len());
            stream.write_all(format!("{head}{said}").as_bytes()).await.expect("sent");
        }
    }
}

/// Returns the name of the call and its body, once all of a request is there.
fn whole_request(heard: &[u8]) -> Option<(String, String)> {
    let (head, body) = std::str::from_utf8(heard).ok()?.split_once("\r\n\r\n")?;
    let name = head.split(' ').nth(1)?.rsplit('/').next()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let is_whole = length.parse::<usize>().ok()? == body.len();
    is_whole.then(|| (name.to_owned(), body.to_owned()))
}

fn request<C: Call>(body: &str) -> C {
    serde_json::from_str(body).expect("a request")
}

fn no_entry() -> Failure {
    Failure::new(ErrorKind::NotFound, code::NO_ENTRY, "nothing is there")
}

impl SmallSpace {
    fn answer(&mut self, name: &str, body: &str) -> Result<Value, Failure> {
        match name {
            Open::NAME => self.open(&request(body)),
            Refresh::NAME => Ok(self.refresh(&request(body))),
            Move::NAME => self.rename(&request(body)),
            SetAttributes::NAME => self.set_attributes(&request(body)),
            _ => Err(Failure::bad_request(name)),
        }
    }

    fn at(&self, path: &PoolPath) -> Option<SmallEntry> {
        self.names.get(path.file_name()?).copied()
    }

    fn open(&self, call: &Open) -> Result<Value, Failure> {
        match self.at(&call.path).ok_or_else(no_entry)? {
            SmallEntry::File { version, content } => {
                let (digest, inline) = (Digest::of(content.as_bytes()), Blob(content.into()));
                let file = json!({
                    "path": "", "version": version, "size": content.len(), "mtime_ns": 0,
                    "digest": digest, "inline": inline,
                });
                Ok(json!({ "files": [file], "donors": [] }))
            }
            SmallEntry::Link { target } => {
                let link = json!({ "path": "", "target": target });
                Ok(json!({ "files": [], "donors": [], "links": [link] }))
            }
        }
    }

    fn refresh(&self, call: &Refresh) -> Value {
        let news = |dir: &KnownDir| {
            let (mut entries, mut gone) = (Vec::new(), Vec::new());
            for name in dir.names.iter().map(|known| known.name.as_str()) {
                match self.entry(&dir.path, name) {
                    Some(entry) => entries.push(entry),
                    None => gone.push(name),
                }
            }
            json!({ "entries": entries, "gone": gone })
        };
        json!({ "dirs": call.dirs.iter().map(news).collect::<Vec<_>>() })
    }

    fn entry(&self, dir: &PoolPath, name: &str) -> Option<Value> {
        if dir.space().is_empty() {
            return Some(json!({ "path": name, "kind": "dir" }));
        }
        Some(match self.names.get(name)? {
            SmallEntry::File { version, content } => json!({
                "path": name, "kind": "file", "size": content.len(), "version": version,
            }),
            SmallEntry::Link { target } => json!({
                "path": name, "kind": "link", "size": target.len(), "target": target,
            }),
        })
    }

    fn rename(&mut self, call: &Move) -> Result<Value, Failure> {
        let [from, to] = [&call.from, &call.to].map(|path| path.file_name().expect("a name"));
        let moved = self.names.remove(from).ok_or_else(no_entry)?;
        self.names.insert(to.into(), moved);
        Ok(json!(NamesChanged { modified: FileTime::default() }))
    }

    fn set_attributes(&mut self, call: &SetAttributes) -> Result<Value, Failure> {
        match self.at(&call.path).ok_or_else(no_entry)? {
            SmallEntry::File { version, .. } if call.version != Some(version) => {
                Err(Failure::new(ErrorKind::Conflict, code::WRONG_VERSION, "it was replaced"))
            }
            _ => {
                self.attributes_set.push(call.version);
                Ok(json!({}))
            }
        }
    }
}
