//! Whether a donor may go, and what stands in the way: the one judgement that `status`,
//! `nodes rm`, `nodes drain` and `give-back` show.
//!
//! What its leaving means is found as a survey finds it, with its copies leaving: what is said
//! before is what happens afterwards.

use crate::catalog::units::{self, Layout, Met, Root};
use crate::catalog::versions::Version;
use crate::catalog::walk::Walk;
use crate::catalog::{Error, placements};
use crate::failure;
use crate::pool::Standings;
use crate::service::Service;
use crate::survey::{Blocked, Findings, Moving, judge_file, kind_of};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::size::{count, format_size};
use potluck_wire::control::{Going, MayGo};
use rusqlite::Connection;

/// Files listed by name.
const LISTED: usize = 100;
/// Entries looked at in one step.
const PAGE: usize = 512;

/// What it means that all a donor has leaves it.
#[derive(Debug, Clone, Default)]
pub struct Outlook {
    /// What is made elsewhere first.
    pub moving: Moving,
    /// What of that nobody takes.
    pub blocked: Blocked,
    /// What is lost when it goes at once.
    pub loss: Loss,
}

/// Files that are lost when all that a donor has goes at once.
#[derive(Debug, Clone, Default)]
pub struct Loss {
    /// The first by path.
    pub paths: Vec<String>,
    /// How many.
    pub files: u64,
    /// All of them, in order, …
    pub versions: Vec<VersionId>,
    /// … and files whose records are damaged, so that nobody knows.
    pub damaged: u64,
}

impl Loss {
    /// What a whole list is called, so that it can be agreed to.
    pub fn digest(&self) -> Digest {
        let ids = self.versions.iter().map(|id| id.0).chain([self.damaged]);
        let packed: Vec<u8> = ids.flat_map(u64::to_le_bytes).collect();
        Digest::of(&packed)
    }
}

