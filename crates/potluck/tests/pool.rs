//! Tests whole pools: the real binary runs as real processes on loopback, or on machines made of namespaces. Files and
//! tests are named by the behaviour they test; the number of a promise (docs/promises.md) may follow.
//!
//! Every test has a pool of its own in its own temporary directory. Its ports are picked by the system, or lie outside
//! the range from which the system picks ([`pool::ports`]). All processes die with the test that started them. Every
//! log is searched for panics when the pool is dropped ([`pool::lab::Lab`]).

// Real processes are watched on the real clock, through real sockets.
#![allow(clippy::disallowed_methods)]

mod pool {
    mod logs;
    mod monitoring;
    mod reservations;
    mod restore_as_documented;
    mod restoring_again;

    mod content;
    mod diagnostic_transfers;
    mod docs;
    mod lab;
    mod lent;
    mod machines;
    mod member;
    mod ports;
    mod program;
    mod s3_client;
    mod safety;
    mod small_disk;
    mod syncing;
    mod tap;
    mod trace;
    mod two_machines;
    mod unknown_chunks;
    mod waiting;
    mod web_server;
    mod writer;

    mod a_pool_people_keep;
    mod ack_levels;
    mod addresses;
    mod agreeing_verdicts;
    mod bad_input;
    mod checkpoints;
    mod clocks;
    mod command_line;
    mod copies;
    mod copies_within_pool;
    mod damaged_disks;
    mod dedup;
    mod demo;
    mod erasure_coding;
    mod exit_codes;
    mod extent;
    mod failed_starts;
    mod files;
    mod first_m_of_n;
    mod found_by_mdns;
    mod full_disks;
    mod gateways;
    mod give_back;
    mod give_back_of_a_part;
    mod handles;
    mod holes;
    mod hostile_names;
    mod hostile_peers;
    mod imports;
    mod kill_9;
    mod leaving;
    mod leftovers;
    mod lend_status;
    mod links_that_go_away;
    mod lookaside;
    mod lost_identity;
    mod manager_restart;
    mod manuals;
    mod many_calls;
    mod many_chunks;
    mod membership;
    mod metadata_adapts;
    mod metadata_survives;
    mod mirroring;
    mod mounts;
    mod mounts_and_faults;
    mod mounts_in_the_background;
    mod names;
    mod nearly_full;
    mod older_copies;
    mod operations_as_documented;
    mod owner_controls;
    mod pages_as_documented;
    mod policy_set;
    mod pool_defaults;
    mod ranges;
    mod reads_beside_failed_donors;
    mod rekeying;
    mod renumbered;
    mod repair;
    mod resumed_uploads;
    mod rotating_authority;
    mod scrub_audit;
    mod sealing;
    mod services;
    mod settings;
    mod several_disks;
    mod shared_files;
    mod slips;
    mod slow_lines;
    mod soft_state;
    mod space_rights;
    mod striping;
    mod uploads_beside_restarts;
    mod versions;
    mod visible_as_it_goes;
    mod where_donors_write;
    mod workspace;
    mod write_sessions;
    mod writes_below_policy;
}
