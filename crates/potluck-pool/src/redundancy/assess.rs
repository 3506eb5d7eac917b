//! The findings of a scan, and how urgent it is to make each unit whole again.

use super::excess::{Excess, Ground, MAX_EXCESS, MAX_VOTES, Vote};
use super::job::{CopyToMake, Encode, Make, RepairJob, ShardAt, parity_bytes};
use super::judge::{JudgedFile, copies, fewer_now, goal_is_there, judge_space, judged};
use super::layout::{Layout, Unit, Version};
use super::leaving::{Blocked, Moving};
use super::metadata::Metadata;
use super::takers::Takers;
use super::watched::{FoundSpace, JudgedVersion, Watched};
use crate::{LeavingRule, PoolView};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::ids::{DonorId, SpaceId, VersionId};
use potluck_core::origin::CacheState;
use potluck_core::path::SYSTEM_SPACE;
use potluck_core::policy::Redundancy;
use potluck_core::repair_plan::{Copy, Judged, Stand, Worth};
use potluck_wire::control::SpaceHealth;
use std::collections::{BTreeMap, BTreeSet};

/// The most units that wait to be made whole; the least urgent beyond that wait for the next scan.
pub(super) const MAX_QUEUED: usize = 65_536;
/// The most versions noted for one purpose; more are found by the next scan.
const MAX_NOTED: usize = 16_384;
/// The most copies to make that are told apart; beyond them, a copy that several files use is counted for each.
const MAX_COUNTED: usize = 65_536;
/// The most groups to be encoded that are remembered.
pub(super) const MAX_ENCODE: usize = 1024;

/// Files whose records in the catalog are damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damaged {
    /// The number of files.
    pub files: u64,
    /// The path of the first damaged file, and what is wrong with it.
    pub first: String,
}

/// The findings of a scan.
#[derive(Debug, Default)]
pub struct Findings {
    /// The donors as they were when the scan began.
    pub view: PoolView,
    /// Each space of users.
    pub spaces: Vec<FoundSpace>,
    /// The index of the space whose files are being added.
    pub(super) at: usize,
    /// Versions that the next scan has to know of.
    pub(super) watched: BTreeMap<VersionId, Watched>,
    /// True if there were more such versions than can be remembered.
    pub(super) unwatched: bool,
    /// The findings about the pool's own metadata.
    pub metadata: Metadata,
    /// True while the pool's own metadata is being walked, and not a space of users.
    pub own: bool,
    /// The units to be made whole, the most urgent first; last those whose copies nobody could take.
    pub queue: BTreeMap<(u32, u64), RepairJob>,
    /// The units of which copies are to leave a donor whose owner needs the space.
    pub over_quota: BTreeMap<(u32, u64), RepairJob>,
    /// The number of lacking chunks, by how many more deaths their units survive; each copy counts once, however many
    /// files use it.
    pub lacking: Vec<u64>,
    /// The size of the lacking chunks in stored bytes.
    pub lacking_bytes: u64,
    /// The stored bytes that are lacking to the redundancy that versions are being changed to, parity that is still to
    /// be computed included.
    pub lacking_goal_bytes: u64,
    /// The number of copies and chunks to make for which no donor can be asked as a source now; those of redundancy
    /// that versions are being changed to are in `sourceless_goals`.
    pub sourceless: u64,
    /// The number of lacking chunks, and of groups without parity, for which no donor can be asked as a source now, of
    /// the redundancy that versions are being changed to.
    pub sourceless_goals: u64,
    /// True if there were more units to be made whole, or groups to be encoded, than can be remembered.
    pub more: bool,
    /// The copies that may be too many.
    pub excess: BTreeMap<(ChunkName, DonorId), Excess>,
    /// True if there were more excess copies than can be remembered.
    pub more_excess: bool,
    /// The copies that were to be deleted and are needed.
    pub keep: Vec<(DonorId, ChunkName)>,
    /// The versions that now have all their redundancy, again or for the first time.
    pub safe: Vec<VersionId>,
    /// The versions that had all their redundancy and do not any more.
    pub open: Vec<VersionId>,
    /// The files whose records are damaged: what they use is unknown, and nothing else is said of them.
    pub damaged: Damaged,
    /// The versions that have the redundancy that they are being changed to.
    pub arrived: Vec<(VersionId, Redundancy)>,
    /// The groups without parity of versions that are being changed to an erasure code.
    pub encode: Vec<Encode>,
    /// The copies that leave each donor.
    pub moving: BTreeMap<DonorId, Moving>,
    /// The leaving copies of each donor that no other donor takes.
    pub blocked: BTreeMap<DonorId, Blocked>,
    /// The number of chunks that lack copies and that a donor holds which leaves and is not heard, or was given up, by
    /// donor.
    pub unreached: BTreeMap<DonorId, u64>,
    /// The number of files, by donor whose copies count as lost, that cannot be read now and that the donor may bring
    /// back.
    pub awaited: BTreeMap<DonorId, u64>,
    takers: Takers,
    /// The copies that were counted as lacking, each with how many more deaths its unit survives.
    counted: BTreeMap<CopyToMake, usize>,
    jobs: u64,
    /// The number of files of users that were looked at.
    pub files: u64,
    /// The number of votes that are remembered for all excess copies together.
    votes: usize,
    /// The number of votes for copies to go, remembered or not.
    dispensable: u64,
}

