//! The addresses that a daemon tells others of itself.

use crate::addresses::{Address, Addresses, BadAddress};
use crate::net::{Net, SharedNet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The most IPv4 addresses that are told.
const MOST_V4: usize = 3;
/// The most IPv6 addresses that are told; a machine may have many that are temporary.
const MOST_V6: usize = 2;
/// The time between two looks at the machine's addresses.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The time that the lookup of the machine's own name may take.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(2);
/// The time for which a daemon that starts waits for that lookup. Without it the daemon tells its IP addresses alone,
/// and the name as soon as [`AddressWatch`] finds it: a resolver that does not answer is common, and must not keep a
/// new pool from serving.
const WAIT_AT_START: Duration = Duration::from_millis(300);
/// The beginnings of names of interfaces with containers and virtual machines behind them: many machines have the
/// same addresses there, and no other machine reaches them.
const INNER: [&str; 10] =
    ["docker", "br-", "veth", "virbr", "lxc", "lxd", "cni", "podman", "flannel", "vmnet"];

/// The addresses that a daemon tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldAddresses {
    /// The addresses at which the daemon is reached; empty on a machine without a network.
    pub addresses: Addresses,
    /// True if the addresses are guessed, because the owner said none: a manager that sees the daemon at another
    /// address adds that.
    pub guessed: bool,
}

impl ToldAddresses {
    /// Returns the addresses that a daemon tells which listens at `listen`: those that its owner says
    /// (`advertise`), otherwise the one address at which it listens, otherwise all that the machine is
    /// known by, as far as that is found out within a moment.
    pub async fn of(
        net: &dyn Net,
        listen: SocketAddr,
        advertise: &[String],
    ) -> Result<Self, BadAddress> {
        if !advertise.is_empty() {
            let addresses = advertise.iter().map(|one| Address::parse(one, listen.port()));
            let addresses = Addresses::new(addresses.collect::<Result<Vec<_>, _>>()?);
            return Ok(Self { addresses, guessed: false });
        }
        if !listen.ip().is_unspecified() {
            return Ok(Self { addresses: listen.into(), guessed: false });
        }
        let hosts = tokio::time::timeout(WAIT_AT_START, net.own_hosts()).await;
        let hosts = hosts.unwrap_or_else(|_| net.own_ips().iter().map(IpAddr::to_string).collect());
        Ok(Self::guess(hosts, listen))
    }

    /// Makes the addresses of a machine that is known by these names and IP addresses.
    fn guess(hosts: Vec<String>, listen: SocketAddr) -> Self {
        let addresses = hosts.iter().filter_map(|host| Address::parse(host, listen.port()).ok());
        let heard =
            |address: &Address| !(listen.is_ipv4() && address.ip().is_some_and(|ip| ip.is_ipv6()));
        Self { addresses: Addresses::new(addresses.filter(heard)), guessed: true }
    }
}

/// A watch that notices when a daemon is to tell other addresses of itself.
///
/// The list of interfaces is compared every few seconds: a call to the kernel, where its messages about changes
/// would take a socket and a parser. A machine without a network has nobody to tell, and keeps what it told.
pub struct AddressWatch {
    net: SharedNet,
    listen: SocketAddr,
    told: ToldAddresses,
    seen: Vec<IpAddr>,
}

impl AddressWatch {
    /// Makes the watch of a daemon that listens at `listen` and has told `told`.
    pub fn new(net: SharedNet, listen: SocketAddr, told: ToldAddresses) -> Self {
        // Nothing counts as seen yet: since the addresses were guessed, a network may have come up.
        Self { net, listen, told, seen: Vec::new() }
    }

    /// Waits until the addresses are others, and returns them; waits for ever where the owner said what they are.
    pub async fn moved(&mut self) -> Addresses {
        if !self.told.guessed {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let ips = self.net.own_ips();
            if ips.is_empty() || ips == self.seen {
                continue;
            }
            self.seen = ips;
            let now = ToldAddresses::guess(self.net.own_hosts().await, self.listen);
            if now != self.told {
                self.told = now;
                return self.told.addresses.clone();
            }
        }
    }
}

