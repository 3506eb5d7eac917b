//! Says whose writes may still store something at donors that leave, which wait for them.

use super::Departures;
use crate::callers::KnownMembers;
use potluck_core::ids::DonorId;
use potluck_core::size::duration;
use potluck_pool::{MANAGER, SessionAtDonor};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time after which the silence of a writer is told: its client may be dead.
const SILENT: Duration = Duration::from_secs(5);

impl Departures {
    /// Says which writes may still store something at these donors; `None` where there are none.
    pub fn writes_at(&self, donors: &BTreeSet<DonorId>) -> Option<String> {
        let writing = self.pool.lock().writing_at(donors, self.time.tick());
        told(&writing, &self.members, self.settings.get().lease)
    }
}

fn told(writing: &[SessionAtDonor], members: &KnownMembers, lease: Duration) -> Option<String> {
    let (oldest, others) = writing.split_first()?;
    let whose = match oldest.member {
        MANAGER => "the pool's own metadata".to_owned(),
        member => {
            members.names(&[member]).pop().unwrap_or_else(|| format!("member {member}, removed"))
        }
    };
    let more = match others.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let began = oldest.age.map_or_else(
        || "begun before the manager was started".to_owned(),
        |age| format!("begun {} ago", duration(age.as_secs())),
    );
    let silent = match oldest.silent {
        silent if silent < SILENT => String::new(),
        silent => format!(
            ", silent for {} and given up after {}",
            duration(silent.as_secs()),
            duration(lease.as_secs())
        ),
    };
    Some(format!("a write of {whose}, {began}{silent}{more}, may still store something there"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::MemberId;

    #[test]
    fn departure_names_the_write_it_waits_for() {
        let members = KnownMembers::default();
        let lease = Duration::from_secs(30);
        let of = |member, age, silent| SessionAtDonor {
            member,
            age,
            silent: Duration::from_secs(silent),
        };
        let minutes = |many: u64| Some(Duration::from_secs(60 * many));
        assert_eq!(told(&[], &members, lease), None);
        let dead = of(MemberId(7), minutes(3), 20);
        assert_eq!(
            told(&[dead, of(MANAGER, minutes(1), 0)], &members, lease).expect("a write"),
            "a write of member 7, removed, begun 3m ago, silent for 20s and given up after 30s and \
             1 more, may still store something there"
        );
        let own = told(&[of(MANAGER, None, 0)], &members, lease).expect("a write");
        assert!(own.starts_with("a write of the pool's own metadata, begun before"), "{own}");
    }
}
