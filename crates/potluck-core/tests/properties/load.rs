//! The load of a donor: what procfs says, rates over time, and the score.

use potluck_core::governor::{OwnerResource, Yielding};
use potluck_core::load::{
    CpuTimes, HOT, LinkSpeed, Load, Pressure, ProcText, Resource, parse_diskstats, parse_lent_disk,
    parse_meminfo, parse_net_dev, parse_procs_blocked, parse_psi, parse_self_io, parse_self_ticks,
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
            psi_cpu: t, psi_io: t, psi_memory: t, self_stat: t, self_io: t,
            lent_device: Some((254, 1)),
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
    let busy = Load { cpu_busy: 0.85, disk_busy: 0.85, ..Load::default() };
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
fn the_first_hot_resource_by_priority_is_named() {
    let memory = Load { memory_free: 10, memory_total: 100, ..Load::default() };
    let network = Load { net_rx_bytes_s: 60, net_link_bytes_s: 100, ..Load::default() };
    let disk = Load { disk_busy: 0.6, ..Load::default() };
    let cpu = Load { cpu_busy: 0.9, ..Load::default() };
    let hot = |load: Load| (load.score() > HOT).then(|| load.hot_resource()).flatten();
    assert_eq!(hot(Load { memory_free: 30, ..memory }), None, "what is merely held slows nobody");
    assert_eq!(hot(memory), Some(Resource::Memory));
    assert_eq!(hot(Load { disk_busy: 1.0, cpu_busy: 1.0, ..network }), Some(Resource::Network));
    assert_eq!(hot(Load { cpu_busy: 1.0, ..disk }), Some(Resource::Disk));
    assert_eq!(hot(cpu), Some(Resource::Cpu));
    assert_eq!(
        (cpu.describe(), network.describe()),
        ("90 % (CPU)".into(), "60 % (network)".into())
    );
    assert_eq!(Load::default().describe(), "0 %");
    assert_eq!(Load { cpu_busy: 0.5, ..cpu }.hot_resource(), None);
    let queued = Load { io_processes: 2, disk_busy: 0.2, ..Load::default() };
    assert_eq!(hot(queued), Some(Resource::Disk), "one more gets a third");
    assert_eq!(hot(Load { disk_busy: 0.0, ..queued }), None, "they wait for another disk");
}

#[test]
fn own_work_makes_no_donor_look_busy() {
    let busy = Load {
        cpu_busy: 0.8,
        disk_busy: 1.0,
        disk_write_bytes_s: 1000,
        net_rx_bytes_s: 1000,
        net_link_bytes_s: 1000,
        io_processes: 3,
        ..Load::default()
    };
    assert_eq!(busy.score(), 1.0);
    let own = Load { own_cpu_busy: 0.8, own_disk_bytes_s: 1000, stored_bytes_s: 1000, ..busy };
    assert_eq!(own.score(), 0.0);
    let half = Load { own_cpu_busy: 0.4, own_disk_bytes_s: 500, stored_bytes_s: 500, ..busy };
    assert!((0.4..0.7).contains(&half.score()), "{}", half.score());
}

#[test]
fn a_link_is_as_fast_as_it_was_seen_to_be() {
    let carried =
        |total: u64, own| Load { net_rx_bytes_s: total, stored_bytes_s: own, ..Load::default() };
    let mut link = LinkSpeed::default();
    assert_eq!(link.after(&carried(10 << 10, 0), 1_250_000_000), 1_250_000_000, "what it says");
    assert_eq!(link.after(&carried(0, 12 << 20), 1_250_000_000), 1_250_000_000, "over no link");
    assert_eq!(link.after(&carried(12 << 20, 12 << 20), 1_250_000_000), 12 << 20);
    assert_eq!(link.after(&carried(1 << 20, 0), 1_250_000_000), 12 << 20);
    assert_eq!(link.after(&carried(50 << 20, 50 << 20), 0), 50 << 20, "it was the other end");
    assert_eq!(LinkSpeed::default().after(&carried(5, 0), 0), 5, "nothing else is known");
}

#[test]
fn the_disk_of_the_lent_directory_is_found_by_its_device() {
    let lent = |device| parse_lent_disk(DISKSTATS, device).map(|(name, disk)| (name, disk.busy_ms));
    assert_eq!(lent((254, 1)), Some(("vda".into(), 300)), "others use its other partitions");
    assert_eq!(lent((259, 0)), Some(("nvme0n1".into(), 7)));
    assert_eq!(lent((202, 1)), Some(("xvdb1".into(), 1)), "its whole disk is not listed");
    assert_eq!(lent((7, 0)), Some(("loop0".into(), 9)), "a layer over another disk");
    assert_eq!(lent((0, 34)), None, "btrfs has no disk of its own");
    let text =
        ProcText { diskstats: DISKSTATS, lent_device: Some((259, 1)), ..ProcText::default() };
    assert_eq!(text.counters().disks.keys().collect::<Vec<_>>(), ["nvme0n1"]);
}

#[test]
fn own_use_is_read_whatever_the_program_is_called() {
    let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 70 30 0 0 20 0 1 0 5 6 7\n";
    assert_eq!(parse_self_ticks(stat).map(|(program, kernel)| program + kernel), Some(100));
    let io = "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\n";
    assert_eq!(parse_self_io(io).map(|(read, written)| read + written), Some(12_288));
}
