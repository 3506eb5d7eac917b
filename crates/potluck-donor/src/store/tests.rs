//! Tests of a donor's store: chunk files, races of puts with deletions, quarantine, listing, and open chunks.

use super::*;
use crate::deletion::Deletion;
use crate::disk::SystemDisk;
use crate::store::copy_health::CopyHealth;
use crate::store::incoming::NotPlaced;
use potluck_core::chunk::{ChunkKind, Digest};
use potluck_core::chunk_file::{disk_bytes, tail_len};
use potluck_core::clock::Tick;
use potluck_core::entropy::{Entropy, SeededEntropy};
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::owner_limits::KeepFree;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const INCARNATION: Incarnation = Incarnation(7);
const SESSION: SessionId = SessionId([1; 16]);

fn store(dir: &Path) -> Store {
    let entropy = SeededEntropy::new(1);
    let (pool_name, donor) = ("lab".into(), DonorId(1));
    let owner = Owner { pool: Digest([1; 32]), donor, pool_name, name: "desk".into() };
    let request = ClaimRequest { owner: &owner, known: None, claiming: Claiming::Own };
    let claim = claim(&SystemDisk, &entropy, dir, request).expect("claimed");
    let limits = Limits { max: 1 << 30, keep_free: KeepFree::Bytes(0) };
    Store::open(Arc::new(SystemDisk), claim, limits, INCARNATION).expect("opened")
}

fn content(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SeededEntropy::new(number).fill(&mut bytes);
    bytes
}

fn receive(store: &Store, bytes: &[u8], ack: AckLevel) -> Result<(), NotPlaced> {
    let name = ChunkName::of(bytes);
    let incoming = store.accept(name, bytes.len() as u32).map_err(NotPlaced::Refused)?;
    let origin = ChunkOrigin { session: SESSION, kind: ChunkKind::Data };
    incoming
        .place(&mut [bytes, &vec![0; tail_len(bytes.len() as u32)]].concat(), origin, ack)
        .map(drop)
}

fn put(store: &Store, number: u64) -> ChunkName {
    let bytes = content(number, 100);
    receive(store, &bytes, AckLevel::Memory).expect("stored");
    ChunkName::of(&bytes)
}

#[test]
fn a_chunk_file_says_who_it_is() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let name = put(&store, 1);
    let file = std::fs::read(store.layout().chunk(&name)).expect("stored");
    let (bytes, tail) = file.split_at(100);
    assert_eq!(bytes, content(1, 100));
    let (hashes, end) = tail.split_at(32);
    assert_eq!(hashes, name.0, "the name of one segment is its hash");
    let trailer = Trailer::decode(end.try_into().expect("64 bytes")).expect("a trailer");
    assert!(trailer.is_of(&name, 100) && trailer.origin.session == SESSION);
}

#[test]
fn a_chunk_whose_segment_hashes_are_spoiled_is_quarantined() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let name = put(&store, 1);
    let path = store.layout().chunk(&name);
    let mut file = std::fs::read(&path).expect("stored");
    file[110] ^= 1;
    std::fs::write(&path, file).expect("spoil");
    assert_eq!(store.verify(&name), Ok(CopyHealth::Spoiled));
}

#[test]
fn special_file_in_place_of_a_chunk_counts_as_spoiled() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let replace: [fn(&Path); 3] = [
        |path| std::os::unix::fs::symlink("/etc/passwd", path).expect("linked"),
        |path| std::fs::create_dir(path).expect("made"),
        |path| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).expect("made");
        },
    ];
    for (number, replace) in (1..).zip(replace) {
        let name = put(&store, number);
        let path = store.layout().chunk(&name);
        std::fs::remove_file(&path).expect("removed");
        replace(&path);
        assert_eq!(store.verify(&name), Ok(CopyHealth::Spoiled));
        assert_eq!(store.verify(&name), Ok(CopyHealth::Missing), "it is in quarantine");
        assert_eq!(store.look_at_quarantined(Tick::from_secs(number)), 0);
    }
}

#[test]
fn a_file_of_the_right_length_without_its_end_is_stored_anew() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let name = put(&store, 1);
    let used = store.report().0.lent_used;
    // On some file systems a power cut leaves a file like this.
    std::fs::write(store.layout().chunk(&name), vec![0; file_len(100) as usize]).expect("spoil");
    assert_eq!(store.count_put_if_held(&name, 100), Ok(false));
    put(&store, 1);
    assert_eq!(store.count_put_if_held(&name, 100), Ok(true));
    assert_eq!(store.verify(&name), Ok(CopyHealth::Sound));
    assert_eq!(store.report().0.lent_used, used, "the old file is not counted any more");
}

