//! Memory for the bodies of requests. Short ones are bounded by the number of connections; those that are longer
//! share one budget, each member one at a time, so that what callers send never is what a manager dies of.

use crate::control::MAX_MESSAGE;
use crate::error::{ErrorKind, Failure, code};
use axum::body::{Body, Bytes, HttpBody};
use futures_util::StreamExt;
use potluck_core::chunk::Digest;
use potluck_core::size::format_size;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// The largest body that needs no part of the budget. Most are far shorter.
pub const SHORT: usize = 256 << 10;
/// Bytes that long bodies take together: that of the largest call, and of some more beside it.
const TOGETHER: usize = 3 * MAX_MESSAGE;
/// The largest body of a stranger: a join.
pub const OF_A_STRANGER: usize = 16 << 10;
/// How long a member's body may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a stranger's may.
const DEADLINE_OF_A_STRANGER: Duration = Duration::from_secs(10);
/// How long a long body waits for its turn; its sender tries again.
const TURN_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes per permit of the budget.
const GRAIN: usize = 4096;

/// The budget of a server.
#[derive(Debug)]
pub struct Bodies {
    budget: Arc<Semaphore>,
    /// The turns of members that have or want a long body.
    turns: Mutex<BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
}

/// The body of a request that was received.
#[derive(Debug)]
pub struct Received {
    /// The bytes of the whole body.
    pub bytes: Bytes,
    /// The part of the budget that the body takes, to be kept as long as what it says is.
    pub claim: Option<BodyClaim>,
}

/// A part of the budget, and a member's turn. Given back when dropped.
#[derive(Debug)]
pub struct BodyClaim {
    _turn: OwnedMutexGuard<()>,
    _memory: OwnedSemaphorePermit,
}

impl Default for Bodies {
    fn default() -> Self {
        let budget = Arc::new(Semaphore::new(TOGETHER / GRAIN));
        Self { budget, turns: Mutex::default() }
    }
}

impl Bodies {
    /// Reads the body of a request of this member, by the fingerprint of its certificate, or of a stranger. One that
    /// is long says its length, and is read when there is memory for it.
    pub async fn read(&self, body: Body, member: Option<Digest>) -> Result<Received, Failure> {
        let Some(member) = member else {
            let bytes = collect(body, OF_A_STRANGER, DEADLINE_OF_A_STRANGER).await?;
            return Ok(Received { bytes, claim: None });
        };
        let len = usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(usize::MAX);
        if len > MAX_MESSAGE {
            let (len, most) = (format_size(len as u64), format_size(MAX_MESSAGE as u64));
            return Err(bad(&format!("it has {len}, and at most {most} are read")));
        }
        if len <= SHORT {
            let bytes = collect(body, SHORT, DEADLINE).await?;
            return Ok(Received { bytes, claim: None });
        }
        let claim = tokio::time::timeout(TURN_DEADLINE, self.claim(member, len)).await;
        let claim = claim.map_err(|_| {
            let what = "the manager has no memory left for long requests".to_string();
            Failure::new(ErrorKind::Retry, code::NO_MANAGER, what)
                .hint("others send them now: try again in a moment")
        })?;
        let bytes = collect(body, len, DEADLINE).await?;
        Ok(Received { bytes, claim: Some(claim) })
    }

    async fn claim(&self, member: Digest, len: usize) -> BodyClaim {
        let turn = {
            let mut turns = self.turns.lock().expect("no holder panics");
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(&member).and_then(Weak::upgrade);
            let turn = known.unwrap_or_default();
            turns.insert(member, Arc::downgrade(&turn));
            turn
        };
        let turn = turn.lock_owned().await;
        let grains = len.div_ceil(GRAIN) as u32;
        let memory = self.budget.clone().acquire_many_owned(grains).await;
        BodyClaim { _turn: turn, _memory: memory.expect("never closed") }
    }
}

async fn collect(body: Body, most: usize, deadline: Duration) -> Result<Bytes, Failure> {
    match tokio::time::timeout(deadline, copied(body, most)).await {
        Ok(bytes) => bytes,
        Err(_) => Err(bad("it did not arrive in time")),
    }
}

