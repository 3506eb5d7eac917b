//! What a survey finds.

use super::file::{File, copies, judged};
use crate::catalog::units::{Layout, Root, Unit};
use crate::catalog::versions::Version;
use crate::pool::{Rule, Standings};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::Redundancy;
use potluck_core::repair_plan::{Copy, Domain, Judged, Stand, Worth};
use potluck_wire::control::SpaceHealth;
use std::collections::{BTreeMap, BTreeSet};

/// Units that wait to be made whole; the least urgent beyond that wait for the next survey.
const MAX_QUEUED: usize = 16_384;
/// Copies in excess that are remembered; more are found when these are gone.
const MAX_EXCESS: usize = 65_536;
/// Versions noted for one purpose; more are found by the next survey.
const MAX_NOTED: usize = 16_384;
/// Groups to be encoded that are remembered.
const MAX_ENCODE: usize = 1024;

/// A unit that lacks something.
#[derive(Debug, Clone)]
pub struct Job {
    /// Of which version, which unit, and whether of what the version is being changed to.
    pub unit: (VersionId, u32, bool),
    /// What its chunks are to the pool.
    pub kind: ChunkKind,
    /// How many more deaths it survives.
    pub tolerates: u32,
    /// Whether an owner who needs the space waits for it.
    pub pressed: bool,
    /// The code, with the data chunks of the group.
    pub group: Option<(Ec, usize)>,
    /// Its chunks, by shard; of copies only one.
    pub shards: Vec<ShardAt>,
    /// What to make.
    pub make: Vec<Make>,
    /// Donors the unit relies on.
    pub used: Vec<(DonorId, Domain)>,
}

/// A chunk of a unit.
#[derive(Debug, Clone)]
pub struct ShardAt {
    /// Its position in the code.
    pub position: u8,
    /// Its name.
    pub name: ChunkName,
    /// Its stored bytes.
    pub len: u32,
    /// Who can send it now, the trusted first.
    pub from: Vec<DonorId>,
    /// Who has it, in whatever state.
    pub at: Vec<DonorId>,
}

/// A copy to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Make {
    /// Of which shard.
    pub shard: usize,
    /// Whether no copy of it counts anywhere.
    pub missing: bool,
}

impl Job {
    /// Whether everything it takes can be had.
    pub fn has_source(&self, make: &Make) -> bool {
        !self.shards[make.shard].from.is_empty() || self.rebuildable()
    }

    /// Whether its group can rebuild any of its chunks.
    pub fn rebuildable(&self) -> bool {
        let have = self.shards.iter().filter(|shard| !shard.from.is_empty()).count();
        self.group.is_some_and(|(_, data)| have >= data)
    }
}

/// What units say of a copy that none of them may need.
#[derive(Debug, Clone, Default)]
pub struct Excess {
    /// Occurrences of the chunk in recipes that can do without the copy.
    pub votes: i64,
    /// Whether some unit needs it.
    pub needed: bool,
    /// References the chunk had.
    pub refs: i64,
    /// What must be there when it is deleted.
    pub keep: BTreeSet<(ChunkName, DonorId)>,
    /// What is freed.
    pub len: u32,
}

/// What is still to leave a donor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moving {
    /// Chunks that have to be made elsewhere first, counted for each use.
    pub chunks: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

/// A group whose parity is to be computed.
#[derive(Debug, Clone)]
pub struct Encode {
    /// Of which version.
    pub version: VersionId,
    /// Which group.
    pub group: u32,
    /// In which code.
    pub ec: Ec,
    /// Its data chunks.
    pub shards: Vec<ShardAt>,
}

