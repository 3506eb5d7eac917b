//! The rates at which write sessions stored files (checkpoint store, section V.B): until they were visible, and until
//! all copies were made. Only sessions that were opened since the manager's start count.

use potluck_core::checkpoint::{CheckpointId, StagedPlace};
use potluck_core::clock::Tick;
use potluck_core::ids::SessionId;
use potluck_core::path::PoolPath;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The number of checkpoints that are remembered: all that open sessions write to, even if they are more, and of the
/// others those that were written to last.
const CHECKPOINTS: usize = 1024;
const MIB: f64 = (1 << 20) as f64;

/// The bytes that sessions have written, and the times that they took.
#[derive(Debug, Default)]
pub struct SessionRates(Mutex<Written>);

/// The sums over the sessions opened since the manager's start that are over and made files visible. Open sessions are
/// not counted yet.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct WrittenSoFar {
    /// The plaintext bytes of the files that these sessions made visible.
    pub bytes: u64,
    /// The times from the opening of each session until the last of its files became visible, added up.
    pub until_visible: Duration,
    /// The times from the opening of each session until it was over, with all the copies that its writer makes, added
    /// up.
    pub until_stored: Duration,
}

/// A checkpoint, by the name of its space: its identifier is its own only there.
type InSpace = (String, CheckpointId);

#[derive(Debug, Default)]
struct Written {
    sessions: BTreeMap<SessionId, OpenSession>,
    checkpoints: BTreeMap<InSpace, WrittenCheckpoint>,
    so_far: WrittenSoFar,
}

#[derive(Debug)]
struct OpenSession {
    opened: Tick,
    /// The moment at which the last of the session's files became visible.
    visible: Option<Tick>,
    bytes: u64,
    /// True if some of the files that became visible lack copies, which others make later.
    owes: bool,
    checkpoints: BTreeSet<InSpace>,
}

/// The bytes that were staged for a checkpoint, and when.
#[derive(Debug, Clone, Copy)]
struct WrittenCheckpoint {
    /// The moment at which the first session began that wrote to the checkpoint.
    began: Tick,
    /// The moment at which the last file of the checkpoint was staged.
    visible: Tick,
    /// The moment at which the last session was over that wrote to the checkpoint.
    stored: Tick,
    bytes: u64,
    /// The number of open sessions that write to the checkpoint.
    open: usize,
    owes: bool,
}

/// The rates of what is staged for a checkpoint, in MiB a second.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct CheckpointRates {
    /// The rate until the last file was staged so far.
    pub observed: Option<f64>,
    /// The rate until all copies were made; `None` while some are not, or that is not known.
    pub achieved: Option<f64>,
}

/// A file that became visible: its path, and its bytes.
pub type StoredBytes<'a> = (&'a PoolPath, u64);

impl SessionRates {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().expect("no holder panics")
    }

    /// Notes that a session is open.
    pub fn opened(&self, session: SessionId, now: Tick) {
        let (visible, bytes, owes, checkpoints) = Default::default();
        let open = OpenSession { opened: now, visible, bytes, owes, checkpoints };
        self.written().sessions.insert(session, open);
    }

    /// Notes that a session made files visible; `owes` says that some of them lack copies that are made later.
    pub fn visible<'a>(
        &self,
        session: SessionId,
        files: impl Iterator<Item = StoredBytes<'a>>,
        owes: bool,
        now: Tick,
    ) {
        let mut written = self.written();
        let Written { sessions, checkpoints, .. } = &mut *written;
        // A session from before the manager's start is not known here.
        let Some(open) = sessions.get_mut(&session) else { return };
        for (path, bytes) in files {
            open.visible = Some(now);
            open.bytes += bytes;
            open.owes |= owes;
            let Some(place) = StagedPlace::of(path) else { continue };
            let which = (path.space().to_owned(), place.id);
            let is_new = open.checkpoints.insert(which.clone());
            let of = checkpoints.entry(which).or_insert(WrittenCheckpoint {
                began: open.opened,
                visible: now,
                stored: now,
                bytes: 0,
                open: 0,
                owes,
            });
            of.open += usize::from(is_new);
            of.began = of.began.min(open.opened);
            of.visible = now;
            of.bytes += bytes;
            of.owes |= owes;
        }
        written.forget_oldest();
    }

    /// Notes that a session is over.
    pub fn ended(&self, session: SessionId, now: Tick) {
        let mut written = self.written();
        let Some(open) = written.sessions.remove(&session) else { return };
        for id in open.checkpoints {
            if let Some(of) = written.checkpoints.get_mut(&id) {
                of.open -= 1;
                of.stored = now;
            }
        }
        written.forget_oldest();
        let Some(visible) = open.visible else { return };
        let so_far = &mut written.so_far;
        so_far.bytes += open.bytes;
        so_far.until_visible += visible.saturating_sub(open.opened);
        so_far.until_stored += now.saturating_sub(open.opened);
    }

    /// Returns the sums over the sessions that are over.
    pub fn so_far(&self) -> WrittenSoFar {
        self.written().so_far
    }

    /// Returns the rates of what is staged for a checkpoint, as far as anything is known.
    pub fn of(&self, space: &str, id: CheckpointId) -> CheckpointRates {
        let Some(of) = self.written().checkpoints.get(&(space.to_owned(), id)).copied() else {
            return CheckpointRates::default();
        };
        let rate = |until: Tick| {
            let took = until.saturating_sub(of.began).as_secs_f64();
            (of.bytes > 0).then(|| of.bytes as f64 / MIB / took.max(1e-9))
        };
        let is_stored = of.open == 0 && !of.owes;
        let achieved = if is_stored { rate(of.stored) } else { None };
        CheckpointRates { observed: rate(of.visible), achieved }
    }
}

