//! Sending again: donors that took chunks of a file, or held them before, went away or were restarted before the file
//! was committed, and the manager refused it. The chunks that they had are read again, from the local file that they
//! were cut from, or else as by any reader from donors that are still there, and sent once more: a chunk with copies
//! from another copy, a chunk of a group from the others of the group. A donor that was restarted may have lost what it
//! acknowledged before: it is a source like others, and its copy counts when it has acknowledged the chunk once more.
//!
//! A chunk of copies that is neither here nor at a live donor is waited for as in any read: its donor may come back, or
//! another may tell of a copy that it was forwarded.

use super::local_files::LocalFiles;
use super::stages::PartOf;
use super::{Event, FileState, Window};
use crate::attributes::Attributes;
use crate::body::Body;
use crate::fetch::{ChunkLocator, Fetcher, LocatedChunks};
use crate::recipe::Recipe;
use crate::source::{CutError, Facts, RowBytes};
use crate::stored_rows::{LocalRows, StoredRows};
use crate::write::groups::{Member, Place};
use crate::write::pushes::Finished;
use crate::write::reservation::SessionCalls;
use crate::write::targets::{Ack, At};
use potluck_core::chunk::ChunkName;
use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, Incarnation, VersionId};
use potluck_core::matching;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Race};
use potluck_core::recipe;
use potluck_wire::control::{FileCommit, InParts, OpenFile};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use potluck_wire::packed::Packed;
use potluck_wire::ticket::Acknowledged;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The most times that a file is sent again; each time other donors went away.
const TRIES: u32 = 3;
/// The most rows that are read again at a time. Rows that wait have no bytes in memory.
const AT_ONCE: usize = 4;
/// The advice for a file that lost donors and cannot be sent again.
const AGAIN: &str = "run the same command again: what is there is not sent again";

/// The rows that are to be read again, and the number of times that each file was refused.
#[derive(Default)]
pub(super) struct Rereads {
    rows: VecDeque<Row>,
    under_way: usize,
    /// The local files that are not visible yet.
    pub local: LocalFiles,
    /// The number of times that each file, and each part of a file, was refused.
    refused: BTreeMap<(PoolPath, Option<PartOf>), u32>,
}

/// A chunk that lost copies, or a group that lost chunks.
pub(super) struct Row {
    file: Arc<Refused>,
    /// The indexes of the group's data chunks in the file.
    data: Range<usize>,
    /// The indexes in the file of all chunks that are sent again with the row; parity counts on after the data.
    at: Vec<u32>,
    /// The donors that have chunks of the row.
    there: BTreeMap<ChunkName, At>,
}

/// A file that was refused, with the donors that have its chunks now.
struct Refused {
    number: u32,
    rows: StoredRows,
}

/// Finds the chunks of a file that was refused.
struct RefusedChunks {
    calls: SessionCalls,
    /// The donors that have, or had, each chunk as far as this session knows.
    known: BTreeMap<ChunkName, Vec<DonorId>>,
    /// The chunks that no live donor had.
    lost: BTreeSet<ChunkName>,
}

impl ChunkLocator for RefusedChunks {
    fn locate(&self, chunks: Vec<ChunkName>) -> BoxFuture<'_, Result<LocatedChunks, Failure>> {
        let lost = chunks.into_iter().filter(|name| self.lost.contains(name));
        let lost: BTreeMap<_, _> = lost.map(|name| (name, Vec::new())).collect();
        Box::pin(async move {
            // A copy in memory is enough to read from.
            let mut located = self.calls.clone().locate(lost, AckLevel::Memory).await?;
            for (name, known) in &self.known {
                let holders = located.holders.entry(*name).or_default();
                let others = known.iter().filter(|donor| !holders.contains(donor));
                let others: Vec<DonorId> = others.copied().collect();
                holders.extend(others);
            }
            Ok(located)
        })
    }
}

impl Window {
    /// Counts that a file was refused because donors went away, and returns whether it may be sent again: at most
    /// [`TRIES`] times.
    pub(super) fn may_send_again(&mut self, file: &FileCommit) -> bool {
        let what = (file.path.clone(), part_of(file));
        let tries = self.rereads.refused.entry(what).or_default();
        *tries += 1;
        *tries <= TRIES
    }