/// Returns the address at which a daemon that listens at `listen` is reached from its own machine.
pub fn from_this_machine(listen: SocketAddr) -> Address {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => [127, 0, 0, 1].into(),
        // It listens for IPv4 too, which is never switched off on the loopback interface.
        IpAddr::V6(ip) if ip.is_unspecified() => [127, 0, 0, 1].into(),
        ip => ip,
    };
    Address::of(ip, listen.port())
}

/// Returns how others call this machine: addresses of its network interfaces, and its name.
pub(crate) async fn of_this_machine() -> Vec<String> {
    let (v4, v6) = of_interfaces();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = is_known_elsewhere(&name).await.then_some(name);
    let text = |ips: Vec<IpAddr>| ips.into_iter().map(|ip| ip.to_string());
    text(v4).chain(name).chain(text(v6)).collect()
}

/// Returns the addresses of the machine's network interfaces.
pub(crate) fn ips_of_this_machine() -> Vec<IpAddr> {
    let (v4, v6) = of_interfaces();
    [v4, v6].concat()
}

fn of_interfaces() -> (Vec<IpAddr>, Vec<IpAddr>) {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_else(|why| {
        tracing::warn!("cannot list the machine's network interfaces: {why}");
        Vec::new()
    });
    let interfaces = interfaces.iter().filter(|one| one.is_oper_up());
    chosen(interfaces.map(|one| (one.name.as_str(), one.ip())))
}

/// Returns the addresses to tell, of IPv4 and of IPv6.
fn chosen<'a>(interfaces: impl Iterator<Item = (&'a str, IpAddr)>) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (_, ip) in interfaces.filter(|(name, _)| !is_inner(name)) {
        match ip {
            IpAddr::V4(v) if !v.is_loopback() => v4.push(ip),
            // A link-local address is no use without the name of the interface, which is another on other
            // machines.
            IpAddr::V6(v) if !v.is_loopback() && !v.is_unicast_link_local() => v6.push(ip),
            _ => {}
        }
    }
    // An address that a machine gave itself for want of another is the last to try.
    v4.sort_by_key(|ip| matches!(ip, IpAddr::V4(v) if v.is_link_local()));
    v4.truncate(MOST_V4);
    v6.truncate(MOST_V6);
    (v4, v6)
}

/// Returns whether containers and virtual machines are behind an interface of this name.
pub(crate) fn is_inner(name: &str) -> bool {
    INNER.iter().any(|inner| name.starts_with(inner))
}

