//! Publishes the files that programs had closed in an earlier mount, which ended before the pool had them.

use super::FileSystem;
use super::closing::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::closed_files::{ClosedFile, KeptFile};
use crate::draft::may_try_again;
use crate::errno::errno;
use potluck_client::{Attributes, PutOptions, Writer};
use potluck_core::path::PoolPath;
use potluck_wire::control::Condition;
use potluck_wire::error::code;
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

/// The most bytes that are passed to a writer at a time.
const PIECE: u64 = 1 << 20;

impl FileSystem {
    /// Publishes the files that an earlier mount has left, in the order in which they were closed, for as long as this
    /// mount is there. What cannot be published stays where it is, and is logged.
    pub async fn publish_left(files: Weak<Self>) {
        let left = files.upgrade().map(|files| files.closed_files.take_left(files.record.pool()));
        let left = match left {
            Some(Ok(left)) => left,
            Some(Err(why)) => {
                return tracing::warn!("cannot look for files that were closed: {why}");
            }
            None => return,
        };
        for (kept, about) in left {
            let mut pause = FIRST_PAUSE;
            loop {
                let Some(files) = files.upgrade().filter(|files| !files.has_ended()) else {
                    return;
                };
                match files.publish_kept(&kept, &about).await {
                    Ok(path) => {
                        tracing::info!(
                            "{path}, which was closed in an earlier mount, is in the pool"
                        );
                        kept.is_published();
                        break;
                    }
                    Err(why) if may_try_again(why) => {}
                    Err(why) => {
                        let (path, place) = (&about.path, kept.place().display());
                        tracing::warn!("{path} cannot be stored and stays at {place}: {why}");
                        break;
                    }
                }
                drop(files);
                tokio::time::sleep(pause).await;
                pause = LONGEST_PAUSE.min(2 * pause);
            }
        }
    }

    /// Publishes a file that was left, and returns its path: a name beside its own if others have changed the file
    /// since it was closed.
    async fn publish_kept(
        self: &Arc<Self>,
        kept: &KeptFile,
        about: &ClosedFile,
    ) -> Result<PoolPath, Errno> {
        let path = match self.is_overtaken(about).await? {
            false => about.path.clone(),
            true => beside(about).ok_or(Errno::NAMETOOLONG)?,
        };
        let mut attributes = Attributes {
            mtime: about.attributes.mtime,
            owner: about.attributes.owner,
            changed: about.attributes.changed,
            accessed: about.attributes.accessed,
            ..Attributes::default()
        };
        if let Some(permissions) = about.attributes.permissions {
            attributes.permissions = permissions;
        }
        let condition = if about.must_be_new { Condition::IfAbsent } else { Condition::Always };
        let options = PutOptions { condition, ..PutOptions::default() };
        let session = self.pool.session(&path, &options).await;
        let session = session.map_err(|failure| errno(&failure))?;
        let mut writer = session.create(path.clone(), attributes);
        write_kept(&mut writer, kept, about).await?;
        let visible = writer.make_visible().await.map_err(|failure| errno(&failure))?;
        tracing::debug!(version = %visible.version, "published");
        self.metadata.changed_here(&path);
        Ok(path)
    }

    /// Returns whether another file has come to the path since the file was closed.
    async fn is_overtaken(&self, about: &ClosedFile) -> Result<bool, Errno> {
        match self.pool.stat_unjudged(&about.path).await {
            Ok(stated) => {
                let is_newer = |closed| stated.entry.attributes().changed > closed;
                Ok(about.must_be_new || about.attributes.changed.is_none_or(is_newer))
            }
            Err(failure) if failure.code == code::NO_ENTRY => Ok(false),
            Err(failure) => Err(errno(&failure)),
        }
    }
}

/// Returns the path for a file whose own has another by now.
fn beside(about: &ClosedFile) -> Option<PoolPath> {
    let name = about.path.names().last()?;
    let ms = about.attributes.changed.map_or(0, |changed| changed.ms());
    about.path.parent()?.join(&format!("{name}.closed-{ms}")).ok()
}

async fn write_kept(writer: &mut Writer, kept: &KeptFile, about: &ClosedFile) -> Result<(), Errno> {
    for run in &about.written {
        let zeros = run.start.saturating_sub(writer.written());
        writer.write_zeros(zeros).await.map_err(|failure| errno(&failure))?;
        let mut at = run.start;
        while at < run.end {
            let mut piece = vec![0; PIECE.min(run.end - at) as usize];
            // The end of a file that was not synced may be missing after a power cut.
            kept.file().read_exact_at(&mut piece, at).map_err(|why: io::Error| {
                tracing::warn!("cannot read {}: {why}", kept.place().display());
                Errno::IO
            })?;
            at += piece.len() as u64;
            writer.write_owned(piece).await.map_err(|failure| errno(&failure))?;
        }
    }
    let zeros = about.size.saturating_sub(writer.written());
    writer.write_zeros(zeros).await.map_err(|failure| errno(&failure))
}
