//! Checks that potluck-core decides and never waits.

use super::rust_text::{code, line_of, words};
use super::tree::{Offence, Tree};
use super::use_paths::imports;

pub const REASON: &str = "core is pure: one input, one output, no machine underneath";

const CORE: &str = "potluck-core";
const WAITING: &[&str] = &["tokio", "std::fs", "std::net", "std::process", "std::thread"];

/// Finds the places in the core that touch a runtime, files, sockets, processes or threads.
pub fn impurities(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for package in tree.packages.iter().filter(|package| package.name == CORE) {
        for name in package.dependencies.iter().filter(|name| name.starts_with("tokio")) {
            let manifest = format!("{}/Cargo.toml", package.directory);
            offences.push(Offence::file(&manifest, format!("depends on {name}")));
        }
    }
    let source = format!("crates/{CORE}/src/");
    for file in tree.with_extension("rs").filter(|file| file.path.starts_with(&source)) {
        let code = code(&file.text);
        for path in WAITING {
            let named = words(&code, path);
            let below = format!("{path}::");
            let imported = imports(&code).into_iter();
            let imported = imported
                .filter(|import| import.path == *path || import.path.starts_with(&below))
                .map(|import| import.offset);
            let mut lines: Vec<_> =
                named.into_iter().chain(imported).map(|at| line_of(&code, at)).collect();
            lines.sort_unstable();
            lines.dedup();
            let offence = |line| Offence::line(&file.path, line, format!("`{path}`"));
            offences.extend(lines.into_iter().map(offence));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Package, shown};
    use super::*;

    #[test]
    fn paths_grouped_imports_and_dependencies_are_found() {
        let text = "use std::{fmt, fs};\nfn f() { std::thread::yield_now() } // tokio\n";
        let mut tree = Tree::planted(&[
            ("crates/potluck-core/src/a.rs", text),
            ("crates/potluck-donor/src/a.rs", "use std::fs;"),
        ]);
        tree.packages.push(Package {
            name: CORE.into(),
            directory: "crates/potluck-core".into(),
            roots: Vec::new(),
            test_executables: 0,
            dependencies: vec!["blake3".into(), "tokio-util".into()],
        });
        assert_eq!(
            shown(&impurities(&tree)),
            [
                "crates/potluck-core/Cargo.toml: depends on tokio-util",
                "crates/potluck-core/src/a.rs:1: `std::fs`",
                "crates/potluck-core/src/a.rs:2: `std::thread`",
            ]
        );
    }
}
