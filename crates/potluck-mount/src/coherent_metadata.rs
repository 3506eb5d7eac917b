//! The metadata of the pool as a mount sees it: from memory while the manager tells of changes, and otherwise from the
//! manager.

use crate::draft::PublishedChange;
use crate::errno::errno;
use crate::metadata_cache::{Fetch, MetadataCache};
use potluck_client::{Pool, RetryLimits};
use potluck_core::attributes::FileTime;
use potluck_core::checkpoint::CheckpointId;
use potluck_core::ids::WatchId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{
    DirChange, DirNews, KnownDir, ListedEntry, Refresh, Watch, refreshed_at_once,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use rustix::io::Errno;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

/// The most bytes of metadata that a mount keeps: those of some 200,000 entries.
const KEPT: usize = 64 << 20;
/// The pause between two calls for news, so that many changes in a row come in one answer. A mount is also told of the
/// changes that its own programs make.
const NEWS_EVERY: Duration = Duration::from_millis(20);
/// The pause after a call for news that was not answered.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause after a call for news that was refused, as to a member who was revoked.
const PAUSE_OF_REFUSED: Duration = Duration::from_secs(10);

/// A question about a directory, and the manager's answer.
type Answer = (KnownDir, DirNews);

/// The number of pages that are fetched of a whole directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    All,
    /// Only the entries that one call returns are fetched.
    First,
}

/// The metadata of a mount.
pub struct CoherentMetadata {
    pool: Pool,
    /// The pool for calls for news, which do not wait for a manager that is away, so that its absence is noticed.
    listening: Pool,
    cache: Mutex<MetadataCache>,
    /// The channel that passes changes on; a change is left out while the channel is full.
    passed_on: OnceLock<SyncSender<DirChange>>,
}

/// A stream of news, and the number of the last news that arrived.
#[derive(Clone, Copy)]
struct HeardStream {
    id: WatchId,
    number: u64,
}

impl CoherentMetadata {
    /// Makes metadata that knows nothing yet, and keeps nothing before [`Self::follow`] runs.
    pub fn new(pool: Pool) -> Self {
        let at_once = RetryLimits { at_first: Duration::ZERO, ..pool.retry_limits() };
        let listening = pool.with_retry_limits(at_once);
        let cache = Mutex::new(MetadataCache::new(KEPT));
        Self { pool, listening, cache, passed_on: OnceLock::new() }
    }

    /// Runs `publish`, which publishes a draft at a path, and updates the cache. If the manager told when the directory
    /// was modified, the directory stays known, with that time.
    pub async fn publishing(
        &self,
        path: &PoolPath,
        publish: impl Future<Output = Result<PublishedChange, Errno>>,
    ) -> Result<(), Errno> {
        let dir = path.parent();
        let above = dir.as_ref().and_then(MetadataCache::above);
        let fetch = self.cache().begin_publication(above.as_ref());
        let published = publish.await;
        let mut cache = self.cache();
        if published != Ok(PublishedChange::Nothing) {
            cache.changed(path);
        }
        match (&dir, &published) {
            (Some(dir), Ok(PublishedChange::Content { dir_modified: Some(modified) })) => {
                cache.finish_modified(fetch, dir, *modified);
            }
            (dir, outcome) => {
                cache.finish(fetch, &[]);
                let failed = dir.iter().filter(|_| outcome.is_err());
                failed.for_each(|dir| cache.touched(dir));
            }
        }
        published.map(drop)
    }

    /// Runs `change`, by which this mount has names come or go at `paths`, and updates the cache. If the manager told
    /// when their directories were modified, these stay known, with that time.
    pub async fn changing(
        &self,
        paths: &[&PoolPath],
        change: impl Future<Output = Result<Option<FileTime>, Errno>>,
    ) -> Result<Option<FileTime>, Errno> {
        let dirs: Vec<_> = paths.iter().filter_map(|path| path.parent()).collect();
        let begin = |dir| (self.cache().begin_publication(MetadataCache::above(dir).as_ref()), dir);
        let fetches: Vec<_> = dirs.iter().map(begin).collect();
        let changed = change.await;
        let mut cache = self.cache();
        paths.iter().for_each(|path| cache.changed(path));
        for (fetch, dir) in fetches {
            match changed {
                Ok(Some(modified)) => cache.finish_modified(fetch, dir, modified),
                Ok(None) | Err(_) => {
                    cache.finish(fetch, &[]);
                    cache.touched(dir);
                }
            }
        }
        changed
    }

    /// Sets the channel that passes changes on; a second call has no effect.
    pub fn pass_on(&self, changes: SyncSender<DirChange>) {
        let _ = self.passed_on.set(changes);
    }

