//! Grants in spaces, and groups.

use crate::stage::Stage;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::new_space;
use potluck_catalog::fixture::path;
use potluck_catalog::{Error, GroupEdit, NewSpace, SeenSpaces};
use potluck_core::ids::MemberId;
use potluck_core::policy::Policy;
use potluck_core::rights::{EVERYONE, Grantee, Right, Rights};
use potluck_wire::control::{Used, UsedUpTo};
use std::collections::BTreeMap;

fn rights(rights: &[Right]) -> Rights {
    rights.iter().copied().collect()
}

fn group(name: &str) -> Grantee {
    Grantee::Group(name.into())
}

async fn space_of(
    stage: &Stage,
    name: &str,
    maker: MemberId,
    most: Option<u64>,
) -> Result<(), Error> {
    let new = NewSpace { made_by: Some(maker), ..new_space(name, Policy::default(), None) };
    stage.catalog.create_space(new, most, 0).await
}

async fn may(stage: &Stage, member: MemberId, space: &str) -> Rights {
    stage.catalog.rights(member, Some(space.into())).await.expect("read").rights(space)
}

async fn grant(stage: &Stage, to: Grantee, granted: &[Right]) -> Result<Rights, Error> {
    let change = stage.catalog.change_rights("lab".into(), to, rights(granted), Rights::NONE).await;
    change.map(|(_, after)| after)
}

/// Changes who is in the group of students.
async fn members(stage: &Stage, add: Vec<MemberId>, remove: Vec<MemberId>) -> Result<(), Error> {
    stage.catalog.edit_group("students".into(), GroupEdit::Members { add, remove }).await
}

#[tokio::test]
async fn space_creator_has_all_rights_and_others_none() {
    let stage = Stage::new().await;
    let (ada, bert) = (stage.join("ada", 1).await, stage.join("bert", 2).await);
    space_of(&stage, "own", ada, None).await.expect("made");
    assert_eq!(may(&stage, ada, "own").await, Rights::ALL);
    assert_eq!(may(&stage, bert, "own").await, Rights::NONE);
    assert_eq!(may(&stage, ada, "lab").await, Rights::NONE, "the pool made it");
    assert_eq!(may(&stage, ada, "nowhere").await, Rights::NONE);
}

#[tokio::test]
async fn rights_of_a_member_of_their_groups_and_of_everyone_add_up() {
    let stage = Stage::new().await;
    let (ada, bert) = (stage.join("ada", 1).await, stage.join("bert", 2).await);
    stage.catalog.edit_group("students".into(), GroupEdit::Create).await.expect("made");
    members(&stage, vec![ada], Vec::new()).await.expect("changed");
    grant(&stage, Grantee::Member(ada), &[Right::Read]).await.expect("granted");
    grant(&stage, group("students"), &[Right::Write]).await.expect("granted");
    grant(&stage, group(EVERYONE), &[Right::List]).await.expect("granted");
    let all = rights(&[Right::List, Right::Read, Right::Write]);
    assert_eq!(may(&stage, ada, "lab").await, all);
    assert_eq!(may(&stage, bert, "lab").await, rights(&[Right::List]));
    let everywhere = stage.catalog.rights(ada, None).await.expect("read");
    assert_eq!(everywhere, SeenSpaces::only(BTreeMap::from([("lab".to_owned(), all)])));

    let after = grant(&stage, Grantee::Member(ada), &[Right::Write]).await.expect("granted");
    assert_eq!(after, rights(&[Right::Read, Right::Write]), "beside what was granted");
    let taken = stage
        .catalog
        .change_rights("lab".into(), Grantee::Member(ada), Rights::NONE, Rights::ALL)
        .await;
    assert_eq!(taken, Ok((after, Rights::NONE)));
    assert_eq!(may(&stage, ada, "lab").await, rights(&[Right::List, Right::Write]));
    members(&stage, Vec::new(), vec![ada]).await.expect("changed");
    assert_eq!(may(&stage, ada, "lab").await, rights(&[Right::List]));
}

#[tokio::test]
async fn grants_to_unknown_members_are_refused() {
    let stage = Stage::new().await;
    let ada = stage.join("ada", 1).await;
    let nobody = Grantee::Member(MemberId(77));
    assert_eq!(grant(&stage, nobody, &[Right::Read]).await, Err(Error::NoMember(77)));
    let none = Err(Error::NoGroup("students".into()));
    assert_eq!(grant(&stage, group("students"), &[Right::Read]).await, none);
    let change = members(&stage, vec![ada], Vec::new()).await;
    assert_eq!(change, Err(Error::NoGroup("students".into())));
    let taken = stage.catalog.edit_group(EVERYONE.into(), GroupEdit::Create).await;
    assert_eq!(taken, Err(Error::GroupExists(EVERYONE.into())));
    let nowhere = stage
        .catalog
        .change_rights("nowhere".into(), Grantee::Member(ada), Rights::ALL, Rights::NONE)
        .await;
    assert_eq!(nowhere, Err(Error::NoSpaceNamed("nowhere".into())));
}

