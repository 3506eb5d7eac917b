//! Purges the old steps of series by the rules of their directories, but never a step that is pinned or being read, nor
//! the newest step that is whole.

use crate::handles::handles;
use crate::outcomes::Outcomes;
use crate::pool_time::PoolTime;
use crate::series_uses::SeriesUses;
use crate::shared_pool::SharedPool;
use crate::wakeup::Wakeup;
use potluck_catalog::{Catalog, Error, LEASE, Met, PageLimit, SeenSpaces, SeriesStep};
use potluck_core::path::PoolPath;
use potluck_pool::redundancy::judge_file;
use potluck_wire::control::{HealthLevel, SeriesSteps, StepAbout, StepFate};
use potluck_wire::env::Env;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

handles! {
    /// The handles for purging steps.
    pub struct SeriesPurger {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        uses: Arc<SeriesUses>,
        background: Wakeup,
    }
}

/// The time between two looks at series.
const EVERY: Duration = Duration::from_secs(30);
/// The most files and chunks of a step that are judged at once.
const JUDGED: PageLimit = PageLimit { chunks: 20_000, entries: 2000 };
/// The most steps of which one transaction notes that they are used.
const NOTED_AT_ONCE: usize = 512;
/// The most steps that one transaction purges. A directory is one entry, whatever is in it.
const PURGED_AT_ONCE: usize = 8;
/// The most of the newest steps of which each transaction sees that they are there. In a series that keeps more, it is no
/// matter if one is lacking.
const RELIED_ON: usize = 256;

