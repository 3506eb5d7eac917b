//! Keeps which watch streams watch which directories, and the news that each stream has still to hear of them.
//!
//! Commits tell their changes here (`catalog/log/committed`). The cost of a change grows with the watchers of its
//! directory, and not with the size of the pool. The news of a stream are bounded. When there are too many, the names
//! of a directory are replaced by "anything in this directory", and too many of these by "anything": with that the
//! stream's watches end, until its client asks about the directories again.

mod news;

use news::{NameNews, News, ToldWhole};
use potluck_catalog::{ChangeListener, CommittedChange};
use potluck_core::checkpoint::CheckpointId;
use potluck_core::clock::Tick;
use potluck_core::entropy::Entropy;
use potluck_core::ids::{MemberId, WatchId};
use potluck_core::path::PoolPath;
use potluck_wire::control::{OWN_NAME, WATCH_WAIT, Watch, WatchNews};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// The most streams that one member may have: mounts on all machines of a group that shares an identity. Further
/// streams are refused, and their mounts ask the manager about each name: if new streams took the places of others,
/// these would come back and take theirs.
const STREAMS_OF_MEMBER: usize = 128;
/// The most directories that one stream may watch: more than a large source tree has.
const DIRS_OF_STREAM: usize = 16_384;
/// The most bytes that the watched directories of all streams of one member take, counted as [`cost`] says.
const BYTES_OF_MEMBER: usize = 32 << 20;
/// The time without a call for news after which a stream is given up when another is opened: its client asks every
/// [`WATCH_WAIT`].
const GIVEN_UP_AFTER: Duration = Duration::from_secs(20);

/// The time for which a stream does not hear that a directory was modified because of a name in it, unless it has other
/// news: otherwise each new file would wake every mount that has listed the directory above.
const UNHURRIED: Duration = Duration::from_secs(1);

/// All watch streams of a manager.
#[derive(Default)]
pub struct Watches(Mutex<Streams>);

impl Watches {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().expect("no holder panics")
    }

    /// Answers a member's call for news: at once if there are some, otherwise without any after [`WATCH_WAIT`]. A call
    /// without a stream, or with one that the member does not have, opens a stream and is answered at once.
    ///
    /// Errors: [`code::TOO_MANY_WATCHES`].
    pub async fn news(
        &self,
        member: MemberId,
        call: Watch,
        now: Tick,
        entropy: &dyn Entropy,
    ) -> Result<WatchNews, Failure> {
        let begun = self.streams().begin_turn(member, call, now);
        let Some((id, turn, wake)) = begun else {
            let stream = WatchId(entropy.bytes());
            self.streams().open(stream, member, now)?;
            return Ok(WatchNews { stream, ..WatchNews::default() });
        };
        let none = WatchNews { stream: id, number: call.heard, ..WatchNews::default() };
        let wait = async {
            let mut has_waited = false;
            loop {
                let mut woken = std::pin::pin!(wake.notified());
                // From here on every urgent change wakes this, even before it waits.
                woken.as_mut().enable();
                match self.streams().take_news(&id, turn, has_waited) {
                    Turn::News(news) => return news,
                    Turn::Over => return none.clone(),
                    Turn::Waits => {}
                }
                has_waited |= tokio::time::timeout(UNHURRIED, woken).await.is_err();
            }
        };
        match tokio::time::timeout(WATCH_WAIT, wait).await {
            Ok(news) => Ok(news),
            Err(_) => match self.streams().take_news(&id, turn, true) {
                Turn::News(news) => Ok(news),
                Turn::Over | Turn::Waits => Ok(none),
            },
        }
    }

    /// Returns the number of times that rights were changed so far.
    pub fn changes_of_rights(&self) -> u64 {
        self.streams().changes_of_rights
    }

    /// Has a member's stream watch directories from now on, and says of each directory whether the stream watches it.
    /// The caller first takes the number of [`Self::changes_of_rights`], then checks that the member may list the
    /// directories, calls this, and reads them last. After a change of rights in between nothing is watched.
    pub fn watch<'dirs>(
        &self,
        stream: &WatchId,
        member: MemberId,
        dirs: impl Iterator<Item = &'dirs PoolPath>,
        changes_of_rights: u64,
    ) -> Vec<bool> {
        // The directories are taken one by one, so that the catalog's writer can tell of changes in between.
        let watch = |dir| {
            let mut streams = self.streams();
            streams.changes_of_rights == changes_of_rights && streams.watch(stream, member, dir)
        };
        dirs.map(watch).collect()
    }

    /// Has all calls for news of open streams answered at once and without news: the manager stops.
    pub fn close(&self) {
        let mut streams = self.streams();
        streams.is_closed = true;
        streams.by_id.values().for_each(|stream| stream.wake.notify_waiters());
    }
}

