//! The log, on standard error: what a daemon tells its operator. Commands that end say only what
//! goes wrong, unless asked for more.

use crate::args::{Args, Command};
use crate::output;
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Levels from the quietest, as `-v` goes through them.
const LEVELS: [&str; 4] = ["warn", "info", "debug", "trace"];

/// Begins to log, at the level that the flags ask for.
pub fn begin(args: &Args) {
    let quiet = args.global.quiet || !is_daemon(&args.command);
    let at = usize::from(args.global.verbose) + usize::from(!quiet);
    let level = LEVELS[at.min(LEVELS.len() - 1)];
    // What libraries say is shown only where somebody looks for the cause of something.
    let others = LEVELS[at.saturating_sub(1).min(LEVELS.len() - 1)];
    let default = format!("{others},potluck={level}");
    let filter = EnvFilter::try_from_env("POTLUCK_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colours_wanted())
        // When standard error is gone, the library would say so on standard error, and panic.
        .log_internal_errors(false);
    if goes_to_journal() {
        log.event_format(Plain(for_journal)).init();
    } else if !is_daemon(&args.command) {
        log.event_format(Plain(for_people)).init();
    } else {
        let details = args.global.verbose > 0;
        log.with_target(details).init();
    }
}

fn is_daemon(command: &Command) -> bool {
    match command {
        Command::Up(_) | Command::Lend(_) => true,
        Command::Mount(mount) => mount.foreground || mount.reports_start,
        Command::Manager(manager) => manager.action.is_none(),
        _ => false,
    }
}

/// Whether systemd's journal reads standard error (systemd.exec(5), `JOURNAL_STREAM`). The variable
/// is inherited also by processes whose standard error leads elsewhere; hence the comparison.
fn goes_to_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let Ok(stderr) = rustix::fs::fstat(std::io::stderr()) else { return false };
    stream == format!("{}:{}", stderr.st_dev, stderr.st_ino)
}

/// One line an event without time and module: what stands before it, by its level, and its words.
struct Plain(fn(Level) -> &'static str);

/// Returns what stands before a line of a command that ends, by its level.
fn for_people(level: Level) -> &'static str {
    match level {
        Level::ERROR | Level::WARN => "potluck: ",
        Level::INFO => "potluck: info: ",
        _ => "potluck: debug: ",
    }
}

/// Returns what stands before a line for the journal, which notes the time itself and takes the level off again
/// (sd-daemon(3)): `journalctl -p warning` works.
fn for_journal(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "{}", (self.0)(*event.metadata().level()))?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
