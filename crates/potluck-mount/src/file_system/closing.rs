//! Publishes written files when they are closed; the mount's record names those that cannot be published.

use super::FileSystem;
use crate::control_socket::MountStatus;
use crate::draft::{Draft, may_try_again};
use crate::errno::errno;
use crate::handles::{Handle, OpenHandle};
use crate::opener::{NamedInode, closes_for_good, is_alive, process_of, started_since};
use crate::shared_draft::SharedDraft;
use crate::write_behind::WriteBehind;
use crate::write_limits::CloseLevel;
use potluck_core::checkpoint::CheckpointId;
use potluck_core::path::PoolPath;
use potluck_wire::env;
use potluck_wire::error::code;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time that the kernel may take to tell the mount that a file was closed.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);
/// The time between two checks whether the kernel has told that a file was closed.
const LOOK: Duration = Duration::from_millis(10);

/// The pause before a file that is behind its close() is published again because the pool was away, and the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The programs that may still write to a file after a descriptor of it was closed.
enum Writers {
    /// The process that closed the file, or the one that opened it, may still write by another descriptor.
    Opener,
    /// Others may still write, or it is not known who may.
    Others,
    /// No program may write the file any more, or that does not matter.
    None,
}

impl FileSystem {
    /// Closes a descriptor of a file, and publishes the file if `thread` belongs to the process that opened it, or if
    /// that process has closed it before or is gone. A file that was removed meanwhile is not published. A file that
    /// was only made, or cut off by open(), is published once no program can write it any more.
    ///
    /// The locks of `owner` on the file end after the file is published, or has failed to be. While another program that
    /// has the file open for writing has an exclusive lock on it, only that program's close publishes it.
    pub async fn flush(
        self: &Arc<Self>,
        handle: u64,
        thread: u32,
        owner: u64,
    ) -> Result<(), Errno> {
        let opened = self.handles().get(handle).ok_or(Errno::BADF)?;
        let locked = self.locked_number(opened.inode);
        let mut published = Ok(());
        if closes_for_good(opened.opener, thread) {
            match self.writers_left(handle, &opened, thread).await {
                Writers::Opener => {}
                Writers::Others => self.handles().hand_on(handle),
                Writers::None => {
                    self.handles().leave(handle);
                    // Who only reads the file changes nothing under its lock, and has no draft to publish.
                    let is_being_changed = self.locks.is_written_by_another(locked, owner)
                        && self.handles().is_written_beside(opened.inode, handle);
                    if !is_being_changed {
                        let (draft, inode) = (opened.draft(), opened.inode);
                        // A process that inherited the file closes it unasked when it begins another program or ends.
                        // That says nothing new where nothing was written since its owner closed it.
                        let (owner, was_left) = (opened.opener.or(opened.left_by), opened.is_left);
                        let closing = process_of(thread);
                        let is_owner = closing.is_some() && closing == owner;
                        published = self.publish(opened).await;
                        if let (Err(why), Some(draft), true) =
                            (published, draft, is_owner || !was_left)
                        {
                            let is_told = is_owner && closing.is_some_and(is_alive);
                            self.closed_in_vain(&draft, inode, is_told, why).await;
                        }
                    }
                }
            }
        }
        self.locks.unlock_all(locked, owner);
        published
    }

    /// Returns who may still write a file that was merely begun, after a thread closed a descriptor of it. For any
    /// other file the answer is [`Writers::None`]: it is published even if programs may write more.
    async fn writers_left(&self, handle: u64, opened: &OpenHandle, thread: u32) -> Writers {
        let Handle::Writing(draft) = &opened.handle else { return Writers::None };
        if !draft.lock().await.is_merely_begun() {
            return Writers::None;
        }
        let Some(named) = self.named(opened.inode) else { return Writers::None };
        if self.handles().is_written_beside(opened.inode, handle) {
            return Writers::Others;
        }
        let closing = process_of(thread);
        if closing.into_iter().chain(opened.opener).any(|process| named.is_open_in(process)) {
            return Writers::Opener;
        }
        match started_since(opened.newest_process).filter(|_| closing.is_some()) {
            Some(started) if !named.may_be_open_in(&started) => Writers::None,
            _ => Writers::Others,
        }
    }

    /// Returns the number and name by which descriptors of a file are found, if the file has a name.
    fn named(&self, inode: u64) -> Option<NamedInode> {
        let place = self.inodes().place(inode).cloned();
        place.map(|(_, name)| NamedInode { inode, name })
    }