#[test]
fn a_tombstone_and_a_put_never_both_win() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    for round in 0..200 {
        let name = put(&store, round);
        let counted = store.write_sequence().last();
        let (held, deleted) = std::thread::scope(|scope| {
            let put = scope.spawn(|| {
                store.count_put_if_held(&name, 100) == Ok(true)
                    && store.confirm_held(&name, 100, AckLevel::Memory).is_ok()
            });
            let deleting = scope.spawn(|| store.delete(&name, INCARNATION, counted));
            (put.join().expect("no panic"), deleting.join().expect("no panic"))
        });
        let there = store.find(&name).expect("readable").is_some();
        assert_eq!(held, there, "round {round}: a receipt is for a chunk that is there");
        assert_eq!(deleted == Deletion::Deleted, !there, "round {round}: {deleted:?}");
    }
}

#[test]
fn chunk_deleted_during_verify_is_not_sound_d5() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    for round in 0..1000 {
        let name = put(&store, round);
        let counted = store.write_sequence().last();
        let (health, deleted) = std::thread::scope(|scope| {
            let look = scope.spawn(|| store.verify(&name).expect("a health"));
            let deleting = scope.spawn(|| store.delete(&name, INCARNATION, counted));
            (look.join().expect("no panic"), deleting.join().expect("no panic"))
        });
        let there = store.find(&name).expect("readable").is_some();
        assert_eq!(health == CopyHealth::Sound, there, "round {round}: {health:?}, {deleted:?}");
    }
}

#[test]
fn verified_chunk_outlives_earlier_tombstones_d5() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let (asked, scrubbed) = (put(&store, 1), put(&store, 2));
    let counted = store.write_sequence().last();
    assert_eq!(store.verify(&asked), Ok(CopyHealth::Sound));
    assert_eq!(store.scrub(&scrubbed), Ok(CopyHealth::Sound), "nobody asked");
    assert_eq!(store.delete(&asked, INCARNATION, counted), Deletion::WrittenSince);
    assert_eq!(store.delete(&scrubbed, INCARNATION, counted), Deletion::Deleted);
    let later = store.write_sequence().last();
    assert_eq!(store.delete(&asked, INCARNATION, later), Deletion::Deleted);
}

#[test]
fn a_chunk_that_is_deleted_before_it_is_told_of_is_not_listed() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let name = put(&store, 1);
    store.changes().restart();
    assert_eq!(store.confirm_held(&name, 100, AckLevel::Memory), Ok(()));
    assert_eq!(store.delete(&name, INCARNATION, u64::MAX), Deletion::Deleted);
    store.tell_deleted(&[name]);
    assert!(!store.list_if_there(name, 100), "the task is not done");
    let told = store.changes().batch();
    assert_eq!((told.added.0.len(), told.removed.0.as_slice()), (0, &[name][..]));
    put(&store, 1);
    assert!(store.list_if_there(name, 100) && store.list_if_held(name, 100, AckLevel::Disk));
}

#[test]
fn a_put_that_loses_its_chunk_on_the_way_says_so() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let name = put(&store, 1);
    assert_eq!(store.count_put_if_held(&name, 100), Ok(true));
    std::fs::remove_file(store.layout().chunk(&name)).expect("somebody else's doing");
    assert_eq!(store.confirm_held(&name, 100, AckLevel::Disk), Err(StoreRefusal::Lost));
}

#[test]
fn dropped_incoming_chunk_leaves_nothing() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let before = store.report();
    let mut incoming = store.accept(ChunkName::of(b"x"), 1 << 20).expect("room");
    incoming.append(&[0; 1000]).expect("written");
    assert_eq!(before.1 - store.report().1, (1 << 20) + 4096);
    drop(incoming);
    assert_eq!(store.report().1, before.1);
    assert_eq!(std::fs::read_dir(store.layout().temp()).expect("dir").count(), 0);
}

