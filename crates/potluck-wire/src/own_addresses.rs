//! The addresses that a daemon tells others of itself.

use crate::addresses::{Address, Addresses, BadAddress};
use crate::net::Net;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// IPv4 addresses that are told at most.
const MOST_V4: usize = 3;
/// The same of IPv6, of which a machine may have many that pass.
const MOST_V6: usize = 2;
/// How long the machine's own name may take to be looked up.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(2);
/// How names of interfaces begin behind which there are containers and virtual machines: many
/// machines have the same addresses there, and no other machine reaches them.
const INNER: [&str; 10] =
    ["docker", "br-", "veth", "virbr", "lxc", "lxd", "cni", "podman", "flannel", "vmnet"];

/// What a daemon tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Where it is reached; empty on a machine without a network.
    pub addresses: Addresses,
    /// Whether nobody said so: whoever sees another address adds that.
    pub guessed: bool,
}

impl Told {
    /// What a daemon that listens at `listen` tells: what its owner says (`advertise`), otherwise
    /// the one address at which it listens, otherwise all that the machine is known by.
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
        let hosts = net.own_hosts().await;
        let addresses = hosts.iter().filter_map(|host| Address::parse(host, listen.port()).ok());
        let heard =
            |address: &Address| !(listen.is_ipv4() && address.ip().is_some_and(|ip| ip.is_ipv6()));
        Ok(Self { addresses: Addresses::new(addresses.filter(heard)), guessed: true })
    }
}

/// Where a daemon that listens at `listen` is reached from its own machine.
pub fn from_this_machine(listen: SocketAddr) -> Address {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => [127, 0, 0, 1].into(),
        // It listens for IPv4 too, which is never switched off on the loopback interface.
        IpAddr::V6(ip) if ip.is_unspecified() => [127, 0, 0, 1].into(),
        ip => ip,
    };
    Address::of(ip, listen.port())
}

/// What this machine is called by others: addresses of its network interfaces, and its name.
pub(crate) async fn of_this_machine() -> Vec<String> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_else(|why| {
        tracing::warn!("cannot list the machine's network interfaces: {why}");
        Vec::new()
    });
    let interfaces = interfaces.iter().filter(|one| one.is_oper_up());
    let (v4, v6) = chosen(interfaces.map(|one| (one.name.as_str(), one.ip())));
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = is_known_elsewhere(&name).await.then_some(name);
    let text = |ips: Vec<IpAddr>| ips.into_iter().map(|ip| ip.to_string());
    text(v4).chain(name).chain(text(v6)).collect()
}

/// The addresses to tell, of IPv4 and of IPv6.
fn chosen<'a>(interfaces: impl Iterator<Item = (&'a str, IpAddr)>) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (_, ip) in interfaces.filter(|(name, _)| !is_inner(name)) {
        match ip {
            IpAddr::V4(v) if !v.is_loopback() => v4.push(ip),
            // One that is valid on its own link only needs the interface, which others call
            // something else.
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

/// Whether containers and virtual machines are behind an interface of this name.
pub(crate) fn is_inner(name: &str) -> bool {
    INNER.iter().any(|inner| name.starts_with(inner))
}

/// Whether the machine's name leads to where others reach it. Many a name leads to the machine
/// itself and nobody else knows it.
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

    #[tokio::test]
    async fn what_an_owner_says_replaces_the_guess_and_a_single_place_to_listen_is_told_alone() {
        let net = crate::net::SystemNet;
        let told = async |listen: &str, advertise: &[&str]| {
            let advertise: Vec<_> = advertise.iter().map(|one| one.to_string()).collect();
            let told = Told::of(&net, listen.parse().expect("an address"), &advertise).await;
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
