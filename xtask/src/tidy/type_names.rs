//! Checks that a type which other modules see has a name of its own.

use super::rust_text::{code, is_word, line_of, words};
use super::tree::{Offence, Tree};
use std::collections::BTreeMap;

pub const REASON: &str = "one name is one thing: a search for a type must find one definition";

/// Names that two crates share on purpose: the pool as its clients hold it, and its state in the manager.
const SHARED: &[&str] = &["Pool"];

/// The words that begin the definition of a type.
const KINDS: &[&str] = &["struct", "enum", "trait", "type"];

/// Finds types with `pub` or `pub(crate)` whose name another such type has. Types of the simulation and of tests
/// are left out, and so are those that only a parent module sees (`pub(super)`).
pub fn repeated(tree: &Tree) -> Vec<Offence> {
    let mut first = BTreeMap::new();
    let mut offences = Vec::new();
    for file in tree.with_extension("rs").filter(|file| is_looked_at(&file.path)) {
        let code = code(&file.text);
        let code = &code[..code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len())];
        let mut found: Vec<_> = KINDS.iter().flat_map(|kind| definitions(code, kind)).collect();
        found.sort_unstable();
        for (at, name) in found {
            if SHARED.contains(&name.as_str()) {
                continue;
            }
            if let Some(other) = first.get(&name) {
                let message =
                    format!("`{name}` is in {other} as well: give one the more exact name");
                offences.push(Offence::line(&file.path, line_of(code, at), message));
            } else {
                first.insert(name, file.path.clone());
            }
        }
    }
    offences
}

fn is_looked_at(path: &str) -> bool {
    let is_test =
        path.ends_with("tests.rs") || path.contains("/tests/") || path.contains("/fixture");
    path.starts_with("crates/") && !path.starts_with("crates/potluck-sim/") && !is_test
}

/// Returns where types of a kind are defined that other modules see, and their names.
fn definitions(code: &str, kind: &str) -> Vec<(usize, String)> {
    let definition = |at: usize| {
        let before = code[..at].trim_end_matches(' ');
        let seen = before.ends_with("pub") || before.ends_with("pub(crate)");
        let name = code[at + kind.len()..].trim_start();
        let length = name.bytes().take_while(|byte| is_word(*byte)).count();
        (seen && length > 0).then(|| (at, name[..length].to_owned()))
    };
    words(code, kind).into_iter().filter_map(definition).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    #[test]
    fn a_type_that_others_see_and_another_has_the_name_of_is_found() {
        let tree = Tree::planted(&[
            (
                "crates/a/src/a.rs",
                "pub struct Page;\nstruct Own;\npub(super) enum Near {}\npub struct Pool;",
            ),
            (
                "crates/b/src/b.rs",
                "struct Own;\npub(super) enum Near {}\npub(crate) type Page = u8;\npub struct Pool;",
            ),
            ("crates/b/src/tests.rs", "pub struct Page;"),
        ]);
        assert_eq!(
            shown(&repeated(&tree)),
            [
                "crates/b/src/b.rs:3: `Page` is in crates/a/src/a.rs as well: give one the more exact name"
            ]
        );
    }
}
