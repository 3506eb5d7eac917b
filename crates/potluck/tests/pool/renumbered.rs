//! Tests machines that get other addresses while their daemons run, where nobody restarts anything.

use super::machines::{Machine, Machines, Naming};
use super::waiting::{DEADLINE, wait_until};
use serde_json::Value;

/// The command of the manager and its donor, without multicast DNS: what members tell each other is tested here.
const UP: &str = "potluck up --max 200MiB --keep-free 0% --mdns false";

fn token(machine: &Machine, role: &str) -> Value {
    machine.sh(&format!("potluck --json invite --role {role}")).ok().json()
}

fn join(machine: &Machine, token: &Value) {
    machine.sh(&format!("potluck join {}", token["token"].as_str().expect("a token"))).ok();
}

fn donors(machine: &Machine) -> Vec<Value> {
    let status = machine.sh("potluck --json status").ok().json();
    status["donors"].as_array().expect("donors").clone()
}

/// Makes a pool of a manager with a donor beside it, another donor and a user, on three machines.
fn pool(test: &str) -> Option<Machines> {
    let lab = Machines::new(test, Naming::AddressOnly, &["lab-head", "bench-2", "laptop"])?;
    let [head, bench, laptop] = ["lab-head", "bench-2", "laptop"].map(|name| lab.machine(name));
    head.start(UP, "lending");
    join(bench, &token(head, "donor"));
    bench.start("potluck lend lent --max 200MiB --keep-free 0% --mdns false", "lending");
    join(laptop, &token(head, "user"));
    laptop.sh("mkdir -p .config/potluck && echo 'mdns = false' > .config/potluck/config.toml").ok();
    head.sh("potluck space create lab --copies 2").ok();
    head.sh("potluck space grant lab everyone read write").ok();
    Some(lab)
}

fn store_and_read(from: &Machine, path: &str) {
    from.sh(&format!(
        "head -c 9000000 /dev/urandom > file && potluck cp file {path} && \
         potluck verify --read {path} && potluck cat {path} | cmp - file"
    ))
    .ok();
}

#[test]
fn donor_address_change_is_followed() {
    let test = "donor_address_change_is_followed";
    let Some(lab) = pool(test) else { return };
    let [head, bench, laptop] = ["lab-head", "bench-2", "laptop"].map(|name| lab.machine(name));
    store_and_read(laptop, "pot://lab/before");
    bench.readdress([10, 77, 0, 102].into());
    wait_until("the donor's new address", DEADLINE, || {
        let donor = &donors(head)[1];
        donor["addresses"] == serde_json::json!(["10.77.0.102:7701"]) && donor["state"] == "live"
    });
    laptop.sh("potluck verify --read pot://lab/before").ok();
    store_and_read(laptop, "pot://lab/after");
}

#[test]
fn manager_address_change_is_followed() {
    let test = "manager_address_change_is_followed";
    let Some(lab) = pool(test) else { return };
    let [head, bench, laptop] = ["lab-head", "bench-2", "laptop"].map(|name| lab.machine(name));
    laptop.sh("potluck ls").ok();
    head.readdress([10, 77, 0, 101].into());
    let heard = "grep -q 10.77.0.101:7700 ~/.local/state/potluck/donor/manager.json";
    wait_until("the donor to hear of it", DEADLINE, || bench.sh(heard).code == 0);
    laptop.sh("potluck --retry-for 1m ls").ok();
    store_and_read(laptop, "pot://lab/after");
    // A token and the recovery kit, which are kept for later, have the new address, too.
    let told = token(head, "user")["manager"].to_string();
    let kit = head.path("/home/lab/.local/state/potluck/manager/recovery.kit");
    let kit = std::fs::read_to_string(kit).expect("the recovery kit");
    for text in [told, kit] {
        assert!(text.contains("10.77.0.101:7700") && !text.contains("10.77.0.1:"), "{text}");
    }
}

#[test]
fn a_running_donor_goes_where_find_manager_leads_it() {
    let test = "a_running_donor_goes_where_find_manager_leads_it";
    let Some(lab) = pool(test) else { return };
    let [head, bench] = ["lab-head", "bench-2"].map(|name| lab.machine(name));
    bench.sh("potluck lend --add lent-2 --max 200MiB --keep-free 0%").ok();
    wait_until("the second directory's donor", DEADLINE, || donors(head).len() == 3);
    // Both move while they do not see each other, so that neither can tell the other.
    bench.unplug();
    head.readdress([10, 77, 0, 101].into());
    bench.readdress([10, 77, 0, 102].into());
    wait_until("the manager to notice", DEADLINE, || {
        head.log("potluck up").contains("the manager is reached at 10.77.0.101:7700")
    });
    bench.plug_in();
    wait_until("the manager to miss both", DEADLINE, || {
        donors(head)[1..].iter().all(|donor| donor["state"] != "live")
    });
    bench.sh("potluck find-manager 10.77.0.101").ok();
    wait_until("both to be back", DEADLINE, || {
        donors(head).iter().all(|donor| donor["state"] == "live")
    });
}
