//! A catalog that is made of the log equals the original, whatever was changed in that: random changes, of which the log
//! is read soon, late, and after a base.

use super::{Target, base, changes_after, reservations, small, told};
use crate::checkpoints::checkpoint_rows;
use crate::fixture::{Fixture, coded, file, new_space, path, sparse};
use crate::history::kept_rows;
use crate::log::{apply, changes, records::Record};
use crate::members;
use crate::names::entries::{self, EntryPlace};
use crate::operations::{
    GroupEdit,
    checkpoints::{self, NewCheckpoint},
    commits::commit::PreparedFile,
    donors, grants, history,
    members::NewMember,
    names::{self, attributes, directories, links},
    quotas, redundancy,
    series::steps,
    sessions::session_changes,
    spaces::{self, policy_changes},
    upkeep::reaping,
};
use crate::pool_records::{meta, notes, sessions, stored_donor::Goal};
use crate::sql::Tx;
use crate::tests::NO_CONDITIONS;
use crate::when::{WhatIsKept, When};
use crate::{Durability, Error};
use potluck_core::attributes::{
    AttributesToSet, EntryAttributes, FileOwner, FileTime, Permissions,
};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, MemberId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{Override, Policy, Redundancy};
use potluck_core::quota::{Quota, QuotaOf};
use potluck_core::rights::{EVERYONE, Grantee, Right, Rights};
use potluck_core::seal::SpaceKey;
use potluck_wire::control::{Condition, NewLink};
use potluck_wire::token::Role;
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use std::ops::Range;

/// Places that changes are about. Few, so that changes meet; below `k` old versions and removed files are kept.
const PATHS: [&str; 16] = [
    "pot://lab/x",
    "pot://lab/d",
    "pot://lab/d/x",
    "pot://lab/d/y",
    "pot://lab/d/e",
    "pot://lab/d/e/x",
    "pot://lab/k",
    "pot://lab/k/x",
    "pot://lab/k/y",
    "pot://lab/k/d",
    "pot://lab/k/d/x",
    "pot://lab/k/d/e/x",
    "pot://lab/l",
    "pot://lab/l/x",
    "pot://other",
    "pot://other/d/x",
];
/// The kinds of changes.
const KINDS: Range<u8> = 0..32;

/// A change: its kind, and two numbers that say of what it is and how.
type Change = (u8, u8, u8);

/// The original catalog, and the moment that it has come to.
struct Original {
    fixture: Fixture,
    now_ms: u64,
    chunk: u64,
}

impl Original {
    /// Makes a catalog with a directory in which things are kept.
    fn new() -> Self {
        let fixture = Fixture::new();
        let (keeps, made) = (path("pot://lab/k"), EntryAttributes::of_dir(1));
        directories::make_dir(&fixture.db, &keeps, false, made).expect("made");
        policy_changes::set(&fixture.db, &keeps, &keeping(2)).expect("set");
        Self { fixture, now_ms: 1000, chunk: 0 }
    }

    fn when(&self) -> When {
        When {
            pool_ms: self.now_ms,
            wall_ms: 7 * self.now_ms as i64,
            by: Some(MemberId(9)),
            keeps: WhatIsKept::AsPoliciesSay,
            durability: Durability::Disk,
        }
    }

    /// Returns the place with a number: one of [`PATHS`], or one that a checkpoint stages.
    fn path(&self, number: u8) -> PoolPath {
        let staged = number.checked_sub(208).and_then(|number| {
            let open = checkpoint_rows::all(&self.fixture.db).expect("read").open;
            let open = open.get(usize::from(number) % open.len().max(1))?.staging.clone();
            open.join_all(["x", "d", "y"].into_iter().skip(usize::from(number / 4 % 3))).ok()
        });
        staged.unwrap_or_else(|| path(PATHS[usize::from(number) % PATHS.len()]))
    }

