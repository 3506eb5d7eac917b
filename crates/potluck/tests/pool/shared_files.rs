//! Files that several write at once, each other bytes of it: the library, the command line, and mounts (CEFT-PVFS, section
//! 6).

use super::content::{Lots, arg, assert_same, bytes, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, wait_until};
use potluck_client::{Attributes, Pool, PutOptions, SharedOutcome, SharedWriter};
use potluck_core::path::PoolPath;
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::error::{Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::net::SystemNet;
use potluck_wire::tls::{TlsDial, install_provider};
use std::ops::Range;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const OUT: &str = "pot://lab/out";

/// A client of its own, as another machine has it.
fn client(lab: &Lab) -> Pool {
    install_provider();
    let identity = Identity::load(&lab.manager_dir().join("admin")).expect("an identity");
    let dial = Arc::new(TlsDial::member(&identity).expect("a usable identity"));
    Pool::new(Env::system(), Caller::new(Arc::new(SystemNet), dial, identity.about.manager))
}

fn out() -> PoolPath {
    OUT.parse().expect("a path")
}

async fn join(pool: &Pool, name: &str) -> Result<SharedWriter, Failure> {
    let options = PutOptions::default();
    pool.shared_writer(&out(), Some(name), &options, Attributes::default()).await
}

/// Ranges that cover so many bytes but for some gaps, each of one of the writers: some long, most short, none on the
/// borders of anything.
fn dealt(len: u64, writers: u64, lots: &mut Lots) -> Vec<(u64, Range<u64>)> {
    let (mut ranges, mut at) = (Vec::new(), lots.below(5000));
    while at < len {
        let longest = if lots.below(8) == 0 { 6 << 20 } else { 90_000 };
        let end = (at + 1 + lots.below(longest)).min(len);
        ranges.push((lots.below(writers), at..end));
        at = end + if lots.below(5) == 0 { lots.below(100_000) } else { 0 };
    }
    ranges
}

#[test]
fn what_several_write_at_once_is_one_version_with_every_byte_where_it_belongs() {
    let lab = Lab::with_donors(3);
    let spaces: [(&str, &[&str]); 3] =
        [("lab", &[]), ("plain", &["--plain", "--copies", "2"]), ("coded", &["--ec", "2+1"])];
    let runtime = Runtime::new().expect("a runtime");
    for (number, (space, options)) in spaces.into_iter().enumerate() {
        lab.cli.ok(&[&["space", "create", space], options].concat());
        let text = format!("pot://{space}/dir/out");
        let path: PoolPath = text.parse().expect("a path");
        let mut expected = Vec::new();
        // The second time there is a version, whose bytes stay where nobody writes.
        for round in 0..2 {
            let seed = number as u64 * 2 + round;
            let len = (40 << 20) + 12_345 - round * (5 << 20);
            let ranges = dealt(len, 4, &mut Lots::new("shared files", seed));
            let content = bytes(seed, len as usize);
            let end = ranges.iter().map(|(_, range)| range.end as usize).max().unwrap_or_default();
            if expected.len() < end {
                expected.resize(end, 0);
            }
            for (_, Range { start, end }) in &ranges {
                let range = *start as usize..*end as usize;
                expected[range.clone()].copy_from_slice(&content[range]);
            }
            let content = Arc::new(content);
            let outcomes = runtime.block_on(async {
                let mut writing = JoinSet::new();
                let all_written = Arc::new(Barrier::new(4));
                for writer in 0..4 {
                    let own = ranges.iter().filter(|(of, _)| *of == writer);
                    let own: Vec<Range<u64>> = own.map(|(_, range)| range.clone()).collect();
                    let (pool, path, content) = (client(&lab), path.clone(), Arc::clone(&content));
                    let all_written = Arc::clone(&all_written);
                    writing.spawn(async move {
                        let (name, options) = (format!("w{writer}"), PutOptions::default());
                        let attributes = Attributes::default();
                        let joined =
                            pool.shared_writer(&path, Some(&name), &options, attributes).await;
                        let mut writer = joined.expect("joined");
                        for Range { start, end } in own {
                            let bytes = &content[start as usize..end as usize];
                            writer.write_at(start, bytes).await.expect("nobody else's");
                        }
                        all_written.wait().await;
                        writer.finish().await
                    });
                }
                writing.join_all().await
            });
            let outcomes: Vec<_> = outcomes.into_iter().map(|it| it.expect("finished")).collect();
            let published = outcomes.iter().filter(|it| **it == SharedOutcome::Published).count();
            assert_eq!(published, 1, "{outcomes:?}");
            assert_same(&lab.cli.cat(&text), &expected, &format!("{text}, round {round}"));
        }
        let listed = lab.cli.json(&["ls", "-r", &format!("pot://{space}")])["entries"].clone();
        let files = listed.as_array().expect("entries").iter();
        assert_eq!(files.filter(|entry| entry["kind"] == "file").count(), 1, "{listed}");
    }
}