#[test]
fn pages_list_everything_once_in_order_whatever_their_size() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let mut expected: Vec<_> = (0..700).map(|number| put(&store, number)).collect();
    expected.sort();
    for most in [1, 7, 350, 699, 700, 701] {
        let (mut listed, mut cursor, mut pages) = (Vec::new(), Some(Cursor::default()), 0);
        while let Some(at) = cursor {
            let page = store.page_of(at, most).expect("listed");
            assert!(page.holdings.len() <= most);
            listed.extend(page.holdings.into_iter().map(|holding| holding.name));
            (cursor, pages) = (page.next, pages + 1);
        }
        assert!(listed == expected && pages <= 700 / most + 2, "{most}: {pages} pages");
    }
}

#[test]
fn store_walk_lists_each_bucket_once_and_resumes() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let mut expected: Vec<_> = (0..700).map(|number| put(&store, number)).collect();
    expected.sort();
    let bucket = expected.chunk_by(|a, b| a.0[0] == b.0[0]).max_by_key(|names| names.len());
    let bucket = bucket.expect("some").to_vec();
    assert!(bucket.len() > 2);

    let (mut ahead, mut place, mut walked) =
        (ListedAhead::default(), Some(Cursor::default()), Vec::new());
    while let Some(holding) = ahead.next(&store, &mut place).expect("listed") {
        if holding.name == bucket[0] {
            // The bucket would be empty if it were listed again.
            let at = store.layout().bucket(holding.name.0[0]);
            std::fs::rename(&at, at.with_extension("listed")).expect("moved");
        }
        walked.push(holding.name);
        place = Some(Cursor::after(holding.name));
    }
    assert_eq!((walked == expected, place), (true, None));

    // A process that begins in the middle goes on after the last chunk that was read.
    let (mut ahead, mut place) = (ListedAhead::default(), Some(Cursor::after(expected[600])));
    let next = ahead.next(&store, &mut place).expect("listed").expect("more");
    let others = expected[601..].iter().find(|name| !bucket.contains(name));
    assert_eq!(Some(&next.name), others);
}

#[test]
fn an_unreadable_chunk_is_quarantined_and_its_room_stays_taken() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let name = put(&store, 1);
    let used = store.report().0.lent_used;
    std::fs::write(store.layout().chunk(&name), b"cut").expect("spoil");
    assert_eq!(store.verify(&name), Ok(CopyHealth::Spoiled));
    assert_eq!(store.verify(&name), Ok(CopyHealth::Missing));
    assert_eq!(store.report().0.lent_used, used);
    let batch = store.changes().batch();
    // The manager must hear first that the chunk was added.
    assert_eq!((batch.count, batch.spoiled.0.len()), (1, 0));
}

#[test]
fn requests_during_a_missing_store_change_nothing() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let (whole, spoiled) = (put(&store, 1), put(&store, 2));
    std::fs::write(store.layout().chunk(&spoiled), vec![0; file_len(100) as usize]).expect("spoil");
    // Another store may be mounted there by now.
    store.broke(DiskTrouble::Missing, "pulled");
    assert_eq!(store.delete(&whole, INCARNATION, u64::MAX), Deletion::Failed);
    assert_eq!(store.verify(&spoiled), Err(StoreRefusal::Disk));
    assert!([whole, spoiled].iter().all(|name| store.layout().chunk(name).exists()));
    store.usage.mended();
    assert_eq!(store.verify(&spoiled), Ok(CopyHealth::Spoiled));
    assert_eq!(store.delete(&whole, INCARNATION, u64::MAX), Deletion::Deleted);
}

#[test]
fn missing_chunk_with_unreadable_marker_is_tolerated() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let (marker, absent) = (store.layout().marker(), ChunkName::of(b"absent"));
    let text = std::fs::read(marker).expect("a marker");
    std::fs::remove_file(marker).expect("removed");
    assert_eq!(store.verify(&absent), Err(StoreRefusal::Disk));
    assert_eq!(store.delete(&absent, INCARNATION, u64::MAX), Deletion::Failed);
    assert!(!store.broken() && store.changes().batch().count == 0);
    std::fs::write(marker, text).expect("written");
    assert_eq!(store.verify(&absent), Ok(CopyHealth::Missing));
    assert_eq!(store.delete(&absent, INCARNATION, u64::MAX), Deletion::Deleted);
}

/// Stores chunks and has them found spoiled; returns the paths of all quarantined files.
fn quarantine(store: &Store, numbers: std::ops::Range<u64>) -> Vec<PathBuf> {
    for number in numbers {
        let name = put(store, number);
        std::fs::write(store.layout().chunk(&name), vec![0; file_len(100) as usize])
            .expect("spoil");
        assert_eq!(store.verify(&name), Ok(CopyHealth::Spoiled));
    }
    store.quarantine().paths()
}

