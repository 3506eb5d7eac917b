//! The check of text that others chose and that people are shown.

/// Returns whether a character is not seen as itself where text is shown: controls move a terminal's cursor or change
/// its state, and those that set the direction of text let a name be read as another (Unicode TR 36, 2.5).
pub fn is_unseen(c: char) -> bool {
    let sets_direction = matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || sets_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_any_script_are_seen_and_controls_are_not() {
        assert!(!"a b ü שלום 日本 🎉".contains(is_unseen));
        for unseen in ["\n", "\u{1b}", "\u{9b}", "\u{202e}", "\u{2066}"] {
            assert!(unseen.contains(is_unseen), "{unseen:?}");
        }
    }
}
