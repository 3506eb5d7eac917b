//! Policies: what a space promises about the files in it.

mod pool_defaults;
mod redundancy;
mod retention;
mod series;
mod width;

pub use pool_defaults::{DefaultRedundancy, Follows, PoolDefaults};
pub use redundancy::Redundancy;
pub use retention::{KeptTime, KeptVersions, LONGEST_KEPT, MOST_VERSIONS, Retention};
pub use series::{PurgeReason, SeriesRule, StepAge};
pub use width::Width;

use crate::chunk::{DEFAULT_CHUNK, MAX_CHUNK, MIN_CHUNK};
use crate::erasure::Ec;
use crate::placement::near::Near;
use crate::size::format_size;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The promise that a donor makes for a copy when it acknowledges it; the later ones include those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckLevel {
    /// The donor holds the chunk in its page cache: the chunk survives the death of the process, not a power cut.
    #[default]
    Memory,
    /// The donor has fsynced the chunk and its directory: the chunk survives a power cut.
    Disk,
}

impl FromStr for AckLevel {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        match text {
            "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            _ => Err(BadPolicy(format!("unknown ack level “{text}”: use memory or disk"))),
        }
    }
}

impl std::fmt::Display for AckLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        })
    }
}

/// The mirroring protocol, which says who makes the further copies of a chunk and whether a write waits for them
/// (docs/papers.md, CEFT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mirror {
    /// The client sends every copy and waits for all.
    #[default]
    ClientSync,
    /// The client sends every copy and waits for the first; the others arrive later.
    ClientAsync,
    /// The client sends one copy; its donor forwards it while it writes, and answers when the other donors have stored
    /// their copies or failed to.
    ServerSync,
    /// The client sends one copy; its donor answers as soon as it has that copy, and forwards it afterwards.
    ServerAsync,
}

impl Mirror {
    /// Returns whether a write returns before all copies are made, which leaves a window in which the loss of one donor
    /// loses data.
    pub fn is_async(self) -> bool {
        matches!(self, Self::ClientAsync | Self::ServerAsync)
    }

    /// Returns whether donors forward copies.
    pub fn is_server(self) -> bool {
        matches!(self, Self::ServerSync | Self::ServerAsync)
    }
}

impl FromStr for Mirror {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        match text {
            "client-sync" => Ok(Self::ClientSync),
            "client-async" => Ok(Self::ClientAsync),
            "server-sync" => Ok(Self::ServerSync),
            "server-async" => Ok(Self::ServerAsync),
            _ => Err(BadPolicy(format!(
                "unknown mirroring protocol “{text}”: use client-sync, client-async, server-sync or server-async"
            ))),
        }
    }
}

impl std::fmt::Display for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ClientSync => "client-sync",
            Self::ClientAsync => "client-async",
            Self::ServerSync => "server-sync",
            Self::ServerAsync => "server-async",
        })
    }
}

/// The number of chunks of an erasure-coded group that a read asks for beyond those it needs, to go on with the first m
/// that arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Race {
    /// The read asks for more chunks only when a data chunk is late: nothing is asked twice while all are fast.
    #[default]
    Auto,
    /// The read never asks for more chunks, unless one cannot be had.
    Off,
    /// The read asks for this many more chunks from the start.
    Extra(u8),
}

impl FromStr for Race {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        match (text, text.parse::<u8>()) {
            ("auto", _) => Ok(Self::Auto),
            ("off", _) | (_, Ok(0)) => Ok(Self::Off),
            (_, Ok(extra)) if extra <= crate::erasure::MAX_PARITY => Ok(Self::Extra(extra)),
            _ => Err(BadPolicy(format!(
                "unknown race “{text}”: use auto, off, or how many more chunks to ask for, up to {}",
                crate::erasure::MAX_PARITY
            ))),
        }
    }
}

impl std::fmt::Display for Race {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Extra(extra) => write!(f, "{extra}"),
        }
    }
}

impl TryFrom<String> for Race {
    type Error = BadPolicy;
    fn try_from(text: String) -> Result<Self, BadPolicy> {
        text.parse()
    }
}

impl From<Race> for String {
    fn from(race: Race) -> Self {
        race.to_string()
    }
}

