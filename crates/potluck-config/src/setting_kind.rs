//! The kinds of values that keys take. Values are kept as text, as people write them. The checks are the same for
//! the command line, the settings file and `potluck set`.

use potluck_core::clock::UnixMillis;
use potluck_core::governor::Slowdown;
use potluck_core::lend_mode::LendMode;
use potluck_core::owner_limits::KeepFree;
use potluck_core::owner_rules::Pause;
use potluck_core::policy::{DefaultRedundancy, KeptTime};
use potluck_core::size::{format_size, parse_size};
use potluck_core::timetable::{BandwidthHours, Hours};
use potluck_wire::addresses::{Address, MANAGER_PORT};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use toml_edit::{Array, Value};

/// The kind of values that a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// A time, such as `10m`.
    Time {
        /// The shortest time that is taken.
        least: Duration,
    },
    /// A size in bytes, such as `200GiB`.
    Size {
        /// The smallest size that is taken, in bytes.
        least: u64,
    },
    /// A share of a disk, or a size.
    Share,
    /// A whole number, not negative.
    Count,
    /// Any text that is not empty.
    Text,
    /// The absolute path of a directory of this machine.
    Path,
    /// The address of a socket, as `HOST:PORT`.
    Address,
    /// One or several of `HOST` or `HOST:PORT`, with commas between them; in the file a list.
    Addresses,
    /// Either `true` or `false`.
    Flag,
    /// The redundancy of files: `auto`, a number of copies, or an erasure code.
    Redundancy,
    /// The time for which removed files are kept, or `none`.
    KeptTime,
    /// The share of its speed that an owner's program may lose, or `off`.
    Slowdown,
    /// Whether to pause, or until which time in UTC.
    Pause,
    /// How much is lent by hours.
    Hours,
    /// The bandwidth by hours.
    Bandwidth,
    /// How much is lent.
    Mode,
}