impl Written {
    fn forget_oldest(&mut self) {
        while self.checkpoints.len() > CHECKPOINTS {
            let over = self.checkpoints.iter().filter(|(_, of)| of.open == 0);
            let oldest = over.min_by_key(|(_, of)| of.visible);
            let Some(oldest) = oldest.map(|(which, _)| which.clone()) else { return };
            self.checkpoints.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_rate_ends_with_its_last_session() {
        let rates = SessionRates::default();
        let (one, other) = (SessionId::in_term(1, 1), SessionId::in_term(1, 2));
        let id = CheckpointId([7; 16]);
        let target: PoolPath = "pot://lab/run".parse().expect("a path");
        let staged = |name: &str| {
            let staging = target.parent().and_then(|dir| dir.join(&id.staging_name()).ok());
            staging.and_then(|dir| dir.join(name).ok()).expect("a path")
        };
        let at = |seconds| Tick::from_secs(seconds);
        let mib = 1 << 20;
        rates.opened(one, at(10));
        rates.opened(other, at(11));
        rates.visible(one, [(&staged("a"), 6 * mib)].into_iter(), false, at(12));
        assert_eq!(rates.of("lab", id), CheckpointRates { observed: Some(3.0), achieved: None });
        rates.visible(other, [(&staged("b"), 6 * mib), (&target, mib)].into_iter(), false, at(14));
        rates.ended(one, at(14));
        assert_eq!(rates.of("lab", id), CheckpointRates { observed: Some(3.0), achieved: None });
        rates.ended(other, at(16));
        assert_eq!(
            rates.of("lab", id),
            CheckpointRates { observed: Some(3.0), achieved: Some(2.0) }
        );
        let so_far = WrittenSoFar {
            bytes: 13 * mib,
            until_visible: Duration::from_secs(2 + 3),
            until_stored: Duration::from_secs(4 + 5),
        };
        assert_eq!(rates.so_far(), so_far);
        // Copies that others make later are made at a time that nobody tells.
        rates.opened(one, at(20));
        rates.visible(one, [(&staged("c"), mib)].into_iter(), true, at(21));
        rates.ended(one, at(22));
        assert_eq!(rates.of("lab", id).achieved, None);
        // However many other checkpoints there are meanwhile, one that is written to stays known.
        rates.opened(other, at(22));
        rates.visible(other, [(&staged("d"), mib)].into_iter(), false, at(22));
        rates.opened(one, at(23));
        for n in 0..2 * CHECKPOINTS as u128 {
            let name = CheckpointId(n.to_be_bytes()).staging_name();
            let elsewhere = target.parent().and_then(|dir| dir.join(&name).ok());
            let file = elsewhere.and_then(|dir| dir.join("e").ok()).expect("a path");
            rates.visible(one, [(&file, mib)].into_iter(), false, at(23));
        }
        rates.visible(other, [(&staged("f"), mib)].into_iter(), false, at(24));
        for session in [other, one] {
            rates.ended(session, at(25));
        }
        assert_eq!(rates.written().checkpoints.len(), CHECKPOINTS);
        let bytes = 14 + 2 + 2 * CHECKPOINTS as u64;
        assert_eq!(rates.so_far().bytes, bytes * mib);
        let before = rates.so_far().until_stored;
        // A session that wrote nothing does not count.
        rates.opened(one, at(30));
        rates.ended(one, at(90));
        assert_eq!(rates.so_far().until_stored, before);
    }
}