    /// Makes a change, or none if it is refused, and takes apart what it removed.
    fn change(&mut self, (kind, of, how): Change) {
        self.now_ms += 1;
        let is_done = match kind {
            0..6 => self.put(of, how),
            _ => self.fixture.db.savepoint(|| self.by_operation(kind, of, how)),
        };
        if let Err(why @ (Error::Bug(_) | Error::Sql(_) | Error::Damaged(_))) = is_done {
            panic!("change {kind} {of} {how}: {why}");
        }
        if kind == 6 {
            self.now_ms += u64::from(how) * 60_000;
            while history::expire(&self.fixture.db, 3, self.now_ms).expect("let go") {}
        }
        self.take_apart();
    }

    fn take_apart(&self) {
        let (db, when) = (&self.fixture.db, self.when());
        while history::release(db, 3, when).expect("a step")
            || reaping::reap(db, 3, 0, when.pool_ms).expect("a step")
        {}
    }

    fn put(&mut self, of: u8, how: u8) -> Result<(), Error> {
        let mut files = vec![self.file(&self.path(of).to_string(), how)];
        self.chunk += 1;
        if how >= 192 {
            files.push(self.file(&self.path(of.wrapping_add(how % 2)).to_string(), how / 5));
        }
        self.chunk += 1;
        self.fixture.commit(files);
        Ok(())
    }

    fn file(&self, at: &str, how: u8) -> PreparedFile {
        let (one, two) = (self.chunk, self.chunk + 1000);
        match how % 6 {
            0 => small(at, &self.chunk.to_le_bytes()),
            1 => coded(at, "2+1", 2, &[(one, &[1]), (two, &[2]), (one + 2000, &[3])]),
            2 => sparse(at, &[one], 1 << 20, &[1]),
            3 => file(at, &[one, 7, 7], &[1]),
            _ => file(at, &[one, two], &[1]),
        }
    }

    fn by_operation(&self, kind: u8, of: u8, how: u8) -> Result<(), Error> {
        let (db, when, at, other) = (&*self.fixture.db, self.when(), self.path(of), self.path(how));
        let even = how.is_multiple_of(2);
        match kind {
            7 | 8 => directories::make_dir(db, &at, even, EntryAttributes::of_dir(when.wall_ms)),
            9 => {
                let (path, target) = (at, format!("to-{how}").try_into().expect("a target"));
                let link = [NewLink { path, target, mtime: Some(FileTime(11)), owner: None }];
                links::make_all(db, &link, even, Condition::Always, when).map(drop)
            }
            10..14 => names::move_entry(db, &at, &other, how > 224, when),
            14 | 15 => names::remove(db, &at, even, when),
            16 => {
                let when = When { keeps: WhatIsKept::Nothing, ..when };
                names::remove(db, &at, even, when)
            }
            17 => {
                let (mtime, permissions) = (FileTime(how.into()), Permissions::of_mode(how.into()));
                let owner = even.then_some(FileOwner { uid: how.into(), gid: 7 });
                let (mtime, permissions) = (Some(mtime), Some(permissions));
                let new = AttributesToSet { mtime, permissions, owner, ..Default::default() };
                attributes::set_attributes(db, &at, None, new)
            }
            18 => {
                let over = match how % 3 {
                    0 => Override { copies: Some(2), ..Override::default() },
                    1 => Override { trash: Some("none".parse().expect("a time")), ..keeping(1) },
                    _ => keeping(3),
                };
                policy_changes::set(db, &at, &over)
            }
            19 => steps::pin(db, &at, even),
            20 | 21 => history::take_snapshot(db, &at, &(how % 3).to_string(), when).map(drop),
            22 => history::remove_snapshot(db, &at, &(how % 3).to_string()),
            23 | 24 => {
                let number = self.kept_of(&at).get(usize::from(how) % 4).copied();
                history::bring_back(db, &at, number, kind == 24, when).map(drop)
            }
            25 => history::let_go_of(db, &at, &self.kept_of(&at), when),
            26 | 27 => self.begin_checkpoint(at, how),
            28 => {
                let which = ("lab", &CheckpointId([how % 4; 16]));
                match how < 192 {
                    true => checkpoints::commit(db, which, NO_CONDITIONS, when).map(drop),
                    false => checkpoints::abort(db, which, how > 224, when.pool_ms),
                }
            }
            29 => self.redundancy(&at, how),
            30 => match how % 3 {
                0 => spaces::remove(db, "other", how > 128).map(drop),
                1 => {
                    let key = (how > 128).then(|| SpaceKey::from_bytes([how; 32]));
                    spaces::create(db, &new_space("other", Policy::default(), key), when.wall_ms)
                }
                _ => self.reservation(of, how),
            },
            31 => self.of_the_pool(of, how),
            _ => Ok(()),
        }
    }

