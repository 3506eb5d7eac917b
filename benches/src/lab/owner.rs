//! What owners feel (FreeLoader, §5.4, figures 11 and 12): how much longer jobs on a donor's machine take while a client moves data at full
//! demand, on one core and on two.
//!
//! Each job runs in pairs, with service and without, which take turns in coming first: whatever else the machine does is
//! in both. The median of the pairs' ratios counts. The donor and the job are bound to the same cores; the client is bound
//! to none, and shares the machine, so this is best run on one with cores to spare.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::bed::Bed;
use super::measured::{CLIENT, Measured, Options, picture};
use crate::network::{Host, Links};
use crate::outcome::{Figure, Limit};
use crate::picture::{Panel, Sample};
use crate::report::median;

/// The programs that the jobs need.
const PROGRAMS: &str = "taskset dd gzip find cc curl python3";
/// The least number of pairs of which the median is told.
const PAIRS: usize = 9;

/// A job of the owner: a script of the shell, run in a directory of the donor's disk.
struct Job {
    name: &'static str,
    /// The script that makes it ready before each run, outside its time.
    prepare: &'static str,
    script: &'static str,
    /// The most percent by which it may be slower.
    most: f64,
}

const JOBS: [Job; 6] = [
    Job {
        name: "processor",
        prepare: "",
        script: "i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done",
        most: 5.0,
    },
    Job {
        name: "compile",
        prepare: "for i in $(seq 2000); do echo \"int f$i(int a) { int s = 0; for (int i = 0; i < a; i++) s += i * $i; return s; }\"; done > job.c",
        script: "cc -O2 -c job.c -o job.o",
        most: 5.0,
    },
    Job {
        name: "disk read",
        prepare: "[ -s big ] || dd if=/dev/urandom of=big bs=1M count=512 conv=fsync status=none",
        script: "dd if=big of=/dev/null bs=1M iflag=direct status=none",
        most: 10.0,
    },
    Job {
        name: "disk write",
        prepare: "rm -f out",
        script: "dd if=/dev/zero of=out bs=1M count=512 oflag=direct conv=fsync status=none",
        most: 10.0,
    },
    Job {
        name: "pages",
        prepare: "[ -s page ] || dd if=/dev/urandom of=page bs=64k count=4 status=none",
        script: "for i in $(seq 50); do curl -sf -o /dev/null \"$PAGES/page\" || exit 1; done",
        most: 5.0,
    },
    Job {
        name: "composite",
        prepare: "rm -rf unpacked packed",
        // The idle times of the paper are of 1 to 3 seconds; they are in the time of the job, as there.
        script: "mkdir unpacked && dd if=/dev/urandom of=unpacked/data bs=1M count=25 conv=fsync status=none; sleep 1; \
                 find /usr/share -name '*.nothing' > /dev/null; sleep 2; gzip -c unpacked/data > packed && \
                 curl -sf -o /dev/null -T packed \"$PAGES/packed\"; sleep 1; find /usr/lib -maxdepth 3 > /dev/null; sleep 3; \
                 rm -r unpacked packed",
        most: 5.0,
    },
];

/// A server of pages on the client's machine, which also takes files.
const PAGES: &str = "import http.server, sys
class Pages(http.server.SimpleHTTPRequestHandler):
    def do_PUT(self):
        left = int(self.headers['Content-Length'])
        while left > 0:
            got = self.rfile.read(min(left, 1 << 16))
            if not got:
                return
            left -= len(got)
        self.send_response(201)
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], 8000), Pages).serve_forever()";

/// A process that is ended when this is dropped, with all that it started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // It leads a group of its own.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().with_context(|| format!("cannot start {command:?}"))?))
    }
}

