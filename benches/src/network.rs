//! Makes machines on links of a given rate: one network namespace for each member of a pool, joined by a bridge. Both
//! ends of a fast link have a token bucket (`tc tbf`), and a slow one is a line of our own, which has a delay. The files
//! are this machine's own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use potluck_line::{LineEnd, RunningLine, SlowLine};

use crate::interrupt;
use crate::measure;

/// The link of a machine.
#[derive(Clone, Copy, Debug)]
pub enum Link {
    /// A link of so many megabits a second, without delay.
    Mbit(u64),
    Slow(SlowLine),
}

impl Link {
    /// Returns the rate in bytes a second.
    pub fn rate(self) -> u64 {
        match self {
            Self::Mbit(mbit) => mbit * 125_000,
            Self::Slow(line) => line.rate / 8,
        }
    }
}

/// The links of the members. Nothing limits the manager's, which carries no data of files.
#[derive(Clone, Debug)]
pub struct Links {
    pub client: Link,
    pub donors: Vec<Link>,
}

/// The machine of a member of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Client,
    Manager,
    Donor(usize),
}

/// The namespaces, which end when this is dropped.
pub struct Network {
    switch: Namespace,
    client: Namespace,
    manager: Namespace,
    donors: Vec<Namespace>,
    slow_lines: Vec<RunningLine>,
}

/// Returns why there can be no links of a given rate here, or `None` if there can.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("links are made of network namespaces, which takes root".to_owned());
    }
    let probe =
        "ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 64kb latency 50ms";
    let tried = Command::new("unshare").args(["--net", "sh", "-ec", probe]).output();
    match tried {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

impl Network {
    /// Makes a network of this many donors, a manager and a client. Without `links`, they are as fast as this machine.
    pub fn new(donors: usize, links: Option<&Links>) -> Result<Self> {
        let switch = Namespace::new()?;
        switch.run("ip link add br0 type bridge && ip link set br0 up")?;
        let mut network = Self {
            switch,
            client: Namespace::new()?,
            manager: Namespace::new()?,
            donors: (0..donors).map(|_| Namespace::new()).collect::<Result<_>>()?,
            slow_lines: Vec::new(),
        };
        network.link(Host::Client, links.map(|links| links.client))?;
        network.link(Host::Manager, None)?;
        for number in 0..donors {
            network.link(Host::Donor(number), links.map(|links| links.donors[number]))?;
        }
        Ok(network)
    }

    /// Returns the command that runs `program` on `host`.
    pub fn command(&self, host: Host, program: &Path) -> Command {
        self.namespace(host).command(program)
    }

    pub fn address(&self, host: Host) -> IpAddr {
        Ipv4Addr::new(10, 78, 0, number(host)).into()
    }

    fn namespace(&self, host: Host) -> &Namespace {
        match host {
            Host::Client => &self.client,
            Host::Manager => &self.manager,
            Host::Donor(number) => &self.donors[number],
        }
    }

    fn link(&mut self, host: Host, link: Option<Link>) -> Result<()> {
        let (number, namespace) = (number(host), self.namespace(host));
        let pid = namespace.holder.id();
        let mut line = None;
        if let Some(Link::Slow(slow)) = link {
            let port = format!("port{number}");
            let ends = [
                LineEnd { pid: self.switch.holder.id(), device: &port },
                LineEnd { pid, device: "eth0" },
            ];
            line = Some(slow.run(ends).context("cannot make a slow line")?);
        } else {
            let veth = format!("ip link add port{number} type veth peer name eth0 netns {pid}");
            self.switch.run(&veth)?;
        }
        self.switch.run(&format!("ip link set port{number} master br0 up"))?;
        namespace.run(&format!(
            "ip link set lo up; ip addr add {}/24 dev eth0; ip link set eth0 up",
            self.address(host)
        ))?;
        if let Some(Link::Mbit(mbit)) = link {
            // A burst is what the link carries in a millisecond, and no less than one segment that the kernel has
            // put together from many.
            let burst = (mbit * 125).max(65_536);
            let limit = format!("root tbf rate {mbit}mbit burst {burst} latency 20ms");
            self.switch.run(&format!("tc qdisc add dev port{number} {limit}"))?;
            namespace.run(&format!("tc qdisc add dev eth0 {limit}"))?;
        }
        self.slow_lines.extend(line);
        Ok(())
    }
}

fn number(host: Host) -> u8 {
    match host {
        Host::Client => 1,
        Host::Manager => 2,
        Host::Donor(number) => 10 + number as u8,
    }
}

/// A network namespace, which exists as long as a process that sleeps in it.
struct Namespace {
    holder: Child,
}

impl Namespace {
    fn new() -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        let namespace = Self { holder: measure::spawn(&mut command)? };
        let own = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let pid = namespace.holder.id().to_string();
        // The holder is there at once, its namespace a moment later.
        interrupt::wait_until(
            "a network namespace",
            Duration::from_secs(10),
            Duration::from_millis(1),
            || Ok(own(&pid).is_some_and(|there| Some(there) != own("self"))),
        )?;
        Ok(namespace)
    }

    /// Returns the command that runs `program` in this namespace, as the process that is started and not as a child
    /// of it.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg("--").arg(program);
        command
    }

    /// Runs lines of shell, each of which must succeed.
    fn run(&self, lines: &str) -> Result<()> {
        let mut command = self.command(Path::new("sh"));
        let said = command.args(["-ec", lines]).output().context("nsenter")?;
        ensure!(said.status.success(), "{lines}: {}", String::from_utf8_lossy(&said.stderr));
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Either error means that it has ended by itself.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
