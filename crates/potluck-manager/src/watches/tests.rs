use super::*;
use potluck_core::attributes::FileTime;
use potluck_core::entropy::SeededEntropy;
use potluck_wire::control::DirChange;
use potluck_wire::error::code;
use std::future::poll_fn;
use std::task::Poll;

const USER: MemberId = MemberId(1);
const OTHER: MemberId = MemberId(2);
const NOW: Tick = Tick::from_secs(10);

fn path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

/// Watches, and the entropy from which the numbers of streams are drawn.
struct Tested {
    watches: Watches,
    entropy: SeededEntropy,
}

impl Tested {
    fn new() -> Self {
        Self { watches: Watches::default(), entropy: SeededEntropy::new(1) }
    }

    async fn news(&self, member: MemberId, stream: Option<WatchId>, heard: u64) -> WatchNews {
        let news = self.watches.news(member, Watch { stream, heard }, NOW, &self.entropy);
        news.await.expect("it may have a stream")
    }

    async fn open(&self, member: MemberId) -> WatchId {
        self.news(member, None, 0).await.stream
    }

    fn watch(&self, stream: &WatchId, member: MemberId, dirs: &[&str]) -> Vec<bool> {
        let dirs: Vec<_> = dirs.iter().map(|dir| path(dir)).collect();
        self.watch_all(stream, member, &dirs)
    }

    fn watch_all(&self, stream: &WatchId, member: MemberId, dirs: &[PoolPath]) -> Vec<bool> {
        let changes_of_rights = self.watches.changes_of_rights();
        self.watches.watch(stream, member, dirs.iter(), changes_of_rights)
    }

    fn changed(&self, paths: &[&str]) {
        let entry = |at: &&str| CommittedChange::Entry { path: path(at), is_there: true };
        self.watches.committed(paths.iter().map(entry).collect());
    }
}

fn names(dir: &str, changed: &[&str]) -> DirChange {
    let changed = changed.iter().map(|name| (*name).to_owned()).collect();
    DirChange { changed, ..DirChange::new(path(dir)) }
}

fn whole(dir: &str) -> DirChange {
    DirChange { all: true, ..DirChange::new(path(dir)) }
}