    /// Returns whether a program has a file open for writing, or has closed one descriptor of it and has another.
    pub(super) fn is_file_open_for_writing(&self, inode: u64) -> bool {
        if self.handles().is_file_written(inode) {
            return true;
        }
        let left_by = self.handles().left_by(inode);
        let named = self.named(inode);
        named.is_some_and(|named| left_by.iter().any(|process| named.is_open_in(*process)))
    }

    /// Publishes a file that was closed, unless it was open only to be read: its writers publish it then. Where close()
    /// does not wait for the pool, it is published after this returns, in its turn, unless programs lock or write it, or it
    /// belongs to a checkpoint, which must not lack it when it is committed; any other comes after those.
    async fn publish(self: &Arc<Self>, opened: OpenHandle) -> Result<(), Errno> {
        let OpenHandle { inode, handle: Handle::Writing(shared), .. } = opened else {
            return Ok(());
        };
        let mut draft = shared.lock().await;
        let (path, bytes) = (self.inodes().last_path(inode), draft.size());
        // A reader waits for what all programs have closed.
        let is_in_use = self.locks.is_locked(inode) || self.handles().is_file_written(inode);
        let path = path.ok().filter(|path| !is_in_use && !is_staged(path));
        let (Some(behind), Some(path)) = (self.limits.behind(), path) else {
            return self.publish_in_turn(&mut draft, inode).await;
        };
        if self.goes_behind(&mut draft, &path, behind).await {
            drop(draft);
            env::spawn(Arc::clone(self).publish_behind(shared, inode));
            return Ok(());
        }
        let Some(small) = draft.small_file(&path) else {
            return self.publish_in_turn(&mut draft, inode).await;
        };
        let behind = behind.add(small.session_number(), bytes as usize).await;
        let ended = small.when_ended(behind.turn());
        let files = Arc::clone(self);
        let publish = async move { files.publish_draft(&mut draft, inode).await };
        let mut publish = Box::pin(publish);
        tokio::select! {
            biased;
            published = &mut publish => published,
            Ok(()) = ended => {
                let (files, dir) = (Arc::clone(self), self.parent(inode));
                env::spawn(async move {
                    if let Err(why) = publish.await {
                        files.handles().note_failure(dir, why); // the mount's record has it, too
                    }
                    drop(behind); // only now, for who waits for the file asks for its failure then
                });
                Ok(())
            }
        }
    }

    /// Gives a closed draft that is not small its place among those that are published behind their close(), if close()
    /// does not wait for the pool. Returns whether it did.
    async fn goes_behind(
        &self,
        draft: &mut Draft,
        path: &PoolPath,
        behind: &Arc<WriteBehind>,
    ) -> bool {
        let turn = || behind.add_last();
        match self.limits.close() {
            CloseLevel::Pool => false,
            CloseLevel::Memory => draft.stays_in_memory(turn),
            CloseLevel::Local => {
                let synced = self.small_files.is_synced(path).await;
                let kept =
                    draft.is_kept(path, self.record.pool(), &self.closed_files, synced, turn);
                kept.await.unwrap_or_else(|why| {
                    tracing::warn!("close() of {path} waits for the pool: {why}");
                    false
                })
            }
        }
    }

    /// Publishes a draft in its turn, unless it is published before that by a program that waits for it.
    async fn publish_behind(self: Arc<Self>, shared: SharedDraft, inode: u64) {
        let turn = shared.lock().await.turn();
        let Some(turn) = turn else { return };
        turn.come().await;
        let mut draft = shared.lock().await;
        if draft.is_behind() {
            let _ = self.publish_in_turn(&mut draft, inode).await; // which notes the failure
        }
    }

    /// Waits until a file is published that is behind its close(), for a program that is going to write it.
    pub(super) async fn behind_is_published(&self, inode: u64) {
        if self.limits.behind().is_some() {
            self.published_when_closed(inode).await;
            let draft = self.handles().draft(inode);
            if draft.is_some_and(|draft| draft.facts().is_behind) {
                self.closed_are_published().await;
            }
        }
    }

    /// Waits until the files are published that were closed before, so that nobody sees what is done next without them.
    pub(super) async fn closed_are_published(&self) {
        if let Some(behind) = self.limits.behind() {
            behind.all_published().await;
        }
    }

