use crate::conversions::{self, Encoded};
use crate::dir_policies::{effective, get};
use crate::entries::{self, DirId};
use crate::fixture::{Fixture, chunk, file, path};
use crate::{goals, names, open, spaces, trash, versions};
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::{Override, Policy, Race, Redundancy, Width};

const WHEN: names::When = names::When { pool_ms: 1, wall_ms: 2 };

fn ec(code: &str) -> Override {
    Override { ec: Some(code.parse().expect("a code")), ..Override::default() }
}

fn copies(copies: u32) -> Override {
    Override { copies: Some(copies), ..Override::default() }
}

fn set(fixture: &Fixture, at: &str, over: &Override) {
    goals::set(&fixture.db, &path(at), over).expect("set");
}

fn at(fixture: &Fixture, at: &str) -> Policy {
    effective(&fixture.db, &path(at)).expect("a policy")
}

fn dir(fixture: &Fixture, at: &str) -> DirId {
    entries::existing_dir(&fixture.db, &path(at)).expect("a directory")
}

fn tree() -> (Fixture, [VersionId; 4]) {
    let mut fixture = Fixture::new();
    let names = ["pot://lab/a", "pot://lab/d/b", "pot://lab/d/e/c", "pot://lab/d/e/f/g"];
    let versions = names.map(|name| fixture.put(file(name, &[1, 2], &[1])));
    (fixture, versions)
}

/// Follows a change page by page to its end.
fn follow(fixture: &Fixture, at: &str, dry_run: bool) -> (u64, u64) {
    let policy = effective(&fixture.db, &path(at)).expect("a policy");
    let set_at = (!dry_run).then_some(5);
    let (mut after, mut sum) = (None::<String>, (0, 0));
    loop {
        let page = goals::follow(&fixture.db, &path(at), &policy, after.as_deref(), set_at);
        let page = page.expect("followed");
        sum = (sum.0 + page.files, sum.1 + page.bytes);
        match page.next {
            Some(next) => after = Some(next),
            None => return sum,
        }
    }
}

fn goals_of(fixture: &Fixture, versions: [VersionId; 4]) -> [Option<String>; 4] {
    versions.map(|id| {
        let version = versions::get(&fixture.db, id).expect("there");
        version.goal.map(|goal| goal.to_string())
    })
}

#[test]
fn a_directory_overrides_what_holds_above_it_part_by_part() {
    let (fixture, _) = tree();
    set(&fixture, "pot://lab/d", &Override { race: Some(Race::Extra(1)), ..ec("4+2") });
    set(&fixture, "pot://lab/d/e", &copies(2));
    assert_eq!(at(&fixture, "pot://lab").redundancy(), Redundancy::Copies(1));
    assert_eq!(at(&fixture, "pot://lab/d/b").redundancy().to_string(), "4+2");
    let deep = at(&fixture, "pot://lab/d/e/new/file");
    assert_eq!((deep.redundancy(), deep.race), (Redundancy::Copies(2), Race::Extra(1)));

    // Set again, parts left out stay; the space's policy shines through where nothing is set.
    set(
        &fixture,
        "pot://lab/d",
        &Override { stripe_width: Some(Width::Donors(9)), ..Override::default() },
    );
    set(&fixture, "pot://lab", &Override { stripe_width: Some(Width::Donors(7)), ..copies(3) });
    let there = at(&fixture, "pot://lab/d/b");
    assert_eq!(
        (there.redundancy().to_string(), there.stripe_width),
        ("4+2".into(), Width::Donors(9))
    );
    assert_eq!(spaces::named(&fixture.db, "lab").expect("space").policy.copies, 3);
    assert_eq!(at(&fixture, "pot://lab/a").stripe_width, Width::Donors(7));

    // A chunk size from above that is too large for a group below is cut to what fits.
    set(&fixture, "pot://lab/d/e/f", &ec("16+8"));
    set(&fixture, "pot://lab", &Override { chunk_size: Some(64 << 20), ..Override::default() });
    let there = at(&fixture, "pot://lab/d/e/f/g");
    assert_eq!((there.chunk_size, there.check()), (8 << 20, Ok(())));
}

