//! Orders to delete and to verify chunks, and what the manager is told.

use crate::manager::{Manager, State};
use crate::pool::{Client, GIB, Place, Pool, content};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{Epoch, Incarnation};
use potluck_core::policy::AckLevel;
use potluck_donor::disk::SystemDisk;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::{ChunkOrders, Heartbeat, Holding, Tombstone};
use potluck_wire::packed::Packed;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

async fn put(client: &mut Client, number: u64, len: usize) -> ChunkName {
    let bytes = content(number, len);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    ChunkName::of(&bytes)
}

fn incarnation(manager: &Manager) -> Incarnation {
    manager.state().registers.last().expect("registered").incarnation
}

fn write_sequence(manager: &Manager) -> u64 {
    manager.state().heartbeats.last().expect("a heartbeat").write_sequence
}

fn delete(delete: impl Into<Vec<Tombstone>>) -> ChunkOrders {
    ChunkOrders { delete: delete.into(), ..ChunkOrders::default() }
}

fn verify(chunks: impl Into<Vec<ChunkName>>) -> ChunkOrders {
    ChunkOrders { verify: Packed(chunks.into()), ..ChunkOrders::default() }
}

/// Gives orders until the donor has said what came of them.
async fn order_until(manager: &Manager, orders: ChunkOrders, said: impl Fn(&Heard) -> bool) {
    manager.state().chunk_orders = orders;
    let look = |state: &State| said(&Heard::of(state)).then_some(());
    manager.until("what came of the orders", look).await;
    manager.state().chunk_orders = ChunkOrders::default();
}

/// The chunks of which all heartbeats so far told something.
struct Heard {
    removed: BTreeSet<ChunkName>,
    spoiled: BTreeSet<ChunkName>,
    sound: BTreeSet<ChunkName>,
}

impl Heard {
    fn of(state: &State) -> Self {
        let all = |what: fn(&Heartbeat) -> &Vec<ChunkName>| {
            state.heartbeats.iter().flat_map(|heartbeat| what(heartbeat).clone()).collect()
        };
        Self {
            removed: all(|heartbeat| &heartbeat.removed.0),
            spoiled: all(|heartbeat| &heartbeat.spoiled.0),
            sound: all(|heartbeat| &heartbeat.sound.0),
        }
    }
}

/// Gives orders, and waits until the donor must have heard and obeyed or refused them.
async fn order(manager: &Manager, orders: ChunkOrders) {
    manager.state().chunk_orders = orders;
    manager.heartbeats(3).await;
    manager.state().chunk_orders = ChunkOrders::default();
}

#[tokio::test]
async fn a_tombstone_deletes_only_chunks_that_nobody_put_since() {
    let pool = Pool::start().await;
    let manager = &pool.manager;
    let mut client = pool.client().await;
    let (old, again) = (put(&mut client, 1, 5000).await, put(&mut client, 2, 5000).await);
    manager.heartbeats(2).await;
    let counted = write_sequence(manager);
    assert_eq!(put(&mut client, 2, 5000).await, again);
    let new = put(&mut client, 3, 5000).await;

    let tombstone = |chunk, incarnation| Tombstone { chunk, incarnation, write_sequence: counted };
    let mine = incarnation(manager);
    let other = Incarnation(mine.0 ^ 1);
    order(manager, delete([tombstone(old, other)])).await;
    assert!(client.get(&old).await.is_some(), "said to another incarnation");

    let absent = ChunkName::of(b"absent");
    let all = [old, again, new, absent].map(|chunk| tombstone(chunk, mine));
    let expected = BTreeSet::from([old, absent]);
    order_until(manager, delete(all), |heard| heard.removed.is_superset(&expected)).await;
    assert_eq!(client.get(&old).await, None);
    assert!(client.get(&again).await.is_some(), "it was put again");
    assert!(client.get(&new).await.is_some(), "it was put later");
    assert_eq!(Heard::of(&manager.state()).removed, expected);
    manager.heartbeats(1).await; // the disk is looked at before changes are collected
    let used = manager.state().heartbeats.last().expect("one").disk.lent_used;
    assert_eq!(used, 4096 + 2 * 8192, "its space is given back");
}

