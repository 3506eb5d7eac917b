//! Tests what S3 tools and WebDAV clients see of a pool through a gateway, and what an access key lets them do.

use super::content::{arg, assert_same, bytes, file};
use super::docs::{Typist, blocks};
use super::lab::{Cli, Lab, start_daemon, stop};
use super::machines::{Machines, Naming};
use super::program::Running;
use super::s3_client::{S3Client, ask_openly};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;

/// A gateway of a pool on loopback, and the identity that it has.
struct Gateway {
    running: Running,
    address: String,
    state: PathBuf,
}

fn gateway(lab: &Lab, protocols: &str) -> Gateway {
    let state = lab.dir().join("gateway");
    let token = lab.token_file("gateway");
    lab.cli.ok(&["join", "--token-file", arg(&token), "--state", arg(&state), "--name", "gate"]);
    let args = ["serve", protocols, "--listen", "127.0.0.1:0", "--state", arg(&state)];
    let (running, address) = start_daemon(&lab.cli, lab.dir(), "gateway", &args);
    Gateway { running, address, state }
}

/// Returns a client with a new access key of this user.
fn client(cli: &Cli, gateway: &Gateway, options: &[&str]) -> S3Client {
    let made = cli.json(&[&["key", "create"], options].concat());
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    S3Client { address: gateway.address.clone(), id: text("id"), secret: text("secret") }
}

fn join(lab: &Lab, name: &str) -> Cli {
    let cli = lab.cli.at_home(&lab.dir().join(name));
    cli.ok(&["join", &lab.token("user"), "--name", name]);
    cli
}

#[test]
fn s3_objects_are_the_files_of_a_space() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--plain"]);
    let gateway = gateway(&lab, "s3");
    let s3 = client(&lab.cli, &gateway, &["--space", "lab", "--write"]);
    assert_eq!(s3.ask("GET", "/", &[], b"").with(200).all("Name"), ["lab"]);

    let content = bytes(1, 9_000_001);
    let noted = [("content-type", "text/plain"), ("x-amz-meta-who", "ada")];
    let put = s3.ask("PUT", "/lab/runs/7/out", &noted, &content).with(200);
    assert_same(&lab.cli.cat("pot://lab/runs/7/out"), &content, "what the pool has");
    let got = s3.ask("GET", "/lab/runs/7/out", &[], b"").with(200);
    assert_same(&got.body, &content, "what comes back");
    assert_eq!(got.header("etag"), put.header("etag"));
    assert_eq!((got.header("content-type"), got.header("x-amz-meta-who")), ("text/plain", "ada"));
    let range = [("range", "bytes=4194300-4194309")];
    let part = s3.ask("GET", "/lab/runs/7/out", &range, b"").with(206);
    assert_eq!(part.body, content[4_194_300..4_194_310]);
    assert_eq!(part.header("content-range"), "bytes 4194300-4194309/9000001");

    let (input, small) = file(lab.dir(), "input", 2, 1000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/by-cp"]);
    let got = s3.ask("GET", "/lab/by-cp", &[], b"").with(200);
    assert_eq!(got.body, small);
    assert!(got.header("etag").ends_with("-0\""), "no MD5 is known of it");
    s3.ask("GET", "/lab/none", &[], b"").with(404);
    s3.ask("GET", "/other/none", &[], b"").with(404);
    s3.ask("PUT", "/lab/a//b", &[], b"x").with(400);
    s3.ask("GET", "/lab?acl", &[], b"").with(501);
    s3.ask("DELETE", "/lab/by-cp", &[], b"").with(204);
    s3.ask("DELETE", "/lab/by-cp", &[], b"").with(204);
    lab.cli.fails(3, &["stat", "pot://lab/by-cp"]);
}

