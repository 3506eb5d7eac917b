//! The impact of a donor on its owner's machine: how much slower a job of the owner becomes, by the rate at which the
//! donor serves meanwhile (FreeLoader, §5.4, figure 11).
//!
//! It is measured on the machine itself by pairs of runs, one with service and one without, next to each other in time:
//! whatever else the machine does then is in both. The curve says at which rate the owner's threshold is reached, and the
//! governor serves no faster while others want that resource.

use crate::clock::UnixMillis;
use crate::governor::OwnerResource;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The resources of which the impact is measured, in the order of the measurement.
pub const MEASURED: [OwnerResource; 4] =
    [OwnerResource::Cpu, OwnerResource::Memory, OwnerResource::Disk, OwnerResource::Network];
/// The rates at which is served meanwhile, as shares of the full rate.
const RATES: [f64; 4] = [1.0 / 16.0, 0.25, 0.5, 1.0];
/// The pairs of runs at each rate: the median of three bears one that was disturbed.
const PAIRS: usize = 3;

/// One pair of runs that is to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedPair {
    /// The resource that the owner's job uses.
    pub resource: OwnerResource,
    /// The bytes a second that are to be served in the one run.
    pub rate: f64,
    /// True if the run with service is the first of the two. They take turns, so that a machine which becomes slower or
    /// faster meanwhile favours neither.
    pub service_first: bool,
}

/// Returns the pairs of runs of a calibration up to `full_rate` bytes a second, and the time that each run has of `total`.
pub fn plan(full_rate: f64, total: Duration) -> (Vec<PlannedPair>, Duration) {
    let mut pairs = Vec::new();
    for resource in MEASURED {
        for round in 0..PAIRS {
            pairs.extend(RATES.iter().enumerate().map(|(number, share)| PlannedPair {
                resource,
                rate: share * full_rate,
                service_first: (round + number) % 2 == 1,
            }));
        }
    }
    let each = total / (2 * pairs.len() as u32);
    (pairs, each)
}

/// What a pair of runs showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredPair {
    /// The pair as it was planned.
    pub planned: PlannedPair,
    /// The progress of the owner's job without service, in any unit a second.
    pub alone: f64,
    /// The progress of the job with service.
    pub with_service: f64,
    /// The bytes a second that were served.
    pub served: f64,
}

impl MeasuredPair {
    /// Returns the share by which the job took longer with service. A job that came to a halt counts as a very slow one.
    fn slowdown(&self) -> f64 {
        const HALTED: f64 = 1000.0;
        match self.with_service > 0.0 {
            true => (self.alone / self.with_service - 1.0).min(HALTED),
            false => HALTED,
        }
    }
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ImpactPoint {
    /// The bytes a second that were served.
    pub rate: f64,
    /// The share by which the owner's job took longer, 0 where it lost nothing.
    pub slowdown: f64,
}

/// The slowdown of one kind of job by the served rate, which both rise from point to point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImpactCurve {
    /// The resource that the job uses.
    pub resource: OwnerResource,
    /// The points, by rising rates.
    pub points: Vec<ImpactPoint>,
    /// The share by which the middle half of the runs without service differed: what the machine did beside; 1 where most
    /// of them came to nothing.
    pub unrest: f64,
}

/// The impact of a donor on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineImpact {
    /// The time at which it was measured, in milliseconds since 1970.
    pub measured_wall_ms: UnixMillis,
    /// A curve for each resource.
    pub curves: Vec<ImpactCurve>,
}

/// The bytes a second that take no more of a resource than the owner allows, while others want it; `None` where no rate
/// that was measured takes more.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RateCeilings {
    /// The ceiling while others want processors.
    pub cpu: Option<f64>,
    /// The ceiling while others want the disk.
    pub disk: Option<f64>,
    /// The ceiling while others want memory.
    pub memory: Option<f64>,
    /// The ceiling while others want the network.
    pub network: Option<f64>,
}

impl RateCeilings {
    /// Returns what may be served whatever resource others want.
    pub fn least(&self) -> Option<f64> {
        MEASURED.iter().filter_map(|resource| self.of(*resource)).reduce(f64::min)
    }

    /// Returns the ceiling while others want `resource`.
    pub fn of(&self, resource: OwnerResource) -> Option<f64> {
        match resource {
            OwnerResource::Cpu => self.cpu,
            OwnerResource::Disk => self.disk,
            OwnerResource::Memory => self.memory,
            OwnerResource::Network => self.network,
        }
    }
}

