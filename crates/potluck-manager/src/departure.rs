//! The judgement of whether donors may go, and of what stands in the way. `status`, `nodes rm`, `members rm`, `drain`,
//! `give-back` and `leave` all show this one, and the manager removes donors by it.
//!
//! The effects of their leaving are found as a scan finds them, with their copies leaving, so that the forecast is what
//! happens afterwards. Donors that leave together are looked at together, because none of them can count on the copies
//! of another.

mod facts;
mod removal;
mod writes;

pub use removal::{RemovalTerms, needs, not_agreed};

use crate::callers::KnownMembers;
use crate::failure::too_few_donors;
use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan::leaving_below;
use crate::scan_state::{Leaving, ScanState};
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error, Met, PageLimit, Space};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, MemberId, SpaceId, VersionId};
use potluck_core::policy::Redundancy;
use potluck_core::size::count;
use potluck_pool::PoolView;
use potluck_pool::redundancy::{Findings, Layout, Moving, Version, judge_file};
use potluck_wire::control::{Health, HeldOf, HeldSpace, MOST_HELD_SPACES};
use potluck_wire::env::Env;
use std::cmp::{Reverse, max_by_key};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

handles! {
    /// The handles for looking at departures.
    pub struct Departures {
        settings: Arc<Settings>,
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        members: Arc<KnownMembers>,
        gc_freeze: Arc<GcFreeze>,
        scan_state: Arc<ScanState>,
    }
}

/// The most files that are listed by their paths.
const LISTED: usize = 100;
/// The numbers of chunks and of entries at which a step ends; the file or part that reaches one is still looked at.
const PAGE: PageLimit = PageLimit { chunks: 2048, entries: 512 };

/// Donors that leave together, or that are to hold less.
#[derive(Debug, Clone)]
pub struct Departure {
    /// The donors that leave, or that are to hold less.
    pub donors: BTreeSet<DonorId>,
    /// The bytes that leave each donor; `None` if all that it holds leaves.
    pub over: Option<u64>,
    /// The donor whose files are listed by their paths; `None` if the files of all donors are listed.
    pub told: Option<DonorId>,
}

impl Departure {
    /// Returns the departure of one donor with all that it holds, of which all files may be listed.
    pub fn of(donor: DonorId) -> Self {
        Self { donors: [donor].into(), over: None, told: None }
    }
}

/// The effects of a departure.
#[derive(Debug, Clone, Default)]
pub struct Outlook {
    /// The chunks that are made elsewhere first, and what blocks that.
    pub leaving: Leaving,
    /// The files that are lost if the donors go at once.
    pub loss: Loss,
    /// The files that are less safe if the donors go at once, until repair has made the rest.
    pub less_safe: LessSafe,
    /// The number of files, spaces and members whose data the donors hold.
    pub held_of: HeldOf,
    /// The files whose change to another redundancy cannot go on without the donors.
    pub stopped: StoppedChanges,
}

/// The files that are being changed to a redundancy for which too few donors are left once some leave. A change is no
/// promise yet, so that it never keeps a donor from leaving.
#[derive(Debug, Clone, Default)]
pub struct StoppedChanges {
    /// The number of donors that would take new copies.
    others: usize,
    /// The number of donors that take new copies now.
    takers: usize,
    /// The number of files.
    files: u64,
    /// The redundancy of one of these files, of those that need most donors.
    widest: Option<Redundancy>,
}

impl StoppedChanges {
    /// Counts a file if its change goes on now, and would not any more.
    fn count(&mut self, version: &Version, is_next: bool) {
        let needs = |goal: Redundancy| goal.donors() as usize;
        let stops = |goal: &Redundancy| (self.others + 1..=self.takers).contains(&needs(*goal));
        if let Some(goal) = version.goal.filter(stops) {
            self.files += u64::from(is_next);
            self.widest = self.widest.into_iter().chain([goal]).max_by_key(|goal| needs(*goal));
        }
    }

    /// Says which changes stop and why; `None` if none does.
    pub fn why(&self) -> Option<String> {
        let goal = self.widest?;
        Some(format!(
            "the change of {} to {goal} waits from then on, for {}; every file keeps the redundancy that it has",
            count(self.files, "file"),
            too_few_donors(goal, self.others)
        ))
    }
}

/// The files that are not lost if the donors go, but are less safe without them.
#[derive(Debug, Clone, Default)]
pub struct LessSafe {
    /// The paths of the first of these files.
    pub paths: Vec<String>,
    /// The number of files.
    pub files: u64,
}

/// The files that are lost if all copies at the donors go at once.
#[derive(Debug, Clone, Default)]
pub struct Loss {
    /// The paths of the first of these files.
    pub paths: Vec<String>,
    /// The number of lost or damaged files. A file that was moved during the look may count twice.
    pub files: u64,
    /// The versions of all these files, or of their lost parts, in order.
    pub versions: Vec<VersionId>,
    /// The number of files, or of parts, whose records are damaged, so that it is not known whether they are lost.
    pub damaged: u64,
}

