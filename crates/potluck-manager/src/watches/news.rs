//! The news that a watch stream has still to hear. They are bounded, so that a client that does not ask takes no more
//! than its share of memory.

use potluck_core::attributes::FileTime;
use potluck_core::ids::WatchId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{DirChange, WatchNews};
use std::collections::BTreeMap;

/// The most names of one directory that are told one by one.
const NAMES_OF_DIR: usize = 256;
/// The most bytes of names and directories that wait for one stream.
const BYTES: usize = 256 << 10;
/// The number of bytes that a name counts beside those of its text; a directory counts twice as many.
const OVERHEAD: usize = 64;

/// The changes that a stream has to hear of.
#[derive(Debug, Default)]
pub struct News {
    everything: bool,
    dirs: BTreeMap<PoolPath, ChangedNames>,
    bytes: usize,
}

#[derive(Debug)]
enum ChangedNames {
    Some(BTreeMap<String, NameNews>),
    All,
}

/// The news of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameNews {
    /// The entry of this name is a directory that was modified at this time.
    Modified(FileTime),
    /// The attributes of the entry of this name were set.
    Touched,
    /// There is another entry of this name.
    Changed,
    /// There is no entry of this name any more.
    Absent,
}

impl NameNews {
    /// Returns the news that these and `newer` ones of the same name add up to.
    fn then(self, newer: Self) -> Self {
        match (self, newer) {
            (Self::Touched, Self::Modified(_)) => Self::Touched,
            (Self::Modified(_) | Self::Touched, newer) => newer,
            (Self::Changed | Self::Absent, Self::Modified(_) | Self::Touched) => Self::Changed,
            (_, newer) => newer,
        }
    }
}

/// The part of the pool that a stream's news tell as changed as a whole from now on, so that it need not be watched any
/// more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToldWhole {
    Nothing,
    Dir,
    Everything,
}

impl News {
    /// Returns whether there are no news.
    pub fn is_empty(&self) -> bool {
        !self.everything && self.dirs.is_empty()
    }

    /// Adds that something happened to a name.
    pub fn add_name(&mut self, dir: &PoolPath, name: &str, now: NameNews) -> ToldWhole {
        if self.everything {
            return ToldWhole::Everything;
        }
        let added = match self.dirs.get_mut(dir) {
            Some(ChangedNames::All) => return ToldWhole::Dir,
            Some(ChangedNames::Some(names)) => {
                let before = names.get(name).copied();
                if before.is_none() && names.len() >= NAMES_OF_DIR {
                    return self.add_dir(dir);
                }
                names.insert(name.into(), before.map_or(now, |before| before.then(now)));
                if before.is_some() { 0 } else { name.len() + OVERHEAD }
            }
            None => {
                let names = BTreeMap::from([(name.to_owned(), now)]);
                self.dirs.insert(dir.clone(), ChangedNames::Some(names));
                name.len() + bytes_of(dir)
            }
        };
        self.grow(added, ToldWhole::Nothing)
    }

    /// Adds that any name of a directory may have changed.
    pub fn add_dir(&mut self, dir: &PoolPath) -> ToldWhole {
        if self.everything {
            return ToldWhole::Everything;
        }
        // The bytes that its names were counted with stay counted until the news are sent.
        let before = self.dirs.insert(dir.clone(), ChangedNames::All);
        self.grow(before.map_or(bytes_of(dir), |_| 0), ToldWhole::Dir)
    }

    /// Adds that anything may have changed.
    pub fn add_everything(&mut self) -> ToldWhole {
        *self = Self { everything: true, ..Self::default() };
        ToldWhole::Everything
    }

    fn grow(&mut self, bytes: usize, told: ToldWhole) -> ToldWhole {
        self.bytes += bytes;
        if self.bytes > BYTES { self.add_everything() } else { told }
    }

    /// Adds older news to these, and returns the directories that are told as a whole because of that; `None` if
    /// everything is.
    pub fn add_older(&mut self, older: Self) -> Option<Vec<PoolPath>> {
        if older.everything {
            self.add_everything();
        }
        let mut whole = Vec::new();
        for (dir, names) in older.dirs {
            let told = match names {
                ChangedNames::All => self.add_dir(&dir),
                ChangedNames::Some(names) => {
                    let mut told = ToldWhole::Nothing;
                    for (name, before) in names {
                        told = match self.set_older(&dir, &name, before) {
                            true => ToldWhole::Nothing,
                            false => self.add_name(&dir, &name, before),
                        };
                    }
                    told
                }
            };
            match told {
                ToldWhole::Nothing => {}
                ToldWhole::Dir => whole.push(dir),
                ToldWhole::Everything => break,
            }
        }
        (!self.everything).then_some(whole)
    }

    /// Puts older news of a name before those that there are of it. Returns false if there are none.
    fn set_older(&mut self, dir: &PoolPath, name: &str, before: NameNews) -> bool {
        let Some(ChangedNames::Some(names)) = self.dirs.get_mut(dir) else { return false };
        let Some(newest) = names.get_mut(name) else { return false };
        *newest = before.then(*newest);
        true
    }

    /// Returns the message by which the news are sent, under a number.
    pub fn to_message(&self, stream: WatchId, number: u64) -> WatchNews {
        let dirs = self.dirs.iter().map(|(dir, names)| {
            let mut change = DirChange::new(dir.clone());
            match names {
                ChangedNames::All => change.all = true,
                ChangedNames::Some(names) => {
                    for (name, now) in names {
                        let list = match now {
                            NameNews::Modified(at) => {
                                change.modified.push((name.clone(), *at));
                                continue;
                            }
                            NameNews::Touched => &mut change.attributes,
                            NameNews::Changed => &mut change.changed,
                            NameNews::Absent => &mut change.gone,
                        };
                        list.push(name.clone());
                    }
                }
            }
            change
        });
        WatchNews { stream, number, everything: self.everything, dirs: dirs.collect() }
    }
}

fn bytes_of(dir: &PoolPath) -> usize {
    dir.to_string().len() + 2 * OVERHEAD
}
