//! The pages by which web servers list their directories: Apache, nginx, Caddy and Python's server write each entry as a
//! link that is relative to the page. Nothing else of such a page means the same everywhere.

use std::fmt::Write;
use url::Url;

/// A file that an origin lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The path of the file, relative to the address that was listed.
    pub path: String,
    /// The size in bytes, where the listing tells it.
    pub size: Option<u64>,
}

/// Returns the names of the entries directly below the directory that a page shows, as far as its links tell; those of
/// directories end with a slash. Links to other places, to parents and with queries, which sort the page, are left out.
pub(crate) fn links(page: &str, at: &Url) -> Vec<String> {
    let mut names: Vec<String> = hrefs(page).filter_map(|href| name_below(&href, at)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn hrefs(page: &str) -> impl Iterator<Item = String> {
    // The names of attributes may be written in any case; ASCII letters keep their places.
    let lower = page.to_ascii_lowercase();
    let at: Vec<usize> = lower.match_indices("href=").map(|(at, found)| at + found.len()).collect();
    at.into_iter().filter_map(|at| {
        let rest = &page[at..];
        let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let (value, _) = rest[1..].split_once(quote)?;
        Some(value.replace("&amp;", "&"))
    })
}

fn name_below(href: &str, at: &Url) -> Option<String> {
    let target = at.join(href).ok()?;
    if target.origin() != at.origin() || target.query().is_some() || target.fragment().is_some() {
        return None;
    }
    let rest = target.path().strip_prefix(at.path())?;
    let (name, is_dir) = match rest.strip_suffix('/') {
        Some(name) => (name, true),
        None => (rest, false),
    };
    let name = decoded(name)?;
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    is_name.then(|| if is_dir { name + "/" } else { name })
}

/// Decodes the percent signs of an address; `None` where that gives no text.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// Encodes all of a path but its slashes and what no address reads as anything else.
pub(crate) fn encoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                text.push(byte.into());
            }
            _ => drop(write!(text, "%{byte:02X}")), // a String takes all
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(page: &str) -> Vec<String> {
        links(page, &Url::parse("https://host/era5/").expect("an address"))
    }

    #[test]
    fn listings_of_apache_nginx_and_python_name_their_entries() {
        let apache = r#"<tr><th><a href="?C=N;O=D">Name</a></th></tr><a href="/">Parent Directory</a>
            <a href="2019/">2019/</a> <A HREF="t2m.nc">t2m.nc</A>"#;
        assert_eq!(listed(apache), ["2019/", "t2m.nc"]);
        let nginx =
            "<a href=\"../\">../</a>\n<a href=\"a%20b.nc\">a b.nc</a> <a href='c.nc'>c.nc</a>";
        assert_eq!(listed(nginx), ["a b.nc", "c.nc"]);
        let whole = r#"<a href="https://host/era5/x">x</a><a href="/era5/y">y</a>"#;
        assert_eq!(listed(whole), ["x", "y"]);
    }

    #[test]
    fn links_that_lead_elsewhere_are_no_entries() {
        let page = r##"<a href="https://other/era5/x">x</a><a href="http://host/era5/x">x</a>
            <a href="x/y">deep</a><a href="%2e%2e/">up</a><a href="a%2Fb">slash</a><a href="#top">top</a>
            <a href="mailto:me@host">me</a><a href="a?x">query</a><a href=bare>bare</a><a href="open"##;
        assert_eq!(listed(page), Vec::<String>::new());
    }

    #[test]
    fn paths_read_back_when_they_are_encoded() {
        for path in ["a b/ü?#%", "%41", "plain"] {
            assert_eq!(decoded(&encoded(path)).as_deref(), Some(path));
        }
        assert_eq!(decoded("%ff"), None, "no text");
        assert_eq!(decoded("%zz%4").as_deref(), Some("%zz%4"));
    }
}
