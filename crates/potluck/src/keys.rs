//! The table of all settings of daemons. The daemons' options on the command line, the keys of their
//! settings files, the output of `potluck set` and the list in docs/settings.md are made from it.

use potluck_config::likeness::{most_like, nearest};
use potluck_config::setting_kind::SettingKind;

use potluck_core::timetable::LEAST_BANDWIDTH;
use potluck_wire::addresses::{DONOR_LISTEN, MANAGER_LISTEN};
use std::time::Duration;

/// The name of the settings file in a daemon's state directory.
pub const FILE: &str = "settings.toml";

/// The daemon that a key is for. `potluck up` runs both in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    /// The daemon that `potluck manager` runs.
    Manager,
    /// The daemon that `potluck lend` runs.
    Donor,
}

impl Daemon {
    /// Returns the name of the daemon.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Donor => "donor",
        }
    }
}

/// The default of a key, which holds while the key is not set.
#[derive(Debug, Clone, Copy)]
pub enum Unset {
    /// The default is this value.
    Value(&'static str),
    /// The daemon determines the value by itself, as these words say.
    Words(&'static str),
}

/// The time from which a running daemon uses a new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// A running daemon uses the new value at once.
    AtOnce,
    /// The daemon uses the new value from its next start.
    AtRestart,
}

impl Applies {
    /// Returns the words that lists show.
    pub fn words(self) -> &'static str {
        match self {
            Self::AtOnce => "at once",
            Self::AtRestart => "at the next start",
        }
    }
}

/// A setting of a daemon.
#[derive(Debug)]
pub struct Key {
    /// The key as `potluck set` takes it: `pool.`, `manager.` or `lend.`, then its name.
    pub full: &'static str,
    /// The kind of values that it takes.
    pub kind: SettingKind,
    /// The default, which holds while the key is not set.
    pub unset: Unset,
    /// The time from which a running daemon uses a new value.
    pub applies: Applies,
    /// Whether each lent directory has a value of its own.
    pub per_dir: bool,
    /// The meaning of the key, as help and lists show it.
    pub meaning: &'static str,
}

impl Key {
    const fn new(
        full: &'static str,
        kind: SettingKind,
        unset: Unset,
        meaning: &'static str,
    ) -> Self {
        Self { full, kind, unset, applies: Applies::AtOnce, per_dir: false, meaning }
    }

    const fn at_restart(self) -> Self {
        Self { applies: Applies::AtRestart, ..self }
    }

    const fn per_dir(self) -> Self {
        Self { per_dir: true, ..self }
    }

    /// Returns the name of the key in the settings file and on the command line, without its daemon.
    pub fn name(&self) -> &'static str {
        self.full.split_once('.').map_or(self.full, |(_, name)| name)
    }

    /// Returns the daemon that the key is for.
    pub fn daemon(&self) -> Daemon {
        match self.full.starts_with("lend.") {
            true => Daemon::Donor,
            false => Daemon::Manager,
        }
    }

    /// Returns the default as text for people.
    pub fn default(&self) -> &'static str {
        match self.unset {
            Unset::Value(text) | Unset::Words(text) => text,
        }
    }
}

const MORE_THAN_NOTHING: Duration = Duration::from_millis(1);

