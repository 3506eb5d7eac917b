//! `/metrics` of the manager: the pool in figures, for Prometheus.
//!
//! The control port wants a certificate of the pool, which no monitoring has. Therefore the metrics have a listener of
//! their own, plain HTTP, which is there only where it was asked for. It tells the names and the states of donors and
//! spaces, but neither paths nor keys.

pub mod counted;

use crate::handles::handles;
use crate::metrics::counted::ManagerMetrics;
use crate::pool_status::{Overview, StatusReader};
use crate::pool_time::PoolTime;
use crate::session_rates::SessionRates;
use crate::settings::Settings;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use potluck_catalog::{Catalog, SeenSpaces, Space};
use potluck_core::traffic::Direction;
use potluck_wire::control::{
    AlarmKind, DonorState, DonorStatus, PoolState, PoolStatus, SpaceHealth, SpaceInfo,
};
use potluck_wire::env;
use potluck_wire::error::Failure;
use potluck_wire::metrics::{CONTENT_TYPE, Exposition};
use potluck_wire::net::Listener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

handles! {
    /// The handles for making metrics.
    pub struct Exporter {
        settings: Arc<Settings>,
        time: PoolTime,
        catalog: Catalog,
        rates: Arc<SessionRates>,
        metrics: Arc<ManagerMetrics>,
        overview: Overview,
    }
}

/// The number of connections that are served at once, which is enough for a few monitors. Further ones are closed.
const CONNECTIONS: usize = 16;
/// The longest time that one connection may take from its beginning to its end.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The time for which no connection is accepted after a failure to accept one.
const PAUSE: Duration = Duration::from_secs(1);

impl Exporter {
    /// Answers scrapes until it is dropped. Without a listener it waits for ever.
    pub async fn serve(self, listener: Option<Box<dyn Listener>>) {
        let Some(mut listener) = listener else { return std::future::pending().await };
        let router = Router::new().route("/metrics", get(scrape)).with_state(self);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let answer = TowerToHyperService::new(router.clone());
            env::spawn(async move {
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new())
                    .header_read_timeout(REQUEST_TIMEOUT)
                    .keep_alive(false);
                let talk = http.serve_connection(TokioIo::new(stream), answer);
                let _ = tokio::time::timeout(REQUEST_TIMEOUT, talk).await; // its end is nobody's concern
                drop(place);
            });
        }
    }
}