#[tokio::test]
async fn older_epoch_is_refused_after_a_restart() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let name = put(&mut client, 1, 5000).await;
    let tombstone = |manager: &Manager| Tombstone {
        chunk: name,
        incarnation: incarnation(manager),
        write_sequence: u64::MAX,
    };
    pool.manager.state().epoch = Epoch(4);
    order(&pool.manager, delete([tombstone(&pool.manager)])).await;
    assert!(client.get(&name).await.is_some());

    let (place, manager) = pool.stop().await;
    let pool = Pool::under(manager, place, GIB, Arc::new(SystemDisk)).await;
    let mut client = pool.client().await;
    order(&pool.manager, delete([tombstone(&pool.manager)])).await;
    assert!(client.get(&name).await.is_some());
    assert!(Heard::of(&pool.manager.state()).removed.is_empty());

    pool.manager.state().epoch = Epoch(6);
    let orders = delete([tombstone(&pool.manager)]);
    order_until(&pool.manager, orders, |heard| heard.removed.contains(&name)).await;
    assert_eq!(client.get(&name).await, None, "a newer manager may");
}

#[tokio::test]
async fn heard_terms_are_reported_after_a_restart_d5() {
    let pool = Pool::start().await;
    (pool.manager.state().start, pool.manager.state().changes) = (77, 400);
    pool.manager.heartbeats(3).await;
    pool.manager.state().changes = 500;
    pool.manager.heartbeats(2).await;
    let said = |state: &State, after: usize| {
        let said = state.registers.get(after..)?.last()?;
        let (epoch, start) = said.heard;
        let manager = State { epoch, start, changes: said.heard_changes, ..State::default() };
        assert_eq!(said.heard_proof, manager.proof(), "with its proof of just that");
        Some((said.heard.0, said.heard.1, said.heard_changes))
    };
    // Another manager answers heartbeats before the donor registered with it, and has fewer
    // changes.
    let told = {
        let mut state = pool.manager.state();
        (state.epoch, state.start, state.changes) = (Epoch(6), 78, 450);
        state.registers.len()
    };
    let heard = pool.manager.until("a registration", |state| said(state, told)).await;
    assert_eq!(heard, (Epoch(5), 77, 500));
    pool.manager.heartbeats(2).await;

    let told = pool.manager.state().registers.len();
    let (place, manager) = pool.stop().await;
    let pool = Pool::under(manager, place, GIB, Arc::new(SystemDisk)).await;
    let heard = pool.manager.until("a registration", |state| said(state, told)).await;
    assert_eq!(heard, (Epoch(6), 78, 450));

    // The heartbeats heard since the last note are noted at the end.
    pool.manager.heartbeats(1).await;
    pool.manager.state().changes = 460;
    pool.manager.heartbeats(2).await;
    let told = pool.manager.state().registers.len();
    let (place, manager) = pool.stop().await;
    let pool = Pool::under(manager, place, GIB, Arc::new(SystemDisk)).await;
    let heard = pool.manager.until("a registration", |state| said(state, told)).await;
    assert_eq!(heard, (Epoch(6), 78, 460));
}

/// A note that a disk spoiled must not make a donor disobey its manager for ever.
#[tokio::test]
async fn unproven_manager_is_forgotten_for_the_proven_one() {
    let pool = Pool::start().await;
    pool.manager.state().start = 77;
    pool.manager.heartbeats(2).await;
    let told = {
        let mut state = pool.manager.state();
        (state.epoch, state.start, state.unproven) = (Epoch(3), 78, true);
        state.registers.len()
    };
    let registered = |state: &State| Some(state.registers.get(told..)?.last()?.heard);
    assert_eq!(pool.manager.until("a registration", registered).await, (Epoch(5), 77));
    pool.manager.heartbeats(2).await;
    let told = {
        let mut state = pool.manager.state();
        (state.unproven, state.forgetful) = (false, true);
        state.registers.len()
    };
    let registered = |state: &State| Some(state.registers.get(told..)?.last()?.heard);
    assert_eq!(pool.manager.until("a registration", registered).await, (Epoch(3), 78));
    let name = put(&mut pool.client().await, 1, 5000).await;
    order_until(&pool.manager, verify([name]), |heard| heard.sound.contains(&name)).await;
}