impl SeriesPurger {
    /// Purges all series every [`EVERY`], until it is dropped.
    pub async fn run(self) {
        let mut outcomes = Outcomes::default();
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            outcomes.note("purging steps of series", self.purge_all().await);
        }
    }

    /// Purges the steps that the rules of all series let go.
    pub async fn purge_all(&self) -> Result<(), Error> {
        let all = self.catalog.all_series().await?;
        self.uses.are_counted_in(all.clone());
        if !self.knows_readers() {
            return Ok(());
        }
        for path in all {
            match self.purge(path, false).await {
                Err(why) if why.is_of_catalog() => return Err(why),
                // The series was removed meanwhile, or somebody should look at it; it does not hold up the others.
                Err(why) => tracing::warn!(%why, "a series is not purged"),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Returns whether the steps are known that are being read: after a restart of the manager, readers first have to say
    /// again which versions they have open.
    pub fn knows_readers(&self) -> bool {
        !self.time.is_restarted_within(LEASE)
    }

    /// Purges the steps that the rule of a series lets go, or with `dry_run` none. Returns the fate of every step.
    pub async fn purge(&self, path: PoolPath, dry_run: bool) -> Result<SeriesSteps, Error> {
        let when = self.time.when();
        let mut series = self.catalog.series(path.clone(), when).await?;
        let now_ms = self.time.without_leaps_ms();
        let used = if dry_run { Vec::new() } else { series.use_steps(now_ms) };
        for names in used.chunks(NOTED_AT_ONCE) {
            self.catalog.note_steps(path.clone(), names.to_vec(), now_ms).await?;
        }
        let steps = std::mem::take(&mut series.steps);
        let fates = steps.iter().map(|step| match step.reason {
            None => StepFate::Stays,
            Some(_) if step.pinned => StepFate::Pinned,
            Some(_) if step.is_read => StepFate::BeingRead,
            Some(reason) => StepFate::Purged(reason),
        });
        let mut fates: Vec<StepFate> = fates.collect();
        let mut whole = None;
        if fates.iter().any(is_purged) {
            // The newest whole step is kept even if an older one is pinned.
            for (at, step) in steps.iter().enumerate() {
                let step = path.join(&step.name).ok();
                if let Some(step) = step
                    && self.is_whole(step).await?
                {
                    whole = Some(at);
                    break;
                }
            }
            match whole {
                Some(at) if is_purged(&fates[at]) => fates[at] = StepFate::LastWhole,
                Some(_) => {}
                // No step is whole now, and it is not known which of them will be again, so all stay.
                None => fates.iter_mut().filter(|fate| is_purged(fate)).for_each(|fate| {
                    *fate = StepFate::LastWhole;
                }),
            }
        }
        if !dry_run {
            let purged = steps.iter().zip(&fates).filter(|(_, fate)| is_purged(fate));
            let mut purged: Vec<SeriesStep> = purged.map(|(step, _)| step.clone()).collect();
            purged.reverse(); // the oldest goes first, whatever ends this
            let newest = series.rule.keep_last.unwrap_or(0) as usize;
            series.relied_on = relied_on(&steps, &fates, newest, whole);
            let looked_at = Arc::new(series.clone()); // without its steps
            for steps in purged.chunks(PURGED_AT_ONCE) {
                let (of, when) = (Arc::clone(&looked_at), self.time.when());
                let purged = self.catalog.purge_steps(of, steps.to_vec(), when).await?;
                if !purged.is_empty() {
                    tracing::info!(%path, ?purged, "steps of a series were purged");
                }
            }
            self.background.wake();
        }
        let about = steps.into_iter().zip(fates).map(|(step, fate)| StepAbout {
            name: step.name,
            dir: step.dir.is_some(),
            mtime: step.mtime,
            fate,
        });
        Ok(SeriesSteps { rule: series.rule, steps: about.collect() })
    }

    /// Returns whether all of a step can be read at this moment. A step without a byte is not whole.
    async fn is_whole(&self, path: PoolPath) -> Result<bool, Error> {
        let used = self.catalog.usage(path.clone(), None, 1000, SeenSpaces::ALL).await;
        match used {
            Ok(used) if used.bytes == 0 && used.next.is_none() => return Ok(false),
            Err(Error::NoEntry(_)) => return Ok(false),
            used => drop(used?),
        }
        let mut after = None;
        loop {
            let page = self.catalog.files_at(path.clone(), after, JUDGED, SeenSpaces::ALL).await?;
            let (files, view) = (page.files, self.pool.lock().view(self.time.tick()));
            let judge = move || {
                files.iter().all(|(_, met)| match met {
                    Met::File(version, layout) | Met::Part(version, layout) => {
                        judge_file(version, layout, &view).health.level < HealthLevel::Unreadable
                    }
                    Met::Damaged(_) => false,
                })
            };
            if !self.env.offload.run(judge).await {
                return Ok(false);
            }
            after = page.next;
            if after.is_none() {
                return Ok(true);
            }
        }
    }
}

fn is_purged(fate: &StepFate) -> bool {
    matches!(fate, StepFate::Purged(_))
}

/// Returns the steps that must still be there for others to be purged: the `whole` one, and those of the `newest` that
/// stay. Somebody may remove them while a long series is purged.
fn relied_on(
    steps: &[SeriesStep],
    fates: &[StepFate],
    newest: usize,
    whole: Option<usize>,
) -> Vec<SeriesStep> {
    let is_needed = |at: usize| at < newest.min(RELIED_ON) || Some(at) == whole;
    let staying = steps.iter().zip(fates).enumerate();
    let needed = staying.filter(|(at, (_, fate))| is_needed(*at) && !is_purged(fate));
    needed.map(|(_, (step, _))| step.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::attributes::FileTime;
    use potluck_core::policy::PurgeReason;

    #[test]
    fn series_purge_requires_newest_steps_and_a_whole_one() {
        let step = |name: &str| SeriesStep {
            name: name.into(),
            dir: None,
            mtime: FileTime(1),
            pinned: false,
            is_read: false,
            used_ms: 0,
            reason: None,
        };
        let steps = ["newest", "aged", "pinned", "whole", "oldest"].map(step);
        let (aged, beyond) = (PurgeReason::Age, PurgeReason::BeyondLast);
        let fates = [
            StepFate::Stays,
            StepFate::Purged(aged),
            StepFate::Pinned,
            StepFate::LastWhole,
            StepFate::Purged(beyond),
        ];
        let names = |newest, whole| -> Vec<String> {
            relied_on(&steps, &fates, newest, whole).into_iter().map(|step| step.name).collect()
        };
        assert_eq!(names(2, Some(3)), ["newest", "whole"]);
        assert_eq!(names(0, Some(2)), ["pinned"]);
        assert_eq!(names(9, None), ["newest", "pinned", "whole"]);
    }
}
