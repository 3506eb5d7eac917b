//! The machine's and the user's `config.toml` as they are written. `clap` reads flags and environment
//! (args.rs), and command_settings.rs resolves all of it. Settings of daemons are in settings_file.rs.
//!
//! No file in the working directory is read: it may be a stranger's, and would decide to which pool the
//! user's files go.

use crate::checked_toml::{self, TomlSource};
use crate::keys::SettingKind;
use potluck_wire::error::Failure;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml_edit::Item;

const KEYS: [(&str, SettingKind); 10] = [
    ("pool", SettingKind::Text),
    ("progress", SettingKind::Flag),
    ("mdns", SettingKind::Flag),
    ("retry-for", SettingKind::Time { least: Duration::ZERO }),
    ("spool-max", SettingKind::Size { least: 0 }),
    ("write-protocol", SettingKind::Text),
    ("write-window", SettingKind::Size { least: 1 }),
    ("temporary-size", SettingKind::Size { least: 1 }),
    ("write-behind", SettingKind::Flag),
    ("cache-max", SettingKind::Size { least: 0 }),
];

/// The values of configuration files. Every one may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// The pool to use: a name, or the directory of an identity.
    pub pool: Option<String>,
    /// Whether to draw progress bars.
    pub progress: Option<bool>,
    /// Whether to look for a pool on this machine's own network.
    pub mdns: Option<bool>,
    /// How long to wait for a manager and donors that do not answer, such as `10m`.
    pub retry_for: Option<String>,
    /// The most space that files which are written through a mount may take on this machine, such as `20GiB`.
    pub spool_max: Option<String>,
    /// How files that are written in order through a mount go to donors, such as `hybrid`.
    pub write_protocol: Option<String>,
    /// The most bytes in memory that were written to a mount and not sent to donors yet, such as `32MiB`.
    pub write_window: Option<String>,
    /// The size of each temporary file of a mount, such as `64MiB`.
    pub temporary_size: Option<String>,
    /// Whether small files that are written through a mount are published after close() has returned.
    pub write_behind: Option<bool>,
    /// The most space that the disk cache of mounts may take, such as `50GiB`.
    pub cache_max: Option<String>,
}

impl ConfigFile {
    /// Reads the machine's and then the user's file, whose values win.
    pub fn load(config_dir: &Path) -> Result<Self, Failure> {
        let places = [PathBuf::from("/etc/potluck/config.toml"), config_dir.join("config.toml")];
        places.iter().try_fold(Self::default(), |lower, place| {
            let text = checked_toml::read(place)?;
            Ok(Self::parse(TomlSource { path: place, text: &text })?.over(lower))
        })
    }

    fn parse(source: TomlSource<'_>) -> Result<Self, Failure> {
        let document = source.parse()?;
        source.check(document.as_table(), &KEYS, &[])?;
        let text = |key| document.get(key).and_then(Item::as_str).map(str::to_owned);
        Ok(Self {
            pool: text("pool"),
            progress: document.get("progress").and_then(Item::as_bool),
            mdns: document.get("mdns").and_then(Item::as_bool),
            retry_for: text("retry-for"),
            spool_max: text("spool-max"),
            write_protocol: text("write-protocol"),
            write_window: text("write-window"),
            temporary_size: text("temporary-size"),
            write_behind: document.get("write-behind").and_then(Item::as_bool),
            cache_max: text("cache-max"),
        })
    }

    fn over(self, lower: Self) -> Self {
        Self {
            pool: self.pool.or(lower.pool),
            progress: self.progress.or(lower.progress),
            mdns: self.mdns.or(lower.mdns),
            retry_for: self.retry_for.or(lower.retry_for),
            spool_max: self.spool_max.or(lower.spool_max),
            write_protocol: self.write_protocol.or(lower.write_protocol),
            write_window: self.write_window.or(lower.write_window),
            temporary_size: self.temporary_size.or(lower.temporary_size),
            write_behind: self.write_behind.or(lower.write_behind),
            cache_max: self.cache_max.or(lower.cache_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_files_win_and_unknown_keys_are_refused() {
        let parse = |text| ConfigFile::parse(TomlSource { path: Path::new("config.toml"), text });
        let low = parse("pool = 'a'\nprogress = false").expect("low");
        let both = parse("pool = 'b'").expect("high").over(low);
        assert_eq!((both.pool.as_deref(), both.progress), (Some("b"), Some(false)));
        let why = parse("poool = 'a'").expect_err("unknown");
        assert_eq!(
            (why.message.as_str(), why.hint.as_str()),
            ("config.toml, line 1: unknown key “poool”", "did you mean “pool”?")
        );
    }
}