#[tokio::test]
async fn a_flipped_bit_is_found_reported_and_quarantined() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let (spoiled, sound) = (put(&mut client, 1, 300_000).await, put(&mut client, 2, 300_000).await);
    let path = pool.place.chunk(&spoiled);
    let mut bytes = fs::read(&path).expect("stored");
    bytes[123_456] ^= 4;
    fs::write(&path, &bytes).expect("spoil");
    let absent = ChunkName::of(b"absent");
    order_until(&pool.manager, verify([spoiled, sound, absent]), |heard| {
        let found = heard.spoiled.contains(&spoiled) && heard.sound.contains(&sound);
        found && heard.removed.contains(&absent)
    })
    .await;
    let heard = Heard::of(&pool.manager.state());
    assert_eq!((heard.spoiled, heard.sound), (BTreeSet::from([spoiled]), BTreeSet::from([sound])));
    assert_eq!(client.get(&spoiled).await, None, "not served any more");
    assert!(client.get(&sound).await.is_some());
    let quarantined = pool.place.files("quarantine");
    assert_eq!(quarantined.into_values().collect::<Vec<_>>(), [bytes.len() as u64]);
    // A good copy can be stored again.
    assert_eq!(put(&mut client, 1, 300_000).await, spoiled);
    assert!(client.get(&spoiled).await.is_some());
}

#[tokio::test]
async fn the_inventory_lists_exactly_what_is_stored() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let mut expected = Vec::new();
    for number in 0..300 {
        let len = 100 + number as usize;
        let name = put(&mut client, number, len).await;
        expected.push(Holding { name, len: len as u32 });
    }
    expected.sort_by_key(|holding| holding.name);
    let (place, manager) = pool.stop().await;
    fs::write(place.lent().join("chunks/00/odd"), b"not a chunk").expect("write");
    let pool = Pool::under(manager, place, GIB, Arc::new(SystemDisk)).await;
    let listed = pool.manager.until("an inventory", |state| {
        state.inventory().filter(|_| state.pages[0].incarnation == state.registers[1].incarnation)
    });
    assert_eq!(listed.await, expected);
    assert_eq!(pool.place.files("quarantine").len(), 1);
}

#[tokio::test]
async fn a_manager_that_forgot_everything_is_told_everything() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let name = put(&mut client, 1, 5000).await;
    pool.manager.heartbeats(2).await;
    {
        let mut state = pool.manager.state();
        state.epoch = Epoch(6);
        state.pages.clear();
        state.forgetful = true;
    }
    let listed = pool.manager.until("an inventory", |state| state.inventory()).await;
    assert_eq!(listed, [Holding { name, len: 5000 }]);
    assert_eq!(pool.manager.state().registers.len(), 2);
    pool.still_serves().await;
}

#[tokio::test]
async fn changes_are_repeated_until_an_answer_comes() {
    let pool = Pool::start().await;
    pool.manager.hang_up();
    let mut client = pool.client().await;
    let name = put(&mut client, 1, 5000).await;
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    pool.manager.state().away = false;
    pool.manager
        .until("what was stored meanwhile", |state| {
            let added = state.heartbeats.iter().flat_map(|heartbeat| &heartbeat.added.0);
            added.map(|arrived| arrived.holding.name).find(|added| *added == name)
        })
        .await;
}

#[tokio::test]
async fn heartbeats_come_each_second_and_say_how_the_machine_is() {
    let pool = Pool::at(Place::new(), 50 << 20, Arc::new(SystemDisk)).await;
    pool.manager.heartbeats(1).await;
    let clock = potluck_core::clock::SystemClock::default();
    pool.manager.heartbeats(3).await;
    let took = potluck_core::clock::Clock::now(&clock).as_secs_f64();
    assert!((2.0..4.5).contains(&took), "{took}");
    let state = pool.manager.state();
    let last = state.heartbeats.last().expect("one");
    assert_eq!(last.room, (50 << 20) - 4096, "all but the marker's block");
    assert!(last.load.memory_total > 0 && last.disk.total > 0);
}

#[tokio::test]
async fn full_give_back_removes_quarantined_chunks() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let spoiled = put(&mut client, 1, 300_000).await;
    let path = pool.place.chunk(&spoiled);
    fs::write(&path, fs::read(&path).expect("stored").split_off(1)).expect("spoil");
    order_until(&pool.manager, verify([spoiled]), |heard| heard.spoiled.contains(&spoiled)).await;
    assert_eq!(pool.place.files("quarantine").len(), 1);
    pool.manager.state().leaving = true;
    let empty = |state: &State| {
        let last = state.heartbeats.last().expect("one");
        (last.disk.lent_used == 4096).then_some(())
    };
    pool.manager.until("of an empty store", empty).await;
    assert!(pool.place.files("quarantine").is_empty());
}
