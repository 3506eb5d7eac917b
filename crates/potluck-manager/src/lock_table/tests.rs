use super::*;

const ADA: HolderKey = (MemberId(1), LockHolderId([1; 16]));
const BOB: HolderKey = (MemberId(2), LockHolderId([2; 16]));
const EVE: HolderKey = (MemberId(3), LockHolderId([3; 16]));
const T: Tick = Tick::from_secs(100);

fn at(path: &str, level: LockLevel) -> LockAuthority {
    LockAuthority { path: path.parse().expect("a path"), level }
}

fn take(table: &mut LockTable, key: HolderKey, path: &str, level: LockLevel, now: Tick) -> Taking {
    let is_first = !table.holders.contains_key(&key);
    table.take(key, is_first, &at(path, level), true, now).expect("not too many")
}

use LockLevel::{Exclusive, Shared};

#[test]
fn lock_authorities_are_shared_or_exclusive() {
    let mut table = LockTable::default();
    let file = "pot://lab/db";
    assert!(matches!(take(&mut table, ADA, file, Shared, T), Taking::Granted));
    assert!(matches!(take(&mut table, BOB, file, Shared, T), Taking::Granted));
    assert!(matches!(take(&mut table, EVE, file, Exclusive, T), Taking::Waits(_)));
    assert_eq!(table.wanted(ADA), [at(file, Exclusive)]);
    table.refuse(ADA, &at(file, Shared).path);
    assert!(matches!(take(&mut table, EVE, file, Exclusive, T), Taking::Waits(_)));
    table.refuse(BOB, &at(file, Shared).path);
    assert!(matches!(take(&mut table, EVE, file, Exclusive, T), Taking::Busy(_)));
    for key in [ADA, BOB] {
        table.give(key, &at(file, Shared).path, None);
    }
    assert!(matches!(take(&mut table, EVE, file, Exclusive, T), Taking::Granted));
    assert!(matches!(take(&mut table, ADA, file, Shared, T), Taking::Waits(_)));
    table.give(EVE, &at(file, Shared).path, Some(Shared));
    assert!(matches!(take(&mut table, ADA, file, Shared, T), Taking::Granted));
}

#[test]
fn lock_waiters_are_served_in_order_and_expire() {
    let mut table = LockTable::default();
    let file = "pot://lab/db";
    let path = at(file, Shared).path;
    assert!(matches!(take(&mut table, ADA, file, Exclusive, T), Taking::Granted));
    assert!(matches!(take(&mut table, BOB, file, Exclusive, T), Taking::Waits(_)));
    table.give(ADA, &path, None);
    assert!(matches!(take(&mut table, ADA, file, Exclusive, T), Taking::Waits(_)));
    assert!(matches!(take(&mut table, BOB, file, Exclusive, T), Taking::Granted));
    table.give(BOB, &path, None);
    assert!(matches!(take(&mut table, BOB, file, Shared, T), Taking::Waits(_)), "behind Ada");
    let later = T + PLACE_KEPT;
    table.hear(ADA, later);
    assert!(matches!(take(&mut table, BOB, file, Shared, later), Taking::Granted));
}

#[test]
fn silent_lock_holder_loses_its_locks() {
    let mut table = LockTable::default();
    let file = "pot://lab/db";
    assert!(matches!(take(&mut table, ADA, file, Exclusive, T), Taking::Granted));
    let before = T + LOCK_LEASE - Duration::from_millis(1);
    assert!(matches!(take(&mut table, BOB, file, Shared, before), Taking::Waits(_)));
    let after = T + LOCK_LEASE;
    assert!(matches!(take(&mut table, BOB, file, Shared, after), Taking::Granted));
    assert!(table.hear(ADA, after).is_none(), "it has to say what it had");
    let taken = table.take(ADA, false, &at("pot://lab/other", Shared), true, after);
    assert!(matches!(taken, Ok(Taking::Unknown)), "and to hear that it lost it");
    let held = vec![at(file, Exclusive)];
    assert_eq!(table.reclaim(ADA, held, false, after), Ok(vec![at(file, Shared).path]));
}

