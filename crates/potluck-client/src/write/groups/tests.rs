//! Tests of which donors the chunks of a group are sent to: as planned, when some are held, and when donors fail or
//! are late.

use super::*;
use crate::buffer::Buffers;
use crate::donors::Donors;
use potluck_core::entropy::SeededEntropy;
use potluck_core::ids::Domain;
use potluck_core::placement::{Plan, Section};
use potluck_core::policy::AckLevel;
use potluck_core::traffic::{BothWays, Direction};
use potluck_wire::addresses::Addresses;
use potluck_wire::control::DonorAccess;
use potluck_wire::env::Env;
use potluck_wire::ticket::{Receipt, Secret, Ticket};

use std::collections::BTreeSet;

const LEN: usize = 4096;

fn coded() -> Policy {
    Policy { ec: Some("4+2".parse().expect("a code")), ..Policy::default() }
}

fn copied(copies: u32, mirror: Mirror) -> Policy {
    Policy { copies, mirror, ..Policy::default() }
}

/// Makes a session with the donors 1 to `count`, all of them idle.
fn targets(count: u32) -> (Targets, Donors) {
    in_domains(count, &[])
}

/// Makes a session with the idle donors 1 to `count`, each in a failure domain of its own but for those listed.
fn in_domains(count: u32, domains: &[(u32, Domain)]) -> (Targets, Donors) {
    planned(count, count, domains)
}

/// Makes a session with a plan of `count` donors and so many slots for each group.
fn planned(count: u32, slots: u32, domains: &[(u32, Domain)]) -> (Targets, Donors) {
    let domain = |number| domains.iter().find(|(of, _)| *of == number);
    let donors = Donors::new(Env::system(), Buffers::new(1 << 20), Direction::Write);
    let access = |number| DonorAccess {
        donor: DonorId(number),
        name: format!("d{number}"),
        addresses: Addresses::default(),
        live: true,
        load: 0.0,
        rates: BothWays::default(),
        limits: BothWays::default(),
        incarnation: None,
        ticket: Some(Ticket::issue(&Secret::from_bytes([1; 32]), &SeededEntropy::new(1), &[])),
        domain: domain(number).map_or(number, |(_, domain)| *domain),
    };
    donors.learn((1..=count).map(access).collect());
    let section =
        Section { donors: (1..=count).map(DonorId).collect(), chunks: 1, bytes: LEN as u64 };
    let plan =
        Plan { stripe_size: 1, sections: vec![section], copies: slots, chunk_size: LEN as u32 };
    (Targets::new(donors.clone(), plan), donors)
}

/// Adds a group whose chunks have these contents, of which the first four are data; returns the names that are new.
async fn group(groups: &mut Groups, slot: u64, contents: &[u8]) -> Vec<ChunkName> {
    let buffers = Buffers::new(1 << 20);
    let mut members = Vec::new();
    for (at, content) in contents.iter().enumerate() {
        let mut body = buffers.claim(LEN).await.buffer(LEN);
        body.fill(*content);
        let place = match at {
            0..4 => Place::Data(at as u32),
            _ => Place::Parity(at as u32 - 4),
        };
        let name = ChunkName::of(&body);
        members.push(Member { place, name, body: Arc::new(Body::Memory(body)) });
    }
    let names = groups.add(0, slot, members);
    let unoffered = groups.take_unoffered();
    groups.offered(unoffered);
    names
}

fn name(content: u8) -> ChunkName {
    ChunkName::of(&[content; LEN])
}

fn receipt(byte: u8) -> Receipt {
    Receipt::from_bytes(&[byte; Receipt::SIZE])
}

fn ack(donor: DonorId) -> Ack {
    (donor, AckLevel::Memory, receipt(donor.0 as u8))
}

/// Acknowledges everything that is sent until nothing more is; returns the chunks with their donors.
fn deliver(groups: &mut Groups, targets: &Targets) -> Vec<(ChunkName, DonorId)> {
    let mut all = Vec::new();
    loop {
        let sends = place(groups, targets).expect("enough donors");
        if sends.is_empty() {
            return all;
        }
        sends.iter().for_each(|(name, donor)| groups.acked(name, ack(*donor), &[]));
        all.extend(sends);
    }
}

/// Returns the chunks that are to be sent now, each with its donor.
fn place(groups: &mut Groups, targets: &Targets) -> Result<Vec<(ChunkName, DonorId)>, Stranded> {
    let sends = groups.place(targets, false, Tick::ZERO)?;
    Ok(sends.into_iter().map(|send| (send.name, send.donor)).collect())
}

