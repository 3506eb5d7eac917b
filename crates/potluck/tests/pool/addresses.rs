//! Members of a pool on different machines find each other.

use super::machines::{Machine, Machines, Naming};
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// The command by which a first user starts the manager and a donor.
const UP: &str = "potluck up --max 200MiB --keep-free 0%";

/// The command of a first user, with multicast DNS switched off so that nobody is found by it.
const UP_QUIET: &str = "potluck up --max 200MiB --keep-free 0% --mdns false";

/// Returns a token by which another machine joins in `role`.
fn invite(machine: &Machine, role: &str) -> String {
    let said = machine.sh(&format!("potluck --json invite --role {role}")).ok().json();
    said["token"].as_str().expect("a token").to_owned()
}

/// Joins as a donor by a token, and lends.
fn lend(machine: &Machine, token: &str) {
    machine.sh(&format!("potluck join {token}")).ok();
    machine.start("potluck lend /data/lent --max 200MiB --keep-free 0%", "lending");
}

fn donors(machine: &Machine) -> Vec<Value> {
    let status = machine.sh("potluck --json status").ok().json();
    status["donors"].as_array().expect("donors").clone()
}

fn wait_for_live_donors(machine: &Machine, count: usize) {
    wait_until(&format!("{count} live donors"), DEADLINE, || {
        donors(machine).iter().filter(|donor| donor["state"] == "live").count() == count
    });
}

/// Returns the first address of each donor, in the order in which they joined.
fn best_addresses(machine: &Machine) -> Vec<String> {
    let first = |donor: &Value| donor["addresses"][0].as_str().expect("an address").to_owned();
    donors(machine).iter().map(first).collect()
}

/// Stores a file from one machine with two copies, and reads it on the others.
fn store_and_read(from: &Machine, others: &[&Machine]) {
    from.sh("potluck space create lab --copies 2").ok();
    from.sh("potluck space grant lab everyone read write").ok();
    from.sh("head -c 9000000 /dev/urandom > /data/file; potluck cp /data/file pot://lab/file").ok();
    let digest = from.sh("sha256sum < /data/file").ok().text();
    for other in others {
        assert_eq!(other.sh("potluck cat pot://lab/file | sha256sum").ok().text(), digest);
    }
}

fn two_machines_make_a_pool(test: &str, naming: Naming, up: &str) {
    let Some(lab) = Machines::new(test, naming, &["lab-head", "bench-2", "laptop"]) else { return };
    let (head, bench, laptop) =
        (lab.machine("lab-head"), lab.machine("bench-2"), lab.machine("laptop"));
    head.sh("mkdir /data").ok();
    head.start(up, "lending");
    lend(bench, &invite(head, "donor"));
    laptop.sh(&format!("potluck join {}", invite(head, "user"))).ok();
    wait_for_live_donors(head, 2);
    let expected = [head.ip(), bench.ip()].map(|ip| format!("{ip}:7701"));
    assert_eq!(best_addresses(head), expected, "where other machines reach them");
    store_and_read(head, &[laptop]);
}

#[test]
fn pool_works_by_addresses_only() {
    let test = "pool_works_by_addresses_only";
    two_machines_make_a_pool(test, Naming::AddressOnly, UP);
}

#[test]
fn pool_works_with_a_manager_on_one_address() {
    let test = "pool_works_with_a_manager_on_one_address";
    two_machines_make_a_pool(test, Naming::AddressOnly, &format!("{UP} --listen 10.77.0.1:7700"));
}

#[test]
fn pool_known_by_name_survives_address_changes() {
    let test = "pool_known_by_name_survives_address_changes";
    let Some(lab) = Machines::new(test, Naming::Dns, &["lab-head", "bench-2"]) else { return };
    let (head, bench) = (lab.machine("lab-head"), lab.machine("bench-2"));
    head.sh("mkdir /data").ok();
    head.start(UP, "lending");
    lend(bench, &invite(head, "donor"));
    wait_for_live_donors(head, 2);
    let known = head.sh("potluck --json invite").ok().json()["manager"].to_string();
    assert!(known.contains("lab-head:7700") && known.contains("10.77.0.1:7700"), "{known}");
    assert!(!known.contains("127."), "{known}");

    head.stop("potluck up", Signal::TERM);
    head.readdress([10, 77, 0, 101].into());
    for machine in [head, bench] {
        machine.sh("sed -i 's/10.77.0.1 /10.77.0.101 /' /etc/hosts").ok();
    }
    head.start(UP, "lending");
    wait_for_live_donors(head, 2);
    store_and_read(head, &[]);
}

