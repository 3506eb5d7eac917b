//! Sending again: donors that took chunks of a file have gone before it was committed, and the manager
//! refused it. What they had is read from donors that are still there, and sent to others.

use super::{ChunkState, Event, FileState, Window};
use crate::link::{GetResult, Proof, Wanted};
use crate::source::Facts;
use crate::write::copies::{Reread, There};
use crate::write::pushes::Finished;
use crate::write::session::SessionCalls;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::policy::AckLevel;
use potluck_core::recipe;
use potluck_wire::control::{FileCommit, Offered};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often a file is sent again; each time other donors have gone.
const TRIES: u32 = 3;
/// No larger file is sent again: its chunks are read over the links that they are sent over, in the memory
/// that holds what is sent, and more of them would wait for each other. It is written again by the same
/// command, which sends what is lacking.
const LARGEST: u64 = 32 << 20;
/// Names in one question where chunks are that the pool held.
const OFFERED_AT_ONCE: usize = 8192;

async fn who_is_there(
    calls: SessionCalls,
    held: Vec<ChunkName>,
    ack: AckLevel,
) -> Result<There, Failure> {
    let mut there: BTreeMap<_, _> = held.iter().map(|name| (*name, Vec::new())).collect();
    for names in held.chunks(OFFERED_AT_ONCE) {
        let Offered { held } = calls.clone().offer(names.to_vec(), ack).await?;
        there.extend(held.into_iter().map(|found| (names[found.index as usize], found.donors)));
    }
    Ok((calls.reach().await?, there))
}

impl Window {
    /// Takes a file that was refused for that up again; `false` if its chunks are nowhere else, as those
    /// of a group are, or if it was sent often enough. Its writer goes on waiting.
    pub(super) fn send_again(
        &mut self,
        file: &FileCommit,
        finished: &mut Option<Finished>,
    ) -> bool {
        let tries = self.sent_again.entry(file.path.clone()).or_default();
        *tries += 1;
        let pages = file.pages.iter().map(|page| &page.0[..]);
        let Ok(entries) = recipe::unpack(&file.digest, pages) else { return false };
        if file.ec.is_some() || file.size > LARGEST || *tries > TRIES {
            return false;
        }
        // The cutter counts up from 0.
        let mut numbers = (0..=u32::MAX).rev();
        let Some(number) = numbers.find(|number| !self.files.contains_key(number)) else {
            return false;
        };
        let facts = Facts {
            path: file.path.clone(),
            size: file.size,
            digest: file.digest,
            mtime_ms: Some(file.mtime_ms),
            executable: file.executable,
            stream: false,
            inline: None,
        };
        let acknowledged = file.acknowledged.0.clone();
        let sent: BTreeSet<u32> = acknowledged.iter().map(|said| said.chunk).collect();
        let held = (0..).zip(&entries).filter(|(index, _)| !sent.contains(index));
        let held: BTreeSet<ChunkName> = held.map(|(_, entry)| entry.name).collect();
        let finished = finished.take();
        let state =
            FileState { entries, acknowledged, finished, is_again: true, ..FileState::default() };
        self.files.insert(number, state);
        let (calls, ack) = (self.session.calls(), self.session.reserved.policy.ack);
        self.events.push(Box::pin(async move {
            let there = who_is_there(calls, held.into_iter().collect(), ack).await;
            Event::Heard(number, facts, there)
        }));
        true
    }

