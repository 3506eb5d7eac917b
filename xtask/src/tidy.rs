//! `cargo xtask tidy`: the repository polices itself (rules that no compiler or linter knows).
//!
//! A check is a named function in a module with its reason and a test that plants an offence. A check of code
//! blanks strings, so that its test may write in strings what it forbids.

mod catalog_engine;
mod code_map;
mod comment_fragments;
mod dependency_direction;
mod error_codes;
mod file_endings;
mod file_lengths;
mod file_names;
mod glob_imports;
mod import_circles;
mod links;
mod machine_paths;
mod markdown;
mod pure_core;
mod raw_output;
mod reachable_modules;
mod retired_words;
mod rust_text;
mod sleeps;
mod test_executables;
mod tree;
mod type_names;
mod typed_documents;
mod unfinished;
mod use_paths;

use anyhow::Result;
use tree::{Offence, Tree};

struct Check {
    name: &'static str,
    reason: &'static str,
    find: fn(&Tree) -> Vec<Offence>,
}

const CHECKS: &[Check] = &[
    Check { name: "links", reason: links::REASON, find: links::dead_links },
    Check { name: "code-map", reason: code_map::REASON, find: code_map::stale },
    Check {
        name: "reachable-modules",
        reason: reachable_modules::REASON,
        find: reachable_modules::orphans,
    },
    Check { name: "file-names", reason: file_names::REASON, find: file_names::vague_names },
    Check { name: "file-lengths", reason: file_lengths::REASON, find: file_lengths::too_long },
    Check { name: "file-endings", reason: file_endings::REASON, find: file_endings::untidy_text },
    Check { name: "retired-words", reason: retired_words::REASON, find: retired_words::come_back },
    Check {
        name: "comment-fragments",
        reason: comment_fragments::REASON,
        find: comment_fragments::found,
    },
    Check { name: "unfinished", reason: unfinished::REASON, find: unfinished::left_behind },
    Check { name: "sleeps", reason: sleeps::REASON, find: sleeps::blocking_sleeps },
    Check { name: "glob-imports", reason: glob_imports::REASON, find: glob_imports::globs },
    Check { name: "raw-output", reason: raw_output::REASON, find: raw_output::found },
    Check { name: "pure-core", reason: pure_core::REASON, find: pure_core::impurities },
    Check {
        name: "dependency-direction",
        reason: dependency_direction::REASON,
        find: dependency_direction::wrong_ways,
    },
    Check {
        name: "catalog-engine",
        reason: catalog_engine::REASON,
        find: catalog_engine::named_elsewhere,
    },
    Check {
        name: "opaque-numbers",
        reason: catalog_engine::OPAQUE_NUMBERS,
        find: catalog_engine::numbers_seen,
    },
    Check {
        name: "shared-sql",
        reason: catalog_engine::SHARED_SQL,
        find: catalog_engine::unshared_sql,
    },
    Check {
        name: "import-circles",
        reason: import_circles::REASON,
        find: import_circles::too_wide,
    },
    Check {
        name: "test-executables",
        reason: test_executables::REASON,
        find: test_executables::too_many,
    },
    Check { name: "error-codes", reason: error_codes::REASON, find: error_codes::undocumented },
    Check { name: "type-names", reason: type_names::REASON, find: type_names::repeated },
    Check {
        name: "typed-documents",
        reason: typed_documents::REASON,
        find: typed_documents::untyped,
    },
    Check {
        name: "machine-paths",
        reason: machine_paths::REASON,
        find: machine_paths::paths_of_one_machine,
    },
];

/// Runs every check over the repository, prints what each found and returns the number of offences.
pub fn run() -> Result<usize> {
    let tree = Tree::read()?;
    let mut total = 0;
    for check in CHECKS {
        let found = (check.find)(&tree);
        if !found.is_empty() {
            println!("{}: {}", check.name, check.reason);
        }
        for offence in &found {
            println!("  {offence}");
        }
        total += found.len();
    }
    println!("tidy: {} checks, {} files, {total} offences", CHECKS.len(), tree.files.len());
    Ok(total)
}
