//! Signals: a command or a daemon is asked to stop (SIGINT, SIGTERM), a daemon to read its settings (SIGHUP).

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code of something interrupted by its user.
pub const INTERRUPTED: u8 = 130;

/// Completes when a command is asked to end: Ctrl-C, the terminate signal, or a terminal that is gone.
/// From this call on, and not only while it is waited for, these no longer end the process by
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

/// Ends the process with `code` when it is asked for the second time: whatever goes on then, also what
/// does not look at its surroundings, such as a walk through a large tree.
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

/// Returns the signal to stop and the hangups of a daemon, which a hangup does not end ([`asked_to_stop`]): it
/// outlives the terminal that it was started from, and reads its settings again. Call before anybody takes it
/// for ready.
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

/// Hangups that a daemon gets.
pub struct Hangups(Option<Signal>);

impl Hangups {
    /// Waits for the next.
    pub async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => signal.recv().await.unwrap_or_default(),
            None => std::future::pending().await,
        }
    }

    /// Does `what` at each, for ever.
    pub async fn each<T>(mut self, mut what: impl AsyncFnMut()) -> T {
        loop {
            self.next().await;
            what().await;
        }
    }
}