/// All settings, in the order in which they are shown.
pub static KEYS: &[Key] = &[
    Key::new(
        "pool.copies",
        SettingKind::Redundancy,
        Unset::Value("auto"),
        "How files are kept in spaces that were told nothing else: a number of copies, an erasure code, or auto, \
         which is one copy while one machine lends and two from when a second does",
    ),
    Key::new(
        "pool.trash",
        SettingKind::KeptTime,
        Unset::Value("7d"),
        "How long what is removed can be brought back in spaces that were told nothing else",
    ),
    Key::new(
        "manager.listen",
        SettingKind::Address,
        Unset::Value(MANAGER_LISTEN),
        "Where the manager listens",
    )
    .at_restart(),
    Key::new(
        "manager.advertise",
        SettingKind::Addresses,
        Unset::Words("the machine's network addresses and its name"),
        "How others reach the manager: HOST or HOST:PORT, one or several",
    )
    .at_restart(),
    Key::new(
        "manager.mdns",
        SettingKind::Flag,
        Unset::Value("true"),
        "Whether the manager announces itself on its own network by multicast DNS, so that members find \
         the pool when addresses change, and asks there itself",
    )
    .at_restart(),
    Key::new(
        "manager.metrics-listen",
        SettingKind::Address,
        Unset::Words("nowhere"),
        "Where the manager tells Prometheus how the pool is, at /metrics, without asking who it is",
    )
    .at_restart(),
    Key::new(
        "manager.repair-grace",
        SettingKind::Time { least: Duration::ZERO },
        Unset::Value("10m"),
        "How long a donor may be silent before what it holds is made again elsewhere",
    ),
    Key::new(
        "manager.longest-absence",
        SettingKind::Time { least: Duration::ZERO },
        Unset::Value("7d"),
        "How long a donor may be silent at most because its owner said so, by `lend.away` or `potluck away`",
    ),
    Key::new(
        "manager.repair-rate",
        SettingKind::Size { least: 1 },
        Unset::Value("400MiB"),
        "Bytes a second that repair makes in the whole pool at most",
    ),
    Key::new(
        "manager.repair-donor-rate",
        SettingKind::Size { least: 1 },
        Unset::Value("100MiB"),
        "Bytes a second that repair reads from one donor, or writes to it, at most",
    ),
    Key::new(
        "manager.diagnose-donors",
        SettingKind::Flag,
        Unset::Value("true"),
        "Whether the manager moves up to 8 MiB to and from a donor once, when it has joined or is on another line, so that the \
         pool knows its rates before anybody has used it; never while the donor's owner limits it",
    ),
    Key::new(
        "manager.metadata-copies",
        SettingKind::Count,
        Unset::Value("3"),
        "Copies of the metadata log that donors keep, sealed; 0: none",
    ),
    Key::new(
        "manager.backup-every",
        SettingKind::Time { least: MORE_THAN_NOTHING },
        Unset::Value("60s"),
        "How often the catalog is backed up to a file, if it changed",
    ),
    Key::new(
        "manager.backup-dir",
        SettingKind::Path,
        Unset::Words("backups in the manager's state directory"),
        "Where backups to files are kept; another disk is better",
    ),
    Key::new(
        "manager.gc-delay",
        SettingKind::Time { least: Duration::ZERO },
        Unset::Value("60s"),
        "How long chunks that no file uses are kept",
    ),
    Key::new(
        "manager.lease",
        SettingKind::Time { least: MORE_THAN_NOTHING },
        Unset::Value("30s"),
        "How long a write session outlives its last sign of life",
    ),
    Key::new(
        "manager.resume-window",
        SettingKind::Time { least: Duration::ZERO },
        Unset::Value("50m"),
        "How long what an interrupted upload has sent is kept, so that the same command goes on where it \
         was; 0s: not at all",
    ),
    Key::new(
        "manager.checkpoint-idle",
        SettingKind::Time { least: MORE_THAN_NOTHING },
        Unset::Value("24h"),
        "How long a checkpoint stays open while nothing is written to it; then what is staged for it is removed",
    ),
    Key::new(
        "lend.max",
        SettingKind::Size { least: 1 << 20 },
        Unset::Words("a quarter of what is free when the directory is first lent, at most 500GiB"),
        "The most that is lent of a directory's disk",
    )
    .per_dir(),
    Key::new(
        "lend.keep-free",
        SettingKind::Share,
        Unset::Value("15%"),
        "What always stays free on the disk: a share such as 10% or a size such as 50GiB",
    )
    .per_dir(),
    Key::new(
        "lend.away",
        SettingKind::Time { least: Duration::ZERO },
        Unset::Words("the pool's grace"),
        "How long this machine may be silent before what it holds is made again elsewhere, where that \
         is longer than the pool's grace: 3d for one that sleeps over the weekend",
    ),
    Key::new(
        "lend.label",
        SettingKind::Text,
        Unset::Words("none"),
        "What fails together with this machine: a room, a switch. No two chunks of a group, and no two \
         copies, are counted on for one label",
    ),
    Key::new(
        "lend.scrub-every",
        SettingKind::Time { least: MORE_THAN_NOTHING },
        Unset::Value("30d"),
        "How long reading back everything takes, again and again",
    ),
    Key::new(
        "lend.slowdown",
        SettingKind::Slowdown,
        Unset::Value("5%"),
        "How much slower the owner's own programs may become by what this machine serves; off: it never yields to them",
    ),
    Key::new(
        "lend.least-rate",
        SettingKind::Size { least: 0 },
        Unset::Value("1MiB"),
        "Bytes a second that are served however busy the owner is, so that chunks can be read that only this machine has; \
         0: none",
    ),
    Key::new(
        "lend.paused",
        SettingKind::Pause,
        Unset::Value("no"),
        "Whether this machine pauses, or until when: `potluck pause` and `potluck resume` set it",
    ),
    Key::new(
        "lend.hours",
        SettingKind::Hours,
        Unset::Value("full"),
        "How much is lent at which hours of this machine's clock: entries of days, hours and full, polite, reads or \
         off, with ; between, of which the last holds that fits",
    ),
    Key::new(
        "lend.bwlimit",
        SettingKind::Bandwidth,
        Unset::Value("off"),
        "The most bytes a second that are sent, or sent:received, always (20M, 20M:5M) or by the clock \
         (08:00,20M 19:00,off)",
    ),
    Key::new(
        "lend.polite-rate",
        SettingKind::Size { least: LEAST_BANDWIDTH },
        Unset::Value("20MiB"),
        "The most bytes a second that are sent and that are received while the mode is polite or reads",
    ),
    Key::new(
        "lend.on-battery",
        SettingKind::Mode,
        Unset::Value("reads"),
        "How much is lent while the machine runs on its battery: full, polite, reads or off",
    ),
    Key::new(
        "lend.on-metered",
        SettingKind::Mode,
        Unset::Value("reads"),
        "How much is lent while the machine's network is paid by the byte, as NetworkManager knows: full, polite, reads or off",
    ),
    Key::new("lend.listen", SettingKind::Address, Unset::Value(DONOR_LISTEN), "Where the donor listens")
        .at_restart(),
    Key::new(
        "lend.advertise",
        SettingKind::Addresses,
        Unset::Words(
            "the machine's network addresses, its name, and the address that the manager sees",
        ),
        "How others reach the donor: HOST or HOST:PORT, one or several",
    )
    .at_restart(),
    Key::new(
        "lend.mdns",
        SettingKind::Flag,
        Unset::Value("true"),
        "Whether the donor announces itself on its own network by multicast DNS, so that members find \
         the pool when addresses change, and asks there itself",
    )
    .at_restart(),
    Key::new(
        "lend.metrics-open",
        SettingKind::Flag,
        Unset::Value("false"),
        "Whether the donor shows its figures at /metrics to everybody who reaches its port, and not to \
         its own machine alone",
    ),
];

