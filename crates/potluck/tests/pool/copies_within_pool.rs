//! Tests copies from the pool to the pool, which move no bytes where keys allow that, and go through the client where
//! they do not.

use super::content::{arg, assert_same, file, tree_of};
use super::holes::sparse;
use super::lab::{Lab, Lending};
use super::waiting::{DEADLINE, wait_until};
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::PermissionsExt;

fn lab_with(donors: usize) -> Lab {
    let lab = Lab::with_donors(donors);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab
}

#[test]
fn a_copy_inside_the_pool_moves_no_bytes() {
    let lab = lab_with(2);
    let (input, content) = file(lab.dir(), "input", 1, 3 << 20);
    fs::set_permissions(&input, fs::Permissions::from_mode(0o755)).expect("a mode");
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let stored = || lab.cli.json(&["du", "pot://lab"])["stored"].clone();
    let before = stored();
    let ran = lab.cli.ok(&["cp", "pot://lab/f", "pot://lab/deep/copy"]);
    assert!(ran.text().contains("copied without moving bytes"), "{}", ran.text());
    let report = lab.cli.json(&["cp", "pot://lab/f", "pot://lab/deep/"]);
    assert_eq!((&report["without_moving"], &report["files"]), (&1.into(), &1.into()), "{report}");
    assert_eq!(report["versions"][0]["path"], "pot://lab/deep/f", "{report}");
    assert_eq!(stored(), before, "no chunk was written");
    let of = |path: &str| lab.cli.json(&["stat", path])["entry"].clone();
    let (source, copy) = (of("pot://lab/f"), of("pot://lab/deep/copy"));
    for same in ["digest", "size", "mtime_ns", "permissions"] {
        assert_eq!(source[same], copy[same], "{same}");
    }
    assert_ne!(source["version"], copy["version"]);
    // Removing the source takes nothing from the copy.
    lab.cli.ok(&["rm", "pot://lab/f"]);
    assert_same(&lab.cli.cat("pot://lab/deep/copy"), &content, "the copy");
    lab.cli.ok(&["verify", "--read", "pot://lab/deep/copy"]);
}

#[test]
fn shared_chunks_are_reclaimed_with_the_last_file() {
    let lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 1, 1 << 20);
    let known = lab.lent("donor-1").chunks();
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let of_file: Vec<_> =
        lab.lent("donor-1").chunks().into_iter().filter(|chunk| !known.contains(chunk)).collect();
    assert!(of_file.len() >= 16, "{of_file:?}");
    lab.cli.ok(&["cp", "pot://lab/f", "pot://lab/g"]);
    lab.cli.ok(&["cp", "pot://lab/f", "pot://lab/g"]); // this replaces an entry that names the same chunks
    lab.cli.ok(&["rm", "pot://lab/f"]);
    lab.cli.ok(&["verify", "--read", "pot://lab/g"]);
    assert_eq!(lab.cli.status()["condemned_chunks"], 0);
    lab.cli.ok(&["rm", "pot://lab/g"]);
    wait_until("all chunks to be reclaimed", DEADLINE, || {
        !of_file.iter().any(|chunk| chunk.exists())
    });
}

#[test]
fn a_tree_copied_twice_inside_the_pool_is_the_same_tree() {
    let lab = lab_with(1);
    let from = lab.dir().join("from");
    for dir in ["sub", "empty/deep"] {
        fs::create_dir_all(from.join(dir)).expect("a directory");
    }
    for number in 0..700 {
        fs::write(from.join(format!("{number:03}")), format!("{number}")).expect("a file");
    }
    file(&from.join("sub"), "large", 7, 300_000);
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/t"]);
    for _ in 0..2 {
        let report = lab.cli.json(&["cp", "-r", "pot://lab/t", "pot://lab/copy"]);
        assert_eq!(report["files"], 701, "{}", report["failed"]);
        lab.cli.ok(&["cp", "-r", "pot://lab/t/", "pot://lab/into/"]);
    }
    let out = lab.dir().join("out");
    lab.cli.ok(&["cp", "-r", "pot://lab/copy", arg(&out)]);
    assert_eq!(tree_of(&out), tree_of(&from));
    let used = lab.cli.json(&["du", "pot://lab/into/t"]);
    assert_eq!((&used["files"], &used["dirs"]), (&701.into(), &3.into()), "{used}");
    // With `--if-absent` files that are there stay, and the others are copied.
    lab.cli.ok(&["rm", "pot://lab/copy/005"]);
    let ran = lab.cli.run(&["--json", "cp", "-r", "pot://lab/t", "pot://lab/copy", "--if-absent"]);
    assert_eq!((ran.code, &ran.json()["files"]), (4, &1.into()));
}

