//! Donors that give space back: what is moved first, what may be lost by agreement, and announced absences.

use crate::crew::{Crew, Member};
use crate::lab::{LEN, chunk, commit, eventually, file, offer, refused, reserve};
use potluck_core::ids::MemberId;
use potluck_core::policy::Override;
use potluck_manager::ManagerConfig;
use potluck_wire::control::{
    AlarmKind, Away, Departing, DonorState, GiveBack, GiveBackStatus, GivingBack, Going, Outcome,
    PolicySet, RepairAction, RepairControl, Revoke,
};
use potluck_wire::error::{ErrorKind, code};
use std::time::Duration;

fn give_back(crew: &Crew, at: usize) -> GiveBack {
    let donor = Some(crew.members[at].id());
    GiveBack { donor, now: false, agreed: None, cancel: false }
}

fn departing(crew: &Crew, at: &[usize]) -> Departing {
    Departing { donors: at.iter().map(|at| crew.members[*at].id()).collect(), over: None }
}

async fn progress(crew: &Crew, at: usize) -> GivingBack {
    let status = GiveBackStatus { donor: Some(crew.members[at].id()) };
    crew.lab.admin().call(&status).await.expect("status")
}

#[tokio::test(flavor = "multi_thread")]
async fn full_give_back_is_safe_only_when_empty() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/a", &[1, 2, 3], &[0, 1]).await;
    crew.copies("pot://lab/single", &[4], &[0]).await;
    crew.members[0].holds.insert(chunk(99)); // unclaimed: not the pool's to delete
    let begun = crew.lab.admin().call(&give_back(&crew, 0)).await.expect("begun");
    assert!(begun.active && !begun.safe_to_remove);
    let donors = crew.status().await.donors;
    let shown = donors[0].giving_back.as_ref().expect("in status too");
    assert!(shown.active && shown.held == begun.held && donors[1].giving_back.is_none());
    crew.until("safe to remove", async |crew: &Crew| {
        let now = progress(crew, 0).await;
        if now.safe_to_remove {
            assert!(now.done && now.to_move == 0);
            return Some(());
        }
        for n in 1..5 {
            assert!(!crew.holders(&chunk(n)).is_empty(), "never nowhere");
        }
        None
    })
    .await;
    assert_eq!(crew.members[0].holds.iter().collect::<Vec<_>>(), [&chunk(99)]);
    for n in 1..4 {
        assert_eq!(crew.holders(&chunk(n)).len(), 2);
    }
    assert_eq!(crew.holders(&chunk(4)).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn give_back_lists_losses_before_causing_them() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/single", &[1], &[0]).await;
    crew.copies("pot://lab/double", &[2], &[0, 1]).await;
    let dry = departing(&crew, &[0]);
    let told = crew.lab.admin().call(&dry).await.expect("told");
    assert_eq!((told.lost, told.lost_files), (vec!["pot://lab/single/1".to_string()], 1));
    crew.work(Duration::from_millis(1500)).await;
    assert_eq!(crew.members[0].holds.len(), 2, "only said");
    let now = GiveBack { now: true, ..give_back(&crew, 0) };
    let own = crew.members[0].donor.caller.call(&GiveBack { donor: None, ..now }).await;
    assert_eq!(own.expect("begun").lost_files, 1);
    crew.until("all is gone", async |crew: &Crew| crew.members[0].holds.is_empty().then_some(()))
        .await;
    let other = give_back(&crew, 1);
    let refused = crew.members[0].donor.caller.call(&other).await.expect_err("not its own");
    assert_eq!(refused.kind, ErrorKind::Auth);
}