impl Loss {
    /// Returns a digest of the whole list, by which a person can agree to it.
    pub fn digest(&self) -> Digest {
        let ids = self.versions.iter().map(|id| id.0).chain([self.damaged]);
        let packed: Vec<u8> = ids.flat_map(u64::to_le_bytes).collect();
        Digest::of(&packed)
    }
}

impl Departures {
    /// Looks at all files as if everything that is to leave had left the donors.
    pub async fn look(&self, departure: &Departure) -> Result<Outlook, Error> {
        let mut looking = self.looking(departure).await?;
        for space in self.catalog.spaces().await? {
            let space = Arc::new(space);
            looking.findings.walk(&space.name);
            let mut cursor: Option<String> = None;
            loop {
                let page = self.catalog.files_of(&space, cursor, PAGE).await?;
                let of = Arc::clone(&space);
                let judge = move || {
                    looking.judge(&of, page.files);
                    looking
                };
                looking = self.env.offload.run(judge).await;
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        let Looking { findings, mut loss, less_safe, files_held, spaces_held, stopped, .. } =
            looking;
        let makers: BTreeSet<_> = spaces_held.values().filter_map(|(by, _)| *by).collect();
        let spaces = spaces_held.len() as u64;
        let mut by_space: Vec<HeldSpace> =
            spaces_held.into_values().map(|(_, held)| held).collect();
        by_space.sort_by_key(|held| Reverse(held.bytes));
        by_space.truncate(MOST_HELD_SPACES);
        let held_of = HeldOf { files: files_held, spaces, members: makers.len() as u64, by_space };
        // A file that was moved meanwhile may have been met twice.
        loss.versions.sort_unstable();
        loss.versions.dedup();
        let mut leaving = Leaving { awaited: loss.files, ..Leaving::default() };
        for donor in &departure.donors {
            let Moving { chunks, bytes } = findings.moving.get(donor).copied().unwrap_or_default();
            leaving.moving.chunks += chunks;
            leaving.moving.bytes += bytes;
            leaving.unreached += findings.unreached.get(donor).copied().unwrap_or_default();
            // A chunk that several of the donors hold is counted at each, so the largest count is taken.
            let blocked = findings.blocked.get(donor).copied().unwrap_or_default();
            leaving.blocked = max_by_key(leaving.blocked, blocked, |blocked| blocked.chunks);
        }
        Ok(Outlook { leaving, loss, less_safe, held_of, stopped })
    }

    /// Prepares the look at a departure: the views of the pool by which files are judged.
    async fn looking(&self, departure: &Departure) -> Result<Looking, Error> {
        let donors = &departure.donors;
        let now = self.time.tick();
        let (view, stopped) = {
            let pool = self.pool.lock();
            let takers = |but| pool.willing(but, now).count();
            let (others, takers) = match departure.over {
                None => (takers(donors), takers(&BTreeSet::new())),
                Some(_) => Default::default(),
            };
            (pool.view(now), StoppedChanges { others, takers, ..StoppedChanges::default() })
        };
        let leaves = match departure.over {
            None => view.leaving(donors),
            Some(over) => {
                let mut shrinking = view.clone();
                for donor in donors {
                    let held = self.catalog.held_at(*donor).await?;
                    shrinking =
                        shrinking.shrinking(*donor, leaving_below(&held.bytes_by_part, over));
                }
                shrinking
            }
        };
        let mut findings = Findings::new(leaves);
        findings.metadata.health.asked = self.settings.get().metadata_copies;
        // A catalog that was restored may not know of copies that are there.
        let known = self.pool.lock().assembled(now) && self.gc_freeze.why().is_none();
        let pair = |view: &PoolView| [view.beside(donors), view.without(donors)];
        Ok(Looking {
            at_best: known.then(|| pair(&view.all_back())),
            now: pair(&view),
            staying: view.staying(donors),
            returned: view.staying(donors).back(donors),
            departure: departure.clone(),
            findings,
            loss: Loss::default(),
            less_safe: LessSafe::default(),
            files_held: 0,
            spaces_held: BTreeMap::new(),
            stopped,
            counted: Default::default(),
        })
    }
}

struct Looking {
    departure: Departure,
    /// The pool as it is, and without the donors that leave.
    now: [PoolView; 2],
    /// The pool as it would be if the donors stayed.
    staying: PoolView,
    /// The pool as it would be if the donors stayed, and those of them that were given up came back.
    returned: PoolView,
    /// The views of `now` if all donors that were given up came back. `None` while it is not known of all donors what
    /// they have.
    at_best: Option<[PoolView; 2]>,
    /// The findings of a scan in which all that is to leave is leaving.
    findings: Findings,
    loss: Loss,
    less_safe: LessSafe,
    /// The number of files of which the donors hold a part.
    files_held: u64,
    /// The spaces of these files, each with the member who made it and what of it is held.
    spaces_held: BTreeMap<SpaceId, (Option<MemberId>, HeldSpace)>,
    stopped: StoppedChanges,
    /// The paths of the files that were counted last, as lost, as less safe, as held and as being changed: the parts of
    /// a file are met one after the other, and it counts once.
    counted: [String; 4],
}

impl Looking {
    /// Returns whether a chunk of a file is at one of these donors.
    fn lies_at(layout: &Layout, is: impl Fn(&DonorId) -> bool) -> bool {
        let mut holders = layout.pieces.iter().flat_map(|piece| &piece.holders);
        holders.any(|(donor, _)| is(donor))
    }

    /// Returns how many stored bytes of a file the donors hold.
    fn held_bytes(&self, layout: &Layout) -> u64 {
        let is = |(donor, _): &&(DonorId, bool)| self.departure.donors.contains(donor);
        let pieces = layout.pieces.iter();
        let held = pieces
            .map(|piece| piece.holders.iter().filter(is).count() as u64 * u64::from(piece.len));
        held.sum()
    }

    /// Returns whether a file with this layout is listed by its path, after `told` were listed.
    fn is_told(&self, layout: Option<&Layout>, told: &[String], path: &str) -> bool {
        let at = |donor: DonorId| layout.is_none_or(|at| Self::lies_at(at, |one| *one == donor));
        let is_new = told.len() < LISTED && told.last().is_none_or(|last| last != path);
        is_new && self.departure.told.is_none_or(at)
    }

    /// Returns whether a file has less redundancy without the donors than if they stayed, or less than promised
    /// although the return of those that were given up would mend that.
    fn weakens(&self, version: &Version, layout: &Layout) -> bool {
        let health = |view| judge_file(version, layout, view).health;
        let measure = |health: &Health| (health.tolerates, Reverse(health.incomplete));
        let without = health(&self.now[1]);
        let lacks = without.incomplete > 0 || without.tolerates < Some(without.promised);
        measure(&without) < measure(&health(&self.staying))
            || lacks && measure(&without) < measure(&health(&self.returned))
    }

    /// Returns whether a file with chunks at the donors is lost because they go. A file that is lost even with them
    /// counts only if the return of all donors that were given up would bring it back, and would not without the donors
    /// that go. While it is not known what all donors have, every file that is lost without the donors counts.
    fn loses(&self, version: &Version, layout: &Layout) -> bool {
        let lost = |view: &PoolView| judge_file(version, layout, view).lost;
        let by_going = |[with, without]: &[PoolView; 2]| lost(without) && !lost(with);
        lost(&self.now[1]) && (by_going(&self.now) || self.at_best.as_ref().is_none_or(by_going))
    }

    /// Counts a user's file, or a part of one, that would be lost or less safe.
    fn weigh(&mut self, version: &Version, layout: &Layout, path: &str) {
        if self.loses(version, layout) {
            self.loss.versions.push(version.id);
            self.count_lost(Some(layout), path);
        } else if self.weakens(version, layout) {
            self.less_safe.files += u64::from(is_next(&mut self.counted[1], path));
            if self.is_told(Some(layout), &self.less_safe.paths, path) {
                self.less_safe.paths.push(path.into());
            }
        }
    }

    fn count_lost(&mut self, layout: Option<&Layout>, path: &str) {
        self.loss.files += u64::from(is_next(&mut self.counted[0], path));
        if self.is_told(layout, &self.loss.paths, path) {
            self.loss.paths.push(path.into());
        }
    }

    fn judge(&mut self, space: &Space, files: Vec<(String, Met)>) {
        let at = |path: &str| format!("pot://{}/{path}", space.name);
        for (path, met) in files {
            if let Met::File(version, _) | Met::Part(version, _) = &met
                && version.goal.is_some()
            {
                let is_next = is_next(&mut self.counted[3], &at(&path));
                self.stopped.count(version, is_next);
            }
            match met {
                Met::File(version, layout) | Met::Part(version, layout)
                    if Self::lies_at(&layout, |at| self.departure.donors.contains(at)) =>
                {
                    self.findings.add_any(&version, space.chunk_kind(), &layout);
                    // Lost parts of the pool's own metadata are written anew (log_copies::adapting), and a part of
                    // the chunks that a donor holds leaves only once it is elsewhere.
                    if !self.findings.own && self.departure.over.is_none() {
                        let new = u64::from(is_next(&mut self.counted[2], &at(&path)));
                        let bytes = self.held_bytes(&layout);
                        self.files_held += new;
                        let held = HeldSpace { sealed: space.keys.is_some(), ..Default::default() };
                        let known = self.spaces_held.entry(space.id);
                        let (_, held) = known.or_insert((space.made_by, held));
                        held.files += new;
                        held.bytes += bytes;
                        self.weigh(&version, &layout, &at(&path));
                    }
                }
                Met::File(..) | Met::Part(..) => {}
                Met::Damaged(_) if self.findings.own => {}
                // A damaged file may need what goes. Nothing is trimmed while its needs are unknown.
                Met::Damaged(_) => {
                    self.loss.damaged += 1;
                    self.count_lost(None, &at(&path));
                }
            }
        }
    }
}

/// Returns whether a path is another than the last, which it becomes.
fn is_next(last: &mut String, path: &str) -> bool {
    let is_next = last != path;
    if is_next {
        path.clone_into(last);
    }
    is_next
}
