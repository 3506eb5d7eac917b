//! All that a role takes from outside: time, chance, the network, and where blocking work goes.

use crate::net::{BoxFuture, SharedNet};
use potluck_core::clock::{SharedClock, SystemClock};
use potluck_core::entropy::{SharedEntropy, SystemEntropy};
use std::any::Any;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The outside world of one role. Cloning shares it.
#[derive(Clone)]
pub struct Env {
    /// The source of time.
    pub clock: SharedClock,
    /// The source of randomness.
    pub entropy: SharedEntropy,
    /// The network, for sockets.
    pub net: SharedNet,
    /// The place where work goes that blocks a thread or takes much CPU.
    pub offload: Offload,
}

impl Env {
    /// Makes the environment of the machine itself: its clocks, randomness, network and threads.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock::default()),
            entropy: Arc::new(SystemEntropy),
            net: Arc::new(crate::net::SystemNet),
            offload: Offload::Threads,
        }
    }
}

/// The place where work goes that would hold up a runtime's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// The work goes to the runtime's pool of blocking threads.
    Threads,
    /// The work is done on the spot, so that one thread and one seed decide everything.
    Inline,
}

impl Offload {
    /// Runs `work` and gives its result. A panic in `work` continues in the caller.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match self {
            Self::Inline => work(),
            Self::Threads => {
                let result = on_a_thread(Box::new(move || Box::new(work()))).await;
                *result.downcast().expect("it is what the work returned")
            }
        }
    }
}

/// Work of which the type is forgotten. The runtime's code for a task is compiled once for each type that it is given,
/// and there are hundreds of kinds of work.
type Work = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

fn on_a_thread(work: Work) -> BoxFuture<'static, Box<dyn Any + Send>> {
    Box::pin(async {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    })
}

/// Runs a future as a task of its own. All futures are one type here, for the reason of [`Work`].
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let future: BoxFuture<'static, T> = Box::pin(future);
    tokio::spawn(future)
}
