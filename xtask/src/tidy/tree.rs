//! The tree that the checks look at: the repository's files and packages, read once.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The size of the largest file that is looked at, in bytes.
const MAX_FILE: u64 = 8 << 20;

/// A file of the repository; the path is relative to its root, with `/`.
pub struct File {
    pub path: String,
    pub text: String,
}

/// A package of the workspace.
pub struct Package {
    pub name: String,
    /// The path of its directory, relative to the root, such as `crates/potluck-core`.
    pub directory: String,
    /// The source files at which its targets start, such as `src/lib.rs` and that of each test executable.
    pub roots: Vec<String>,
    /// The number of its integration test executables.
    pub test_executables: usize,
    /// The names of all packages it depends on, for tests and build scripts too.
    pub dependencies: Vec<String>,
}

/// The files and packages of the repository.
#[derive(Default)]
pub struct Tree {
    pub files: Vec<File>,
    pub packages: Vec<Package>,
}

impl Tree {
    /// Reads every file git would commit from the current directory, new ones included, and asks
    /// cargo for the packages.
    pub fn read() -> Result<Self> {
        let out = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("running git")?;
        ensure!(out.status.success(), "git ls-files: {}", String::from_utf8_lossy(&out.stderr));
        let mut paths: Vec<_> = String::from_utf8_lossy(&out.stdout)
            .split_terminator('\0')
            .map(str::to_owned)
            .collect();
        paths.sort_unstable();
        paths.dedup();
        // A file that git knows may be deleted, or be a link to a directory: neither can be read. A file that is
        // larger than any source is somebody's data that lies in the way, and could fill the memory.
        let read = |path: String| {
            std::fs::metadata(&path).ok().filter(|about| about.len() <= MAX_FILE)?;
            let bytes = std::fs::read(&path).ok()?;
            Some(File { path, text: String::from_utf8_lossy(&bytes).into_owned() })
        };
        let files = paths.into_iter().filter_map(read).collect();
        Ok(Self { files, packages: packages(&crate::cargo::metadata()?)? })
    }

    /// Returns the file at `path`.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the files whose names end in `.extension`.
    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        let of =
            move |file: &&File| Path::new(&file.path).extension().is_some_and(|is| is == extension);
        self.files.iter().filter(of)
    }

    /// Makes a tree of these files and no packages, for the test of a check.
    #[cfg(test)]
    pub fn planted(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.into(), text: text.into() };
        Self { files: files.iter().map(file).collect(), packages: Vec::new() }
    }
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let root = metadata["workspace_root"].as_str().context("metadata names no root")?;
    let relative = |path: &Value| {
        let path = path.as_str().unwrap_or_default().replace('\\', "/");
        path.strip_prefix(root).unwrap_or(&path).trim_start_matches('/').to_owned()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let package = |package: &Value| {
        let targets = list(&package["targets"]);
        let is_test = |target: &&Value| list(&target["kind"]).iter().any(|kind| kind == "test");
        Package {
            name: text(&package["name"]),
            directory: relative(&package["manifest_path"]).replace("/Cargo.toml", ""),
            roots: targets.iter().map(|target| relative(&target["src_path"])).collect(),
            test_executables: targets.iter().filter(is_test).count(),
            dependencies: list(&package["dependencies"]).iter().map(|d| text(&d["name"])).collect(),
        }
    };
    Ok(list(&metadata["packages"]).iter().map(package).collect())
}

/// Something that a check found wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Offence {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Offence {
    /// Makes an offence of a whole file.
    pub fn file(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, message: message.into() }
    }

    /// Makes an offence of one line, counted from 1.
    pub fn line(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// Returns offences as they are printed, for the tests of checks.
#[cfg(test)]
pub fn shown(offences: &[Offence]) -> Vec<String> {
    offences.iter().map(ToString::to_string).collect()
}
