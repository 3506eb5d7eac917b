use crate::fixture::{Fixture, chunk, file, path};
use crate::{Error, lists, names, open, spaces};
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_wire::control::EntryKind;

const WHEN: names::When = names::When { pool_ms: 1, wall_ms: 2 };

fn listed(fixture: &Fixture, at: &str, recursive: bool) -> Vec<String> {
    let listing = lists::list(&fixture.db, &path(at), recursive, None).expect("listed");
    listing.entries.into_iter().map(|entry| entry.path).collect()
}

fn moved(fixture: &Fixture, from: &str, to: &str) -> Result<(), Error> {
    names::move_entry(&fixture.db, &path(from), &path(to), false, WHEN)
}

fn tree() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.commit(vec![
        file("pot://lab/b/two", &[2], &[1]),
        file("pot://lab/b/one", &[1], &[1]),
        file("pot://lab/b/deep/er/three", &[3, 3], &[1]),
        file("pot://lab/b.txt", &[4], &[1]),
        file("pot://lab/a", &[5], &[1]),
    ]);
    fixture
}

#[test]
fn listings_go_in_order_of_names_with_parents_first() {
    let fixture = tree();
    assert_eq!(listed(&fixture, "pot://", false), ["lab"]);
    assert_eq!(listed(&fixture, "pot://lab", false), ["a", "b", "b.txt"]);
    assert_eq!(
        listed(&fixture, "pot://lab", true),
        ["a", "b", "b/deep", "b/deep/er", "b/deep/er/three", "b/one", "b/two", "b.txt"]
    );
    assert_eq!(listed(&fixture, "pot://lab/a", false), [""], "a file lists itself");
    let all = listed(&fixture, "pot://", true);
    assert_eq!((all[0].as_str(), all[3].as_str()), ("lab", "lab/b/deep"));
    let missing = lists::list(&fixture.db, &path("pot://lab/zzz"), false, None);
    assert_eq!(missing.expect_err("missing"), Error::NoEntry(path("pot://lab/zzz")));
}

#[test]
fn a_listing_goes_on_after_any_entry_also_when_that_is_gone() {
    let fixture = tree();
    let all = listed(&fixture, "pot://lab", true);
    for (index, cursor) in all.iter().enumerate() {
        let rest = lists::list(&fixture.db, &path("pot://lab"), true, Some(cursor));
        let rest: Vec<_> = rest.expect("listed").entries.into_iter().map(|e| e.path).collect();
        assert_eq!(rest, all[index + 1..], "after {cursor}");
    }
    names::remove(&fixture.db, &path("pot://lab/b/deep"), true, WHEN).expect("removed");
    let rest = lists::list(&fixture.db, &path("pot://lab"), true, Some("b/deep/er/three"));
    let rest: Vec<_> = rest.expect("listed").entries.into_iter().map(|e| e.path).collect();
    assert_eq!(rest, ["b/one", "b/two", "b.txt"]);
}