/// A unit as the scan looks at it.
pub(super) struct Look<'a> {
    pub(super) version: &'a Version,
    pub(super) kind: ChunkKind,
    pub(super) layout: &'a Layout,
    pub(super) unit: &'a Unit,
    pub(super) judged: Judged,
    pub(super) copies: &'a [Vec<Copy>],
    /// True if the unit is of the redundancy that the version is being changed to.
    pub(super) goal: bool,
}

/// The copies that must be there when another is deleted.
type Keep = Vec<(ChunkName, DonorId)>;

impl Look<'_> {
    /// Returns the copies that shards rely on: `which` gives the donor for a shard's piece and how it stands, or `None`
    /// to leave the shard out.
    fn relied(&self, which: impl Fn(usize, Stand) -> Option<DonorId>) -> Keep {
        let shards = self.unit.shards.iter().zip(&self.judged.shards);
        let relied = |(piece, stand): (&usize, &Stand)| {
            Some((self.layout.pieces[*piece].name, which(*piece, *stand)?))
        };
        shards.filter_map(relied).collect()
    }

    /// Returns whether a shard relies on this copy of a piece.
    fn relies_on(&self, piece: usize, donor: DonorId) -> bool {
        let mut shards = self.unit.shards.iter().zip(&self.judged.shards);
        shards.any(|(other, stand)| *other == piece && *stand == Stand::Apart(donor))
    }

    /// Returns whether all shards that a piece stands for rely on copies of it.
    fn is_apart(&self, piece: usize) -> bool {
        let mut shards = self.unit.shards.iter().zip(&self.judged.shards);
        shards.all(|(other, stand)| *other != piece || matches!(stand, Stand::Apart(_)))
    }

    /// Returns whether the unit's use of a piece is one of the references to it: of the redundancy that a version is
    /// being changed to, only parity has references.
    fn counts(&self, piece: usize) -> bool {
        !self.goal || piece >= self.layout.data
    }

    /// Returns whether the unit, lacking as it is, would be no safer if a leaving copy stayed: all the others fail
    /// together, and this one would fail with them.
    fn adds_nothing(&self, piece: usize, copy: &Copy) -> bool {
        let with = |worth| {
            let mut copies = self.copies.to_vec();
            for other in copies[piece].iter_mut().filter(|other| other.donor == copy.donor) {
                other.worth = worth;
            }
            let judged = judged(self.unit, &copies);
            (judged.matching, judged.on_distinct_donors(), judged.readable)
        };
        self.judged.readable && with(Worth::Counts) == with(Worth::Lost)
    }

    fn shard(&self, piece: usize, position: u8) -> ShardAt {
        shard_at(self.layout, self.copies, piece, position)
    }
}