async fn scrape(State(exporter): State<Exporter>) -> Response {
    match exporter.text().await {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text.to_string()).into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

impl Exporter {
    /// Returns the metrics of now, or of a moment ago. Callers that ask while they are put together wait for that.
    async fn text(&self) -> Result<Arc<str>, Failure> {
        let _one = self.metrics.making.lock().await;
        let now = self.time.tick();
        if let Some(text) = self.metrics.cached.good(now) {
            return Ok(text);
        }
        let status = self.overview.pool_status(&SeenSpaces::ALL, &StatusReader::Admin).await?;
        let spaces: Vec<_> = self.catalog.spaces().await?.iter().filter_map(Space::info).collect();
        let to_pool = self.settings.get().metadata_copies > 0;
        let mut exposition = exposition(&status, &spaces, to_pool);
        exposition.calls(&self.metrics.calls);
        let writer = self.catalog.writer_times();
        exposition.times(
            "potluck_catalog_job_seconds",
            "How long jobs held the catalog's writer",
            &writer.jobs,
        );
        exposition.times(
            "potluck_catalog_commit_seconds",
            "Commits of the catalog, until they are as durable as asked",
            &writer.commits,
        );
        let written = self.rates.so_far();
        exposition.counter(
            "potluck_written_bytes",
            "Bytes of files that write sessions made visible, of those that are over",
            written.bytes,
        );
        exposition.total_time(
            "potluck_written_visible_seconds",
            "From the opening of these sessions until the last of their files was visible",
            written.until_visible,
        );
        exposition.total_time(
            "potluck_written_stored_seconds",
            "Until all copies were made that their writers make",
            written.until_stored,
        );
        Ok(self.metrics.cached.keep(now, &exposition))
    }
}

/// Makes the pool's figures; `to_pool` says whether donors are to keep a copy of the metadata log.
fn exposition(status: &PoolStatus, spaces: &[SpaceInfo], to_pool: bool) -> Exposition {
    let mut out = Exposition::of("manager");
    let flag = |set: bool| f64::from(u8::from(set));
    out.gauge("potluck_uptime_seconds", "Since the manager started", status.uptime_seconds as f64);
    out.gauge("potluck_sessions", "Open write sessions", status.sessions as f64);
    out.gauge("potluck_alarms", "What somebody should look at", status.alarms.len() as f64);
    let states = [
        ("healthy", PoolState::Healthy),
        ("not_known", PoolState::NotKnown),
        ("degraded", PoolState::Degraded),
        ("unavailable", PoolState::Unavailable),
    ];
    out.gauges(
        "potluck_verdict",
        "1 for what `potluck status` says of the pool, 0 for what it does not",
        "state",
        states.map(|(name, state)| (name.to_owned(), flag(status.verdict.state == state))),
    );
    out.gauge(
        "potluck_catalog_fault",
        "1 while the manager cannot write its catalog",
        flag(status.alarms.iter().any(|alarm| alarm.kind == AlarmKind::CatalogDisk)),
    );
    out.gauge(
        "potluck_gc_frozen",
        "1 while nothing is reclaimed",
        flag(status.gc_frozen.is_some()),
    );
    out.gauge(
        "potluck_condemned_chunks",
        "Chunks no file uses, waiting to be reclaimed",
        status.condemned_chunks as f64,
    );
    out.gauge(
        "potluck_condemned_chunks_at_dead_donors",
        "Chunks no file uses that are nowhere but at dead donors",
        status.condemned_at_dead as f64,
    );
    let backups = [("file", status.backup_file_seconds), ("pool", status.backup_pool_seconds)];
    let asked = backups.iter().zip([true, to_pool]).filter(|(_, asked)| *asked);
    out.gauges(
        "potluck_backup_made",
        "Whether a copy of the catalog was ever written there",
        "op",
        asked.map(|((to, age), _)| ((*to).to_owned(), flag(age.is_some()))),
    );
    out.gauges(
        "potluck_backup_age_seconds",
        "Since the copy of the catalog was last known to have all changes",
        "op",
        backups.into_iter().filter_map(|(to, age)| Some((to.to_owned(), age? as f64))),
    );
    if let Some(waiting) = status.log_waiting {
        out.gauge(
            "potluck_log_waiting_changes",
            "Changes that are not on donors yet",
            waiting as f64,
        );
    }
    repair(&mut out, status);
    donors(&mut out, &status.donors);
    safety(&mut out, &status.spaces);
    let of = |value: fn(&SpaceInfo) -> u64| {
        spaces.iter().map(move |space| (space.name.clone(), value(space) as f64))
    };
    out.gauges("potluck_space_files", "Files", "space", of(|space| space.files));
    out.gauges("potluck_space_bytes", "Their sizes together", "space", of(|space| space.bytes));
    out
}

fn repair(out: &mut Exposition, status: &PoolStatus) {
    let repair = &status.repair;
    // A priority with no waiting chunks is shown, too, so that a graph has its line.
    let waiting = repair.queued.iter().copied().chain(std::iter::repeat(0));
    let queued = waiting.take(repair.queued.len().max(3)).enumerate();
    out.gauges(
        "potluck_repair_queued_chunks",
        "Chunks to make, by how many more donors may die before their file is lost",
        "redundancy_left",
        queued.map(|(left, chunks)| (left.to_string(), chunks as f64)),
    );
    out.gauge("potluck_repair_under_way_chunks", "Chunks being made", repair.under_way as f64);
    out.gauge("potluck_repair_stuck_chunks", "Chunks that cannot be made now", repair.stuck as f64);
    out.gauge("potluck_repair_left_bytes", "Bytes to make", repair.bytes_left as f64);
    out.gauge("potluck_repair_rate_bytes", "Bytes a second made lately", repair.rate as f64);
    let paused = f64::from(u8::from(repair.paused.is_some()));
    out.gauge("potluck_repair_paused", "1 while repair rests", paused);
    out.counter("potluck_repair_made_chunks", "Chunks made", repair.made);
    out.counter("potluck_repair_made_bytes", "Bytes made", repair.made_bytes);
}

fn donors(out: &mut Exposition, donors: &[DonorStatus]) {
    let states = [
        DonorState::Live,
        DonorState::Suspect,
        DonorState::Silent,
        DonorState::Away,
        DonorState::Dead,
        DonorState::Joined,
    ];
    let in_state = |state| donors.iter().filter(|donor| donor.state == state).count() as f64;
    out.gauges(
        "potluck_donors",
        "Donors by state",
        "state",
        states.map(|state| (state.word().to_owned(), in_state(state))),
    );
    for (name, help, direction) in [
        ("potluck_donor_read_rate_bytes", "Bytes a second it serves, by members", Direction::Read),
        ("potluck_donor_write_rate_bytes", "Bytes a second it takes, by members", Direction::Write),
    ] {
        let rate = |donor: &DonorStatus| *donor.rates.rates.of(direction);
        let known = donors.iter().filter_map(|it| Some((it.name.clone(), rate(it)? as f64)));
        out.gauges(name, help, "donor", known);
    }
    // A donor that has joined and lent nothing yet has no figures of its own.
    let lending = || donors.iter().filter(|donor| donor.state != DonorState::Joined);
    let mut each = |name: &str, help: &str, value: &dyn Fn(&DonorStatus) -> f64| {
        out.gauges(name, help, "donor", lending().map(|donor| (donor.name.clone(), value(donor))));
    };
    each("potluck_donor_live", "1 while it is heard", &|donor| {
        f64::from(u8::from(donor.state == DonorState::Live))
    });
    each("potluck_donor_dead", "1 when it is given up", &|donor| {
        f64::from(u8::from(donor.state == DonorState::Dead))
    });
    each("potluck_donor_announced_away", "1 while its absence is announced", &|donor| {
        f64::from(u8::from(donor.away_seconds.is_some()))
    });
    each("potluck_donor_silent_seconds", "Since it was heard", &|donor| {
        donor.silent_seconds.unwrap_or(0) as f64
    });
    each("potluck_donor_used_bytes", "Bytes it holds", &|donor| donor.used as f64);
    each("potluck_donor_room_bytes", "Bytes it can still take", &|donor| donor.room as f64);
    each("potluck_donor_promised_bytes", "Bytes promised to sessions", &|donor| {
        donor.promised as f64
    });
    each("potluck_donor_chunks", "Chunks it holds that files use", &|donor| donor.chunks as f64);
    each("potluck_donor_unclaimed_chunks", "Chunks the catalog does not know", &|donor| {
        donor.unclaimed as f64
    });
    each("potluck_donor_bad_chunks", "Chunks it lost or spoiled", &|donor| donor.bad as f64);
    each("potluck_donor_quarantined", "1 while it is not trusted", &|donor| {
        f64::from(u8::from(donor.quarantined.is_some()))
    });
    each("potluck_donor_disk_fault", "1 while its disk fails", &|donor| {
        f64::from(u8::from(donor.disk_fault.is_some()))
    });
}

fn safety(out: &mut Exposition, spaces: &[SpaceHealth]) {
    let scanned = || spaces.iter().filter(|space| space.scanned);
    let mut each = |name: &str, help: &str, value: fn(&SpaceHealth) -> Option<f64>| {
        let values = scanned().filter_map(|space| Some((space.name.clone(), value(space)?)));
        out.gauges(name, help, "space", values);
    };
    each("potluck_space_tolerated_losses", "More donors that may die for ever", |space| {
        Some(space.tolerates? as f64)
    });
    each("potluck_space_catalog_files", "Files that live in the catalog", |space| {
        Some(space.in_catalog as f64)
    });
    each("potluck_space_unreadable_files", "Files that cannot be read now", |space| {
        Some(space.unreadable as f64)
    });
    each("potluck_space_lost_files", "Files that no donor's return brings back", |space| {
        Some(space.lost as f64)
    });
    each("potluck_space_incomplete_files", "Files with less redundancy than promised", |space| {
        Some(space.incomplete as f64)
    });
}
