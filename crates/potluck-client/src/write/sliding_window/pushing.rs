//! Files that their writers push: what they bring goes the way of what is cut here.

use super::{Event, FileState, Settling, Window, visible};
use crate::pool::Pool;
use crate::progress::Quiet;
use crate::write::options::PutOptions;
use crate::write::pushes::{Push, Pushes};
use crate::write::report::PutReport;
use crate::write::session::WriteSession;
use potluck_wire::error::Failure;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::UnboundedReceiver;

/// Stores what writers push under an open session, until they are all gone. What ends it early is in `ended`
/// before any of them hears of it.
pub(crate) async fn write_pushed(
    client: &Pool,
    session: WriteSession,
    pushes: Pushes,
    options: &PutOptions,
    ended: &OnceLock<Failure>,
) -> Result<(PutReport, Settling), Failure> {
    let mut window = Window::new(client, session, options, Arc::new(Quiet));
    let Pushes { from, tell } = pushes;
    window.writers = Some(tell);
    window.listen(from);
    window.renew_later();
    match window.run(Window::all_visible).await {
        Ok(()) => visible(window, Ok(())).await,
        Err(failure) => {
            let _ = ended.set(failure.clone()); // set once, here
            visible(window, Err(failure)).await
        }
    }
}

impl Window {
    fn listen(&mut self, mut from: UnboundedReceiver<Push>) {
        self.listening = true;
        self.events.push(Box::pin(async move {
            let push = from.recv().await;
            Event::Pushed(from, push)
        }));
    }

    pub(super) fn take_pushed(&mut self, mut from: UnboundedReceiver<Push>, push: Option<Push>) {
        self.listening = false;
        let Some(push) = push else { return };
        self.take_push(push);
        while let Ok(push) = from.try_recv() {
            self.take_push(push);
        }
        self.listen(from);
    }

    /// Tells the writers whether they may bring more.
    pub(super) fn tell_writers(&self) {
        if let Some(writers) = &self.writers {
            let may = self.may_cut();
            writers.send_if_modified(|told| std::mem::replace(told, may) != may);
        }
    }

    fn take_push(&mut self, push: Push) {
        match push {
            Push::Cuts(cuts) => cuts.into_iter().for_each(|cut| self.take_cut(cut)),
            Push::Flush(file, done) => {
                self.is_awaited = true;
                self.files.entry(file).or_default().flushed = Some(done);
                self.tell_flushed(file);
            }
            Push::Await(file, done) => {
                self.is_awaited = true;
                self.files.entry(file).or_default().finished = Some(done);
            }
            Push::Abort(file) => drop(self.files.remove(&file)),
        }
    }

    /// Tells a writer that waits for it that all it has brought is stored.
    pub(super) fn tell_flushed(&mut self, file: u32) {
        let stored = |state: &&mut FileState| state.open == 0;
        if let Some(done) = self.files.get_mut(&file).filter(stored).and_then(|f| f.flushed.take())
        {
            let _ = done.send(()); // its writer may be gone
        }
    }
}