/// What a survey found.
#[derive(Debug, Default)]
pub struct Findings {
    /// The donors as they were when it began.
    pub standings: Standings,
    /// Each space.
    pub spaces: Vec<SpaceHealth>,
    /// Units to be made whole, the most urgent first.
    pub queue: BTreeMap<(u32, u64), Job>,
    /// Those of which copies are to leave a donor whose owner needs the space.
    pub pressed: BTreeMap<(u32, u64), Job>,
    /// Chunks lacking, by how many more deaths their units survive.
    pub lacking: Vec<u64>,
    /// Their stored bytes.
    pub lacking_bytes: u64,
    /// Chunks that cannot be had.
    pub sourceless: u64,
    /// Whether there was more than can be remembered.
    pub more: bool,
    /// Copies that may be too many.
    pub excess: BTreeMap<(ChunkName, DonorId), Excess>,
    /// Whether there were more than can be remembered.
    pub more_excess: bool,
    /// Copies that were to be deleted and are needed.
    pub keep: Vec<(DonorId, ChunkName)>,
    /// Versions that have all they should for the first time.
    pub safe: Vec<VersionId>,
    /// Versions that have what they are being changed to.
    pub arrived: Vec<(VersionId, Redundancy)>,
    /// Groups without parity of versions on their way to a code.
    pub encode: Vec<Encode>,
    /// What leaves each donor.
    pub moving: BTreeMap<DonorId, Moving>,
    jobs: u64,
}

/// A unit under the survey's eyes.
struct Look<'a> {
    version: &'a Version,
    kind: ChunkKind,
    layout: &'a Layout,
    unit: &'a Unit,
    judged: Judged,
    copies: &'a [Vec<Copy>],
    /// Whether it is of what the version is being changed to.
    goal: bool,
}

impl Look<'_> {
    /// Whether a shard relies on this copy of a piece.
    fn relies_on(&self, piece: usize, donor: DonorId) -> bool {
        let mut shards = self.unit.shards.iter().zip(&self.judged.shards);
        shards.any(|(other, stand)| *other == piece && *stand == Stand::Apart(donor))
    }

    /// Whether the unit's use of a piece is one of the references to it: what a version is being
    /// changed to has references to its parity only.
    fn counts(&self, piece: usize) -> bool {
        !self.goal || piece >= self.layout.data
    }

    fn shard(&self, piece: usize, position: u8) -> ShardAt {
        shard_at(self.layout, self.copies, piece, position)
    }
}

impl Findings {
    /// An empty survey.
    pub fn new(standings: Standings) -> Self {
        Self { standings, ..Self::default() }
    }

    /// The next space is walked.
    pub fn enter(&mut self, root: &Root, policy: Redundancy) {
        self.spaces.push(SpaceHealth {
            name: root.name.clone(),
            policy: Some(policy),
            tolerates: Some(u32::MAX),
            surveyed: true,
            ..SpaceHealth::default()
        });
    }

    /// A file of the space entered last.
    pub fn add(&mut self, version: &Version, kind: ChunkKind, layout: &Layout) {
        let copies = copies(layout, &self.standings);
        let mut file = File::new(version);
        let mut whole = true;
        for unit in &layout.units {
            let judged = judged(unit, &copies);
            file.count(unit, &judged, &copies);
            whole &= judged.complete();
            self.unit(&Look { version, kind, layout, unit, judged, copies: &copies, goal: false });
        }
        let mut arrived = layout.unencoded.is_empty();
        for unit in &layout.goal {
            let judged = judged(unit, &copies);
            arrived &= judged.complete() && judged.readable;
            self.unit(&Look { version, kind, layout, unit, judged, copies: &copies, goal: true });
        }
        if let Some(goal) = version.goal {
            if arrived && self.arrived.len() < MAX_NOTED {
                self.arrived.push((version.id, goal));
            }
            self.note_unencoded(version, layout, goal, &copies);
        }
        if whole && version.safe_wall_ms.is_none() && self.safe.len() < MAX_NOTED {
            self.safe.push(version.id);
        }
        let File { health, may_return, .. } = file.done();
        if let Some(space) = self.spaces.last_mut() {
            space.files += 1;
            space.unreadable += u64::from(health.unreadable > 0);
            space.lost += u64::from(health.unreadable > 0 && !may_return);
            space.incomplete += u64::from(health.incomplete > 0);
            space.changing += u64::from(version.goal.is_some());
            if version.chunks > 0 {
                space.tolerates = match (space.tolerates, health.tolerates) {
                    (Some(before), Some(now)) => Some(before.min(now)),
                    _ => None,
                };
            }
        }
    }

