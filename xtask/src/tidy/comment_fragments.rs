//! Checks that a comment can be read alone: a reader who comes through a search sees no other.

use super::tree::{Offence, Tree};

pub const REASON: &str = "a comment is a sentence of its own, and not the middle of one";

/// Beginnings of comments that cannot be read without another comment.
const BEGINS: [&str; 2] = ["… ", "The same of "];
const ENDS: &str = " …";

/// First words of doc comments that lean on the name of their item, as in “Of which version.”.
const LEANING: [&str; 29] = [
    "Among", "And", "As", "At", "Before", "After", "Between", "But", "By", "For", "From", "In",
    "Instead", "Not", "Of", "On", "Or", "Per", "Since", "So", "Than", "Till", "To", "Until",
    "Whose", "With", "Without", "Its", "Their",
];
/// Beginnings of doc comments that are a subject without a verb, as in “What is known of a chunk.”, or that lean on
/// the comment before.
const VERBLESS: [&str; 3] = ["What is ", "The same ", "The same,"];
/// The fewest words of a doc comment: one with fewer repeats the name of its item.
const LEAST_WORDS: usize = 3;
/// Derives of items whose doc comments are help texts, which follow other rules.
const HELP_DERIVES: [&str; 4] = ["Args", "Parser", "Subcommand", "ValueEnum"];
/// Attributes of fields and variants whose doc comments are help texts.
const HELP_ATTRIBUTES: [&str; 3] = ["#[arg", "#[command", "#[value"];

/// Finds comments that continue another one or are continued in one, and doc comments that do not name their
/// subject.
pub fn found(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let comment = comment.trim_start_matches(['/', '!']).trim();
            let is_part = BEGINS.iter().any(|begin| comment.starts_with(begin));
            if is_part || comment.ends_with(ENDS) || is_fragment(&lines, at) {
                offences.push(Offence::line(&file.path, at + 1, format!("“{comment}”")));
            }
        }
    }
    offences
}

/// Returns whether a doc comment begins in line `at` that does not name its subject, and is no help text.
fn is_fragment(lines: &[&str], at: usize) -> bool {
    let Some(mark) = doc_mark(lines[at]) else { return false };
    if at > 0 && doc_mark(lines[at - 1]) == Some(mark) {
        return false;
    }
    let comment = lines[at..].iter().take_while(|line| doc_mark(line) == Some(mark));
    let end = at + comment.clone().count();
    let mut words = comment.flat_map(|line| line.trim_start()[mark.len()..].split_whitespace());
    let leans = words.clone().next().is_some_and(|first| LEANING.contains(&first));
    let is_short = words.nth(LEAST_WORDS - 1).is_none();
    let begin = lines[at].trim_start()[mark.len()..].trim_start();
    let is_verbless = VERBLESS.iter().any(|verbless| begin.starts_with(verbless));
    (leans || is_short || is_verbless) && !is_help(lines, at, end)
}

fn doc_mark(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    ["///", "//!"].into_iter().find(|mark| line.starts_with(mark) && !line.starts_with("////"))
}

/// Returns whether the comment in lines `at..end` belongs to an item that clap reads, or stands inside one.
fn is_help(lines: &[&str], at: usize, end: usize) -> bool {
    let attributes = || lines[end..].iter().take_while(|line| !starts_item(line));
    let marked = |line: &&str| HELP_ATTRIBUTES.iter().any(|mark| line.trim().starts_with(mark));
    if attributes().any(|line| marked(line) || derives_help(line)) {
        return true;
    }
    let mut inside = indent(lines[at]);
    for above in (0..at).rev().filter(|above| !lines[*above].trim().is_empty()) {
        if inside == 0 {
            break;
        }
        if indent(lines[above]) < inside {
            inside = indent(lines[above]);
            let attributes = lines[..above].iter().rev().take_while(|line| !line.trim().is_empty());
            if attributes.take_while(|line| !ends_item(line)).any(|line| derives_help(line)) {
                return true;
            }
        }
    }
    false
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn starts_item(line: &str) -> bool {
    line.trim_start().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '}')
}

fn ends_item(line: &str) -> bool {
    line.ends_with(['{', '}', ';', ','])
}

fn derives_help(line: &str) -> bool {
    let derived = line.split_once("derive(").map_or("", |(_, derived)| derived);
    let mut names = derived.split(|c: char| !c.is_ascii_alphanumeric());
    names.any(|name| HELP_DERIVES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    #[test]
    fn a_comment_that_is_part_of_another_is_found() {
        let text =
            "/// Files at once, …\nconst A: u8 = 1;\n    // … and bytes.\n/// Frames of `/… /`.\n";
        let tree = Tree::planted(&[("crates/a/src/lib.rs", text)]);
        let first = "crates/a/src/lib.rs:1: “Files at once, …”";
        assert_eq!(shown(&found(&tree)), [first, "crates/a/src/lib.rs:3: “… and bytes.”"]);
    }

    #[test]
    fn a_doc_comment_that_is_a_subject_without_a_verb_is_found() {
        let text = "/// What is known of a chunk.\nconst A: u8 = 1;\n/// The same, until all copies were made.\nconst B: u8 = 1;\n/// Returns what is known.\n///\n/// What is kept stays an entry.\nconst C: u8 = 1;\n// The same chunks are sent.\n";
        let tree = Tree::planted(&[("crates/a/src/lib.rs", text)]);
        let found = shown(&found(&tree));
        let first = "crates/a/src/lib.rs:1: “What is known of a chunk.”";
        assert_eq!(
            found,
            [first, "crates/a/src/lib.rs:3: “The same, until all copies were made.”"]
        );
    }

    #[test]
    fn doc_comments_without_a_subject_are_found() {
        let item = "/// A chunk that was\n/// sent.\nstruct A {\n    /// Of which version.\n    version: u8,\n\n    /// The name.\n    #[serde(default)]\n    name: u8,\n    // Since then.\n    /// Bytes of\n    /// the file.\n    len: u8,\n}\n";
        let help = "/// Its files.\n#[derive(Debug, clap::Args)]\nstruct B {\n    /// The name\n    name: u8,\n    /// With it\n    #[arg(long)]\n    with: u8,\n}\nenum C {\n    /// Only say\n    #[command(after_help = \"x\")]\n    D(u8),\n}\n";
        let tree = Tree::planted(&[("crates/a/src/lib.rs", item), ("crates/a/src/b.rs", help)]);
        let version = "crates/a/src/lib.rs:4: “Of which version.”";
        assert_eq!(shown(&found(&tree)), [version, "crates/a/src/lib.rs:7: “The name.”"]);
    }
}
