//! Tests of complaints of members about donors' copies, and of what comes of them.

use super::{at, chunk, pool, register, register_in};
use crate::{Inquiring, Pool};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::control::{Holding, TaskFault, TaskOutcome};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

const ADA: MemberId = MemberId(1001);
const BOB: MemberId = MemberId(1002);
const HOUR: Duration = Duration::from_secs(3600);

/// Makes a pool of so many donors about which nobody has complained.
fn donors(count: u32) -> Pool {
    let mut pool = pool();
    for donor in 1..=count {
        register(&mut pool, donor, 1, 0.0);
    }
    pool
}

/// Has all donors heard just now, with inventories that were compared.
fn heard(pool: &mut Pool, now: Tick) {
    let limits = pool.limits;
    for donor in pool.donors.all.values_mut() {
        donor.hear(now, &limits);
        if let Some(registration) = &mut donor.registration {
            registration.compared = true;
        }
    }
}

fn copy(n: u64) -> Holding {
    Holding { name: chunk(n), len: 1000 }
}

fn got(right: bool) -> TaskOutcome {
    match right {
        true => TaskOutcome::Done,
        false => TaskOutcome::Failed { why: TaskFault::SourceWrong, donor: Some(DonorId(1)) },
    }
}

/// Gives numbers that look random.
fn draw(state: &Cell<u64>) -> u64 {
    let next = state.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    state.set(next);
    next >> 17
}

/// Has a member complain and the donor call its copy sound; each donor that is asked to fetch the copy says what
/// `says` gives, and so does the manager, as `None`. Returns whether the donor is quarantined then, and how many
/// fetched the copy.
fn complain(
    pool: &mut Pool,
    witness: MemberId,
    suspect: DonorId,
    n: u64,
    now: Tick,
    random: &Cell<u64>,
    says: impl Fn(Option<DonorId>) -> bool,
) -> (bool, usize) {
    heard(pool, now);
    pool.accuse(suspect, copy(n), witness, now);
    pool.denied(suspect, &[chunk(n)]);
    let mut fetched = 0;
    loop {
        let Inquiring { by_donors, by_manager, lies } = pool.inquire(now, || draw(random));
        for (liar, why) in lies {
            pool.quarantine(liar, Some(why));
        }
        fetched += by_donors.len() + by_manager.len();
        for (by, from, copy) in &by_donors {
            assert!(pool.inquired(*from, &copy.name, *by, &got(says(Some(*by)))));
        }
        for (from, copy) in &by_manager {
            pool.looked(*from, &copy.name, Some(says(None)));
        }
        if by_donors.is_empty() && by_manager.is_empty() && pool.complaints.inquiries.is_empty() {
            break;
        }
        pool.told_more(suspect);
    }
    (pool.is_quarantined(suspect), fetched)
}

#[test]
fn two_members_who_lie_cannot_have_a_good_donor_quarantined_however_large_the_pool() {
    let random = Cell::new(7);
    for count in 3..=10 {
        let mut pool = donors(count);
        let liars = [DonorId(2), DonorId(3)];
        let says = |by: Option<DonorId>| by.is_none_or(|by| !liars.contains(&by));
        let witnesses = liars.map(|liar| MemberId(liar.0)).into_iter().chain([ADA, BOB]);
        for (day, witness) in (0..50_u32).flat_map(|day| witnesses.clone().map(move |by| (day, by)))
        {
            let now = at(f64::from(day) * 86_400.0 + 10.0);
            pool.pass_time(now);
            let n = u64::from(day);
            let (lies, _) = complain(&mut pool, witness, DonorId(1), n, now, &random, says);
            assert!(!lies, "{count} donors, day {day}, {witness}");
        }
    }
}

#[test]
fn a_donor_that_sends_wrong_bytes_of_what_it_calls_sound_is_quarantined_on_one_complaint() {
    let random = Cell::new(7);
    for count in 1..=10 {
        for witness in [ADA, MemberId(2)] {
            let mut pool = donors(count.max(if witness == ADA { 1 } else { 2 }));
            let now = at(10.0);
            let (lies, fetched) =
                complain(&mut pool, witness, DonorId(1), 1, now, &random, |_| false);
            assert!(lies, "{count} donors, {witness}");
            assert!(fetched <= 4, "{count} donors, {witness}: {fetched}");
        }
    }
}

