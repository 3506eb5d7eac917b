//! Groups of an erasure code: what the window does with [`crate::write::groups::Groups`].

use super::Window;
use crate::buffer::Buffer;
use crate::link::PutResult;
use crate::write::groups::{How, Member, Place, Seated, Stranded};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::recipe::Entry;
use potluck_wire::error::Failure;
use potluck_wire::ticket::Acknowledged;

impl Window {
    pub(super) fn take_group(
        &mut self,
        file: u32,
        data: Vec<(Entry, Buffer)>,
        parity: Vec<(ChunkName, Buffer)>,
    ) {
        let state = self.files.entry(file).or_default();
        state.open += data.len() + parity.len();
        let mut members = Vec::with_capacity(data.len() + parity.len());
        for (entry, body) in data {
            self.cut_bytes += u64::from(entry.len);
            let place = Place::Data(state.entries.len() as u32);
            state.entries.push(entry);
            members.push(Member { place, name: entry.name, body });
        }
        for (name, body) in parity {
            let place = Place::Parity(state.parity.len() as u32);
            state.parity.push(name);
            members.push(Member { place, name, body });
        }
        self.unoffered_bytes += members.iter().map(|member| member.body.len()).sum::<usize>();
        let slot = self.copies.next_slot();
        self.unoffered.extend(self.groups.add(file, slot, members));
    }

    pub(super) fn send_groups(&mut self) -> Result<(), Failure> {
        match self.groups.seat(&self.copies) {
            Ok(sends) => {
                for (name, donor) in sends {
                    if let Some(body) = self.groups.body(&name) {
                        self.put(name, donor, body, None);
                    }
                }
            }
            Err(Stranded) => self.replace_donors()?,
        }
        self.take_seated();
        Ok(())
    }

    pub(super) fn take_group_put(
        &mut self,
        name: ChunkName,
        donor: DonorId,
        result: PutResult,
    ) -> Result<(), Failure> {
        match result {
            Ok(stored) => self.groups.acked(&name, (donor, stored.ack, stored.receipt)),
            Err(error) => {
                self.groups.failed(&name, donor);
                self.put_failed(donor, error)?;
            }
        }
        self.take_seated();
        Ok(())
    }

    fn take_seated(&mut self) {
        for Seated { file, place, how } in self.groups.take_seated() {
            let ack = match how {
                How::Sent(bytes, ack) => {
                    self.report.sent_chunks += 1;
                    self.report.sent_bytes += u64::from(bytes);
                    Some(ack)
                }
                How::Held(ack) => {
                    self.report.held_chunks += 1;
                    ack
                }
                How::LeftOut => None,
            };
            let Some(state) = self.files.get_mut(&file) else { continue };
            state.open -= 1;
            let (index, said) = match place {
                Place::Data(index) => {
                    self.progress.advance(u64::from(state.entries[index as usize].len));
                    (index, &mut state.acknowledged)
                }
                Place::Parity(index) => (index, &mut state.parity_acknowledged),
            };
            said.extend(ack.map(|(donor, ack, receipt)| Acknowledged {
                chunk: index,
                donor,
                ack,
                receipt,
            }));
            self.complete(file);
        }
    }
}