/// Discards what is too much in quarantine, as a manager lets it go; returns the number of chunks asked about.
fn discard(store: &Store, leaving: bool) -> usize {
    let asked = store.to_discard(leaving);
    store.discard(&asked, &asked);
    asked.len()
}

#[test]
fn quarantine_is_trimmed_oldest_first_s2() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let chunks: Vec<_> = (10..110).map(|number| put(&store, number)).collect();
    let quarantined = quarantine(&store, 1..5);
    store.check_disk();
    assert_eq!(store.to_discard(false), [], "kept while there is room");
    // The cap is lower now, as after another start: the marker, the chunks and two quarantined files may stay.
    store.limit(Limits { max: 103 * 4096, ..store.usage.limits() });
    assert_eq!((store.excess(), store.disk_lacks()), (2 * 4096, 0));
    store.check_disk();
    let asked = store.to_discard(false);
    assert_eq!(asked.len(), 2);
    store.discard(&asked, &chunks[..2]);
    assert_eq!(store.excess(), 2 * 4096, "the manager named neither");
    assert!(quarantined.iter().all(|path| path.exists()));
    let others = store.to_discard(false);
    assert!(others.iter().all(|name| !asked.contains(name)), "those that are needed come last");
    store.discard(&others, &[]);
    assert_eq!(store.to_discard(false), asked);
    assert_eq!(discard(&store, false), 2);
    assert_eq!(store.excess(), 0);
    assert!(chunks.iter().all(|name| store.count_put_if_held(name, 100) == Ok(true)));
    assert_eq!(
        quarantined.iter().map(|path| path.exists()).collect::<Vec<_>>(),
        [false, false, true, true]
    );
    assert_eq!(discard(&store, true), 2);
    assert!(!quarantined.iter().any(|path| path.exists()));
    assert_eq!(store.report().0.lent_used, 101 * 4096);
}

#[test]
fn quarantine_stays_within_its_share_across_restarts() {
    let dir = TempDir::new().expect("a directory");
    let first = store(dir.path());
    let quarantined = quarantine(&first, 0..6);
    drop(first);
    let second = store(dir.path());
    second.limit(Limits { max: 4 * 4096 * 20, ..second.usage.limits() });
    second.check_disk();
    assert_eq!(discard(&second, false), 2);
    assert_eq!(quarantined.iter().filter(|path| path.exists()).count(), 4);
    let newer = quarantine(&second, 6..8);
    assert_eq!(discard(&second, false), 2);
    assert_eq!(second.quarantine().bytes(), 4 * 4096);
    assert!(newer[newer.len() - 2..].iter().all(|path| path.exists()), "the newest stay");
}

#[test]
fn a_quarantined_chunk_that_is_sound_after_all_is_a_chunk_again() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let [restored, wrong, replaced] = [1, 2, 3].map(|number| put(&store, number));
    let files = [&restored, &wrong, &replaced].map(|name| {
        let path = store.layout().chunk(name);
        let sound = std::fs::read(&path).expect("stored");
        std::fs::write(path, vec![0; sound.len()]).expect("spoil");
        assert_eq!(store.verify(name), Ok(CopyHealth::Spoiled));
        sound
    });
    // The reads were wrong, and the bytes on the disk are right.
    let quarantined = store.quarantine().paths();
    std::fs::write(&quarantined[0], &files[0]).expect("written");
    std::fs::write(&quarantined[2], &files[2]).expect("written");
    put(&store, 3);
    let used = store.report().0.lent_used;
    let written = store.write_sequence().latest_of(&restored);
    store.changes().restart();
    assert_eq!(store.look_at_quarantined(Tick::ZERO), 2);
    assert_eq!(store.quarantine().paths(), [quarantined[1].clone()]);
    assert!(!quarantined[2].exists(), "it was stored again");
    assert_eq!(store.report().0.lent_used, used - 4096);
    assert_eq!(store.verify(&restored), Ok(CopyHealth::Sound));
    assert_eq!(store.changes().batch().added.0[0].holding.name, restored);
    assert_eq!(store.delete(&restored, INCARNATION, written), Deletion::WrittenSince);
    // A chunk that is wrong again is looked at more and more seldom.
    std::fs::write(&quarantined[1], &files[1]).expect("written");
    assert_eq!(store.look_at_quarantined(Tick::from_secs(1)), 0);
    assert_eq!(store.look_at_quarantined(Tick::from_secs(3)), 1);
    // This holds even if it was right in between, and others were removed since.
    quarantine(&store, 5..6);
    assert_eq!(discard(&store, true), 1);
    assert_eq!(store.quarantine().bytes(), 0);
    std::fs::write(store.layout().chunk(&wrong), vec![0; files[1].len()]).expect("spoil");
    assert_eq!(store.verify(&wrong), Ok(CopyHealth::Spoiled));
    std::fs::write(&store.quarantine().paths()[0], &files[1]).expect("written");
    assert_eq!(store.look_at_quarantined(Tick::from_secs(6)), 0);
    assert_eq!(store.look_at_quarantined(Tick::from_secs(7)), 1);
}

