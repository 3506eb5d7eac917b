//! Committing: complete files become visible in batches.

use super::stages::{Committing, PartOf};
use super::{Event, FileState, Window};
use crate::write::pushes::{Finished, VisibleFile};
use potluck_core::attributes::FileTime;
use potluck_core::clock::Tick;
use potluck_core::ids::VersionId;
use potluck_core::recipe::{self, Content};
use potluck_wire::control::{Committed, Condition, FileCommit, InParts, Outcome};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::Acknowledged;
use std::time::Duration;

/// The most files of one commit, which the manager does in steps of a few milliseconds. A commit has fewer files if
/// they have [`COMMIT_BYTES`], if the first has waited for [`COMMIT_AFTER`], or if a writer waits for one of them, so
/// that the files of a tree become visible while others are still stored.
const COMMIT_FILES: usize = 128;
/// The bytes of ready files at which they are committed.
const COMMIT_BYTES: u64 = 256 << 20;
/// The most parts of files in one commit, which has the catalog to itself for some ten milliseconds for each.
const PARTS_AT_ONCE: usize = 2;
/// The time for which ready files wait for others to share their commit, since each commit costs the manager an fsync.
const COMMIT_AFTER: Duration = Duration::from_secs(2);

/// The number of parts of files waiting for their commit at which no more is cut. Each takes some hundred KiB of
/// memory.
const MANY_PARTS: usize = 16;
/// The number of files waiting for their commit at which no more is cut. What is in the catalog takes no buffer that
/// would bound it, and each commit looks at all that wait.
const MANY_FILES: usize = 512;

/// Returns the failure of an empty stream that was to replace a named version, which is hardly what was meant.
fn nothing_came(version: VersionId) -> Failure {
    let what = format!("what was to replace version {version} is empty");
    Failure::new(ErrorKind::Conflict, code::EMPTY_INPUT, what)
        .hint("look why its producer wrote nothing; --allow-empty replaces it all the same")
}

fn is_part(file: &FileCommit) -> bool {
    matches!(file.in_parts, Some(InParts::Part { .. }))
}

/// Returns whether the ready files should be committed without waiting for others.
fn is_due(stage: &Committing, now: Tick) -> bool {
    let waited = stage.ready_since.map(|since| now.saturating_sub(since));
    let enough = stage.ready.len() >= COMMIT_FILES
        || stage.ready_bytes >= COMMIT_BYTES
        || waited.is_some_and(|waited| waited >= COMMIT_AFTER);
    // Files that become ready while one commit is under way go with the next.
    let awaited = || stage.ready.iter().any(|(_, finished)| finished.is_some());
    enough || awaited()
}

impl Window {
    /// Returns whether so many files, or parts of files, wait for their commit that no more should be cut.
    pub(super) fn has_many_ready(&self) -> bool {
        let ready = &self.committing.ready;
        let are_parts = || ready.iter().filter(|(file, _)| file.in_parts.is_some()).count();
        ready.len() >= MANY_FILES || ready.len() >= MANY_PARTS && are_parts() >= MANY_PARTS
    }

    /// Moves a file or part that is cut to its end and stored on to the next commit, or fails it if some of it cannot
    /// be sent.
    pub(super) fn complete(&mut self, file: u32) {
        self.tell_flushed(file);
        let has_turn = !self.committing.in_order || file >= self.last_number;
        if has_turn && self.files.get(&file).is_some_and(FileState::is_ready) {
            self.complete_ready(file);
        }
    }

    /// Completes the files that are ready, up to the first that is not. Those with a number of their own, which are
    /// sent again or parts of others, have no turn.
    pub(super) fn complete_in_order(&mut self) {
        while let Some((first, state)) = self.files.first_key_value()
            && *first < self.last_number
            && state.is_ready()
        {
            self.complete_ready(*first);
        }
    }

