//! Daemons: telling others that they serve, and hearing that they should stop.

use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::write_private;
use std::net::SocketAddr;
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// Writes `{"pid", "address"}` to `file`, at once and whole.
pub fn announce(file: Option<&Path>, address: SocketAddr) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::json!({ "pid": std::process::id(), "address": address });
    write_private(file, text.to_string().as_bytes()).map_err(|error| {
        let what = format!("cannot write {}: {error}", file.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
    })
}

/// Completes when the process is asked to end: Ctrl-C, or the terminate signal. From this call on,
/// and not only while it is waited for, these no longer end the process by themselves.
pub fn asked_to_stop() -> impl Future<Output = ()> {
    let stop = |kind| {
        let signal = signal(kind);
        async move {
            match signal {
                Ok(mut signal) => signal.recv().await.unwrap_or_default(),
                Err(_) => std::future::pending().await,
            }
        }
    };
    let interrupt = stop(SignalKind::interrupt());
    let (terminate, hangup) = (stop(SignalKind::terminate()), stop(SignalKind::hangup()));
    async move {
        tokio::select! {
            () = interrupt => {}
            () = terminate => {}
            () = hangup => {}
        }
    }
}
