//! Whole pools: the real binary as real processes on loopback, or on machines made of namespaces. Files
//! are named by the behaviour they test. A letter and a number in front of a name (`p05_`, `k04_`) only
//! keep together what belongs together: `p` is a pool's everyday work, `k` is redundancy that heals itself.
//!
//! Every test has a pool of its own in its own temporary directory; ports are picked by the
//! system; all processes die with the test that started them; every log is kept and searched for
//! panics when the pool is dropped ([`pool::lab::Lab`]).

// Real processes are watched on the real clock, through real sockets.
#![allow(clippy::disallowed_methods)]

mod pool {
    mod logs;
    mod monitoring;
    mod restore_as_documented;
    mod restoring_again;

    mod content;
    mod docs;
    mod lab;
    mod lent;
    mod machines;
    mod member;
    mod program;
    mod safety;
    mod small_disk;
    mod tap;
    mod two_machines;
    mod unknown_chunks;
    mod waiting;
    mod writer;

    mod addresses;
    mod agreeing_verdicts;
    mod command_line;
    mod copies_within_pool;
    mod exit_codes;
    mod failed_starts;
    mod found_by_mdns;
    mod give_back_of_a_part;
    mod handles;
    mod k01_erasure_coding;
    mod k02_first_m_of_n;
    mod k03_mirroring;
    mod k04_repair;
    mod k05_give_back;
    mod k06_scrub_audit;
    mod k08_metadata_survives;
    mod k09_policy_set;
    mod leaving;
    mod links_that_go_away;
    mod lost_identity;
    mod manager_restart;
    mod manuals;
    mod membership;
    mod metadata_adapts;
    mod operations_as_documented;
    mod p01_workspace;
    mod p02_demo;
    mod p03_a_pool_people_keep;
    mod p04_files;
    mod p04_names;
    mod p05_write_sessions;
    mod p06_striping;
    mod p07_copies;
    mod p08_dedup;
    mod p09_sealing;
    mod p10_soft_state;
    mod p11_ack_levels;
    mod p11_kill_9;
    mod p11_leftovers;
    mod p12_bad_input;
    mod p12_clocks;
    mod p12_damaged_disks;
    mod p12_full_disks;
    mod p12_hostile_peers;
    mod pages_as_documented;
    mod ranges;
    mod renumbered;
    mod resumed_uploads;
    mod services;
    mod settings;
    mod several_disks;
    mod slips;
    mod visible_as_it_goes;
    mod writes_below_policy;
}