/// Returns whether the machine's name leads to where others reach it. Many a name leads to the machine itself and
/// nobody else knows it.
async fn is_known_elsewhere(name: &str) -> bool {
    if name.is_empty() || name == "localhost" {
        return false;
    }
    let found = tokio::time::timeout(LOOKUP_DEADLINE, tokio::net::lookup_host((name, 1))).await;
    let Ok(Ok(mut found)) = found else { return false };
    found.any(|at| !at.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{BoxFuture, BoxStream, Listener};
    use std::io;
    use std::sync::Arc;

    #[test]
    fn a_machine_tells_the_addresses_that_others_reach() {
        let interfaces = [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("eth1", "169.254.3.4"),
            ("eth0", "10.1.2.3"),
            ("eth0", "fe80::1"),
            ("eth0", "fd00::3"),
            ("docker0", "172.17.0.1"),
            ("br-0f3a", "172.18.0.1"),
            ("veth12", "fd00:1::1"),
        ];
        let parsed = interfaces.map(|(name, ip)| (name, ip.parse().expect("an address")));
        let (v4, v6) = chosen(parsed.into_iter());
        let text = |ips: Vec<IpAddr>| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(text(v4), ["10.1.2.3", "169.254.3.4"]);
        assert_eq!(text(v6), ["fd00::3"]);
    }

    /// The network of a machine whose addresses the test changes. The lookup of its name takes `lookup`.
    #[derive(Default)]
    struct Moving {
        ips: std::sync::Mutex<Vec<IpAddr>>,
        lookup: Duration,
    }

    impl Moving {
        fn set(&self, ips: &[&str]) {
            let ips = ips.iter().map(|ip| ip.parse().expect("an address"));
            *self.ips.lock().expect("no holder panics") = ips.collect();
        }
    }

    impl Net for Moving {
        fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<BoxStream>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
        fn listen<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
        fn own_hosts(&self) -> BoxFuture<'_, Vec<String>> {
            Box::pin(async {
                tokio::time::sleep(self.lookup).await;
                let name = (!self.lookup.is_zero()).then(|| "bob".to_owned());
                self.own_ips().iter().map(IpAddr::to_string).chain(name).collect()
            })
        }
        fn own_ips(&self) -> Vec<IpAddr> {
            self.ips.lock().expect("no holder panics").clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_resolver_does_not_delay_the_start() {
        let net = Arc::new(Moving { lookup: LOOKUP_DEADLINE, ..Moving::default() });
        net.set(&["10.0.0.1"]);
        let listen = "[::]:7700".parse().expect("an address");
        let began = tokio::time::Instant::now();
        let told = ToldAddresses::of(&*net, listen, &[]).await.expect("addresses");
        assert_eq!(told.addresses.to_string(), "10.0.0.1:7700");
        assert!(began.elapsed() <= Duration::from_millis(500), "{:?}", began.elapsed());
        let moved = AddressWatch::new(net.clone(), listen, told).moved().await;
        assert_eq!(moved.to_string(), "10.0.0.1:7700, bob:7700");
    }

    #[tokio::test(start_paused = true)]
    async fn address_change_is_announced_unless_advertised() {
        let net = Arc::new(Moving::default());
        net.set(&["10.0.0.1"]);
        let listen = "[::]:7701".parse().expect("an address");
        let moves = async |advertise: &[String]| {
            let told = ToldAddresses::of(&*net, listen, advertise).await.expect("addresses");
            let mut watch = AddressWatch::new(net.clone(), listen, told);
            let mut heard = Vec::new();
            for ips in [&["10.0.0.1"][..], &[], &["10.0.0.2"], &["10.0.0.2"]] {
                net.set(ips);
                let moved = tokio::time::timeout(3 * LOOK_EVERY, watch.moved()).await;
                heard.extend(moved.ok().map(|addresses| addresses.to_string()));
            }
            net.set(&["10.0.0.1"]);
            heard
        };
        assert_eq!(moves(&[]).await, ["10.0.0.2:7701"]);
        assert!(moves(&["bob".to_owned()]).await.is_empty());
    }

    #[tokio::test]
    async fn advertised_addresses_override_guessed_ones() {
        let net = crate::net::SystemNet;
        let told = async |listen: &str, advertise: &[&str]| {
            let advertise: Vec<_> = advertise.iter().map(|one| one.to_string()).collect();
            let told =
                ToldAddresses::of(&net, listen.parse().expect("an address"), &advertise).await;
            told.map(|told| (told.addresses.to_string(), told.guessed))
        };
        let said = told("[::]:7700", &["lab-head", "10.0.0.1:80"]).await.expect("addresses");
        assert_eq!(said, ("lab-head:7700, 10.0.0.1:80".into(), false));
        let alone = told("127.0.0.1:7700", &[]).await.expect("addresses");
        assert_eq!(alone, ("127.0.0.1:7700".into(), false));
        assert!(told("[::]:7700", &["a b"]).await.is_err());
        let (guess, guessed) = told("[::]:7700", &[]).await.expect("addresses");
        assert!(guessed && !guess.contains("127.0.0.1") && !guess.contains("::1]"), "{guess}");
    }
}
