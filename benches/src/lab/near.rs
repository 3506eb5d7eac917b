//! Asymmetric striping: the rate by the part of a file that lies on the client's own machine, for the client there and
//! for another one, beside the paper's model of it.

use std::path::Path;

use anyhow::Result;

use super::bed::{Bed, WAYS, Way};
use super::measured::{CLIENT, DONOR, Measured, Options, add, picture, share};
use crate::network::{Host, Links};
use crate::outcome::Limit;
use crate::picture::Panel;
use crate::report::median;

/// The donors on machines of their own, besides the one on the client's.
const REMOTE: usize = 8;
/// The least share of the model's highest rate that `--near here` reaches, which chooses the part by itself.
const LEAST: f64 = 0.95;
/// The setting by which the pool chooses the part on the client's machine.
const CHOSEN: &str = "here";

/// The rates of one setting, in bytes a second, of all rounds.
#[derive(Default)]
struct Seen {
    put: Vec<f64>,
    get: Vec<f64>,
    /// The rate of a reader on the manager's machine.
    elsewhere: Vec<f64>,
}

/// Measures the rate by the part of the file that is near.
pub fn run(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    let (remote, parts): (usize, &[u32]) =
        if options.short { (2, &[0, 50, 100]) } else { (REMOTE, &[0, 20, 40, 60, 80, 90, 100]) };
    let links = Links { client: CLIENT, donors: vec![DONOR; remote] };
    let bed = Bed::with_near_donor(options, &dir.join("near"), links)?;
    let bytes = bed.bytes(options.length, 1);
    let mut asked: Vec<String> = parts.iter().map(|part| format!("here:{part}%")).collect();
    asked[0] = "elsewhere".to_owned();
    asked.push(CHOSEN.to_owned());
    let mut seen: Vec<Seen> = asked.iter().map(|_| Seen::default()).collect();
    for (setting, near) in asked.iter().enumerate() {
        let width = (remote + 1).to_string();
        let policy = ["--copies", "1", "--width", &width, "--near", near];
        bed.make_space(&format!("near{setting}"), &policy)?;
    }
    let local = bed.local("file", bytes)?;
    for round in 0..options.rounds {
        for (setting, seen) in seen.iter_mut().enumerate() {
            let remote = format!("pot://near{setting}/file-{round}");
            seen.put.push(bed.put(&local, &remote)?);
            seen.get.push(bed.get(&remote, bytes)?);
            seen.elsewhere.push(bed.get_on(Host::Manager, &remote, bytes)?);
            bed.remove(&remote)?;
        }
    }

    let settings = parts.iter().map(|part| format!("{part} %")).chain([CHOSEN.to_owned()]);
    let settings: Vec<String> = settings.collect();
    let titles = ["put", "get", "get on another machine"];
    let mut panels = titles.map(|title| Panel::new(title, "near part", "MiB/s", settings.clone()));
    for (setting, seen) in seen.iter().enumerate() {
        for (panel, rates) in panels.iter_mut().zip([&seen.put, &seen.get, &seen.elsewhere]) {
            rates.iter().for_each(|rate| add(panel, "potluck", setting, *rate));
        }
    }
    let last = parts.len() - 1;
    let mut ratios = Vec::new();
    for (panel, way) in panels.iter_mut().zip(WAYS) {
        let rates = |setting: usize| match way {
            Way::Put => &seen[setting].put,
            Way::Get => &seen[setting].get,
        };
        let of = |setting: usize| median(rates(setting).clone());
        let (all_remote, all_local) = (of(0), of(last));
        for (setting, part) in parts.iter().enumerate() {
            let rate = model(f64::from(*part) / 100.0, all_local, all_remote);
            add(panel, "the paper's model", setting, rate);
        }
        // Both are busy for as long as the transfer takes where each has the part that is as its rate.
        let peak = all_local + all_remote;
        let of_peak = rates(parts.len()).iter().map(|rate| rate / peak);
        let work = format!("{} with --near here, of the highest rate of the model", way.name());
        let limit = if way == Way::Get { Limit::AtLeast(LEAST) } else { Limit::None };
        ratios.push(share(work, of_peak, limit));
    }
    Ok(Some(Measured { picture: picture(options, "lab-near", "near", panels.into()), ratios }))
}

/// The rate of a transfer of which a part is near, by the rates of transfers of which all or nothing is (FreeLoader,
/// §4.1.3): the slower of both parts decides.
fn model(near: f64, all_local: f64, all_remote: f64) -> f64 {
    1.0 / (near / all_local).max((1.0 - near) / all_remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_peak_is_the_sum_of_both_rates() {
        let of = |near| model(near, 30.0, 90.0).round();
        assert_eq!([of(0.0), of(0.25), of(0.5), of(1.0)], [90.0, 120.0, 60.0, 30.0]);
    }
}
