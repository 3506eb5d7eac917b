//! The part of Markdown that links need: targets outside code, and the anchors that GitHub makes.

use std::collections::HashMap;

use super::rust_text::line_of;

/// Returns a text with fenced blocks and code spans blanked; lines and offsets stay.
pub fn without_code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fence: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        if mark.is_some() || fence.is_some() {
            fence = match (fence, mark) {
                (None, mark) => mark,
                (Some(open), Some(mark)) if open == mark => None,
                (open, _) => open,
            };
            out.extend(line.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }));
        } else {
            out.push_str(&without_spans(line));
        }
    }
    out
}

fn without_spans(line: &str) -> String {
    let mut out = line.to_owned();
    let mut from = 0;
    while let Some(open) = out[from..].find('`').map(|at| from + at) {
        let ticks = out[open..].bytes().take_while(|&b| b == b'`').count();
        let mark = "`".repeat(ticks);
        let Some(length) = out[open + ticks..].find(&mark) else { break };
        let end = open + ticks + length + ticks;
        out.replace_range(open..end, &" ".repeat(end - open));
        from = end;
    }
    out
}

/// Returns every link and image target with its line: inline, by reference, and in HTML.
pub fn targets(text: &str) -> Vec<(usize, String)> {
    let text = without_code(text);
    let mut found = Vec::new();
    let marks = [("](", ')'), ("src=\"", '"'), ("href=\"", '"')];
    for (open, close) in marks {
        for (at, _) in text.match_indices(open) {
            let rest = &text[at + open.len()..];
            // A title may follow the target: [a](b.md "Title").
            let end = rest.find([close, ' ', '\n']).unwrap_or(rest.len());
            found.push((line_of(&text, at), rest[..end].trim_matches(['<', '>']).to_owned()));
        }
    }
    for (number, line) in text.lines().enumerate() {
        let Some((label, target)) = line.split_once("]: ") else { continue };
        if label.trim_start().starts_with('[') && !label.contains("[^") {
            let target = target.split_whitespace().next().unwrap_or_default();
            found.push((number + 1, target.trim_matches(['<', '>']).to_owned()));
        }
    }
    found.sort();
    found
}

/// Returns every code span outside fenced blocks with its line.
pub fn spans(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let code = line.split('`').skip(1).step_by(2);
            found.extend(code.map(|span| (number + 1, span.to_owned())));
        }
    }
    found
}

/// Returns the line, name and target of every link whose text is one code span.
pub fn targets_of_names(text: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for part in line.split("[`").skip(1) {
            let Some((name, rest)) = part.split_once("`](") else { continue };
            let Some((target, _)) = rest.split_once(')') else { continue };
            found.push((number + 1, name.to_owned(), target.to_owned()));
        }
    }
    found
}

/// Returns the anchors to which a link can lead: those of headings, and those that HTML names.
pub fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    // The blanked text tells headings from lines in fenced blocks; the anchor of a heading keeps the text of its
    // code spans.
    let blanked = without_code(text);
    for (line, visible) in text.lines().zip(blanked.lines()) {
        let level = visible.bytes().take_while(|&b| b == b'#').count();
        if (1..=6).contains(&level) && visible[level..].starts_with(' ') {
            let slug = slug(line[level..].trim());
            let again = seen.entry(slug.clone()).or_default();
            found.push(if *again == 0 { slug } else { format!("{slug}-{again}") });
            *again += 1;
        }
        for mark in ["id=\"", "name=\""] {
            let after = visible.split(mark).skip(1);
            found.extend(after.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    found
}

/// Returns the anchor of a heading by GitHub's rule: lower case, punctuation dropped, spaces to hyphens.
fn slug(heading: &str) -> String {
    let mut text = heading.trim_end_matches('#').trim_end().to_owned();
    // [text](target) reads as its text.
    while let Some(middle) = text.find("](") {
        let Some(close) = text[middle..].find(')').map(|at| middle + at) else { break };
        text.replace_range(middle..=close, "");
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_in_code_are_no_links() {
        let text =
            "[a](b.md \"T\") `[c](d.md)`\n```\n[e](f.md)\n```\n[g]: <h.md>\n<img src=\"i.png\">";
        let expected = [(1, "b.md"), (5, "h.md"), (6, "i.png")];
        assert_eq!(targets(text), expected.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn anchors_follow_the_rule_of_the_forge() {
        let text = "# One `request`, at most [six](x.md) files\n## §4.1: A-b_c\n## Ö\n## Ö\n";
        assert_eq!(
            anchors(text),
            ["one-request-at-most-six-files", "41-a-b_c", "ö", "ö-1"].map(str::to_owned)
        );
    }
}
