//! Redundancy and policies, as callers and donors see them.

use crate::lab::{Donor, LEN, Lab, chunk, commit, eventually, file, offer, refused, write};
use potluck_core::ids::SessionId;
use potluck_core::owner_limits::DiskState;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Follows, Mirror, Override, Policy, Redundancy, Width};
use potluck_core::recipe::{self, Content};
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Condition, CopyFiles, FileCommit, GiveBack, Grow, Heartbeat, MirrorState, Open, Outcome,
    PolicySet, RepairStatus, Reserve, Reserved, SpaceCreate, Stat, Stated,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::{Blob, Packed};

fn ec(code: &str) -> Override {
    Override { ec: Some(code.parse().expect("a code")), ..Override::default() }
}

fn copies(copies: u32) -> Override {
    Override { copies: Some(copies), ..Override::default() }
}

fn path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

async fn donors(lab: &Lab, count: usize) -> Vec<Donor> {
    let mut donors = Vec::new();
    for n in 0..count {
        donors.push(lab.donor(&format!("donor{n}")).await);
    }
    donors
}

fn ask(at: &str, bytes: Option<u64>, policy: Override) -> Reserve {
    Reserve {
        path: path(at),
        bytes,
        policy,
        condition: Condition::Always,
        interrupted: Default::default(),
        link: None,
    }
}

async fn reserved(caller: &Caller, at: &str, bytes: Option<u64>, policy: Override) -> Reserved {
    caller.call(&ask(at, bytes, policy)).await.expect("reserved")
}

/// Returns a 2+1 file of two data chunks and their parity, each acknowledged by the donor beside it.
fn coded(session: &SessionId, at: &str, chunks: [(u64, &Donor); 3]) -> FileCommit {
    let mut file = file(session, at, &[chunks[0].0, chunks[1].0], &[]);
    file.ec = Some("2+1".parse().expect("a code"));
    file.parity = Packed(vec![chunk(chunks[2].0)]);
    let receipts = chunks.iter().enumerate();
    let receipts = receipts.map(|(at, (n, donor))| donor.receipt(session, at, &chunk(*n)));
    file.acknowledged = Packed(receipts.collect());
    file
}

async fn put(caller: &Caller, session: SessionId, batch: u32, file: FileCommit) -> Outcome {
    let committed = commit(caller, session, batch, vec![file], false).await.expect("answered");
    committed.files.into_iter().next().expect("one outcome")
}

fn refusal(outcome: &Outcome) -> &Failure {
    match outcome {
        Outcome::Refused(failure) => failure,
        Outcome::Stored { version, .. } => panic!("accepted as version {version}"),
    }
}

async fn stat(caller: &Caller, at: &str) -> Stated {
    let stat = Stat { path: path(at), chunks: true, unjudged: false, room: false, after: None };
    caller.call(&stat).await.expect("stat")
}

