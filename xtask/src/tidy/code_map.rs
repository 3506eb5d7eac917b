//! Checks that what the code map names is there.
//!
//! ARCHITECTURE.md names a file or folder without `crates/potluck-` and `src`, such as `catalog/versions/commit`,
//! several as `catalog/versions/{commit,open}`, and a function by a link from its name to its file.

use super::markdown::{spans, targets_of_names};
use super::tree::{File, Offence, Tree};

pub const REASON: &str = "who is sent to a file or function that is gone stops believing the map";

const MAP: &str = "ARCHITECTURE.md";
const CRATES: [&str; 10] =
    ["core", "wire", "donor", "pool", "catalog", "recovery", "manager", "client", "mount", "sim"];

/// Finds paths that lead to no module, and functions that their files do not define.
pub fn stale(tree: &Tree) -> Vec<Offence> {
    let Some(map) = tree.file(MAP) else { return Vec::new() };
    let mut offences = Vec::new();
    for (line, span) in spans(&map.text) {
        for path in alternatives(&span) {
            if let Some(fault) = missing(tree, &path) {
                offences.push(Offence::line(&map.path, line, fault));
            }
        }
    }
    for (line, name, target) in targets_of_names(&map.text) {
        let Some(file) = tree.file(&target).filter(|file| file.path.ends_with(".rs")) else {
            continue; // The check of links finds missing files, and only Rust files define functions.
        };
        if !defines(file, &name) {
            let fault = format!("{target} has no `{name}`");
            offences.push(Offence::line(&map.path, line, fault));
        }
    }
    offences
}

/// Returns the paths that `a/{b,c}` stands for.
fn alternatives(span: &str) -> Vec<String> {
    match span.split_once('{').and_then(|(head, rest)| Some((head, rest.strip_suffix('}')?))) {
        Some((head, inner)) => inner.split(',').map(|name| format!("{head}{name}")).collect(),
        None => vec![span.to_owned()],
    }
}

/// Says what is wrong with `path`, if it begins with a crate's name and leads to no module.
fn missing(tree: &Tree, path: &str) -> Option<String> {
    let (first, rest) = path.split_once('/')?;
    let is_module = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/".contains(c);
    if rest.is_empty() || !rest.chars().all(is_module) {
        return None;
    }
    let source = match first {
        "potluck" => "crates/potluck/src".to_owned(),
        name if CRATES.contains(&name) => format!("crates/potluck-{name}/src"),
        _ => return None,
    };
    let (file, folder) = (format!("{source}/{rest}.rs"), format!("{source}/{rest}/"));
    let is_there = tree.files.iter().any(|f| f.path == file || f.path.starts_with(&folder));
    (!is_there).then(|| format!("`{path}`: there is no {file}"))
}

/// Returns whether `file` defines a function, type or macro called `name`.
fn defines(file: &File, name: &str) -> bool {
    ["fn", "struct", "enum", "trait", "macro_rules!"].iter().any(|keyword| {
        let definition = format!("{keyword} {name}");
        file.text.match_indices(&definition).any(|(at, found)| {
            let next = file.text[at + found.len()..].chars().next();
            next.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    const CODE: (&str, &str) = ("crates/potluck-pool/src/pool/shares.rs", "pub fn plan_all() {}\n");

    #[test]
    fn existing_paths_pass() {
        let map = "`pool/pool/{shares}`, `pool/pool`, `~/x`, `POST /v1/NAME`, `a/b`\n\
                   [`plan_all`](crates/potluck-pool/src/pool/shares.rs)\n";
        assert_eq!(shown(&stale(&Tree::planted(&[(MAP, map), CODE]))), [""; 0]);
    }

    #[test]
    fn modules_and_functions_that_are_gone_are_found() {
        let map =
            "`pool/pool/{shares,elsewhere}`\n[`plan`](crates/potluck-pool/src/pool/shares.rs)\n";
        assert_eq!(
            shown(&stale(&Tree::planted(&[(MAP, map), CODE]))),
            [
                "ARCHITECTURE.md:1: `pool/pool/elsewhere`: there is no \
                 crates/potluck-pool/src/pool/elsewhere.rs",
                "ARCHITECTURE.md:2: crates/potluck-pool/src/pool/shares.rs has no `plan`",
            ]
        );
    }
}
