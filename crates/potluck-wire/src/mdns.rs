//! Members of a pool find each other on one network without being told an address: multicast DNS
//! (RFC 6762) and service discovery (RFC 6763).
//!
//! A manager and a donor announce which pool they are of, by its authority's fingerprint, and where. A member that
//! finds the manager at no known address asks for the pool. Anybody on the network can answer, so that an answer is no
//! more than an address to try: only addresses of the networks that this machine is in are taken, few of them, and the
//! manager proves by TLS that it is the one.

use crate::addresses::{Address, Addresses};
use crate::env;
use if_addrs::{IfAddr, Interface};
use mdns_sd::{
    HostnameResolutionEvent, IfKind, IfPredicate, ResolvedService, ServiceDaemon, ServiceEvent,
    ServiceInfo,
};
use potluck_core::chunk::Digest;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const SERVICE: &str = "_potluck._tcp.local.";
/// The key, in an announcement, of the pool's fingerprint.
const POOL: &str = "ca";
/// The key, in an announcement, of the role that is announced.
const ROLE: &str = "role";
/// The time for which answers are waited for: the question is repeated after a second, because a wireless network may
/// lose it.
const LOOK: Duration = Duration::from_millis(1500);
/// The seconds between two comparisons of the machine's addresses with those that are announced.
const LOOK_AT_INTERFACES_SECONDS: u32 = 10;
/// The time between two counts of the records of other machines that the responder remembers.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// The most records that are remembered before the network counts as flooded.
const MOST_RECORDS: i64 = 2_000;
/// The most pools that a look at the network tells of.
const MOST_POOLS: usize = 8;
/// The time for which nothing is announced after a flood, or after announcing failed.
const REST: Duration = Duration::from_secs(600);

/// True if this process keeps away from multicast DNS. There is one switch for the process, because names are resolved
/// wherever a connection is opened.
static OFF: AtomicBool = AtomicBool::new(false);

/// Keeps this process away from multicast DNS: it begins no announcement and asks nothing from now on. An announcement
/// that is there goes on.
pub fn switch_off() {
    OFF.store(true, Ordering::Relaxed);
}

fn is_off() -> bool {
    OFF.load(Ordering::Relaxed)
}

/// The role that announces itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    /// The manager of the pool.
    Manager,
    /// A donor, which knows where its manager is.
    Donor,
}

impl Announced {
    fn name(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Donor => "donor",
        }
    }
}

/// An announcement on this machine's networks, which ends when it is dropped.
#[derive(Debug)]
pub struct Announcing(JoinHandle<()>);

impl Drop for Announcing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Announces on this machine's networks that it has `what` of `pool` at `listen`, and by what name the machine is
/// known. An address that only this machine reaches is not announced.
pub fn announce(what: Announced, pool: Digest, listen: SocketAddr) -> Option<Announcing> {
    if is_off() || listen.ip().to_canonical().is_loopback() {
        return None;
    }
    Some(Announcing(env::spawn(async move {
        loop {
            match until_flooded(what, &pool, listen).await {
                Ok(()) => tracing::warn!(
                    "somebody floods the network with multicast DNS: this machine announces \
                     nothing for {}s",
                    REST.as_secs()
                ),
                Err(why) => tracing::warn!("cannot announce the pool by multicast DNS: {why}"),
            }
            tokio::time::sleep(REST).await;
        }
    })))
}

async fn until_flooded(
    what: Announced,
    pool: &Digest,
    listen: SocketAddr,
) -> Result<(), mdns_sd::Error> {
    // If another program has the port, this one may only ask, as it does for other machines' names.
    let is_taken =
        port_is_shared() && !resolve(host_name(false).trim_end_matches('.')).await.is_empty();
    let host = host_name(is_taken);
    let responder = Responder::start()?;
    responder.0.set_ip_check_interval(LOOK_AT_INTERFACES_SECONDS)?;
    let instance = format!("{}-{}", host.trim_end_matches(".local."), listen.port());
    let said = [(POOL, pool.to_string()), (ROLE, what.name().to_owned())];
    let service = ServiceInfo::new(SERVICE, &instance, &host, (), listen.port(), &said[..])?;
    responder.0.register(service.enable_addr_auto())?;
    tracing::debug!("announces itself by multicast DNS as {instance}, at {host}");
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        let counted = responder.0.get_metrics()?.recv_async().await;
        let Ok(counted) = counted else { return Ok(()) };
        let cached = counted.iter().filter(|(name, _)| name.starts_with("cached"));
        if cached.map(|(_, count)| count).sum::<i64>() > MOST_RECORDS {
            return Ok(());
        }
    }
}

/// A thread that speaks multicast DNS, until this is dropped.
struct Responder(ServiceDaemon);