fn set(at: &str, policy: Override) -> PolicySet {
    PolicySet { path: path(at), policy, new_files_only: false, dry_run: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_planned_on_as_many_donors_as_it_has_chunks() {
    let lab = Lab::new().await;
    let user = lab.user().await;
    let _five = donors(&lab, 5).await;
    let few = refused(&user, &ask("pot://lab/a", Some(9 << 20), ec("4+2"))).await;
    assert_eq!((few.kind, few.code.as_str()), (ErrorKind::NoSpace, code::TOO_FEW_DONORS));
    assert_eq!(few.message, "4+2 needs 6 donors and 5 are available");
    let _sixth = lab.donor("sixth").await;

    // A file of 33 MiB makes two groups of 16 MiB and one of 1 MiB that is cut into four.
    let plan = reserved(&user, "pot://lab/a", Some(33 << 20), ec("4+2")).await.plan;
    assert_eq!((plan.copies, plan.chunk_size, plan.chunks()), (6, 4 << 20, 3));
    assert_eq!(
        plan.sections.iter().map(|section| section.bytes).sum::<u64>(),
        (8 << 20) + (1 << 18)
    );
    for group in 0..3 {
        let mut slot = plan.slot(group).expect("planned");
        slot.sort();
        slot.dedup();
        assert_eq!(slot.len(), 6, "each chunk of a group on its own donor");
    }
    let unknown = reserved(&user, "pot://lab/b", None, ec("3+2")).await;
    assert_eq!(
        (unknown.plan.chunks(), unknown.plan.copies),
        (1, 5),
        "a group, and more as it goes"
    );
    let grow = Grow {
        session: unknown.session,
        bytes: 24 << 20,
        holders: Vec::new(),
        avoid: Vec::new(),
        whole: false,
        file: None,
    };
    assert_eq!(user.call(&grow).await.expect("grown").plan.chunks(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn coded_file_needs_one_donor_per_chunk_d3() {
    let lab = Lab::new().await;
    let user = lab.user().await;
    let d = donors(&lab, 3).await;
    let session = reserved(&user, "pot://lab/a", Some(2000 * 8), ec("2+1")).await.session;
    offer(&user, session, &[1, 2, 3]).await;
    let crowded = coded(&session, "pot://lab/a", [(1, &d[0]), (2, &d[1]), (3, &d[1])]);
    let outcome = put(&user, session, 0, crowded).await;
    let failure = refusal(&outcome);
    assert_eq!(failure.code, code::NOT_ACKNOWLEDGED);
    assert!(failure.message.contains("chunk 2 of pot://lab/a"), "{failure}");
    let apart = coded(&session, "pot://lab/a", [(1, &d[0]), (2, &d[1]), (3, &d[2])]);
    assert!(matches!(put(&user, session, 1, apart).await, Outcome::Stored { .. }));

    let open = Open { path: path("pot://lab/a"), recursive: false, after: None, leased: false };
    let opened = user.call(&open).await.expect("opened");
    assert_eq!(opened.files[0].parity_holders, [[d[2].id]]);
    assert_eq!(opened.donors.len(), 3, "those that hold parity only can be asked too");

    let stated = stat(&user, "pot://lab/a").await;
    let health = stated.health.expect("of a file");
    assert_eq!((health.tolerates, health.promised, health.incomplete), (Some(1), 1, 0));
    assert!(health.safe_since_ms.is_some());
    assert_eq!((stated.live_copies, stated.donors.len(), stated.chunk_list.len()), (1, 3, 3));
    assert!(stated.chunk_list[2].parity && stated.chunk_list[2].group == Some(0));

    // If one chunk is lost, the group rebuilds it; with two lost it cannot.
    let lose = async |donor: &Donor, n| donor.removed(1, &[chunk(n)]).await;
    lose(&d[0], 1).await;
    let stated = stat(&user, "pot://lab/a").await;
    let health = stated.health.expect("of a file");
    assert_eq!((health.tolerates, health.incomplete, health.unreadable), (Some(0), 1, 0));
    assert_eq!((health.safe_since_ms, stated.live_copies), (None, 0));
    assert_eq!(stated.chunk_list[0].state, MirrorState::Rebuildable);
    lose(&d[2], 3).await;
    let health = stat(&user, "pot://lab/a").await.health.expect("of a file");
    assert_eq!((health.tolerates, health.incomplete, health.unreadable), (None, 2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsafe_window_is_seen_in_stat() {
    let lab = Lab::new().await;
    let user = lab.user().await;
    let d = donors(&lab, 2).await;
    let one_of_two = Override { mirror: Some(Mirror::ServerAsync), ..copies(2) };
    for (n, policy, accepted) in [(1, one_of_two, true), (2, copies(2), false)] {
        let session = reserved(&user, "pot://lab/a", Some(1 << 20), policy).await.session;
        offer(&user, session, &[n]).await;
        let mut file = file(&session, "pot://lab/a", &[n], &[&d[0]]);
        file.copies = 2;
        let outcome = put(&user, session, 0, file).await;
        assert_eq!(matches!(outcome, Outcome::Stored { .. }), accepted, "{outcome:?}");
    }
    let stated = stat(&user, "pot://lab/a").await;
    let health = stated.health.expect("of a file");
    assert_eq!((health.tolerates, health.promised, health.incomplete), (Some(0), 1, 1));
    assert_eq!(health.safe_since_ms, None, "the window is open");
    assert_eq!(stated.chunk_list[0].state, MirrorState::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_directories_hold_below_them() {
    let lab = Lab::new().await;
    let user = lab.user().await;
    let d = donors(&lab, 3).await;
    write(&user, "pot://lab/d/old", 1, &d[0]).await;
    let missing = refused(&user, &set("pot://lab/none", copies(2))).await;
    assert_eq!(missing.code, code::NO_ENTRY);
    let wide = Override { stripe_width: Some(Width::Donors(2)), ..ec("2+1") };
    let changed = user.call(&PolicySet { new_files_only: true, ..set("pot://lab/d", wide) }).await;
    let changed = changed.expect("set");
    assert_eq!((changed.files, changed.policy.stripe_width), (0, Width::Donors(2)));
    let here = reserved(&user, "pot://lab/d/new/file", Some(1 << 20), Override::default()).await;
    assert_eq!(here.policy.redundancy().to_string(), "2+1");
    let other = reserved(&user, "pot://lab/d/x", Some(1 << 20), copies(2)).await;
    assert_eq!(other.policy.redundancy(), Redundancy::Copies(2), "a command sets it differently");
    let beside = reserved(&user, "pot://lab/x", Some(1 << 20), Override::default()).await;
    assert_eq!(beside.policy.redundancy(), Redundancy::Copies(1));
    let stated = stat(&user, "pot://lab/d").await;
    assert_eq!((stated.policy.redundancy().to_string(), stated.health), ("2+1".into(), None));
    let old = stat(&user, "pot://lab/d/old").await.health.expect("of a file");
    assert_eq!(old.changing_to, None, "only new files were meant");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_set_becomes_the_goal_of_what_is_there() {
    let lab = Lab::new().await;
    let (user, admin) = (lab.user().await, lab.admin());
    let d = donors(&lab, 3).await;
    write(&user, "pot://lab/d/a", 1, &d[0]).await;
    write(&user, "pot://lab/b", 2, &d[1]).await;
    let four = refused(&admin, &set("pot://lab", copies(4))).await;
    assert_eq!(four.message, "4 copies need 4 donors and 3 are available");
    let both = Override { copies: Some(2), ..ec("2+1") };
    assert_eq!(refused(&admin, &set("pot://lab", both)).await.code, code::BAD_POLICY);

    let dry = PolicySet { dry_run: true, ..set("pot://lab", ec("2+1")) };
    let dry = admin.call(&dry).await.expect("said");
    assert_eq!((dry.files, dry.bytes), (2, 2 * u64::from(LEN)));
    assert_eq!((dry.needs_donors, dry.donors), (3, 3));
    assert_eq!(dry.needs_bytes, 2 * u64::from(LEN), "their parity");
    assert_eq!(dry.lacks, [""; 0]);
    let three = PolicySet { dry_run: true, ..set("pot://lab", copies(3)) };
    assert_eq!(admin.call(&three).await.expect("said").needs_bytes, 4 * u64::from(LEN));
    // With `new_files_only` too few donors are no error, for more may join before there are new files.
    let later = PolicySet { new_files_only: true, ..set("pot://lab/d", ec("16+8")) };
    let later = user.call(&PolicySet { dry_run: true, ..later }).await.expect("said");
    assert_eq!((later.needs_donors, later.lacks.len()), (24, 1));
    let goal = async |at| stat(&user, at).await.health.expect("of a file").changing_to;
    assert_eq!(goal("pot://lab/b").await, None);
    assert_eq!(stat(&user, "pot://lab").await.policy.ec, None, "a dry run sets nothing");

    let changing = async || {
        let state = admin.call(&RepairStatus {}).await.expect("told");
        (state.changing, state.changing_bytes)
    };
    assert_eq!(changing().await, (0, 0));
    let changed = admin.call(&set("pot://lab", ec("2+1"))).await.expect("set");
    assert_eq!(changing().await, (2, 2 * u64::from(LEN)), "told at once, to who follows it");
    assert_eq!((changed.files, changed.policy.redundancy().donors()), (2, 3));
    assert_eq!(goal("pot://lab/b").await.map(|goal| goal.to_string()), Some("2+1".into()));
    let health = stat(&user, "pot://lab/b").await.health.expect("of a file");
    assert_eq!((health.promised, health.tolerates), (0, Some(0)), "until then the old one holds");

    user.call(&set("pot://lab/d/a", copies(3))).await.expect("one file");
    assert_eq!(goal("pot://lab/d/a").await, Some(Redundancy::Copies(3)));
    user.call(&set("pot://lab/d", copies(1))).await.expect("called off");
    assert_eq!(goal("pot://lab/d/a").await, None);
    let wide = Override { stripe_width: Some(Width::Donors(9)), ..Override::default() };
    let of_a_file = refused(&user, &set("pot://lab/b", wide)).await;
    assert_eq!(of_a_file.code, code::BAD_POLICY);
    assert!(of_a_file.hint.contains("--copies or --ec"), "{of_a_file:?}");
    let changed = admin.call(&set("pot://lab", wide)).await.expect("set");
    assert_eq!(changed.files, 0, "what is no redundancy concerns new files only");
    assert_eq!(goal("pot://lab/b").await.map(|goal| goal.to_string()), Some("2+1".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_do_not_block_second_copies() {
    let lab = Lab::new().await;
    let (admin, first) = (lab.admin(), lab.donor("first").await);
    let policy = Policy { sealed: false, follows: Follows::ALL, ..Policy::default() };
    let space = SpaceCreate { name: "auto".into(), policy };
    assert_eq!(admin.call(&space).await.expect("made").policy.copies, 1);
    let session = reserved(&admin, "pot://auto", Some(0), Override::default()).await.session;
    offer(&admin, session, &[1]).await;
    let mut sparse = file(&session, "pot://auto/f", &[1], &[&first]);
    let pages = sparse.pages.iter().map(|page| &page.0[..]);
    let mut content = Content::default();
    content.push_hole(1 << 59);
    recipe::unpack(&sparse.digest, pages).expect("read").chunks.into_iter().for_each(|chunk| {
        content.push(chunk);
    });
    (sparse.size, sparse.digest) = (content.size(), content.digest().expect("of whole subtrees"));
    sparse.pages = recipe::pack(&sparse.digest, &content).into_iter().map(Blob).collect();
    assert!(matches!(put(&admin, session, 0, sparse).await, Outcome::Stored { .. }));
    let disk = DiskState { lent_used: 1 << 20, ..DiskState::default() };
    first.send_heartbeat(Heartbeat { disk, ..first.heartbeat(1) }).await;
    let _second = lab.donor("second").await;
    eventually("a second copy", async || {
        (stat(&admin, "pot://auto").await.policy.copies == 2).then_some(())
    })
    .await;
}

/// A donor that leaves does not come back, so a change that counts on it would wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_what_is_there_counts_no_donor_that_leaves() {
    let lab = Lab::new().await;
    let admin = lab.admin();
    let d = donors(&lab, 3).await;
    write(&admin, "pot://lab/a", 1, &d[1]).await;
    let leave = |cancel| GiveBack { donor: Some(d[0].id), now: false, agreed: None, cancel };
    let copy = CopyFiles {
        from: path("pot://lab/a"),
        to: path("pot://lab/b"),
        recursive: false,
        condition: Condition::Always,
        redundancy: Some(Redundancy::Copies(3)),
        copy: SessionId([7; 16]),
        page: 0,
        after: None,
    };
    admin.call(&leave(false)).await.expect("begun");
    let too_few = "3 copies need 3 donors and 2 are available";
    assert_eq!(refused(&admin, &set("pot://lab", copies(3))).await.message, too_few);
    assert_eq!(refused(&admin, &copy).await.message, too_few);
    let later = PolicySet { new_files_only: true, ..set("pot://lab", copies(3)) };
    admin.call(&later).await.expect("for files that are yet to come");

    admin.call(&leave(true)).await.expect("called off");
    admin.call(&copy).await.expect("copied");
    assert_eq!(admin.call(&set("pot://lab", copies(3))).await.expect("set").files, 2);
}
