//! A lab of machines: each has its own network, addresses, hostname, root file system and home. A machine is a set of
//! Linux namespaces; its root is an overlay over this machine's root, so that programs are there and whatever a test
//! writes (`/data`, `/etc/hosts`, `/var/lib`) is gone with it. One bridge joins them.
//!
//! Making namespaces takes root: without it [`Machines::new`] says SKIPPED and returns `None`.

use super::program::{Ran, Running, code_of};
use super::waiting::{DEADLINE, has_program, is_root, skip, wait_until};
use potluck_line::{LineEnd, RunningLine, SlowLine};
use rustix::process::Signal;
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time after which a command counts as hung.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// The script that makes a process a machine: a private root over the host's, then a name. `$1` is the
/// name, `$2` an empty directory, `$3` the product.
const BECOME_A_MACHINE: &str = r#"
mount -t tmpfs -o mode=755 machine "$2"
mkdir "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
rm -rf etc/potluck var/lib/potluck
mkdir -p home/lab old usr/local/bin
mount --rbind /dev dev
mount --rbind /proc proc
mount -t sysfs sys sys
mount -t tmpfs tmp tmp
mount -t tmpfs -o mode=755 run run
rm -f usr/local/bin/potluck etc/hosts etc/resolv.conf
touch usr/local/bin/potluck
mount --bind "$3" usr/local/bin/potluck
hostname "$1"
echo "$1" > etc/hostname
echo '127.0.0.1 localhost' > etc/hosts
: > etc/resolv.conf
ip link set lo up
pivot_root . old
cd /
umount -l old
exec sleep infinity
"#;

/// The way in which machines find each other's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Every machine can look up every other one's hostname.
    Dns,
    /// Nobody can look up any name.
    AddressOnly,
    /// Nobody can look up any name, and each machine tells others no address but its name in multicast DNS.
    MdnsOnly,
}

/// Some machines on one switch. All of their processes end when this is dropped.
pub struct Machines {
    // Machines go before the switch that joins them, and the directory goes last.
    machines: Vec<Machine>,
    switch: Running,
    dir: TempDir,
}

/// One machine of several on a switch.
pub struct Machine {
    name: String,
    number: u8,
    daemons: RefCell<Vec<(String, Daemon)>>,
    /// The slow line that joins it to the switch, if there is one.
    line: RefCell<Option<RunningLine>>,
    holder: Running,
    switch: u32,
    logs: PathBuf,
    runs: Cell<u32>,
}

/// A command that goes on in the background of a machine.
struct Daemon {
    running: Running,
    log: PathBuf,
}

impl Machines {
    /// Makes machines with these hostnames. Where `test` cannot have them, says so and returns `None`.
    pub fn new(test: &str, naming: Naming, names: &[&str]) -> Option<Self> {
        let missing = ["ip", "nsenter", "unshare", "pivot_root"]
            .into_iter()
            .find(|program| !has_program(program));
        let reason = match missing {
            _ if !is_root() => Some("machines are namespaces, and making those takes root".into()),
            Some(program) => Some(format!("there is no {program} here")),
            None => None,
        };
        if let Some(reason) = reason {
            skip(test, &reason);
            return None;
        }
        let dir = tempfile::Builder::new().prefix("potluck-lab-").tempdir().expect("a directory");
        let switch = holder(&["--net", "sleep", "infinity"]);
        on_switch(
            switch.pid().as_raw_nonzero().get() as u32,
            "ip link add br0 type bridge; ip link set br0 up",
        );
        let mut lab = Self { machines: Vec::new(), switch, dir };
        for name in names {
            lab.add(name);
        }
        match naming {
            Naming::Dns => lab.write_hosts(),
            Naming::AddressOnly => {}
            Naming::MdnsOnly => lab.machines.iter().for_each(Machine::advertise_mdns_name),
        }
        Some(lab)
    }

    /// Adds a machine to the switch, whose name nobody can look up.
    pub fn add(&mut self, name: &str) -> &Machine {
        let number = u8::try_from(self.machines.len() + 1).expect("a handful of machines");
        let root = self.dir.path().join(format!("{name}.root"));
        let logs = self.dir.path().join(format!("{name}.logs"));
        fs::create_dir(&root).expect("a directory in the test's own");
        fs::create_dir(&logs).expect("a directory in the test's own");
        let product = Path::new(env!("CARGO_BIN_EXE_potluck"));
        let [root, product] = [&root, product].map(|path| path.to_str().expect("UTF-8"));
        let become_a_machine = [
            "--net",
            "--uts",
            "--mount",
            "sh",
            "-euc",
            BECOME_A_MACHINE,
            "sh",
            name,
            root,
            product,
        ];
        let holder = holder(&become_a_machine);
        let switch = self.switch.pid().as_raw_nonzero().get() as u32;
        let (daemons, line, runs) = Default::default();
        let name = name.to_owned();
        let machine = Machine { name, number, daemons, line, holder, switch, logs, runs };
        machine.connect();
        self.machines.push(machine);
        self.machines.last().expect("one was added")
    }

