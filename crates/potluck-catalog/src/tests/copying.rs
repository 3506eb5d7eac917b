use crate::copies::{self, Copied, Outcome, Wanted};
use crate::fixture::{Fixture, chunk, coded, file, path};
use crate::{Error, changes, dir_policies, entries, names, spaces, versions};
use potluck_core::ids::SessionId;
use potluck_core::policy::{Override, Policy, Redundancy};
use potluck_core::seal::SpaceKey;
use potluck_wire::control::Condition;

const WHEN: names::When = names::When { pool_ms: 50, wall_ms: 0 };

fn wanted(from: &str, to: &str) -> Wanted {
    Wanted {
        from: path(from),
        to: path(to),
        recursive: true,
        condition: Condition::Always,
        asked: None,
        after: None,
    }
}

fn page(fixture: &Fixture, number: u32, wanted: &Wanted) -> Result<Outcome, Error> {
    let tx = fixture.db.begin().expect("a transaction");
    let command = (SessionId([99; 16]), number);
    let outcome = copies::copy(&tx, command, wanted, 60, 3, |copied| {
        Ok(format!("{} files", copied.files.len()))
    })?;
    tx.commit().expect("committed");
    Ok(outcome)
}

fn copied(fixture: &Fixture, number: u32, wanted: &Wanted) -> Copied {
    match page(fixture, number, wanted).expect("copied") {
        Outcome::Fresh(copied) => copied,
        Outcome::Repeated(text) => panic!("taken for repeated: {text}"),
    }
}

#[test]
fn a_copy_counts_references_and_stands_for_itself() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1, 2, 1], &[1]));
    let copy = copied(&fixture, 0, &wanted("pot://lab/a", "pot://lab/x/b"));
    assert_eq!((fixture.refs(&chunk(1)), fixture.refs(&chunk(2))), (Some(4), Some(2)));
    assert_eq!((copy.next, copy.again.condemned.len()), (None, 0));
    let sums = spaces::named(&fixture.db, "lab").expect("space").sums;
    assert_eq!((sums.files, sums.bytes), (2, 6000));
    names::remove(&fixture.db, &path("pot://lab/a"), false, WHEN).expect("removed");
    assert_eq!((fixture.refs(&chunk(1)), fixture.refs(&chunk(2))), (Some(2), Some(1)));

    // Over another file: what that named ends, and over its like nothing changes.
    fixture.put(file("pot://lab/c", &[3], &[1]));
    for number in 1..3 {
        copied(&fixture, number, &wanted("pot://lab/x/b", "pot://lab/c"));
        assert_eq!((fixture.refs(&chunk(3)), fixture.refs(&chunk(1))), (Some(0), Some(4)));
    }
    names::remove(&fixture.db, &path("pot://lab/c"), false, WHEN).expect("removed");
    names::remove(&fixture.db, &path("pot://lab/x/b"), false, WHEN).expect("removed");
    assert_eq!((fixture.refs(&chunk(1)), fixture.refs(&chunk(2))), (Some(0), Some(0)));
}

#[test]
fn a_copy_of_a_coded_file_names_its_parity_too() {
    let mut fixture = Fixture::new();
    fixture.put(coded("pot://lab/a", "2+1", 2, &[(1, &[1]), (2, &[2]), (9, &[3])]));
    copied(&fixture, 0, &wanted("pot://lab/a", "pot://lab/b"));
    assert_eq!(fixture.refs(&chunk(9)), Some(2));
    names::remove(&fixture.db, &path("pot://lab/a"), false, WHEN).expect("removed");
    assert_eq!((fixture.refs(&chunk(9)), fixture.refs(&chunk(2))), (Some(1), Some(1)));
}

