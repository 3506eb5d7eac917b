use super::files::{Fixture, chunk, file, path};
use crate::catalog::{lists, schema, versions};
use potluck_core::chunk::{DEFAULT_CHUNK, Digest, FileDigest};
use potluck_core::ids::DonorId;
use potluck_core::policy::{Mirror, Redundancy};
use potluck_core::recipe::{self, Entry};
use rusqlite::{Connection, params};

/// The catalog as release 0.1 wrote it, with one file of two chunks.
fn format_1(file: &std::path::Path) {
    let db = Connection::open(file).expect("made");
    db.execute_batch(include_str!("../schema.sql")).expect("format 1");
    let mut digest = FileDigest::default();
    let entry = |n| {
        let name = chunk(n);
        Entry { name, digest: Digest(name.0), len: 1000, sealed: false }
    };
    let entries = [entry(1), entry(2)];
    entries.iter().for_each(|entry| digest.push(entry.digest));
    let policy =
        r#"{"chunk_size":4194304,"stripe_width":2,"copies":2,"ack":"disk","sealed":false}"#;
    db.execute("INSERT INTO pool (name) VALUES ('old pool')", []).expect("a pool");
    db.execute_batch("INSERT INTO meta VALUES ('next_version', 8), ('next_dir', 2), ('epoch', 3)")
        .expect("counters");
    db.execute("INSERT INTO spaces (name, root, policy) VALUES ('lab', 1, ?1)", [policy])
        .expect("a space");
    db.execute_batch(
        "INSERT INTO entries VALUES (0, 'lab', 1, NULL, 0), (1, 'a', NULL, 7, 0);
         UPDATE spaces SET files = 1, bytes = 2000;",
    )
    .expect("entries");
    db.execute(
        "INSERT INTO versions VALUES (7, 2000, ?1, 5, 0, ?2, 2, 2, NULL)",
        params![digest.finish().0, DEFAULT_CHUNK],
    )
    .expect("a version");
    db.execute("INSERT INTO recipe_pages VALUES (7, 0, ?1)", [recipe::pack(&entries)])
        .expect("a recipe");
    for (id, entry) in (1..).zip(&entries) {
        db.execute(
            "INSERT INTO chunks (id, name, len, refs) VALUES (?1, ?2, 1000, 1)",
            params![id, entry.name.0],
        )
        .expect("a chunk");
        db.execute("INSERT INTO placements (chunk, donor) VALUES (?1, 1), (?1, 2)", [id])
            .expect("placements");
    }
    db.pragma_update(None, "application_id", 0x504f_544c).expect("marked");
    db.pragma_update(None, "user_version", 1).expect("marked");
}

#[test]
fn u1_a_catalog_of_format_1_opens_and_is_used_as_if_made_today() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().join("catalog.db");
    format_1(&at);
    for opening in ["upgraded", "opened again"] {
        let db = schema::open_existing(&at).expect(opening);
        let facts = lists::stat(&db, &path("pot://lab/a")).expect("there");
        let version = facts.version.expect("a file");
        assert_eq!(version.redundancy(), Redundancy::Copies(2), "{opening}");
        assert_eq!((version.goal, version.safe_wall_ms), (None, None));
        assert_eq!((facts.policy.ec, facts.policy.mirror), (None, Mirror::ClientSync));
        let both = [1, 2].map(|donor| (DonorId(donor), false));
        assert!(facts.layout.pieces.iter().all(|piece| piece.holders == both));
        assert!(versions::parity(&db, &version).expect("none").is_empty());
    }
    let db = schema::open_existing(&at).expect("opened");
    let mut fixture = Fixture::of(dir, db);
    fixture.put(file("pot://lab/b", &[2, 3], &[1, 2]));
    assert_eq!(fixture.refs(&chunk(2)), Some(2));
}
