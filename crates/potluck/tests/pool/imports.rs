//! Tests imports: files come from their origins, are passed over while these are unchanged, and come from there again
//! when no donor has them.

use super::content::{arg, assert_same, bytes};
use super::docs::{Typist, blocks};
use super::lab::Lab;
use super::machines::{Machines, Naming};
use super::waiting::{DEADLINE, wait_until};
use super::web_server::WebServer;
use rustix::process::Signal;
use std::fs;
use std::time::Duration;

/// Makes a pool of so many donors, with a space of small chunks.
fn lab(donors: usize, options: &[&str]) -> Lab {
    let lab = Lab::with_donors(donors);
    lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "256KiB"], options].concat());
    lab
}

/// Lets the user's commands ask origins on this machine, though others wrote them down.
fn allow_loopback(lab: &Lab) {
    let dir = lab.dir().join("home/config/potluck");
    fs::create_dir_all(&dir).expect("made");
    fs::write(dir.join("config.toml"), "origins-allow = '127.0.0.1'\n").expect("written");
}

#[test]
fn import_brings_files_and_their_origin() {
    let lab = lab(1, &[]);
    let web = WebServer::start();
    let (large, small) = (bytes(1, (9 << 20) + 77), bytes(2, 100));
    web.put("/era5/t2m.nc", &large);
    web.put("/era5/2019/a%20b.nc", &small);
    let all = web.url("/era5/");
    let planned = lab.cli.json(&["import", &all, "pot://lab/era5/", "-n"]);
    assert_eq!((&planned["files"], &planned["dry_run"]), (&2.into(), &true.into()));
    let done = lab.cli.json(&["import", &all, "pot://lab/era5/"]);
    assert_eq!((&done["files"], &done["unchanged"]), (&2.into(), &0.into()));
    assert_same(&lab.cli.cat("pot://lab/era5/t2m.nc"), &large, "in ranges");
    assert_same(&lab.cli.cat("pot://lab/era5/2019/a b.nc"), &small, "small");

    let sent = web.sent();
    let again = lab.cli.json(&["import", &all, "pot://lab/era5/"]);
    assert_eq!((&again["files"], &again["unchanged"]), (&0.into(), &2.into()));
    assert_eq!(web.sent(), sent, "nothing was fetched");

    lab.cli.ok(&["mv", "pot://lab/era5/t2m.nc", "pot://lab/t2m.nc"]);
    let stated = lab.cli.json(&["stat", "pot://lab/t2m.nc"]);
    let origin = &stated["entry"]["origin"];
    assert_eq!(origin["uri"], web.url("/era5/t2m.nc"));
    assert_eq!(
        (&origin["size"], &origin["modified_wall_ms"]),
        (&large.len().into(), &1_445_412_480_000_i64.into())
    );
    assert!(
        origin["etag"].is_string() && origin["imported_wall_ms"].as_i64() > Some(0),
        "{origin}"
    );
    assert!(lab.cli.ok(&["stat", "pot://lab/t2m.nc"]).text().contains(&web.url("/era5/t2m.nc")));
}

