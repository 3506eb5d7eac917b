//! The addresses at which a member of a pool is reached: a few `host:port`, the best first.
//!
//! One machine has several addresses (a name, a name that only the local network knows, IPv4, IPv6),
//! and which of them others can use depends on where those are. So everything that says where a
//! manager or a donor is says all of them, and callers try them (see [`crate::race`]).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The port of managers, unless they are told another.
pub const MANAGER_PORT: u16 = 7700;
/// The port of donors, unless they are told another.
pub const DONOR_PORT: u16 = 7701;
/// The address at which managers listen, unless told otherwise: everywhere, by IPv4 and IPv6.
pub const MANAGER_LISTEN: &str = "[::]:7700";
/// The address at which donors listen, unless told otherwise: everywhere, by IPv4 and IPv6.
pub const DONOR_LISTEN: &str = "[::]:7701";

/// The longest name that the domain name system has, in bytes.
const LONGEST_HOST: usize = 253;

/// One `host:port` that others can be told: a name, or an address that can be that of one machine. The host of an IPv6
/// address stands in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(String);

/// The error of a text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("“{0}” is not an address: use HOST:PORT, with an IPv6 address in brackets")]
pub struct BadAddress(String);

impl Address {
    /// Reads a host name, an IPv4 address or an IPv6 address, each with or without a port.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.chars().take(LONGEST_HOST).collect());
        let (host, port) = match text.parse::<Ipv6Addr>() {
            Ok(_) => (text, None), // its colons begin no port
            Err(_) => match text.rsplit_once(':') {
                Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
                _ => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| bad())?,
            None => default_port,
        };
        let bare = match host.strip_prefix('[') {
            Some(rest) => {
                let inside = rest.strip_suffix(']').ok_or_else(bad)?;
                inside.parse::<Ipv6Addr>().map_err(|_| bad())?;
                inside
            }
            None => host,
        };
        if port == 0 {
            return Err(bad());
        }
        match bare.parse::<IpAddr>() {
            Ok(ip) if !is_of_one_machine(ip) => Err(bad()),
            Ok(ip) => Ok(Self::of(ip, port)),
            Err(_) if is_name(bare) => Ok(Self(format!("{}:{port}", bare.to_ascii_lowercase()))),
            Err(_) => Err(bad()),
        }
    }

    /// Makes the address with this IP address and port. An IPv4 address that stands in an IPv6 one is taken out.
    pub fn of(ip: IpAddr, port: u16) -> Self {
        Self(SocketAddr::new(ip.to_canonical(), port).to_string())
    }

    /// Returns the address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the host, without brackets.
    pub fn host(&self) -> &str {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the address under which a machine with this name answers on the local network (RFC 6762); `None` for
    /// an IP address, and for a name of several parts.
    pub fn on_local_network(&self) -> Option<Self> {
        let host = self.host();
        let is_bare = self.ip().is_none() && !host.contains('.') && host != "localhost";
        is_bare.then(|| Self(format!("{host}.local:{}", self.port())))
    }

    /// Returns the port of the address.
    pub fn port(&self) -> u16 {
        self.0.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }

    /// Returns the host, where it is an IP address and no name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host().parse().ok()
    }

    /// Returns whether the address leads every machine to itself.
    pub fn is_loopback(&self) -> bool {
        self.host() == "localhost" || self.ip().is_some_and(|ip| ip.is_loopback())
    }
}

/// Returns whether an IP address can be that of one machine. An unspecified one leads everywhere, and a multicast or
/// broadcast one to many: nobody connects to these because a member said that it is there.
pub(crate) fn is_of_one_machine(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || is_broadcast)
}

/// Returns whether a name can be one of a machine. Underscores are accepted because they are in use, though no standard
/// allows them.
fn is_name(host: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let label = |label: &str| !label.is_empty() && label.len() <= 63 && label.chars().all(letter);
    // Digits and dots alone are an IPv4 address with an error in it.
    let named = host.chars().any(|c| c.is_ascii_alphabetic());
    host.len() <= LONGEST_HOST && named && host.trim_end_matches('.').split('.').all(label)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Address {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        Self::parse(text, 0)
    }
}

impl TryFrom<String> for Address {
    type Error = BadAddress;
    fn try_from(text: String) -> Result<Self, BadAddress> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.0
    }
}

/// The addresses of one member, the best first: at most [`Addresses::MOST`], each once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Address>")]
pub struct Addresses(Vec<Address>);

impl Addresses {
    /// The most addresses of a member; more are left out, because a caller that tries them all should soon know that
    /// nobody answers.
    pub const MOST: usize = 8;

    /// Makes the list of the first of these addresses, up to [`Addresses::MOST`].
    pub fn new(addresses: impl IntoIterator<Item = Address>) -> Self {
        let mut list: Vec<Address> = Vec::new();
        for address in addresses {
            if list.len() < Self::MOST && !list.contains(&address) {
                list.push(address);
            }
        }
        Self(list)
    }

