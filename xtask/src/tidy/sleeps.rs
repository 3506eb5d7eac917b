//! Checks that threads wait for conditions, not for time.

use super::rust_text::{code, line_of, words};
use super::tree::{Offence, Tree};

pub const REASON: &str =
    "a sleep is too short on a busy machine and too long on an idle one; wait for the condition";

/// Files that may sleep, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Finds uses of `thread::sleep` outside the benchmarks, which watch real processes on the real clock.
pub fn blocking_sleeps(tree: &Tree) -> Vec<Offence> {
    find(tree, EXCEPTIONS)
}

fn find(tree: &Tree, exceptions: &[(&str, &str)]) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut used = Vec::new();
    for file in tree.with_extension("rs").filter(|file| !file.path.starts_with("benches/")) {
        let code = code(&file.text);
        for at in words(&code, "thread::sleep") {
            if exceptions.iter().any(|(path, _)| *path == file.path) {
                used.push(file.path.as_str());
            } else {
                offences.push(Offence::line(&file.path, line_of(&code, at), "`thread::sleep`"));
            }
        }
    }
    for (path, reason) in exceptions.iter().filter(|(path, _)| !used.contains(path)) {
        let message = format!("does not sleep any more: remove its exception ({reason})");
        offences.push(Offence::file(path, message));
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    #[test]
    fn a_sleep_is_found_unless_excepted_and_an_idle_exception_too() {
        let tree = Tree::planted(&[
            ("a.rs", "// thread::sleep\nstd::thread::sleep(d);\n"),
            ("b.rs", "use std::thread::sleep;\n"),
            ("benches/src/c.rs", "thread::sleep(d);\n"),
        ]);
        assert_eq!(
            shown(&find(&tree, &[("b.rs", "polls a child"), ("gone.rs", "old")])),
            [
                "a.rs:2: `thread::sleep`",
                "gone.rs: does not sleep any more: remove its exception (old)",
            ]
        );
    }
}
