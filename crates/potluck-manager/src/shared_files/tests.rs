use super::*;

const ADA: MemberId = MemberId(1);
const BOB: MemberId = MemberId(2);
const T: Tick = Tick::from_secs(100);

fn call(writer: u8, name: &str, ranges: &[(u64, u64)]) -> SharedClaim {
    SharedClaim {
        path: "pot://lab/out".parse().expect("a path"),
        writer: SharedWriterId([writer; 16]),
        name: name.into(),
        ranges: ranges.iter().map(|(start, end)| *start..*end).collect(),
        is_first: true,
        is_all: false,
    }
}

fn leave(writer: u8, has_finished: bool) -> SharedLeave {
    let SharedClaim { path, writer, .. } = call(writer, "", &[]);
    SharedLeave { path, writer, has_finished, waited_ms: 0 }
}

fn path() -> PoolPath {
    call(1, "", &[]).path
}

fn published(names: &[&str]) -> SharedTurnOver {
    let published = names.iter().map(|name| (*name).to_owned()).collect();
    SharedTurnOver { published, left_out: Vec::new() }
}

#[test]
fn a_claim_of_what_another_has_names_the_bytes_and_the_other() {
    let mut files = SharedFiles::default();
    assert_eq!(files.claim(ADA, &call(1, "a", &[(0, 100)]), T), Ok(()));
    assert_eq!(files.claim(BOB, &call(2, "b", &[(100, 200)]), T), Ok(()));
    let refused = files.claim(BOB, &call(2, "b", &[(90, 101)]), T);
    let taken = ClaimRefusal::Taken { range: 90..100, name: "a".into(), member: ADA };
    assert_eq!(refused, Err(taken));
    assert_eq!(files.claim(BOB, &call(3, "a", &[]), T), Err(ClaimRefusal::Named(ADA)));
    files.leave(ADA, &leave(1, false), false, T);
    assert_eq!(files.claim(BOB, &call(2, "b", &[(90, 101)]), T), Ok(()));
}

#[test]
fn finished_writer_keeps_its_claims_until_publish() {
    let mut files = SharedFiles::default();
    files.claim(ADA, &call(1, "a", &[(0, 100)]), T).expect("free");
    files.claim(BOB, &call(2, "b", &[(200, 300)]), T).expect("free");
    assert_eq!(files.leave(ADA, &leave(1, true), false, T), SharedLeft::NotKnown);
    let long = T + CLAIM_LEASE * 3;
    files.claim(BOB, &call(2, "b", &[(200, 300)]), long).expect("is there again");
    let refused = files.claim(BOB, &call(2, "b", &[(50, 60)]), long);
    assert!(matches!(refused, Err(ClaimRefusal::Taken { .. })));
    assert_eq!(files.leave(BOB, &leave(2, true), false, long), SharedLeft::Last);
    let key = (BOB, SharedWriterId([2; 16]));
    assert_eq!(files.take_turn(&path(), key, long), Ok(true));
    let other = (ADA, SharedWriterId([9; 16]));
    assert_eq!(files.take_turn(&path(), other, long), Ok(false), "one at a time");
    assert_eq!(files.claim(ADA, &call(4, "c", &[(0, 1)]), long), Err(ClaimRefusal::Closed));
    // What one of them wrote is in a version, and what the other did waits for the next.
    files.end_turn(&path(), key, &published(&["a"]), long);
    assert_eq!(files.claim(ADA, &call(4, "c", &[(0, 1)]), long), Ok(()));
    let refused = files.claim(ADA, &call(4, "c", &[(200, 201)]), long);
    assert!(matches!(refused, Err(ClaimRefusal::Taken { .. })), "{refused:?}");
}