#[tokio::test(flavor = "multi_thread")]
async fn that_too_few_would_stay_is_said_before_it_begins() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/triple", &[1], &[0, 1, 2]).await;
    crew.copies("pot://lab/double", &[2], &[0, 1]).await;
    let look = async |at| {
        let dry = departing(&crew, &[at]);
        crew.lab.admin().call(&dry).await.expect("told").may_go
    };
    let told = look(2).await;
    assert_eq!(told.verdict, Going::Stuck, "three copies need three");
    assert!(told.why.contains("3 donors") && told.why.contains("2 are available"), "{told:?}");
    let pause = RepairControl { action: RepairAction::Pause };
    crew.lab.admin().call(&pause).await.expect("paused");
    let paused = crew.lab.admin().call(&departing(&crew, &[2])).await.expect("told");
    assert!(paused.blocked.iter().any(|why| why.contains("repair resume")), "{paused:?}");
    let begun = crew.lab.admin().call(&give_back(&crew, 2)).await.expect("begun").may_go;
    assert_eq!((&begun, progress(&crew, 2).await.may_go), (&told, begun.clone()), "and goes on so");
}

#[tokio::test(flavor = "multi_thread")]
async fn departure_names_blocking_writes_in_advance() {
    let mut crew = Crew::new(1).await;
    crew.copies("pot://lab/single", &[1], &[0]).await;
    reserve(&crew.user, 1 << 20).await.expect("a write begins");
    let told = crew.lab.admin().call(&departing(&crew, &[0])).await.expect("told");
    let written = |told: &GivingBack| told.blocked.iter().any(|why| why.contains("a write of ada"));
    assert!(written(&told), "{told:?}");
    let part = Departing { over: Some(1), ..departing(&crew, &[0]) };
    let told = crew.lab.admin().call(&part).await.expect("told");
    assert!(!written(&told), "what is lent of goes on taking writes: {told:?}");
    // Of a donor that holds nothing it is all that is waited for.
    let empty = Crew::new(1).await;
    reserve(&empty.user, 1 << 20).await.expect("a write begins");
    empty.lab.admin().call(&give_back(&empty, 0)).await.expect("begun");
    let may_go = progress(&empty, 0).await.may_go;
    assert_eq!(may_go.verdict, Going::NotKnown, "{may_go:?}");
    assert!(may_go.why.starts_with("a write of ada, begun"), "{may_go:?}");
}

