//! Checks that no Rust file grows too long, and that those which did only shrink.

use super::tree::{Offence, Tree};

pub const REASON: &str = "files grow a few lines at a time, and nobody splits them later";

const LIMIT: usize = 700;

/// The file that lists today's exceptions, one `path lines` each.
const RATCHET: &str = "xtask/tidy-lengths.txt";

/// Finds Rust files over the limit, unless the ratchet lists them with exactly their length, and entries of the
/// ratchet that are out of date.
pub fn too_long(tree: &Tree) -> Vec<Offence> {
    let listed = tree.file(RATCHET).map_or("", |file| &file.text);
    let mut offences = Vec::new();
    let mut exceptions = Vec::new();
    for (number, line) in listed.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next().and_then(|lines| lines.parse::<usize>().ok())) {
            (Some(path), Some(lines)) => exceptions.push((number + 1, path, lines)),
            _ => offences.push(Offence::line(RATCHET, number + 1, "must be: path lines")),
        }
    }
    for file in tree.with_extension("rs") {
        let lines = file.text.lines().count();
        let exception = exceptions.iter().find(|(_, path, _)| *path == file.path);
        let allowed = exception.map_or(LIMIT, |(_, _, allowed)| *allowed);
        if lines > allowed {
            let message = format!("{lines} lines, at most {allowed}: split it");
            offences.push(Offence::file(&file.path, message));
        }
    }
    for (number, path, allowed) in exceptions {
        let lines = tree.file(path).map_or(0, |file| file.text.lines().count());
        if lines <= LIMIT {
            let message = format!("{path} needs no exception any more: remove this line");
            offences.push(Offence::line(RATCHET, number, message));
        } else if lines < allowed {
            let message = format!("{path} has shrunk: write {lines} here");
            offences.push(Offence::line(RATCHET, number, message));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    fn found(lines: usize, ratchet: &str) -> Vec<String> {
        let text = "//\n".repeat(lines);
        shown(&too_long(&Tree::planted(&[("a.rs", &text), (RATCHET, ratchet)])))
    }

    #[test]
    fn a_file_over_the_limit_or_its_exception_is_found() {
        assert_eq!(found(700, ""), [""; 0]);
        assert_eq!(found(701, ""), ["a.rs: 701 lines, at most 700: split it"]);
        assert_eq!(found(801, "a.rs 800\n"), ["a.rs: 801 lines, at most 800: split it"]);
        assert_eq!(found(800, "# why\na.rs 800\n"), [""; 0]);
    }

    #[test]
    fn an_exception_follows_its_file_down() {
        let shrunk = "xtask/tidy-lengths.txt:1: a.rs has shrunk: write 790 here";
        assert_eq!(found(790, "a.rs 800\n"), [shrunk]);
        let done = "xtask/tidy-lengths.txt:1: a.rs needs no exception any more: remove this line";
        assert_eq!(found(600, "a.rs 800\n"), [done]);
    }
}