#[test]
fn departed_writer_is_last_once_other_leases_end() {
    let mut files = SharedFiles::default();
    files.claim(ADA, &call(1, "a", &[]), T).expect("free");
    files.claim(BOB, &call(2, "b", &[]), T).expect("free");
    let mut left = |after: Duration, may_be_more| {
        let leave = SharedLeave { waited_ms: after.as_millis() as u64, ..leave(1, true) };
        files.leave(ADA, &leave, may_be_more, T + after)
    };
    let (soon, late) = (Duration::from_secs(1), CLAIM_LEASE + Duration::from_secs(1));
    assert_eq!(left(Duration::ZERO, false), SharedLeft::NotKnown);
    assert_eq!(left(soon, false), SharedLeft::NotKnown, "it may have died before");
    assert_eq!(left(late, true), SharedLeft::NotKnown, "not all have told what they have");
    assert_eq!(left(late, false), SharedLeft::Last);
    files.claim(BOB, &call(2, "b", &[]), T + late).expect("it lives");
    let again = SharedLeave { waited_ms: 1000, ..leave(1, true) };
    assert_eq!(files.leave(ADA, &again, false, T + late), SharedLeft::OthersWrite);
}

#[test]
fn silent_writer_loses_claims_and_must_reclaim() {
    let mut files = SharedFiles::default();
    files.claim(ADA, &call(1, "a", &[(0, 100)]), T).expect("free");
    let late = T + CLAIM_LEASE;
    assert_eq!(files.claim(BOB, &call(2, "b", &[(50, 60)]), late), Ok(()));
    let again = SharedClaim { is_first: false, ..call(1, "a", &[]) };
    assert_eq!(files.claim(ADA, &again, late), Err(ClaimRefusal::Unknown));
    let all = SharedClaim { is_all: true, ..call(1, "a", &[(0, 100)]) };
    assert!(matches!(files.claim(ADA, &all, late), Err(ClaimRefusal::Taken { .. })), "lost");
    files.leave(BOB, &leave(2, false), false, late);
    assert_eq!(files.claim(ADA, &all, late), Ok(()));
}

#[test]
fn writers_and_ranges_are_bounded() {
    let mut files = SharedFiles::default();
    let many: Vec<_> = (0..MOST_CLAIMED as u64 + 1).map(|at| (at * 2, at * 2 + 1)).collect();
    let refused = files.claim(ADA, &call(1, "a", &many), T);
    assert!(matches!(refused, Err(ClaimRefusal::TooMany(..))), "{refused:?}");
    for number in 0..WRITERS_OF_MEMBER {
        let mut writer = call(1, &number.to_string(), &[]);
        writer.writer.0[..8].copy_from_slice(&number.to_le_bytes());
        files.claim(ADA, &writer, T).expect("not too many");
    }
    let refused = files.claim(ADA, &call(255, "last", &[]), T);
    assert!(matches!(refused, Err(ClaimRefusal::TooMany(..))), "{refused:?}");
    let turn = files.take_turn(&path(), (ADA, SharedWriterId([255; 16])), T);
    assert!(matches!(turn, Err(ClaimRefusal::TooMany(..))), "a turn is remembered, too");
    assert_eq!(files.claim(BOB, &call(255, "last", &[]), T), Ok(()), "others may");
    for (member, writers) in [(ADA, WRITERS_OF_MEMBER), (BOB, 1)] {
        assert_eq!(files.counts[&member], MemberCounts { writers, ranges: 0 });
    }
    files.writers(&path(), T + CLAIM_LEASE);
    assert!(files.counts.is_empty() && files.files.is_empty());
}

#[test]
fn claimed_ranges_per_member_are_bounded() {
    let mut files = SharedFiles::default();
    let many: Vec<_> = (0..MOST_CLAIMED as u64).map(|at| (at * 2, at * 2 + 1)).collect();
    let of_file = |number: usize| {
        let path = format!("pot://lab/{number}").parse().expect("a path");
        SharedClaim { path, ..call(1, "a", &many) }
    };
    let files_full = RANGES_OF_MEMBER / MOST_CLAIMED;
    for number in 0..files_full {
        assert_eq!(files.claim(ADA, &of_file(number), T), Ok(()));
    }
    let all = SharedClaim { is_all: true, ..of_file(0) };
    assert_eq!(files.claim(ADA, &all, T), Ok(()), "what it has already, said once more");
    let one_more = SharedClaim { ranges: call(1, "", &[(0, 1)]).ranges, ..of_file(files_full) };
    let refused = files.claim(ADA, &one_more, T);
    assert!(matches!(refused, Err(ClaimRefusal::TooMany(..))), "{refused:?}");
    assert_eq!(files.claim(BOB, &one_more, T), Ok(()), "others may");
    let SharedClaim { path, writer, .. } = of_file(0);
    let leave = SharedLeave { path, writer, has_finished: false, waited_ms: 0 };
    files.leave(ADA, &leave, false, T);
    assert_eq!(files.claim(ADA, &one_more, T), Err(ClaimRefusal::Named(BOB)));
    let one_more =
        SharedClaim { name: "b".into(), ranges: call(1, "", &[(1, 2)]).ranges, ..one_more };
    assert_eq!(files.claim(ADA, &one_more, T), Ok(()), "it gave some up");
}

