//! Tests a manager as its callers see it, over real sockets and real TLS.

#[path = "manager/bounding.rs"]
mod bounding;
#[path = "manager/converting.rs"]
mod converting;
#[path = "manager/crew.rs"]
mod crew;
#[path = "manager/donors.rs"]
mod donors;
#[path = "manager/garbage.rs"]
mod garbage;
#[path = "manager/gc_freeze.rs"]
mod gc_freeze;
#[path = "manager/giving_back.rs"]
mod giving_back;
#[path = "manager/granting.rs"]
mod granting;
#[path = "manager/joining.rs"]
mod joining;
#[path = "manager/lab.rs"]
mod lab;
#[path = "manager/locking.rs"]
mod locking;
#[path = "manager/many_chunks.rs"]
mod many_chunks;
#[path = "manager/policies.rs"]
mod policies;
#[path = "manager/port.rs"]
mod port;
#[path = "manager/refusing.rs"]
mod refusing;
#[path = "manager/repairing.rs"]
mod repairing;
#[path = "manager/restart.rs"]
mod restart;
#[path = "manager/restoring.rs"]
mod restoring;
#[path = "manager/serving.rs"]
mod serving;
#[path = "manager/strangers.rs"]
mod strangers;
#[path = "manager/trusting.rs"]
mod trusting;
#[path = "manager/watching.rs"]
mod watching;
#[path = "manager/writing.rs"]
mod writing;
