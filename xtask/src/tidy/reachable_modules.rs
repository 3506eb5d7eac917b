//! Checks that every Rust file is part of some target.

use std::collections::HashSet;

use super::rust_text::{code, is_word, words};
use super::tree::{File, Offence, Tree};

pub const REASON: &str = "a file no module names looks alive but is neither compiled nor tested";

/// Finds Rust files below a package's `src` and `tests` that no `mod` reaches.
pub fn orphans(tree: &Tree) -> Vec<Offence> {
    let mut reached: HashSet<String> = HashSet::new();
    for package in &tree.packages {
        for root in &package.roots {
            let directory = root.rsplit_once('/').map_or("", |(directory, _)| directory);
            reach(tree, root, directory, &mut reached);
        }
    }
    let ours = |file: &&File| {
        tree.packages.iter().any(|package| {
            ["src", "tests"]
                .iter()
                .any(|part| file.path.starts_with(&format!("{}/{part}/", package.directory)))
        })
    };
    tree.with_extension("rs")
        .filter(ours)
        .filter(|file| !reached.contains(&file.path))
        .map(|file| Offence::file(&file.path, "no `mod` names this file"))
        .collect()
}

/// Marks `path` and what its modules reach; `below` is the directory of its child modules.
fn reach(tree: &Tree, path: &str, below: &str, reached: &mut HashSet<String>) {
    let Some(file) = tree.file(path) else { return };
    if !reached.insert(path.to_owned()) {
        return;
    }
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    for module in modules(&file.text) {
        let inside = module.inside.iter().fold(below.to_owned(), |at, name| format!("{at}/{name}"));
        if let Some(named) = module.path {
            let from = if module.inside.is_empty() { directory } else { &inside };
            let named = format!("{from}/{named}");
            let children = named.rsplit_once('/').map_or("", |(children, _)| children).to_owned();
            reach(tree, &named, &children, reached);
        } else {
            let children = format!("{inside}/{}", module.name);
            reach(tree, &format!("{children}.rs"), &children, reached);
            reach(tree, &format!("{children}/mod.rs"), &children, reached);
        }
    }
}

struct Module {
    name: String,
    /// The names of the inline modules around it, from the outside in.
    inside: Vec<String>,
    /// The path that `#[path = "…"]` gives.
    path: Option<String>,
}

/// Returns the `mod name;` items of a file.
fn modules(text: &str) -> Vec<Module> {
    let code = code(text);
    let bytes = code.as_bytes();
    let starts: HashSet<usize> = words(&code, "mod").into_iter().collect();
    let (mut found, mut depth, mut inside) = (Vec::new(), 0_usize, Vec::<(usize, String)>::new());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                inside.retain(|(opened, _)| *opened < depth + 1);
            }
            b'm' if starts.contains(&at) => {
                let rest = code[at + 3..].trim_start();
                let name: String =
                    rest.bytes().take_while(|&b| is_word(b)).map(char::from).collect();
                let inside_names = || inside.iter().map(|(_, name)| name.clone()).collect();
                match rest[name.len()..].trim_start().as_bytes().first() {
                    Some(b';') => {
                        let path = path_attribute(&code[..at], text);
                        found.push(Module { name, inside: inside_names(), path });
                    }
                    // The module's own brace, which comes next, makes the depth what is noted here.
                    Some(b'{') => inside.push((depth + 1, name)),
                    _ => {}
                }
                at += 2;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Returns the value of a `#[path = "…"]` among the attributes right before an item.
fn path_attribute(before: &str, text: &str) -> Option<String> {
    let item = before.rfind([';', '{', '}']).map_or(0, |at| at + 1);
    let attribute = item + before[item..].find("#[path")?;
    text[attribute..].split('"').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Package, shown};
    use super::*;

    fn tree(files: &[(&str, &str)], roots: &[&str]) -> Tree {
        let mut tree = Tree::planted(files);
        tree.packages.push(Package {
            name: "p".into(),
            directory: "crates/p".into(),
            roots: roots.iter().map(|&root| root.into()).collect(),
            test_executables: 0,
            dependencies: Vec::new(),
        });
        tree
    }

    #[test]
    fn nested_inline_and_renamed_modules_are_reached() {
        let files = [
            (
                "crates/p/src/lib.rs",
                "mod a;\n#[path = \"other.rs\"]\nmod b;\nmod k { fn f() {} }\nmod m;",
            ),
            ("crates/p/src/a.rs", "mod deep;"),
            ("crates/p/src/a/deep.rs", ""),
            ("crates/p/src/other.rs", ""),
            ("crates/p/src/m/mod.rs", ""),
            ("crates/p/tests/all.rs", "mod all {\n fn f() {}\n mod one;\n}\nmod two;"),
            ("crates/p/tests/all/one.rs", ""),
            ("crates/p/tests/two.rs", ""),
        ];
        let tree = tree(&files, &["crates/p/src/lib.rs", "crates/p/tests/all.rs"]);
        assert_eq!(shown(&orphans(&tree)), [""; 0]);
    }

    #[test]
    fn a_file_named_only_in_a_comment_or_string_is_an_orphan() {
        let text = "// mod lost;\nconst A: &str = \"mod lost;\";";
        let files = [("crates/p/src/lib.rs", text), ("crates/p/src/lost.rs", "")];
        let tree = tree(&files, &["crates/p/src/lib.rs"]);
        assert_eq!(shown(&orphans(&tree)), ["crates/p/src/lost.rs: no `mod` names this file"]);
    }
}
