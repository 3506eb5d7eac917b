//! The pool at one moment, as `status`, verdicts and metrics show it.

use crate::alarms::{self, Alarms};
use crate::callers::{KnownMember, KnownMembers};
use crate::failure;
use crate::followed_defaults::FollowedDefaults;
use crate::gc_freeze::GcFreeze;
use crate::give_back::GiveBacks;
use crate::handles::handles;
use crate::log_copies::copies::LogCopies;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::scan_state::{BAD_COPY_MET, ScanState, Unseen};
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::stats_cache::StatsCache;
use crate::verdict;
use potluck_catalog::{Catalog, Error, LogCopy, SeenSpaces, Space, Stats, StoredQuota};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::policy::Policy;
use potluck_core::quota::QuotaOf;
use potluck_core::size::format_size;
use potluck_pool::Pool;
use potluck_wire::control::{
    DonorStatus, HealthLevel, MetadataHealth, OwnDonorStatus, PoolStatus, RepairState, SpaceHealth,
    SpaceInfo, Verdict,
};
use potluck_wire::token::Role;
use potluck_wire::version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

handles! {
    /// The handles for putting the state of the pool together.
    pub struct Overview {
        settings: Arc<Settings>,
        time: PoolTime,
        term: Arc<OwnTerm>,
        pool: SharedPool,
        catalog: Catalog,
        members: Arc<KnownMembers>,
        gc_freeze: Arc<GcFreeze>,
        log: Arc<LogCopies>,
        stats: Arc<StatsCache>,
        scan_state: Arc<ScanState>,
        followed: Arc<FollowedDefaults>,
        give_backs: GiveBacks,
        alarms: Alarms,
    }
}

impl Overview {
    /// Returns the status of the pool now, as it is shown to a reader who may know of the spaces that are `seen`. Files
    /// in other spaces count in its sums and in its verdict, which is the same for everybody but for the names of
    /// spaces and the reasons why donors are not reached.
    pub async fn pool_status(
        &self,
        seen: &SeenSpaces,
        reader: &StatusReader,
    ) -> Result<PoolStatus, Error> {
        let stats = self.stats.get(&self.catalog, &self.time, &self.pool).await?;
        let now = self.time.tick();
        let spaces = self.catalog.spaces().await?;
        let quotas = self.catalog.quotas(None).await?;
        let waiting = self.catalog.log_ahead(LogCopy::OnDonors, 0).await?.waiting();
        let mut donors = self.donors(&stats);
        reader.leave_out(&mut donors);
        for donor in &mut donors {
            let (members, places) = self.pool.lock().unreached_by(donor.donor, now);
            (donor.unreached_by, donor.unreached_from) = (self.members.names(&members), places);
            let giving = self.pool.lock().giving(donor.donor).is_some();
            if giving {
                donor.giving_back = Some(self.give_backs.progress(donor.donor).await?);
            }
        }
        let awaited = self.awaited(&donors);
        let (repair, sessions, parked) = {
            let mut pool = self.pool.lock();
            (pool.repair_state(now), pool.open_sessions() as u64, pool.parked())
        };
        let repair = with_changes(repair, awaited, &stats);
        let (interrupted_uploads, interrupted_bytes) = parked;
        let mut status = PoolStatus {
            verdict: Verdict::default(),
            pool: self.term.pool_name.clone(),
            version: version::PRODUCT.into(),
            epoch: self.term.epoch(),
            uptime_seconds: self.time.uptime().as_secs(),
            sessions,
            interrupted_uploads,
            interrupted_bytes,
            files: stats.files,
            bytes: stats.bytes,
            condemned_chunks: stats.condemned,
            condemned_at_dead: stats.condemned_at_dead,
            spaces: self.verdicts(spaces.iter().filter_map(Space::info), &quotas, now),
            alarms: self.alarms.all(&donors, &repair),
            donors,
            repair,
            backup_file_seconds: self.log.file.seconds(now),
            backup_pool_seconds: self.log.donors.seconds(now),
            metadata: self.metadata(),
            log_waiting: (self.settings.get().metadata_copies > 0).then_some(waiting),
            gc_frozen: self.gc_freeze.why(),
        };
        if status.spaces.iter().any(|space| !space.scanned && space.files > 0) {
            self.scan_state.look_again(now); // somebody wants to know
        }
        for space in &mut status.spaces {
            if !seen.has(&space.name) {
                space.name.clear();
            }
        }
        status.alarms.extend(alarms::unmet_policies(&status.spaces));
        status.verdict = verdict::judge(&status, self.unseen_now(&status.donors).as_ref());
        status.spaces.retain(|space| !space.name.is_empty());
        Ok(status)
    }

