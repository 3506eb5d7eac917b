//! Cutting: the window cuts the files that it reads itself, and takes the chunks that writers have cut.

use super::{Event, FileState, Window};
use crate::body::Body;
use crate::source::{Cut, Cutter, Items};
use crate::write::groups::{Member, Place};
use crate::write::pushes::Push;
use potluck_core::chunk::ChunkName;
use potluck_core::recipe::Entry;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

impl Window {
    pub(super) fn cut_more(&mut self) {
        self.listen();
        let may = self.may_cut();
        self.cutting.tell.send_if_modified(|told| std::mem::replace(told, may) != may);
        if !may || self.cutting.under_way {
            return;
        }
        let reserved = &self.session.reserved;
        let next_file = &self.cutting.next_file;
        let local = self.rereads.local.clone();
        let allow_changing = self.cutting.allow_changing;
        let begin = |items: Items| {
            let items = Box::new(items.inspect(move |item| local.note(item)));
            let key = reserved.space_key.clone();
            let cutter = Cutter::new(items, &reserved.policy, key, Arc::clone(next_file));
            Box::new(cutter.allowing_changes(allow_changing))
        };
        let cutter = self.cutting.cutter.take();
        let Some(mut cutter) = cutter.or_else(|| self.cutting.later.pop_front().map(begin)) else {
            return;
        };
        self.cutting.under_way = true;
        let (buffers, offload) = (self.client.buffers.clone(), self.client.env.offload);
        let room = Cutter::room(&reserved.policy);
        self.events.push(Box::pin(async move {
            let claim = buffers.claim(room).await;
            let cut = move || {
                let cuts = cutter.next(claim);
                (cutter, cuts)
            };
            let (cutter, cuts) = offload.run(cut).await;
            Event::Cut(cutter, cuts)
        }));
    }

    /// Returns whether more may be cut. Cutting stops where all that was promised is cut, while the manager is being
    /// asked for more, and where many files, or parts of files, wait for their commit.
    pub(super) fn may_cut(&self) -> bool {
        if self.has_many_ready() {
            return false;
        }
        let promised = self.session.promised;
        self.cutting.bytes < promised || promised == 0 || !self.room.is_growing()
    }

    pub(super) fn take_cuts(&mut self, cutter: Box<Cutter>, cuts: Vec<Cut>) {
        self.cutting.under_way = false;
        if !cuts.is_empty() {
            self.cutting.cutter = Some(cutter);
        }
        cuts.into_iter().for_each(|cut| self.take_cut(cut));
    }

    /// Begins to wait for the next message of the writers.
    fn listen(&mut self) {
        let Some(mut from) = self.cutting.from.take() else { return };
        self.cutting.listening = true;
        self.events.push(Box::pin(async move {
            let push = from.recv().await;
            Event::Pushed(from, push)
        }));
    }

    pub(super) fn take_pushed(&mut self, mut from: UnboundedReceiver<Push>, push: Option<Push>) {
        self.cutting.listening = false;
        let Some(push) = push else { return };
        self.take_push(push);
        while let Ok(push) = from.try_recv() {
            self.take_push(push);
        }
        self.cutting.from = Some(from);
    }

    fn take_push(&mut self, push: Push) {
        match push {
            Push::Items(items) => self.cutting.later.push_back(items),
            Push::Cuts(cuts) => cuts.into_iter().for_each(|cut| self.take_cut(cut)),
            Push::Flush(file, done) => {
                self.offering.is_awaited = true;
                match self.wholes.get_mut(&file) {
                    Some(whole) => whole.flushed = Some(done),
                    None => self.files.entry(file).or_default().flushed = Some(done),
                }
                self.tell_flushed(file);
            }
            Push::Await(file, done) => {
                self.offering.is_awaited = true;
                match self.wholes.get_mut(&file) {
                    Some(whole) => whole.finished = Some(done),
                    None => self.files.entry(file).or_default().finished = Some(done),
                }
            }
            Push::Abort(file) => drop(self.remove_file(file)),
            Push::Locate(chunks, done) => self.locate(chunks, done),
        }
    }

    fn take_cut(&mut self, cut: Cut) {
        match cut {
            Cut::Group { file, data, parity } => self.take_group(file, data, parity),
            Cut::Hole { file, len } => {
                let number = self.wholes.get(&file).map_or(file, |whole| whole.filling);
                self.files.entry(number).or_default().content.push_hole(len);
            }
            Cut::HoleParts { file, count } => self.add_hole_parts(file, count),
            Cut::PartEnd { file, path, digest } => self.end_part(file, path, digest),
            Cut::End { file, facts } if self.wholes.contains_key(&file) => {
                self.end_whole(file, facts);
            }
            Cut::End { file, facts } => {
                self.files.entry(file).or_default().facts = Some(facts);
                self.complete(file);
            }
            Cut::Failed { file, path, error } => {
                let finished = self.remove_file(file);
                self.fail(path, error.failure(), finished);
            }
        }
    }

    fn take_group(&mut self, file: u32, data: Vec<(Entry, Body)>, parity: Vec<(ChunkName, Body)>) {
        let file = self.wholes.get(&file).map_or(file, |whole| whole.filling);
        let state = self.files.entry(file).or_default();
        state.open += 1;
        let mut members = Vec::with_capacity(data.len() + parity.len());
        for (entry, body) in data {
            // A chunk that is kept of another version is counted only when it has to be sent.
            if !matches!(body, Body::Kept(_)) {
                self.cutting.bytes += u64::from(entry.len);
            }
            let place = Place::Data(state.content.chunks.len() as u32);
            state.content.push(entry);
            members.push(Member { place, name: entry.name, body: Arc::new(body) });
        }
        for (name, body) in parity {
            let place = Place::Parity(state.parity.len() as u32);
            state.parity.push(name);
            members.push(Member { place, name, body: Arc::new(body) });
        }
        let bytes = members.iter().map(|member| member.body.len()).sum();
        let slot = self.targets.next_slot();
        self.offering.add(self.groups.add(file, slot, members), bytes);
    }

    /// Tells a writer that waits for a flush, once all groups that its file has so far are stored. `number` is that of
    /// the file or of a part of it.
    pub(super) fn tell_flushed(&mut self, number: u32) {
        let part = self.files.get(&number).and_then(|state| state.part);
        // The part that is being filled has no number yet.
        let filled = || self.wholes.iter().find(|(_, whole)| whole.filling == number);
        let file = part.map(|part| part.file).or_else(|| filled().map(|(file, _)| *file));
        let file = file.unwrap_or(number);
        let flushed = match self.wholes.get_mut(&file) {
            Some(whole) => {
                let open = |state: &FileState| {
                    state.open > 0 && state.part.is_some_and(|part| part.file == file)
                };
                let filling = self.files.get(&whole.filling).is_some_and(|state| state.open > 0);
                match filling || self.files.values().any(open) {
                    true => None,
                    false => whole.flushed.take(),
                }
            }
            None => {
                let stored = |state: &&mut FileState| state.open == 0;
                self.files.get_mut(&file).filter(stored).and_then(|state| state.flushed.take())
            }
        };
        if let Some(done) = flushed {
            let _ = done.send(()); // its writer may be gone
        }
    }
}
