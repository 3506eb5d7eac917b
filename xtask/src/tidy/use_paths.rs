//! The paths that `use` statements name, with their braces multiplied out, and those in the code beside them.

use super::rust_text::{is_word, words};
use std::ops::Range;

/// A path that a `use` statement imports.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// Offset in the text, in bytes, at which the statement starts.
    pub offset: usize,
    /// The path without white space, such as `std::fs::File` or `super::*`.
    pub path: String,
}

/// Returns all imports in `code` (comments and strings blanked).
pub fn imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    for statement in statements(code) {
        let offset = statement.start;
        let mut paths = Vec::new();
        expand("", code[offset + 3..statement.end].trim(), &mut paths);
        found.extend(paths.into_iter().map(|path| Import { offset, path }));
    }
    found
}

/// Returns the paths in `code` (comments and strings blanked) outside of `use` statements, such as `crate::a::f` in
/// a call.
pub fn inline_paths(code: &str) -> Vec<&str> {
    let mut statements = statements(code).into_iter().peekable();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < code.len() {
        if let Some(statement) = statements.next_if(|statement| statement.start <= at) {
            at = at.max(statement.end);
            continue;
        }
        let length = path_length(&code.as_bytes()[at..]);
        let goes_on =
            code.as_bytes()[..at].ends_with(b":") || code.as_bytes()[..at].ends_with(b"$");
        if !goes_on && code[at..at + length].contains("::") {
            found.push(&code[at..at + length]);
        }
        at += length.max(1);
    }
    found
}

/// Returns the length of the path with which a text begins; 0 if it begins with none.
fn path_length(text: &[u8]) -> usize {
    let word = |from: usize| text[from..].iter().take_while(|byte| is_word(**byte)).count();
    let mut length = word(0);
    while length > 0 && text[length..].starts_with(b"::") && word(length + 2) > 0 {
        length += 2 + word(length + 2);
    }
    length
}

/// Returns where the `use` statements are, up to their semicolons.
fn statements(code: &str) -> Vec<Range<usize>> {
    let end = |start: usize| {
        let rest = &code[start + 3..];
        // `impl Trait + use<'a>` imports nothing.
        rest.starts_with(char::is_whitespace).then(|| rest.find(';')).flatten()
    };
    let all = words(code, "use").into_iter();
    all.filter_map(|start| Some(start..start + 3 + end(start)?)).collect()
}

fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        let path: String = path.chars().filter(|c| !c.is_whitespace()).collect();
        if path.bytes().any(|b| is_word(b) || b == b'*') {
            paths.push(format!("{prefix}{path}"));
        }
        return;
    };
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut start) = (0_usize, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                expand(&prefix, group[start..at].trim(), paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    expand(&prefix, group[start..].trim(), paths);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_multiplied_out() {
        let code = "pub use std::{fs, io::{self, Read as R}, };\nfn f() -> impl A + use<'a> {}";
        let paths: Vec<_> = imports(code).into_iter().map(|import| import.path).collect();
        assert_eq!(paths, ["std::fs", "std::io::self", "std::io::Read"]);
    }

    #[test]
    fn paths_are_found_beside_use_statements() {
        let code =
            "use a::b;\nfn f() -> super::C<'_> { crate::d::e::<u8>(::std::f()); $crate::g::h!() }";
        assert_eq!(inline_paths(code), ["super::C", "crate::d::e"]);
    }
}