#[test]
fn a_directorys_policy_moves_and_goes_with_it() {
    let (mut fixture, _) = tree();
    set(&fixture, "pot://lab/d/e", &copies(3));
    let moved = dir(&fixture, "pot://lab/d/e");
    let go = |from: &str, to: &str| {
        names::move_entry(&fixture.db, &path(from), &path(to), false, WHEN).expect("moved");
    };
    go("pot://lab/d/e", "pot://lab/x");
    assert_eq!(at(&fixture, "pot://lab/x/c").copies, 3);
    names::make_dir(&fixture.db, &path("pot://lab/y"), false, WHEN).expect("made");
    set(&fixture, "pot://lab/y", &copies(2));
    let replaced = dir(&fixture, "pot://lab/y");
    go("pot://lab/x", "pot://lab/y");
    assert_eq!(at(&fixture, "pot://lab/y/c").copies, 3, "what moved there keeps its own");
    names::remove(&fixture.db, &path("pot://lab/y"), true, WHEN).expect("removed");
    while trash::reap(&fixture.db, 10, 0).expect("reaped") {}
    names::make_dir(&fixture.db, &path("pot://lab/z"), false, WHEN).expect("made");
    set(&fixture, "pot://lab/z", &copies(2));
    let empty = dir(&fixture, "pot://lab/z");
    names::remove(&fixture.db, &path("pot://lab/z"), false, WHEN).expect("removed");
    for gone in [moved, replaced, empty] {
        assert_eq!(get(&fixture.db, gone), Ok(Override::default()));
    }
    fixture.put(file("pot://lab/y/c", &[1], &[1]));
    assert_eq!(at(&fixture, "pot://lab/y/c").copies, 1, "a new directory of an old name");
}

#[test]
fn files_follow_the_policy_set_above_them_unless_one_below_decides() {
    let (fixture, files) = tree();
    set(&fixture, "pot://lab/d/e", &copies(3));
    let none = || [None, None, None, None];
    set(&fixture, "pot://lab", &ec("2+1"));
    assert_eq!(follow(&fixture, "pot://lab", true), (2, 4000));
    assert_eq!(goals_of(&fixture, files), none(), "a dry run sets nothing");
    assert_eq!(follow(&fixture, "pot://lab", false), (2, 4000));
    let code = || Some("2+1".to_string());
    assert_eq!(goals_of(&fixture, files), [code(), code(), None, None]);

    assert_eq!(follow(&fixture, "pot://lab/d/e", false), (2, 4000));
    let three = || Some("3 copies".to_string());
    assert_eq!(goals_of(&fixture, files), [code(), code(), three(), three()]);
    // A later change replaces goals, and calls off those that are what is there.
    set(&fixture, "pot://lab/d", &copies(1));
    assert_eq!(follow(&fixture, "pot://lab/d", false), (0, 0));
    assert_eq!(goals_of(&fixture, files), [code(), None, three(), three()]);
    let one = effective(&fixture.db, &path("pot://lab/d")).expect("a policy");
    let page = goals::follow(&fixture.db, &path("pot://lab/d/e/c"), &one, None, Some(5));
    assert_eq!((page.expect("one file").files, goals_of(&fixture, files)[2].clone()), (0, None));
}

#[test]
fn what_was_made_for_an_earlier_goal_is_nobodys_when_the_goal_changes() {
    let mut fixture = Fixture::new();
    let version = fixture.put(file("pot://lab/a", &[1, 2], &[1, 2]));
    let parity = |n| (chunk(n), 1000);
    let learn = |fixture: &Fixture, code: &str, parity: Vec<_>| {
        let (ec, holders) = (code.parse().expect("a code"), vec![DonorId(3)]);
        let encoded = Encoded { version, ec, group: 0, parity, holders };
        conversions::learn(&fixture.db, &encoded, 4).expect("learnt");
        conversions::parity_of(&fixture.db, version, ec).expect("read").len()
    };
    set(&fixture, "pot://lab", &ec("2+1"));
    follow(&fixture, "pot://lab", false);
    assert_eq!(learn(&fixture, "2+1", vec![parity(11)]), 1);
    assert_eq!(fixture.refs(&chunk(11)), Some(1));

    set(&fixture, "pot://lab", &ec("2+2"));
    follow(&fixture, "pot://lab", false);
    assert_eq!(fixture.refs(&chunk(11)), Some(0), "another code has other parity");
    assert_eq!(learn(&fixture, "2+1", vec![parity(11)]), 0, "nobody asked for it any more");
    assert_eq!(learn(&fixture, "2+2", vec![parity(12), parity(13)]), 1);
    follow(&fixture, "pot://lab", false);
    assert_eq!(fixture.refs(&chunk(12)), Some(1), "the same goal keeps what was made");

    set(&fixture, "pot://lab", &copies(1));
    follow(&fixture, "pot://lab", false);
    assert_eq!([12, 13].map(|n| fixture.refs(&chunk(n))), [Some(0); 2]);
    assert_eq!(goals_of(&fixture, [version; 4])[0], None);
    let rows = "SELECT count(*) FROM conversions";
    assert_eq!(fixture.db.raw().query_row(rows, [], |row| row.get(0)), Ok(0_i64));
}

