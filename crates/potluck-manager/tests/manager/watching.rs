//! Watch streams and what clients know of directories, as members call for them.

use crate::lab::{Lab, refused};
use potluck_core::attributes::Permissions;
use potluck_core::entry_stamp::EntryStamp;
use potluck_core::ids::WatchId;
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_core::rights::Right;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    DirChange, DirDigest, DirNews, KnownDir, KnownName, MakeDir, MemberList, Move, OWN_NAME,
    Refresh, Remove, Revoke, SpaceCreate, Watch,
};
use potluck_wire::error::code;
use potluck_wire::token::Role;

fn path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

fn known(dir: &str, names: &[(&str, Option<EntryStamp>)]) -> KnownDir {
    let name = |(name, stamp): &(&str, _)| KnownName { name: (*name).into(), stamp: *stamp };
    KnownDir { names: names.iter().map(name).collect(), ..KnownDir::new(path(dir)) }
}

fn whole(dir: KnownDir) -> KnownDir {
    KnownDir { whole: true, ..dir }
}

async fn refresh(caller: &Caller, watch: Option<WatchId>, dirs: &[KnownDir]) -> Vec<DirNews> {
    caller.call(&Refresh { watch, dirs: dirs.to_vec() }).await.expect("answered").dirs
}

async fn open(caller: &Caller) -> WatchId {
    caller.call(&Watch::default()).await.expect("opened").stream
}

async fn make_dir(caller: &Caller, at: &str) {
    let permissions = Permissions::DIR;
    caller
        .call(&MakeDir { path: path(at), parents: true, permissions, owner: None })
        .await
        .expect("made");
}

async fn make_space(caller: &Caller, name: &str) {
    let policy = Policy { sealed: false, ..Policy::default() };
    caller.call(&SpaceCreate { name: name.into(), policy }).await.expect("made");
}

fn names(news: &DirNews) -> Vec<&str> {
    news.entries.iter().map(|entry| entry.path.as_str()).collect()
}

#[tokio::test]
async fn watch_sends_differences_then_changes() {
    let lab = Lab::new().await;
    let admin = lab.admin();
    make_space(&admin, "shared").await;
    make_dir(&admin, "pot://shared/a/b").await;
    make_dir(&admin, "pot://shared/a/c").await;
    let stream = open(&admin).await;
    let asked = [known("pot://", &[("shared", None)]), whole(known("pot://shared/a", &[]))];
    let first = refresh(&admin, Some(stream), &asked).await;
    assert_eq!((names(&first[0]), names(&first[1])), (vec!["shared"], vec!["b", "c"]));
    assert!(first.iter().all(|news| news.watched));
    // What is known is not told again.
    let [b, c] = [0, 1].map(|number| Some(first[1].entries[number].stamp()));
    let nothing = Some(EntryStamp::NOTHING);
    let mut digest = DirDigest::default();
    first[1].entries.iter().for_each(|entry| digest.add(&entry.path, &entry.stamp()));
    let digest = Some(digest.finish());
    let all = [("b", b), ("c", c), ("no", nothing)];
    let by_digest = KnownDir { digest, ..known("pot://shared/a", &[]) };
    let asked = [whole(known("pot://shared/a", &all)), by_digest];
    let same = refresh(&admin, None, &asked).await;
    assert_eq!((same[0].entries.len(), same[0].gone.len(), same[1].same), (0, 0, true));
    assert!(!same[0].watched, "without a stream");

    admin
        .call(&Move {
            from: path("pot://shared/a/b"),
            to: path("pot://shared/a/new"),
            no_replace: true,
            replaces: None,
            soon: false,
        })
        .await
        .expect("moved");
    make_dir(&admin, "pot://shared/a/c/below").await;
    make_dir(&admin, "pot://shared/a/no").await;
    let news = admin.call(&Watch { stream: Some(stream), heard: 0 }).await.expect("told");
    let changed = vec!["new".to_owned(), "no".into()];
    let after = refresh(&admin, None, &asked).await;
    // What is made in a directory modifies it.
    let of_c = after[0].entries.iter().find(|entry| entry.path == "c").expect("listed");
    let (modified, gone) = (vec![("c".to_owned(), of_c.mtime)], vec!["b".to_owned()]);
    let expected = DirChange { changed, modified, gone, ..DirChange::new(path("pot://shared/a")) };
    assert_eq!((news.stream, news.number, news.dirs), (stream, 1, vec![expected]));
    assert_eq!(
        (names(&after[0]), &after[0].gone[..]),
        (vec!["c", "no", "new"], &["b".to_owned()][..])
    );
    assert!(!after[1].same);
    // Directories that are not there say so, one by one, and names that nobody can have are not there.
    let asked = [
        known("pot://shared/gone", &[("x", None)]),
        known("pot://nowhere", &[("x", None)]),
        known("pot://", &[(".potluck", None), ("a/b", None)]),
    ];
    let missing = refresh(&admin, None, &asked).await;
    let codes = |news: &DirNews| news.failure.clone().map(|failure| failure.code);
    assert_eq!(codes(&missing[0]).as_deref(), Some(code::NO_ENTRY));
    assert_eq!(codes(&missing[1]).as_deref(), Some(code::NO_SPACE_NAMED));
    assert_eq!((codes(&missing[2]), missing[2].gone.len()), (None, 2));
}