    /// The space entered last was walked to its end.
    pub fn leave(&mut self) {
        if let Some(space) = self.spaces.last_mut()
            && space.tolerates == Some(u32::MAX)
        {
            // Nothing in it is on donors.
            space.tolerates = space.policy.map(Redundancy::tolerates);
        }
    }

    fn unit(&mut self, look: &Look<'_>) {
        if !look.judged.complete() {
            self.enqueue(look);
        }
        self.vote(look);
    }

    fn enqueue(&mut self, look: &Look<'_>) {
        let (unit, judged) = (look.unit, &look.judged);
        let copied = unit.group.is_none();
        let mut make = Vec::new();
        let mut pressed = false;
        for shard in judged.lacking() {
            let piece = &look.layout.pieces[unit.shards[shard]];
            let mut copies = look.copies[unit.shards[shard]].iter();
            pressed |= copies.any(|copy| self.presses(copy));
            // A copy on its way out is there: it need only stay.
            let stays = piece.holders.iter().find(|(donor, leaving)| {
                let standing = self.standings.get(*donor);
                *leaving && standing.is_some_and(|at| at.worth == Worth::Counts && at.takes)
            });
            match stays {
                Some((donor, _)) if self.keep.len() < MAX_NOTED => {
                    self.keep.push((*donor, piece.name));
                }
                _ => make.push(Make {
                    shard: if copied { 0 } else { shard },
                    missing: judged.shards[shard] == Stand::Missing,
                }),
            }
        }
        let shards = if copied { &unit.shards[..1] } else { &unit.shards[..] };
        let shard = |(at, piece): (usize, &usize)| look.shard(*piece, unit.position(at));
        let relied = judged.shards.iter().filter_map(|stand| match stand {
            Stand::Apart(donor) | Stand::Crowded(donor) => Some(*donor),
            Stand::Missing => None,
        });
        let domain = |donor| Some((donor, self.standings.get(donor)?.domain));
        let job = Job {
            unit: (look.version.id, unit.number, look.goal),
            kind: look.kind,
            tolerates: judged.matching.saturating_sub(judged.need) as u32,
            pressed,
            group: unit.group,
            shards: shards.iter().enumerate().map(shard).collect(),
            used: relied.filter_map(domain).collect(),
            make,
        };
        self.push(job);
    }

    fn push(&mut self, mut job: Job) {
        let sourceless = job.make.iter().filter(|make| !job.has_source(make)).count();
        self.sourceless += sourceless as u64;
        if sourceless > 0 {
            let make = job.make.clone();
            job.make = make.into_iter().filter(|make| job.has_source(make)).collect();
        }
        if job.make.is_empty() {
            return;
        }
        let slot = job.tolerates as usize;
        if self.lacking.len() <= slot {
            self.lacking.resize(slot + 1, 0);
        }
        self.lacking[slot] += job.make.len() as u64;
        self.lacking_bytes +=
            job.make.iter().map(|make| u64::from(job.shards[make.shard].len)).sum::<u64>();
        let queue = if job.pressed { &mut self.pressed } else { &mut self.queue };
        queue.insert((job.tolerates, self.jobs), job);
        self.jobs += 1;
        if queue.len() > MAX_QUEUED {
            queue.pop_last();
            self.more = true;
        }
    }

    /// Whether a copy is on its way out because its donor's owner needs the space.
    fn presses(&self, copy: &Copy) -> bool {
        copy.worth == Worth::Source
            && self.standings.get(copy.donor).is_some_and(|standing| standing.pressed)
    }