    /// Publishes a draft after the files that were closed before. None of these is the draft's, which the caller has
    /// locked. A draft that is behind its close() is tried until the pool takes or refuses it.
    pub(super) async fn publish_in_turn(&self, draft: &mut Draft, inode: u64) -> Result<(), Errno> {
        let Some(turn) = draft.turn() else {
            if draft.has_unpublished() {
                self.closed_are_published().await;
            }
            return self.publish_draft(draft, inode).await;
        };
        turn.come().await;
        let mut pause = FIRST_PAUSE;
        let published = loop {
            match self.publish_draft(draft, inode).await {
                Err(why) if may_try_again(why) && draft.outlives_mount() && !self.has_ended() => {
                    tokio::time::sleep(pause).await;
                    pause = LONGEST_PAUSE.min(2 * pause);
                }
                published => break published,
            }
        };
        if let Err(why) = published {
            let dir = self.parent(inode);
            self.handles().note_failure(dir, why); // the mount's record has it, too
        }
        draft.is_behind_no_more(published.is_err());
        published
    }

    /// Waits until the files are published that were closed before, for a program that has a directory open.
    ///
    /// Errors: the failure to publish a file of the directory whose close() had returned by then, if the handle was not
    /// told yet.
    pub async fn sync_closed(&self, handle: u64) -> Result<(), Errno> {
        self.closed_are_published().await;
        self.sync_changes().await?;
        self.handles().take_failure(handle).map_or(Ok(()), Err)
    }

    pub(super) async fn publish_draft(&self, draft: &mut Draft, inode: u64) -> Result<(), Errno> {
        if draft.is_shared() && self.handles().is_file_written(inode) {
            return Ok(()); // the last program of this mount that closes the file ends this mount's part
        }
        if draft.is_nameless() {
            draft.withdraw().await;
            draft.is_behind_no_more(false);
            return Ok(());
        }
        let path = self.inodes().last_path(inode)?;
        if draft.is_dirty() {
            match self.locks.may_publish(inode).await {
                Ok(true) => {}
                Ok(false) => draft.lose(Errno::IO),
                // The locks may still be held, so a later close or the end of the mount publishes the file.
                Err(why) => {
                    draft.failed(&path, why);
                    return Err(why);
                }
            }
        }
        if self.handles().is_draft_read(inode) {
            draft.stays_readable().await;
        }
        self.publish_at(draft, &path).await?;
        self.readers_keep_version(inode, &path, draft.version()).await;
        Ok(())
    }

    /// Notes that a draft was closed which could not be published. The mount does not tell of it at its end where
    /// `is_told`: the program that opened the file has closed it, and was not killed.
    pub(super) async fn closed_in_vain(
        &self,
        draft: &SharedDraft,
        inode: u64,
        is_told: bool,
        why: Errno,
    ) {
        let path = self.inodes().last_path(inode);
        if let Ok(path) = path {
            draft.lock().await.is_told(is_told, &path, why);
        }
    }

    /// Publishes a draft at `path`. A failure is noted in the mount's record, too, for a program that is killed or ends
    /// without closing does not hear of it.
    pub(super) async fn publish_at(&self, draft: &mut Draft, path: &PoolPath) -> Result<(), Errno> {
        let publish = async {
            if draft.is_dirty() {
                self.check_dir(path).await?;
            }
            draft.publish(path).await
        };
        let published = self.metadata.publishing(path, publish).await;
        self.capacities_changed();
        if !draft.is_synced() {
            self.changed_soon();
        }
        if let Err(why) = published {
            tracing::warn!("{path} is not in the pool as it was written: {why}");
            draft.failed(path, why);
        }
        published
    }

    /// Fails if the directory of a file does not exist any more, because another client has renamed or removed it:
    /// publishing would make it anew, with this file in it.
    async fn check_dir(&self, path: &PoolPath) -> Result<(), Errno> {
        let Some(dir) = path.parent().filter(|dir| !dir.names().is_empty()) else { return Ok(()) };
        // The manager accepts no files for a checkpoint that has ended, so no directory is made for it.
        if is_staged(&dir) || self.metadata.place(&dir).await != Err(Errno::NOENT) {
            return Ok(());
        }
        match self.pool.stat(&dir).await {
            Err(failure) if failure.code == code::NO_ENTRY => {
                tracing::warn!("{dir} is not there any more: another client renamed or removed it");
                Err(Errno::STALE)
            }
            // If the space of a file that is being written is not shown any more, the right to it was withdrawn.
            Err(failure) if failure.code == code::NO_SPACE_NAMED => Err(Errno::ACCESS),
            Err(failure) => Err(errno(&failure)),
            Ok(_) => Ok(()),
        }
    }

