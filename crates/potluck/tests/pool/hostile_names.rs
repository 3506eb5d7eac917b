//! Tests that no command and no log shows a name as its owner meant it to be taken: names that members choose clear no
//! screen, begin no line, and turn no text around. Every command that the program has is run with such names.

use super::lab::{Cli, Lab, Lending};
use super::program::Running;
use super::waiting::DEADLINE;
use potluck_core::text::is_unseen;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A name that clears the screen, begins a line of its own, turns text around, and rings the bell.
const NAME: &str = "x\u{1b}[2J\n\rFORGED\u{202e}\u{9b}1m\u{7}\t\u{7f}\u{2066}y";
/// The beginning of a line that only the name may have begun.
const FORGED: &str = "FORGED";

/// The calls of each command, in any order and several at once. `NAME` stands for the name, `DIR` for a directory of the
/// pool that is called so, `LOCAL` for one of this machine, each with files of that name.
const RUN_AT_ONCE: &[&str] = &[
    "status",
    "ls -l DIR|ls -r pot://lab|ls DIR/gone NAME|ls DIR@gone",
    "tree pot://lab|tree DIR/gone",
    "stat DIR|stat DIR/NAME|stat DIR/NAME --chunks|stat DIR/link|stat DIR/gone",
    "explain DIR/NAME|explain DIR/gone",
    "explain cp LOCAL/NAME DIR/explained|explain cp LOCAL/gone DIR/explained",
    "du DIR|du pot://lab/*|du DIR/gone",
    "cat DIR|cat DIR/gone",
    "hash LOCAL/NAME LOCAL/gone",
    "import file:///gone/NAME DIR/imported -n|import file:///gone/NAME DIR/imported",
    "evict DIR/NAME|evict DIR/gone",
    "warm DIR/NAME|warm DIR/gone",
    "sync LOCAL DIR/synced|sync DIR LOCAL/synced|sync LOCAL DIR -n|sync LOCAL/gone DIR/synced",
    "mounts",
    "lookaside index LOCAL|lookaside index LOCAL/NAME",
    "lookaside add LOCAL/gone",
    "lookaside rm LOCAL/NAME",
    "lookaside enable LOCAL/NAME",
    "lookaside disable LOCAL/NAME",
    "lookaside ls",
    "lookaside clear",
    "versions DIR/NAME|versions DIR/gone",
    "trash ls pot://lab|trash ls DIR",
    "snapshot ls pot://lab|snapshot ls DIR",
    "ckpt begin DIR/step|ckpt begin DIR/NAME",
    "ckpt ls",
    "ckpt join NAME DIR/other",
    "ckpt commit DIR/gone",
    "ckpt purge DIR -n",
    "write-shared begin DIR/shared|write-shared begin DIR/NAME",
    "write-shared ls|write-shared ls DIR/shared",
    "write-shared write LOCAL/NAME DIR/shared --at 0|write-shared write LOCAL/gone DIR/shared --at 0",
    "write-shared commit DIR/gone",
    "write-shared abort DIR/gone",
    "reserve 1MiB DIR/room|reserve 1MiB NAME",
    "reserve ls",
    "reserve release NAME",
    "policy show DIR|policy show DIR/NAME|policy show DIR/gone",
    "policy set DIR --copies 2 -y|policy set DIR/gone --copies 2 -y",
    "verify -r pot://lab|verify --read DIR/NAME|verify DIR/gone",
    "fsck|fsck DIR|fsck DIR/gone",
    "audit",
    "space ls",
    "space who lab|space who NAME",
    "space create NAME",
    "space grant lab NAME read",
    "space revoke lab NAME",
    "space rekey NAME",
    "space rm NAME",
    "group create NAME",
    "group ls",
    "group add NAME NAME",
    "group remove NAME NAME",
    "group rm NAME",
    "key create --space lab --read --unseal --label NAME|key create --space NAME --read",
    "key ls",
    "key rm NAME",
    "quota ls",
    "quota get pot://lab|quota get NAME",
    "quota set NAME --files 10",
    "members ls",
    "members rm NAME -y",
    "invite --role user --name NAME",
    "invite ls",
    "invite rm NAME",
    "manager rotate-authority -n",
    "nodes ls",
    "nodes rm NAME -y",
    "nodes away NAME 1h",
    "drain NAME -n",
    "nodes trust NAME",
    "repair status",
    "repair now",
    "repair pause",
    "repair resume",
    "scrub status",
    "scrub now NAME",
    "gc status",
    "gc resume",
    "gc unknown ls",
    "gc unknown reclaim -n",
    "find-manager NAME",
    "set NAME|set lend.label NAME",
    "lend status --state LOCAL",
    "join --token-file LOCAL/NAME|join --token-file LOCAL/gone",
    "away 1h",
    "pause NAME|pause 1h -n|pause until NAME",
    "resume",
    "cost|cost --svg LOCAL/gone/NAME",
    "inspect",
    "give-back 1GiB -n --state LOCAL",
    "leave -n --state LOCAL",
    "mount DIR LOCAL/gone",
    "umount LOCAL",
    "manager backup LOCAL/gone/file",
    "manager restore --kit LOCAL/NAME --from LOCAL/NAME --state LOCAL/new",
];

