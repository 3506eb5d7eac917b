//! The sources and targets of `cp` and `mv`: in the pool, on this machine, or the standard streams. It decides under
//! which name each source lands, by the rules in the table of docs/files.md.

use potluck_core::path::{BadPath, PoolPath, SCHEME};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A source or target, as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPlace {
    /// The standard streams, this machine or the pool, with the path there.
    pub at: PlacedAt,
    /// Whether a source has the form `DIR/.`, which means the content of the directory and not the directory.
    pub contents: bool,
    /// Whether sources go into a target, whatever exists there: it ends in a slash, or is a space or `.`, which cannot
    /// be the name of a copy.
    pub into: bool,
}

/// The standard streams, this machine or the pool, with the path there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacedAt {
    /// Standard input or output.
    Stdio,
    /// A path on this machine. The name need not be UTF-8.
    Local(PathBuf),
    /// A path in the pool.
    Pool(PoolPath),
}

impl CopyPlace {
    /// Parses the text of a source.
    pub fn source(text: &OsStr) -> Result<Self, Failure> {
        Self::parse(text, true)
    }

    /// Parses the text of a target.
    pub fn target(text: &OsStr) -> Result<Self, Failure> {
        Self::parse(text, false)
    }

    fn parse(text: &OsStr, is_source: bool) -> Result<Self, Failure> {
        let bytes = text.as_encoded_bytes();
        let ends = |end: &[u8]| bytes.ends_with(end);
        let contents = is_source && ends(b"/.");
        if bytes == b"-" {
            return Ok(Self { at: PlacedAt::Stdio, contents: false, into: false });
        }
        if !bytes.starts_with(SCHEME.as_bytes()) {
            let into = [&b"/"[..], b"/.", b"/.."].into_iter().any(ends)
                || [".", ".."].contains(&text.to_str().unwrap_or(""));
            return Ok(Self { at: PlacedAt::Local(text.into()), contents, into });
        }
        let text = text.to_str().ok_or_else(|| {
            let what = format!("{} is not UTF-8", text.display());
            Failure::new(ErrorKind::Usage, code::BAD_PATH, what).hint("names in the pool are UTF-8")
        })?;
        let named = text.strip_suffix('.').filter(|_| contents).unwrap_or(text);
        let path: PoolPath = named.parse().map_err(bad_path)?;
        let into = text.ends_with('/') || path.names().is_empty();
        Ok(Self { at: PlacedAt::Pool(path), contents, into })
    }
}

/// The facts known of a target before anything is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landing {
    /// Whether sources go into the target ([`CopyPlace::into`]).
    pub into: bool,
    /// Whether the target is an existing directory.
    pub is_dir: bool,
    /// Whether there are several sources.
    pub several: bool,
}

impl Landing {
    /// Returns whether a source goes into the target under its own name; otherwise the target is the name of the
    /// copy. For a single directory that does not depend on what exists, so that the same command gives the same
    /// tree when it is run again.
    pub fn takes_in(self, source_is_dir: bool) -> bool {
        self.into || self.several || (self.is_dir && !source_is_dir)
    }

    /// Refuses several sources for a target that is no directory and was not written as one.
    pub fn check(self) -> Result<(), Failure> {
        if self.several && !self.into && !self.is_dir {
            let what = "several sources need a directory to go to";
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("end the last path with /"));
        }
        Ok(())
    }
}

/// Refuses several sources that would land under one name, where the last would replace the others.
pub fn check_names(from: &[CopyPlace]) -> Result<(), Failure> {
    let merges =
        from.iter().any(|source| source.contents && matches!(source.at, PlacedAt::Pool(_)));
    if merges && from.len() > 1 {
        let what = "what is in a directory of the pool (DIR/.) is copied alone, for other sources may have the same names";
        return Err(
            Failure::new(ErrorKind::Usage, code::OVERLAP, what).hint("copy the sources one by one")
        );
    }
    let mut seen: HashMap<String, &PlacedAt> = HashMap::new();
    for source in from.iter().filter(|source| !source.contents) {
        let name = match &source.at {
            PlacedAt::Stdio => continue,
            // A source that cannot be read fails when its turn comes.
            PlacedAt::Local(local) => own_name(local).ok(),
            PlacedAt::Pool(path) => Some(path.file_name().unwrap_or(path.space()).to_string()),
        };
        let Some(name) = name else { continue };
        if let Some(first) = seen.insert(name.clone(), &source.at) {
            return Err(same_place(first, &source.at, &name));
        }
    }
    Ok(())
}

/// Makes the failure that two sources would land at one path.
pub fn same_place(first: impl fmt::Display, second: impl fmt::Display, name: &str) -> Failure {
    let what = format!("{first} and {second} would both become “{name}” in the target");
    Failure::new(ErrorKind::Usage, code::OVERLAP, what)
        .hint("nothing was changed; copy them one by one, to different names")
}

