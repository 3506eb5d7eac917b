//! What the kernel was told of names and is to forget because others changed it.
//!
//! A thread of its own tells the kernel, which may hold a directory for a request that waits for this daemon: neither
//! is what answers requests held up by that, nor does it hold anything that they wait for.

use crate::file_system::FileSystem;
use fuser::{INodeNo, Notifier};
use potluck_wire::control::{DirChange, OWN_NAME};
use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

/// Changes that wait for the kernel. Further ones are left out: it asks again soon by itself.
const WAITING: usize = 1024;

/// Tells the kernel by `notifier` what others change in `files`, as long as these are there.
pub fn keep_true(files: &Arc<FileSystem>, notifier: Notifier) -> io::Result<()> {
    let (sender, changes) = sync_channel(WAITING);
    let attributes = notifier.clone();
    // Nothing waits for that: the kernel holds no lock of a file while it forgets its attributes.
    files.on_forgetting(Box::new(move |number| {
        note(attributes.inval_inode(INodeNo(number), -1, 0))
    }));
    let known = Arc::downgrade(files);
    let tell = move || tell(&known, &notifier, &changes);
    std::thread::Builder::new().name("kernel-cache".into()).spawn(tell)?;
    files.metadata().pass_on(sender);
    Ok(())
}

fn tell(files: &Weak<FileSystem>, notifier: &Notifier, changes: &Receiver<DirChange>) {
    for DirChange { dir, changed, attributes, gone, .. } in changes {
        let Some(files) = files.upgrade() else { return };
        let Some(parent) = files.number_of_dir(&dir) else { continue };
        for name in changed {
            // A name that keeps its number keeps its place in the kernel, too: programs may be in a directory.
            let told = match files.number(parent, &name) {
                Some(number) => notifier.inval_inode(INodeNo(number), -1, 0),
                None => notifier.inval_entry(INodeNo(parent), OsStr::new(&name)),
            };
            note(told);
        }
        for name in attributes {
            let number = match name.as_str() {
                OWN_NAME => Some(parent),
                name => files.number(parent, name),
            };
            if let Some(number) = number {
                note(notifier.inval_inode(INodeNo(number), -1, 0));
            }
        }
        for name in gone {
            note(notifier.inval_entry(INodeNo(parent), OsStr::new(&name)));
        }
    }
}

fn note(told: io::Result<()>) {
    if let Err(why) = told {
        tracing::debug!(%why, "the kernel was not told of a change");
    }
}
