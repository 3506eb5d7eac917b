//! Fetches files from their origins into a write session: several ranges of each at once, which are written in order.

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use potluck_client::{Attributes, Pool, Progress, Session};
use potluck_core::attributes::FileTime;
use potluck_core::ids::VersionId;
use potluck_core::origin::Origin;
use potluck_core::path::PoolPath;
use potluck_origin::{Checksum, FoundOrigin, Origins, Summing};
use potluck_wire::error::{ErrorKind, Failure, code};

/// The number of bytes of a range: enough that a request costs little beside it, and few enough that what is ahead of
/// the writer fits in memory.
const RANGE: u64 = 4 << 20;

/// What files are fetched with.
pub struct Fetching<'a> {
    pub client: &'a Pool,
    pub origins: &'a Origins,
    /// The most ranges of a file at once.
    pub connections: usize,
    pub progress: &'a dyn Progress,
}

/// A file that is to be fetched.
pub struct FetchedFile<'a> {
    /// The path at which the file becomes visible.
    pub path: PoolPath,
    /// What its origin says of it.
    pub found: FoundOrigin,
    /// The checksum that it must have, if one was given.
    pub checksum: Option<&'a Checksum>,
}

impl Fetching<'_> {
    /// Imports a file. Returns it with its origin, and its version in the pool.
    pub async fn file(
        &self,
        session: &Session,
        file: FetchedFile<'_>,
    ) -> (PoolPath, Origin, Result<VersionId, Failure>) {
        let FetchedFile { path, found: FoundOrigin { mut origin, ranges }, checksum } = file;
        origin.imported_wall_ms = self.client.wall_ms();
        let done = self.store(session, (&path, &origin), ranges, checksum).await;
        (path, origin, done)
    }

    async fn store(
        &self,
        session: &Session,
        (path, origin): (&PoolPath, &Origin),
        ranges: bool,
        checksum: Option<&Checksum>,
    ) -> Result<VersionId, Failure> {
        let attributes = Attributes {
            mtime: origin.modified_wall_ms.map(FileTime::of_ms),
            ..Attributes::default()
        };
        let mut writer = session.create(path.clone(), attributes);
        writer.set_origin(origin.clone());
        let mut sum = checksum.map(Checksum::begin);
        let mut pieces = match ranges {
            true => self.ranges(origin),
            false => self.origins.read_through(&origin.uri).await?,
        };
        while let Some(bytes) = pieces.try_next().await? {
            let len = bytes.len() as u64;
            if let Some(sum) = &mut sum {
                sum.add(&bytes);
            }
            writer.write_owned(bytes).await?;
            self.progress.advance(len);
        }
        if writer.written() != origin.size {
            let (came, size) = (writer.written(), origin.size);
            let what = format!("{} sent {came} bytes and had said that it has {size}", origin.uri);
            return Err(Failure::new(ErrorKind::Retry, code::ORIGIN_CHANGED, what)
                .hint("import it again: it may have changed meanwhile"));
        }
        check(sum, checksum, origin)?;
        writer.finish().await
    }

    /// Returns a file as its ranges, in order, of which some are fetched ahead.
    fn ranges<'f>(&'f self, origin: &'f Origin) -> BoxStream<'f, Result<Vec<u8>, Failure>> {
        let size = origin.size;
        let starts = (0..size.div_ceil(RANGE)).map(|number| number * RANGE);
        let fetch = move |start: u64| async move {
            let range = start..(start + RANGE).min(size);
            let bytes = self.origins.read_range(&origin.uri, range.clone(), Some(origin)).await?;
            match bytes.len() as u64 == range.end - range.start {
                true => Ok(bytes),
                false => {
                    let what = format!("{} has become shorter while it was read", origin.uri);
                    Err(Failure::new(ErrorKind::Retry, code::ORIGIN_CHANGED, what)
                        .hint("import it again"))
                }
            }
        };
        stream::iter(starts).map(fetch).buffered(self.connections).boxed()
    }
}

/// Refuses a file that does not have the checksum that was asked for.
fn check(sum: Option<Summing>, asked: Option<&Checksum>, origin: &Origin) -> Result<(), Failure> {
    if sum.map(Summing::finish).as_ref() == asked {
        return Ok(());
    }
    let what = format!("{} does not have the checksum that was given", origin.uri);
    Err(Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
        .hint("nothing of it was stored: check the checksum, and where it was published"))
}