impl SettingKind {
    /// Returns the placeholder of a value in help texts.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Time { .. } => "TIME",
            Self::Size { .. } => "SIZE",
            Self::Share => "SHARE",
            Self::Count => "N",
            Self::Text => "NAME",
            Self::Path => "DIR",
            Self::Address => "HOST:PORT",
            Self::Addresses => "HOST:PORT,…",
            Self::Flag => "true|false",
            Self::Redundancy => "auto|N|M+K",
            Self::KeptTime => "none|TIME",
            Self::Slowdown => "off|PERCENT",
            Self::Pause => "no|yes|TIME",
            Self::Hours => "DAYS HOURS MODE;…",
            Self::Bandwidth => "RATE|TIME,RATE …",
            Self::Mode => "MODE",
        }
    }

    /// Returns the text as it is kept, if it is a value of this kind; otherwise an error that says what to write
    /// instead.
    pub fn check(self, text: &str) -> Result<String, String> {
        let text = text.trim();
        match self {
            Self::Time { least } => {
                if time(text)? < least {
                    return Err(format!("“{text}” is too short: write 30s, 10m or 3d"));
                }
            }
            Self::Size { least } => {
                let size = parse_size(text).map_err(|why| why.to_string())?;
                if size < least {
                    let least = format_size(least);
                    return Err(format!(
                        "{} is too little: at least {least}; give a unit, such as 200GiB",
                        format_size(size)
                    ));
                }
            }
            Self::Share => {
                text.parse::<KeepFree>().map_err(|why| why.to_string())?;
            }
            Self::Count => {
                text.parse::<u32>().map_err(|_| format!("“{text}” is not a whole number"))?;
            }
            Self::Text if text.is_empty() => return Err("it names nothing".into()),
            Self::Path if !Path::new(text).is_absolute() => {
                return Err(format!("“{text}” is not a path from the root, such as /srv/potluck"));
            }
            Self::Address => check_address(text)?,
            Self::Addresses => return check_addresses(text),
            Self::Redundancy => {
                text.parse::<DefaultRedundancy>().map_err(|why| why.to_string())?;
            }
            Self::KeptTime => {
                text.parse::<KeptTime>().map_err(|why| why.to_string())?;
            }
            Self::Slowdown => {
                text.parse::<Slowdown>().map_err(|why| why.to_string())?;
            }
            Self::Pause => {
                pause(text)?;
            }
            Self::Hours => {
                text.parse::<Hours>().map_err(|why| why.to_string())?;
            }
            Self::Bandwidth => {
                text.parse::<BandwidthHours>().map_err(|why| why.to_string())?;
            }
            Self::Mode => {
                text.parse::<LendMode>().map_err(|why| why.to_string())?;
            }
            Self::Flag if !["true", "false"].contains(&text) => {
                return Err(format!("“{text}” is neither true nor false"));
            }
            Self::Text | Self::Path | Self::Flag => {}
        }
        Ok(text.to_owned())
    }

    /// Joins words of the command line to one value, because people write `300 GiB` and `1h 30m`. No words give
    /// `None`.
    pub fn join_typed(self, words: &[String]) -> Result<Option<String>, String> {
        let text = words.join(" ");
        use SettingKind::{Bandwidth, Hours, Share, Size, Time};
        let may_be_several = matches!(self, Time { .. } | Size { .. } | Share | Hours | Bandwidth);
        match words {
            [] => Ok(None),
            [_] => self.check_typed(&text).map(Some),
            _ if may_be_several => self.check_typed(&text).map(Some),
            _ => Err(format!("“{text}” is several words: write it with quotes around")),
        }
    }

    /// Checks a value of the command line, where a path may be relative to the working directory.
    pub fn check_typed(self, text: &str) -> Result<String, String> {
        match self {
            Self::Path => {
                let path = std::path::absolute(text)
                    .map_err(|why| format!("“{text}” names no directory: {why}"))?;
                let path = path.to_str().ok_or("its name is not UTF-8")?;
                self.check(path)
            }
            _ => self.check(text),
        }
    }

    /// Returns a value of a file as text; `None` if its TOML type does not fit.
    pub fn text_of(self, value: &Value) -> Option<String> {
        match (self, value) {
            (Self::Flag, Value::Boolean(flag)) => Some(flag.value().to_string()),
            (Self::Flag, _) => None,
            (Self::Addresses, Value::Array(list)) => {
                let words: Option<Vec<_>> = list.iter().map(Value::as_str).collect();
                Some(words?.join(","))
            }
            (_, Value::String(text)) => Some(text.value().clone()),
            (Self::Count | Self::Size { .. } | Self::Redundancy, Value::Integer(number)) => {
                Some(number.value().to_string())
            }
            (Self::Share, Value::Float(number)) => Some(number.value().to_string()),
            (Self::Share, Value::Integer(number)) => Some(number.value().to_string()),
            _ => None,
        }
    }

    /// Returns a text of this kind as a value for a file.
    pub fn value_of(self, text: &str) -> Value {
        match self {
            Self::Count | Self::Redundancy => {
                text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
            }
            Self::Flag => (text == "true").into(),
            Self::Addresses => text.split(',').collect::<Array>().into(),
            _ => text.into(),
        }
    }
}

/// Parses a time such as `10m`.
pub fn time(text: &str) -> Result<Duration, String> {
    // The error of `humantime` lists all the units that it knows, down to nanoseconds.
    humantime::parse_duration(text)
        .map_err(|_| format!("“{text}” is not a time: write 30s, 10m, 12h or 3d"))
}

