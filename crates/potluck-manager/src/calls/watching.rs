//! Answers the calls of clients that keep metadata: watch streams, and updates of the directories that they know.

use super::{Answer, Verb};
use crate::access::Access;
use crate::audit_log::Auditor;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::watches::Watches;
use potluck_catalog::{Catalog, Error, SeenSpaces};
use potluck_core::chunk::Digest;
use potluck_core::entry_stamp::EntryStamp;
use potluck_core::path::PoolPath;
use potluck_core::rights::Right;
use potluck_wire::control::{
    DirDigest, DirNews, KnownDir, ListedEntry, Refresh, Refreshed, Watch, WatchNews,
    refreshed_at_once,
};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

handles! {
    /// The handles for answering calls of clients that keep metadata.
    pub struct WatchCalls {
        env: Env,
        time: PoolTime,
        catalog: Catalog,
        access: Access,
        watches: Arc<Watches>,
        auditor: Auditor,
    }
}

impl Answer<Watch> for WatchCalls {
    async fn answer(self, call: Watch, caller: CallingMember) -> Result<WatchNews, Failure> {
        let member = caller.member()?.member;
        self.watches.news(member, call, self.time.tick(), &*self.env.entropy).await
    }
}

/// The number of entries of whole directories after which a call looks at no further directory.
const LOOKED_AT: usize = 50_000;

impl Answer<Refresh> for WatchCalls {
    async fn answer(self, call: Refresh, caller: CallingMember) -> Result<Refreshed, Failure> {
        let Refresh { watch, mut dirs } = call;
        dirs.truncate(refreshed_at_once(&dirs));
        let member = caller.member()?.member;
        let changes_of_rights = self.watches.changes_of_rights();
        let mut seen = BTreeMap::new();
        for dir in &dirs {
            if !seen.contains_key(dir.path.space()) {
                let of_space = self.access.seen_at(&caller, &dir.path).await;
                if let Err(why) = &of_space {
                    self.auditor.refused(&caller, Verb::Refresh.name(), why);
                }
                seen.insert(dir.path.space().to_owned(), of_space);
            }
        }
        let may_list = |dir: &&KnownDir| seen[dir.path.space()].is_ok();
        // The watch begins before anything is read, so that the stream is told of every change after the reading.
        let watched = match &watch {
            Some(stream) => {
                let listed = dirs.iter().filter(may_list).map(|dir| &dir.path);
                self.watches.watch(stream, member, listed, changes_of_rights)
            }
            None => Vec::new(),
        };
        let mut watched = watched.into_iter();
        let names = |dir: &KnownDir| dir.names.iter().map(|known| known.name.clone()).collect();
        let asked = dirs.iter().filter(may_list).map(|dir| (dir.path.clone(), names(dir)));
        let mut found = self.catalog.look_up(asked.collect()).await?.into_iter();
        let (mut news, mut left) = (Vec::new(), LOOKED_AT);
        for dir in dirs {
            let seen = match &seen[dir.path.space()] {
                Ok(seen) => seen,
                Err(failure) => {
                    news.push(DirNews { failure: Some(failure.clone()), ..DirNews::default() });
                    continue;
                }
            };
            let is_watched = watched.next().unwrap_or(false);
            let found = found.next().unwrap_or(Err(Error::Closed));
            if left == 0 {
                break;
            }
            let mut compared = DirNews { watched: is_watched, ..DirNews::default() };
            match self.compare(dir, found, seen, &mut compared, &mut left).await {
                Ok(()) => news.push(compared),
                Err(failure) => {
                    let failure = Some(failure);
                    news.push(DirNews { watched: is_watched, failure, ..DirNews::default() });
                }
            }
        }
        Ok(Refreshed { dirs: news })
    }
}

impl WatchCalls {
    /// Compares a directory with what a client knows of it, and adds the differences that the client may see to `news`.
    /// `found` has the entries of the names that the client asked about.
    async fn compare(
        &self,
        dir: KnownDir,
        found: Result<Vec<Option<ListedEntry>>, Error>,
        seen: &SeenSpaces,
        news: &mut DirNews,
        left: &mut usize,
    ) -> Result<(), Failure> {
        let KnownDir { path, names, whole, after, digest } = dir;
        for (known, found) in names.iter().zip(found?) {
            let found = found.filter(|_| is_shown(&path, &known.name, seen));
            let stamp = found.as_ref().map_or(EntryStamp::NOTHING, ListedEntry::stamp);
            if known.stamp == Some(stamp) {
                continue;
            }
            match found {
                Some(entry) => news.entries.push(entry),
                None => news.gone.push(known.name.clone()),
            }
        }
        if let Some(digest) = digest {
            news.same = self.digest(&path, seen, left).await? == Some(digest);
        }
        if whole {
            let asked: HashSet<&str> = names.iter().map(|known| known.name.as_str()).collect();
            let page = self.catalog.list_directory(path.clone(), false, after, seen.clone());
            let page = page.await?;
            *left = left.saturating_sub(page.entries.len());
            let others = page.entries.into_iter();
            news.entries.extend(others.filter(|entry| !asked.contains(entry.path.as_str())));
            news.next = page.next;
        }
        for entry in &mut news.entries {
            let space = if path.space().is_empty() { entry.path.as_str() } else { path.space() };
            if !seen.rights(space).allow(Right::Read) {
                entry.digest = None;
                entry.metadata = None;
            }
        }
        Ok(())
    }

    /// Returns the digest of a whole directory; `None` if it has more entries than may still be looked at.
    async fn digest(
        &self,
        path: &PoolPath,
        seen: &SeenSpaces,
        left: &mut usize,
    ) -> Result<Option<Digest>, Failure> {
        let (mut digest, mut after) = (DirDigest::default(), None);
        loop {
            let page = self.catalog.list_directory(path.clone(), false, after, seen.clone());
            let page = page.await?;
            page.entries.iter().for_each(|entry| digest.add(&entry.path, &entry.stamp()));
            *left = left.saturating_sub(page.entries.len());
            after = page.next;
            match after {
                None => return Ok(Some(digest.finish())),
                Some(_) if *left == 0 => return Ok(None),
                Some(_) => {}
            }
        }
    }
}

/// Returns true for a name that is shown to the member. In the root of the pool, the member sees the spaces that it may
/// list; elsewhere it sees all names that a path can have.
fn is_shown(dir: &PoolPath, name: &str, seen: &SeenSpaces) -> bool {
    let is_path = dir.join(name).is_ok();
    is_path && (!dir.space().is_empty() || seen.rights(name).allow(Right::List))
}
