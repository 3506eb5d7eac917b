//! Members find a manager that got another address by multicast DNS, unless that is switched off.

use super::machines::{Machine, Machines, Naming};
use super::waiting::{DEADLINE, wait_until};
use potluck_wire::identity::Identity;
use rustix::process::Signal;

const UP: &str = "potluck up --max 200MiB --keep-free 0%";

/// A program that answers every question for a pool's manager, given the pool's fingerprint, with wrong addresses:
/// three at this machine, and one at the asker itself.
const LIES: &str = r#"
import socket, struct, sys
def name(text):
    return b"".join(bytes([len(part)]) + part.encode() for part in text.split(".")) + b"\0"
def record(of, kind, data):
    return name(of) + struct.pack(">HHIH", kind, 1, 120, len(data)) + data
service, said = "_potluck._tcp.local", b""
texts = [("ca=" + sys.argv[1]).encode(), b"role=manager"]
text = b"".join(bytes([len(one)]) + one for one in texts)
lies = [("a", "10.77.0.3", 7700), ("b", "10.77.0.3", 7701), ("c", "10.77.0.3", 1), ("d", "127.0.0.1", 22)]
for host, ip, port in lies:
    instance, host = host + "." + service, "liar-" + host + ".local"
    said += record(service, 12, name(instance))
    said += record(instance, 33, struct.pack(">HHH", 0, 0, port) + name(host))
    said += record(instance, 16, text) + record(host, 1, socket.inet_aton(ip))
group = ("224.0.0.251", 5353)
mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mouth.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
mouth.bind(("", 5353))
own = socket.inet_aton("10.77.0.3")
mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
mouth.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + own)
print("lying")
while True:
    heard, _ = mouth.recvfrom(9000)
    if heard[2] & 0x80 == 0 and b"_potluck" in heard:
        mouth.sendto(struct.pack(">6H", 0, 0x8400, 0, 4 * len(lies), 0, 0) + said, group)
        print("lied")
"#;

fn token(machine: &Machine, role: &str) -> String {
    let said = machine.sh(&format!("potluck --json invite --role {role}")).ok().json();
    said["token"].as_str().expect("a token").to_owned()
}

/// Starts a pool on the first machine, and starts it again at another address. Returns the second machine, a member who
/// never heard of any donor, and a token that was made before the change.
fn renumbered<'a>(head: &Machine, laptop: &'a Machine, up: &str) -> (&'a Machine, String) {
    head.start(up, "lending");
    laptop.sh(&format!("potluck join {}", token(head, "user"))).ok();
    let unused = token(head, "donor");
    head.stop("potluck up", Signal::TERM);
    head.readdress([10, 77, 0, 101].into());
    head.start(up, "lending");
    (laptop, unused)
}

#[test]
fn a_manager_with_a_new_address_is_found_on_its_network() {
    let test = "a_manager_with_a_new_address_is_found_on_its_network";
    let names = ["lab-head", "laptop"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, laptop] = names.map(|name| lab.machine(name));
    let (laptop, unused) = renumbered(head, laptop, UP);
    laptop.sh("potluck ls").ok();
    let found = laptop.sh("potluck --json find-manager").ok().json();
    assert!(found[0]["manager"].to_string().contains("10.77.0.101:7700"), "{found}");
    // The name is found where no system can look it up, and the token leads to the new address.
    laptop.sh("getent hosts lab-head.local").exits(2);
    laptop.sh("potluck find-manager lab-head.local").ok();
    // Somebody else there, who types what the manuals begin with, hears of the pool before there are two.
    let told = laptop.sh("HOME=$(mktemp -d) potluck up --listen no.such.host.example:1");
    assert!(told.code == 10 && told.stderr.contains("10.77.0.101:7700"), "{}", told.stderr);
    assert!(told.stderr.contains("potluck join -"), "{}", told.stderr);
    assert!(told.stderr.contains("--new-pool"), "{}", told.stderr);
    laptop.sh(&format!("potluck join {unused}")).ok();
}

