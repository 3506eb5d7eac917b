//! Words that were given up for the field's own do not come back.

use super::rust_text::{is_word, line_of};
use super::tree::{Offence, Tree};
use std::path::Path;

pub const REASON: &str = "one thing has one name: the word was retired (docs/GLOSSARY.md)";

const CLIENT: &str = "crates/potluck-client/";
const DONOR: &str = "crates/potluck-donor/";
const MANAGER: &str = "crates/potluck-manager/";
const POOL: &str = "crates/potluck-pool/";
const WIRE: &str = "crates/potluck-wire/";
const EVERYWHERE: &str = "crates/";

/// A word that is not used any more.
struct Retired {
    /// The forms of the word.
    forms: &'static [&'static str],
    /// The word that is used instead.
    instead: &'static str,
    /// Where it was retired; a crate is added when it is free of the word.
    places: &'static [&'static str],
}

const fn retired(
    forms: &'static [&'static str],
    instead: &'static str,
    places: &'static [&'static str],
) -> Retired {
    Retired { forms, instead, places }
}

const RETIRED: &[Retired] = &[
    retired(&["errand", "errands"], "task", &[EVERYWHERE]),
    retired(&["courier", "couriers"], "peer connection", &[EVERYWHERE]),
    retired(&["guest", "guests"], "peer", &[CLIENT, DONOR, MANAGER, POOL, WIRE]),
    retired(&["claimant", "claimants"], "pending peer, or claim request", &[EVERYWHERE]),
    retired(&["neighbour", "neighbours"], "peer, or another donor", &[EVERYWHERE]),
    retired(&["door", "doors"], "server", &[EVERYWHERE]),
    retired(&["touch", "touches", "touched"], "write sequence", &[DONOR, POOL, WIRE]),
    retired(&["aside"], "quarantined, or in the background", &[EVERYWHERE]),
    retired(&["bury", "buried"], "delete", &[EVERYWHERE]),
    retired(&["beat", "beats", "heart"], "heartbeat, or heartbeat reply", &[EVERYWHERE]),
    retired(
        &["standing", "standings"],
        "view, donor status, shard state, or what it is there",
        &[EVERYWHERE],
    ),
    retired(&["survey", "surveys", "surveyed"], "scan", &[EVERYWHERE]),
    retired(&["haste"], "priority", &[EVERYWHERE]),
    retired(&["trial", "trials"], "probation", &[EVERYWHERE]),
    retired(&["keeper"], "scan state", &[EVERYWHERE]),
    retired(&["pressed"], "over quota", &[EVERYWHERE]),
    retired(&["pedigree"], "term history", &[EVERYWHERE]),
    retired(&["patience", "patiently"], "stall timeout, retry limit, or deadline", &[EVERYWHERE]),
    retired(&["pace", "paces"], "rate estimate", &[EVERYWHERE]),
    retired(&["excused", "dismiss", "dismissed"], "declared dead", &[EVERYWHERE]),
    retired(&["seat", "seats", "seated"], "slot", &[EVERYWHERE]),
    retired(&["book", "books"], "what it records", &[EVERYWHERE]),
    retired(&["wish", "wishes"], "request", &[EVERYWHERE]),
    retired(&["chore", "chores"], "background work", &[EVERYWHERE]),
    retired(&["deed", "deeds"], "action", &[EVERYWHERE]),
    retired(&["hindrance", "hindrances", "hindered"], "blocker", &[EVERYWHERE]),
    retired(&["wanted"], "request, or chunk request", &[CLIENT]),
];

/// Retired words in names, comments and strings of Rust files, and in the names of the files.
pub fn come_back(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.with_extension("rs") {
        let stem = Path::new(&file.path).file_stem().and_then(|stem| stem.to_str());
        for word in stem.into_iter().flat_map(parts) {
            if let Some(found) = found_in(&file.path, &word) {
                offences.push(Offence::file(&file.path, said(&word, found)));
            }
        }
        let texts = file.text.split(|c: char| !c.is_ascii() || !is_word(c as u8));
        for (word, text) in texts.flat_map(|text| parts(text).map(move |word| (word, text))) {
            if let Some(found) = found_in(&file.path, &word) {
                let offset = text.as_ptr() as usize - file.text.as_ptr() as usize;
                let line = line_of(&file.text, offset);
                offences.push(Offence::line(&file.path, line, said(&word, found)));
            }
        }
    }
    offences
}

fn said(word: &str, found: &Retired) -> String {
    format!("`{word}`: say {}", found.instead)
}

fn found_in(path: &str, word: &str) -> Option<&'static Retired> {
    let here = |retired: &&Retired| retired.places.iter().any(|place| path.starts_with(place));
    RETIRED.iter().filter(here).find(|retired| retired.forms.contains(&word))
}

/// The words of `some_name`, `SomeName` or `SOME_NAME`, in small letters.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        let camel = c.is_ascii_uppercase() && before.is_ascii_lowercase();
        if c == '_' || camel {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("never empty").push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::tree::shown;
    use super::*;

    #[test]
    fn a_retired_word_is_found_in_names_comments_and_files_of_its_crates_alone() {
        let text =
            "/// An errand.\nstruct NewErrand {\n    open_errands: u8,\n}\nlet touchy = TOUCHES;\n";
        let tree = Tree::planted(&[
            ("crates/potluck-donor/src/errands.rs", ""),
            ("crates/potluck-donor/src/a.rs", text),
            ("crates/potluck-client/src/a.rs", "// It touches the door."),
            ("benches/src/a.rs", text),
        ]);
        assert_eq!(
            shown(&come_back(&tree)),
            [
                "crates/potluck-donor/src/errands.rs: `errands`: say task",
                "crates/potluck-donor/src/a.rs:1: `errand`: say task",
                "crates/potluck-donor/src/a.rs:2: `errand`: say task",
                "crates/potluck-donor/src/a.rs:3: `errands`: say task",
                "crates/potluck-donor/src/a.rs:5: `touches`: say write sequence",
                "crates/potluck-client/src/a.rs:1: `door`: say server",
            ]
        );
    }
}