#[test]
fn locks_are_reclaimed_once_after_a_restart() {
    let mut table = LockTable::default();
    let file = "pot://lab/db";
    let granted = table.take(BOB, true, &at(file, Shared), false, T).expect("not too many");
    assert!(matches!(granted, Taking::Waits(_)));
    assert_eq!(table.reclaim(ADA, vec![at(file, Exclusive)], true, T), Ok(vec![]));
    let second = table.reclaim(EVE, vec![at(file, Shared)], true, T);
    assert_eq!(second, Ok(vec![at(file, Shared).path]), "no two have it");
    assert!(matches!(take(&mut table, BOB, file, Shared, T), Taking::Waits(_)));
    table.give(ADA, &at(file, Shared).path, None);
    assert!(matches!(take(&mut table, BOB, file, Shared, T), Taking::Granted));
}

#[test]
fn locks_per_member_are_bounded_and_released_entirely() {
    let mut table = LockTable::default();
    for number in 0..HOLDERS_OF_MEMBER as u8 {
        let key = (MemberId(1), LockHolderId([number; 16]));
        assert!(matches!(take(&mut table, key, "pot://lab/f", Shared, T), Taking::Granted));
    }
    let further = (MemberId(1), LockHolderId([200; 16]));
    let refused = table.take(further, true, &at("pot://lab/f", Shared), true, T);
    assert_eq!(refused.expect_err("too many").code, code::TOO_MANY_LOCKS);
    assert!(matches!(take(&mut table, BOB, "pot://lab/f", Shared, T), Taking::Granted));
    let later = T + LOCK_LEASE;
    assert!(matches!(take(&mut table, EVE, "pot://lab/f", Exclusive, later), Taking::Granted));
    table.give(EVE, &at("pot://lab/f", Shared).path, None);
    assert!(table.files.is_empty() && table.counts.is_empty());
    for number in 0..LOCKED_OF_MEMBER {
        let path = format!("pot://lab/{number}");
        assert!(matches!(take(&mut table, EVE, &path, Shared, later), Taking::Granted));
    }
    let held: Vec<_> =
        table.holders[&EVE].held.iter().map(|path| at(&path.to_string(), Shared)).collect();
    let lost = LockTable::default().reclaim(EVE, held, true, T).expect("few holders");
    assert_eq!(lost.len(), 0, "a manager that was started again believes as many");
    let refused = table.take(EVE, false, &at("pot://lab/f", Shared), true, later);
    assert_eq!(refused.map(drop).map_err(|failure| failure.code), Err(code::TOO_MANY_LOCKS.into()));
    assert!(!table.files.contains_key(&at("pot://lab/f", Shared).path), "nothing is left of it");
}

#[test]
fn exclusive_name_has_one_holder() {
    let mut table = LockTable::default();
    let path = at("pot://lab/lock", Shared).path;
    let reserve = |table: &mut LockTable, key: HolderKey, now: Tick| {
        let is_first = !table.holders.contains_key(&key);
        table.reserve(key, is_first, &path, true, now).expect("not too many")
    };
    assert_eq!(reserve(&mut table, ADA, T), NameReserved::Reserved);
    assert_eq!(reserve(&mut table, ADA, T), NameReserved::Reserved, "the call is repeated");
    assert_eq!(reserve(&mut table, BOB, T), NameReserved::Taken);
    table.free(BOB, &path);
    table.published(BOB.0, &path);
    assert_eq!(reserve(&mut table, BOB, T), NameReserved::Taken, "only its holder frees it");
    table.published(ADA.0, &path);
    assert_eq!(reserve(&mut table, BOB, T), NameReserved::Reserved);
    table.free(BOB, &path);
    assert!(table.counts.is_empty() && table.names.is_empty());
    assert_eq!(reserve(&mut table, ADA, T), NameReserved::Reserved);
    let later = T + LOCK_LEASE;
    table.hear(BOB, T + LOCK_LEASE / 2);
    assert_eq!(reserve(&mut table, BOB, later), NameReserved::Reserved);
    let told = table.reserve(ADA, false, &path, true, later).expect("not too many");
    assert_eq!(told, NameReserved::Unknown);

    let mut restarted = LockTable::default();
    let reserved = restarted.reserve(EVE, true, &path, false, T).expect("not too many");
    assert_eq!(reserved, NameReserved::NotYet);
    for (key, lost) in [(ADA, 0), (BOB, 1)] {
        assert_eq!(restarted.reclaim(key, Vec::new(), true, T), Ok(Vec::new()));
        assert_eq!(restarted.reclaim_names(key, vec![path.clone()], true).len(), lost);
    }
    assert_eq!(reserve(&mut restarted, EVE, T), NameReserved::Taken);
}
