use super::*;
use crate::buffer::Buffers;
use crate::donors::Donors;
use potluck_core::placement::{Plan, Section};
use potluck_core::policy::AckLevel;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::DonorAccess;
use potluck_wire::env::Env;
use potluck_wire::ticket::Receipt;
use std::collections::BTreeSet;

const LEN: usize = 4096;

/// A session with the donors 1 to `count`, all of them idle.
fn copies(count: u32) -> (Copies, Donors) {
    labelled(count, &[])
}

/// A session with the idle donors 1 to `count`, of which those with one label fail together.
fn labelled(count: u32, labels: &[(u32, &str)]) -> (Copies, Donors) {
    let label = |number| labels.iter().find(|(of, _)| *of == number);
    let donors = Donors::new(Env::system(), Buffers::new(1 << 20));
    let access = |number| DonorAccess {
        donor: DonorId(number),
        name: format!("d{number}"),
        addresses: Addresses::default(),
        live: true,
        load: 0.0,
        ticket: None,
        domain: label(number).map(|(_, label)| (*label).into()),
    };
    donors.learn((1..=count).map(access).collect());
    let section =
        Section { donors: (1..=count).map(DonorId).collect(), chunks: 1, bytes: LEN as u64 };
    let plan = Plan { sections: vec![section], copies: count, chunk_size: LEN as u32 };
    (Copies::new(donors.clone(), plan), donors)
}

/// A group whose chunks have these contents; the first four are data.
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
        members.push(Member { place, name: ChunkName::of(&body), body });
    }
    let names = groups.add(0, slot, members);
    let unoffered = groups.take_unoffered();
    groups.offered(unoffered);
    names
}

fn name(content: u8) -> ChunkName {
    ChunkName::of(&[content; LEN])
}

fn ack(donor: DonorId) -> Ack {
    (donor, AckLevel::Memory, Receipt([donor.0 as u8; 16]))
}

/// Acknowledges all that is sent until nothing is; gives what was sent.
fn deliver(groups: &mut Groups, copies: &Copies) -> Vec<Send> {
    let mut all = Vec::new();
    loop {
        let sends = groups.seat(copies).expect("enough donors");
        if sends.is_empty() {
            return all;
        }
        sends.iter().for_each(|(name, donor)| groups.acked(name, ack(*donor)));
        all.extend(sends);
    }
}

fn donors_of(seated: &[Seated]) -> BTreeSet<DonorId> {
    let ack = |seated: &Seated| match seated.how {
        How::Sent(_, ack) => Some(ack),
        How::Held(ack) => ack,
        How::LeftOut => None,
    };
    seated.iter().filter_map(ack).map(|(donor, ..)| donor).collect()
}

#[tokio::test]
async fn every_chunk_of_a_group_gets_its_own_donor_as_planned() {
    let (copies, _donors) = copies(6);
    let mut groups = Groups::default();
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    let sent = deliver(&mut groups, &copies);
    let planned: Vec<Send> = (1..=6).map(|at| (name(at), DonorId(at.into()))).collect();
    assert_eq!(sent, planned);
    let seated = groups.take_seated();
    assert_eq!((seated.len(), donors_of(&seated).len()), (6, 6));
    assert!(groups.is_empty() && groups.body(&name(1)).is_none());
}

#[tokio::test]
async fn equal_chunks_of_a_group_go_to_as_many_donors_once_for_all_groups() {
    let (copies, _donors) = copies(6);
    let mut groups = Groups::default();
    let names = group(&mut groups, 0, &[0; 6]).await;
    assert_eq!(names, [name(0)], "one name to offer");
    assert_eq!(deliver(&mut groups, &copies).len(), 6);
    assert_eq!(donors_of(&groups.take_seated()).len(), 6);

    assert!(group(&mut groups, 0, &[0; 6]).await.is_empty());
    assert!(deliver(&mut groups, &copies).is_empty(), "all of them are there already");
    let seated = groups.take_seated();
    assert!(seated.iter().all(|seated| matches!(seated.how, How::Held(_))));
    assert_eq!(donors_of(&seated).len(), 6);
}