impl Findings {
    /// Makes the findings of a scan that has seen nothing yet.
    pub fn new(view: PoolView) -> Self {
        let takers = Takers::new(&view);
        Self { view, takers, ..Self::default() }
    }

    /// Notes by the name of the space that is walked next whether files added from now on are the pool's own metadata.
    /// [`Self::enter`] also begins the findings of the space.
    pub fn walk(&mut self, space: &str) {
        self.own = space == SYSTEM_SPACE;
    }

    /// Begins to walk the next space.
    pub fn enter(&mut self, id: SpaceId, space: &str, policy: Redundancy) {
        self.walk(space);
        if self.own {
            return;
        }
        self.at = self.spaces.len();
        let health = SpaceHealth {
            name: space.to_owned(),
            policy: Some(policy),
            tolerates: Some(u32::MAX),
            tolerates_now: Some(u32::MAX),
            scanned: true,
            ..SpaceHealth::default()
        };
        self.spaces.push(FoundSpace { id, health, promised: None });
    }

    /// Adds a file of users, or one of the pool's own.
    pub fn add_any(&mut self, version: &Version, kind: ChunkKind, layout: &Layout) {
        if self.own {
            self.add_own(version, kind, layout);
        } else {
            self.add(version, kind, layout);
        }
    }

    /// Adds a file of the space entered last, or the first part of one.
    pub fn add(&mut self, version: &Version, kind: ChunkKind, layout: &Layout) {
        if let Some(FoundSpace { health, .. }) = self.spaces.get_mut(self.at) {
            health.files += 1;
            health.in_catalog += u64::from(version.chunks == 0);
        }
        self.add_again(version, kind, layout);
    }

    /// Adds again a file of the space entered last, or a part of one, that counts among its files already. Units that
    /// are missing in its layout are as they should be.
    pub fn add_again(&mut self, version: &Version, kind: ChunkKind, layout: &Layout) {
        self.files += 1;
        self.add_part(version, kind, layout);
    }

    /// Adds a further part of a file that was added before.
    pub fn add_part(&mut self, version: &Version, kind: ChunkKind, layout: &Layout) {
        let copies = copies(layout, &self.view);
        let mut file = JudgedFile::new(version);
        let (mut whole, dispensable, mut units) = (true, self.dispensable, Vec::new());
        for unit in &layout.units {
            let judged = judged(unit, &copies);
            if version.cache.is_kept() {
                file.count(unit, &judged, &copies);
                whole &= judged.complete();
            }
            let silent = fewer_now(judged.tolerates(), judged.tolerates_now());
            let is_readable = judged.tolerates_now().is_some();
            let (is_right, votes) = (judged.complete() && is_readable && !silent, self.dispensable);
            self.unit(&Look { version, kind, layout, unit, judged, copies: &copies, goal: false });
            if !is_right || self.dispensable > votes {
                units.push(unit.number);
            }
        }
        for unit in &layout.goal {
            let judged = judged(unit, &copies);
            self.unit(&Look { version, kind, layout, unit, judged, copies: &copies, goal: true });
        }
        if let Some(goal) = version.goal {
            if self.arrived.len() < MAX_NOTED && goal_is_there(layout, &copies) {
                self.arrived.push((version.id, goal));
            }
            self.note_unencoded(version, layout, goal, &copies);
        }
        let was_whole = version.safe_wall_ms.is_some();
        // A version with a goal stays noted as safe if it was: else, once it is whole again, it would be taken for
        // one that was written with less than it should have.
        let settled = version.goal.is_none();
        if was_whole && !whole && settled && self.open.len() < MAX_NOTED {
            self.open.push(version.id);
        }
        if whole && !was_whole && settled && self.safe.len() < MAX_NOTED {
            self.safe.push(version.id);
        }
        let file = file.done();
        let health = &file.health;
        let mut lost_at = BTreeSet::new();
        if health.unreadable > 0 && file.may_return {
            let lost = copies.iter().flatten().filter(|copy| copy.worth == Worth::Lost);
            lost_at.extend(lost.map(|copy| copy.donor));
        }
        for donor in &lost_at {
            *self.awaited.entry(*donor).or_default() += 1;
        }
        let has_excess = self.dispensable > dispensable;
        let is_awaited = !lost_at.is_empty();
        let file = &file;
        self.count_version(JudgedVersion { version, file, whole, has_excess, is_awaited, units });
    }

