//! Quotas of spaces and of members, and the refusal of what exceeds one. The quota of a member is on all spaces that it
//! made, whoever writes there, so that a check reads the running sums of a few spaces and no file.

use crate::error::Error;
use crate::members;
use crate::pool_records::spaces::{self, Space, Sums};
use crate::sql::{Tx, params};
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::quota::{Quota, QuotaOf};
use potluck_wire::control::QuotaUse;
use potluck_wire::token::Role;
use std::collections::{BTreeMap, BTreeSet};

/// The entries (files, links, directories and snapshots) in all spaces that a user made, unless a quota says otherwise:
/// each takes up to some 5 KiB of the manager's disk, whatever donors lend, and a full one takes no commits of anybody.
const USERS_ENTRIES: u64 = 5_000_000;

fn of_space(space: SpaceId) -> String {
    format!("space:{space}")
}

fn of_member(member: MemberId) -> String {
    format!("member:{member}")
}

fn quota(bytes: Option<i64>, files: Option<i64>) -> Quota {
    let limit = |number: Option<i64>| number.map(|number| number.max(0) as u64);
    Quota { bytes: limit(bytes), files: limit(files) }
}

/// Returns the quota in the row with the key `of`; no limits where there is no row.
fn read(db: &Tx, of: &str) -> Result<Quota, Error> {
    let mut select = db.prepare("SELECT bytes, files FROM quotas WHERE quota_of = ?1")?;
    let found = select.query_one(params![of], |row| Ok(quota(row.get(0)?, row.get(1)?)))?;
    Ok(found.unwrap_or_default())
}

/// Returns the quota of a space or a member; no limits where there is none.
pub(crate) fn get(db: &Tx, of: &QuotaOf) -> Result<Quota, Error> {
    match of {
        QuotaOf::Space(name) => read(db, &of_space(spaces::named(db, name)?.id)),
        QuotaOf::Member(member) => read(db, &of_member(*member)),
    }
}

/// Sets a quota, without a check of the member; a quota without limits is removed.
pub(crate) fn put(db: &Tx, of: &QuotaOf, quota: Quota) -> Result<(), Error> {
    let of = match of {
        QuotaOf::Space(name) => of_space(spaces::named(db, name)?.id),
        QuotaOf::Member(member) => of_member(*member),
    };
    if quota == Quota::NONE {
        return forget(db, &of);
    }
    let limit = |limit: Option<u64>| limit.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
    db.prepare(
        "INSERT INTO quotas (quota_of, bytes, files) VALUES (?1, ?2, ?3)
         ON CONFLICT (quota_of) DO UPDATE SET bytes = excluded.bytes, files = excluded.files",
    )?
    .execute(params![of, limit(quota.bytes), limit(quota.files)])?;
    Ok(())
}

fn forget(db: &Tx, of: &str) -> Result<(), Error> {
    db.prepare("DELETE FROM quotas WHERE quota_of = ?1")?.execute(params![of])?;
    Ok(())
}

/// Returns the sums of all spaces that a member made: the files, directories and bytes in them, whoever wrote them.
fn made_by(db: &Tx, member: MemberId) -> Result<Sums, Error> {
    let mut select = db.prepare(
        "SELECT coalesce(sum(files), 0), coalesce(sum(dirs), 0), coalesce(sum(bytes), 0)
         FROM spaces WHERE made_by = ?1",
    )?;
    let sums = select.query_one(params![member.0], |row| {
        let (files, dirs, bytes) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Sums { files, dirs, bytes, ..Sums::default() })
    })?;
    Ok(sums.unwrap_or_default())
}

/// A quota and what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredQuota {
    /// The space or the member that the quota is of.
    pub of: QuotaOf,
    /// The limits of the quota.
    pub quota: Quota,
    /// True if nobody set the limit of files, which is that of every user.
    pub files_by_default: bool,
    /// The sums of the files that count against the quota.
    pub used: Sums,
}

impl StoredQuota {
    /// Returns the quota as people are told of it: directories count as files do.
    pub fn shown(self) -> QuotaUse {
        let Self { of, quota, files_by_default, used } = self;
        let files = (used.files + used.dirs).max(0) as u64;
        let bytes = used.bytes.max(0) as u64;
        QuotaUse { of, name: None, quota, files_by_default, files, bytes }
    }
}

