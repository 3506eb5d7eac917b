use super::*;
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::ids::VersionId;

const STREAM: WatchId = WatchId([1; 16]);
const NEXT_STREAM: WatchId = WatchId([2; 16]);
const NOW: Tick = Tick::from_secs(100);
const NOTHING: Option<Option<ListedEntry>> = Some(None);

fn path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

fn entry(name: &str, kind: EntryKind, version: u64) -> ListedEntry {
    let EntryAttributes { permissions, .. } = EntryAttributes::of_dir(0);
    ListedEntry {
        metadata: None,
        path: name.into(),
        kind,
        size: 3,
        holes: 0,
        mtime: FileTime(7),
        version: (kind == EntryKind::File).then_some(VersionId(version)),
        digest: None,
        copies: None,
        ec: None,
        in_catalog: false,
        permissions,
        owner: None,
        changed: FileTime(7),
        accessed: None,
        target: None,
        origin: None,
        cache: Default::default(),
    }
}

fn dir(name: &str) -> ListedEntry {
    entry(name, EntryKind::Dir, 0)
}

fn file(name: &str, version: u64) -> ListedEntry {
    entry(name, EntryKind::File, version)
}

fn told(entries: Vec<ListedEntry>) -> DirNews {
    DirNews { watched: true, entries, ..DirNews::default() }
}

/// Returns the answers of a manager that has the directories `dirs` with these entries.
fn answers(
    questions: Vec<KnownDir>,
    dirs: &[(&str, Vec<ListedEntry>)],
) -> Vec<(KnownDir, DirNews)> {
    let answer = |asked: KnownDir| {
        let there = dirs.iter().find(|(dir, _)| path(dir) == asked.path);
        let there = there.map(|(_, entries)| entries.clone()).unwrap_or_default();
        let mut news = told(Vec::new());
        for known in &asked.names {
            match there.iter().find(|entry| entry.path == known.name) {
                Some(entry) => news.entries.push(entry.clone()),
                None => news.gone.push(known.name.clone()),
            }
        }
        if asked.whole {
            let others = there.into_iter();
            let is_named = |name: &String| asked.names.iter().any(|known| known.name == *name);
            news.entries.extend(others.filter(|entry| !is_named(&entry.path)));
        }
        (asked, news)
    };
    questions.into_iter().map(answer).collect()
}

/// Returns a cache that has fetched all of [`TREE`] but its root.
fn warm() -> MetadataCache {
    let mut cache = MetadataCache::new(1 << 20);
    let (fetch, questions) = cache.begin_revalidation(STREAM);
    assert!(questions.is_empty());
    cache.resume(STREAM, NOW, fetch, &[]);
    for dir in ["pot://lab", "pot://lab/a", "pot://lab/a/b"] {
        fetch_listing(&mut cache, dir, |_| {});
    }
    cache
}

const TREE: [(&str, &[&str]); 4] = [
    ("pot://", &["lab/"]),
    ("pot://lab", &["a/", "f"]),
    ("pot://lab/a", &["b/", "f"]),
    ("pot://lab/a/b", &["f", "g"]),
];

fn tree() -> Vec<(&'static str, Vec<ListedEntry>)> {
    let entry = |name: &&str| match name.strip_suffix('/') {
        Some(name) => dir(name),
        None => file(name, 1),
    };
    TREE.iter().map(|(path, names)| (*path, names.iter().map(entry).collect())).collect()
}

fn fetch_listing(cache: &mut MetadataCache, dir: &str, meanwhile: impl FnOnce(&mut MetadataCache)) {
    let questions = cache.missing_of_listing(&path(dir));
    let fetch = cache.begin(questions.iter().map(|asked| &asked.path));
    meanwhile(cache);
    cache.finish(fetch, &answers(questions, &tree()));
}

fn change(dir: &str, names: &[&str]) -> DirChange {
    let changed = names.iter().map(|name| (*name).to_owned()).collect();
    DirChange { changed, ..DirChange::new(path(dir)) }
}