#[test]
fn opening_a_tree_pages_through_all_of_it() {
    let mut fixture = Fixture::new();
    for batch in 0..3 {
        let one = |n| file(&format!("pot://lab/d{batch}/{n:04}"), &[n], &[1]);
        fixture.commit((0..700).map(one).collect());
    }
    names::make_dir(&fixture.db, &path("pot://lab/empty"), false, WHEN).expect("made");
    let (mut files, mut dirs, mut pages, mut after) = (0, Vec::new(), 0, None);
    loop {
        let page =
            open::open(&fixture.db, &path("pot://lab"), true, after.as_deref()).expect("a page");
        files += page.files.len();
        dirs.extend(page.dirs);
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((files, pages), (2100, 3));
    assert_eq!(dirs, ["d0", "d1", "d2", "empty"]);
    let dir = open::open(&fixture.db, &path("pot://lab/d0"), false, None);
    assert_eq!(dir.expect_err("a directory"), Error::NotRecursive(path("pot://lab/d0")));
}

#[test]
fn moving_keeps_versions_and_replaces_like_rename() {
    let fixture = tree();
    let version = |at: &str| lists::stat(&fixture.db, &path(at)).expect("there").entry.version;
    let before = version("pot://lab/b/deep/er/three");
    moved(&fixture, "pot://lab/b/deep", "pot://lab/deeper").expect("a directory moves");
    assert_eq!(version("pot://lab/deeper/er/three"), before);
    moved(&fixture, "pot://lab/a", "pot://lab/b.txt").expect("a file replaces a file");
    assert_eq!(fixture.refs(&chunk(4)), Some(0));
    assert_eq!(spaces::named(&fixture.db, "lab").expect("space").sums.files, 4);
    moved(&fixture, "pot://lab/b.txt", "pot://lab/b.txt").expect("onto itself is nothing");

    let same = |from, to| moved(&fixture, from, to).expect_err("refused");
    assert!(matches!(same("pot://lab/b", "pot://lab/b/c"), Error::IntoItself { .. }));
    assert!(matches!(same("pot://lab/b", "pot://lab/b.txt"), Error::NotADirectory(_)));
    assert!(matches!(same("pot://lab/b.txt", "pot://lab/b"), Error::IsADirectory(_)));
    assert!(matches!(same("pot://lab/deeper", "pot://lab/b"), Error::NotEmpty(_)));
    assert!(matches!(same("pot://lab/none", "pot://lab/x"), Error::NoEntry(_)));
    assert!(matches!(same("pot://lab/b", "pot://lab/none/x"), Error::NoEntry(_)));
    assert!(matches!(same("pot://lab/b", "pot://other/b"), Error::AcrossSpaces { .. }));
    assert!(matches!(same("pot://lab", "pot://lab/x"), Error::OutsideSpaces(_)));
    let kept = names::move_entry(
        &fixture.db,
        &path("pot://lab/b/one"),
        &path("pot://lab/b/two"),
        true,
        WHEN,
    );
    assert_eq!(kept, Err(Error::Exists(path("pot://lab/b/two"))));
    names::make_dir(&fixture.db, &path("pot://lab/empty"), false, WHEN).expect("made");
    moved(&fixture, "pot://lab/b", "pot://lab/empty").expect("over an empty directory");
    assert_eq!(listed(&fixture, "pot://lab/empty", false), ["one", "two"]);
}

#[test]
fn directories_are_made_and_removed_as_asked() {
    let fixture = tree();
    let make = |at: &str, parents| names::make_dir(&fixture.db, &path(at), parents, WHEN);
    assert_eq!(make("pot://lab/b", false), Err(Error::Exists(path("pot://lab/b"))));
    make("pot://lab/b", true).expect("exists is as good");
    assert!(matches!(make("pot://lab/x/y/z", false), Err(Error::NoEntry(_))));
    make("pot://lab/x/y/z", true).expect("made");
    assert!(matches!(make("pot://lab/a/b", true), Err(Error::NotADirectory(_))));
    assert!(matches!(make("pot://none/b", true), Err(Error::NoSpaceNamed(_))));
    assert!(make("pot://lab", false).is_err());

    let remove = |at: &str, all| names::remove(&fixture.db, &path(at), all, WHEN);
    assert_eq!(remove("pot://lab/b", false).err(), Some(Error::NotRecursive(path("pot://lab/b"))));
    assert!(matches!(remove("pot://lab", true), Err(Error::OutsideSpaces(_))));
    remove("pot://lab/x/y/z", false).expect("an empty one");
    assert_eq!(remove("pot://lab/b", true).expect("removed").files, 3);
}

#[test]
fn usage_counts_shared_chunks_once_and_children_apart() {
    let fixture = tree();
    let used = lists::usage(&fixture.db, &path("pot://lab")).expect("summed");
    assert_eq!((used.files, used.dirs, used.bytes, used.stored), (5, 3, 6000, 5000));
    let children: Vec<_> =
        used.children.iter().map(|c| (c.name.as_str(), c.dir, c.files, c.bytes)).collect();
    assert_eq!(children, [("a", false, 1, 1000), ("b", true, 3, 4000), ("b.txt", false, 1, 1000)]);
    let one = lists::usage(&fixture.db, &path("pot://lab/a")).expect("summed");
    assert_eq!((one.files, one.bytes, one.children.len()), (1, 1000, 0));
}

#[test]
fn a_space_with_files_is_removed_only_by_force() {
    let fixture = tree();
    let policy = Policy::default();
    let again = spaces::create(&fixture.db, "lab", &policy, None, 0);
    assert_eq!(again, Err(Error::SpaceExists("lab".into())));
    assert!(matches!(
        spaces::remove(&fixture.db, "lab", false),
        Err(Error::SpaceNotEmpty { files: 5, .. })
    ));
    spaces::remove(&fixture.db, "lab", true).expect("forced");
    assert_eq!(listed(&fixture, "pot://", false), Vec::<String>::new());
    let gone = lists::stat(&fixture.db, &path("pot://lab/a")).expect_err("gone");
    assert_eq!(gone, Error::NoSpaceNamed("lab".into()));
}

#[test]
fn the_root_is_a_directory_of_spaces() {
    let fixture = tree();
    let facts = lists::stat(&fixture.db, &PoolPath::root()).expect("stat");
    assert_eq!(facts.entry.kind, EntryKind::Dir);
    let whole = open::open(&fixture.db, &PoolPath::root(), true, None);
    assert_eq!(whole.expect_err("each space has its key"), Error::OutsideSpaces(PoolPath::root()));
}
