//! What a watch stream has still to hear: bounded, so that a client that does not ask costs no more than its share.

use potluck_core::ids::WatchId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{DirChange, WatchNews};
use std::collections::BTreeMap;

/// Names of one directory that are told apart.
const NAMES_OF_DIR: usize = 256;
/// Bytes of names and directories that wait for one stream.
const BYTES: usize = 256 << 10;
/// What a directory or a name is counted with beside its bytes.
const OVERHEAD: usize = 64;

/// Changes that a stream has to hear of.
#[derive(Debug, Default)]
pub struct News {
    everything: bool,
    dirs: BTreeMap<PoolPath, ChangedNames>,
    bytes: usize,
}

#[derive(Debug)]
enum ChangedNames {
    /// Each with whether something is there.
    Some(BTreeMap<String, bool>),
    All,
}

/// What is told as a whole from now on, so that nothing further of it need be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToldWhole {
    Nothing,
    Dir,
    Everything,
}

impl News {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        !self.everything && self.dirs.is_empty()
    }

    /// Something else is behind a name, or nothing any more.
    pub fn add_name(&mut self, dir: &PoolPath, name: &str, is_there: bool) -> ToldWhole {
        if self.everything {
            return ToldWhole::Everything;
        }
        let added = match self.dirs.get_mut(dir) {
            Some(ChangedNames::All) => return ToldWhole::Dir,
            Some(ChangedNames::Some(names)) => match names.insert(name.into(), is_there) {
                Some(_) => 0,
                None if names.len() > NAMES_OF_DIR => return self.add_dir(dir),
                None => name.len() + OVERHEAD,
            },
            None => {
                let names = BTreeMap::from([(name.to_owned(), is_there)]);
                self.dirs.insert(dir.clone(), ChangedNames::Some(names));
                name.len() + bytes_of(dir)
            }
        };
        self.grow(added, ToldWhole::Nothing)
    }

    /// Any name of a directory may have changed.
    pub fn add_dir(&mut self, dir: &PoolPath) -> ToldWhole {
        if self.everything {
            return ToldWhole::Everything;
        }
        // What its names were counted with stays counted until the news are sent.
        let before = self.dirs.insert(dir.clone(), ChangedNames::All);
        self.grow(before.map_or(bytes_of(dir), |_| 0), ToldWhole::Dir)
    }

    /// Anything may have changed.
    pub fn add_everything(&mut self) -> ToldWhole {
        *self = Self { everything: true, ..Self::default() };
        ToldWhole::Everything
    }

    fn grow(&mut self, bytes: usize, told: ToldWhole) -> ToldWhole {
        self.bytes += bytes;
        if self.bytes > BYTES { self.add_everything() } else { told }
    }

    /// Adds news of before these, and gives the directories that are told as a whole by that; `None`: everything is.
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
                    for (name, is_there) in names {
                        let is_there = self.newest(&dir, &name).unwrap_or(is_there);
                        told = self.add_name(&dir, &name, is_there);
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

    fn newest(&self, dir: &PoolPath, name: &str) -> Option<bool> {
        match self.dirs.get(dir)? {
            ChangedNames::Some(names) => names.get(name).copied(),
            ChangedNames::All => None,
        }
    }

    /// The news as they are sent, under a number.
    pub fn to_message(&self, stream: WatchId, number: u64) -> WatchNews {
        let dirs = self.dirs.iter().map(|(dir, names)| {
            let mut change = DirChange::new(dir.clone());
            match names {
                ChangedNames::All => change.all = true,
                ChangedNames::Some(names) => {
                    for (name, is_there) in names {
                        let list = if *is_there { &mut change.changed } else { &mut change.gone };
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
