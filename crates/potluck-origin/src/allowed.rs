//! Which hosts are asked. The address of an origin is kept with the file and read by other members: without this rule
//! somebody could have the machines of a lab send requests to services that only their own network may reach.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The hosts that may be asked though they have private addresses. All others must have public ones.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts {
    hosts: BTreeSet<String>,
}

impl AllowedHosts {
    /// Allows these hosts, whatever addresses they have: names or addresses without a port.
    pub fn new(hosts: impl IntoIterator<Item = String>) -> Self {
        Self { hosts: hosts.into_iter().map(|host| bare(&host)).collect() }
    }

    /// Allows another host, because a person named it.
    pub fn add(&mut self, host: &str) {
        self.hosts.insert(bare(host));
    }

    /// Returns whether a host was allowed by its name.
    pub fn names(&self, host: &str) -> bool {
        self.hosts.contains(&bare(host))
    }

    /// Returns why a host may not be asked, as far as its name tells; a name is looked at again when it is resolved.
    pub(crate) fn refuses(&self, host: &str) -> Option<String> {
        let address = bare(host).parse::<IpAddr>().ok()?;
        let is_private = !is_public(address) && !self.names(host);
        is_private.then(|| not_allowed(host))
    }
}

fn not_allowed(host: &str) -> String {
    format!(
        "{host} is an address of a private network, and origins there are asked only if they are allowed: \
         add it to origins-allow in config.toml"
    )
}

/// Returns the name of a host in lower case, without the brackets around an IPv6 address and the final dot of a name.
fn bare(host: &str) -> String {
    let host = host.trim_end_matches('.');
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).to_ascii_lowercase()
}

/// Returns whether an address belongs to the public internet: neither to this machine, nor to a private, local or shared
/// network (RFC 6890), nor to several machines at once.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_protocol = (a, b, c) == (192, 0, 0);
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    !(a == 0
        || a >= 240
        || is_shared
        || is_protocol
        || is_benchmark
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(within) = address.to_ipv4_mapped() {
        return is_public_v4(within);
    }
    let segments = address.segments();
    let ends_with = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // A translator of these reaches the IPv4 address that they end with (RFC 6052), or begin with (RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => ends_with(high, low),
        [0x2002, high, low, ..] => ends_with(high, low),
        // All that is given to the public begins with 001 (RFC 4291).
        [first, second, ..] => first & 0xe000 == 0x2000 && (first, second) != (0x2001, 0x0db8),
    }
}

/// Resolves the names of hosts as the system does, and leaves out the private addresses of hosts that are not allowed by
/// name. The check is made here, and not before the request, so that a name cannot lead elsewhere the second time.
pub(crate) struct PublicNames(pub Arc<AllowedHosts>);

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (allowed, name) = (Arc::clone(&self.0), name.as_str().to_owned());
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let is_named = allowed.names(&name);
            let usable = found.into_iter().filter(|at| is_named || is_public(at.ip()));
            let usable: Vec<SocketAddr> = usable.collect();
            if usable.is_empty() {
                let why = io::Error::new(io::ErrorKind::PermissionDenied, not_allowed(&name));
                return Err(Box::<dyn std::error::Error + Send + Sync>::from(why));
            }
            Ok(Box::new(usable.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_local_addresses_are_not_public() {
        let private = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "198.18.0.1",
            "192.0.0.8",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ];
        for address in private {
            assert!(!is_public(address.parse().expect(address)), "{address}");
        }
        for address in
            ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert!(is_public(address.parse().expect(address)), "{address}");
        }
    }

    #[test]
    fn host_is_allowed_however_its_name_is_written() {
        let mut allowed = AllowedHosts::new(["Data.Example.org".to_owned()]);
        assert!(allowed.names("data.example.org."));
        assert!(allowed.refuses("127.0.0.1").is_some_and(|why| why.contains("origins-allow")));
        assert!(allowed.refuses("[::1]").is_some());
        assert_eq!(allowed.refuses("other.example.org"), None, "the resolver looks at it");
        allowed.add("127.0.0.1");
        assert_eq!(allowed.refuses("127.0.0.1"), None);
    }
}
