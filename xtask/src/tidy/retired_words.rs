//! Checks that words which were given up for the field's own do not come back.

use super::rust_text::{code, is_word, words};
use super::tree::{Offence, Tree};
use std::path::Path;

pub const REASON: &str = "one thing has one name: the word was retired (docs/GLOSSARY.md)";

const CLIENT: &str = "crates/potluck-client/";
const CRATES: &str = "crates/";
const DOCS: &str = "docs/";
const DONOR: &str = "crates/potluck-donor/";
const MANAGER: &str = "crates/potluck-manager/";
const POOL: &str = "crates/potluck-pool/";
const WIRE: &str = "crates/potluck-wire/";
const EVERYWHERE: &str = "";
/// The file that names the retired words, and files whose words are not ours.
const PASSED_OVER: [&str; 3] = ["xtask/src/tidy/retired_words.rs", "Cargo.lock", "LICENSE"];

/// A word or a phrase that is not used any more.
struct Retired {
    /// The forms of the word or of the phrase.
    forms: &'static [&'static str],
    /// The word that is used instead.
    instead: &'static str,
    /// The beginnings of the paths in which it was retired; a crate is added when it is free of the word.
    places: &'static [&'static str],
}

const fn retired(
    forms: &'static [&'static str],
    instead: &'static str,
    places: &'static [&'static str],
) -> Retired {
    Retired { forms, instead, places }
}

/// Words that names, comments and documents do not use.
const RETIRED: &[Retired] = &[
    retired(&["errand", "errands"], "task", &[EVERYWHERE]),
    retired(&["courier", "couriers"], "peer connection", &[EVERYWHERE]),
    retired(&["guest", "guests"], "peer", &[EVERYWHERE]),
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
    retired(&["pace", "paces", "pacing"], "rate estimate", &[EVERYWHERE]),
    retired(&["excused", "dismiss", "dismissed"], "declared dead", &[EVERYWHERE]),
    retired(&["seat", "seats", "seated"], "slot", &[EVERYWHERE]),
    retired(&["book", "books"], "what it records", &[EVERYWHERE]),
    retired(&["wish", "wishes"], "request", &[EVERYWHERE]),
    retired(&["chore", "chores"], "background work", &[EVERYWHERE]),
    retired(&["deed", "deeds"], "action", &[EVERYWHERE]),
    retired(&["hindrance", "hindrances", "hindered"], "blocker", &[EVERYWHERE]),
    retired(&["wanted"], "request, or chunk request", &[CLIENT]),
];

/// Words of good English that no type or variant may have in its name.
const TYPE_NAMES: &[Retired] = &[
    retired(&["gone"], "dead, removed, or away", &[CLIENT, DONOR, MANAGER, POOL, WIRE]),
    retired(&["hold"], "GC freeze", &[CRATES]),
    retired(&["lives"], "term history", &[CRATES]),
    retired(&["spread"], "replica set", &[CRATES]),
    retired(&["switch"], "circuit breaker", &[CRATES]),
    retired(&["touch", "touches"], "write sequence", &[CRATES]),
    retired(&["wanted"], "request, or what it is", &[CRATES]),
];

/// Phrases in which a word of good English had a meaning of ours.
const PHRASES: &[Retired] = &[
    retired(
        &[
            "a hold",
            "anything holds them",
            "reclaiming is held",
            "same hold",
            "the hold",
            "this hold",
            "whether that is held",
        ],
        "GC freeze",
        &[CRATES, DOCS],
    ),
    retired(
        &["earlier lives", "its lives", "the lives", "their lives"],
        "term history",
        &[CRATES, DOCS],
    ),
    retired(
        &["donors gone", "gone donor", "gone donors", "have gone", "too many gone"],
        "dead, removed, or away",
        &[CRATES, DOCS],
    ),
    retired(&["a spread", "its spread", "the spread"], "replica set", &[CRATES, DOCS]),
    retired(
        &["repair switch", "safety switch", "switch for repair", "switch of repair"],
        "circuit breaker",
        &[CRATES, DOCS],
    ),
];