fn names(cache: &mut MetadataCache, dir: &str) -> Option<Vec<String>> {
    let listing = cache.listing(&path(dir), NOW)?;
    Some(listing.into_iter().map(|entry| entry.path).collect())
}

#[test]
fn directory_mtime_comes_with_watch_events() {
    let modified = |at| DirChange {
        modified: vec![("b".into(), FileTime(at)), ("not there".into(), FileTime(at))],
        ..DirChange::new(path("pot://lab/a"))
    };
    let mut cache = warm();
    let bytes = cache.kept_bytes();
    let time = |cache: &mut MetadataCache| {
        cache.entry(&path("pot://lab/a/b"), NOW).map(|entry| entry.expect("there").mtime.0)
    };
    assert_eq!(time(&mut cache), Some(7));
    cache.apply(&modified(9));
    assert_eq!(time(&mut cache), Some(9));
    cache.apply(&modified(8));
    assert_eq!(time(&mut cache), None, "a later time was set, or is a newer one of this mount");
    let at = path("pot://lab/a/b");
    let fetch = |cache: &mut MetadataCache, news: Option<DirChange>| {
        let questions = cache.missing(&at);
        let fetch = cache.begin(questions.iter().map(|asked| &asked.path));
        news.iter().for_each(|news| cache.apply(news));
        cache.finish(fetch, &answers(questions, &tree()));
    };
    fetch(&mut cache, Some(modified(9)));
    assert_eq!(time(&mut cache), None, "the answer may be older than the news");
    fetch(&mut cache, None);
    assert_eq!(time(&mut cache), Some(7));
    let own = DirChange {
        modified: vec![(OWN_NAME.into(), FileTime(10))],
        ..DirChange::new(path("pot://lab"))
    };
    cache.apply(&own);
    assert_eq!(cache.kept_bytes(), bytes, "nothing is kept of what was not known");
}

#[test]
fn lookup_of_a_changed_name_refetches_the_following_ones() {
    let mut cache = warm();
    let files = |version| (0..200).map(|n| file(&format!("{n:03}"), version)).collect::<Vec<_>>();
    let (dir, of_dir) = (path("pot://lab/a"), |version| vec![("pot://lab/a", files(version))]);
    let whole = vec![KnownDir { whole: true, ..KnownDir::new(dir.clone()) }];
    let fetch = cache.begin(std::iter::once(&dir));
    cache.finish(fetch, &answers(whole, &of_dir(1)));
    let odd: Vec<String> = (1..200).step_by(2).map(|n| format!("{n:03}")).collect();
    cache.apply(&change("pot://lab/a", &odd.iter().map(String::as_str).collect::<Vec<_>>()));
    let mut calls = 0;
    for n in 0..200 {
        let at = path(&format!("pot://lab/a/{n:03}"));
        if cache.entry(&at, NOW).is_none() {
            let questions = cache.missing(&at);
            assert_eq!(questions[0].names[0].name, format!("{n:03}"), "its own comes first");
            let fetch = cache.begin(questions.iter().map(|asked| &asked.path));
            cache.finish(fetch, &answers(questions, &of_dir(2)));
            calls += 1;
        }
        let found = cache.entry(&at, NOW).flatten().and_then(|entry| entry.version);
        assert_eq!(found, Some(VersionId(1 + n % 2)), "{n}");
    }
    assert_eq!(calls, 2, "a hundred names that changed, 64 in each call");
}