    /// Begins to send a file again that was refused because donors went away: asks which donors have its chunks. Its
    /// writer goes on waiting.
    pub(super) fn send_again(&mut self, file: FileCommit, finished: Option<Finished>) {
        let content = recipe::unpack(&file.digest, file.pages.iter().map(|page| &page.0[..]));
        let Ok(content) = content else {
            let what = format!("{}: it cannot be sent again", file.path);
            let failure = Failure::new(ErrorKind::Other, code::BAD_REQUEST, what).hint(AGAIN);
            return match part_of(&file) {
                Some(part) => self.fail_part(part, file.path, failure),
                None => self.fail(file.path, failure, finished),
            };
        };
        let number = self.new_number();
        let names = content.chunks.iter().map(|entry| entry.name);
        let names = names.chain(file.parity.0.iter().copied());
        let sent: BTreeSet<u32> = file.acknowledged.0.iter().map(|said| said.chunk).collect();
        let held = (0..).zip(names).filter(|(index, _)| !sent.contains(index));
        let held = held.map(|(_, name)| (name, Vec::new())).collect();
        let parity = file.parity.0.clone();
        let part = part_of(&file);
        let again = FileState { content, parity, finished, part, ..FileState::default() };
        let state = FileState { is_again: true, ..again };
        self.files.insert(number, state);
        let (calls, ack) = (self.session.calls(), self.session.reserved.policy.ack);
        self.events.push(Box::pin(async move {
            Event::Heard(number, Box::new(file), calls.locate(held, ack).await)
        }));
    }

    /// Queues the rows of a refused file that have too few chunks at live donors, so that they are read again; records
    /// the acknowledgements of the others.
    pub(super) fn take_heard(&mut self, number: u32, file: FileCommit, heard: LocatedChunks) {
        let live = heard.donors.iter().filter(|donor| donor.live);
        let live: BTreeMap<DonorId, Option<Incarnation>> =
            live.map(|donor| (donor.donor, donor.incarnation)).collect();
        let is_live = |donor: &DonorId| live.contains_key(donor);
        // An acknowledgement by an earlier incarnation of a donor does not count.
        let counts =
            |(donor, _, receipt): &Ack| live.get(donor) == Some(&Some(receipt.incarnation));
        let part_bytes = self.part_bytes();
        let Some(state) = self.files.get_mut(&number) else { return };
        let names = state.content.chunks.iter().map(|entry| &entry.name).chain(&state.parity);
        let names: Vec<ChunkName> = names.copied().collect();
        // A chunk may stand in a file more than once, with other receipts at each place.
        let mut there: BTreeMap<ChunkName, At> = BTreeMap::new();
        for (name, donors) in heard.holders {
            let donors = donors.into_iter().filter(is_live);
            there.entry(name).or_default().held.extend(donors);
        }
        let mut gone = BTreeMap::<ChunkName, BTreeSet<DonorId>>::new();
        let mut restarted = gone.clone();
        let own = file.acknowledged.0.iter().filter_map(|said| {
            let name = names.get(said.chunk as usize)?;
            Some((*name, (said.donor, said.ack, said.receipt)))
        });
        // Copies that were acknowledged after the file was to be committed count, too.
        let later =
            names.iter().flat_map(|name| self.groups.all_acks(name).map(move |ack| (*name, *ack)));
        for (name, ack) in own.chain(later) {
            if counts(&ack) {
                there.entry(name).or_default().add(ack);
            } else {
                let whose = if is_live(&ack.0) { &mut restarted } else { &mut gone };
                whose.entry(name).or_default().insert(ack.0);
            }
        }
        // Returns the live donors from which the chunk may be read, including those whose copy does not count.
        let sources = |name: &ChunkName| {
            let counted = there.get(name).map(At::donors).unwrap_or_default();
            let others = restarted.get(name).into_iter().flatten();
            let others: Vec<_> = others.filter(|donor| !counted.contains(donor)).copied().collect();
            [counted, others].concat()
        };
        // A donor that is away may come back with a chunk of copies. A chunk of a group is rebuilt from others instead.
        let is_lost = |name: &&ChunkName| file.ec.is_none() && sources(name).is_empty();
        let lost: BTreeSet<ChunkName> = names.iter().filter(is_lost).copied().collect();
        let donors = |name: &ChunkName| match lost.contains(name) {
            false => sources(name),
            true => gone.get(name).into_iter().flatten().copied().collect(),
        };
        let known = names.iter().map(|name| (*name, donors(name))).collect();
        let part = state.part.map_or(0, |part| u64::from(part.number));
        let data = names.len() - file.parity.0.len();
        let open = OpenFile {
            metadata: None,
            origin: None,
            path: file.path.to_string(),
            version: VersionId(0),
            size: file.size,
            holes: 0,
            digest: file.digest,
            mtime: file.mtime,
            permissions: file.permissions,
            owner: file.owner,
            changed: file.changed,
            accessed: file.accessed,
            inline: None,
            pages: file.pages.clone(),
            holders: names[..data].iter().map(donors).collect(),
            ec: file.ec,
            parity: file.parity.clone(),
            parity_holders: names[data..].iter().map(donors).collect(),
            race: Race::default(),
            part_count: 0,
            parts: Packed::default(),
            chunk_size: file.chunk_size,
            key: None,
        };
        let key = self.session.reserved.space_key.clone();
        let recipe = match Recipe::check(open, key.as_ref()) {
            Ok(recipe) => recipe,
            Err(failure) => return self.lose(number, file.path, failure),
        };
        let policy = &self.session.reserved.policy;
        let local = self.rereads.local.get(&file.path);
        let local = local.map(|path| LocalRows { path, offset: part * part_bytes });
        let enough = if policy.mirror.is_async() { 1 } else { policy.copies as usize };
        let rows = lacking(&recipe, &names, file.ec, &there, enough);
        let again: BTreeSet<u32> = rows.iter().flat_map(|row| row.at.iter().copied()).collect();
        for (at, name) in (0..).zip(&names).filter(|(at, _)| !again.contains(at)) {
            let acks = there.get(name).into_iter().flat_map(|there| &there.acks);
            let (whose, chunk) = match u32::checked_sub(at, data as u32) {
                None => (&mut state.acknowledged, at),
                Some(parity) => (&mut state.parity_acknowledged, parity),
            };
            whose.extend(acks.map(|&(donor, ack, receipt)| Acknowledged {
                chunk,
                donor,
                ack,
                receipt,
            }));
        }
        state.open = rows.iter().map(|row| row.groups(file.ec)).sum();
        state.facts = Some(Facts {
            path: file.path,
            size: file.size,
            digest: file.digest,
            last_part: file.digest,
            attributes: Attributes {
                mtime: Some(file.mtime),
                permissions: file.permissions,
                owner: file.owner,
                changed: Some(file.changed),
                accessed: file.accessed,
            },
            metadata: file.metadata.map(Box::new),
            stream: false,
            condition: Some(file.condition),
            origin: file.origin,
            inline: None,
        });
        let memory = self.client.memory_for_reading(
            recipe.largest_chunk(),
            recipe.largest_unit(),
            heard.donors.len(),
        );
        let fetcher = Fetcher::new(&self.client, memory);
        fetcher.learn(heard.donors.clone());
        fetcher.located_by(Arc::new(RefusedChunks { calls: self.session.calls(), known, lost }));
        self.donors.learn(heard.donors);
        let gone: BTreeSet<DonorId> = gone.into_values().flatten().collect();
        fetcher.not_heard(&gone);
        gone.iter().for_each(|donor| self.targets.give_up(*donor));
        let restarted: BTreeSet<DonorId> = restarted.into_values().flatten().collect();
        self.groups.keep_only(counts, |donor| is_live(donor) && !restarted.contains(donor));
        let rows_of_file = StoredRows { local, ..fetcher.rows_of(Arc::new(recipe)) };
        let refused = Arc::new(Refused { number, rows: rows_of_file });
        for Lacking { data, at } in rows {
            let of = |at: &u32| names[*at as usize];
            let there =
                at.iter().map(|at| (of(at), there.get(&of(at)).cloned().unwrap_or_default()));
            let (file, there) = (Arc::clone(&refused), there.collect());
            self.rereads.rows.push_back(Row { file, data, at, there });
        }
        self.complete(number);
    }

