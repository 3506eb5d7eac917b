//! Files of many chunks: each part of such a file is stored and committed like a small file, while the next ones are
//! cut, so that memory holds the recipes of a few parts only. When all parts are committed the file becomes visible as
//! a whole.

use super::stages::{PartOf, Whole};
use super::{Event, FileState, Window};
use crate::attributes::Attributes;
use crate::source::Facts;
use crate::write::pushes::Finished;
use potluck_core::attributes::FileTime;
use potluck_core::chunk::Digest;
use potluck_core::path::PoolPath;
use potluck_core::recipe::{Content, part_bytes};
use potluck_wire::control::{CommittedParts, FileCommit, InParts};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::Packed;

impl Window {
    /// Returns a new number for a part, or for a file that is sent again. No number is given twice, so that a late
    /// answer for a file that was given up is not taken for another file's.
    pub(super) fn new_number(&mut self) -> u32 {
        self.last_number -= 1;
        self.last_number
    }

    /// Returns the bytes of each part but the last of the session's files.
    pub(super) fn part_bytes(&self) -> u64 {
        let policy = &self.session.reserved.policy;
        part_bytes(policy.chunk_size, policy.is_cut_by_content())
    }

    /// Makes a file one in parts, unless it is. Returns the number of the part that is being cut.
    fn begin_whole(&mut self, file: u32) -> u32 {
        let whole =
            self.wholes.entry(file).or_insert_with(|| Whole { filling: file, ..Whole::default() });
        if let Some(state) = self.files.get_mut(&whole.filling) {
            whole.flushed = state.flushed.take().or(whole.flushed.take());
            whole.finished = state.finished.take().or(whole.finished.take());
        }
        whole.filling
    }

    /// Counts parts of a file that are holes, when all parts before them have ended and more follows.
    pub(super) fn add_hole_parts(&mut self, file: u32, count: u32) {
        self.begin_whole(file);
        if let Some(whole) = self.wholes.get_mut(&file) {
            whole.count += count;
        }
    }

    /// Ends the part of a file that is being cut, when it has all its chunks and another part follows.
    pub(super) fn end_part(&mut self, file: u32, path: PoolPath, digest: Digest) {
        let number = self.begin_whole(file);
        self.close_part(file, number, path, digest);
        let next = self.new_number();
        self.files.insert(next, FileState::default());
        if let Some(whole) = self.wholes.get_mut(&file) {
            whole.filling = next;
        }
        self.complete(number);
    }

    /// Ends a file in parts that was cut to its end.
    pub(super) fn end_whole(&mut self, file: u32, facts: Facts) {
        let Some(whole) = self.wholes.get_mut(&file) else { return };
        let (number, path, digest) = (whole.filling, facts.path.clone(), facts.last_part);
        let size = facts.size;
        whole.facts = Some(facts);
        self.close_part(file, number, path, digest);
        match self.wholes.get(&file) {
            Some(whole) if whole.data == 0 => self.end_hole(file, size),
            _ => self.complete(number),
        }
        self.complete_whole(file); // its last part may be a hole
    }

    /// Ends a file that is one hole, which is not stored in parts, however long it is.
    fn end_hole(&mut self, file: u32, size: u64) {
        let Some(whole) = self.wholes.remove(&file) else { return };
        let mut content = Content::default();
        content.push_hole(size);
        let Whole { facts, flushed, finished, .. } = whole;
        let state = FileState { content, facts, flushed, finished, ..FileState::default() };
        self.files.insert(file, state);
        self.complete(file);
    }

    fn close_part(&mut self, file: u32, number: u32, path: PoolPath, digest: Digest) {
        let (Some(whole), Some(state)) = (self.wholes.get_mut(&file), self.files.get_mut(&number))
        else {
            return;
        };
        let of_file = whole.count;
        whole.count += 1;
        if state.content.chunks.is_empty() {
            self.files.remove(&number); // it is a hole
            return;
        }
        state.part = Some(PartOf { file, number: of_file });
        whole.uncommitted.insert(of_file);
        whole.data += state.content.data_bytes();
        state.facts = Some(Facts {
            path,
            size: state.content.size(),
            digest,
            last_part: digest,
            attributes: Attributes::default(),
            metadata: None,
            stream: false,
            condition: None,
            origin: None,
            inline: None,
        });
    }

