//! Committing: files become visible in batches.

use super::{Event, FileState, Window};
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::recipe::{self, PAGE_ENTRIES};
use potluck_wire::control::{Committed, Condition, FileCommit, Outcome};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::Acknowledged;

/// Files that become visible in one transaction.
const COMMIT_FILES: usize = 512;

/// An empty stream is not what somebody means who names the version to be replaced.
fn nothing_came(version: VersionId) -> Failure {
    let what = format!("what was to replace version {version} is empty");
    Failure::new(ErrorKind::Conflict, code::EMPTY_INPUT, what)
        .hint("look why its producer wrote nothing; --allow-empty replaces it all the same")
}

impl Window {
    /// Moves a file that is read and stored on to the next commit.
    pub(super) fn complete(&mut self, file: u32) {
        let is_ready = |state: &FileState| state.facts.is_some() && state.open == 0;
        if !self.files.get(&file).is_some_and(is_ready) {
            return;
        }
        let Some(mut state) = self.files.remove(&file) else { return };
        let Some(facts) = state.facts.take() else { return };
        let came_empty = self.spare_content && facts.stream && facts.size == 0;
        let condition = match self.condition {
            Condition::Always if came_empty => Condition::IfEmpty,
            Condition::IfVersion(version) if came_empty => {
                self.report.failed.push((facts.path, nothing_came(version)));
                return;
            }
            condition => condition,
        };
        let FileState { entries, parity, mut acknowledged, parity_acknowledged, .. } = state;
        // Parity counts on after the data.
        let after = entries.len() as u32;
        acknowledged.extend(
            parity_acknowledged
                .into_iter()
                .map(|said| Acknowledged { chunk: after + said.chunk, ..said }),
        );
        let policy = &self.session.reserved.policy;
        let pages = entries.chunks(PAGE_ENTRIES).map(|page| Blob(recipe::pack(page))).collect();
        if facts.inline.is_some() {
            self.progress.advance(facts.size);
        }
        self.ready.push(FileCommit {
            path: facts.path,
            size: facts.size,
            digest: facts.digest,
            mtime_ms: facts.mtime_ms.unwrap_or_else(|| self.client.env.clock.wall()),
            executable: facts.executable,
            chunk_size: policy.chunk_size,
            copies: policy.copies,
            ec: policy.ec.filter(|_| !entries.is_empty()),
            parity: Packed(parity),
            inline: match (facts.inline, facts.size) {
                (None, 0) => Some(Blob(Vec::new())),
                (inline, _) => inline.map(Blob),
            },
            pages,
            acknowledged: Packed(acknowledged),
            condition,
        });
    }

    pub(super) fn commit(&mut self) {
        let last = self.all_cut() && self.files.is_empty();
        let due = self.ready.len() >= COMMIT_FILES || (last && !self.ready.is_empty());
        if self.committing || !due {
            return;
        }
        let rest = self.ready.split_off(self.ready.len().min(COMMIT_FILES));
        let files = std::mem::replace(&mut self.ready, rest);
        // Copies made afterwards need the session.
        let done = last && self.ready.is_empty() && self.pending_copies() == 0;
        let batch = self.batch;
        self.batch += 1;
        self.committing = true;
        self.finished = done;
        let calls = self.session.calls();
        self.events.push(Box::pin(async move {
            let paths = files.iter().map(|file| (file.path.clone(), file.size)).collect();
            Event::Committed(paths, calls.commit(batch, files, done).await)
        }));
    }

    pub(super) fn take_committed(&mut self, files: Vec<(PoolPath, u64)>, committed: Committed) {
        self.committing = false;
        for ((path, size), outcome) in files.into_iter().zip(committed.files) {
            match outcome {
                Outcome::Version(version) => {
                    self.report.bytes += size;
                    self.report.stored.push((path, version));
                }
                Outcome::Refused(failure) => self.report.failed.push((path, failure)),
            }
        }
    }
}