/// The rule by which files are cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cutting {
    /// A chunk ends after every [`Policy::chunk_size`] bytes. A version that was changed in place shares all unchanged
    /// chunks with the one before.
    #[default]
    Fixed,
    /// A chunk ends where the content says, after a quarter of [`Policy::chunk_size`] at the earliest and all of it
    /// at the latest. A version into which bytes were inserted shares the chunks behind them, too.
    Content,
}

/// The size in bytes of the largest chunk of files that are cut by content.
pub const MAX_CUT_BY_CONTENT: u32 = 4 << 20;

impl FromStr for Cutting {
    type Err = BadPolicy;
    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        match text {
            "fixed" => Ok(Self::Fixed),
            "content" => Ok(Self::Content),
            _ => Err(BadPolicy(format!("unknown cut “{text}”: use fixed or content"))),
        }
    }
}

impl std::fmt::Display for Cutting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fixed => "fixed",
            Self::Content => "content",
        })
    }
}

/// The most bytes of one erasure-coded group: a writer holds a whole group in memory.
pub const MAX_GROUP: u64 = 256 << 20;

/// The most copies a policy may ask for.
pub const MAX_COPIES: u32 = 16;
/// The widest stripe a policy may ask for.
pub const MAX_WIDTH: u32 = 256;

/// The most chunks in a row that a policy may have go to one donor.
pub const MAX_STRIPE_SIZE: u32 = 256;

fn is_one(number: &u32) -> bool {
    *number == 1
}

/// A policy: how the files of a space are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// The number of bytes per chunk, a power of two; where files are cut by content, the most bytes of a chunk.
    pub chunk_size: u32,
    /// The rule by which files are cut into chunks. Files of an erasure code are cut as [`Cutting::Fixed`] says
    /// whatever this is, because the chunks of a group are of one length.
    pub cut: Cutting,
    /// The number of donors that a file is written to at once.
    pub stripe_width: Width,
    /// The number of chunks, or of groups of an erasure code, in a row that go to the same donors of a stripe.
    #[serde(skip_serializing_if = "is_one")]
    pub stripe_size: u32,
    /// The part of a file that lies on the donors of the machine that writes it.
    #[serde(skip_serializing_if = "Near::is_default")]
    pub near: Near,
    /// The number of copies of every chunk, each on its own donor; 1 where `ec` is set.
    pub copies: u32,
    /// The erasure code, instead of copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// The mirroring protocol: who makes copies, and whether writes wait for them.
    pub mirror: Mirror,
    /// The way in which reads of erasure-coded files race.
    pub race: Race,
    /// The promise of each acknowledged copy.
    pub ack: AckLevel,
    /// True if a write is refused unless all its redundancy is there; otherwise it goes on, below policy, while at
    /// least [`Redundancy::least_donors`] take it.
    pub strict: bool,
    /// The versions of a file that are kept when others take their place.
    #[serde(skip_serializing_if = "KeptVersions::is_none")]
    pub keep_versions: KeptVersions,
    /// The time for which removed entries can be brought back; `None` for the time that follows from `keep_versions`
    /// ([`Retention::of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trash: Option<KeptTime>,
    /// True if files that have an origin are cached: they have one copy, may be evicted, and are fetched again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cache: bool,
    /// True if clients seal chunks before they send them. This is fixed when the space is made.
    pub sealed: bool,
    /// The parts of these that follow the pool's defaults.
    #[serde(skip_serializing_if = "Follows::is_nothing")]
    pub follows: Follows,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            chunk_size: DEFAULT_CHUNK,
            cut: Cutting::default(),
            stripe_width: Width::Auto,
            stripe_size: 1,
            near: Near::default(),
            copies: 1,
            ec: None,
            mirror: Mirror::default(),
            race: Race::default(),
            ack: AckLevel::Memory,
            strict: false,
            keep_versions: KeptVersions::NONE,
            trash: None,
            cache: false,
            sealed: true,
            follows: Follows::default(),
        }
    }
}

/// The error, in words, of a policy that cannot be kept, or of a text that is no part of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPolicy(pub String);

