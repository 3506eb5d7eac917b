//! `potluck inspect`: what of other people is stored on this machine, as far as its owner may know, and who came. It is
//! looked up here, and nothing of it is sent anywhere.

use super::Ending;
use super::lend::bill::read;
use super::lend::{OwnDonor, donors_of};
use super::pause::lacking;
use crate::args::InspectArgs;
use crate::command_settings::CommandSettings;
use crate::output::{self, Output, count, table};
use potluck_core::chunk_file::stored_len;
use potluck_core::clock::UnixMillis;
use potluck_core::cost_history::{Visitor, Visits};
use potluck_core::size::format_size;
use potluck_core::traffic::BothWays;
use potluck_wire::control::{HeldOf, HeldSpace};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The classes by age: what is younger than so many milliseconds.
const AGES: [(&str, i64); 5] = [
    ("up to a day", DAY_MS),
    ("up to a week", 7 * DAY_MS),
    ("up to a month", 30 * DAY_MS),
    ("up to a year", 365 * DAY_MS),
    ("older", i64::MAX),
];
/// The classes by size: chunks of up to so many stored bytes.
const SIZES: [(&str, u64); 4] = [
    ("up to 64 KiB", 64 << 10),
    ("up to 1 MiB", 1 << 20),
    ("up to 4 MiB", 4 << 20),
    ("larger", u64::MAX),
];

/// Chunks of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Stored {
    chunks: u64,
    bytes: u64,
}

impl Stored {
    fn add(&mut self, bytes: u64) {
        (self.chunks, self.bytes) = (self.chunks + 1, self.bytes + bytes);
    }
}

/// Chunks of one class.
#[derive(Debug, Serialize)]
struct Class {
    class: &'static str,
    #[serde(flatten)]
    stored: Stored,
}

/// The chunks that are stored here, and who came.
#[derive(Debug, Serialize)]
struct Inspection {
    directories: Vec<PathBuf>,
    stored: Stored,
    by_age: Vec<Class>,
    by_size: Vec<Class>,
    /// The files and spaces whose data that is, as the manager tells; absent while it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_of: Option<HeldOf>,
    /// Who read and wrote how much here in thirty days, whoever moved most first.
    visitors: Vec<Visited>,
}

#[derive(Debug, Serialize)]
struct Visited {
    visitor: Visitor,
    #[serde(flatten)]
    moved: BothWays<u64>,
}

