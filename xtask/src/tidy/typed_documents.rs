//! Checks that every command which documents tell people to type is typed by a test.
//!
//! A block of shell counts as typed when a test names both its document and the heading above it, which is how a
//! test asks for the blocks that it types on machines. A block that no test can type says why, in a comment that
//! readers do not see: `<!-- not typed by a test: REASON -->` on the line above it.

use super::tree::{File, Offence, Tree};

pub const REASON: &str =
    "a command that a document shows and nobody types is wrong sooner or later";

const EXEMPT: &str = "<!-- not typed by a test: ";
/// The beginnings of a line of shell in a block that does not say that it is shell.
const COMMANDS: [&str; 2] = ["potluck ", "sudo potluck "];

/// Finds blocks of commands in README.md and docs/ that no test types, and exemptions without a reason.
pub fn untyped(tree: &Tree) -> Vec<Offence> {
    let tests: Vec<_> =
        tree.files.iter().filter(|file| file.path.starts_with("crates/potluck/tests/")).collect();
    let is_page = |file: &&File| {
        let in_docs = file.path.strip_prefix("docs/").is_some_and(|name| !name.contains('/'));
        file.path == "README.md" || (in_docs && file.path.ends_with(".md"))
    };
    let mut offences = Vec::new();
    for page in tree.files.iter().filter(is_page) {
        for block in blocks(&page.text) {
            let (path, heading) = (quoted(&page.path), quoted(block.heading));
            let typed =
                tests.iter().any(|test| test.text.contains(&path) && test.text.contains(&heading));
            let fault = match (block.exempt, block.is_shell) {
                (Some(reason), _) if reason.split_whitespace().count() < 3 => {
                    "this exemption gives no reason".to_owned()
                }
                (Some(_), _) => continue,
                (None, false) => {
                    "begin a block of commands with ```sh, and type it in a test".into()
                }
                (None, true) if typed => continue,
                (None, true) => format!("no test types what stands below “{}”", block.heading),
            };
            offences.push(Offence::line(&page.path, block.line, fault));
        }
    }
    offences
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// A fenced block with commands in it.
struct Block<'a> {
    line: usize,
    heading: &'a str,
    /// True if its fence says that it is shell.
    is_shell: bool,
    has_commands: bool,
    /// The reason that the document gives for why no test types it.
    exempt: Option<&'a str>,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let (mut heading, mut above) = ("", "");
    let mut open: Option<Block<'_>> = None;
    for (number, line) in text.lines().enumerate() {
        match &mut open {
            Some(_) if line.starts_with("```") => {
                found.extend(open.take().filter(|block| block.is_shell || block.has_commands));
            }
            Some(block) => {
                block.has_commands |= COMMANDS.iter().any(|begin| line.starts_with(begin));
            }
            None if line.starts_with("```") => {
                let exempt = above.strip_prefix(EXEMPT).and_then(|rest| rest.strip_suffix(" -->"));
                let is_shell = line == "```sh";
                let has_commands = false;
                open = Some(Block { line: number + 1, heading, is_shell, has_commands, exempt });
            }
            None if line.starts_with('#') => heading = line.trim_start_matches('#').trim(),
            None => {}
        }
        above = line;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    const PAGE: &str = "# A\n## Typed\n```sh\npotluck ls\n```\n## Not\n```sh\npotluck rm\n```\n\
        ```\npotluck up\n```\n<!-- not typed by a test: it takes an hour -->\n```sh\nmake\n```\n\
        <!-- not typed by a test: no -->\n```sh\nmake\n```\n```\nplain text\n```\n";

    #[test]
    fn untyped_code_blocks_need_a_reason() {
        let test = "for block in blocks(\"docs/a.md\", \"Typed\") {}";
        let tree = Tree::planted(&[("docs/a.md", PAGE), ("crates/potluck/tests/pool/a.rs", test)]);
        assert_eq!(
            shown(&untyped(&tree)),
            [
                "docs/a.md:7: no test types what stands below “Not”",
                "docs/a.md:10: begin a block of commands with ```sh, and type it in a test",
                "docs/a.md:18: this exemption gives no reason",
            ]
        );
    }
}
