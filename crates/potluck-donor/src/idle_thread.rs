//! Threads for work that yields to everything else on the machine: the owner's programs, and the requests of clients.

use potluck_wire::env::{Env, Offload};
use tokio::sync::oneshot;

/// The stack size of a thread in bytes: enough for hashing and file system calls.
const STACK: usize = 256 << 10;

/// Runs `work` on a thread that yields to everything else on the machine; the system's priority for the disk follows
/// that for the processor. `None` when no thread can be started, or the work panics.
pub(crate) async fn on_idle_thread<T: Send + 'static>(
    env: &Env,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if env.offload == Offload::Inline {
        return Some(work());
    }
    let (tell, told) = oneshot::channel();
    let thread = std::thread::Builder::new().name("potluck-idle".into()).stack_size(STACK);
    let spawned = thread.spawn(move || {
        // A thread cannot get its priority back, so it lives for one piece of work only.
        if let Err(why) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19) {
            tracing::debug!("work in the background runs at normal priority: {why}");
        }
        drop(tell.send(work()));
    });
    match spawned {
        Ok(_) => told.await.ok(),
        Err(why) => {
            tracing::warn!("cannot start a thread for work in the background: {why}");
            None
        }
    }
}