#[test]
fn s3_writes_are_conditional_and_bodies_are_checked() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--plain"]);
    let gateway = gateway(&lab, "s3");
    let s3 = client(&lab.cli, &gateway, &["--space", "lab", "--write"]);
    let put = |headers: &[(&str, &str)], body: &[u8]| s3.ask("PUT", "/lab/state", headers, body);
    let first = put(&[("if-none-match", "*")], b"1").with(200);
    put(&[("if-none-match", "*")], b"2").with(412);
    let second = put(&[("if-match", first.header("etag"))], b"2").with(200);
    put(&[("if-match", first.header("etag"))], b"3").with(412);
    assert_eq!(lab.cli.cat("pot://lab/state"), b"2");
    s3.ask("GET", "/lab/state", &[("if-none-match", second.header("etag"))], b"").with(304);
    s3.ask("GET", "/lab/state", &[("if-match", first.header("etag"))], b"").with(412);

    // The MD5 is that of "abc", and the CRC-32 that of "123456789".
    put(&[("content-md5", "kAFQmDzST7DWlj99KOF/cg==")], b"abc").with(200);
    put(&[("content-md5", "kAFQmDzST7DWlj99KOF/cg==")], b"abd").with(400);
    put(&[("x-amz-checksum-crc32", "y/Q5Jg==")], b"12345678").with(400);
    assert_eq!(lab.cli.cat("pot://lab/state"), b"abc", "nothing of a refused body is kept");
    let put = put(&[("x-amz-checksum-crc32", "y/Q5Jg==")], b"123456789").with(200);
    assert_eq!(put.header("x-amz-checksum-crc32"), "y/Q5Jg==");
}

#[test]
fn s3_keys_are_listed_in_their_order_and_in_pages() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--plain"]);
    let gateway = gateway(&lab, "s3");
    let s3 = client(&lab.cli, &gateway, &["--space", "lab", "--write"]);
    let mut keys = ["a-x", "a.b/c", "a/b", "a/b-1", "a/b/c", "a0", "z/y.txt", "z/y/1", "z/y/2"];
    keys[4] = "a/c/d";
    for key in keys.iter().rev() {
        s3.ask("PUT", &format!("/lab/{key}"), &[], b"").with(200);
    }
    let pages = |query: &str, most: usize| {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let target = format!("/lab?list-type=2&max-keys={most}{query}{after}");
            let page = s3.ask("GET", &target, &[], b"").with(200);
            let listed = page.all("Key").into_iter().chain(page.all("CommonPrefixes"));
            let listed: Vec<String> =
                listed.map(|it| it.replace("<Prefix>", "").replace("</Prefix>", "")).collect();
            assert!(listed.len() <= most, "{listed:?}");
            found.extend(listed);
            let Some(next) = page.all("NextContinuationToken").pop() else { return found };
            after = format!("&continuation-token={}", next.replace('/', "%2F"));
        }
    };
    for most in [1, 2, 1000] {
        assert_eq!(pages("", most), keys, "{most} a page");
        let mut top = pages("&delimiter=%2F", most);
        top.sort();
        assert_eq!(top, ["a-x", "a.b/", "a/", "a0", "z/"], "{most} a page");
        assert_eq!(pages("&prefix=z%2Fy", most), ["z/y.txt", "z/y/1", "z/y/2"]);
        assert_eq!(pages("&prefix=z%2Fy%2F", most), ["z/y/1", "z/y/2"]);
        assert_eq!(pages("&prefix=a%2Fb", most), ["a/b", "a/b-1"]);
        assert!(pages("&prefix=none%2F", most).is_empty());
    }
    let after = s3.ask("GET", "/lab?marker=a%2Fb&max-keys=2", &[], b"").with(200);
    assert_eq!(after.all("Key"), ["a/b-1", "a/c/d"]);
}

