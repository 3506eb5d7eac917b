//! Advises what makes room in a pool that has none.

use potluck_wire::control::{DonorState, DonorStatus};

/// The bytes below which a donor's room counts as none.
const LITTLE: u64 = 64 << 20;

/// Advises what makes room where these donors have too little. Where a disk has nothing beyond what its owner keeps
/// free, it is of no use to lend more of it.
pub fn room_advice(donors: &[DonorStatus]) -> String {
    let at_floor: Vec<&str> =
        donors.iter().filter(|donor| is_at_floor(donor)).map(|donor| &*donor.name).collect();
    let forever = "remove files for good (`potluck rm --forever`, `potluck trash empty`)";
    match at_floor[..] {
        [] => format!("lend more with `potluck lend`, or {forever}"),
        [one] => format!(
            "the disk of {one} has nothing left beyond what its owner keeps free (`lend.keep-free`): free space on it, \
             lend another with `potluck lend`, or {forever}"
        ),
        _ => format!(
            "the disks of {} have nothing left beyond what their owners keep free (`lend.keep-free`): free space on them, \
             lend others with `potluck lend`, or {forever}",
            at_floor.join(", ")
        ),
    }
}

/// Returns whether a donor takes little though it holds less than it lends: its disk is filled by others.
fn is_at_floor(donor: &DonorStatus) -> bool {
    let takes = donor.state == DonorState::Live && !donor.takes_nothing;
    let lent = donor.lends.map_or(0, |lends| lends.saturating_sub(donor.used));
    takes && donor.room < LITTLE && lent > donor.room + LITTLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_advice_names_disks_filled_by_owners() {
        let donor = |name: &str, lends, used, room| DonorStatus {
            name: name.into(),
            state: DonorState::Live,
            lends: Some(lends),
            used,
            room,
            ..DonorStatus::default()
        };
        let full = donor("alice", 1 << 30, 1 << 30, 0);
        let at_floor = donor("bob", 1 << 30, 100 << 20, 0);
        let other = donor("carol", 1 << 40, 0, 1 << 20);
        assert!(room_advice(std::slice::from_ref(&full)).starts_with("lend more with"));
        let one = room_advice(&[full, at_floor.clone()]);
        assert!(one.starts_with("the disk of bob has nothing left beyond"), "{one}");
        let two = room_advice(&[at_floor, other]);
        assert!(two.starts_with("the disks of bob, carol have nothing"), "{two}");
    }
}