    /// Begins to read as many waiting rows as may be read at a time.
    pub(super) fn read_again(&mut self) {
        while self.rereads.under_way < AT_ONCE
            && let Some(row) = self.rereads.rows.pop_front()
        {
            if !self.files.contains_key(&row.file.number) || self.is_sent_anyway(&row) {
                continue;
            }
            self.rereads.under_way += 1;
            self.events.push(Box::pin(async move {
                let read = row.file.rows.read(row.data.clone()).await;
                Event::ReadAgain(Box::new(row), read)
            }));
        }
    }

    /// Returns whether the chunk of a row, in a file without an erasure code, is still in memory because another file
    /// waits for it; if so, it is sent from there and need not be read.
    fn is_sent_anyway(&mut self, row: &Row) -> bool {
        let entry = &row.file.rows.recipe.entries[row.data.start];
        let body = self.groups.body(&entry.name).filter(|_| row.file.rows.recipe.file.ec.is_none());
        body.is_some_and(|body| {
            self.send_copies_again(row, entry.name, &body);
            true
        })
    }

    /// Sends a row that was read again to as many donors as it lacks, or fails the file where it could not be read.
    pub(super) fn take_read_again(&mut self, row: Row, read: Result<RowBytes, Failure>) {
        self.rereads.under_way -= 1;
        let number = row.file.number;
        let Some(state) = self.files.get(&number) else { return };
        let (data, parity) = match read {
            Ok(read) => read,
            Err(failure) => {
                let path = state.facts.as_ref().map(|facts| facts.path.clone());
                return path.into_iter().for_each(|path| self.lose(number, path, failure.clone()));
            }
        };
        let Some(ec) = row.file.rows.recipe.file.ec else {
            for (entry, body) in data {
                self.send_copies_again(&row, entry.name, &Arc::new(Body::Memory(body)));
            }
            return;
        };
        let first = row.data.start / ec.data() * ec.parity();
        let places = row.data.clone().map(|at| Place::Data(at as u32));
        let places = places.chain((first..).map(|at| Place::Parity(at as u32)));
        let bodies = data.into_iter().map(|(entry, body)| (entry.name, body)).chain(parity);
        let member =
            |(place, (name, body))| Member { place, name, body: Arc::new(Body::Memory(body)) };
        let members: Vec<Member> = places.zip(bodies).map(member).collect();
        let named = |member: &Member| match member.place {
            Place::Data(at) => state.content.chunks.get(at as usize).map(|entry| entry.name),
            Place::Parity(at) => state.parity.get(at as usize).copied(),
        };
        if members.iter().any(|member| named(member) != Some(member.name)) {
            let path = state.facts.as_ref().map(|facts| facts.path.clone());
            let failure = CutError::Miscoded.failure();
            return path.into_iter().for_each(|path| self.lose(number, path, failure.clone()));
        }
        let slot = self.targets.next_slot();
        self.groups.add_again(number, slot, members, &row.there);
    }

