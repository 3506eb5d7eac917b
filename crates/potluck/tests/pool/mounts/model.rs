//! Takes random steps of a program with names, attributes and content in a mounted pool and on a local disk at the same
//! time: both answer alike and look alike.

use super::attributes::run;
use super::{Mount, mounted};
use crate::pool::content::arg;
use potluck_core::entropy::{Entropy, SeededEntropy};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// A source of random numbers from one seed, which a failed run names.
struct Chance(SeededEntropy);

impl Chance {
    fn below(&self, limit: u64) -> u64 {
        let entropy: &dyn Entropy = &self.0;
        entropy.u64() % limit
    }

    /// Draws one of few names in few directories, so that steps meet.
    fn name(&self) -> String {
        let dirs = ["", "a/", "b/", "a/c/", "a/c/d/", "no/"];
        let names = ["a", "b", "c", "d", "f", "g", "h"];
        let pick = |all: &[&'static str]| all[self.below(all.len() as u64) as usize];
        format!("{}{}", pick(&dirs), pick(&names))
    }
}

/// A step that a program takes.
#[derive(Debug)]
enum Step {
    Mkdir(String, u32),
    Rmdir(String),
    Write(String, u64, u8),
    Append(String, u64),
    Unlink(String),
    Rename(String, String),
    Link(String, String),
    Chmod(String, u32),
    SetTime(String, u64),
    Truncate(String, u64),
    Change(String, u64, u64, u8),
    Exclusive(String),
    Read(String, u64),
    List(String),
}

impl Step {
    fn draw(chance: &Chance) -> Self {
        let name = || chance.name();
        // A file may be too large for the catalog, and larger than a page.
        let bytes = || chance.below(10_000);
        match chance.below(20) {
            0..=2 => Self::Mkdir(name(), 0o700 + chance.below(0o100) as u32),
            3 => Self::Rmdir(name()),
            4..=6 => Self::Write(name(), bytes(), chance.below(256) as u8),
            7 => Self::Append(name(), bytes()),
            8 => Self::Unlink(name()),
            9..=11 => Self::Rename(name(), name()),
            12 => Self::Link(name(), name()),
            13 => Self::Chmod(name(), 0o600 + chance.below(0o200) as u32),
            14 => Self::SetTime(name(), chance.below(1 << 60)),
            15 => Self::Truncate(name(), bytes()),
            16 | 17 => Self::Change(name(), bytes(), bytes(), chance.below(256) as u8),
            18 => match chance.below(2) {
                0 => Self::Exclusive(name()),
                _ => Self::List(name()),
            },
            _ => Self::Read(name(), bytes()),
        }
    }

