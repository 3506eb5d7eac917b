//! Trying a member's addresses one after the other, each next one as soon as one has failed or a moment has passed (RFC
//! 8305, “Happy Eyeballs”). The first that answers, and proves who it is, wins.

use crate::addresses::{Address, Addresses};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::fmt;
use std::io;
use std::time::Duration;

/// The time for which one address is tried before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// The failures at all addresses, none of which was reached.
#[derive(Debug)]
pub struct NoneReached<E>(pub Vec<(Address, E)>);

impl<E: fmt::Display> fmt::Display for NoneReached<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no address of it is known");
        }
        for (at, (address, why)) in self.0.iter().enumerate() {
            write!(f, "{}at {address}: {why}", if at > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

/// Runs `attempt` at the addresses until one succeeds; the attempts have deadlines of their own.
/// Attempts that are still under way are dropped.
pub async fn first_of<T, E, F>(
    addresses: &Addresses,
    attempt: impl Fn(Address) -> F,
) -> Result<(Address, T), NoneReached<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut waiting = addresses.iter();
    let mut under_way = FuturesUnordered::new();
    let mut failed = Vec::new();
    loop {
        if let Some(address) = waiting.next() {
            let tried = attempt(address.clone());
            under_way.push(async move { (address.clone(), tried.await) });
        } else if under_way.is_empty() {
            return Err(NoneReached(failed));
        }
        let next_is_due = async {
            match waiting.len() {
                0 => std::future::pending().await,
                _ => tokio::time::sleep(STAGGER).await,
            }
        };
        tokio::select! {
            biased;
            Some((address, tried)) = under_way.next() => match tried {
                Ok(reached) => return Ok((address, reached)),
                Err(why) => failed.push((address, why)),
            },
            () = next_is_due => {}
        }
    }
}

impl From<NoneReached<io::Error>> for io::Error {
    fn from(unreached: NoneReached<io::Error>) -> Self {
        let kind = unreached.0.first().map_or(io::ErrorKind::NotFound, |(_, why)| why.kind());
        Self::new(kind, unreached.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn list(text: &str) -> Addresses {
        text.parse().expect("addresses")
    }

    /// Tries an address by its name: `no` fails at once, `dead` never answers, `slow` answers after 100 ms.
    async fn attempt(address: Address) -> Result<String, &'static str> {
        match address.host() {
            "no" => Err("refused"),
            "dead" => {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Err("no answer")
            }
            "slow" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(address.to_string())
            }
            _ => Ok(address.to_string()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_answers_is_taken_and_the_dead_cost_a_moment() {
        let began = Instant::now();
        let (at, _) = first_of(&list("no:1,no:2,slow:3,good:4"), attempt).await.expect("reached");
        assert_eq!(at.as_str(), "slow:3", "there was no reason to try the last");
        assert!(began.elapsed() < STAGGER);
        let (at, _) = first_of(&list("dead:1,dead:2,slow:3"), attempt).await.expect("reached");
        assert_eq!(at.as_str(), "slow:3");
        assert!(began.elapsed() < 4 * STAGGER, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_says_what_was_tried() {
        let began = Instant::now();
        let why = first_of(&list("dead:1,no:2,dead:3"), attempt).await.expect_err("nobody");
        assert_eq!(why.to_string(), "at no:2: refused; at dead:1: no answer; at dead:3: no answer");
        assert!(began.elapsed() < Duration::from_secs(4), "they were tried side by side");
        let none = first_of(&Addresses::default(), attempt).await.expect_err("nobody");
        assert_eq!(none.to_string(), "no address of it is known");
    }
}