#[test]
fn listing_caches_entries_and_absences() {
    let mut cache = warm();
    assert_eq!(names(&mut cache, "pot://lab/a/b"), Some(vec!["f".into(), "g".into()]));
    assert_eq!(cache.entry(&path("pot://lab/a/b/g"), NOW), Some(Some(file("g", 1))));
    assert_eq!(cache.entry(&path("pot://lab/a/b/no"), NOW), NOTHING);
    assert_eq!(cache.entry(&path("pot://lab/no/such/name"), NOW), NOTHING);
    assert_eq!(cache.entry(&path("pot://lab/f/below"), NOW), None, "the manager words this error");
    assert_eq!(cache.entry(&path("pot://other"), NOW), None, "the root was not listed");
    // In a directory that is not listed, a name that does not exist is kept by itself.
    let mut cache = MetadataCache::new(1 << 20);
    let (fetch, _) = cache.begin_revalidation(STREAM);
    cache.resume(STREAM, NOW, fetch, &[]);
    let questions = cache.missing(&path("pot://lab/a/no"));
    assert_eq!(questions.len(), 3, "what is above is asked about by the same call");
    let fetch = cache.begin(questions.iter().map(|asked| &asked.path));
    cache.finish(fetch, &answers(questions, &tree()));
    assert_eq!(cache.entry(&path("pot://lab/a/no"), NOW), NOTHING);
    assert_eq!(cache.entry(&path("pot://lab/a"), NOW), Some(Some(dir("a"))));
    assert_eq!(cache.entry(&path("pot://lab/a/f"), NOW), None);
}

#[test]
fn cache_serves_nothing_when_the_watch_is_stale() {
    let mut cache = warm();
    let known = path("pot://lab/f");
    assert!(cache.entry(&known, NOW + HOLDS - Duration::from_millis(1)).is_some());
    assert!(cache.entry(&known, NOW + HOLDS).is_none());
    cache.heard(NOW + Duration::from_secs(1));
    assert!(cache.entry(&known, NOW + HOLDS).is_some());
    cache.suspend();
    assert!(cache.entry(&known, NOW).is_none());
    assert!(cache.listing(&path("pot://lab"), NOW).is_none());
}

#[test]
fn change_evicts_the_name_and_its_subtree_from_the_listing() {
    let mut cache = warm();
    cache.apply(&change("pot://lab/a/b", &["g", "new"]));
    assert_eq!(cache.entry(&path("pot://lab/a/b/g"), NOW), None);
    assert_eq!(cache.entry(&path("pot://lab/a/b/new"), NOW), None);
    assert_eq!(cache.entry(&path("pot://lab/a/b/f"), NOW), Some(Some(file("f", 1))));
    assert_eq!(names(&mut cache, "pot://lab/a/b"), None);
    let questions = cache.missing_of_listing(&path("pot://lab/a/b"));
    let asked: Vec<_> = questions[0].names.iter().map(|known| known.name.as_str()).collect();
    assert_eq!((questions.len(), questions[0].whole, asked), (1, false, vec!["g", "new"]));
    fetch_listing(&mut cache, "pot://lab/a/b", |_| {});
    assert_eq!(names(&mut cache, "pot://lab/a/b"), Some(vec!["f".into(), "g".into()]));
    // A parent directory is moved away: nothing below it is known by its old path.
    cache.apply(&change("pot://lab", &["a"]));
    assert_eq!(cache.entry(&path("pot://lab/a/b/f"), NOW), None);
    assert_eq!(cache.missing(&path("pot://lab/a/b/f")).len(), 3);
    assert_eq!(cache.entry(&path("pot://lab/f"), NOW), Some(Some(file("f", 1))));
}