/// Returns the keys of one daemon.
pub fn of(daemon: Daemon) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.daemon() == daemon)
}

/// Returns the key with this full name, which must be in the table.
pub fn key(full: &str) -> &'static Key {
    KEYS.iter().find(|key| key.full == full).expect("a key of the table")
}

/// Finds the key that a user names, in full or without its daemon if only one daemon has it. Otherwise returns the
/// full names that may be meant.
pub fn named(text: &str) -> Result<&'static Key, Vec<&'static str>> {
    let wanted = text.trim();
    let mut found = KEYS.iter().filter(|key| key.full == wanted || key.name() == wanted);
    match (found.next(), found.next()) {
        (Some(key), None) => Ok(key),
        (Some(_), Some(_)) => {
            Err(KEYS.iter().filter(|key| key.name() == wanted).map(|key| key.full).collect())
        }
        (None, _) => Err(nearest_key(wanted).into_iter().collect()),
    }
}

/// Returns the key whose name is most like `text`; if `text` names a daemon, one of that daemon however unlike it is.
fn nearest_key(text: &str) -> Option<&'static str> {
    if let Some((daemon, name)) = text.split_once('.') {
        let same = |key: &&Key| key.full.split_once('.').is_some_and(|(own, _)| own == daemon);
        let of_daemon = || KEYS.iter().filter(same).map(|key| (key.name(), key.full));
        if let Some(meant) = most_like(name, of_daemon()) {
            return Some(meant.1);
        }
    }
    nearest(text, KEYS.iter().map(|key| (key.full, key.full)))
        .or_else(|| nearest(text, KEYS.iter().map(|key| (key.name(), key.full))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn every_default_is_a_value_that_could_be_set() {
        for key in KEYS {
            if let Unset::Value(text) = key.unset {
                assert_eq!(key.kind.check(text), Ok(text.to_owned()), "{}", key.full);
            }
        }
    }

    #[test]
    fn a_key_is_found_by_its_name_and_a_misspelt_one_is_guessed() {
        assert_eq!(named("manager.lease").expect("known").full, "manager.lease");
        assert_eq!(named("keep-free").expect("of one daemon").full, "lend.keep-free");
        assert_eq!(named("listen").expect_err("of two"), ["manager.listen", "lend.listen"]);
        assert_eq!(named("manager.repair-grece").expect_err("misspelt"), ["manager.repair-grace"]);
        assert_eq!(named("scrub_every").expect_err("misspelt"), ["lend.scrub-every"]);
        assert_eq!(named("manager.nope").expect_err("none").len(), 1, "the nearest of that daemon");
        assert!(named("colour").expect_err("nothing like it").is_empty());
    }

    #[test]
    fn the_documentation_lists_exactly_these_keys() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let doc = std::fs::read_to_string(path).expect("docs/settings.md");
        let is_row = |line: &&str| {
            ["pool", "manager", "lend"].iter().any(|of| line.starts_with(&format!("| `{of}.")))
        };
        let documented: Vec<_> = doc.lines().filter(is_row).collect();
        let mut table = String::new();
        for key in KEYS {
            let default = match key.unset {
                Unset::Value(text) => format!("`{text}`"),
                Unset::Words(text) => text.to_owned(),
            };
            let (full, applies, meaning) = (key.full, key.applies.words(), key.meaning);
            writeln!(
                table,
                "| `{full}` | {} | {default} | {applies} | {meaning} |",
                key.kind.placeholder().replace('|', "\\|")
            )
            .expect("a string takes it");
        }
        let keys: Vec<_> = table.lines().collect();
        assert_eq!(documented, keys, "docs/settings.md should hold this table:\n{table}");
    }
}