/// Copies what arrives at once: each piece keeps the whole buffer that it was read into, of which the body would take
/// twenty times its size.
async fn copied(body: Body, most: usize) -> Result<Bytes, Failure> {
    let len = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut whole = Vec::with_capacity(len.min(most));
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|why| bad(&why.to_string()))?;
        if piece.len() > most - whole.len() {
            return Err(bad(&format!("it has more than {}", format_size(most as u64))));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
}

fn bad(why: &str) -> Failure {
    Failure::bad_request(format!("the request's body: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, stream};

    const ONE: Option<Digest> = Some(Digest([1; 32]));
    const OTHER: Option<Digest> = Some(Digest([2; 32]));

    fn body(len: usize) -> Body {
        Body::from(vec![b' '; len])
    }

    /// Makes a body of a length that it does not tell.
    fn unsaid(len: usize) -> Body {
        Body::from_stream(stream::iter([Ok::<_, std::io::Error>(vec![b' '; len])]))
    }

    /// A piece of a body, which knows how many of them there are.
    struct Piece {
        _alive: Arc<()>,
        bytes: [u8; 1024],
    }

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    #[tokio::test]
    async fn no_piece_of_a_body_is_kept_while_the_others_arrive() {
        let alive = Arc::new(());
        let pieces = (0..100).map({
            let alive = Arc::clone(&alive);
            move |_| {
                // The test's own, that of the closure, and of the piece before.
                assert!(Arc::strong_count(&alive) <= 3, "{} are kept", Arc::strong_count(&alive));
                Ok::<_, std::io::Error>(Bytes::from_owner(Piece {
                    _alive: Arc::clone(&alive),
                    bytes: [7; 1024],
                }))
            }
        });
        let body = Body::from_stream(stream::iter(pieces));
        let read = Bodies::default().read(body, ONE).await.expect("read");
        assert_eq!(read.bytes, vec![7; 100 * 1024]);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[tokio::test]
    async fn long_bodies_share_a_budget_and_each_member_has_one_at_a_time() {
        let bodies = Bodies::default();
        let first = bodies.read(body(MAX_MESSAGE), ONE).await.expect("read");
        assert_eq!(first.bytes.len(), MAX_MESSAGE);
        assert!(bodies.read(body(SHORT + 1), ONE).now_or_never().is_none(), "its turn is taken");
        let short = bodies.read(body(SHORT), ONE).await.expect("read");
        let others: Vec<_> = [OTHER, Some(Digest([3; 32]))].to_vec();
        let mut held = Vec::new();
        for other in others {
            held.push(bodies.read(body(MAX_MESSAGE), other).await.expect("read"));
        }
        let late = Some(Digest([4; 32]));
        assert!(bodies.read(body(SHORT + 1), late).now_or_never().is_none(), "all is taken");
        drop(first);
        assert!(bodies.read(body(SHORT + 1), late).await.is_ok());
        assert!(bodies.read(body(SHORT + 1), ONE).await.is_ok(), "and its turn is free again");
        drop((short, held));
        assert_eq!(bodies.budget.available_permits(), TOGETHER / GRAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_too_long_for_memory_is_told_to_try_again() {
        let bodies = Bodies::default();
        let _first = bodies.read(body(SHORT + 1), ONE).await.expect("read");
        let refused = bodies.read(body(SHORT + 1), ONE).await.expect_err("no turn");
        assert_eq!(refused.kind, ErrorKind::Retry);
    }

    #[tokio::test]
    async fn what_is_too_long_for_its_sender_is_refused() {
        let bodies = Bodies::default();
        assert!(bodies.read(body(OF_A_STRANGER + 1), None).await.is_err());
        assert!(bodies.read(body(OF_A_STRANGER), None).await.is_ok());
        assert!(bodies.read(body(MAX_MESSAGE + 1), ONE).await.is_err());
        assert!(bodies.read(unsaid(SHORT), ONE).await.is_ok());
        assert!(
            bodies.read(unsaid(SHORT + 1), ONE).await.is_err(),
            "of a length that it does not say"
        );
    }
}
