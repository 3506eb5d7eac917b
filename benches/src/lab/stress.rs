//! One donor's link is full of others' traffic, while files of two copies are put by each mirroring protocol and are
//! read. Plain streams with equal parts show what striping without knowledge of the load would do.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::bed::{Bed, WAYS, Way};
use super::measured::{CLIENT, DONOR, Measured, Options, add, picture, share};
use crate::interrupt;
use crate::network::Links;
use crate::outcome::Limit;
use crate::picture::Panel;

const MIRRORING: [&str; 4] = ["client-sync", "client-async", "server-sync", "server-async"];
/// The least share of the rate without stress that a transfer reaches.
const LEAST: f64 = 0.93;
/// The time after which the pool knows a load: a donor tells it each second, as the mean of the second before.
const KNOWN_AFTER: Duration = Duration::from_millis(2500);

/// Measures puts and gets without stress and with it, by turns.
pub fn run(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    let (donors, protocols) =
        if options.short { (3, &MIRRORING[..1]) } else { (8, &MIRRORING[..]) };
    let links = Links { client: CLIENT, donors: vec![DONOR; donors] };
    let bed = Bed::new(options, &dir.join("stress"), links)?;
    for protocol in protocols {
        bed.make_space(protocol, &["--copies", "2", "--mirror", protocol])?;
    }
    let settings = || vec!["no donor".to_owned(), "one donor".to_owned()];
    let mut panels = WAYS.map(|way| Panel::new(way.name(), "stressed", "MiB/s", settings()));
    let mut ratios = Vec::new();
    for (panel, way) in panels.iter_mut().zip(WAYS) {
        // A get knows nothing of the protocol by which its copies were made.
        let protocols = if way == Way::Get { &protocols[..1] } else { protocols };
        let bytes = bed.bytes(options.length, if way == Way::Put { 2 } else { 1 });
        let local = bed.local(&format!("to-{}", way.name()), bytes)?;
        let stored = format!("pot://{}/stored", protocols[0]);
        if way == Way::Get {
            bed.put(&local, &stored)?;
        }
        // The rates without stress and with it, for each protocol and for plain streams at the end.
        let mut rates = vec![[Vec::new(), Vec::new()]; protocols.len() + 1];
        for round in 0..options.rounds {
            for stressed in [0, 1] {
                let _stress = match stressed {
                    0 => None,
                    _ => Some(bed.stress_link(0, way)?),
                };
                if !options.short {
                    interrupt::pass(KNOWN_AFTER)?;
                }
                for (protocol, rates) in protocols.iter().zip(&mut rates) {
                    let remote = format!("pot://{protocol}/file-{round}-{stressed}");
                    rates[stressed].push(match way {
                        Way::Put => bed.put(&local, &remote)?,
                        Way::Get => bed.get(&stored, bytes)?,
                    });
                    if way == Way::Put {
                        bed.remove(&remote)?;
                    }
                }
                let moved = if way == Way::Put { bytes * 2 } else { bytes };
                let seconds = bed.streams(way, moved)?;
                rates[protocols.len()][stressed].push(bytes as f64 / seconds);
            }
        }
        let names = protocols.iter().copied().chain(["plain streams, equal parts"]);
        for (name, [calm, stressed]) in names.zip(&rates) {
            for (setting, rates) in [calm, stressed].into_iter().enumerate() {
                rates.iter().for_each(|rate| add(panel, name, setting, *rate));
            }
            let limit = match name.starts_with("plain") {
                true => Limit::None,
                false => Limit::AtLeast(LEAST),
            };
            let work = format!("{}, {name}, one of {donors} links full, of none full", way.name());
            ratios.push(share(
                work,
                stressed.iter().zip(calm).map(|(with, without)| with / without),
                limit,
            ));
        }
    }
    Ok(Some(Measured { picture: picture(options, "lab-stress", "stress", panels.into()), ratios }))
}
