//! A daemon's `settings.toml`: the settings given on the command line, by `potluck set`, or by hand. It holds
//! only what was set. Comments and order, which belong to the user, stay.

use crate::keys::{self, Daemon, FILE, Key, Unset};
use potluck_config::checked_toml::{self, TomlSource};
use potluck_config::setting_kind::SettingKind;
use potluck_core::size::parse_size;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use toml_edit::{ArrayOfTables, DocumentMut, Item, RawString, Table, Value};

/// The tables of the directories that a donor lends: `[[lend]]` with `dir` and the directory's own settings.
const LEND: &str = "lend";
const DIR: &str = "dir";
/// The key for the state directory of a lent directory's donor. It is missing if that is the daemon's own donor, or if
/// the donor has not joined yet.
const STATE: &str = "state";

const ABOUT: &str = "# What this daemon was told. Change it here or with `potluck set`; `potluck set` alone lists all\n\
                     # keys. After a change by hand: systemctl reload, or kill -HUP.\n";

/// The settings in a state directory.
#[derive(Debug, Clone)]
pub struct SettingsFile {
    path: PathBuf,
    daemon: Daemon,
    document: DocumentMut,
    read: String,
}

impl SettingsFile {
    /// Reads the settings of a daemon whose state is in `dir`. A missing file sets nothing.
    ///
    /// Errors: unknown keys and bad values, with file, line and key.
    pub fn read(daemon: Daemon, dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(FILE);
        let text = checked_toml::read(&path)?;
        let document = parse(daemon, TomlSource { path: &path, text: &text })?;
        Ok(Self { path, daemon, document, read: text })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn text(&self) -> String {
        let text = self.document.to_string();
        match text.is_empty() || !self.read.is_empty() {
            true => text,
            // An empty line separates the comment about the file from one about its first table.
            false if text.starts_with('[') => format!("{ABOUT}\n{text}"),
            false => format!("{ABOUT}{text}"),
        }
    }

    /// Returns the value that a key of the whole daemon is set to, if it is.
    pub fn set_to(&self, key: &Key) -> Option<String> {
        self.document.get(key.name()).and_then(Item::as_value).and_then(|it| key.kind.text_of(it))
    }

    /// Sets a key of the whole daemon to a text that was checked.
    pub fn set(&mut self, key: &Key, text: &str) {
        let root = self.document.as_table_mut();
        let is_first = !root.iter().any(|(_, item)| item.is_value());
        put(root, key.name(), Some(key.kind.value_of(text)));
        if is_first {
            self.put_below_header(key.name());
        }
    }

    /// Moves the comment with which the file begins above its new first key. The parser takes that comment for a part
    /// of the table that stood below it.
    fn put_below_header(&mut self, first: &str) {
        let tables = self.document.get_mut(LEND).and_then(Item::as_array_of_tables_mut);
        let Some(table) = tables.and_then(|tables| tables.get_mut(0)) else { return };
        let above = table.decor().prefix().and_then(RawString::as_str).unwrap_or_default();
        // The lines above the last empty line before the table are about the file.
        let Some(end) = above.rfind("\n\n") else { return };
        let (header, own) = above.split_at(end + 1);
        let (header, own) = (header.to_owned(), own.to_owned());
        table.decor_mut().set_prefix(own);
        if let Some(mut key) = self.document.as_table_mut().key_mut(first) {
            key.leaf_decor_mut().set_prefix(header);
        }
    }

    /// Unsets a key of the whole daemon, so that its default holds again.
    pub fn unset(&mut self, key: &Key) {
        put(self.document.as_table_mut(), key.name(), None);
    }

    /// Returns the value that holds for a key of the whole daemon, as text; `None` if the daemon determines it by
    /// itself.
    pub fn text_of(&self, full: &str) -> Option<String> {
        let key = keys::key(full);
        debug_assert_eq!((key.daemon(), key.per_dir), (self.daemon, false));
        self.set_to(key).or_else(|| default_of(key))
    }

    /// Returns the value that holds for a key of the whole daemon, as a time.
    pub fn time(&self, full: &str) -> Option<Duration> {
        self.text_of(full).and_then(|text| humantime::parse_duration(&text).ok())
    }

    /// Returns the value that holds for a key of the whole daemon, as a size in bytes.
    pub fn size(&self, full: &str) -> Option<u64> {
        self.text_of(full).and_then(|text| parse_size(&text).ok())
    }

    /// Returns the value that holds for a key of the whole daemon, of whatever type has such a text.
    pub fn parsed<T: FromStr>(&self, full: &str) -> Option<T> {
        self.text_of(full).and_then(|text| text.parse().ok())
    }

    /// Returns whether `true` holds for a key of the whole daemon.
    pub fn is_on(&self, full: &str) -> bool {
        self.text_of(full).is_some_and(|text| text == "true")
    }

    /// Lists the lent directories that the file names.
    pub fn lent(&self) -> Vec<PathBuf> {
        self.tables().filter_map(dir_of).collect()
    }

    /// Returns the value that a key of one lent directory is set to, if it is.
    pub fn lent_set_to(&self, dir: &Path, key: &Key) -> Option<String> {
        let table = self.tables().find(|table| dir_of(table).as_deref() == Some(dir))?;
        table.get(key.name()).and_then(Item::as_value).and_then(|it| key.kind.text_of(it))
    }

    /// Returns the value that holds for a key of one lent directory, as text; `None` if the daemon determines it by
    /// itself.
    pub fn lent_text_of(&self, dir: &Path, full: &str) -> Option<String> {
        let key = keys::key(full);
        self.lent_set_to(dir, key).or_else(|| default_of(key))
    }

    /// Adds `dir` to the lent directories, unless it is lent.
    pub fn lend(&mut self, dir: &Path) {
        if self.lent().iter().any(|lent| lent == dir) {
            return;
        }
        let mut table = Table::new();
        table.insert(DIR, toml_edit::value(dir.to_string_lossy().into_owned()));
        let lent = self.document.entry(LEND).or_insert_with(|| ArrayOfTables::new().into());
        lent.as_array_of_tables_mut().expect("checked when it was read").push(table);
    }

    /// Returns the state directory of a lent directory's donor, if that is not the daemon's own donor.
    pub fn lent_state(&self, dir: &Path) -> Option<PathBuf> {
        let table = self.tables().find(|table| dir_of(table).as_deref() == Some(dir))?;
        table.get(STATE).and_then(Item::as_str).map(PathBuf::from)
    }

    /// Sets the state directory of a lent directory's donor.
    pub fn set_lent_state(&mut self, dir: &Path, state: &Path) {
        self.put_lent(dir, STATE, Some(state.to_string_lossy().into_owned().into()));
    }

    /// Replaces the lent directory `before` by `dir` on the same terms. If `before` is not lent, only adds `dir`; if
    /// `dir` is lent already, changes nothing.
    pub fn lend_instead(&mut self, before: &Path, dir: &Path) {
        let of = |tables: &mut ArrayOfTables, which: &Path| {
            tables.iter().position(|table| dir_of(table).as_deref() == Some(which))
        };
        let tables = self.document.get_mut(LEND).and_then(Item::as_array_of_tables_mut);
        if let Some(tables) = tables
            && let Some(at) = of(tables, before)
            && of(tables, dir).is_none()
            && let Some(table) = tables.get_mut(at)
        {
            put(table, DIR, Some(dir.to_string_lossy().into_owned().into()));
        }
        self.lend(dir);
    }

    /// Removes `dir` from the lent directories.
    pub fn lend_no_more(&mut self, dir: &Path) {
        if let Some(tables) = self.document.get_mut(LEND).and_then(Item::as_array_of_tables_mut) {
            tables.retain(|table| dir_of(table).as_deref() != Some(dir));
        }
    }

    /// Sets a key of one lent directory, or with `None` unsets it, so that its default holds again.
    pub fn set_lent(&mut self, dir: &Path, key: &Key, text: Option<&str>) {
        self.put_lent(dir, key.name(), text.map(|text| key.kind.value_of(text)));
    }

    fn put_lent(&mut self, dir: &Path, name: &str, value: Option<Value>) {
        let tables = self.document.get_mut(LEND).and_then(Item::as_array_of_tables_mut);
        let mut tables = tables.into_iter().flat_map(ArrayOfTables::iter_mut);
        if let Some(table) = tables.find(|table| dir_of(table).as_deref() == Some(dir)) {
            put(table, name, value);
        }
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        let tables = self.document.get(LEND).and_then(Item::as_array_of_tables);
        tables.into_iter().flat_map(ArrayOfTables::iter)
    }

    /// Changes the file of the daemon whose state is in `dir`, under a lock, so that no other change is lost. If
    /// `change` fails, nothing is written.
    pub fn edit(
        daemon: Daemon,
        dir: &Path,
        change: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let failed = |path: &Path, why: io::Error| {
            let what = format!("cannot write the settings to {}: {why}", path.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
                .hint("run this as whom the daemon runs as, or as root")
        };
        let alone = File::open(dir).and_then(|dir| dir.lock().map(|()| dir));
        let _alone = alone.map_err(|why| failed(dir, why))?;
        let mut file = Self::read(daemon, dir)?;
        change(&mut file)?;
        let text = file.text();
        if text != file.read {
            replace(&file.path, text.as_bytes()).map_err(|why| failed(&file.path, why))?;
            file.read = text;
        }
        Ok(file)
    }
}

/// Returns the default of a key, if that is a fixed value.
pub fn default_of(key: &Key) -> Option<String> {
    match key.unset {
        Unset::Value(text) => Some(text.to_owned()),
        Unset::Words(_) => None,
    }
}

fn dir_of(table: &Table) -> Option<PathBuf> {
    table.get(DIR).and_then(Item::as_str).map(PathBuf::from)
}

/// Sets a value, with the comments around the old one kept, or removes it.
fn put(table: &mut Table, name: &str, value: Option<Value>) {
    let Some(mut value) = value else {
        table.remove(name);
        return;
    };
    match table.get_mut(name).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(name, Item::Value(value));
        }
    }
}