#[test]
fn setattr_evicts_attributes_but_keeps_the_subtree() {
    let touched = |dir: &str, name: &str| DirChange {
        attributes: vec![name.into()],
        ..DirChange::new(path(dir))
    };
    let mut cache = warm();
    let bytes = cache.kept_bytes();
    cache.apply(&touched("pot://lab/a", "b"));
    cache.apply(&touched("pot://lab/a", "not there"));
    assert_eq!(cache.entry(&path("pot://lab/a/b"), NOW), None);
    assert_eq!(cache.place(&path("pot://lab/a/b"), NOW), Some(Some(dir("b"))));
    assert_eq!(cache.entry(&path("pot://lab/a/b/f"), NOW), Some(Some(file("f", 1))));
    assert_eq!(names(&mut cache, "pot://lab/a/b"), Some(vec!["f".into(), "g".into()]));
    assert_eq!(names(&mut cache, "pot://lab/a"), None, "it shows the attributes");
    assert_eq!(cache.missing(&path("pot://lab/a/b")).len(), 1);
    let questions = cache.missing_of_listing(&path("pot://lab/a"));
    let asked: Vec<_> = questions[0].names.iter().map(|known| known.name.as_str()).collect();
    assert_eq!((questions.len(), asked), (1, vec!["b"]));
    fetch_listing(&mut cache, "pot://lab/a", |_| {});
    assert_eq!(names(&mut cache, "pot://lab/a"), Some(vec!["b".into(), "f".into()]));
    assert_eq!(cache.kept_bytes(), bytes);
    // An entry that changes while it is asked for is not known afterwards.
    cache.apply(&touched("pot://lab/a", "b"));
    fetch_listing(&mut cache, "pot://lab/a", |cache| cache.apply(&touched("pot://lab/a", "b")));
    assert_eq!(cache.entry(&path("pot://lab/a/b"), NOW), None);
    assert_eq!(cache.entry(&path("pot://lab/a/b/g"), NOW), Some(Some(file("g", 1))));
    // A change of a space's own directory is told in that directory.
    assert_eq!(cache.entry(&path("pot://lab"), NOW), Some(Some(dir("lab"))));
    cache.apply(&touched("pot://lab", OWN_NAME));
    assert_eq!(cache.entry(&path("pot://lab"), NOW), None);
    assert_eq!(cache.entry(&path("pot://lab/f"), NOW), Some(Some(file("f", 1))));
}

#[test]
fn entry_changed_during_its_fetch_is_not_cached() {
    let mut cache = warm();
    cache.apply(&DirChange { all: true, ..DirChange::new(path("pot://lab/a/b")) });
    fetch_listing(&mut cache, "pot://lab/a/b", |cache| {
        cache.apply(&change("pot://lab/a/b", &["f"]));
    });
    assert_eq!(cache.entry(&path("pot://lab/a/b/f"), NOW), None, "the answer may be older");
    assert_eq!(cache.entry(&path("pot://lab/a/b/g"), NOW), Some(Some(file("g", 1))));
    assert_eq!(names(&mut cache, "pot://lab/a/b"), None);
    // Changes of this mount, of the directory as a whole and of one above it as well.
    let meanwhile: [fn(&mut MetadataCache); 4] = [
        |cache| cache.changed(&path("pot://lab/a/b/f")),
        |cache| cache.apply(&DirChange { all: true, ..DirChange::new(path("pot://lab/a/b")) }),
        |cache| cache.changed(&path("pot://lab/a")),
        |cache| cache.clear(),
    ];
    for meanwhile in meanwhile {
        let mut cache = warm();
        cache.changed(&path("pot://lab/a/b/f"));
        let asked = cache.missing(&path("pot://lab/a/b/f"));
        let fetch = cache.begin(asked.iter().map(|asked| &asked.path));
        meanwhile(&mut cache);
        cache.finish(fetch, &answers(asked, &tree()));
        assert_eq!(cache.entry(&path("pot://lab/a/b/f"), NOW), None);
    }
}

#[test]
fn unwatched_entry_is_not_cached() {
    let mut cache = warm();
    cache.changed(&path("pot://lab/f"));
    let asked = cache.missing(&path("pot://lab/f"));
    let fetch = cache.begin(asked.iter().map(|asked| &asked.path));
    let mut not_watched = answers(asked, &tree());
    not_watched[0].1.watched = false;
    cache.finish(fetch, &not_watched);
    assert_eq!(cache.entry(&path("pot://lab/f"), NOW), None);
    // The manager is started again while the question is under way.
    let asked = cache.missing(&path("pot://lab/f"));
    let fetch = cache.begin(asked.iter().map(|asked| &asked.path));
    cache.suspend();
    let (again, questions) = cache.begin_revalidation(NEXT_STREAM);
    cache.resume(NEXT_STREAM, NOW, again, &answers(questions, &tree()));
    assert_eq!(cache.entry(&path("pot://lab/f"), NOW), Some(Some(file("f", 1))), "by that");
    cache.changed(&path("pot://lab/f"));
    cache.finish(fetch, &answers(asked, &tree()));
    assert_eq!(cache.entry(&path("pot://lab/f"), NOW), None);
}