    /// Finds out which chunks of a refused file have too few copies at donors that are there.
    pub(super) fn take_heard(&mut self, number: u32, facts: Facts, (heard, held): There) {
        let live = heard.donors.iter().filter(|donor| donor.live);
        let live: BTreeSet<DonorId> = live.map(|donor| donor.donor).collect();
        self.donors.learn(heard.donors);
        let Some(state) = self.files.get_mut(&number) else { return };
        let mut chunks = BTreeMap::<ChunkName, Reread>::new();
        for (index, entry) in (0..).zip(&state.entries) {
            let chunk = chunks.entry(entry.name).or_insert_with(|| Reread {
                entry: *entry,
                users: Vec::new(),
                acks: Vec::new(),
                held: held.get(&entry.name).cloned().unwrap_or_default(),
                asked: 0,
            });
            chunk.users.push((number, index));
        }
        for said in &state.acknowledged {
            let name = state.entries.get(said.chunk as usize).map(|entry| entry.name);
            let Some(chunk) = name.and_then(|name| chunks.get_mut(&name)) else { continue };
            if !live.contains(&said.donor) {
                self.copies.give_up(said.donor, true);
            } else if !chunk.at().contains(&said.donor) {
                chunk.acks.push((said.donor, said.ack, said.receipt));
            }
        }
        let enough = match self.mirror.is_async() {
            true => 1,
            false => self.session.reserved.policy.copies as usize,
        };
        chunks.retain(|_, chunk| chunk.at().len() < enough);
        let users = chunks.values().flat_map(|chunk| &chunk.users);
        let again: BTreeSet<u32> = users.map(|(_, index)| *index).collect();
        state.acknowledged.retain(|said| !again.contains(&said.chunk));
        state.open = again.len();
        state.facts = Some(facts);
        for (name, mut chunk) in chunks {
            let Some(known) = self.chunks.get_mut(&name) else {
                self.read_again(chunk);
                continue;
            };
            // Copies that were acknowledged after the file was to be committed count, too.
            known.replicas.acks.retain(|(donor, ..)| live.contains(donor));
            if known.body.is_none() {
                let at = chunk.at();
                let later = known.replicas.acks.iter().filter(|(donor, ..)| !at.contains(donor));
                chunk.acks.extend(later.copied().collect::<Vec<_>>());
                self.read_again(chunk);
                continue;
            }
            known.replicas.targets.retain(|donor| live.contains(donor));
            known.users.extend(chunk.users);
            known.told = false;
            self.queue.push_back(name);
            self.count_copies(name);
        }
        self.complete(number);
    }

    fn read_again(&mut self, chunk: Reread) {
        let Some(donor) = chunk.at().get(chunk.asked).copied() else {
            return self.lose(&chunk);
        };
        let (donors, entry) = (self.donors.clone(), chunk.entry);
        let wanted =
            Wanted { name: entry.name, len: entry.stored_len(), part: None, proof: Proof::Name };
        self.events.push(Box::pin(async move {
            let result = match donors.link(donor).await {
                Ok(link) => link.get(wanted).await,
                Err(error) => Err(error),
            };
            Event::ReadAgain(chunk, result)
        }));
    }

    /// Sends what was read to as many more donors as the chunk lacks.
    pub(super) fn take_read_again(&mut self, mut chunk: Reread, result: GetResult) {
        let body = match result {
            Ok(body) => Arc::new(body),
            Err(error) => {
                tracing::debug!(chunk = %chunk.entry.name, %error, "a chunk is not read again");
                chunk.asked += 1;
                return self.read_again(chunk);
            }
        };
        let targets = chunk.at();
        let Reread { entry, users, acks, held, .. } = chunk;
        match self.chunks.get_mut(&entry.name) {
            // Another file has it sent just now.
            Some(known) if !known.told => return known.users.extend(users),
            _ => {}
        }
        let (policy, held) = (&self.session.reserved.policy, held.len() as u32);
        let mut replicas = self.copies.replica_set();
        replicas.want = policy.copies.saturating_sub(held);
        replicas.least = policy.least_donors().saturating_sub(held);
        (replicas.targets, replicas.acks, replicas.held) = (targets, acks, held > 0);
        let state = ChunkState {
            len: entry.stored_len(),
            body: Some(body),
            replicas,
            users,
            told: false,
            forwarded: None,
            may_forward: false,
        };
        self.chunks.insert(entry.name, state);
        self.queue.push_back(entry.name);
        self.count_copies(entry.name);
    }

    /// No donor of a chunk is left.
    fn lose(&mut self, chunk: &Reread) {
        for (number, _) in &chunk.users {
            let Some(state) = self.files.remove(number) else { continue };
            let Some(facts) = state.facts else { continue };
            let what = format!("{}: the donors that took it have gone", facts.path);
            let failure = Failure::new(ErrorKind::Retry, code::NOT_ACKNOWLEDGED, what)
                .hint("run the same command again: what is there is not sent again");
            self.fail(facts.path, failure, state.finished);
        }
    }
}