    /// Goes over the addresses, the best first.
    pub fn iter(&self) -> std::slice::Iter<'_, Address> {
        self.0.iter()
    }

    /// Returns the best address, if there is one.
    pub fn first(&self) -> Option<&Address> {
        self.0.first()
    }

    /// Returns the address at which a manager has to listen so that members who know these addresses find it.
    pub fn manager_listen(&self) -> String {
        self.first().map_or(MANAGER_LISTEN.into(), |known| format!("[::]:{}", known.port()))
    }

    /// Returns whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether `address` is one of them.
    pub fn contains(&self, address: &Address) -> bool {
        self.0.contains(address)
    }

    /// Returns the addresses in an order in which those for which `better` is true come first.
    pub fn preferring(&self, better: impl Fn(&Address) -> bool) -> Self {
        let (first, rest): (Vec<_>, Vec<_>) = self.0.iter().cloned().partition(better);
        Self(first.into_iter().chain(rest).collect())
    }

    /// Returns these addresses, and then those of `others`.
    pub fn and(&self, others: &Self) -> Self {
        Self::new(self.iter().chain(others.iter()).cloned())
    }

    /// Returns whether no other machine can use any of the addresses.
    pub fn are_local(&self) -> bool {
        self.iter().all(Address::is_loopback)
    }

    /// Returns the addresses that another machine can use, or all where there is none.
    pub fn for_others(&self) -> Self {
        if self.are_local() {
            return self.clone();
        }
        Self(self.iter().filter(|address| !address.is_loopback()).cloned().collect())
    }
}

impl From<Vec<Address>> for Addresses {
    fn from(addresses: Vec<Address>) -> Self {
        Self::new(addresses)
    }
}

impl From<Address> for Addresses {
    fn from(address: Address) -> Self {
        Self(vec![address])
    }
}

impl From<SocketAddr> for Addresses {
    fn from(address: SocketAddr) -> Self {
        Address::of(address.ip(), address.port()).into()
    }
}

impl FromStr for Addresses {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let addresses = text.split(',').map(|one| one.trim().parse());
        Ok(Self::new(addresses.collect::<Result<Vec<_>, _>>()?))
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.iter().enumerate() {
            write!(f, "{}{address}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_with_and_without_a_port() {
        for (text, read) in [
            ("lab-head", "lab-head:7700"),
            ("Lab-Head.Example.org", "lab-head.example.org:7700"),
            ("lab-head:1", "lab-head:1"),
            ("10.0.0.1", "10.0.0.1:7700"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("fd00::1", "[fd00::1]:7700"),
            ("[fd00::1]", "[fd00::1]:7700"),
            ("[fd00::1]:80", "[fd00::1]:80"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
        ] {
            let address = Address::parse(text, MANAGER_PORT).expect(text);
            assert_eq!(address.as_str(), read);
            assert_eq!(Address::parse(read, 9), Ok(address.clone()), "it reads back");
            assert_eq!(read, Address::parse(address.host(), address.port()).expect(read).as_str());
        }
        let long = "a".repeat(300);
        for bad in [
            "",
            ":",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:b",
            "a b:80",
            "10.0.0:80",
            "0.0.0.0:80",
            "[::]:80",
            "[::ffff:0.0.0.0]:80",
            "224.0.0.251:80",
            "[ff02::fb]:80",
            "255.255.255.255:80",
            "[a]:80",
            "[fd00::1:80",
            "fe80::1%eth0",
            "a..b:1",
            "http://a:80",
            "a/b:1",
            &long,
        ] {
            assert!(Address::parse(bad, MANAGER_PORT).is_err(), "{bad}");
        }
        assert!("a".parse::<Address>().is_err(), "one that was told has its port");
    }

    #[test]
    fn only_a_bare_name_is_looked_for_on_the_local_network() {
        let local = |text: &str| {
            let address = Address::parse(text, DONOR_PORT).expect(text);
            address.on_local_network().map(|local| local.to_string())
        };
        assert_eq!(local("bob"), Some("bob.local:7701".into()));
        for other in ["bob.lab.example", "bob.local", "10.0.0.1", "fd00::1", "localhost"] {
            assert_eq!(local(other), None, "{other}");
        }
    }

    #[test]
    fn a_list_is_short_and_has_each_address_once() {
        let many = (1..100).map(|port| format!("h:{}", port / 2 + 1)).collect::<Vec<_>>();
        let list: Addresses =
            serde_json::from_str(&serde_json::json!(many).to_string()).expect("read");
        assert_eq!(list.iter().count(), Addresses::MOST);
        assert_eq!(list.to_string(), "h:1, h:2, h:3, h:4, h:5, h:6, h:7, h:8");
        assert!(serde_json::from_str::<Addresses>(r#"["h:1","h"]"#).is_err());
        let third: Address = "h:3".parse().expect("an address");
        assert_eq!(list.preferring(|address| *address == third).first(), Some(&third));
        let mixed: Addresses = "127.0.0.1:1, 10.0.0.1:1".parse().expect("addresses");
        assert_eq!(mixed.for_others().to_string(), "10.0.0.1:1");
    }

    #[test]
    fn a_restored_manager_is_to_listen_where_its_members_look() {
        let listen = |list: &str| list.parse::<Addresses>().expect("addresses").manager_listen();
        assert_eq!(listen("127.0.0.1:7811"), "[::]:7811");
        assert_eq!(listen("[fe80::1]:7812, 10.0.0.1:1"), "[::]:7812");
        assert_eq!(Addresses::default().manager_listen(), MANAGER_LISTEN);
    }

    #[test]
    fn the_default_ports_are_those_of_the_default_places_to_listen() {
        for (listen, port) in [(MANAGER_LISTEN, MANAGER_PORT), (DONOR_LISTEN, DONOR_PORT)] {
            assert_eq!(listen.parse::<SocketAddr>().expect("an address").port(), port);
        }
    }
}
