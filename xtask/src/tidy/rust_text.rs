//! Rust source with its strings (and comments) blanked, so that rules meet code only.

use std::ops::Range;

/// The parts to keep besides code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nothing,
    Comments,
}

/// Returns code alone: comments, strings, character literals and the quotes of lifetimes become spaces; lines and
/// offsets stay.
pub fn code(text: &str) -> String {
    blank(text, Keep::Nothing)
}

/// Returns code and comments: strings, character literals and the quotes of lifetimes become spaces.
pub fn code_and_comments(text: &str) -> String {
    blank(text, Keep::Comments)
}

/// Returns the line, counted from 1, that holds the byte at `offset`.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Returns whether a byte can be part of a name.
pub fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Returns the offsets at which `needle` is no part of a longer word. An end of it that is no letter, digit or
/// underscore may stand beside anything.
pub fn words(text: &str, needle: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let starts = text.match_indices(needle).map(|(at, _)| at);
    let alone = |&at: &usize| {
        let end = at + needle.len();
        let before = at > 0 && is_word(bytes[at]) && is_word(bytes[at - 1]);
        let after = end < bytes.len() && is_word(bytes[end - 1]) && is_word(bytes[end]);
        !before && !after
    };
    starts.filter(alone).collect()
}

/// Returns the string literals of a text, each with its quotes and the offset at which it starts.
pub fn strings(text: &str) -> Vec<(usize, &str)> {
    let parts = parts(text).into_iter().filter(|(kind, _)| *kind == Kind::String);
    parts.map(|(_, range)| (range.start, &text[range])).collect()
}

fn blank(text: &str, keep: Keep) -> String {
    let mut out = text.as_bytes().to_vec();
    for (kind, range) in parts(text) {
        if !(kind == Kind::Comment && keep == Keep::Comments) {
            out[range].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

/// The kinds of text that are no code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Comment,
    String,
    /// A character literal, or the quote of a lifetime.
    Character,
}

/// Returns the parts of a text that are no code, in order.
fn parts(text: &str) -> Vec<(Kind, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (kind, length) = if rest.starts_with(b"//") {
            (Kind::Comment, rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()))
        } else if rest.starts_with(b"/*") {
            (Kind::Comment, block_comment(rest))
        } else if rest[0] == b'"' {
            (Kind::String, quoted(rest, b'"'))
        } else if rest[0] == b'\'' {
            (Kind::Character, character(rest))
        } else if is_word(rest[0]) {
            let word = rest.iter().position(|&b| !is_word(b)).unwrap_or(rest.len());
            // A word is skipped as a whole, so that the `r` of `for` starts no raw string.
            let raw = matches!(&rest[..word], b"r" | b"br" | b"cr");
            match raw_string(&rest[word..]).filter(|_| raw) {
                Some(string) => (Kind::String, word + string),
                None => {
                    at += word;
                    continue;
                }
            }
        } else {
            at += 1;
            continue;
        };
        found.push((kind, at..at + length));
        at += length;
    }
    found
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return quoted(rest, b'\'');
    }
    // One character is at most four bytes; a lifetime is closed by no quote right after it.
    let first = (2..rest.len().min(6)).find(|&at| rest[at] & 0xC0 != 0x80);
    first.filter(|&at| rest[at] == b'\'').map_or(1, |at| at + 1)
}

/// Returns the length of what follows `r` when it is a raw string: `#`s, quote, text, quote, `#`s.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().position(|&b| b != b'#')?;
    if rest[hashes] != b'"' {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let body = &rest[hashes + 1..];
    let close = body.windows(end.len()).position(|window| window == end);
    Some(close.map_or(rest.len(), |at| hashes + 1 + at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_comments_and_characters_are_blanked_in_place() {
        let text =
            "let a = \"x\\\"y\"; // z\nlet b = 'ö'; let c: &'a str = r#\"q\"q\"#; /* /* d */ */ e";
        let code = code(text);
        assert_eq!(code.len(), text.len());
        let squeezed: Vec<_> = code.split_whitespace().collect();
        assert_eq!(squeezed.join(" "), "let a = ; let b = ; let c: & a str = ; e");
        assert_eq!(line_of(&code, code.len() - 1), 2);
    }

    #[test]
    fn rust_text_blanking_handles_raw_strings() {
        assert_eq!(code_and_comments("for \"x\" // why"), "for     // why");
        assert_eq!(code("br\"x\" r#type"), "      r#type");
    }

    #[test]
    fn strings_are_found_and_comments_are_not() {
        let text = "f(\"a\", r#\"b\"#) // \"c\"";
        assert_eq!(strings(text), [(2, "\"a\""), (7, "r#\"b\"#")]);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("dbg!(a) my_dbg!(b) dbg!(c)", "dbg!("), [0, 19]);
        assert_eq!(words("std::fs std::fsync", "std::fs"), [0]);
    }
}