/// Returns all quotas that were set, those of spaces first.
pub(crate) fn all(db: &Tx) -> Result<Vec<StoredQuota>, Error> {
    let mut select = db.prepare("SELECT quota_of, bytes, files FROM quotas")?;
    let rows = select
        .query_map(params![], |row| Ok((row.get::<String>(0)?, quota(row.get(1)?, row.get(2)?))))?;
    let mut found = Vec::new();
    for (text, quota) in rows.collect::<Result<Vec<_>, _>>()? {
        let damaged = || Error::Damaged(format!("a quota of “{text}”"));
        let (kind, number) = text.split_once(':').ok_or_else(damaged)?;
        let number: u32 = number.parse().map_err(|_| damaged())?;
        let (of, used) = match kind {
            "space" => {
                let space = spaces::numbered(db, SpaceId(number))?.ok_or_else(damaged)?;
                (QuotaOf::Space(space.name), space.sums)
            }
            _ => {
                let member = MemberId(number);
                (QuotaOf::Member(member), made_by(db, member)?)
            }
        };
        found.push(StoredQuota { of, quota, files_by_default: false, used });
    }
    found.sort_by(|a, b| a.of.cmp(&b.of));
    Ok(found)
}

/// Returns all quotas that bind anybody, those of spaces first: those that were set, and those of the users for whom
/// none was.
pub(crate) fn in_force(db: &Tx) -> Result<Vec<StoredQuota>, Error> {
    let set = all(db)?.into_iter().map(|quota| (quota.of.clone(), quota));
    let mut found: BTreeMap<QuotaOf, StoredQuota> = set.collect();
    for member in members::all(db)? {
        let of = QuotaOf::Member(member.id);
        let quota = found.get(&of).map_or(Quota::NONE, |set| set.quota);
        if let Some(files) = users_entries(quota, member.role) {
            let quota = Quota { files: Some(files), ..quota };
            let used = made_by(db, member.id)?;
            if !member.revoked || used != Sums::default() {
                let bound = StoredQuota { of: of.clone(), quota, files_by_default: true, used };
                found.insert(of, bound);
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Returns the limit of the entries in all spaces that a member made, if its quota says nothing of them.
fn users_entries(quota: Quota, role: Role) -> Option<u64> {
    (quota.files.is_none() && role == Role::User).then_some(USERS_ENTRIES)
}

/// Refuses a change that would exceed the quota of a space, or of the member who made it. A change that makes nothing
/// larger is never refused, however much is there already.
pub(crate) fn admit(db: &Tx, space: SpaceId, change: Sums) -> Result<(), Error> {
    if change.files + change.dirs <= 0 && change.bytes <= 0 {
        return Ok(());
    }
    QuotaLimits::of(db, space)?.admit(|_| Sums::default(), change)
}

/// A quota that files of a space come under.
#[derive(Debug, Clone)]
struct QuotaLimit {
    /// The space or the member that the quota is of, in words.
    of: String,
    quota: Quota,
    /// The files, directories and bytes that count against the quota.
    held: Sums,
    /// The spaces whose files count.
    spaces: BTreeSet<SpaceId>,
}

/// The quotas that files of a space come under.
#[derive(Debug, Clone)]
pub struct QuotaLimits(Vec<QuotaLimit>);

impl QuotaLimits {
    /// Reads the quotas of a space and of the member who made it.
    pub(crate) fn of(db: &Tx, space: SpaceId) -> Result<Self, Error> {
        match spaces::numbered(db, space)? {
            Some(space) => Self::in_space(db, &space),
            None => Ok(Self(Vec::new())),
        }
    }

    /// Reads the quotas as [`Self::of`] does, of a space that was read in this transaction before anything in it was
    /// changed.
    pub(crate) fn in_space(db: &Tx, space: &Space) -> Result<Self, Error> {
        let mut limits = Vec::new();
        let quota = read(db, &of_space(space.id))?;
        if quota != Quota::NONE {
            let (of, spaces) = (format!("the space {}", space.name), BTreeSet::from([space.id]));
            limits.push(QuotaLimit { of, quota, held: space.sums, spaces });
        }
        let Some(maker) = space.made_by else { return Ok(Self(limits)) };
        let mut quota = read(db, &of_member(maker))?;
        let member = members::get(db, maker)?;
        let by_default = member.as_ref().and_then(|it| users_entries(quota, it.role));
        quota.files = quota.files.or(by_default);
        if quota != Quota::NONE {
            let name = member.map(|member| member.name).unwrap_or_default();
            let of = format!("all spaces that {name} ({maker}) made");
            let mut select = db.prepare("SELECT id FROM spaces WHERE made_by = ?1")?;
            let spaces = select.query_map(params![maker.0], |row| row.get(0).map(SpaceId))?;
            let spaces = spaces.collect::<Result<_, _>>()?;
            limits.push(QuotaLimit { of, quota, held: made_by(db, maker)?, spaces });
        }
        Ok(Self(limits))
    }

    /// Returns whether the space comes under no quota, so that nothing is refused.
    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses `change` if it would exceed a quota, together with what is there and with what `besides` returns for the
    /// spaces of that quota.
    pub(crate) fn admit(
        &self,
        besides: impl Fn(&BTreeSet<SpaceId>) -> Sums,
        change: Sums,
    ) -> Result<(), Error> {
        for QuotaLimit { of, quota, held, spaces } in &self.0 {
            let besides = besides(spaces);
            let held = Sums {
                files: held.files.saturating_add(besides.files),
                dirs: held.dirs.saturating_add(besides.dirs),
                bytes: held.bytes.saturating_add(besides.bytes),
                ..Sums::default()
            };
            check(of, *quota, held, change)?;
        }
        Ok(())
    }

    /// Refuses `bytes` in the place of `replaced` bytes, if they would exceed a quota together with what is there and
    /// with the bytes that are `promised` in the spaces of that quota.
    pub fn admit_beside(
        &self,
        promised: impl Fn(&BTreeSet<SpaceId>) -> u64,
        bytes: u64,
        replaced: u64,
    ) -> Result<(), Error> {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let of_bytes = |bytes| Sums { bytes, ..Sums::default() };
        let change = of_bytes(signed(bytes).saturating_sub(signed(replaced)));
        self.admit(|spaces| of_bytes(signed(promised(spaces))), change)
    }

    /// Refuses `bytes` of which it is not known what they replace, if they would exceed a quota together with the bytes
    /// that are `promised` in the spaces of that quota, and nothing else were there.
    pub fn admit_whole(
        &self,
        promised: impl Fn(&BTreeSet<SpaceId>) -> u64,
        bytes: u64,
    ) -> Result<(), Error> {
        let of_bytes = |bytes: u64| {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            Sums { bytes, ..Sums::default() }
        };
        for QuotaLimit { of, quota, spaces, .. } in &self.0 {
            check(of, *quota, of_bytes(promised(spaces)), of_bytes(bytes))?;
        }
        Ok(())
    }

    /// Returns the bytes that the quotas leave beside what is there and what is `promised` in their spaces; `u64::MAX`
    /// if none limits bytes.
    pub fn left(&self, promised: impl Fn(&BTreeSet<SpaceId>) -> u64) -> u64 {
        self.beside(|limit| {
            (limit.held.bytes.max(0) as u64).saturating_add(promised(&limit.spaces))
        })
    }

    /// Returns the bytes that the quotas would leave beside what is `promised` in their spaces, if nothing were there.
    pub fn whole(&self, promised: impl Fn(&BTreeSet<SpaceId>) -> u64) -> u64 {
        self.beside(|limit| promised(&limit.spaces))
    }

    fn beside(&self, taken: impl Fn(&QuotaLimit) -> u64) -> u64 {
        let left = |limit: &QuotaLimit| Some(limit.quota.bytes?.saturating_sub(taken(limit)));
        self.0.iter().filter_map(left).min().unwrap_or(u64::MAX)
    }
}

fn check(of: &str, quota: Quota, held: Sums, change: Sums) -> Result<(), Error> {
    let grown = |held: i64, more: i64, most: Option<u64>| {
        let would = held.saturating_add(more).max(0) as u64;
        (more > 0 && most.is_some_and(|most| would > most)).then_some(would)
    };
    // A directory takes as much of the catalog as a file, so it counts as one.
    let files = grown(held.files + held.dirs, change.files + change.dirs, quota.files);
    let bytes = grown(held.bytes, change.bytes, quota.bytes);
    match (files.is_some(), bytes.is_some()) {
        (false, false) => Ok(()),
        _ => Err(Error::OverQuota { of: of.into(), quota, files, bytes }),
    }
}
