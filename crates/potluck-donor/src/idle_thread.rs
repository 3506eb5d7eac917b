//! Threads that yield to everything else on the machine, first of all to the owner's programs: those that serve clients,
//! and those of the background.

use potluck_wire::env::{Env, Offload};
use tokio::sync::oneshot;

/// The stack size of a thread in bytes: enough for hashing and file system calls.
const STACK: usize = 256 << 10;

/// Has this thread yield to everything else on the machine from now on. A thread cannot get its priority back, so it must
/// be one that ends with its work.
///
/// On Linux it runs only while a processor has nothing else to do (`SCHED_IDLE`), and the system's priority for the disk
/// follows that for the processor; elsewhere it has the lowest priority.
pub(crate) fn yield_for_good() {
    #[cfg(target_os = "linux")]
    {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads `none` and keeps nothing of it; 0 stands for the calling thread.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) } == 0 {
            return;
        }
    }
    if let Err(why) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19) {
        tracing::debug!("work for others runs at normal priority: {why}");
    }
}

/// Runs `work` on a thread that yields to everything else on the machine. `None` when no thread can be started, or the work panics.
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
        yield_for_good();
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