pub async fn run(
    _: InspectArgs,
    state: &Path,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let dirs: Vec<PathBuf> =
        donors_of(state, None)?.into_iter().filter_map(|OwnDonor { dir, .. }| dir).collect();
    let now = Env::system().clock.wall();
    let mut looked = Looked::default();
    for dir in &dirs {
        looked.look(dir, now).map_err(|why| {
            let what = format!("cannot look through {}: {why}", dir.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
                .hint("run this as whom the donor runs as, or as root")
        })?;
    }
    let class = |class: &'static str, stored: &Stored| Class { class, stored: *stored };
    let held_of = lacking(state, settings).await.and_then(|told| told.held_of);
    let inspection = Inspection {
        directories: dirs,
        stored: looked.all,
        by_age: AGES.iter().zip(&looked.by_age).map(|((name, _), it)| class(name, it)).collect(),
        by_size: SIZES.iter().zip(&looked.by_size).map(|((name, _), it)| class(name, it)).collect(),
        held_of,
        visitors: visitors(&read(state).visits()),
    };
    output.result(&inspection, Inspection::text);
    Ok(Ending::Done)
}

fn visitors(visits: &Visits) -> Vec<Visited> {
    let all = visits.by_bytes().into_iter();
    all.map(|(visitor, moved)| Visited { visitor, moved }).collect()
}

/// The chunk files of the lent directories, counted.
#[derive(Debug, Default)]
struct Looked {
    all: Stored,
    by_age: [Stored; AGES.len()],
    by_size: [Stored; SIZES.len()],
}

impl Looked {
    /// Counts the chunk files of a lent directory, by their lengths and times alone.
    fn look(&mut self, dir: &Path, now: UnixMillis) -> std::io::Result<()> {
        potluck_donor::each_stored(dir, |entry| {
            // A chunk that is deleted meanwhile is not here any more.
            let Ok(about) = entry.metadata() else { return };
            let bytes = stored_len(about.len()).map_or(about.len(), u64::from);
            let written = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let age = now - written.map_or(0, |at| at.as_millis() as i64);
            self.count(bytes, age);
        })
    }

    fn count(&mut self, bytes: u64, age: i64) {
        self.all.add(bytes);
        let by_age = AGES.iter().position(|(_, most)| age <= *most).unwrap_or(AGES.len() - 1);
        let by_size = SIZES.iter().position(|(_, most)| bytes <= *most).unwrap_or(SIZES.len() - 1);
        self.by_age[by_age].add(bytes);
        self.by_size[by_size].add(bytes);
    }
}

impl Inspection {
    fn text(&self) -> String {
        let Self { directories, stored, by_age, by_size, held_of, visitors } = self;
        let dirs =
            directories.iter().map(|dir| output::name(&dir.display().to_string()).into_owned());
        let mut text = format!(
            "stored in {}: {} in {}\n",
            dirs.collect::<Vec<_>>().join(", "),
            format_size(stored.bytes),
            count(stored.chunks, "chunk"),
        );
        let rows = |classes: &[Class]| {
            let row = |Class { class, stored }: &Class| {
                vec![(*class).to_owned(), stored.chunks.to_string(), format_size(stored.bytes)]
            };
            classes.iter().map(row).collect::<Vec<_>>()
        };
        text += &table(&["stored here for", "chunks", "bytes"], &[1, 2], &rows(by_age));
        text += &table(&["chunks of", "chunks", "bytes"], &[1, 2], &rows(by_size));
        match held_of {
            Some(of) => text += &whose(of),
            None => {
                text += "! the manager does not answer: whose data that is cannot be told now\n"
            }
        }
        if visitors.is_empty() {
            text += "nobody read or wrote anything here in 30 days\n";
            return text;
        }
        let row = |Visited { visitor, moved }: &Visited| {
            let name = match visitor {
                Visitor::Pool => "the pool itself".to_owned(),
                Visitor::Member(member) => format!("member {member}"),
                Visitor::Others => "all others".to_owned(),
            };
            vec![name, format_size(moved.read), format_size(moved.written)]
        };
        let rows: Vec<_> = visitors.iter().map(row).collect();
        text + &table(&["who, in 30 days", "read", "wrote"], &[1, 2], &rows)
    }
}

/// Says whose data is here, and whether anybody here could read it.
fn whose(of: &HeldOf) -> String {
    let mut text = format!(
        "parts of {} in {} of {}; names are not told to a donor\n",
        count(of.files, "file"),
        count(of.spaces, "space"),
        match of.members {
            1 => "1 person".into(),
            more => format!("{more} people"),
        }
    );
    for HeldSpace { files, bytes, sealed } in &of.by_space {
        let readable = match sealed {
            true => "encrypted before it left its writer: nobody can read it here",
            false => {
                "stored as it is, as its policy wants: whoever has this disk could read parts of it"
            }
        };
        let _ = writeln!(
            text,
            "  a space: {} here, of {}; {readable}",
            format_size(*bytes),
            count(*files, "file")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_counted_by_age_and_by_size() {
        let mut looked = Looked::default();
        looked.count(64 << 10, 0);
        looked.count((64 << 10) + 1, 2 * DAY_MS);
        looked.count(5 << 20, 1000 * DAY_MS);
        looked.count(1, -5); // a clock that went back
        assert_eq!(looked.by_age.map(|class| class.chunks), [2, 1, 0, 0, 1]);
        assert_eq!(looked.by_size.map(|class| class.chunks), [2, 1, 0, 1]);
        assert_eq!(looked.all, Stored { chunks: 4, bytes: (128 << 10) + 2 + (5 << 20) });
    }
}
