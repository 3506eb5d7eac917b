//! The writes and removals of files during the year, and the files that exist as their result.

use super::machines::Desk;
use crate::client::Sink;
use crate::content::Content;
use crate::draw::Draw;
use potluck_client::{ByteRange, Input, Item, Items, PutOptions, Quiet, cat, put};
use potluck_core::chunk::{INLINE_MAX, MIN_CHUNK};
use potluck_core::erasure::Ec;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Policy, Redundancy};
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

/// The number of files of a directory when it is made.
const PER_DIR: u64 = 20;
/// The number of tries of a write or removal.
const ATTEMPTS: u32 = 20;

/// A space, named by the redundancy of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Copies,
    Coded,
}

impl Space {
    const ALL: [Self; 2] = [Self::Copies, Self::Coded];

    fn name(self) -> &'static str {
        match self {
            Self::Copies => "copies",
            Self::Coded => "coded",
        }
    }

    fn policy(self) -> Policy {
        let policy = Policy { chunk_size: MIN_CHUNK, ..Policy::default() };
        match self {
            Self::Copies => Policy { copies: 2, ..policy },
            Self::Coded => Policy { ec: Some(Ec::new(2, 1).expect("a code")), ..policy },
        }
    }
}

struct Dir {
    number: u64,
    space: Space,
    files: Vec<(u64, Content)>,
}

impl Dir {
    fn path(&self) -> PoolPath {
        format!("pot://{}/dir-{}", self.space.name(), self.number).parse().expect("a path")
    }

    fn file(&self, number: u64) -> PoolPath {
        format!("{}/file-{number}", self.path()).parse().expect("a path")
    }
}

/// The files that exist, by directory.
pub struct Files {
    draw: Draw,
    dirs: Vec<Dir>,
    /// The number that was given last to a directory, file or content.
    last: u64,
    /// The number of tries of writes and removals that failed.
    pub tried_again: u64,
}

impl Files {
    /// Begins without files. `seed` decides which ones will be written and removed.
    pub fn none(seed: u64) -> Self {
        Self { draw: Draw::new(seed, "files"), dirs: Vec::new(), last: 0, tried_again: 0 }
    }

    /// Makes the spaces of the files.
    pub async fn make_spaces(desk: &Desk) -> Result<(), String> {
        for space in Space::ALL {
            desk.pool.create_space(space.name(), space.policy()).await.map_err(text)?;
        }
        Ok(())
    }

    /// Returns the number of files.
    pub fn count(&self) -> u64 {
        self.dirs.iter().map(|dir| dir.files.len() as u64).sum()
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.dirs.iter().flat_map(|dir| &dir.files).map(|(_, content)| content.len).sum()
    }

    /// Returns the bytes that chunks of these files need on donors with all their redundancy, without what a donor
    /// adds to a chunk.
    pub fn needed_on_donors(&self) -> u64 {
        let needed = |dir: &Dir| {
            let chunked = dir.files.iter().map(|(_, content)| content.len);
            let chunked = chunked.filter(|len| *len > INLINE_MAX);
            let needed = |len: u64| match dir.space.policy().redundancy() {
                Redundancy::Copies(copies) => len * u64::from(copies),
                // A group's parity chunk is as long as its longest chunk.
                Redundancy::Ec(ec) => {
                    let group = u64::from(MIN_CHUNK) * ec.data() as u64;
                    let parity = |rest: u64| rest.min(u64::from(MIN_CHUNK)) * ec.parity() as u64;
                    len + len / group * parity(group) + parity(len % group)
                }
            };
            chunked.map(needed).sum::<u64>()
        };
        self.dirs.iter().map(needed).sum()
    }

    fn new_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Draws a content. Most are small, as on desktops: three in five are stored in the catalog, and few have more than
    /// one chunk.
    fn new_content(&mut self) -> Content {
        let number = self.new_number();
        let chunk = u64::from(MIN_CHUNK);
        let len = match self.draw.below(100) {
            0..60 => self.draw.between(1, INLINE_MAX),
            60..97 => self.draw.between(INLINE_MAX + 1, 4 * INLINE_MAX),
            _ => self.draw.between(chunk, 5 * chunk / 2),
        };
        Content { number, len }
    }

