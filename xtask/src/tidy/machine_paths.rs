//! Checks that no file has a path of the machine it was written on.

use super::rust_text::line_of;
use super::tree::{Offence, Tree};

pub const REASON: &str = "a path of the machine it was written on is wrong on every other";

/// The directories that are looked for, written in parts so that this file does not find itself.
const PLACES: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Finds absolute paths below the directories of one machine, in any file.
pub fn paths_of_one_machine(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in &tree.files {
        for place in PLACES {
            for (at, _) in file.text.match_indices(place) {
                // `a/b/` is somewhere below `a`, wherever that is; only `/b/` is absolute.
                let inner = file.text[..at]
                    .ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~'));
                if !inner {
                    let line = line_of(&file.text, at);
                    offences.push(Offence::line(&file.path, line, format!("`{place}…`")));
                }
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_path_is_found_and_a_relative_one_is_not() {
        for place in PLACES {
            let text = format!("see\n`{place}x` and ~{place}x and src{place}x");
            let found = paths_of_one_machine(&Tree::planted(&[("a.toml", &text)]));
            assert_eq!(found, [Offence::line("a.toml", 2, format!("`{place}…`"))]);
        }
    }
}