    fn cache(&self) -> MutexGuard<'_, MetadataCache> {
        self.cache.lock().expect("no holder panics")
    }

    /// Returns the entry at a path, which is not the root of the pool.
    pub async fn entry(&self, path: &PoolPath) -> Result<ListedEntry, Errno> {
        if path.file_name().is_some_and(|name| CheckpointId::of_staging_name(name).is_some()) {
            // A staging directory is listed in no other, so it is asked for by its path.
            let stated = self.pool.stat(path).await;
            return stated.map(|stated| stated.entry).map_err(|failure| errno(&failure));
        }
        let known = self.cache().entry(path, self.pool.now());
        if let Some(known) = known {
            return known.ok_or(Errno::NOENT);
        }
        let with_its_directory = self.cache().missing_with_its_directory(path);
        if let Some(questions) = with_its_directory {
            // The path may still be unknown afterwards: the answer may not be kept, or have only a part of the
            // directory.
            self.fetch(questions, Pages::First).await?;
            let known = self.cache().entry(path, self.pool.now());
            if let Some(known) = known {
                return known.ok_or(Errno::NOENT);
            }
        }
        let questions = self.cache().missing(path);
        let (asked, news) = self.fetch(questions, Pages::All).await?;
        let name = asked.names.first().map(|asked| asked.name.as_str());
        let entry = news.entries.into_iter().find(|entry| name == Some(&entry.path));
        entry.ok_or(Errno::NOENT)
    }

    /// Returns the entry at a path; its attributes may be out of date.
    pub async fn place(&self, path: &PoolPath) -> Result<ListedEntry, Errno> {
        let known = self.cache().place(path, self.pool.now());
        match known {
            Some(known) => known.ok_or(Errno::NOENT),
            None => self.entry(path).await,
        }
    }

    /// Returns the entries of a directory.
    pub async fn list(&self, path: &PoolPath) -> Result<Vec<ListedEntry>, Errno> {
        let known = self.cache().listing(path, self.pool.now());
        if let Some(entries) = known {
            return Ok(entries);
        }
        let mut questions = self.cache().missing_of_listing(path);
        let is_whole = questions.last().is_some_and(|asked| asked.whole);
        if !is_whole {
            // Only some names changed; others may change while these are asked for.
            self.fetch(questions, Pages::All).await?;
            let known = self.cache().listing(path, self.pool.now());
            if let Some(entries) = known {
                return Ok(entries);
            }
            questions = vec![KnownDir { whole: true, ..KnownDir::new(path.clone()) }];
        }
        Ok(self.fetch(questions, Pages::All).await?.1.entries)
    }

    /// Returns whether no change of an entry is known since it was listed in `dir`.
    pub fn is_as_listed(&self, dir: &PoolPath, entry: &ListedEntry) -> bool {
        self.cache().is_as_listed(dir, entry)
    }

    /// Asks the manager and keeps its answers; returns the last, or its failure.
    async fn fetch(&self, questions: Vec<KnownDir>, pages: Pages) -> Result<Answer, Errno> {
        let fetch = self.cache().begin(questions.iter().map(|asked| &asked.path));
        let _under_way = UnderWay { metadata: self, fetch };
        let answers = ask(&self.pool, fetch.stream, questions, pages).await;
        self.cache().finish(fetch, answers.as_deref().unwrap_or_default());
        let last = answers.map_err(|failure| errno(&failure))?.pop().ok_or(Errno::IO)?;
        match &last.1.failure {
            Some(failure) => Err(errno(failure)),
            None => Ok(last),
        }
    }

    /// Notes that this mount changed the entry at a path, or may have, and with it the modification time of its
    /// directory.
    pub fn changed_here(&self, path: &PoolPath) {
        let mut cache = self.cache();
        cache.changed(path);
        if let Some(above) = path.parent() {
            cache.touched(&above);
        }
    }

    /// Receives news of changes until `metadata` is dropped by all others.
    pub async fn follow(metadata: Weak<Self>) {
        let mut stream = None;
        while let Some(this) = metadata.upgrade() {
            let heard = match stream {
                None => this.begin().await,
                Some(stream) => this.hear(stream).await,
            };
            let failure = match heard {
                Ok(heard) => {
                    stream = Some(heard);
                    drop(this);
                    tokio::time::sleep(NEWS_EVERY).await;
                    continue;
                }
                Err(failure) => failure,
            };
            this.cache().suspend();
            drop(this);
            stream = None;
            tracing::debug!(%failure, "nobody tells of changes: metadata is asked of the manager");
            let is_away = failure.code == code::NO_MANAGER || failure.kind == ErrorKind::Retry;
            tokio::time::sleep(if is_away { PAUSE } else { PAUSE_OF_REFUSED }).await;
        }
    }

    /// Opens a stream, and compares the metadata that is kept from an earlier one with the manager.
    async fn begin(&self) -> Result<HeardStream, Failure> {
        let opened = self.listening.call(&Watch::default()).await?;
        self.revalidate(opened.stream).await
    }

    /// Waits for news of a stream; returns the stream for the next call, which is another if the manager does not know
    /// this one, as after its restart.
    async fn hear(&self, stream: HeardStream) -> Result<HeardStream, Failure> {
        let asked = self.pool.now();
        let call = Watch { stream: Some(stream.id), heard: stream.number };
        let news = self.listening.call(&call).await?;
        if news.stream != stream.id {
            return self.revalidate(news.stream).await;
        }
        let mut cache = self.cache();
        if news.everything {
            cache.clear();
        }
        news.dirs.iter().for_each(|change| cache.apply(change));
        cache.heard(asked);
        drop(cache);
        // This comes last, so that the receiver of a change finds the cache up to date.
        if let Some(passed_on) = self.passed_on.get() {
            news.dirs.into_iter().for_each(|change| drop(passed_on.try_send(change)));
        }
        Ok(HeardStream { number: news.number, ..stream })
    }

    /// Has a new stream watch all that is kept, and learns what of it changed before that.
    async fn revalidate(&self, stream: WatchId) -> Result<HeardStream, Failure> {
        // The manager may have been started again, and then knows of no leases.
        self.pool.renew_leases_now();
        let asked = self.pool.now();
        let (fetch, questions) = {
            let mut cache = self.cache();
            cache.suspend();
            cache.begin_revalidation(stream)
        };
        let answers = match questions.is_empty() {
            true => Vec::new(),
            false => ask(&self.listening, Some(stream), questions, Pages::All).await?,
        };
        self.cache().resume(stream, asked, fetch, &answers);
        Ok(HeardStream { id: stream, number: 0 })
    }
}