/// Measures the jobs while a client reads and while one writes; nothing where a program that a job needs is missing.
pub fn run(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    let there = format!("for program in {PROGRAMS}; do command -v $program || exit 1; done");
    if !Command::new("sh").args(["-c", &there]).output()?.status.success() {
        eprintln!("lab: owner SKIPPED: it takes {PROGRAMS}");
        return Ok(None);
    }
    let cores: &[&str] = if options.short { &["0"] } else { &["0", "0,1"] };
    let jobs = if options.short { &JOBS[..1] } else { &JOBS[..] };
    let pairs = if options.short { 1 } else { options.rounds.max(PAIRS) };
    let settings: Vec<String> = jobs.iter().map(|job| job.name.to_owned()).collect();
    let (mut panels, mut ratios) = (Vec::new(), Vec::new());
    for cores in cores {
        let title = if cores.contains(',') { "two cores" } else { "one core" };
        let mut panel = Panel::new(title, "job", "% slower", settings.clone());
        let links = Links { client: CLIENT, donors: vec![CLIENT] };
        let dir = dir.join(format!("owner-{}", cores.len()));
        let bed = Bed::new(options, &dir, links)?;
        bed.make_space("copies1", &["--copies", "1"])?;
        let lab = OwnerLab::new(&bed, &dir, cores, bed.bytes(options.length, 1))?;
        for way in ["reads", "writes"] {
            for (setting, job) in jobs.iter().enumerate() {
                let mut slower = Vec::new();
                for number in 0..pairs {
                    let (mut alone, mut with) = (0.0, 0.0);
                    for service in [number % 2 == 0, number % 2 != 0] {
                        let serving = service.then(|| lab.demand(way)).transpose()?;
                        let took = lab.run(job)?;
                        drop(serving);
                        *(if service { &mut with } else { &mut alone }) = took;
                    }
                    let percent = (with / alone - 1.0) * 100.0;
                    // The picture begins at 0: a job that was faster with service was not slowed.
                    let sample = Sample { clock: percent.max(0.0), told: None };
                    panel.add(&format!("a client {way}"), setting, sample);
                    slower.push(percent);
                }
                ratios.push(Figure {
                    work: format!("{} on {title} while a client {way}, slower by", job.name),
                    value: median(slower),
                    unit: "%",
                    limit: Limit::AtMost(job.most),
                });
            }
        }
        panels.push(panel);
    }
    Ok(Some(Measured { picture: picture(options, "lab-owner", "owner", panels), ratios }))
}

/// The owner's machine: jobs and the donor on the same cores.
struct OwnerLab<'a> {
    bed: &'a Bed,
    /// The directory of the owner's files, on the disk that is lent.
    home: std::path::PathBuf,
    cores: &'a str,
    file: std::path::PathBuf,
    _pages: Running,
}

impl<'a> OwnerLab<'a> {
    fn new(bed: &'a Bed, dir: &Path, cores: &'a str, bytes: u64) -> Result<Self> {
        let home = dir.join("owner");
        fs::create_dir_all(&home)?;
        for pid in bed.pool.donor_pids() {
            let bound = Command::new("taskset").args(["-acp", cores, &pid.to_string()]).output()?;
            ensure!(bound.status.success(), "the donor cannot be bound to cores: {bound:?}");
        }
        // The bench's donors do not yield; this one does, as an owner's does unless told otherwise.
        let mut yields = bed.pool.on(Host::Donor(0));
        yields.arg("set").arg("--state").arg(dir.join("donor-0/state"));
        crate::measure::run(yields.args(["lend.slowdown", "--unset"]))?;
        let file = dir.join("demanded");
        crate::content::write_file(&file, "owner", bytes)?;
        let put =
            bed.pool.client().args(["cp", "-q"]).arg(&file).arg("pot://copies1/read").status()?;
        ensure!(put.success(), "the file that is read cannot be put");
        let served = dir.join("pages");
        fs::create_dir_all(&served)?;
        symlink(home.join("page"), served.join("page"))?;
        let address = bed.address(Host::Client).to_string();
        let mut pages = bed.command(Host::Client, Path::new("python3"));
        let pages = Running::start(pages.args(["-c", PAGES, &address]).current_dir(&served))?;
        Ok(Self { bed, home, cores, file, _pages: pages })
    }

    /// Has a client read or write at full demand until the result is dropped.
    fn demand(&self, way: &str) -> Result<Running> {
        let product = self.bed.pool.client();
        let (from, to) = match way {
            "reads" => ("pot://copies1/read".to_owned(), "/dev/null".to_owned()),
            _ => (self.file.display().to_string(), "pot://copies1/written".to_owned()),
        };
        let mut again = Command::new("sh");
        again.args(["-c", "while :; do \"$@\" || sleep 1; done", "again"]);
        again.arg(product.get_program()).args(product.get_args());
        for (name, value) in product.get_envs() {
            match value {
                Some(value) => again.env(name, value),
                None => again.env_remove(name),
            };
        }
        let demand = Running::start(again.args(["cp", "-q", "--force", &from, &to]))?;
        std::thread::sleep(std::time::Duration::from_secs(2)); // it is at full rate then
        Ok(demand)
    }

    /// Runs a job, and returns the seconds that it took.
    fn run(&self, job: &Job) -> Result<f64> {
        self.shell(job.prepare)?;
        let began = Instant::now();
        self.shell(job.script)?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn shell(&self, script: &str) -> Result<()> {
        let pages = format!("http://{}:8000", self.bed.address(Host::Client));
        let mut command = self.bed.command(Host::Donor(0), Path::new("taskset"));
        let ended = command
            .args(["-c", self.cores, "sh", "-ec", script])
            .env("PAGES", pages)
            .current_dir(&self.home)
            .output()?;
        ensure!(ended.status.success(), "a job of the owner failed: {script}: {ended:?}");
        Ok(())
    }
}