    /// Returns the state of one donor as its owner is told it: without the names of other members.
    pub async fn donor_status(&self, donor: DonorId) -> Result<OwnDonorStatus, Error> {
        let stats = self.stats.get(&self.catalog, &self.time, &self.pool).await?;
        let mut own = self.donors(&stats);
        own.retain(|one| one.donor == donor);
        for one in &mut own {
            let giving = self.pool.lock().giving(donor).is_some();
            if giving {
                one.giving_back = Some(self.give_backs.progress(donor).await?);
            }
        }
        let mut alarms = self.alarms.all(&own, &RepairState::default());
        alarms.retain(|alarm| alarm.donor == Some(donor));
        Ok(OwnDonorStatus { donor: own.pop().unwrap_or_default(), alarms })
    }

    /// Returns every donor, with the numbers of copies that the catalog counts there.
    fn donors(&self, stats: &Stats) -> Vec<DonorStatus> {
        let mut donors = self.pool.lock().status(self.time.tick());
        for donor in &mut donors {
            let copies = stats.donors.get(&donor.donor).copied().unwrap_or_default();
            (donor.chunks, donor.bad) = (copies.here, copies.bad);
        }
        donors
    }

    /// Returns the reason why the findings of the last scan may not hold any more, if there is one.
    fn unseen_now(&self, donors: &[DonorStatus]) -> Option<Unseen> {
        let now = self.time.tick();
        let (mut unheard, in_doubt) = {
            let pool = self.pool.lock();
            (pool.view(now).unheard(), pool.is_in_doubt(now))
        };
        // A donor that holds nothing is missed by no file.
        unheard.retain(|id| donors.iter().any(|donor| donor.donor == *id && donor.chunks > 0));
        let doubt = in_doubt.then_some(Unseen::Worse(BAD_COPY_MET));
        self.scan_state.unseen(&unheard).or(doubt)
    }

    /// Returns a state of repair with only these parts: why it is not known whether all files are safe, and the donors
    /// whose chunks repair makes later unless they return. It has to be asked for before the pool's own state of
    /// repair, so that the findings of a scan that ends in between are in the latter.
    fn awaited(&self, donors: &[DonorStatus]) -> RepairState {
        let unseen = self.unseen_now(donors);
        let fresh = self.scan_state.not_seen_gone(donors);
        let looking = || {
            let is_due = self.scan_state.is_looking() || self.pool.lock().repairs.is_unseen();
            is_due.then(|| "something was made or changed just now".to_owned())
        };
        let waiting = donors.iter().filter(|donor| donor.chunks > 0);
        let waiting = waiting.filter_map(|donor| Some((donor.given_up_seconds?, &donor.name)));
        RepairState {
            not_known: unseen
                .and_then(|unseen| verdict::unseen_why(donors, &unseen))
                .or(fresh)
                .or_else(looking),
            begins_seconds: waiting.clone().map(|(seconds, _)| seconds).min(),
            waits_for: waiting.map(|(_, name)| name.clone()).collect(),
            ..RepairState::default()
        }
    }

    /// Returns the state of repair for callers who ask for it alone.
    pub fn repair_state(&self, stats: &Stats) -> RepairState {
        let awaited = self.awaited(&self.donors(stats));
        let state = self.pool.lock().repair_state(self.time.tick());
        with_changes(state, awaited, stats)
    }
}