/// Reads and checks a settings file.
fn parse(daemon: Daemon, source: TomlSource<'_>) -> Result<DocumentMut, Failure> {
    let document = source.parse()?;
    let known = |per_dir| {
        let keys = keys::of(daemon).filter(move |key| key.per_dir == per_dir);
        keys.map(|key| (key.name(), key.kind)).collect::<Vec<_>>()
    };
    let tables: &[&str] = if daemon == Daemon::Donor { &[LEND] } else { &[] };
    source.check(document.as_table(), &known(false), tables)?;
    let Some(lend) = document.get(LEND) else { return Ok(document.into_mut()) };
    let Some(lent) = lend.as_array_of_tables() else {
        let hint = "write [[lend]] on a line of its own, and dir = \"/the/directory\" below it";
        return Err(source.wrong(lend.span(), "lend: this is not a lent directory", hint));
    };
    let mut keys = known(true);
    keys.extend([(DIR, SettingKind::Path), (STATE, SettingKind::Path)]);
    let mut seen = BTreeSet::new();
    for table in lent {
        source.check(table, &keys, &[])?;
        let hint = "each [[lend]] has one: dir = \"/the/directory\"";
        match dir_of(table) {
            None => return Err(source.wrong(table.span(), "lend: dir is missing", hint)),
            Some(dir) if !seen.insert(dir.clone()) => {
                let what = format!("lend: {} is here twice", dir.display());
                return Err(source.wrong(table.span(), &what, "keep one of them"));
            }
            Some(_) => {}
        }
    }
    Ok(document.into_mut())
}

