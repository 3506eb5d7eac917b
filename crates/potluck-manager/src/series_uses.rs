//! Remembers the directories whose steps are purged by a rule, so that readers and writers of other paths need not ask
//! the catalog to note uses.

use potluck_catalog::Catalog;
use potluck_core::path::PoolPath;
use std::sync::Mutex;

/// The directories in which uses may count.
#[derive(Debug, Default)]
pub struct SeriesUses {
    /// The directories, or `None` if they have to be looked up anew and any path may be in one.
    counted_in: Mutex<Option<Vec<PoolPath>>>,
}

impl SeriesUses {
    /// Notes that uses count in these directories and in no others.
    pub fn are_counted_in(&self, series: Vec<PoolPath>) {
        *self.counted_in.lock().expect("no holder panics") = Some(series);
    }

    /// Notes that uses may count in other directories now, for example because a policy was set.
    pub fn may_be_others(&self) {
        *self.counted_in.lock().expect("no holder panics") = None;
    }

    /// Notes that the directory at a path was moved, with the series in it.
    pub fn moved(&self, from: &PoolPath) {
        let mut counted_in = self.counted_in.lock().expect("no holder panics");
        if counted_in.iter().flatten().any(|series| series.is_inside(from)) {
            *counted_in = None;
        }
    }

    fn count_at(&self, path: &PoolPath) -> bool {
        let counted_in = self.counted_in.lock().expect("no holder panics");
        let touches = |series: &PoolPath| path.is_inside(series) || series.is_inside(path);
        counted_in.as_ref().is_none_or(|series| series.iter().any(touches))
    }

    /// Notes in the catalog that files at a path, or below it, are read or written at `now_ms`, in the pool's time without
    /// its leaps. A failure to note it is only logged.
    pub async fn note(&self, catalog: &Catalog, path: &PoolPath, now_ms: u64) {
        if self.count_at(path)
            && let Err(why) = catalog.note_use(path.clone(), now_ms).await
        {
            tracing::warn!(%why, "the use of a step of a series is not noted");
        }
    }
}
