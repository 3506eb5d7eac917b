//! Checks the white space that differs by editor.

use super::tree::{Offence, Tree};

pub const REASON: &str = "white space that differs by editor makes changes nobody meant";

/// Finds Markdown and Rust files without a last newline, and in Rust files tabs and white space at the end of
/// lines.
pub fn untidy_text(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs").chain(tree.with_extension("md")) {
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            offences.push(Offence::file(&file.path, "no newline at the end"));
        }
    }
    for file in tree.with_extension("rs") {
        for (number, line) in file.text.split('\n').enumerate() {
            if line.contains('\t') {
                offences.push(Offence::line(
                    &file.path,
                    number + 1,
                    "a tab (write \\t in strings)",
                ));
            }
            if line.ends_with([' ', '\t', '\r']) {
                offences.push(Offence::line(&file.path, number + 1, "white space at the end"));
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
    fn tabs_trailing_spaces_and_missing_newlines_are_found() {
        let tree =
            Tree::planted(&[("a.rs", "\tx;\ny; \nz;\r\n"), ("b.md", "# B"), ("c.md", "# C  \n")]);
        assert_eq!(
            shown(&untidy_text(&tree)),
            [
                "b.md: no newline at the end",
                "a.rs:1: a tab (write \\t in strings)",
                "a.rs:2: white space at the end",
                "a.rs:3: white space at the end",
            ]
        );
    }
}
