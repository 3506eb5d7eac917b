//! A file of very many chunks is committed, opened, judged and removed in parts: memory and the time of each step do
//! not grow with the file.

use crate::lab::{Donor, Lab, chunk, offer, reserve};
use potluck_core::attributes::{FileTime, Permissions};
use potluck_core::chunk::Digest;
use potluck_core::ids::SessionId;
use potluck_core::merkle::Tree;
use potluck_core::policy::AckLevel;
use potluck_core::recipe::{self, Content, Entry, PART_CHUNKS};
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Commit, Committed, Condition, Departing, FileCommit, InParts, List, Open, OpenPart, Outcome,
    Remove, Stat,
};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::Acknowledged;
use std::fs;
use std::ops::Range;
use std::time::Duration;

const CHUNK: u32 = 64 << 10;
const AT: &str = "pot://lab/large";

fn part(
    session: &SessionId,
    number: u32,
    chunks: Range<u64>,
    donors: &[&Donor],
) -> (FileCommit, Digest) {
    let entry = |n: u64| {
        let name = chunk(n);
        Entry { name, digest: Digest(name.0), len: CHUNK, sealed: false }
    };
    let entries: Vec<Entry> = chunks.map(entry).collect();
    let digest = Content::from(&entries[..]).digest().expect("of whole chunks");
    let receipt = |(at, entry): (u32, &Entry), donor: &Donor| Acknowledged {
        chunk: at,
        donor: donor.id,
        ack: AckLevel::Memory,
        receipt: donor.receipt_for(session, (&entry.name, CHUNK), AckLevel::Memory),
    };
    let receipts = (0..).zip(&entries);
    let receipts = receipts.flat_map(|of| donors.iter().map(move |donor| receipt(of, donor)));
    let file = FileCommit {
        metadata: None,
        path: AT.parse().expect("a path"),
        size: u64::from(CHUNK) * entries.len() as u64,
        digest,
        mtime: FileTime::of_ms(7),
        permissions: Permissions::FILE,
        owner: None,
        changed: FileTime::default(),
        accessed: None,
        origin: None,
        chunk_size: CHUNK,
        copies: donors.len() as u32,
        inline: None,
        acknowledged: Packed(receipts.collect()),
        pages: recipe::pack(&digest, &entries[..].into()).into_iter().map(Blob).collect(),
        ec: None,
        parity: Packed::default(),
        condition: Condition::Always,
        in_parts: Some(InParts::Part { file: 0, number }),
    };
    (file, digest)
}

fn whole(
    session: &SessionId,
    chunks: u64,
    parts: u32,
    tree: &Tree,
    donors: &[&Donor],
) -> FileCommit {
    FileCommit {
        metadata: None,
        size: u64::from(CHUNK) * chunks,
        digest: Digest(tree.root()),
        pages: Vec::new(),
        acknowledged: Packed::default(),
        in_parts: Some(InParts::Whole { file: 0, parts }),
        ..part(session, 0, 0..1, donors).0
    }
}

async fn commit(user: &Caller, session: SessionId, batch: u32, file: FileCommit, done: bool) {
    let commit =
        Commit { session, batch, files: vec![file], done, soon: false, traffic: Vec::new() };
    let Committed { files } = user.call(&commit).await.expect("committed");
    assert!(matches!(files[..], [Outcome::Stored { below_policy: false, .. }]), "{files:?}");
}

/// Returns the most memory that this process had so far, in bytes.
fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") << 10
}

/// Returns the time in which so many chunks are to be released.
fn released_in(chunks: u64) -> Duration {
    Duration::from_micros(200 * chunks)
}

