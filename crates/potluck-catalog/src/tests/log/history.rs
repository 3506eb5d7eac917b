//! Steps that change what is kept of replaced or removed files, for the tests that a replayed catalog equals the
//! original.

use super::{MADE, WHEN};
use crate::fixture::{Fixture, file, path};
use crate::history::{kept_rows, snapshots};
use crate::names::{
    entries,
    walk::{Walk, What},
};
use crate::operations::{
    history,
    names::{self, directories, links},
    series::steps,
    upkeep::reaping,
};
use crate::policies::policy_changes;
use crate::sql::Tx;
use crate::when::{WhatIsKept, When};
use potluck_core::attributes::FileTime;
use potluck_core::ids::VersionId;
use potluck_core::policy::{Override, SeriesRule};
use potluck_wire::control::{Condition, NewLink};

/// A time later than that until which these steps keep anything.
const LATER_MS: u64 = 1 << 40;

/// Returns the rows of kept entries and the snapshots with their entries, as text.
pub fn told(db: &Tx) -> Vec<String> {
    let mut told = Vec::new();
    for number in 0..1000 {
        let Some(row) = kept_rows::get(db, VersionId(number)).expect("read") else { continue };
        let dir = entries::path_of(db, row.dir).expect("read");
        told.push(format!(
            "{dir:?} {:?}",
            kept_rows::HistoryRow { dir: entries::DirId::ROOT, ..row }
        ));
    }
    for taken in snapshots::all(db).expect("read") {
        told.push(format!("{taken:?}"));
        let at = entries::existing_dir(db, &taken.at).expect("there");
        let mut walk = Walk::new(db, at, true, None).expect("a walk");
        while let Some(item) = walk.next_item().expect("read") {
            told.push(match item.what {
                What::File(version) => format!("{} {:?}", item.path, version.id),
                What::Link(target) => format!("{} {target} {:?}", item.path, item.attributes),
                What::Dir(_) => item.path,
            });
        }
    }
    told
}

