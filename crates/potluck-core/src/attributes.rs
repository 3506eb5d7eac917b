//! Attributes of an entry beside its content: its times, whom it belongs to, and who may do what with it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment as file systems keep it: nanoseconds since 1970, from the year 1677 to 2262. A coarser one would make a
/// copy look older than what it was copied from, and `cp -u`, `make` and `tar -d` would take it for another.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct FileTime(pub i64);

impl FileTime {
    /// Returns the moment `ms` milliseconds after 1970, or the nearest one that fits.
    pub const fn of_ms(ms: i64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Returns the milliseconds since 1970, rounded down.
    pub const fn ms(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Returns the moment that is nearest to a time of the system.
    pub fn of_system(time: SystemTime) -> Self {
        let nanos = |span: Duration| i64::try_from(span.as_nanos());
        Self(match time.duration_since(UNIX_EPOCH) {
            Ok(since) => nanos(since).unwrap_or(i64::MAX),
            Err(before) => nanos(before.duration()).map_or(i64::MIN, |nanos| -nanos),
        })
    }

    /// Returns the moment as a time of the system.
    pub fn system(self) -> SystemTime {
        let span = Duration::from_nanos(self.0.unsigned_abs());
        if self.0 < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span }
    }
}

/// The bits of a mode: the nine permissions of the owner, the group and all others, and the set-user-ID, set-group-ID
/// and sticky bits. These three have an effect in a directory alone: a mount starts no program as somebody else, and
/// no copy to a local disk has such a bit on a file. The text is octal, as `chmod` takes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permissions(u16);

impl Permissions {
    /// The permissions of a file whose writer named none.
    pub const FILE: Self = Self(0o644);
    /// The permissions of a directory whose maker named none.
    pub const DIR: Self = Self(0o755);
    /// The permissions that a symbolic link shows; they decide nothing.
    pub const LINK: Self = Self(0o777);
    const ALL: u32 = 0o7777;
    const NINE: u16 = 0o777;
    /// The set-group-ID bit: entries that are made in a directory with it get the group of the directory.
    const SET_GROUP: u16 = 0o2000;
    const SET_USER: u16 = 0o4000;
    const GROUP_EXECUTES: u16 = 0o010;

    /// Returns the permissions in the mode of a file, without the bits that say its kind.
    pub const fn of_mode(mode: u32) -> Self {
        Self((mode & Self::ALL) as u16)
    }

    /// Returns the nine bits without the set-user-ID, set-group-ID and sticky bits.
    pub const fn nine_bits(self) -> Self {
        Self(self.0 & Self::NINE)
    }

    /// Returns whether entries that are made in a directory with these permissions get the group of the directory.
    pub const fn hands_group_on(self) -> bool {
        self.0 & Self::SET_GROUP != 0
    }

    /// Returns these permissions with the bit that [`Self::hands_group_on`] looks at.
    pub const fn handing_group_on(self) -> Self {
        Self(self.0 | Self::SET_GROUP)
    }

    /// Returns these permissions without the set-user-ID bit, and without the set-group-ID bit where the group may
    /// execute: the permissions of a file after a write by a member who is not trusted with these bits. Where the group
    /// may not execute, the set-group-ID bit once stood for mandatory locks, and stays, as on a local disk.
    pub const fn without_set_ids(self) -> Self {
        let set_group = if self.0 & Self::GROUP_EXECUTES == 0 { 0 } else { Self::SET_GROUP };
        Self(self.0 & !(Self::SET_USER | set_group))
    }

    /// Returns the permissions as bits of a mode.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }
}

impl Default for Permissions {
    fn default() -> Self {
        Self::FILE
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03o}", self.0)
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Permissions {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let is_octal = (1..=4).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
        let bits = u16::from_str_radix(text, 8).ok();
        bits.filter(|bits| is_octal && u32::from(*bits) <= Self::ALL).map(Self).ok_or_else(|| {
            format!("“{text}” are no permissions: use octal digits up to 7777, such as 644")
        })
    }
}

impl Serialize for Permissions {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The user and the group that own something, as numbers, because their names differ between machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileOwner {
    /// The number of the user.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
}

impl FileOwner {
    /// Returns the owner that two columns of a table give; `None` where they are NULL, because nobody named an owner.
    pub fn of_columns(uid: Option<u32>, gid: Option<u32>) -> Option<Self> {
        Some(Self { uid: uid?, gid: gid? })
    }
}

impl fmt::Display for FileOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// The attributes that a file, a directory or a symbolic link has besides its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EntryAttributes {
    /// The time at which the entry was modified, as its source or a program said.
    #[serde(rename = "mtime_ns")]
    pub mtime: FileTime,
    /// The permissions of the entry.
    pub permissions: Permissions,
    /// The owner of the entry; `None` where nobody named one, so that each reader sees the entry as its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// The time at which the content, the name or an attribute was changed last. No program sets it, so that tools which
    /// make backups can go by it.
    #[serde(default, rename = "ctime_ns")]
    pub changed: FileTime,
    /// The access time that a program set last; `None` where none did, because reads are not noted.
    #[serde(default, rename = "atime_ns", skip_serializing_if = "Option::is_none")]
    pub accessed: Option<FileTime>,
}

impl EntryAttributes {
    /// Returns the attributes of a directory that is made at this wall time, in milliseconds since 1970, without any
    /// attributes given.
    pub const fn of_dir(wall_ms: i64) -> Self {
        Self::new(FileTime::of_ms(wall_ms), Permissions::DIR, None)
    }