/// Parses a pause: `no`, `yes`, or the time in UTC at which it ends.
pub fn pause(text: &str) -> Result<Pause, String> {
    match text {
        "no" => return Ok(Pause::No),
        "yes" => return Ok(Pause::UntilResume),
        _ => {}
    }
    let end = humantime::parse_rfc3339_weak(text).ok();
    let end = end.and_then(|end| end.duration_since(UNIX_EPOCH).ok());
    end.map(|end| Pause::Until(end.as_millis() as UnixMillis)).ok_or_else(|| {
        format!("“{text}” is neither no, yes nor a time in UTC such as 2026-12-24T18:00:00Z")
    })
}

/// Writes a pause as [`pause`] reads it.
pub fn pause_text(pause: Pause) -> String {
    match pause {
        Pause::No => "no".into(),
        Pause::UntilResume => "yes".into(),
        Pause::Until(end) => {
            let end = UNIX_EPOCH + Duration::from_millis(end.max(0) as u64);
            humantime::format_rfc3339_seconds(end).to_string()
        }
    }
}

fn check_address(text: &str) -> Result<(), String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(_)) => Ok(()),
        _ => Err(format!("“{text}” is not an address: write HOST:PORT, such as 0.0.0.0:7700")),
    }
}

fn check_addresses(text: &str) -> Result<String, String> {
    let addresses: Vec<_> =
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if addresses.is_empty() || addresses.iter().any(|word| word.contains(char::is_whitespace)) {
        return Err(format!(
            "“{text}” holds no address: write HOST or HOST:PORT, with commas between"
        ));
    }
    for word in &addresses {
        Address::parse(word, MANAGER_PORT).map_err(|why| why.to_string())?;
    }
    Ok(addresses.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_setting_value_is_refused_with_an_example() {
        let time = SettingKind::Time { least: Duration::from_millis(1) };
        for (kind, text, said) in [
            (time, "10", "10m"),
            (time, "0s", "too short"),
            (SettingKind::Size { least: 1 << 20 }, "10", "such as 200GiB"),
            (SettingKind::Size { least: 1 << 20 }, "0", "too little"),
            (SettingKind::Share, "0.1", "10%"),
            (SettingKind::Count, "-1", "whole number"),
            (SettingKind::Text, "  ", "names nothing"),
            (SettingKind::Path, "backups", "from the root"),
            (SettingKind::Address, "lab-head", "HOST:PORT"),
            (SettingKind::Addresses, ",", "HOST"),
            (SettingKind::Flag, "yes", "true"),
            (SettingKind::Redundancy, "two", "auto, a number of copies"),
            (SettingKind::Redundancy, "99", "use 1 to"),
            (SettingKind::KeptTime, "off", "none"),
            (SettingKind::Slowdown, "5", "such as 5%"),
            (SettingKind::Pause, "18:00", "2026-12-24T18:00:00Z"),
            (SettingKind::Hours, "Mon-Fri 9-18 off", "09:00-18:00"),
            (SettingKind::Bandwidth, "08:00", "at least 64KiB"),
            (SettingKind::Mode, "on", "full, polite, reads or off"),
        ] {
            let why = kind.check(text).expect_err(text);
            assert!(why.contains(said), "{text}: {why}");
        }
    }

    #[test]
    fn a_value_comes_back_from_a_file_as_it_was_set() {
        for (kind, text) in [
            (SettingKind::Count, "3"),
            (SettingKind::Redundancy, "2"),
            (SettingKind::Redundancy, "4+2"),
            (SettingKind::KeptTime, "7d"),
            (SettingKind::Flag, "true"),
            (SettingKind::Addresses, "a:1,b"),
            (SettingKind::Text, "room-12"),
            (SettingKind::Pause, "2026-12-24T18:00:00Z"),
            (SettingKind::Hours, "Mon-Fri 09:00-18:00 polite; Sat off"),
            (SettingKind::Bandwidth, "08:00,20M:5M 19:00,off"),
            (SettingKind::Size { least: 0 }, "1.5TB"),
        ] {
            let kept = kind.check(text).expect("a value");
            assert_eq!(kind.text_of(&kind.value_of(&kept)).as_deref(), Some(text));
        }
    }
}
