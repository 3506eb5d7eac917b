//! Files whose writing was suspended: their chunks at donors can be read, and a new file can be made of them, before
//! anything is visible.

use crate::fetch::Fetcher;
use crate::file::File;
use crate::recipe::Recipe;
use crate::source::Cut;
use crate::write::pushes::SessionHandle;
use potluck_core::attributes::{FileTime, Permissions};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::erasure::Ec;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Policy, Race};
use potluck_core::recipe::{Content, pack, part_bytes};
use potluck_wire::control::OpenFile;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::packed::{Blob, Packed};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most chunks that a writer remembers, parity included, in some 80 bytes each: 2 TiB of chunks of the default
/// size.
const MOST_REMEMBERED: usize = 1 << 19;

/// The chunks that a writer has cut or taken over.
#[derive(Default)]
pub(crate) struct BroughtChunks {
    /// The chunks of each part of the file; `None` once there were too many to remember.
    parts: Option<Vec<BroughtPart>>,
    count: usize,
}

/// The chunks of one part of a file.
#[derive(Default)]
struct BroughtPart {
    /// The number of the part in its file.
    number: u64,
    content: Content,
    parity: Vec<ChunkName>,
}

impl BroughtChunks {
    /// Makes an empty list of chunks.
    pub fn new() -> Self {
        Self { parts: Some(vec![BroughtPart::default()]), count: 0 }
    }

    /// Remembers chunks that were cut, unless there are too many.
    pub fn add(&mut self, cuts: &[Cut]) {
        for cut in cuts {
            match (cut, &mut self.parts) {
                (Cut::Group { data, parity, .. }, Some(parts)) => {
                    let part = parts.last_mut().expect("there is always one");
                    data.iter().for_each(|(entry, _)| part.content.push(*entry));
                    part.parity.extend(parity.iter().map(|(name, _)| *name));
                    self.count += data.len() + parity.len();
                }
                (Cut::Hole { len, .. }, Some(parts)) => {
                    parts.last_mut().expect("there is always one").content.push_hole(*len);
                }
                (Cut::HoleParts { count, .. }, Some(parts)) => {
                    parts.last_mut().expect("there is always one").number += u64::from(*count);
                }
                (Cut::PartEnd { .. }, Some(parts)) => {
                    let number = parts.last().expect("there is always one").number + 1;
                    // Of a part that is a hole its number is enough.
                    parts.pop_if(|part| part.content.chunks.is_empty());
                    parts.push(BroughtPart { number, ..BroughtPart::default() });
                }
                _ => {}
            }
        }
        if self.count > MOST_REMEMBERED {
            self.parts = None;
        }
    }
}

/// A file whose writing was suspended. Its chunks stay with their donors until this value and all clones of its session
/// and of [`Suspended::file`] are dropped.
pub struct Suspended {
    session: SuspendedSession,
    file: File,
    rest: Vec<u8>,
}

/// The write session of a file whose writing was suspended, in which [`Writer::anew`](crate::Writer::anew) goes on.
#[derive(Clone)]
pub struct SuspendedSession {
    /// The session, which stays open as long as this handle exists.
    pub(crate) handle: Arc<SessionHandle>,
    path: PoolPath,
}

impl SuspendedSession {
    /// Returns the path at which the file would have become visible.
    pub fn path(&self) -> &PoolPath {
        &self.path
    }

    /// Returns the policy under which the file is written.
    pub fn policy(&self) -> &Policy {
        &self.handle.policy
    }
}

impl Suspended {
    /// Makes the suspended file at `path` from the chunks that its session has, all of which were acknowledged, and
    /// from `rest`, its last bytes.
    ///
    /// Errors: [`code::BAD_REQUEST`] for a file with more chunks than a writer remembers; those of finding the chunks.
    pub(crate) async fn new(
        session: Arc<SessionHandle>,
        path: PoolPath,
        brought: BroughtChunks,
        rest: Vec<u8>,
    ) -> Result<Self, Failure> {
        let parts = brought.parts.ok_or_else(|| {
            let what = format!("{path} has too many chunks to be changed before it is closed");
            Failure::new(ErrorKind::Other, code::BAD_REQUEST, what).hint(
                "close it first, or store it in larger chunks (`potluck policy set --chunk-size`)",
            )
        })?;
        let ec = session.policy.ec;
        let opened = |part: BroughtPart| opened(&path, part, session.policy.chunk_size, ec);
        let row = part_bytes(session.policy.chunk_size, session.policy.is_cut_by_content());
        let size = parts.last().map_or(0, |last| last.number * row + last.content.size());
        let parts = parts.into_iter().filter(|part| !part.content.chunks.is_empty());
        let parts: Vec<(u64, OpenFile)> = parts.map(|part| (part.number, opened(part))).collect();
        let chunk = session.policy.chunk_size as usize;
        let unit = chunk * ec.map_or(1, Ec::width);
        let key = session.key.clone();
        let memory = session.client.memory_for_reading(chunk, unit, session.donors);
        let fetcher = Fetcher::new(&session.client, memory);
        let checked = |(number, part)| Ok((number, Arc::new(Recipe::check(part, key.as_ref())?)));
        let recipes: BTreeMap<u64, Arc<Recipe>> =
            parts.into_iter().map(checked).collect::<Result<_, Failure>>()?;
        fetcher.located_by(Arc::clone(&session) as _);
        for recipe in recipes.values() {
            fetcher.locate(recipe).await?;
        }
        let file = File::unpublished(&path, size, recipes, &session.policy, fetcher);
        Ok(Self { session: SuspendedSession { handle: session, path }, file, rest })
    }

    /// Returns the file that the whole chunks, or whole groups, make up that were written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the bytes that follow those of [`Suspended::file`].
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Returns the session that has the chunks of the file.
    pub fn session(&self) -> SuspendedSession {
        self.session.clone()
    }
}

/// Makes the answer that the manager would give to opening this part of a file, without the holders of its chunks.
fn opened(path: &PoolPath, part: BroughtPart, chunk_size: u32, ec: Option<Ec>) -> OpenFile {
    let BroughtPart { content, parity, .. } = part;
    // Chunks that are cut by content do not tell the digest; then a constant binds the pages to one another.
    let digest = content.digest().unwrap_or_else(|| Digest::of(b""));
    OpenFile {
        metadata: None,
        path: path.to_string(),
        version: VersionId(0),
        size: content.size(),
        holes: content.hole_bytes(),
        digest,
        mtime: FileTime(0),
        permissions: Permissions::FILE,
        owner: None,
        changed: FileTime::default(),
        accessed: None,
        inline: None,
        pages: pack(&digest, &content).into_iter().map(Blob).collect(),
        holders: Vec::new(),
        ec,
        parity: Packed(parity),
        parity_holders: Vec::new(),
        race: Race::default(),
        part_count: 0,
        parts: Packed::default(),
        chunk_size,
        key: None,
        origin: None,
    }
}
