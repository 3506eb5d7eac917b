//! Checks that the rest of the repository does not depend on the engine of the catalog.

use super::rust_text::{code, is_word, line_of, strings, words};
use super::tree::{Offence, Tree};

pub const REASON: &str = "only potluck-catalog/src/sqlite names SQLite: another engine is a folder beside it and a line of engine.rs";

const ENGINE: &str = "rusqlite";
/// The beginning of the paths of the engine's folder and of the file that names what is in it.
const HOME: &str = "crates/potluck-catalog/src/sqlite";
const FOLDER: &str = "sqlite";
/// The crate whose files on other people's disks are databases, too, whatever the catalog's engine is.
const LOOKASIDE: &str = "crates/potluck-lookaside/";
/// The one file through which all others use what is in the folder.
const CHOICE: &str = "crates/potluck-catalog/src/engine.rs";
const MANIFEST: &str = "crates/potluck-catalog/Cargo.toml";

/// Finds the places outside of its folder where sources and tests name the engine.
pub fn named_elsewhere(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        let is_home = [HOME, LOOKASIDE].iter().any(|home| file.path.starts_with(home));
        if !file.path.starts_with("crates/") || is_home {
            continue;
        }
        let code = code(&file.text);
        let folder = words(&code, FOLDER).into_iter().filter(|at| !code[..*at].ends_with("mod "));
        let is_catalog = file.path.starts_with(CATALOG) && file.path != CHOICE;
        let folder = folder.filter(|_| is_catalog).map(|at| (at, FOLDER));
        for (at, name) in words(&code, ENGINE).into_iter().map(|at| (at, ENGINE)).chain(folder) {
            offences.push(Offence::line(&file.path, line_of(&code, at), format!("`{name}`")));
        }
    }
    offences.extend(built_into_another_crate(tree));
    offences
}

pub const OPAQUE_NUMBERS: &str =
    "outside of the catalog a ChunkId stands for a chunk, and what number it is nobody knows";

/// Finds the places outside of the catalog that make or look into its numbers of chunks. Tests may make them.
pub fn numbers_seen(tree: &Tree) -> Vec<Offence> {
    const HOMES: [&str; 2] = [CATALOG, "crates/potluck-core/src/ids.rs"];
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        let is_home = HOMES.iter().any(|home| file.path.starts_with(home));
        if !file.path.starts_with("crates/") || is_home || file.path.contains("tests") {
            continue;
        }
        let code = code(&file.text);
        for name in ["from_catalog", "catalog_number"] {
            let found = words(&code, name).into_iter().map(|at| line_of(&code, at));
            let said = || format!("`{name}`");
            offences.extend(found.map(|line| Offence::line(&file.path, line, said())));
        }
    }
    offences
}

/// Finds the manifests of other crates that depend on the engine, be it only for tests.
fn built_into_another_crate(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    let manifests = tree.with_extension("toml");
    let is_home = |path: &str| path == MANIFEST || path.starts_with(LOOKASIDE);
    for file in manifests.filter(|file| file.path.starts_with("crates/") && !is_home(&file.path)) {
        for (at, line) in file.text.lines().enumerate() {
            if line.starts_with(ENGINE) {
                offences.push(Offence::line(&file.path, at + 1, format!("`{ENGINE}`")));
            }
        }
    }
    offences
}

pub const SHARED_SQL: &str = "statements outside of potluck-catalog/src/sqlite are in the SQL that SQLite and PostgreSQL share";

/// The sources of the catalog. Outside of the engine's folder their statements must suit any engine.
const CATALOG: &str = "crates/potluck-catalog/src/";

/// Finds statements of the catalog with a form that PostgreSQL refuses.
pub fn unshared_sql(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        if !file.path.starts_with(CATALOG) || file.path.starts_with(HOME) {
            continue;
        }
        for (start, sql) in strings(&file.text) {
            let sql = without_texts(sql);
            let forms = [negated_numbers(&sql), untyped_parameters(&sql), ambiguous_columns(&sql)];
            for (at, why) in forms.into_iter().flatten() {
                offences.push(Offence::line(&file.path, line_of(&file.text, start + at), why));
            }
        }
    }
    offences
}

/// Returns a statement with its string literals blanked.
fn without_texts(sql: &str) -> String {
    let mut inside = false;
    let blanked = sql.chars().map(|c| {
        inside ^= c == '\'';
        if inside && c.is_ascii() && c != '\n' { ' ' } else { c }
    });
    blanked.collect()
}

/// Finds `NOT column`: such columns are numbers, and PostgreSQL negates only truth values.
fn negated_numbers(sql: &str) -> Vec<(usize, String)> {
    let column = |at: &usize| name_at(sql[at + 3..].trim_start());
    let found = words(sql, "NOT").into_iter().filter_map(|at| Some((at, column(&at)?)));
    found.map(|(at, name)| (at, format!("`NOT {name}`: write `{name} = 0`"))).collect()
}

/// Finds `?1 IS NULL`: PostgreSQL cannot tell the type of such a parameter.
fn untyped_parameters(sql: &str) -> Vec<(usize, String)> {
    let asked = |at: &usize| {
        let after = sql[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit());
        after.len() < sql.len() - at - 1 && words(after.trim_start(), "IS").first() == Some(&0)
    };
    let found = sql.match_indices('?').map(|(at, _)| at).filter(asked);
    found.map(|at| (at, "`?n IS`: a parameter without a type; use two statements".into())).collect()
}