#[test]
fn import_takes_lists_checksums_and_local_files() {
    let lab = lab(1, &[]);
    let web = WebServer::start();
    let content = bytes(3, 700_000);
    web.put("/a", &content);
    web.put("/b?version=2", b"of a query");
    web.without_ranges(true);
    let local = lab.dir().join("local file");
    fs::write(&local, &content).expect("written");
    let list = lab.dir().join("list");
    let file = format!("file://{}/local%20file", lab.dir().display());
    fs::write(&list, format!("# two\n{}\n\n{}\n{file}\n", web.url("/a"), web.url("/b?version=2")))
        .expect("written");
    lab.cli.ok(&["import", "--from-file", arg(&list), "pot://lab/l/"]);
    assert_same(&lab.cli.cat("pot://lab/l/a"), &content, "without ranges");
    assert_same(&lab.cli.cat("pot://lab/l/b"), b"of a query", "of a query");
    assert_same(&lab.cli.cat("pot://lab/l/local file"), &content, "a local file");

    let sum = blake3::hash(&content).to_hex().to_string();
    lab.cli.ok(&["import", &web.url("/a"), "pot://lab/summed", "--blake3", &sum]);
    let wrong = blake3::hash(b"other").to_hex().to_string();
    let why = lab.cli.fails(7, &["import", &web.url("/a"), "pot://lab/wrong", "--blake3", &wrong]);
    assert!(why.message.contains("checksum"), "{}", why.message);
    lab.cli.fails(3, &["stat", "pot://lab/wrong"]);
    lab.cli.fails(3, &["import", &web.url("/gone"), "pot://lab/gone"]);
    web.away(true);
    let why = lab.cli.fails(5, &["import", &web.url("/a"), "pot://lab/away"]);
    assert_eq!(why.code, "POT-E054", "{}", why.message);
    lab.cli.fails(2, &["import", "gopher://host/a", "pot://lab/gone"]);
}

#[test]
fn changed_origin_is_taken_over_only_when_asked() {
    let lab = lab(1, &[]);
    let web = WebServer::start();
    web.put("/a", &bytes(4, 600_000));
    let import = ["import", &web.url("/a"), "pot://lab/a"];
    lab.cli.ok(&import);
    let changed = bytes(5, 600_000);
    web.put("/a", &changed);
    assert_eq!(lab.cli.fails(10, &import).code, "POT-E053");
    lab.cli.ok(&[&import[..], &["--refresh"]].concat());
    assert_same(&lab.cli.cat("pot://lab/a"), &changed, "taken over");
    fs::write(lab.dir().join("own"), b"mine").expect("written");
    lab.cli.ok(&["cp", "own", "pot://lab/own"]);
    assert_eq!(lab.cli.fails(10, &["import", &web.url("/a"), "pot://lab/own"]).code, "POT-E020");
    web.put("/b", b"x");
    let private =
        format!("http://localhost:{}/b", web.url("").rsplit(':').next().unwrap_or_default());
    web.redirect("/away", &private);
    let why = lab.cli.fails(1, &["import", &web.url("/away"), "pot://lab/b"]);
    assert!(why.message.contains("private network"), "{}", why.message);
}

/// What no donor has comes from the origin in the middle of a read, which is right; and what the origin has instead is
/// not taken for it.
#[test]
fn lost_chunks_of_cached_files_come_from_the_origin() {
    for seal in ["--seal", "--plain"] {
        let mut lab = lab(1, &["--cache", seal]);
        allow_loopback(&lab);
        let web = WebServer::start();
        let content = bytes(6, (5 << 20) + 3);
        web.put("/a", &content);
        lab.cli.ok(&["import", &web.url("/a"), "pot://lab/a"]);
        let sent = web.sent();
        assert_same(&lab.cli.cat("pot://lab/a"), &content, "from the donor");
        assert_eq!(web.sent(), sent, "nothing came from the origin");

        lab.donor("donor-1").signal(Signal::STOP);
        let cli = lab.cli.with_env("POTLUCK_RETRY_FOR", "60s");
        assert_same(&cli.cat("pot://lab/a"), &content, "from the origin");
        assert!(web.sent() >= sent + content.len() as u64);
        let range = cli.ok(&["cat", "pot://lab/a", "--range", "1000000-1000999"]).stdout;
        assert_same(&range, &content[1_000_000..1_001_000], "a range");

        let mut changed = content.clone();
        changed[3 << 20] ^= 1;
        web.put("/a", &changed);
        let why = cli.fails(7, &["cat", "pot://lab/a"]);
        assert_eq!(why.code, "POT-E053", "{}", why.message);
        lab.donor("donor-1").signal(Signal::CONT);
    }
}