    /// Sends a chunk once more for each of its places in the file.
    fn send_copies_again(&mut self, row: &Row, name: ChunkName, body: &Arc<Body>) {
        for at in &row.at {
            let slot = self.targets.next_slot();
            let member = Member { place: Place::Data(*at), name, body: Arc::clone(body) };
            self.groups.add_again(row.file.number, slot, vec![member], &row.there);
        }
    }

    /// Fails a file that was to be sent again and cannot be.
    fn lose(&mut self, number: u32, path: PoolPath, failure: Failure) {
        let Some(state) = self.files.remove(&number) else { return };
        let what = format!("{path}: donors that took it are away or dead: {}", failure.message);
        let failure = Failure { message: what, hint: AGAIN.into(), ..failure };
        match state.part {
            Some(part) => self.fail_part(part, path, failure),
            None => self.fail(path, failure, state.finished),
        }
    }
}

fn part_of(file: &FileCommit) -> Option<PartOf> {
    match file.in_parts {
        Some(InParts::Part { file, number }) => Some(PartOf { file, number }),
        _ => None,
    }
}

/// The data chunks of a row that are to be read again, and the indexes in the file of the chunks that are sent again
/// with them.
struct Lacking {
    data: Range<usize>,
    at: Vec<u32>,
}

impl Lacking {
    /// Returns the number of groups that are sent again for the row: one, or without an erasure code one for each place
    /// of the chunk in the file.
    fn groups(&self, ec: Option<Ec>) -> usize {
        ec.map_or(self.at.len(), |_| 1)
    }
}

/// Returns the rows of a file that lack redundancy: chunks with fewer than `enough` copies, or groups with a chunk that
/// has no donor of its own.
fn lacking(
    recipe: &Recipe,
    names: &[ChunkName],
    ec: Option<Ec>,
    there: &BTreeMap<ChunkName, At>,
    enough: usize,
) -> Vec<Lacking> {
    let donors = |name: &ChunkName| there.get(name).map(At::donors).unwrap_or_default();
    let data = recipe.entries.len();
    let Some(ec) = ec else {
        let mut rows: BTreeMap<ChunkName, Lacking> = BTreeMap::new();
        for (at, name) in names.iter().enumerate().filter(|(_, name)| donors(name).len() < enough) {
            let row = rows.entry(*name).or_insert(Lacking { data: at..at + 1, at: Vec::new() });
            row.at.push(at as u32);
        }
        return rows.into_values().collect();
    };
    let row = |(number, group): (usize, Range<usize>)| {
        let parity = data + number * ec.parity()..data + (number + 1) * ec.parity();
        let all = || group.clone().chain(parity.clone());
        let shards: Vec<Vec<DonorId>> = all().map(|at| donors(&names[at])).collect();
        let shards: Vec<&[DonorId]> = shards.iter().map(Vec::as_slice).collect();
        let lost = matching::assign(&shards).contains(&None);
        lost.then(|| Lacking { at: all().map(|at| at as u32).collect(), data: group.clone() })
    };
    ec.groups(data).enumerate().filter_map(row).collect()
}
