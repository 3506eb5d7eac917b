//! A comment can be read alone: who comes through a search sees no other.

use super::tree::{Offence, Tree};

pub const REASON: &str = "a comment is a sentence of its own, and not the middle of one";

/// Beginnings and ends of sentences that stand in another comment.
const BEGINS: [&str; 2] = ["… ", "The same of "];
const ENDS: &str = " …";

/// Comments that go on from one before, or in one after.
pub fn found(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        for (at, line) in file.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let comment = comment.trim_start_matches(['/', '!']).trim();
            if BEGINS.iter().any(|begin| comment.starts_with(begin)) || comment.ends_with(ENDS) {
                offences.push(Offence::line(&file.path, at + 1, format!("“{comment}”")));
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
    fn a_comment_that_is_part_of_another_is_found() {
        let text =
            "/// Files at once, …\nconst A: u8 = 1;\n    // … and bytes.\n/// Frames of `/… /`.\n";
        let tree = Tree::planted(&[("crates/a/src/lib.rs", text)]);
        let first = "crates/a/src/lib.rs:1: “Files at once, …”";
        assert_eq!(shown(&found(&tree)), [first, "crates/a/src/lib.rs:3: “… and bytes.”"]);
    }
}