/// A fetch whose caller may stop waiting for the answer. It ends when this is dropped, if it has not ended before:
/// otherwise all later changes would be noted for it.
struct UnderWay<'a> {
    metadata: &'a CoherentMetadata,
    fetch: Fetch,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.metadata.cache().finish(self.fetch, &[]);
    }
}

/// Asks the manager about directories, in as many calls as it takes; with [`Pages::All`] the pages of a listing become
/// one answer.
async fn ask(
    pool: &Pool,
    watch: Option<WatchId>,
    questions: Vec<KnownDir>,
    pages: Pages,
) -> Result<Vec<Answer>, Failure> {
    let mut answers = Vec::new();
    let mut left = questions;
    while !left.is_empty() {
        let later = left.split_off(refreshed_at_once(&left));
        let call = Refresh { watch, dirs: left };
        let answered = pool.call(&call).await?.dirs;
        let mut asked = call.dirs.into_iter();
        if answered.is_empty() {
            let what = "the manager answered nothing about directories";
            return Err(Failure::new(ErrorKind::Other, code::CATALOG, what));
        }
        for (asked, mut news) in asked.by_ref().take(answered.len()).zip(answered) {
            // A question with names is a comparison, for which no further pages are fetched.
            while pages == Pages::All
                && asked.whole
                && asked.names.is_empty()
                && news.next.is_some()
            {
                let page = next_page(pool, watch, &asked, news.next.take()).await?;
                news.entries.extend(page.entries);
                news.watched &= page.watched;
                (news.next, news.failure) = (page.next, page.failure);
            }
            answers.push((asked, news));
        }
        left = asked.chain(later).collect();
    }
    Ok(answers)
}

async fn next_page(
    pool: &Pool,
    watch: Option<WatchId>,
    asked: &KnownDir,
    after: Option<String>,
) -> Result<DirNews, Failure> {
    let dirs = vec![KnownDir { after, ..asked.clone() }];
    let mut pages = pool.call(&Refresh { watch, dirs }).await?.dirs;
    Ok(pages.pop().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::no_manager;

    #[tokio::test]
    async fn a_fetch_that_nobody_waits_for_any_more_has_ended() {
        let pool = no_manager::pool();
        let patient = RetryLimits { at_first: Duration::from_secs(600), ..pool.retry_limits() };
        let metadata = CoherentMetadata::new(pool.with_retry_limits(patient));
        let stream = WatchId([1; 16]);
        {
            let mut cache = metadata.cache();
            let (fetch, _) = cache.begin_revalidation(stream);
            cache.resume(stream, pool.now(), fetch, &[]);
        }
        let path: PoolPath = "pot://lab/f".parse().expect("a path");
        let asked = tokio::time::timeout(Duration::from_millis(1), metadata.entry(&path)).await;
        assert!(asked.is_err(), "no manager answers");
        assert_eq!(metadata.cache().fetches_under_way(), 0);
    }
}