    /// Adds a file of the space entered last whose records are damaged. It counts as one that cannot be read.
    pub fn add_damaged(&mut self, space: &str, path: &str, why: &str) {
        if self.damaged.files == 0 {
            self.damaged.first = format!("pot://{space}/{path} ({why})");
        }
        self.damaged.files += 1;
        if let Some(FoundSpace { health, .. }) = self.spaces.get_mut(self.at) {
            health.files += 1;
            health.unreadable += 1;
            (health.tolerates, health.tolerates_now) = (None, None);
        }
    }

    /// Ends the walk of the space entered last.
    pub fn leave(&mut self) {
        let space = self.spaces.get_mut(self.at).filter(|_| !self.own);
        let Some(FoundSpace { health: space, .. }) = space else { return };
        if space.tolerates == Some(u32::MAX) {
            // Nothing in the space is on donors: it is empty, or all in the catalog.
            let empty = space.files == 0;
            space.tolerates = space.policy.filter(|_| empty).map(Redundancy::tolerates);
            space.tolerates_now = space.tolerates;
        }
        judge_space(space);
    }

    pub(super) fn unit(&mut self, look: &Look<'_>) {
        // Chunks that a cached file lacks are at its origin, and are fetched from there when they are read.
        if !look.judged.complete() && look.version.cache.is_kept() {
            self.enqueue(look);
        }
        self.vote(look);
    }

    fn enqueue(&mut self, look: &Look<'_>) {
        let (unit, judged) = (look.unit, &look.judged);
        let copied = unit.group.is_none();
        let mut make = Vec::new();
        let mut over_quota = false;
        // These copies are leaving and are to stay, because the unit has use for them.
        let mut staying = BTreeMap::<usize, Vec<DonorId>>::new();
        for shard in judged.lacking() {
            let at = unit.shards[shard];
            let piece = &look.layout.pieces[at];
            if !look.goal {
                self.note_unreached(piece);
            }
            let mut copies = look.copies[at].iter();
            over_quota |= copies.any(|copy| self.is_over_quota(copy));
            let staying = staying.entry(at).or_default();
            let stays = self.stays(look, at, staying).filter(|_| self.keep.len() < MAX_NOTED);
            if let Some((donor, _)) = stays {
                self.keep.push((donor, piece.name));
                staying.push(donor);
            }
            if !stays.is_some_and(|(_, counts)| counts) {
                make.push(Make {
                    shard: if copied { 0 } else { shard },
                    missing: judged.shards[shard] == Stand::Missing,
                });
            }
        }
        let shards = if copied { &unit.shards[..1] } else { &unit.shards[..] };
        let shard = |(at, piece): (usize, &usize)| {
            let mut shard = look.shard(*piece, unit.position(at));
            shard.from.extend(staying.get(piece).into_iter().flatten());
            shard
        };
        let relied = judged.shards.iter().filter_map(|stand| match stand {
            Stand::Apart(donor) | Stand::Crowded(donor) => Some(*donor),
            Stand::Missing => None,
        });
        let domain = |donor| Some((donor, self.view.get(donor)?.domain));
        let job = RepairJob {
            unit: (look.version.id, unit.number, look.goal),
            kind: look.kind,
            tolerates: judged.matching.saturating_sub(judged.need) as u32,
            over_quota,
            group: unit.group,
            shards: shards.iter().enumerate().map(shard).collect(),
            used: relied.filter_map(domain).collect(),
            make,
        };
        let planned = self.takers.plan(&job);
        if !look.goal {
            self.note_blocked(look.version, &job, &planned);
        }
        self.push(job, planned);
    }