#[tokio::test]
async fn group_and_member_names_are_disjoint() {
    let stage = Stage::new().await;
    stage.join("ada", 1).await;
    let create = |name: &str| stage.catalog.edit_group(name.into(), GroupEdit::Create);
    let taken = |name: &str, holder| Error::NameTaken { name: name.into(), holder };
    assert_eq!(create("ada").await, Err(taken("ada", "a member")));
    create("students").await.expect("made");
    let joined = stage.try_join("students", 2).await;
    assert_eq!(joined, Err(taken("students", "a group")));
}

#[tokio::test]
async fn grants_do_not_apply_to_a_new_member_or_space_of_the_same_name() {
    let stage = Stage::new().await;
    let ada = stage.join("ada", 1).await;
    grant(&stage, Grantee::Member(ada), &[Right::Read]).await.expect("granted");
    stage.catalog.remove_space("lab".into(), true).await.expect("removed");
    stage
        .catalog
        .create_space(new_space("lab", Policy::default(), None), None, 0)
        .await
        .expect("made");
    assert_eq!(may(&stage, ada, "lab").await, Rights::NONE);

    for _ in 0..2 {
        stage.catalog.edit_group("students".into(), GroupEdit::Create).await.expect("made");
        assert!(!stage.catalog.groups().await.expect("read")["students"].contains(&ada));
        members(&stage, vec![ada], Vec::new()).await.expect("changed");
        assert_eq!(may(&stage, ada, "lab").await, Rights::NONE);
        grant(&stage, group("students"), &[Right::Read]).await.expect("granted");
        stage.catalog.edit_group("students".into(), GroupEdit::Remove).await.expect("removed");
    }
    assert_eq!(stage.catalog.grants("lab".into()).await, Ok(Vec::new()));

    grant(&stage, Grantee::Member(ada), &[Right::Read]).await.expect("granted");
    stage.catalog.revoke(ada).await.expect("revoked");
    assert_eq!(stage.catalog.grants("lab".into()).await, Ok(Vec::new()));
    let again = grant(&stage, Grantee::Member(ada), &[Right::Read]).await;
    assert_eq!(again, Err(Error::NoMember(ada.0)));
}

#[tokio::test]
async fn spaces_per_member_are_bounded() {
    let stage = Stage::new().await;
    let (ada, bert) = (stage.join("ada", 1).await, stage.join("bert", 2).await);
    space_of(&stage, "one", ada, Some(2)).await.expect("made");
    space_of(&stage, "two", ada, Some(2)).await.expect("made");
    let many = space_of(&stage, "three", ada, Some(2)).await;
    assert_eq!(many, Err(Error::TooManySpaces(2)));
    space_of(&stage, "three", bert, Some(2)).await.expect("of another");
    stage.catalog.remove_space("one".into(), false).await.expect("removed");
    space_of(&stage, "four", ada, Some(2)).await.expect("made");
}

#[tokio::test]
async fn pool_wide_walk_skips_hidden_spaces_at_any_cursor() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a/file", &[1, 2, 3], &[1])).await;
    for name in ["alpha", "zeta"] {
        stage
            .catalog
            .create_space(new_space(name, Policy::default(), None), None, 0)
            .await
            .expect("made");
    }
    let lists = rights(&[Right::List]);
    let only = |space: &str| SeenSpaces::only([(space.to_owned(), lists)].into());
    let root = || path("pot://");
    let listed = async |recursive, after: Option<&str>, seen| {
        let after = after.map(String::from);
        let listing = stage.catalog.list_directory(root(), recursive, after, seen).await;
        let entries = listing.expect("listed").entries;
        entries.into_iter().map(|entry| entry.path).collect::<Vec<_>>()
    };
    assert_eq!(listed(false, None, only("zeta")).await, ["zeta"]);
    assert_eq!(listed(true, None, only("lab")).await, ["lab", "lab/a", "lab/a/file"]);
    for inside in ["lab", "lab/", "lab/a", "lab/a/b"] {
        assert_eq!(listed(true, Some(inside), only("zeta")).await, ["zeta"], "after {inside}");
    }
    let sum =
        async |after, seen| stage.catalog.usage(root(), after, 2000, seen).await.expect("sums");
    assert_eq!(sum(None, only("lab")).await.files, 1);
    let inside = |chunks| UsedUpTo { path: "lab/a/file".into(), chunks };
    for after in [None, Some(inside(None)), Some(inside(Some(1)))] {
        let Used { files, bytes, stored, .. } = sum(after.clone(), only("zeta")).await;
        assert_eq!((files, bytes, stored), (0, 0, 0), "after {after:?}");
    }
    let found = async |seen| {
        let limit = potluck_catalog::PageLimit { chunks: 64, entries: 64 };
        let page = stage.catalog.files_at(root(), None, limit, seen).await.expect("read");
        page.files.len()
    };
    assert_eq!((found(only("lab")).await, found(only("zeta")).await), (1, 0));
}
