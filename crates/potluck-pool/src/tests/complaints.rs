//! Tests of complaints of members about donors' copies, and of what comes of them.

use super::{at, chunk, pool, register};
use crate::{Inquiring, Pool};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::control::Holding;
use std::time::Duration;

const ADA: MemberId = MemberId(1001);
const SUSPECT: DonorId = DonorId(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Makes a pool of two donors about which nobody has complained.
fn donors() -> Pool {
    let mut pool = pool();
    register(&mut pool, 1, 1, 0.0);
    register(&mut pool, 2, 1, 0.0);
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

/// Has a member complain about a copy of the suspect, which calls it sound.
fn deny(pool: &mut Pool, witness: Option<MemberId>, n: u64, now: Tick) {
    heard(pool, now);
    pool.accuse(SUSPECT, copy(n), witness, now);
    pool.chunk_orders.answered(SUSPECT, &chunk(n));
    pool.denied(SUSPECT, &[chunk(n)]);
}

/// Carries the inquiries to their end; the manager gets of each copy what `right` says. Returns how many copies it
/// fetched.
fn look(pool: &mut Pool, now: Tick, mut right: impl FnMut() -> Option<bool>) -> usize {
    let mut fetched = 0;
    loop {
        let Inquiring { looks, lies, .. } = pool.inquire(now);
        for (liar, why) in lies {
            pool.quarantine(liar, Some(why));
        }
        fetched += looks.len();
        for (from, copy) in &looks {
            pool.looked(*from, &copy.name, right(), now);
        }
        if looks.is_empty() && pool.complaints.suspected.is_empty() {
            return fetched;
        }
        pool.told_more(SUSPECT);
    }
}

#[test]
fn a_donor_that_sends_wrong_bytes_of_what_it_calls_sound_is_quarantined_on_one_complaint() {
    for witness in [None, Some(ADA), Some(MemberId(2))] {
        let (mut pool, now) = (donors(), at(10.0));
        deny(&mut pool, witness, 1, now);
        assert_eq!(
            look(&mut pool, now, || Some(false)),
            2,
            "once more, for a bit may have flipped"
        );
        let (of, why) = pool.quarantined().remove(0);
        assert!(of == SUSPECT && why.contains("got other bytes"), "{why}");
    }
}

#[test]
fn members_who_lie_cannot_have_a_good_donor_quarantined_however_many_they_are() {
    let mut pool = donors();
    for day in 0..50 {
        let now = at(10.0) + HOUR * 24 * day;
        pool.pass_time(now);
        for witness in 0..100 {
            deny(&mut pool, Some(MemberId(witness)), u64::from(witness), now);
            look(&mut pool, now, || Some(true));
        }
    }
    assert!(pool.quarantined().is_empty());
}

#[test]
fn a_flipped_bit_or_a_donor_that_is_not_reached_makes_nobody_a_liar() {
    let (mut pool, now) = (donors(), at(10.0));
    let all = [[Some(false), Some(true)], [Some(false), None], [None, None]];
    for (n, got) in (1..).zip(all) {
        deny(&mut pool, None, n, now);
        let mut got = got.into_iter();
        look(&mut pool, now, || got.next().flatten());
        assert!(pool.quarantined().is_empty(), "chunk {n}");
    }
}

#[test]
fn however_often_a_member_complains_about_a_donor_the_manager_looks_once_in_a_while() {
    let (mut pool, mut fetched) = (donors(), 0);
    for n in 0..600 {
        let now = at(10.0) + Duration::from_secs(n * 10);
        pool.pass_time(now);
        deny(&mut pool, Some(ADA), n, now);
        fetched += look(&mut pool, now, || Some(true));
    }
    assert_eq!(fetched, 2, "one an hour");
}

#[test]
fn a_donor_that_deletes_or_quarantines_a_copy_while_it_is_fetched_is_no_liar() {
    // The donor tells of the deletion in either of the heartbeats after the manager found it missing, once or twice.
    for (looks, told_times) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        let (mut pool, now) = (donors(), at(10.0));
        deny(&mut pool, Some(ADA), 1, now);
        for look in 0..looks {
            assert_eq!(pool.inquire(now).looks, [(SUSPECT, copy(1))]);
            pool.looked(SUSPECT, &chunk(1), Some(false), now);
            let told = if look + 1 == looks { told_times } else { 2 };
            (0..told).for_each(|_| pool.told_more(SUSPECT));
        }
        assert_eq!(pool.inquire(now), Inquiring::default(), "the next heartbeat may tell");
        pool.admitted(SUSPECT, [chunk(1)].iter());
        (0..3).for_each(|_| pool.told_more(SUSPECT));
        assert_eq!(pool.inquire(now), Inquiring::default());
    }
}

#[test]
fn a_donor_that_never_looks_at_what_members_complain_about_is_looked_into_all_the_same() {
    let (mut pool, now) = (donors(), at(10.0));
    heard(&mut pool, now);
    pool.accuse(SUSPECT, copy(1), Some(ADA), now);
    for _ in 0..2 {
        assert_eq!(pool.inquire(now).looks, [(SUSPECT, copy(1))]);
        pool.looked(SUSPECT, &chunk(1), Some(false), now);
        (0..2).for_each(|_| pool.told_more(SUSPECT));
    }
    pool.chunk_orders.forget(SUSPECT);
    for second in 2..3600 {
        assert_eq!(pool.inquire(now), Inquiring::default(), "it may be busy: {second}");
        pool.told_more(SUSPECT);
    }
    assert!(pool.is_asked_about(SUSPECT, &chunk(1)), "it was reminded");
    assert_eq!(pool.inquire(now).lies.len(), 1);
}

#[test]
fn while_one_copy_of_a_donor_is_looked_into_a_complaint_about_another_costs_only_the_donor() {
    let (mut pool, now) = (donors(), at(10.0));
    deny(&mut pool, None, 1, now);
    heard(&mut pool, now);
    pool.accuse(SUSPECT, copy(2), Some(ADA), now);
    assert!(pool.is_asked_about(SUSPECT, &chunk(2)));
    assert_eq!(look(&mut pool, now, || Some(true)), 1);
    pool.accuse(SUSPECT, copy(2), Some(ADA), now);
    assert_eq!(look(&mut pool, now, || Some(true)), 1, "the first did not count");
    pool.pass_time(now + HOUR * 2);
    assert!(pool.complaints.counted.is_empty(), "forgotten");
}

#[test]
fn a_doubt_lasts_until_the_donor_has_looked_and_not_for_ever() {
    let (mut pool, now) = (donors(), at(10.0));
    heard(&mut pool, now);
    let report = |pool: &mut Pool, n, now| {
        let casts = pool.casts_doubt(ADA, SUSPECT, chunk(n), now);
        pool.accuse(SUSPECT, copy(n), Some(ADA), now);
        casts
    };
    assert!(!pool.is_in_doubt(now));
    assert!(report(&mut pool, 1, now));
    assert!(pool.is_in_doubt(at(15.0)));
    pool.chunk_orders.answered(SUSPECT, &chunk(1));
    assert!(!pool.is_in_doubt(at(15.0)), "it has looked");
    assert!(!report(&mut pool, 2, at(16.0)), "a member does so once in a while");
    assert!(!pool.is_in_doubt(at(16.0)));
    assert!(report(&mut pool, 3, at(80.0)));
    assert!(pool.is_in_doubt(at(89.0)));
    assert!(!pool.is_in_doubt(at(91.0)), "whoever lies about a busy machine gains seconds");
}

#[test]
fn a_donor_on_probation_is_trusted_when_all_of_its_sample_is_right() {
    for wrong in [None, Some(2)] {
        let (mut pool, mut now) = (donors(), at(10.0));
        pool.quarantine(SUSPECT, Some("it lied".into()));
        pool.try_again(SUSPECT, "it lied".into(), (1..=3).map(copy).collect());
        let mut ended = Inquiring::default();
        for _ in 0..3 {
            heard(&mut pool, now);
            let (from, copy) = pool.inquire(now).looks.pop().expect("a test");
            pool.looked(from, &copy.name, None, now);
            assert_eq!(pool.inquire(now), Inquiring::default(), "it is tried again later");
            now += Duration::from_secs(15);
            heard(&mut pool, now);
            assert_eq!(pool.inquire(now).looks, [(from, copy)]);
            pool.looked(from, &copy.name, Some(wrong.map(chunk) != Some(copy.name)), now);
            ended = pool.inquire(now);
            if !ended.lies.is_empty() {
                break;
            }
        }
        assert_eq!(ended.right.is_empty(), wrong.is_some());
        assert_eq!(ended.lies.is_empty(), wrong.is_none());
        assert_eq!(pool.why_quarantined(SUSPECT).as_deref(), Some("it lied"), "until it is noted");
    }
}