    /// Closes a handle, and publishes what was written since the last flush, unless another handle has the file open for
    /// writing.
    pub async fn release(&self, handle: u64, owner: Option<u64>) {
        self.handles().leave(handle);
        let opened = self.handles().get(handle);
        let Some(opened) = opened else { return };
        let locked = self.locked_number(opened.inode);
        if let Handle::ReadingDraft(draft) | Handle::Writing(draft) = &opened.handle {
            // A draft that waits for its turn is not locked meanwhile, for programs may read it.
            let turn = draft.lock().await.turn();
            if let Some(turn) = turn {
                turn.come().await;
            }
            // Between its close() and this call a program may set attributes by name and rename the file. The file
            // counts as open until all that was set is published.
            let mut draft = draft.lock().await;
            // Another program may have begun to write the file since, and publishes it when it closes it.
            let is_written = self.handles().is_written_beside(opened.inode, handle);
            if !is_written {
                // Nobody waits for the answer; the mount record has what fails.
                let _ = self.publish_in_turn(&mut draft, opened.inode).await;
            }
            self.handles().remove(handle);
        } else {
            self.handles().remove(handle);
        }
        self.closes_staged(handle);
        if let Some(owner) = owner {
            self.locks.unlock_all(locked, owner); // the locks of flock(), which belong to the open file
        }
        self.forget(opened.inode, 0); // the kernel may have forgotten the number while the file was open
        let is_open = [opened.inode, locked].iter().any(|number| self.handles().is_open(*number));
        if !is_open && let Some(given) = self.locks.closed(locked) {
            self.closed_are_published().await;
            let locks = Arc::clone(&self.locks);
            env::spawn(async move { locks.give_back(given).await });
        }
    }

    /// Closes a handle that no program was given, because the one that asked for it was killed. Nothing is published if
    /// no other handle has the file open.
    pub async fn give_up(&self, handle: u64) {
        let opened = self.handles().get(handle);
        if let Some(OpenHandle { handle: Handle::Writing(draft), .. }) = opened {
            let mut draft = draft.lock().await;
            // A program that opens the file meanwhile must not get a draft that is never published.
            let is_alone = self.handles().take_draft(handle);
            if is_alone {
                draft.has_no_name();
                draft.withdraw().await;
            }
        }
        self.release(handle, None).await;
    }

