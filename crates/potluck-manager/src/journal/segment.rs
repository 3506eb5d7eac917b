//! Segments: the journal as donors keep it, sealed records under the recovery key.
//!
//! A segment is a header and lines. It names the segment before it, so that none can be left out,
//! exchanged or put elsewhere unseen. A generation begins with a base, the whole state of one moment,
//! and goes on with the changes since.

use super::record::Line;
use crate::catalog::{Error, notes};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::Epoch;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// Plaintext bytes after which a segment is closed: with its last line it is within 4 MiB.
const FULL: usize = 3 << 20;

/// Which part of a generation a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// State, and more of it follows.
    Base,
    /// The last of the state.
    BaseEnd,
    /// Changes.
    Log,
}

/// What a segment says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Counts all segments of the catalog.
    pub sequence: u64,
    /// The sequence of the first segment of its generation.
    pub generation: u64,
    /// Which part of the generation it is.
    pub part: Part,
    /// The segment before it; none before a generation's first.
    pub before: Option<ChunkName>,
    /// The manager's epoch.
    pub epoch: Epoch,
    /// Counts the writes of one epoch, whether they were committed or not; 0 where it is not said.
    #[serde(default)]
    pub attempt: u64,
    /// Wall time, for people.
    pub wall_ms: i64,
}

/// A segment that is not what a manager writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a segment of the journal cannot be read: {0}")]
pub struct BadSegment(String);

/// Lines of a segment, as they are sealed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// Bytes, each line with its end.
    pub text: Vec<u8>,
    /// How many.
    pub count: u64,
}

/// Lines on their way into segments.
#[derive(Debug, Default)]
pub struct Cutter {
    full: Vec<Lines>,
    open: Lines,
}

impl Cutter {
    /// Adds a line.
    pub fn add(&mut self, line: &Line) -> Result<(), Error> {
        serde_json::to_writer(&mut self.open.text, line)
            .map_err(|why| Error::Bug(why.to_string()))?;
        self.open.text.push(b'\n');
        self.open.count += 1;
        if self.open.text.len() >= FULL {
            self.full.push(std::mem::take(&mut self.open));
        }
        Ok(())
    }

    /// How many segments are whole.
    pub fn full(&self) -> usize {
        self.full.len()
    }

    /// The whole segments so far.
    pub fn take_full(&mut self) -> Vec<Lines> {
        std::mem::take(&mut self.full)
    }

    /// All that is left.
    pub fn finish(mut self) -> Vec<Lines> {
        if self.open.count > 0 {
            self.full.push(self.open);
        }
        self.full
    }
}

/// The plaintext of a segment.
pub fn text(header: &Header, lines: &Lines) -> Result<Vec<u8>, Error> {
    let mut text = serde_json::to_vec(header).map_err(|why| Error::Bug(why.to_string()))?;
    text.push(b'\n');
    text.extend_from_slice(&lines.text);
    Ok(text)
}

/// Reads a segment's header, which must have the number it was sealed with.
pub fn header(sequence: u64, text: &[u8]) -> Result<Header, BadSegment> {
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let header: Header =
        serde_json::from_slice(first).map_err(|why| BadSegment(why.to_string()))?;
    if header.sequence != sequence {
        return Err(BadSegment("it has another number than it was sealed with".into()));
    }
    Ok(header)
}

/// Reads a segment's lines.
pub fn lines(text: &[u8]) -> impl Iterator<Item = Result<Line, BadSegment>> {
    let lines = text.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).map_err(|why| BadSegment(why.to_string())))
}

/// How far the journal of a catalog has come; noted with what each segment covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The sequence of the generation's first segment.
    pub generation: u64,
    /// The last segment.
    pub sequence: u64,
    /// Its name.
    pub last: ChunkName,
    /// The manager's epoch when it was written.
    #[serde(default)]
    pub epoch: Epoch,
    /// The attempt that wrote it.
    #[serde(default)]
    pub attempt: u64,
    /// Whether some of the generation is on no donor any more: nothing can be read after it, and a
    /// new one takes its place.
    #[serde(default)]
    pub lost: bool,
    /// Segments and lines of the base.
    pub base: Extent,
    /// Segments and lines since.
    pub log: Extent,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Segments.
    pub segments: u64,
    /// Lines.
    pub lines: u64,
}

