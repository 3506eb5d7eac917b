//! Repair: what is made again, in which order and within which budget, when it pauses, and what is told of it.

use crate::crew::Crew;
use crate::lab::{LEN, chunk, commit, reserve};
use crate::writing::small;
use potluck_catalog::fixture::tampering::Tampering;
use potluck_core::clock::Clock;
use potluck_core::ids::Incarnation;
use potluck_recovery::state_dir::CATALOG;
use potluck_wire::control::{
    Away, Departing, DonorState, Fsck, Outcome, Remove, RepairAction, RepairControl, Work,
};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn short_absence_moves_nothing_and_long_one_is_repaired_a3() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/a", &[1, 2], &[0, 1]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(1).await).await;
    crew.members[0].asleep = true;
    crew.until("missed", async |crew: &Crew| {
        (crew.status().await.donors[0].state == DonorState::Suspect).then_some(())
    })
    .await;
    crew.members[0].asleep = false;
    // A scan is due by then.
    crew.work(Duration::from_secs(2)).await;
    assert_eq!(crew.made(), 0, "shorter than the grace");

    crew.members[0].asleep = true;
    crew.until("repaired", async |crew: &Crew| {
        let made = crew.repair().await.made;
        (made >= 2 && crew.tolerates(1).await.is_some()).then_some(())
    })
    .await;
    assert_eq!(crew.status().await.donors[0].state, DonorState::Dead);
    for member in &crew.members[2..] {
        for task in &member.tasks {
            let Work::Copy { from, chunk, .. } = &task.work else { continue };
            assert_eq!(from[0].donor, crew.members[1].id(), "the only one that has it");
            assert!(member.holds.contains(chunk));
        }
    }
    assert_eq!(crew.members[1].made(), 0, "no second copy where one is");

    // The donor is back, and one copy of each chunk is too many; never fewer than two are left.
    crew.members[0].asleep = false;
    let names: Vec<_> = crew.members[0].holds.iter().copied().collect();
    crew.members[0].donor.incarnation = Incarnation(2);
    crew.members[0].donor.report(&names).await;
    crew.until("trimmed", async |crew: &Crew| {
        let copies = [chunk(1), chunk(2)].map(|name| crew.holders(&name).len());
        assert!(copies.iter().all(|copies| *copies >= 2), "{copies:?}");
        (copies == [2, 2]).then_some(())
    })
    .await;
    crew.until("whole", async |crew: &Crew| crew.tolerates(1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn donor_faking_repair_does_not_block_others_a3() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/a", &[1, 2, 3], &[0, 1]).await;
    crew.members[2].pretends = true;
    crew.members[0].asleep = true;
    crew.until("repaired", async |crew: &Crew| {
        (crew.repair().await.made >= 3 && crew.tolerates(1).await.is_some()).then_some(())
    })
    .await;
    assert!(crew.members[2].made() > 0, "it was asked first, for it says that it has most room");
    assert_eq!([1, 2, 3].map(|n| crew.members[3].holds.contains(&chunk(n))), [true; 3]);
    assert_eq!(crew.repair().await.made, 3, "what was only said to be made is not counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_chunk_of_a_group_is_rebuilt_from_the_others() {
    let mut crew = Crew::new(4).await;
    let names = crew.coded("pot://lab/a", &[1, 2], "2+1").await;
    let safe_since = crew.health("pot://lab/a").await.safe_since_ms.expect("safe at once");
    crew.members[1].asleep = true;
    crew.until("rebuilt", async |crew: &Crew| {
        (crew.repair().await.made >= 1 && crew.tolerates(1).await.is_some()).then_some(())
    })
    .await;
    let since = crew
        .until("safe", async |crew: &Crew| crew.health("pot://lab/a").await.safe_since_ms)
        .await;
    assert!(since > safe_since, "not since before the loss");
    let tasks = &crew.members[3].tasks;
    let rebuilt = tasks.iter().find_map(|task| match &task.work {
        Work::Rebuild { chunk, position, data, shards, .. } => {
            Some((chunk, position, data, shards))
        }
        _ => None,
    });
    let (name, position, data, shards) = rebuilt.expect("a task");
    assert_eq!((*name, *position, *data), (names[1], 1, 2));
    let mut others: Vec<_> = shards.iter().map(|shard| (shard.position, shard.chunk)).collect();
    others.sort_unstable();
    assert_eq!(others, [(0, names[0]), (2, names[2])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_read_is_listed_by_path() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/safe", &[1], &[1, 2]).await;
    crew.copies("pot://lab/dir/lost", &[2], &[0]).await;
    crew.members[0].asleep = true;
    crew.until("found out", async |crew: &Crew| {
        let space = crew.status().await.spaces.into_iter().find(|space| space.name == "lab")?;
        (space.unreadable == 1).then(|| assert_eq!(space.tolerates, None))
    })
    .await;
    let fsck = Fsck { path: "pot://lab".parse().expect("path"), incomplete: false, after: None };
    let report = crew.until("listed alone", async |crew: &Crew| {
        let report = crew.user.call(&fsck).await.expect("a report");
        assert_eq!(report.files, 2);
        (report.found.len() == 1).then_some(report)
    });
    let report = report.await;
    assert_eq!(report.found[0].path, "pot://lab/dir/lost/2");
    assert!(report.found[0].may_return, "its donor is merely away");
    crew.until("an alarm, when its donor's grace is over", async |crew: &Crew| {
        let alarms = crew.status().await.alarms;
        alarms.iter().any(|alarm| alarm.to_string().contains("cannot be repaired")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stat_fsck_and_status_judge_alike_d3() {
    let mut crew = Crew::new(2).await;
    for member in &mut crew.members {
        member.donor.label = Some("desk".into());
        member.donor.report(&[]).await;
    }
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    crew.until("scanned", async |crew: &Crew| {
        let space = crew.status().await.spaces.into_iter().find(|space| space.name == "lab")?;
        // Both copies are on machines of one desk, which fail together.
        let found = (space.files, space.incomplete, space.tolerates);
        (space.scanned && found == (1, 1, Some(0))).then_some(())
    })
    .await;
    let stat = crew.health("pot://lab/a/1").await;
    assert_eq!((stat.tolerates, stat.promised, stat.incomplete), (Some(0), 1, 1));
    assert_eq!(stat.safe_since_ms, None, "never as safe as promised");
    let fsck = Fsck { path: "pot://lab".parse().expect("path"), incomplete: true, after: None };
    let report = crew.user.call(&fsck).await.expect("a report");
    assert_eq!(report.found[0].health, stat);

    crew.members[1].donor.label = None;
    crew.members[1].donor.report(&[chunk(1)]).await;
    crew.until("apart", async |crew: &Crew| crew.tolerates(1).await).await;
    assert_eq!(crew.health("pot://lab/a/1").await.tolerates, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_file_of_a_space_that_was_looked_at_is_seen_soon() {
    let mut crew = Crew::new(2).await;
    let space = async |crew: &Crew| {
        let spaces = crew.status().await.spaces;
        spaces.into_iter().find(|space| space.name == "lab").filter(|space| space.scanned)
    };
    let empty = crew.until("scanned", space).await;
    assert_eq!((empty.files, empty.all_in_catalog), (0, false));
    let session = reserve(&crew.user, 5).await.expect("reserved").session;
    let stored = commit(&crew.user, session, 0, vec![small("pot://lab/a", b"hello")], true).await;
    assert!(matches!(stored.expect("answered").files[..], [Outcome::Stored { .. }]));
    let known = async |crew: &Crew| space(crew).await.filter(|space| space.all_in_catalog);
    crew.until("known to be in the catalog", known).await;

    let removed = Remove {
        path: "pot://lab/a".parse().expect("a path"),
        recursive: false,
        forever: false,
        only_if: Default::default(),
        soon: false,
    };
    crew.user.call(&removed).await.expect("removed");
    let empty = space(&crew).await.expect("it stays scanned");
    assert_eq!((empty.files, empty.in_catalog, empty.all_in_catalog), (0, 0, false), "at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_file_is_not_waited_for() {
    let mut crew = Crew::with(4, |config| config.repair_grace = Duration::from_secs(8)).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    crew.copies("pot://lab/b", &[2], &[2, 3]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(1).await).await;
    let is_silent = async |crew: &Crew| {
        let spaces = crew.status().await.spaces;
        spaces.iter().any(|space| space.name == "lab" && space.silent)
    };
    crew.members[0].asleep = true;
    crew.until("missed", async |crew: &Crew| is_silent(crew).await.then_some(())).await;
    let remove = Remove {
        path: "pot://lab/a".parse().expect("a path"),
        recursive: true,
        forever: false,
        only_if: Default::default(),
        soon: false,
    };
    crew.user.call(&remove).await.expect("removed");
    crew.members[0].asleep = false;
    crew.until("safe again", async |crew: &Crew| (!is_silent(crew).await).then_some(())).await;
    assert_eq!(crew.tolerates(1).await, Some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_prioritises_fewest_survivors_within_budget_a3() {
    let rate = 5 * u64::from(LEN);
    let mut crew = Crew::with(5, |config| config.repair_rate = rate).await;
    // In the order of their paths the safer files come first.
    crew.copies("pot://lab/a", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[0, 1, 2]).await;
    crew.copies("pot://lab/b", &[11, 12, 13, 14, 15, 16, 17, 18, 19, 20], &[0, 1]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(1).await).await;
    crew.members[0].asleep = true;
    let clock = Arc::clone(&crew.clock);
    // The clock is read while nothing was found yet.
    let mut began = clock.now();
    let waiting = crew
        .until("the loss is found", async |crew: &Crew| {
            let before = clock.now();
            let queued = crew.repair().await.queued;
            if queued.iter().sum::<u64>() == 0 && crew.made() == 0 {
                began = before;
                return None;
            }
            Some(queued)
        })
        .await;
    assert_eq!(waiting.len(), 2, "some survive one more loss, some none: {waiting:?}");
    crew.until("all is made", async |crew: &Crew| {
        let due = rate as f64 * ((clock.now() - began).as_secs_f64() + 2.0) + f64::from(LEN);
        let ordered = crew.made() as f64 * f64::from(LEN);
        assert!(ordered <= due, "{ordered} bytes ordered where {due} were due");
        (crew.repair().await.made >= 20).then_some(())
    })
    .await;
    let mut tasks: Vec<(u64, bool)> = Vec::new();
    for task in crew.members.iter().flat_map(|member| &member.tasks) {
        if let Work::Copy { chunk: made, .. } = &task.work {
            tasks.push((task.number, (11..21).any(|n| chunk(n) == *made)));
        }
    }
    tasks.sort_unstable();
    let first: Vec<bool> = tasks.iter().map(|(_, urgent)| *urgent).collect();
    assert_eq!(first, [[true; 10], [false; 10]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_switch_dies_repair_waits_for_an_admin_a4() {
    let mut crew = Crew::new(6).await;
    crew.copies("pot://lab/a", &[1], &[0, 2]).await;
    crew.copies("pot://lab/b", &[2], &[1, 3]).await;
    (crew.members[0].asleep, crew.members[1].asleep) = (true, true);
    crew.until("a pause with something to do", async |crew: &Crew| {
        let repair = crew.repair().await;
        (repair.paused.is_some() && repair.queued.iter().sum::<u64>() >= 2).then_some(())
    })
    .await;
    crew.work(Duration::from_secs(1)).await;
    assert_eq!(crew.made(), 0);
    assert!(
        crew.status().await.alarms.iter().any(|alarm| alarm.to_string().contains("repair rests"))
    );
    let go_on = RepairControl { action: RepairAction::Resume };
    crew.lab.admin().call(&go_on).await.expect("resumed");
    // After another start the manager does not ask again.
    crew.lab.stop().await;
    crew.restart().await;
    crew.until("repaired", async |crew: &Crew| {
        if crew.made() < 2 {
            return None;
        }
        crew.tolerates(1).await
    })
    .await;
    assert_eq!(crew.repair().await.paused, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_pause_survives_restart_and_absences_are_awaited() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    let away = Away { donor: None, for_ms: 3_600_000 };
    crew.members[0].donor.caller.call(&away).await.expect("announced");
    crew.members[0].asleep = true;
    let grace = crew.lab.config.repair_grace;
    crew.work(grace + Duration::from_secs(2)).await;
    assert_eq!(crew.status().await.donors[0].state, DonorState::Away);
    assert_eq!(crew.made(), 0);
    crew.until("said that one more donor may not go", async |crew: &Crew| {
        let status = crew.status().await;
        let space = status.spaces.iter().find(|space| space.name == "lab")?;
        (space.tolerates == Some(1) && space.tolerates_now == Some(0)).then_some(())
    })
    .await;
    let health = crew.health("pot://lab/a/1").await;
    assert_eq!((health.tolerates, health.tolerates_now), (Some(1), Some(0)));

    let control = |action| RepairControl { action };
    crew.lab.admin().call(&control(RepairAction::Pause)).await.expect("paused");
    let back = Away { donor: Some(crew.members[0].id()), for_ms: 0 };
    crew.lab.admin().call(&back).await.expect("ended");
    crew.lab.stop().await;
    crew.restart().await;
    crew.until("gone with something to do", async |crew: &Crew| {
        let repair = crew.repair().await;
        let gone = crew.status().await.donors[0].state == DonorState::Dead;
        (gone && repair.queued.iter().sum::<u64>() >= 1).then_some(())
    })
    .await;
    crew.work(Duration::from_secs(1)).await;
    assert_eq!(crew.made(), 0, "still paused");
    crew.lab.admin().call(&control(RepairAction::Resume)).await.expect("resumed");
    crew.until("repaired", async |crew: &Crew| crew.tolerates(1).await).await;
    assert!(crew.made() >= 1);
}

/// Opens the catalog of a running manager, to change it behind the manager's back.
fn tampering(crew: &Crew) -> Tampering {
    Tampering::with(&crew.lab.config.state.join(CATALOG)).expect("opened")
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_record_is_reported_and_blocks_no_other_repair_l1() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    crew.copies("pot://lab/b", &[2], &[0, 1]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(1).await).await;
    tampering(&crew).damage_first_recipe().expect("damaged");
    crew.members[0].asleep = true;
    crew.until("the other is repaired", async |crew: &Crew| {
        let health = crew.health("pot://lab/b/2").await;
        (crew.repair().await.made >= 1 && health.incomplete == 0).then_some(())
    })
    .await;
    let told = crew
        .until("told", async |crew: &Crew| {
            let status = crew.status().await;
            let space = status.spaces.iter().find(|space| space.name == "lab")?;
            let told = status.alarms.iter().find(|alarm| alarm.to_string().contains("damaged"))?;
            (space.unreadable == 1 && space.tolerates.is_none()).then(|| told.clone())
        })
        .await;
    assert!(told.to_string().contains("pot://lab/a/1"), "{told}");

    let fsck = Fsck { path: "pot://lab".parse().expect("path"), incomplete: true, after: None };
    let report = crew
        .until("listed alone", async |crew: &Crew| {
            let report = crew.user.call(&fsck).await.expect("a report");
            (report.found.len() == 1).then_some(report)
        })
        .await;
    assert_eq!(report.files, 2, "{report:?}");
    assert_eq!(
        (report.found[0].path.as_str(), report.found[0].may_return),
        ("pot://lab/a/1", false)
    );
    assert!(report.found[0].damaged.is_some() && report.found[0].health.unreadable > 0);
    let ask = Departing { donors: vec![crew.members[1].id()], over: None };
    let would = crew.lab.admin().call(&ask).await.expect("told");
    assert!(would.lost.contains(&"pot://lab/a/1".to_string()), "{would:?}");

    // The donor is back with a copy too many, and it is not known what the damaged file needs.
    crew.members[0].asleep = false;
    crew.members[0].donor.incarnation = Incarnation(2);
    crew.members[0].donor.report(&[chunk(1), chunk(2)]).await;
    crew.until("seen", async |crew: &Crew| (crew.repair().await.excess > 0).then_some(())).await;
    crew.work(Duration::from_millis(1000)).await;
    assert_eq!(crew.holders(&chunk(2)).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_fails_is_told_of_l1() {
    let mut crew = Crew::new(2).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(1).await).await;
    tampering(&crew).lose_recipes().expect("taken away");
    crew.members[0].asleep = true;
    crew.until("told", async |crew: &Crew| {
        let alarms = crew.status().await.alarms;
        alarms
            .iter()
            .any(|alarm| alarm.to_string().contains("could not be looked at"))
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn needed_leaving_copy_counts_or_is_rebuilt_a3() {
    // With these times, only the admin's call below makes the manager scan again.
    let slow = |config: &mut potluck_manager::ManagerConfig| {
        config.suspect_after = Duration::from_secs(30);
        config.repair_grace = Duration::from_secs(60);
    };
    let mut crew = Crew::with(3, slow).await;
    crew.copies("pot://lab/a", &[1, 2], &[0, 1]).await;
    crew.until("scanned", async |crew: &Crew| crew.tolerates(1).await).await;
    // Both copies of donor 0 are marked as leaving, and one of them is deleted already.
    tampering(&crew).have_first_donor_leave().expect("marked");
    crew.members[0].holds.remove(&chunk(2));
    crew.lab.admin().call(&RepairControl { action: RepairAction::Resume }).await.expect("told");
    crew.until("whole again", async |crew: &Crew| {
        (crew.holders(&chunk(2)).len() == 2).then_some(())?;
        crew.tolerates(1).await
    })
    .await;
    assert_eq!(crew.holders(&chunk(1)), [0, 1], "it only had to stay");
    assert_eq!(crew.made(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantined_chunk_is_discarded_once_unneeded() {
    let mut crew = Crew::new(2).await;
    crew.copies("pot://lab/double", &[1], &[0, 1]).await;
    crew.copies("pot://lab/single", &[2], &[0]).await;
    let donor = &crew.members[0].donor;
    // This one heartbeat tells of the bad copies and asks about them; what another donor has is counted already.
    let mut heartbeat = donor.heartbeat(0);
    heartbeat.spoiled.0 = vec![chunk(1)];
    heartbeat.unreadable.0 = vec![chunk(2)];
    heartbeat.quarantined.0 = vec![chunk(1), chunk(2), chunk(3)];
    let reply = donor.send_heartbeat(heartbeat).await;
    assert_eq!(reply.discard.0, [chunk(1), chunk(3)]);
    // The only copy of chunk 2 is at its donor again.
    crew.members[0].donor.report(&[chunk(2)]).await;
    assert_eq!(crew.health("pot://lab/single/2").await.tolerates, Some(0));
}

/// An absent machine never counts as a copy that another failure may rely on.
#[tokio::test(flavor = "multi_thread")]
async fn quarantined_chunk_is_kept_while_the_other_copy_is_doubtful() {
    let mut crew = Crew::with(2, |config| config.repair_grace = Duration::from_secs(600)).await;
    crew.copies("pot://lab/double", &[1], &[0, 1]).await;
    let discarded = async |crew: &Crew| {
        let donor = &crew.members[0].donor;
        let mut heartbeat = donor.heartbeat(0);
        heartbeat.spoiled.0 = vec![chunk(1)];
        heartbeat.quarantined.0 = vec![chunk(1), chunk(3)];
        donor.send_heartbeat(heartbeat).await.discard.0
    };
    assert_eq!(discarded(&crew).await, [chunk(1), chunk(3)], "while the other is there");
    // The other donor is silent for a while.
    for _ in 0..6 {
        discarded(&crew).await;
        crew.clock.go_on();
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(discarded(&crew).await, [chunk(3)], "chunk 1 may be nowhere else");
    crew.members[1].donor.send_heartbeat(crew.members[1].donor.heartbeat(0)).await;
    assert_eq!(discarded(&crew).await, [chunk(1), chunk(3)], "it is heard again");
    // The other donor was started again, and has not told yet what it still has.
    crew.members[1].donor.incarnation = Incarnation(77);
    crew.members[1].donor.register().await;
    assert_eq!(discarded(&crew).await, [chunk(3)], "it may have lost it");
}