/// The parts of a policy that one directory, file or command sets differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Override {
    /// The chunk size instead of [`Policy::chunk_size`], in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_size: Option<u32>,
    /// The rule by which files are cut, instead of [`Policy::cut`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cutting>,
    /// The stripe width instead of [`Policy::stripe_width`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripe_width: Option<Width>,
    /// The stripe size instead of [`Policy::stripe_size`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripe_size: Option<u32>,
    /// The part on the writing machine instead of [`Policy::near`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near: Option<Near>,
    /// The number of copies instead of [`Policy::copies`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// The erasure code instead of copies ([`Policy::ec`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// The mirroring protocol instead of [`Policy::mirror`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// The way of reading groups instead of [`Policy::race`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub race: Option<Race>,
    /// The ack level instead of [`Policy::ack`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack: Option<AckLevel>,
    /// True if all redundancy must be there at the commit, instead of [`Policy::strict`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// The versions that are kept instead of [`Policy::keep_versions`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_versions: Option<KeptVersions>,
    /// The time for which removed entries are kept, instead of [`Policy::trash`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trash: Option<KeptTime>,
    /// True if files that have an origin are cached, instead of [`Policy::cache`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<bool>,
    /// The rule by which steps of the directory itself are purged, if it is a series. No directory inherits that.
    #[serde(skip_serializing_if = "SeriesRule::is_unset")]
    pub series: SeriesRule,
}

impl From<Redundancy> for Override {
    fn from(redundancy: Redundancy) -> Self {
        match redundancy {
            Redundancy::Copies(copies) => Self { copies: Some(copies), ..Self::default() },
            Redundancy::Ec(ec) => Self { ec: Some(ec), ..Self::default() },
        }
    }
}

impl Override {
    /// Returns the redundancy that these parts ask for, if they say anything about it.
    pub fn redundancy(&self) -> Option<Redundancy> {
        self.ec.map(Redundancy::Ec).or(self.copies.map(Redundancy::Copies))
    }

    /// Returns these parts together with those of `inner`, which take precedence, as a file's do over its
    /// directory's.
    pub fn then(&self, inner: &Self) -> Self {
        let redundancy = if inner.copies.is_some() || inner.ec.is_some() { inner } else { self };
        Self {
            chunk_size: inner.chunk_size.or(self.chunk_size),
            cut: inner.cut.or(self.cut),
            stripe_width: inner.stripe_width.or(self.stripe_width),
            stripe_size: inner.stripe_size.or(self.stripe_size),
            near: inner.near.or(self.near),
            copies: redundancy.copies,
            ec: redundancy.ec,
            mirror: inner.mirror.or(self.mirror),
            race: inner.race.or(self.race),
            ack: inner.ack.or(self.ack),
            strict: inner.strict.or(self.strict),
            keep_versions: inner.keep_versions.or(self.keep_versions),
            trash: inner.trash.or(self.trash),
            cache: inner.cache.or(self.cache),
            series: self.series.then(&inner.series),
        }
    }
}

/// The parts of the policy that a command set, whatever directories say, and whether it may ask for less safety than
/// they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskedPolicy {
    /// The parts of the policy that the command set.
    pub over: Override,
    /// True if the member who gave the command manages the space.
    pub may_lower: bool,
}

impl AskedPolicy {
    /// Returns whether files may be kept as the command asks where `policy` holds.
    pub fn is_allowed_by(&self, policy: &Policy) -> bool {
        self.may_lower || !policy.is_lowered_by(&self.over)
    }
}

impl Policy {
    /// Returns whether files are less safe with the overridden parts in some respect: fewer deaths lose nothing, or a
    /// write returns while less is certain.
    pub fn is_lowered_by(&self, over: &Override) -> bool {
        let tolerates = self.redundancy().tolerates();
        over.redundancy().is_some_and(|asked| asked.tolerates() < tolerates)
            || over.ack.is_some_and(|ack| ack < self.ack)
            || over.mirror.is_some_and(|mirror| mirror.is_async() && !self.mirror.is_async())
            || (self.strict && over.strict == Some(false))
            || (!self.cache && over.cache == Some(true))
    }

