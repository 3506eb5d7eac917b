//! Checks that each error code, which is public and stable, is explained, and that none means two things.

use super::tree::{Offence, Tree};

pub const REASON: &str = "people search for the code they were shown";

const DECLARED: &str = "crates/potluck-wire/src/error.rs";
const EXPLAINED: &str = "docs/errors.md";
const PREFIX: &str = "POT-E";

/// Finds codes that are declared and not explained, explained and not declared, or declared twice.
pub fn undocumented(tree: &Tree) -> Vec<Offence> {
    let Some(source) = tree.file(DECLARED) else { return Vec::new() };
    let Some(page) = tree.file(EXPLAINED) else {
        return vec![Offence::file(EXPLAINED, "is missing: explain each code there")];
    };
    // Only constants declare; a doc comment may name a code as an example.
    let declared = codes(&source.text, |line| line.contains("const "));
    let explained = codes(&page.text, |_| true);
    let mut offences = Vec::new();
    for (index, (line, code)) in declared.iter().enumerate() {
        if declared[..index].iter().any(|(_, earlier)| earlier == code) {
            offences.push(Offence::line(DECLARED, *line, format!("{code} is declared twice")));
        } else if !explained.iter().any(|(_, known)| known == code) {
            let message = format!("{code} is not explained in {EXPLAINED}");
            offences.push(Offence::line(DECLARED, *line, message));
        }
    }
    for (line, code) in &explained {
        if !declared.iter().any(|(_, known)| known == code) {
            let message = format!("{code} is not declared in {DECLARED}");
            offences.push(Offence::line(EXPLAINED, *line, message));
        }
    }
    offences
}

/// Returns the codes on the lines that `counts` accepts, each with the number of its line.
fn codes(text: &str, counts: impl Fn(&str) -> bool) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| counts(line)) {
        for (at, _) in line.match_indices(PREFIX) {
            let digits = line[at + PREFIX.len()..].bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0 {
                found.push((number + 1, &line[at..at + PREFIX.len() + digits]));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    const SOURCE: &str = "/// Such as `POT-E099`.\npub const A: &str = \"POT-E001\";\n\
                          pub const B: &str = \"POT-E002\";\npub const C: &str = \"POT-E001\";\n";

    #[test]
    fn unexplained_undeclared_and_doubled_codes_are_found() {
        let tree = Tree::planted(&[(DECLARED, SOURCE), (EXPLAINED, "## POT-E001\n## POT-E003\n")]);
        assert_eq!(
            shown(&undocumented(&tree)),
            [
                "crates/potluck-wire/src/error.rs:3: POT-E002 is not explained in docs/errors.md",
                "crates/potluck-wire/src/error.rs:4: POT-E001 is declared twice",
                "docs/errors.md:2: POT-E003 is not declared in crates/potluck-wire/src/error.rs",
            ]
        );
    }

    #[test]
    fn a_missing_page_is_an_offence() {
        assert_eq!(undocumented(&Tree::planted(&[(DECLARED, SOURCE)])).len(), 1);
    }
}
