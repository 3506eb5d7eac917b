//! Checks circles of imports: the files of one can be read and changed only together.
//!
//! An arrow goes from a file to each file of its crate that a `use` statement or another path in it names. A name
//! that another file passes on (`pub use`) leads to the file that has it, and to pass on names of modules below is
//! no arrow. Tests are left out.

use super::rust_text::{code, is_word};
use super::tree::{Offence, Tree};
use super::use_paths::{imports, inline_paths};
use std::collections::{BTreeMap, BTreeSet};

pub const REASON: &str = "who reads one file of a circle has to read them all";

/// The most files that a circle may have.
const LIMIT: usize = 4;
/// Finds circles over the limit.
pub fn too_wide(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for package in &tree.packages {
        let mut circles = circles(&Sources::of(tree, &format!("{}/src/", package.directory)));
        circles.retain(|circle| circle.len() > LIMIT);
        offences.extend(circles.iter().map(|circle| {
            let (found, names) = (circle.len(), circle.join(", "));
            let message = format!("{found} files import each other, at most {LIMIT}: {names}");
            Offence::file(&package.directory, message)
        }));
    }
    offences
}

/// Returns code in which the items that only tests have are blanks.
fn without_tests(mut code: String) -> String {
    while let Some(begin) = code.find("#[cfg(test)]") {
        let is_end = |at: char| at == ';' || at == '{';
        let end = code[begin..].find(is_end).map_or(code.len(), |at| begin + at);
        let end = match code[end..].starts_with('{') {
            true => end_of_braces(&code, end),
            false => (end + 1).min(code.len()),
        };
        code.replace_range(begin..end, &" ".repeat(end - begin));
    }
    code
}