/// A reader of the pool's state, by how much of it the reader may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusReader {
    /// The manager's own machine, or an admin.
    Admin,
    /// A member who is no admin.
    Member(MemberId),
}

impl StatusReader {
    /// Returns the reader that a caller is.
    pub fn of(who: &KnownMember) -> Self {
        match who.role {
            Role::Admin => Self::Admin,
            Role::User | Role::Gateway | Role::Donor => Self::Member(who.member),
        }
    }

    /// Clears the reasons why the manager could not reach donors, except for an admin and for a donor's own; that it
    /// could not is still told. A donor may announce any address, and its owner would learn through the manager what
    /// answers there.
    fn leave_out(&self, donors: &mut [DonorStatus]) {
        let is_own = |donor: &DonorStatus| *self == Self::Member(MemberId(donor.donor.0));
        if *self == Self::Admin {
            return;
        }
        for donor in donors.iter_mut().filter(|donor| !is_own(donor)) {
            donor.unreachable = donor.unreachable.take().map(|_| String::new());
        }
    }
}

/// Returns the state with what it waits for, and with the files whose redundancy is being changed.
fn with_changes(state: RepairState, awaited: RepairState, stats: &Stats) -> RepairState {
    let Stats { changing, changing_bytes, .. } = *stats;
    let RepairState { not_known, begins_seconds, waits_for, .. } = awaited;
    RepairState { changing, changing_bytes, not_known, begins_seconds, waits_for, ..state }
}

impl Overview {
    /// Returns the health of each space: its safety as of the last scan, its files, policy and quota as of now.
    fn verdicts(
        &self,
        spaces: impl Iterator<Item = SpaceInfo>,
        quotas: &[StoredQuota],
        now: Tick,
    ) -> Vec<SpaceHealth> {
        let pool = self.pool.lock();
        // Most spaces share a few policies.
        let mut known = BTreeMap::new();
        let mut room_by = |policy: &Policy| {
            let key = (policy.redundancy().to_string(), policy.chunk_size, policy.stripe_width);
            known.entry(format!("{key:?}")).or_insert_with(|| room_by(&pool, policy, now)).clone()
        };
        let spaces: Vec<_> = spaces.map(|space| (room_by(&space.policy), space)).collect();
        drop(pool);
        let kept = self.scan_state.kept();
        let quota_of = |space: &SpaceInfo| {
            let mut quotas = quotas.iter();
            let found = quotas
                .find(|found| matches!(&found.of, QuotaOf::Space(name) if *name == space.name));
            found.cloned().map(StoredQuota::shown)
        };
        let health = |((free, lacks), space): ((u64, Option<String>), SpaceInfo)| {
            let (policy, quota) = (Some(space.policy.redundancy()), quota_of(&space));
            let mut found = kept.spaces.get(&space.name).cloned().unwrap_or_default();
            if space.files == 0 {
                // The findings from before the space's last file was removed do not hold any more.
                let SpaceHealth { level, scanned, .. } = found;
                let level = level.map(|_| HealthLevel::Safe);
                found = SpaceHealth { level, scanned, ..SpaceHealth::default() };
            }
            let SpaceInfo { name, files, in_catalog, .. } = space;
            let default_news = self.followed.of(&name, kept.began, found.changing, now);
            let free = Some(free);
            SpaceHealth {
                name,
                policy,
                files,
                in_catalog,
                quota,
                free,
                lacks,
                default_news,
                ..found
            }
        };
        spaces.into_iter().map(health).collect()
    }

    /// Returns the health of the pool's own metadata on donors, if any is to be there and a scan has ended.
    fn metadata(&self) -> Option<MetadataHealth> {
        let kept = self.scan_state.kept();
        let asked = self.settings.get().metadata_copies > 0;
        (asked && kept.began.is_some()).then(|| kept.metadata.clone())
    }
}