impl ChangeListener for Watches {
    fn listens(&self) -> bool {
        !self.streams().by_id.is_empty()
    }

    fn committed(&self, changes: Vec<CommittedChange>) {
        let mut streams = self.streams();
        for change in changes {
            match change {
                CommittedChange::Entry { path, is_there } => streams.entry_changed(&path, is_there),
                CommittedChange::Attributes(path) => {
                    streams.attributes_changed(&path, NameNews::Touched);
                }
                CommittedChange::Modified(path, at) => {
                    streams.attributes_changed(&path, NameNews::Modified(at));
                }
                CommittedChange::Rights(Some(space)) => streams.rights_changed(&space),
                CommittedChange::Rights(None) => {
                    streams.changes_of_rights += 1;
                    let spaces: Vec<_> = streams.watchers.keys().cloned().collect();
                    spaces.iter().for_each(|space| streams.rights_changed(space));
                }
                CommittedChange::Member(member) => streams.end_streams_of(member),
                CommittedChange::Unknown => {
                    let all: Vec<_> = streams.by_id.keys().copied().collect();
                    for id in all {
                        streams.tell(&id, News::add_everything);
                    }
                }
            }
        }
    }
}

/// The outcome of one look for the news that a call waits for.
enum Turn {
    News(WatchNews),
    /// Nothing changed yet.
    Waits,
    /// A later call waits in place of this one, or the stream ended, or the manager stops.
    Over,
}

#[derive(Default)]
struct Streams {
    by_id: HashMap<WatchId, Stream>,
    /// The streams that watch each directory, by space, so that all watchers in a space are found when rights in it
    /// change.
    watchers: HashMap<String, HashMap<Arc<PoolPath>, HashSet<WatchId>>>,
    members: HashMap<MemberId, MembersWatches>,
    /// The number of times that any directory was watched; it orders the watches by age.
    watched: u64,
    changes_of_rights: u64,
    is_closed: bool,
}

/// The watch streams of one member, and the bytes of the manager's memory that they take.
#[derive(Default)]
struct MembersWatches {
    streams: Vec<WatchId>,
    bytes: usize,
}

struct Stream {
    member: MemberId,
    /// The moment at which the client asked for news last.
    asked: Tick,
    /// The number of the call that is answered; earlier ones were given up by the client.
    turn: u64,
    dirs: HashMap<Arc<PoolPath>, u64>,
    by_age: BTreeMap<u64, Arc<PoolPath>>,
    /// The number of the last news that were sent.
    sent_number: u64,
    /// The number of the last news that are known to have arrived.
    heard_number: u64,
    /// The news that were sent after those that are known to have arrived.
    sent: News,
    waiting: News,
    /// True if the waiting news are to be sent at once.
    is_urgent: bool,
    wake: Arc<Notify>,
}

/// Returns the bytes that a watched directory is counted with: those of its path, and about as many as maps take for
/// it.
fn cost(dir: &PoolPath) -> usize {
    dir.space().len() + dir.names().iter().map(|name| name.len() + 32).sum::<usize>() + 250
}

impl Streams {
    fn open(&mut self, id: WatchId, member: MemberId, now: Tick) -> Result<(), Failure> {
        let given_up = self
            .by_id
            .iter()
            .filter(|(_, stream)| now.saturating_sub(stream.asked) >= GIVEN_UP_AFTER);
        let given_up: Vec<_> = given_up.map(|(id, _)| *id).collect();
        given_up.iter().for_each(|id| self.end(id));
        let streams = self.members.get(&member).map_or(0, |of| of.streams.len());
        if streams >= STREAMS_OF_MEMBER {
            let what = format!("you have {streams} clients that keep metadata already");
            return Err(Failure::new(ErrorKind::Conflict, code::TOO_MANY_WATCHES, what).hint(
                "this one asks the manager about each name; give some an identity of their own",
            ));
        }
        self.members.entry(member).or_default().streams.push(id);
        let (dirs, by_age, sent, waiting, wake) = Default::default();
        let (turn, sent_number, heard_number) = Default::default();
        let stream = Stream {
            member,
            asked: now,
            turn,
            dirs,
            by_age,
            sent_number,
            heard_number,
            sent,
            waiting,
            is_urgent: false,
            wake,
        };
        self.by_id.insert(id, stream);
        Ok(())
    }

