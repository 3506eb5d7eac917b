//! Tests the client library as programs use it: files are opened once, read anywhere by many threads, and written piece
//! by piece.

use super::content::{Lots, arg, assert_same, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, wait_until};
use potluck_client::{Attributes, Input, Item, Pool, PutOptions};
use potluck_core::attributes::{EntryAttributes, FileTime, Permissions};
use potluck_core::chunk::Digest;
use potluck_core::path::PoolPath;
use potluck_wire::call::Caller;
use potluck_wire::control::Condition;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, code};
use potluck_wire::identity::Identity;
use potluck_wire::net::SystemNet;
use potluck_wire::tls::{TlsDial, install_provider};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Opens the library in this process, under the identity of the pool's admin.
fn library(lab: &Lab) -> (Pool, Runtime) {
    install_provider();
    let identity = Identity::load(&lab.manager_dir().join("admin")).expect("an identity");
    let dial = Arc::new(TlsDial::member(&identity).expect("a usable identity"));
    let caller = Caller::new(Arc::new(SystemNet), dial, identity.about.manager);
    (Pool::new(Env::system(), caller), Runtime::new().expect("a runtime"))
}

fn pool_path(text: &str) -> PoolPath {
    text.parse().expect("a path")
}

/// Reads at random places from eight threads, each with a clone of the same handle.
fn read_everywhere(runtime: &Runtime, file: &potluck_client::File, content: &[u8], what: &str) {
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
fn open_file_reads_survive_manager_and_donor_death() {
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
    for (space, options) in spaces {
        lab.cli.ok(&[&["space", "create", space], options].concat());
        lab.cli.ok(&["cp", arg(&input), &format!("pot://{space}/f")]);
    }
    // A slow machine may have stored one copy too many, which is removed first: readers that have the file open would
    // not hear of the removal while the manager is down.
    lab.cli.ok(&["fsck"]);
    wait_until("no copy to be too many", DEADLINE, || lab.cli.repair()["excess"] == 0);
    let mut files = Vec::new();
    for (space, _) in spaces {
        let path = format!("pot://{space}/f");
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

/// Bytes that were read stay right. A read after the version was reclaimed fails, and says to begin anew.
#[test]
fn reader_of_a_reclaimed_version_must_reopen_a5() {
    let lab = Lab::with_options(3, &["--gc-delay", "1s"]);
    let (client, runtime) = library(&lab);
    // The file has two parts, of which the second is opened when it is first read.
    let (long, content) = file(lab.dir(), "long", 15, 1100 << 16);
    let (short, other) = file(lab.dir(), "short", 16, 1 << 20);
    lab.cli.ok(&["space", "create", "plain", "--plain", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "create", "coded", "--ec", "2+1", "--chunk-size", "64KiB"]);
    let inputs =
        [("pot://plain/parts", &long), ("pot://plain/f", &short), ("pot://coded/f", &short)];
    let opened = inputs.map(|(path, input)| {
        lab.cli.ok(&["cp", arg(input), path]);
        let file = runtime.block_on(client.open(&pool_path(path))).expect("there");
        let first = runtime.block_on(file.read_at(0, 1000)).expect("readable");
        let expected = if input == &long { &content } else { &other };
        assert_same(&first, &expected[..1000], path);
        file
    });
    let (new, _) = file(lab.dir(), "new", 17, 1 << 16);
    lab.cli.ok(&["cp", arg(&new), "pot://plain/f"]);
    lab.cli.ok(&["rm", "pot://plain/parts"]);
    lab.cli.ok(&["rm", "pot://coded/f"]);
    wait_until("the old versions to be reclaimed", DEADLINE, || lab.chunk_files() <= 4);
    for (file, (path, _)) in opened.iter().zip(&inputs) {
        let read = runtime.block_on(file.read_at(file.size() - 1000, 1000));
        let why = read.expect_err("its chunks are gone");
        assert_eq!(
            (why.kind, why.code.as_str()),
            (ErrorKind::Retry, code::CHANGED),
            "{path}: {why}"
        );
        assert!(why.hint.contains("read it again"), "{why:?}");
    }
}

/// Streams that nobody reads on keep what they have read ahead, and others are read all the same.
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

/// A handle outlives the addresses and keys of donors and the places of its file's chunks. A reader that nobody asks
/// keeps no other read of the file waiting.
#[test]
fn an_open_file_is_read_where_its_chunks_have_gone() {
    let mut lab = Lab::with_donors(3);
    let (client, runtime) = library(&lab);
    let (input, content) = file(lab.dir(), "input", 14, (5 << 20) + 9);
    lab.cli.ok(&["space", "create", "plain", "--plain", "--chunk-size", "1MiB"]);
    lab.cli.ok(&["space", "create", "coded", "--ec", "2+1", "--chunk-size", "1MiB"]);
    let open = |path: &str| runtime.block_on(client.open(&pool_path(path))).expect("there");
    let files: Vec<_> = ["pot://plain/f", "pot://coded/f"]
        .map(|path| {
            lab.cli.ok(&["cp", arg(&input), path]);
            open(path)
        })
        .into();
    for file in &files {
        let mut paused = file.read(0..file.size());
        runtime.block_on(paused.next()).expect("the first part").expect("readable");
        read_everywhere(&runtime, file, &content, "beside a reader that is not asked");
    }
    let read_all = |what: &str| {
        for file in &files {
            let read = runtime.block_on(file.read_at(0, content.len())).expect(what);
            assert_same(&read, &content, what);
        }
    };
    for name in ["donor-1", "donor-2", "donor-3"] {
        lab.kill_donor(name);
        lab.start_donor(name);
        lab.wait_back(name);
    }
    read_all("from donors that were started again");
    for name in ["donor-4", "donor-5", "donor-6"] {
        lab.lend(name, Default::default());
    }
    lab.wait_live();
    for name in ["donor-1", "donor-2", "donor-3"] {
        lab.cli.ok(&["drain", name]);
        lab.cli.ok(&["nodes", "rm", name, "-y"]);
        lab.kill_donor(name);
    }
    read_all("from donors that were not there when it was opened");
}

/// A file that a program writes piece by piece is one file, visible when it is finished; `flush` promises
/// all that was written so far, and of a file that is dropped or aborted nothing appears.
#[test]
fn session_supports_concurrent_writers() {
    let lab = Lab::with_donors(3);
    let (client, runtime) = library(&lab);
    let content = super::content::bytes(13, (9 << 20) + 77);
    for (space, options) in [
        ("sealed", &["--copies", "2"][..]),
        ("plain", &["--plain", "--chunk-size", "1MiB"]),
        ("coded", &["--ec", "2+1", "--chunk-size", "1MiB"]),
    ] {
        lab.cli.ok(&[&["space", "create", space], options].concat());
        let dir = pool_path(&format!("pot://{space}/dir"));
        let at = |name: &str| dir.join(name).expect("a name");
        let plain = Attributes::default();
        runtime.block_on(async {
            let session = client.session(&dir, &PutOptions::default()).await.expect("a session");
            let mut large = session.create(at("large"), plain);
            let mut other = session.create(at("other"), plain);
            let mut lost = session.create(at("lost"), plain);
            let mut piece = 1;
            let mut rest = &content[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                large.write(now).await.expect("taken");
                other.write(&now[..now.len() / 2]).await.expect("taken");
                lost.write(now).await.expect("taken");
                (rest, piece) = (later, piece * 3);
                if piece > 60_000 && piece < 2_000_000 {
                    large.flush().await.expect("stored");
                }
            }
            let mut smalls = JoinSet::new();
            for number in 0..300 {
                let mtime = Some(FileTime(1_700_000_000_000_000_000 + number));
                let permissions = Permissions::of_mode(0o751);
                let attributes = Attributes { mtime, permissions, ..Attributes::default() };
                let mut small = session.create(at(&format!("small-{number}")), attributes);
                let part = content[..100 * number as usize].to_vec();
                smalls.spawn(async move {
                    small.write(&part).await.expect("taken");
                    small.finish().await.expect("visible")
                });
            }
            assert_eq!(smalls.join_all().await.len(), 300);
            drop(lost);
            session.create(at("aborted"), plain).abort();
            let version = large.finish().await.expect("visible");
            assert_eq!(client.open(&at("large")).await.expect("there").version(), version);
            let failed = client.open(&at("other")).await;
            assert!(failed.is_err(), "not finished yet");
            other.finish().await.expect("visible");
            let report = session.finish().await.expect("closed");
            assert!(report.failed.is_empty());
        });
        let names = lab.cli.json(&["ls", &dir.to_string()]).to_string();
        assert!(!names.contains("lost") && !names.contains("aborted"), "{names}");
        assert_same(&lab.cli.cat(&at("large").to_string()), &content, space);
        let small = runtime.block_on(client.open(&at("small-299"))).expect("there");
        let EntryAttributes { mtime, permissions, .. } = small.attributes();
        assert_eq!((mtime.0, permissions.bits()), (1_700_000_000_000_000_299, 0o751));
        assert_eq!(small.digest(), Digest::of(&content[..29_900]));
    }
    // Of two writers that must not replace anything the first that finishes wins; and what is flushed is at
    // donors.
    let path = pool_path("pot://plain/one");
    let once = PutOptions { condition: Condition::IfAbsent, ..PutOptions::default() };
    let before = lab.chunk_names();
    let (first, second) = runtime.block_on(async {
        let open = || client.create(&path, &once, Attributes::default());
        let mut first = open().await.expect("opened");
        let mut second = open().await.expect("opened");
        second.write(b"too late").await.expect("taken");
        first.write(&content[..100_000]).await.expect("taken");
        first.flush().await.expect("stored");
        assert!(lab.chunk_names().difference(&before).next().is_some());
        first.write(&content[100_000..3_000_000]).await.expect("taken");
        (first.finish().await, second.finish().await)
    });
    first.expect("visible");
    assert_eq!(second.expect_err("it is there").kind, ErrorKind::Conflict);
    assert_same(&lab.cli.cat(&path.to_string()), &content[..3_000_000], "one");
    runtime.block_on(client.settle());
}

#[test]
fn a_session_stores_local_files_beside_what_its_writers_bring() {
    let lab = Lab::with_donors(2);
    let (client, runtime) = library(&lab);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let content = |number: u64| file(lab.dir(), &format!("f{number}"), number, 300_000);
    let inputs: Vec<_> = (1..=4).map(content).collect();
    let item = |number: usize| Item {
        path: pool_path(&format!("pot://lab/f{number}")),
        input: Input::File(inputs[number - 1].0.clone()),
    };
    let gone =
        Item { path: pool_path("pot://lab/gone"), input: Input::File(lab.dir().join("not there")) };
    let pushed = &inputs[3].1;
    let report = runtime.block_on(async {
        let options = PutOptions::default();
        let session = client.session(&pool_path("pot://lab"), &options).await.expect("a session");
        let attributes = Attributes::default();
        let mut writer = session.create(pool_path("pot://lab/pushed"), attributes);
        session.add(Box::new([item(1), gone].into_iter())).expect("taken");
        writer.write(&pushed[..100_000]).await.expect("taken");
        session.add(Box::new([item(2), item(3)].into_iter())).expect("taken");
        writer.write(&pushed[100_000..]).await.expect("taken");
        writer.finish().await.expect("visible");
        session.finish().await.expect("all that could be stored")
    });
    // The files are told in the order in which they became visible, which is that of donors' answers.
    let stored: BTreeSet<_> = report.stored.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(stored.iter().collect::<Vec<_>>(), ["pot://lab/f1", "pot://lab/f2", "pot://lab/f3"]);
    let failed: Vec<_> = report.failed.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(failed, ["pot://lab/gone"], "it takes none of the others with it");
    for (name, content) in [("f1", 0), ("f2", 1), ("f3", 2), ("pushed", 3)] {
        let read = lab.cli.ok(&["cat", &format!("pot://lab/{name}")]);
        assert_same(&read.stdout, &inputs[content].1, name);
    }
}

/// What was hashed is sent from the file itself, so it has to be noticed when that changes in between.
#[test]
fn file_changed_before_sending_is_reread() {
    let mut lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "plain", "--plain", "--copies", "1"]);
    let (client, runtime) = library(&lab);
    let (changing, first) = file(lab.dir(), "changing", 31, 6 << 20);
    let changed: Vec<u8> = first.iter().map(|byte| byte ^ 1).collect();
    let (other, content) = file(lab.dir(), "other", 32, 3 << 20);
    let there = lab.dir().join("there");
    std::fs::write(&there, &first[..4 << 20]).expect("written");
    lab.cli.ok(&["cp", arg(&there), "pot://plain/there"]);
    let donors = lab.donor_names();
    donors.iter().for_each(|donor| lab.donor(donor).signal(Signal::STOP));
    thread::scope(|scope| {
        // The second file is asked for once the first is cut, while no donor takes anything.
        let (ask, asked) = std::sync::mpsc::channel();
        let path = changing.clone();
        let changed = &changed;
        scope.spawn({
            let lab = &mut lab;
            move || {
                asked.recv().expect("asked");
                let opened = std::fs::OpenOptions::new().write(true).open(&path);
                std::os::unix::fs::FileExt::write_all_at(&opened.expect("open"), changed, 0)
                    .expect("changed in place");
                donors.iter().for_each(|donor| lab.donor(donor).signal(Signal::CONT));
            }
        });
        let item = |name: &str, path: &std::path::Path| Item {
            path: pool_path(&format!("pot://plain/{name}")),
            input: Input::File(path.to_owned()),
        };
        let (one, two) = (item("changing", &changing), item("other", &other));
        let second = std::iter::once_with(move || {
            let _ = ask.send(());
            two
        });
        let items = Box::new(std::iter::once(one).chain(second));
        let options = PutOptions::default();
        let root = pool_path("pot://plain");
        let progress = Arc::new(potluck_client::Quiet);
        let put = potluck_client::put(&client, &root, items, &options, progress);
        let report = runtime.block_on(put).expect("the session goes on");
        assert!(report.failed.is_empty(), "it is read once more: {:?}", report.failed);
        assert_eq!(report.held_bytes, 0, "what it had before it changed is in no file");
    });
    for (name, content) in [("changing", &changed), ("other", &content)] {
        let read = runtime.block_on(async {
            let file = client.open(&pool_path(&format!("pot://plain/{name}"))).await?;
            file.read_at(0, content.len()).await
        });
        assert_same(&read.expect("readable"), content, name);
    }
}
