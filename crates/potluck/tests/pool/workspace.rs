//! Tests that the workspace has its crates, and the texts that lead a reader through them.

use super::lent::files_of;
use std::path::{Path, PathBuf};

/// Returns the directory of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_workspace_has_its_crates_and_its_texts() {
    let crates = ["core", "wire", "donor", "manager", "client"]
        .map(|part| format!("crates/potluck-{part}/src/lib.rs"));
    let texts = ["ARCHITECTURE.md", "docs/GLOSSARY.md", "README.md"].map(String::from);
    let others = ["crates/potluck/src/main.rs", "xtask/src/main.rs"].map(String::from);
    for file in crates.iter().chain(&texts).chain(&others) {
        let about = root().join(file).metadata();
        assert!(about.is_ok_and(|about| about.len() > 0), "{file} is missing or empty");
    }
    let first = files_of(&root().join("docs/notes"));
    let is_first = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("0001-"))
    };
    assert!(first.iter().any(is_first), "docs/notes holds no 0001-*.md");
}

#[test]
fn the_code_map_names_every_crate() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for package in files_of(&root().join("crates")) {
        let name = package.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(map.contains(&name), "ARCHITECTURE.md does not name {name}");
    }
}