/// Returns steps that together make every kind of change to what is kept.
pub fn steps() -> Vec<fn(&mut Fixture)> {
    fn remove(f: &Fixture, at: &str) {
        names::remove(&f.db, &path(at), true, WHEN).expect("removed");
    }
    fn link(f: &Fixture, at: &str, leads_to: &str) {
        let target = leads_to.to_owned().try_into().expect("a target");
        let new = [NewLink { path: path(at), target, mtime: Some(FileTime(1)), owner: None }];
        links::make_all(&f.db, &new, true, Condition::Always, WHEN).expect("made");
    }
    fn bring_back(f: &Fixture, at: &str, number: Option<VersionId>, removed: bool) {
        history::bring_back(&f.db, &path(at), number, removed, WHEN).expect("brought back");
    }
    fn versions(f: &Fixture, at: &str) -> Vec<VersionId> {
        let at = path(at);
        let dir = at.parent().expect("a directory");
        let dir = entries::existing_dir(&f.db, &dir).expect("there");
        let rows = kept_rows::of_name(&f.db, dir, at.file_name().expect("a name"));
        rows.expect("read").into_iter().map(|row| row.number).collect()
    }
    vec![
        |f| {
            directories::make_dir(&f.db, &path("pot://lab/kept/d"), true, MADE).expect("made");
            let over = Override {
                keep_versions: Some("2".parse().expect("versions")),
                trash: Some("1h".parse().expect("a time")),
                ..Override::default()
            };
            policy_changes::set(&f.db, &path("pot://lab/kept"), &over).expect("set");
        },
        |f| {
            for chunk in 40..44 {
                f.put(file("pot://lab/kept/d/a", &[chunk], &[1]));
            }
            f.commit(vec![
                file("pot://lab/kept/d/a", &[44], &[1]),
                file("pot://lab/kept/d/a", &[45], &[1]),
            ]);
            assert_eq!(versions(f, "pot://lab/kept/d/a").len(), 5, "none is let go yet");
        },
        |f| while history::expire(&f.db, 1, 6).expect("let go") {},
        |f| {
            let [newer, older] = versions(f, "pot://lab/kept/d/a")[..] else { panic!("two") };
            bring_back(f, "pot://lab/kept/d/a", Some(older), false);
            bring_back(f, "pot://lab/kept/d/a", Some(newer), false);
            bring_back(f, "pot://lab/kept/d/a", None, false);
        },
        |f| {
            f.put(file("pot://lab/kept/d/b", &[46], &[1]));
            f.put(file("pot://lab/kept/d/b", &[47], &[1]));
            f.put(file("pot://lab/kept/d/c", &[48], &[1]));
            let (from, to) = (path("pot://lab/kept/d/c"), path("pot://lab/kept/d/b"));
            names::move_entry(&f.db, &from, &to, false, WHEN).expect("moved");
            names::move_entry(&f.db, &to, &path("pot://lab/away"), false, WHEN).expect("moved");
        },
        |f| {
            link(f, "pot://lab/kept/d/l", "x");
            remove(f, "pot://lab/kept/d/l");
            remove(f, "pot://lab/kept/d/a");
        },
        |f| {
            f.put(file("pot://lab/kept/d/t/x", &[49], &[1]));
            f.put(file("pot://lab/kept/d/t/x", &[50], &[1]));
            remove(f, "pot://lab/kept/d/t");
            bring_back(f, "pot://lab/kept/d/t", None, true);
            bring_back(f, "pot://lab/kept/d/t/x", None, false);
        },
        |f| {
            let (from, to) = (path("pot://lab/kept/d"), path("pot://lab/kept/e"));
            names::move_entry(&f.db, &from, &to, false, WHEN).expect("moved");
            bring_back(f, "pot://lab/kept/e/a", None, true);
        },
        |f| {
            let forever = When { keeps: WhatIsKept::Nothing, ..WHEN };
            names::remove(&f.db, &path("pot://lab/kept/e/a"), true, forever).expect("removed");
            remove(f, "pot://lab/kept/e/t");
            let number = versions(f, "pot://lab/kept/e/t")[0];
            history::let_go_of(&f.db, &path("pot://lab/kept"), &[number], WHEN).expect("gone");
            while reaping::reap(&f.db, 10, 0, 0).expect("reaped") {}
        },
        |f| {
            history::expire(&f.db, 100, 6).expect("let go");
            f.put(file("pot://lab/kept/e/s/a", &[51], &[1]));
            f.put(file("pot://lab/kept/e/s/sub/b", &[52], &[1]));
            f.put(file("pot://lab/kept/e/s/sub/c", &[53], &[1]));
            for name in ["replaced", "removed", "moved"] {
                link(f, &format!("pot://lab/kept/e/s/{name}"), "before");
            }
            history::take_snapshot(&f.db, &path("pot://lab/kept/e/s"), "one", WHEN).expect("taken");
        },
        |f| {
            let forever = When { keeps: WhatIsKept::Nothing, ..WHEN };
            f.put(file("pot://lab/kept/e/s/a", &[54], &[1]));
            names::remove(&f.db, &path("pot://lab/kept/e/s/a"), true, forever).expect("removed");
            f.put(file("pot://lab/kept/e/s/new", &[55], &[1]));
            // Nothing but the snapshot has the first link that was at each of these names.
            link(f, "pot://lab/kept/e/s/replaced", "after");
            names::remove(&f.db, &path("pot://lab/kept/e/s/removed"), true, forever)
                .expect("removed");
            f.put(file("pot://lab/kept/e/s/removed", &[57], &[1]));
            let (from, to) = (path("pot://lab/kept/e/s/moved"), path("pot://lab/kept/e/s/to"));
            names::move_entry(&f.db, &from, &to, false, WHEN).expect("moved");
            let (from, to) = (path("pot://lab/kept/e/s/sub"), path("pot://lab/out"));
            names::move_entry(&f.db, &from, &to, false, WHEN).expect("moved");
            while history::expire(&f.db, 1, 6).expect("let go") {}
            let series = SeriesRule { keep_last: Some(3), ..SeriesRule::default() };
            let over = Override { series, ..Override::default() };
            policy_changes::set(&f.db, &path("pot://lab/kept"), &over).expect("set");
            steps::pin(&f.db, &path("pot://lab/kept/e"), true).expect("pinned");
        },
        |f| {
            // A pin stays with the name, whether the old version is kept or not.
            for (chunk, at) in [(60, "pot://lab/kept/e/pinned"), (70, "pot://lab/pinned")] {
                f.put(file(at, &[chunk], &[1]));
                steps::pin(&f.db, &path(at), true).expect("pinned");
                f.put(file(at, &[chunk + 1], &[1]));
                let other = format!("{at}-other");
                f.put(file(&other, &[chunk + 2], &[1]));
                names::move_entry(&f.db, &path(&other), &path(at), false, WHEN).expect("moved");
            }
            bring_back(f, "pot://lab/kept/e/pinned", None, false);
        },
        |f| {
            history::take_snapshot(&f.db, &path("pot://lab/kept/e/s"), "two", WHEN).expect("taken");
            remove(f, "pot://lab/out/b");
            f.put(file("pot://lab/out/c", &[56], &[1]));
            remove(f, "pot://lab/out");
            while reaping::reap(&f.db, 10, 0, 0).expect("reaped") {}
        },
        |f| {
            history::remove_snapshot(&f.db, &path("pot://lab/kept/e/s"), "one").expect("removed");
            while history::release(&f.db, 1, WHEN).expect("a step") {}
            while history::expire(&f.db, 1, 6).expect("let go") {}
            while reaping::reap(&f.db, 10, 0, 0).expect("reaped") {}
        },
        |f| {
            remove(f, "pot://lab/kept/e");
            while history::expire(&f.db, 1, LATER_MS).expect("let go") {}
            while reaping::reap(&f.db, 10, 0, 0).expect("reaped") {}
        },
    ]
}