    fn end(&mut self, id: &WatchId) {
        self.unwatch_all(id);
        let Some(stream) = self.by_id.remove(id) else { return };
        stream.wake.notify_waiters();
        if let Some(of_member) = self.members.get_mut(&stream.member) {
            of_member.streams.retain(|other| other != id);
            if of_member.streams.is_empty() {
                self.members.remove(&stream.member);
            }
        }
    }

    fn end_streams_of(&mut self, member: MemberId) {
        let streams = self.members.get(&member).map(|of| of.streams.clone()).unwrap_or_default();
        streams.iter().for_each(|id| self.end(id));
    }

    fn stream(&mut self, id: &WatchId, member: MemberId) -> Option<&mut Stream> {
        self.by_id.get_mut(id).filter(|stream| stream.member == member)
    }

    /// Begins a call for news, which acknowledges the news that arrived; `None` if its member has no such stream.
    fn begin_turn(
        &mut self,
        member: MemberId,
        call: Watch,
        now: Tick,
    ) -> Option<(WatchId, u64, Arc<Notify>)> {
        let id = call.stream?;
        let stream = self.stream(&id, member)?;
        (stream.asked, stream.turn) = (now, stream.turn + 1);
        let (turn, wake) = (stream.turn, Arc::clone(&stream.wake));
        wake.notify_waiters();
        let sent = std::mem::take(&mut stream.sent);
        stream.is_urgent |= call.heard != stream.sent_number;
        let whole = match call.heard {
            heard if heard == stream.sent_number => Some(Vec::new()),
            // The news that did not arrive are sent again, with those that came since.
            heard if heard >= stream.heard_number && heard < stream.sent_number => {
                stream.waiting.add_older(sent)
            }
            _ => {
                stream.waiting.add_everything();
                None
            }
        };
        stream.heard_number = call.heard;
        match whole {
            Some(dirs) => dirs.iter().for_each(|dir| self.unwatch(&id, dir)),
            None => self.unwatch_all(&id),
        }
        Some((id, turn, wake))
    }

    /// Takes the waiting news of a stream for a call, which `has_waited` for [`UNHURRIED`] or not.
    fn take_news(&mut self, id: &WatchId, turn: u64, has_waited: bool) -> Turn {
        let is_closed = self.is_closed;
        let Some(stream) = self.by_id.get_mut(id) else { return Turn::Over };
        if is_closed || stream.turn != turn {
            return Turn::Over;
        }
        if stream.waiting.is_empty() || !(stream.is_urgent || has_waited) {
            return Turn::Waits;
        }
        stream.is_urgent = false;
        stream.sent = std::mem::take(&mut stream.waiting);
        stream.sent_number += 1;
        Turn::News(stream.sent.to_message(*id, stream.sent_number))
    }

    fn watch(&mut self, id: &WatchId, member: MemberId, dir: &PoolPath) -> bool {
        self.watched += 1;
        let age = self.watched;
        let Some(stream) = self.stream(id, member) else { return false };
        if let Some((dir, known)) = stream.dirs.get_key_value(dir) {
            let (dir, known) = (Arc::clone(dir), *known);
            stream.by_age.remove(&known);
            stream.by_age.insert(age, Arc::clone(&dir));
            stream.dirs.insert(dir, age);
            return true;
        }
        while self.is_full(id, member, cost(dir)) {
            let oldest = self.by_id[id].by_age.first_key_value().map(|(_, dir)| Arc::clone(dir));
            let Some(oldest) = oldest else { return false };
            self.unwatch(id, &oldest);
            let told = self.tell(id, |news| news.add_dir(&oldest));
            if told == ToldWhole::Everything {
                break; // that ended all its watches
            }
        }
        let dir = Arc::new(dir.clone());
        let of_space = self.watchers.entry(dir.space().to_owned()).or_default();
        of_space.entry(Arc::clone(&dir)).or_default().insert(*id);
        self.members.entry(member).or_default().bytes += cost(&dir);
        let stream = self.by_id.get_mut(id).expect("just found");
        stream.by_age.insert(age, Arc::clone(&dir));
        stream.dirs.insert(dir, age);
        true
    }

    fn is_full(&self, id: &WatchId, member: MemberId, more: usize) -> bool {
        let bytes = self.members.get(&member).map_or(0, |of_member| of_member.bytes);
        self.by_id[id].dirs.len() >= DIRS_OF_STREAM || bytes + more > BYTES_OF_MEMBER
    }

    fn unwatch(&mut self, id: &WatchId, dir: &PoolPath) {
        let Some(stream) = self.by_id.get_mut(id) else { return };
        let Some(age) = stream.dirs.remove(dir) else { return };
        stream.by_age.remove(&age);
        if let Some(of_member) = self.members.get_mut(&stream.member) {
            of_member.bytes = of_member.bytes.saturating_sub(cost(dir));
        }
        let Some(of_space) = self.watchers.get_mut(dir.space()) else { return };
        if let Some(watchers) = of_space.get_mut(dir) {
            watchers.remove(id);
            if watchers.is_empty() {
                of_space.remove(dir);
            }
        }
        if of_space.is_empty() {
            self.watchers.remove(dir.space());
        }
    }

