use crate::crew::Crew;
use crate::lab::chunk;
use potluck_wire::control::{Away, DonorState, Fsck, Order, RepairAction, RepairControl};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a3_a_short_absence_moves_nothing_and_a_long_one_is_repaired_and_trimmed() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/a", &[1, 2], &[0, 1]).await;
    crew.until("surveyed", async |crew: &Crew| crew.tolerates(1).await).await;
    crew.members[0].asleep = true;
    crew.work(Duration::from_millis(1000)).await;
    crew.members[0].asleep = false;
    crew.work(Duration::from_millis(1000)).await;
    assert_eq!(crew.made(), 0, "shorter than the grace");

    crew.members[0].asleep = true;
    crew.until("repaired", async |crew: &Crew| {
        let made = crew.repair().await.made;
        (made == 2 && crew.tolerates(1).await.is_some()).then_some(())
    })
    .await;
    assert_eq!(crew.status().await.donors[0].state, DonorState::Gone);
    for member in &crew.members[2..] {
        for order in &member.seen {
            let Order::Copy { from, chunk, .. } = order else { continue };
            assert_eq!(from[0].donor, crew.members[1].id(), "the only one that has it");
            assert!(member.holds.contains(chunk));
        }
    }
    assert_eq!(crew.members[1].made(), 0, "no second copy where one is");

    // Back again, one copy is too many; never fewer than two are left.
    crew.members[0].asleep = false;
    let names: Vec<_> = crew.members[0].holds.iter().copied().collect();
    crew.members[0].donor.life = potluck_core::ids::Incarnation(2);
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
async fn a_lost_chunk_of_a_group_is_rebuilt_from_the_others() {
    let mut crew = Crew::new(4).await;
    let names = crew.coded("pot://lab/a", &[1, 2], "2+1").await;
    crew.members[1].asleep = true;
    crew.until("rebuilt", async |crew: &Crew| {
        (crew.repair().await.made == 1 && crew.tolerates(1).await.is_some()).then_some(())
    })
    .await;
    let orders = &crew.members[3].seen;
    let rebuilt = orders.iter().find_map(|order| match order {
        Order::Rebuild { chunk, position, data, shards, .. } => {
            Some((chunk, position, data, shards))
        }
        _ => None,
    });
    let (name, position, data, shards) = rebuilt.expect("an order");
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
    let report = crew.user.call(&fsck).await.expect("a report");
    assert_eq!(report.files, 2);
    assert_eq!(report.found.len(), 1);
    assert_eq!(report.found[0].path, "pot://lab/dir/lost/2");
    assert!(report.found[0].may_return, "its donor is merely away");
    assert!(crew.status().await.alarms.iter().any(|alarm| alarm.contains("cannot be repaired")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_when_a_switch_dies_repair_waits_for_an_admin() {
    let mut crew = Crew::new(6).await;
    crew.copies("pot://lab/a", &[1], &[0, 2]).await;
    crew.copies("pot://lab/b", &[2], &[1, 3]).await;
    (crew.members[0].asleep, crew.members[1].asleep) = (true, true);
    crew.until("a pause", async |crew: &Crew| crew.repair().await.paused).await;
    crew.work(Duration::from_millis(1500)).await;
    assert_eq!(crew.made(), 0);
    assert!(crew.status().await.alarms.iter().any(|alarm| alarm.contains("repair rests")));
    let go_on = RepairControl { action: RepairAction::Resume };
    crew.lab.admin().call(&go_on).await.expect("resumed");
    crew.until("repaired", async |crew: &Crew| crew.tolerates(1).await).await;
    assert_eq!(crew.made(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_pauses_repair_over_a_restart_and_an_announced_absence_is_waited_for() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    let away = Away { donor: None, for_ms: 3_600_000 };
    crew.members[0].donor.caller.call(&away).await.expect("announced");
    crew.members[0].asleep = true;
    crew.work(Duration::from_millis(2500)).await;
    assert_eq!(crew.status().await.donors[0].state, DonorState::Suspect);
    assert_eq!(crew.made(), 0);

    let control = |action| RepairControl { action };
    crew.lab.admin().call(&control(RepairAction::Pause)).await.expect("paused");
    let back = Away { donor: Some(crew.members[0].id()), for_ms: 0 };
    crew.lab.admin().call(&back).await.expect("ended");
    crew.lab.stop().await;
    crew.lab.start().await;
    crew.user = crew.lab.user().await;
    for member in &mut crew.members {
        member.donor.caller = crew.lab.caller(&member.donor.identity);
        if !member.asleep {
            let names: Vec<_> = member.holds.iter().copied().collect();
            member.donor.report(&names).await;
        }
    }
    crew.until("gone", async |crew: &Crew| {
        (crew.status().await.donors[0].state == DonorState::Gone).then_some(())
    })
    .await;
    crew.work(Duration::from_millis(1500)).await;
    assert_eq!(crew.made(), 0, "still paused");
    crew.lab.admin().call(&control(RepairAction::Resume)).await.expect("resumed");
    crew.until("repaired", async |crew: &Crew| crew.tolerates(1).await).await;
    assert_eq!(crew.made(), 1);
}