/// Looks at everything a donor has as if that left it.
pub async fn look(service: &Service, donor: DonorId) -> Result<Outlook, Error> {
    let mut looking = Looking::new(service, donor);
    let roots = service.catalog.read(units::roots).await?;
    for root in roots {
        looking.findings.walk(&root);
        let mut cursor: Option<String> = None;
        loop {
            let root = root.clone();
            let step = move |db: &Connection| {
                let next = looking.page(db, &root, cursor.as_deref())?;
                Ok((looking, next))
            };
            (looking, cursor) = service.catalog.read(step).await?;
            if cursor.is_none() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let Looking { findings, mut loss, .. } = looking;
    // One that was moved meanwhile may have been met twice.
    loss.versions.sort_unstable();
    loss.versions.dedup();
    loss.files = loss.versions.len() as u64 + loss.damaged;
    Ok(Outlook {
        moving: findings.moving.get(&donor).copied().unwrap_or_default(),
        blocked: findings.blocked.get(&donor).copied().unwrap_or_default(),
        loss,
    })
}

struct Looking {
    donor: DonorId,
    /// The donors as they are, and without this one, …
    now: [Standings; 2],
    /// … and the same if those that were given up came back. `None` while it is not known of all
    /// others what they have.
    at_best: Option<[Standings; 2]>,
    /// What a survey would find if all that the donor has left it.
    findings: Findings,
    loss: Loss,
}

impl Looking {
    fn new(service: &Service, donor: DonorId) -> Self {
        // A catalog that was restored may not know of copies that are there.
        let restored = service.gc_held().is_some();
        let now = service.time.tick();
        let pool = service.pool();
        let known = pool.assembled(now) && !restored;
        let standings = pool.standings(now);
        drop(pool);
        let pair = |standings: &Standings| [standings.beside(donor), standings.without(donor)];
        let at_best = known.then(|| pair(&standings.all_back()));
        let now = pair(&standings);
        let mut findings = Findings::new(standings.leaving(donor));
        findings.metadata.health.asked = service.config().metadata_copies;
        Self { donor, now, at_best, findings, loss: Loss::default() }
    }

    /// Whether a part of a file is at the donor.
    fn lies_there(&self, layout: &Layout) -> bool {
        let mut holders = layout.pieces.iter().flat_map(|piece| &piece.holders);
        holders.any(|(donor, _)| *donor == self.donor)
    }

    /// Whether a file that lies there is lost because this donor goes. One that cannot be read as it is, is not,
    /// if it could not be read either were all the others back, or could be without this donor.
    fn loses(&self, version: &Version, layout: &Layout) -> bool {
        let lost = |standings: &Standings| judge_file(version, layout, standings).lost;
        let by_going = |[with, without]: &[Standings; 2]| lost(without) && !lost(with);
        lost(&self.now[1]) && (by_going(&self.now) || self.at_best.as_ref().is_none_or(by_going))
    }

    fn page(
        &mut self,
        db: &Connection,
        root: &Root,
        cursor: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let mut walk = Walk::new(db, root.dir, true, cursor)?;
        let mut last = None;
        for _ in 0..PAGE {
            let Some((path, met)) = units::meet(db, &mut walk)? else { return Ok(None) };
            let lost = match met {
                Met::File(version, layout) if self.lies_there(&layout) => {
                    self.findings.add_any(&version, kind_of(root, &path), &path, &layout);
                    // What is lost of the pool's own metadata is written anew (backup::adapting).
                    let lost = !self.findings.own && self.loses(&version, &layout);
                    self.loss.versions.extend(lost.then_some(version.id));
                    lost
                }
                Met::Dir | Met::File(..) => false,
                Met::Damaged(_) if self.findings.own => false,
                // It may need what goes. Nothing is trimmed while its needs are unknown.
                Met::Damaged(_) => {
                    self.loss.damaged += 1;
                    true
                }
            };
            if lost && self.loss.paths.len() < LISTED {
                self.loss.paths.push(format!("pot://{}/{path}", root.name));
            }
            last = Some(path);
        }
        Ok(last)
    }
}

/// Whether a donor may go: by a look at all it has, or by what the last survey found.
pub async fn may_go(
    service: &Service,
    donor: DonorId,
    outlook: Option<&Outlook>,
) -> Result<MayGo, Error> {
    let (used, _) = service.catalog.read(move |db| placements::used_at(db, donor)).await?;
    let now = service.time.tick();
    let (surveyed, moving, blocked, only_there) = {
        let kept = service.keeper.kept();
        let surveyed = kept.began.is_some();
        match outlook {
            Some(look) => (surveyed, look.moving, look.blocked, look.loss.files),
            None => {
                let of = kept.of(donor);
                (surveyed, of.moving, of.blocked, of.awaited)
            }
        }
    };
    let pool = service.pool();
    let contact = pool.contact(donor, now);
    let facts = Facts {
        name: contact.map(|contact| contact.name).unwrap_or_default(),
        heard: pool.is_heard(donor, now),
        gone: pool.is_gone(donor, now),
        compared: pool.vouches(donor, now),
        gives_back: pool.giving(donor).is_some(),
        written: pool.is_written(donor),
        others: pool.stayers(donor, now),
        room: pool.room(Some(donor), now),
        surveyed,
        used,
        moving,
        blocked,
        only_there,
    };
    Ok(facts.judge())
}

/// What the judgement is made of.
#[derive(Debug, Clone, Default)]
struct Facts {
    name: String,
    /// It answers.
    heard: bool,
    /// It was given up.
    gone: bool,
    /// It has told what it holds.
    compared: bool,
    /// Whether its owner or an admin asked for all of it back.
    gives_back: bool,
    /// A write session may store there.
    written: bool,
    /// Donors that stay.
    others: usize,
    /// Bytes that they can take.
    room: u64,
    /// Whether a survey looked at everything since the manager's start.
    surveyed: bool,
    /// Chunks there that files use.
    used: u64,
    moving: Moving,
    blocked: Blocked,
    /// Files that need what only it has.
    only_there: u64,
}

impl Facts {
    fn judge(&self) -> MayGo {
        let name = &self.name;
        let say =
            |verdict, why: String, advice: &str| MayGo { verdict, why, advice: advice.into() };
        if self.used == 0 && (self.compared || self.gone) && !self.written {
            return say(Going::Now, "nothing that files use is there".into(), "");
        }
        if !self.surveyed {
            let why = "how safe files are is still being looked at".into();
            return say(Going::NotKnown, why, "ask again in a moment");
        }
        if self.gone {
            return match self.only_there {
                0 => say(
                    Going::Now,
                    format!("{name} is given up, and no file needs what it had"),
                    "",
                ),
                files => say(
                    Going::Stuck,
                    format!("{name} is given up, and {} only it has", need(files)),
                    "bring it back; `potluck nodes rm --force` loses these files",
                ),
            };
        }
        if !self.heard {
            return say(
                Going::Stuck,
                format!("{name} is not heard, and nothing can be moved off it until it is"),
                "start `potluck lend` there, or wait until it is given up",
            );
        }
        if self.used == 0 {
            let why = match self.compared {
                true => "a write under way may still store something there".into(),
                false => format!("{name} has not told yet what it holds"),
            };
            return say(Going::NotKnown, why, "ask again in a moment");
        }
        if self.blocked.chunks > 0 {
            let narrow = self.blocked.widest.filter(|wide| wide.donors() as usize > self.others);
            let why = match narrow {
                Some(wide) => failure::too_few_donors(wide, self.others),
                None => format!(
                    "no other donor takes {}: they have no room, or fail together with those that \
                     have the other copies",
                    count(self.blocked.chunks, "chunk")
                ),
            };
            let advice = "lend more on another machine (`potluck lend`), or ask for less redundancy \
                          (`potluck policy set`)";
            return say(Going::Stuck, why, advice);
        }
        if self.moving.bytes > self.room {
            let (bytes, room) = (format_size(self.moving.bytes), format_size(self.room));
            let why = format!("{bytes} have to move, and the others have {room} free");
            return say(Going::Stuck, why, "lend more on another machine (`potluck lend`)");
        }
        let advice = match self.gives_back {
            true => "wait until it is done: `potluck status`".to_owned(),
            false => format!("`potluck nodes drain {name}`, or `potluck give-back --all` there"),
        };
        let why = match (self.moving.chunks, self.gives_back) {
            (0, true) => "what is there has enough copies elsewhere and is being deleted".into(),
            (0, false) => "what is there has enough copies elsewhere".into(),
            (moving, _) => format!(
                "{}, {}, move to other donors first",
                count(moving, "chunk"),
                format_size(self.moving.bytes)
            ),
        };
        say(Going::AfterMoving, why, &advice)
    }
}

fn need(files: u64) -> String {
    if files == 1 { "1 file needs what".into() } else { format!("{files} files need what") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::policy::Redundancy;

    #[test]
    fn what_may_go_is_said_with_what_stands_in_the_way() {
        let live = Facts {
            name: "desk".into(),
            heard: true,
            compared: true,
            surveyed: true,
            used: 4,
            others: 2,
            room: 100,
            moving: Moving { chunks: 3, bytes: 60 },
            ..Facts::default()
        };
        let narrow = Blocked { chunks: 3, widest: Some(Redundancy::Copies(3)) };
        let full = Blocked { chunks: 3, widest: Some(Redundancy::Copies(2)) };
        let gone = Facts { heard: false, compared: false, gone: true, ..live.clone() };
        for (facts, verdict, said) in [
            (live.clone(), Going::AfterMoving, "3 chunks, 60 B, move"),
            (Facts { moving: Moving::default(), ..live.clone() }, Going::AfterMoving, "enough"),
            (Facts { used: 0, ..live.clone() }, Going::Now, "nothing that files use"),
            (Facts { used: 0, written: true, ..live.clone() }, Going::NotKnown, "a write"),
            (Facts { used: 0, compared: false, ..live.clone() }, Going::NotKnown, "not told yet"),
            (Facts { surveyed: false, ..live.clone() }, Going::NotKnown, "being looked at"),
            (Facts { room: 59, ..live.clone() }, Going::Stuck, "the others have 59 B free"),
            (
                Facts { blocked: narrow, ..live.clone() },
                Going::Stuck,
                "3 copies need 3 donors and 2",
            ),
            (
                Facts { blocked: full, ..live.clone() },
                Going::Stuck,
                "no other donor takes 3 chunks",
            ),
            (Facts { heard: false, ..live.clone() }, Going::Stuck, "not heard"),
            (gone.clone(), Going::Now, "no file needs what it had"),
            (
                Facts { only_there: 1, ..gone.clone() },
                Going::Stuck,
                "1 file needs what only it has",
            ),
            (Facts { surveyed: false, ..gone }, Going::NotKnown, "being looked at"),
        ] {
            let judged = facts.judge();
            assert_eq!(judged.verdict, verdict, "{facts:?}");
            assert!(judged.why.contains(said), "{judged:?}");
            assert_eq!(judged.advice.is_empty(), verdict == Going::Now, "{judged:?}");
        }
    }
}
