//! What was measured of how much serving slows programs of this machine: its file, and how it is told.

use crate::output;
use potluck_core::governor::OwnerResource;
use potluck_core::impact::{MEASURED, MachineImpact};
use potluck_core::size::format_size;
use std::fs;
use std::io;
use std::path::Path;

/// The file in the daemon's state directory that keeps what was measured.
pub const FILE: &str = "impact.json";

/// Returns what was measured last on the machine of the daemon whose state is in `state`, if anything.
pub fn read(state: &Path) -> Option<MachineImpact> {
    serde_json::from_slice(&fs::read(state.join(FILE)).ok()?).ok()
}

/// Says in one line when it was measured what serving costs, or how to.
pub fn sentence(measured: Option<&MachineImpact>, slowdown: Option<f64>) -> String {
    let Some(measured) = measured else {
        return "what serving costs this machine was not measured: potluck lend --calibrate".into();
    };
    let at = output::stated_time(measured.measured_wall_ms);
    let Some(slowdown) = slowdown else {
        return format!("measured {at}; the donor never yields (lend.slowdown off)");
    };
    let ceilings = measured.ceilings(slowdown);
    let said: Vec<_> = MEASURED
        .iter()
        .filter_map(|resource| {
            let rate = ceilings.of(*resource)?;
            Some(format!(
                "{}/s while others want the {}",
                format_size(rate as u64),
                word(*resource)
            ))
        })
        .collect();
    let percent = slowdown * 100.0;
    match said.is_empty() {
        true => format!("measured {at}: full service costs your programs less than {percent:.0} %"),
        false => format!("measured {at}: for {percent:.0} % it serves at most {}", said.join(", ")),
    }
}

/// Returns what people call a resource.
pub fn word(resource: OwnerResource) -> String {
    match resource {
        OwnerResource::Cpu => "processor".into(),
        other => other.to_string(),
    }
}

/// Keeps what was measured, at one moment.
pub fn keep(state: &Path, impact: &MachineImpact) -> io::Result<()> {
    let path = state.join(FILE);
    let temp = path.with_extension("tmp");
    fs::write(&temp, serde_json::to_vec(impact)?)?;
    fs::rename(temp, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::impact::{ImpactCurve, ImpactPoint};

    fn impact(slowdown: f64) -> MachineImpact {
        let curve = |resource| ImpactCurve {
            resource,
            points: vec![ImpactPoint { rate: 100e6, slowdown }],
            unrest: 0.0,
        };
        MachineImpact { measured_wall_ms: 0, curves: MEASURED.map(curve).into() }
    }

    #[test]
    fn sentence_tells_the_ceilings_or_that_there_are_none() {
        assert!(sentence(None, Some(0.05)).contains("potluck lend --calibrate"));
        let told = sentence(Some(&impact(0.5)), Some(0.05));
        assert!(told.contains("9.5 MiB/s while others want the processor"), "{told}");
        assert!(sentence(Some(&impact(0.01)), Some(0.05)).contains("less than 5 %"));
        assert!(sentence(Some(&impact(0.5)), None).contains("never yields"));
    }
}