#[test]
fn evicted_files_are_read_from_their_origin() {
    let lab = lab(2, &["--cache"]);
    allow_loopback(&lab);
    let web = WebServer::start();
    let content = bytes(7, (3 << 20) + 3);
    for name in ["/d/a", "/d/pinned", "/d/same"] {
        web.put(name, &content[..if name == "/d/pinned" { 1 << 20 } else { content.len() }]);
    }
    lab.cli.ok(&["import", &web.url("/d/"), "pot://lab/d/"]);
    lab.cli.ok(&["import", &web.url("/d/same"), "pot://lab/kept", "--cache=false"]);
    lab.cli.ok(&["pin", "pot://lab/d/pinned"]);
    let evicted = lab.cli.json(&["evict", "pot://lab/d"]);
    assert_eq!((&evicted["files"], &evicted["pinned"]), (&2.into(), &1.into()), "{evicted}");
    let sent = web.sent();
    assert_same(&lab.cli.cat("pot://lab/kept"), &content, "what is kept lost nothing");
    assert_eq!(web.sent(), sent);

    lab.cli.ok(&["rm", "pot://lab/kept"]);
    lab.cli.ok(&["rm", "pot://lab/d/same"]);
    let chunks = || lab.cli.json(&["stat", "pot://lab/d/a"])["live_copies"].as_u64();
    wait_until("the chunks to go", DEADLINE, || chunks() == Some(0));
    let stated = lab.cli.json(&["stat", "pot://lab/d/a"]);
    assert_eq!(
        (&stated["entry"]["cache"], &stated["health"]["level"]),
        (&"evicted".into(), &"safe".into())
    );
    assert_same(&lab.cli.cat("pot://lab/d/a"), &content, "from the origin");
    let warm = lab.cli.json(&["warm", "pot://lab/d"]);
    assert_eq!(warm["files"], 1, "{warm}");
    let sent = web.sent();
    assert_same(&lab.cli.cat("pot://lab/d/a"), &content, "from donors");
    assert_eq!(web.sent(), sent);
}

#[test]
fn killed_import_goes_on_with_the_rest() {
    let lab = lab(1, &[]);
    let web = WebServer::start();
    let files: Vec<Vec<u8>> = (0..6).map(|n| bytes(10 + n, 2 << 20)).collect();
    for (n, content) in files.iter().enumerate() {
        web.put(&format!("/d/{n}"), content);
    }
    web.pause(Duration::from_millis(300));
    let import = ["import", &web.url("/d/"), "pot://lab/d/", "--connections", "1"];
    let mut running = lab.cli.start(&import);
    wait_until("two files to be there", DEADLINE, || {
        let listed = lab.cli.run(&["--json", "ls", "pot://lab/d"]);
        listed.code == 0 && listed.json()["entries"].as_array().is_some_and(|it| it.len() >= 2)
    });
    running.kill_9();
    web.pause(Duration::ZERO);
    let done = lab.cli.json(&import);
    assert!(done["unchanged"].as_u64() >= Some(2), "{done}");
    for (n, content) in files.iter().enumerate() {
        assert_same(&lab.cli.cat(&format!("pot://lab/d/{n}")), content, "whole");
    }
}

#[test]
fn import_is_used_as_documented() {
    let test = "import_is_used_as_documented";
    let Some(lab) = Machines::new(test, Naming::Dns, &["alice"]) else { return };
    let alice = lab.machine("alice");
    alice.sh("mkdir -p ~/era5 && head -c 900000 /dev/urandom > ~/era5/t2m.nc").ok();
    let home = alice.sh("echo ~").ok().text().trim().to_owned();
    // A document names a server of the internet, where no test goes.
    let typist = Typist::new(&lab).instead_of("https://example.org", &format!("file://{home}"));
    typist.types_line(alice, "potluck up --max 200GiB --label here");
    alice.sh("potluck space create climate").ok();
    for heading in ["From an address into the pool", "Cached files"] {
        for block in blocks("docs/import.md", heading) {
            typist.types(&block, "alice");
        }
    }
    alice.sh("potluck cat pot://cache/t2m.nc | cmp - ~/era5/t2m.nc").ok();
}