/// The calls that change what the others list, as [`RUN_AT_ONCE`], one after the other.
const RUN_THEN: &[&str] = &[
    "pin DIR/NAME|pin DIR/gone",
    "unpin DIR/NAME",
    "revert DIR/NAME --version-id 999999",
    "mkdir DIR|mkdir DIR/gone/below",
    "cp -r DIR pot://lab/copy|cp DIR/gone LOCAL/out|cp LOCAL/NAME DIR/|cp LOCAL/gone pot://lab|cp -r LOCAL DIR",
    "mv -n DIR/NAME DIR/other|mv DIR/gone pot://lab/x",
    "rm -r -n DIR|rm DIR/gone|rm DIR",
    "undelete DIR/removed|undelete DIR/gone",
    "snapshot create DIR NAME",
    "snapshot rm DIR gone|snapshot rm DIR/gone NAME",
    "trash empty DIR",
    "ckpt abort DIR/step",
];

/// The commands of [`RUN_AT_ONCE`] that run at once.
const AT_ONCE: usize = 12;

/// The commands that are not run here, each with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("demo", "its files are those of the machine that it runs on, in a pool of its own"),
    ("up", "a daemon: what it says is its log"),
    ("manager", "a daemon: what it says is its log"),
    ("lend", "a daemon: what it says is its log"),
    ("serve s3", "a daemon: what it says is its log"),
    ("serve webdav", "a daemon: what it says is its log"),
    ("serve all", "a daemon: what it says is its log"),
    ("service install", "systemd's units have no names of members"),
    ("service uninstall", "systemd's units have no names of members"),
    ("service status", "systemd's units have no names of members"),
    ("completion", "prints what the program is made of"),
    ("man", "prints what the program is made of"),
];

/// Runs a command whose standard output and standard error are a terminal, and returns what it showed there.
fn on_terminal(cli: &Cli, args: &[&str]) -> String {
    let (mut ours, mut theirs) = (-1, -1);
    let nothing = std::ptr::null_mut();
    // SAFETY: it writes two numbers, and reads nothing from the null pointers.
    let made =
        unsafe { libc::openpty(&mut ours, &mut theirs, nothing, nothing.cast(), nothing.cast()) };
    assert_eq!(made, 0, "a terminal");
    // SAFETY: both were just opened, and nothing else has them.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = cli.command();
    command.args(args).stdin(Stdio::null());
    command.stdout(theirs.try_clone().expect("one more")).stderr(theirs);
    let mut running = Running::start(&mut command);
    drop(command); // with the last of this process's ends of the terminal
    let reader = thread::spawn(move || {
        let (mut said, mut terminal) = (Vec::new(), File::from(ours));
        // A terminal whose other end is closed is no file that ends, but one that fails.
        let _ = terminal.read_to_end(&mut said);
        said
    });
    running.end_within(&format!("{args:?}"), DEADLINE);
    let said = reader.join().expect("it only reads");
    String::from_utf8(said).expect("text").replace("\r\n", "\n")
}

/// Fails if a text has anything but characters that are seen, and lines that the program itself began.
#[track_caller]
fn assert_harmless(said: &str, by: &str) {
    let found = said.chars().find(|c| is_unseen(*c) && *c != '\n');
    assert_eq!(found, None, "{by} showed it raw: {said:?}");
    let forged = said.lines().find(|line| line.trim_start().starts_with(FORGED));
    assert_eq!(forged, None, "{by} let a name begin a line: {said:?}");
}

/// Returns the words of all commands, as the program's own manual pages name them.
fn commands(lab: &Lab) -> BTreeSet<String> {
    let dir = lab.dir().join("man");
    lab.cli.ok(&["man", dir.to_str().expect("text")]);
    let pages = fs::read_dir(&dir).expect("pages").map(|page| page.expect("a page").file_name());
    let pages: BTreeSet<String> =
        pages.filter_map(|page| Some(page.to_str()?.strip_suffix(".1")?.to_owned())).collect();
    // A page comes after that of the command above it, which it begins with.
    let mut called: BTreeMap<&str, String> = BTreeMap::new();
    for page in &pages {
        let above = called.iter().filter(|(above, _)| page.starts_with(&format!("{above}-")));
        let words = above.max_by_key(|(above, _)| above.len()).map(|(above, words)| {
            format!("{words} {}", &page[above.len() + 1..]).trim().to_owned()
        });
        called.insert(page, words.unwrap_or_default());
    }
    called.into_values().filter(|words| !words.is_empty()).collect()
}

