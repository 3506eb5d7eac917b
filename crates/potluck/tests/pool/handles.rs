//! Files as programs see them that link the client library: open once, read anywhere, from many threads.

use super::content::{Lots, arg, assert_same, file};
use super::lab::Lab;
use potluck_client::pool::Client;
use potluck_core::chunk::Digest;
use potluck_core::path::PoolPath;
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::identity::Identity;
use potluck_wire::net::SystemNet;
use potluck_wire::tls::{TlsDial, install_provider};
use std::sync::Arc;
use std::thread;
use tokio::runtime::Runtime;

/// The library in this process, under the identity of the pool's admin.
fn library(lab: &Lab) -> (Client, Runtime) {
    install_provider();
    let identity = Identity::load(&lab.manager_dir().join("admin")).expect("an identity");
    let dial = Arc::new(TlsDial::member(&identity).expect("a usable identity"));
    let caller = Caller::new(Arc::new(SystemNet), dial, identity.about.manager);
    (Client::new(Env::system(), caller), Runtime::new().expect("a runtime"))
}

fn pool_path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

/// Reads at random places from eight threads, each with a clone of the same handle.
fn read_everywhere(
    runtime: &Runtime,
    file: &potluck_client::file::File,
    content: &[u8],
    what: &str,
) {
    thread::scope(|scope| {
        for number in 0..8 {
            let file = file.clone();
            scope.spawn(move || {
                let mut lots = Lots::new(what, number);
                for _ in 0..12 {
                    let at = lots.below(content.len() as u64 + 1000) as usize;
                    let len = lots.below(200_000) as usize;
                    let read = runtime.block_on(file.read_at(at as u64, len)).expect("readable");
                    let end = (at + len).min(content.len());
                    assert_same(&read, &content[at.min(end)..end], &format!("{what} at {at}"));
                }
            });
        }
    });
}

#[test]
fn an_open_file_is_read_anywhere_by_many_threads_without_its_manager_and_with_a_donor_dead() {
    let mut lab = Lab::with_donors(3);
    let (client, runtime) = library(&lab);
    let (input, content) = file(lab.dir(), "input", 11, (9 << 20) + 77);
    let small = &content[..1000];
    std::fs::write(lab.dir().join("small"), small).expect("written");
    let spaces: [(&str, &[&str]); 4] = [
        ("sealed", &["--copies", "2"]),
        ("plain", &["--copies", "2", "--plain"]),
        ("coded", &["--ec", "2+1"]),
        ("plain-coded", &["--ec", "2+1", "--plain"]),
    ];
    let mut files = Vec::new();
    for (space, options) in spaces {
        lab.cli.ok(&[&["space", "create", space], options].concat());
        let path = format!("pot://{space}/f");
        lab.cli.ok(&["cp", arg(&input), &path]);
        let file = runtime.block_on(client.open(&pool_path(&path))).expect("there");
        assert_eq!((file.size(), file.digest()), (content.len() as u64, Digest::of(&content)));
        read_everywhere(&runtime, &file, &content, space);
        files.push((file, space));
    }
    lab.cli.ok(&["cp", arg(&lab.dir().join("small")), "pot://plain/small"]);
    let inline = runtime.block_on(client.open(&pool_path("pot://plain/small"))).expect("there");
    assert_same(
        &runtime.block_on(inline.read_at(300, 5000)).expect("read"),
        &small[300..],
        "small",
    );

    lab.kill_manager();
    lab.kill_donor("donor-2");
    for (file, space) in &files {
        read_everywhere(&runtime, file, &content, &format!("{space} with a donor dead"));
    }
    lab.start_manager();
}

/// Streams that nobody goes on reading keep what they have read ahead; others are read all the same.
#[test]
fn many_streams_of_one_pool_are_read_in_turns_by_one_thread() {
    let lab = Lab::with_donors(2);
    let (client, runtime) = library(&lab);
    let (input, content) = file(lab.dir(), "input", 12, 13 << 20);
    lab.cli.ok(&["space", "create", "plain", "--plain"]);
    lab.cli.ok(&["cp", arg(&input), "pot://plain/f"]);
    let file = runtime.block_on(client.open(&pool_path("pot://plain/f"))).expect("there");
    let all = 0..content.len() as u64;
    let mut readers: Vec<_> = (0..12).map(|_| (file.read(all.clone()), 0)).collect();
    while readers.iter().any(|(reader, _)| reader.left() > 0) {
        for (reader, at) in &mut readers {
            let Some(part) = runtime.block_on(reader.next()) else { continue };
            let part = part.expect("readable");
            assert_same(&part, &content[*at..*at + part.len()], "a part");
            *at += part.len();
        }
    }
    assert!(readers.iter().all(|(_, at)| *at == content.len()));
}
