//! Checks that the names of files and modules say what they hold.

use super::rust_text::{code, line_of, words};
use super::tree::{Offence, Tree};

pub const REASON: &str = "a name that fits anything collects everything";

const VAGUE: &[&str] = &["util", "utils", "common", "helpers", "types", "misc"];

/// Finds files, directories and inline modules with a name that says nothing.
pub fn vague_names(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in &tree.files {
        let stems = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
        for stem in stems.filter(|stem| VAGUE.contains(stem)) {
            offences.push(Offence::file(&file.path, format!("`{stem}`: name what it holds")));
        }
    }
    for file in tree.with_extension("rs") {
        let code = code(&file.text);
        for name in VAGUE {
            // A module in its own file has been found above, by the file.
            for at in words(&code, &format!("mod {name}")) {
                if code[at + 4 + name.len()..].trim_start().starts_with('{') {
                    let message = format!("`mod {name}`: name what it holds");
                    offences.push(Offence::line(&file.path, line_of(&code, at), message));
                }
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
    fn vague_files_directories_and_inline_modules_are_found() {
        let tree = Tree::planted(&[
            ("crates/p/src/utils.rs", ""),
            ("python/common/a.py", ""),
            ("crates/p/src/lib.rs", "mod utility;\nmod helpers { }"),
        ]);
        assert_eq!(
            shown(&vague_names(&tree)),
            [
                "crates/p/src/utils.rs: `utils`: name what it holds",
                "python/common/a.py: `common`: name what it holds",
                "crates/p/src/lib.rs:2: `mod helpers`: name what it holds",
            ]
        );
    }
}