    /// Returns the numbers of what is kept of a name, the latest first.
    fn kept_of(&self, at: &PoolPath) -> Vec<VersionId> {
        let (db, above) = (&self.fixture.db, at.parent().unwrap_or_else(PoolPath::root));
        let Ok(dir) = entries::existing_dir(db, &above) else { return Vec::new() };
        let rows = kept_rows::of_name(db, dir, at.file_name().unwrap_or_default());
        rows.expect("read").into_iter().map(|row| row.number).collect()
    }

    fn begin_checkpoint(&self, target: PoolPath, how: u8) -> Result<(), Error> {
        let style = match how % 5 {
            0 | 1 => CommitStyle::Replace,
            2 | 3 => CommitStyle::Merge,
            _ => CommitStyle::Share,
        };
        let id = match style {
            CommitStyle::Share => CheckpointId::of_shared_file(&target),
            CommitStyle::Replace | CommitStyle::Merge => CheckpointId([how % 4; 16]),
        };
        let new = NewCheckpoint { id, target, style, made_by: MemberId(1), idle_ms: 1 << 40 };
        checkpoints::begin(&self.fixture.db, &new, self.when()).map(drop)
    }

    /// Changes the redundancy of a file, or its goal.
    fn redundancy(&self, at: &PoolPath, how: u8) -> Result<(), Error> {
        let (db, goal) = (&*self.fixture.db, Redundancy::Copies(1 + u32::from(how % 3)));
        let policy = Policy { copies: 1 + u32::from(how % 3), ..Policy::default() };
        policy_changes::follow(db, at, &policy, None, Some(self.now_ms))?;
        match entries::existing(db, at)?.place {
            EntryPlace::File(version) if how > 64 => {
                redundancy::arrive(db, version, goal, self.now_ms).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn reservation(&self, of: u8, how: u8) -> Result<(), Error> {
        let (db, number) = (&*self.fixture.db, 100 + of % 4);
        meta::save_pool_time(db, self.now_ms)?;
        match how % 4 {
            0 => notes::set(db, notes::TIME_LEAPT, &how.to_string()),
            1 => session_changes::end(db, &reservations::id(number)),
            2 => session_changes::grow(db, &reservations::id(number), &reservations::plan(9), 9, 0),
            _ if sessions::get(db, &reservations::id(number))?.is_some() => Ok(()),
            _ => reservations::reserve(db, number, "pot://lab/run", how.into()),
        }
    }

    /// Changes members, groups, rights, quotas, donors or notes.
    fn of_the_pool(&self, of: u8, how: u8) -> Result<(), Error> {
        let db = &*self.fixture.db;
        let id = MemberId(1 + u32::from(of) % 4);
        let group = Grantee::Group("students".into());
        let to = match of % 3 {
            0 => Grantee::Member(id),
            1 => group,
            _ => Grantee::Group(EVERYONE.into()),
        };
        let edit = |edit: GroupEdit| grants::edit(db, "students", &edit);
        match how % 9 {
            0 | 1 => {
                let count = members::all(db)?.len();
                let name = format!("member-{count}");
                let fingerprint = Digest::of(name.as_bytes());
                let role = if how.is_multiple_of(2) { Role::Donor } else { Role::User };
                let new = NewMember { role, name: &name, joined_wall_ms: 5, invited_by: None };
                crate::operations::members::add(db, new, |_| Ok(fingerprint)).map(drop)
            }
            2 => crate::operations::members::revoke(db, id).map(drop),
            3 => edit(if how < 200 { GroupEdit::Create } else { GroupEdit::Remove }),
            4 => edit(GroupEdit::Members { add: vec![id], remove: vec![MemberId(2)] }),
            5 => {
                let rights: Rights = Right::ALL.into_iter().take(usize::from(of) % 4).collect();
                grants::change(db, if how < 200 { "lab" } else { "other" }, &to, |_| rights)
                    .map(drop)
            }
            6 => {
                let quota = Quota { bytes: (how < 200).then_some(1 << 50), files: None };
                let lab = QuotaOf::Space("lab".into());
                let of = if of < 128 { lab } else { QuotaOf::Member(id) };
                quotas::set(db, &of, quota.into()).map(drop)
            }
            7 => donors::change(db, DonorId(id.0), |known| {
                let (is_set, why) = (how < 200, how.to_string());
                match of / 4 % 4 {
                    0 => known.away_until_ms = is_set.then_some(how.into()),
                    1 => known.quarantined = is_set.then_some(why),
                    2 => known.addresses = "[2001:db8::7]:7701".parse().expect("addresses"),
                    _ => {
                        let goal = Goal { start: how.into(), at_once: true, lose: Vec::new() };
                        known.giving = is_set.then_some(goal);
                    }
                }
            })
            .map(drop),
            _ => {
                let value = (how < 200).then(|| of.to_string());
                apply::write(db, Record::Note { key: notes::REPAIR_PAUSED.into(), value })
            }
        }
    }
}

/// Returns the part of a policy that keeps so many versions, and removed files for an hour.
fn keeping(versions: u32) -> Override {
    Override {
        keep_versions: Some(versions.to_string().parse().expect("versions")),
        trash: Some("1h".parse().expect("a time")),
        ..Override::default()
    }
}

/// Returns all that a catalog records, with what ends by itself.
fn all_told(db: &Tx) -> Vec<String> {
    let open = checkpoint_rows::all(db).expect("read").open;
    let mut told = told(db);
    told.extend(open.iter().map(|open| format!("{open:?}")));
    told.extend(reservations::told(db));
    told
}

/// Returns what only one of two catalogs records.
fn difference<'a>(one: &'a [String], other: &'a [String]) -> Vec<&'a str> {
    let lacks = |all: &[String], of: &&String| !all.contains(of);
    let only = one.iter().filter(|it| lacks(other, it));
    only.chain(other.iter().filter(|it| lacks(one, it))).map(String::as_str).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_restored_catalog_equals_the_live_one_after_any_changes_d5(
        changes in proptest::collection::vec((KINDS, any::<u8>(), any::<u8>()), 1..100),
        base_after in 0..100usize,
        pause in 1..10usize,
    ) {
        let mut live = Original::new();
        let (mut soon, mut late, mut from_base) = (Target::new(), Target::new(), Target::new());
        let (mut seen, mut covered) = (0, 0);
        for (number, change) in changes.iter().enumerate() {
            if number == base_after % changes.len() {
                let (records, last) = base(&live.fixture);
                from_base.apply(&records);
                let told = (all_told(&from_base.db), all_told(&live.fixture.db));
                prop_assert_eq!(difference(&told.0, &told.1), [""; 0], "a base");
                covered = last;
            }
            live.change(*change);
            if number % pause == 0 {
                soon.apply(&changes_after(&live.fixture.db, seen));
                seen = changes::last(&live.fixture.db).expect("read");
            }
        }
        live.change((31, 0, 8)); // the pool's time comes with changes
        soon.apply(&changes_after(&live.fixture.db, seen));
        late.apply(&changes_after(&live.fixture.db, 0));
        from_base.apply(&changes_after(&live.fixture.db, covered));
        let expected = all_told(&live.fixture.db);
        for (mut target, which) in [(soon, "soon"), (late, "late"), (from_base, "from a base")] {
            prop_assert_eq!(target.replay.left_out, 0, "{}", which);
            let told = all_told(&target.db);
            prop_assert_eq!(difference(&told, &expected), [""; 0], "{}", which);
            let left_out = std::mem::take(&mut target.replay).finish(&target.db);
            prop_assert_eq!(left_out, Ok(0), "{}", which);
            let at_end = all_told(&target.db);
            prop_assert_eq!(difference(&at_end, &told), [""; 0], "{} at its end", which);
        }
    }
}
