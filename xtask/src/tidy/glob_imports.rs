//! Checks that imports are by name.

use super::rust_text::{code, line_of};
use super::tree::{Offence, Tree};
use super::use_paths::imports;

pub const REASON: &str = "with a glob nobody can tell where a name comes from";

/// Finds `use x::*`, except of preludes, and of the module that tests stand in.
pub fn globs(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        let code = code(&file.text);
        let whole_file_tests = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
        let tests_from = if whole_file_tests { Some(0) } else { code.find("#[cfg(test)]") };
        for import in imports(&code).iter().filter(|import| import.path.ends_with('*')) {
            let in_tests = tests_from.is_some_and(|from| import.offset > from);
            let allowed = import.path.ends_with("prelude::*")
                || (import.path == "super::*" && (in_tests || whole_file_tests));
            if !allowed {
                let line = line_of(&code, import.offset);
                let message = format!("`use {}`: name what is used", import.path);
                offences.push(Offence::line(&file.path, line, message));
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
    fn globs_outside_tests_and_preludes_are_found() {
        let text = "use super::*;\npub use a::{b, c::*};\nuse proptest::prelude::*;\n\
                    #[cfg(test)]\nmod tests {\n use super::*;\n use a::*;\n}\n";
        let tree =
            Tree::planted(&[("crates/p/src/a.rs", text), ("src/a/tests.rs", "use super::*;")]);
        assert_eq!(
            shown(&globs(&tree)),
            [
                "crates/p/src/a.rs:1: `use super::*`: name what is used",
                "crates/p/src/a.rs:2: `use a::c::*`: name what is used",
                "crates/p/src/a.rs:7: `use a::*`: name what is used",
            ]
        );
    }
}
