//! `potluck cp`: copies files and trees into the pool, out of it, or inside it.

mod archived;
mod at_once;
mod calls;
mod directories;
mod inward;
mod outward;
pub mod place;
mod within_pool;

pub use place::{CopyPlace, Landing, PlacedAt, same_place, target};

use super::{Ending, patterns};
use crate::args::{CpArgs, PolicyOptions, RetentionOptions};
use crate::output::{Output, count, told};
use archived::ArchivedDir;
use at_once::{Destination, Replacing};
use potluck_client::Pool;
use potluck_core::ids::VersionId;
use potluck_core::path::{PoolPath, SCHEME};
use potluck_core::policy::Override;
use potluck_wire::control::Condition;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

/// The number of bytes below which no speed is shown.
const LEAST_FOR_A_SPEED: u64 = 4 << 20;
/// The ratio of two rates above which they are shown as one.
const NEARLY: f64 = 0.95;

/// The report of `cp`, as `--json` shows it.
#[derive(Debug, Default, Serialize)]
struct CpReport {
    files: u64,
    /// The number of symbolic links that were copied as links.
    links: u64,
    bytes: u64,
    /// The bytes that were moved: neither those of holes nor those of files that were copied without moving bytes.
    #[serde(skip)]
    data: u64,
    seconds: f64,
    /// MiB per second that were moved.
    mib_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_chunks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_chunks: Option<u64>,
    /// The bytes, in whole chunks, that were in the pool already or occur twice in what was copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_bytes: Option<u64>,
    /// The share of `held_bytes` in all bytes that are in no hole, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_share: Option<f64>,
    /// MiB per second until the files were visible (the observed application bandwidth).
    #[serde(skip_serializing_if = "Option::is_none")]
    oab_mib_s: Option<f64>,
    /// MiB per second until all copies were made (the achieved storage bandwidth); `None` while some are pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    asb_mib_s: Option<f64>,
    #[serde(skip)]
    session_times: SessionTimes,
    /// The directories whose attributes are set once more when a staged copy is visible: the commit leaves those of
    /// directories that were there before.
    #[serde(skip)]
    archived_dirs: Vec<ArchivedDir>,
    /// The stored bytes that an interrupted upload had left, copies not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed_bytes: Option<u64>,
    /// The stored bytes that an interrupted upload had left, with all copies, as `potluck status` counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed_copies_bytes: Option<u64>,
    /// The number of copies that an asynchronous protocol has not made yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_copies: Option<u64>,
    /// The number of files that the death of one donor may damage until pending copies are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_risk: Option<u64>,
    /// The number of files with less redundancy than their policy asks for, because donors are away.
    #[serde(skip_serializing_if = "Option::is_none")]
    below_policy: Option<u64>,
    /// The number of files that were copied inside the pool without moving their bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_moving: Option<u64>,
    /// The number of files that were copied inside the pool and are being changed to another redundancy than their
    /// sources have.
    #[serde(skip_serializing_if = "Option::is_none")]
    changing: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failovers: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    versions: Vec<StoredVersion>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
    failed: Vec<FailedFile>,
}

#[derive(Debug, Serialize)]
struct StoredVersion {
    path: String,
    version: u64,
}

#[derive(Debug, Serialize)]
struct FailedFile {
    path: String,
    error: Failure,
}

impl FailedFile {
    /// Returns what went wrong, with the path of the file before it unless it names the file already.
    fn message(&self) -> String {
        let Self { path, error: Failure { message, .. } } = self;
        // A name without a slash may be a part of any other word.
        let is_named = message.starts_with(&format!("“{path}”"))
            || (path.contains('/') && message.contains(path.as_str()));
        if is_named { message.clone() } else { format!("{}: {message}", told(path)) }
    }
}

/// What a copy passes over, because it is at the target already.
#[derive(Debug, Default)]
pub struct Unchanged {
    /// The paths in the pool to which local files, links and empty directories need not be copied.
    pub inward: HashSet<PoolPath>,
    /// The files and links that need not be copied out of the pool, relative to the directory that is copied.
    pub outward: HashSet<String>,
}

pub async fn run(
    args: CpArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    copy_but(args, &Unchanged::default(), client, output, shown).await
}

