//! Pools whose donors are on slow lines work, at the rate of the lines.

use super::machines::{Machine, Machines, Naming};
use super::waiting::{DEADLINE, skip, wait_until};
use potluck_line::SlowLine;
use std::time::Duration;

/// A line as of a modem: 100 kb/s, and 100 ms from one end to the other.
const MODEM: SlowLine = SlowLine { rate: 100_000, delay: Duration::from_millis(100), loss: 0.0 };

/// What one modem carries in 16 s.
const FILE: u64 = 200_000;

fn live_donors(head: &Machine) -> usize {
    let status = head.sh("potluck --json status").ok().json();
    let donors = status["donors"].as_array().expect("donors").iter();
    donors.filter(|donor| donor["state"] == "live").count()
}

#[test]
fn put_and_get_work_over_modem_lines() {
    let test = "put_and_get_work_over_modem_lines";
    if let Some(reason) = potluck_line::missing() {
        return skip(test, &reason);
    }
    let names = ["head", "left", "right"];
    let Some(lab) = Machines::new(test, Naming::AddressOnly, &names) else { return };
    let head = lab.machine("head");
    head.start("potluck manager --mdns false", "manager at");
    for donor in ["left", "right"].map(|name| lab.machine(name)) {
        let invited = head.sh("potluck --json invite --role donor").ok().json();
        donor.sh("mkdir /data").ok();
        donor.sh(&format!("potluck join {}", invited["token"].as_str().expect("a token"))).ok();
        donor.start("potluck lend /data/lent --max 200MiB --keep-free 0%", "lending");
    }
    wait_until("two live donors", DEADLINE, || live_donors(head) == 2);
    head.sh("potluck space create lab --copies 1 --chunk-size 64KiB").ok();
    for donor in ["left", "right"] {
        lab.machine(donor).slow_down(MODEM);
    }

    head.sh(&format!("head -c {FILE} /dev/urandom > /tmp/file")).ok();
    let put = head.sh("potluck cp /tmp/file pot://lab/file").ok();
    let get = head.sh("potluck cat pot://lab/file | cmp - /tmp/file").ok();
    let at_best = Duration::from_secs_f64(FILE as f64 * 8.0 / (2.0 * MODEM.rate as f64));
    for (way, ran) in [("put", &put), ("get", &get)] {
        assert!(ran.took > at_best, "the {way} took {:?}, so the lines were not slow", ran.took);
    }
    assert_eq!(live_donors(head), 2, "donors on slow lines stay in the pool");
}