    /// Returns this policy with the overridden parts replaced, if the result can be kept.
    pub fn with(&self, over: &Override) -> Result<Self, BadPolicy> {
        let (copies, ec) = match (over.copies, over.ec) {
            (Some(_), Some(_)) => {
                return Err(BadPolicy(
                    "copies and an erasure code exclude each other: ask for one of them".into(),
                ));
            }
            (Some(copies), None) => (copies, None),
            (None, Some(ec)) => (1, Some(ec)),
            (None, None) => (self.copies, self.ec),
        };
        let follows = self.follows.but(over);
        let trash = if follows.trash == self.follows.trash { self.trash } else { None };
        let policy = Self {
            chunk_size: over.chunk_size.unwrap_or(self.chunk_size),
            cut: over.cut.unwrap_or(self.cut),
            stripe_width: over.stripe_width.unwrap_or(self.stripe_width),
            stripe_size: over.stripe_size.unwrap_or(self.stripe_size),
            near: over.near.unwrap_or(self.near),
            copies,
            ec,
            mirror: over.mirror.unwrap_or(self.mirror),
            race: over.race.unwrap_or(self.race),
            ack: over.ack.unwrap_or(self.ack),
            strict: over.strict.unwrap_or(self.strict),
            keep_versions: over.keep_versions.unwrap_or(self.keep_versions),
            trash: over.trash.or(trash),
            cache: over.cache.unwrap_or(self.cache),
            sealed: self.sealed,
            follows,
        };
        policy.check()?;
        Ok(policy)
    }

    /// Returns whether the content of a file says where its chunks end.
    pub fn is_cut_by_content(&self) -> bool {
        self.cut == Cutting::Content && self.ec.is_none()
    }

    /// Returns the redundancy that keeps a file.
    pub fn redundancy(&self) -> Redundancy {
        match self.ec {
            Some(ec) => Redundancy::Ec(ec),
            None => Redundancy::Copies(self.copies),
        }
    }

    /// Has files kept by `redundancy`.
    fn set_redundancy(&mut self, redundancy: Redundancy) {
        (self.copies, self.ec) = match redundancy {
            Redundancy::Copies(copies) => (copies, None),
            Redundancy::Ec(ec) => (1, Some(ec)),
        };
    }

    /// Returns how long versions that are replaced, and files that are removed, are kept.
    pub fn retention(&self) -> Retention {
        Retention::of(self.keep_versions, self.trash)
    }

    /// Checks that the policy can be kept at all.
    pub fn check(&self) -> Result<(), BadPolicy> {
        let refuse = |text: String| Err(BadPolicy(text));
        if !self.chunk_size.is_power_of_two() || !(MIN_CHUNK..=MAX_CHUNK).contains(&self.chunk_size)
        {
            return refuse(format!(
                "chunk size {} is not a power of two from 64KiB to 64MiB",
                self.chunk_size
            ));
        }
        if self.is_cut_by_content() && self.chunk_size > MAX_CUT_BY_CONTENT {
            return refuse(format!(
                "chunks of {} are too large to be cut by content: use chunks of {} or less",
                format_size(u64::from(self.chunk_size)),
                format_size(u64::from(MAX_CUT_BY_CONTENT)),
            ));
        }
        if !(1..=MAX_COPIES).contains(&self.copies) {
            return refuse(format!("{} copies: use 1 to {MAX_COPIES}", self.copies));
        }
        if self.ec.is_some() && self.copies != 1 {
            return refuse("copies and an erasure code exclude each other".into());
        }
        if self.cache && (self.ec.is_some() || self.copies != 1) {
            return refuse(
                "what is cached has one copy, since its origin has another: keep it (--cache=false) to have more"
                    .into(),
            );
        }
        if let Some(ec) = self.ec
            && u64::from(self.chunk_size) * ec.width() as u64 > MAX_GROUP
        {
            return refuse(format!(
                "groups of {ec} in chunks of {} do not fit in memory: use chunks of {} or less",
                format_size(u64::from(self.chunk_size)),
                format_size(1 << (MAX_GROUP / ec.width() as u64).ilog2()),
            ));
        }
        if let Width::Donors(donors) = self.stripe_width
            && !(1..=MAX_WIDTH).contains(&donors)
        {
            return refuse(format!("stripe width {donors}: use auto, or 1 to {MAX_WIDTH}"));
        }
        if !(1..=MAX_STRIPE_SIZE).contains(&self.stripe_size) {
            return refuse(format!(
                "{} chunks in a row: use 1 to {MAX_STRIPE_SIZE}",
                self.stripe_size
            ));
        }
        Ok(())
    }
}