    /// Waits until `is_open` says no, for [`RELEASED_WITHIN`] at most. The kernel tells that a file is not open any more a
    /// moment after close() returned, or after the program ended.
    ///
    /// Errors: [`Errno::BUSY`] where one stays open.
    pub(super) async fn wait_until_closed(
        &self,
        is_open: impl Fn() -> bool + Send,
    ) -> Result<(), Errno> {
        let until = self.pool.now() + RELEASED_WITHIN;
        while is_open() {
            if self.pool.now() > until {
                return Err(Errno::BUSY);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Returns whether a program has any file open for writing.
    pub fn is_written(&self) -> bool {
        self.handles().is_written()
    }

    /// Returns the state of the mount, without what lookaside trees gave.
    pub fn status(&self) -> MountStatus {
        let (mut written, mut behind) = (0, 0);
        let drafts = self.handles().drafts(); // a lock that is given back before the next is taken
        for (inode, draft) in drafts {
            match self.handles().is_file_written(inode) {
                true => written += 1,
                false => behind += u64::from(draft.facts().is_behind),
            }
        }
        let (spooled, from_cache) = (self.spool.taken(), self.pool.found_in_cache());
        MountStatus { written, behind, spooled, from_cache, from_lookaside: 0 }
    }

    /// Returns whether no more requests are served.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Ends the serving of requests, and publishes the files that programs have closed. With `all_closed` no program has
    /// a file open, even if the mount did not hear that it was closed.
    pub async fn publish_closed(&self, all_closed: bool) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.closed_are_published().await;
        let drafts = self.handles().drafts();
        for (inode, draft) in drafts {
            if !all_closed && self.handles().is_file_written(inode) {
                continue;
            }
            let path = self.inodes().last_path(inode);
            let mut draft = draft.lock().await;
            if let (Ok(path), false) = (path, draft.is_nameless()) {
                // The mount record has what fails.
                let published = self.publish_at(&mut draft, &path).await;
                draft.is_behind_no_more(published.is_err());
            }
        }
        let staged: Vec<PoolPath> = {
            let inodes = self.inodes();
            inodes.staged().filter_map(|number| inodes.staging(number).cloned()).collect()
        };
        for staging in staged {
            // Where the manager is away, the lease ends what others wait for.
            let given = self.give_staged_back(&staging);
            let _ = tokio::time::timeout(RELEASED_WITHIN, given).await;
        }
    }

    /// Notes that the name at `path` is gone. The `draft` that it led to, if any, is not published any more, and the
    /// mount's record does not count that as a loss.
    pub(super) fn has_no_name(&self, path: &PoolPath, draft: Option<&mut Draft>) {
        self.record.forget_failures(path);
        if let Some(draft) = draft {
            draft.has_no_name();
        }
    }

    /// Makes the record name drafts by their present paths. A draft that is in use notes its path at the next write.
    pub(super) fn note_new_names(&self) {
        let drafts = self.handles().drafts();
        for (inode, draft) in drafts {
            let path = self.inodes().path(inode);
            if let (Ok(path), Some(mut draft)) = (path, draft.try_lock()) {
                draft.note(&path);
            }
        }
    }
}

/// Returns whether a path leads into a directory that is staged for a checkpoint.
fn is_staged(path: &PoolPath) -> bool {
    path.names().iter().any(|name| CheckpointId::of_staging_name(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::{NewEntry, OpenMode};
    use crate::inodes::ROOT;
    use crate::no_manager;
    use crate::record::{MountRecord, RecordedMount};
    use crate::spool::Spool;
    use crate::write_limits::{WriteLimits, WriteOptions};
    use potluck_client::RetryLimits;
    use potluck_core::attributes::Permissions;
    use potluck_wire::error::{ErrorKind, Failure};
    use std::path::Path;
    use std::pin::pin;

    fn files(dir: &Path) -> FileSystem {
        let root: PoolPath = "pot://lab".parse().expect("a path");
        let mount = RecordedMount::alone(root.clone(), dir);
        let record = MountRecord::take(dir, &mount).expect("taken");
        let (spool, limits) =
            (Spool::new(dir.into(), 1000), WriteLimits::new(WriteOptions::default()));
        FileSystem::new(no_manager::pool(), root, spool, limits, record)
    }

    #[tokio::test]
    async fn open_during_an_interrupted_open_gets_a_published_draft() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = files(dir.path());
        let made = NewEntry { permissions: Permissions::FILE, owner: None };
        let mode = OpenMode { writes: true, ..OpenMode::default() };
        let open = || files.create(ROOT, "f", mode, made, None);
        let (facts, killed) = open().await.expect("made");
        let draft = || files.handles().draft(facts.inode);
        let shared = draft().expect("it is written");
        let busy = shared.lock().await;
        let mut giving_up = pin!(files.give_up(killed));
        let waits = tokio::time::timeout(Duration::from_millis(1), giving_up.as_mut()).await;
        assert!(waits.is_err(), "for the draft");
        let (_, second) = open().await.expect("opened");
        drop(busy);
        giving_up.await;
        assert!(draft().is_some_and(|it| it.is_same(&shared)));
        assert!(!shared.lock().await.is_nameless());

        // While the draft of the only handle is given up, a program that opens the file gets another.
        assert!(files.handles().take_draft(second));
        let (_, third) = open().await.expect("opened");
        let other = draft().expect("it is written");
        assert!(!other.is_same(&shared));
        files.give_up(second).await;
        assert!(draft().is_some_and(|it| it.is_same(&other)));
        files.give_up(third).await;
        assert!(draft().is_none() && other.lock().await.is_nameless());
    }

    #[tokio::test]
    async fn close_retries_a_commit_until_its_answer_arrives() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = files(dir.path());
        let failed = |code: &str| Err::<(), _>(Failure::new(ErrorKind::Retry, code, "it failed"));
        let lost = || failed(code::NO_MANAGER);
        let patient =
            RetryLimits { at_first: Duration::from_secs(600), ..files.pool.retry_limits() };
        files.pool = files.pool.with_retry_limits(patient);
        let done = async |mut answers: Vec<Result<(), Failure>>| {
            answers.reverse();
            let next = || std::future::ready(answers.pop().expect("not called again"));
            files.once(code::EXISTS, next).await.map(drop)
        };
        assert_eq!(done(vec![lost(), lost(), lost(), Ok(())]).await, Ok(()));
        assert_eq!(done(vec![lost(), lost(), failed(code::EXISTS)]).await, Ok(()));
        assert_eq!(done(vec![failed(code::EXISTS)]).await, Err(Errno::EXIST));
    }
}
