//! Fetches chunks of a cached file from its origin, where no donor has them: in the middle of a read, which notices
//! nothing but the time that it takes.

use super::{Fetched, Fetcher, segment_run};
use crate::recipe::Recipe;
use potluck_core::chunk::Digest;
use potluck_core::origin::Origin;
use potluck_core::read_plan::Piece;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The time for which donors are waited for at least before an origin is asked: a short pause of a machine is no reason
/// to fetch what may be far away.
const LEAST_DEADLINE: Duration = Duration::from_secs(3);
/// The time for which donors are waited for whose rates are not known.
const UNKNOWN_DEADLINE: Duration = Duration::from_secs(10);

impl Fetcher {
    /// Returns the origin of a file, if it is cached and this client goes to origins.
    fn origin_of<'r>(&self, recipe: &'r Recipe) -> Option<&'r Origin> {
        recipe.file.origin.as_deref().filter(|_| self.client.origins.is_some())
    }

    /// Returns whether a chunk of these is at the origin and, as far as is known, at no donor that answers.
    pub(super) fn is_only_at_origin(&self, recipe: &Recipe, pieces: &[Piece]) -> bool {
        let is_gone = |piece: &Piece| recipe.holders(piece.index).is_empty();
        let hang = || self.donors_hang.load(Ordering::Relaxed);
        self.origin_of(recipe).is_some() && (hang() || pieces.iter().any(is_gone))
    }

    /// Fetches pieces from donors; of a file whose origin can be asked instead, no longer than donors may take for them.
    pub(super) async fn ask_donors(
        &self,
        recipe: &Recipe,
        pieces: &[Piece],
        place: &mut OwnedSemaphorePermit,
        origin_failed: bool,
    ) -> Result<Vec<Fetched>, Failure> {
        if origin_failed || self.origin_of(recipe).is_none() {
            return self.unit_now(recipe, pieces, place).await;
        }
        let deadline = self.origin_deadline(recipe, pieces);
        match tokio::time::timeout(deadline, self.unit_now(recipe, pieces, place)).await {
            Ok(done) => done,
            Err(_) => {
                self.donors_hang.store(true, Ordering::Relaxed);
                let what = "the donors of a chunk do not answer";
                Err(Failure::new(ErrorKind::Retry, code::UNREADABLE, what))
            }
        }
    }

    /// Returns how long donors may take for pieces before their origin is asked: several times what they are expected to
    /// take, where that is known.
    fn origin_deadline(&self, recipe: &Recipe, pieces: &[Piece]) -> Duration {
        let expected = self.donors.rates(|rates| {
            let of = |piece: &Piece| {
                let len = recipe.entries[piece.index].len;
                let known = recipe.holders(piece.index).into_iter();
                known
                    .filter_map(|donor| rates.get(&donor).filter(|it| it.rate().is_some()))
                    .map(|it| it.expected_finish(len))
                    .min()
            };
            pieces.iter().map(of).sum::<Option<Duration>>()
        });
        expected.map_or(UNKNOWN_DEADLINE, |expected| LEAST_DEADLINE + 4 * expected)
    }

    /// Returns whether the origin is asked because donors failed like this.
    pub(super) fn may_ask_origin(&self, recipe: &Recipe, failure: &Failure) -> bool {
        let is_of_copies = matches!(failure.kind, ErrorKind::Retry | ErrorKind::Integrity);
        self.origin_of(recipe).is_some() && is_of_copies
    }

    /// Fetches whole chunks from the origin of their file, since only these can be proved.
    ///
    /// Errors: those of [`OriginSource::read`](crate::OriginSource::read), and [`code::ORIGIN_CHANGED`] where the bytes
    /// at the origin are not those that were imported.
    pub(super) async fn fetch_at_origin(
        &self,
        recipe: &Recipe,
        pieces: &[Piece],
        place: &mut OwnedSemaphorePermit,
    ) -> Result<Vec<Fetched>, Failure> {
        let mut fetched = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let entry = &recipe.entries[piece.index];
            let (Some(origin), Some(origins)) = (self.origin_of(recipe), &self.client.origins)
            else {
                let what = "the file has no origin that this client goes to";
                return Err(Failure::new(ErrorKind::Retry, code::ORIGIN_REFUSED, what));
            };
            let begin = recipe.begins_at + recipe.offset(piece.index);
            let range = begin..begin + u64::from(entry.len);
            let bytes = origins.read(origin, range).await?;
            let (digest, len) = (entry.digest, entry.len as usize);
            let (bytes, is_right) = self
                .client
                .env
                .offload
                .run(move || {
                    let is_right = bytes.len() == len && Digest::of(&bytes) == digest;
                    (bytes, is_right)
                })
                .await;
            if !is_right {
                return Err(origin_changed(origin));
            }
            let mut buffer = self.memory.buffers.claim(len).await.buffer(len);
            buffer.copy_from_slice(&bytes);
            self.client.from_origin.fetch_add(1, Ordering::Relaxed);
            if let Some(cache) = &self.client.cache {
                let run = segment_run(recipe, piece);
                if run.is_whole() {
                    cache.put(&run, &bytes);
                }
            }
            fetched.push(Fetched::new(buffer, 0, place));
        }
        self.outage.read_some();
        Ok(fetched)
    }
}

/// Returns the failure of a read of a cached file whose origin has other content now.
fn origin_changed(origin: &Origin) -> Failure {
    let what =
        format!("the origin has changed: what is at {} is not what was imported", origin.uri);
    Failure::new(ErrorKind::Integrity, code::ORIGIN_CHANGED, what)
        .hint("`potluck import --refresh` takes over what is there now")
}
