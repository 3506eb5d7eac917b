//! Memory for the bodies of requests. Bodies of up to 16 KiB (`FREE`) are bounded by the number of connections alone.
//! What has arrived of all longer bodies shares one budget, and each owner has a limited number of them at a time. So
//! callers cannot exhaust the memory of a manager, and a body that is only announced costs nothing.

use crate::control::{Call, MAX_MESSAGE};
use crate::env;
use crate::error::{ErrorKind, Failure, code};
use axum::body::{Body, Bytes, HttpBody};
use futures_util::StreamExt;
use potluck_core::size::format_size;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// The largest body that is read on the thread of its connection, and of which an owner has several at a time. Most are
/// far shorter.
pub const SHORT: usize = 256 << 10;
/// The largest body of a stranger: a join.
pub const OF_A_STRANGER: usize = 16 << 10;
/// The bytes of a body that take no part of the budget.
const FREE: usize = 16 << 10;
/// The bytes that all bodies may take together, beside [`Bodies::last`].
const TOGETHER: usize = 2 * MAX_MESSAGE;
/// The number of bodies that one owner may have at a time, of those that are not long but take part of the budget.
const SHORT_AT_ONCE: usize = 256;
/// The time that a stranger's body may take to arrive.
const DEADLINE_OF_A_STRANGER: Duration = Duration::from_secs(10);
/// The time for which a body waits for its turn, or for memory. Then its sender is told to try again.
const TURN_DEADLINE: Duration = Duration::from_secs(10);
/// The most bytes that are still read of a body whose call was refused without it.
const DISCARDED: usize = 1 << 20;
const DISCARDED_FOR: Duration = Duration::from_secs(5);
/// The number of bytes per permit of the budget.
const GRAIN: usize = 4096;

/// The budget of a server, whose senders are known by owners of kind `K` (members, certificates).
#[derive(Debug)]
pub struct Bodies<K> {
    budget: Arc<Semaphore>,
    /// The place of the one body that goes on without the budget when that is used up. However many bodies wait for
    /// memory with a part of them arrived, one at a time ends, and gives back what it has.
    last: Arc<tokio::sync::Mutex<()>>,
    /// The turns of owners that have or want bodies; those for long bodies are apart.
    turns: Mutex<BTreeMap<(K, bool), Weak<Semaphore>>>,
}

/// The bounds of the body of a call.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// The most bytes of the body.
    pub most: usize,
    /// The time that the body may take: as long as its caller waits for the answer. A shorter time by a rate in bytes
    /// a second would cut off callers behind slow lines, and a slow body takes no more memory than has arrived.
    pub deadline: Duration,
}

impl BodyLimits {
    /// Returns the bounds of the body of a call `C`.
    pub const fn of<C: Call>() -> Self {
        Self { most: C::MOST_BODY, deadline: C::DEADLINE }
    }
}

/// The body of a request that was received.
#[derive(Debug)]
pub struct Received {
    /// The bytes of the whole body.
    pub bytes: Bytes,
    /// The part of the budget that the body takes, to be kept as long as the content that was read from it.
    pub claim: Option<BodyClaim>,
}

/// A part of the budget, and an owner's turn, both given back when it is dropped.
#[derive(Debug)]
pub struct BodyClaim {
    _turn: OwnedSemaphorePermit,
    memory: OwnedSemaphorePermit,
    last: Option<OwnedMutexGuard<()>>,
}

impl<K: Copy + Ord> Default for Bodies<K> {
    fn default() -> Self {
        let budget = Arc::new(Semaphore::new(TOGETHER / GRAIN));
        Self { budget, last: Arc::default(), turns: Mutex::default() }
    }
}

impl<K: Copy + Ord> Bodies<K> {
    /// Reads the body of a request that `owner` sends, or a stranger where there is none. A body longer than [`SHORT`]
    /// has to say its length.
    pub async fn read(
        &self,
        body: Body,
        owner: Option<K>,
        limits: BodyLimits,
    ) -> Result<Received, Failure> {
        let Some(owner) = owner else {
            let reading = self.copied(body, limits.most.min(OF_A_STRANGER), None);
            let bytes = in_time(DEADLINE_OF_A_STRANGER, reading).await?;
            return Ok(Received { bytes, claim: None });
        };
        let said = body.size_hint().exact();
        let len =
            said.map_or(SHORT.min(limits.most), |len| usize::try_from(len).unwrap_or(usize::MAX));
        if len > limits.most {
            let (len, most) = (format_size(len as u64), format_size(limits.most as u64));
            discard(body);
            return Err(bad(&format!("it has {len}, and at most {most} are read")));
        }
        let reading = async {
            let mut claim = match len <= FREE {
                true => None,
                false => Some(self.claim(owner, len).await?),
            };
            let bytes = self.copied(body, len, claim.as_mut()).await?;
            Ok(Received { bytes, claim })
        };
        in_time(limits.deadline, reading).await
    }