#[tokio::test(start_paused = true)]
async fn watch_hears_of_its_directories_only() {
    let tested = Tested::new();
    assert!(!tested.watches.listens());
    let (first, second) = (tested.open(USER).await, tested.open(OTHER).await);
    assert!(tested.watches.listens());
    assert_eq!(tested.watch(&first, USER, &["pot://lab/a", "pot://lab"]), [true, true]);
    assert_eq!(tested.watch(&second, OTHER, &["pot://lab/b"]), [true]);
    assert_eq!(tested.watch(&second, USER, &["pot://lab"]), [false], "it is somebody else's");
    tested.changed(&["pot://lab/a/f", "pot://lab/a/below/f", "pot://lab/c", "pot://other/a"]);
    let removed = CommittedChange::Entry { path: path("pot://lab/a/g"), is_there: false };
    tested.watches.committed(vec![removed]);
    let news = tested.news(USER, Some(first), 0).await;
    let in_a = DirChange { gone: vec!["g".into()], ..names("pot://lab/a", &["f"]) };
    assert_eq!((news.number, &news.dirs[..]), (1, &[names("pot://lab", &["c"]), in_a][..]));
    // If there is no news, the answer comes after the wait and is empty.
    let before = tokio::time::Instant::now();
    let none = tested.news(OTHER, Some(second), 0).await;
    assert_eq!(none, WatchNews { stream: second, ..WatchNews::default() });
    assert_eq!(before.elapsed(), WATCH_WAIT);
    // If there is news, the answer comes at once.
    let waits = tested.news(USER, Some(first), 1);
    let mut waits = std::pin::pin!(waits);
    poll_fn(|context| {
        assert!(waits.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    tested.changed(&["pot://lab/d"]);
    let before = tokio::time::Instant::now();
    let news = waits.await;
    assert_eq!((news.number, news.dirs), (2, vec![names("pot://lab", &["d"])]));
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn name_changes_wake_parent_watchers_once_a_second() {
    let tested = Tested::new();
    let stream = tested.open(USER).await;
    tested.watch(&stream, USER, &["pot://lab"]);
    let makes = |name: &str| {
        let entry = CommittedChange::Entry { path: path(name), is_there: true };
        let dir = path(name).parent().expect("a directory");
        let at = FileTime(path(name).file_name().expect("a number").parse().expect("a number"));
        tested.watches.committed(vec![entry, CommittedChange::Modified(dir, at)]);
    };
    let before = tokio::time::Instant::now();
    let told = async |heard| {
        let news = tested.news(USER, Some(stream), heard).await;
        let modified = news.dirs.iter().flat_map(|dir| &dir.modified);
        let modified = modified.map(|(name, at)| format!("{name}{}", at.0));
        let touched = news.dirs.iter().flat_map(|dir| dir.attributes.clone());
        let told: Vec<_> = modified.chain(touched).collect();
        (news.number, told.join(" "), before.elapsed().as_millis())
    };
    makes("pot://lab/a/1");
    makes("pot://lab/b/1");
    assert_eq!(told(0).await, (1, "a1 b1".into(), 1000));
    makes("pot://lab/a/2");
    assert_eq!(told(1).await, (2, "a2".into(), 2000));
    // Other news are not held up, and take along what waits.
    makes("pot://lab/a/3");
    tested.changed(&["pot://lab/c"]);
    assert_eq!(told(2).await, (3, "a3".into(), 2000));
    makes("pot://lab/a/4");
    makes("pot://lab/a/5");
    makes("pot://lab/b/4");
    tested.watches.committed(vec![CommittedChange::Attributes(path("pot://lab/b"))]);
    assert_eq!(told(3).await, (4, "a5 b".into(), 2000), "somebody set attributes");
    makes("pot://lab/b/5");
    assert_eq!(told(3).await, (5, "a5 b".into(), 2000), "the answer was lost");
    let none = (5, String::new(), 2000 + WATCH_WAIT.as_millis());
    assert_eq!(told(5).await, none);
    // Of more directories than are told one by one their own is told as a whole, and is not watched any more.
    (0..300).for_each(|number| makes(&format!("pot://lab/{number}/1")));
    let news = tested.news(USER, Some(stream), 5).await;
    assert_eq!(news.dirs, [whole("pot://lab")]);
    assert_eq!(before.elapsed().as_millis(), none.2, "at once, for nothing else would be told");
}

#[tokio::test(start_paused = true)]
async fn watch_reports_attributes_apart_from_changes() {
    let tested = Tested::new();
    let stream = tested.open(USER).await;
    tested.watch(&stream, USER, &["pot://lab", "pot://"]);
    let touched = |at: &[&str]| {
        let told = at.iter().map(|at| CommittedChange::Attributes(path(at))).collect();
        tested.watches.committed(told);
    };
    touched(&["pot://lab/a", "pot://lab/b", "pot://lab"]);
    tested.changed(&["pot://lab/b"]);
    touched(&["pot://lab/b"]);
    let news = tested.news(USER, Some(stream), 0).await;
    let both = vec![OWN_NAME.into(), "a".into()];
    let expected = DirChange { attributes: both, ..names("pot://lab", &["b"]) };
    assert_eq!(news.dirs, [expected], "and who watches the root is told of no space");
    // What did not arrive is sent again, before what was heard since.
    tested.changed(&["pot://lab/c"]);
    assert_eq!(tested.news(USER, Some(stream), 1).await.number, 2); // this answer is lost
    touched(&["pot://lab/c"]);
    let again = tested.news(USER, Some(stream), 1).await;
    assert_eq!(again.dirs, [names("pot://lab", &["c"])]);
}

#[tokio::test(start_paused = true)]
async fn lost_watch_events_are_resent_and_abandoned_calls_take_none() {
    let tested = Tested::new();
    let stream = tested.open(USER).await;
    tested.watch(&stream, USER, &["pot://lab"]);
    tested.changed(&["pot://lab/a"]);
    assert_eq!(tested.news(USER, Some(stream), 0).await.number, 1); // this answer is lost
    tested.changed(&["pot://lab/b"]);
    let again = tested.news(USER, Some(stream), 0).await;
    assert_eq!((again.number, again.dirs), (2, vec![names("pot://lab", &["a", "b"])]));
    // The call before is still there when the client asks again.
    let (given_up, waits) =
        (tested.news(USER, Some(stream), 2), tested.news(USER, Some(stream), 2));
    let change = async { tested.changed(&["pot://lab/c"]) };
    let (given_up, waits, ()) = tokio::join!(biased; given_up, waits, change);
    assert_eq!((given_up.number, given_up.dirs), (2, Vec::new()));
    assert_eq!((waits.number, waits.dirs), (3, vec![names("pot://lab", &["c"])]));
    // What nobody can have heard yet is not believed.
    let confused = tested.news(USER, Some(stream), 7).await;
    assert!(confused.everything);
    assert_eq!(tested.watches.streams().watchers.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn watch_queues_and_watched_directories_are_bounded() {
    let tested = Tested::new();
    let stream = tested.open(USER).await;
    tested.watch(&stream, USER, &["pot://lab", "pot://lab/a"]);
    let many: Vec<_> = (0..300).map(|number| format!("pot://lab/{number}")).collect();
    tested.changed(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let news = tested.news(USER, Some(stream), 0).await;
    assert_eq!(news.dirs, [whole("pot://lab")]);
    assert_eq!(tested.watches.streams().watchers_of(&path("pot://lab")), [], "and no more of it");
    tested.changed(&["pot://lab/a/f"]);
    assert_eq!(tested.news(USER, Some(stream), 1).await.dirs, [names("pot://lab/a", &["f"])]);

    let dirs: Vec<_> = (0..1000).map(|number| path(&format!("pot://lab/{number:0200}"))).collect();
    tested.watch_all(&stream, USER, &dirs);
    for dir in &dirs {
        for name in ["x", "y"] {
            let path = dir.join(name).expect("a path");
            tested.watches.committed(vec![CommittedChange::Entry { path, is_there: true }]);
        }
    }
    let news = tested.news(USER, Some(stream), 2).await;
    assert!(news.everything && news.dirs.is_empty());
    assert_eq!(tested.watches.streams().watchers.len(), 0);
    assert_eq!(tested.watches.streams().members[&USER].bytes, 0);

    // Of more directories than a member may watch the oldest go, and the stream hears of that.
    let name = "n".repeat(200);
    let deep = |number: usize| path(&format!("pot://lab/{number}/{name}/{name}/{name}/{name}"));
    let fits = BYTES_OF_MEMBER / cost(&deep(10_000));
    assert!(fits > 10_000 && fits < 99_999, "{fits}");
    let others = tested.open(OTHER).await;
    assert_eq!(tested.watch(&others, OTHER, &["pot://lab"]), [true]);
    let second = tested.open(USER).await;
    for number in 10_000..10_000 + DIRS_OF_STREAM {
        assert_eq!(tested.watch_all(&stream, USER, &[deep(number)]), [true]);
    }
    let all: Vec<_> = (50_000..50_000 + fits).map(deep).collect();
    let watched = tested.watch_all(&second, USER, &all);
    assert!(watched.iter().all(|watched| *watched));
    assert!(tested.watches.streams().members[&USER].bytes <= BYTES_OF_MEMBER);
    let news = tested.news(USER, Some(second), 0).await;
    assert!(
        news.everything
            || news.dirs.contains(&DirChange { all: true, ..DirChange::new(deep(50_000)) })
    );
    assert_eq!(tested.watch(&others, OTHER, &["pot://lab/a"]), [true], "others have their own");

    let here = tested.watches.streams().members[&USER].streams.len();
    for _ in here..STREAMS_OF_MEMBER {
        tested.open(USER).await;
    }
    let open = |now| tested.watches.news(USER, Watch::default(), now, &tested.entropy);
    let refused = open(NOW).await.expect_err("too many");
    assert_eq!(refused.code, code::TOO_MANY_WATCHES);
    assert_eq!(
        tested.watches.streams().members[&USER].streams.len(),
        STREAMS_OF_MEMBER,
        "none had to go for it"
    );
    open(NOW + GIVEN_UP_AFTER).await.expect("room");
    assert_eq!(tested.watches.streams().by_id.len(), 1, "those that nobody asks are given up");
}

#[tokio::test(start_paused = true)]
async fn lost_rights_end_watch_events_and_revocation_ends_the_stream() {
    let tested = Tested::new();
    let (stream, other) = (tested.open(USER).await, tested.open(OTHER).await);
    tested.watch(&stream, USER, &["pot://lab", "pot://lab/a", "pot://free"]);
    tested.watch(&other, OTHER, &["pot://", "pot://free"]);
    tested.changed(&["pot://lab/secret"]);
    tested.watches.committed(vec![CommittedChange::Rights(Some("lab".into()))]);
    tested.changed(&["pot://lab/a/later", "pot://free/f"]);
    let news = tested.news(USER, Some(stream), 0).await;
    let expected = [names("pot://free", &["f"]), whole("pot://lab"), whole("pot://lab/a")];
    assert_eq!(news.dirs, expected);
    // The names of spaces are told to nobody.
    assert_eq!(
        tested.news(OTHER, Some(other), 0).await.dirs,
        [whole("pot://"), names("pot://free", &["f"])]
    );
    tested.watch(&other, OTHER, &["pot://"]);
    tested.changed(&["pot://new-space"]);
    assert_eq!(tested.news(OTHER, Some(other), 1).await.dirs, [whole("pot://")]);

    let waits = tested.news(OTHER, Some(other), 2);
    let revoke = async { tested.watches.committed(vec![CommittedChange::Member(OTHER)]) };
    let (ended, ()) = tokio::join!(waits, revoke);
    assert_eq!(ended.dirs, []);
    assert_eq!(tested.watch(&other, OTHER, &["pot://lab"]), [false]);
    assert_ne!(tested.open(OTHER).await, other);
    // Rights that were looked up before a change of rights let nobody watch.
    let before = tested.watches.changes_of_rights();
    tested.watches.committed(vec![CommittedChange::Rights(None)]);
    let dirs = [path("pot://lab")];
    assert_eq!(tested.watches.watch(&stream, USER, dirs.iter(), before), [false]);
    // If it is not known what changed, anything may have changed.
    tested.watches.committed(vec![CommittedChange::Unknown]);
    assert!(tested.news(USER, Some(stream), 1).await.everything);
}

#[tokio::test(start_paused = true)]
async fn watches_hide_staging_directories() {
    let tested = Tested::new();
    let stream = tested.open(USER).await;
    let staging = CheckpointId([3; 16]).staging_name();
    let inside = format!("pot://lab/run/{staging}");
    let other = tested.open(OTHER).await;
    tested.watch(&stream, USER, &["pot://lab/run", &inside]);
    tested.watch(&other, OTHER, &["pot://lab/run"]);
    tested.changed(&[&format!("{inside}/f")]);
    let news = tested.news(USER, Some(stream), 0).await;
    assert_eq!(news.dirs, [names(&inside, &["f"])]);
    tested.changed(&[&inside]);
    let news = tested.news(USER, Some(stream), 1).await;
    assert_eq!(news.dirs, [whole(&inside)], "who is told of it");
    assert_eq!(tested.news(OTHER, Some(other), 0).await.dirs, []);
}