    /// Lets every machine look up every other one's hostname from now on.
    pub fn write_hosts(&self) {
        let lines =
            self.machines.iter().map(|machine| format!("{} {}\n", machine.ip(), machine.name));
        let hosts = format!("127.0.0.1 localhost\n{}", lines.collect::<String>());
        for machine in &self.machines {
            fs::write(machine.path("/etc/hosts"), &hosts).expect("a machine's own file");
        }
    }

    /// Returns the machine with this hostname.
    #[track_caller]
    pub fn machine(&self, name: &str) -> &Machine {
        let mut found = self.machines.iter().filter(|machine| machine.name == name);
        found.next().unwrap_or_else(|| panic!("no machine {name}"))
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for machine in &self.machines {
                for (line, daemon) in machine.daemons.borrow().iter() {
                    let log = fs::read_to_string(&daemon.log).unwrap_or_default();
                    let lines: Vec<_> = log.lines().collect();
                    let tail = lines[lines.len().saturating_sub(20)..].join("\n  ");
                    eprintln!("{}: {line}\n  {tail}", machine.name);
                }
            }
        }
    }
}

impl Machine {
    /// Returns the address of the machine.
    pub fn ip(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.number)
    }

    /// Returns the IPv6 address of the machine.
    pub fn ip6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, self.number.into())
    }

    /// Returns where the test itself finds a path of the machine.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.pid()))
    }

    /// Makes the machine's daemons tell others its name in multicast DNS alone.
    fn advertise_mdns_name(&self) {
        let setting = format!("advertise = [\"{}.local\"]", self.name);
        for daemon in ["manager", "donor"] {
            let dir = format!("/home/lab/.local/state/potluck/{daemon}");
            self.sh(&format!("mkdir -p {dir} && echo '{setting}' > {dir}/settings.toml")).ok();
        }
    }

    /// Gives the machine another address on the same network.
    pub fn readdress(&self, ip: Ipv4Addr) {
        self.sh(&format!("ip addr flush dev eth0 && ip addr add {ip}/24 dev eth0")).ok();
    }

    /// Cuts the machine off from the network, as when its cable is pulled.
    pub fn unplug(&self) {
        on_switch(self.switch, &format!("ip link set m{} down", self.number));
    }

    /// Plugs its cable in.
    pub fn plug_in(&self) {
        on_switch(self.switch, &format!("ip link set m{} up", self.number));
    }

    /// Runs a line of shell to its end, in the home of the machine's user.
    #[track_caller]
    pub fn sh(&self, line: &str) -> Ran {
        let number = self.runs.replace(self.runs.get() + 1);
        let [out, err] = ["out", "err"].map(|kind| self.logs.join(format!("{number}.{kind}")));
        let create = |path: &Path| File::create(path).expect("a file in the test's own directory");
        let started = Instant::now();
        let mut command = self.command(line);
        let mut running =
            Running::start(command.stdin(Stdio::null()).stdout(create(&out)).stderr(create(&err)));
        let what = format!("`{line}` on {}", self.name);
        let status = running.end_within(&what, COMMAND_LIMIT);
        let ran = Ran {
            command: what,
            code: code_of(status),
            stdout: fs::read(&out).expect("its output"),
            stderr: String::from_utf8_lossy(&fs::read(&err).expect("its output")).into_owned(),
            took: started.elapsed(),
        };
        assert!(!ran.stderr.contains("panicked"), "{}: {}", ran.command, ran.stderr);
        ran
    }

    /// Starts a line that goes on in the background, and waits until it has said `ready`.
    #[track_caller]
    pub fn start(&self, line: &str, ready: &str) {
        let number = self.runs.replace(self.runs.get() + 1);
        let log = self.logs.join(format!("{number}.log"));
        let output = File::create(&log).expect("a file in the test's own directory");
        let both = output.try_clone().expect("a second handle");
        // The shell gives its place to the command, so that signals reach that one.
        let mut command = self.command(&format!("exec {line}"));
        let running = Running::start(command.stdin(Stdio::null()).stdout(both).stderr(output));
        // The daemon is kept before it is waited for, so that what it said is shown when it never gets
        // ready.
        self.daemons.borrow_mut().push((line.into(), Daemon { running, log: log.clone() }));
        let said = || fs::read_to_string(&log).unwrap_or_default();
        let mut ended = None;
        wait_until(&format!("`{line}` to say “{ready}” on {}", self.name), DEADLINE, || {
            let mut daemons = self.daemons.borrow_mut();
            ended = daemons.last_mut().and_then(|(_, daemon)| daemon.running.ended());
            ended.is_some() || said().contains(ready)
        });
        assert!(ended.is_none(), "`{line}` ended on {}: {}", self.name, said());
    }

    /// Sends a signal to the commands that were started with lines that begin like this, and waits for their ends.
    #[track_caller]
    pub fn stop(&self, beginning: &str, signal: Signal) {
        let mut daemons = self.daemons.borrow_mut();
        let before = daemons.len();
        daemons.retain_mut(|(line, daemon)| {
            if !line.starts_with(beginning) {
                return true;
            }
            daemon.running.signal(signal);
            daemon.running.end(line);
            false
        });
        assert!(daemons.len() < before, "nothing like `{beginning}` runs on {}", self.name);
    }

    /// Sends a signal to the commands that were started with lines that begin like this, and waits for nothing.
    pub fn signal(&self, beginning: &str, signal: Signal) {
        let daemons = self.daemons.borrow();
        for (_, daemon) in daemons.iter().filter(|(line, _)| line.starts_with(beginning)) {
            daemon.running.signal(signal);
        }
    }

    /// Returns the output so far of the last command that was started with a line that begins like this.
    #[track_caller]
    pub fn log(&self, beginning: &str) -> String {
        let daemons = self.daemons.borrow();
        let mut found = daemons.iter().filter(|(line, _)| line.starts_with(beginning));
        let (_, daemon) = found.next_back().unwrap_or_else(|| panic!("no `{beginning}` runs"));
        fs::read_to_string(&daemon.log).unwrap_or_default()
    }

    /// Kills all that was started on the machine at once, as when its power fails.
    pub fn kill_all(&self) {
        self.daemons.borrow_mut().clear();
    }

    fn pid(&self) -> u32 {
        self.holder.pid().as_raw_nonzero().get() as u32
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.pid().to_string();
        command.args(["-t", &pid, "--net", "--uts", "--mount", "--root"]);
        command.args(["sh", "-c", &format!("cd\n{line}")]).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/home/lab").env("USER", "lab").env("RUST_BACKTRACE", "1");
        command
    }

    /// Joins the machine to the switch, and gives it its addresses.
    fn connect(&self) {
        let (pid, number) = (self.pid(), self.number);
        let comm = format!("/proc/{pid}/comm");
        wait_until(&format!("{} to be a machine", self.name), DEADLINE, || {
            fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")
        });
        on_switch(
            self.switch,
            &format!(
                "ip link add m{number} type veth peer name eth0 netns {pid}; \
                 ip link set m{number} master br0 up"
            ),
        );
        self.configure();
    }

    /// Joins the machine to the switch by a slow line from now on.
    pub fn slow_down(&self, line: SlowLine) {
        let (switch, number) = (self.switch, self.number);
        on_switch(switch, &format!("ip link del m{number}"));
        let device = format!("m{number}");
        let ends =
            [LineEnd { pid: switch, device: &device }, LineEnd { pid: self.pid(), device: "eth0" }];
        *self.line.borrow_mut() = Some(line.run(ends).expect("root makes tap devices"));
        on_switch(switch, &format!("ip link set {device} master br0 up"));
        self.configure();
    }

    /// Gives the machine its addresses.
    fn configure(&self) {
        let (ip, ip6) = (self.ip(), self.ip6());
        self.sh(&format!(
            "ip addr add {ip}/24 dev eth0 && ip -6 addr add {ip6}/64 dev eth0 nodad && \
             ip link set eth0 up && ip route add default via 10.77.0.254"
        ))
        .ok();
    }
}

fn holder(arguments: &[&str]) -> Running {
    let mut command = Command::new("unshare");
    Running::start(command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()))
}

/// Runs lines in the switch's network, each of which must succeed.
fn on_switch(switch: u32, lines: &str) {
    let pid = switch.to_string();
    // The holder is there at once, its namespace a moment later.
    let own = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    wait_until("the switch", DEADLINE, || own(&pid).is_some_and(|ns| Some(ns) != own("self")));
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid, "--net", "sh", "-euc", lines]);
    let said = command.output().expect("nsenter starts");
    assert!(said.status.success(), "{lines}: {}", String::from_utf8_lossy(&said.stderr));
}
