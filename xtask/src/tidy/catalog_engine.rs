//! One folder knows the engine of the catalog.

use super::rust_text::{code, line_of, words};
use super::tree::{Offence, Tree};

pub const REASON: &str = "only potluck-catalog/src/sqlite names SQLite: another engine is a folder beside it, and nothing else";

const ENGINE: &str = "rusqlite";
/// Its folder, and the file that names what is in it.
const HOME: &str = "crates/potluck-catalog/src/sqlite";

/// Where sources name the engine outside of its folder. Tests may look into its files.
pub fn named_elsewhere(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        let is_test = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
        let is_source = file.path.starts_with("crates/") && file.path.contains("/src/");
        if !is_source || is_test || file.path.starts_with(HOME) {
            continue;
        }
        let code = code(&file.text);
        for at in words(&code, ENGINE) {
            offences.push(Offence::line(&file.path, line_of(&code, at), format!("`{ENGINE}`")));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    #[test]
    fn the_engine_is_found_outside_of_its_folder() {
        let uses = "use rusqlite::Connection;\n";
        let tree = Tree::planted(&[
            ("crates/potluck-catalog/src/sqlite/tx.rs", uses),
            ("crates/potluck-catalog/src/tests/damage.rs", uses),
            ("crates/potluck-manager/tests/manager/restart.rs", uses),
            ("crates/potluck-catalog/src/names.rs", "// not rusqlite\n"),
            ("crates/potluck-catalog/src/spaces.rs", uses),
        ]);
        let found = shown(&named_elsewhere(&tree));
        assert_eq!(found, ["crates/potluck-catalog/src/spaces.rs:1: `rusqlite`"]);
    }
}