    /// Writes at least `files` new files.
    pub async fn write(&mut self, desk: &Desk, files: u64) -> Result<(), String> {
        for _ in 0..files.div_ceil(PER_DIR) {
            let space = if self.draw.chance(20) { Space::Coded } else { Space::Copies };
            let mut dir = Dir { number: self.new_number(), space, files: Vec::new() };
            for _ in 0..PER_DIR {
                dir.files.push((self.new_number(), self.new_content()));
            }
            self.put(desk, &dir, &dir.files).await?;
            self.dirs.push(dir);
        }
        Ok(())
    }

    /// Writes new content to existing files, `files` times.
    pub async fn replace(&mut self, desk: &Desk, files: u64) -> Result<(), String> {
        for _ in 0..files {
            let at = self.draw.below(self.dirs.len() as u64) as usize;
            let content = self.new_content();
            let mut dir = self.dirs.swap_remove(at);
            let file = self.draw.below(dir.files.len() as u64) as usize;
            dir.files[file].1 = content;
            self.put(desk, &dir, &[dir.files[file]]).await?;
            self.dirs.push(dir);
        }
        Ok(())
    }

    /// Removes files until there are no more than `left`, about half of them with their whole directory.
    pub async fn remove(&mut self, desk: &Desk, left: u64) -> Result<(), String> {
        let mut excess = self.count().saturating_sub(left);
        while excess > 0 {
            let at = self.draw.below(self.dirs.len() as u64) as usize;
            let mut dir = self.dirs.swap_remove(at);
            let len = dir.files.len() as u64;
            if len == 1 || (len <= excess && self.draw.below(PER_DIR) == 0) {
                self.remove_path(desk, &dir.path(), true).await?;
                excess -= len;
                continue;
            }
            let file = self.draw.below(len) as usize;
            let (number, _) = dir.files.swap_remove(file);
            self.remove_path(desk, &dir.file(number), false).await?;
            excess -= 1;
            self.dirs.push(dir);
        }
        Ok(())
    }

    /// Writes all files of `self` into a pool that has none of them yet.
    pub async fn write_all(&mut self, desk: &Desk) -> Result<(), String> {
        let dirs = std::mem::take(&mut self.dirs);
        for dir in &dirs {
            self.put(desk, dir, &dir.files).await?;
        }
        self.dirs = dirs;
        Ok(())
    }

    async fn put(
        &mut self,
        desk: &Desk,
        dir: &Dir,
        files: &[(u64, Content)],
    ) -> Result<(), String> {
        for attempt in 1.. {
            let items = files.iter().map(|(number, content)| Item {
                path: dir.file(*number),
                input: Input::Stream(Box::new(Cursor::new(content.bytes()))),
            });
            let items: Items = Box::new(items.collect::<Vec<_>>().into_iter());
            let total = files.iter().map(|(_, content)| content.len).sum();
            let options = PutOptions { bytes: Some(total), ..PutOptions::default() };
            let put = put(&desk.pool, &dir.path(), items, &options, Arc::new(Quiet)).await;
            let why = match put {
                Ok(report) => match report.failed.first() {
                    None => break,
                    Some((_, why)) => why.to_string(),
                },
                Err(why) => why.to_string(),
            };
            self.try_again(attempt, format!("{} cannot be written: {why}", dir.path())).await?;
        }
        Ok(())
    }

    async fn remove_path(
        &mut self,
        desk: &Desk,
        path: &PoolPath,
        recursive: bool,
    ) -> Result<(), String> {
        for attempt in 1.. {
            match desk.pool.remove(path, recursive).await {
                Ok(_) => break,
                Err(why) => self.try_again(attempt, format!("{path} stays: {why}")).await?,
            }
        }
        Ok(())
    }

    async fn try_again(&mut self, attempt: u32, why: String) -> Result<(), String> {
        self.tried_again += 1;
        if attempt == ATTEMPTS {
            return Err(why);
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(())
    }

    /// Reads every file back.
    ///
    /// Errors: a file cannot be read, or has other bytes.
    pub async fn compare(&self, desk: &Desk) -> Result<(), String> {
        for dir in &self.dirs {
            for (number, content) in &dir.files {
                let (path, out) = (dir.file(*number), Sink::default());
                let all = ByteRange::From(0, None);
                let read = cat(&desk.pool, &path, all, None, out.clone(), Arc::new(Quiet)).await;
                read.map_err(|why| format!("D1 is broken: {path} cannot be read: {why}"))?;
                if *out.0.lock().expect("no holder panics") != content.bytes() {
                    return Err(format!("I1 is broken: {path} has other bytes"));
                }
            }
        }
        Ok(())
    }
}

fn text(why: impl ToString) -> String {
    why.to_string()
}
