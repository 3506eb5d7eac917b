//! Fills replies with the entries of an open directory, from an offset on and as far as they have room. The offsets 0 and
//! 1 are of the directory itself and its parent.

use super::BELIEVED;
use super::translation::{Owners, kind, shown};
use crate::file_system::{FileSystem, ShownEntry};
use fuser::{FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use potluck_wire::control::ListedEntry;
use std::time::Duration;

/// Replies with names, kinds and numbers.
pub fn reply_names(
    mut reply: ReplyDirectory,
    files: &FileSystem,
    dir: u64,
    entries: &[ListedEntry],
    offset: u64,
) {
    for at in offset..entries.len() as u64 + 2 {
        let is_full = match at {
            0 => reply.add(INodeNo(dir), 1, FileType::Directory, "."),
            1 => reply.add(INodeNo(files.parent(dir)), 2, FileType::Directory, ".."),
            _ => {
                let entry = &entries[at as usize - 2];
                let number = files.listed_number(dir, &entry.path);
                reply.add(INodeNo(number), at + 1, kind(entry.kind), &entry.path)
            }
        };
        if is_full {
            break;
        }
    }
    reply.ok();
}

/// Replies with entries, whose numbers the kernel knows from then on.
pub fn reply_entries(
    mut reply: ReplyDirectoryPlus,
    (files, owners): (&FileSystem, Owners),
    dir: u64,
    entries: &[ListedEntry],
    offset: u64,
) {
    let shown_dir = |number: u64| shown(&ShownEntry::of_dir(number), owners);
    for at in offset..entries.len() as u64 + 2 {
        let (name, facts, believed) = match at {
            0 => (".", shown_dir(dir), BELIEVED),
            1 => ("..", shown_dir(files.parent(dir)), BELIEVED),
            _ => {
                let entry = &entries[at as usize - 2];
                // An entry that changed since the directory was opened is looked up again when it is needed. It gets a
                // number all the same: with the number 0, which stands for a deleted entry, C libraries would leave it
                // out.
                let believed = match files.is_as_listed(dir, entry) {
                    true => BELIEVED,
                    false => Duration::ZERO,
                };
                let facts = files.facts_of_entry(dir, entry);
                (entry.path.as_str(), shown(&facts, owners), believed)
            }
        };
        if reply.add(facts.ino, at + 1, name, &believed, &facts, Generation(0)) {
            files.forget(facts.ino.0, 0); // the kernel was not told
            break;
        }
        if at > 1 {
            files.looked_up(facts.ino.0, dir, &entries[at as usize - 2]);
        }
    }
    reply.ok();
}