#[test]
fn a_copy_is_fetched_by_donors_that_do_not_fail_or_lie_together() {
    let random = Cell::new(7);
    let mut pool = pool();
    register(&mut pool, 1, 1, 0.0);
    for donor in 2..=6 {
        register_in(&mut pool, donor, 1, 0.0, Some("attic"));
    }
    register_in(&mut pool, 7, 1, 0.0, Some("cellar"));
    pool.add_donor(DonorId(8), "a second directory of the suspect's machine", Some(DonorId(1)));
    let now = at(1.0);
    heard(&mut pool, now);
    pool.accuse(DonorId(1), copy(1), ADA, now);
    pool.denied(DonorId(1), &[chunk(1)]);
    let due = pool.inquire(now, || draw(&random));
    let rooms: BTreeSet<bool> = due.by_donors.iter().map(|(by, ..)| *by == DonorId(7)).collect();
    assert_eq!((due.by_donors.len(), rooms.len(), due.by_manager.len()), (2, 2, 0), "{due:?}");
    let by = |attic: bool| due.by_donors.iter().find(|(by, ..)| (*by != DonorId(7)) == attic);
    for attic in [true, false] {
        let (by, ..) = by(attic).expect("one of each room");
        assert!(pool.inquired(DonorId(1), &chunk(1), *by, &got(false)));
    }
    let due = pool.inquire(now, || draw(&random));
    assert_eq!((due.by_donors.len(), due.by_manager.len()), (0, 1), "only the manager is left");
    pool.looked(DonorId(1), &chunk(1), Some(true));
    (0..3).for_each(|_| pool.told_more(DonorId(1)));
    assert_eq!(pool.inquire(now, || 1), Inquiring::default(), "two rooms may be one liar's");
    assert!(pool.complaints.inquiries.is_empty(), "it is over");
}

#[test]
fn however_often_a_member_complains_about_a_donor_others_look_once_in_a_while() {
    let (mut pool, random) = (donors(6), Cell::new(7));
    let mut fetched = 0;
    for n in 0..600 {
        let now = at(10.0) + Duration::from_secs(n * 10);
        pool.pass_time(now);
        let (_, more) = complain(&mut pool, ADA, DonorId(1), n, now, &random, |_| true);
        fetched += more;
    }
    assert_eq!(fetched, 6, "three donors an hour");
}

/// Has Ada complain about a copy that donor 1 calls sound; returns the three donors that are asked to fetch it.
fn denied(pool: &mut Pool, n: u64, now: Tick) -> Vec<DonorId> {
    heard(pool, now);
    pool.accuse(DonorId(1), copy(n), ADA, now);
    pool.denied(DonorId(1), &[chunk(n)]);
    let asked: Vec<_> = pool.inquire(now, || 1).by_donors.into_iter().map(|(by, ..)| by).collect();
    assert_eq!(asked.len(), 3);
    asked
}

fn missing() -> TaskOutcome {
    TaskOutcome::Failed { why: TaskFault::SourceMissing, donor: Some(DonorId(1)) }
}

#[test]
fn a_donor_that_deletes_or_quarantines_a_copy_while_others_fetch_it_is_no_liar() {
    let mut pool = donors(6);
    // The donor tells of the deletion before the others answer, or in the heartbeat after.
    for (n, after) in [(1, false), (2, true)] {
        let now = at(10.0) + HOUR * n as u32 * 2;
        let asked = denied(&mut pool, n, now);
        if !after {
            pool.admitted(DonorId(1), [chunk(n)].iter());
        }
        for by in asked {
            assert_eq!(pool.inquired(DonorId(1), &chunk(n), by, &missing()), after);
        }
        assert!(pool.inquire(now, || 1).lies.is_empty());
        pool.told_more(DonorId(1));
        assert!(pool.inquire(now, || 1).lies.is_empty());
        pool.admitted(DonorId(1), [chunk(n)].iter());
        (0..3).for_each(|_| pool.told_more(DonorId(1)));
        assert_eq!(pool.inquire(now, || 1), Inquiring::default());
    }
}