impl Responder {
    fn start() -> Result<Self, mdns_sd::Error> {
        let started = Self(ServiceDaemon::new()?);
        let inner =
            |one: &Interface| one.is_loopback() || crate::own_addresses::is_inner(&one.name);
        started.0.disable_interface(IfKind::Predicate(IfPredicate::new(inner)))?;
        Ok(started)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.shutdown(); // fails when it has ended
    }
}

/// Returns whether somebody on this machine listens to multicast DNS, such as Avahi.
fn port_is_shared() -> bool {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, mdns_sd::MDNS_PORT))
        .is_err_and(|why| why.kind() == io::ErrorKind::AddrInUse)
}

/// Returns the name to announce: the machine's own, unless somebody else answers for that. Where two answer
/// differently for one name, one has to take another name, and that would be the owner's machine.
fn host_name(is_taken: bool) -> String {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = node.split('.').next().unwrap_or_default();
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = first.chars().take(40).map(letter).collect();
    let name = if name.is_empty() { "unnamed" } else { &name };
    format!("{name}{}.local.", if is_taken { "-potluck" } else { "" })
}

/// The answers for a pool on this machine's networks, none of which has proved anything yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nearby {
    /// The addresses at which the pool's manager may be.
    pub managers: Addresses,
    /// The addresses of possible donors, who know where the manager is.
    pub donors: Addresses,
}

impl Nearby {
    fn take(&mut self, answer: &ResolvedService, pool: &str, networks: &[Interface]) {
        let said = |key| answer.get_property_val_str(key);
        if said(POOL) != Some(pool) || answer.get_port() == 0 {
            return;
        }
        let of = match said(ROLE) {
            Some("manager") => &mut self.managers,
            Some("donor") => &mut self.donors,
            _ => return,
        };
        let ips = near(answer.get_addresses().iter().map(|ip| ip.to_ip_addr()), networks);
        let new = ips.into_iter().map(|ip| Address::of(ip, answer.get_port()));
        *of = of.and(&Addresses::new(new));
    }
}

/// Returns those of the addresses that are in a network of this machine, IPv4 first, so that an answer leads neither to
/// services that listen on the loopback alone nor to machines far away.
fn near(ips: impl Iterator<Item = IpAddr>, networks: &[Interface]) -> Vec<IpAddr> {
    let is_near = |ip: &IpAddr| networks.iter().any(|network| is_in(network, *ip));
    let mut near: Vec<_> = ips.map(|ip| ip.to_canonical()).filter(is_near).collect();
    near.sort();
    near.dedup();
    near
}

fn is_in(network: &Interface, ip: IpAddr) -> bool {
    match (&network.addr, ip) {
        (IfAddr::V4(own), IpAddr::V4(ip)) => {
            own.ip.to_bits() & own.netmask.to_bits() == ip.to_bits() & own.netmask.to_bits()
        }
        // A link-local address is no use without the name of the interface, so it never counts.
        (IfAddr::V6(own), IpAddr::V6(ip)) if !ip.is_unicast_link_local() => {
            own.ip.to_bits() & own.netmask.to_bits() == ip.to_bits() & own.netmask.to_bits()
        }
        _ => false,
    }
}

fn networks() -> Vec<Interface> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let outer = |one: &Interface| !one.is_loopback() && !crate::own_addresses::is_inner(&one.name);
    all.into_iter().filter(outer).collect()
}

/// Asks this machine's networks which members of `pool` they have.
pub(crate) async fn look_around(pool: &Digest) -> Nearby {
    let (mut nearby, pool) = (Nearby::default(), pool.to_string());
    browse(|answer, networks| nearby.take(answer, &pool, networks)).await;
    nearby
}

/// Asks this machine's networks which pools they have, and returns a few of them by the beginnings of their
/// fingerprints. Anybody can answer: this is to be shown, and not to be trusted.
pub async fn pools_around() -> Vec<(String, Nearby)> {
    let mut pools = BTreeMap::<String, Nearby>::new();
    browse(|answer, networks| {
        let is_digest =
            |pool: &&str| pool.len() == 64 && pool.bytes().all(|b| b.is_ascii_hexdigit());
        let Some(pool) = answer.get_property_val_str(POOL).filter(is_digest) else { return };
        if pools.len() < MOST_POOLS || pools.contains_key(pool) {
            pools.entry(pool.to_owned()).or_default().take(answer, pool, networks);
        }
    })
    .await;
    let is_near = |(_, near): &(String, Nearby)| *near != Nearby::default();
    pools.into_iter().filter(is_near).map(|(pool, near)| (pool[..8].to_owned(), near)).collect()
}

/// Hands what answers on this machine's networks to `take`, with these networks.
async fn browse(mut take: impl FnMut(&ResolvedService, &[Interface])) {
    if is_off() {
        return;
    }
    let asked = Responder::start().and_then(|asking| Ok((asking.0.browse(SERVICE)?, asking)));
    let (answers, _asking) = match asked {
        Ok(asked) => asked,
        Err(why) => {
            tracing::debug!("cannot ask by multicast DNS: {why}");
            return;
        }
    };
    let networks = networks();
    let collect = async {
        while let Ok(event) = answers.recv_async().await {
            if let ServiceEvent::ServiceResolved(answer) = event {
                take(&answer, &networks);
            }
        }
    };
    let _ = tokio::time::timeout(LOOK, collect).await;
}