#[test]
fn reconnect_revalidates_the_cache_and_refetches_changes() {
    let mut cache = warm();
    cache.suspend();
    let (fetch, questions) = cache.begin_revalidation(NEXT_STREAM);
    let asked: Vec<_> = questions.iter().map(|asked| asked.path.to_string()).collect();
    assert_eq!(asked, ["pot://", "pot://lab", "pot://lab/a", "pot://lab/a/b"]);
    assert!(questions.iter().flat_map(|asked| &asked.names).all(|known| known.stamp.is_some()));
    assert!(questions[1..].iter().all(|asked| asked.whole), "what is new there is told, too");
    let news = [
        told(Vec::new()),
        DirNews { gone: vec!["f".into()], ..told(vec![file("new", 9)]) },
        told(vec![file("f", 8)]),
        told(Vec::new()),
    ];
    let compared: Vec<_> = questions.into_iter().zip(news).collect();
    cache.resume(NEXT_STREAM, NOW, fetch, &compared);
    assert_eq!(names(&mut cache, "pot://lab"), Some(vec!["a".into(), "new".into()]));
    assert_eq!(cache.entry(&path("pot://lab/a/f"), NOW), Some(Some(file("f", 8))));
    assert_eq!(names(&mut cache, "pot://lab/a/b"), Some(vec!["f".into(), "g".into()]));
}

#[test]
fn uncompared_entry_is_evicted_with_its_subtree() {
    let mut cache = warm();
    cache.suspend();
    let (fetch, questions) = cache.begin_revalidation(NEXT_STREAM);
    let mut compared: Vec<_> =
        questions.into_iter().map(|asked| (asked, told(Vec::new()))).collect();
    compared[2].1.watched = false;
    cache.changed(&path("pot://lab/f")); // by this mount, while it asks
    cache.resume(NEXT_STREAM, NOW, fetch, &compared);
    assert_eq!(cache.entry(&path("pot://lab/a"), NOW), Some(Some(dir("a"))));
    assert_eq!(cache.entry(&path("pot://lab/f"), NOW), None);
    assert_eq!(cache.entry(&path("pot://lab/a/f"), NOW), None);
    assert_eq!(cache.entry(&path("pot://lab/a/b/f"), NOW), None);
    assert_eq!(cache.missing(&path("pot://lab/a/b/f")).len(), 2);
}

#[test]
fn a_large_directory_is_compared_by_its_digest() {
    let many: Vec<_> = (0..1000).map(|number| file(&format!("{number:04}"), 1)).collect();
    let tree = [("pot://", vec![dir("lab")]), ("pot://lab", many.clone())];
    let kept_again = |is_same: bool| {
        let mut cache = MetadataCache::new(1 << 20);
        let (fetch, _) = cache.begin_revalidation(STREAM);
        cache.resume(STREAM, NOW, fetch, &[]);
        let questions = cache.missing_of_listing(&path("pot://lab"));
        let fetch = cache.begin(questions.iter().map(|asked| &asked.path));
        cache.finish(fetch, &answers(questions, &tree));
        assert_eq!(cache.listing(&path("pot://lab"), NOW).expect("known"), many);
        let (fetch, questions) = cache.begin_revalidation(NEXT_STREAM);
        let mut digest = potluck_wire::control::DirDigest::default();
        many.iter().for_each(|entry| digest.add(&entry.path, &entry.stamp()));
        assert_eq!(questions[1].digest, Some(digest.finish()));
        assert!(questions[1].names.is_empty());
        let mut news = [told(Vec::new()), told(Vec::new())];
        news[1].same = is_same;
        let compared: Vec<_> = questions.into_iter().zip(news).collect();
        cache.resume(NEXT_STREAM, NOW, fetch, &compared);
        cache.listing(&path("pot://lab"), NOW).is_some()
    };
    assert!(kept_again(true));
    assert!(!kept_again(false));
}

