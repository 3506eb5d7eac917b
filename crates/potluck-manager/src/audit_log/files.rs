//! The files of the audit log: lines are added to the newest file of their kind, and the oldest is deleted when there
//! are too many.

use potluck_wire::control::{AuditEntry, AuditPage};
use potluck_wire::private_dir;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// The length in bytes from which a file gets no more entries.
const FULL: u64 = 4 << 20;
/// The most files of a kind that are kept.
const MOST: usize = 16;
/// The most entries in one reply.
const PAGE: usize = 1000;

/// The kinds of files that entries of the audit log are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditFileKind {
    /// Files of changes, which are synced.
    Changes,
    /// Files of refusals.
    Refusals,
}

impl AuditFileKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Changes => "changes-",
            Self::Refusals => "refusals-",
        }
    }
}

/// The files of the audit log in one directory.
#[derive(Debug)]
pub struct AuditFiles {
    dir: PathBuf,
    /// The number of the next entry; `None` until it was looked up.
    next: Option<u64>,
    full: u64,
}

impl AuditFiles {
    /// Returns the files of the audit log in `dir`, which need not exist yet.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, next: None, full: FULL }
    }

    /// Adds entries, and gives them their numbers. Changes are synced to the disk.
    pub fn write(&mut self, entries: Vec<AuditEntry>, kept: AuditFileKind) -> io::Result<()> {
        private_dir::make(&self.dir)?;
        let first = self.next_number()?;
        let mut lines = Vec::new();
        for (number, entry) in (first..).zip(entries) {
            serde_json::to_writer(&mut lines, &AuditEntry { number, ..entry })?;
            lines.push(b'\n');
            // The number is used up even if the write fails, so that none is given twice.
            self.next = Some(number + 1);
        }
        let mut numbers = self.numbers(kept)?;
        let newest = numbers.last().copied();
        let path = |number: u64| self.dir.join(format!("{}{number:020}.ndjson", kept.prefix()));
        let goes_on =
            |number: &u64| fs::metadata(path(*number)).is_ok_and(|at| at.len() < self.full);
        let number = newest.filter(goes_on).unwrap_or(first);
        let mut options = File::options();
        let mut file =
            options.create(true).read(true).append(true).mode(0o600).open(path(number))?;
        // A power cut or a full disk may have left half a line, to which nothing must be added.
        let mut last = [b'\n'];
        if let Some(end) = file.metadata()?.len().checked_sub(1) {
            file.read_at(&mut last, end)?;
        }
        if last != [b'\n'] {
            file.write_all(b"\n")?;
        }
        file.write_all(&lines)?;
        if kept == AuditFileKind::Changes {
            file.sync_data()?;
        }
        if newest != Some(number) {
            numbers.push(number);
            let old = numbers.len().saturating_sub(MOST);
            numbers[..old].iter().try_for_each(|number| fs::remove_file(path(*number)))?;
        }
        Ok(())
    }

    /// Returns the numbers of the first entries of the files of a kind, in order.
    fn numbers(&self, kept: AuditFileKind) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix(kept.prefix());
            let number = number.and_then(|name| name.strip_suffix(".ndjson"));
            let number: Option<u64> = number.and_then(|name| name.parse().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the number of the next entry, which is higher than those of all entries that were written.
    fn next_number(&mut self) -> io::Result<u64> {
        if let Some(next) = self.next {
            return Ok(next);
        }
        let mut next = 1;
        for kept in [AuditFileKind::Changes, AuditFileKind::Refusals] {
            if let Some(newest) = self.numbers(kept)?.last() {
                let last = self.entries(kept, *newest)?.into_iter().map(|entry| entry.number).max();
                next = next.max(last.unwrap_or(*newest) + 1);
            }
        }
        self.next = Some(next);
        Ok(next)
    }

    /// Reads the entries of a file, without lines that a power cut left half written.
    fn entries(&self, kept: AuditFileKind, number: u64) -> io::Result<Vec<AuditEntry>> {
        let text = fs::read(self.dir.join(format!("{}{number:020}.ndjson", kept.prefix())))?;
        let lines = text.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Reads a page of the entries after the number `after` that were written since a wall time, in milliseconds.
    pub fn read(&self, since_wall_ms: i64, after: u64) -> io::Result<AuditPage> {
        let mut files = Vec::new();
        for kept in [AuditFileKind::Changes, AuditFileKind::Refusals] {
            let numbers = self.numbers(kept)?;
            // A file ends before the next of its kind begins.
            let ends = numbers.iter().skip(1).copied().chain([u64::MAX]);
            let wanted = numbers.iter().zip(ends).filter(|(_, end)| *end > after.saturating_add(1));
            files.extend(wanted.map(|(number, _)| (*number, kept)));
        }
        files.sort_unstable_by_key(|(number, _)| *number);
        let mut entries: Vec<AuditEntry> = Vec::new();
        for (number, kept) in files {
            if entries.len() > PAGE && entries[PAGE].number < number {
                break;
            }
            let found = self.entries(kept, number)?.into_iter();
            entries.extend(
                found.filter(|entry| entry.number > after && entry.at_wall_ms >= since_wall_ms),
            );
            entries.sort_by_key(|entry| entry.number);
        }
        let more = entries.len() > PAGE;
        entries.truncate(PAGE);
        let next = entries.last().filter(|_| more).map(|entry| entry.number);
        Ok(AuditPage { entries, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::control::AuditKind;

    fn entries(count: usize, at_wall_ms: i64) -> Vec<AuditEntry> {
        let entry = AuditEntry {
            number: 0,
            at_wall_ms,
            kind: AuditKind::Changed,
            member: None,
            name: None,
            role: None,
            through: None,
            from: "10.0.0.7".into(),
            call: "space-grant".into(),
            what: "x".repeat(100),
            code: None,
            times: 1,
        };
        vec![entry; count]
    }

    fn all(files: &AuditFiles, since: i64) -> Vec<u64> {
        let (mut numbers, mut after) = (Vec::new(), 0);
        loop {
            let page = files.read(since, after).expect("read");
            numbers.extend(page.entries.iter().map(|entry| entry.number));
            match page.next {
                Some(next) => after = next,
                None => return numbers,
            }
        }
    }

    #[test]
    fn audit_pages_are_ordered_and_numbered_across_restarts() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().join("audit");
        let mut files = AuditFiles { full: 40_000, ..AuditFiles::new(at.clone()) };
        assert!(all(&files, 0).is_empty(), "nothing was written yet");
        for round in 0..50 {
            let kept =
                if round % 3 == 0 { AuditFileKind::Changes } else { AuditFileKind::Refusals };
            files.write(entries(50, round), kept).expect("written");
        }
        assert_eq!(all(&files, 0), (1..=2500).collect::<Vec<_>>());
        assert_eq!(all(&files, 48), (2401..=2500).collect::<Vec<_>>());
        let none = files.read(0, u64::MAX).expect("read");
        assert!(none.entries.is_empty() && none.next.is_none());
        let mut again = AuditFiles::new(at.clone());
        fs::OpenOptions::new()
            .append(true)
            .open(fs::read_dir(&at).expect("files").next().expect("one").expect("a file").path())
            .and_then(|mut file| file.write_all(b"{\"number\": 77"))
            .expect("half a line");
        again.write(entries(1, 99), AuditFileKind::Changes).expect("written");
        assert_eq!(all(&again, 99), [2501]);
    }

    #[test]
    fn append_after_a_torn_line_starts_a_new_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = AuditFiles::new(dir.path().into());
        let is_cut = |kept: AuditFileKind| {
            let path = dir.path().join(format!("{}{:020}.ndjson", kept.prefix(), 1));
            let mut file = File::options().append(true).open(path).expect("there");
            file.write_all(b"{\"number\": 77").expect("half a line");
        };
        // The disk was full while the manager ran, and a line was cut.
        files.write(entries(1, 1), AuditFileKind::Changes).expect("written");
        is_cut(AuditFileKind::Changes);
        files.write(entries(1, 2), AuditFileKind::Changes).expect("written");
        assert_eq!(all(&files, 0), [1, 2]);
        // After a power cut, something of the other kind is written first.
        is_cut(AuditFileKind::Changes);
        let mut again = AuditFiles::new(dir.path().into());
        again.write(entries(1, 3), AuditFileKind::Refusals).expect("written");
        again.write(entries(1, 4), AuditFileKind::Changes).expect("written");
        assert_eq!(all(&again, 0), [1, 2, 3, 4]);
    }

    #[test]
    fn files_are_few_and_refusals_push_no_change_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = AuditFiles { full: 1000, ..AuditFiles::new(dir.path().into()) };
        files.write(entries(1, 1), AuditFileKind::Changes).expect("written");
        for _ in 0..200 {
            files.write(entries(10, 2), AuditFileKind::Refusals).expect("written");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1 + MOST);
        let kept = all(&files, 0);
        assert_eq!((kept[0], kept.last()), (1, Some(&2001)));
    }
}