    /// Returns the attributes of an entry that is made at the time at which it counts as modified.
    pub const fn new(mtime: FileTime, permissions: Permissions, owner: Option<FileOwner>) -> Self {
        Self { mtime, permissions, owner, changed: mtime, accessed: None }
    }

    /// Returns these attributes, with those that `new` gives in place of the old ones.
    pub fn with(self, new: AttributesToSet) -> Self {
        Self {
            mtime: new.mtime.unwrap_or(self.mtime),
            permissions: new.permissions.unwrap_or(self.permissions),
            owner: new.owner.or(self.owner),
            changed: new.changed.unwrap_or(self.changed),
            accessed: new.accessed.or(self.accessed),
        }
    }
}

/// Attributes that are to be set; what is left out stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttributesToSet {
    /// The modification time, nanoseconds since 1970.
    #[serde(default, rename = "mtime_ns", skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
    /// The permissions to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// The owner to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// The access time to set.
    #[serde(default, rename = "atime_ns", skip_serializing_if = "Option::is_none")]
    pub accessed: Option<FileTime>,
    /// The time of this change by the clock of who makes it, who may have shown it; the manager's time where it is left
    /// out.
    #[serde(default, rename = "ctime_ns", skip_serializing_if = "Option::is_none")]
    pub changed: Option<FileTime>,
}

impl AttributesToSet {
    /// Returns whether nothing is to be set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether anything gets another value than `before` has. The time of a change is none itself.
    pub fn changes(self, before: EntryAttributes) -> bool {
        before.with(Self { changed: None, ..self }) != before
    }
}

impl From<EntryAttributes> for AttributesToSet {
    fn from(all: EntryAttributes) -> Self {
        let EntryAttributes { mtime, permissions, owner, accessed, .. } = all;
        let (mtime, permissions) = (Some(mtime), Some(permissions));
        Self { mtime, permissions, owner, accessed, changed: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_comes_back_to_the_nanosecond_also_from_before_1970() {
        for nanos in [0, 1, -1, 1_700_000_000_123_456_789, -1_500_000_001, i64::MAX, i64::MIN + 1] {
            assert_eq!(FileTime::of_system(FileTime(nanos).system()), FileTime(nanos), "{nanos}");
        }
        assert_eq!(FileTime(1_999_999).ms(), 1);
        assert_eq!(FileTime(-1).ms(), -1, "rounded down");
        assert_eq!(FileTime::of_ms(i64::MAX), FileTime(i64::MAX), "the nearest there is");
        let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(FileTime::of_system(far), FileTime(i64::MAX));
    }

    #[test]
    fn permissions_parse_like_chmod() {
        for (text, bits) in [("644", 0o644), ("0755", 0o755), ("0", 0), ("4755", 0o4755)] {
            assert_eq!(text.parse::<Permissions>().map(Permissions::bits), Ok(bits), "{text}");
        }
        for text in ["", "888", "17777", "9755", "+644", "00644", "rw-r--r--", "-1"] {
            assert!(text.parse::<Permissions>().is_err(), "{text}");
        }
        assert_eq!(Permissions::of_mode(0o104_755).to_string(), "4755");
        assert_eq!(Permissions::of_mode(0o104_755).nine_bits().to_string(), "755");
        assert_eq!(Permissions::of_mode(0o7).to_string(), "007");
    }

    #[test]
    fn untrusted_write_clears_set_id_bits() {
        for (before, after) in
            [(0o4755, 0o755), (0o2755, 0o755), (0o6710, 0o710), (0o6744, 0o2744), (0o1644, 0o1644)]
        {
            let cleared = Permissions::of_mode(before).without_set_ids();
            assert_eq!(cleared, Permissions::of_mode(after), "{before:o}");
        }
    }
}