#[test]
fn a_large_tree_follows_page_by_page() {
    let mut fixture = Fixture::new();
    let files = (0..4500).map(|n| file(&format!("pot://lab/{}/{n}", n % 3), &[n % 7], &[1]));
    assert!(fixture.commit(files.collect()).iter().all(Result::is_ok));
    set(&fixture, "pot://lab", &copies(2));
    set(&fixture, "pot://lab/1", &copies(4));
    assert_eq!(follow(&fixture, "pot://lab", false), (3000, 3_000_000));
    let goals: i64 = fixture
        .db
        .raw()
        .query_row("SELECT count(*) FROM versions WHERE goal IS NOT NULL", [], |row| row.get(0))
        .expect("counted");
    assert_eq!(goals, 3000);
}

#[test]
fn reads_race_as_the_directory_of_each_file_says() {
    let (fixture, _) = tree();
    let race = |race| Override { race: Some(race), ..Override::default() };
    set(&fixture, "pot://lab/d/e", &race(Race::Extra(2)));
    set(&fixture, "pot://lab/d/e/f", &race(Race::Off));
    let page = open::open(&fixture.db, &path("pot://lab"), true, None).expect("opened");
    let races: Vec<Race> = page.files.iter().map(|file| file.race).collect();
    assert_eq!(races, [Race::Auto, Race::Auto, Race::Extra(2), Race::Off]);
    let rest = open::open(&fixture.db, &path("pot://lab"), true, Some("d/e/c")).expect("opened");
    assert_eq!(rest.files[0].race, Race::Off);
    let one = open::open(&fixture.db, &path("pot://lab/d/e/c"), false, None).expect("opened");
    assert_eq!(one.files[0].race, Race::Extra(2));
}

#[test]
fn what_is_written_with_less_than_its_directory_asks_for_is_on_its_way_there_and_unsafe() {
    let mut fixture = Fixture::new();
    let there = |fixture: &Fixture, id| {
        let version = versions::get(&fixture.db, id).expect("there");
        (version.goal.map(|goal| goal.to_string()), version.safe_wall_ms.is_some())
    };
    entries::make_dirs(&fixture.db, &path("pot://lab/archive/deep"), 0).expect("made");
    set(&fixture, "pot://lab/archive", &ec("2+1"));
    // One session writes a whole tree, as its root says.
    let files = ["pot://lab/a", "pot://lab/archive/b", "pot://lab/archive/deep/new/c"];
    let outcomes = fixture.commit(files.map(|at| file(at, &[1, 2], &[1])).to_vec());
    let versions: Vec<_> = outcomes.into_iter().map(|made| made.expect("accepted")).collect();
    assert_eq!(there(&fixture, versions[0]), (None, true));
    assert_eq!(there(&fixture, versions[1]), (Some("2+1".into()), false));
    assert_eq!(there(&fixture, versions[2]), (Some("2+1".into()), false));
    // More than is asked for is no danger, and becomes what is asked for all the same.
    set(&fixture, "pot://lab/archive/deep", &copies(1));
    let mut more = file("pot://lab/archive/deep/d", &[1, 2], &[1, 2]);
    more.version.copies = 2;
    let version = fixture.put(more.clone());
    assert_eq!(there(&fixture, version), (Some("1 copy".into()), true));
    // The redundancy that a command itself asked for holds, also where another file is replaced.
    fixture.asked.copies = Some(2);
    let version = fixture.put(more);
    assert_eq!(there(&fixture, version), (None, true));
    let version = fixture.put(file("pot://lab/archive/b", &[1], &[1]));
    assert_eq!(there(&fixture, version), (Some("2 copies".into()), false));
}