/// Takes the chunks of all groups that were stored.
fn stored(groups: &mut Groups) -> Vec<StoredChunk> {
    groups.take_stored().into_iter().flat_map(|stored| stored.chunks).collect()
}

fn donors_of(chunks: &[StoredChunk]) -> BTreeSet<DonorId> {
    chunks.iter().flat_map(|chunk| &chunk.acks).map(|(donor, ..)| *donor).collect()
}

#[tokio::test]
async fn every_chunk_of_a_group_gets_its_own_donor_as_planned() {
    let (targets, _donors) = targets(6);
    let mut groups = Groups::new(&coded());
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    let sent = deliver(&mut groups, &targets);
    let planned: Vec<_> = (1..=6).map(|at| (name(at), DonorId(at.into()))).collect();
    assert_eq!(sent, planned);
    let placed = stored(&mut groups);
    assert_eq!((placed.len(), donors_of(&placed).len()), (6, 6));
    assert!(groups.is_empty() && groups.body(&name(1)).is_none());
}

#[tokio::test]
async fn equal_chunks_of_a_group_use_distinct_donors() {
    let (targets, _donors) = targets(6);
    let mut groups = Groups::new(&coded());
    let names = group(&mut groups, 0, &[0; 6]).await;
    assert_eq!(names, [name(0)], "one name to offer");
    assert_eq!(deliver(&mut groups, &targets).len(), 6);
    assert_eq!(donors_of(&stored(&mut groups)).len(), 6);

    assert!(group(&mut groups, 0, &[0; 6]).await.is_empty());
    assert!(deliver(&mut groups, &targets).is_empty(), "all of them are there already");
    let placed = stored(&mut groups);
    assert!(placed.iter().all(|chunk| chunk.sent.is_none()));
    assert_eq!(donors_of(&placed).len(), 6);
}

#[tokio::test]
async fn held_chunk_is_resent_if_its_donor_has_another_shard() {
    let (targets, _donors) = targets(6);
    let mut groups = Groups::new(&coded());
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    groups.held(&name(1), vec![DonorId(3)]);
    groups.held(&name(2), vec![DonorId(3)]);
    groups.held(&name(6), vec![DonorId(9)]);
    let sent = deliver(&mut groups, &targets);
    assert_eq!(sent.len(), 4, "1 and 6 stay where they are: {sent:?}");
    assert!(sent.iter().all(|(_, donor)| *donor != DonorId(3)));
    let to: BTreeSet<DonorId> = sent.iter().map(|(_, donor)| *donor).collect();
    assert_eq!(to.len(), 4);
    assert!(groups.is_empty());
    let held = |chunk: &&StoredChunk| chunk.sent.is_none() && chunk.acks.is_empty();
    assert_eq!(stored(&mut groups).iter().filter(held).count(), 2);
}

#[tokio::test]
async fn failed_donor_is_replaced_from_outside_the_group() {
    let (mut targets, _donors) = targets(7);
    let mut groups = Groups::new(&coded());
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    let sends = place(&mut groups, &targets).expect("enough donors");
    for (name, donor) in &sends {
        match donor {
            DonorId(2) => groups.failed(name, *donor),
            donor => groups.acked(name, ack(*donor), &[]),
        }
    }
    targets.give_up(DonorId(2));
    let again = place(&mut groups, &targets).expect("donor 7 is left");
    assert_eq!(again, [(name(2), DonorId(7))]);
    groups.failed(&name(2), DonorId(7));
    targets.give_up(DonorId(7));
    assert_eq!(place(&mut groups, &targets), Err(Stranded));
    assert_eq!(groups.body(&name(2)).map(|body| body.len()), Some(LEN), "for whoever comes next");
}

#[tokio::test]
async fn late_chunk_is_hedged_outside_its_group() {
    let (targets, donors) = targets(7);
    let mut groups = Groups::new(&coded());
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    let sends = place(&mut groups, &targets).expect("enough donors");
    let late = Tick::from_secs(60);
    donors.rates(|rates| {
        let estimate = rates.entry(DonorId(7)).or_default();
        estimate.sent(LEN as u32, Tick::ZERO);
        estimate.acked(LEN as u32, Tick::ZERO, Tick::from_millis(1));
        for donor in 1..=6 {
            rates.entry(DonorId(donor)).or_default().sent(LEN as u32, Tick::ZERO);
        }
    });
    let hedge = |groups: &mut Groups, (name, slow): (ChunkName, DonorId)| {
        groups.hedge(&targets, &name, slow, Tick::ZERO, late).map(|send| send.donor)
    };
    assert_eq!(hedge(&mut groups, sends[0]), Some(DonorId(7)));
    assert_eq!(hedge(&mut groups, sends[1]), None, "nobody else is left");
    groups.acked(&name(1), ack(DonorId(7)), &[]);
    groups.acked(&name(1), ack(DonorId(1)), &[]);
    assert!(stored(&mut groups).is_empty(), "the others of the group are under way");
    sends[1..].iter().for_each(|(name, donor)| groups.acked(name, ack(*donor), &[]));
    let chunks = stored(&mut groups);
    assert_eq!((chunks.len(), &chunks[0].acks[..]), (6, &[ack(DonorId(7))][..]));
}