    fn complete_ready(&mut self, file: u32) {
        let Some(mut state) = self.files.remove(&file) else { return };
        let Some(facts) = state.facts.take() else { return };
        if let Some(why) = state.unsent {
            match state.part {
                Some(part) => self.fail_part(part, facts.path, why),
                None => self.fail(facts.path, why, state.finished),
            }
            return;
        }
        let came_empty = self.committing.spare_content && facts.stream && facts.size == 0;
        let condition = match facts.condition.unwrap_or(self.committing.condition) {
            Condition::Always if came_empty => Condition::IfEmpty,
            Condition::IfVersion(version) if came_empty => {
                self.fail(facts.path, nothing_came(version), state.finished);
                return;
            }
            condition => condition,
        };
        // What was found of a file that changed, and is read once more, counts for nothing.
        match state.part.and_then(|part| self.wholes.get_mut(&part.file)) {
            Some(whole) => whole.held += state.held,
            None => self.report.held_bytes += state.held,
        }
        let FileState {
            content,
            parity,
            mut acknowledged,
            parity_acknowledged,
            finished,
            part,
            ..
        } = state;
        // Parity is numbered after the data.
        let after = content.chunks.len() as u32;
        acknowledged.extend(
            parity_acknowledged
                .into_iter()
                .map(|said| Acknowledged { chunk: after + said.chunk, ..said }),
        );
        let policy = &self.session.reserved.policy;
        let pages = recipe::pack(&facts.digest, &content).into_iter().map(Blob).collect();
        if facts.inline.is_some() {
            self.progress.advance(facts.size);
        }
        let inline = facts.inline.as_ref().map_or(0, |_| facts.size);
        self.report.data += inline + content.data_bytes();
        let now = FileTime::of_ms(self.client.env.clock.wall());
        let commit = FileCommit {
            path: facts.path,
            size: facts.size,
            digest: facts.digest,
            mtime: facts.attributes.mtime.unwrap_or(now),
            permissions: facts.attributes.permissions,
            owner: facts.attributes.owner,
            changed: facts.attributes.changed.unwrap_or(now),
            accessed: facts.attributes.accessed,
            metadata: facts.metadata.map(|metadata| *metadata),
            origin: facts.origin,
            chunk_size: policy.chunk_size,
            copies: policy.copies,
            ec: policy.ec.filter(|_| content != Content::default()),
            parity: Packed(parity),
            inline: match (facts.inline, facts.size) {
                (None, 0) => Some(Blob(Vec::new())),
                (inline, _) => inline.map(Blob),
            },
            pages,
            acknowledged: Packed(acknowledged),
            condition,
            in_parts: part.map(|PartOf { file, number }| InParts::Part { file, number }),
        };
        self.make_ready(commit, finished);
    }

    /// Puts a file or part into the next commit.
    pub(super) fn make_ready(&mut self, commit: FileCommit, finished: Option<Finished>) {
        let ready_bytes = self.committing.ready_bytes.saturating_add(commit.size);
        self.committing.ready_bytes = ready_bytes;
        if self.committing.ready_since.is_none() {
            self.committing.ready_since = Some(self.client.env.clock.now());
            self.events.push(Box::pin(async {
                tokio::time::sleep(COMMIT_AFTER).await;
                Event::CommitDue
            }));
        }
        self.committing.ready.push((commit, finished));
    }