#[test]
fn repeated_finish_after_publish_reports_the_version() {
    let mut files = SharedFiles::default();
    for (member, writer, name, at) in [(ADA, 1, "a", 0), (BOB, 2, "b", 1)] {
        files.claim(member, &call(writer, name, &[(at, at + 1)]), T).expect("free");
        files.leave(member, &leave(writer, true), false, T);
    }
    let key = (BOB, SharedWriterId([9; 16]));
    assert_eq!(files.take_turn(&path(), key, T), Ok(true));
    let over = SharedTurnOver { left_out: vec!["b".into()], ..published(&["a"]) };
    files.end_turn(&path(), key, &over, T);
    assert_eq!(files.leave(ADA, &leave(1, true), false, T), SharedLeft::Published);
    assert_eq!(files.leave(BOB, &leave(2, true), false, T), SharedLeft::Last, "it was left out");
    let of_another = files.leave(BOB, &leave(1, true), false, T);
    assert_eq!(of_another, SharedLeft::Last, "the number is another member's");
    let late = files.leave(ADA, &leave(1, true), false, T + CLAIM_LEASE);
    assert_eq!(late, SharedLeft::Last, "nobody asks for so long");
}

#[test]
fn excluded_writer_is_forgotten_before_it_finishes() {
    let mut files = SharedFiles::default();
    for (writer, name, at) in [(1, "a", 0), (2, "b", 1)] {
        files.claim(ADA, &call(writer, name, &[(at, at + 1)]), T).expect("free");
    }
    let key = (BOB, SharedWriterId([9; 16]));
    assert_eq!(files.take_turn(&path(), key, T), Ok(true));
    let over = SharedTurnOver { left_out: vec!["a".into()], ..published(&["b"]) };
    files.end_turn(&path(), key, &over, T);
    let there = |writer, name| SharedClaim { is_first: false, ..call(writer, name, &[]) };
    assert_eq!(files.claim(ADA, &there(1, "a"), T), Err(ClaimRefusal::Unknown));
    assert_eq!(files.claim(ADA, &there(2, "b"), T), Ok(()), "its contribution is another's");
    assert_eq!(files.claim(BOB, &call(3, "c", &[(0, 1)]), T), Ok(()), "nobody has it");
}

#[test]
fn shared_file_is_open_from_first_join_to_publish() {
    let mut files = SharedFiles::default();
    let dir = path().parent().expect("a directory");
    let beside: PoolPath = "pot://lab/beside".parse().expect("a path");
    assert!(files.written_below(&dir, T).is_empty());
    files.claim(ADA, &call(1, "a", &[]), T).expect("free");
    for above in [&path(), &dir] {
        assert_eq!(files.written_below(above, T), [path()]);
    }
    assert!(files.written_below(&beside, T).is_empty());
    files.leave(ADA, &leave(1, true), false, T);
    assert_eq!(files.written_below(&dir, T), [path()], "what it wrote is in no version yet");
    let key = (BOB, SharedWriterId([9; 16]));
    files.take_turn(&path(), key, T).expect("nobody has it");
    files.end_turn(&path(), key, &published(&["a"]), T);
    assert!(files.written_below(&dir, T).is_empty());
    files.claim(BOB, &call(2, "b", &[]), T).expect("free");
    assert!(files.written_below(&dir, T + CLAIM_LEASE).is_empty(), "it was not heard");
}