#[tokio::test]
async fn first_send_of_a_chunk_is_counted_once() {
    let (mut targets, _donors) = targets(3);
    let mut groups = Groups::new(&copied(2, Mirror::ClientSync));
    group(&mut groups, 0, &[1]).await;
    let sends = groups.place(&targets, false, Tick::ZERO).expect("enough donors");
    assert_eq!(sends.iter().map(|send| send.is_first).collect::<Vec<_>>(), [true, false]);
    groups.failed(&name(1), sends[0].donor);
    targets.give_up(sends[0].donor);
    let again = groups.place(&targets, false, Tick::ZERO).expect("one is left");
    assert_eq!(again.iter().map(|send| send.is_first).collect::<Vec<_>>(), [false]);
}

#[tokio::test]
async fn failed_chunk_is_resent_to_a_separate_failure_domain() {
    let domains = [(7, 1), (8, 2)];
    let (mut targets, _donors) = in_domains(8, &domains);
    let mut groups = Groups::new(&coded());
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    let sends = place(&mut groups, &targets).expect("enough donors");
    for (name, donor) in &sends {
        match donor {
            DonorId(2) => groups.failed(name, *donor),
            donor => groups.acked(name, ack(*donor), &[]),
        }
    }
    targets.give_up(DonorId(2));
    assert_eq!(place(&mut groups, &targets), Ok(vec![(name(2), DonorId(8))]), "7 fails with 1");
    groups.failed(&name(2), DonorId(8));
    targets.give_up(DonorId(8));
    assert_eq!(
        place(&mut groups, &targets),
        Ok(vec![(name(2), DonorId(7))]),
        "nobody else is left"
    );
}

#[tokio::test]
async fn chunk_held_in_a_group_domain_is_sent_elsewhere() {
    let domains = [(2, 1)];
    for (count, sent_again) in [(7, 1), (6, 0)] {
        let (targets, _donors) = in_domains(count, &domains);
        let mut groups = Groups::new(&coded());
        group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
        (1..=6).for_each(|at| groups.held(&name(at), vec![DonorId(at.into())]));
        assert_eq!(deliver(&mut groups, &targets).len(), sent_again);
        assert_eq!(stored(&mut groups).len(), 6);
        assert!(groups.is_empty());
    }
}

/// Adds a chunk with copies, for the plan's first slot; returns its name if it is new.
async fn chunk(groups: &mut Groups, content: u8) -> Vec<ChunkName> {
    group(groups, 0, &[content]).await
}

fn to(donors: impl IntoIterator<Item = u32>) -> Vec<(ChunkName, DonorId)> {
    donors.into_iter().map(|donor| (name(1), DonorId(donor))).collect()
}

#[tokio::test]
async fn repeated_chunk_is_sent_once_and_proved_per_place() {
    let (targets, _donors) = planned(3, 2, &[]);
    let mut groups = Groups::new(&copied(2, Mirror::ClientSync));
    assert_eq!(chunk(&mut groups, 1).await, [name(1)]);
    assert!(chunk(&mut groups, 1).await.is_empty(), "one name to offer");
    assert_eq!(deliver(&mut groups, &targets), to([1, 2]));
    chunk(&mut groups, 1).await;
    assert!(deliver(&mut groups, &targets).is_empty());
    let chunks = stored(&mut groups);
    let sent: Vec<_> = chunks.iter().map(|chunk| chunk.sent).collect();
    assert_eq!(sent, [Some(LEN as u32), None, None], "it is counted once, not for each copy");
    assert!(chunks.iter().all(|chunk| chunk.acks == [ack(DonorId(1)), ack(DonorId(2))]));
    assert!(groups.is_empty());
}

#[tokio::test]
async fn copies_that_the_pool_holds_are_not_sent() {
    let (targets, _donors) = planned(3, 3, &[]);
    let mut groups = Groups::new(&copied(3, Mirror::ClientSync));
    chunk(&mut groups, 1).await;
    groups.held(&name(1), vec![DonorId(1), DonorId(9)]);
    assert_eq!(deliver(&mut groups, &targets), to([3]));
    assert_eq!(stored(&mut groups)[0].acks, [ack(DonorId(3))]);
}