impl ImpactCurve {
    /// Makes the curve of `resource` of the pairs that measured it.
    pub fn of(resource: OwnerResource, pairs: &[MeasuredPair]) -> Self {
        let of_resource = || pairs.iter().filter(|pair| pair.planned.resource == resource);
        let mut rates: Vec<f64> = of_resource().map(|pair| pair.planned.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        let point = |rate: f64| {
            let of_rate =
                || of_resource().filter(|pair| pair.planned.rate.total_cmp(&rate).is_eq());
            let slowdown = median(of_rate().map(MeasuredPair::slowdown).collect())?;
            Some(ImpactPoint {
                rate: median(of_rate().map(|pair| pair.served).collect())?,
                slowdown,
            })
        };
        let mut points: Vec<ImpactPoint> = rates.into_iter().filter_map(point).collect();
        points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let mut alone: Vec<f64> = of_resource().map(|pair| pair.alone).collect();
        alone.sort_by(f64::total_cmp);
        let quarter = |number: usize| alone.get(number * alone.len() / 4).copied().unwrap_or(0.0);
        // A machine that is too busy for a job to do anything is at the end of the scale.
        let unrest = match quarter(2) > 0.0 {
            true => (quarter(3) - quarter(1)) / quarter(2),
            false => 1.0,
        };
        Self { resource, points: rising(&points), unrest }
    }

    /// Returns the rate at which the slowdown reaches `most`; `None` if no measured rate does that.
    pub fn rate_at(&self, most: f64) -> Option<f64> {
        let mut before = ImpactPoint { rate: 0.0, slowdown: 0.0 };
        for point in &self.points {
            if point.slowdown > most {
                let share = (most - before.slowdown) / (point.slowdown - before.slowdown);
                return Some(before.rate + share * (point.rate - before.rate));
            }
            before = *point;
        }
        None
    }
}

impl MachineImpact {
    /// Returns what may be served while others want a resource, so that they lose no more than `slowdown`.
    pub fn ceilings(&self, slowdown: f64) -> RateCeilings {
        let of = |resource| {
            self.curves.iter().find(|curve| curve.resource == resource)?.rate_at(slowdown)
        };
        RateCeilings {
            cpu: of(OwnerResource::Cpu),
            disk: of(OwnerResource::Disk),
            memory: of(OwnerResource::Memory),
            network: of(OwnerResource::Network),
        }
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// Has the slowdown rise with the rate. More service never costs an owner less, so where points contradict that, noise is
/// in them, and their mean is nearest to all of them (isotonic regression by pooling adjacent violators).
fn rising(points: &[ImpactPoint]) -> Vec<ImpactPoint> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for point in points {
        pools.push((point.slowdown.max(0.0), 1));
        while let [.., (below, few), (above, more)] = pools[..]
            && below > above
        {
            let all = few + more;
            let mean = (below * few as f64 + above * more as f64) / all as f64;
            pools.truncate(pools.len() - 2);
            pools.push((mean, all));
        }
    }
    let slowdowns = pools.iter().flat_map(|(mean, count)| std::iter::repeat_n(*mean, *count));
    points
        .iter()
        .zip(slowdowns)
        .map(|(point, slowdown)| ImpactPoint { slowdown, ..*point })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: f64 = 100e6;

    /// Measures a machine whose job is slowed by `slowdown` of the share of the full rate, in a drift of the whole machine.
    fn measured(slowdown: impl Fn(f64) -> f64) -> MachineImpact {
        let (plan, each) = plan(FULL, Duration::from_secs(96));
        assert_eq!((plan.len(), each), (48, Duration::from_secs(1)));
        let pairs: Vec<_> = plan
            .into_iter()
            .enumerate()
            .map(|(at, planned)| {
                let alone = 1000.0 - at as f64;
                let with_service = alone / (1.0 + slowdown(planned.rate / FULL));
                MeasuredPair { planned, alone, with_service, served: planned.rate }
            })
            .collect();
        let curves = MEASURED.map(|resource| ImpactCurve::of(resource, &pairs));
        MachineImpact { measured_wall_ms: 0, curves: curves.into() }
    }

    #[test]
    fn ceiling_is_where_the_owner_loses_what_is_allowed() {
        let ceilings = measured(|share| 0.2 * share).ceilings(0.05);
        for resource in MEASURED {
            let ceiling = ceilings.of(resource).expect("full service costs 20 %");
            assert!((ceiling - FULL / 4.0).abs() < 1.0, "{ceiling}");
        }
        assert_eq!(measured(|share| 0.04 * share).ceilings(0.05), RateCeilings::default());
        let none = measured(|_| 0.5).ceilings(0.0).disk.expect("each rate costs");
        assert!(none.abs() < f64::EPSILON, "an owner who allows nothing: {none}");
    }

    #[test]
    fn noise_that_contradicts_itself_is_averaged() {
        let curve = |slowdowns: [f64; 4]| {
            let points: Vec<_> = slowdowns
                .iter()
                .zip([10.0, 20.0, 30.0, 40.0])
                .map(|(slowdown, rate)| ImpactPoint { rate, slowdown: *slowdown })
                .collect();
            rising(&points).iter().map(|point| point.slowdown).collect::<Vec<_>>()
        };
        assert_eq!(curve([0.0, 0.1, 0.2, 0.3]), [0.0, 0.1, 0.2, 0.3]);
        assert_eq!(curve([-0.5, 0.5, 0.25, 0.75]), [0.0, 0.375, 0.375, 0.75]);
        assert_eq!(curve([1.0, 0.5, 0.0, 0.5]), [0.5; 4]);
    }

    proptest! {
        #[test]
        fn ceiling_never_falls_as_the_owner_allows_more(
            slowdowns in prop::collection::vec(-0.5..3.0_f64, 1..8),
            a in 0.0..1.0_f64,
            b in 0.0..1.0_f64,
        ) {
            let points: Vec<_> = slowdowns
                .iter()
                .enumerate()
                .map(|(at, slowdown)| ImpactPoint { rate: (at + 1) as f64, slowdown: *slowdown })
                .collect();
            let curve = ImpactCurve {
                resource: OwnerResource::Disk,
                points: rising(&points),
                unrest: 0.0,
            };
            prop_assert!(curve.points.is_sorted_by(|a, b| a.slowdown <= b.slowdown));
            let rate = |most| curve.rate_at(most).unwrap_or(f64::INFINITY);
            let (less, more) = (a.min(b), a.max(b));
            prop_assert!(rate(less) <= rate(more), "{} {}", rate(less), rate(more));
            prop_assert!(rate(less) >= 0.0);
        }
    }
}