/// Returns the number of files below `dir` that this process has open, removed ones included.
fn open_below(dir: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    open.filter(|path| path.starts_with(dir) && path != dir).count()
}

#[test]
fn chunk_leaving_quarantine_during_recount_is_counted_s2() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let name = put(&store, 1);
    let path = store.layout().chunk(&name);
    let sound = std::fs::read(&path).expect("stored");
    std::fs::write(&path, vec![0; sound.len()]).expect("spoil");
    assert_eq!(store.verify(&name), Ok(CopyHealth::Spoiled));
    std::fs::write(&store.quarantine().paths()[0], sound).expect("written");
    let used = store.report().0.lent_used;
    // The recount lists the bucket, the chunk is found sound, and the recount lists the quarantine.
    store.usage().begin_recount();
    assert_eq!(store.look_at_quarantined(Tick::ZERO), 1);
    assert_eq!(store.usage().end_recount(used - disk_bytes(file_len(100))), 0);
    assert_eq!(store.report().0.lent_used, used);
    // The next recount finds the chunk, and nothing is forgotten of files that vanish.
    store.recount().expect("counted");
    assert_eq!(store.report().0.lent_used, used);
    std::fs::remove_file(&path).expect("removed");
    store.recount().expect("counted");
    assert_eq!(store.report().0.lent_used, used - disk_bytes(file_len(100)));
}

#[test]
fn partially_read_chunk_stays_open_until_it_goes() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let chunks = store.layout().chunks().to_owned();
    let read = |name| store.find_to_read_parts(name).expect("no fault");
    let [deleted, spoiled, replaced] = [1, 2, 3].map(|number| put(&store, number));
    for name in [&deleted, &spoiled, &replaced, &deleted] {
        assert!(read(name).expect("held").tree(name).is_some());
    }
    assert_eq!(open_below(&chunks), 3);
    let written = store.write_sequence().latest_of(&deleted);
    assert_eq!(store.delete(&deleted, INCARNATION, written), Deletion::Deleted);
    assert!(read(&deleted).is_none());
    assert_eq!(open_below(&chunks), 2, "its room is free");
    for name in [&spoiled, &replaced] {
        std::fs::write(store.layout().chunk(name), vec![0; file_len(100) as usize]).expect("spoil");
    }
    assert_eq!(store.verify(&spoiled), Ok(CopyHealth::Spoiled));
    assert!(read(&spoiled).is_none());
    put(&store, 3);
    assert!(read(&replaced).expect("held").tree(&replaced).is_some());
    assert_eq!(open_below(&chunks), 1);
}

#[test]
fn idle_open_chunks_are_closed_and_bounded() {
    let dir = TempDir::new().expect("a directory");
    let store = store(dir.path());
    let chunks = store.layout().chunks().to_owned();
    let names: Vec<_> = (0..200).map(|number| put(&store, number)).collect();
    for name in &names {
        store.find_to_read_parts(name).expect("no fault").expect("held");
        store.find_to_read_parts(&names[0]).expect("no fault").expect("held");
    }
    assert_eq!(open_below(&chunks), 128);
    for _ in 0..20 {
        store.find_to_read_parts(&names[0]).expect("no fault").expect("held");
        store.check_disk();
    }
    assert_eq!(open_below(&chunks), 1, "what is read stays open");
    std::fs::rename(store.layout().marker(), dir.path().join("elsewhere")).expect("renamed");
    store.check_disk();
    assert!(store.is_missing());
    assert_eq!(open_below(&chunks), 0, "whoever unmounts a disk finds it unused");
}
