//! What people are told of a policy that the pool cannot keep well, before they store something.

use potluck_core::policy::{Policy, Redundancy};
use potluck_core::size::{count, format_size};
use potluck_wire::control::PolicyChanged;

/// What the pool has too little of now for a policy, and for the change of files to it.
pub fn lacking(changed: &PolicyChanged) -> Vec<String> {
    let donors = too_few(changed.policy.redundancy(), changed.donors);
    let lacks_room = changed.files > 0 && changed.free_bytes < changed.needs_bytes;
    let room = lacks_room.then(|| {
        format!(
            "about {} more are needed on the donors while files are changed, and {} are free: \
             lend more, or it gets stuck and what finds no room keeps what it has",
            format_size(changed.needs_bytes),
            format_size(changed.free_bytes)
        )
    });
    donors.into_iter().chain(room).collect()
}

/// What to know of the policy of the new space `name`, where `donors` can be written to.
pub fn of_space(name: &str, policy: &Policy, donors: u32) -> Vec<String> {
    let alone = (policy.redundancy() == Redundancy::Copies(1)).then(|| {
        format!(
            "it keeps one copy of each file, which is lost with the machine that holds it; to survive the \
             death of one: `potluck policy set pot://{name} --copies 2`"
        )
    });
    alone.into_iter().chain(too_few(policy.redundancy(), donors)).collect()
}

/// That only so many donors can be written to, where a redundancy needs more.
fn too_few(redundancy: Redundancy, have: u32) -> Option<String> {
    let needs = match redundancy {
        Redundancy::Copies(copies) if copies > 1 => "need",
        _ => "needs",
    };
    (have < redundancy.donors()).then(|| {
        format!(
            "{redundancy} {needs} {}, and {have} can be written to now: lend on more machines, or make \
             room on them, before you store something",
            count(redundancy.donors().into(), "donor"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(donors: u32, free_bytes: u64) -> PolicyChanged {
        let policy = Policy { copies: 3, ..Policy::default() };
        let (files, bytes, needs_bytes) = (2, 10 << 20, 20 << 20);
        let lacks = Vec::new();
        PolicyChanged {
            policy,
            files,
            bytes,
            needs_donors: 3,
            donors,
            needs_bytes,
            free_bytes,
            lacks,
        }
    }

    #[test]
    fn what_the_pool_has_too_little_of_is_said() {
        assert!(lacking(&changed(3, 20 << 20)).is_empty());
        let few = lacking(&changed(2, 20 << 20));
        assert!(few[0].starts_with("3 copies need 3 donors, and 2 can be written to"), "{few:?}");
        let full = lacking(&changed(3, 1 << 20));
        assert_eq!(full.len(), 1);
        assert!(
            full[0].contains("20.0 MiB more") && full[0].contains("1.0 MiB are free"),
            "{full:?}"
        );
        let none = PolicyChanged { files: 0, ..changed(3, 0) };
        assert!(lacking(&none).is_empty(), "nothing is there to be changed");
    }

    #[test]
    fn a_space_of_one_copy_is_told_how_to_survive_a_death() {
        let policy = |copies| Policy { copies, ..Policy::default() };
        let one = of_space("lab", &policy(1), 1);
        assert!(one.len() == 1 && one[0].contains("pot://lab --copies 2"), "{one:?}");
        assert!(of_space("lab", &policy(2), 2).is_empty());
        assert_eq!(of_space("lab", &policy(2), 1).len(), 1);
    }
}