#[test]
fn a_page_that_is_asked_for_again_is_not_copied_again() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1]));
    let once = Wanted { condition: Condition::IfAbsent, ..wanted("pot://lab/a", "pot://lab/b") };
    copied(&fixture, 0, &once);
    match page(&fixture, 0, &once).expect("answered") {
        Outcome::Repeated(text) => assert_eq!(text, "1 files"),
        Outcome::Fresh(_) => panic!("copied twice"),
    }
    assert_eq!(fixture.refs(&chunk(1)), Some(2));
    let (_, refused) = &copied(&fixture, 1, &once).files[0];
    assert_eq!(*refused, Err(Error::Exists(path("pot://lab/b"))));
    assert_eq!(fixture.refs(&chunk(1)), Some(2), "a refused file leaves no trace");
}

#[test]
fn a_tree_is_copied_page_by_page_with_its_directories() {
    let mut fixture = Fixture::new();
    let files = (0..600).map(|n| file(&format!("pot://lab/t/{n:04}"), &[n % 7], &[1]));
    fixture.commit(files.collect());
    names::make_dir(&fixture.db, &path("pot://lab/t/empty"), false, WHEN).expect("made");
    let before = changes::last(&fixture.db).expect("read");
    let mut tree = wanted("pot://lab/t", "pot://lab/copy");
    let mut pages = 0;
    loop {
        let copied = copied(&fixture, pages, &tree);
        assert!(copied.files.iter().all(|(_, file)| file.is_ok()));
        pages += 1;
        tree.after = copied.next;
        if tree.after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 2);
    assert!(changes::last(&fixture.db).expect("read") > before, "a restore knows it too");
    assert_eq!(spaces::named(&fixture.db, "lab").expect("space").sums.files, 1200);
    for there in ["0000", "0599", "empty"] {
        let at = path(&format!("pot://lab/copy/{there}"));
        assert!(entries::resolve(&fixture.db, &at).expect("read").is_some(), "{there}");
    }
    let mut inside = wanted("pot://lab/t", "pot://lab/t/below");
    assert!(matches!(page(&fixture, 9, &inside), Err(Error::IntoItself { .. })));
    inside.recursive = false;
    inside.to = path("pot://lab/u");
    assert!(matches!(page(&fixture, 9, &inside), Err(Error::NotRecursive(_))));
}

#[test]
fn a_copy_gets_what_its_directory_asks_for_as_its_goal() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1]));
    names::make_dir(&fixture.db, &path("pot://lab/twice"), false, WHEN).expect("made");
    let dir = entries::existing_dir(&fixture.db, &path("pot://lab/twice")).expect("there");
    let twice = Override { copies: Some(2), ..Override::default() };
    dir_policies::set(&fixture.db, dir, &twice).expect("set");
    let of = |copied: Copied| copied.files[0].1.clone().expect("copied");
    let copy = of(copied(&fixture, 0, &wanted("pot://lab/a", "pot://lab/twice/b")));
    assert_eq!((copy.copies, copy.goal), (1, Some(Redundancy::Copies(2))));
    assert_eq!(copy.safe_wall_ms, None, "not as safe as is asked for yet");
    let asked =
        Wanted { asked: Some(Redundancy::Copies(1)), ..wanted("pot://lab/a", "pot://lab/twice/c") };
    let copy = of(copied(&fixture, 1, &asked));
    assert_eq!((copy.goal, copy.safe_wall_ms), (None, Some(3)));
    assert_eq!(versions::get(&fixture.db, copy.id).expect("there"), copy);
}

#[test]
fn a_manager_copies_nothing_between_keys() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1]));
    let create = |name: &str, key: Option<&SpaceKey>| {
        let policy = Policy { sealed: key.is_some(), ..Policy::default() };
        spaces::create(&fixture.db, name, &policy, key, 0).expect("a space");
    };
    create("sealed", Some(&SpaceKey::from_bytes([7; 32])));
    create("open", None);
    let refused = page(&fixture, 0, &wanted("pot://lab/a", "pot://sealed/a"));
    assert!(matches!(refused, Err(Error::OtherKey { .. })), "{refused:?}");
    copied(&fixture, 0, &wanted("pot://lab/a", "pot://open/a"));
    let sums = spaces::named(&fixture.db, "open").expect("space").sums;
    assert_eq!((sums.files, sums.bytes), (1, 1000));
}
