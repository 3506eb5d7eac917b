//! What a listener is told of committed changes.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::{file, path};
use potluck_catalog::{ChangeListener, CommittedChange, Error};
use potluck_core::attributes::{AttributesToSet, FileTime, Permissions};
use potluck_core::link_target::LinkTarget;
use potluck_core::rights::{Grantee, Right, Rights};
use potluck_wire::control::{Condition, NewLink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A listener that notes what it is told.
#[derive(Default)]
struct Noted {
    is_deaf: AtomicBool,
    told: Mutex<Vec<CommittedChange>>,
}

impl ChangeListener for Noted {
    fn listens(&self) -> bool {
        !self.is_deaf.load(Ordering::Relaxed)
    }

    fn committed(&self, changes: Vec<CommittedChange>) {
        self.told.lock().expect("no holder panics").extend(changes);
    }
}

impl Noted {
    fn take(&self) -> Vec<CommittedChange> {
        std::mem::take(&mut *self.told.lock().expect("no holder panics"))
    }

    /// Returns the paths of entries that were told to have changed, with a minus if the entry is gone. Paths of
    /// which only attributes changed are left out.
    fn paths(&self) -> Vec<String> {
        self.told().into_iter().filter(|told| !told.starts_with('~')).collect()
    }

    /// Returns all that was told. A tilde marks paths of which attributes were set.
    fn told(&self) -> Vec<String> {
        let path = |change| match change {
            CommittedChange::Entry { path, is_there: true } => path.to_string(),
            CommittedChange::Entry { path, is_there: false } => format!("-{path}"),
            CommittedChange::Attributes(path) | CommittedChange::Modified(path, _) => {
                format!("~{path}")
            }
            other => format!("{other:?}"),
        };
        self.take().into_iter().map(path).collect()
    }
}

async fn heard() -> (Stage, Arc<Noted>) {
    let stage = Stage::new().await;
    let noted = Arc::<Noted>::default();
    stage.catalog.announce_to(noted.clone());
    (stage, noted)
}

#[tokio::test]
async fn watches_hear_of_a_change_before_its_caller_does() {
    let (mut stage, noted) = heard().await;
    stage.put(file("pot://lab/a/b/f", &[1], &[1])).await;
    let made = ["pot://lab/a", "pot://lab/a/b", "pot://lab/a/b/f"];
    assert_eq!(
        noted.paths(),
        made,
        "directories on the way are told of, and only when they are made"
    );
    stage.put(file("pot://lab/a/b/f", &[2], &[1])).await;
    assert_eq!(noted.paths(), ["pot://lab/a/b/f"]);
    let catalog = &stage.catalog;
    catalog.make_directory(path("pot://lab/a/c/d"), true, MADE).await.expect("made");
    catalog.make_directory(path("pot://lab/a/c"), true, MADE).await.expect("there already");
    assert_eq!(noted.paths(), ["pot://lab/a/c", "pot://lab/a/c/d"]);
    let target = LinkTarget::try_from("f".to_owned()).expect("a target");
    let link = NewLink { path: path("pot://lab/x/l"), target, mtime: None, owner: None };
    catalog.make_links(vec![link], true, Condition::IfAbsent, when(1)).await.expect("made");
    assert_eq!(noted.paths(), ["pot://lab/x", "pot://lab/x/l"]);
    let (mtime, permissions) = (Some(FileTime(9)), Some(Permissions::DIR));
    let new = AttributesToSet { mtime, permissions, ..AttributesToSet::default() };
    for at in ["pot://lab/a/b/f", "pot://lab/a/b", "pot://lab"] {
        catalog.set_attributes(path(at), None, new).await.expect("set");
        assert_eq!(noted.told(), [format!("~{at}")]);
    }
    catalog
        .rename(path("pot://lab/a"), path("pot://lab/x/a"), false, None, when(2))
        .await
        .expect("moved");
    assert_eq!(noted.paths(), ["-pot://lab/a", "pot://lab/x/a"]);
    catalog
        .remove(path("pot://lab/x/a/b/f"), Default::default(), false, when(3))
        .await
        .expect("removed");
    catalog.remove(path("pot://lab/x"), Default::default(), true, when(4)).await.expect("removed");
    assert_eq!(noted.paths(), ["-pot://lab/x/a/b/f", "-pot://lab/x"]);
}

#[tokio::test]
async fn failed_and_nameless_changes_notify_no_watch() {
    let (mut stage, noted) = heard().await;
    let refused = stage.catalog.make_directory(path("pot://lab/no/d"), false, MADE).await;
    assert_eq!(refused, Err(Error::NoEntry(path("pot://lab/no"))));
    stage.put(file("pot://lab/f", &[1], &[1])).await;
    noted.take();
    stage.refused(file("pot://lab/f/below", &[2], &[1])).await;
    stage.catalog.save_time(77, Vec::new(), Vec::new(), Vec::new()).await.expect("saved");
    assert_eq!(noted.take(), []);
    // Nobody listens for a while, and what was committed then is not told later.
    noted.is_deaf.store(true, Ordering::Relaxed);
    stage.catalog.make_directory(path("pot://lab/d"), false, MADE).await.expect("made");
    noted.is_deaf.store(false, Ordering::Relaxed);
    stage.catalog.make_directory(path("pot://lab/e"), false, MADE).await.expect("made");
    assert_eq!(noted.paths(), ["pot://lab/e"]);
}

#[tokio::test]
async fn watches_hear_of_rights_and_removed_space_drops_its_rights() {
    let (stage, noted) = heard().await;
    let ada = stage.join("ada", 1).await;
    assert_eq!(noted.take(), [CommittedChange::Member(ada)]);
    let rights = [Right::List].into_iter().collect::<Rights>();
    let to = Grantee::Member(ada);
    stage.catalog.change_rights("lab".into(), to, rights, Rights::NONE).await.expect("granted");
    assert_eq!(noted.take(), [CommittedChange::Rights(Some("lab".into()))]);
    stage.catalog.revoke(ada).await.expect("revoked");
    assert!(noted.take().contains(&CommittedChange::Member(ada)));
    stage.catalog.remove_space("lab".into(), true).await.expect("removed");
    let gone = CommittedChange::Entry { path: path("pot://lab"), is_there: false };
    assert_eq!(noted.take(), [gone, CommittedChange::Rights(Some("lab".into()))]);
}

#[tokio::test]
async fn names_of_many_directories_are_looked_up_at_once() {
    let (mut stage, _) = heard().await;
    stage.put(file("pot://lab/a/f", &[1], &[1])).await;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let asked = vec![
        (path("pot://"), names(&["lab", "no"])),
        (path("pot://lab/a"), names(&["f", "no"])),
        (path("pot://lab/no"), names(&["f"])),
        (path("pot://lab/a/f"), names(&[])),
    ];
    let found = stage.catalog.look_up(asked).await.expect("read");
    let shown: Vec<_> = found
        .into_iter()
        .map(|of_dir| {
            let names = |entry: Option<potluck_wire::control::ListedEntry>| entry.map(|it| it.path);
            of_dir.map(|entries| entries.into_iter().map(names).collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(shown[0], Ok(vec![Some("lab".into()), None]));
    assert_eq!(shown[1], Ok(vec![Some("f".into()), None]));
    assert_eq!(shown[2], Err(Error::NoEntry(path("pot://lab/no"))));
    assert_eq!(shown[3], Err(Error::NotADirectory(path("pot://lab/a/f"))));
}
