//! Advice that people get about a policy that the pool cannot keep well, before they store something.

use potluck_core::clock::Tick;
use potluck_core::policy::{DefaultRedundancy, Policy, PoolDefaults, Redundancy};
use potluck_core::size::{count, format_size};
use potluck_pool::Pool;
use potluck_wire::control::PolicyChanged;

/// The numbers of a pool's donors at a moment, against which a policy is weighed.
#[derive(Debug, Clone, Copy)]
pub struct DonorCounts {
    /// The number of donors that can be written to now.
    pub writable: u32,
    /// The number of donors that take files, now or when they are back.
    pub expected: u32,
}

impl DonorCounts {
    /// Counts the donors of the pool.
    pub fn of(pool: &Pool, now: Tick) -> Self {
        let (writable, expected) = (pool.takers(now).len(), pool.expected_donors(0, now));
        Self { writable: writable as u32, expected: expected as u32 }
    }

    /// Returns the number of donors that a write by this policy needs now. It is lower than the number for the full
    /// redundancy only if enough donors are expected back and the policy is not strict.
    fn needed(self, policy: &Policy) -> u32 {
        let all = policy.redundancy().donors();
        if self.expected < all { all } else { policy.least_donors() }
    }
}

/// Returns notices about what the pool lacks now for a policy, and for the change of files to it.
pub fn lacking(changed: &PolicyChanged, donors: DonorCounts) -> Vec<String> {
    let few = too_few(&changed.policy, donors);
    let lacks_room = changed.files > 0 && changed.free_bytes < changed.needs_bytes;
    let room = lacks_room.then(|| {
        format!(
            "about {} more are needed on the donors while files are changed, and {} are free: \
             lend more, or it gets stuck and what finds no room keeps what it has",
            format_size(changed.needs_bytes),
            format_size(changed.free_bytes)
        )
    });
    few.into_iter().chain(room).collect()
}

/// Says what the pool's defaults came to in a new space that was told less than everything.
pub fn chosen(policy: &Policy, defaults: &PoolDefaults, machines: usize) -> Vec<String> {
    let redundancy = policy.redundancy();
    let copies = policy.follows.redundancy.then(|| match (defaults.redundancy, machines) {
        (DefaultRedundancy::Auto, 0 | 1) => {
            format!("{redundancy} of each file while one machine lends, 2 as soon as another does")
        }
        (DefaultRedundancy::Auto, _) => {
            format!("{redundancy} of each file, since {machines} machines lend")
        }
        (DefaultRedundancy::Always(_), _) => format!("kept as {redundancy}"),
    });
    let trash = policy.follows.trash.then(|| match defaults.trash {
        time if time.is_none() => "what is removed is gone at once".to_owned(),
        time => format!("what is removed can be brought back for {time}"),
    });
    let chosen = copies.into_iter().chain(trash);
    chosen.map(|what| format!("{what} (the pool's default)")).collect()
}

/// Returns notices about the policy of the new space `name`.
pub fn of_space(
    name: &str,
    policy: &Policy,
    defaults: &PoolDefaults,
    donors: DonorCounts,
) -> Vec<String> {
    let rises = policy.follows.redundancy && defaults.redundancy == DefaultRedundancy::Auto;
    let alone = (policy.redundancy() == Redundancy::Copies(1)).then(|| {
        let then = match rises {
            true => "until a second one lends: `potluck invite --role donor`".to_owned(),
            false => format!(
                "that holds it; to survive the death of one: `potluck policy set pot://{name} --copies 2`"
            ),
        };
        format!("it keeps one copy of each file, which is lost with the machine {then}")
    });
    let few = too_few(policy, donors).or_else(|| below_policy(policy, donors));
    alone.into_iter().chain(few).collect()
}

/// Returns a notice if so few donors can be written to that nothing is stored by this policy.
fn too_few(policy: &Policy, donors: DonorCounts) -> Option<String> {
    (donors.writable < donors.needed(policy)).then(|| {
        format!(
            "{}: lend on more machines, or make room on them, before you store something",
            shortage(policy.redundancy(), donors.writable)
        )
    })
}

/// Returns a notice if donors are away and writes by this policy go on without them.
pub fn below_policy(policy: &Policy, donors: DonorCounts) -> Option<String> {
    let (have, redundancy) = (donors.writable, policy.redundancy());
    (donors.needed(policy) <= have && have < redundancy.donors()).then(|| {
        format!(
            "{}: files are stored below policy until more donors are there",
            shortage(redundancy, have)
        )
    })
}