    /// Returns the donor of a leaving copy that is to stay beside those at `others`, because its unit lacks it, and
    /// whether it will count then. A copy that will not count is worth keeping only if it is the last to make others
    /// of.
    fn stays(&self, look: &Look<'_>, piece: usize, others: &[DonorId]) -> Option<(DonorId, bool)> {
        let at = &look.layout.pieces[piece];
        let leaves = |(donor, leaving): &&(DonorId, bool)| *leaving && !others.contains(donor);
        let mut leaving = at.holders.iter().filter(leaves);
        let counts = leaving.find(|(donor, _)| {
            self.view.get(*donor).is_some_and(|at| at.worth == Worth::Counts && at.takes)
        });
        if let Some((donor, _)) = counts {
            return Some((*donor, true));
        }
        let fetchable = || look.copies[piece].iter().filter(|copy| copy.worth.fetchable());
        if !others.is_empty() || fetchable().any(|copy| !at.is_being_deleted(copy.donor)) {
            return None;
        }
        let last = fetchable().find(|copy| self.dispensable(look, piece, copy).is_none());
        last.map(|copy| (copy.donor, false))
    }

    fn push(&mut self, mut job: RepairJob, planned: Vec<Option<usize>>) {
        // A donor that failed lately is asked again by a later scan: now its jobs would only stand before those that
        // others can do.
        let view = &self.view;
        let sends = |donor: &DonorId| view.get(*donor).is_some_and(|at| at.sends);
        let all = job.make.len();
        let sent = job.make.iter().zip(planned).filter(|(make, _)| job.has_source(make, &sends));
        let (make, planned): (Vec<Make>, Vec<Option<usize>>) = sent.unzip();
        let count = if job.is_goal() { &mut self.sourceless_goals } else { &mut self.sourceless };
        *count += (all - make.len()) as u64;
        job.make = make;
        if job.make.is_empty() {
            return;
        }
        self.count_lacking(&job, &planned);
        // Jobs that nobody can take are looked at behind all others, and forgotten before all others; just
        // before them come jobs for a redundancy that no file was promised yet.
        let takeable = planned.iter().any(Option::is_some);
        let urgency = match (takeable, job.is_goal()) {
            (true, false) => job.tolerates,
            (true, true) => u32::MAX - 1,
            (false, _) => u32::MAX,
        };
        let queue = if job.over_quota { &mut self.over_quota } else { &mut self.queue };
        queue.insert((urgency, self.jobs), job);
        self.jobs += 1;
        if queue.len() > MAX_QUEUED {
            queue.pop_last();
            self.more = true;
        }
    }

    /// Counts what a job makes, unless it is counted for another file already. If that file survives more deaths, the
    /// copy counts under this one's number of deaths instead.
    fn count_lacking(&mut self, job: &RepairJob, planned: &[Option<usize>]) {
        let slot = job.tolerates as usize;
        if self.lacking.len() <= slot && !job.is_goal() {
            self.lacking.resize(slot + 1, 0);
        }
        for ((copy, bytes), taker) in job.lacking(0).zip(planned) {
            let before = self.counted.get(&copy).copied();
            if before.is_some() || self.counted.len() < MAX_COUNTED {
                self.counted.insert(copy, before.map_or(slot, |before| before.min(slot)));
            }
            match (job.is_goal(), before) {
                (true, None) => self.lacking_goal_bytes += bytes,
                (true, Some(_)) => {}
                (false, None) => {
                    self.lacking[slot] += 1;
                    self.lacking_bytes += bytes;
                    if let Some(at) = taker {
                        self.takers.reserve(*at, bytes);
                    }
                }
                (false, Some(before)) if slot < before => {
                    self.lacking[before] -= 1;
                    self.lacking[slot] += 1;
                }
                (false, Some(_)) => {}
            }
        }
    }

