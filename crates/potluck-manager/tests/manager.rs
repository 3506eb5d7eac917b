//! A manager as its callers see it: over real sockets and real TLS.

#[path = "manager/donors.rs"]
mod donors;
#[path = "manager/garbage.rs"]
mod garbage;
#[path = "manager/hold.rs"]
mod hold;
#[path = "manager/joining.rs"]
mod joining;
#[path = "manager/lab.rs"]
mod lab;
#[path = "manager/policies.rs"]
mod policies;
#[path = "manager/port.rs"]
mod port;
#[path = "manager/restart.rs"]
mod restart;
#[path = "manager/restoring.rs"]
mod restoring;
#[path = "manager/writing.rs"]
mod writing;