#[test]
fn s3_upload_in_parts_takes_their_chunks_over() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let gateway = gateway(&lab, "s3");
    let s3 = client(&lab.cli, &gateway, &["--space", "lab", "--write", "--unseal"]);
    let begin = || {
        let noted = [("content-type", "x/y")];
        let begun = s3.ask("POST", "/lab/d/whole?uploads", &noted, b"").with(200);
        begun.all("UploadId").pop().expect("an identifier")
    };
    let part = |upload: &str, number: usize, body: &[u8]| {
        let target = format!("/lab/d/whole?partNumber={number}&uploadId={upload}");
        s3.ask("PUT", &target, &[], body)
    };
    let complete = |upload: &str, tags: &[(usize, String)]| {
        let part = |(number, tag): &(usize, String)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        };
        let parts: String = tags.iter().map(part).collect();
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        s3.ask("POST", &format!("/lab/d/whole?uploadId={upload}"), &[], body.as_bytes())
    };
    let content = bytes(3, 20 << 20);
    let upload = begin();
    let cuts = [0..8 << 20, 8 << 20..16 << 20, 16 << 20..20 << 20];
    let tags: Vec<(usize, String)> = (1..)
        .zip(&cuts)
        .map(|(number, cut)| {
            let put = part(&upload, number, &content[cut.clone()]).with(200);
            (number, put.header("etag").trim_matches('"').to_owned())
        })
        .collect();
    assert!(s3.ask("GET", "/lab?list-type=2", &[], b"").with(200).all("Key").is_empty());
    let listed = s3.ask("GET", &format!("/lab/d/whole?uploadId={upload}"), &[], b"").with(200);
    assert_eq!(listed.all("PartNumber"), ["1", "2", "3"]);
    let before = lab.chunk_files();
    complete(&upload, &[tags[0].clone(), (2, tags[2].1.clone())]).with(400);
    let completed = complete(&upload, &tags).with(200);
    assert!(completed.text().contains("-3"), "{}", completed.text());
    assert_eq!(lab.chunk_files(), before, "no byte was stored again");
    assert_same(&lab.cli.cat("pot://lab/d/whole"), &content, "the whole object");
    let head = s3.ask("HEAD", "/lab/d/whole", &[], b"").with(200);
    assert_eq!(head.header("content-type"), "x/y");
    part(&upload, 1, b"late").with(404);

    // Parts that fill no whole chunks are stored once more, and come to the same bytes.
    let upload = begin();
    let tags: Vec<(usize, String)> = [(1, 0..5_000_001), (7, 5_000_001..9_000_000)]
        .into_iter()
        .map(|(number, cut)| {
            let put = part(&upload, number, &content[cut]).with(200);
            (number, put.header("etag").to_owned())
        })
        .collect();
    complete(&upload, &tags).with(200);
    assert_same(&lab.cli.cat("pot://lab/d/whole"), &content[..9_000_000], "parts of any size");
    let upload = begin();
    s3.ask("DELETE", &format!("/lab/d/whole?uploadId={upload}"), &[], b"").with(204);
    part(&upload, 1, b"late").with(404);
}