    /// Returns whether a copy leaves because its donor's owner needs the space.
    fn is_over_quota(&self, copy: &Copy) -> bool {
        copy.worth == Worth::Source
            && self.view.get(copy.donor).is_some_and(|status| status.over_quota)
    }

    /// Notes of every copy in the unit whether the unit can do without it.
    pub(super) fn vote(&mut self, look: &Look<'_>) {
        let unit = look.unit;
        // Copies of one chunk are one occurrence of it; each shard of a group is one.
        let occurrences = if unit.group.is_none() { 1 } else { unit.shards.len() };
        for piece in unit.shards[..occurrences].iter().copied() {
            for copy in &look.copies[piece] {
                let lacks = copy.worth == Worth::Lost || look.relies_on(piece, copy.donor);
                let lacks = lacks && !self.may_be_given_up(look, piece, copy);
                match if lacks { None } else { self.dispensable(look, piece, copy) } {
                    Some((ground, keep)) => self.can_go(look, piece, copy, ground, keep),
                    None => self.needs(look, piece, copy),
                }
            }
        }
    }

    /// Returns whether a copy may go although its unit relies on it, because the bytes are at the file's origin.
    fn may_be_given_up(&self, look: &Look<'_>, piece: usize, copy: &Copy) -> bool {
        let name = &look.layout.pieces[piece].name;
        let leaves = || self.view.get(copy.donor).is_some_and(|status| status.leaves(name));
        match look.version.cache {
            CacheState::Kept => false,
            CacheState::Cached => copy.worth != Worth::Lost && leaves(),
            CacheState::Evicted => copy.worth != Worth::Lost,
        }
    }

    /// Finds the ground on which a unit can do without a copy that no shard relies on, if it can, and the
    /// copies that it relies on instead.
    fn dispensable(&self, look: &Look<'_>, piece: usize, copy: &Copy) -> Option<(Ground, Keep)> {
        let judged = &look.judged;
        let status = self.view.get(copy.donor)?;
        let name = &look.layout.pieces[piece].name;
        let (leaves, rule) = (status.leaves(name), status.rule_of(name));
        if look.version.cache == CacheState::Evicted {
            return Some((Ground::Evicted, Keep::new()));
        }
        if leaves && !look.version.cache.is_kept() {
            return Some((Ground::Cached(rule), Keep::new()));
        }
        if leaves && look.goal {
            // A goal is no promise yet. It may need the very donor that leaves, which would then never be empty.
            return Some((Ground::Leaves(rule), Keep::new()));
        }
        if leaves && rule == LeavingRule::AtOnce {
            let ground = Ground::Leaves(LeavingRule::AtOnce);
            let live = |donor| self.view.get(donor).is_some_and(|at| at.worth == Worth::Counts);
            let keep = look.relied(|_, stand| match stand {
                Stand::Apart(donor) | Stand::Crowded(donor) => Some(donor).filter(|at| live(*at)),
                Stand::Missing => None,
            });
            if keep.len() >= judged.need {
                return Some((ground, keep));
            }
            if status.may_lose(look.version.id) {
                return Some((Ground::Agreed, Keep::new()));
            }
        }
        let apart = |stand| if let Stand::Apart(donor) = stand { Some(donor) } else { None };
        // A whole unit misses nothing of its other shards. What leaves a group that lacks some gives
        // it nothing once its own shard is elsewhere: else a file that cannot be read any more would
        // keep every donor of it for ever.
        let ground = match judged.complete() {
            true => Some(Ground::Whole),
            false => (leaves && look.is_apart(piece)).then_some(Ground::Leaves(rule)),
        };
        if let Some(ground) = ground {
            let keep = look.relied(|other, stand| apart(stand).filter(|_| other == piece));
            return Some((ground, keep));
        }
        if leaves && look.adds_nothing(piece, copy) {
            let keep = look.relied(|_, stand| match stand {
                Stand::Apart(donor) | Stand::Crowded(donor) => Some(donor),
                Stand::Missing => None,
            });
            return Some((Ground::Leaves(rule), keep));
        }
        let safe = judged.matching > judged.need && judged.readable;
        (leaves && rule == LeavingRule::WhenSafe && safe)
            .then(|| (Ground::Leaves(LeavingRule::WhenSafe), look.relied(|_, stand| apart(stand))))
    }

