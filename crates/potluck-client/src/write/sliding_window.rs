//! The sliding window (docs/papers.md, checkpoint store): cutting, offering, sending and committing overlap,
//! and only so many bytes are under way at a time.
//!
//! ```text
//! cutter ──▶ offer (which chunks does the pool hold?) ──▶ send to donors ──▶ commit
//! bounded by the client's buffers; one offer and one commit at a time
//! ```

mod committing;
mod cutting;
mod denials;
mod in_parts;
mod local_files;
mod locating;
mod offering;
mod outage;
mod room;
mod sending;
mod sending_again;
mod settling;
mod stages;
#[cfg(test)]
mod tests;

use super::groups::Groups;
use super::reservation::Reservation;
use super::targets::Targets;
use crate::donors::Donors;
use crate::fetch::LocatedChunks;
use crate::link::PutResult;
use crate::pool::Pool;
use crate::progress::Progress;
use crate::retry_limits::Pauses;
use crate::source::{Cut, Cutter, Facts, RowBytes};
use crate::write::options::PutOptions;
use crate::write::pushes::{Finished, Push, Pushes};
use crate::write::report::PutReport;
use denials::Denials;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use outage::Outage;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::path::PoolPath;
use potluck_core::recipe::Content;
use potluck_core::traffic::Direction;
use potluck_wire::control::{Committed, CommittedParts, FileCommit, Grown, Offered, Renewed};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use potluck_wire::ticket::Acknowledged;
use sending_again::{Rereads, Row};
use stages::{Committing, Cutting, Offer, Offering, PartOf, Room, Sending, Whole};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// Stores what is pushed to an open session, until all files are visible that can become visible, and all copies are
/// made that this client makes. A failure that ends the session early is in `pushes.failure` before any writer hears of
/// it.
pub(crate) async fn write(
    client: &Pool,
    session: Reservation,
    pushes: Pushes,
    options: &PutOptions,
    progress: Arc<dyn Progress>,
) -> Result<PutReport, Failure> {
    let ended = Arc::clone(&pushes.failure);
    let mut window = Window::new(client, session, pushes, options, progress);
    window.renew_later();
    match window.run(Window::all_visible).await {
        Ok(()) => {
            let now = window.client.env.clock.now();
            window.report.visible_after = now.saturating_sub(window.opened);
            Ok(window.settle().await)
        }
        Err(failure) => {
            let failure = match failure.code.as_str() {
                code::NO_SESSION => window.session.calls().lost_right().await.unwrap_or(failure),
                _ => failure,
            };
            let _ = ended.set(failure.clone()); // this is the only place that sets it
            for finished in window.refused.drain(..) {
                let _ = finished.send(Err(failure.clone())); // its writer may be gone
            }
            // A write that may work later can go on from here, so what it sent is kept; any other write is not tried
            // again as it is.
            let goes_on = failure.kind == ErrorKind::Retry;
            let failure = if goes_on { window.with_advice(failure) } else { failure };
            let failure = window.report.with_stored(failure);
            window.session.abort(goes_on).await;
            Err(failure)
        }
    }
}

/// An event that the window waits for.
enum Event {
    Cut(Box<Cutter>, Vec<Cut>),
    /// A message of the writers came; `None` when all writers are gone.
    Pushed(UnboundedReceiver<Push>, Option<Push>),
    Offered(Offer, Result<Offered, Failure>),
    Put {
        name: ChunkName,
        donor: DonorId,
        result: PutResult,
    },
    Grown(u64, Result<Grown, Failure>),
    Committed(Vec<(FileCommit, Option<Finished>)>, Result<Committed, Failure>),
    /// The manager answered which parts of a file lost donors after they were committed.
    LostParts(u32, Result<CommittedParts, Failure>),
    /// The manager answered which donors are there, for a file that was refused because some went away.
    Heard(u32, Box<FileCommit>, Result<LocatedChunks, Failure>),
    ReadAgain(Box<Row>, Result<RowBytes, Failure>),
    Renewed(Result<Renewed, Failure>),
    /// The manager answered a request for new tickets, made because donors did not let this client in.
    Readmitted(Result<Renewed, Failure>),
    LookForLate,
    /// The manager answered how donors that were away can be reached; `None` when the wait for them was too long.
    Reached(Box<Pauses>, Option<Result<Grown, Failure>>),
    /// Files that are ready have waited long enough for others to share their commit.
    CommitDue,
    /// A question about where chunks are was answered.
    Located,
}

/// The state of a write. Each stage has a state of its own; the other fields are used by several stages.
struct Window {
    client: Pool,
    session: Reservation,
    donors: Donors,
    targets: Targets,
    progress: Arc<dyn Progress>,
    events: FuturesUnordered<BoxFuture<'static, Event>>,
    files: BTreeMap<u32, FileState>,
    /// The last number that was given to a part, or to a file that is sent again. These numbers count down, and those
    /// of the cutters up from 0.
    last_number: u32,
    /// The files that are stored in parts. Each part is among `files` until it is complete.
    wholes: BTreeMap<u32, Whole>,
    /// The writers of files whose commit was refused together with the whole session; they are told why once that is
    /// known.
    refused: Vec<Finished>,
    groups: Groups,
    report: PutReport,
    /// The moment at which the session was opened.
    opened: Tick,

    cutting: Cutting,
    offering: Offering,
    sending: Sending,
    room: Room,
    denials: Denials,
    outage: Outage,
    rereads: Rereads,
    committing: Committing,
}

