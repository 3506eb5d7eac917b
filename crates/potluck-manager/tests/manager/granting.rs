//! Tests who may do what in a space: each call is refused until its right is granted, and again once it is taken.

use crate::lab::{Lab, commit, eventually, file, offer, refused, reserve, write};
use potluck_core::attributes::{AttributesToSet, Permissions};
use potluck_core::ids::SessionId;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Mirror, Override, Policy, Redundancy};
use potluck_core::quota::Quota;
use potluck_core::rights::{Grantee, Right, Rights};
use potluck_wire::call::Caller;
use potluck_wire::control::{
    AuditEntry, AuditKind, AuditRead, Call, Condition, CopyFiles, EntryKind, Fsck, GroupChange,
    GroupCreate, GroupList, GroupRemove, GrowingFile, List, MakeDir, MakeLinks, Move, NewLink,
    Offer, Open, Outcome, PolicySet, QuotaList, QuotaSet, Remove, Reserve, Reserved, Revoke,
    SetAttributes, SpaceCreate, SpaceGrant, SpaceList, SpaceRemove, SpaceRevoke, SpaceWho, Stat,
    Status, Usage,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::Packed;
use potluck_wire::token::Role;

pub fn path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

/// Fails unless the refusals of calls about the space “hers”, which is hidden, are those of the same calls about the
/// space “none”, which does not exist.
pub fn assert_told_the_same(hidden: &[Failure], missing: &[Failure]) {
    assert_eq!(hidden.len(), missing.len());
    for (hidden, missing) in hidden.iter().zip(missing) {
        let told = (hidden.kind, hidden.code.as_str());
        assert_eq!(told, (ErrorKind::NotFound, code::NO_SPACE_NAMED), "{hidden}");
        assert_eq!(hidden.message.replace("hers", "none"), missing.message);
        assert_eq!(
            (hidden.kind, &hidden.code, &hidden.hint),
            (missing.kind, &missing.code, &missing.hint)
        );
    }
}

fn list(at: &str) -> List {
    List { path: path(at), recursive: true, after: None }
}

fn stat(at: &str) -> Stat {
    Stat { path: path(at), chunks: true, unjudged: false, room: false, after: None }
}

fn open(at: &str) -> Open {
    Open { path: path(at), recursive: true, after: None, leased: false }
}

pub fn reserve_at(at: &str) -> Reserve {
    let (policy, condition) = (Override::default(), Condition::Always);
    Reserve {
        path: path(at),
        bytes: Some(0),
        policy,
        condition,
        interrupted: Default::default(),
        link: None,
    }
}

pub async fn reserve_bytes(caller: &Caller, at: &str, bytes: u64) -> Result<Reserved, Failure> {
    caller.call(&Reserve { bytes: Some(bytes), ..reserve_at(at) }).await
}

fn copy(from: &str, to: &str, number: u8) -> CopyFiles {
    CopyFiles {
        from: path(from),
        to: path(to),
        recursive: true,
        condition: Condition::Always,
        redundancy: None,
        copy: SessionId([number; 16]),
        page: 0,
        after: None,
    }
}

pub fn policy_set(at: &str) -> PolicySet {
    let policy = Override { copies: Some(1), ..Override::default() };
    PolicySet { path: path(at), policy, new_files_only: true, dry_run: false }
}

fn link(at: &str) -> MakeLinks {
    let target = "anywhere".to_owned().try_into().expect("a target");
    let links = vec![NewLink { path: path(at), target, mtime: None, owner: None }];
    MakeLinks { links, parents: true, condition: Condition::IfAbsent }
}

fn permissions_of(at: &str, mode: u32) -> SetAttributes {
    let permissions = Some(Permissions::of_mode(mode));
    let attributes = AttributesToSet { permissions, ..AttributesToSet::default() };
    SetAttributes { path: path(at), version: None, attributes }
}

fn grant(space: &str, who: &str) -> SpaceGrant {
    SpaceGrant { space: space.into(), who: who.into(), rights: Rights::ALL }
}

pub async fn make_space(caller: &Caller, name: &str, sealed: bool) {
    let policy = Policy { sealed, ..Policy::default() };
    caller.call(&SpaceCreate { name: name.into(), policy }).await.expect("made");
}

async fn lacks<C: Call>(caller: &Caller, request: &C, right: Right) {
    let failure = refused(caller, request).await;
    let told = (failure.kind, failure.code.as_str());
    assert_eq!(told, (ErrorKind::Auth, code::NO_RIGHT), "{}: {failure}", C::NAME);
    assert!(failure.message.contains(&format!("right to {right}")), "{}: {failure}", C::NAME);
}

/// Returns the refusals of everything that can be asked about a space.
async fn refusals(caller: &Caller, space: &str) -> Vec<Failure> {
    let at = |name: &str| format!("pot://{space}/{name}");
    let named = space.to_owned();
    vec![
        refused(caller, &list(&at(""))).await,
        refused(caller, &stat(&at("f"))).await,
        refused(caller, &open(&at("f"))).await,
        refused(caller, &Usage { path: path(&at("")), after: None }).await,
        refused(caller, &Fsck { path: path(&at("")), incomplete: true, after: None }).await,
        refused(caller, &reserve_at(&at("new"))).await,
        refused(
            caller,
            &MakeDir {
                path: path(&at("dir")),
                parents: true,
                permissions: Permissions::DIR,
                owner: None,
            },
        )
        .await,
        refused(caller, &permissions_of(&at("f"), 0o600)).await,
        refused(caller, &link(&at("l"))).await,
        refused(
            caller,
            &Move {
                from: path(&at("f")),
                to: path(&at("g")),
                no_replace: false,
                replaces: None,
                soon: false,
            },
        )
        .await,
        refused(
            caller,
            &Remove {
                path: path(&at("f")),
                recursive: true,
                forever: false,
                only_if: Default::default(),
                soon: false,
            },
        )
        .await,
        refused(caller, &copy(&at("f"), "pot://lab/copy", 1)).await,
        refused(caller, &copy("pot://lab/f", &at("copy"), 2)).await,
        refused(caller, &policy_set(&at(""))).await,
        refused(caller, &SpaceRemove { name: named.clone(), recursive: true }).await,
        refused(caller, &SpaceWho { space: named.clone() }).await,
        refused(caller, &grant(space, "everyone")).await,
        refused(
            caller,
            &SpaceRevoke { space: named.clone(), who: "everyone".into(), rights: Rights::ALL },
        )
        .await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn space_without_rights_is_indistinguishable_from_a_missing_one() {
    let lab = Lab::new().await;
    let (ada, bert, donor) = (lab.user().await, lab.user().await, lab.donor("basement").await);
    make_space(&ada, "hers", false).await;
    write(&ada, "pot://lab/f", 1, &donor).await;
    lab.grant("hers", "everyone", &[Right::Write]).await;
    let session = ada.call(&reserve_at("pot://hers/f")).await.expect("reserved").session;
    let mut inline = file(&session, "pot://hers/f", &[], &[]);
    inline.inline = Some(Default::default());
    commit(&ada, session, 0, vec![inline], true).await.expect("committed");
    lab.take("hers", "everyone", &Right::ALL).await;

    let (hidden, missing) = (refusals(&bert, "hers").await, refusals(&bert, "none").await);
    assert_told_the_same(&hidden, &missing);
    let spaces = async |caller: &Caller| -> Vec<String> {
        let spaces = caller.call(&SpaceList {}).await.expect("listed").spaces;
        spaces.into_iter().map(|space| space.name).collect()
    };
    assert_eq!(spaces(&bert).await, ["lab"]);
    assert_eq!(spaces(&ada).await, ["hers", "lab"]);
    assert_eq!(spaces(&lab.admin()).await, ["hers", "lab"]);
    let root = bert.call(&list("pot://")).await.expect("listed").entries;
    assert_eq!(root.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["lab", "lab/f"]);
    let status = bert.call(&Status {}).await.expect("told");
    assert_eq!(status.spaces.iter().map(|space| space.name.as_str()).collect::<Vec<_>>(), ["lab"]);
    assert_eq!(status.files, 2, "sums are of the whole pool");
    let children = bert.call(&Usage { path: PoolPath::root(), after: None }).await.expect("sums");
    assert_eq!(children.children.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_right_shows_names_but_no_digests_recipes_or_keys() {
    let lab = Lab::new().await;
    let (ada, donor) = (lab.user().await, lab.donor("basement").await);
    let bert = lab.caller(&lab.join(Role::User, "bert").await);
    lab.take("lab", "everyone", &Right::ALL).await;
    lab.grant("lab", "ada", &Right::ALL).await;
    write(&ada, "pot://lab/d/f", 1, &donor).await;
    let entry = async |caller: &Caller, at: &str| {
        let entries = caller.call(&list(at)).await.expect("listed").entries;
        entries.into_iter().find(|entry| entry.kind == EntryKind::File).expect("a file")
    };
    lab.grant("lab", "everyone", &[Right::List]).await;
    for at in ["pot://", "pot://lab", "pot://lab/d/f"] {
        assert_eq!(entry(&bert, at).await.digest, None, "{at}");
        assert!(entry(&ada, at).await.digest.is_some(), "{at}");
        assert_eq!(entry(&bert, at).await.size, 1000);
    }
    let stated = bert.call(&stat("pot://lab/d/f")).await.expect("told");
    assert_eq!((stated.entry.digest, stated.chunk_list.len(), stated.chunks), (None, 0, 1));
    let whole = ada.call(&stat("pot://lab/d/f")).await.expect("told");
    assert_eq!((whole.entry.digest.is_some(), whole.chunk_list.len()), (true, 1));
    bert.call(&Fsck { path: path("pot://lab"), incomplete: true, after: None })
        .await
        .expect("told");
    bert.call(&SpaceWho { space: "lab".into() }).await.expect("told");

    lacks(&bert, &open("pot://lab"), Right::Read).await;
    lacks(&bert, &copy("pot://lab/d/f", "pot://lab/g", 1), Right::Read).await;
    lacks(&bert, &reserve_at("pot://lab/new"), Right::Write).await;
    lacks(
        &bert,
        &MakeDir {
            path: path("pot://lab/x"),
            parents: true,
            permissions: Permissions::DIR,
            owner: None,
        },
        Right::Write,
    )
    .await;
    lacks(&bert, &link("pot://lab/l"), Right::Write).await;
    for at in ["pot://lab/d/f", "pot://lab/d", "pot://lab"] {
        lacks(&bert, &permissions_of(at, 0o600), Right::Write).await;
    }
    lacks(
        &bert,
        &Remove {
            path: path("pot://lab/d"),
            recursive: true,
            forever: false,
            only_if: Default::default(),
            soon: false,
        },
        Right::Write,
    )
    .await;
    lacks(&bert, &policy_set("pot://lab/d"), Right::Manage).await;
    lacks(&bert, &grant("lab", "everyone"), Right::Manage).await;
    lacks(&bert, &SpaceRemove { name: "lab".into(), recursive: true }, Right::Manage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_and_write_rights_are_separate() {
    let lab = Lab::new().await;
    let (ada, rita, will) =
        (lab.user().await, lab.join(Role::User, "rita").await, lab.join(Role::User, "will").await);
    let (rita, will) = (lab.caller(&rita), lab.caller(&will));
    lab.donor("basement").await;
    make_space(&ada, "safe", true).await;
    let granted =
        SpaceGrant { rights: [Right::Read].into_iter().collect(), ..grant("safe", "rita") };
    ada.call(&granted).await.expect("who made it grants");
    let granted =
        SpaceGrant { rights: [Right::Write].into_iter().collect(), ..grant("safe", "will") };
    ada.call(&granted).await.expect("who made it grants");

    assert!(!rita.call(&open("pot://safe")).await.expect("opened").space_keys.is_empty());
    lacks(&rita, &reserve_at("pot://safe/f"), Right::Write).await;
    let moving = Move {
        from: path("pot://safe/a"),
        to: path("pot://safe/b"),
        no_replace: true,
        replaces: None,
        soon: false,
    };
    lacks(&rita, &moving, Right::Write).await;
    lacks(&rita, &copy("pot://safe", "pot://safe/b", 3), Right::Write).await;

    let reserved = will.call(&reserve_at("pot://safe/f")).await.expect("reserved");
    assert!(reserved.space_key.is_some(), "what is to be sealed");
    lacks(&will, &open("pot://safe"), Right::Read).await;
    lacks(&will, &copy("pot://safe/f", "pot://safe/g", 4), Right::Read).await;
    will.call(&MakeDir {
        path: path("pot://safe/d"),
        parents: false,
        permissions: Permissions::DIR,
        owner: None,
    })
    .await
    .expect("made");
    for caller in [&rita, &will] {
        lacks(caller, &policy_set("pot://safe/d"), Right::Manage).await;
        lacks(caller, &policy_set("pot://safe"), Right::Manage).await;
        lacks(caller, &grant("safe", "rita"), Right::Manage).await;
    }
    ada.call(&policy_set("pot://safe")).await.expect("who made it may");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_right_ends_sessions_at_once() {
    let lab = Lab::new().await;
    let (ada, donor) = (lab.join(Role::User, "ada").await, lab.donor("basement").await);
    let caller = lab.caller(&ada);
    lab.take("lab", "everyone", &Right::ALL).await;
    lab.admin().call(&GroupCreate { name: "students".into() }).await.expect("made");
    let change = |add: &[&str], remove: &[&str]| {
        let names = |of: &[&str]| of.iter().map(|name| name.to_string()).collect();
        GroupChange { name: "students".into(), add: names(add), remove: names(remove) }
    };
    // Ada has the right by a grant of her own, then by one to her group, and then the group is removed.
    for round in 0..3 {
        let who = if round == 0 { "ada" } else { "students" };
        lab.admin().call(&change(&["ada"], &[])).await.expect("changed");
        lab.grant("lab", who, &[Right::Write]).await;
        let reserved = reserve(&caller, 1 << 20).await.expect("reserved");
        let session = reserved.session;
        offer(&caller, session, &[round]).await;
        let written = file(&session, "pot://lab/f", &[round], &[&donor]);
        let first = commit(&caller, session, 0, vec![written.clone()], false).await;
        assert!(matches!(first.expect("committed").files[0], Outcome::Stored { .. }));

        match round {
            0 => lab.take("lab", "ada", &[Right::Write]).await,
            1 => drop(lab.admin().call(&change(&[], &["ada"])).await.expect("changed")),
            _ => {
                let gone = GroupRemove { name: "students".into() };
                lab.admin().call(&gone).await.expect("removed");
            }
        }
        let late = commit(&caller, session, 1, vec![written], false).await.expect_err("too late");
        assert_eq!(late.code, code::NO_SESSION, "round {round}: {late}");
        // A client that asks why the session is over is told.
        let so_far = Some(GrowingFile { path: path("pot://lab/f"), bytes: 0 });
        let (chunks, ack) = (Packed(Vec::new()), AckLevel::Memory);
        let why = refused(&caller, &Offer { session, chunks, ack, so_far }).await;
        assert_eq!(why.code, code::NO_SPACE_NAMED, "round {round}: {why}");
        let again = reserve(&caller, 1 << 20).await.expect_err("no right");
        assert_eq!(again.code, code::NO_SPACE_NAMED, "round {round}");
    }
    eventually("its room to be free", async || {
        let status = lab.admin().call(&Status {}).await.expect("told");
        (status.sessions == 0 && status.donors[0].promised == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_while_another_grant_still_lets_it_write() {
    let lab = Lab::new().await;
    let (ada, _donor) = (lab.caller(&lab.join(Role::User, "ada").await), lab.donor("d").await);
    lab.grant("lab", "ada", &[Right::Write]).await;
    let session = reserve(&ada, 1 << 20).await.expect("reserved").session;
    lab.take("lab", "everyone", &Right::ALL).await;
    offer(&ada, session, &[1]).await;
    lab.take("lab", "ada", &Right::ALL).await;
    assert!(reserve(&ada, 1 << 20).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_name_users_and_groups_only() {
    let lab = Lab::new().await;
    let [one, two] = [lab.join(Role::User, "ada").await, lab.join(Role::User, "ada").await];
    let bert = lab.join(Role::User, "bert").await;
    lab.donor("basement").await;
    let admin = lab.admin();
    for name in ["crew", "staff"] {
        admin.call(&GroupCreate { name: name.into() }).await.expect("made");
    }
    for (who, kind) in [
        ("ada", ErrorKind::Usage),
        ("basement", ErrorKind::NotFound),
        ("nobody", ErrorKind::NotFound),
        ("group:nobody", ErrorKind::NotFound),
    ] {
        let failure = refused(&admin, &grant("lab", who)).await;
        assert_eq!(failure.kind, kind, "{who}: {failure}");
        assert!(!failure.hint.is_empty());
    }
    let granted = admin.call(&grant("lab", &two.about.member.to_string())).await.expect("granted");
    assert_eq!((granted.to, granted.name), (Grantee::Member(two.about.member), Some("ada".into())));
    admin.call(&grant("lab", "group:crew")).await.expect("granted");
    admin.call(&grant("lab", &bert.about.member.to_string())).await.expect("granted");
    admin.call(&grant("lab", "staff")).await.expect("granted");
    let grants =
        lab.caller(&one).call(&SpaceWho { space: "lab".into() }).await.expect("told").grants;
    let to: Vec<_> = grants.into_iter().map(|granted| granted.to).collect();
    let group = |name: &str| Grantee::Group(name.into());
    let member = Grantee::Member;
    let maker = member(lab.admin_identity().about.member);
    for whom in [group("crew"), group("staff"), group("everyone"), member(two.about.member), maker]
    {
        assert!(to.contains(&whom), "{whom:?} in {to:?}");
    }
    assert_eq!(to.len(), 6);
    let everyone =
        GroupChange { name: "everyone".into(), add: vec![], remove: vec!["bert".into()] };
    assert_eq!(refused(&admin, &everyone).await.kind, ErrorKind::Usage);
    let groups = admin.call(&GroupList {}).await.expect("listed").groups;
    assert_eq!(
        groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(),
        ["crew", "staff"]
    );
    assert_eq!(refused(&lab.caller(&one), &GroupList {}).await.code, code::NOT_ALLOWED);
}

async fn audit(lab: &Lab) -> Vec<AuditEntry> {
    let read = AuditRead { since_wall_ms: None, after: None };
    lab.admin().call(&read).await.expect("an admin may").entries
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_and_every_change_of_rights_is_in_the_audit_log() {
    let mut lab = Lab::new().await;
    let ada = lab.join(Role::User, "ada").await;
    let caller = lab.caller(&ada);
    make_space(&caller, "hers", false).await;
    caller.call(&grant("hers", "everyone")).await.expect("granted");
    lab.take("hers", "everyone", &[Right::Write]).await;
    lab.take("hers", "everyone", &[Right::Write]).await; // changes nothing
    lab.admin().call(&GroupCreate { name: "students".into() }).await.expect("made");
    refused(&caller, &GroupList {}).await;
    for _ in 0..5 {
        refused(&caller, &list("pot://hidden")).await;
    }
    refused(&lab.donor("desk").await.caller, &list("pot://hers")).await;
    let quota = Quota { bytes: Some(1 << 20), files: None };
    lab.admin().call(&QuotaSet { of: "ada".into(), change: quota.into() }).await.expect("set");
    reserve_bytes(&caller, "pot://hers/f", 2 << 20).await.expect_err("too large");
    assert_eq!(
        refused(&caller, &AuditRead { since_wall_ms: None, after: None }).await.code,
        code::NOT_ALLOWED
    );
    refused(&lab.admin(), &list("pot://hidden")).await; // a slip: an admin may do all

    let told = audit(&lab).await;
    let words = |kind, member: Option<&str>| -> Vec<&str> {
        let of = |entry: &&AuditEntry| entry.kind == kind && entry.name.as_deref() == member;
        told.iter().filter(of).map(|entry| entry.what.as_str()).collect()
    };
    assert_eq!(
        words(AuditKind::Changed, Some("ada")),
        [
            "made the space hers, with all rights in it",
            "granted list read write manage in hers to the group everyone",
        ]
    );
    let admins = words(AuditKind::Changed, Some("admin"));
    assert!(admins.contains(&"took write in hers from the group everyone"), "{admins:?}");
    assert_eq!(admins.iter().filter(|what| what.starts_with("took")).count(), 1, "{admins:?}");
    assert!(admins.contains(&"made the group students"), "{admins:?}");
    assert!(words(AuditKind::Changed, None).contains(&"user ada (2) joined"), "{told:?}");
    let hers = words(AuditKind::Refused, Some("ada"));
    assert_eq!(hers.len(), 4, "repetitions are counted: {hers:?}");
    assert!(hers[0].contains("`potluck group` is for an admin"), "{hers:?}");
    assert_eq!(hers[1], "there is no space “hidden”");
    assert!(hers.iter().any(|what| what.contains("1.0 MiB")), "{hers:?}");
    assert_eq!(words(AuditKind::Refused, Some("desk")).len(), 1);
    assert_eq!(words(AuditKind::Refused, Some("admin")).len(), 0);

    // The audit log goes on after a restart, and tells who was removed.
    let last = told.last().expect("entries").number;
    lab.stop().await;
    lab.start().await;
    lab.admin().call(&Revoke::of(ada.about.member)).await.expect("revoked");
    refused(&lab.caller(&ada), &list("pot://")).await;
    let more = audit(&lab).await;
    assert_eq!(more.iter().filter(|entry| entry.number <= last).count(), told.len());
    let new: Vec<_> = more.iter().filter(|entry| entry.number > last).collect();
    assert_eq!(new[0].what, "user ada (2) is revoked");
    assert_eq!((new[1].kind, new[1].member), (AuditKind::Refused, None));
    assert!(new[1].what.contains("ada"), "{new:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_numbers_and_group_names_are_unambiguous() {
    let lab = Lab::new().await;
    let ada = lab.join(Role::User, "ada").await;
    lab.admin().call(&GroupCreate { name: "students".into() }).await.expect("made");
    for name in ["everyone", "7", "group:students", "students"] {
        let token = lab.token(Role::User).await;
        let why = lab.join_with(&token, name).await.expect_err("refused");
        assert!(why.message.contains(name), "{why}");
        lab.join_with(&token, "bert").await.expect("the token is still good");
    }
    let group = GroupCreate { name: "ada".into() };
    assert_eq!(refused(&lab.admin(), &group).await.code, code::EXISTS);
    let number = ada.about.member.to_string();
    let who = SpaceGrant { space: "lab".into(), who: number, rights: Rights::ALL };
    let granted = lab.admin().call(&who).await.expect("granted");
    assert_eq!(granted.to, Grantee::Member(ada.about.member));
    assert_eq!(refused(&lab.admin(), &grant("lab", "77")).await.code, code::NO_ENTRY);
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_changes_are_rate_limited_for_users() {
    let lab = Lab::new().await;
    let (ada, admin) = (lab.user().await, lab.admin());
    let mut codes = Vec::new();
    for number in 0..70 {
        codes.extend(ada.call(&grant("lab", "everyone")).await.err().map(|why| why.code));
        let revoke =
            SpaceRevoke { space: "lab".into(), who: "group:nobody".into(), rights: Rights::ALL };
        assert_eq!(refused(&admin, &revoke).await.code, code::NO_ENTRY, "{number}");
    }
    assert_eq!(codes, vec![code::TOO_MANY_CHANGES; 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_kept_at_reserve_and_at_commit() {
    let lab = Lab::new().await;
    let (ada, donor) = (lab.caller(&lab.join(Role::User, "ada").await), lab.donor("d").await);
    let set = |of: &str, bytes: u64| QuotaSet {
        of: of.into(),
        change: Quota { bytes: Some(bytes), files: None }.into(),
    };
    let admin = lab.admin();
    assert_eq!(refused(&ada, &set("pot://lab", 1)).await.code, code::NOT_ALLOWED);
    for (of, kind) in [
        ("pot://", ErrorKind::Usage),
        ("pot://lab/dir", ErrorKind::Usage),
        ("pot://none", ErrorKind::NotFound),
        ("nobody", ErrorKind::NotFound),
    ] {
        assert_eq!(refused(&admin, &set(of, 1)).await.kind, kind, "{of}");
    }
    write(&ada, "pot://lab/f", 1, &donor).await;
    admin.call(&set("pot://lab", 2500)).await.expect("set");
    admin.call(&set("ada", 7)).await.expect("set");
    let early = reserve_bytes(&ada, "pot://lab/g", 1501).await.expect_err("too much");
    assert_eq!((early.kind, early.code.as_str()), (ErrorKind::NoSpace, code::OVER_QUOTA));
    // A session that said less than it writes is refused at the commit.
    let session = reserve_bytes(&ada, "pot://lab/g", 1000).await.expect("fits").session;
    offer(&ada, session, &[2, 3]).await;
    let written = |at, chunk| file(&session, at, &[chunk], &[&donor]);
    let both = vec![written("pot://lab/g", 2), written("pot://lab/h", 3)];
    let late = commit(&ada, session, 0, both, true).await.expect("one of them fits").files;
    let is_over = |why: &Failure| why.code == code::OVER_QUOTA;
    assert!(matches!(&late[..], [Outcome::Stored { .. }, Outcome::Refused(why)] if is_over(why)));
    lab.admin().call(&set("pot://lab", 1999)).await.expect("set");
    let copied = ada.call(&copy("pot://lab/f", "pot://lab/a", 1)).await.expect("told").failed;
    assert!(matches!(&copied[..], [not] if is_over(&not.failure)), "{copied:?}");

    let used = ada.call(&Usage { path: path("pot://lab"), after: None }).await.expect("sums");
    let quota = used.quota.expect("the space has a quota");
    assert_eq!((quota.quota.bytes, quota.bytes), (Some(1999), 2000));
    let status = ada.call(&Status {}).await.expect("told");
    assert_eq!(status.spaces[0].quota, Some(quota));
    let quotas =
        async |caller: &Caller| caller.call(&QuotaList {}).await.expect("told").quotas.len();
    lab.take("lab", "everyone", &Right::ALL).await;
    assert_eq!((quotas(&admin).await, quotas(&ada).await), (2, 1), "her own");
}

#[tokio::test(flavor = "multi_thread")]
async fn writer_may_raise_but_not_lower_policy_safety() {
    let lab = Lab::new().await;
    let ada = lab.user().await;
    let _donors = [lab.donor("a").await, lab.donor("b").await, lab.donor("c").await];
    let policy = Override { copies: Some(2), ack: Some(AckLevel::Disk), ..Override::default() };
    let at = |policy| PolicySet {
        path: path("pot://lab"),
        policy,
        new_files_only: true,
        dry_run: false,
    };
    lab.admin().call(&at(policy)).await.expect("set");
    lab.take("lab", "everyone", &[Right::Manage]).await;
    let none = Override::default();
    for less in [
        Override { copies: Some(1), ..none },
        Override { ack: Some(AckLevel::Memory), ..none },
        Override { mirror: Some(Mirror::ClientAsync), ..none },
    ] {
        lacks(&ada, &Reserve { policy: less, ..reserve_at("pot://lab/f") }, Right::Manage).await;
    }
    let more = Override { copies: Some(3), ..none };
    ada.call(&Reserve { policy: more, ..reserve_at("pot://lab/f") }).await.expect("more");
    let as_safe = Override { ec: Some("2+1".parse().expect("a code")), ..none };
    ada.call(&Reserve { policy: as_safe, ..reserve_at("pot://lab/f") }).await.expect("as much");
    let one = Some(Redundancy::Copies(1));
    let copying = CopyFiles { redundancy: one, ..copy("pot://lab/f", "pot://lab/g", 1) };
    lacks(&ada, &copying, Right::Manage).await;
    lab.grant("lab", "everyone", &[Right::Manage]).await;
    let less = Override { copies: Some(1), ..none };
    ada.call(&Reserve { policy: less, ..reserve_at("pot://lab/f") }).await.expect("a manager may");
}

#[tokio::test]
async fn recursive_write_honours_directory_policy() {
    let lab = Lab::new().await;
    let ada = lab.user().await;
    let [a, b] = [lab.donor("a").await, lab.donor("b").await];
    for at in ["pot://lab/tree", "pot://lab/tree/safe", "pot://lab/of", "pot://lab/of/safe"] {
        lab.admin()
            .call(&MakeDir {
                path: path(at),
                parents: false,
                permissions: Permissions::DIR,
                owner: None,
            })
            .await
            .expect("made");
    }
    write(&ada, "pot://lab/of/safe/f", 1, &a).await;
    write(&ada, "pot://lab/of/g", 2, &a).await;
    let policy = Override { copies: Some(2), ..Override::default() };
    let at = path("pot://lab/tree/safe");
    let safe = PolicySet { policy, ..policy_set("pot://lab/tree/safe") };
    lab.admin().call(&safe).await.expect("set");
    lab.take("lab", "everyone", &[Right::Manage]).await;

    let one = Override { copies: Some(1), ..Override::default() };
    let lacks_manage = |why: &Failure| why.code == code::NO_RIGHT;
    let reserved = ada.call(&Reserve { policy: one, ..reserve_at("pot://lab") }).await;
    let session = reserved.expect("no less than what holds there").session;
    offer(&ada, session, &[3, 4]).await;
    let written = |at, chunk| file(&session, at, &[chunk], &[&b]);
    let both = vec![written("pot://lab/tree/safe/f", 3), written("pot://lab/tree/g", 4)];
    let told = commit(&ada, session, 0, both, false).await.expect("one of them").files;
    let [Outcome::Refused(why), Outcome::Stored { .. }] = &told[..] else { panic!("{told:?}") };
    assert!(lacks_manage(why) && why.message.contains(&at.to_string()), "{why}");

    let one_copy = Some(Redundancy::Copies(1));
    let tree = CopyFiles { redundancy: one_copy, ..copy("pot://lab/of", "pot://lab/tree", 1) };
    let copied = ada.call(&tree).await.expect("told");
    assert_eq!(
        copied.files.iter().map(|file| &file.path).collect::<Vec<_>>(),
        [&path("pot://lab/tree/g")]
    );
    assert!(matches!(&copied.failed[..], [not] if lacks_manage(&not.failure)), "{copied:?}");

    // Rights count as they were when the session was opened.
    lab.grant("lab", "everyone", &[Right::Manage]).await;
    let reserved = ada.call(&Reserve { policy: one, ..reserve_at("pot://lab") }).await;
    let session = reserved.expect("reserved").session;
    offer(&ada, session, &[3]).await;
    let written = file(&session, "pot://lab/tree/safe/f", &[3], &[&b]);
    let told = commit(&ada, session, 0, vec![written], true).await.expect("committed").files;
    assert!(matches!(&told[..], [Outcome::Stored { .. }]), "{told:?}");
}