#[test]
fn a_donor_that_threw_away_what_it_calls_sound_is_quarantined() {
    let mut pool = donors(6);
    let now = at(10.0);
    for by in denied(&mut pool, 1, now) {
        assert!(pool.inquired(DonorId(1), &chunk(1), by, &missing()));
    }
    (0..2).for_each(|_| pool.told_more(DonorId(1)));
    let lies = pool.inquire(now, || 1).lies;
    assert!(lies.len() == 1 && lies[0].1.contains("got other bytes or none"), "{lies:?}");
}

#[test]
fn a_donor_that_never_looks_at_what_members_complain_about_is_looked_into_all_the_same() {
    let mut pool = donors(6);
    let now = at(10.0);
    heard(&mut pool, now);
    pool.accuse(DonorId(1), copy(1), ADA, now);
    let pass = |pool: &mut Pool, minutes: u64, there: bool| {
        let now = now + Duration::from_secs(60 * minutes);
        if there {
            heard(pool, now);
        }
        pool.pass_time(now);
    };
    // The machine sleeps for two hours, and is busy for most of one.
    (0..120).step_by(10).for_each(|minutes| pass(&mut pool, minutes, minutes == 0));
    for minutes in (120..170).step_by(10) {
        pass(&mut pool, minutes, true);
        assert!(pool.is_asked_about(DonorId(1), &chunk(1)), "it is reminded");
        assert_eq!(pool.inquire(now, || 1), Inquiring::default(), "it may be busy: {minutes}");
    }
    let later = now + Duration::from_secs(60 * 170);
    pass(&mut pool, 170, true);
    for (by, ..) in pool.inquire(later, || 1).by_donors {
        assert!(pool.inquired(DonorId(1), &chunk(1), by, &got(false)));
    }
    (0..2).for_each(|_| pool.told_more(DonorId(1)));
    assert_eq!(pool.inquire(later, || 1).lies.len(), 1);
}

#[test]
fn what_a_donor_denies_while_others_fetch_another_copy_is_looked_into_afterwards() {
    let mut pool = donors(6);
    let now = at(10.0);
    heard(&mut pool, now);
    for (n, witness) in [(1, ADA), (2, BOB), (3, MemberId(1003))] {
        pool.accuse(DonorId(1), copy(n), witness, now);
    }
    pool.denied(DonorId(1), &[chunk(1), chunk(2)]);
    pool.denied(DonorId(1), &[chunk(3)]);
    let mut later = now;
    for n in 1..=3 {
        let asked = pool.inquire(later, || 1).by_donors;
        assert_eq!(asked.len(), 3, "chunk {n}");
        for (by, ..) in asked {
            assert!(pool.inquired(DonorId(1), &chunk(n), by, &got(true)));
        }
        (0..2).for_each(|_| pool.told_more(DonorId(1)));
        assert!(pool.inquire(later, || 1).lies.is_empty());
        later += Duration::from_secs(600);
        heard(&mut pool, later);
        (1..=3).for_each(|n| pool.chunk_orders.answered(DonorId(1), &chunk(n)));
        pool.pass_time(later);
        for n in (1..=3).filter(|n| pool.is_asked_about(DonorId(1), &chunk(*n))).collect::<Vec<_>>()
        {
            pool.denied(DonorId(1), &[chunk(n)]);
        }
    }
    assert!(pool.complaints.inquiries.is_empty());
    assert!(pool.complaints.open.get(&DonorId(1)).is_none_or(|open| open.is_empty()));
}

#[test]
fn a_doubt_lasts_until_the_donor_has_looked_and_not_for_ever() {
    let mut pool = donors(2);
    let now = at(10.0);
    heard(&mut pool, now);
    let report = |pool: &mut Pool, n, now| {
        let casts = pool.casts_doubt(ADA, DonorId(1), chunk(n), now);
        pool.accuse(DonorId(1), copy(n), ADA, now);
        casts
    };
    assert!(!pool.is_in_doubt(now));
    assert!(report(&mut pool, 1, now));
    assert!(pool.is_in_doubt(at(15.0)));
    pool.chunk_orders.answered(DonorId(1), &chunk(1));
    assert!(!pool.is_in_doubt(at(15.0)), "it has looked");
    assert!(!report(&mut pool, 2, at(16.0)), "a member does so once in a while");
    assert!(!pool.is_in_doubt(at(16.0)));
    assert!(report(&mut pool, 3, at(80.0)));
    assert!(pool.is_in_doubt(at(89.0)));
    assert!(!pool.is_in_doubt(at(91.0)), "whoever lies about a busy machine gains seconds");
}

