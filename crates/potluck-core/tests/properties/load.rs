//! The load of a donor: what procfs says, rates over time, and the score.

use potluck_core::governor::{OwnerResource, Yielding};
use potluck_core::load::{
    CpuTimes, Load, Pressure, ProcText, parse_diskstats, parse_meminfo, parse_net_dev,
    parse_procs_blocked, parse_psi,
};
use potluck_core::traffic::BothWays;
use proptest::prelude::*;
use std::time::Duration;

const STAT: &str = "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\nprocs_blocked 2\n";
const MEMINFO: &str = "MemTotal:       2000 kB\nMemFree:  5 kB\nMemAvailable:   1500 kB\n";
const DISKSTATS: &str = "\
   7       0 loop0 1 0 999 0 1 0 999 0 0 9 9
 254       0 vda 10 0 2000 5 10 0 4000 5 0 300 30 1 2 3 4
 254       1 vda1 10 0 2000 5 10 0 4000 5 0 300 30
 259       0 nvme0n1 10 0 10 5 10 0 20 5 0 7 30
 259       1 nvme0n1p1 10 0 10 5 10 0 20 5 0 7 30
 202       1 xvdb1 1 0 1 0 1 0 1 0 0 1 1
";
const NET_DEV: &str = "\
Inter-|   Receive    |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
    lo:    3193      29    0    0    0     0          0         0     3193      29
  eth0:88741354    4515    0    0    0     0          0         0   445541    3226
 veth9:       1       1    0    0    0     0          0         0        1       1
";

fn load() -> impl Strategy<Value = Load> {
    let share = || 0.0..=1.0_f32;
    let pressure = prop::option::of((0.0..100.0_f32, 0.0..100.0_f32, 0.0..100.0_f32));
    (share(), share(), share(), share(), 0..9_u32, pressure).prop_map(
        |(cpu_busy, memory, net, disk_busy, io_processes, pressure)| Load {
            cpu_busy,
            disk_busy,
            io_processes,
            memory_free: (memory * 1000.0) as u64,
            memory_total: 1000,
            net_rx_bytes_s: (net * 1000.0) as u64,
            net_link_bytes_s: 1000,
            pressure: pressure.map(|(cpu, io, memory)| Pressure { cpu, io, memory }),
            ..Load::default()
        },
    )
}

proptest! {
    #[test]
    fn a_score_lies_from_0_to_1_and_grows_with_every_use(load in load()) {
        let score = load.score();
        prop_assert!((0.0..=1.0).contains(&score), "{score}");
        let busier = [
            Load { cpu_busy: 1.0, ..load },
            Load { disk_busy: 1.0, ..load },
            Load { io_processes: load.io_processes + 1, ..load },
            Load { memory_free: 0, ..load },
            Load { net_tx_bytes_s: 1000, ..load },
            Load { pressure: Some(Pressure { cpu: 100.0, io: 100.0, memory: 100.0 }), ..load },
        ];
        for more in busier {
            prop_assert!(more.score() >= score, "{more:?}");
        }
    }

    #[test]
    fn no_text_makes_a_sample_panic_or_lie(
        text in prop_oneof![
            any::<String>(),
            "(cpu |cpu|some avg10=|MemTotal:|MemAvailable:|procs_blocked |eth0:)?([0-9]{0,22}[ \n.-]){0,20}",
        ],
    ) {
        let t = text.as_str();
        let all = ProcText {
            stat: t, loadavg: t, meminfo: t, diskstats: t, net_dev: t,
            psi_cpu: t, psi_io: t, psi_memory: t,
        };
        let real = ProcText { stat: STAT, diskstats: DISKSTATS, ..ProcText::default() };
        for (now, before) in [(all, real), (real, all)] {
            let (after, earlier) = (now.counters(), before.counters());
            let load = now.load(&after, &earlier, Duration::from_secs(1));
            prop_assert!((0.0..=1.0).contains(&load.cpu_busy));
            prop_assert!((0.0..=1.0).contains(&load.disk_busy));
            prop_assert!((0.0..=1.0).contains(&load.score()));
        }
    }
}