/// Finds retired words in the text of all files (names, comments and strings of programs, documents, units,
/// scripts), and in the names of the files.
pub fn come_back(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    let ours = tree.files.iter().filter(|file| !PASSED_OVER.contains(&file.path.as_str()));
    for file in ours {
        let stem = Path::new(&file.path).file_stem().and_then(|stem| stem.to_str());
        for word in stem.into_iter().flat_map(texts).flat_map(parts) {
            if let Some(found) = found_in(RETIRED, &file.path, &word) {
                offences.push(Offence::file(&file.path, said(&word, found)));
            }
        }
        for (number, line) in file.text.lines().enumerate() {
            let found = words_in(&file.path, line).chain(phrases_in(&file.path, line));
            offences.extend(found.map(|said| Offence::line(&file.path, number + 1, said)));
        }
    }
    offences
}

fn words_in(path: &str, line: &str) -> impl Iterator<Item = String> {
    let words = texts(line).flat_map(|text| parts(text).map(move |word| (text, word)));
    words.filter_map(move |(text, word)| {
        let in_type = || found_in(TYPE_NAMES, path, &word).filter(|_| is_type_name(line, text));
        found_in(RETIRED, path, &word).or_else(in_type).map(|found| said(&word, found))
    })
}

fn phrases_in(path: &str, line: &str) -> impl Iterator<Item = String> {
    let line = line.to_ascii_lowercase();
    PHRASES.iter().filter(|phrase| phrase.is_retired_in(path)).filter_map(move |phrase| {
        let form = phrase.forms.iter().find(|form| !words(&line, form).is_empty())?;
        Some(said(form, phrase))
    })
}

impl Retired {
    fn is_retired_in(&self, path: &str) -> bool {
        self.places.iter().any(|place| path.starts_with(place))
    }
}

fn said(word: &str, found: &Retired) -> String {
    format!("`{word}`: say {}", found.instead)
}

fn found_in(words: &'static [Retired], path: &str, word: &str) -> Option<&'static Retired> {
    let here = words.iter().filter(|retired| retired.is_retired_in(path));
    { here }.find(|retired| retired.forms.contains(&word))
}

/// Returns the names and the words of a text.
fn texts(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii() || !is_word(c as u8)).filter(|text| !text.is_empty())
}

/// Returns whether `text` is the name of a type in `line`, and not a word of a comment or of a string.
fn is_type_name(line: &str, text: &str) -> bool {
    let at = text.as_ptr() as usize - line.as_ptr() as usize;
    text.starts_with(|c: char| c.is_ascii_uppercase()) && code(line)[at..].starts_with(text)
}

/// Returns the words of `some_name`, `SomeName` or `SOME_NAME`, in small letters.
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
    fn retired_words_are_found_in_their_crates_only() {
        let text =
            "/// An errand.\nstruct NewErrand {\n    open_errands: u8,\n}\nlet touchy = TOUCHES;\n";
        let tree = Tree::planted(&[
            ("crates/potluck-donor/src/errands.rs", ""),
            ("crates/potluck-donor/src/a.rs", text),
            ("crates/potluck-client/src/a.rs", "// It touches the door."),
            ("benches/src/a.rs", "let touchy = TOUCHES;\n"),
            ("docs/old-doors.md", "A door, and no errand.\n"),
            ("packaging/a.service", "# A guest.\n"),
            ("Cargo.lock", "name = \"guest\"\n"),
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
                "docs/old-doors.md: `doors`: say server",
                "docs/old-doors.md:1: `door`: say server",
                "docs/old-doors.md:1: `errand`: say task",
                "packaging/a.service:1: `guest`: say peer",
            ]
        );
    }

    #[test]
    fn common_words_are_found_in_type_names_only() {
        let code = "// Wanted: a file that lives on a switch, as long as they hold it.\nenum Pause {\n    Wanted,\n}\nlet wanted = (\"Hold\", gone(donors));\n";
        let docs = "What is held is gone.\nThe same hold begins, with too many gone.\nDonors have gone while reclaiming is held.\n";
        let tree = Tree::planted(&[("crates/potluck-pool/src/a.rs", code), ("docs/a.md", docs)]);
        assert_eq!(
            shown(&come_back(&tree)),
            [
                "crates/potluck-pool/src/a.rs:3: `wanted`: say request, or what it is",
                "docs/a.md:2: `same hold`: say GC freeze",
                "docs/a.md:2: `too many gone`: say dead, removed, or away",
                "docs/a.md:3: `reclaiming is held`: say GC freeze",
                "docs/a.md:3: `have gone`: say dead, removed, or away",
            ]
        );
    }
}