/// Finds columns after `DO UPDATE SET` that may be those of the existing row or of `excluded`.
fn ambiguous_columns(sql: &str) -> Vec<(usize, String)> {
    const CLAUSE: &str = "DO UPDATE SET";
    let Some(from) = sql.find(CLAUSE).map(|at| at + CLAUSE.len()) else { return Vec::new() };
    let (mut found, mut depth, mut at, mut is_target) = (Vec::new(), 0_usize, from, true);
    while let Some(byte) = sql.as_bytes().get(at).copied() {
        let length = sql[at..].bytes().take_while(|byte| is_word(*byte)).count();
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => is_target = true,
            b'=' => is_target = false,
            _ if sql[at..].starts_with("WHERE") => is_target = false,
            _ => {}
        }
        if let Some(name) = name_at(&sql[at..]).filter(|_| !is_target) {
            let (before, after) = (&sql[..at], sql[at + length..].trim_start());
            if !(before.ends_with(['.', '?']) || after.starts_with(['.', '('])) {
                found.push((at, format!("`{name}` after `DO UPDATE`: name its table")));
            }
        }
        at += length.max(1);
    }
    found
}

/// Returns the name of a column with which a text begins. Keywords are in capitals.
fn name_at(text: &str) -> Option<&str> {
    let length = text.bytes().take_while(|byte| is_word(*byte)).count();
    text.starts_with(|c: char| c.is_ascii_lowercase()).then(|| &text[..length])
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
            ("crates/potluck-catalog/src/pool_records/spaces.rs", uses),
            ("crates/potluck-catalog/src/lib.rs", "mod sqlite;\nuse sqlite::Tx;\n"),
            ("crates/potluck-catalog/src/engine.rs", "use crate::sqlite::Tx;\n"),
            (MANIFEST, "[dependencies]\nrusqlite.workspace = true\n"),
            ("crates/a/Cargo.toml", "[dependencies]\nrusqlite.workspace = true\n"),
            ("crates/b/Cargo.toml", "[dependencies]\n[dev-dependencies]\nrusqlite = \"1\"\n"),
        ]);
        let found = shown(&named_elsewhere(&tree));
        let elsewhere = [
            "crates/potluck-catalog/src/tests/damage.rs:1: `rusqlite`",
            "crates/potluck-manager/tests/manager/restart.rs:1: `rusqlite`",
            "crates/potluck-catalog/src/pool_records/spaces.rs:1: `rusqlite`",
            "crates/potluck-catalog/src/lib.rs:2: `sqlite`",
            "crates/a/Cargo.toml:2: `rusqlite`",
            "crates/b/Cargo.toml:3: `rusqlite`",
        ];
        assert_eq!(found, elsewhere);
    }

    #[test]
    fn numbers_of_chunks_are_the_catalogs_own() {
        let sees = "fn f(chunk: ChunkId) -> i64 { chunk.catalog_number() }";
        let tree = Tree::planted(&[
            ("crates/potluck-catalog/src/sql.rs", sees),
            ("crates/potluck-pool/src/tests.rs", sees),
            ("crates/potluck-pool/src/inventory.rs", sees),
        ]);
        assert_eq!(
            shown(&numbers_seen(&tree)),
            ["crates/potluck-pool/src/inventory.rs:1: `catalog_number`"]
        );
    }

    #[test]
    fn statements_that_postgresql_refuses_are_found() {
        let found = |sql: &str| {
            let text = format!("fn f() {{ db.prepare(\n\"{sql}\") }}");
            let sqlite = ("crates/potluck-catalog/src/sqlite/tx.rs", text.as_str());
            let tree = Tree::planted(&[("crates/potluck-catalog/src/a.rs", &text), sqlite]);
            shown(&unshared_sql(&tree))
        };
        let said = |why: &str| [format!("crates/potluck-catalog/src/a.rs:2: {why}")];
        assert_eq!(
            found("SELECT 1 FROM t WHERE role = 'NOT a' AND NOT revoked AND NOT EXISTS (SELECT 1)"),
            said("`NOT revoked`: write `revoked = 0`"),
        );
        assert_eq!(
            found("SELECT 1 FROM t WHERE ?1 IS NULL OR id = ?1 AND name IS NOT NULL"),
            said("`?n IS`: a parameter without a type; use two statements"),
        );
        let upsert = "INSERT INTO t (k, a, b) VALUES (?1, ?2, 0) ON CONFLICT (k) DO UPDATE SET";
        assert_eq!(
            found(&format!("{upsert} a = coalesce(excluded.a, t.a), b = 0 WHERE b <> 0")),
            said("`b` after `DO UPDATE`: name its table"),
        );
        assert_eq!(
            found(&format!("{upsert} b = 0, a = a + 1 WHERE t.b <> 0")),
            said("`a` after `DO UPDATE`: name its table"),
        );
        assert_eq!(found(&format!("{upsert} a = excluded.a, b = ?3")), [""; 0]);
        assert_eq!(found("INSERT INTO t (k) VALUES (?1) ON CONFLICT DO NOTHING"), [""; 0]);
    }
}