/// Copies as the arguments say, but for what is `unchanged`.
pub async fn copy_but(
    mut args: CpArgs,
    unchanged: &Unchanged,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let started = client.now();
    args.recursive |= args.archive;
    let mut from = Vec::new();
    for text in &args.from {
        from.extend(sources(CopyPlace::source(text)?, client).await?);
    }
    let to = CopyPlace::target(&args.to)?;
    if args.if_version.is_some() && from.len() > 1 {
        return Err(one_version());
    }
    if args.version_id.is_some() && (from.len() > 1 || !matches!(from[0].at, PlacedAt::Pool(_))) {
        return Err(usage("--version-id is about one source in the pool")
            .hint("copy old versions one by one"));
    }
    if args.if_absent && to.at == PlacedAt::Stdio {
        return Err(usage("--if-absent says nothing about standard output"));
    }
    if matches!(&to.at, PlacedAt::Pool(path) if path.space().is_empty()) {
        return Err(usage("files live in spaces")
            .hint("write pot://SPACE/PATH; `potluck ls` shows the spaces"));
    }
    if to.at != PlacedAt::Stdio {
        place::check_names(&from)?;
    }
    let from_pool = from.iter().filter(|from| matches!(from.at, PlacedAt::Pool(_))).count();
    let mut report = match (&to.at, from_pool) {
        (PlacedAt::Pool(path), 0) => {
            let destination = destination(&args, path, !args.allow_empty, client).await?;
            let (to, unchanged) = ((path, to.into), &unchanged.inward);
            let copying = inward::copy(&args, &from, to, unchanged, &destination, client, shown);
            let copied = destination.during(copying).await;
            finished(copied, destination, client).await?
        }
        (PlacedAt::Pool(path), n) if n == from.len() => {
            let destination = destination(&args, path, false, client).await?;
            let copying =
                within_pool::copy(&args, &from, (path, to.into), &destination, client, shown);
            let copied = destination.during(copying).await;
            finished(copied, destination, client).await?
        }
        (_, n) if n == from.len() => {
            outward::copy(&args, &from, &to, &unchanged.outward, client, shown).await?
        }
        (_, 0) => {
            let given = args.from.iter().chain([&args.to]).map(Path::new);
            let hint = given.filter_map(place::other_place).next();
            let hint = hint.unwrap_or_else(|| "a path in the pool starts with pot://".into());
            return Err(usage("neither side is in the pool").hint(hint));
        }
        _ => {
            return Err(usage("some sources are in the pool and some are not")
                .hint("copy them with two commands"));
        }
    };
    report.timed(client.now() - started);
    // Standard output must hold nothing but the file.
    let quiet = Output::silent();
    finish(&report, if to.at == PlacedAt::Stdio { &quiet } else { output })
}

/// Returns the sources that one argument means: several if it is a pattern in the pool.
async fn sources(written: CopyPlace, client: &Pool) -> Result<Vec<CopyPlace>, Failure> {
    let PlacedAt::Pool(path) = &written.at else { return Ok(vec![written]) };
    let paths = patterns::expand(std::slice::from_ref(path), client).await?.into_iter();
    Ok(paths.map(|path| CopyPlace { at: PlacedAt::Pool(path), ..written.clone() }).collect())
}

/// Begins a copy to a path in the pool.
async fn destination(
    args: &CpArgs,
    to: &PoolPath,
    spare_content: bool,
    client: &Pool,
) -> Result<Destination, Failure> {
    let replacing = Replacing { condition: condition(args), spare_content };
    Destination::begin(client, to, args.atomic, replacing).await
}

/// Makes a staged copy visible at once, or fails if any file of it failed, so that nothing becomes visible.
async fn finished(
    copied: Result<CpReport, Failure>,
    destination: Destination,
    client: &Pool,
) -> Result<CpReport, Failure> {
    let told = |mut failure: Failure, more| {
        failure.message = destination.told(&failure.message) + more;
        failure
    };
    let mut report = copied.map_err(|failure| told(failure, ""))?;
    if destination.is_staged() && !report.failed.is_empty() {
        let failed = report.failed.swap_remove(0);
        return Err(told(failed.error, "; so nothing became visible"));
    }
    for stored in &mut report.versions {
        stored.path = destination.told(&stored.path);
    }
    destination.finish().await?;
    let dirs = std::mem::take(&mut report.archived_dirs);
    report.add_failed(archived::set_attributes(client, dirs).await);
    Ok(report)
}

