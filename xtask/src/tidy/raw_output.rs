//! Checks that nothing reaches a terminal or a log past the two places that escape it.

use super::rust_text::{code, line_of, words};
use super::tree::{File, Offence, Tree};

pub const REASON: &str = "members choose the names that commands and logs show: what the program says goes through \
     `output` and `log` of the command line, which escape what moves a cursor or begins another line";

/// What writes to a terminal or a log by itself.
const RAW: &[&str] = &[
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "stdout()",
    "stderr()",
    "io::stdout",
    "io::stderr",
    "io::Stdout",
    "io::Stderr",
    "tracing_subscriber",
];

/// The places that escape.
const ESCAPING: &[&str] = &["crates/potluck/src/output.rs", "crates/potluck/src/log.rs"];

/// Files that may write by themselves, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[(
    "crates/potluck/src/cmd/mount/background.rs",
    "tells the command that waits, through a pipe, as JSON",
)];

/// Finds what writes past the places that escape, in the code of the product.
pub fn found(tree: &Tree) -> Vec<Offence> {
    find(tree, EXCEPTIONS)
}

fn find(tree: &Tree, exceptions: &[(&str, &str)]) -> Vec<Offence> {
    let (mut offences, mut used) = (Vec::new(), Vec::new());
    for file in tree.with_extension("rs").filter(|file| is_product(file)) {
        let code = code(&file.text);
        // Tests at the end of a file print for who runs them.
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        for raw in RAW {
            for at in words(code, raw) {
                if exceptions.iter().any(|(path, _)| *path == file.path) {
                    used.push(file.path.as_str());
                } else {
                    let what = format!("`{raw}`");
                    offences.push(Offence::line(&file.path, line_of(code, at), what));
                }
            }
        }
    }
    for (path, reason) in exceptions.iter().filter(|(path, _)| !used.contains(path)) {
        let what = format!("writes nothing any more: remove its exception ({reason})");
        offences.push(Offence::file(path, what));
    }
    offences
}

fn is_product(file: &File) -> bool {
    let path = file.path.as_str();
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    path.starts_with("crates/") && path.contains("/src/") && !is_test && !ESCAPING.contains(&path)
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    #[test]
    fn raw_prints_are_found_outside_tests_and_allowed_places() {
        let tree = Tree::planted(&[
            ("crates/p/src/a.rs", "println!(\"{name}\");\n// println!()\n#[cfg(test)]\nprint!()"),
            ("crates/p/src/b.rs", "use std::io;\nlet out = io::stdout().lock();\n"),
            ("crates/p/src/b/tests.rs", "println!();\n"),
            ("crates/p/tests/c.rs", "println!();\n"),
            ("crates/potluck/src/output.rs", "writeln!(io::stderr());\n"),
            ("xtask/src/main.rs", "println!();\n"),
            ("crates/p/src/pipe.rs", "io::stdout\n"),
        ]);
        let exceptions = [("crates/p/src/pipe.rs", "a pipe"), ("gone.rs", "old")];
        assert_eq!(
            shown(&find(&tree, &exceptions)),
            [
                "crates/p/src/a.rs:1: `println!`",
                "crates/p/src/b.rs:2: `stdout()`",
                "crates/p/src/b.rs:2: `io::stdout`",
                "gone.rs: writes nothing any more: remove its exception (old)",
            ]
        );
    }
}
