//! The machine's and the user's `config.toml` as they are written. Flags and the environment, which
//! the command line reads, win over both.
//!
//! No file in the working directory is read: it may be a stranger's, and would decide to which pool the
//! user's files go.

use crate::checked_toml::{self, TomlSource};
use crate::setting_kind::{SettingKind, time};
use potluck_core::size::parse_size;
use potluck_wire::error::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYS: [(&str, SettingKind); 11] = [
    ("pool", SettingKind::Text),
    ("progress", SettingKind::Flag),
    ("mdns", SettingKind::Flag),
    ("retry-for", SettingKind::Time { least: Duration::ZERO }),
    ("spool-max", SettingKind::Size { least: 0 }),
    ("write-protocol", SettingKind::Text),
    ("write-window", SettingKind::Size { least: 1 }),
    ("temporary-size", SettingKind::Size { least: 1 }),
    ("close", SettingKind::Text),
    ("cache-max", SettingKind::Size { least: 0 }),
    ("origins-allow", SettingKind::Text),
];

/// The values of configuration files as text, by key; each is of the kind of its key.
#[derive(Debug, Default)]
pub struct ConfigFile(BTreeMap<&'static str, String>);

impl ConfigFile {
    /// Reads the machine's and then the user's file, whose values win.
    pub fn load(config_dir: &Path) -> Result<Self, Failure> {
        let mut all = Self::default();
        for place in [PathBuf::from("/etc/potluck/config.toml"), config_dir.join("config.toml")] {
            let text = checked_toml::read(&place)?;
            all.put(TomlSource { path: &place, text: &text })?;
        }
        Ok(all)
    }

    /// Puts the values of a file in the place of those that were read before.
    fn put(&mut self, source: TomlSource<'_>) -> Result<(), Failure> {
        let document = source.parse()?;
        source.check(document.as_table(), &KEYS, &[])?;
        let value = |(key, kind): &(&'static str, SettingKind)| {
            Some((*key, kind.text_of(document.get(key)?.as_value()?)?))
        };
        self.0.extend(KEYS.iter().filter_map(value));
        Ok(())
    }

    /// Returns the text that `key` is set to.
    pub fn text(&self, key: &str) -> Option<&str> {
        debug_assert!(KEYS.iter().any(|(known, _)| *known == key));
        self.0.get(key).map(String::as_str)
    }

    /// Returns whether `key` is set to `true`; `None` if it is not set.
    pub fn is_on(&self, key: &str) -> Option<bool> {
        self.text(key).map(|text| text == "true")
    }

    /// Returns the size in bytes that `key` is set to.
    pub fn size(&self, key: &str) -> Option<u64> {
        parse_size(self.text(key)?).ok()
    }

    /// Returns the time that `key` is set to.
    pub fn time(&self, key: &str) -> Option<Duration> {
        time(self.text(key)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_files_win_and_unknown_keys_are_refused() {
        let mut file = ConfigFile::default();
        let mut put = |text| file.put(TomlSource { path: Path::new("config.toml"), text });
        put("pool = 'a'\nprogress = false\nspool-max = 4096\nretry-for = '2h'").expect("low");
        put("pool = 'b'").expect("high");
        let why = put("poool = 'a'").expect_err("unknown");
        assert_eq!((file.text("pool"), file.is_on("progress")), (Some("b"), Some(false)));
        assert_eq!((file.size("spool-max"), file.size("cache-max")), (Some(4096), None));
        assert_eq!(file.time("retry-for"), Some(Duration::from_secs(7200)));
        assert_eq!(
            (why.message.as_str(), why.hint.as_str()),
            ("config.toml, line 1: unknown key “poool”", "did you mean “pool”?")
        );
    }
}