    /// Says of every copy in the unit whether the unit can do without it.
    fn vote(&mut self, look: &Look<'_>) {
        let unit = look.unit;
        // Copies of one chunk are one occurrence of it; each shard of a group is one.
        let occurrences = if unit.group.is_none() { 1 } else { unit.shards.len() };
        for piece in unit.shards[..occurrences].iter().copied() {
            for copy in &look.copies[piece] {
                if copy.worth == Worth::Lost || look.relies_on(piece, copy.donor) {
                    self.needs(look, piece, copy);
                } else {
                    match self.dispensable(&look.judged, copy) {
                        Some(whole) => self.can_go(look, piece, copy, whole),
                        None => self.needs(look, piece, copy),
                    }
                }
            }
        }
    }

    /// Whether a copy that no shard relies on may go, and if so whether the unit is whole then.
    fn dispensable(&self, judged: &Judged, copy: &Copy) -> Option<bool> {
        if judged.complete() {
            return Some(true);
        }
        let rule = self.standings.get(copy.donor).map(|standing| standing.rule)?;
        let safe = judged.matching > judged.need && judged.readable;
        let goes = copy.worth == Worth::Source
            && match rule {
                Rule::WhenWhole => false,
                Rule::WhenSafe => safe,
                Rule::AtOnce => true,
            };
        goes.then_some(false)
    }

    /// A unit cannot do without a copy: that chunk's votes never reach its references.
    fn needs(&mut self, look: &Look<'_>, piece: usize, copy: &Copy) {
        let chunk = &look.layout.pieces[piece];
        if look.counts(piece) {
            if copy.worth == Worth::Source {
                let moving = self.moving.entry(copy.donor).or_default();
                moving.chunks += 1;
                moving.bytes += u64::from(chunk.len);
            }
        } else if self.excess.len() < MAX_EXCESS {
            // This unit has no vote of its own to withhold.
            self.excess.entry((chunk.name, copy.donor)).or_default().needed = true;
        } else if let Some(excess) = self.excess.get_mut(&(chunk.name, copy.donor)) {
            excess.needed = true;
        }
    }

    fn can_go(&mut self, look: &Look<'_>, piece: usize, copy: &Copy, whole: bool) {
        let chunk = &look.layout.pieces[piece];
        let key = (chunk.name, copy.donor);
        if self.excess.len() >= MAX_EXCESS && !self.excess.contains_key(&key) {
            self.more_excess = true;
            return;
        }
        let at_once =
            self.standings.get(copy.donor).is_some_and(|standing| standing.rule == Rule::AtOnce);
        let excess = self.excess.entry(key).or_default();
        (excess.refs, excess.len) = (chunk.refs, chunk.len);
        excess.votes += i64::from(look.counts(piece));
        if !at_once {
            let relied = look.unit.shards.iter().zip(&look.judged.shards);
            excess.keep.extend(relied.filter_map(|(other, stand)| match stand {
                // A whole unit misses nothing of its other shards; another relies on them all.
                Stand::Apart(donor) if !whole || *other == piece => {
                    Some((look.layout.pieces[*other].name, *donor))
                }
                _ => None,
            }));
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
            if self.encode.len() >= MAX_ENCODE {
                self.more = true;
                return;
            }
            let Some(range) = ec.groups(layout.data).nth(*group as usize) else { continue };
            let shard = |(at, piece): (usize, usize)| shard_at(layout, copies, piece, at as u8);
            let shards: Vec<ShardAt> = range.enumerate().map(shard).collect();
            if shards.iter().all(|shard| !shard.from.is_empty()) {
                self.encode.push(Encode { version: version.id, group: *group, ec, shards });
            }
        }
    }
}

fn shard_at(layout: &Layout, copies: &[Vec<Copy>], piece: usize, position: u8) -> ShardAt {
    let fetchable = copies[piece].iter().filter(|copy| copy.worth.fetchable());
    let at = &layout.pieces[piece];
    ShardAt {
        position,
        name: at.name,
        len: at.len,
        from: fetchable.map(|copy| copy.donor).collect(),
        at: at.holders.iter().map(|(donor, _)| *donor).collect(),
    }
}
