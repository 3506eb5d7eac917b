//! Symbolic links: entries that lead nowhere in the catalog.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::{file, path};
use potluck_catalog::{CopyOutcome, CopyRequest, Error, SeenSpaces, Upkeep};
use potluck_core::attributes::{AttributesToSet, FileTime, Permissions};
use potluck_core::clock::Tick;
use potluck_core::ids::{MemberId, SessionId};
use potluck_core::link_target::LinkTarget;
use potluck_core::policy::AskedPolicy;
use potluck_core::quota::{Quota, QuotaOf};
use potluck_wire::control::{Condition, EntryKind, ListedEntry, NewLink};

fn target(text: &str) -> LinkTarget {
    text.to_owned().try_into().expect("a target")
}

fn link(at: &str, leads_to: &str) -> NewLink {
    NewLink { path: path(at), target: target(leads_to), mtime: Some(FileTime(5)), owner: None }
}

async fn make(stage: &Stage, links: &[(&str, &str)], condition: Condition) -> Vec<Error> {
    let links = links.iter().map(|(at, leads_to)| link(at, leads_to)).collect();
    let refused = stage.catalog.make_links(links, false, condition, when(1)).await;
    refused.expect("tried").into_iter().map(|(_, why)| why).collect()
}

async fn told(stage: &Stage, at: &str) -> ListedEntry {
    stage.catalog.stat(path(at)).await.expect("there").entry
}

async fn leads_to(stage: &Stage, at: &str) -> Option<String> {
    told(stage, at).await.target.map(String::from)
}

async fn stage() -> Stage {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/d/f", &[1], &[1])).await;
    let links = [("pot://lab/d/l", "f"), ("pot://lab/up", "../../etc"), ("pot://lab/dir", "d")];
    assert_eq!(make(&stage, &links, Condition::IfAbsent).await, []);
    stage
}

#[tokio::test]
async fn symlinks_count_as_files_without_bytes() {
    let stage = stage().await;
    let up = told(&stage, "pot://lab/up").await;
    assert_eq!((up.kind, up.size, up.mtime), (EntryKind::Link, 9, FileTime(5)));
    assert_eq!(up.permissions, Permissions::LINK);
    assert_eq!(leads_to(&stage, "pot://lab/up").await.as_deref(), Some("../../etc"));
    assert_eq!(stage.listed("pot://lab", true, None).await, ["d", "d/f", "d/l", "dir", "up"]);
    assert_eq!(stage.listed("pot://lab/up", true, None).await, [""], "a link lists itself");
    let used = stage.catalog.usage(path("pot://lab"), None, 1000, SeenSpaces::ALL).await;
    let used = used.expect("summed");
    assert_eq!((used.files, used.dirs, used.bytes), (4, 1, 1000));
    let of_link = async |after| {
        let used = stage.catalog.usage(path("pot://lab/up"), after, 1, SeenSpaces::ALL).await;
        used.map(|used| (used.files, used.next)).expect("summed")
    };
    let (files, after) = of_link(None).await;
    assert_eq!((files, of_link(after).await), (1, (0, None)), "the second part has nothing");
    let sums = async || {
        let spaces = stage.catalog.spaces().await.expect("spaces");
        (spaces[0].sums.files, spaces[0].sums.bytes)
    };
    assert_eq!(sums().await, (4, 1000));

    let moved = async |from, to, no_replace| {
        stage.catalog.rename(path(from), path(to), no_replace, None, when(1)).await
    };
    moved("pot://lab/up", "pot://lab/d/up", false).await.expect("moved");
    assert_eq!(leads_to(&stage, "pot://lab/d/up").await.as_deref(), Some("../../etc"));
    let kept = moved("pot://lab/dir", "pot://lab/d/f", true).await;
    assert_eq!(kept, Err(Error::Exists(path("pot://lab/d/f"))));
    moved("pot://lab/dir", "pot://lab/d/f", false).await.expect("a link replaces a file");
    assert_eq!((sums().await, stage.refs([1]).await), ((3, 0), [Some(0)]));
    moved("pot://lab/d/up", "pot://lab/d/f", false).await.expect("and a link");
    assert_eq!(leads_to(&stage, "pot://lab/d/f").await.as_deref(), Some("../../etc"));
    let refused = moved("pot://lab/d/l", "pot://lab/d", false).await;
    assert!(matches!(refused, Err(Error::IsADirectory(_))), "{refused:?}");
    let refused = moved("pot://lab/d", "pot://lab/d2/x", false).await;
    assert!(matches!(refused, Err(Error::NoEntry(_))), "{refused:?}");

    let new = AttributesToSet {
        mtime: Some(FileTime(-7)),
        permissions: Some(Permissions::of_mode(0o600)),
        ..AttributesToSet::default()
    };
    stage.catalog.set_attributes(path("pot://lab/d/l"), None, new).await.expect("set");
    let l = told(&stage, "pot://lab/d/l").await;
    assert_eq!((l.mtime, l.permissions), (FileTime(-7), Permissions::LINK));
    let removed =
        stage.catalog.remove(path("pot://lab/d/l"), Default::default(), false, when(1)).await;
    let removed = removed.expect("removed");
    assert_eq!((removed.files, removed.bytes, sums().await), (1, 0, (1, 0)));
    assert_eq!(
        stage
            .catalog
            .remove(path("pot://lab/d"), Default::default(), true, when(1))
            .await
            .map(|r| r.files),
        Ok(1)
    );
    let step = Upkeep::Trash { entries: 100, kept_ms: 0 };
    while stage.catalog.upkeep(step, 1 << 40).await.expect("done") {}
    assert_eq!(sums().await, (0, 0), "a tree takes its links along");
}

