//! Checks that relative links in Markdown lead somewhere.

use std::collections::HashSet;

use super::markdown::{anchors, targets};
use super::tree::{File, Offence, Tree};

pub const REASON: &str = "a reader who follows one dead link stops trusting the rest";

/// Finds links to files, directories and headings that do not exist.
pub fn dead_links(tree: &Tree) -> Vec<Offence> {
    let mut places: HashSet<&str> = HashSet::from([""]);
    for file in &tree.files {
        places.insert(&file.path);
        places.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    let mut offences = Vec::new();
    for file in tree.with_extension("md") {
        for (line, target) in targets(&file.text) {
            if let Some(fault) = fault(tree, &places, file, &target) {
                offences.push(Offence::line(&file.path, line, fault));
            }
        }
    }
    offences
}

fn fault(tree: &Tree, places: &HashSet<&str>, from: &File, target: &str) -> Option<String> {
    let scheme = target.split_once(':').is_some_and(|(scheme, _)| !scheme.contains(['/', '#']));
    if scheme || target.starts_with("//") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = path.split('?').next().unwrap_or(path).replace("%20", " ");
    let Some(place) = (if path.is_empty() { Some(from.path.clone()) } else { join(from, &path) })
    else {
        return Some(format!("`{target}` leads out of the repository"));
    };
    if !places.contains(place.as_str()) {
        return Some(format!("`{target}`: there is no {place}"));
    }
    let page = tree.file(&place).filter(|file| file.path.ends_with(".md"))?;
    let known = anchor.is_empty() || anchors(&page.text).iter().any(|known| known == anchor);
    (!known).then(|| format!("`{target}`: {place} has no heading #{anchor}"))
}

/// Returns the path that a link to `path` in `from` leads to; `None` if that is outside the repository. A `/` at
/// the start of `path` means the repository's root.
fn join(from: &File, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.path.split('/').collect();
    parts.pop();
    if path.starts_with('/') {
        parts.clear();
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text = "[a](../README.md#two-words) [b](./) [c](https://x.org/y.md) [d](#here)\n# Here";
        let tree = Tree::planted(&[("docs/a.md", text), ("README.md", "## Two words\n")]);
        assert_eq!(shown(&dead_links(&tree)), [""; 0]);
    }

    #[test]
    fn missing_files_headings_and_ways_out_are_found() {
        let text = "[a](no.md)\n[b](b.md#no)\n[c](../../x.md)";
        let tree = Tree::planted(&[("docs/a.md", text), ("docs/b.md", "# Yes")]);
        assert_eq!(
            shown(&dead_links(&tree)),
            [
                "docs/a.md:1: `no.md`: there is no docs/no.md",
                "docs/a.md:2: `b.md#no`: docs/b.md has no heading #no",
                "docs/a.md:3: `../../x.md` leads out of the repository",
            ]
        );
    }
}