impl Extent {
    /// Counts segments in.
    pub fn add(&mut self, segments: &[Lines]) {
        self.segments += segments.len() as u64;
        self.lines += segments.iter().map(|lines| lines.count).sum::<u64>();
    }
}

/// Lines of changes below which no new generation is worth it.
const MIN_LINES: u64 = 20_000;
/// Segments of changes below which no new generation is worth it: half an hour of changes.
const MIN_SEGMENTS: u64 = 1024;

impl Position {
    /// What the catalog says.
    pub fn of(db: &Connection) -> Result<Option<Self>, Error> {
        let Some(text) = notes::get(db, notes::JOURNAL)? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|why| Error::Damaged(format!("the note of the journal: {why}")))
    }

    /// Writes it down.
    pub fn note(&self, db: &Connection) -> Result<(), Error> {
        let text = serde_json::to_string(self).map_err(|why| Error::Bug(why.to_string()))?;
        notes::set(db, notes::JOURNAL, &text)
    }

    /// Whether a new generation is due: some of this one is lost, or its changes outweigh the base, so
    /// that a new base is cheaper than reading them.
    pub fn is_worn(&self) -> bool {
        self.lost
            || self.log.lines > MIN_LINES.max(self.base.lines)
            || self.log.segments > MIN_SEGMENTS.max(4 * self.base.segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record::Record;

    fn line(row: i64) -> Line {
        Line { row, record: Record::SpaceRemoved { name: "lab".into() } }
    }

    #[test]
    fn a_segment_reads_as_it_was_written_and_under_its_own_number_only() {
        let mut cutter = Cutter::default();
        (1..4).for_each(|row| cutter.add(&line(row)).expect("added"));
        let cut = cutter.finish();
        assert_eq!((cut.len(), cut[0].count), (1, 3));
        let said = Header {
            sequence: 7,
            generation: 5,
            part: Part::Log,
            before: Some(ChunkName::of(b"six")),
            epoch: Epoch(2),
            attempt: 3,
            wall_ms: 1,
        };
        let text = text(&said, &cut[0]).expect("text");
        assert_eq!(header(7, &text), Ok(said));
        assert!(header(8, &text).is_err());
        let read: Vec<Line> = lines(&text).collect::<Result<_, _>>().expect("lines");
        assert_eq!(read, [line(1), line(2), line(3)]);
        assert!(lines(&text[..text.len() - 3]).any(|line| line.is_err()), "cut");
    }

    #[test]
    fn segments_are_cut_before_they_outgrow_a_chunk() {
        let mut cutter = Cutter::default();
        while cutter.full() == 0 {
            cutter.add(&line(1)).expect("added");
        }
        let full = cutter.take_full();
        assert!((FULL..4 << 20).contains(&full[0].text.len()));
        assert!(cutter.finish().is_empty());
    }

    #[test]
    fn a_generation_is_worn_when_changes_outweigh_its_base() {
        let name = ChunkName::of(b"last");
        let epoch = Epoch(1);
        let at = |base, log| Position {
            generation: 1,
            sequence: 9,
            last: name,
            epoch,
            attempt: 1,
            lost: false,
            base,
            log,
        };
        let extent = |segments, lines| Extent { segments, lines };
        assert!(!at(extent(1, 10), extent(900, 20_000)).is_worn(), "little");
        assert!(at(extent(1, 10), extent(900, 20_001)).is_worn());
        assert!(!at(extent(9, 500_000), extent(900, 500_000)).is_worn());
        assert!(at(extent(1, 10), extent(1025, 1025)).is_worn(), "many small ones");
        let lost = Position { lost: true, ..at(extent(1, 10), extent(0, 0)) };
        assert!(lost.is_worn(), "not all of it is on donors");
    }
}
