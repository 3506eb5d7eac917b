//! Types commands that the documents print, as they stand: a test takes a block of shell from the file itself and types
//! it on machines.
//!
//! A line `# on NAME …` in a block says which machine the lines below it are typed on; readers see it too. A join token
//! in a document is a placeholder, for which the last token that a machine printed is typed. Commands that run a daemon
//! go on in the background, as in a terminal of their own. A block is passed over when a comment above it says why no
//! test types it.

use super::machines::{Machine, Machines};
use super::program::Ran;
use std::cell::RefCell;
use std::path::PathBuf;

/// The beginnings of commands that run a daemon, each with the text by which the daemon says that the next command can
/// be typed.
const DAEMONS: &[(&str, &str)] = &[
    ("potluck up", "lending up to "),
    ("potluck lend", "lending up to "),
    ("potluck manager", "manager at "),
    ("potluck serve", " at http"),
];

/// The commands that begin like a daemon's, and end.
const NO_DAEMONS: &[&str] = &[
    "potluck manager restore",
    "potluck manager backup",
    "potluck lend --add",
    "potluck lend --calibrate",
    "potluck lend --remove",
    "potluck lend status",
];

/// The beginning of the line above a block that no test types; the repository's own checks ask for the reason.
const NOT_TYPED: &str = "<!-- not typed by a test: ";

/// A block of shell of a document.
pub struct Block {
    /// The lines of the block as they stand in the document.
    lines: Vec<String>,
}

impl Block {
    /// Returns the commands in order, each with the name of the machine that it is typed on; `first` is the machine of
    /// those above which none is named.
    pub fn commands<'a>(&'a self, first: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut machine = first;
        let mut commands = Vec::new();
        for line in &self.lines {
            if let Some(name) = line.strip_prefix("# on ") {
                machine = name.split([' ', ':', ',', ';']).next().unwrap_or_default();
            }
            let line = without_comment(line);
            if !line.is_empty() {
                commands.push((machine, line));
            }
        }
        commands
    }
}

/// Returns the blocks of shell below a heading of a document of this repository.
///
/// Fails the test when there is no such heading, or no such block below it.
#[track_caller]
pub fn blocks(document: &str, heading: &str) -> Vec<Block> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{document}: {why}"));
    let mut blocks = Vec::new();
    let (mut below, mut fenced, mut taken, mut above) = (false, false, false, "");
    for line in text.lines() {
        match line {
            _ if line.starts_with("```") => {
                fenced = !fenced;
                taken = fenced && below && line == "```sh" && !above.starts_with(NOT_TYPED);
                if taken {
                    blocks.push(Block { lines: Vec::new() });
                }
            }
            _ if taken => blocks.last_mut().expect("one is open").lines.push(line.into()),
            _ if !fenced && line.starts_with('#') => {
                below = line.trim_start_matches('#').trim() == heading;
            }
            _ => {}
        }
        above = line;
    }
    assert!(!blocks.is_empty(), "{document} has no block of shell below “{heading}”");
    blocks
}

/// Types blocks on machines.
pub struct Typist<'a> {
    lab: &'a Machines,
    token: RefCell<String>,
    /// The texts of a document that are not typed as they stand, each with what is typed instead.
    stand_ins: Vec<(String, String)>,
}

impl<'a> Typist<'a> {
    /// Makes a typist who has seen no token yet.
    pub fn new(lab: &'a Machines) -> Self {
        Self { lab, token: RefCell::default(), stand_ins: Vec::new() }
    }

    /// Types `other` where a document says `word`, for what depends on the reader alone, such as the size of a disk.
    pub fn instead_of(mut self, word: &str, other: &str) -> Self {
        self.stand_ins.push((word.into(), other.into()));
        self
    }

    /// Types a whole block, beginning on `first`. Every command must succeed.
    #[track_caller]
    pub fn types(&self, block: &Block, first: &str) {
        for (machine, line) in block.commands(first) {
            self.types_line(self.lab.machine(machine), line);
        }
    }

    /// Types one line, which must succeed, and returns its outcome, or `None` if it goes on in the background.
    #[track_caller]
    pub fn types_line(&self, machine: &Machine, line: &str) -> Option<Ran> {
        let stand_in = |line: String, (word, other): &(String, String)| line.replace(word, other);
        let line = self.stand_ins.iter().fold(self.with_token(line), stand_in);
        let ends = NO_DAEMONS.iter().any(|command| line.starts_with(command));
        if let Some((_, ready)) =
            DAEMONS.iter().find(|(daemon, _)| !ends && line.starts_with(daemon))
        {
            machine.start(&line, ready);
            return None;
        }
        let ran = machine.sh(&line).ok();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        if let Some(token) = said.split_whitespace().find(|word| word.starts_with("pot1.")) {
            self.token.replace(token.into());
        }
        Some(ran)
    }

    #[track_caller]
    fn with_token(&self, line: &str) -> String {
        let Some(at) = line.find("pot1.") else { return line.into() };
        let token = self.token.borrow();
        assert!(!token.is_empty(), "`{line}` comes before any token was printed");
        let end = line[at..].find(' ').map_or(line.len(), |length| at + length);
        format!("{}{token}{}", &line[..at], &line[end..])
    }
}

/// Returns a line without its comment, which begins with a `#` at the start of a word.
fn without_comment(line: &str) -> &str {
    let comment = line
        .match_indices('#')
        .find(|(at, _)| line[..*at].chars().next_back().is_none_or(char::is_whitespace));
    comment.map_or(line, |(at, _)| &line[..at]).trim()
}

#[test]
fn comments_end_commands_and_hashes_inside_words_do_not() {
    assert_eq!(without_comment("potluck up   # here"), "potluck up");
    assert_eq!(without_comment("# on lab-head"), "");
    assert_eq!(without_comment("echo a#b"), "echo a#b");
}