#[tokio::test]
async fn short_write_keeps_copies_for_one_more_death() {
    let (mut targets, _donors) = planned(2, 3, &[]);
    let mut groups = Groups::new(&copied(3, Mirror::ClientSync));
    chunk(&mut groups, 1).await;
    assert_eq!(deliver(&mut groups, &targets), to([1, 2]));
    assert_eq!(stored(&mut groups)[0].acks.len(), 2);
    assert_eq!((groups.pending(), groups.abandoned()), (0, 0), "the manager sees what is missing");
    chunk(&mut groups, 2).await;
    targets.give_up(DonorId(1));
    assert_eq!(place(&mut groups, &targets), Ok(vec![(name(2), DonorId(2))]));
    assert_eq!(place(&mut groups, &targets), Err(Stranded), "one copy is too few");
}

#[tokio::test]
async fn async_protocol_counts_a_chunk_stored_at_first_copy() {
    let (mut targets, _donors) = planned(3, 3, &[]);
    let mut groups = Groups::new(&copied(3, Mirror::ClientAsync));
    chunk(&mut groups, 1).await;
    assert_eq!(place(&mut groups, &targets), Ok(to([1, 2, 3])));
    groups.acked(&name(1), ack(DonorId(2)), &[]);
    assert_eq!(stored(&mut groups)[0].acks, [ack(DonorId(2))]);
    assert_eq!((groups.pending(), groups.has_pending()), (2, true));
    groups.acked(&name(1), ack(DonorId(1)), &[]);
    assert!(groups.body(&name(1)).is_some(), "for the third copy");
    groups.failed(&name(1), DonorId(3));
    targets.give_up(DonorId(3));
    assert_eq!(place(&mut groups, &targets), Err(Stranded));
    let rest = groups.place(&targets, true, Tick::ZERO).map(|sends| sends.len());
    assert_eq!((rest, groups.pending(), groups.abandoned()), (Ok(0), 0, 1), "left to repair");
    assert!(!groups.has_pending());
    assert!(groups.take_stored().is_empty() && groups.is_empty());
}

#[tokio::test]
async fn client_sends_copies_that_the_first_donor_could_not_forward() {
    for mirror in [Mirror::ServerSync, Mirror::ServerAsync] {
        let (targets, _donors) = planned(4, 3, &[]);
        let mut groups = Groups::new(&copied(3, mirror));
        chunk(&mut groups, 1).await;
        let sends = groups.place(&targets, false, Tick::ZERO).expect("enough donors");
        let [Send { donor: DonorId(1), forward: Some(forward), .. }] = &sends[..] else {
            panic!("one is sent: {sends:?}")
        };
        let routes: Vec<DonorId> = forward.to.iter().map(|to| to.donor).collect();
        assert_eq!(routes, [DonorId(2), DonorId(3)]);
        assert_eq!(forward.wait, mirror == Mirror::ServerSync);
        if mirror == Mirror::ServerAsync {
            groups.acked(&name(1), ack(DonorId(1)), &[]);
            assert_eq!(stored(&mut groups)[0].acks, [ack(DonorId(1))]);
            assert_eq!((groups.pending(), groups.forwarded_later()), (0, 2));
            chunk(&mut groups, 1).await;
            assert!(deliver(&mut groups, &targets).is_empty(), "those that take it later count");
            continue;
        }
        groups.acked(&name(1), ack(DonorId(1)), &[None, Some(receipt(3))]);
        assert!(groups.take_stored().is_empty());
        assert_eq!(deliver(&mut groups, &targets).len(), 1);
        assert_eq!(stored(&mut groups)[0].acks.len(), 3);
    }
}

#[tokio::test]
async fn client_sends_a_chunk_when_its_forwarder_fails() {
    let (mut targets, _donors) = planned(3, 2, &[]);
    let mut groups = Groups::new(&copied(2, Mirror::ServerSync));
    chunk(&mut groups, 1).await;
    assert_eq!(place(&mut groups, &targets), Ok(to([1])));
    groups.failed(&name(1), DonorId(1));
    targets.give_up(DonorId(1));
    assert_eq!(deliver(&mut groups, &targets), to([2, 3]), "each chunk is forwarded once");
    assert!(groups.is_empty());
}