#[test]
fn a_copy_inside_the_pool_is_refused_where_it_would_do_harm() {
    let lab = lab_with(1);
    let (input, content) = file(lab.dir(), "input", 1, 100_000);
    for path in ["pot://lab/f", "pot://lab/dir/g"] {
        lab.cli.ok(&["cp", arg(&input), path]);
    }
    for (code, named, command) in [
        (2, "POT-E027", &["pot://lab/f", "pot://lab/f"][..]),
        (2, "POT-E027", &["-r", "pot://lab/dir", "pot://lab/dir/below"]),
        (2, "POT-E027", &["-r", "pot://lab/dir", "pot://lab/"]),
        (2, "POT-E025", &["pot://lab/dir", "pot://lab/other"]),
        (3, "POT-E010", &["pot://lab/none", "pot://lab/other"]),
        (3, "POT-E011", &["pot://lab/f", "pot://none/f"]),
        (10, "POT-E022", &["-r", "pot://lab/dir", "pot://lab/f"]),
        (10, "POT-E020", &["pot://lab/f", "pot://lab/dir/g", "--if-absent"]),
        (10, "POT-E021", &["pot://lab/f", "pot://lab/dir/g", "--if-version", "999"]),
    ] {
        let refused = lab.cli.fails(code, &[&["cp"], command].concat());
        assert_eq!(refused.code, named, "{command:?}: {refused:?}");
    }
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the source");
    assert_eq!(lab.cli.json(&["du", "pot://lab"])["files"], 2);
}

#[test]
fn between_sealed_spaces_a_copy_goes_through_the_client() {
    let lab = lab_with(2);
    lab.cli.ok(&["space", "create", "other", "--chunk-size", "128KiB"]);
    let from = lab.dir().join("from");
    fs::create_dir_all(from.join("a/empty")).expect("a directory");
    for (name, len) in [("small", 10), ("a/none", 0), ("a/large", 1_000_000), ("even", 131_072)] {
        fs::write(from.join(name), super::content::bytes(len as u64, len)).expect("a file");
    }
    fs::set_permissions(from.join("small"), fs::Permissions::from_mode(0o755)).expect("a mode");
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/t"]);
    let report = lab.cli.json(&["cp", "-r", "pot://lab/t", "pot://other/t"]);
    assert_eq!((&report["files"], report["without_moving"].is_null()), (&4.into(), true));
    assert!(report["sent_chunks"].as_u64() > Some(0), "{report}");
    let out = lab.dir().join("out");
    lab.cli.ok(&["cp", "-r", "pot://other/t", arg(&out)]);
    assert_eq!(tree_of(&out), tree_of(&from));
    let mode = fs::metadata(out.join("small")).expect("there").permissions().mode();
    assert_eq!(mode & 0o100, 0o100);
    for path in ["small", "a/large"] {
        let of = |space: &str| lab.cli.json(&["stat", &format!("pot://{space}/t/{path}")]);
        assert_eq!(of("lab")["entry"]["mtime_ns"], of("other")["entry"]["mtime_ns"]);
    }
    assert_eq!(lab.cli.json(&["stat", "pot://other/t/a/large"])["chunk_size"], 131_072);
    lab.cli.ok(&["mkdir", "pot://lab/void"]);
    lab.cli.ok(&["cp", "-r", "pot://lab/void", "pot://other/void"]);
    assert_eq!(lab.cli.json(&["stat", "pot://other/void"])["entry"]["kind"], "dir");
    // Plain spaces share chunks, so the copy moves none.
    for space in ["open", "open2"] {
        lab.cli.ok(&["space", "create", space, "--plain"]);
    }
    lab.cli.ok(&["cp", arg(&from.join("a/large")), "pot://open/f"]);
    let report = lab.cli.json(&["cp", "pot://open/f", "pot://open2/f"]);
    assert_eq!(report["without_moving"], 1, "{report}");
}

