//! Listings of a space as S3 has them: keys in the order of their bytes, below a prefix, with what follows a delimiter
//! rolled up, in pages.
//!
//! A directory lists its entries in the order of their names; keys come in another order where a directory's name
//! begins another name, because its keys go on with a slash: `a-x` comes before `a/b`. So a directory that was met
//! waits ([`Level::waiting`]) until all entries that come before its slash were given.

use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::control::{EntryKind, ListedEntry};
use potluck_wire::error::{Failure, code};
use std::collections::{BTreeMap, VecDeque};

/// A request for a page of keys.
#[derive(Debug, Clone, Default)]
pub struct KeyQuery<'a> {
    /// The beginning of all keys that are listed.
    pub prefix: &'a str,
    /// The text up to which keys that have it after the prefix are rolled up into one.
    pub delimiter: Option<&'a str>,
    /// The last key, or rolled up prefix, of the page before; empty for the first page.
    pub after: &'a str,
    /// The most keys and rolled up prefixes of the page.
    pub most: usize,
}

/// A page of keys.
#[derive(Debug, Default)]
pub struct KeyPage {
    /// The files, by their keys.
    pub files: Vec<(String, ListedEntry)>,
    /// The rolled up prefixes, each with its delimiter.
    pub prefixes: Vec<String>,
    /// The place after which the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// Lists a page of the keys in a space.
///
/// Errors: those of [`Pool::list_page`] for the space.
pub async fn list(
    pool: &Pool,
    bucket: &PoolPath,
    query: &KeyQuery<'_>,
) -> Result<KeyPage, Failure> {
    let mut page = KeyPage::default();
    if query.most == 0 {
        return Ok(page);
    }
    let (above, _) =
        query.prefix.rsplit_once('/').map_or(("", query.prefix), |(dir, rest)| (dir, rest));
    let names = above.split('/').filter(|_| !above.is_empty());
    let Ok(dir) = bucket.join_all(names) else { return Ok(page) }; // no key can begin so
    let key = if above.is_empty() { String::new() } else { format!("{above}/") };
    let Some(first) = Level::open(pool, dir, key, query).await? else { return Ok(page) };
    let mut levels = vec![first];
    let mut last = query.after.to_owned();
    while let Some(level) = levels.last_mut() {
        let Some((key, entry)) = level.next(pool).await? else {
            levels.pop();
            continue;
        };
        if !key.starts_with(query.prefix) && !query.prefix.starts_with(&key) {
            if key.as_str() > query.prefix {
                break;
            }
            continue;
        }
        let is_dir = entry.kind == EntryKind::Dir;
        let rolled = rolled_up(&key, query);
        let shown = rolled.unwrap_or(&key);
        let is_given = shown <= query.after && !(is_dir && rolled.is_none());
        let is_before = is_dir && key.as_str() <= query.after && !query.after.starts_with(&key);
        if is_given || is_before || rolled == Some(last.as_str()) {
            continue;
        }
        if is_dir && rolled.is_none() {
            let below = level.path.join(entry.path.as_str());
            let Ok(below) = below else { continue };
            levels.extend(Level::open(pool, below, key, query).await?);
            continue;
        }
        if entry.kind == EntryKind::Link {
            continue; // S3 knows no links
        }
        if page.files.len() + page.prefixes.len() == query.most {
            page.next = Some(last);
            return Ok(page);
        }
        last = shown.to_owned();
        match rolled {
            Some(prefix) => page.prefixes.push(prefix.to_owned()),
            None => page.files.push((key, entry)),
        }
    }
    Ok(page)
}

/// Returns the part of a key that stands for all keys with the same part, if the delimiter is in it.
fn rolled_up<'k>(key: &'k str, query: &KeyQuery<'_>) -> Option<&'k str> {
    let delimiter = query.delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let rest = key.strip_prefix(query.prefix)?;
    let at = rest.find(delimiter)?;
    Some(&key[..query.prefix.len() + at + delimiter.len()])
}

/// A directory whose entries are given in the order of their keys.
struct Level {
    path: PoolPath,
    /// The beginning of all keys in the directory.
    key: String,
    /// The entries that were listed and not looked at yet.
    listed: VecDeque<ListedEntry>,
    /// The name after which the next page of entries begins; `None` at the end.
    after: Option<Option<String>>,
    /// The entries that wait for others with lesser keys, by what follows the directory's key: directories, with a
    /// slash behind their names.
    waiting: BTreeMap<String, ListedEntry>,
}

impl Level {
    /// Opens a directory at the first entry that `query` may ask for; `None` where no directory is there.
    async fn open(
        pool: &Pool,
        path: PoolPath,
        key: String,
        query: &KeyQuery<'_>,
    ) -> Result<Option<Self>, Failure> {
        let within = |text: &str| {
            let rest = text.strip_prefix(&key)?;
            Some(rest.split('/').next().unwrap_or_default().to_owned())
        };
        let start = within(query.after).max(within(query.prefix)).unwrap_or_default();
        let mut waiting = BTreeMap::new();
        // A directory whose name begins the start may have greater keys than that, and comes before it in a listing;
        // and an entry of just that name is not listed after it.
        let ends = start.char_indices().map(|(at, letter)| (at, letter as u32));
        let ends = ends.filter(|(at, letter)| *at > 0 && *letter < u32::from('/'));
        let ends: Vec<usize> =
            ends.map(|(at, _)| at).chain((!start.is_empty()).then_some(start.len())).collect();
        for end in ends {
            let Ok(at) = path.join(&start[..end]) else { continue };
            match pool.stat_unjudged(&at).await {
                Ok(stated) => {
                    let is_dir = stated.entry.kind == EntryKind::Dir;
                    if is_dir || end == start.len() {
                        let entry = ListedEntry { path: start[..end].to_owned(), ..stated.entry };
                        waiting.insert(order_of(&entry), entry);
                    }
                }
                Err(failure) if is_nothing(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
        let is_name = path.join(&start).is_ok();
        let after = Some((is_name && !start.is_empty()).then_some(start));
        let mut level = Self { path, key, listed: VecDeque::new(), after, waiting };
        match level.list_more(pool).await {
            Ok(()) => Ok(Some(level)),
            Err(failure) if is_nothing(&failure) && !level.path.names().is_empty() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn list_more(&mut self, pool: &Pool) -> Result<(), Failure> {
        let Some(after) = self.after.take() else { return Ok(()) };
        let page = pool.list_page(&self.path, false, after).await?;
        self.after = page.next.map(Some);
        // A file lists itself, under no name.
        self.listed.extend(page.entries.into_iter().filter(|entry| !entry.path.is_empty()));
        Ok(())
    }

    /// Returns the next entry and its key; that of a directory ends in a slash.
    async fn next(&mut self, pool: &Pool) -> Result<Option<(String, ListedEntry)>, Failure> {
        loop {
            if self.listed.is_empty() && self.after.is_some() {
                self.list_more(pool).await?;
                continue;
            }
            let first_waits = match (self.listed.front(), self.waiting.first_key_value()) {
                (Some(entry), Some((waiting, _))) => entry.path.as_str() >= waiting.as_str(),
                (None, Some(_)) => true,
                (_, None) => false,
            };
            if first_waits && let Some((rest, entry)) = self.waiting.pop_first() {
                return Ok(Some((format!("{}{rest}", self.key), entry)));
            }
            let Some(entry) = self.listed.pop_front() else { return Ok(None) };
            if entry.kind != EntryKind::Dir {
                return Ok(Some((format!("{}{}", self.key, entry.path), entry)));
            }
            self.waiting.insert(order_of(&entry), entry);
        }
    }
}

/// Returns what an entry is ordered by in its directory.
fn order_of(entry: &ListedEntry) -> String {
    match entry.kind {
        EntryKind::Dir => format!("{}/", entry.path),
        EntryKind::File | EntryKind::Link => entry.path.clone(),
    }
}

fn is_nothing(failure: &Failure) -> bool {
    [code::NO_ENTRY, code::WRONG_KIND].contains(&&*failure.code)
}