    /// Takes the step below a directory, and returns what a program learns.
    fn take(&self, root: &Path) -> io::Result<Vec<u8>> {
        let at = |name: &String| root.join(name);
        match self {
            Self::Mkdir(name, mode) => {
                fs::create_dir(at(name))?;
                fs::set_permissions(at(name), fs::Permissions::from_mode(*mode))?;
            }
            Self::Rmdir(name) => fs::remove_dir(at(name))?,
            Self::Write(name, len, byte) => fs::write(at(name), vec![*byte; *len as usize])?,
            Self::Append(name, len) => {
                let file = OpenOptions::new().append(true).open(at(name))?;
                io::Write::write_all(&mut &file, &vec![7; *len as usize])?;
            }
            Self::Unlink(name) => fs::remove_file(at(name))?,
            Self::Rename(from, to) => fs::rename(at(from), at(to))?,
            Self::Link(target, name) => symlink(target, at(name))?,
            Self::Chmod(name, mode) => {
                fs::set_permissions(at(name), fs::Permissions::from_mode(*mode))?;
            }
            Self::SetTime(name, nanos) => {
                let time = UNIX_EPOCH + Duration::from_nanos(*nanos);
                File::open(at(name))?.set_times(FileTimes::new().set_modified(time))?;
                let set = fs::metadata(at(name))?.modified()?;
                return Ok(format!("{set:?}").into_bytes());
            }
            Self::Truncate(name, len) => {
                OpenOptions::new().write(true).open(at(name))?.set_len(*len)?;
            }
            Self::Change(name, offset, len, byte) => {
                let file = OpenOptions::new().read(true).write(true).open(at(name))?;
                file.write_all_at(&vec![*byte; *len as usize], *offset)?;
                file.set_len(file.metadata()?.len() / 3 * 2)?;
                file.write_all_at(&[*byte], *len)?;
                let mut seen = vec![0; 4096];
                let read = file.read_at(&mut seen, offset / 2)?;
                seen.truncate(read);
                return Ok(seen);
            }
            Self::Exclusive(name) => {
                OpenOptions::new().write(true).create_new(true).open(at(name))?;
            }
            Self::Read(name, offset) => {
                let mut seen = vec![0; 4096];
                let read = File::open(at(name))?.read_at(&mut seen, *offset)?;
                seen.truncate(read);
                return Ok(seen);
            }
            Self::List(name) => {
                let mut names = Vec::new();
                for entry in fs::read_dir(at(name))? {
                    names.push(entry?.file_name().into_encoded_bytes());
                }
                names.sort();
                return Ok(names.join(&b'\n'));
            }
        }
        Ok(Vec::new())
    }
}

/// Returns the number of an error; two that POSIX lets stand for one another have one number.
fn errno(why: &io::Error) -> Option<i32> {
    let number = why.raw_os_error();
    if number == Some(libc::EEXIST) { Some(libc::ENOTEMPTY) } else { number }
}

/// Returns the names, kinds, modes, link targets, sizes and contents of a tree, and the times of files that a step has
/// set, all of which are before 2010. Times of directories are left out, since they differ by when a file is published.
fn told(dir: &Path) -> String {
    run(
        r"find . -mindepth 1 -printf '%P %y %m %l ' \( -type d -printf '\n' -o -printf '%s\n' \) | sort; \
          find . -type f -exec md5sum {} + | sort; \
          find . -type f ! -newermt 2010-01-01 -printf '%P %T@\n' | sort",
        dir,
    )
}

fn both(mount: &Mount, local: &Path, seed: u64, steps: u64) {
    let chance = Chance(SeededEntropy::new(seed));
    for number in 0..steps {
        let step = Step::draw(&chance);
        let (here, there) = (step.take(&mount.dir), step.take(local));
        let alike = match (&here, &there) {
            (Ok(here), Ok(there)) => here == there,
            (Err(here), Err(there)) => errno(here) == errno(there),
            _ => false,
        };
        let shown = |taken: &io::Result<Vec<u8>>| match taken {
            Ok(seen) => format!("{} bytes", seen.len()),
            Err(why) => why.to_string(),
        };
        assert!(
            alike,
            "seed {seed}, step {number}, {step:?}: {} in the mount, {} on the disk",
            shown(&here),
            shown(&there)
        );
        if number % 100 == 99 {
            assert_eq!(told(&mount.dir), told(local), "seed {seed}, after step {number}");
        }
    }
}

fn random_steps(test: &str, seed: u64, options: &[&str]) {
    let Some((lab, mount)) = mounted(test, 2, &["--copies", "2"], options) else { return };
    let local = lab.dir().join("local");
    fs::create_dir(&local).expect("made");
    both(&mount, &local, seed, 700);
    // The pool has what programs were shown.
    let out = lab.dir().join("out");
    lab.cli.ok(&["umount", arg(&mount.dir)]);
    lab.cli.ok(&["cp", "-a", "pot://lab", arg(&out)]);
    assert_eq!(told(&out), told(&local));
}

#[test]
fn random_file_operations_match_a_local_disk() {
    random_steps("random_steps_of_a_program_come_to_the_same", 1, &[]);
}

#[test]
fn random_steps_of_a_program_come_to_the_same_with_write_behind() {
    random_steps(
        "random_steps_of_a_program_come_to_the_same_with_write_behind",
        2,
        &["--close", "memory"],
    );
}