fn shortage(redundancy: Redundancy, have: u32) -> String {
    let needs = match redundancy {
        Redundancy::Copies(copies) if copies > 1 => "need",
        _ => "needs",
    };
    let donors = count(redundancy.donors().into(), "donor");
    format!("{redundancy} {needs} {donors}, and {have} can be written to now")
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::policy::Follows;

    fn changed(free_bytes: u64) -> PolicyChanged {
        let policy = Policy { copies: 3, ..Policy::default() };
        let (files, bytes, needs_bytes) = (2, 10 << 20, 20 << 20);
        let (lacks, notes) = (Vec::new(), Vec::new());
        PolicyChanged {
            policy,
            files,
            bytes,
            needs_donors: 3,
            donors: 3,
            needs_bytes,
            free_bytes,
            lacks,
            notes,
        }
    }

    fn donors(writable: u32, expected: u32) -> DonorCounts {
        DonorCounts { writable, expected }
    }

    #[test]
    fn policy_advice_names_the_scarce_resource() {
        let enough = 20 << 20;
        assert!(lacking(&changed(enough), donors(3, 3)).is_empty());
        let few = lacking(&changed(enough), donors(2, 2));
        assert!(few[0].starts_with("3 copies need 3 donors, and 2 can be written to"), "{few:?}");
        let full = lacking(&changed(1 << 20), donors(3, 3));
        assert_eq!(full.len(), 1);
        assert!(
            full[0].contains("20.0 MiB more") && full[0].contains("1.0 MiB are free"),
            "{full:?}"
        );
        let none = PolicyChanged { files: 0, ..changed(0) };
        assert!(lacking(&none, donors(3, 3)).is_empty(), "nothing is there to be changed");
    }

    #[test]
    fn policy_advice_notes_writes_below_policy() {
        let mut few = changed(20 << 20);
        let noted = "3 copies need 3 donors, and 2 can be written to now: files are stored below \
                     policy until more donors are there";
        let away = donors(2, 3);
        assert_eq!(below_policy(&few.policy, away).as_deref(), Some(noted));
        assert_eq!(of_space("lab", &few.policy, &PoolDefaults::default(), away), [noted]);
        assert!(lacking(&few, away).is_empty());
        // One copy would be lost with its donor, and a donor that never lent is not waited for.
        for refused in [donors(1, 3), donors(2, 2)] {
            assert_eq!(below_policy(&few.policy, refused), None);
            assert!(lacking(&few, refused)[0].contains("before you store"));
        }
        few.policy.strict = true;
        assert_eq!(below_policy(&few.policy, away), None);
        assert!(lacking(&few, away)[0].contains("before you store"));
    }

    #[test]
    fn a_space_of_one_copy_is_told_how_to_survive_a_death() {
        let of =
            |policy: &Policy, donors| of_space("lab", policy, &PoolDefaults::default(), donors);
        let policy = |copies| Policy { copies, ..Policy::default() };
        let one = of(&policy(1), donors(1, 1));
        assert!(one.len() == 1 && one[0].contains("pot://lab --copies 2"), "{one:?}");
        assert!(of(&policy(2), donors(2, 2)).is_empty());
        assert_eq!(of(&policy(2), donors(1, 2)).len(), 1);
        let follows = Policy { follows: Follows::ALL, ..policy(1) };
        let one = of(&follows, donors(1, 1));
        assert!(one.len() == 1 && one[0].contains("until a second one lends"), "{one:?}");
    }

    #[test]
    fn policy_advice_explains_values_inherited_from_pool_defaults() {
        let defaults = PoolDefaults::default();
        let said = |follows, machines| {
            let policy = defaults.applied(&Policy { follows, ..Policy::default() }, machines);
            chosen(&policy, &defaults, machines)
        };
        let trash = "what is removed can be brought back for 1w (the pool's default)";
        let one = "1 copy of each file while one machine lends, 2 as soon as another does (the pool's default)";
        assert_eq!(said(Follows::ALL, 1), [one, trash]);
        let two = "2 copies of each file, since 3 machines lend (the pool's default)";
        assert_eq!(said(Follows { trash: false, ..Follows::ALL }, 3), [two]);
        assert!(said(Follows::default(), 3).is_empty());
    }
}
