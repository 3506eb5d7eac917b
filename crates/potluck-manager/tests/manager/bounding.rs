//! Tests that one member takes its share of the pool and nobody else's, whatever it asks for.

use crate::granting::{make_space, path, policy_set, reserve_at, reserve_bytes};
use crate::lab::{LEN, Lab, chunk, commit, eventually, file, offer};
use crate::writing::small;
use potluck_core::attributes::Permissions;
use potluck_core::ids::SessionId;
use potluck_core::policy::{AckLevel, Override};
use potluck_core::quota::Quota;
use potluck_core::rights::Right;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Abort, AlarmKind, Grow, GrowingFile, Invite, MakeDir, Outcome, PolicySet, PoolState, QuotaSet,
    Renew, Reserve, RoomRelease, RoomReserve, SpaceRemove, Status, Unreached,
};
use potluck_wire::error::{ErrorKind, code};
use potluck_wire::ticket::Acknowledged;
use potluck_wire::token::Role;
use std::time::Duration;

/// Returns the bytes that donors keep free for writes that are promised room.
async fn promised(lab: &Lab) -> u64 {
    let status = lab.admin().call(&Status {}).await.expect("told");
    status.donors.iter().map(|donor| donor.promised).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn open_reservations_count_against_quotas() {
    let lab = Lab::new().await;
    let ada = lab.caller(&lab.join(Role::User, "ada").await);
    let donor = lab.donor("d").await;
    let quota = Quota { bytes: Some(1 << 20), files: None };
    let set = |of: &str, quota: Quota| QuotaSet { of: of.into(), change: quota.into() };
    for space in ["own", "other"] {
        make_space(&ada, space, false).await;
    }
    // The quota is first of the space, and then of all spaces that its maker made.
    for (of, second) in [("pot://own", "pot://own/b"), ("ada", "pot://other/b")] {
        lab.admin().call(&set(of, quota)).await.expect("set");
        let first = reserve_bytes(&ada, "pot://own/a", 800_000).await.expect("fits").session;
        let over = reserve_bytes(&ada, second, 800_000).await.expect_err("too much together");
        assert_eq!((over.kind, over.code.as_str()), (ErrorKind::NoSpace, code::OVER_QUOTA));
        // What is stored does not count twice, and what has ended does not count any more.
        offer(&ada, first, &[1]).await;
        let file = file(&first, "pot://own/a", &[1], &[&donor]);
        commit(&ada, first, 0, vec![file], false).await.expect("committed");
        let beside = reserve_bytes(&ada, second, 248_576).await.expect("beside the first").session;
        ada.call(&Abort { session: first, keep: false }).await.expect("ended");
        let rest = reserve_bytes(&ada, second, 799_000).await.expect("the first is over").session;
        for session in [beside, rest] {
            ada.call(&Abort { session, keep: false }).await.expect("ended");
        }
        lab.admin().call(&set(of, Quota::NONE)).await.expect("set");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_room_counts_against_quotas() {
    let lab = Lab::new().await;
    let ada = lab.caller(&lab.join(Role::User, "ada").await);
    let donor = lab.donor("d").await;
    for space in ["own", "other"] {
        make_space(&ada, space, false).await;
    }
    let bytes = 1 << 20;
    let quota = Quota { bytes: Some(bytes), files: None };
    lab.admin().call(&QuotaSet { of: "ada".into(), change: quota.into() }).await.expect("set");
    let room = async |at: &str, bytes| {
        ada.call(&RoomReserve { path: path(at), bytes, for_ms: 600_000 }).await
    };
    let reserved = room("pot://own/run", bytes - 1000).await.expect("fits");
    let over = room("pot://other/run", bytes - 1000).await.expect_err("too much together");
    assert_eq!(over.code, code::OVER_QUOTA);
    let over = reserve_bytes(&ada, "pot://other/b", 2000).await.expect_err("too much beside");
    assert_eq!(over.code, code::OVER_QUOTA);
    let growing = async |session, at: &str, bytes| {
        let file = Some(GrowingFile { path: path(at), bytes });
        let (holders, avoid, whole) = Default::default();
        ada.call(&Grow { session, bytes: 0, holders, avoid, whole, file }).await.map(drop)
    };
    let unknown = Reserve { bytes: None, ..reserve_at("pot://other/stream") };
    let stream = ada.call(&unknown).await.expect("as much as is left").session;
    let over = growing(stream, "pot://other/stream", 2000).await.expect_err("too much by now");
    assert_eq!(over.code, code::OVER_QUOTA);
    growing(stream, "pot://own/run/stream", 2000).await.expect("where room is reserved for it");
    ada.call(&Abort { session: stream, keep: false }).await.expect("ended");

    // It is not known before its commit what a tree replaces.
    let tree = async |at: &str, number: u64| {
        let session = reserve_bytes(&ada, at, 100_000).await.expect("a tree").session;
        offer(&ada, session, &[number, number + 1]).await;
        let one = |name: &str, n| file(&session, &format!("{at}/{name}"), &[n], &[&donor]);
        let files = vec![one("f", number), one("g", number + 1)];
        let told = commit(&ada, session, 0, files, true).await.expect("told").files;
        let code = |told| match told {
            Outcome::Stored { .. } => None,
            Outcome::Refused(why) => Some(why.code),
        };
        told.into_iter().map(code).collect::<Vec<_>>()
    };
    assert_eq!(tree("pot://other", 1).await, [None, Some(code::OVER_QUOTA.into())]);
    assert_eq!(tree("pot://own/run", 3).await, [None, None]);
    ada.call(&RoomRelease { id: reserved.id }).await.expect("given back");
    assert_eq!(tree("pot://other", 5).await, [None, None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_space_frees_its_reservations() {
    let lab = Lab::new().await;
    let _donor = lab.donor("d").await;
    make_space(&lab.admin(), "own", false).await;
    for at in ["pot://own/run", "pot://lab/run"] {
        let room = RoomReserve { path: path(at), bytes: 1 << 30, for_ms: 600_000 };
        lab.admin().call(&room).await.expect("reserved");
    }
    assert_eq!(promised(&lab).await, 2 << 30);
    let remove = SpaceRemove { name: "own".into(), recursive: false };
    lab.admin().call(&remove).await.expect("removed");
    assert_eq!(promised(&lab).await, 1 << 30, "that of the other space");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_reservation_is_capped_by_quota_and_half_of_free() {
    let lab = Lab::new().await;
    let ada = lab.caller(&lab.join(Role::User, "ada").await);
    let bert = lab.caller(&lab.join(Role::User, "bert").await);
    let _donor = lab.donor("d").await; // with room for 10 GiB
    make_space(&ada, "own", false).await;
    let quota = Quota { bytes: Some(1 << 20), files: None };
    lab.admin()
        .call(&QuotaSet { of: "pot://own".into(), change: quota.into() })
        .await
        .expect("set");
    let unknown = Reserve { bytes: None, ..reserve_at("pot://own/e") };
    let session = ada.call(&unknown).await.expect("a stream").session;
    assert_eq!(promised(&lab).await, 1 << 20);
    let grow = |session, bytes| Grow {
        session,
        bytes,
        holders: Vec::new(),
        avoid: Vec::new(),
        whole: false,
        file: None,
    };
    ada.call(&grow(session, 9 << 30)).await.expect("places, and no room");
    assert_eq!(promised(&lab).await, 1 << 20);

    // Without a quota the sessions of one member leave half to others, however many they are.
    for name in ["a", "b", "c"] {
        let bytes = reserve_bytes(&ada, &format!("pot://lab/{name}"), 4 << 30).await;
        let session = bytes.expect("as long as there is room").session;
        ada.call(&grow(session, 1 << 30)).await.expect("more");
    }
    // What donors add to each chunk takes less than a hundredth of the room.
    let (promised, half) = (promised(&lab).await, 5 << 30);
    assert!((half / 100 * 99..=half).contains(&promised), "{promised} of {half}");
    reserve_bytes(&bert, "pot://lab/d", 2 << 30).await.expect("there is room");
}

/// What interrupted uploads stored counts for no quota, so that the same command can be given again. They do not all go on
/// and count for it then.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_uploads_stay_within_the_quota() {
    let lab = Lab::with(|config| config.resume_window = Duration::from_secs(600)).await;
    let ada = lab.caller(&lab.join(Role::User, "ada").await);
    let _donor = lab.donor("d").await;
    make_space(&ada, "own", false).await;
    let quota = Quota { bytes: Some(1 << 20), files: None };
    let set = QuotaSet { of: "pot://own".into(), change: quota.into() };
    lab.admin().call(&set).await.expect("set");
    let interrupted = async || {
        let session = reserve_bytes(&ada, "pot://own/a", 800_000).await.expect("fits").session;
        offer(&ada, session, &[1]).await;
        ada.call(&Abort { session, keep: true }).await.expect("kept");
        session
    };
    let (first, second) = (interrupted().await, interrupted().await);
    let renew = async |session: SessionId| {
        let renewed = ada.call(&Renew { session, refused: Vec::new(), traffic: Vec::new() }).await;
        renewed.map(drop).map_err(|why| why.code)
    };
    renew(first).await.expect("as much as the quota leaves");
    assert_eq!(renew(second).await, Err(code::OVER_QUOTA.into()));
    renew(first).await.expect("this one counts already");
    ada.call(&Abort { session: first, keep: true }).await.expect("kept");
    renew(second).await.expect("the first does not go on");
    assert_eq!(renew(first).await, Err(code::OVER_QUOTA.into()));
    ada.call(&Abort { session: first, keep: false }).await.expect("ended, whatever is left");
    assert_eq!(renew(first).await, Err(code::NO_SESSION.into()));
}

/// A session promises what its client was told at the reservation, whatever the client says at the commit.
#[tokio::test]
async fn writer_without_manage_cannot_commit_below_its_session_policy() {
    let lab = Lab::new().await;
    let ada = lab.user().await;
    lab.take("lab", "everyone", &[Right::Manage]).await;
    let (one, two) = (lab.donor("a").await, lab.donor("b").await);
    let written = |session: &SessionId, at: &str, n: u64, copies: u32| {
        let mut written = file(session, at, &[n], &[&one, &two]);
        written.copies = copies;
        written
    };
    let open = async |caller: &Caller| {
        let reserve = Reserve { bytes: Some(1 << 20), ..reserve_at("pot://lab/q") };
        caller.call(&reserve).await.expect("reserved").session
    };
    let earlier = open(&ada).await;
    let policy = Override { copies: Some(2), ..Override::default() };
    lab.admin().call(&PolicySet { policy, ..policy_set("pot://lab") }).await.expect("set");
    let admin = lab.admin();
    for (caller, n) in [(&admin, 1), (&ada, 11)] {
        let manages = n == 1;
        let session = open(caller).await;
        offer(caller, session, &[n, n + 1]).await;
        let files = vec![
            written(&session, "pot://lab/less", n, 1),
            written(&session, "pot://lab/as-promised", n + 1, 2),
            small("pot://lab/in-the-catalog", b"few bytes"),
        ];
        let told = commit(caller, session, 0, files, true).await.expect("told").files;
        match &told[0] {
            Outcome::Stored { .. } => assert!(manages, "{told:?}"),
            Outcome::Refused(why) => {
                assert!(!manages && why.code == code::NO_RIGHT, "{told:?}");
            }
        }
        let others = &told[1..];
        assert!(others.iter().all(|it| matches!(it, Outcome::Stored { .. })), "{told:?}");
    }
    // A write that began under the earlier policy ends well, and what it wrote is changed to the present
    // one.
    offer(&ada, earlier, &[21]).await;
    let files = vec![written(&earlier, "pot://lab/earlier", 21, 1)];
    let told = commit(&ada, earlier, 0, files, true).await.expect("told").files;
    assert!(matches!(told[0], Outcome::Stored { .. }), "{told:?}");
}

#[tokio::test]
async fn recursive_write_honours_directory_ack_level() {
    let lab = Lab::new().await;
    let ada = lab.user().await;
    let donor = lab.donor("a").await;
    let dir = MakeDir {
        path: path("pot://lab/safe"),
        parents: false,
        permissions: Permissions::DIR,
        owner: None,
    };
    lab.admin().call(&dir).await.expect("made");
    let policy = Override { ack: Some(AckLevel::Disk), ..Override::default() };
    lab.admin().call(&PolicySet { policy, ..policy_set("pot://lab/safe") }).await.expect("set");
    let written = |session: &SessionId, ack: AckLevel, at: &str, n: u64| {
        let mut written = file(session, at, &[n], &[&donor]);
        let receipt = donor.receipt_for(session, (&chunk(n), LEN), ack);
        written.acknowledged.0[0] = Acknowledged { chunk: 0, donor: donor.id, ack, receipt };
        written
    };
    for (manages, says_so, from) in
        [(true, true, 1), (true, false, 11), (false, true, 21), (false, false, 31)]
    {
        if !manages && says_so {
            lab.take("lab", "everyone", &[Right::Manage]).await;
        }
        let policy = Override { ack: says_so.then_some(AckLevel::Memory), ..Override::default() };
        let reserve = Reserve { bytes: Some(1 << 20), policy, ..reserve_at("pot://lab/q") };
        let session = ada.call(&reserve).await.expect("reserved").session;
        offer(&ada, session, &[from, from + 1, from + 2]).await;
        let files = vec![
            written(&session, AckLevel::Memory, "pot://lab/safe/y", from),
            written(&session, AckLevel::Disk, "pot://lab/safe/z", from + 1),
            written(&session, AckLevel::Memory, "pot://lab/beside", from + 2),
        ];
        let told = commit(&ada, session, 0, files, true).await.expect("told").files;
        assert!(matches!(told[2], Outcome::Stored { .. }), "{told:?}");
        // If a command asks for less than it may, no file of it in the directory is taken, however that was
        // acknowledged.
        let asks_too_little = says_so && !manages;
        assert_eq!(matches!(told[1], Outcome::Refused(_)), asks_too_little, "{told:?}");
        match &told[0] {
            Outcome::Stored { .. } => assert!(manages && says_so, "{told:?}"),
            Outcome::Refused(why) => {
                assert!(!(manages && says_so) && why.code == code::NO_RIGHT, "{told:?}");
                assert!(why.hint.contains("--ack disk"), "{why}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachability_for_one_user_does_not_degrade_the_pool() {
    let lab = Lab::new().await;
    let (ada, donor) = (lab.user().await, lab.donor("desk").await);
    ada.call(&Unreached { donor: donor.id }).await.expect("heard");
    let status = async || {
        donor.send_heartbeat(donor.heartbeat(0)).await;
        ada.call(&Status {}).await.expect("told")
    };
    let is_shown = async || Some(status().await).filter(|status| !status.alarms.is_empty());
    let shown = eventually("it is shown", is_shown).await;
    assert_eq!(shown.alarms[0].kind, AlarmKind::DonorUnreachedFromOnePlace, "{shown:?}");
    assert_eq!(shown.donors[0].unreached_from, 1);
    assert_eq!(shown.verdict.state, PoolState::Healthy, "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_invites_without_end_is_held_up() {
    let lab = Lab::new().await;
    let donor = lab.donor("desk").await;
    let mut codes = Vec::new();
    for number in 0..66 {
        if number == 63 {
            tokio::time::sleep(Duration::from_millis(1500)).await; // as many as it may have are over
        }
        let invite = Invite { role: Role::Donor, ttl_seconds: 1, name: None };
        codes.extend(donor.caller.call(&invite).await.err().map(|why| why.code));
    }
    assert_eq!(codes, vec![code::TOO_MANY_CHANGES; 2]);
}
