//! Tests of keys that are changed, of content that is sealed again with them, and of the log of both.

use super::*;
use crate::operations::commits::commit::Refused;
use crate::operations::spaces::rekeying::{self, Rekey};
use crate::pool_records::old_keys::{self, ContentUnderOldKeys};
use potluck_core::ids::KeyNumber;
use potluck_core::recipe::{self, Entry};

/// Makes a catalog whose space “lab” is sealed, with a session under the key 1.
fn sealed_lab() -> Fixture {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().join("catalog.db");
    meta::create(&at, "test pool").expect("created");
    let db = engine::open_existing(&at).expect("opened");
    let key = Some(SpaceKey::from_bytes([1; 32]));
    operations::spaces::create(&db, &new_space("lab", Policy::default(), key), 0).expect("a space");
    let fixture = Fixture::of(dir, db);
    of_key(&fixture, 1);
    fixture
}

/// Has the session of a fixture seal with the key of this number.
fn of_key(fixture: &Fixture, number: i64) {
    let set = "UPDATE sessions SET key = ?1 WHERE ended = 0";
    fixture.db.execute(set, params![number]).expect("set");
}

/// Makes the content of a file again with these chunks, to take the place of that of version `of`.
fn again(of: VersionId, was: &PreparedFile, chunks: &[u64]) -> PreparedFile {
    let new = file("pot://lab/again", chunks, &[1]);
    let digest = was.version.digest;
    let entry = |n: &u64| {
        let name = chunk(*n);
        Entry { name, digest: Digest(name.0), len: 1000, sealed: false }
    };
    let entries: Vec<Entry> = chunks.iter().map(entry).collect();
    let (inline, pages) = match &was.inline {
        Some(content) => (Some(content.iter().rev().copied().collect()), Vec::new()),
        None => (None, recipe::pack(&digest, &entries[..].into())),
    };
    PreparedFile {
        version: was.version.clone(),
        inline,
        pages,
        chunks: new.chunks,
        condition: Condition::SealsAgain(of),
        ..was.clone()
    }
}

fn refused(fixture: &mut Fixture, file: PreparedFile) -> Error {
    match fixture.commit(vec![file]).pop() {
        Some(Err(Refused::Here(why))) => why,
        other => panic!("it was not refused: {other:?}"),
    }
}

fn keys(fixture: &Fixture) -> Vec<u32> {
    let lab = spaces::named(&fixture.db, "lab").expect("lab");
    lab.keys.expect("sealed").keys.0.keys().map(|number| number.0).collect()
}

fn refs(fixture: &Fixture, n: u64) -> i64 {
    let row = crate::chunks::get(&fixture.db, &chunk(n)).expect("read");
    row.map_or(0, |row| row.refs)
}

#[test]
fn resealing_keeps_versions_and_drops_the_old_key_x6() {
    let mut fixture = sealed_lab();
    let mut target = Target::new();
    let (base, last) = base(&fixture);
    target.apply(&base);
    let (chunked, inline) = (file("pot://lab/f", &[1, 2, 2], &[1]), small("pot://lab/s", b"small"));
    let (first, second) = (fixture.put(chunked.clone()), fixture.put(inline.clone()));
    fixture.put(small("pot://lab/empty", b""));
    let rekey = |fixture: &Fixture, how| {
        let key = SpaceKey::from_bytes([2; 32]);
        rekeying::rekey(&fixture.db, "lab", &key, how).expect("rekeyed")
    };
    let left = |fixture: &Fixture| {
        let lab = spaces::named(&fixture.db, "lab").expect("lab");
        old_keys::old_content(&fixture.db, &lab).expect("counted")
    };
    assert!(rekey(&fixture, Rekey::OrGoOn));
    let expected = ContentUnderOldKeys {
        versions: 2,
        bytes: 3005,
        sessions: 1,
        ..ContentUnderOldKeys::default()
    };
    assert_eq!(left(&fixture), expected, "what is empty has no key");
    assert!(!rekey(&fixture, Rekey::OrGoOn), "it goes on");

    let early = again(first, &chunked, &[3, 4, 5]);
    let why = refused(&mut fixture, early.clone());
    assert!(matches!(why, Error::NotSealedAgain(_)), "its session has the earlier key: {why}");
    sessions::end(&fixture.db, &fixture.session).expect("ended");
    fixture.new_session(2);
    of_key(&fixture, 2);
    let other = again(first, &file("pot://lab/x", &[7], &[1]), &[8]);
    assert!(matches!(refused(&mut fixture, other), Error::NotSealedAgain(_)), "another content");
    fixture.db.leases().take(MemberId(5), "lab", first, 0);
    assert!(matches!(refused(&mut fixture, early.clone()), Error::OpenElsewhere(_)), "a5");
    fixture.db.leases().are_forgotten(u64::MAX >> 1); // no reader has it open any more
    let mut fixture = fixture.reopen();

    assert_eq!(fixture.put(early.clone()), first, "the version stays");
    let found = versions::get(&fixture.db, first).expect("there");
    assert_eq!((found.key, found.attributes), (Some(KeyNumber(2)), chunked.version.attributes));
    assert_eq!([1, 2, 3, 4, 5].map(|n| refs(&fixture, n)), [0, 0, 1, 1, 1]);
    assert!(matches!(refused(&mut fixture, early), Error::NotSealedAgain(_)), "only once");
    assert_eq!(keys(&fixture), [1, 2]);
    assert_eq!(fixture.put(again(second, &inline, &[])), second);
    let content = versions::inline(&fixture.db, second).expect("read").expect("inline");
    assert_eq!(content, b"llams");
    assert_eq!(left(&fixture), ContentUnderOldKeys::default());
    assert!(!rekey(&fixture, Rekey::Finish));
    assert_eq!(keys(&fixture), [2], "nothing needs the earlier key");

    target.apply(&changes_after(&fixture.db, last));
    assert_eq!(target.replay.left_out, 0);
    assert_eq!(told(&target.db), told(&fixture.db), "as it was changed");
    let mut anew = Target::new();
    anew.apply(&super::base(&fixture).0);
    assert_eq!(told(&anew.db), told(&fixture.db), "as it is");
}