#[tokio::test]
async fn late_copy_is_hedged_within_free_domains() {
    let domains = [(3, 1), (4, 2)];
    let (mut targets, donors) = planned(4, 2, &domains);
    let mut groups = Groups::new(&copied(2, Mirror::ClientSync));
    chunk(&mut groups, 1).await;
    assert_eq!(place(&mut groups, &targets), Ok(to([1, 2])));
    donors.rates(|rates| {
        for donor in [3, 4] {
            let estimate = rates.entry(DonorId(donor)).or_default();
            estimate.sent(LEN as u32, Tick::ZERO);
            estimate.acked(LEN as u32, Tick::ZERO, Tick::from_millis(1));
        }
        for donor in [1, 2] {
            rates.entry(DonorId(donor)).or_default().sent(LEN as u32, Tick::ZERO);
        }
    });
    let late = Tick::from_secs(60);
    let hedged = groups.hedge(&targets, &name(1), DonorId(1), Tick::ZERO, late);
    assert_eq!(hedged.map(|send| send.donor), Some(DonorId(3)), "4 fails with 2");
    targets.give_up(DonorId(4));
    let hedged = groups.hedge(&targets, &name(1), DonorId(2), Tick::ZERO, late);
    assert!(hedged.is_none(), "the only one left has the other copy");
    groups.acked(&name(1), ack(DonorId(1)), &[]);
    groups.acked(&name(1), ack(DonorId(3)), &[]);
    assert!(groups.take_stored().is_empty(), "both are the same copy");
    groups.acked(&name(1), ack(DonorId(2)), &[]);
    assert_eq!(stored(&mut groups)[0].acks, [ack(DonorId(1)), ack(DonorId(2))]);
}

/// A donor that has room for one chunk is given one, however many wait.
#[tokio::test]
async fn waiting_chunks_are_dealt_out_to_the_donors_in_turn() {
    let (targets, donors) = planned(4, 1, &[]);
    let mut groups = Groups::new(&copied(1, Mirror::ClientSync));
    let slow = |count: usize| {
        donors.rates(|rates| {
            for donor in (1..=4).map(DonorId) {
                for _ in 0..count {
                    rates.entry(donor).or_default().sent(LEN as u32, Tick::ZERO);
                }
            }
        });
    };
    let has_room = |donor| donors.rates(|rates| rates[&DonorId(donor)].has_room(LEN as u32));
    while has_room(1) {
        slow(1);
    }
    for content in 1..=8 {
        group(&mut groups, content.into(), &[content]).await;
    }
    assert_eq!(place(&mut groups, &targets), Ok(Vec::new()), "all have enough to do");
    // A chunk is withdrawn from each of two donors.
    for donor in [2, 3] {
        donors.rates(|rates| rates.entry(DonorId(donor)).or_default().withdrawn(LEN as u32));
    }
    let sends = place(&mut groups, &targets).expect("enough donors");
    let to: BTreeSet<DonorId> = sends.iter().map(|(_, donor)| *donor).collect();
    assert_eq!((sends.len(), to), (2, BTreeSet::from([DonorId(2), DonorId(3)])), "{sends:?}");
}

#[tokio::test]
async fn a_chunk_that_is_given_up_takes_its_groups_along_and_no_other() {
    let (targets, _donors) = targets(2);
    let mut groups = Groups::new(&copied(1, Mirror::ClientSync));
    group(&mut groups, 0, &[1]).await;
    group(&mut groups, 1, &[2]).await;
    let sends = groups.place(&targets, false, Tick::ZERO).expect("donors");
    assert_eq!(sends.len(), 2);
    assert_eq!(groups.give_up(&name(1)), [0], "the file of its group");
    assert_eq!(groups.give_up(&name(1)), [0; 0], "once");
    assert!(groups.body(&name(1)).is_none() && groups.body(&name(2)).is_some());
    groups.acked(&name(1), (DonorId(1), AckLevel::Memory, receipt(1)), &[]);
    assert!(groups.take_stored().is_empty(), "what a donor says of it later is about nothing");
}

#[tokio::test]
async fn abandoned_group_frees_chunk_bytes_nobody_awaits() {
    let (targets, _donors) = targets(6);
    let mut groups = Groups::new(&coded());
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    group(&mut groups, 1, &[2, 7, 8, 9, 10, 11]).await;
    assert_eq!(groups.give_up(&name(1)), [0]);
    assert!((3..=6).all(|at| groups.body(&name(at)).is_none()), "their memory is given back");
    assert!(groups.body(&name(2)).is_some(), "the other group has it, too");
    deliver(&mut groups, &targets);
    assert_eq!(stored(&mut groups).len(), 6);
    assert!(groups.is_empty() && (2..=11).all(|at| groups.body(&name(at)).is_none()));
}