#[test]
fn who_does_not_reach_a_donor_says_nothing_about_it_and_others_are_asked() {
    let mut pool = donors(9);
    let now = at(10.0);
    let away = TaskOutcome::Failed { why: TaskFault::SourceAway, donor: Some(DonorId(1)) };
    let asked = denied(&mut pool, 1, now);
    assert!(!pool.inquired(DonorId(1), &chunk(2), asked[0], &got(false)), "of another chunk");
    assert!(!pool.inquired(DonorId(1), &chunk(1), DonorId(77), &got(false)), "nobody asked it");
    for by in &asked {
        assert!(pool.inquired(DonorId(1), &chunk(1), *by, &away));
        assert!(!pool.inquired(DonorId(1), &chunk(1), *by, &got(false)), "it has answered");
    }
    let others = pool.inquire(now, || 1).by_donors;
    assert!(others.len() == 3 && !others.iter().any(|(by, ..)| asked.contains(by)), "{others:?}");
}

#[test]
fn who_complains_about_many_whose_copies_others_find_right_is_unreliable_for_a_day() {
    let (mut pool, random) = (donors(8), Cell::new(7));
    let now = at(10.0);
    let liar = MemberId(2);
    for (suspect, n) in [(1, 1), (1, 2), (3, 3), (4, 4)] {
        assert!(!pool.is_unreliable(liar, now) && pool.hears(liar, now));
        let later = now + HOUR * n as u32;
        complain(&mut pool, liar, DonorId(suspect), n, later, &random, |by| by != Some(DonorId(2)));
    }
    let now = now + HOUR * 5;
    assert_eq!(pool.unreliable(now), [liar]);
    assert!(!pool.hears(liar, now), "what it reports is not heard");
    heard(&mut pool, now);
    assert!(!pool.testers(DonorId(1), now).contains(&DonorId(2)), "and nobody asks it");
    let (_, fetched) = complain(&mut pool, liar, DonorId(5), 9, now, &random, |_| false);
    assert_eq!((fetched, pool.is_quarantined(DonorId(5))), (0, false));
    let later = now + Duration::from_secs(86_400);
    assert!(pool.unreliable(later).is_empty() && pool.hears(liar, later));

    // A donor that sends wrong bytes to one and right ones to others makes nobody suspect alone.
    for n in 10..20 {
        let at = later + HOUR * n as u32;
        complain(&mut pool, ADA, DonorId(6), n, at, &random, |_| true);
        assert!(!pool.is_unreliable(ADA, at));
    }
}

#[test]
fn a_hundred_honest_donors_with_rare_bit_flips_quarantine_none_of_them_in_half_a_year() {
    let (mut pool, random) = (donors(100), Cell::new(11));
    let (mut complaints, mut unreliable) = (0, BTreeSet::new());
    for hour in 0..24 * 182 {
        let now = at(10.0) + HOUR * hour;
        pool.pass_time(now);
        for donor in 1..=100_u32 {
            // Each reads something wrong once in two weeks: far more than memory that is in order.
            if !draw(&random).is_multiple_of(24 * 14) {
                continue;
            }
            complaints += 1;
            let about = DonorId((donor + draw(&random) as u32 % 99) % 100 + 1);
            let witness = MemberId(donor);
            let flips = |_| !draw(&random).is_multiple_of(1000);
            let n = u64::from(hour);
            let (lies, _) = complain(&mut pool, witness, about, n, now, &random, flips);
            assert!(!lies, "hour {hour}: {donor} about {about}");
        }
        unreliable.extend(pool.unreliable(now));
    }
    assert!(complaints > 1000, "{complaints}");
    assert!(unreliable.len() <= 5, "hardly ever three in a day: {unreliable:?}");
    assert!(pool.complaints.refuted.len() <= 20, "{}", pool.complaints.refuted.len());
    pool.pass_time(at(10.0) + HOUR * 24 * 183);
    let remembered = &pool.complaints;
    assert!(remembered.refuted.is_empty() && remembered.counted.is_empty());
    assert!(remembered.open.is_empty() && remembered.inquiries.is_empty());
}
