//! The client: what every front of Potluck (command line, mount, gateways, Python) is built on.
//!
//! A write goes [`put`] → [`write::sliding_window`] → [`donors`]; a read goes [`get`] → [`fetch`]
//! → [`donors`]. Everything else is one call to the manager ([`pool::Client::call`]).

pub mod buffer;
pub mod copy;
pub mod donors;
pub mod fetch;
pub mod file;
pub mod get;
pub mod link;
pub mod patience;
pub mod pool;
pub mod progress;
pub mod put;
pub mod recipe;
pub mod source;
pub mod write {
    //! Write protocols (checkpoint store §IV.B): so far the sliding window.
    pub mod copies;
    pub mod groups;
    pub mod session;
    pub mod sliding_window;
}
pub mod writer;