/// Returns the offset behind the brace that closes the one at `begin`.
fn end_of_braces(code: &str, begin: usize) -> usize {
    let mut depth = 0;
    for (at, letter) in code[begin..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return begin + at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The files of a crate by the paths of their modules, and what each imports.
struct Sources {
    files: BTreeMap<Vec<String>, String>,
    imports: BTreeMap<Vec<String>, Vec<Vec<String>>>,
    /// The names that a file passes on, each with the path it stands for.
    passed_on: BTreeMap<(Vec<String>, String), Vec<String>>,
}

impl Sources {
    fn of(tree: &Tree, below: &str) -> Self {
        let module = |path: &str| {
            let names = path.strip_prefix(below)?.strip_suffix(".rs")?;
            let names = names.strip_suffix("/mod").unwrap_or(names);
            let mut names: Vec<String> = names.split('/').map(str::to_owned).collect();
            if names.iter().any(|name| name == "tests") || names[0] == "bin" {
                return None;
            }
            names.retain(|name| name != "lib" && name != "main");
            Some(names)
        };
        let ours: Vec<_> = tree
            .with_extension("rs")
            .filter_map(|file| Some((module(&file.path)?, file)))
            .collect();
        let files = ours.iter().map(|(module, file)| (module.clone(), file.path.clone())).collect();
        let mut sources = Self { files, imports: BTreeMap::new(), passed_on: BTreeMap::new() };
        for (module, file) in ours {
            let code = code(&file.text);
            let code = &without_tests(code);
            for import in imports(code) {
                let Some(path) = sources.absolute(&module, &import.path) else { continue };
                let passes_on = is_public(&code[..import.offset]);
                if let Some(name) = path.last().filter(|_| passes_on) {
                    sources.passed_on.insert((module.clone(), name.clone()), path.clone());
                }
                if !(passes_on && path.starts_with(&module)) {
                    sources.imports.entry(module.clone()).or_default().push(path);
                }
            }
            let inline = inline_paths(code).into_iter();
            let inline: Vec<_> =
                inline.filter_map(|path| sources.absolute(&module, path)).collect();
            sources.imports.entry(module).or_default().extend(inline);
        }
        sources
    }

    /// Returns a path that stands in `module` as a path from the crate's root; `None` if it leads out of the crate.
    fn absolute(&self, module: &[String], path: &str) -> Option<Vec<String>> {
        let mut at = module.to_vec();
        let mut names = path.split("::").peekable();
        match *names.peek()? {
            "crate" => {
                at.clear();
                names.next();
            }
            "self" => drop(names.next()),
            "super" => {
                while names.next_if_eq(&"super").is_some() {
                    at.pop()?;
                }
            }
            name => {
                let child = [module, &[name.to_owned()]].concat();
                if !self.files.contains_key(&child) {
                    return None;
                }
            }
        }
        at.extend(names.filter(|name| *name != "self").map(str::to_owned));
        Some(at)
    }

    /// Returns the module in whose file the item at a path is defined.
    fn file_of(&self, path: &[String]) -> Option<&Vec<String>> {
        let mut path = path.to_vec();
        // A name is passed on a few times at most; the count ends a circle of two that pass on each other.
        for _ in 0..8 {
            let mut prefixes = (0..=path.len()).rev().map(|len| &path[..len]);
            let (module, _) =
                self.files.get_key_value(prefixes.find(|at| self.files.contains_key(*at))?)?;
            let rest = &path[module.len()..];
            let passed_on =
                rest.first().and_then(|name| self.passed_on.get(&(module.clone(), name.clone())));
            match passed_on {
                Some(elsewhere) if *elsewhere != path[..=module.len()] => {
                    path = [&elsewhere[..], &rest[1..]].concat();
                }
                _ => return Some(module),
            }
        }
        None
    }
}

/// Returns whether the item whose text follows is public, be it only in its crate.
fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    let before = match before.strip_suffix(')') {
        Some(_) => before.rsplit_once('(').map_or("", |(front, _)| front),
        None => before,
    };
    let word = before.bytes().rev().take_while(|byte| is_word(*byte)).count();
    &before[before.len() - word..] == "pub"
}

/// Returns the sets of files that reach each other (strongly connected components, Tarjan 1972), by their paths.
fn circles(sources: &Sources) -> Vec<Vec<String>> {
    let modules: Vec<&Vec<String>> = sources.files.keys().collect();
    let number = |module: &Vec<String>| modules.binary_search(&module).ok();
    let arrows = |module: &Vec<String>| -> BTreeSet<usize> {
        let imports = sources.imports.get(module).into_iter().flatten();
        imports.filter_map(|path| number(sources.file_of(path)?)).collect()
    };
    let mut search = Search {
        arrows: modules.iter().map(|module| arrows(module)).collect(),
        order: vec![None; modules.len()],
        low: vec![0; modules.len()],
        open: Vec::new(),
        found: Vec::new(),
    };
    (0..modules.len()).for_each(|at| search.visit(at));
    let path = |at: &usize| sources.files[modules[*at]].clone();
    search.found.iter().map(|circle| circle.iter().map(path).collect()).collect()
}

struct Search {
    arrows: Vec<BTreeSet<usize>>,
    /// The number of each module in the order in which they were met; `None` for one that was not met yet.
    order: Vec<Option<usize>>,
    /// The lowest number of a module that each module is known to lead back to.
    low: Vec<usize>,
    open: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search {
    fn visit(&mut self, at: usize) {
        if self.order[at].is_some() {
            return;
        }
        let met = self.order.iter().flatten().count();
        (self.order[at], self.low[at]) = (Some(met), met);
        self.open.push(at);
        for to in self.arrows[at].clone() {
            self.visit(to);
            if self.open.contains(&to) {
                self.low[at] = self.low[at].min(self.low[to]);
            }
        }
        if self.low[at] == met {
            let first = self.open.iter().position(|open| *open == at).unwrap_or_default();
            let mut circle = self.open.split_off(first);
            circle.sort_unstable();
            self.found.push(circle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Package, shown};
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut tree = Tree::planted(files);
        tree.packages.push(Package {
            name: "p".into(),
            directory: "p".into(),
            roots: Vec::new(),
            test_executables: 0,
            dependencies: Vec::new(),
        });
        shown(&too_wide(&tree))
    }

    const CIRCLE: [(&str, &str); 6] = [
        ("p/src/lib.rs", "mod a; mod b; mod c; mod d; mod e;\npub use e::{E, F};"),
        ("p/src/a.rs", "use crate::b::{self, B};"),
        ("p/src/b.rs", "mod deep;\nuse super::c::C;"),
        ("p/src/c.rs", "use crate::d;\n#[cfg(test)]\nmod tests { use super::*; }"),
        ("p/src/d.rs", "use crate::E;"),
        ("p/src/e.rs", "use super::a::A;\nuse std::fmt;"),
    ];

    #[test]
    fn long_import_circle_is_found_through_reexports() {
        let all = "p/src/a.rs, p/src/b.rs, p/src/c.rs, p/src/d.rs, p/src/e.rs";
        assert_eq!(found(&CIRCLE), [format!("p: 5 files import each other, at most 4: {all}")]);
        let mut open = CIRCLE;
        open[5].1 = "use std::fmt;\n#[cfg(test)]\nuse super::a::A;";
        assert_eq!(found(&open), [""; 0], "tests draw no arrows");
        open[5].1 = "fn f() -> super::a::A { std::fmt::f() }";
        assert_eq!(found(&open), found(&CIRCLE), "a path in the code is as good as an import");
        open[5].1 = "use crate::c::C;";
        assert_eq!(found(&open), [""; 0], "c, d and e are few enough");
    }
}