#[derive(Default)]
struct FileState {
    content: Content,
    parity: Vec<ChunkName>,
    acknowledged: Vec<Acknowledged>,
    /// The acknowledgements of parity chunks; their indexes count from the file's first parity chunk.
    parity_acknowledged: Vec<Acknowledged>,
    /// The number of groups of the file that are not stored yet.
    open: usize,
    /// The plaintext bytes of its chunks that the pool held already.
    held: u64,
    facts: Option<Facts>,
    /// The place of a part in its file, known when the part is cut to its end; `None` for a whole file.
    part: Option<PartOf>,
    /// True if the file was complete before, and is sent again because donors of it went away.
    is_again: bool,
    /// The reason why some chunks of the file cannot be sent: the local file changed between being read and being sent,
    /// or chunks that were kept of another version could not be read.
    unsent: Option<Failure>,
    /// The channel to a writer that waits until no group of the file is open.
    flushed: Option<oneshot::Sender<()>>,
    /// The file's writer, which waits until the file is visible.
    finished: Option<Finished>,
}

impl FileState {
    /// Returns whether the file or part is cut to its end and stored.
    fn is_ready(&self) -> bool {
        self.facts.is_some() && self.open == 0
    }
}

impl Window {
    fn new(
        client: &Pool,
        session: Reservation,
        pushes: Pushes,
        options: &PutOptions,
        progress: Arc<dyn Progress>,
    ) -> Self {
        let donors = client.donors(client.buffers.clone(), Direction::Write);
        donors.learn(session.reserved.donors.clone());
        let policy = &session.reserved.policy;
        Self {
            client: client.clone(),
            targets: Targets::new(donors.clone(), session.reserved.plan.clone()),
            donors,
            progress,
            events: FuturesUnordered::new(),
            files: BTreeMap::new(),
            last_number: u32::MAX,
            wholes: BTreeMap::new(),
            refused: Vec::new(),
            groups: Groups::new(policy),
            report: PutReport::default(),
            opened: client.env.clock.now(),
            cutting: Cutting::new(pushes, options),
            offering: Offering::default(),
            sending: Sending::default(),
            room: Room::default(),
            denials: Denials::default(),
            outage: Outage::default(),
            rereads: Rereads::default(),
            committing: Committing::new(options),
            session,
        }
    }

    async fn run(&mut self, is_over: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        loop {
            self.cut_more();
            self.grow_ahead();
            self.offer();
            self.read_again();
            self.send()?;
            self.commit()?;
            if is_over(self) {
                return Ok(());
            }
            let Some(event) = self.events.next().await else {
                return Err(stuck());
            };
            self.take(event)?;
            // Many answers come at once.
            while let Some(Some(event)) = self.events.next().now_or_never() {
                self.take(event)?;
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Cut(cutter, cuts) => self.take_cuts(cutter, cuts),
            Event::Pushed(from, push) => self.take_pushed(from, push),
            Event::Offered(offer, offered) => self.take_offered(offer, offered?),
            Event::Put { name, donor, result } => self.take_put(name, donor, result)?,
            Event::Grown(bytes, grown) => self.take_grown(bytes, grown)?,
            Event::Committed(files, Ok(committed)) => self.take_committed(files, committed),
            Event::Committed(files, Err(failure)) => {
                self.refused.extend(files.into_iter().filter_map(|(_, finished)| finished));
                return Err(failure);
            }
            Event::LostParts(file, lost) => self.take_lost_parts(file, lost?),
            Event::Heard(number, file, heard) => self.take_heard(number, *file, heard?),
            Event::ReadAgain(row, read) => self.take_read_again(*row, read),
            // The last commit may have ended the session, so after it this failure means nothing.
            Event::Renewed(Err(failure)) if !self.committing.is_finished() => return Err(failure),
            Event::Renewed(renewed) => {
                renewed.into_iter().for_each(|renewed| self.donors.learn(renewed.donors));
                self.renew_later();
            }
            Event::Readmitted(renewed) => self.take_readmitted(renewed)?,
            Event::LookForLate => self.hedge(),
            Event::CommitDue | Event::Located => {}
            Event::Reached(pauses, reached) => self.take_reached(*pauses, reached)?,
        }
        Ok(())
    }

    /// Returns whether nothing more can become visible.
    fn all_visible(&self) -> bool {
        let none = self.files.is_empty() && self.wholes.is_empty();
        self.cutting.is_over() && none && self.committing.is_idle()
    }

    /// Notes that a file does not become visible: its writer is told, or the report has the failure where there is no
    /// writer. A local file that changed while it was read is read once more instead.
    fn fail(&mut self, path: PoolPath, failure: Failure, finished: Option<Finished>) {
        if failure.code == code::CHANGED
            && finished.is_none()
            && let Some((item, bytes)) = self.rereads.local.once_more(&path)
        {
            self.progress.expect(bytes);
            return self.cutting.later.push_front(Box::new(std::iter::once(item)));
        }
        self.rereads.local.forget(&path);
        match finished {
            Some(finished) => drop(finished.send(Err(failure))), // its writer may be gone
            None => self.report.failed.push((path, failure)),
        }
    }
}

fn stuck() -> Failure {
    Failure::new(ErrorKind::Other, code::BAD_REQUEST, "the write has nothing left to wait for")
        .hint("this is a bug in Potluck: please report it")
}
