//! The paths that `use` statements name, with their braces multiplied out.

use super::rust_text::{is_word, words};

/// One imported path.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// Where its statement starts in the text.
    pub offset: usize,
    /// Without white space, such as `std::fs::File` or `super::*`.
    pub path: String,
}

/// All imports in `code` (comments and strings blanked).
pub fn imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    for offset in words(code, "use") {
        let rest = &code[offset + 3..];
        // `impl Trait + use<'a>` imports nothing.
        if !rest.starts_with(char::is_whitespace) {
            continue;
        }
        let Some(end) = rest.find(';') else { continue };
        let mut paths = Vec::new();
        expand("", rest[..end].trim(), &mut paths);
        found.extend(paths.into_iter().map(|path| Import { offset, path }));
    }
    found
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
}