    /// Notes that a part is committed; after the last part the whole file is committed, and becomes visible.
    pub(super) fn part_committed(&mut self, part: PartOf) {
        if let Some(whole) = self.wholes.get_mut(&part.file) {
            whole.uncommitted.remove(&part.number);
        }
        self.complete_whole(part.file);
    }

    fn complete_whole(&mut self, file: u32) {
        let policy = &self.session.reserved.policy;
        let Some(whole) = self.wholes.get_mut(&file) else { return };
        let Some(facts) = whole.facts.as_ref().filter(|_| whole.uncommitted.is_empty()) else {
            return;
        };
        if std::mem::replace(&mut whole.is_ready, true) {
            return;
        }
        self.report.held_bytes += std::mem::take(&mut whole.held);
        let now = FileTime::of_ms(self.client.env.clock.wall());
        let commit = FileCommit {
            path: facts.path.clone(),
            size: facts.size,
            digest: facts.digest,
            mtime: facts.attributes.mtime.unwrap_or(now),
            permissions: facts.attributes.permissions,
            owner: facts.attributes.owner,
            changed: facts.attributes.changed.unwrap_or(now),
            accessed: facts.attributes.accessed,
            metadata: facts.metadata.as_deref().cloned(),
            origin: facts.origin.clone(),
            chunk_size: policy.chunk_size,
            copies: policy.copies,
            ec: policy.ec,
            parity: Packed::default(),
            inline: None,
            pages: Vec::new(),
            acknowledged: Packed::default(),
            condition: facts.condition.unwrap_or(self.committing.condition),
            in_parts: Some(InParts::Whole { file, parts: whole.count }),
        };
        let finished = whole.finished.take();
        self.make_ready(commit, finished);
    }

    /// Forgets a file that does not become visible, with all its parts; returns its writer.
    pub(super) fn remove_file(&mut self, file: u32) -> Option<Finished> {
        let own = self.files.remove(&file).and_then(|state| state.finished);
        let Some(whole) = self.wholes.remove(&file) else { return own };
        self.files.remove(&whole.filling);
        self.files.retain(|_, state| state.part.is_none_or(|part| part.file != file));
        self.committing.ready.retain(|(commit, _)| match commit.in_parts {
            Some(InParts::Part { file: of, .. } | InParts::Whole { file: of, .. }) => of != file,
            None => true,
        });
        whole.finished.or(own)
    }

    /// Fails a file because one of its parts failed.
    pub(super) fn fail_part(&mut self, part: PartOf, path: PoolPath, failure: Failure) {
        if self.wholes.contains_key(&part.file) {
            let finished = self.remove_file(part.file);
            self.fail(path, failure, finished);
        }
    }

    /// Asks which parts of a file have lost donors since they were committed.
    pub(super) fn ask_for_lost_parts(&mut self, file: u32, finished: Option<Finished>) {
        if let Some(whole) = self.wholes.get_mut(&file) {
            whole.finished = finished;
            whole.is_ready = false;
            let calls = self.session.calls();
            self.events.push(Box::pin(async move {
                Event::LostParts(file, calls.lost_parts(file).await)
            }));
        }
    }

    /// Sends the chunks again that parts lost, and commits these parts again; fails the file if a part was refused too
    /// often.
    pub(super) fn take_lost_parts(&mut self, file: u32, lost: CommittedParts) {
        let Some(whole) = self.wholes.get_mut(&file) else { return };
        let Some(path) = whole.facts.as_ref().map(|facts| facts.path.clone()) else { return };
        let mut again = Vec::new();
        for mut part in lost.parts {
            if let Some(InParts::Part { number, .. }) = part.in_parts {
                whole.uncommitted.insert(number);
                part.path = path.clone();
                again.push((PartOf { file, number }, part));
            }
        }
        for (of, part) in again {
            if self.may_send_again(&part) {
                self.send_again(part, None);
            } else {
                let what = format!("{path}: its donors went away again and again");
                let failure = Failure::new(ErrorKind::Retry, code::NOT_ACKNOWLEDGED, what)
                    .hint("run the same command again: what is there is not sent again");
                return self.fail_part(of, path, failure);
            }
        }
        // If no part lacks chunks, the whole file is committed once more.
        self.complete_whole(file);
    }
}