#[test]
fn s3_copies_have_the_same_bytes_and_metadata() {
    let lab = Lab::with_donors(1);
    for space in ["lab", "runs"] {
        lab.cli.ok(&["space", "create", space]);
    }
    let gateway = gateway(&lab, "all");
    let keys = ["--space", "lab", "--space", "runs", "--write", "--unseal"];
    let s3 = client(&lab.cli, &gateway, &keys);
    let content = bytes(4, 5_000_000);
    let noted = [("x-amz-meta-n", "1")];
    let put = s3.ask("PUT", "/lab/from", &noted, &content).with(200);
    let source = ("x-amz-copy-source", "/lab/from");
    for to in ["/lab/copy", "/runs/copy"] {
        s3.ask("PUT", to, &[source], b"").with(200);
        let got = s3.ask("GET", to, &[], b"").with(200);
        assert_same(&got.body, &content, to);
        assert_eq!((got.header("etag"), got.header("x-amz-meta-n")), (put.header("etag"), "1"));
    }
    let replace = [source, ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-n", "2")];
    s3.ask("PUT", "/lab/from", &[source], b"").with(400);
    s3.ask("PUT", "/lab/from", &replace, b"").with(200);
    let got = s3.ask("GET", "/lab/from", &[], b"").with(200);
    assert_same(&got.body, &content, "the object whose metadata was replaced");
    assert_eq!((got.header("etag"), got.header("x-amz-meta-n")), (put.header("etag"), "2"));
    // What a checkpoint of the pool's own keeps of a version, a copy by the command line has too.
    lab.cli.ok(&["cp", "pot://lab/from", "pot://lab/by-cp"]);
    let got = s3.ask("HEAD", "/lab/by-cp", &[], b"").with(200);
    assert_eq!(got.header("x-amz-meta-n"), "2");
    let delete =
        b"<Delete><Object><Key>from</Key></Object><Object><Key>none</Key></Object></Delete>";
    s3.ask("POST", "/lab?delete", &[], delete).with(200);
    lab.cli.fails(3, &["stat", "pot://lab/from"]);
}

#[test]
fn access_key_allows_no_more_than_its_user_may() {
    let lab = Lab::with_donors(1);
    for space in ["lab", "other"] {
        lab.cli.ok(&["space", "create", space, "--plain"]);
    }
    lab.cli.ok(&["space", "create", "sealed"]);
    let (input, _) = file(lab.dir(), "input", 5, 100_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/data"]);
    lab.cli.ok(&["cp", arg(&input), "pot://other/data"]);
    let gateway = gateway(&lab, "all");
    let ada = join(&lab, "ada");

    // A key is for what its user may do.
    assert_eq!(ada.fails(3, &["key", "create", "--space", "lab", "--read"]).code, "POT-E011");
    lab.cli.ok(&["space", "grant", "lab", "ada", "read"]);
    lab.cli.ok(&["space", "grant", "sealed", "ada", "read"]);
    assert_eq!(ada.fails(8, &["key", "create", "--space", "lab", "--write"]).code, "POT-E067");
    let refused = ada.fails(2, &["key", "create", "--space", "sealed", "--read"]);
    assert!(refused.hint.contains("--unseal"), "{}", refused.hint);
    let s3 = client(&ada, &gateway, &["--space", "lab", "--read", "--label", "mine"]);
    let wrong = S3Client { secret: format!("{}x", s3.secret), ..s3.clone() };
    wrong.ask("GET", "/lab/data", &[], b"").with(403);
    wrong.dav("GET", "/lab/data", &[], b"").with(401);
    s3.ask("GET", "/lab/data", &[], b"").with(200);
    s3.ask("GET", "/other/data", &[], b"").with(404);
    s3.ask("PUT", "/lab/data", &[], b"x").with(403);
    assert_eq!(s3.ask("GET", "/", &[], b"").with(200).all("Name"), ["lab"]);
    ask_openly(&gateway.address, "GET", &s3.presigned("/lab/data")).with(200);
    ask_openly(&gateway.address, "GET", &s3.presigned("/lab/data").replace("data?", "dat?"))
        .with(403);
    ask_openly(&gateway.address, "GET", "/lab/data").with(401);

    // A key of an admin is bound by its own spaces and rights.
    let admins = client(&lab.cli, &gateway, &["--space", "lab", "--read"]);
    admins.ask("GET", "/lab/data", &[], b"").with(200);
    admins.ask("PUT", "/lab/data", &[], b"x").with(403);
    admins.ask("GET", "/other/data", &[], b"").with(404);

    // The gateway itself may nothing, and nobody but a gateway acts by a key.
    let itself = lab.cli.under(&gateway.state);
    itself.fails(8, &["ls", "pot://lab"]);
    itself.fails(8, &["key", "create", "--space", "lab", "--read"]);
    itself.fails(8, &["members", "ls"]);

    // The user's grants count at each call, and so does the key's end.
    let audit = lab.cli.json(&["audit"]);
    let entries = audit["entries"].as_array().expect("entries");
    let through = |entry: &&Value| {
        let through = entry["through"].as_str().unwrap_or_default();
        entry["name"] == "ada" && through.contains("gate") && through.contains(&s3.id)
    };
    assert!(entries.iter().any(|entry| through(&entry)), "{audit}");
    lab.cli.ok(&["space", "revoke", "lab", "ada"]);
    s3.ask("GET", "/lab/data", &[], b"").with(404);
    lab.cli.ok(&["space", "grant", "lab", "ada", "read"]);
    s3.ask("GET", "/lab/data", &[], b"").with(200);
    assert_eq!(ada.json(&["key", "ls"])["keys"][0]["label"], "mine");
    assert_eq!(ada.fails(3, &["key", "rm", &admins.id]).code, "POT-E010");
    ada.ok(&["key", "rm", &s3.id]);
    s3.ask("GET", "/lab/data", &[], b"").with(403);
    assert!(ada.json(&["key", "ls"])["keys"].as_array().expect("a list").is_empty());
    lab.cli.ok(&["members", "rm", "gate", "-y"]);
    let gone = admins.ask("GET", "/lab/data", &[], b"");
    assert_eq!(gone.status, 403, "{}", gone.text());
}

#[test]
fn webdav_files_are_made_moved_and_removed() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let mut gateway = gateway(&lab, "webdav");
    let dav = client(&lab.cli, &gateway, &["--space", "lab", "--write", "--unseal"]);
    ask_openly(&gateway.address, "PROPFIND", "/").with(401);
    let root = dav.dav("PROPFIND", "/", &[("depth", "1")], b"").with(207);
    assert!(root.text().contains("/lab/"), "{}", root.text());

    let content = bytes(6, 5_000_000);
    dav.dav("PUT", "/lab/d/file", &[], &content).with(409);
    dav.dav("MKCOL", "/lab/d", &[], b"").with(201);
    dav.dav("PUT", "/lab/d/file", &[], &content).with(201);
    assert_same(&lab.cli.cat("pot://lab/d/file"), &content, "what the pool has");
    assert_same(&dav.dav("GET", "/lab/d/file", &[], b"").with(200).body, &content, "read");
    let part = dav.dav("GET", "/lab/d/file", &[("range", "bytes=4194300-4194309")], b"").with(206);
    assert_eq!(part.body, content[4_194_300..4_194_310]);
    let to = |path: &str| format!("http://{}{path}", gateway.address);
    let before = lab.chunk_files();
    dav.dav("COPY", "/lab/d/file", &[("destination", &to("/lab/copy"))], b"").with(201);
    dav.dav("MOVE", "/lab/d/file", &[("destination", &to("/lab/moved"))], b"").with(201);
    assert_eq!(lab.chunk_files(), before, "no byte was stored again");
    assert_same(&lab.cli.cat("pot://lab/moved"), &content, "moved");

    let lock = b"<?xml version=\"1.0\"?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
                 <D:locktype><D:write/></D:locktype></D:lockinfo>";
    let locked = dav.dav("LOCK", "/lab/moved", &[], lock).with(200);
    let token = locked.header("lock-token").to_owned();
    dav.dav("PUT", "/lab/moved", &[], b"x").with(423);
    let held = format!("({token})");
    dav.dav("PUT", "/lab/moved", &[("if", &held)], b"x").with(204);
    dav.dav("UNLOCK", "/lab/moved", &[("lock-token", &token)], b"").with(204);
    dav.dav("DELETE", "/lab/d/", &[], b"").with(204);
    dav.dav("DELETE", "/lab/", &[], b"").with(403);
    dav.dav("LOCK", "/lab/new", &[], lock).with(201);
    lab.cli.fails(3, &["stat", "pot://lab/d"]);
    assert_eq!(stop(&mut gateway.running, Signal::TERM), 0);
}

#[test]
fn gateway_is_run_as_documented() {
    let test = "gateway_is_run_as_documented";
    let Some(lab) = Machines::new(test, Naming::Dns, &["alice", "bob"]) else { return };
    let (alice, bob) = (lab.machine("alice"), lab.machine("bob"));
    let typist = Typist::new(&lab);
    typist.types_line(alice, "potluck up --max 200GiB --label here");
    alice.sh("potluck space create lab --copies 1").ok();
    alice.sh("echo hello > greeting && potluck cp greeting pot://lab/").ok();
    for heading in ["Running a gateway", "Access keys"] {
        for block in blocks("docs/gateways.md", heading) {
            typist.types(&block, "alice");
        }
    }
    let key = alice.sh("potluck --json key create --space lab --read --unseal").ok().json();
    let (id, secret) = (key["id"].as_str().expect("text"), key["secret"].as_str().expect("text"));
    let read = format!("curl -sf -u {id}:{secret} http://127.0.0.1:7702/lab/greeting");
    assert_eq!(bob.sh(&read).ok().text(), "hello\n");
}