#[tokio::test]
async fn a_link_is_never_followed_and_takes_the_place_of_a_link_alone() {
    let mut stage = stage().await;
    let below = stage.catalog.stat(path("pot://lab/dir/f")).await;
    assert_eq!(below.expect_err("no way"), Error::NotADirectory(path("pot://lab/dir")));
    let below = stage.catalog.make_directory(path("pot://lab/dir/x"), true, MADE).await;
    assert!(matches!(below, Err(Error::NotADirectory(_))), "{below:?}");
    assert!(matches!(
        stage.refused(file("pot://lab/dir/x", &[2], &[1])).await,
        Error::NotADirectory(_)
    ));
    let is_link =
        |at: &str, leads_to: &str| Error::IsALink { path: path(at), target: target(leads_to) };
    let refused = stage.refused(file("pot://lab/d/l", &[2], &[1])).await;
    assert_eq!(refused, is_link("pot://lab/d/l", "f"));
    let opened = stage.catalog.open_files(path("pot://lab/d/l"), false, None).await;
    assert_eq!(opened.expect_err("a link"), is_link("pot://lab/d/l", "f"));
    let page = stage.catalog.open_files(path("pot://lab"), true, None).await.expect("opened");
    let links: Vec<_> = page.links.iter().map(|link| (&*link.path, link.target.as_str())).collect();
    assert_eq!(links, [("d/l", "f"), ("dir", "d"), ("up", "../../etc")]);
    assert_eq!(page.files.len(), 1);

    let always = async |at, to| make(&stage, &[(at, to)], Condition::Always).await;
    assert_eq!(always("pot://lab/d/f", "x").await, [Error::IsAFile(path("pot://lab/d/f"))]);
    assert_eq!(always("pot://lab/d", "x").await, [Error::IsADirectory(path("pot://lab/d"))]);
    assert_eq!(always("pot://lab/no/x", "x").await, [Error::NoEntry(path("pot://lab/no"))]);
    assert!(always("pot://lab", "x").await.pop().is_some());
    assert_eq!(always("pot://lab/up", "new").await, []);
    assert_eq!(leads_to(&stage, "pot://lab/up").await.as_deref(), Some("new"));
    assert_eq!(stage.catalog.spaces().await.expect("spaces")[0].sums.files, 4);
    // If one of several links is refused, the others are made.
    let two = [("pot://lab/up", "x"), ("pot://lab/other", "x")];
    let refused = make(&stage, &two, Condition::IfAbsent).await;
    assert_eq!(refused, [Error::Exists(path("pot://lab/up"))]);
    assert_eq!(leads_to(&stage, "pot://lab/other").await.as_deref(), Some("x"));

    let lab = QuotaOf::Space("lab".into());
    let quota = Quota { bytes: None, files: Some(7) }; // a directory counts, too
    stage.catalog.set_quota(lab, quota).await.expect("set");
    let two = [("pot://lab/6", "x"), ("pot://lab/7", "x"), ("pot://lab/up", "again")];
    let refused = make(&stage, &two, Condition::Always).await;
    assert!(matches!(refused[..], [Error::OverQuota { files: Some(8), .. }]), "{refused:?}");
}

#[tokio::test]
async fn a_copy_of_a_tree_has_its_links() {
    let stage = stage().await;
    let copy = async |number: u8, from: &str, to: &str, recursive, condition| {
        let (from, to) = (path(from), path(to));
        let wanted = CopyRequest {
            from,
            to,
            recursive,
            condition,
            asked: AskedPolicy::default(),
            after: None,
            reserved: Vec::new(),
        };
        let donors = stage.donors.snapshot(Tick::ZERO);
        let id = (MemberId(1), SessionId([number; 16]), 0);
        let copied = stage.catalog.copy_files(id, wanted, donors, when(1), |_| Ok("said".into()));
        copied.await.map(|copied| match copied {
            CopyOutcome::Fresh(copied) => copied,
            CopyOutcome::Repeated(_) => panic!("it is the first"),
        })
    };
    let always = Condition::Always;
    let copied = copy(1, "pot://lab/d", "pot://lab/e", true, always).await.expect("copied");
    assert_eq!((copied.links, copied.files.len()), (1, 1));
    let l = told(&stage, "pot://lab/e/l").await;
    assert_eq!((l.target, l.mtime), (Some(target("f")), FileTime(5)));
    let refused = copy(2, "pot://lab/up", "pot://lab/x", false, always).await;
    assert!(matches!(refused, Err(Error::IsALink { .. })), "{refused:?}");
    let copied = copy(3, "pot://lab/up", "pot://lab/x", true, always).await.expect("copied");
    assert_eq!(
        (copied.links, leads_to(&stage, "pot://lab/x").await),
        (1, Some("../../etc".into()))
    );
    let copied = copy(4, "pot://lab/d", "pot://lab/e", true, Condition::IfAbsent).await;
    let failed = copied.expect("tried").files.into_iter().filter_map(|(_, file)| file.err());
    let failed: Vec<Error> = failed.collect();
    assert_eq!(failed, ["f", "l"].map(|name| Error::Exists(path(&format!("pot://lab/e/{name}")))));
}
