//! A pool of two machines that know each other by name, or by address only.

use super::machines::{Machines, Naming};
use super::waiting::{PATIENCE, wait_until};
use rustix::process::Signal;

#[test]
fn machines_have_names_addresses_and_files_of_their_own() {
    let test = "machines_have_names_addresses_and_files_of_their_own";
    let Some(lab) = Machines::new(test, Naming::Dns, &["lab-head", "bench-2"]) else { return };
    let (head, bench) = (lab.machine("lab-head"), lab.machine("bench-2"));
    assert_eq!(bench.sh("hostname").ok().text(), "bench-2\n");
    head.sh("getent hosts bench-2").ok();
    head.sh("mkdir /data && echo mine > /data/file").ok();
    bench.sh("test ! -e /data/file").ok();
    assert_eq!(std::fs::read_to_string(head.path("/data/file")).expect("its file"), "mine\n");

    head.start("python3 -u -m http.server 8000 --directory /data", "Serving");
    let get = "python3 -c 'import urllib.request as u; \
               print(u.urlopen(\"http://lab-head:8000/file\", timeout=2).read())'";
    bench.sh(get).ok();
    bench.unplug();
    assert_ne!(bench.sh(get).code, 0, "a pulled cable");
    bench.plug_in();
    wait_until("the network to be back", PATIENCE, || bench.sh(get).code == 0);
    head.stop("python3", Signal::TERM);
}