#[test]
fn memory_is_bounded_and_what_was_used_last_stays() {
    let mut cache = MetadataCache::new(60_000);
    let (fetch, _) = cache.begin_revalidation(STREAM);
    cache.resume(STREAM, NOW, fetch, &[]);
    let dirs: Vec<_> = (0..40).map(|number| format!("d{number:02}")).collect();
    let mut tree = vec![
        ("pot://".to_owned(), vec![dir("lab")]),
        ("pot://lab".to_owned(), dirs.iter().map(|name| dir(name)).collect()),
    ];
    let files: Vec<_> = (0..10).map(|number| file(&format!("f{number}"), 1)).collect();
    tree.extend(dirs.iter().map(|name| (format!("pot://lab/{name}"), files.clone())));
    let tree: Vec<_> = tree.iter().map(|(dir, entries)| (dir.as_str(), entries.clone())).collect();
    for (dir, _) in &tree[1..] {
        let questions = cache.missing_of_listing(&path(dir));
        let fetch = cache.begin(questions.iter().map(|asked| &asked.path));
        cache.finish(fetch, &answers(questions, &tree));
        assert!(cache.kept_bytes() <= 60_000, "{}", cache.kept_bytes());
        assert!(cache.listing(&path(dir), NOW).is_some(), "{dir}");
    }
    assert!(cache.listing(&path("pot://lab/d39"), NOW).is_some());
    assert!(cache.listing(&path("pot://lab/d00"), NOW).is_none());
    assert!(cache.listing(&path("pot://lab"), NOW).is_some(), "it was on the way to all others");
    let all: Vec<_> = cache.dirs.keys().cloned().collect();
    all.iter().for_each(|dir| cache.forget_dir(dir));
    assert_eq!(cache.kept_bytes(), 0, "what is counted is what is kept");
}

#[test]
fn repeated_lookups_trigger_one_listing() {
    let mut cache = MetadataCache::new(1 << 20);
    let (fetch, _) = cache.begin_revalidation(STREAM);
    cache.resume(STREAM, NOW, fetch, &[]);
    let look = |cache: &mut MetadataCache, name: &str, is_all: bool| {
        let at = path(name);
        if cache.entry(&at, NOW).is_some() {
            return "known";
        }
        let (questions, asked) = match cache.missing_with_its_directory(&at) {
            Some(questions) => (questions, "listed"),
            None => (cache.missing(&at), "asked"),
        };
        let fetch = cache.begin(questions.iter().map(|asked| &asked.path));
        let mut answers = answers(questions, &tree());
        if !is_all {
            answers.iter_mut().for_each(|(_, news)| news.next = Some("later".into()));
        }
        cache.finish(fetch, &answers);
        asked
    };
    let mut asked: Vec<&str> =
        (1..9).map(|number| look(&mut cache, &format!("pot://lab/a/new{number}"), true)).collect();
    asked.dedup();
    assert_eq!(asked, ["asked", "listed", "known"]);
    assert_eq!(names(&mut cache, "pot://lab/a"), Some(vec!["b".into(), "f".into()]));
    // A directory with more new entries than are told at once is not listed any more.
    let mut asked: Vec<&str> = (1..9)
        .map(|number| look(&mut cache, &format!("pot://lab/a/b/new{number}"), false))
        .collect();
    asked.dedup();
    assert_eq!(asked, ["asked", "listed", "asked"]);
}

