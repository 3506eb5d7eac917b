//! Everything that crosses a socket in Potluck, both ends of each message in one place.
//!
//! There are two planes. *Control* is JSON calls over HTTP/1.1 and mutual TLS to the manager: [`control`] holds the
//! messages, [`call`] the caller's side, [`identity`] and [`tls`] who is who, [`succession`] how a pool's authority
//! is replaced. *Bulk* carries chunks to and from donors
//! on raw TCP after an HTTP upgrade: [`ticket`] says what a connection may do, [`upgrade`] opens it, [`bulk`] frames
//! it. [`addresses`] says where a member is, and [`race`] tries its addresses. [`admission`] shares a server's
//! connections out among its peers, [`turns`] its threads, and [`open_files`] says how many there can be. [`net`] and
//! [`env`] are what a role takes from the outside, so that a simulation can replace it.

pub mod addresses;
pub mod admission;
pub mod bodies;
pub mod bulk;
pub mod call;
pub mod control;
pub mod env;
pub mod error;
pub mod identity;
pub mod mdns;
pub mod metrics;
pub mod net;
pub mod open_files;
pub mod own_addresses;
pub mod packed;
pub mod peer_connection;
pub mod private_dir;
pub mod race;
pub mod serve;
mod stalled_writes;
pub mod succession;
pub mod ticket;
pub mod tls;
pub mod token;
pub mod turns;
pub mod upgrade;
pub mod version;
pub mod whereabouts;
