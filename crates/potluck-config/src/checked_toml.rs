//! TOML files that people write: every key must be known, and every value must be of its kind. An error names
//! the file, the line and the key.

use crate::likeness::nearest;
use crate::setting_kind::SettingKind;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::ops::Range;
use std::path::Path;
use toml_edit::{Document, Item, Table};

/// The text of a file with the path that errors name.
#[derive(Clone, Copy)]
pub struct TomlSource<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

/// Reads a file; a missing file is empty.
pub fn read(path: &Path) -> Result<String, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(why) => {
            let what = format!("cannot read the settings in {}: {why}", path.display());
            Err(Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what)
                .hint("make the file readable, or remove it to go by the defaults"))
        }
    }
}

impl<'a> TomlSource<'a> {
    /// Parses the file as TOML.
    pub fn parse(self) -> Result<Document<&'a str>, Failure> {
        Document::parse(self.text).map_err(|why| {
            let what = why.message().lines().next().unwrap_or("not TOML").to_owned();
            self.wrong(why.span(), &what, "settings are lines such as: repair-grace = \"1h\"")
        })
    }

    /// Refuses keys that are neither `known` nor in `tables`, and bad values of the `known`. The `tables` are checked
    /// elsewhere.
    pub fn check(
        self,
        table: &Table,
        known: &[(&'static str, SettingKind)],
        tables: &[&'static str],
    ) -> Result<(), Failure> {
        for (name, item) in table.iter().filter(|(name, _)| !tables.contains(name)) {
            let span = || table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            let Some((_, kind)) = known.iter().find(|(key, _)| *key == name) else {
                let names = || known.iter().map(|(name, _)| *name).chain(tables.iter().copied());
                let hint = match nearest(name, names().map(|name| (name, name))) {
                    Some(meant) => format!("did you mean “{meant}”?"),
                    None => format!("it may hold: {}", names().collect::<Vec<_>>().join(", ")),
                };
                return Err(self.wrong(span(), &format!("unknown key “{name}”"), &hint));
            };
            self.value(name, *kind, item)?;
        }
        Ok(())
    }

    fn value(self, name: &str, kind: SettingKind, item: &Item) -> Result<(), Failure> {
        let form = || {
            let example = kind.placeholder();
            format!(
                "write {name} = {}",
                if kind == SettingKind::Flag { example.into() } else { format!("\"{example}\"") }
            )
        };
        let Some(text) = item.as_value().and_then(|value| kind.text_of(value)) else {
            let what = format!("{name}: this is not of the right form");
            return Err(self.wrong(item.span(), &what, &form()));
        };
        kind.check(&text)
            .map(|_| ())
            .map_err(|why| self.wrong(item.span(), &format!("{name}: {why}"), ""))
    }

    /// Makes the failure for what stands at `span`, with file and line.
    pub fn wrong(self, span: Option<Range<usize>>, what: &str, hint: &str) -> Failure {
        let line = span.map_or(String::new(), |span| {
            let before = &self.text[..span.start.min(self.text.len())];
            format!(", line {}", before.matches('\n').count() + 1)
        });
        let what = format!("{}{line}: {what}", self.path.display());
        Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what).hint(hint)
    }
}