    /// Waits for the turn of an owner for a body of this many bytes, without any memory yet.
    async fn claim(&self, owner: K, len: usize) -> Result<BodyClaim, Failure> {
        let is_long = len > SHORT;
        let turn = {
            let mut turns = self.turns.lock().expect("no holder panics");
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(&(owner, is_long)).and_then(Weak::upgrade);
            let at_once = if is_long { 1 } else { SHORT_AT_ONCE };
            let turn = known.unwrap_or_else(|| Arc::new(Semaphore::new(at_once)));
            turns.insert((owner, is_long), Arc::downgrade(&turn));
            turn
        };
        let turn = tokio::time::timeout(TURN_DEADLINE, turn.acquire_owned()).await;
        let turn = turn.map_err(|_| no_memory())?.expect("never closed");
        let nothing = self.budget.clone().try_acquire_many_owned(0).expect("never closed");
        Ok(BodyClaim { _turn: turn, memory: nothing, last: None })
    }

    /// Copies each piece as it arrives, because a piece keeps alive the whole buffer that it was read into, and a body
    /// of such pieces would take twenty times its size.
    async fn copied(
        &self,
        body: Body,
        most: usize,
        mut claim: Option<&mut BodyClaim>,
    ) -> Result<Bytes, Failure> {
        let mut whole = Vec::with_capacity(most.min(FREE));
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|why| bad(&why.to_string()))?;
            if piece.len() > most - whole.len() {
                return Err(bad(&format!("it has more than {}", format_size(most as u64))));
            }
            if let Some(claim) = &mut claim {
                self.cover(claim, whole.len() + piece.len()).await?;
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.into())
    }

    /// Waits until a body of which this many bytes have arrived has its part of the budget.
    async fn cover(&self, claim: &mut BodyClaim, len: usize) -> Result<(), Failure> {
        let needs = len.saturating_sub(FREE).div_ceil(GRAIN);
        let more = needs.saturating_sub(claim.memory.num_permits()) as u32;
        if more == 0 || claim.last.is_some() {
            return Ok(());
        }
        let covered = async {
            tokio::select! {
                biased;
                memory = self.budget.clone().acquire_many_owned(more) => {
                    claim.memory.merge(memory.expect("never closed"));
                }
                last = Arc::clone(&self.last).lock_owned() => claim.last = Some(last),
            }
        };
        tokio::time::timeout(TURN_DEADLINE, covered).await.map_err(|_| no_memory())
    }
}

/// Reads on, for a while, a body whose call is refused without it. A sender whose connection is closed while it still
/// sends gets a reset, often before it has read the answer that says why.
pub fn discard(body: Body) {
    env::spawn(tokio::time::timeout(DISCARDED_FOR, async move {
        let mut pieces = body.into_data_stream();
        let mut len = 0;
        while let Some(Ok(piece)) = pieces.next().await {
            len += piece.len();
            if len > DISCARDED {
                break;
            }
        }
    }));
}

async fn in_time<T>(
    deadline: Duration,
    reading: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(deadline, reading).await.unwrap_or_else(|_| {
        let what = "the request's body did not arrive in time";
        Err(Failure::new(ErrorKind::Retry, code::NO_MANAGER, what).hint("try again"))
    })
}

fn bad(why: &str) -> Failure {
    Failure::bad_request(format!("the request's body: {why}"))
}