impl fmt::Display for PlacedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio => write!(f, "-"),
            Self::Local(local) => write!(f, "{}", local.display()),
            Self::Pool(path) => write!(f, "{path}"),
        }
    }
}

/// Returns the path at which a source lands: `to`, or below it under the source's own `name` if one is given.
pub fn target(to: &PoolPath, name: Option<&str>) -> Result<PoolPath, Failure> {
    name.map_or(Ok(to.clone()), |name| to.join(name)).map_err(bad_path)
}

/// Returns the own name of a local file or directory: as the user wrote it, or that of the directory meant by `.` or
/// `..`.
pub fn own_name(local: &Path) -> Result<String, Failure> {
    let whole = local.canonicalize().map_err(|error| cannot_read(local, &error))?;
    let name = local.file_name().or(whole.file_name()).unwrap_or_default();
    name.to_str().map(str::to_string).ok_or_else(|| not_utf8(local))
}

/// Makes the failure that a local file or directory cannot be read.
pub fn cannot_read(local: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot read {}: {error}", local.display());
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Other,
    };
    let hint = other_place(local);
    let hint = hint.unwrap_or_else(|| "check that it exists and that you may read it".into());
    Failure::new(kind, code::LOCAL_IO, what).hint(hint)
}

/// Makes the failure that a local name is not UTF-8.
pub fn not_utf8(local: &Path) -> Failure {
    let what = format!("the name of {} is not UTF-8, as names in the pool are", local.display());
    Failure::new(ErrorKind::Usage, code::BAD_PATH, what)
        .hint("store it under a name of your choice: potluck cp FILE pot://SPACE/NAME")
}

/// Makes the failure that a text is not a valid path.
pub fn bad_path(why: BadPath) -> Failure {
    let hint = match &why {
        BadPath::NoScheme(text) => meant_path(text).map(|meant| format!("did you mean {meant}?")),
        BadPath::BadSpace(name) if name.starts_with("pot:") => Some("leave out pot://".into()),
        _ => None,
    };
    let form = "a path in the pool has a space and the names below it: pot://lab/run-1/data";
    let hint = hint.unwrap_or_else(|| form.into());
    Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string()).hint(hint)
}

/// Returns the path in the pool that a text nearly is: with a slash too few or too many, or with no scheme.
fn meant_path(text: &str) -> Option<PoolPath> {
    let rest = match text.get(..4).filter(|scheme| scheme.eq_ignore_ascii_case("pot:")) {
        Some(_) => &text[4..],
        // What is here is more likely meant as that.
        None if Path::new(text).exists() => return None,
        None => text,
    };
    let named = format!("pot://{}", rest.trim_start_matches('/')).parse::<PoolPath>().ok()?;
    (!named.space().is_empty()).then_some(named)
}

/// Returns what to write instead of a local path that looks as if another place were meant; `None` for any other.
pub fn other_place(local: &Path) -> Option<String> {
    let text = local.to_str().filter(|_| local.symlink_metadata().is_err())?;
    let (host, _) =
        text.split_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'))?;
    if host.eq_ignore_ascii_case("pot") {
        return meant_path(text).map(|meant| format!("did you mean {meant}?"));
    }
    Some(format!(
        "{host}: names no other machine here: a path in the pool is pot://SPACE/PATH, and files of {host} are copied there"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_takes_in_what_its_form_says() {
        let into = |text: &str| CopyPlace::target(OsStr::new(text)).expect(text).into;
        for text in ["pot://lab", "pot://lab/", "pot://lab/a/", ".", "..", "a/", "a/..", "/"] {
            assert!(into(text), "{text}");
        }
        for text in ["pot://lab/a", "a", "a/b", "-", "a.", "..."] {
            assert!(!into(text), "{text}");
        }
        let contents = |text: &str| CopyPlace::source(OsStr::new(text)).expect(text).contents;
        assert!(contents("a/.") && contents("pot://lab/a/.") && contents("./."));
        assert!(!contents(".") && !contents("a/..") && !contents("a/b."));
        assert!(CopyPlace::source(OsStr::new("pot://lab/../x")).is_err());
        assert!(CopyPlace::target(OsStr::new("pot://lab/.")).is_err());
    }

    #[test]
    fn directory_target_does_not_depend_on_existing_entries() {
        for is_dir in [false, true] {
            let landing = |into| Landing { into, is_dir, several: false };
            assert!(!landing(false).takes_in(true) && landing(true).takes_in(true));
            assert_eq!(landing(false).takes_in(false), is_dir, "a file, as with cp");
        }
        assert!(Landing { into: false, is_dir: false, several: true }.check().is_err());
    }
}