    pub(super) fn commit(&mut self) -> Result<(), Failure> {
        if self.committing.in_order {
            self.complete_in_order();
        }
        let unready = self.wholes.values().any(|whole| !whole.is_ready);
        let last = self.cutting.is_over() && self.files.is_empty() && !unready;
        let now = self.client.env.clock.now();
        let stage = &mut self.committing;
        if !stage.under_way && stage.ready.iter().any(|(file, _)| is_part(file)) {
            self.commit_parts();
            return Ok(());
        }
        if stage.under_way || stage.ready.is_empty() || !(last || is_due(stage, now)) {
            return Ok(());
        }
        let rest = stage.ready.split_off(stage.ready.len().min(COMMIT_FILES));
        let files = std::mem::replace(&mut stage.ready, rest);
        stage.note_left();
        // Copies that are made after the commit need the session, so the commit does not close it then.
        stage.finished = last && stage.ready.is_empty() && !self.groups.has_pending();
        stage.under_way = true;
        let is_synced =
            |(_, writer): &(_, Option<Finished>)| writer.as_ref().is_some_and(|it| it.synced);
        let (batch, done) = (stage.batch, stage.finished);
        let soon = stage.soon && !files.iter().any(is_synced);
        stage.batch += 1;
        let calls = self.session.calls();
        self.events.push(Box::pin(async move {
            let (files, finished): (_, Vec<_>) = files.into_iter().unzip();
            let (files, committed) = calls.commit(batch, files, done, soon).await;
            Event::Committed(files.into_iter().zip(finished).collect(), committed)
        }));
        Ok(())
    }

    /// Commits parts of files, [`PARTS_AT_ONCE`] at most; they become visible later, with their files.
    fn commit_parts(&mut self) {
        let stage = &mut self.committing;
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        for (file, finished) in std::mem::take(&mut stage.ready) {
            match is_part(&file) && parts.len() < PARTS_AT_ONCE {
                true => parts.push(file),
                false => others.push((file, finished)),
            }
        }
        stage.ready = others;
        stage.note_left();
        stage.under_way = true;
        let batch = stage.batch;
        stage.batch += 1;
        let calls = self.session.calls();
        self.events.push(Box::pin(async move {
            let (files, committed) = calls.commit(batch, parts, false, false).await;
            Event::Committed(files.into_iter().map(|file| (file, None)).collect(), committed)
        }));
    }

    /// Closes the session by an empty commit, when nothing more is to become visible in it.
    pub(super) async fn close(&mut self) {
        let commit = self.session.calls().commit(self.committing.batch, Vec::new(), true, true);
        match commit.await.1 {
            Ok(_) => self.committing.finished = true,
            Err(failure) => tracing::debug!(%failure, "the lease ends the session"),
        }
    }

    pub(super) fn take_committed(
        &mut self,
        files: Vec<(FileCommit, Option<Finished>)>,
        committed: Committed,
    ) {
        self.committing.under_way = false;
        for ((file, finished), outcome) in files.into_iter().zip(committed.files) {
            let (part, whole) = match file.in_parts {
                Some(InParts::Part { file, number }) => (Some(PartOf { file, number }), None),
                Some(InParts::Whole { file, .. }) => (None, Some(file)),
                None => (None, None),
            };
            if let Some(whole) = whole {
                if outcome.is_sent_again() {
                    self.committing.finished = false; // the session goes on for the lost parts
                    self.ask_for_lost_parts(whole, finished);
                    continue;
                }
                self.wholes.remove(&whole);
            }
            if part.is_some_and(|part| !self.wholes.contains_key(&part.file)) {
                continue; // the file was given up meanwhile
            }
            if outcome.is_sent_again() {
                self.committing.finished = false; // the session goes on for that file
                if self.may_send_again(&file) {
                    self.send_again(file, finished);
                    continue;
                }
            }
            match (outcome, part) {
                (Outcome::Stored { .. }, Some(part)) => self.part_committed(part),
                (Outcome::Refused(failure), Some(part)) => self.fail_part(part, file.path, failure),
                (Outcome::Stored { version, below_policy, at_risk, dir_modified }, None) => {
                    self.rereads.local.forget(&file.path);
                    self.report.bytes = self.report.bytes.saturating_add(file.size);
                    self.report.at_risk += u64::from(at_risk);
                    self.report.below_policy += u64::from(below_policy);
                    match finished {
                        Some(finished) => {
                            let visible = VisibleFile { version, dir_modified, below_policy };
                            let _ = finished.send(Ok(visible)); // its writer may be gone
                        }
                        None => self.report.stored.push((file.path, version)),
                    }
                }
                (Outcome::Refused(failure), None) => self.fail(file.path, failure, finished),
            }
        }
    }
}