#[test]
fn own_creation_updates_directory_mtime_unless_changed_elsewhere() {
    let times = |cache: &mut MetadataCache| {
        let known = cache.entry(&path("pot://lab/a"), NOW)??;
        Some(known.mtime)
    };
    let above = MetadataCache::above(&path("pot://lab/a")).expect("a directory");
    let publish = |cache: &mut MetadataCache, at: i64, meanwhile: &dyn Fn(&mut MetadataCache)| {
        let fetch = cache.begin_publication(Some(&above));
        meanwhile(cache);
        cache.changed(&path("pot://lab/a/new"));
        cache.finish_modified(fetch, &path("pot://lab/a"), FileTime(at));
    };
    let mut cache = warm();
    publish(&mut cache, 50, &|_| {});
    assert_eq!(times(&mut cache), Some(FileTime(50)));
    // The answers for two files that are published at once may arrive in the other order.
    publish(&mut cache, 40, &|_| {});
    assert_eq!(times(&mut cache), Some(FileTime(50)));
    // Others set the directory's attributes, or replace it: the manager is asked.
    publish(&mut cache, 60, &|cache| cache.touched(&path("pot://lab/a")));
    assert_eq!(times(&mut cache), None);
    let mut cache = warm();
    publish(&mut cache, 60, &|cache| cache.apply(&change("pot://lab", &["a"])));
    assert_eq!(times(&mut cache), None);
    // No stream tells of changes meanwhile.
    let mut cache = warm();
    publish(&mut cache, 60, &MetadataCache::suspend);
    assert_eq!(times(&mut cache), None);
}

/// News of a directory concern the files that were on their way then, and none that was begun later.
#[test]
fn busy_directory_is_refetched_at_most_per_event() {
    let dir = path("pot://lab/a");
    let above = MetadataCache::above(&dir).expect("a directory");
    let is_known = |cache: &mut MetadataCache| cache.entry(&dir, NOW).is_some();
    let mut cache = warm();
    let before: Vec<Fetch> = (0..3).map(|_| cache.begin_publication(Some(&above))).collect();
    cache.touched(&dir);
    let after = cache.begin_publication(Some(&above));
    for fetch in before {
        cache.finish_modified(fetch, &dir, FileTime(60));
    }
    assert!(!is_known(&mut cache));
    let asked = cache.missing(&dir);
    let fetch = cache.begin(asked.iter().map(|asked| &asked.path));
    cache.finish(fetch, &answers(asked, &tree()));
    assert!(is_known(&mut cache));
    cache.finish_modified(after, &dir, FileTime(70));
    assert_eq!(cache.entry(&dir, NOW).flatten().map(|dir| dir.mtime), Some(FileTime(70)));

    // Who asks for the directory while a file comes to it may be told of the time before.
    let publication = cache.begin_publication(Some(&above));
    let asked = cache.missing(&dir);
    let fetch = cache.begin(asked.iter().map(|asked| &asked.path));
    cache.finish_modified(publication, &dir, FileTime(80));
    cache.finish(fetch, &answers(asked, &tree()));
    assert!(!is_known(&mut cache));
}

#[test]
fn fetch_below_a_changed_directory_is_not_cached() {
    let mut cache = warm();
    let dirs = ["pot://lab/a", "pot://lab/a/b", "pot://lab/a/b/c", "pot://lab/a-b", "pot://lab/b"];
    let fetched = dirs.map(path);
    let fetch = cache.begin(fetched.iter());
    cache.changed(&path("pot://lab/a"));
    let answer = |dir: &PoolPath| {
        let asked = KnownDir { whole: true, ..KnownDir::new(dir.clone()) };
        (asked, told(vec![file("new", 2)]))
    };
    let answers: Vec<_> = fetched.iter().map(answer).collect();
    cache.finish(fetch, &answers);
    let kept = fetched.map(|dir| cache.dirs.contains_key(&dir));
    assert_eq!(kept, [false, false, false, true, true]);
}