    fn unwatch_all(&mut self, id: &WatchId) {
        let dirs = self.by_id.get(id).map(|stream| stream.dirs.keys().cloned().collect());
        let dirs: Vec<Arc<PoolPath>> = dirs.unwrap_or_default();
        dirs.iter().for_each(|dir| self.unwatch(id, dir));
    }

    fn watchers_of(&self, dir: &PoolPath) -> Vec<WatchId> {
        let watchers = self.watchers.get(dir.space()).and_then(|of_space| of_space.get(dir));
        watchers.map(|ids| ids.iter().copied().collect()).unwrap_or_default()
    }

    /// Tells watchers that there is another entry at a path, or none any more.
    fn entry_changed(&mut self, path: &PoolPath, is_there: bool) {
        match (path.parent(), path.file_name()) {
            // A client that knows the name of a staging directory reaches the files in it, so only its own watchers are
            // told the name.
            (Some(_), Some(name)) if CheckpointId::of_staging_name(name).is_some() => {
                for id in self.watchers_of(path) {
                    self.unwatch(&id, path);
                    self.tell(&id, |news| news.add_dir(path));
                }
            }
            (Some(dir), Some(name)) => {
                for id in self.watchers_of(&dir) {
                    let now = if is_there { NameNews::Changed } else { NameNews::Absent };
                    let told = self.tell(&id, |news| news.add_name(&dir, name, now));
                    if told == ToldWhole::Dir {
                        self.unwatch(&id, &dir);
                    }
                }
            }
            // A watcher of the root of the pool may not know the names of all spaces.
            _ => {
                let root = PoolPath::root();
                for id in self.watchers_of(&root) {
                    self.unwatch(&id, &root);
                    self.tell(&id, |news| news.add_dir(&root));
                }
            }
        }
    }

    /// Tells watchers that attributes of the entry at a path were set; after a while if the entry is a directory that was
    /// modified because of a name in it. A change of a space's own directory is told to the watchers of that directory:
    /// a watcher of the root of the pool may not know of the space.
    fn attributes_changed(&mut self, path: &PoolPath, now: NameNews) {
        let (dir, name) = match (path.parent(), path.file_name()) {
            (Some(_), Some(name)) if CheckpointId::of_staging_name(name).is_some() => return,
            (Some(dir), Some(name)) => (dir, name),
            _ => (path.clone(), OWN_NAME),
        };
        for id in self.watchers_of(&dir) {
            let told = self.add_news(&id, |news| news.add_name(&dir, name, now));
            // A stream that does not watch any more has to know.
            if now == NameNews::Touched || told != ToldWhole::Nothing {
                self.hurry(&id);
            }
            if told == ToldWhole::Dir {
                self.unwatch(&id, &dir);
            }
        }
    }

    /// Ends the watches of the directories of a space and of the root, and tells their streams: members may have lost
    /// or gained the right to list them.
    fn rights_changed(&mut self, space: &str) {
        self.changes_of_rights += 1;
        let mut dirs: Vec<Arc<PoolPath>> = vec![Arc::new(PoolPath::root())];
        dirs.extend(self.watchers.get(space).into_iter().flat_map(|dirs| dirs.keys().cloned()));
        for dir in dirs {
            for id in self.watchers_of(&dir) {
                self.unwatch(&id, &dir);
                self.tell(&id, |news| news.add_dir(&dir));
            }
        }
    }

    /// Adds to the news of a stream, and wakes the call that waits for them.
    fn tell(&mut self, id: &WatchId, add: impl FnOnce(&mut News) -> ToldWhole) -> ToldWhole {
        let told = self.add_news(id, add);
        self.hurry(id);
        told
    }

    fn hurry(&mut self, id: &WatchId) {
        let Some(stream) = self.by_id.get_mut(id) else { return };
        stream.is_urgent = true;
        stream.wake.notify_waiters();
    }

    fn add_news(&mut self, id: &WatchId, add: impl FnOnce(&mut News) -> ToldWhole) -> ToldWhole {
        let Some(stream) = self.by_id.get_mut(id) else { return ToldWhole::Nothing };
        let told = add(&mut stream.waiting);
        if told == ToldWhole::Everything {
            self.unwatch_all(id);
        }
        told
    }
}

#[cfg(test)]
mod tests;