/// Replaces a file durably. The new file belongs to the owner of its directory.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    // If the path is a symbolic link, its target is replaced and the link stays.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let dir = path.parent().unwrap_or(Path::new("/"));
    let temp = path.with_extension("toml.tmp");
    // The directory may belong to another user, who could have put a link there: it must not be followed.
    match fs::remove_file(&temp) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
    let (owner, ours) = (fs::metadata(dir)?, file.metadata()?);
    if (owner.uid(), owner.gid()) != (ours.uid(), ours.gid()) {
        fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temp, &path)?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_write_does_not_follow_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, other) = (dir.path().join(FILE), dir.path().join("other"));
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, settings.with_extension("toml.tmp")).unwrap();
        replace(&settings, b"new").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        assert_eq!(fs::read(&settings).unwrap(), b"new");
    }

    fn refused(daemon: Daemon, text: &str) -> String {
        let source = TomlSource { path: Path::new("/state/settings.toml"), text };
        let why = parse(daemon, source).expect_err(text);
        format!("{} {}", why.message, why.hint)
    }

    #[test]
    fn settings_file_errors_name_line_key_and_suggestion() {
        for (daemon, text, said) in [
            (
                Daemon::Manager,
                "# a\n\nrepair-grase = \"1h\"\n",
                "line 3: unknown key “repair-grase” did you mean “repair-grace”?",
            ),
            (
                Daemon::Manager,
                "lease = \"1m\"\nrepair-grace = \"soon\"",
                "settings.toml, line 2: repair-grace: “soon”",
            ),
            (
                Daemon::Manager,
                "repair-grace = 10",
                "line 1: repair-grace: this is not of the right form",
            ),
            (Daemon::Manager, "max = \"1GiB\"", "unknown key “max”"),
            (Daemon::Manager, "lease = = 3", "line 1"),
            (Daemon::Donor, "max = \"1GiB\"", "unknown key “max”"),
            (Daemon::Donor, "[[lend]]\nmax = \"1GiB\"", "dir is missing"),
            (Daemon::Donor, "[lend]\ndir = \"/a\"", "[[lend]]"),
            (
                Daemon::Donor,
                "[[lend]]\ndir = \"a\"",
                "line 2: dir: “a” is not a path from the root",
            ),
            (
                Daemon::Donor,
                "[[lend]]\ndir = \"/a\"\n[[lend]]\ndir = \"/a\"",
                "line 3: lend: /a is here twice",
            ),
            (
                Daemon::Donor,
                "[[lend]]\ndir = \"/a\"\nkeep_free = \"1%\"",
                "did you mean “keep-free”?",
            ),
            (Daemon::Donor, "label = \"\"", "label: it names nothing"),
        ] {
            let why = refused(daemon, text);
            assert!(why.contains(said), "{text:?}: {why}");
        }
    }

    #[test]
    fn comments_and_order_outlive_a_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "# by hand\nlabel = \"room-1\" # ours\n\n# the big one\n[[lend]]\ndir = \"/big\"\nmax = \"1TiB\" # much\n";
        fs::write(dir.path().join(FILE), text).expect("written");
        let edited = SettingsFile::edit(Daemon::Donor, dir.path(), |file| {
            file.set(keys::key("lend.label"), "room-2");
            file.set(keys::key("lend.away"), "3d");
            file.set_lent(Path::new("/big"), keys::key("lend.max"), Some("2TiB"));
            file.lend(Path::new("/small"));
            Ok(())
        });
        let edited = edited.expect("edited");
        assert_eq!(edited.lent(), [PathBuf::from("/big"), PathBuf::from("/small")]);
        // A directory that replaces another is lent on the same terms.
        let mut moved = edited.clone();
        moved.lend_instead(Path::new("/big"), Path::new("/bigger"));
        assert_eq!(moved.lent(), [PathBuf::from("/bigger"), PathBuf::from("/small")]);
        let max = moved.lent_set_to(Path::new("/bigger"), keys::key("lend.max"));
        assert_eq!(max.as_deref(), Some("2TiB"));
        let now = fs::read_to_string(dir.path().join(FILE)).expect("read");
        assert_eq!(
            now,
            "# by hand\nlabel = \"room-2\" # ours\naway = \"3d\"\n\n# the big one\n[[lend]]\ndir = \"/big\"\nmax = \"2TiB\" # much\n\n[[lend]]\ndir = \"/small\"\n"
        );
    }

    #[test]
    fn the_comment_with_which_a_file_begins_stays_at_its_beginning() {
        let dir = tempfile::tempdir().expect("a directory");
        let edit = |change: &dyn Fn(&mut SettingsFile)| {
            let edited = SettingsFile::edit(Daemon::Donor, dir.path(), |file| {
                change(file);
                Ok(())
            });
            edited.expect("edited").document.to_string()
        };
        edit(&|file| file.lend(Path::new("/a")));
        let set = edit(&|file| file.set(keys::key("lend.label"), "room-1"));
        assert_eq!(set, format!("{ABOUT}label = \"room-1\"\n\n[[lend]]\ndir = \"/a\"\n"));
        let again = edit(&|file| file.set(keys::key("lend.away"), "3d"));
        assert_eq!(again, set.replace("\n\n[[", "\naway = \"3d\"\n\n[["));
    }
}