    /// Notes that a unit cannot do without a copy. Other units that use the chunk may vote for the copy to go; it
    /// goes only with a vote of each, and this one gives none.
    fn needs(&mut self, look: &Look<'_>, piece: usize, copy: &Copy) {
        let chunk = &look.layout.pieces[piece];
        if look.counts(piece) {
            if copy.worth == Worth::Source {
                let moving = self.moving.entry(copy.donor).or_default();
                moving.chunks += 1;
                moving.bytes += u64::from(chunk.len);
            }
        } else if self.excess.len() < MAX_EXCESS {
            // The unit has no vote of its own that it could withhold.
            self.excess.entry((chunk.name, copy.donor)).or_default().needed = true;
        } else if let Some(excess) = self.excess.get_mut(&(chunk.name, copy.donor)) {
            excess.needed = true;
        }
    }

    fn can_go(&mut self, look: &Look<'_>, piece: usize, copy: &Copy, ground: Ground, keep: Keep) {
        let chunk = &look.layout.pieces[piece];
        let key = (chunk.name, copy.donor);
        self.dispensable += 1;
        if self.excess.len() >= MAX_EXCESS && !self.excess.contains_key(&key) {
            self.more_excess = true;
            return;
        }
        let excess = self.excess.entry(key).or_default();
        (excess.refs, excess.len) = (chunk.refs, chunk.len);
        let vote = Vote {
            version: look.version.id,
            seen: self.files,
            judged_by: (look.version.redundancy(), look.version.goal),
            ground,
            uses: u32::from(look.counts(piece)),
        };
        self.votes += usize::from(excess.add(vote, keep));
        if self.votes > MAX_VOTES {
            // A copy that so many files use cannot be shown to be too much.
            self.votes -= excess.votes.len();
            excess.votes = Vec::new();
            excess.needed = true;
        }
    }

    fn note_unencoded(
        &mut self,
        version: &Version,
        layout: &Layout,
        goal: Redundancy,
        copies: &[Vec<Copy>],
    ) {
        let Redundancy::Ec(ec) = goal else { return };
        for group in &layout.unencoded {
            let Some(range) = ec.group(layout.data, *group as usize) else { continue };
            let longest = range.clone().map(|piece| layout.pieces[piece].len).max().unwrap_or(0);
            self.lacking_goal_bytes += parity_bytes(longest, ec);
            if self.encode.len() >= MAX_ENCODE {
                self.more = true;
                continue;
            }
            let shard = |(at, piece): (usize, usize)| shard_at(layout, copies, piece, at as u8);
            let shards: Vec<ShardAt> = range.enumerate().map(shard).collect();
            let sends = |donor: &DonorId| self.view.get(*donor).is_some_and(|at| at.sends);
            if shards.iter().all(|shard| shard.from.iter().any(sends)) {
                self.encode.push(Encode { version: version.id, group: *group, ec, shards });
            } else if shards.iter().all(|shard| !shard.from.is_empty()) {
                self.sourceless_goals += 1; // until a donor that failed lately may be asked again
            }
        }
    }
}

/// Returns the shard of a piece with its sources. Copies that are being deleted are none: they may be gone when they
/// are asked for.
fn shard_at(layout: &Layout, copies: &[Vec<Copy>], piece: usize, position: u8) -> ShardAt {
    let at = &layout.pieces[piece];
    let sends = |copy: &&Copy| copy.worth.fetchable() && !at.is_being_deleted(copy.donor);
    let fetchable = copies[piece].iter().filter(sends);
    ShardAt {
        position,
        name: at.name,
        len: at.len,
        from: fetchable.map(|copy| copy.donor).collect(),
        at: at.holders.iter().map(|(donor, _)| *donor).collect(),
    }
}

#[cfg(test)]
mod tests;
