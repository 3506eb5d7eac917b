//! What may have been meant by a word that nobody knows.

/// Returns the suggestion for `text` from pairs of a name and its suggestion; `None` if no name is like `text`.
pub fn nearest<'a>(text: &str, names: impl Iterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    most_like(text, names).filter(|(likeness, _)| *likeness > 0.8).map(|(_, meant)| meant)
}

/// Returns the suggestion whose name is most like `text`, with how like it is, between 0 and 1.
pub fn most_like<'a>(
    text: &str,
    names: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<(f64, &'a str)> {
    let judged = names.map(|(name, meant)| (strsim::jaro_winkler(text, name), meant));
    judged.max_by(|one, other| one.0.total_cmp(&other.0))
}
