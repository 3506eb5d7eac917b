//! Makes the kernel forget the attributes of entries that others changed.
//!
//! The kernel is not told to forget names. That call would wait for the lock of the directory, which a program that
//! waits for this daemon may hold; no signal ends the wait, so a daemon that is killed meanwhile would never let go of
//! the mount. A name that is gone is noticed by its attributes, or by an open() that does not find it.

use crate::file_system::FileSystem;
use fuser::{INodeNo, Notifier};
use potluck_wire::control::{DirChange, OWN_NAME};
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

/// The most changes that wait for the kernel. Further ones are left out, for the kernel asks again soon by itself.
const WAITING: usize = 1024;

/// Starts a thread that tells the kernel by `notifier` of changes in `files`, until `files` is dropped.
pub fn keep_true(files: &Arc<FileSystem>, notifier: Notifier) -> io::Result<()> {
    let (sender, changes) = sync_channel(WAITING);
    let attributes = notifier.clone();
    files.on_forgetting(Box::new(move |number| forget(&attributes, number)));
    let known = Arc::downgrade(files);
    let tell = move || tell(&known, &notifier, &changes);
    std::thread::Builder::new().name("kernel-cache".into()).spawn(tell)?;
    files.metadata().pass_on(sender);
    Ok(())
}

fn tell(files: &Weak<FileSystem>, notifier: &Notifier, changes: &Receiver<DirChange>) {
    for DirChange { dir, changed, attributes, modified, gone, .. } in changes {
        let Some(files) = files.upgrade() else { return };
        let Some(parent) = files.number_of_dir(&dir) else { continue };
        let modified = modified.iter().map(|(name, _)| name);
        for name in changed.iter().chain(&attributes).chain(modified).chain(&gone) {
            let number = match name.as_str() {
                OWN_NAME => Some(parent),
                name => files.number(parent, name),
            };
            if let Some(number) = number {
                forget(notifier, number);
            }
        }
    }
}

fn forget(notifier: &Notifier, number: u64) {
    if let Err(why) = notifier.inval_inode(INodeNo(number), -1, 0) {
        tracing::debug!(%why, "the kernel was not told of a change");
    }
}
