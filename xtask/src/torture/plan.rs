//! The plan that a seed expands to.

use std::fmt;

use super::chance::Chance;

/// The chunk size of every space, in bytes: small, so that a short run has many chunks.
pub const CHUNK: u64 = 64 << 10;

/// A space, and the way in which it stores files.
#[derive(Debug, Clone)]
pub struct Space {
    /// The name of the space.
    pub name: String,
    /// The policy of the space, as flags.
    pub flags: Vec<&'static str>,
}

impl Space {
    fn flag(&self, name: &str) -> Option<&'static str> {
        let at = self.flags.iter().position(|flag| *flag == name)?;
        self.flags.get(at + 1).copied()
    }

    /// Returns how many chunks of a unit are needed to read it, and how many it has beyond these.
    fn shape(&self) -> (u64, u64) {
        let number = |text: &str| text.parse().expect("a number of a plan");
        match self.flag("--ec").and_then(|ec| ec.split_once('+')) {
            Some((data, parity)) => (number(data), number(parity)),
            None => (1, self.flag("--copies").map_or(1, number) - 1),
        }
    }

    /// Returns the number of donors that may die for good before anything is lost.
    pub fn tolerates(&self) -> u64 {
        self.shape().1
    }

    /// Returns the number of donors that a file takes.
    fn donors(&self) -> u64 {
        let (data, parity) = self.shape();
        data + parity
    }
}

/// The plan of a scenario.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed, from which everything follows.
    pub seed: u64,
    /// The number of donors of the pool.
    pub donors: usize,
    /// The most donors that may have faults at the same time, which every space tolerates.
    pub faults: usize,
    /// The spaces of the scenario.
    pub spaces: Vec<Space>,
    /// The numbers of the donors that have small disks.
    pub small: Vec<usize>,
    /// The numbers of the donors whose disks can lose their power, as the manager's then can; `None` if no disk
    /// can. Where such disks cannot be mounted, ordinary directories take their place.
    pub power: Option<Vec<usize>>,
    /// The numbers of the donors whose disks rot, are torn, lie or come back old.
    pub victims: Vec<usize>,
    /// The time that donors may be silent before what they hold is made again elsewhere, as a flag's value.
    pub repair_grace: &'static str,
    /// The number of donors that are still to die for good, one after the other.
    pub deaths: u64,
    /// The number of steps of the run.
    pub steps: u64,
    /// The number of steps from one check of everything to the next.
    pub check_every: u64,
}

impl Plan {
    /// Returns whether every copy is synced before it is acknowledged.
    pub fn syncs(&self) -> bool {
        self.spaces.iter().all(|space| space.flag("--ack") == Some("disk"))
    }

    /// Draws the plan that `seed` expands to.
    pub fn draw(seed: u64, steps: u64) -> Self {
        let mut chance = Chance::new(seed, "plan");
        let faults = chance.between(1, 2) as usize;
        let kinds: &[&[&str]] = match faults {
            1 => &[
                &["--copies", "2"],
                &["--copies", "3"],
                &["--copies", "2", "--mirror", "server-sync"],
                &["--ec", "2+1"],
                &["--ec", "4+1"],
                &["--ec", "3+2"],
            ],
            _ => &[
                &["--copies", "3"],
                &["--copies", "3", "--mirror", "server-sync"],
                &["--ec", "2+2"],
                &["--ec", "4+2", "--race", "1"],
                &["--ec", "4+2"],
            ],
        };
        let mut donors = chance.between(6, 8) as usize;
        // If every space syncs, any donor may lose its power, and all of them at once.
        let synced = Chance::new(seed, "ack").percent(40);
        let spaces: Vec<Space> = (0..chance.between(1, 3))
            .map(|number| {
                let mut flags = chance.pick(kinds).to_vec();
                let acks: &[&str] = if synced { &["disk"] } else { &["memory", "disk"] };
                flags.extend(["--ack", chance.pick(acks)]);
                flags.push(chance.pick(&["--seal", "--plain"]));
                Space { name: format!("space-{number}"), flags }
            })
            .collect();
        // Repair has a stream of its own, so that it does not change what else a seed means.
        let mut fate = Chance::new(seed, "repair");
        let (repair_grace, deaths) =
            if fate.percent(60) { ("5s", fate.between(1, 2)) } else { ("10m", 0) };
        // After the deaths there are still as many donors as every space needs.
        let least = spaces.iter().map(Space::donors).max().unwrap_or(1) + deaths;
        donors = donors.max(least as usize);
        let mut all: Vec<usize> = (0..donors).collect();
        let mut some = |most: usize| -> Vec<usize> {
            for last in (1..all.len()).rev() {
                all.swap(last, chance.index(last + 1));
            }
            all[..most].to_vec()
        };
        let (small, victims) = (some(2), some(faults));
        let check_every = chance.between(8, 15);
        let mut power = Chance::new(seed, "power");
        let with_power = |number: &usize| !small.contains(number);
        let power = power.percent(70).then(|| (0..donors).filter(with_power).collect());
        Self {
            seed,
            donors,
            faults,
            spaces,
            small,
            power,
            victims,
            repair_grace,
            deaths,
            steps,
            check_every,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, donors, faults, spaces, small, power, victims, .. } = self;
        let Self { repair_grace, deaths, steps, check_every, .. } = self;
        writeln!(
            f,
            "seed {seed}: {donors} donors, up to {faults} with faults at once, {steps} steps, \
             everything checked every {check_every}"
        )?;
        for Space { name, flags } in spaces {
            writeln!(f, "  {name}: {} --chunk-size {CHUNK}", flags.join(" "))?;
        }
        writeln!(f, "  {deaths} donors die for good, repair after {repair_grace}")?;
        writeln!(f, "  small disks: donors {small:?}; disks that rot: donors {victims:?}")?;
        match power {
            Some(donors) => {
                writeln!(f, "  disks that can lose their power: the manager's and {donors:?}")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        assert_eq!(Plan::draw(5, 10).to_string(), Plan::draw(5, 10).to_string());
    }

    #[test]
    fn no_more_donors_rot_than_every_space_tolerates() {
        for seed in 0..100 {
            let plan = Plan::draw(seed, 10);
            assert_eq!(plan.victims.len(), plan.faults, "{plan}");
            assert!(plan.victims.iter().chain(&plan.small).all(|donor| *donor < plan.donors));
        }
    }
}