#[test]
fn client_copy_without_room_fails_and_holes_need_none() {
    let mut lab = Lab::manager_only(&[]);
    lab.lend("donor", Lending { max: "14MiB".into(), ..Lending::default() });
    lab.wait_live();
    for space in ["one", "two"] {
        lab.cli.ok(&["space", "create", space, "--chunk-size", "64KiB"]);
    }
    let (input, content) = file(lab.dir(), "input", 1, 8 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://one/large"]);
    let from_disk = lab.cli.fails(6, &["cp", arg(&input), "pot://two/"]);
    let through = lab.cli.fails(6, &["cp", "pot://one/large", "pot://two/"]);
    assert_eq!((through.code, through.message), (from_disk.code, from_disk.message));
    lab.cli.ok(&["mkdir", "pot://one/dir"]);
    lab.cli.ok(&["mv", "pot://one/large", "pot://one/dir/"]);
    lab.cli.fails(6, &["cp", "-r", "pot://one", "pot://two/backup"]);
    assert_same(&lab.cli.cat("pot://one/dir/large"), &content, "the source");
    lab.cli.ok(&["rm", "pot://one/dir/large"]);
    // Whoever may write stores a hole of any length.
    let hole = lab.dir().join("hole");
    let local = sparse(&hole, 2, 2 << 40, &[(1 << 40, 100_000)]);
    lab.cli.ok(&["cp", arg(&hole), "pot://one/hole"]);
    lab.cli.ok(&["cp", "-r", "pot://one", "pot://two/backup"]);
    let size = lab.cli.json(&["stat", "pot://two/backup/hole"])["entry"]["size"].as_u64();
    assert_eq!(size, Some(2 << 40));
    let range = format!("{}-{}", 1_u64 << 40, (1_u64 << 40) + 99_999);
    let read = lab.cli.ok(&["cat", "pot://two/backup/hole", "--range", &range]).stdout;
    let mut expected = vec![0; 100_000];
    local.read_exact_at(&mut expected, 1 << 40).expect("read");
    assert_same(&read, &expected, "the data between holes");
}

#[test]
fn tree_copy_between_sealed_spaces_honours_ack_disk() {
    let lab = lab_with(1);
    lab.cli.ok(&["space", "create", "other", "--chunk-size", "64KiB"]);
    let writer = lab.cli.at_home(&lab.dir().join("writer"));
    writer.ok(&["join", &lab.token("user"), "--name", "writer"]);
    lab.cli.ok(&["space", "grant", "lab", "writer", "read"]);
    lab.cli.ok(&["space", "grant", "other", "writer", "read", "write"]);
    let (input, content) = file(lab.dir(), "input", 1, 300_000);
    for path in ["pot://lab/tree/f", "pot://lab/tree/safe/deep/g"] {
        lab.cli.ok(&["cp", arg(&input), path]);
    }
    lab.cli.ok(&["mkdir", "-p", "pot://other/tree/safe", "--ack", "disk"]);
    for (cli, more) in [(&writer, &[][..]), (&lab.cli, &[]), (&writer, &["--atomic"])] {
        let command = [&["cp", "-r", "pot://lab/tree", "pot://other/tree"][..], more].concat();
        assert_eq!(cli.json(&command)["files"], 2, "{command:?}");
        assert_same(&lab.cli.cat("pot://other/tree/safe/deep/g"), &content, "the copy");
        lab.cli.ok(&["rm", "pot://other/tree/f", "pot://other/tree/safe/deep/g"]);
    }
    // A command may ask for a weaker ack level only where its member may manage.
    let sooner = ["cp", "-r", "pot://lab/tree", "pot://other/tree", "--ack", "memory"];
    let refused = writer.run(&[&["--json"][..], &sooner].concat()).exits(4).json();
    assert_eq!(refused["failed"][0]["error"]["code"], "POT-E067", "{refused}");
    assert_eq!(lab.cli.json(&sooner)["files"], 2);
}

#[test]
fn a_copy_becomes_what_its_directory_asks_for() {
    let lab = lab_with(3);
    let (input, content) = file(lab.dir(), "input", 1, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.cli.ok(&["mkdir", "pot://lab/twice", "--copies", "2"]);
    lab.cli.ok(&["mkdir", "pot://lab/coded", "--ec", "2+1"]);
    let ran = lab.cli.ok(&["cp", "pot://lab/f", "pot://lab/twice/"]);
    assert!(ran.stderr.contains("changed in the background"), "{}", ran.stderr);
    let report = lab.cli.json(&["cp", "pot://lab/f", "pot://lab/coded/"]);
    assert_eq!(report["changing"], 1, "{report}");
    let kept_as = |path: &str| lab.cli.ok(&["stat", path]).text();
    wait_until("both to be changed", DEADLINE, || {
        kept_as("pot://lab/twice/f").contains("kept as    2 copies")
            && kept_as("pot://lab/coded/f").contains("kept as    2+1")
    });
    // A copy of an erasure-coded file has its parity too, and keeps it when the source is removed.
    lab.cli.ok(&["cp", "pot://lab/coded/f", "pot://lab/coded/g"]);
    lab.cli.ok(&["rm", "pot://lab/coded/f"]);
    lab.cli.ok(&["verify", "--read", "pot://lab/coded/g"]);
    assert_same(&lab.cli.cat("pot://lab/coded/g"), &content, "the copy");
}