/// Returns the text that says what an interrupted copy leaves, and how to go on with it.
pub fn when_interrupted(args: &CpArgs) -> &'static str {
    let in_pool = |text: &std::ffi::OsStr| text.as_encoded_bytes().starts_with(SCHEME.as_bytes());
    match (in_pool(&args.to), args.from.iter().any(|from| in_pool(from))) {
        (true, false) => {
            "interrupted: what was sent is kept for a while, and the same command goes on from there"
        }
        (true, true) => {
            "interrupted: files that were whole are there, and the same command copies the rest"
        }
        (false, _) => {
            "interrupted: files that were whole are there, and of others nothing is left; --if-absent \
             passes over those that are there"
        }
    }
}

/// The times that write sessions took, added up.
#[derive(Debug, Default)]
struct SessionTimes {
    until_visible: Duration,
    until_stored: Duration,
}

impl CpReport {
    fn timed(&mut self, took: Duration) {
        self.seconds = took.as_secs_f64();
        self.mib_s = mib_s(self.data, took);
        if self.held_bytes.is_none() || self.data == 0 {
            return;
        }
        let SessionTimes { until_visible, until_stored } = self.session_times;
        self.held_share = self.held_bytes.map(|held| held as f64 / self.data as f64);
        self.oab_mib_s = Some(mib_s(self.data, until_visible));
        let is_stored = self.pending_copies.is_none_or(|pending| pending == 0);
        self.asb_mib_s = is_stored.then(|| mib_s(self.data, until_stored));
    }

    /// Formats the rates until files were visible and until all copies were made, if these differ.
    fn other_rates(&self) -> Option<String> {
        let (oab, asb) = (self.oab_mib_s?, self.asb_mib_s?);
        (asb < oab * NEARLY).then(|| {
            format!("{oab:.0} MiB/s until visible, {asb:.0} MiB/s until all copies were made")
        })
    }
}

fn mib_s(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / f64::from(1 << 20) / took.as_secs_f64().max(1e-9)
}

fn finish(report: &CpReport, output: &Output) -> Result<Ending, Failure> {
    // If the only file failed, that is the command's failure; otherwise each failure is told.
    if report.files + report.links == 0 && report.failed.len() == 1 {
        return Err(report.failed[0].error.clone());
    }
    // Advice that is the same for many files is given with the first of them.
    let mut advice = BTreeSet::new();
    for failed in &report.failed {
        let mut failure = failed.error.clone();
        failure.message = failed.message();
        if !advice.insert(failed.error.hint.as_str()) {
            failure.hint.clear();
        }
        output.complain(&failure);
    }
    for skipped in &report.skipped {
        output.note(&format!("skipped {}", told(skipped)));
    }
    output.result(report, |report| {
        let size = potluck_core::size::format_size(report.bytes);
        let mut files = count(report.files, "file");
        if report.links > 0 {
            files.push_str(&format!(", {}", count(report.links, "link")));
        }
        let mut text = match report.without_moving {
            Some(without) if without == report.files => {
                format!("{files}, {size}, copied without moving bytes")
            }
            // A copy that is over in a moment says nothing about the speed of the pool.
            _ if report.data < LEAST_FOR_A_SPEED => format!("{files}, {size}"),
            _ => match report.other_rates() {
                Some(rates) => format!("{files}, {size}, {rates}"),
                None => format!("{files}, {size}, {:.0} MiB/s", report.mib_s),
            },
        };
        if let Some(held) = report.held_chunks.filter(|held| *held > 0) {
            let sent = report.sent_chunks.unwrap_or_default();
            let bytes = potluck_core::size::format_size(report.held_bytes.unwrap_or_default());
            let percent = 100.0 * report.held_share.unwrap_or_default();
            text.push_str(&format!(
                " (there already: {}, {bytes} or {percent:.0} %; sent: {sent})",
                count(held, "chunk")
            ));
        }
        if let Some(kept) = report.resumed_copies_bytes.filter(|bytes| *bytes > 0) {
            let kept = potluck_core::size::format_size(kept);
            text.push_str(&format!(" (went on from {kept} that were kept, with all copies)"));
        }
        if let Some(failovers) = report.failovers.filter(|times| *times > 0) {
            text.push_str(&format!(" (another copy stood in {})", count(failovers, "time")));
        }
        text
    });
    if let Some(changing) = report.changing.filter(|changing| *changing > 0) {
        output.note(&format!(
            "changed in the background to what is asked for there: {}; until then each is kept as \
             its source is (`potluck repair status`)",
            count(changing, "file")
        ));
    }
    less_than_promised(report).iter().for_each(|what| output.note(what));
    match (report.files + report.links, report.failed.len()) {
        (_, 0) => Ok(Ending::Done),
        (0, failed) => {
            let what = format!("all {failed} files failed");
            let kind = report.failed[0].error.kind;
            Err(Failure::new(kind, code::SOME_FAILED, what).hint("the reasons are above"))
        }
        _ => Ok(Ending::Partial),
    }
}

