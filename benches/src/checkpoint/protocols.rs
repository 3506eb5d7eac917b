//! Measures the figures 5 to 8 of the checkpoint store: how fast checkpoints are written by each write protocol, to
//! few and to many donors, over slow links, in small and in large chunks, windows and temporary files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

use super::{Memory, command, mib_s, nfs_missing, write, write_to_pool};
use crate::content;
use crate::machine;
use crate::measure;
use crate::mounted::{self, Mounted};
use crate::network::{self, Link, Links, Network};
use crate::outcome::Figure;
use crate::picture::{Panel, Picture, Sample};
use crate::plan::Plan;
use crate::pool::{Pool, Start};

/// The numbers of donors of the pools, each of which is the stripe width there.
const WIDTHS: [usize; 4] = [1, 2, 4, 8];
/// The number of donors of the pool in which sizes vary, which is that of the paper.
const DONORS: usize = 4;
const PROTOCOLS: [&str; 4] = ["local", "incremental", "sliding-window", "hybrid"];
/// The window of the paper; `TEMPORARY` is its size of temporary files.
const WINDOW: &str = "32MiB";
const TEMPORARY: &str = "100MiB";
const CHUNKS: [&str; 4] = ["1MiB", "4MiB", "16MiB", "64MiB"];
const WINDOWS: [&str; 3] = ["8MiB", "32MiB", "128MiB"];
const TEMPORARIES: [&str; 3] = ["16MiB", "64MiB", "128MiB"];
/// The links of the paper's second testbed. At most `OVER_LINKS` bytes are written over them, for which one donor
/// takes more than 20 s.
const CLIENT: Link = Link::Mbit(1000);
const DONOR: Link = Link::Mbit(100);
const OVER_LINKS: u64 = 256 << 20;

/// Measures all figures. Returns none if this machine cannot mount; prints what is left out and why.
pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    if let Some(missing) = mounted::missing() {
        eprintln!("write protocols: SKIPPED: {missing}");
        return Ok(Vec::new());
    }
    let dir = dir.join("write-protocols");
    fs::create_dir(&dir)?;
    let nfs_missing = nfs_missing(plan)?;
    if let Some(missing) = &nfs_missing {
        eprintln!("write protocols, NFS beside them: SKIPPED: {missing}");
    }
    let nfs = plan.nfs.clone().filter(|_| nfs_missing.is_none());
    let memory = Memory::new("protocols", plan.size.0)?;
    let mut bench = Bench { plan, dir, nfs, memory };
    let mut pictures = vec![bench.widths()?, bench.sizes()?];
    match network::missing() {
        Some(missing) => eprintln!("write protocols over links: SKIPPED: {missing}"),
        None => pictures.push(bench.links()?),
    }
    pictures.iter().try_for_each(|picture| picture.write(&plan.out))?;
    Ok(pictures.iter().flat_map(Picture::figures).collect())
}

struct Bench<'a> {
    plan: &'a Plan,
    dir: PathBuf,
    /// The directory of an NFS mount, if there is one.
    nfs: Option<PathBuf>,
    memory: Memory,
}

/// A space, and the way in which it is mounted.
struct Way<'a> {
    name: &'a str,
    /// The panel that the way is drawn in, and the setting that it stands for there.
    panel: usize,
    setting: usize,
    space: Vec<&'a str>,
    mount: Vec<&'a str>,
}

/// The rates of one checkpoint.
struct Rated {
    observed: Sample,
    achieved: Sample,
}