fn no_memory() -> Failure {
    let what = "the manager has no memory left for long requests";
    Failure::new(ErrorKind::Retry, code::NO_MANAGER, what)
        .hint("others send them now: try again in a moment")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, stream};

    const ONE: Option<u32> = Some(1);
    const LARGEST: BodyLimits = BodyLimits { most: MAX_MESSAGE, deadline: Duration::from_secs(30) };

    fn body(len: usize) -> Body {
        Body::from(vec![b' '; len])
    }

    /// Makes a body of a length that it does not tell.
    fn unsaid(len: usize) -> Body {
        Body::from_stream(stream::iter([Ok::<_, std::io::Error>(vec![b' '; len])]))
    }

    /// A body that says its length, and of which nothing comes.
    struct Silent(u64);

    impl HttpBody for Silent {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Pending
        }

        fn size_hint(&self) -> hyper::body::SizeHint {
            hyper::body::SizeHint::with_exact(self.0)
        }
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
                // Three are alive at most: the test's own, that of the closure, and that of the piece before.
                assert!(Arc::strong_count(&alive) <= 3, "{} are kept", Arc::strong_count(&alive));
                Ok::<_, std::io::Error>(Bytes::from_owner(Piece {
                    _alive: Arc::clone(&alive),
                    bytes: [7; 1024],
                }))
            }
        });
        let body = Body::from_stream(stream::iter(pieces));
        let read = Bodies::default().read(body, ONE, LARGEST).await.expect("read");
        assert_eq!(read.bytes, vec![7; 100 * 1024]);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[tokio::test]
    async fn long_bodies_share_a_budget_and_each_owner_has_one_at_a_time() {
        let bodies = Bodies::default();
        let first = bodies.read(body(MAX_MESSAGE), ONE, LARGEST).await.expect("read");
        assert_eq!(first.bytes.len(), MAX_MESSAGE);
        let again = bodies.read(body(SHORT + 1), ONE, LARGEST);
        assert!(again.now_or_never().is_none(), "its turn is taken");
        assert!(
            bodies.read(body(SHORT), ONE, LARGEST).await.is_ok(),
            "others have turns of theirs"
        );
        let mut held = Vec::new();
        for other in [2, 3] {
            held.push(bodies.read(body(MAX_MESSAGE), Some(other), LARGEST).await.expect("read"));
        }
        let late = Some(4);
        let reading = bodies.read(body(SHORT + 1), late, LARGEST);
        assert!(reading.now_or_never().is_none(), "all is taken");
        assert!(bodies.read(body(FREE), late, LARGEST).await.is_ok(), "the shortest need nothing");
        drop(first);
        assert!(bodies.read(body(MAX_MESSAGE), late, LARGEST).await.is_ok());
        assert!(bodies.read(body(SHORT + 1), ONE, LARGEST).await.is_ok(), "its turn is free again");
        drop(held);
        assert_eq!(bodies.budget.available_permits(), TOGETHER / GRAIN);
    }

    #[tokio::test]
    async fn bodies_that_are_announced_and_do_not_come_delay_nobody() {
        let bodies = Bodies::default();
        let mut silent: Vec<_> = (1..=3)
            .map(|owner| {
                let body = Body::new(Silent(MAX_MESSAGE as u64));
                Box::pin(bodies.read(body, Some(owner), LARGEST))
            })
            .collect();
        let mut all = silent.iter_mut();
        assert!(all.all(|reading| reading.as_mut().now_or_never().is_none()));
        let fourth = bodies.read(body(MAX_MESSAGE), Some(4), LARGEST).now_or_never();
        assert!(fourth.is_some_and(|read| read.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_request_bodies_stay_within_the_budget() {
        let bodies = Bodies::default();
        let sending = (0..4000).map(|owner| bodies.read(body(SHORT), Some(owner), LARGEST));
        let read = futures_util::future::join_all(sending).await;
        let taken: usize = read.iter().flatten().map(|read| read.bytes.len() - FREE).sum();
        assert!(taken <= TOGETHER + SHORT, "{taken}");
        assert!(taken > TOGETHER - SHORT, "{taken}");
        let refused = read.iter().filter_map(|read| read.as_ref().err());
        assert!(refused.into_iter().all(|why| why.kind == ErrorKind::Retry));
        // Only some bodies of one owner are taken.
        drop(read);
        let sending = (0..4000).map(|_| bodies.read(body(SHORT), ONE, LARGEST));
        let read = futures_util::future::join_all(sending).await;
        assert_eq!(read.iter().flatten().count(), SHORT_AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn body_memory_wait_times_out_with_retry() {
        let bodies = Bodies::default();
        let _first = bodies.read(body(SHORT + 1), ONE, LARGEST).await.expect("read");
        let refused = bodies.read(body(SHORT + 1), ONE, LARGEST).await.expect_err("no turn");
        assert_eq!(refused.kind, ErrorKind::Retry);
    }

    #[tokio::test]
    async fn bodies_over_the_sender_limit_are_refused() {
        let bodies = Bodies::default();
        assert!(bodies.read(body(OF_A_STRANGER + 1), None, LARGEST).await.is_err());
        assert!(bodies.read(body(OF_A_STRANGER), None, LARGEST).await.is_ok());
        assert!(bodies.read(body(MAX_MESSAGE + 1), ONE, LARGEST).await.is_err());
        assert!(bodies.read(unsaid(SHORT), ONE, LARGEST).await.is_ok());
        let more = bodies.read(unsaid(SHORT + 1), ONE, LARGEST).await;
        assert!(more.is_err(), "of a length that it does not say");
        let small = BodyLimits { most: 100, ..LARGEST };
        assert!(bodies.read(body(100), ONE, small).await.is_ok());
        assert!(bodies.read(body(101), ONE, small).await.is_err(), "of a call that needs less");
        assert!(bodies.read(unsaid(101), ONE, small).await.is_err());
    }
}