#[tokio::test]
async fn a_held_chunk_is_sent_again_where_its_donor_has_another_of_the_group() {
    let (copies, _donors) = copies(6);
    let mut groups = Groups::default();
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    groups.held(&name(1), vec![DonorId(3)]);
    groups.held(&name(2), vec![DonorId(3)]);
    groups.held(&name(6), vec![DonorId(9)]);
    let sent = deliver(&mut groups, &copies);
    assert_eq!(sent.len(), 4, "1 and 6 stay where they are: {sent:?}");
    assert!(sent.iter().all(|(_, donor)| *donor != DonorId(3)));
    let to: BTreeSet<DonorId> = sent.iter().map(|(_, donor)| *donor).collect();
    assert_eq!(to.len(), 4);
    assert!(groups.is_empty());
    let held = |seated: &&Seated| seated.how == How::Held(None);
    assert_eq!(groups.take_seated().iter().filter(held).count(), 2);
}

#[tokio::test]
async fn a_donor_that_fails_is_replaced_by_one_outside_the_group_or_the_write_is_stranded() {
    let (mut copies, _donors) = copies(7);
    let mut groups = Groups::default();
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    let sends = groups.seat(&copies).expect("enough donors");
    for (name, donor) in &sends {
        match donor {
            DonorId(2) => groups.failed(name, *donor),
            donor => groups.acked(name, ack(*donor)),
        }
    }
    copies.give_up(DonorId(2), true);
    let again = groups.seat(&copies).expect("donor 7 is left");
    assert_eq!(again, [(name(2), DonorId(7))]);
    groups.failed(&name(2), DonorId(7));
    copies.give_up(DonorId(7), true);
    assert_eq!(groups.seat(&copies), Err(Stranded));
    assert_eq!(groups.body(&name(2)).map(|body| body.len()), Some(LEN), "for whoever comes next");
}

#[tokio::test]
async fn a_late_chunk_goes_to_a_donor_outside_its_group_and_counts_once() {
    let (copies, donors) = copies(7);
    let mut groups = Groups::default();
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    let sends = groups.seat(&copies).expect("enough donors");
    let late = Tick::from_secs(60);
    donors.rates(|rates| {
        let estimate = rates.entry(DonorId(7)).or_default();
        estimate.sent(LEN as u32, Tick::ZERO);
        estimate.acked(LEN as u32, Tick::ZERO, Tick::from_millis(1));
        for donor in 1..=6 {
            rates.entry(DonorId(donor)).or_default().sent(LEN as u32, Tick::ZERO);
        }
    });
    let hedged = groups.hedge(&copies, sends[0], Tick::ZERO, late);
    assert_eq!(hedged, Some((name(1), DonorId(7))));
    assert_eq!(groups.hedge(&copies, sends[1], Tick::ZERO, late), None, "nobody else is left");
    groups.acked(&name(1), ack(DonorId(7)));
    groups.acked(&name(1), ack(DonorId(1)));
    assert_eq!(groups.take_seated().len(), 1);
}

#[tokio::test]
async fn a_chunk_whose_donor_fails_goes_to_another_domain_than_the_rest_of_its_group() {
    let rooms = [(1, "a"), (2, "b"), (7, "a"), (8, "b")];
    let (mut copies, _donors) = labelled(8, &rooms);
    let mut groups = Groups::default();
    group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
    let sends = groups.seat(&copies).expect("enough donors");
    for (name, donor) in &sends {
        match donor {
            DonorId(2) => groups.failed(name, *donor),
            donor => groups.acked(name, ack(*donor)),
        }
    }
    copies.give_up(DonorId(2), true);
    assert_eq!(groups.seat(&copies), Ok(vec![(name(2), DonorId(8))]), "7 is in the room of 1");
    groups.failed(&name(2), DonorId(8));
    copies.give_up(DonorId(8), true);
    assert_eq!(groups.seat(&copies), Ok(vec![(name(2), DonorId(7))]), "nobody else is left");
}

#[tokio::test]
async fn a_chunk_held_in_a_domain_of_its_group_is_sent_elsewhere_if_it_can_be() {
    let rooms = [(1, "a"), (2, "a")];
    for (count, sent_again) in [(7, 1), (6, 0)] {
        let (copies, _donors) = labelled(count, &rooms);
        let mut groups = Groups::default();
        group(&mut groups, 0, &[1, 2, 3, 4, 5, 6]).await;
        (1..=6).for_each(|at| groups.held(&name(at), vec![DonorId(at.into())]));
        assert_eq!(deliver(&mut groups, &copies).len(), sent_again);
        assert_eq!(groups.take_seated().len(), 6);
        assert!(groups.is_empty());
    }
}