#[test]
fn machines_that_lie_by_mdns_lead_nobody_astray() {
    let test = "machines_that_lie_by_mdns_lead_nobody_astray";
    let names = ["lab-head", "laptop", "liar"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, laptop, liar] = names.map(|name| lab.machine(name));
    // The lies lead to a manager, but to another pool's.
    let up = format!("{UP} --new-pool");
    liar.start(&up, "lending");
    let (laptop, _) = renumbered(head, laptop, &up);
    let admin = head.path("/home/lab/.local/state/potluck/manager/admin");
    let pool = Identity::load(&admin).expect("an identity").pool();
    liar.start(&format!("python3 -uc '{LIES}' {pool}"), "lying");
    laptop.sh("potluck ls").ok();
    assert!(liar.log("python3").lines().count() > 1, "it was heard to be asked, and lied");
}

/// A program that listens to multicast DNS and answers nobody, as programs do that only ask.
const LISTENER: &str = r#"
import socket, time
ear = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
ear.bind(("", 5353))
print("listening")
time.sleep(1000)
"#;

#[test]
fn mdns_listener_does_not_take_the_host_name() {
    let test = "mdns_listener_does_not_take_the_host_name";
    let names = ["lab-head", "laptop"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, laptop] = names.map(|name| lab.machine(name));
    head.start(&format!("python3 -uc '{LISTENER}'"), "listening");
    head.start(UP, "lending");
    laptop.sh(&format!("potluck join {}", token(head, "user"))).ok();
    wait_until("its name to be known", DEADLINE, || {
        laptop.sh("potluck find-manager lab-head.local").code == 0
    });
}

/// A program that announces thousands of machines that nobody asked for to the whole network, again and again: more
/// than a busy machine hears.
const FLOOD: &str = r#"
import socket, struct, time
mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mouth.bind(("", 5353))
print("flooding")
while True:
    for number in range(4000):
        name = b"".join(bytes([len(part)]) + part for part in [b"m%d" % number, b"local"]) + b"\0"
        said = name + struct.pack(">HHIH", 1, 1, 1 << 30, 4) + socket.inet_aton("10.77.0.3")
        mouth.sendto(struct.pack(">6H", 0, 0x8400, 0, 1, 0, 0) + said, ("224.0.0.251", 5353))
        if number % 50 == 0:
            time.sleep(0.01)
"#;

#[test]
fn a_machine_that_is_flooded_by_mdns_keeps_away_from_it() {
    let test = "a_machine_that_is_flooded_by_mdns_keeps_away_from_it";
    let names = ["lab-head", "laptop", "liar"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, laptop, liar] = names.map(|name| lab.machine(name));
    head.start(UP, "lending");
    laptop.sh(&format!("potluck join {}", token(head, "user"))).ok();
    wait_until("the manager to announce itself", DEADLINE, || speaks_mdns(head));
    liar.start(&format!("python3 -uc '{FLOOD}'"), "flooding");
    wait_until("the manager to keep away", DEADLINE, || {
        head.log("potluck up").contains("floods the network") && !speaks_mdns(head)
    });
    laptop.sh("potluck ls").ok();
}

/// Returns whether something on the machine listens at the port of multicast DNS.
fn speaks_mdns(machine: &Machine) -> bool {
    machine.sh("grep -qi ':14E9 ' /proc/net/udp /proc/net/udp6").code == 0
}

#[test]
fn disabled_mdns_neither_announces_nor_queries() {
    let test = "disabled_mdns_neither_announces_nor_queries";
    let names = ["lab-head", "laptop"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, laptop] = names.map(|name| lab.machine(name));
    let off = format!("{UP} --mdns false");
    let (laptop, _) = renumbered(head, laptop, &off);
    assert!(!speaks_mdns(head));
    laptop.sh("potluck --retry-for 1s ls").exits(5);

    head.stop("potluck up", Signal::TERM);
    head.sh("potluck set manager.mdns true").ok();
    laptop.sh("mkdir -p .config/potluck && echo 'mdns = false' > .config/potluck/config.toml").ok();
    head.start(UP, "lending");
    wait_until("the manager to announce itself", DEADLINE, || speaks_mdns(head));
    laptop.sh("potluck --retry-for 1s ls").exits(5);
    laptop.sh("rm .config/potluck/config.toml; potluck ls").ok();
}