/// Says which redundancy the stored files still lack, and what the death of a donor would mean meanwhile.
fn less_than_promised(report: &CpReport) -> Vec<String> {
    let is_at_risk = report.at_risk.is_some_and(|files| files > 0);
    let pending = report.pending_copies.filter(|pending| *pending > 0).map(|pending| {
        let death = match is_at_risk {
            true => "until then the death of one donor may lose data",
            false => "the death of one donor loses nothing meanwhile",
        };
        format!(
            "unsafe window: {} not made yet; {death} (`potluck verify` says when it has closed)",
            if pending == 1 { "1 copy is".into() } else { format!("{pending} copies are") },
        )
    });
    let below = report.below_policy.filter(|below| *below > 0).map(|below| {
        format!(
            "below policy: {} stored without all redundancy, because donors are away; {}repair completes {} \
             when donors are there (`potluck status`)",
            if below == 1 { "1 file is".into() } else { format!("{below} files are") },
            if is_at_risk { "" } else { "the death of one more loses nothing, and " },
            if below == 1 { "it" } else { "them" },
        )
    });
    pending.into_iter().chain(below).collect()
}

fn one_version() -> Failure {
    usage("--if-version is about one file").hint("use it for a single file, without -r")
}

fn usage(what: &str) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
}

/// Returns the condition under which files in the pool may be replaced.
fn condition(args: &CpArgs) -> Condition {
    match (args.if_absent, args.if_version) {
        (true, _) => Condition::IfAbsent,
        (_, Some(version)) => Condition::IfVersion(VersionId(version)),
        _ => Condition::Always,
    }
}

/// Returns the part of a policy that the flags set.
pub fn policy_override(options: &PolicyOptions) -> Result<Override, Failure> {
    let chunk_size = options.chunk_size.map(u32::try_from).transpose().map_err(|_| {
        Failure::new(ErrorKind::Usage, code::BAD_POLICY, "chunks of this size are not possible")
            .hint("use a power of two from 64KiB to 64MiB")
    })?;
    Ok(Override {
        chunk_size,
        cut: options.cut,
        stripe_width: options.width,
        stripe_size: options.stripe_size,
        near: options.near,
        // What is cached has its other copy at its origin.
        copies: options.copies.or(options.cache.filter(|cached| *cached).and(match options.ec {
            Some(_) => None,
            None => Some(1),
        })),
        ec: options.ec,
        mirror: options.mirror,
        race: options.race,
        ack: options.ack,
        strict: options.strict,
        cache: options.cache,
        ..Override::default()
    })
}

/// Returns `over` with how long the options keep old versions and removed files.
pub fn with_retention(over: Override, options: &RetentionOptions) -> Override {
    let RetentionOptions { keep_versions, trash } = *options;
    Override { keep_versions, trash, ..over }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_error_names_the_file_once() {
        for (path, what, said) in [
            ("100", "“100”: no copy of it", "“100”: no copy of it"),
            ("100", "no copy of chunk 1001", "100: no copy of chunk 1001"),
            ("pot://lab/f", "pot://lab/f is a link", "pot://lab/f is a link"),
            ("pot://lab/f", "the pool is full", "pot://lab/f: the pool is full"),
        ] {
            let error = Failure::new(ErrorKind::Retry, code::UNREADABLE, what);
            assert_eq!(FailedFile { path: path.into(), error }.message(), said);
        }
    }

    #[test]
    fn an_unsafe_window_is_worded_by_what_the_files_tolerate() {
        let said = |pending, at_risk, below| {
            less_than_promised(&CpReport {
                pending_copies: Some(pending),
                at_risk: Some(at_risk),
                below_policy: Some(below),
                ..CpReport::default()
            })
        };
        assert!(said(0, 0, 0).is_empty());
        let alone = said(7, 1, 0);
        assert!(alone.len() == 1 && alone[0].contains("may lose data"), "{alone:?}");
        let known = said(7, 0, 1);
        assert!(
            known[0].contains("7 copies are not made yet; the death of one donor loses nothing")
        );
        assert!(known[1].contains("the death of one more loses nothing, and repair"), "{known:?}");
        let both = said(7, 1, 1);
        assert!(both[1].contains("donors are away; repair completes it"), "{both:?}");
    }
}