/// Returns the host and port of an address whose name belongs to multicast DNS; `None` for others, and while multicast
/// DNS is switched off.
pub(crate) fn local_name(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let name = host.trim_end_matches('.');
    (!is_off() && name.ends_with(".local")).then_some((name, port.parse().ok()?))
}

/// Looks up where a name of the local network leads, because not every system does so by itself.
pub(crate) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let ours = async { Some(resolve(host).await).filter(|found| !found.is_empty()) };
    tokio::select! {
        Ok(found) = tokio::net::lookup_host((host, port)) => Ok(found.collect()),
        Some(found) = ours => Ok(found.into_iter().map(|ip| (ip, port).into()).collect()),
        else => {
            let what = "no machine on this network answers to that name";
            Err(io::Error::new(io::ErrorKind::NotFound, what))
        }
    }
}

async fn resolve(host: &str) -> Vec<IpAddr> {
    let asked = Responder::start().and_then(|asking| {
        let timeout_ms = Some(LOOK.as_millis() as u64);
        Ok((asking.0.resolve_hostname(&format!("{host}."), timeout_ms)?, asking))
    });
    let Ok((answers, _asking)) = asked else { return Vec::new() };
    let networks = networks();
    let first = async {
        while let Ok(event) = answers.recv_async().await {
            if let HostnameResolutionEvent::AddressesFound(_, found) = event {
                let found = near(found.iter().map(|ip| ip.to_ip_addr()), &networks);
                if !found.is_empty() {
                    return found;
                }
            }
        }
        Vec::new()
    };
    tokio::time::timeout(LOOK, first).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use if_addrs::{IfOperStatus, Ifv4Addr};

    fn network() -> Interface {
        let addr = IfAddr::V4(Ifv4Addr {
            ip: [10, 0, 0, 1].into(),
            netmask: [255, 255, 255, 0].into(),
            prefixlen: 24,
            broadcast: None,
        });
        Interface {
            name: "eth0".into(),
            addr,
            index: Some(2),
            oper_status: IfOperStatus::Up,
            is_p2p: false,
        }
    }

    fn answer(pool: &Digest, role: &str, instance: u32, ips: &str, port: u16) -> ResolvedService {
        let said = [(POOL, pool.to_string()), (ROLE, role.to_owned())];
        let name = format!("host-{instance}");
        let host = format!("{name}.local.");
        let service = ServiceInfo::new(SERVICE, &name, &host, ips, port, &said[..]);
        service.expect("a service").as_resolved_service()
    }

    #[test]
    fn mdns_answers_are_filtered_by_pool_and_network() {
        let (ours, others) = (Digest([1; 32]), Digest([2; 32]));
        let networks = [network()];
        let mut nearby = Nearby::default();
        for hostile in [
            answer(&others, "manager", 1, "10.0.0.9", 7700),
            answer(&ours, "admin", 2, "10.0.0.9", 7700),
            answer(&ours, "manager", 3, "10.0.0.9", 0),
            answer(&ours, "manager", 4, "127.0.0.1,192.0.2.1,::1,fe80::1,::ffff:127.0.0.1", 22),
        ] {
            nearby.take(&hostile, &ours.to_string(), &networks);
        }
        assert_eq!(nearby, Nearby::default());
        nearby.take(
            &answer(&ours, "manager", 5, "10.0.0.7,192.0.2.1", 7700),
            &ours.to_string(),
            &networks,
        );
        nearby.take(&answer(&ours, "donor", 6, "10.0.0.8", 7701), &ours.to_string(), &networks);
        let found = (nearby.managers.to_string(), nearby.donors.to_string());
        assert_eq!(found, ("10.0.0.7:7700".into(), "10.0.0.8:7701".into()));
        for instance in 0..200 {
            let ip = format!("10.0.0.{instance}");
            nearby.take(
                &answer(&ours, "manager", instance, &ip, 7700),
                &ours.to_string(),
                &networks,
            );
        }
        assert_eq!(nearby.managers.iter().count(), Addresses::MOST);
    }

    #[test]
    fn names_of_the_local_network_are_told_from_others() {
        assert_eq!(local_name("alice.local:7700"), Some(("alice.local", 7700)));
        assert_eq!(local_name("alice.local.:7700"), Some(("alice.local", 7700)));
        for other in ["alice:7700", "alice.local.org:7700", "10.0.0.1:7700", "[fd00::1]:7700"] {
            assert_eq!(local_name(other), None, "{other}");
        }
        assert!(host_name(true).ends_with("-potluck.local."));
    }
}
