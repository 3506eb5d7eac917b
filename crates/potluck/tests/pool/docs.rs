//! The commands that the documents print, run as they stand: a test takes a block of shell from the
//! file itself and types it on machines.
//!
//! A line `# on NAME …` in a block says which machine the lines below it are typed on; readers see
//! it too. A join token in a document is a placeholder: the last one that a machine printed stands
//! in for it. Commands that run a daemon go on in the background, as in a terminal of their own.

use super::machines::{Machine, Machines};
use super::program::Ran;
use std::cell::RefCell;
use std::path::PathBuf;

/// What a daemon says when the next command can be typed, by how its line begins.
const DAEMONS: &[(&str, &str)] = &[
    ("potluck up", "lending up to "),
    ("potluck lend", "lending up to "),
    ("potluck manager", "manager at "),
];

/// Commands that begin like a daemon's, and end.
const NO_DAEMONS: &[&str] = &[
    "potluck manager restore",
    "potluck manager rebuild",
    "potluck manager backup",
    "potluck lend --add",
    "potluck lend --remove",
];

/// A block of shell of a document.
pub struct Block {
    /// Its lines, without comments at their ends.
    lines: Vec<String>,
}

/// The blocks of shell below a heading of a document of this repository.
///
/// Fails the test when there is no such heading, or no such block below it.
#[track_caller]
pub fn blocks(document: &str, heading: &str) -> Vec<Block> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{document}: {why}"));
    let mut blocks = Vec::new();
    let (mut below, mut open) = (heading.is_empty(), false);
    for line in text.lines() {
        match line {
            "```sh" => {
                open = true;
                if below {
                    blocks.push(Block { lines: Vec::new() });
                }
            }
            "```" => open = false,
            _ if open && below => {
                blocks.last_mut().expect("one is open").lines.push(line.into());
            }
            _ if !open && line.starts_with('#') => {
                below = heading.is_empty() || line.trim_start_matches('#').trim() == heading;
            }
            _ => {}
        }
    }
    assert!(!blocks.is_empty(), "{document} has no block of shell below “{heading}”");
    blocks
}

/// Types blocks on machines.
pub struct Typist<'a> {
    lab: &'a Machines,
    token: RefCell<String>,
    /// What a document says, and what stands in for it here.
    stand_ins: Vec<(String, String)>,
}

impl<'a> Typist<'a> {
    /// Who has seen no token yet.
    pub fn new(lab: &'a Machines) -> Self {
        Self { lab, token: RefCell::default(), stand_ins: Vec::new() }
    }

    /// Types `other` where a document says `word`: for what depends on the reader alone, such as
    /// the size of a disk.
    pub fn instead_of(mut self, word: &str, other: &str) -> Self {
        self.stand_ins.push((word.into(), other.into()));
        self
    }

    /// Types a whole block, beginning on `first`. Every command must succeed.
    #[track_caller]
    pub fn types(&self, block: &Block, first: &str) {
        let mut machine = self.lab.machine(first);
        for line in &block.lines {
            if let Some(name) = line.strip_prefix("# on ") {
                let name = name.split([' ', ':', ',']).next().unwrap_or_default();
                machine = self.lab.machine(name);
            }
            let line = without_comment(line);
            if !line.is_empty() {
                self.types_line(machine, line);
            }
        }
    }

    /// Types one line, which must succeed; gives what it said unless it goes on in the background.
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

/// A line without what follows a `#` that begins a word.
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