fn with_hostile_names() -> (Lab, String) {
    let mut lab = Lab::empty();
    lab.set_manager_env("POTLUCK_LOG", "potluck=trace");
    lab.start_manager();
    for number in 1..=2 {
        let environment = vec![("POTLUCK_LOG".to_owned(), "potluck=trace".to_owned())];
        let options = vec!["--label".to_owned(), format!("{NAME}{number}")];
        lab.lend(
            &format!("donor-{number}"),
            Lending { environment, options, ..Lending::default() },
        );
    }
    lab.wait_live();
    let keeping = ["--keep-versions", "30d,10", "--trash", "7d"];
    lab.cli.ok(&[&["space", "create", "lab"][..], &keeping].concat());
    let local = lab.dir().join(NAME);
    fs::create_dir(&local).expect("a directory");
    for name in [NAME, "other", "removed", &format!("{NAME}{NAME}")] {
        fs::write(local.join(name), name.repeat(1000)).expect("a file");
    }
    symlink(NAME, local.join("link")).expect("a link");
    let (local, dir) = (local.to_str().expect("text"), format!("pot://lab/{NAME}"));
    lab.cli.ok(&["cp", "-r", local, "pot://lab/"]);
    fs::write(Path::new(local).join(NAME), "another version").expect("a file");
    lab.cli.ok(&["cp", &format!("{local}/{NAME}"), &format!("{dir}/")]);
    lab.cli.ok(&["rm", &format!("{dir}/removed"), &format!("{dir}/{NAME}{NAME}")]);
    lab.cli.ok(&["snapshot", "create", &dir, "before"]);
    (lab, dir)
}

#[test]
fn no_command_and_no_log_shows_a_name_raw() {
    let (lab, dir) = with_hostile_names();
    let local = lab.dir().join(NAME).to_str().expect("text").to_owned();
    let lines = |run: &[&'static str]| -> Vec<Vec<&'static str>> {
        let lines = run.iter().flat_map(|run| run.split('|'));
        lines.map(|line| line.split(' ').collect()).collect()
    };
    let (at_once, then) = (lines(RUN_AT_ONCE), lines(RUN_THEN));

    // A command that is new is to be run here as well.
    let done: BTreeSet<String> = at_once
        .iter()
        .chain(&then)
        .flat_map(|words| (1..=words.len().min(3)).map(|count| words[..count].join(" ")))
        .chain(NOT_RUN.iter().map(|(command, _)| (*command).to_owned()))
        .collect();
    let all = commands(&lab);
    let has_others = |one: &&String| all.iter().any(|other| other.starts_with(&format!("{one} ")));
    let forgotten: Vec<&String> =
        all.iter().filter(|one| !has_others(one) && !done.contains(*one)).collect();
    assert!(forgotten.is_empty() && all.len() > 80, "run these, too: {forgotten:?} of {all:?}");

    let cli = lab.cli.with_env("NO_COLOR", "1").with_env("POTLUCK_NO_PROGRESS", "1");
    let escaped = AtomicUsize::new(0);
    let run = |words: &[&str]| {
        let word =
            |word: &&str| word.replace("NAME", NAME).replace("DIR", &dir).replace("LOCAL", &local);
        let args: Vec<String> = words.iter().map(word).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let line = words.join(" ");
        let said = on_terminal(&cli, &args);
        assert_harmless(&said, &line);
        escaped.fetch_add(usize::from(said.contains(FORGED)), Ordering::Relaxed);
        assert_harmless(
            &on_terminal(&cli, &[&["--json"], &args[..]].concat()),
            &format!("--json {line}"),
        );
        // Elsewhere standard output is for programs, and standard error is a log.
        assert_harmless(&cli.run(&args).stderr, &format!("{line}, with standard error in a file"));
    };
    // Some wait for a host or a donor that is not there.
    thread::scope(|scope| {
        for part in at_once.chunks(at_once.len().div_ceil(AT_ONCE)) {
            scope.spawn(|| part.iter().for_each(|words| run(words)));
        }
    });
    then.iter().for_each(|words| run(words));
    let escaped = escaped.into_inner();
    let count = at_once.len() + then.len();
    assert!(escaped > 60, "only {escaped} of {count} showed the name");
    let kept = |path: &Path| path.extension() == Some(OsStr::new("log"));
    let logs: Vec<_> = lab.logs().into_iter().filter(|(path, _)| kept(path)).collect();
    for (path, text) in logs {
        assert_harmless(&text, &path.display().to_string());
    }
}
