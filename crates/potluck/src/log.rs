//! The log on standard error. A daemon logs what its operator should know. Other commands log only warnings
//! and errors unless asked for more.

use crate::args::{Args, Command};
use crate::output;
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The levels from the quietest on; each `-v` goes one further.
const LEVELS: [&str; 4] = ["warn", "info", "debug", "trace"];

/// Begins to log at the level that the flags ask for, or as `POTLUCK_LOG` says.
pub fn begin(args: &Args) {
    let quiet = args.global.quiet || !is_daemon(&args.command);
    let at = usize::from(args.global.verbose) + usize::from(!quiet);
    let level = LEVELS[at.min(LEVELS.len() - 1)];
    // Libraries log one level less, and warnings always.
    let others = LEVELS[at.saturating_sub(1).min(LEVELS.len() - 1)];
    let default = format!("{others},potluck={level}");
    let filter = EnvFilter::try_from_env("POTLUCK_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt()
        .fmt_fields(fields())
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colours_wanted())
        // If standard error is closed, the library would report that on standard error, and panic.
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

/// Returns the format of an event's fields. Names of files and members stand in many messages, and nothing in them begins
/// another line or moves the cursor.
fn fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    let format = debug_fn(|writer, field, value| {
        let text = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", output::escaped(&text)),
            name => write!(writer, "{name}={}", output::escaped(&text)),
        }
    });
    format.delimited(" ")
}

fn is_daemon(command: &Command) -> bool {
    match command {
        Command::Up(_) | Command::Lend(_) | Command::Serve(_) => true,
        Command::Mount(mount) => mount.foreground || mount.reports_start,
        Command::Manager(manager) => manager.action.is_none(),
        _ => false,
    }
}

/// Returns whether systemd's journal reads standard error (systemd.exec(5), `JOURNAL_STREAM`). Processes whose
/// standard error leads elsewhere inherit the variable as well, so it is compared.
fn goes_to_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let Ok(stderr) = rustix::fs::fstat(std::io::stderr()) else { return false };
    stream == format!("{}:{}", stderr.st_dev, stderr.st_ino)
}

/// A format with one line for each event: a prefix by its level and its text, without time and module.
struct Plain(fn(Level) -> &'static str);

/// Returns the prefix of a line for people, by its level.
fn for_people(level: Level) -> &'static str {
    match level {
        Level::ERROR | Level::WARN => "potluck: ",
        Level::INFO => "potluck: info: ",
        _ => "potluck: debug: ",
    }
}

/// Returns the prefix of a line for the journal, by its level. The journal strips it and keeps the level
/// (sd-daemon(3)), so that `journalctl -p warning` works.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use std::sync::Arc;

    #[test]
    fn log_names_are_sanitised() {
        let mut file = tempfile::tempfile().expect("a file");
        let to = Arc::new(file.try_clone().expect("the same file"));
        let log = tracing_subscriber::fmt().fmt_fields(fields()).with_ansi(false).with_writer(to);
        let name = "x\u{1b}[2J\r\nFORGED\u{202e}\u{9b}1m";
        tracing::subscriber::with_default(log.finish(), || {
            tracing::warn!(name, "a text");
            tracing::warn!(shown = %name, "about {name}");
            tracing::warn!("{name}");
        });
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("read");
        assert_eq!((text.lines().count(), text.matches("FORGED").count()), (3, 4), "{text:?}");
        assert!(!text.replace('\n', "").contains(potluck_core::text::is_unseen), "{text:?}");
    }
}
