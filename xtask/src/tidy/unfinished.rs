//! Finds what was left half done: placeholders, debugging leftovers, ignored tests, notes to self.

use super::rust_text::{code, code_and_comments, line_of, words};
use super::tree::{Offence, Tree};

pub const REASON: &str = "what is left for later in the code is found by users first";

const CALLS: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];
const REMARKS: &[&str] = &["TODO", "FIXME"];

/// Finds placeholders, debugging leftovers, ignored tests and notes to self.
pub fn left_behind(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        let mut look = |text: &str, needles: &[&str]| {
            for needle in needles {
                for at in words(text, needle) {
                    let message = format!("`{needle}`: finish it or take it out");
                    offences.push(Offence::line(&file.path, line_of(text, at), message));
                }
            }
        };
        look(&code(&file.text), CALLS);
        look(&code_and_comments(&file.text), REMARKS);
    }
    for file in tree.with_extension("py").chain(tree.with_extension("toml")) {
        for needle in REMARKS {
            for at in words(&file.text, needle) {
                let message = format!("`{needle}`: finish it or take it out");
                offences.push(Offence::line(&file.path, line_of(&file.text, at), message));
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    #[test]
    fn leftovers_in_code_and_comments_are_found_and_strings_are_not() {
        let tree = Tree::planted(&[
            (
                "a.rs",
                "fn f() { todo!() }\n// FIXME: soon\n\"TODO dbg!(x)\";\n#[ignore = \"slow\"]\n",
            ),
            ("b.py", "# TODO\n"),
        ]);
        let lines: Vec<_> = left_behind(&tree)
            .iter()
            .map(|o| o.to_string().replace(": finish it or take it out", ""))
            .collect();
        assert_eq!(
            lines,
            ["a.rs:1: `todo!(`", "a.rs:4: `#[ignore`", "a.rs:2: `FIXME`", "b.py:1: `TODO`"]
        );
        assert_eq!(shown(&left_behind(&Tree::planted(&[("a.rs", "// a METHODOLOGY\n")]))), [""; 0]);
    }
}