impl Bench<'_> {
    /// Measures figures 5 and 6: each protocol by the number of donors, beside a local disk and NFS.
    fn widths(&mut self) -> Result<Picture> {
        let settings = || WIDTHS.map(|width| width.to_string()).to_vec();
        let mut observed = Panel::new("Figure 5: OAB", "donors", "MiB/s", settings());
        let mut achieved = Panel::new("Figure 6: ASB", "donors", "MiB/s", settings());
        for (setting, width) in WIDTHS.into_iter().enumerate() {
            let ways: Vec<_> =
                PROTOCOLS.map(|name| Way { mount: by(name), ..Way::new(name, setting) }).into();
            self.write_by(width, None, &ways, |way, rated| {
                observed.add(way.name, way.setting, rated.observed);
                achieved.add(way.name, way.setting, rated.achieved);
            })?;
            self.memory.change();
            machine::write_back(&self.dir)?;
            machine::back_memory()?;
            for (name, dir) in [("local disk", Some(&self.dir)), ("NFS", self.nfs.as_ref())] {
                let Some(dir) = dir else { continue };
                let path = dir.join("potluck-bench-checkpoint");
                let rate = mib_s(&self.memory.bytes, write(&path, &self.memory.bytes)?);
                content::remove(&path)?;
                observed.add_level(name, rate);
                achieved.add_level(name, rate);
            }
        }
        Ok(self.picture("checkpoint-widths", &[], &by("P"), vec![observed, achieved]))
    }

    /// Measures figure 8, which is by the chunk size, and the rates by the window and by the size of temporary
    /// files.
    fn sizes(&mut self) -> Result<Picture> {
        let settings = |sizes: &[&str]| sizes.iter().map(|size| (*size).to_owned()).collect();
        let mut panels = [
            Panel::new("Figure 8: sliding window", "chunk size", "MiB/s", settings(&CHUNKS)),
            Panel::new("Sliding window", "window", "MiB/s", settings(&WINDOWS)),
            Panel::new("Incremental", "temporary files", "MiB/s", settings(&TEMPORARIES)),
        ];
        let mut ways = Vec::new();
        for (setting, size) in CHUNKS.into_iter().enumerate() {
            let space = vec!["--chunk-size", size];
            let mount = by("sliding-window");
            ways.push(Way { space, mount, ..Way::new("", setting) });
        }
        for (setting, size) in WINDOWS.into_iter().enumerate() {
            let mount = vec!["--write-protocol", "sliding-window", "--write-window", size];
            ways.push(Way { panel: 1, mount, ..Way::new("", setting) });
        }
        for (setting, size) in TEMPORARIES.into_iter().enumerate() {
            let mount = vec!["--write-protocol", "incremental", "--temporary-size", size];
            ways.push(Way { panel: 2, mount, ..Way::new("", setting) });
        }
        self.write_by(DONORS, None, &ways, |way, rated| {
            panels[way.panel].add("OAB", way.setting, rated.observed);
            panels[way.panel].add("ASB", way.setting, rated.achieved);
        })?;
        Ok(self.picture("checkpoint-blocks", &["--chunk-size", "N"], &by("P"), panels.into()))
    }

    /// Measures figure 7: the sliding window over slow links, with one copy, and with two, of which the second is
    /// made afterwards.
    fn links(&mut self) -> Result<Picture> {
        let settings = WIDTHS.map(|width| width.to_string()).to_vec();
        let mut panel = Panel::new("Figure 7: donors on 100 Mb/s", "donors", "MiB/s", settings);
        let most = WIDTHS[WIDTHS.len() - 1];
        let links = Links { client: CLIENT, donors: vec![DONOR; most] };
        let network = Arc::new(Network::new(most, Some(&links))?);
        let whole = self.memory.bytes.len();
        self.memory.bytes.truncate(whole.min(OVER_LINKS as usize));
        for (setting, width) in WIDTHS.into_iter().enumerate() {
            let of_copies =
                |name, space| Way { space, mount: by("sliding-window"), ..Way::new(name, setting) };
            let mut ways = vec![of_copies("1 copy", vec![])];
            if width > 1 {
                let later = vec!["--copies", "2", "--mirror", "client-async"];
                ways.push(of_copies("2 copies, the second later", later));
            }
            self.write_by(width, Some(&network), &ways, |way, rated| {
                panel.add(&format!("OAB, {}", way.name), way.setting, rated.observed);
                panel.add(&format!("ASB, {}", way.name), way.setting, rated.achieved);
            })?;
        }
        let space = ["--copies", "2", "--mirror", "client-async"];
        Ok(self.picture("checkpoint-links", &space, &by("sliding-window"), vec![panel]))
    }

    /// Writes a checkpoint in each way in every round, in a pool that is made for it.
    fn write_by(
        &mut self,
        donors: usize,
        network: Option<&Arc<Network>>,
        ways: &[Way<'_>],
        mut note: impl FnMut(&Way<'_>, Rated),
    ) -> Result<()> {
        let dir = self.dir.join("pool");
        let most = self.plan.size.0.div_ceil(1 << 30) * (2 * ways.len() * self.plan.rounds) as u64;
        let pool = Pool::start(Start {
            binary: &self.plan.potluck,
            dir: &dir,
            donors,
            lent: &format!("{}GiB", most + 2),
            options: &["--metadata-copies", "0", "--gc-delay", "2s"],
            network: network.cloned(),
        })?;
        let mut mounts = Vec::new();
        for (number, way) in ways.iter().enumerate() {
            let space = format!("ckpt{number}");
            let create = ["space", "create", &space, "--plain", "--ack", "memory"];
            let copies =
                if way.space.contains(&"--copies") { &[][..] } else { &["--copies", "1"][..] };
            measure::run(pool.client().args(create).args(copies).args(&way.space))?;
            mounts.push(Mounted::pool(
                &pool,
                &space,
                dir.join(format!("at-{number}")),
                &way.mount,
            )?);
        }
        for round in 0..self.plan.rounds {
            // The order is reversed each time, so that no protocol always finds the warmer machine.
            for turn in 0..ways.len() {
                let at = if round % 2 == 0 { turn } else { ways.len() - 1 - turn };
                let rated = self.write(&pool, &mounts[at])?;
                eprintln!(
                    "round {}: {donors} donors, {} {}: OAB {:.0} MiB/s, ASB {:.0} MiB/s",
                    round + 1,
                    ways[at].space.join(" "),
                    ways[at].mount.join(" "),
                    rated.observed.clock,
                    rated.achieved.clock,
                );
                note(&ways[at], rated);
            }
        }
        drop(mounts); // They are unmounted before their pool stops.
        drop(pool);
        content::remove(&dir)
    }

    fn write(&mut self, pool: &Pool, mounted: &Mounted) -> Result<Rated> {
        self.memory.change();
        machine::write_back(&self.dir)?;
        pool.wait_quiet()?;
        machine::back_memory()?;
        let (path, bytes) = (mounted.dir.join("checkpoint"), &self.memory.bytes);
        let written = write_to_pool(&path, bytes)?;
        fs::remove_file(&path)?;
        let sample = |took, told| Sample { clock: mib_s(bytes, took), told: Some(told) };
        Ok(Rated {
            observed: sample(written.observed, written.told_observed),
            achieved: sample(written.achieved, written.told_achieved),
        })
    }

    fn picture(
        &self,
        name: &'static str,
        space: &[&str],
        mount: &[&str],
        panels: Vec<Panel>,
    ) -> Picture {
        let commands = vec![
            command(self.plan, "write-protocols"),
            format!(
                "potluck space create SPACE --plain --ack memory --copies 1 {}",
                space.join(" ")
            ),
            format!("potluck mount {} pot://SPACE DIR", mount.join(" ")),
        ];
        Picture { name, commands, panels }
    }
}

impl<'a> Way<'a> {
    fn new(name: &'a str, setting: usize) -> Self {
        Self { name, panel: 0, setting, space: Vec::new(), mount: Vec::new() }
    }
}

/// Returns the options of a mount that writes by a protocol, with the sizes of the paper.
fn by(protocol: &str) -> Vec<&str> {
    vec!["--write-protocol", protocol, "--write-window", WINDOW, "--temporary-size", TEMPORARY]
}
