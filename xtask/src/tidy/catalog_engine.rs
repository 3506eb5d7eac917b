//! One folder knows the engine of the catalog.

use super::rust_text::{code, line_of, words};
use super::tree::{Offence, Tree};

pub const REASON: &str = "only potluck-catalog/src/sqlite names SQLite: another engine is a folder beside it, and nothing else";

const ENGINE: &str = "rusqlite";
/// Its folder, and the file that names what is in it.
const HOME: &str = "crates/potluck-catalog/src/sqlite";
const MANIFEST: &str = "crates/potluck-catalog/Cargo.toml";

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
    offences.extend(built_into_another_crate(tree));
    offences
}

/// Where another crate than the catalog's is built with the engine. Its tests may be.
fn built_into_another_crate(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    let manifests = tree.with_extension("toml");
    for file in manifests.filter(|file| file.path.starts_with("crates/") && file.path != MANIFEST) {
        let mut of_tests = false;
        for (at, line) in file.text.lines().enumerate() {
            if line.starts_with('[') {
                of_tests = line == "[dev-dependencies]";
            } else if line.starts_with(ENGINE) && !of_tests {
                offences.push(Offence::line(&file.path, at + 1, format!("`{ENGINE}`")));
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
    fn the_engine_is_found_outside_of_its_folder() {
        let uses = "use rusqlite::Connection;\n";
        let tree = Tree::planted(&[
            ("crates/potluck-catalog/src/sqlite/tx.rs", uses),
            ("crates/potluck-catalog/src/tests/damage.rs", uses),
            ("crates/potluck-manager/tests/manager/restart.rs", uses),
            ("crates/potluck-catalog/src/names.rs", "// not rusqlite\n"),
            ("crates/potluck-catalog/src/spaces.rs", uses),
            (MANIFEST, "[dependencies]\nrusqlite.workspace = true\n"),
            ("crates/a/Cargo.toml", "[dependencies]\nrusqlite.workspace = true\n"),
            ("crates/b/Cargo.toml", "[dependencies]\n[dev-dependencies]\nrusqlite = \"1\"\n"),
        ]);
        let found = shown(&named_elsewhere(&tree));
        let catalog = "crates/potluck-catalog/src/spaces.rs:1: `rusqlite`";
        assert_eq!(found, [catalog, "crates/a/Cargo.toml:2: `rusqlite`"]);
    }
}
