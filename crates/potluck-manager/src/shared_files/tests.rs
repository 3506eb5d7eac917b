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
    SharedLeave { path, writer, has_finished }
}

fn path() -> PoolPath {
    call(1, "", &[]).path
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
    files.leave(ADA, &leave(1, false), T);
    assert_eq!(files.claim(BOB, &call(2, "b", &[(90, 101)]), T), Ok(()));
}

#[test]
fn who_has_finished_keeps_what_it_claimed_until_a_version_is_made() {
    let mut files = SharedFiles::default();
    files.claim(ADA, &call(1, "a", &[(0, 100)]), T).expect("free");
    files.claim(BOB, &call(2, "b", &[(200, 300)]), T).expect("free");
    assert_eq!(files.leave(ADA, &leave(1, true), T).others, 1);
    let long = T + CLAIM_LEASE * 3;
    files.claim(BOB, &call(2, "b", &[]), long).expect("is there again");
    let refused = files.claim(BOB, &call(2, "b", &[(50, 60)]), long);
    assert!(matches!(refused, Err(ClaimRefusal::Taken { .. })));
    assert_eq!(files.leave(BOB, &leave(2, true), long).others, 0);
    let key = (BOB, SharedWriterId([2; 16]));
    assert!(files.take_turn(&path(), key, long));
    assert!(!files.take_turn(&path(), (ADA, SharedWriterId([9; 16])), long), "one at a time");
    assert_eq!(files.claim(ADA, &call(4, "c", &[(0, 1)]), long), Err(ClaimRefusal::Closed));
    files.end_turn(&path(), key, true);
    assert_eq!(files.claim(ADA, &call(4, "c", &[(0, 1)]), long), Ok(()));
}

#[test]
fn a_writer_that_is_silent_for_the_lease_has_nothing_and_has_to_say_what_it_has() {
    let mut files = SharedFiles::default();
    files.claim(ADA, &call(1, "a", &[(0, 100)]), T).expect("free");
    let late = T + CLAIM_LEASE;
    assert_eq!(files.claim(BOB, &call(2, "b", &[(50, 60)]), late), Ok(()));
    let again = SharedClaim { is_first: false, ..call(1, "a", &[]) };
    assert_eq!(files.claim(ADA, &again, late), Err(ClaimRefusal::Unknown));
    let all = SharedClaim { is_all: true, ..call(1, "a", &[(0, 100)]) };
    assert!(matches!(files.claim(ADA, &all, late), Err(ClaimRefusal::Taken { .. })), "lost");
    files.leave(BOB, &leave(2, false), late);
    assert_eq!(files.claim(ADA, &all, late), Ok(()));
}

#[test]
fn a_member_has_no_more_writers_and_a_file_no_more_ranges_than_there_may_be() {
    let mut files = SharedFiles::default();
    let many: Vec<_> = (0..RANGES_OF_FILE as u64 + 1).map(|at| (at * 2, at * 2 + 1)).collect();
    let refused = files.claim(ADA, &call(1, "a", &many), T);
    assert!(matches!(refused, Err(ClaimRefusal::TooMany(..))), "{refused:?}");
    for number in 0..WRITERS_OF_MEMBER {
        let mut writer = call(1, &number.to_string(), &[]);
        writer.writer.0[..8].copy_from_slice(&number.to_le_bytes());
        files.claim(ADA, &writer, T).expect("not too many");
    }
    let refused = files.claim(ADA, &call(255, "last", &[]), T);
    assert!(matches!(refused, Err(ClaimRefusal::TooMany(..))), "{refused:?}");
    assert_eq!(files.claim(BOB, &call(255, "last", &[]), T), Ok(()), "others may");
}