/// A change of redundancy may need the very donor that leaves. It is no promise yet, so that it waits, and is told to.
#[tokio::test(flavor = "multi_thread")]
async fn donor_leaves_during_a_conversion_that_needs_it() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    let three = Override { copies: Some(3), ..Override::default() };
    let path = "pot://lab".parse().expect("path");
    let set = PolicySet { path, policy: three, new_files_only: false, dry_run: false };
    assert_eq!(crew.lab.admin().call(&set).await.expect("set").files, 1);
    crew.until("the change to use the third donor", async |crew: &Crew| {
        (!crew.members[2].holds.is_empty()).then_some(())
    })
    .await;
    let told = crew.lab.admin().call(&departing(&crew, &[2])).await.expect("told");
    let stops =
        |why: &String| why.contains("1 file to 3 copies") && why.contains("2 are available");
    assert!(told.blocked.iter().any(stops), "{told:?}");
    assert_ne!(told.may_go.verdict, Going::Stuck, "{told:?}");

    crew.lab.admin().call(&give_back(&crew, 2)).await.expect("begun");
    crew.until("safe to remove", async |crew: &Crew| {
        progress(crew, 2).await.safe_to_remove.then_some(())
    })
    .await;
    assert!(crew.members[2].holds.is_empty());
    assert_eq!(crew.holders(&chunk(1)), [0, 1], "it keeps what it has");
    let stuck = crew
        .until("the change to be called stuck", async |crew: &Crew| {
            crew.status().await.alarms.into_iter().find(|at| at.kind == AlarmKind::PolicyStuck)
        })
        .await;
    assert!(stuck.what.contains("d2 gives its space back"), "{stuck}");

    let cancel = GiveBack { cancel: true, ..give_back(&crew, 2) };
    crew.lab.admin().call(&cancel).await.expect("called off");
    crew.until("the change to go on", async |crew: &Crew| {
        crew.health("pot://lab/a/1").await.changing_to.is_none().then_some(())
    })
    .await;
    crew.until("whole", async |crew: &Crew| crew.tolerates(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn donors_that_leave_together_do_not_count_on_each_other() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/double", &[1], &[0, 1]).await;
    crew.copies("pot://lab/single", &[2], &[2]).await;
    crew.send_heartbeat().await;
    let admin = crew.lab.admin();
    let look = async |at: &[usize]| admin.call(&departing(&crew, at)).await.expect("told");
    for at in 0..2 {
        let alone = look(&[at]).await;
        assert_eq!(alone.may_go.verdict, Going::AfterMoving, "{alone:?}");
        assert_eq!((alone.lost_files, alone.less_safe_files), (0, 1), "{alone:?}");
        assert_eq!(alone.less_safe, ["pot://lab/double/1"]);
    }
    let both = look(&[0, 1]).await;
    assert_eq!(both.may_go.verdict, Going::Stuck, "two copies need two: {both:?}");
    assert!(both.may_go.why.contains("2 copies need 2 donors and 1 is"), "{both:?}");
    assert_eq!((both.lost_files, both.less_safe_files), (1, 0), "{both:?}");

    // A donor may ask about donors that leave together with itself, and is told the paths of what it holds.
    let own = &crew.members[2].donor.caller;
    let all = own.call(&departing(&crew, &[0, 1, 2])).await.expect("of them");
    assert_eq!((all.lost_files, all.lost), (2, vec!["pot://lab/single/2".to_string()]));
    let others = own.call(&departing(&crew, &[0, 1])).await.expect_err("not of them");
    assert_eq!(others.kind, ErrorKind::Auth);

    // The manager itself removes no donor that files need, whoever asks.
    let member = MemberId(crew.members[0].id().0);
    let refused = admin.call(&Revoke::of(member)).await.expect_err("needed");
    assert_eq!((refused.kind, &*refused.code), (ErrorKind::Conflict, code::NOT_EMPTY));
    assert!(refused.message.contains("less safe than promised"), "{refused:?}");
    admin.call(&Revoke { now: true, ..Revoke::of(member) }).await.expect("said so");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_give_backs_lose_only_what_was_agreed() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/single", &[1], &[0]).await;
    crew.copies("pot://lab/double", &[2], &[0, 1]).await;
    crew.send_heartbeat().await;
    let now = |at| GiveBack { now: true, ..give_back(&crew, at) };
    let admin = crew.lab.admin();
    let look = async |at| {
        let planned = admin.call(&departing(&crew, &[at])).await.expect("told");
        (planned.lost_files, planned.listing)
    };
    let ((one, first), (none, second)) = (look(0).await, look(1).await);
    assert_eq!((one, none), (1, 0), "each for itself: the other has the second file");
    admin.call(&GiveBack { agreed: first, ..now(0) }).await.expect("begun");
    let refused = admin.call(&GiveBack { agreed: second, ..now(1) }).await.expect_err("changed");
    assert_eq!((refused.kind, &*refused.code), (ErrorKind::Conflict, code::NOT_AGREED));
    assert!(refused.message.contains("pot://lab/double/2"), "{refused:?}");
    assert!(!progress(&crew, 1).await.active);

    // Donor 1 may lose chunk 2 now, as was agreed. Donor 0, whose list does not name it, keeps it until it was
    // moved, so it is never lost.
    assert_eq!(admin.call(&now(1)).await.expect("begun").lost_files, 1);
    // The lists outlive the manager.
    crew.lab.stop().await;
    crew.restart().await;
    crew.until("all that may go is gone", async |crew: &Crew| {
        assert!(!crew.holders(&chunk(2)).is_empty(), "what a list did not name");
        (crew.members[0].holds.is_empty() && crew.members[1].holds.is_empty()).then_some(())
    })
    .await;
    assert_eq!(crew.holders(&chunk(2)), [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_already_lost_do_not_block_a_departure() {
    let mut crew = Crew::new(5).await;
    crew.coded("pot://lab/coded", &[1, 2], "2+1").await;
    crew.copies("pot://lab/single", &[4], &[0]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(0).await).await;
    // Two of three die: the file cannot be read, and comes back only with one of these.
    crew.lab.admin().call(&RepairControl { action: RepairAction::Pause }).await.expect("paused");
    (crew.members[1].asleep, crew.members[2].asleep) = (true, true);
    crew.until("both are gone", async |crew: &Crew| {
        let donors = crew.status().await.donors;
        let gone = donors.iter().filter(|donor| donor.state == DonorState::Dead).count();
        (gone == 2).then_some(())
    })
    .await;
    let admin = crew.lab.admin();
    let look = async |at| {
        let dry = departing(&crew, &[at]);
        admin.call(&dry).await.expect("told").lost
    };
    assert_eq!(look(0).await, ["pot://lab/single/4"], "the other is not lost by this one");
    assert!(look(1).await.is_empty(), "the other of the two has enough with what is there");
    let dead = MemberId(crew.members[1].id().0);
    let refused = admin.call(&Revoke::of(dead)).await.expect_err("it may bring the file back");
    assert_eq!(&*refused.code, code::NOT_EMPTY, "{refused:?}");
    admin.call(&Revoke { now: true, ..Revoke::of(dead) }).await.expect("removed");
    assert_eq!(look(2).await.len(), 1, "now it needs this one");
    assert_eq!(look(0).await.len(), 2, "and the one that is there");
    let dead = MemberId(crew.members[2].id().0);
    let refused = admin.call(&Revoke::of(dead)).await.expect_err("needed");
    assert_eq!(refused.kind, ErrorKind::Conflict, "{refused:?}");
    let agreed = admin.call(&departing(&crew, &[2])).await.expect("told").listing;
    admin.call(&Revoke { agreed, ..Revoke::of(dead) }).await.expect("removed");
    assert_eq!(look(0).await, ["pot://lab/single/4"], "it is lost for ever");
    // What is left of it does not hold up a donor that leaves.
    admin.call(&RepairControl { action: RepairAction::Now }).await.expect("resumed");
    admin.call(&give_back(&crew, 0)).await.expect("begun");
    crew.until("safe to remove", async |crew: &Crew| {
        progress(crew, 0).await.safe_to_remove.then_some(())
    })
    .await;
    assert_eq!((crew.holders(&chunk(4)).len(), crew.holders(&chunk(1)).len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn give_back_advice_skips_donors_already_leaving() {
    let mut crew = Crew::new(2).await;
    crew.copies("pot://lab/a", &[1], &[0]).await;
    let session = reserve(&crew.user, 1 << 20).await.expect("reserved").session;
    let held = async |crew: &Crew| offer(&crew.user, session, &[1]).await.held.len();
    assert_eq!(held(&crew).await, 1);
    crew.lab.admin().call(&give_back(&crew, 0)).await.expect("begun");
    assert_eq!(held(&crew).await, 0);
    let cancel = GiveBack { cancel: true, ..give_back(&crew, 0) };
    crew.lab.admin().call(&cancel).await.expect("called off");
    assert_eq!(held(&crew).await, 1);

    // A copy at a donor that deletes it without waiting counts for nothing.
    let now = GiveBack { now: true, ..give_back(&crew, 0) };
    crew.lab.admin().call(&now).await.expect("begun");
    let sent = file(&session, "pot://lab/b", &[1], &[&crew.members[0].donor]);
    let outcome = commit(&crew.user, session, 0, vec![sent], true).await.expect("answered");
    assert!(matches!(outcome.files[0], Outcome::Refused(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_absence_is_bounded() {
    let crew = Crew::new(1).await;
    let away = |days: u64| Away { donor: Some(crew.members[0].id()), for_ms: days * 86_400_000 };
    let admin = crew.lab.admin();
    admin.call(&away(365)).await.expect("announced");
    let why = refused(&admin, &away(366)).await;
    assert_eq!((why.kind, why.message.contains("365 days")), (ErrorKind::Usage, true), "{why:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_absence_limits_differ_for_donor_and_admin() {
    let crew = Crew::new(1).await;
    let away = |days: u64| Away { donor: None, for_ms: days * 86_400_000 };
    let donor = &crew.members[0].donor.caller;
    donor.call(&away(6)).await.expect("announced");
    let why = refused(donor, &away(8)).await;
    assert_eq!((why.kind, why.message.contains("at most 7d")), (ErrorKind::Usage, true), "{why:?}");
    donor.call(&away(0)).await.expect("an absence can always be ended");
    let by_admin = Away { donor: Some(crew.members[0].id()), ..away(30) };
    crew.lab.admin().call(&by_admin).await.expect("announced");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_in_need_gets_spare_copies_at_once_s2() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/triple", &[1, 2, 3, 4], &[0, 1, 2]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(2).await).await;
    // The donor is over quota by all that it holds, so all its copies go: each has two others.
    (crew.members[0].excess, crew.members[0].disk_lacks) = (4 * u64::from(LEN), u64::from(LEN));
    crew.until("deleted", async |crew: &Crew| crew.members[0].holds.is_empty().then_some(())).await;
    (crew.members[0].excess, crew.members[0].disk_lacks) = (0, 0);
    crew.until("made again", async |crew: &Crew| crew.tolerates(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_in_need_waits_for_no_budget_and_no_pause_s2() {
    let slow = |config: &mut ManagerConfig| {
        (config.repair_rate, config.repair_donor_rate) = (1, 1);
        config.suspect_after = Duration::from_secs(600);
    };
    let mut crew = Crew::with(4, slow).await;
    let chunks: Vec<u64> = (0..60).collect();
    crew.copies("pot://lab/single", &chunks, &[0]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(0).await).await;
    let pause = RepairControl { action: RepairAction::Pause };
    crew.lab.admin().call(&pause).await.expect("paused");

    crew.members[0].excess = 60 * u64::from(LEN);
    crew.send_heartbeat().await;
    eventually("all is handed out", async || {
        // No donor sends a heartbeat meanwhile.
        crew.clock.go_on();
        (crew.repair().await.under_way == 60).then_some(())
    })
    .await;
    crew.send_heartbeat().await;
    assert_eq!(crew.made(), 60, "two heartbeats after its owner needed the space");
    let made: Vec<_> = crew.members.iter().map(Member::made).collect();
    assert!(made[1..].iter().all(|made| *made >= 10), "not all to one: {made:?}");
    crew.until("deleted", async |crew: &Crew| crew.members[0].holds.is_empty().then_some(())).await;
    assert!(chunks.iter().all(|n| crew.holders(&chunk(*n)).len() == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_shrink_keeps_unplaceable_chunks_and_says_so() {
    let mut crew = Crew::new(3).await;
    let (stay, go): (Vec<u64>, Vec<u64>) = ((0..20).collect(), (20..40).collect());
    crew.copies("pot://lab/triple", &stay, &[0, 1, 2]).await;
    crew.copies("pot://lab/single", &go, &[0]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(0).await).await;
    let bytes = |chunks: u64| chunks * u64::from(LEN);
    let look = Departing { over: Some(bytes(40)), ..departing(&crew, &[0]) };
    let told = crew.members[0].donor.caller.call(&look).await.expect("looked");
    assert_eq!((told.may_go.verdict, told.less_safe_files), (Going::Stuck, 0), "{told:?}");
    crew.members[0].lends = Some(0);
    let few = async |crew: &Crew| (crew.members[0].holds.len() <= 20).then_some(());
    crew.until("what can be moved is moved", few).await;
    assert!(stay.iter().all(|n| crew.holders(&chunk(*n)) == [0, 1, 2]), "no file is less safe");
    assert!(go.iter().all(|n| crew.holders(&chunk(*n)) != [0]), "these could move, and did");
}