#[test]
fn donor_that_yields_comes_after_busy_ones_and_at_its_limit() {
    let yielding = Yielding { to: OwnerResource::Disk, others_percent: 34, budget: 5 << 20 };
    let limits = BothWays { read: Some(5 << 20), written: Some(5 << 20) };
    let load = Load { yielding: Some(yielding), limits, ..Load::default() };
    let busy = Load { cpu_busy: 1.0, disk_busy: 1.0, ..Load::default() };
    assert!(load.score() > busy.score());
    let rates = BothWays { read: Some(100 << 20), written: None };
    assert_eq!(load.within_limits(rates), limits);
    assert_eq!(Load::default().within_limits(rates), rates);
}

#[test]
fn procfs_is_read_as_the_kernel_means_it() {
    assert_eq!(CpuTimes::parse(STAT), Some(CpuTimes { busy: 150, total: 1000 }));
    assert_eq!(parse_procs_blocked(STAT), Some(2));
    assert_eq!(parse_meminfo(MEMINFO), Some((1500 << 10, 2000 << 10)));
    let psi = "some avg10=3.42 avg60=4.90 avg300=3.32 total=20772678\nfull avg10=9.00 avg60=0\n";
    assert_eq!(parse_psi(psi), Some(3.42));
    assert_eq!(parse_psi("full avg10=9.00"), None);
}

#[test]
fn only_whole_disks_and_real_links_count() {
    let disks = parse_diskstats(DISKSTATS);
    assert_eq!(disks.keys().collect::<Vec<_>>(), ["nvme0n1", "vda", "xvdb1"]);
    assert_eq!((disks["vda"].read, disks["vda"].written), (2000 * 512, 4000 * 512));
    assert_eq!(disks["vda"].busy_ms, 300);
    let nets = parse_net_dev(NET_DEV);
    assert_eq!(nets.keys().collect::<Vec<_>>(), ["eth0"]);
    assert_eq!((nets["eth0"].rx, nets["eth0"].tx), (88_741_354, 445_541));
}

#[test]
fn rates_are_growth_over_time_and_new_devices_make_no_jump() {
    let text = ProcText { stat: STAT, meminfo: MEMINFO, ..ProcText::default() };
    let mut earlier =
        ProcText { stat: STAT, diskstats: DISKSTATS, net_dev: NET_DEV, ..text }.counters();
    let mut now = earlier.clone();
    now.cpu = CpuTimes { busy: 200, total: 1100 };
    now.disks.get_mut("vda").expect("vda").written += 8000;
    now.disks.get_mut("vda").expect("vda").busy_ms += 500;
    now.nets.get_mut("eth0").expect("eth0").rx += 6000;
    now.served = 4000;
    earlier.disks.remove("nvme0n1");
    let load = text.load(&now, &earlier, Duration::from_secs(2));
    let expected = Load {
        cpu_busy: 0.5,
        memory_free: 1500 << 10,
        memory_total: 2000 << 10,
        disk_write_bytes_s: 4000,
        disk_busy: 0.25,
        io_processes: 2,
        net_rx_bytes_s: 3000,
        served_bytes_s: 2000,
        ..Load::default()
    };
    assert_eq!(load, expected);
    assert_eq!(now.load_since(&earlier, Duration::ZERO), Load::default());
}

#[test]
fn a_saturated_resource_outweighs_all_of_lower_priority() {
    let memory = Load { memory_total: 1, ..Load::default() };
    let network = Load { net_rx_bytes_s: 1, net_link_bytes_s: 1, ..Load::default() };
    let disk = Load { disk_busy: 1.0, ..Load::default() };
    let cpu = Load { cpu_busy: 1.0, ..Load::default() };
    assert!(memory.score() > Load { disk_busy: 1.0, cpu_busy: 1.0, ..network }.score());
    assert!(network.score() > Load { cpu_busy: 1.0, ..disk }.score());
    assert!(disk.score() > cpu.score() && cpu.score() > Load::default().score());
}