#[tokio::test]
async fn names_are_told_to_who_may_list_them_and_to_nobody_else() {
    let lab = Lab::new().await;
    let (admin, user) = (lab.admin(), lab.user().await);
    make_space(&admin, "shared").await;
    make_space(&admin, "secret").await;
    lab.grant("shared", "ada", &[Right::List, Right::Read]).await;
    make_dir(&admin, "pot://shared/a").await;
    make_dir(&admin, "pot://secret/a").await;
    let (stream, of_admin) = (open(&user).await, open(&admin).await);
    let asked = [
        known("pot://", &[("shared", None), ("secret", None)]),
        whole(known("pot://secret", &[("a", None)])),
        whole(known("pot://shared", &[])),
    ];
    let told = refresh(&user, Some(stream), &asked).await;
    assert_eq!((names(&told[0]), &told[0].gone[..]), (vec!["shared"], &["secret".to_owned()][..]));
    let failure = told[1].failure.as_ref().expect("refused");
    assert_eq!((failure.code.as_str(), told[1].watched), (code::NO_SPACE_NAMED, false));
    assert_eq!((names(&told[2]), told[2].watched), (vec!["a"], true));
    // Nobody else can use the stream of a member.
    assert!(!refresh(&user, Some(of_admin), &asked[2..]).await[0].watched);
    make_dir(&admin, "pot://secret/b").await;
    let permissions = Permissions::DIR;
    let news = user.call(&Watch { stream: Some(stream), heard: 0 }).await.expect("answered");
    assert_eq!(news.dirs, [], "nothing that it may hear of");
    make_dir(&admin, "pot://shared/b").await;
    let news = user.call(&Watch { stream: Some(stream), heard: news.number }).await.expect("told");
    let [told] = &news.dirs[..] else { panic!("{news:?}") };
    let [(own, _)] = &told.modified[..] else { panic!("{told:?}") };
    assert_eq!((&told.dir, &told.changed[..]), (&path("pot://shared"), &["b".to_owned()][..]));
    assert_eq!((own.as_str(), &told.attributes[..]), (OWN_NAME, &[][..]));

    lab.take("shared", "ada", &[Right::List, Right::Read]).await;
    make_dir(&admin, "pot://shared/later").await;
    let news = user.call(&Watch { stream: Some(stream), heard: news.number }).await.expect("told");
    let whole_dir = |dir: &str| DirChange { all: true, ..DirChange::new(path(dir)) };
    assert_eq!(news.dirs, [whole_dir("pot://"), whole_dir("pot://shared")]);
    assert!(refresh(&user, Some(stream), &asked[2..]).await[0].failure.is_some());
    let make = MakeDir { path: path("pot://shared/x"), parents: false, permissions, owner: None };
    refused(&user, &make).await;

    // A revoked member is told nothing at all.
    let mallory = lab.caller(&lab.join(Role::User, "mallory").await);
    let stream = open(&mallory).await;
    let members = admin.call(&MemberList {}).await.expect("listed").members;
    let member = members.iter().find(|member| member.name == "mallory").expect("there").member;
    admin.call(&Revoke::of(member)).await.expect("revoked");
    let failure = refused(&mallory, &Watch { stream: Some(stream), heard: 0 }).await;
    assert_eq!(failure.code, code::REVOKED);
    admin
        .call(&Remove {
            path: path("pot://shared/a"),
            recursive: true,
            forever: false,
            only_if: Default::default(),
            soon: false,
        })
        .await
        .expect("removed");
}