#[test]
fn machines_with_ipv6_alone_make_a_pool() {
    let test = "machines_with_ipv6_alone_make_a_pool";
    let names = ["lab-head", "bench-2"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let (head, bench) = (lab.machine("lab-head"), lab.machine("bench-2"));
    for machine in [head, bench] {
        machine.sh("mkdir /data; ip -4 addr flush dev eth0").ok();
    }
    head.start(UP, "lending");
    lend(bench, &invite(head, "donor"));
    wait_for_live_donors(head, 2);
    let expected = [head.ip6(), bench.ip6()].map(|ip| format!("[{ip}]:7701"));
    assert_eq!(best_addresses(head), expected);
    store_and_read(head, &[]);
}

#[test]
fn a_donor_that_others_cannot_reach_is_an_alarm_until_they_can() {
    let test = "a_donor_that_others_cannot_reach_is_an_alarm_until_they_can";
    let names = ["lab-head", "bench-2"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let (head, bench) = (lab.machine("lab-head"), lab.machine("bench-2"));
    head.sh("mkdir /data").ok();
    head.start(UP, "lending");
    bench.sh(&format!("potluck join {}", invite(head, "donor"))).ok();
    let lend = "potluck lend /data/lent --max 200MiB --keep-free 0%";
    // The donor advertises an address that is not its own, so that others cannot reach it, as behind a firewall.
    bench.start(&format!("{lend} --advertise 10.77.0.99"), "lending");
    let status = || head.sh("potluck --json status").ok().json();
    let alarm = |status: &Value| {
        let alarms = status["alarms"].as_array().expect("alarms").iter();
        alarms.map(Value::to_string).find(|said| said.contains("bench-2"))
    };
    wait_until("the alarm", DEADLINE, || alarm(&status()).is_some());
    let said = status();
    let alarm_said = alarm(&said).expect("an alarm");
    for part in ["10.77.0.99:7701", "firewall", "--advertise"] {
        assert!(alarm_said.contains(part), "{alarm_said}");
    }
    assert_eq!(said["verdict"]["state"], "degraded");
    let shown = head.sh("potluck status").ok().text();
    assert!(shown.contains("live, cannot be reached") && shown.contains("firewall"), "{shown}");
    // Writers place chunks on other donors by themselves.
    head.sh("potluck space create one --copies 1; head -c 100000 /dev/urandom > /data/one; potluck cp /data/one pot://one/").ok();

    bench.stop("potluck lend", Signal::TERM);
    bench.start(&format!("{lend} --advertise bench-2,10.77.0.2"), "lending");
    wait_until("no alarm", DEADLINE, || alarm(&status()).is_none());
    wait_until("the address that answers first", DEADLINE, || {
        best_addresses(head)[1] == "10.77.0.2:7701"
    });
    store_and_read(head, &[]);
}

#[test]
fn partially_unreachable_donor_raises_an_alarm() {
    let test = "partially_unreachable_donor_raises_an_alarm";
    let names = ["lab-head", "bench-2", "ada", "bo"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, bench, ada, bo] = names.map(|name| lab.machine(name));
    head.sh("mkdir /data").ok();
    head.start(UP, "lending");
    lend(bench, &invite(head, "donor"));
    for user in [ada, bo] {
        user.sh(&format!("potluck join {}", invite(head, "user"))).ok();
    }
    wait_for_live_donors(head, 2);
    store_and_read(head, &[ada, bo]);
    let status = || head.sh("potluck --json status").ok().json();
    assert_eq!(status()["alarms"], serde_json::json!([]));

    let wall = |verb: &str| {
        let (ip, ip6) = (bench.ip(), bench.ip6());
        format!("ip route {verb} prohibit {ip}; ip -6 route {verb} prohibit {ip6}")
    };
    head.sh("potluck space create one --copies 1 --chunk-size 1MiB").ok();
    head.sh("potluck space grant one everyone read write").ok();
    let unreached_by = |status: &Value| status["donors"][1]["unreached_by"].clone();
    for (user, expected) in
        [(ada, serde_json::json!(["ada"])), (bo, serde_json::json!(["ada", "bo"]))]
    {
        user.sh(&wall("add")).ok();
        user.sh("head -c 9000000 /dev/urandom | potluck cp - pot://one/more").ok();
        wait_until("the alarm", DEADLINE, || unreached_by(&status()) == expected);
    }
    let said = status();
    assert_eq!(said["alarms"][0]["kind"], "donor_unreached_by_some");
    assert_eq!(said["alarms"][0]["donor"], said["donors"][1]["donor"]);
    let alarm = said["alarms"][0].to_string();
    for part in ["2 members (ada, bo)", "bench-2", "10.77.0.2:7701", "firewall", "--advertise"] {
        assert!(alarm.contains(part), "{alarm}");
    }
    assert!(head.sh("potluck status").ok().text().contains("live, not reached by 2 members"));
    // Complaints of members move no data: the donor is live, and gets new copies as before.
    assert_eq!(said["donors"][1]["state"], "live");
    assert_eq!(said["donors"][1].get("unreachable"), None);
    head.sh("head -c 9000000 /dev/urandom | potluck cp - pot://lab/others").ok();
    let facts = head.sh("potluck --json stat pot://lab/others").ok().json();
    assert!(facts.to_string().contains("bench-2"), "{facts}");

    // Complaints end when the donor starts again.
    for user in [ada, bo] {
        user.sh(&wall("del")).ok();
    }
    bench.stop("potluck lend", Signal::TERM);
    bench.start("potluck lend", "lending");
    wait_until("no alarm", DEADLINE, || unreached_by(&status()).is_null());
}

#[test]
fn a_second_donor_on_one_machine_is_told_to_take_another_port() {
    let test = "a_second_donor_on_one_machine_is_told_to_take_another_port";
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &["lab-head"]) else { return };
    let head = lab.machine("lab-head");
    head.start(UP, "lending");
    let token = invite(head, "donor");
    let second = "potluck lend /more/lent --state /more/state --max 200MiB --keep-free 0%";
    let ran = head.sh(&format!("echo {token} | {second} --token-file -")).exits(1);
    assert!(ran.stderr.contains("7701") && ran.stderr.contains("--listen"), "{}", ran.stderr);
    head.start(&format!("{second} --listen [::]:7702"), "lending");
    wait_for_live_donors(head, 2);
    assert_eq!(best_addresses(head), ["10.77.0.1:7701", "10.77.0.1:7702"]);
}

/// The file in which a member remembers where its manager is.
const REMEMBERED: &str = "manager.json";

fn heard_where_the_manager_is(donor: &Machine) {
    let file = donor.path(&format!("/home/lab/.local/state/potluck/donor/{REMEMBERED}"));
    wait_until("the donor to hear where its manager is", DEADLINE, || file.exists());
}

#[test]
fn donors_and_users_follow_a_manager_to_its_new_address() {
    let test = "donors_and_users_follow_a_manager_to_its_new_address";
    let names = ["lab-head", "bench-2", "laptop"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, bench, laptop] = names.map(|name| lab.machine(name));
    head.sh("mkdir /data").ok();
    head.start(UP_QUIET, "lending");
    lend(bench, &invite(head, "donor"));
    laptop.sh(&format!("potluck join {}", invite(head, "user"))).ok();
    wait_for_live_donors(head, 2);
    heard_where_the_manager_is(bench);
    laptop.sh("potluck ls").ok();

    head.stop("potluck up", Signal::TERM);
    head.readdress([10, 77, 0, 101].into());
    head.start(UP, "lending");
    // The manager tells the donor its new address, and the donor tells the user.
    wait_for_live_donors(head, 2);
    wait_until("the user to find the manager", DEADLINE, || laptop.sh("potluck ls").code == 0);
    store_and_read(head, &[laptop]);
}

#[test]
fn relocate_command_accepts_only_the_own_manager() {
    let test = "relocate_command_accepts_only_the_own_manager";
    let names = ["lab-head", "laptop", "stranger"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, laptop, stranger] = names.map(|name| lab.machine(name));
    head.start(UP_QUIET, "lending");
    stranger.start(UP, "lending");
    laptop.sh(&format!("potluck join {}", invite(head, "user"))).ok();
    head.stop("potluck up", Signal::TERM);
    head.readdress([10, 77, 0, 101].into());
    head.start(UP, "lending");

    let lost = laptop.sh("potluck --retry-for 1s ls").exits(5);
    assert!(lost.stderr.contains("10.77.0.1:7700"), "what was tried: {}", lost.stderr);
    laptop.sh("potluck find-manager 10.77.0.3").exits(8);
    laptop.sh("potluck --retry-for 1s ls").exits(5);
    laptop.sh("potluck find-manager 10.77.0.101").ok();
    laptop.sh("potluck ls").ok();
}

#[test]
fn a_manager_restored_on_another_machine_finds_its_donors() {
    let test = "a_manager_restored_on_another_machine_finds_its_donors";
    let names = ["lab-head", "bench-2", "spare"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let [head, bench, spare] = names.map(|name| lab.machine(name));
    head.start(UP, "lending");
    lend(bench, &invite(head, "donor"));
    wait_for_live_donors(head, 2);
    heard_where_the_manager_is(bench);
    head.sh("potluck manager backup catalog.log").ok();
    let kit = "/home/lab/.local/state/potluck/manager/recovery.kit";
    for (from, to) in [(kit, "/home/lab/kit"), ("/home/lab/catalog.log", "/home/lab/catalog.log")] {
        std::fs::copy(head.path(from), spare.path(to)).expect("carried over");
    }
    head.kill_all();
    head.unplug();

    spare.sh("potluck manager restore --kit kit --from catalog.log --state pool").ok();
    spare.start("potluck manager --state pool", "manager at");
    let status = || spare.sh("potluck --json --pool pool/admin status").ok().json();
    wait_until("the donor to follow", DEADLINE, || {
        let donors = status()["donors"].as_array().expect("donors").clone();
        donors.iter().any(|donor| donor["name"] == "bench-2" && donor["state"] == "live")
    });
}
