//! A client's process: it performs its script with the product's client, and checks what it reads
//! against the reference model.

use crate::cast::Who;
use crate::content::Content;
use crate::history::{Fate, WriteId};
use crate::host::Host;
use crate::plan::Op;
use crate::stage::{Busy, Stage};
use potluck_client::{ByteRange, Input, Item, Items, Pool, PutOptions, PutReport, Quiet, cat, put};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::path::PoolPath;
use potluck_core::recipe::unpack_page;
use potluck_wire::control::{Condition, EntryKind, Open};
use potluck_wire::error::{ErrorKind, Failure};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The space of all scenarios.
pub const SPACE: &str = "data";

/// The longest that a write may take. Each of its stages may wait for a manager that is away
/// ([`potluck_client::RetryLimits::under_way`]), and then for the deadline of its last call (A2).
const WRITE_MOST: Duration = Duration::from_secs(200);
/// The longest that any other action may take (A2).
const READ_MOST: Duration = Duration::from_secs(60);

/// Joins the pool, and then performs the client's script until the host crashes.
pub async fn live(stage: Stage, host: Host, number: u8) -> turmoil::Result {
    host.join(&stage.invitations).await;
    let client = Pool::new(host.env(), host.caller());
    let actor = Actor { stage, client, who: host.who };
    loop {
        match actor.stage.next_step(number) {
            Some(op) => actor.perform(op).await,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

struct Actor {
    stage: Stage,
    client: Pool,
    who: Who,
}

fn pool_path(path: &str) -> PoolPath {
    format!("pot://{SPACE}/{path}").parse().expect("a valid path")
}

/// Returns the path without the space.
fn relative(path: &PoolPath) -> String {
    path.names().join("/")
}

impl Actor {
    fn now(&self) -> Duration {
        self.stage.trace.now()
    }

    fn say(&self, what: impl std::fmt::Display) {
        self.stage.trace.say(self.who, what);
    }

    async fn perform(&self, op: Op) {
        let text = op.to_string();
        self.say(&text);
        let most = match &op {
            Op::Put { .. } | Op::Torn(..) => WRITE_MOST,
            Op::Get(..) | Op::Remove(_) | Op::List(_) | Op::Recipe(_) => READ_MOST,
        };
        let busy = Busy { op: text, since: self.now(), most, writes: Vec::new() };
        self.stage.board().busy.insert(self.who, busy);
        match op {
            Op::Put { files, condition, known } => self.put(files, condition, known).await,
            Op::Torn(path, content) => self.torn(&path, content).await,
            Op::Get(path, from) => self.get(&path, from).await,
            Op::Remove(path) => self.remove(&path).await,
            Op::List(dir) => self.list(&dir).await,
            Op::Recipe(path) => self.recipe(&path).await,
        }
        self.stage.board().busy.remove(&self.who);
    }

    // ---- writing

    fn begin(&self, path: &str, value: Option<Content>) -> WriteId {
        let now = self.now();
        let mut board = self.stage.board();
        let id = board.history.begin(path, value, now);
        if let Some(busy) = board.busy.get_mut(&self.who) {
            busy.writes.push(id.clone());
        }
        id
    }

    fn end(&self, id: &WriteId, fate: Fate) {
        let now = self.now();
        let ended = self.stage.board().history.end(id, fate, now);
        if let Err(why) = ended {
            self.stage.broken("versions are unique", why);
        }
    }

    async fn put(&self, files: Vec<(String, Content)>, condition: Condition, known: bool) {
        let begun = self.now();
        let mut writes: BTreeMap<String, WriteId> = files
            .iter()
            .map(|(path, content)| (path.clone(), self.begin(path, Some(*content))))
            .collect();
        let total = files.iter().map(|(_, content)| content.len).sum();
        let root = match files.as_slice() {
            [(path, _)] => pool_path(path),
            _ => pool_path(files[0].0.split('/').next().expect("a directory")),
        };
        let options =
            PutOptions { condition, bytes: known.then_some(total), ..PutOptions::default() };
        let items = files.iter().map(|(path, content)| Item {
            path: pool_path(path),
            input: Input::Stream(Box::new(Cursor::new(content.bytes()))),
        });
        let items: Items = Box::new(items.collect::<Vec<_>>().into_iter());
        match put(&self.client, &root, items, &options, Arc::new(Quiet)).await {
            Ok(report) => self.account(report, &mut writes, begun),
            Err(failure) => {
                self.say(format_args!("put failed: {} {:?}", failure.code, failure.kind));
                // If there are several files, some may have become visible before the others failed.
                let unknown = writes.len() > 1
                    || matches!(
                        failure.kind,
                        ErrorKind::Retry | ErrorKind::Other | ErrorKind::Integrity
                    );
                let fate = if unknown { Fate::Unknown } else { refusal(&failure) };
                self.stage.board().health.below_policy |= unknown;
                writes.values().for_each(|id| self.end(id, fate));
                self.must_have_failed(&failure, begun);
            }
        }
    }

    fn account(&self, report: PutReport, writes: &mut BTreeMap<String, WriteId>, begun: Duration) {
        let PutReport { stored, failed, sent_chunks, held_chunks, below_policy, .. } = report;
        self.stage.board().health.below_policy |= below_policy > 0;
        for (path, version) in stored {
            let path = relative(&path);
            self.say(format_args!("stored {path} as {version}"));
            match writes.remove(&path) {
                Some(id) => self.end(&id, Fate::Done(Some(version))),
                None => self.stage.broken("L1", format_args!("{path} was reported twice")),
            }
        }
        for (path, failure) in failed {
            let path = relative(&path);
            self.say(format_args!("{path} refused: {} {:?}", failure.code, failure.kind));
            match writes.remove(&path) {
                Some(id) => self.end(&id, refusal(&failure)),
                None => self.stage.broken("L1", format_args!("{path} was reported twice")),
            }
            self.must_have_failed(&failure, begun);
        }
        for (path, id) in writes {
            self.end(id, Fate::Unknown);
            self.stage.broken("L1", format_args!("nothing was reported about {path}"));
        }
        self.say(format_args!(
            "put done: {sent_chunks} chunks sent, {held_chunks} held, {below_policy} below policy"
        ));
    }

    /// Notes a broken promise if a write that began at `begun` failed, without a conflict, in a healthy pool.
    fn must_have_failed(&self, failure: &Failure, begun: Duration) {
        let is_conflict = matches!(failure.kind, ErrorKind::Conflict);
        if !is_conflict && self.stage.board().health.must_write(self.who, begun) {
            self.stage.broken("A1", format_args!("a write failed in a healthy pool: {failure}"));
        }
    }

    async fn torn(&self, path: &str, content: Content) {
        let write = self.begin(path, Some(content));
        let mut half = content.bytes();
        half.truncate(half.len() / 2);
        let input = Input::Stream(Box::new(Cursor::new(half).chain(Breaks)));
        let items: Items = Box::new(std::iter::once(Item { path: pool_path(path), input }));
        let options = PutOptions::default();
        let result = put(&self.client, &pool_path(path), items, &options, Arc::new(Quiet)).await;
        // Half a file must never become visible, whatever the put returns.
        self.end(&write, Fate::Refused);
        match result {
            Ok(report) if report.stored.is_empty() => self.say("torn put refused"),
            Ok(_) => self.stage.broken("D2", format_args!("half of {path} was stored")),
            Err(failure) => self.say(format_args!("torn put failed: {}", failure.code)),
        }
    }

    async fn remove(&self, path: &str) {
        let begun = self.now();
        let write = self.begin(path, None);
        match self.client.remove(&pool_path(path), false).await {
            Ok(removed) => {
                self.say(format_args!("removed {} bytes", removed.bytes));
                self.end(&write, Fate::Done(None));
            }
            Err(failure) => {
                self.say(format_args!("not removed: {}", failure.code));
                if failure.kind == ErrorKind::NotFound {
                    self.end(&write, Fate::Refused);
                    self.saw(path, None, begun);
                } else {
                    self.end(&write, Fate::Unknown);
                    self.must_have_failed(&failure, begun);
                }
            }
        }
    }

    // ---- reading

    fn saw(&self, path: &str, seen: Option<Digest>, begun: Duration) {
        let checked = self.stage.board().history.check(path, seen, (begun, self.now()));
        if let Err(why) = checked {
            self.stage.broken("D1/D2", why);
        }
    }

    async fn get(&self, path: &str, from: u64) {
        let begun = self.now();
        let out = Sink::default();
        let range = ByteRange::From(from, None);
        let read =
            cat(&self.client, &pool_path(path), range, None, out.clone(), Arc::new(Quiet)).await;
        match read {
            Ok(report) => {
                let bytes = std::mem::take(&mut *out.0.lock().expect("no holder panics"));
                let (len, hash) = (bytes.len(), Digest::of(&bytes));
                self.say(format_args!("read {len} bytes {hash:?}, {} failovers", report.failovers));
                self.saw_bytes(path, from, &bytes, begun);
            }
            Err(failure) if failure.kind == ErrorKind::NotFound => {
                self.say("read: not there");
                self.saw(path, None, begun);
            }
            // The file ends before `from`: another client may have replaced it by a shorter one.
            Err(failure) if failure.kind == ErrorKind::Usage && from > 0 => {
                self.say("read: the file ends before that");
                self.saw_bytes(path, from, &[], begun);
            }
            Err(failure) => {
                self.say(format_args!("cannot read: {} {:?}", failure.code, failure.kind));
                if self.stage.board().health.must_read(self.who, begun) {
                    self.stage.broken("D1/A1", format_args!("{path} cannot be read: {failure}"));
                }
            }
        }
    }

    fn saw_bytes(&self, path: &str, from: u64, bytes: &[u8], begun: Duration) {
        if from == 0 {
            return self.saw(path, Some(Digest::of(bytes)), begun);
        }
        let possible = self.stage.board().history.possible(path, begun, self.now());
        let fits = |content: &Content| {
            let all = content.bytes();
            all.get(from as usize..).unwrap_or_default() == bytes
        };
        if !possible.iter().flatten().any(fits) {
            let len = bytes.len();
            self.stage.broken(
                "I1",
                format_args!(
                    "{len} bytes of {path} from byte {from} on are of none of {possible:?}"
                ),
            );
        }
    }

    async fn recipe(&self, path: &str) {
        let open = Open { path: pool_path(path), recursive: false, after: None, leased: false };
        match self.client.call(&open).await {
            Ok(opened) => {
                let mut board = self.stage.board();
                for file in &opened.files {
                    let entries = file
                        .pages
                        .iter()
                        .flat_map(|page| unpack_page(&page.0).expect("read before").chunks);
                    let data: Vec<ChunkName> = entries.map(|entry| entry.name).collect();
                    if let Some(ec) = file.ec {
                        let parity = file.parity.0.chunks(ec.parity());
                        let groups = ec.groups(data.len()).zip(parity);
                        let groups = groups.map(|(range, parity)| [&data[range], parity].concat());
                        board.groups.extend(groups);
                    }
                    board.needed.extend(data);
                    board.needed.extend(&file.parity.0);
                }
            }
            Err(failure) if failure.kind == ErrorKind::NotFound => {}
            Err(failure) => {
                self.stage.broken("A1", format_args!("{path} cannot be opened: {failure}"))
            }
        }
    }

    async fn list(&self, dir: &str) {
        let begun = self.now();
        let mut entries = BTreeMap::new();
        let mut after = None;
        loop {
            match self.client.list_page(&pool_path(dir), true, after.take()).await {
                Ok(page) => {
                    let files =
                        page.entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
                    entries.extend(files.map(|entry| (format!("{dir}/{}", entry.path), entry)));
                    after = page.next;
                }
                Err(failure) if failure.kind == ErrorKind::NotFound => {}
                Err(failure) => {
                    self.say(format_args!("cannot list: {} {:?}", failure.code, failure.kind));
                    if self.stage.board().health.must_read(self.who, begun) {
                        self.stage.broken("A1", format_args!("{dir} cannot be listed: {failure}"));
                    }
                    return;
                }
            }
            if after.is_none() {
                break;
            }
        }
        self.say(format_args!("listed {} files", entries.len()));
        let known = self.stage.board().history.below(&format!("{dir}/"));
        for path in known {
            let seen = entries.remove(&path).and_then(|entry| entry.digest);
            self.saw(&path, seen, begun);
        }
        if let Some(stranger) = entries.keys().next() {
            self.stage.broken("D2", format_args!("{stranger} is listed, and nobody wrote it"));
        }
    }
}

/// Returns the fate of a write that was refused.
fn refusal(failure: &Failure) -> Fate {
    if failure.kind == ErrorKind::Conflict { Fate::Beaten } else { Fate::Refused }
}

/// Collects the bytes that are read.
#[derive(Clone, Default)]
pub struct Sink(pub Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no holder panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A source whose reads fail.
struct Breaks;

impl Read for Breaks {
    fn read(&mut self, _out: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the source broke off"))
    }
}
