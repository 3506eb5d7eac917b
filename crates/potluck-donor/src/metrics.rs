//! The `/metrics` of a donor: figures of what it lends and does, for Prometheus.

pub mod counted;

use crate::service::Service;
use potluck_core::governor::Yielding;
use potluck_wire::metrics::Exposition;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns the metrics of now, or those of a moment ago that are cached; `connections` is the number of open bulk
/// connections.
pub fn text(service: &Service, connections: usize) -> Arc<str> {
    let now = service.env.clock.now();
    if let Some(text) = service.metrics.cached.good(now) {
        return text;
    }
    let mut out = Exposition::of("donor");
    let (disk, room) = service.store.report();
    out.gauge("potluck_lent_max_bytes", "The most that is lent", service.store.limits().max as f64);
    out.gauge("potluck_lent_used_bytes", "Bytes of the pool's here", disk.lent_used as f64);
    out.gauge("potluck_lent_room_bytes", "Bytes that can still be stored", room as f64);
    let excess = service.store.excess() as f64;
    out.gauge("potluck_lent_excess_bytes", "Bytes beyond the owner's limits", excess);
    let fault = f64::from(u8::from(service.store.fault().is_some()));
    out.gauge("potluck_lent_fault", "1 while the disk fails", fault);
    let mode = f64::from(service.owner.mode() as u8);
    let help = "What the owner lets it do: 0 full, 1 polite, 2 reads, 3 off";
    out.gauge("potluck_lent_mode", help, mode);
    let (served, stored) = (service.traffic.total().read.bytes, service.store.stored());
    out.counter("potluck_bulk_served_bytes", "Bytes served to readers", served);
    out.counter("potluck_bulk_stored_bytes", "Bytes stored for writers", stored);
    out.gauge("potluck_bulk_connections", "Open connections", connections as f64);
    let scrub = service.scrub.report();
    out.gauge("potluck_scrub_done_bytes", "Bytes read in this round", scrub.done as f64);
    out.gauge("potluck_scrub_round_bytes", "Bytes held when it began", scrub.of as f64);
    out.counter("potluck_scrub_rounds", "Rounds finished since the store was made", scrub.rounds);
    out.counter("potluck_scrub_spoiled_chunks", "Chunks found spoiled", scrub.spoiled);
    let throttle = service.throttle.in_force();
    if let Some(Yielding { budget, .. }) = throttle.yielding {
        out.gauge("potluck_budget_bytes", "Bytes a second that may be moved", budget as f64);
    }
    let yielded = service.throttle.throttled_time().yielded.as_secs();
    out.counter("potluck_yielded_seconds", "Seconds of yielding to the owner", yielded);
    let failures = service.metrics.heartbeat_failures.load(Ordering::Relaxed);
    out.counter("potluck_heartbeat_failures", "Calls to the manager that failed", failures);
    service.metrics.cached.keep(now, &out)
}