/// Returns the bytes of files that can be stored by a policy now, and the reason if that is nothing and donors that are
/// merely silent would not change it.
fn room_by(pool: &Pool, policy: &Policy, now: Tick) -> (u64, Option<String>) {
    let redundancy = policy.redundancy();
    let (free, needs) = (pool.storable(policy, now), redundancy.donors() as usize);
    let stay = pool.staying(&BTreeSet::new(), now);
    let writable = pool.willing(&BTreeSet::new(), now).count();
    let lacks = match free {
        0 if stay < needs => Some(failure::too_few_donors(redundancy, stay)),
        0 if writable >= needs => {
            let chunk = format_size(policy.chunk_size.into());
            Some(match needs {
                1 => format!("no donor has room for a chunk of {chunk}"),
                _ => format!(
                    "too few donors have room for a chunk of {chunk}: {redundancy} needs {needs}"
                ),
            })
        }
        _ => None,
    };
    (free, lacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handles::Handles;
    use crate::tasks::disk_recovery::DiskRecovery;
    use crate::tasks::repair::tests::still;
    use potluck_catalog::Error;
    use potluck_pool::CircuitBreaker;
    use potluck_wire::control::AlarmKind;

    async fn status(manager: &Handles) -> PoolStatus {
        let overview = Overview::from(manager);
        let status = overview.pool_status(&SeenSpaces::ALL, &StatusReader::Admin).await;
        status.expect("reads work as ever")
    }

    #[test]
    fn status_shows_address_impostors_to_admins_and_the_donor_only() {
        let refused = "10.10.0.1:22: Connection refused";
        let told = |reader: StatusReader| {
            let donor = |number, unreachable: Option<&str>| DonorStatus {
                donor: DonorId(number),
                unreachable: unreachable.map(Into::into),
                ..DonorStatus::default()
            };
            let mut donors = [donor(7, Some(refused)), donor(8, None)];
            reader.leave_out(&mut donors);
            donors.map(|donor| donor.unreachable)
        };
        let all = [Some(refused.to_owned()), None];
        assert_eq!(told(StatusReader::Admin), all);
        assert_eq!(told(StatusReader::Member(MemberId(7))), all);
        assert_eq!(told(StatusReader::Member(MemberId(9))), [Some(String::new()), None]);
    }

    async fn write(manager: &Handles, bytes: usize) -> Result<(), Error> {
        manager.catalog.note_repair(Some("x".repeat(bytes)), CircuitBreaker::default()).await
    }

    #[tokio::test]
    async fn full_catalog_disk_is_reported_until_writable() {
        let (dir, manager) = still().await;
        manager.log.donors.failing("no donor took it".into());
        let disk = |status: &PoolStatus| {
            let first = status.alarms.first().filter(|alarm| alarm.kind == AlarmKind::CatalogDisk);
            first.cloned()
        };
        assert_eq!(disk(&status(&manager).await), None);
        manager.catalog.limit_pages(1).await.expect("set"); // no fewer than there are
        assert_eq!(write(&manager, 1 << 20).await, Err(Error::DiskFull));
        assert_eq!(write(&manager, 1).await, Ok(()), "a small one may fit");
        let full = status(&manager).await;
        let fault = disk(&full).expect("said");
        assert!(
            fault.what.starts_with("the manager cannot write its catalog: the disk"),
            "{fault}"
        );
        let place = dir.path().join("state").display().to_string();
        assert!(fault.advice.contains("free space") && fault.advice.ends_with(&place), "{fault}");
        assert_eq!(full.alarms, [fault], "and no donor is blamed");

        // The probe cannot take the place of a directory, which is as if there were no room for a file.
        std::fs::create_dir(dir.path().join("state/probe")).expect("made");
        DiskRecovery::from(&manager).probe().await.expect("tried");
        assert!(disk(&status(&manager).await).is_some());
        std::fs::remove_dir(dir.path().join("state/probe")).expect("removed");
        manager.catalog.limit_pages(u32::MAX - 1).await.expect("set");
        DiskRecovery::from(&manager).probe().await.expect("tried");
        let well = status(&manager).await;
        assert_eq!(disk(&well), None);
        assert_eq!(well.alarms.len(), 1, "the log's own: {:?}", well.alarms);
        assert_eq!(write(&manager, 1 << 20).await, Ok(()));
    }
}
