//! Signals: SIGINT and SIGTERM ask a command or a daemon to stop; SIGHUP stops a command, and asks a daemon to read
//! its settings again.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code of a command that its user interrupted.
pub const INTERRUPTED: u8 = 130;

/// Completes when a command is asked to end: by Ctrl-C, the terminate signal, or the loss of its terminal.
/// From this call on, and not only while the future is awaited, these signals no longer end the process by
/// themselves.
pub fn asked_to_stop() -> impl Future<Output = ()> {
    let hangup = next(SignalKind::hangup());
    let stopped = told_to_stop();
    async move {
        tokio::select! {
            () = stopped => {}
            () = hangup => {}
        }
    }
}

/// Ends the process with `code` when it is asked to stop for the second time, also in the middle of work that does
/// not react to the first time, such as a walk through a large tree.
pub fn second_stop_ends(code: u8) {
    let (mut interrupt, mut terminate) =
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
            _ => return,
        };
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        std::process::exit(code.into());
    });
}

/// Returns a future of the signal to stop a daemon, and its hangups. Unlike with [`asked_to_stop`] a hangup does not
/// end the daemon, which outlives the terminal that it was started from. Call it before the daemon says that it is
/// ready.
pub fn daemon_signals() -> (impl Future<Output = ()>, Hangups) {
    (told_to_stop(), Hangups(signal(SignalKind::hangup()).ok()))
}

fn told_to_stop() -> impl Future<Output = ()> {
    let (interrupt, terminate) = (next(SignalKind::interrupt()), next(SignalKind::terminate()));
    async move {
        tokio::select! {
            () = interrupt => {}
            () = terminate => {}
        }
    }
}

fn next(kind: SignalKind) -> impl Future<Output = ()> {
    let signal = signal(kind);
    async move {
        match signal {
            Ok(mut signal) => signal.recv().await.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

/// The hangups (SIGHUP) that a daemon gets.
pub struct Hangups(Option<Signal>);

impl Hangups {
    /// Waits for the next hangup.
    pub async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => signal.recv().await.unwrap_or_default(),
            None => std::future::pending().await,
        }
    }

    /// Calls `what` at each hangup, and never returns.
    pub async fn each<T>(mut self, mut what: impl AsyncFnMut()) -> T {
        loop {
            self.next().await;
            what().await;
        }
    }
}