/// Writes, reads and removes a file of so many chunks with two copies each. Manager, donors and client are in this
/// process.
async fn written_read_and_removed(chunks: u64) {
    let lab = Lab::with(|config| config.backup_every = Duration::from_secs(1)).await;
    let (user, donors) = (lab.user().await, [lab.donor("a").await, lab.donor("b").await]);
    for donor in &donors {
        donor.report(&[]).await;
    }
    let donors: Vec<&Donor> = donors.iter().collect();
    let clock = lab.env.clock.clone();
    let now = || clock.now();
    let (began, before) = (now(), most_memory());
    let session = reserve(&user, 1 << 30).await.expect("reserved").session;
    let (mut tree, mut batch, mut longest) = (Tree::default(), 0, Duration::ZERO);
    let step = PART_CHUNKS as u64;
    for first in (0..chunks).step_by(PART_CHUNKS) {
        let range = first..chunks.min(first + step);
        // Donors that are not heard for long are waited for.
        for donor in &donors {
            donor.send_heartbeat(donor.heartbeat(batch.into())).await;
        }
        offer(&user, session, &range.clone().collect::<Vec<_>>()).await;
        let (file, digest) = part(&session, batch, range, &donors);
        tree.push(digest.0);
        let call = now();
        commit(&user, session, batch, file, false).await;
        longest = longest.max(now() - call);
        batch += 1;
    }
    let (staged, parts) = (now() - began, batch);
    let whole = whole(&session, chunks, parts, &tree, &donors);
    let call = now();
    commit(&user, session, batch, whole, true).await;
    let flipped = now() - call;
    let written = most_memory() - before;

    let call = now();
    let path = || AT.parse().expect("a path");
    let open = Open { path: path(), recursive: false, after: None, leased: false };
    let opened = user.call(&open).await.expect("opened").files.remove(0);
    assert_eq!((opened.parts.0.len(), opened.digest), (parts as usize, Digest(tree.root())));
    let last = OpenPart { path: path(), version: opened.version, number: parts - 1 };
    let file = user.call(&last).await.expect("opened").files.remove(0);
    let pages = file.pages.iter().map(|page| &page.0[..]);
    let entries = recipe::unpack(&file.digest, pages).expect("a recipe").chunks;
    assert_eq!(entries.last().map(|entry| entry.name), Some(chunk(chunks - 1)));
    assert!(file.holders.iter().all(|holders| holders.len() == 2));
    let read = now() - call;
    let list = List { path: "pot://lab".parse().expect("a path"), recursive: true, after: None };
    assert_eq!(user.call(&list).await.expect("listed").entries.len(), 1);

    let call = now();
    let stat = |after| Stat { path: path(), chunks: false, unjudged: false, room: false, after };
    let mut stated = user.call(&stat(None)).await.expect("judged");
    let mut pages = 1;
    while let Some(after) = stated.next.take() {
        for donor in &donors {
            donor.send_heartbeat(donor.heartbeat(batch.into())).await;
        }
        stated.add(user.call(&stat(Some(after))).await.expect("judged"));
        pages += 1;
    }
    let judged = now() - call;
    assert_eq!(pages, parts.div_ceil(2), "a call looks at two parts");
    assert_eq!((stated.chunks, stated.live_copies), (chunks, 2));
    let shares: Vec<_> = stated.donors.iter().map(|share| (share.chunks, share.bytes)).collect();
    assert_eq!(shares, [(chunks, chunks * u64::from(CHUNK)); 2]);
    let health = stated.health.expect("a file");
    assert_eq!((health.tolerates, health.incomplete, health.unreadable), (Some(1), 0, 0));

    let call = now();
    user.call(&Remove {
        path: path(),
        recursive: false,
        forever: false,
        only_if: Default::default(),
        soon: false,
    })
    .await
    .expect("removed");
    let removed = now() - call;
    let first = OpenPart { number: 0, ..last };
    let deadline = now() + Duration::from_secs(60) + released_in(chunks);
    // The time for this counts from the end of the removal.
    while user.call(&first).await.is_ok() {
        assert!(now() < deadline, "its parts are not taken apart");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let reclaimed = now() - call;
    let all = most_memory() - before;
    println!(
        "{chunks} chunks in {parts} parts: committed in {staged:?}, the longest call {longest:?}, the last \
         {flipped:?}; opened with its last part in {read:?}; judged in {judged:?}; removed in {removed:?}, taken apart after {reclaimed:?}; memory grew by {} MiB until it \
         was visible, by {} MiB in all",
        written >> 20,
        all >> 20
    );
    assert!(all < 256 << 20, "{} MiB more", all >> 20);
}

/// `MANY_CHUNKS=10000000` gives the file as many chunks, which is for optimized code; `--nocapture` shows the
/// figures.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_many_parts_takes_no_more_memory_than_a_small_one() {
    let chunks = std::env::var("MANY_CHUNKS").ok().and_then(|chunks| chunks.parse().ok());
    written_read_and_removed(chunks.unwrap_or(20_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn departure_counts_a_multipart_file_once() {
    let lab = Lab::new().await;
    let (user, donors) = (lab.user().await, [lab.donor("a").await, lab.donor("b").await]);
    for donor in &donors {
        donor.report(&[]).await;
    }
    let donors: Vec<&Donor> = donors.iter().collect();
    let session = reserve(&user, 1 << 30).await.expect("reserved").session;
    let (mut tree, step) = (Tree::default(), PART_CHUNKS as u64);
    for (number, range) in (0..).zip([0..step, step..2 * step, 2 * step..2 * step + 1]) {
        offer(&user, session, &range.clone().collect::<Vec<_>>()).await;
        let (file, digest) = part(&session, number, range, &donors);
        tree.push(digest.0);
        commit(&user, session, number, file, false).await;
    }
    commit(&user, session, 3, whole(&session, 2 * step + 1, 3, &tree, &donors), true).await;
    for (leave, lost, less_safe) in [(&donors[..1], 0, 1), (&donors[..], 1, 0)] {
        let departing = Departing { donors: leave.iter().map(|at| at.id).collect(), over: None };
        let told = lab.admin().call(&departing).await.expect("told");
        assert_eq!((told.lost_files, told.less_safe_files), (lost, less_safe), "{told:?}");
        assert_eq!((told.lost.len(), told.less_safe.len()), (lost as usize, less_safe as usize));
    }
}
