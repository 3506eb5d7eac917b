//! Tests writers of one file that write at random, through two mounts and the library, against a model in memory.

use super::super::content::{Lots, assert_same, bytes};
use super::super::extent::cases;
use super::super::lab::Lab;
use super::super::mounts::{Mount, mounted};
use super::super::waiting::{DEADLINE, wait_until};
use super::{OUT, client, join, opened, out, share};
use potluck_client::{Pool, SharedOutcome, SharedWriter};
use potluck_core::byte_ranges::ByteRanges;
use potluck_wire::error::code;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use tokio::runtime::Runtime;

const WRITES: u64 = 60;
/// The bound of most offsets.
const NEAR: u64 = 24 << 20;
/// The bound of the few other offsets.
const FAR: u64 = 160 << 20;

/// A writer of the file.
enum One {
    Through(File),
    By(Box<SharedWriter>),
}

/// The content that the file is to have.
struct Model {
    /// The content of the version that is there.
    version: Vec<u8>,
    /// The writes of each writer since then, in order.
    written: Vec<Vec<(u64, Vec<u8>)>>,
    sizes: Vec<u64>,
    claims: ByteRanges<usize>,
}

impl Model {
    /// Makes the next version, of what the writers `in_it` have written.
    fn publish(&mut self, in_it: &[usize]) {
        for number in in_it {
            let len = self.version.len().max(self.sizes[*number] as usize);
            self.version.resize(len, 0);
            for (at, bytes) in &self.written[*number] {
                let end = *at as usize + bytes.len();
                let len = self.version.len().max(end);
                self.version.resize(len, 0);
                self.version[*at as usize..end].copy_from_slice(bytes);
            }
        }
    }
}

fn range(lots: &mut Lots) -> Range<u64> {
    let most = [40, 5000, 300_000, 9 << 20][lots.below(4) as usize];
    let at = match lots.below(40) {
        0 => lots.below(FAR),
        _ => lots.below(NEAR),
    };
    at..at + 1 + lots.below(most)
}

/// Has a writer write a range, and returns whether that is refused because of another.
fn write(runtime: &Runtime, one: &mut One, at: u64, bytes: &[u8]) -> bool {
    match one {
        One::Through(file) => match file.write_all_at(bytes, at) {
            Ok(()) => false,
            Err(why) => {
                assert_eq!(why.raw_os_error(), Some(libc::EBUSY), "{why}");
                true
            }
        },
        One::By(writer) => match runtime.block_on(writer.write_at(at, bytes)) {
            Ok(()) => false,
            Err(failure) => {
                assert_eq!(failure.code, code::CLAIMED, "{failure}");
                true
            }
        },
    }
}

fn writers(runtime: &Runtime, mounts: &[Mount; 2], pools: &[Pool; 2], round: u64) -> Vec<One> {
    let mut all: Vec<One> = mounts.iter().map(|it| One::Through(opened(&it.at("out")))).collect();
    for (number, pool) in pools.iter().enumerate() {
        let joined = runtime.block_on(join(pool, &format!("round-{round}-{number}")));
        all.push(One::By(Box::new(joined.expect("joined"))));
    }
    all
}

#[test]
fn shared_writers_match_a_model() {
    let test = "writers_of_mounts_and_of_the_library_make_the_versions";
    let Some((lab, one)) = mounted(test, 2, &["--copies", "1"], &[]) else { return };
    let mounts = [one, Mount::start_in(&lab, "other", "pot://lab", &[])];
    let runtime = Runtime::new().expect("a runtime");
    let pools = [client(&lab), client(&lab)];
    fs::write(mounts[0].at("out"), b"as it was").expect("written");
    share(&mounts[0].at("out"), "1").expect("it is there");
    let mut version = b"as it was".to_vec();
    for round in 0..cases(2, 6) as u64 {
        let mut lots = Lots::new("shared files against a model", round);
        wait_until("both mounts to see what there is", DEADLINE, || {
            let sees = |it: &Mount| {
                fs::metadata(it.at("out")).is_ok_and(|it| it.len() == version.len() as u64)
            };
            mounts.iter().all(sees)
        });
        let mut all = writers(&runtime, &mounts, &pools, round);
        let mut model = Model {
            version,
            written: vec![Vec::new(); all.len()],
            sizes: vec![0; all.len()],
            claims: ByteRanges::default(),
        };
        for step in 0..WRITES {
            let number = lots.below(all.len() as u64) as usize;
            let range = range(&mut lots);
            let content = bytes(round * WRITES + step, (range.end - range.start) as usize);
            // A large write() of a program comes in several pieces, each of which is refused or not.
            let is_split = matches!(all[number], One::Through(_));
            let piece = if is_split { 64 << 10 } else { content.len() };
            for (at, content) in content.chunks(piece).enumerate() {
                let start = range.start + (at * piece) as u64;
                let range = start..start + content.len() as u64;
                let is_taken = model.claims.taken(&range, number).is_some();
                let is_refused = write(&runtime, &mut all[number], start, content);
                assert_eq!(is_refused, is_taken, "round {round}, writer {number}, {range:?}");
                if !is_refused {
                    model.claims.add(range, number);
                    model.written[number].push((start, content.to_vec()));
                }
            }
            match (lots.below(15), &mut all[number]) {
                (0, One::Through(file)) => file.sync_data().expect("stored"),
                (0, One::By(writer)) => {
                    runtime.block_on(writer.flush()).expect("stored");
                }
                (1, One::By(writer)) => {
                    let size = lots.below(NEAR * 2);
                    writer.extend(size).expect("small");
                    model.sizes[number] = model.sizes[number].max(size);
                }
                _ => {}
            }
        }
        version = end(&lab, &runtime, all, model, &mut lots);
        assert_same(&lab.cli.cat(OUT), &version, &format!("round {round}"));
    }
    let seen = |it: &Mount| fs::read(it.at("out")).is_ok_and(|seen| seen == version);
    wait_until("both mounts to see the last", DEADLINE, || mounts.iter().all(seen));
}

/// Ends all writers in some order: they finish, give up, or are gone. Returns the version that there is then.
fn end(lab: &Lab, runtime: &Runtime, all: Vec<One>, mut model: Model, lots: &mut Lots) -> Vec<u8> {
    let mut order: Vec<(usize, One)> = all.into_iter().enumerate().collect();
    for at in (1..order.len()).rev() {
        order.swap(at, lots.below(at as u64 + 1) as usize);
    }
    let (mut in_it, mut gone) = (Vec::new(), Vec::new());
    for (number, one) in order {
        let fate = lots.below(5);
        match one {
            One::Through(file) => {
                drop(file); // its close() may fail while one that is gone is not left out
                in_it.push(number);
            }
            One::By(writer) => {
                match fate {
                    // This writer never closes.
                    0 => {
                        gone.push(writer.name().to_owned());
                        runtime.block_on(async { drop(writer) });
                    }
                    1 => drop(runtime.block_on(writer.abort())),
                    _ => {
                        let finished = runtime.block_on(writer.finish());
                        match finished {
                            Ok(outcome) => assert_ne!(outcome, SharedOutcome::Nothing),
                            Err(why) => {
                                assert_eq!(why.code, code::NOT_TOGETHER, "{why}");
                                assert!(!gone.is_empty(), "{why}");
                            }
                        }
                        in_it.push(number);
                    }
                }
            }
        }
    }
    model.publish(&in_it);
    // A file that was closed last may be published by the mount a moment later.
    wait_until("all to have finished", DEADLINE, || {
        let told = runtime.block_on(client(lab).publish_shared(&out(), &gone));
        told.is_ok()
    });
    model.version
}