#[test]
fn key_rotation_can_restart_during_an_unfinished_one_x6() {
    let mut fixture = sealed_lab();
    let [ada, bert] = ["ada", "bert"].map(|name| {
        let new = NewMember { role: Role::User, name, joined_wall_ms: 0, invited_by: None };
        operations::members::add(&fixture.db, new, |_| Ok(Digest::of(name.as_bytes())))
            .expect("a member")
            .id
    });
    operations::grants::edit(&fixture.db, "students", &GroupEdit::Create).expect("made");
    operations::grants::edit(
        &fixture.db,
        "students",
        &GroupEdit::Members { add: vec![ada, bert], remove: vec![] },
    )
    .expect("changed");
    let students = Grantee::Group("students".into());
    let change = |fixture: &Fixture, to: &Grantee, rights: &[Right]| {
        let rights: Rights = rights.iter().copied().collect();
        operations::grants::change(&fixture.db, "lab", to, |_| rights).expect("changed");
    };
    let exposed = |fixture: &Fixture| {
        spaces::named(&fixture.db, "lab").expect("lab").keys.expect("sealed").exposed
    };
    let rekey = |fixture: &Fixture, n: u8| {
        let key = SpaceKey::from_bytes([n; 32]);
        rekeying::rekey(&fixture.db, "lab", &key, Rekey::OrGoOn).expect("rekeyed")
    };
    fixture.put(file("pot://lab/f", &[1], &[1]));
    change(&fixture, &students, &[Right::Read]);
    change(&fixture, &Grantee::Member(ada), &[Right::Read, Right::Write]);
    change(&fixture, &Grantee::Member(ada), &[Right::Read]);
    assert!(!exposed(&fixture), "nobody lost the right to read");
    assert!(rekey(&fixture, 2), "asked for all the same");
    assert!(!rekey(&fixture, 3), "unfinished");
    let losses: [fn(&Fixture, MemberId, MemberId); 4] = [
        |f, ada, _| {
            operations::grants::change(&f.db, "lab", &Grantee::Member(ada), |_| Rights::NONE)
                .expect("taken");
        },
        |f, ada, _| {
            operations::grants::edit(
                &f.db,
                "students",
                &GroupEdit::Members { add: vec![], remove: vec![ada] },
            )
            .expect("changed")
        },
        |f, _, bert| drop(operations::members::revoke(&f.db, bert).expect("revoked")),
        |f, _, _| operations::grants::edit(&f.db, "students", &GroupEdit::Remove).expect("removed"),
    ];
    for (n, loses) in (4..).zip(losses) {
        loses(&fixture, ada, bert);
        assert!(exposed(&fixture), "loss {n}");
        assert!(rekey(&fixture, n), "loss {n}");
        assert!(!exposed(&fixture) && !rekey(&fixture, n), "loss {n}");
    }
}
